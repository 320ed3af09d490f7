/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns modules to the stages of a pipeline. */
#include <string.h>

#include "placement/placement.h"
#include "src/core/live.h"
#include "src/nn/place.h"

/* As many as the key `stage` of an experiment allows. */
enum { STAGES_MOST = 32767 };

tsr_status tsri_stage_sbp(const tsr_placement *from, const tsr_placement *to, tsr_sbp *sbp)
{
    char text[TSR_SBP_TEXT_MAX];
    const int dim = from == to ? -1 : tsri_placement_sliced(from, to);
    if (dim >= 0)
        *sbp = tsri_sbp_without(*sbp, dim);
    else
        *sbp = tsri_sbp_extend(*sbp, tsr_placement_ndim(to));
    if (sbp->ndim == 0 || sbp->ndim == tsr_placement_ndim(to))
        return TSR_OK;
    bool is_b = true;
    for (int d = 0; d < sbp->ndim; d++)
        is_b &= sbp->d[d].kind == TSR_SBP_BROADCAST;
    if (!is_b)
        return tsri_fail(
            TSR_ERR_SBP,
            "its signature %s is of placement %s, of which the stage's placement %s is "
            "no slice; say the signature there (tsr_module_place)",
            tsr_sbp_format(*sbp, text), tsr_placement_text(from), tsr_placement_text(to));
    *sbp = tsri_sbp_b(tsr_placement_ndim(to));
    return TSR_OK;
}

/* Moves a variable to a stage's placement; with arg->apply false only checks that this is possible.
 */
typedef struct staging {
    const tsr_placement *placement;
    bool apply;
} staging;

static tsr_status stage_variable(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    const staging *a = arg;
    char full[TSRI_NAME_MAX];
    tsr_sbp sbp = v->sbp;
    if (v->placement == a->placement)
        return TSR_OK;
    tsri_variable_qualified_name(v, full, sizeof full);
    tsr_status status = tsri_stage_sbp(v->placement, a->placement, &sbp);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "variable %s", full);
    if (!a->apply)
        return tsri_variable_check_place(v, a->placement, sbp);
    v->placement = a->placement;
    v->sbp = sbp;
    return TSR_OK;
}

/* Sets the stage of m and of all modules below it, and the placement of variables that they get
 * later. */
static void stage_modules(tsr_module *m, tsri_stage stage)
{
    if (m->opts.placement && m->opts.placement != stage.placement &&
        tsri_stage_sbp(m->opts.placement, stage.placement, &m->opts.sbp) != TSR_OK)
        m->opts.sbp = TSR_AUTO;
    m->opts.placement = stage.placement;
    m->scope.stage = stage;
    for (tsr_module *c = m->first_child; c; c = c->sibling)
        stage_modules(c, stage);
}

tsr_status tsr_module_stage(tsr_module *m, int stage, const tsr_placement *p)
{
    if (!m)
        return tsri_fail(TSR_ERR_INVALID, "tsr_module_stage: the module is NULL%s",
                         tsri_error_cause());
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, __func__));
    if (!p)
        return tsri_fail(TSR_ERR_PLACEMENT, "tsr_module_stage: stage %d has no placement%s", stage,
                         tsri_error_cause());
    TSRI_TRY(tsri_placement_check(m->world, p, __func__));
    if (stage < 0 || stage >= STAGES_MOST)
        return tsri_fail(TSR_ERR_INVALID, "tsr_module_stage: stage %d; legal are 0 to %d", stage,
                         STAGES_MOST - 1);
    /* All are checked before the first is changed. */
    staging a = {.placement = p};
    tsr_status status = tsr_module_visit(m, stage_variable, &a);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "tsr_module_stage: stage %d", stage);
    a.apply = true;
    TSRI_TRY(tsr_module_visit(m, stage_variable, &a));
    stage_modules(m, (tsri_stage){stage + 1, p});
    return TSR_OK;
}
