/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline: the checks of `stages`, and the modules of a model that are in each. */
#include "src/config/rules/stages.h"

#include <stdio.h>
#include <string.h>

#include "placement/placement.h"
#include "src/config/rules/split.h"
#include "src/nn/place.h"

static bool has(const tsri_config_stages *s, const char *key)
{
    return tsri_section_has(&tsri_stages_section, s, key);
}

/* --- checks ----------------------------------------------------------------------------------- */
static tsr_status find_axis(const tsri_config_placement *where, tsri_config_stages *s)
{
    const tsri_mesh_axes *mesh = &where->mesh;
    const tsri_yaml *node = tsri_section_node(s, "axis");
    char list[TSRI_LEGAL_MAX] = "", mean[TSRI_YAML_TEXT_MAX];
    size_t used = 0;
    if (!mesh->ndim)
        return tsri_yaml_fail(node, "placement %.200s has no mesh, whose axis it could be",
                              where->head.name);
    for (int d = 0; d < mesh->ndim; d++) {
        if (!strcmp(mesh->name[d], s->axis)) {
            s->dim = d;
            s->n = mesh->size[d];
            return TSR_OK;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.200s", d ? ", " : "",
                                 mesh->name[d]);
    }
    return tsri_yaml_fail(
        node, "placement %.200s has no axis '%.60s'; legal are %s%s", where->head.name, s->axis,
        list, tsri_did_you_mean(s->axis, mesh->ndim, mesh->name, sizeof *mesh->name, mean));
}

static int count(const tsri_config_stages *s)
{
    return s->n * (int)s->chunks;
}

/* Checks that rules name each stage, and no other. */
static tsr_status check_numbers(const tsri_reader *r, const tsri_config_stages *s)
{
    const tsri_config_stage_rule *rule = s->rules.items;
    const int n = count(s);
    bool *named = tsri_pool_alloc(r->pool, (size_t)n * sizeof *named);
    char chunks[40] = "";
    TSRI_NEED(named);
    if (s->chunks > 1)
        snprintf(chunks, sizeof chunks, " of %d chunks", (int)s->chunks);
    for (int i = 0; i < s->rules.n; i++) {
        if (rule[i].stage >= n)
            return tsri_yaml_fail(tsri_section_node(&rule[i], "stage"),
                                  "found %lld; axis '%.60s' has %d ind%s%s: legal %s 0%s%.0d",
                                  (long long)rule[i].stage, s->axis, s->n,
                                  s->n == 1 ? "ex" : "ices", chunks, n == 1 ? "is" : "are",
                                  n == 1 ? "" : " to ", n - 1);
        named[rule[i].stage] = true;
    }
    for (int i = 0; i < n; i++)
        if (!named[i])
            return tsri_yaml_fail(tsri_section_node(s, "rules"),
                                  "no rule has stage %d; axis '%.60s' has %d indices%s, and each "
                                  "of them is a stage",
                                  i, s->axis, s->n, chunks);
    return TSR_OK;
}

tsr_status tsri_check_stages(tsri_experiment *e, const tsri_reader *r)
{
    tsri_config_stages *s = &e->stages;
    const tsri_config_placement *where = e->placements.items;
    const tsri_config_layout *input = &e->tensors.input;
    if (!tsri_section_has(&tsri_experiment_section, e, "stages"))
        return TSR_OK;
    if (has(s, "split") && has(s, "rules"))
        return tsri_yaml_fail(tsri_section_node(s, "split"),
                              "it is instead of 'rules', which the section has too");
    if (!has(s, "split") && !has(s, "rules"))
        return tsri_yaml_fail(s->head.node, "'rules' is missing: which parameters are in which "
                                            "stage, as in {match: h.0-5.*, stage: 0}; or split: "
                                            "auto, which finds stages that take equally long");
    if (tsri_section_has(&tsri_layout_section, input, "placement"))
        TSRI_TRY(tsri_check_placement(e, &input->placement, &where));
    TSRI_TRY(find_axis(where, s));
    return has(s, "split") ? TSR_OK : check_numbers(r, s);
}

int tsri_stages_dim(const tsri_experiment *e)
{
    return tsri_section_has(&tsri_experiment_section, e, "stages") ? e->stages.dim : -1;
}

/* --- the model -------------------------------------------------------------------------------- */
tsr_status tsri_stages_make(const tsri_program *p, const tsr_placement **placement)
{
    const tsri_config_stages *s = &p->experiment->stages;
    tsri_program_stages *made = &p->inside->stages;
    if (tsri_stages_dim(p->experiment) < 0)
        return TSR_OK;
    made->mesh = *placement;
    made->n = count(s);
    made->on = tsri_pool_alloc(&p->inside->pool, (size_t)made->n * sizeof *made->on);
    TSRI_NEED(made->on);
    for (int i = 0; i < made->n; i++)
        if (!(made->on[i] = tsr_placement_slice(*placement, s->dim, i % s->n)))
            return TSR_ERR_NO_MEMORY;
    *placement = made->on[0];
    return has(s, "split") && !made->is_one ? tsri_split_find(p) : TSR_OK;
}

typedef struct staging {
    const tsri_program *p;
    bool *used;   /* by rule */
    int nvisited; /* number of variables that are in a stage so far */
} staging;

/* Puts a variable, and its module, into a stage. */
static void put_into(const staging *a, tsr_variable *v, int number)
{
    const tsri_stage stage = {number + 1, a->p->inside->stages.on[number]};
    tsri_scope_module(v->scope)->scope.stage = stage;
    v->placement = stage.placement;
}

/* Puts a variable into the stage that planning has found for it. */
static tsr_status stage_found(tsr_variable *v, const char *name, void *arg)
{
    staging *a = arg;
    const tsri_program_stages *made = &a->p->inside->stages;
    (void)name;
    put_into(a, v, made->is_one ? 0 : made->split[a->nvisited++]);
    return TSR_OK;
}

/* Puts a variable into the stage of the last rule that fits. */
static tsr_status stage_variable(tsr_variable *v, const char *name, void *arg)
{
    const staging *a = arg;
    const tsri_config_stages *s = &a->p->experiment->stages;
    const tsri_config_stage_rule *rules = s->rules.items, *by = NULL;
    for (int i = 0; i < s->rules.n; i++)
        if (tsri_glob(rules[i].match, name)) {
            a->used[i] = true;
            by = &rules[i];
        }
    if (!by)
        return tsri_yaml_fail(tsri_section_node(s, "rules"),
                              "no rule fits %s '%.200s': it is in no stage",
                              v->trainable ? "parameter" : "buffer", name);
    const int stage = (int)by->stage, before = tsri_scope_module(v->scope)->scope.stage.number - 1;
    if (before >= 0 && before != stage)
        return tsri_yaml_fail(tsri_section_node(by, "match"),
                              "it puts '%.200s' into stage %d, and another rule puts other "
                              "variables of the same module into stage %d",
                              name, stage, before);
    put_into(a, v, stage);
    return TSR_OK;
}

/* Puts a module into the stage that all variables below it are in. Returns that stage's number; 0:
 * there are no variables, -1: they are in several. */
static int stage_container(tsr_module *m, const tsr_placement *const *on)
{
    int all = m->scope.stage.number;
    for (tsr_module *c = m->first_child; c; c = c->sibling) {
        const int below = stage_container(c, on);
        all = below == 0 || below == all ? all : all == 0 ? below : -1;
    }
    if (all > 0)
        m->scope.stage = (tsri_stage){all, on[all - 1]};
    if (m->scope.stage.number)
        m->opts.placement = m->scope.stage.placement;
    return all;
}

tsr_status tsri_stages_apply(const tsri_program *p)
{
    const tsri_config_stages *s = &p->experiment->stages;
    const tsri_config_stage_rule *rules = s->rules.items;
    if (!p->inside->stages.n)
        return TSR_OK;
    staging a = {.p = p};
    if (has(s, "split")) {
        TSRI_TRY(tsr_module_visit(p->module, stage_found, &a));
        stage_container(p->module, p->inside->stages.on);
        return TSR_OK;
    }
    a.used = tsri_pool_alloc(&p->inside->pool, (size_t)s->rules.n * sizeof *a.used);
    TSRI_NEED(a.used);
    TSRI_TRY(tsr_module_visit(p->module, stage_variable, &a));
    for (int i = 0; i < s->rules.n; i++)
        if (!a.used[i]) {
            /* It fits nothing, which that call says best. */
            tsr_status status = tsr_module_place(p->module, rules[i].match, NULL, TSR_AUTO);
            return tsri_program_fail(tsri_section_node(&rules[i], "match"), status);
        }
    stage_container(p->module, p->inside->stages.on);
    return TSR_OK;
}

bool tsri_stages_have(const tsri_program *p, const tsr_placement *placement)
{
    bool any = false;
    for (int i = 0; i < p->inside->stages.n; i++)
        any |= p->inside->stages.on[i] == placement;
    return any;
}

tsr_status tsri_stages_sbp(const tsri_program *p, const tsri_yaml *node, tsr_sbp *sbp)
{
    const int dim = p->experiment->stages.dim;
    const tsr_placement *mesh = p->inside->stages.mesh;
    if (sbp->ndim > dim && sbp->d[dim].kind != TSR_SBP_BROADCAST &&
        sbp->d[dim].kind != TSR_SBP_AUTO)
        return tsri_yaml_fail(node,
                              "axis '%.60s' has the stages, and this tensor is in one of them; "
                              "legal is B there",
                              tsri_placement_axis(mesh, dim));
    if (sbp->ndim == tsr_placement_ndim(mesh))
        *sbp = tsri_sbp_without(*sbp, dim);
    return TSR_OK;
}
