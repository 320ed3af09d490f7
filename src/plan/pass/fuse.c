/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fusion of items once signatures are fixed. Batch norm followed by ReLU or ReLU6 becomes one pass
 * forward; backward, the activation's mask is recomputed from batch norm's own input inside the two
 * passes of its gradient, so that neither the normalised value nor the masked gradient is stored.
 * The parts of softmax and cross entropy are joined where no conversion stands between them: where
 * their axis is whole on every rank. On CPUs layer norm takes in the product and the sum behind it
 * whose other operands are one number for many features each, as group norm has them; its gradient
 * takes in the product before it. There, too, a ReLU before max pooling goes behind it, where
 * elements are fewer. On GPUs layer norm becomes one pass forward and one back, and a gradient's
 * part in a norm of many one op.
 */
#include <string.h>

#include "src/plan/pass/pass.h"

typedef struct fuser {
    tsri_ir *ir;
    int *maker;   /* per value: the item that makes it, -1 */
    int *readers; /* per value: items that read it */
} fuser;

static tsri_act act_of(const tsri_item *it)
{
    if (it->kernel.op != TSRI_OP_UNARY && it->kernel.op != TSRI_OP_UNARY_GRAD)
        return TSRI_ACT_NONE;
    return it->kernel.attrs.unary.fn == TSRI_UNARY_RELU    ? TSRI_ACT_RELU
           : it->kernel.attrs.unary.fn == TSRI_UNARY_RELU6 ? TSRI_ACT_RELU6
                                                           : TSRI_ACT_NONE;
}

static bool is_kernel(const tsri_item *it, tsri_op_kind op)
{
    return it->kind == TSRI_ITEM_KERNEL && it->kernel.op == op;
}

static void scan(fuser *f)
{
    tsri_ir *ir = f->ir;
    for (int i = 0; i < ir->nvalues; i++) {
        f->maker[i] = -1;
        f->readers[i] = 0;
    }
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->kind == TSRI_ITEM_DEAD)
            continue;
        for (int j = 0; j < it->nin; j++)
            f->readers[it->in[j]]++;
        for (int j = 0; j < it->nout; j++)
            f->maker[it->out[j]] = i;
    }
}

/* bn_apply -> relu: becomes bn_act, in the activation's place. */
static void fuse_forward(fuser *f)
{
    tsri_ir *ir = f->ir;
    for (int i = 0; i < ir->nitems; i++) {
        tsri_item *act = &ir->items[i];
        if (!is_kernel(act, TSRI_OP_UNARY) || act_of(act) == TSRI_ACT_NONE)
            continue;
        int m = f->maker[act->in[0]];
        if (m < 0 || f->readers[act->in[0]] != 1 || !is_kernel(&ir->items[m], TSRI_OP_BN_APPLY))
            continue;
        tsri_item *bn = &ir->items[m];
        bn->kernel.attrs.bn.act = act_of(act);
        bn->kernel.op = TSRI_OP_BN_ACT;
        bn->out[0] = act->out[0];
        f->maker[act->out[0]] = m;
        act->kind = TSRI_ITEM_DEAD;
    }
}

/* The item of a kind that reads a value, which item `maker` makes, as operand `arg`; NULL if there
 * is none. */
static tsri_item *reader_of(fuser *f, int maker, int value, tsri_op_kind op, int arg)
{
    for (int i = maker + 1; i < f->ir->nitems; i++) {
        tsri_item *it = &f->ir->items[i];
        if (is_kernel(it, op) && it->in[arg] == value)
            return it;
    }
    return NULL;
}

static bool set_operands(tsri_ir *ir, tsri_item *it, int n, const int *in)
{
    int *copy = tsri_pool_dup(&ir->program, in, (size_t)n * sizeof *in);
    if (!copy)
        return false;
    it->in = copy;
    it->nin = n;
    return true;
}

/* relu' -> (bn_bwd_stats, bn_bwd_apply): the mask is taken inside both. */
static tsr_status fuse_backward(fuser *f)
{
    tsri_ir *ir = f->ir;
    for (int i = 0; i < ir->nitems; i++) {
        tsri_item *grad = &ir->items[i];
        if (!is_kernel(grad, TSRI_OP_UNARY_GRAD) || act_of(grad) == TSRI_ACT_NONE)
            continue;
        int y = grad->in[0], dy = grad->in[1], g = grad->out[0], m = f->maker[y];
        if (m < 0 || f->readers[g] != 2 || !is_kernel(&ir->items[m], TSRI_OP_BN_ACT))
            continue;
        const tsri_item *fwd = &ir->items[m];
        tsri_item *stats = reader_of(f, i, g, TSRI_OP_BN_BWD_STATS, 2);
        tsri_item *apply = reader_of(f, i, g, TSRI_OP_BN_BWD_APPLY, 3);
        if (!stats || !apply || stats->in[0] != fwd->in[0] || apply->in[0] != fwd->in[0] ||
            stats->in[1] != fwd->in[1] || apply->in[1] != fwd->in[1] ||
            apply->in[2] != fwd->in[2] || fwd->kernel.attrs.bn.act != (int32_t)act_of(grad))
            continue;
        int x = fwd->in[0], st = fwd->in[1], gamma = fwd->in[2], beta = fwd->in[3];
        int bstats = apply->in[4];
        TSRI_NEED(set_operands(ir, stats, 5, (int[]){x, st, gamma, beta, dy}) &&
                  set_operands(ir, apply, 6, (int[]){x, st, gamma, beta, dy, bstats}));
        stats->kernel.op = TSRI_OP_BN_ACT_BWD_STATS;
        apply->kernel.op = TSRI_OP_BN_ACT_BWD_APPLY;
        stats->kernel.attrs.bn.act = apply->kernel.attrs.bn.act = fwd->kernel.attrs.bn.act;
        grad->kind = TSRI_ITEM_DEAD;
        f->readers[y]--;
    }
    return TSR_OK;
}

/* The item of a kind that makes a value which `readers` items read; NULL if it isn't so. */
static tsri_item *maker_of(fuser *f, int value, tsri_op_kind op, int readers)
{
    int m = f->maker[value];
    return m >= 0 && f->readers[value] == readers && is_kernel(&f->ir->items[m], op)
               ? &f->ir->items[m]
               : NULL;
}

/* `last` reads its first `nin` operands only, as another op; the items before it go. */
static void join(tsri_item *last, tsri_op_kind op, int nin, tsri_item *first, tsri_item *second)
{
    last->kernel.op = op;
    last->nin = nin;
    first->kind = TSRI_ITEM_DEAD;
    if (second)
        second->kind = TSRI_ITEM_DEAD;
}

/* max, sum, finish -> softmax; dot, bwd -> softmax_dx */
static void join_softmax(fuser *f, tsri_item *it)
{
    if (is_kernel(it, TSRI_OP_SOFTMAX_FINISH)) {
        tsri_item *sum = maker_of(f, it->in[2], TSRI_OP_SOFTMAX_SUM, 1);
        tsri_item *max = maker_of(f, it->in[1], TSRI_OP_SOFTMAX_MAX, 2);
        if (sum && max && sum->in[0] == it->in[0] && sum->in[1] == it->in[1] &&
            max->in[0] == it->in[0])
            join(it, TSRI_OP_SOFTMAX, 1, sum, max);
    }
    if (!is_kernel(it, TSRI_OP_SOFTMAX_BWD))
        return;
    const bool is_log = it->kernel.attrs.softmax.log;
    tsri_item *dot = maker_of(f, it->in[2], is_log ? TSRI_OP_REDUCE : TSRI_OP_SOFTMAX_DOT, 1);
    if (!dot)
        return;
    bool same = is_log ? dot->in[0] == it->in[1] && dot->kernel.attrs.reduce.op == TSR_REDUCE_SUM &&
                             dot->kernel.attrs.reduce.axes == 1u << it->kernel.attrs.softmax.axis &&
                             dot->kernel.attrs.reduce.scale == 1
                       : dot->in[0] == it->in[0] && dot->in[1] == it->in[1];
    if (same)
        join(it, TSRI_OP_SOFTMAX_DX, 2, dot, NULL);
}

/* max, terms, finish -> ce */
static tsr_status join_cross_entropy(fuser *f, tsri_item *it)
{
    if (!is_kernel(it, TSRI_OP_CE_FINISH))
        return TSR_OK;
    tsri_item *terms = maker_of(f, it->in[0], TSRI_OP_CE_TERMS, 1);
    tsri_item *max = maker_of(f, it->in[1], TSRI_OP_SOFTMAX_MAX, 2);
    if (!terms || !max || terms->in[0] != max->in[0] || terms->in[2] != it->in[1] ||
        (it->nin == 3 && terms->in[1] != it->in[2]))
        return TSR_OK;
    TSRI_NEED(set_operands(f->ir, it, 2, (int[]){terms->in[0], terms->in[1]}));
    join(it, TSRI_OP_CE, 2, terms, max);
    return TSR_OK;
}

/* Whether a value is f32 and, beside x, one number for each run of features of a layer norm, or of
 * some in front of them. */
static bool is_param(const tsri_ir *ir, int value, tsr_dims x)
{
    enum { RUN = 16 }; /* elements: shorter ones are not worth it */
    const tsri_value *v = &ir->values[value];
    int64_t run = 1;
    int i = 1;
    for (; i <= v->shape.ndim && i <= x.ndim && v->shape.d[v->shape.ndim - i] == 1; i++)
        run *= x.d[x.ndim - i];
    for (; i <= v->shape.ndim; i++)
        if (i > x.ndim || v->shape.d[v->shape.ndim - i] != x.d[x.ndim - i])
            return false;
    return v->dtype == TSR_F32 && run >= RUN;
}

/* Whether an item is a function of two operands, of which one is a layer norm's parameter and the
 * other one as large as the result; sets which is the latter. */
static bool takes_param(const tsri_ir *ir, const tsri_item *it, tsri_binary_fn fn, int *out_which)
{
    if (!is_kernel(it, TSRI_OP_BINARY) || it->kernel.attrs.binary.fn != (int)fn ||
        !tsri_placement_can(it->placement, TSRI_CAN_ROW_KERNELS))
        return false;
    const tsri_value *y = &ir->values[it->out[0]];
    for (int i = 0; i < 2; i++)
        if (tsr_dims_equal(ir->values[it->in[i]].shape, y->shape) && y->dtype == TSR_F32 &&
            is_param(ir, it->in[1 - i], y->shape)) {
            *out_which = i;
            return true;
        }
    return false;
}

/* ln_apply -> product or sum: becomes ln_apply, in the latter's place. A sum is behind a product.
 */
static tsr_status join_layer_norm(fuser *f, tsri_item *it)
{
    int which, n = 2, in[4];
    const bool product = takes_param(f->ir, it, TSRI_BINARY_MUL, &which);
    if (!product && !takes_param(f->ir, it, TSRI_BINARY_ADD, &which))
        return TSR_OK;
    tsri_item *norm = maker_of(f, it->in[which], TSRI_OP_LN_APPLY, 1);
    const tsr_dims param = f->ir->values[it->in[1 - which]].shape;
    if (!norm || norm->kernel.attrs.ln.has_beta || (product && norm->kernel.attrs.ln.has_gamma) ||
        param.ndim < norm->kernel.attrs.ln.axes ||
        (norm->nin == 3 && !tsr_dims_equal(f->ir->values[norm->in[2]].shape, param)))
        return TSR_OK;
    in[0] = norm->in[0];
    in[1] = norm->in[1];
    if (norm->nin == 3)
        in[n++] = norm->in[2];
    in[n++] = it->in[1 - which];
    TSRI_NEED(set_operands(f->ir, it, n, in));
    it->kernel.attrs = norm->kernel.attrs;
    it->kernel.attrs.ln.has_gamma |= product;
    it->kernel.attrs.ln.has_beta |= !product;
    join(it, TSRI_OP_LN_APPLY, n, norm, NULL);
    return TSR_OK;
}

/* product -> (ln_bwd_stats, ln_bwd_apply): it is taken inside both. */
static tsr_status join_layer_norm_backward(fuser *f, int i)
{
    tsri_item *it = &f->ir->items[i];
    int which;
    if (!takes_param(f->ir, it, TSRI_BINARY_MUL, &which) || f->readers[it->out[0]] != 2)
        return TSR_OK;
    tsri_item *stats = reader_of(f, i, it->out[0], TSRI_OP_LN_BWD_STATS, 2);
    tsri_item *apply = reader_of(f, i, it->out[0], TSRI_OP_LN_BWD_APPLY, 2);
    if (!stats || !apply || stats->kernel.attrs.ln.has_gamma || apply->kernel.attrs.ln.has_gamma)
        return TSR_OK;
    const int dy = it->in[which], gamma = it->in[1 - which];
    if (f->ir->values[gamma].shape.ndim < stats->kernel.attrs.ln.axes)
        return TSR_OK;
    TSRI_NEED(set_operands(f->ir, stats, 4, (int[]){stats->in[0], stats->in[1], gamma, dy}) &&
              set_operands(f->ir, apply, 5,
                           (int[]){apply->in[0], apply->in[1], gamma, dy, apply->in[3]}));
    stats->kernel.attrs.ln.has_gamma = apply->kernel.attrs.ln.has_gamma = true;
    it->kind = TSRI_ITEM_DEAD;
    return TSR_OK;
}

/* --- layer norm on GPUs ----------------------------------------------------------------------- */
static bool set_results(tsri_ir *ir, tsri_item *it, int n, const int *out)
{
    int *copy = tsri_pool_dup(&ir->program, out, (size_t)n * sizeof *out);
    if (!copy)
        return false;
    it->out = copy;
    it->nout = n;
    return true;
}

/* Whether an item strictly between two others reads a value. */
static bool is_read_between(const fuser *f, int first, int last, int value)
{
    for (int i = first + 1; i < last; i++) {
        const tsri_item *it = &f->ir->items[i];
        for (int j = 0; it->kind != TSRI_ITEM_DEAD && j < it->nin; j++)
            if (it->in[j] == value)
                return true;
    }
    return false;
}

/* ln_stats -> ln_apply: the latter makes the statistics of its rows, and so reads x once. The
 * gradient reads them, too. */
static tsr_status join_layer_norm_stats(fuser *f, int i)
{
    tsri_item *it = &f->ir->items[i];
    const int x = it->in[0], value = it->in[1], m = f->maker[value];
    tsri_item *stats = m < 0 ? NULL : &f->ir->items[m];
    if (!stats || !is_kernel(stats, TSRI_OP_LN_STATS) || stats->in[0] != x ||
        is_read_between(f, m, i, value))
        return TSR_OK;
    int in[3] = {x}, n = 1;
    for (int j = 2; j < it->nin; j++)
        in[n++] = it->in[j];
    TSRI_NEED(set_operands(f->ir, it, n, in) &&
              set_results(f->ir, it, 2, (int[]){it->out[0], value}));
    stats->kind = TSRI_ITEM_DEAD;
    f->maker[value] = i;
    f->readers[value]--;
    f->readers[x]--;
    return TSR_OK;
}

/* ln_bwd_stats, ln_param_grad -> ln_bwd_apply: it makes its rows' sums and the gradients of gamma
 * and beta, and so reads its operands once. */
static tsr_status join_layer_norm_sums(fuser *f, int i)
{
    tsri_ir *ir = f->ir;
    tsri_item *it = &ir->items[i];
    const int n = it->nin - 1;
    tsri_item *sums = maker_of(f, it->in[n], TSRI_OP_LN_BWD_STATS, 1);
    if (!sums || sums->nin != n || memcmp(sums->in, it->in, (size_t)n * sizeof *it->in) != 0)
        return TSR_OK;
    join(it, TSRI_OP_LN_BWD_APPLY, n, sums, NULL);
    for (int j = i + 1; j < ir->nitems; j++) {
        tsri_item *grads = &ir->items[j];
        if (!is_kernel(grads, TSRI_OP_LN_PARAM_GRAD) || grads->in[0] != it->in[0] ||
            grads->in[1] != it->in[1] || grads->in[2] != it->in[n - 1])
            continue;
        TSRI_NEED(set_results(ir, it, 3, (int[]){it->out[0], grads->out[0], grads->out[1]}));
        f->maker[grads->out[0]] = f->maker[grads->out[1]] = i;
        grads->kind = TSRI_ITEM_DEAD;
        break;
    }
    return TSR_OK;
}

/* Layer norm of rows that are whole: one pass forward and one back. */
static tsr_status join_whole_layer_norm(fuser *f, int i)
{
    const tsri_item *it = &f->ir->items[i];
    if (it->kind != TSRI_ITEM_KERNEL ||
        !tsri_placement_can(it->placement, TSRI_CAN_WHOLE_LAYER_NORM))
        return TSR_OK;
    return it->kernel.op == TSRI_OP_LN_APPLY       ? join_layer_norm_stats(f, i)
           : it->kernel.op == TSRI_OP_LN_BWD_APPLY ? join_layer_norm_sums(f, i)
                                                   : TSR_OK;
}

/* --- norms of gradients on GPUs --------------------------------------------------------------- */
/* Whether an item behind `first` and not behind `last` writes over a value. */
static bool is_written_over(const fuser *f, int first, int last, int value)
{
    for (int i = first + 1; i <= last; i++) {
        const tsri_item *it = &f->ir->items[i];
        for (int j = 0; it->kind == TSRI_ITEM_KERNEL && j < it->nout; j++) {
            const int over = tsri_op_over(it->kernel.op, j);
            if (over >= 0 && it->in[over] == value)
                return true;
        }
    }
    return false;
}

static bool is_squares(const tsri_item *it)
{
    return is_kernel(it, TSRI_OP_REDUCE) && it->kernel.attrs.reduce.op == TSRI_REDUCE_SQUARES;
}

/* x x -> sum -> f64: becomes a sum of squares, in the conversion's place. */
static tsr_status join_squares(fuser *f, int i)
{
    tsri_ir *ir = f->ir;
    tsri_item *it = &ir->items[i];
    if (ir->values[it->out[0]].dtype != TSR_F64 || ir->values[it->out[0]].shape.ndim > 0)
        return TSR_OK;
    tsri_item *sum = maker_of(f, it->in[0], TSRI_OP_REDUCE, 1);
    if (!sum || sum->kernel.attrs.reduce.op != TSR_REDUCE_SUM ||
        sum->kernel.attrs.reduce.scale != 1)
        return TSR_OK;
    tsri_item *square = maker_of(f, sum->in[0], TSRI_OP_BINARY, 1);
    if (!square || square->kernel.attrs.binary.fn != TSRI_BINARY_MUL ||
        square->in[0] != square->in[1])
        return TSR_OK;
    const int x = square->in[0], ndim = ir->values[x].shape.ndim;
    if (!tsri_is_float(ir->values[x].dtype) ||
        sum->kernel.attrs.reduce.axes != (uint32_t)((1ull << ndim) - 1) ||
        is_written_over(f, f->maker[sum->in[0]], i, x))
        return TSR_OK;
    TSRI_NEED(set_operands(ir, it, 1, &x));
    it->kernel.attrs = sum->kernel.attrs;
    it->kernel.attrs.reduce.op = TSRI_REDUCE_SQUARES;
    join(it, TSRI_OP_REDUCE, 1, sum, square);
    f->readers[x]--;
    return TSR_OK;
}

/* sum + a sum of squares: is added by the latter, in the addition's place. */
static tsr_status join_squares_sum(fuser *f, int i)
{
    tsri_ir *ir = f->ir;
    tsri_item *it = &ir->items[i];
    const int part = it->in[1], m = f->maker[part];
    tsri_item *squares = m < 0 ? NULL : &ir->items[m];
    if (it->kernel.attrs.binary.fn != TSRI_BINARY_ADD || !squares || !is_squares(squares) ||
        squares->nin != 1 || f->readers[part] != 1 || it->in[0] == part ||
        ir->values[it->in[0]].dtype != TSR_F64 || ir->values[it->in[0]].shape.ndim > 0 ||
        is_written_over(f, m, i, squares->in[0]))
        return TSR_OK;
    TSRI_NEED(set_operands(ir, it, 2, (int[]){squares->in[0], it->in[0]}));
    it->kernel.attrs = squares->kernel.attrs;
    join(it, TSRI_OP_REDUCE, 2, squares, NULL);
    return TSR_OK;
}

/* The norm of many gradients: one op for each, which lowering joins, where there were four. */
static tsr_status join_norms(fuser *f)
{
    scan(f);
    for (int i = 0; i < f->ir->nitems; i++) {
        const tsri_item *it = &f->ir->items[i];
        if (it->kind != TSRI_ITEM_KERNEL ||
            !tsri_placement_can(it->placement, TSRI_CAN_JOIN_LAUNCHES))
            continue;
        if (it->kernel.op == TSRI_OP_CAST)
            TSRI_TRY(join_squares(f, i));
        else if (it->kernel.op == TSRI_OP_BINARY)
            TSRI_TRY(join_squares_sum(f, i));
    }
    return TSR_OK;
}

/* --- ReLU behind max pooling ------------------------------------------------------------------ */
/* ReLU is monotonic, and keeps a NaN: the largest of a window is the same before and behind it.
 * Where that is not above 0, another place of the window may be said to have it, but no gradient
 * goes there: ReLU's takes it, before it is spread as it took it behind. */

/* Returns whether an item is a ReLU, or its gradient, on a device with kernels by rows. */
static bool is_relu(const tsri_item *it, tsri_op_kind op)
{
    return is_kernel(it, op) && act_of(it) == TSRI_ACT_RELU && !it->kernel.updates &&
           tsri_placement_can(it->placement, TSRI_CAN_ROW_KERNELS);
}

/* Adds a value like `like`, which no reader is known of. */
static int add_like(tsri_ir *ir, int like)
{
    tsri_value v = ir->values[like];
    v.storage = TSRI_STORAGE_ARENA;
    v.said = false;
    v.alternatives = NULL;
    return tsri_ir_add_value(ir, &v);
}

static void swap_items(tsri_item *a, tsri_item *b)
{
    const tsri_item first = *a;
    *a = *b;
    *b = first;
}

/* Returns the item that reads a value, if it is the one behind `pool` that does; else NULL. */
static tsri_item *other_reader(fuser *f, const tsri_item *pool, int value)
{
    for (int i = (int)(pool - f->ir->items) + 1; i < f->ir->nitems; i++)
        for (int j = 0; j < f->ir->items[i].nin && f->ir->items[i].kind != TSRI_ITEM_DEAD; j++)
            if (f->ir->items[i].in[j] == value)
                return &f->ir->items[i];
    return NULL;
}

/* Returns what spreads the gradient that ReLU's gradient `grad` alone reads, by the places of
 * `pool`; NULL: `grad` can't go before it. */
static tsri_item *spreads_for(fuser *f, const tsri_item *pool, const tsri_item *grad)
{
    const int m = is_relu(grad, TSRI_OP_UNARY_GRAD) ? f->maker[grad->in[1]] : -1;
    tsri_item *dx = m < 0 ? NULL : &f->ir->items[m];
    return dx && grad->in[0] == pool->in[0] && f->readers[grad->in[1]] == 1 &&
                   is_kernel(dx, TSRI_OP_MAX_POOL_DX) && dx->in[0] == pool->out[1] &&
                   f->readers[pool->out[1]] == 1
               ? dx
               : NULL;
}

/* relu -> max_pool, max_pool_dx -> relu': the other way around. */
static tsr_status swap_pool(fuser *f, tsri_item *pool)
{
    tsri_ir *ir = f->ir;
    const int y = pool->in[0], m = f->maker[y];
    tsri_item *act = m < 0 ? NULL : &ir->items[m], *grad = NULL, *dx = NULL;
    if (!act || !is_relu(act, TSRI_OP_UNARY) || f->readers[y] > 2)
        return TSR_OK;
    if (f->readers[y] == 2) {
        grad = other_reader(f, pool, y);
        dx = grad ? spreads_for(f, pool, grad) : NULL;
    }
    /* The gradient of ReLU's own result goes by its places. */
    if (!dx && (f->readers[y] == 2 || f->readers[pool->out[1]] > 0))
        return TSR_OK;
    const int z = pool->out[0], largest = add_like(ir, z);
    const int slope = dx ? add_like(ir, dx->in[1]) : 0;
    TSRI_NEED(largest >= 0 && slope >= 0);
    pool->in[0] = act->in[0];
    act->in[0] = pool->out[0] = largest;
    act->out[0] = z;
    act->kernel.is_moved = true;
    swap_items(act, pool);
    if (!dx)
        return TSR_OK;
    const int dz = dx->in[1];
    dx->in[1] = slope;
    dx->out[0] = grad->out[0];
    grad->in[0] = z;
    f->readers[z]++;
    grad->in[1] = dz;
    grad->out[0] = slope;
    grad->kernel.is_moved = true;
    swap_items(dx, grad);
    return TSR_OK;
}

static tsr_status swap_pools(fuser *f)
{
    const int n = f->ir->nitems;
    scan(f);
    for (int i = 0; i < n; i++)
        if (is_kernel(&f->ir->items[i], TSRI_OP_MAX_POOL))
            TSRI_TRY(swap_pool(f, &f->ir->items[i]));
    return TSR_OK;
}

tsr_status tsri_plan_fuse(tsri_ir *ir)
{
    fuser f = {.ir = ir};
    f.maker = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *f.maker);
    f.readers = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *f.readers);
    TSRI_NEED(f.maker && f.readers);
    scan(&f);
    if (tsri_plan_fuses(ir, TSR_FUSE_ACTIVATIONS)) {
        fuse_forward(&f);
        TSRI_TRY(fuse_backward(&f));
        for (int i = 0; i < ir->nitems; i++) {
            TSRI_TRY(join_layer_norm_backward(&f, i));
            TSRI_TRY(join_layer_norm(&f, &ir->items[i]));
            TSRI_TRY(join_whole_layer_norm(&f, i));
        }
    }
    for (int i = 0; i < ir->nitems && tsri_plan_fuses(ir, TSR_FUSE_SOFTMAX); i++) {
        join_softmax(&f, &ir->items[i]);
        TSRI_TRY(join_cross_entropy(&f, &ir->items[i]));
    }
    if (tsri_plan_fuses(ir, TSR_FUSE_UPDATES))
        TSRI_TRY(join_norms(&f));
    return tsri_plan_fuses(ir, TSR_FUSE_POOLS) ? swap_pools(&f) : TSR_OK;
}
