/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of optimizers and of their groups: names, what each may be, whose counts. */
#include <math.h>

#include "src/optim/optim.h"

static const struct {
    const char *name;
    bool below_one;
} numbers[TSRI_NUMBERS] = {
#define NUMBER(NUMBER, name, below_one) [TSRI_##NUMBER] = {#name, below_one},
    TSRI_NUMBER_LIST(NUMBER)
#undef NUMBER
};

const char *tsri_number_name(tsri_number which)
{
    return numbers[which].name;
}

tsr_status tsri_number_check(const char *who, tsri_number which, double value)
{
    const char *name = numbers[which].name;
    if (numbers[which].below_one && !(value >= 0 && value < 1))
        return tsri_fail(TSR_ERR_INVALID, "%s: %s = %g must be in [0, 1)", who, name, value);
    if (which == TSRI_DAMPENING && !isfinite(value))
        return tsri_fail(TSR_ERR_INVALID, "%s: dampening = %g must be finite", who, value);
    if (which != TSRI_DAMPENING && !(value >= 0 && isfinite(value)))
        return tsri_fail(TSR_ERR_INVALID, "%s: %s = %g must be finite and not negative", who, name,
                         value);
    return TSR_OK;
}

double tsri_optim_number(const tsr_optimizer *o, const tsri_optim_group *group, tsri_number which)
{
    return isnan(group->number[which]) ? o->groups[0].number[which] : group->number[which];
}
