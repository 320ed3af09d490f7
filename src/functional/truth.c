/* SPDX-License-Identifier: Apache-2.0 */
/* Truth values: of numbers, of two, and of all or any over axes. */
#include "src/functional/inside.h"

#include <math.h>

/* Returns x as bool: what is not 0 is true. */
static tsr_tensor *truth(tsr_tensor *x, const char *file, int line)
{
    return x->dtype == TSR_BOOL ? x : tsr_not_equal(x, tsri_number(x, 0, file, line));
}

static tsr_tensor *negated(tsr_tensor *x, const char *file, int line)
{
    return tsr_equal(x, tsri_number(x, 0, file, line));
}

tsr_tensor *tsr_isnan_at(tsr_tensor *x, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "isnan", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    return tsr_not_equal(x, x);
}

tsr_tensor *tsr_isinf_at(tsr_tensor *x, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "isinf", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    if (!tsri_is_float(x->dtype))
        return tsr_not_equal(x, x);
    return tsr_equal(tsr_abs(x), tsri_number(x, INFINITY, file, line));
}

tsr_tensor *tsr_isfinite_at(tsr_tensor *x, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "isfinite", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    if (!tsri_is_float(x->dtype))
        return tsr_equal(x, x);
    return tsr_less(tsr_abs(x), tsri_number(x, INFINITY, file, line));
}

tsr_tensor *tsr_logical_not_at(tsr_tensor *x, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "logical_not", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    return negated(x, file, line);
}

/* As false < true: x and y is !x < y, x or y is x >= !y, and one of them is x != y. */
#define LOGICAL(name, value)                                                                      \
    tsr_tensor *tsr_logical_##name##_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line) \
    {                                                                                             \
        tsr_tensor *in[2] = {x, y};                                                               \
        TSRI_FUNCTION(c);                                                                         \
        if (!tsri_function_begin(&c, "logical_" #name, 2, in, 0, (tsri_loc){file, line}))         \
            return c.failed;                                                                      \
        return value;                                                                             \
    }
LOGICAL(and, tsr_less(negated(x, file, line), truth(y, file, line)))
LOGICAL(or, tsr_greater_equal(truth(x, file, line), negated(y, file, line)))
LOGICAL(xor, tsr_not_equal(truth(x, file, line), truth(y, file, line)))

/* How many elements over axes are true, as i64. */
static tsr_tensor *count(tsr_tensor *is_true, tsr_axes axes, bool keepdim, const char *file,
                         int line)
{
    return tsr_sum(tsr_cast(is_true, TSR_I64), axes, keepdim);
}

tsr_tensor *tsr_any_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, "any", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    return truth(count(truth(x, file, line), axes, keepdim, file, line), file, line);
}

tsr_tensor *tsr_all_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, "all", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    return negated(count(negated(x, file, line), axes, keepdim, file, line), file, line);
}

tsr_tensor *tsr_count_nonzero_at(tsr_tensor *x, tsr_axes axes, const char *file, int line)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, "count_nonzero", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    return count(truth(x, file, line), axes, false, file, line);
}

tsr_tensor *tsr_masked_fill_at(tsr_tensor *x, tsr_tensor *mask, double value, const char *file,
                               int line)
{
    tsr_tensor *in[2] = {x, mask};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "masked_fill", 2, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_value(&c, x->dtype, value))
        return c.failed;
    return tsr_where(mask, tsri_number(x, value, file, line), x);
}
