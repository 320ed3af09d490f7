/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that tables can't express of an experiment: names that must be there, signatures that fit
 * their placements, what goes with what, and defaults that follow from other values. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/layers/layers.h"
#include "src/config/rules/stages.h"

static bool has(const tsri_experiment *e, const char *key)
{
    return tsri_section_has(&tsri_experiment_section, e, key);
}

/* --- names and signatures --------------------------------------------------------------------- */
static const char *item_name(const tsri_items *items, size_t size, int i)
{
    return ((const tsri_head *)(const void *)((const char *)items->items + (size_t)i * size))->name;
}

tsr_status tsri_unknown_name(const tsri_ref *ref, const char *what, const tsri_items *items,
                             size_t size, int upto)
{
    enum { LISTED = 12 };
    char mean[TSRI_YAML_TEXT_MAX], list[TSRI_LEGAL_MAX];
    int used = 0;
    if (!upto)
        return tsri_yaml_fail(ref->node, "there is no %s '%.60s' before it: it is the first entry",
                              what, ref->name);
    for (int i = 0; i < upto && i < LISTED; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", i ? ", " : "",
                         item_name(items, size, i));
    const char *names = (const char *)items->items + offsetof(tsri_head, name);
    return tsri_yaml_fail(ref->node, "there is no %s '%.60s'; legal are %s%s%s", what, ref->name,
                          list, upto > LISTED ? ", ..." : "",
                          tsri_did_you_mean(ref->name, upto, names, size, mean));
}

tsr_status tsri_check_placement(const tsri_experiment *e, const tsri_ref *ref,
                                const tsri_config_placement **out_placement)
{
    *out_placement = tsri_experiment_placement(e, ref->name);
    return *out_placement ? TSR_OK
                          : tsri_unknown_name(ref, "placement", &e->placements,
                                              sizeof(tsri_config_placement), e->placements.n);
}

tsr_status tsri_check_sbp(const tsri_yaml *node, const tsri_config_placement *p, tsr_sbp *sbp)
{
    char text[TSR_SBP_TEXT_MAX];
    int ndim = p->ranks.ndim;
    if (sbp->ndim == TSRI_SBP_NAMED)
        return tsri_sbp_by_axes(node, p->head.name, p->mesh.ndim, p->mesh.name, TSR_SBP_BROADCAST,
                                sbp);
    *sbp = tsri_sbp_extend(*sbp, ndim);
    if (sbp->ndim == 0 || sbp->ndim == ndim)
        return TSR_OK;
    return tsri_yaml_fail(node,
                          "signature %s has %d entr%s; placement %s has %d dimension%s, and a "
                          "signature one entry for each",
                          tsr_sbp_format(*sbp, text), sbp->ndim, sbp->ndim == 1 ? "y" : "ies",
                          p->head.name, ndim, ndim == 1 ? "" : "s");
}

/* Checks a signature whose placement is known only when the program is built: by names of axes,
 * some mesh of the file must have these. Makes the signature on that mesh. */
static tsr_status check_sbp_somewhere(const tsri_experiment *e, const tsri_yaml *node, tsr_sbp *sbp)
{
    const tsri_config_placement *p = e->placements.items, *told = p;
    if (sbp->ndim != TSRI_SBP_NAMED)
        return TSR_OK;
    for (int i = e->placements.n - 1; i >= 0; i--) {
        *sbp = (tsr_sbp){.ndim = TSRI_SBP_NAMED};
        told = p[i].mesh.ndim ? &p[i] : told;
        if (p[i].mesh.ndim && tsri_check_sbp(node, &p[i], sbp) == TSR_OK)
            return TSR_OK;
    }
    return tsri_check_sbp(node, told, sbp);
}

/* --- tensors of training ---------------------------------------------------------------------- */
/* The batch's rows are split over all dimensions but the stages': each stage holds the rows that
 * its ops consume. */
static tsr_sbp split_rows(const tsri_experiment *e, const tsri_config_placement *p)
{
    tsr_sbp sbp = {.ndim = (int8_t)p->ranks.ndim};
    for (int i = 0; i < sbp.ndim; i++)
        sbp.d[i] = (tsr_sbp1){i == tsri_stages_dim(e) ? TSR_SBP_BROADCAST : TSR_SBP_SPLIT, 0};
    return sbp;
}

/* Checks what is said of a tensor; tells its placement, NULL if that isn't said. */
static tsr_status check_layout(const tsri_experiment *e, tsri_config_layout *l,
                               const tsri_config_placement **out_placement)
{
    *out_placement = NULL;
    if (tsri_section_has(&tsri_layout_section, l, "placement"))
        TSRI_TRY(tsri_check_placement(e, &l->placement, out_placement));
    tsr_sbp sbp = l->sbp;
    if (!tsri_section_has(&tsri_layout_section, l, "sbp"))
        return TSR_OK;
    const tsri_yaml *node = tsri_section_node(l, "sbp");
    return *out_placement ? tsri_check_sbp(node, *out_placement, &l->sbp)
                          : check_sbp_somewhere(e, node, &sbp);
}

/* An input's layout, with defaults where nothing is said. */
static tsr_status check_input(const tsri_experiment *e, tsri_config_layout *l,
                              const tsri_config_placement *fallback, const tsr_sbp *sbp,
                              const tsri_config_placement **out_placement)
{
    const tsri_section *s = &tsri_layout_section;
    TSRI_TRY(check_layout(e, l, out_placement));
    if (!*out_placement) {
        *out_placement = fallback;
        l->placement = (tsri_ref){fallback->head.name, NULL};
        tsri_section_give(s, l, "placement");
    }
    if (tsri_section_has(s, l, "sbp"))
        return tsri_check_sbp(tsri_section_node(l, "sbp"), *out_placement, &l->sbp);
    l->sbp = sbp && *out_placement == fallback ? *sbp : split_rows(e, *out_placement);
    tsri_section_give(s, l, "sbp");
    return TSR_OK;
}

/* The optimizer's states: axes that their signature does not name are as the parameter's. */
static tsr_status check_state(tsri_experiment *e, const tsri_config_placement *where)
{
    tsri_config_state *state = &e->optimizer.state;
    return state->sbp.ndim == TSRI_SBP_NAMED
               ? tsri_sbp_by_axes(tsri_section_node(state, "sbp"), where->head.name,
                                  where->mesh.ndim, where->mesh.name, TSR_SBP_AUTO, &state->sbp)
               : TSR_OK;
}

/* The rules for what a model or a graph computes. */
static tsr_status check_pins(const tsri_experiment *e)
{
    static const char *const keys[] = {"sbp", "use", "gradient", "gradient_use"};
    const tsri_config_pin *pin = e->tensors.match.items;
    const tsri_config_placement *where;
    for (int i = 0; i < e->tensors.match.n; i++) {
        const bool has_place = tsri_section_has(&tsri_pin_section, &pin[i], "placement");
        tsr_sbp said[] = {pin[i].sbp, pin[i].use, pin[i].gradient, pin[i].gradient_use};
        if (has_place && (has(e, "model") || strchr(pin[i].match, ':')))
            return tsri_yaml_fail_key(tsri_section_node(&pin[i], "placement"),
                                      has(e, "model")
                                          ? "not beside 'model': 'parameters' says where modules "
                                            "live, and with them what they give"
                                          : "not of an op: an entry lives where its ops do");
        if (has_place)
            TSRI_TRY(tsri_check_placement(e, &pin[i].placement, &where));
        for (int k = 0; k < 4; k++)
            TSRI_TRY(check_sbp_somewhere(e, tsri_section_node(&pin[i], keys[k]), &said[k]));
    }
    return TSR_OK;
}

static tsr_status check_tensors(tsri_experiment *e)
{
    tsri_config_tensors *t = &e->tensors;
    const tsri_config_placement *input, *other;
    TSRI_TRY(check_input(e, &t->input, e->placements.items, NULL, &input));
    /* Labels have one axis: rows split as the images' are, the rest is B. */
    tsr_sbp sbp = t->input.sbp;
    for (int i = 0; i < sbp.ndim; i++)
        if (sbp.d[i].kind != TSR_SBP_SPLIT || sbp.d[i].arg != 0)
            sbp.d[i] = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
    TSRI_TRY(check_input(e, &t->label, input, &sbp, &other));
    TSRI_TRY(check_state(e, input));
    TSRI_TRY(check_pins(e));
    TSRI_TRY(check_layout(e, &t->logits, &other));
    return check_layout(e, &t->loss, &other);
}

/* Checks a signature of parameters, or of what belongs to them. `where`: NULL if it is known only
 * when the program is built. */
static tsr_status check_pattern_sbp(const tsri_experiment *e, const tsri_config_pattern *p,
                                    const char *key, const tsri_config_placement *where,
                                    tsr_sbp *sbp)
{
    if (!tsri_section_has(&tsri_pattern_section, p, key))
        return TSR_OK;
    const tsri_yaml *node = tsri_section_node(p, key);
    if (where)
        TSRI_TRY(tsri_check_sbp(node, where, sbp));
    tsr_sbp somewhere = *sbp;
    TSRI_TRY(check_sbp_somewhere(e, node, &somewhere));
    for (int d = 0; d < somewhere.ndim; d++)
        if (somewhere.d[d].kind == TSR_SBP_PARTIAL)
            return tsri_yaml_fail(node,
                                  "P is for values that are computed; legal are B, S(i) and auto");
    return TSR_OK;
}

static tsr_status check_patterns(tsri_experiment *e)
{
    tsri_config_pattern *p = e->parameters.items;
    for (int i = 0; i < e->parameters.n; i++, p++) {
        const tsri_config_placement *where = NULL;
        if (tsri_section_has(&tsri_pattern_section, p, "placement"))
            TSRI_TRY(tsri_check_placement(e, &p->placement, &where));
        TSRI_TRY(check_pattern_sbp(e, p, "sbp", where, &p->sbp));
        TSRI_TRY(check_pattern_sbp(e, p, "use", where, &p->use));
        TSRI_TRY(check_pattern_sbp(e, p, "state", where, &p->state));
        TSRI_TRY(check_pattern_sbp(e, p, "gradient", where, &p->gradient));
    }
    return TSR_OK;
}

/* --- models and data -------------------------------------------------------------------------- */
const tsri_section *tsri_args_section(const tsri_config_model *m)
{
    const tsri_field *args =
        tsri_section_field(&tsri_model_section.variants[m->head.variant], "args");
    return args ? args->section : NULL;
}

/* Gives an argument the data's value, which must be one that the file could say. */
static tsr_status fill_arg(tsri_experiment *e, const char *key, int64_t *at, int64_t value)
{
    const tsri_section *s = tsri_args_section(&e->model);
    char legal[TSRI_LEGAL_MAX];
    if (tsri_section_has(s, &e->model.args, key))
        return TSR_OK;
    for (int i = 0; i < s->nfields; i++) {
        const tsri_field *f = &s->fields[i];
        if (strcmp(f->name, key) || tsri_field_has(f, value))
            continue;
        return tsri_yaml_fail(e->model.head.node, "%s follows from the data: %lld; legal is %s",
                              key, (long long)value, tsri_field_legal(f, legal));
    }
    *at = value;
    tsri_section_give(s, &e->model.args, key);
    return TSR_OK;
}

/* Arguments that follow from the data. */
static tsr_status fill_args(tsri_experiment *e)
{
    tsri_config_args *a = &e->model.args;
    tsri_data_sizes d = tsri_config_data_sizes(&e->data);
    const int64_t tokens = e->data.head.variant == TSRI_DATA_TEXT ? d.classes : 256;
    if (!tsri_args_section(&e->model))
        return TSR_OK;
    const struct {
        const char *key;
        int64_t *at, value;
    } rows[] = {
        {"num_classes", &a->num_classes, d.classes},
        {"channels", &a->channels, d.channels},
        {"height", &a->height, d.height},
        {"width", &a->columns, d.width},
        {"inputs", &a->inputs, tsr_dims_count(d.row)},
        {"outputs", &a->outputs, d.classes},
        {"vocab", &a->vocab, tokens},
    };
    if (tsri_section_has(tsri_args_section(&e->model), a, "vocab") && a->vocab < tokens)
        return tsri_yaml_fail(tsri_section_node(a, "vocab"),
                              "found %lld; the data has %lld kinds of elements",
                              (long long)a->vocab, (long long)tokens);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TSRI_TRY(fill_arg(e, rows[i].key, rows[i].at, rows[i].value));
    return TSR_OK;
}

/* A section that the file doesn't have, with its defaults. */
static tsr_status fill_section(tsri_experiment *e, const tsri_reader *r, const char *key,
                               const tsri_section *s, void *base)
{
    if (has(e, key))
        return TSR_OK;
    TSRI_TRY(tsri_section_read(r, s, NULL, e->head.node, base));
    tsri_section_give(&tsri_experiment_section, e, key);
    return TSR_OK;
}

/* "100", "100 steps", "1 epoch", "2 epochs". */
static tsr_status check_every(const tsri_yaml *node, const char *legal, tsri_every *out)
{
    char shown[TSRI_YAML_TEXT_MAX], *end = NULL;
    const char *text = node->kind == TSRI_YAML_SCALAR ? node->text : "";
    errno = 0;
    long long n = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : 0;
    const char *unit = end ? end + strspn(end, " ") : "";
    bool epochs = !strcmp(unit, "epoch") || !strcmp(unit, "epochs");
    bool steps = !*unit || !strcmp(unit, "step") || !strcmp(unit, "steps");
    if (n < 1 || errno || n > INT64_C(1) << 53 || (!epochs && !steps))
        return tsri_yaml_fail(node, "found %s; legal is %s", tsri_yaml_shown(node, shown), legal);
    *out = (tsri_every){.n = n, .epochs = epochs};
    return TSR_OK;
}

static tsr_status check_upkeep(tsri_experiment *e)
{
    tsri_config_eval *eval = &e->train.eval;
    tsri_config_checkpoint *save = &e->train.checkpoint;
    eval->each = (tsri_every){.n = 1, .epochs = true};
    if (eval->scores.name && has(e, "model"))
        return tsri_yaml_fail_key(eval->scores.node,
                                  "not beside 'model': what a model gives is known");
    const bool evaluates = tsri_section_has(&tsri_train_section, &e->train, "eval");
    if (evaluates && eval->test_part)
        TSRI_TRY(tsri_check_test_part(e));
    if (e->optimizer.schedule.head.variant == TSR_SCHEDULE_PLATEAU && !evaluates)
        return tsri_yaml_fail_key(e->optimizer.schedule.head.node,
                                  "'train.eval' is missing: plateau goes by the loss of "
                                  "evaluations");
    if (eval->every)
        TSRI_TRY(check_every(eval->every, tsri_eval_section.fields[0].legal, &eval->each));
    return save->every ? check_every(save->every, tsri_eval_section.fields[0].legal, &save->each)
                       : TSR_OK;
}

/* The data, and how long they are trained on: one epoch, if nothing is said. */
static tsr_status check_train_data(tsri_experiment *e, const tsri_reader *r)
{
    TSRI_TRY(fill_section(e, r, "train", &tsri_train_section, &e->train));
    if (tsri_config_autocast(e) && e->dtype != TSR_F32)
        return tsri_yaml_fail_key(tsri_section_node(&e->train, "amp"),
                                  "beside a dtype of %s; mixed precision is of f32",
                                  tsr_dtype_name(e->dtype));
    if (!has(e, "data"))
        return TSR_OK;
    if (!tsri_section_has(&tsri_train_section, &e->train, "steps") &&
        !tsri_section_has(&tsri_train_section, &e->train, "epochs")) {
        e->train.epochs = 1;
        tsri_section_give(&tsri_train_section, &e->train, "epochs");
    }
    return tsri_check_data(e);
}

static tsr_status check_training(tsri_experiment *e, const tsri_reader *r)
{
    if (!has(e, "data"))
        return tsri_yaml_fail(e->head.node, "'data' is missing: what the model is trained on");
    TSRI_TRY(fill_section(e, r, "tensors", &tsri_tensors_section, &e->tensors));
    TSRI_TRY(fill_section(e, r, "optimizer", &tsri_optimizer_section, &e->optimizer));
    TSRI_TRY(check_train_data(e, r));
    TSRI_TRY(fill_args(e));
    TSRI_TRY(tsri_layers_check(e));
    TSRI_TRY(tsri_check_stages(e, r));
    if (has(e, "strategy"))
        TSRI_TRY(tsri_strategy_expand(e, r));
    TSRI_TRY(check_tensors(e));
    TSRI_TRY(check_patterns(e));
    return tsri_check_schedule(e);
}

/* --- the whole -------------------------------------------------------------------------------- */
/* The keys of one kind of experiment that are there although it is of the other kind. */
static tsr_status check_kind(const tsri_experiment *e)
{
    static const char *const of_graph[] = {"graph", "loss", "fetch", NULL};
    static const char *const of_training[] = {"eval", "checkpoint", "metrics", "tensorboard", NULL};
    static const char *const of_model[] = {"input", "label", "logits", "loss", NULL};
    const bool model = has(e, "model");
    if (!model && !has(e, "graph"))
        return tsri_yaml_fail(e->head.node, "neither 'model' nor 'graph' is there: an experiment "
                                            "trains a model, or runs a graph");
    for (const char *const *key = of_training; *key && !model && !has(e, "optimizer"); key++)
        if (tsri_section_has(&tsri_train_section, &e->train, *key))
            return tsri_yaml_fail_key(tsri_section_node(&e->train, *key),
                                      "'optimizer' is missing: the graph trains nothing");
    for (const char *const *key = of_graph; *key && model; key++)
        if (has(e, *key))
            return tsri_yaml_fail_key(
                tsri_section_node(e, *key),
                "not beside 'model': it is a key of experiments that run a graph");
    if (has(e, "recompute") && !model)
        return tsri_yaml_fail_key(tsri_section_node(e, "recompute"),
                                  "not beside 'graph': it names modules of a model");
    if (has(e, "stages") && !model)
        return tsri_yaml_fail_key(
            tsri_section_node(e, "stages"),
            "not beside 'graph', whose entries say their placements: it names "
            "parameters of a model");
    for (const char *const *key = of_model; *key && !model; key++) {
        const tsri_yaml *said = tsri_yaml_find(e->tensors.head.node, *key);
        if (said && said->n)
            return tsri_yaml_fail_key(said, "not beside 'graph', whose entries have names: say it "
                                            "there, or in tensors.match");
    }
    return TSR_OK;
}

static void find_nranks(tsri_experiment *e)
{
    const tsri_config_placement *p = e->placements.items;
    for (int i = 0; i < e->placements.n; i++)
        for (int j = 0; j < p[i].ranks.n; j++)
            if (p[i].ranks.ranks[j] >= e->nranks)
                e->nranks = p[i].ranks.ranks[j] + 1;
}

tsr_status tsri_experiment_check(tsri_experiment *e, const tsri_reader *r)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};
    e->dtype = dtypes[e->dtype_word];
    TSRI_TRY(tsri_check_placements(e, r));
    TSRI_TRY(check_kind(e));
    TSRI_TRY(check_upkeep(e));
    e->trains = has(e, "model") || has(e, "optimizer");
    find_nranks(e);
    if (has(e, "cluster"))
        TSRI_TRY(tsri_check_cluster(&e->cluster, e->nranks));
    if (has(e, "model"))
        return check_training(e, r);
    if (e->trains || has(e, "data"))
        TSRI_TRY(check_train_data(e, r));
    TSRI_TRY(check_state(e, e->placements.items));
    if (has(e, "strategy"))
        TSRI_TRY(tsri_strategy_expand(e, r));
    TSRI_TRY(check_pins(e));
    TSRI_TRY(check_patterns(e));
    TSRI_TRY(tsri_check_graph(e, r));
    TSRI_TRY(tsri_check_schedule(e));
    return tsri_check_eval(e, r);
}
