/* SPDX-License-Identifier: Apache-2.0 */
/* Recognising a strategy: which items are layers, and what each does over each dimension. */
#include "src/plan/report/strategy.h"

#include <string.h>

#include "placement/placement.h"
#include "src/plan/report/strategy_inside.h"

/* --- values ----------------------------------------------------------------------------------- */
static bool is_parameter(const tsri_value *v)
{
    return v->variable && v->variable->scope && v->variable->trainable;
}

/* The variable's value behind operand j of an item, if that is a parameter; -1. */
static int parameter_of(const tsri_strategist *s, const tsri_item *it, int j)
{
    int value = tsri_variable_behind(&s->flow, it->in[j]);
    return value >= 0 && is_parameter(&s->plan->ir.values[value]) ? value : -1;
}

static tsr_sbp_kind kind_over(const tsri_value *v, int dim)
{
    return (tsr_sbp_kind)v->layout.sbp.d[dim].kind;
}

static bool is_split(const tsri_value *v, int dim)
{
    return kind_over(v, dim) == TSR_SBP_SPLIT;
}

/* --- layers ----------------------------------------------------------------------------------- */
/* Which values depend on what is fed; where nothing is fed, all that ops make does. */
static tsr_status find_fed(tsri_strategist *s)
{
    const tsr_plan *plan = s->plan;
    bool any = false;
    s->fed = tsri_pool_alloc(&s->scratch, (size_t)plan->ir.nvalues * sizeof *s->fed);
    TSRI_NEED(s->fed);
    for (int i = 0; i < plan->ir.nvalues; i++)
        any |= s->fed[i] = plan->ir.values[i].storage == TSRI_STORAGE_PORT &&
                           plan->ir.values[i].port >= 0 &&
                           plan->ir.ports[plan->ir.values[i].port].info.is_input;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        bool fed = !any;
        for (int j = 0; j < it->nin; j++)
            fed |= s->fed[it->in[j]];
        for (int j = 0; j < it->nout; j++)
            s->fed[it->out[j]] |= fed;
    }
    return TSR_OK;
}

/* The first operand that is no parameter; -1. */
static int data_operand(const tsri_strategist *s, const tsri_item *it)
{
    for (int j = 0; j < it->nin; j++)
        if (tsri_variable_behind(&s->flow, it->in[j]) < 0)
            return j;
    return -1;
}

static bool is_forward(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_KERNEL && !it->backward && it->nout > 0 && it->nin > 1;
}

/* Sets *out to what an item is as a layer; false if it is none. */
static bool read_layer(const tsri_strategist *s, int item, tsri_layer *out)
{
    const tsr_plan *plan = s->plan;
    const tsri_item *it = &plan->ir.items[item];
    if (!is_forward(it) || tsri_op_def_of(it->kernel.op)->layout == TSRI_LAYOUT_ANY ||
        tsri_op_def_of(it->kernel.op)->is_update)
        return false;
    *out = (tsri_layer){.item = item, .x = data_operand(s, it)};
    for (int j = 0; j < it->nin && out->x >= 0; j++) {
        int variable = j == out->x ? -1 : parameter_of(s, it, j);
        if (variable < 0 || plan->ir.values[variable].shape.ndim < 2 ||
            plan->ir.values[it->in[j]].shape.ndim < 2)
            continue;
        out->w = j;
        out->variable = variable;
        return s->fed[it->in[out->x]];
    }
    return false;
}

static bool is_integer(tsr_dtype dtype)
{
    return dtype == TSR_I64 || dtype == TSR_I32 || dtype == TSR_U8;
}

tsri_layer_kind tsri_layer_over(const tsri_strategist *s, const tsri_layer *l, int dim)
{
    const tsr_plan *plan = s->plan;
    const tsri_item *it = &plan->ir.items[l->item];
    const tsri_value *x = &plan->ir.values[it->in[l->x]], *w = &plan->ir.values[it->in[l->w]];
    const tsri_value *y = &plan->ir.values[it->out[0]], *kept = &plan->ir.values[l->variable];
    tsr_sbp_kind kx = kind_over(x, dim), kw = kind_over(w, dim), ky = kind_over(y, dim);
    bool gathered = kept->placement == it->placement && is_split(kept, dim);
    if (kw == TSR_SBP_BROADCAST && kx == TSR_SBP_SPLIT && ky == TSR_SBP_SPLIT) {
        if (x->layout.sbp.d[dim].arg == 0)
            return gathered ? TSRI_LAYER_GATHERED : TSRI_LAYER_DATA;
        if (tsri_op_def_of(it->kernel.op)->has_groups)
            return TSRI_LAYER_OTHER;
        return gathered ? TSRI_LAYER_SEQUENCE_GATHERED : TSRI_LAYER_SEQUENCE;
    }
    if (kw == TSR_SBP_BROADCAST && kx == TSR_SBP_BROADCAST && ky == TSR_SBP_BROADCAST)
        return gathered ? TSRI_LAYER_OTHER : TSRI_LAYER_REPLICATED;
    if (kw != TSR_SBP_SPLIT)
        return TSRI_LAYER_OTHER;
    if (is_integer(x->dtype))
        return kx == TSR_SBP_BROADCAST && ky == TSR_SBP_PARTIAL ? TSRI_LAYER_VOCABULARY
                                                                : TSRI_LAYER_OTHER;
    if (kx == TSR_SBP_BROADCAST && ky == TSR_SBP_SPLIT)
        return TSRI_LAYER_COLUMN;
    if (kx == TSR_SBP_SPLIT && ky == TSR_SBP_PARTIAL)
        return TSRI_LAYER_ROW;
    return kx == TSR_SBP_SPLIT && ky == TSR_SBP_SPLIT ? TSRI_LAYER_GROUP : TSRI_LAYER_OTHER;
}

static tsr_status find_layers(tsri_strategist *s)
{
    tsri_layer layer;
    int capacity = 0;
    s->layer_of = tsri_pool_alloc(&s->scratch, (size_t)s->plan->ir.nitems * sizeof *s->layer_of);
    TSRI_NEED(s->layer_of);
    for (int i = 0; i < s->plan->ir.nitems; i++) {
        if (!read_layer(s, i, &layer))
            continue;
        TSRI_NEED(TSRI_PUSH(&s->scratch, s->layers, s->nlayers, capacity));
        s->layers[s->nlayers++] = layer;
        s->layer_of[i] = s->nlayers; /* + 1: 0 is none */
    }
    return TSR_OK;
}

/* --- Megatron's pairs ------------------------------------------------------------------------- */
/* Marks the layers that a row layer's operand comes from while it stays split: its pair. Returns
 * whether a column layer is among them. */
static tsr_status mark_pair(tsri_strategist *s, int layer, int dim, bool *out_found)
{
    const tsr_plan *plan = s->plan;
    int n = 0;
    tsri_layer *row = &s->layers[layer];
    s->stack[n++] = plan->ir.items[row->item].in[row->x];
    *out_found = false;
    while (n > 0) {
        int value = s->stack[--n], item = s->flow.maker[value];
        if (item < 0 || s->seen[value] == layer + 1 || !is_split(&plan->ir.values[value], dim))
            continue;
        s->seen[value] = layer + 1;
        const tsri_item *it = &plan->ir.items[item];
        tsri_layer *other = s->layer_of[item] ? &s->layers[s->layer_of[item] - 1] : NULL;
        tsri_layer_kind kind = other ? tsri_layer_over(s, other, dim) : TSRI_LAYER_OTHER;
        if (kind == TSRI_LAYER_COLUMN || kind == TSRI_LAYER_GROUP)
            other->paired = true;
        *out_found |= kind == TSRI_LAYER_COLUMN;
        for (int j = 0; j < it->nin && kind != TSRI_LAYER_COLUMN; j++)
            s->stack[n++] = it->in[j];
    }
    row->paired |= *out_found;
    return TSR_OK;
}

static tsr_status find_pairs(tsri_strategist *s, const tsri_stage_strategy *stage,
                             tsri_axis_strategy *axis)
{
    size_t operands = 1;
    for (int i = 0; i < s->plan->ir.nitems; i++)
        operands += (size_t)s->plan->ir.items[i].nin * (size_t)s->plan->ir.items[i].nout;
    if (!s->stack) {
        s->stack = tsri_pool_alloc(&s->scratch, operands * sizeof *s->stack);
        s->seen = tsri_pool_alloc(&s->scratch, (size_t)s->plan->ir.nvalues * sizeof *s->seen);
    }
    TSRI_NEED(s->stack && s->seen);
    memset(s->seen, 0, (size_t)s->plan->ir.nvalues * sizeof *s->seen);
    for (int i = 0; i < s->nlayers; i++)
        s->layers[i].paired = false;
    for (int i = 0; i < s->nlayers; i++) {
        bool found = false;
        if (s->plan->ir.items[s->layers[i].item].placement == stage->placement &&
            tsri_layer_over(s, &s->layers[i], axis->dim) == TSRI_LAYER_ROW)
            TSRI_TRY(mark_pair(s, i, axis->dim, &found));
        axis->pairs += found;
    }
    return TSR_OK;
}

/* --- optimizers' states ----------------------------------------------------------------------- */
/* Whether a gradient was whole over a dimension on its way to the update. */
static bool was_whole(const tsri_strategist *s, int value, int dim)
{
    const tsr_plan *plan = s->plan;
    for (;;) {
        const tsri_value *v = &plan->ir.values[value];
        const tsri_item *it =
            s->flow.maker[value] >= 0 ? &plan->ir.items[s->flow.maker[value]] : NULL;
        if (kind_over(v, dim) == TSR_SBP_BROADCAST)
            return true;
        if (!it || !(tsri_item_converts(it) || it->kind == TSRI_ITEM_VIEW) ||
            it->placement != it->box.from)
            return false;
        value = tsri_operand_behind(it, value);
    }
}

/* How an update keeps its states over a dimension. */
typedef enum kept_states {
    STATES_NONE = 0,
    STATES_WHOLE,
    STATES_SPLIT,          /* and its gradient arrives in parts */
    STATES_SPLIT_GRADIENT, /* but the gradient is whole */
    STATES_MIXED,
} kept_states;

static kept_states states_of(const tsri_strategist *s, const tsri_item *it, int dim)
{
    const tsr_plan *plan = s->plan;
    int gradient = tsri_op_gradient_operand(it->kernel.op, it->nin), split = 0, n = 0;
    for (int j = 1; j < it->nin - 1; j++) {
        int value = j == gradient ? -1 : tsri_variable_behind(&s->flow, it->in[j]);
        if (value < 0)
            continue;
        n++;
        split += is_split(&plan->ir.values[value], dim);
    }
    if (!n)
        return STATES_NONE;
    if (split != 0 && split != n)
        return STATES_MIXED;
    if (!split)
        return STATES_WHOLE;
    return was_whole(s, it->in[gradient], dim) ? STATES_SPLIT_GRADIENT : STATES_SPLIT;
}

/* The value of the variable of two or more axes that an item of a stage updates; -1. */
static int updated_weight(const tsri_strategist *s, const tsri_stage_strategy *stage,
                          const tsri_item *it)
{
    if (it->kind != TSRI_ITEM_KERNEL || it->placement != stage->placement ||
        tsri_op_gradient_operand(it->kernel.op, it->nin) < 0)
        return -1;
    int variable = parameter_of(s, it, 0);
    return variable >= 0 && s->plan->ir.values[variable].shape.ndim >= 2 ? variable : -1;
}

/* The way of the updates of nine tenths of a stage's weights, and of those with states in parts
 * that of most; MIXED where they differ more. Biases and the like are so small that some keep them
 * whole: they don't count. */
static kept_states find_states(const tsri_strategist *s, const tsri_stage_strategy *stage, int dim)
{
    const tsr_plan *plan = s->plan;
    double weights[STATES_MIXED + 1] = {0}, all = 0;
    for (int i = 0; i < plan->ir.nitems; i++) {
        int variable = updated_weight(s, stage, &plan->ir.items[i]);
        if (variable < 0)
            continue;
        double n = (double)tsr_dims_count(plan->ir.values[variable].shape);
        weights[states_of(s, &plan->ir.items[i], dim)] += n;
        all += n;
    }
    if (weights[STATES_SPLIT] + weights[STATES_SPLIT_GRADIENT] >= 0.9 * all && all > 0)
        return weights[STATES_SPLIT] >= weights[STATES_SPLIT_GRADIENT] ? STATES_SPLIT
                                                                       : STATES_SPLIT_GRADIENT;
    return weights[STATES_NONE] == all    ? STATES_NONE
           : weights[STATES_WHOLE] == all ? STATES_WHOLE
                                          : STATES_MIXED;
}

/* --- norms ------------------------------------------------------------------------------------ */
/* Whether an item scales its operand by a parameter of one axis, as the last op of a norm does. */
static bool is_norm(const tsri_strategist *s, const tsri_item *it, int *out_x)
{
    if (!is_forward(it) ||
        (it->kernel.op != TSRI_OP_LN_APPLY &&
         !(it->kernel.op == TSRI_OP_BINARY && it->kernel.attrs.binary.fn == TSRI_BINARY_MUL)))
        return false;
    *out_x = data_operand(s, it);
    bool scales = false;
    for (int j = 0; j < it->nin && *out_x >= 0; j++) {
        int variable = parameter_of(s, it, j);
        scales |= variable >= 0 && s->plan->ir.values[variable].shape.ndim == 1;
    }
    return scales;
}

static void count_norms(const tsri_strategist *s, const tsri_stage_strategy *stage,
                        tsri_axis_strategy *axis)
{
    for (int i = 0; i < s->plan->ir.nitems; i++) {
        const tsri_item *it = &s->plan->ir.items[i];
        int at;
        if (it->placement != stage->placement || !is_norm(s, it, &at))
            continue;
        const tsri_value *x = &s->plan->ir.values[it->in[at]];
        int arg = x->layout.sbp.d[axis->dim].arg;
        axis->of_norms++;
        axis->norms += is_split(x, axis->dim) && arg > 0 && arg < x->shape.ndim - 1;
    }
}

/* --- naming ----------------------------------------------------------------------------------- */
/* Whether a column layer is the last: what it makes, and what is made of that, meets no layer. */
static bool is_last(const tsri_strategist *s, int layer)
{
    for (int i = layer + 1; i < s->nlayers; i++)
        if (s->plan->ir.items[s->layers[i].item].placement ==
            s->plan->ir.items[s->layers[layer].item].placement)
            return false;
    return true;
}

/* Whether the last layer's columns are words: an embedding has a row for each, or a cross entropy
 * has a label for each position of its result, as a language model's has. */
static bool makes_words(const tsri_strategist *s, const tsri_layer *last)
{
    const tsr_plan *plan = s->plan;
    const tsr_dims y = plan->ir.values[plan->ir.items[last->item].out[0]].shape;
    const int64_t words = y.d[y.ndim - 1];
    for (int i = 0; i < s->nlayers; i++) {
        const tsri_item *it = &plan->ir.items[s->layers[i].item];
        if (is_integer(plan->ir.values[it->in[s->layers[i].x]].dtype) &&
            plan->ir.values[s->layers[i].variable].shape.d[0] == words)
            return true;
    }
    for (int i = last->item + 1; i < plan->ir.nitems && y.ndim > 2; i++) {
        const tsri_item *it = &plan->ir.items[i];
        if (it->kind != TSRI_ITEM_KERNEL ||
            (it->kernel.op != TSRI_OP_CE && it->kernel.op != TSRI_OP_CE_TERMS))
            continue;
        const tsr_dims x = plan->ir.values[it->in[0]].shape;
        if (x.d[x.ndim - 1] == words && tsr_dims_count(x) == tsr_dims_count(y))
            return true;
    }
    return false;
}

static double weights_of(const tsri_strategist *s, const tsri_layer *l)
{
    return (double)tsr_dims_count(s->plan->ir.values[l->variable].shape);
}

/* MEGATRON if there are pairs, and what is split without one is an embedding or the output; layers
 * with a tenth of all weights may do otherwise. */
static tsri_strategy_kind name_pairs(tsri_strategist *s, const tsri_stage_strategy *stage,
                                     tsri_axis_strategy *axis)
{
    double all = 0, unfit = 0;
    for (int i = 0; i < s->nlayers; i++) {
        const tsri_layer *l = &s->layers[i];
        if (s->plan->ir.items[l->item].placement != stage->placement)
            continue;
        all += weights_of(s, l);
        if (l->paired)
            continue;
        tsri_layer_kind kind = tsri_layer_over(s, l, axis->dim);
        bool output = kind == TSRI_LAYER_COLUMN && is_last(s, i);
        axis->output |= output;
        axis->output_words |= output && makes_words(s, l);
        axis->embedding |= kind == TSRI_LAYER_VOCABULARY;
        if (output || kind == TSRI_LAYER_VOCABULARY || kind == TSRI_LAYER_REPLICATED ||
            (kind == TSRI_LAYER_SEQUENCE && axis->norms > 0))
            continue;
        unfit += weights_of(s, l);
        axis->others++;
    }
    return axis->pairs > 0 && unfit <= 0.1 * all ? TSRI_STRATEGY_MEGATRON : TSRI_STRATEGY_NONE;
}

/* Whether the weights that are kept in parts are nine tenths of all: small ones may stay whole. */
static bool gathers_most(const tsri_strategist *s, const tsri_stage_strategy *stage, int dim)
{
    double gathered = 0, all = 0;
    for (int i = 0; i < s->nlayers; i++) {
        const tsri_layer *l = &s->layers[i];
        if (s->plan->ir.items[l->item].placement != stage->placement)
            continue;
        double n = weights_of(s, l);
        all += n;
        gathered += tsri_layer_over(s, l, dim) == TSRI_LAYER_GATHERED ? n : 0;
    }
    return gathered >= 0.9 * all;
}

/* Whether all updates of a stage's weights, which are whole, have states in parts. */
static bool has_states_in_parts(const tsri_strategist *s, const tsri_stage_strategy *stage, int dim)
{
    const tsr_plan *plan = s->plan;
    bool any = false;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        int variable = updated_weight(s, stage, it);
        if (variable < 0)
            continue;
        kept_states kept = states_of(s, it, dim);
        if (is_split(&plan->ir.values[variable], dim) ||
            (kept != STATES_SPLIT && kept != STATES_SPLIT_GRADIENT))
            return false;
        any = true;
    }
    return any;
}

static tsri_strategy_kind name_data(const tsri_strategist *s, const tsri_stage_strategy *stage,
                                    const tsri_axis_strategy *axis)
{
    static const tsri_strategy_kind by_states[] = {
        [STATES_NONE] = TSRI_STRATEGY_DATA,   [STATES_WHOLE] = TSRI_STRATEGY_DATA,
        [STATES_SPLIT] = TSRI_STRATEGY_ZERO2, [STATES_SPLIT_GRADIENT] = TSRI_STRATEGY_ZERO1,
        [STATES_MIXED] = TSRI_STRATEGY_NONE,
    };
    if (axis->layers[TSRI_LAYER_GATHERED])
        return gathers_most(s, stage, axis->dim) ? TSRI_STRATEGY_ZERO3 : TSRI_STRATEGY_NONE;
    return by_states[find_states(s, stage, axis->dim)];
}

static tsr_status name_axis(tsri_strategist *s, const tsri_stage_strategy *stage,
                            tsri_axis_strategy *axis)
{
    const int *n = axis->layers;
    count_norms(s, stage, axis);
    axis->states = has_states_in_parts(s, stage, axis->dim);
    TSRI_TRY(find_pairs(s, stage, axis));
    if (n[TSRI_LAYER_REPLICATED] == axis->nlayers)
        axis->kind = TSRI_STRATEGY_REPLICATED;
    else if (n[TSRI_LAYER_DATA] + n[TSRI_LAYER_GATHERED] == axis->nlayers)
        axis->kind = name_data(s, stage, axis);
    else if (n[TSRI_LAYER_SEQUENCE] == axis->nlayers)
        axis->kind = TSRI_STRATEGY_SEQUENCE;
    else
        axis->kind = name_pairs(s, stage, axis);
    return tsri_strategy_say_axis(s, stage, axis);
}

/* --- stages ----------------------------------------------------------------------------------- */
static bool share_ranks(const tsr_placement *a, const tsr_placement *b)
{
    for (int i = 0; i < tsr_placement_nranks(a); i++)
        if (tsr_placement_find(b, tsr_placement_rank(a, i)) >= 0)
            return true;
    return false;
}

static int stage_of(const tsri_strategy *made, const tsr_placement *p)
{
    int at = 0;
    while (at < made->nstages && made->stages[at].placement != p)
        at++;
    return at;
}

/* Per value 1 + the last stage of the layers that it is behind; 0: of none. */
static tsr_status find_reached(tsri_strategist *s, int **out_reached)
{
    const tsr_plan *plan = s->plan;
    int *reached = tsri_pool_alloc(&s->scratch, (size_t)plan->ir.nvalues * sizeof *reached);
    TSRI_NEED(reached);
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        int most = s->layer_of[i] ? 1 + stage_of(s->made, it->placement) : 0;
        for (int j = 0; j < it->nin; j++)
            most = reached[it->in[j]] > most ? reached[it->in[j]] : most;
        for (int j = 0; j < it->nout; j++)
            reached[it->out[j]] = most;
    }
    *out_reached = reached;
    return TSR_OK;
}

/* Whether what stage i - 1 has made goes to stage i in the forward pass. */
static bool is_fed(const tsri_strategist *s, int i, const int *reached)
{
    const tsri_stage_strategy *stages = s->made->stages;
    for (int k = 0; k < s->plan->ir.nitems; k++) {
        const tsri_item *it = &s->plan->ir.items[k];
        if (tsri_item_converts(it) && !it->backward && reached[it->in[0]] == i &&
            it->box.from == stages[i - 1].placement && it->placement == stages[i].placement)
            return true;
    }
    return false;
}

static tsr_status find_pipeline(tsri_strategist *s)
{
    tsri_strategy *made = s->made;
    int *reached;
    for (int i = 0; i < made->nstages; i++)
        for (int j = 0; j < i; j++)
            if (share_ranks(made->stages[i].placement, made->stages[j].placement))
                return TSR_OK;
    TSRI_TRY(find_reached(s, &reached));
    for (int i = 1; i < made->nstages; i++)
        if (!is_fed(s, i, reached))
            return TSR_OK;
    made->pipeline = made->nstages > 1;
    return TSR_OK;
}

static tsr_status find_stages(tsri_strategist *s)
{
    tsri_strategy *made = s->made;
    int capacity = 0;
    for (int i = 0; i < s->nlayers; i++) {
        const tsr_placement *p = s->plan->ir.items[s->layers[i].item].placement;
        int at = stage_of(made, p);
        if (at == made->nstages) {
            TSRI_NEED(TSRI_PUSH(s->pool, made->stages, made->nstages, capacity));
            made->stages[made->nstages++] = (tsri_stage_strategy){.placement = p};
        }
        tsri_stage_strategy *stage = &made->stages[at];
        TSRI_NEED(TSRI_PUSH(s->pool, stage->layers, stage->nlayers, stage->clayers));
        tsri_layer_way *way = &stage->layers[stage->nlayers];
        const char *name = s->plan->ir.values[s->layers[i].variable].name;
        *way = (tsri_layer_way){.name = name ? name : ""};
        if (stage->nlayers++ == 0)
            for (int d = 0; d < tsr_placement_ndim(p); d++)
                if (tsr_placement_dim(p, d) > 1)
                    stage->axis[stage->naxes++] =
                        (tsri_axis_strategy){.dim = d, .size = tsr_placement_dim(p, d)};
        for (int d = 0; d < stage->naxes; d++) {
            way->kind[d] = tsri_layer_over(s, &s->layers[i], stage->axis[d].dim);
            stage->axis[d].nlayers++;
            stage->axis[d].layers[way->kind[d]]++;
        }
    }
    return TSR_OK;
}

static tsr_status find_all(tsri_strategist *s)
{
    TSRI_TRY(tsri_flow_find(&s->plan->ir, &s->scratch, &s->flow));
    TSRI_TRY(find_fed(s));
    TSRI_TRY(find_layers(s));
    TSRI_TRY(find_stages(s));
    for (int i = 0; i < s->made->nstages; i++)
        for (int d = 0; d < s->made->stages[i].naxes; d++)
            TSRI_TRY(name_axis(s, &s->made->stages[i], &s->made->stages[i].axis[d]));
    TSRI_TRY(find_pipeline(s));
    return tsri_strategy_say(s);
}

tsr_status tsri_strategy_find(const tsr_plan *plan, tsri_pool *pool, tsri_strategy *out_strategy)
{
    tsri_strategist s = {.plan = plan, .pool = pool, .made = out_strategy};
    *out_strategy = (tsri_strategy){0};
    tsri_pool_init(&s.scratch, &plan->ir.world->mem);
    tsr_status status = find_all(&s);
    tsri_pool_finish(&s.scratch);
    return status;
}
