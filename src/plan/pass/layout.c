/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical layouts. Logical shapes stay NCHW; a 4-D value may lie channels last in memory, which
 * convolution and pooling want. Each op says what it prefers (tsri_op_def);
 * where a value lies otherwise, a copy is put in front, once per value and layout. Images that are
 * (n,h,w,c) and are permuted to (n,c,h,w) lie so already. So do heads of attention, (b,s,h,d) that
 * are permuted to (b,h,s,d) or back, where kernels take them by head.
 */
#include <string.h>

#include "src/ir/flow.h"
#include "src/plan/pass/pass.h"

typedef struct layouter {
    tsri_ir *ir;
    tsri_item *old;
    int nold;
    int *other; /* per value: the same in the other layout, -1 */
    int cother;
    tsri_flow flow;
    bool *by_head; /* per value of the old items: whether it is to lie by head; NULL: none is */
} layouter;

/* Layouts differ in memory only if there is a plane and more than one channel. */
static bool has_layout(const tsri_value *v)
{
    return v->shape.ndim == 4 && v->shape.d[1] != 1 && (v->shape.d[2] != 1 || v->shape.d[3] != 1);
}

static tsr_status grow(layouter *l)
{
    while (l->cother < l->ir->nvalues) {
        int c = l->cother, more = l->cother;
        TSRI_NEED(TSRI_PUSH(&l->ir->scratch, l->other, c, more));
        if (more == l->cother)
            return TSR_ERR_NO_MEMORY;
        for (int i = l->cother; i < more; i++)
            l->other[i] = -1;
        l->cother = more;
    }
    return TSR_OK;
}

int tsri_plan_add_copy(tsri_ir *ir, const tsri_item *for_item, int value, bool nhwc)
{
    tsri_value v = ir->values[value];
    v.nhwc = nhwc;
    v.storage = TSRI_STORAGE_ARENA;
    v.variable = NULL;
    v.source = v.said = false;
    v.alternatives = NULL;
    int copy = tsri_ir_add_value(ir, &v);
    const tsri_item item = {.kind = TSRI_ITEM_KERNEL,
                            .nin = 1,
                            .nout = 1,
                            .placement = v.placement,
                            .name = v.name,
                            .loc = for_item->loc,
                            .backward = for_item->backward,
                            .turn = for_item->turn,
                            .kernel.op = TSRI_OP_COPY};
    return copy >= 0 && tsri_ir_add_item(ir, &item, &value, &copy) ? copy : -1;
}

/* The value in the wanted layout: itself, an earlier copy, or a new one. */
static tsr_status in_layout(layouter *l, const tsri_item *for_item, int value, bool nhwc, int *out)
{
    tsri_ir *ir = l->ir;
    *out = value;
    if (!has_layout(&ir->values[value]) || ir->values[value].nhwc == nhwc)
        return TSR_OK;
    TSRI_TRY(grow(l));
    if (l->other[value] >= 0) {
        *out = l->other[value];
        return TSR_OK;
    }
    int copy = tsri_plan_add_copy(ir, for_item, value, nhwc);
    if (copy < 0)
        return TSR_ERR_NO_MEMORY;
    TSRI_TRY(grow(l));
    l->other[value] = copy;
    *out = copy;
    return TSR_OK;
}

/* Whether operand or result `arg` stays row-major, whatever the op prefers. */
static bool is_weight(const tsri_item *it, bool is_out, int arg)
{
    if (it->kind != TSRI_ITEM_KERNEL && it->kind != TSRI_ITEM_VIEW)
        return false;
    const tsri_op_def *def = tsri_op_def_of(it->kernel.op);
    return (is_out ? def->rows_out : def->rows_in) >> arg & 1;
}

/* Element-wise: follow the operands; channels last if one of them is. */
static bool any_nhwc(const tsri_ir *ir, const tsri_item *it)
{
    bool nhwc = false;
    for (int i = 0; i < it->nin; i++)
        nhwc |= has_layout(&ir->values[it->in[i]]) && ir->values[it->in[i]].nhwc;
    return nhwc;
}

/* Returns an item's preference: sums by channel, and means of planes, are the same from either
 * layout. */
static tsri_layout_taste taste_of(const tsri_ir *ir, const tsri_item *it)
{
    enum { CHANNELS = 1 << 1, IMAGES = (1 << 4) - 1 };
    if (it->kind != TSRI_ITEM_KERNEL || it->kernel.op == TSRI_OP_COPY)
        return TSRI_LAYOUT_ROW;
    const tsri_layout_taste taste = tsri_op_def_of(it->kernel.op)->layout;
    if (taste == TSRI_LAYOUT_PLANES) {
        const tsr_dims y = ir->values[it->out[0]].shape;
        return y.d[2] == 1 && y.d[3] == 1 ? TSRI_LAYOUT_ANY : TSRI_LAYOUT_NHWC;
    }
    if (taste != TSRI_LAYOUT_REDUCE)
        return taste;
    const bool images = ir->values[it->in[0]].shape.ndim == 4;
    return images && (it->kernel.attrs.reduce.axes | CHANNELS) == IMAGES ? TSRI_LAYOUT_ANY
                                                                         : TSRI_LAYOUT_ROW;
}

/* Returns whether an item says of the same bytes that they are channels last, or no longer are:
 * images (n,h,w,c) that become (n,c,h,w), or the way back. */
static bool is_only_said(const tsri_ir *ir, const tsri_item *it)
{
    if (it->kind != TSRI_ITEM_KERNEL || it->kernel.op != TSRI_OP_PERMUTE)
        return false;
    const tsri_value *x = &ir->values[it->in[0]], *y = &ir->values[it->out[0]];
    const int32_t *perm = it->kernel.attrs.permute.perm;
    if (x->shape.ndim != 4 || perm[0] != 0 || y->storage != TSRI_STORAGE_ARENA)
        return false;
    /* A permuted variable is a copy, as the variable may get another value. */
    if (ir->values[tsri_ir_root(ir, it->in[0])].storage == TSRI_STORAGE_VARIABLE)
        return false;
    return perm[1] == 3 ? !x->nhwc && perm[2] == 1
                        : perm[3] == 1 && perm[1] == 2 && (x->nhwc || !has_layout(x));
}

/* --- by head ---------------------------------------------------------------------------------- */
static bool swaps_heads(const tsri_item *it)
{
    static const int32_t swap[4] = {0, 2, 1, 3};
    return it->kind == TSRI_ITEM_KERNEL && it->kernel.op == TSRI_OP_PERMUTE &&
           !memcmp(it->kernel.attrs.permute.perm, swap, sizeof swap);
}

/* Returns the operands, or results, of an item that may lie by head. */
static uint32_t bits_by_head(const tsri_ir *ir, const tsri_item *it, bool results)
{
    if (it->kind != TSRI_ITEM_KERNEL || !tsri_placement_can(it->placement, TSRI_CAN_LIE_BY_HEAD))
        return 0;
    const tsri_op_def *def = tsri_op_def_of(it->kernel.op);
    return def->by_head ? def->by_head(&it->kernel.attrs, ir->values[it->in[0]].dtype, results) : 0;
}

/* Whether an item takes a value by head wherever it reads it. */
static bool takes_by_head(const tsri_ir *ir, const tsri_item *it, int value)
{
    const uint32_t bits = bits_by_head(ir, it, false);
    for (int i = 0; i < it->nin; i++)
        if (it->in[i] == value && !(bits >> i & 1))
            return false;
    return true;
}

/* Whether a permutation's result can be its operand's bytes. */
static bool may_show(const tsri_ir *ir, const tsri_item *it)
{
    return ir->values[it->in[0]].shape.ndim == 4 &&
           ir->values[it->out[0]].storage == TSRI_STORAGE_ARENA;
}

/* Whether a value is made in that order and all its readers take it so, or permute it back. */
static bool lies_by_head(const layouter *l, int value)
{
    const tsri_flow *f = &l->flow;
    const int maker = f->maker[value];
    if (maker < 0 || l->ir->values[value].storage != TSRI_STORAGE_ARENA)
        return false;
    const tsri_item *by = &l->old[maker];
    bool is = swaps_heads(by) && may_show(l->ir, by);
    for (int i = 0; i < by->nout && !is; i++)
        is = by->out[i] == value && bits_by_head(l->ir, by, true) >> i & 1;
    for (int i = f->first[value]; i < f->first[value + 1] && is; i++) {
        const tsri_item *reader = &l->old[f->reader[i]];
        is = swaps_heads(reader) ? may_show(l->ir, reader) : takes_by_head(l->ir, reader, value);
    }
    return is;
}

static tsr_status find_by_head(layouter *l)
{
    const int n = l->ir->nvalues;
    bool any = false;
    for (int i = 0; i < l->nold && !any; i++)
        any = bits_by_head(l->ir, &l->old[i], false) != 0;
    if (!any)
        return TSR_OK;
    TSRI_TRY(tsri_flow_find(l->ir, &l->ir->scratch, &l->flow));
    l->by_head = tsri_pool_alloc(&l->ir->scratch, (size_t)n * sizeof *l->by_head);
    TSRI_NEED(l->by_head);
    for (int i = 0; i < n; i++)
        l->by_head[i] = lies_by_head(l, i);
    return TSR_OK;
}

/* Whether a permutation says of the same bytes that they lie by head, or no longer do. A permuted
 * variable is a copy, as the variable may get another value. */
static bool is_said_by_head(const layouter *l, const tsri_item *it)
{
    const tsri_value *v = l->ir->values;
    if (!l->by_head || !swaps_heads(it) || !may_show(l->ir, it) || v[it->in[0]].nhwc)
        return false;
    return v[it->in[0]].by_head ||
           (l->by_head[it->out[0]] &&
            v[tsri_ir_root(l->ir, it->in[0])].storage != TSRI_STORAGE_VARIABLE);
}

/* --- placing ---------------------------------------------------------------------------------- */
/* Makes a permutation a view. */
static tsr_status place_view(layouter *l, tsri_item it, bool nhwc, bool by_head)
{
    tsri_value *y = &l->ir->values[it.out[0]];
    it.kind = TSRI_ITEM_VIEW;
    y->storage = TSRI_STORAGE_ALIAS;
    y->alias = it.in[0];
    y->nhwc = nhwc;
    y->by_head = by_head;
    return tsri_ir_add_item(l->ir, &it, it.in, it.out) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status place_item(layouter *l, tsri_item it)
{
    tsri_ir *ir = l->ir;
    if (is_said_by_head(l, &it))
        return place_view(l, it, false, !ir->values[it.in[0]].by_head);
    if (is_only_said(ir, &it))
        return place_view(
            l, it, it.kernel.attrs.permute.perm[1] == 3 && has_layout(&ir->values[it.out[0]]),
            false);
    const tsri_layout_taste taste = taste_of(ir, &it);
    bool is_kernel = it.kind == TSRI_ITEM_KERNEL;
    /* A view of another shape needs row-major order, and so do ranks whose programs may differ;
     * relabelling and boxing keep what is there. */
    bool same_shape = it.kind == TSRI_ITEM_VIEW &&
                      tsr_dims_equal(ir->values[it.in[0]].shape, ir->values[it.out[0]].shape);
    bool keeps = (tsri_item_converts(&it) && !it.box.ranks) || same_shape;
    bool nhwc = taste == TSRI_LAYOUT_NHWC || (taste == TSRI_LAYOUT_ANY && any_nhwc(ir, &it));
    if (is_kernel && it.kernel.updates && !is_weight(&it, true, 0))
        nhwc = false; /* variables are row-major */
    for (int i = 0; i < it.nin && !keeps; i++)
        TSRI_TRY(in_layout(l, &it, it.in[i], nhwc && !is_weight(&it, false, i), &it.in[i]));
    for (int i = 0; i < it.nout; i++) {
        tsri_value *v = &ir->values[it.out[i]];
        v->nhwc =
            has_layout(v) && (keeps ? ir->values[it.in[i]].nhwc : nhwc && !is_weight(&it, true, i));
        v->by_head = l->by_head && l->by_head[it.out[i]] && bits_by_head(ir, &it, true) >> i & 1;
    }
    if (tsri_item_shows(&it))
        ir->values[it.out[0]].alias = it.in[0];
    for (int i = 0; i < it.nout && is_kernel && tsri_op_over(it.kernel.op, i) >= 0; i++)
        ir->values[it.out[i]].alias = it.in[tsri_op_over(it.kernel.op, i)];
    return tsri_ir_add_item(ir, &it, it.in, it.out) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

tsr_status tsri_plan_layout(tsri_ir *ir)
{
    layouter l = {.ir = ir, .old = ir->items, .nold = ir->nitems};
    TSRI_TRY(find_by_head(&l));
    TSRI_TRY(tsri_ir_new_items(ir, l.nold));
    TSRI_TRY(grow(&l));
    for (int i = 0; i < l.nold; i++)
        if (l.old[i].kind != TSRI_ITEM_DEAD)
            TSRI_TRY(place_item(&l, l.old[i]));
    return TSR_OK;
}
