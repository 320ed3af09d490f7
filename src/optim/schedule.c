/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates over time: torch.optim.lr_scheduler's StepLR and CosineAnnealingLR (Loshchilov and
 * Hutter 2017), after a linear warm-up. */
#include <math.h>

#include "src/optim/optim.h"

double tsri_schedule_lr(const tsr_schedule *s, double base, int64_t step)
{
    if (step < s->warmup)
        return base * (double)(step + 1) / (double)s->warmup;
    step -= s->warmup;
    switch (s->kind) {
    case TSR_SCHEDULE_STEP:
        return base * pow(s->gamma, (double)(step / s->step_size));
    case TSR_SCHEDULE_COSINE:
        if (step >= s->steps)
            return s->min_lr;
        return s->min_lr +
               (base - s->min_lr) * 0.5 * (1 + cos(acos(-1) * (double)step / (double)s->steps));
    default:
        return base;
    }
}

tsr_status tsri_schedule_check(const tsr_schedule *s)
{
    if (s->kind < TSR_SCHEDULE_CONSTANT || s->kind > TSR_SCHEDULE_COSINE)
        return tsri_fail(TSR_ERR_INVALID, "schedule: %d is no tsr_schedule_kind", (int)s->kind);
    if (s->warmup < 0)
        return tsri_fail(TSR_ERR_INVALID, "schedule: warmup = %lld is negative",
                         (long long)s->warmup);
    if (s->kind == TSR_SCHEDULE_STEP && s->step_size < 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "schedule: TSR_SCHEDULE_STEP needs a step_size of at least 1; found %lld",
                         (long long)s->step_size);
    if (s->kind == TSR_SCHEDULE_STEP && !(s->gamma > 0 && isfinite(s->gamma)))
        return tsri_fail(TSR_ERR_INVALID,
                         "schedule: TSR_SCHEDULE_STEP needs a gamma above 0, such as 0.1; found %g",
                         s->gamma);
    if (s->kind == TSR_SCHEDULE_COSINE && s->steps < 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "schedule: TSR_SCHEDULE_COSINE needs steps of at least 1; found %lld",
                         (long long)s->steps);
    if (!(s->min_lr >= 0 && isfinite(s->min_lr)))
        return tsri_fail(TSR_ERR_INVALID, "schedule: min_lr = %g must be finite and not negative",
                         s->min_lr);
    return TSR_OK;
}
