/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about each op kind, in one table, which graphs are made with; and the kinds that no
 * user declares. */
#include <stdio.h>
#include <string.h>

#include "src/core/own_op.h"
#include "src/graph/op.h"

/* Updates are linear, so P would be legal; it is never useful, and a half-updated parameter none to
 * leave about. hyper is read whole by every rank. */
static const char *rule_update(const tsri_op *op)
{
    if (op->attrs.update.adds) /* p is a sum of gradients, and shrinks to nothing or not at all */
        return "... + ..., !. -> ...";
    static const char *const by_states[] = {
        "!..., !..., !. -> ...",
        "!..., !..., !..., !. -> ..., ...",
        "!..., !..., !..., !..., !. -> ..., ..., ...",
        "!..., !..., !..., !..., !..., !. -> ..., ..., ..., ...",
    };
    return by_states[op->nout - 1];
}

static const tsri_attr_field update_attrs[] = {TSRI_ATTR_FIELD(update.has, I32, "states"),
                                               TSRI_ATTR_FIELD(update.adds, I32, "adds up"),
                                               TSRI_ATTR_END};

const tsri_op_def tsri_def_input = {.keeps_dtype = true};
const tsri_op_def tsri_def_variable = {.keeps_dtype = true};
const tsri_op_def tsri_def_to_global = {.is_view = true, .keeps_dtype = true};
const tsri_op_def tsri_def_copy = {.rule_text = "^... -> ...", .is_exact = true};
#define UPDATE_DEF(KIND, name, flops, ...)                           \
    const tsri_op_def tsri_def_##name = {.rule_of = rule_update,     \
                                         .flops_per_element = flops, \
                                         .over = 1,                  \
                                         .attrs = update_attrs,      \
                                         .is_update = true};
TSRI_UPDATE_LIST(UPDATE_DEF)
#undef UPDATE_DEF

/* Lowering makes these of others, after inference: they have no rule. */
const tsri_op_def tsri_def_bn_act = {
    .layout = TSRI_LAYOUT_ANY, .chain = TSRI_CHAIN_MAP, .walks = 1 << 0, .is_cheap = true};
const tsri_op_def tsri_def_bn_act_bwd_stats = {
    .layout = TSRI_LAYOUT_ANY, .chain = TSRI_CHAIN_SUMS, .walks = 1 << 0 | 1 << 4};
const tsri_op_def tsri_def_bn_act_bwd_apply = {
    .layout = TSRI_LAYOUT_ANY, .chain = TSRI_CHAIN_MAP, .walks = 1 << 0 | 1 << 4};
const tsri_op_def tsri_def_softmax = {0};
const tsri_op_def tsri_def_softmax_dx = {0};
const tsri_op_def tsri_def_ce = {0};

const tsri_op_def *tsri_op_def_of(tsri_op_kind kind)
{
    static const tsri_op_def *const defs[TSRI_OP_COUNT_] = {
#define DEF(upper, lower) &tsri_def_##lower,
        TSRI_OP_LIST(DEF)
#undef DEF
    };
    return (unsigned)kind < TSRI_OP_COUNT_ ? defs[kind] : NULL;
}

tsr_graph *tsr_graph_create(tsr_world *world, const tsr_graph_opts *opts)
{
    return tsri_graph_create(world, opts, tsri_op_def_of);
}

bool tsri_op_has_rule(tsri_op_kind kind)
{
    const tsri_op_def *def = tsri_op_def_of(kind);
    return def->rule || def->rule_of || def->rule_text;
}

/* Writes a rule in which A, B and C stand for the names of the op. */
static tsr_status write_named(const tsri_op *op, const char *text, tsri_rule_text *out)
{
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    const int ndim = (op->nin ? op->in[0] : op->out[0])->shape.ndim;
    tsri_rule_names names = {0};
    memset(out, 0, sizeof *out);
    if (def->names) {
        def->names(op, &names, out);
    } else {
        tsri_offset_axes(names.a, ndim, 0);
        tsri_offset_axes(names.b, ndim, ndim);
    }
    size_t at = 0;
    for (; *text && at < sizeof out->text; text++) {
        const char one[2] = {*text, 0};
        const char *part = *text == 'A'   ? names.a
                           : *text == 'B' ? names.b
                           : *text == 'C' ? names.c
                                          : one;
        at += (size_t)snprintf(out->text + at, sizeof out->text - at, "%s", part);
    }
    if (at >= sizeof out->text)
        return tsri_fail(TSR_ERR_INTERNAL, "the rule of %s has more than %zu characters",
                         tsri_op_name(op->kind), sizeof out->text - 1);
    return TSR_OK;
}

tsr_status tsri_op_write_rule(const tsri_op *op, tsri_rule_text *out)
{
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    if (!tsri_op_has_rule(op->kind))
        return tsri_fail_at(op->loc, TSR_ERR_INTERNAL, "%s has no rule", tsri_op_name(op->kind));
    if (def->rule)
        return def->rule(op, out);
    return write_named(op, def->rule_of ? def->rule_of(op) : def->rule_text, out);
}

tsr_status tsri_op_bind_rule(tsri_pool *pool, const tsri_op *op, tsri_rule_text *out_text,
                             tsri_rule **out_rule)
{
    tsr_dims in[TSRI_RULE_MAX_ARGS], out[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < op->nin; i++)
        in[i] = op->in[i]->shape;
    for (int i = 0; i < op->nout; i++)
        out[i] = op->out[i]->shape;
    TSRI_TRY(tsri_op_write_rule(op, out_text));
    return tsri_rule_bind(pool, out_text->text, op->nin, in, op->nout, out, out_text->nsizes,
                          out_text->sizes, out_rule);
}

double tsri_op_flops(const tsri_op *op)
{
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    if (def->flops)
        return def->flops(op);
    if (def->flops_per_element > 0)
        return def->flops_per_element * (double)tsr_dims_count(op->in[0]->shape);
    double n = 0;
    for (int i = 0; i < op->nout; i++)
        n += (double)tsr_dims_count(op->out[i]->shape);
    return n;
}

tsr_dtype tsri_op_computes_in(const tsri_op *op)
{
    for (int i = 0; i < op->nin; i++)
        if (tsri_is_float(op->in[i]->dtype))
            return op->in[i]->dtype;
    return op->nout ? op->out[0]->dtype : TSR_DTYPE_NONE;
}

uint32_t tsri_op_alike(tsri_op_kind kind, const tsri_attrs *attrs)
{
    if (kind == TSRI_OP_OWN)
        return attrs->own.op->def.flags & TSR_OP_IN_PLACE ? 1 : 0;
    return tsri_op_def_of(kind)->alike;
}

int tsri_op_over(tsri_op_kind kind, int i)
{
    const tsri_op_def *def = tsri_op_def_of(kind);
    return def->over ? def->over - 1 + i : -1;
}

int tsri_op_gradient_operand(tsri_op_kind kind, int nin)
{
    return tsri_op_def_of(kind)->is_update ? nin - 2 : -1;
}
