/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains, on CPUs: a product (or several of the same rows) with what can be done to those rows in
 * the same pass becomes one kernel. Before a convolution that is what normalises and activates its
 * operand; behind it, the sums that the next batch norm takes of its result; backward, batch norm's
 * gradient, both products of the convolution's gradient, and the sums of the gradient before. The
 * tensors between two global sums are then read once and written once. Other convolutions go with
 * what their kernels can do to their result: a folded batch norm, an addition, an activation.
 *
 * Items stay items, one behind another; lowering makes one step of them. A cheap result that
 * several products read (a normalised activation: forward, and backward for the weights) is
 * computed again for each of them, rather than stored.
 */
#include <string.h>

#include "src/plan/pass/chainer.h"
#include "src/plan/pass/pass.h"

typedef tsri_chainer chainer;

static const tsri_op_def *def_of(const tsri_item *it)
{
    return tsri_op_def_of(it->kernel.op);
}

/* Rows of a matrix, or of images that are channels last. */
static bool has_rows(const tsri_value *v)
{
    const bool floats = v->dtype == TSR_F32 || v->dtype == TSR_F64 || v->dtype == TSR_BF16;
    const bool one_pixel = v->shape.ndim == 4 && v->shape.d[2] == 1 && v->shape.d[3] == 1;
    return floats && !v->is_loss && v->shape.ndim >= 2 &&
           (v->shape.ndim != 4 || v->nhwc || one_pixel || v->shape.d[1] == 1);
}

tsri_chain_role tsri_chain_role_of(const tsri_ir *ir, const tsri_item *it)
{
    if (it->kind != TSRI_ITEM_KERNEL || it->kernel.updates ||
        !tsri_placement_can(it->placement, TSRI_CAN_ROW_KERNELS))
        return TSRI_CHAIN_NONE;
    const tsri_op_def *def = def_of(it);
    if (def->chain == TSRI_CHAIN_NONE || (def->may_chain && !def->may_chain(&it->kernel.attrs)))
        return TSRI_CHAIN_NONE;
    for (int i = 0; i < it->nin; i++) {
        const tsri_value *v = &ir->values[it->in[i]];
        if (!(def->walks >> i & 1))
            continue;
        if (!has_rows(v) || (def->chain == TSRI_CHAIN_MAP &&
                             !tsr_dims_equal(v->shape, ir->values[it->out[0]].shape)))
            return TSRI_CHAIN_NONE;
    }
    const bool walked = def->chain == TSRI_CHAIN_MAP || def->chain == TSRI_CHAIN_PRODUCT;
    return walked && !has_rows(&ir->values[it->out[0]]) ? TSRI_CHAIN_NONE : def->chain;
}

static bool is_product(tsri_chain_role role)
{
    return role == TSRI_CHAIN_PRODUCT || role == TSRI_CHAIN_OUTER;
}

/* Whether all that reads a value are products that walk it. */
static bool is_for_products(const chainer *c, int value)
{
    for (int r = c->flow.first[value]; r < c->flow.first[value + 1]; r++) {
        const tsri_item *it = &c->ir->items[c->flow.reader[r]];
        if (!is_product(tsri_chain_role_of(c->ir, it)))
            return false;
        for (int j = 0; j < it->nin; j++)
            if (it->in[j] == value && !(def_of(it)->walks >> j & 1))
                return false;
    }
    return true;
}

/* --- computing again -------------------------------------------------------------------------- */
/* Gives reader r of a value that cheap item m makes its own one, made right before it. */
static tsr_status compute_again(tsri_ir *ir, const tsri_item *m, tsri_item *reader)
{
    tsri_item again = *m;
    const int value = m->out[0];
    tsri_value v = ir->values[value];
    v.said = false;
    v.alternatives = NULL;
    int copy = tsri_ir_add_value(ir, &v);
    if (copy < 0)
        return TSR_ERR_NO_MEMORY;
    again.kernel.again = value + 1;
    again.backward = reader->backward;
    again.turn = reader->turn;
    again.cost_s = 0; /* it reads and writes what its reader is said to */
    TSRI_NEED(tsri_ir_add_item(ir, &again, m->in, &copy));
    for (int j = 0; j < reader->nin; j++)
        if (reader->in[j] == value)
            reader->in[j] = copy;
    return TSR_OK;
}

/* Gives every reader of a cheap result but the first one a result of its own. */
static tsr_status repeat_cheap(chainer *c)
{
    tsri_ir *ir = c->ir;
    const tsri_item *old = ir->items;
    const int nold = ir->nitems, nvalues = ir->nvalues;
    bool *again = tsri_pool_alloc(&ir->scratch, (size_t)nvalues + 1);
    TSRI_NEED(again);
    bool any = false;
    for (int v = 0; v < nvalues; v++) {
        const int m = c->flow.maker[v], readers = c->flow.first[v + 1] - c->flow.first[v];
        again[v] = m >= 0 && readers > 1 && tsri_chain_role_of(ir, &old[m]) == TSRI_CHAIN_MAP &&
                   def_of(&old[m])->is_cheap && is_for_products(c, v);
        any |= again[v];
    }
    if (!any)
        return TSR_OK;
    TSRI_TRY(tsri_ir_new_items(ir, nold));
    for (int i = 0; i < nold; i++) {
        tsri_item it = old[i];
        for (int j = 0; j < it.nin && it.kind == TSRI_ITEM_KERNEL; j++) {
            const int v = it.in[j];
            if (v < nvalues && again[v] && c->flow.reader[c->flow.first[v]] != i)
                TSRI_TRY(compute_again(ir, &old[c->flow.maker[v]], &it));
        }
        TSRI_NEED(tsri_ir_add_item(ir, &it, it.in, it.out));
    }
    return tsri_flow_find(ir, &ir->scratch, &c->flow);
}

/* --- growing a chain -------------------------------------------------------------------------- */
/* Whether an item may be done where the chain is: what it reads is made before or by a member, and
 * what reads it comes behind or is one. */
static bool fits(const chainer *c, int item)
{
    const tsri_item *it = &c->ir->items[item];
    for (int j = 0; j < it->nin; j++) {
        const int m = c->flow.maker[it->in[j]];
        if (m >= 0 && !tsri_chainer_is_member(c, m) && c->position[m] >= c->at)
            return false;
        /* Members hand on rows alone. */
        if (m >= 0 && tsri_chainer_is_member(c, m) && !(def_of(it)->walks >> j & 1))
            return false;
    }
    for (int j = 0; j < it->nout; j++)
        for (int r = c->flow.first[it->out[j]]; r < c->flow.first[it->out[j] + 1]; r++) {
            const int reader = c->flow.reader[r];
            if (!tsri_chainer_is_member(c, reader) && c->position[reader] <= c->at)
                return false;
        }
    return true;
}

static bool may_join(const chainer *c, int item)
{
    return c->nmembers < TSRI_CHAIN_MAX && !c->chain[item] && !tsri_chainer_is_member(c, item) &&
           c->ir->items[item].placement == c->ir->items[c->member[0]].placement &&
           c->ir->items[item].turn == c->ir->items[c->member[0]].turn;
}

/* Joins an item, and before it what makes rows for it behind the chain's place. */
static bool join(chainer *c, int item)
{
    const tsri_item *it = &c->ir->items[item];
    const int before = c->nmembers;
    if (!may_join(c, item))
        return false;
    for (int j = 0; j < it->nin; j++) {
        const int m = c->flow.maker[it->in[j]];
        if (m >= 0 && def_of(it)->walks >> j & 1 && c->position[m] >= c->at && may_join(c, m) &&
            tsri_chain_role_of(c->ir, &c->ir->items[m]) == TSRI_CHAIN_MAP && fits(c, m))
            c->member[c->nmembers++] = m;
    }
    if (c->nmembers < TSRI_CHAIN_MAX && fits(c, item)) {
        c->member[c->nmembers++] = item;
        return true;
    }
    c->nmembers = before;
    return false;
}

/* Joins what makes the rows that member m reads, and what reads the rows that it reads or makes. */
static bool join_neighbours(chainer *c, int m)
{
    const tsri_ir *ir = c->ir;
    const tsri_item *it = &ir->items[m];
    const tsri_chain_role own = tsri_chain_role_of(ir, it);
    bool any = false;
    for (int j = 0; j < it->nin; j++) {
        const int v = it->in[j], maker = c->flow.maker[v];
        if (!(def_of(it)->walks >> j & 1))
            continue;
        if (maker >= 0 && tsri_chain_role_of(ir, &ir->items[maker]) == TSRI_CHAIN_MAP)
            any |= join(c, maker);
        for (int r = c->flow.first[v]; r < c->flow.first[v + 1]; r++)
            if (is_product(own) &&
                is_product(tsri_chain_role_of(ir, &ir->items[c->flow.reader[r]])))
                any |= join(c, c->flow.reader[r]);
    }
    if (own != TSRI_CHAIN_MAP && own != TSRI_CHAIN_PRODUCT)
        return any;
    const int v = it->out[0];
    for (int r = c->flow.first[v]; r < c->flow.first[v + 1]; r++) {
        const int reader = c->flow.reader[r];
        const tsri_chain_role role = tsri_chain_role_of(ir, &ir->items[reader]);
        if (role == TSRI_CHAIN_SUMS || role == TSRI_CHAIN_MAP)
            any |= join(c, reader);
    }
    return any;
}

static void make_chain(chainer *c, int product)
{
    c->member[0] = product;
    c->nmembers = 1;
    c->at = c->position[product];
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < c->nmembers; i++)
            any |= join_neighbours(c, c->member[i]);
    }
    while (!tsri_chainer_is_small(c) && c->nmembers > 1)
        c->nmembers--; /* the last ones to join are no others' means */
    if (c->nmembers > 1)
        tsri_chainer_finish(c);
}

/* --- convolutions and their ends -------------------------------------------------------------- */
/* Whether a kernel makes an item's f32 result that may do more to it, though not by pieces. */
static bool takes_end(const chainer *c, const tsri_item *it)
{
    return it->kind == TSRI_ITEM_KERNEL && it->kernel.op == TSRI_OP_CONV2D &&
           tsri_placement_can(it->placement, TSRI_CAN_ROW_KERNELS) &&
           c->ir->values[it->out[0]].dtype == TSR_F32 && has_rows(&c->ir->values[it->out[0]]);
}

static bool may_end(const tsri_item *it)
{
    const tsri_attrs *a = &it->kernel.attrs;
    switch (it->kernel.op) {
    case TSRI_OP_SCALE_SHIFT:
        return true;
    case TSRI_OP_BINARY:
        return a->binary.fn == TSRI_BINARY_ADD;
    case TSRI_OP_UNARY:
        return a->unary.fn == TSRI_UNARY_RELU || a->unary.fn == TSRI_UNARY_RELU6;
    default:
        return false;
    }
}

/* Makes a chain of a convolution and what one item behind the other does to its result. */
static void make_ended(chainer *c, int item)
{
    const tsri_ir *ir = c->ir;
    c->member[0] = item;
    c->nmembers = 1;
    c->at = c->position[item];
    for (int last = item;; c->nmembers++) {
        const int v = ir->items[last].out[0], r = c->flow.first[v];
        if (c->flow.first[v + 1] != r + 1)
            break;
        last = c->flow.reader[r];
        if (tsri_chain_role_of(ir, &ir->items[last]) != TSRI_CHAIN_MAP ||
            !may_end(&ir->items[last]) || !may_join(c, last) || !fits(c, last))
            break;
        c->member[c->nmembers] = last;
    }
    if (c->nmembers > 1 && tsri_chainer_is_small(c))
        tsri_chainer_finish(c);
}

/* --- the order -------------------------------------------------------------------------------- */
/* Whether an item makes vectors of variables that the program does not write. */
static bool is_constant(const tsri_ir *ir, const tsri_item *it)
{
    bool is = it->kind == TSRI_ITEM_KERNEL && !it->kernel.updates && it->nin > 0;
    for (int j = 0; j < it->nin && is; j++) {
        const tsri_value *v = &ir->values[it->in[j]]; /* a view of one is made by another item */
        is = v->storage == TSRI_STORAGE_VARIABLE && v->source && v->fixed;
    }
    for (int j = 0; j < it->nout && is; j++)
        is = ir->values[it->out[j]].shape.ndim == 1;
    return is;
}

/* Gives each item a position that is odd. Constant items, as a folded batch norm, go before all
 * others of their turn, so that what reads them can join what comes before it. */
static void place_items(chainer *c)
{
    const tsri_ir *ir = c->ir;
    for (int i = 0, first = 0; i < ir->nitems; i++) {
        first = ir->items[i].turn == ir->items[first].turn ? first : i;
        c->position[i] =
            2 * (is_constant(ir, &ir->items[i]) ? first : i) + !is_constant(ir, &ir->items[i]);
    }
}

/* Lists the items in their new order: members in the plan's, one behind another in the place of the
 * first product. */
static tsr_status list_order(chainer *c, int *order)
{
    tsri_ir *ir = c->ir;
    const size_t n = (size_t)ir->nitems + 1;
    int *head = tsri_pool_alloc(&ir->scratch, 3 * n * sizeof *head), *next = head + 2 * n;
    int count = 0;
    TSRI_NEED(head);
    memset(head, -1, 2 * n * sizeof *head);
    for (int i = ir->nitems - 1; i >= 0; i--) {
        next[i] = head[c->position[i]];
        head[c->position[i]] = i;
    }
    for (int at = 0; at < 2 * ir->nitems; at++)
        for (int i = head[at]; i >= 0; i = next[i])
            order[count++] = i;
    return TSR_OK;
}

/* Brings the items into that order where they lie, circle by circle of places: plans are large, and
 * what is allocated here is kept until the plan is made. */
static tsr_status line_up(chainer *c)
{
    tsri_item *items = c->ir->items;
    int *order = tsri_pool_alloc(&c->ir->scratch, (size_t)c->ir->nitems * sizeof *order + 1);
    TSRI_NEED(order);
    TSRI_TRY(list_order(c, order));
    for (int i = 0; i < c->ir->nitems; i++) {
        items[i].place = i + 1;
        if (items[i].kind == TSRI_ITEM_KERNEL)
            items[i].kernel.chain = c->chain[i];
    }
    for (int i = 0; i < c->ir->nitems; i++) {
        const tsri_item first = items[i];
        int at = i;
        for (int from; order[at] != i; at = from) {
            from = order[at];
            items[at] = items[from];
            order[at] = at;
        }
        items[at] = first;
        order[at] = at;
    }
    return TSR_OK;
}

tsr_status tsri_plan_chain(tsri_ir *ir)
{
    chainer c = {.ir = ir};
    const bool chains = tsri_plan_fuses(ir, TSR_FUSE_CHAINS);
    const bool rows = tsri_plan_fuses(ir, TSR_FUSE_ROWS);
    if (!chains && !rows)
        return TSR_OK;
    TSRI_TRY(tsri_flow_find(ir, &ir->scratch, &c.flow));
    if (chains)
        TSRI_TRY(repeat_cheap(&c));
    const size_t n = (size_t)ir->nitems + 1;
    c.chain = tsri_pool_alloc(&ir->scratch, n * sizeof *c.chain);
    c.position = tsri_pool_alloc(&ir->scratch, n * sizeof *c.position);
    TSRI_NEED(c.chain && c.position);
    place_items(&c);
    for (int i = 0; i < ir->nitems && chains; i++)
        if (!c.chain[i] && is_product(tsri_chain_role_of(ir, &ir->items[i])))
            make_chain(&c, i);
        else if (!c.chain[i] && takes_end(&c, &ir->items[i]))
            make_ended(&c, i);
    if (rows)
        tsri_chainer_rows(&c);
    return line_up(&c);
}

/* --- once the order is known ------------------------------------------------------------------ */
int tsri_chain_begin(const tsri_ir *ir, int item)
{
    const int end = tsri_chain_end(ir, item);
    while (item > 0 && tsri_chain_end(ir, item - 1) == end)
        item--;
    return item;
}

int tsri_chain_end(const tsri_ir *ir, int item)
{
    const int chain = ir->items[item].kind == TSRI_ITEM_KERNEL ? ir->items[item].kernel.chain : 0;
    int end = item + 1;
    while (chain && end < ir->nitems && ir->items[end].kind == TSRI_ITEM_KERNEL &&
           ir->items[end].kernel.chain == chain)
        end++;
    return end;
}

/* Whether items [begin, end) alone read and write a value that one of them makes. */
static bool is_inner(const tsri_ir *ir, const tsri_flow *flow, int value, int begin, int end)
{
    if (ir->values[value].storage != TSRI_STORAGE_ARENA ||
        flow->first[value] == flow->first[value + 1])
        return false;
    for (int r = flow->first[value]; r < flow->first[value + 1]; r++)
        if (flow->reader[r] < begin || flow->reader[r] >= end)
            return false;
    return true;
}

tsr_status tsri_plan_settle_chains(tsri_ir *ir)
{
    tsri_flow flow;
    int *length = tsri_pool_alloc(&ir->scratch, ((size_t)ir->nitems + 1) * sizeof *length);
    TSRI_NEED(length);
    TSRI_TRY(tsri_flow_find(ir, &ir->scratch, &flow));
    for (int i = 0; i < ir->nitems; i++)
        if (ir->items[i].kind == TSRI_ITEM_KERNEL)
            length[ir->items[i].kernel.chain]++;
    for (int i = 0, end; i < ir->nitems; i = end) {
        end = tsri_chain_end(ir, i);
        if (ir->items[i].kind != TSRI_ITEM_KERNEL || !ir->items[i].kernel.chain)
            continue;
        /* Ordering updates may have put something between. */
        const bool whole = end - i == length[ir->items[i].kernel.chain] && end - i > 1;
        for (int m = i; m < end; m++) {
            if (!whole)
                ir->items[m].kernel.chain = 0;
            for (int j = 0; whole && j < ir->items[m].nout; j++)
                if (is_inner(ir, &flow, ir->items[m].out[j], i, end))
                    ir->values[ir->items[m].out[j]].storage = TSRI_STORAGE_INNER;
        }
    }
    return TSR_OK;
}
