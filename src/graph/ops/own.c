/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a program's own: their definition, and how one is declared and differentiated. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/core/identity.h"
#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/core/own_op.h"
#include "src/core/rng.h"
#include "src/graph/op.h"

_Static_assert((int)TSRI_OWN_OPTIONS == (int)TSR_OP_MAX_OPTIONS, "options have room");
_Static_assert(TSR_OP_MAX_INPUTS + 2 * TSR_OP_MAX_OUTPUTS <= TSRI_RULE_MAX_ARGS,
               "so have operands");

enum { FLAGS = TSR_OP_KEEPS_RESULTS | TSR_OP_IN_PLACE | TSR_OP_BROADCASTS };

/* --- definitions ------------------------------------------------------------------------------ */
static tsr_status refuse(const tsr_op_def *d, const char *why, ...) TSR_PRINTF(2, 3);
static tsr_status refuse(const tsr_op_def *d, const char *why, ...)
{
    char text[512];
    va_list args;
    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    return tsri_fail(TSR_ERR_INVALID, "tsr_op_define: op '%s': %s", d->name, text);
}

static bool is_word(const char *name)
{
    size_t n = 0;
    for (; isalnum((unsigned char)name[n]) || name[n] == '_'; n++)
        ;
    return n > 0 && n < 48 && !name[n] && !isdigit((unsigned char)name[0]);
}

static bool is_builtin(const char *name)
{
    const size_t length = strlen(name);
    return tsri_op_named(name, length) >= 0 || tsri_unary_named(name, length) >= 0 ||
           tsri_binary_named(name, length) >= 0;
}

static tsr_status check_name(tsr_world *world, const char *name)
{
    if (!name || !is_word(name))
        return tsri_fail(
            TSR_ERR_INVALID,
            "tsr_op_define: the name %s%.60s%s; letters, digits and '_' make one of at "
            "most 47",
            name ? "is '" : "is NULL", name ? name : "", name ? "'" : "");
    if (is_builtin(name))
        return tsri_fail(TSR_ERR_INVALID, "tsr_op_define: the library has an op '%s'", name);
    for (const tsr_op *o = world->own_ops; o; o = o->next)
        if (!strcmp(o->def.name, name))
            return tsri_fail(TSR_ERR_INVALID, "tsr_op_define: op '%s' is defined already", name);
    return TSR_OK;
}

static tsr_status check_options(const tsr_op_def *d, int *out_n)
{
    int n = 0;
    for (; n < TSR_OP_MAX_OPTIONS && d->options[n].name; n++) {
        const tsr_op_option *o = &d->options[n];
        if (!is_word(o->name))
            return refuse(d, "option %d: the name '%.60s' is no word", n, o->name);
        if (!(o->least <= o->value && o->value <= o->most))
            return refuse(d, "option '%s': the default %g is not in [%g, %g]", o->name, o->value,
                          o->least, o->most);
        for (int i = 0; i < n; i++)
            if (!strcmp(d->options[i].name, o->name))
                return refuse(d, "two options are named '%s'", o->name);
    }
    *out_n = n;
    return TSR_OK;
}

/* Takes the place in front of a text away that speaks of the library. */
static tsr_status refuse_rule(const tsr_op_def *d, const char *which)
{
    char text[400];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    return refuse(d, "%s: %s", which, text);
}

static int backward_inputs(const tsr_op_def *d)
{
    return d->inputs + d->outputs * (d->flags & TSR_OP_KEEPS_RESULTS ? 2 : 1);
}

static tsr_status check_rules(tsri_pool *pool, const tsr_op_def *d)
{
    if (!d->rule)
        return refuse(d, "it has no rule");
    if (tsri_rule_check_text(pool, d->rule, d->inputs, d->outputs) != TSR_OK)
        return refuse_rule(d, "its rule");
    if (d->backward_rule && !d->backward)
        return refuse(d, "it has a rule for backward, but no backward");
    if (d->backward_rule &&
        tsri_rule_check_text(pool, d->backward_rule, backward_inputs(d), d->inputs) != TSR_OK)
        return refuse_rule(d, "its backward_rule");
    return TSR_OK;
}

static tsr_status check_functions(const tsr_op_def *d)
{
    if (!d->forward && !d->forward_cuda)
        return refuse(d, "it has no forward function");
    if (d->backward_cuda && !d->forward_cuda)
        return refuse(d, "it has backward_cuda, but no forward_cuda");
    if (d->backward && !d->forward)
        return refuse(d, "it has backward, but no forward");
    if (!(d->flops >= 0) || isinf(d->flops))
        return refuse(d, "flops is %g; it must be finite and not negative", d->flops);
    if (d->flags & ~FLAGS)
        return refuse(d, "no such flags: %#x", d->flags & ~FLAGS);
    if (d->dtypes >> TSR_DTYPE_COUNT_)
        return refuse(d, "no such dtypes: %#x", d->dtypes);
    if (d->in_dtypes[0])
        return refuse(d, "in_dtypes[0] is %#x; the dtypes of operand 0 are .dtypes",
                      d->in_dtypes[0]);
    for (int i = 1; i < TSR_OP_MAX_INPUTS; i++)
        if (d->in_dtypes[i] >> TSR_DTYPE_COUNT_ || (d->in_dtypes[i] && i >= d->inputs))
            return refuse(d, "in_dtypes[%d] is %#x: no such dtypes, or no such operand", i,
                          d->in_dtypes[i]);
    return TSR_OK;
}

static tsr_status check_counts(const tsr_op_def *d)
{
    if (d->inputs < 1 || d->inputs > TSR_OP_MAX_INPUTS)
        return refuse(d, "%d operands; 1 to %d are possible", d->inputs, TSR_OP_MAX_INPUTS);
    if (d->outputs < 1 || d->outputs > TSR_OP_MAX_OUTPUTS)
        return refuse(d, "%d results; 1 to %d are possible", d->outputs, TSR_OP_MAX_OUTPUTS);
    return TSR_OK;
}

static bool copy_texts(tsr_op *op, const tsr_op_def *d)
{
    tsri_pool *pool = &op->pool;
    op->def = *d;
    op->def.name = tsri_pool_strdup(pool, d->name);
    op->backward_name = tsri_pool_printf(pool, "%s_backward", d->name);
    op->def.rule = tsri_pool_strdup(pool, d->rule);
    op->def.backward_rule = d->backward_rule ? tsri_pool_strdup(pool, d->backward_rule) : NULL;
    for (int i = 0; i < op->noptions; i++)
        if (!(op->def.options[i].name = tsri_pool_strdup(pool, d->options[i].name)))
            return false;
    return op->def.name && op->backward_name && op->def.rule &&
           !op->def.backward_rule == !d->backward_rule;
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    return text ? tsri_hash(h, text, strlen(text) + 1) : tsri_hash(h, "", 1);
}

static uint64_t hash_def(const tsr_op *op)
{
    const tsr_op_def *d = &op->def;
    const int32_t numbers[5] = {d->inputs, d->outputs, (int32_t)d->flags, (int32_t)d->dtypes,
                                op->noptions};
    uint64_t h = hash_text(TSRI_HASH_INIT, d->name);
    h = hash_text(hash_text(h, d->rule), d->backward_rule);
    h = tsri_hash(h, numbers, sizeof numbers);
    h = tsri_hash(h, d->in_dtypes, sizeof d->in_dtypes);
    return tsri_hash(h, &d->flops, sizeof d->flops);
}

static void destroy_op(void *object)
{
    tsr_op *op = object;
    for (tsr_op **o = &op->world->own_ops; *o; o = &(*o)->next)
        if (*o == op) {
            *o = op->next;
            break;
        }
    tsri_world_disown(&op->owned);
    tsri_pool_finish(&op->pool);
    tsri_live_free(op, TSRI_LIVE_OP);
}

tsr_status tsr_op_define(tsr_world *world, const tsr_op_def *def, tsr_op **out_op)
{
    tsr_op_def d = *TSR_OP_DEF();
    int noptions = 0;
    if (!world || !def || !out_op)
        return tsri_fail(TSR_ERR_INVALID, "tsr_op_define: %s is NULL%s",
                         !world ? "the world"
                         : !def ? "the definition"
                                : "out_op",
                         !world ? tsri_error_cause() : "");
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    TSRI_TRY(tsri_opts_read(&d, sizeof d, def, __func__));
    TSRI_TRY(check_name(world, d.name));
    TSRI_TRY(check_counts(&d));
    TSRI_TRY(check_functions(&d));
    TSRI_TRY(check_options(&d, &noptions));
    tsr_op *op = tsri_live_alloc(&world->mem, sizeof *op, TSRI_LIVE_OP);
    TSRI_NEED(op);
    op->world = world;
    op->noptions = noptions;
    tsri_pool_init(&op->pool, &world->mem);
    tsr_status status = check_rules(&op->pool, &d);
    if (status == TSR_OK && !copy_texts(op, &d))
        status = TSR_ERR_NO_MEMORY;
    if (status != TSR_OK) {
        tsri_pool_finish(&op->pool);
        tsri_live_free(op, TSRI_LIVE_OP);
        return status;
    }
    op->hash = hash_def(op);
    op->next = world->own_ops;
    world->own_ops = op;
    tsri_world_own_last(world, &op->owned, op, destroy_op);
    *out_op = op;
    return TSR_OK;
}

tsr_op *tsr_op_find(tsr_world *world, const char *name)
{
    tsr_op *op = tsri_is_live(world, TSRI_LIVE_WORLD, __func__) && name ? world->own_ops : NULL;
    while (op && strcmp(op->def.name, name) != 0)
        op = op->next;
    return op;
}

/* --- declaring -------------------------------------------------------------------------------- */
static bool read_options(const tsri_ctx *c, const tsr_op *op, const double *options, double *out)
{
    for (int i = 0; i < op->noptions; i++) {
        const tsr_op_option *o = &op->def.options[i];
        out[i] = options ? options[i] : o->value;
        if (!(o->least <= out[i] && out[i] <= o->most))
            return tsri_op_refuse(c, TSR_ERR_INVALID, "%s is %g; legal are %g to %g", o->name,
                                  out[i], o->least, o->most);
    }
    return true;
}

static bool want_dtypes(const tsri_ctx *c, const tsr_op *op, tsr_tensor *const *x)
{
    for (int i = 0; i < op->def.inputs; i++) {
        const unsigned legal = i ? op->def.in_dtypes[i] : op->def.dtypes;
        if (i && !legal && x[i]->dtype != x[0]->dtype)
            return tsri_op_refuse(
                c, TSR_ERR_DTYPE,
                "operand %d is %s and operand 0 %s; they must be alike: use tsr_cast (an op of "
                "operands that differ says so by in_dtypes)",
                i, tsr_dtype_name(x[i]->dtype), tsr_dtype_name(x[0]->dtype));
        if (legal && !(legal >> x[i]->dtype & 1))
            return tsri_op_refuse(c, TSR_ERR_DTYPE, "operand %d is %s, which the op does not take",
                                  i, tsr_dtype_name(x[i]->dtype));
    }
    return true;
}

typedef struct shapes {
    tsr_dims in[TSR_OP_MAX_INPUTS], out[TSR_OP_MAX_OUTPUTS];
    tsr_dtype in_dtype[TSR_OP_MAX_INPUTS], out_dtype[TSR_OP_MAX_OUTPUTS];
} shapes;

static bool ask_shapes(const tsri_ctx *c, const tsr_op *op, const double *option, shapes *s)
{
    tsr_op_shapes ask = {.size = sizeof ask,
                         .inputs = op->def.inputs,
                         .outputs = op->def.outputs,
                         .in = s->in,
                         .in_dtype = s->in_dtype,
                         .out = s->out,
                         .out_dtype = s->out_dtype,
                         .option = option};
    tsri_error_clear();
    const tsr_status status = op->def.shapes(&ask);
    char why[400];
    snprintf(why, sizeof why, "%s", tsr_last_error());
    if (status != TSR_OK)
        return tsri_op_refuse(c, status, "%s",
                              why[0] ? why : "its shape function refuses these operands");
    for (int i = 0; i < op->def.outputs; i++) {
        bool fits = s->out[i].ndim >= 0 && s->out[i].ndim <= TSR_MAX_NDIM;
        for (int a = 0; a < s->out[i].ndim && fits; a++)
            fits = s->out[i].d[a] >= 0;
        if (!fits || !tsr_dtype_size(s->out_dtype[i]))
            return tsri_op_refuse(c, TSR_ERR_INVALID,
                                  "its shape function gives result %d an illegal %s", i,
                                  fits ? "dtype" : "shape");
    }
    return true;
}

/* Sets shapes and dtypes of the results, and holds the rule against them. */
static bool make_shapes(const tsri_ctx *c, const tsr_op *op, tsr_tensor *const *x,
                        const double *option, shapes *s)
{
    for (int i = 0; i < op->def.inputs; i++) {
        s->in[i] = x[i]->shape;
        s->in_dtype[i] = x[i]->dtype;
    }
    for (int i = 0; i < op->def.outputs; i++)
        s->out_dtype[i] = x[0]->dtype;
    tsri_pool *pool = &c->g->pool;
    tsri_rule *rule;
    tsr_status status = TSR_OK;
    if (!op->def.shapes)
        status =
            tsri_rule_shapes(pool, op->def.rule, op->def.inputs, s->in, op->def.outputs, s->out);
    else if (!ask_shapes(c, op, option, s))
        return false;
    if (status == TSR_OK)
        status = tsri_rule_bind(pool, op->def.rule, op->def.inputs, s->in, op->def.outputs, s->out,
                                0, NULL, &rule);
    if (status == TSR_OK && tsri_rule_broadcasts(rule) && !(op->def.flags & TSR_OP_BROADCASTS))
        return tsri_op_refuse(c, TSR_ERR_SHAPE,
                              "an operand is broadcast, which the op does not do: use tsr_expand");
    if (status == TSR_OK)
        return true;
    char text[480];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    return tsri_op_refuse(c, status == TSR_ERR_NO_MEMORY ? status : TSR_ERR_SHAPE, "%s", text);
}

static tsri_op *apply(tsr_op *op, int n, tsr_tensor *const *x, const double *options, tsri_loc loc,
                      tsr_tensor **out_failed)
{
    *out_failed = NULL;
    if (!tsri_is_live(op, TSRI_LIVE_OP, "tsr_op_apply")) {
        if (!op)
            tsri_fail_at(loc, TSR_ERR_INVALID, "op_apply: the op is NULL%s", tsri_error_cause());
        for (int i = 0; x && i < n && !*out_failed; i++)
            if (tsri_is_live(x[i], TSRI_LIVE_TENSOR, "tsr_op_apply"))
                *out_failed = tsri_graph_fail_last(x[i]->graph, TSR_ERR_INVALID);
        return NULL;
    }
    tsri_ctx c;
    shapes s = {0};
    tsri_attrs attrs = {0};
    if (!tsri_want_some("op_apply", n, x, loc))
        return NULL;
    if (!tsri_op_begin(&c, op->def.name, n, x, 0, loc)) {
        *out_failed = c.failed;
        return NULL;
    }
    *out_failed = c.failed;
    if (n != op->def.inputs) {
        tsri_op_fail(&c, TSR_ERR_INVALID, "%d operand%s; it has %d", n, n == 1 ? "" : "s",
                     op->def.inputs);
        return NULL;
    }
    if (c.g->world != op->world) {
        tsri_op_fail(&c, TSR_ERR_INVALID, "it was defined in another world");
        return NULL;
    }
    attrs.own.hash = op->hash;
    attrs.own.op = op;
    if (!want_dtypes(&c, op, x) || !read_options(&c, op, options, attrs.own.option) ||
        !make_shapes(&c, op, x, attrs.own.option, &s))
        return NULL;
    return tsri_graph_add(c.g, TSRI_OP_OWN, &attrs, n, x, op->def.outputs, s.out, s.out_dtype, NULL,
                          loc);
}

tsr_tensor *tsr_op_apply_at(tsr_op *op, int n, tsr_tensor *const *x, const double *options,
                            const char *file, int line)
{
    tsr_tensor *failed;
    tsri_op *made = apply(op, n, x, options, (tsri_loc){file, line}, &failed);
    return made ? made->out[0] : failed;
}

void tsr_op_apply_all_at(tsr_op *op, int n, tsr_tensor *const *x, const double *options,
                         tsr_tensor **out, const char *file, int line)
{
    tsr_tensor *failed;
    if (!out) {
        tsri_fail_at((tsri_loc){file, line}, TSR_ERR_INVALID, "op_apply_all: out is NULL");
        return;
    }
    tsri_op *made = apply(op, n, x, options, (tsri_loc){file, line}, &failed);
    const int nout = tsri_live_has(op, TSRI_LIVE_OP) ? op->def.outputs : 0;
    for (int i = 0; i < nout; i++)
        out[i] = made ? made->out[i] : failed;
}

/* --- what the passes ask ---------------------------------------------------------------------- */
static tsr_status write_text(tsri_rule_text *out, const char *text)
{
    memset(out, 0, sizeof *out);
    const size_t n = strlen(text);
    if (n >= sizeof out->text)
        return tsri_fail(TSR_ERR_INVALID, "a rule of %zu characters; at most %zu are possible", n,
                         sizeof out->text - 1);
    memcpy(out->text, text, n + 1);
    return TSR_OK;
}

static tsr_status rule_own(const tsri_op *op, tsri_rule_text *out)
{
    return write_text(out, op->attrs.own.op->def.rule);
}

/* Writes the user's text, less the outputs that nobody wants, or what follows from the op's rule.
 */
static tsr_status rule_own_backward(const tsri_op *op, tsri_rule_text *out)
{
    const tsr_op_def *d = &op->attrs.own.op->def;
    memset(out, 0, sizeof *out);
    if (d->backward_rule)
        return write_text(out, d->backward_rule);
    tsr_dims in[TSR_OP_MAX_INPUTS], y[TSR_OP_MAX_OUTPUTS];
    for (int i = 0; i < d->inputs; i++)
        in[i] = op->in[i]->shape;
    for (int i = 0; i < d->outputs; i++)
        y[i] = op->in[op->nin - d->outputs + i]->shape;
    tsri_pool pool;
    tsri_rule *rule;
    tsri_pool_init(&pool, NULL);
    tsr_status status =
        tsri_rule_bind(&pool, d->rule, d->inputs, in, d->outputs, y, 0, NULL, &rule);
    if (status == TSR_OK)
        status =
            tsri_rule_gradient(rule, op->attrs.own.want, (d->flags & TSR_OP_KEEPS_RESULTS) != 0,
                               out->text, sizeof out->text, out->sizes, &out->nsizes);
    tsri_pool_finish(&pool);
    return status == TSR_OK ? TSR_OK : tsri_fail_prefix(status, "op '%s'", d->name);
}

static double flops_own(const tsri_op *op)
{
    double n = 0;
    for (int i = 0; i < op->nout; i++)
        n += (double)tsr_dims_count(op->out[i]->shape);
    return n * op->attrs.own.op->def.flops;
}

/* About twice the work of forward, as with products. */
static double flops_own_backward(const tsri_op *op)
{
    double n = 0;
    for (int i = 0; i < op->nout; i++)
        n += (double)tsr_dims_count(op->out[i]->shape);
    return 2 * n * op->attrs.own.op->def.flops;
}

static void grad_own(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    const tsr_op_def *d = &op->attrs.own.op->def;
    tsr_graph *g = op->in[0]->graph;
    tsr_tensor *in[TSRI_RULE_MAX_ARGS];
    tsr_dims shape[TSR_OP_MAX_INPUTS];
    tsr_dtype dtype[TSR_OP_MAX_INPUTS];
    tsri_attrs attrs = op->attrs;
    int n = 0, nout = 0;
    if (!d->backward && !d->backward_cuda) {
        tsri_graph_fail(g, op->loc, TSR_ERR_UNSUPPORTED, "%s has no backward function", d->name);
        return;
    }
    for (int i = 0; i < op->nin; i++)
        in[n++] = op->in[i];
    for (int i = 0; i < op->nout && (d->flags & TSR_OP_KEEPS_RESULTS); i++)
        in[n++] = op->out[i];
    for (int i = 0; i < op->nout; i++)
        in[n++] = dout[i] ? dout[i]
                          : tsri_make_fill(g, op->out[i]->shape, op->out[i]->dtype, op->placement,
                                           0, op->loc);
    attrs.own.want = 0;
    for (int i = 0; i < op->nin; i++) {
        /* A text of the user's own has all of them. */
        if (!tsri_is_float(op->in[i]->dtype) || !(want[i] || d->backward_rule))
            continue;
        attrs.own.want |= 1u << i;
        shape[nout] = op->in[i]->shape;
        dtype[nout++] = op->in[i]->dtype;
    }
    tsri_op *back =
        tsri_graph_add(g, TSRI_OP_OWN_BACKWARD, &attrs, n, in, nout, shape, dtype, NULL, op->loc);
    for (int i = 0, j = 0; i < op->nin && back; i++)
        if (attrs.own.want >> i & 1)
            din[i] = back->out[j++];
}

static const tsri_attr_field own_attrs[] = {
    TSRI_ATTR_FIELD(own.hash, U64, "definition (of its name, rules, flags)"),
    TSRI_ATTR_FIELD(own.want, MASK, "gradients of operands"),
    TSRI_ATTR_FIELDS(own.option, F64, TSRI_OWN_OPTIONS, "options"), TSRI_ATTR_END};

const tsri_op_def tsri_def_own = {.cuts = TSRI_CUT_NEVER,
                                  .rule = rule_own,
                                  .gradient = grad_own,
                                  .flops = flops_own,
                                  .attrs = own_attrs,
                                  .autocast = TSRI_AUTOCAST_NONE,
                                  .keeps_dtype = true};
const tsri_op_def tsri_def_own_backward = {.cuts = TSRI_CUT_NEVER,
                                           .rule = rule_own_backward,
                                           .flops = flops_own_backward,
                                           .attrs = own_attrs,
                                           .keeps_dtype = true};
