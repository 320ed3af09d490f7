/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a chain whose work other members do: products of sums, and what is done to the results
 * of convolutions and linear layers. */
#include <string.h>

#include "kernels/cpu/chain.h"

int tsri_chain_readers(const tsri_chain_desc *d, int v)
{
    int n = 0;
    for (int m = 0; m < d->n; m++) {
        const tsri_kernel_desc *member = &d->member[m];
        for (int i = 0; i < member->nin; i++)
            n += d->in[m][i] == v;
        n += member->end.adds && d->in[m][member->nin + TSRI_END_ADD] == v;
    }
    return n;
}

static int maker_in(const tsri_chain_desc *d, int v)
{
    int maker = -1;
    for (int m = 0; m < d->n; m++)
        maker = d->out[m][0] == v ? m : maker;
    return maker;
}

/* Takes out member m, which member `by` does. */
static void take_out(tsri_chain_joined *j, int m, int by)
{
    tsri_chain_desc *d = &j->d;
    const size_t rest = (size_t)(d->n - m - 1);
    memmove(&d->member[m], &d->member[m + 1], rest * sizeof *d->member);
    memmove(d->in[m], d->in[m + 1], rest * sizeof *d->in);
    memmove(d->out[m], d->out[m + 1], rest * sizeof *d->out);
    d->n--;
    for (int i = 0; i < TSRI_CHAIN_MAX; i++) {
        j->place[i] = j->place[i] == m ? (int8_t)by : j->place[i];
        j->place[i] = (int8_t)(j->place[i] - (j->place[i] > m));
    }
}

/* Returns the member that makes value v by multiplying two operands that are alike, or one by
 * itself, where v is read but once and inside; else -1. */
static int product_of(const tsri_chain_desc *d, int v)
{
    const int maker = maker_in(d, v);
    if (v < d->ngiven + d->nouter || maker < 0 || tsri_chain_readers(d, v) != 1)
        return -1;
    const tsri_kernel_desc *p = &d->member[maker];
    if (p->op == TSRI_OP_UNARY)
        return p->attrs->unary.fn == TSRI_UNARY_SQUARE ? maker : -1;
    return p->op == TSRI_OP_BINARY && p->attrs->binary.fn == TSRI_BINARY_MUL &&
                   tsri_arg_count(&p->in[0]) == tsri_arg_count(&p->in[1])
               ? maker
               : -1;
}

bool tsri_chain_join_products(tsri_chain_joined *j)
{
    tsri_chain_desc *d = &j->d;
    bool any = false;
    for (int m = 0; m < d->n; m++) {
        tsri_kernel_desc *sum = &d->member[m];
        const bool sums = sum->op == TSRI_OP_REDUCE && sum->nin == 1 &&
                          sum->attrs->reduce.op == TSR_REDUCE_SUM && sum->in[0].dtype == TSR_F32;
        const int p = sums ? product_of(d, d->in[m][0]) : -1;
        if (p < 0)
            continue;
        for (int i = 0; i < 2; i++) {
            const int from = i < d->member[p].nin ? i : 0;
            sum->in[i] = d->member[p].in[from];
            d->in[m][i] = d->in[p][from];
        }
        sum->nin = 2;
        sum->fixed = 0;
        take_out(j, p, m);
        m--;
        any = true;
    }
    return any;
}

bool tsri_chain_alike(const tsri_arg *a, const tsri_arg *b)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i] && (a->shape[i] == 1 || a->stride[i] == b->stride[i]);
    return same;
}

static void take_operand(tsri_chain_desc *d, int m, int at, int from, int operand)
{
    tsri_kernel_desc *p = &d->member[m];
    p->in[p->nin + at] = d->member[from].in[operand];
    d->in[m][p->nin + at] = d->in[from][operand];
}

/* Lets the end of member m do member `next`, which reads m's result. Returns whether it can. */
static bool join_end(tsri_chain_desc *d, int m, int next)
{
    tsri_kernel_end *e = &d->member[m].end;
    const tsri_kernel_desc *x = &d->member[next];
    const int v = d->out[m][0], at = d->in[next][0] == v ? 0 : 1;
    if (x->op == TSRI_OP_SCALE_SHIFT && !tsri_kernel_has_end(e) && x->in[1].dtype == TSR_F32) {
        e->scales = true;
        take_operand(d, m, TSRI_END_SCALE, next, 1);
        take_operand(d, m, TSRI_END_SHIFT, next, 2);
    } else if (x->op == TSRI_OP_BINARY && x->attrs->binary.fn == TSRI_BINARY_ADD && !e->adds &&
               !e->acts && tsri_chain_alike(&x->in[0], &x->in[1]) &&
               maker_in(d, d->in[next][!at]) < m) {
        e->adds = true;
        take_operand(d, m, TSRI_END_ADD, next, !at);
    } else if (x->op == TSRI_OP_UNARY && !e->acts) {
        e->acts = true;
        e->fn = (tsri_unary_fn)x->attrs->unary.fn;
        e->a = x->attrs->unary.a;
        e->b = x->attrs->unary.b;
    } else {
        return false;
    }
    d->member[m].out[0] = x->out[0];
    d->out[m][0] = d->out[next][0];
    return true;
}

bool tsri_chain_join_ends(tsri_chain_joined *j)
{
    tsri_chain_desc *d = &j->d;
    bool any = false;
    for (int m = 0; m < d->n; m++) {
        tsri_kernel_desc *p = &d->member[m];
        if ((p->op != TSRI_OP_CONV2D && p->op != TSRI_OP_LINEAR) || p->out[0].dtype != TSR_F32)
            continue;
        for (int next = m + 1; next < d->n; next++) {
            const int v = d->out[m][0];
            bool reads = false;
            for (int i = 0; i < d->member[next].nin; i++)
                reads |= d->in[next][i] == v;
            if (!reads)
                continue;
            if (v < d->ngiven + d->nouter || tsri_chain_readers(d, v) != 1 ||
                !tsri_chain_alike(&p->out[0], &d->member[next].out[0]) || !join_end(d, m, next))
                break;
            take_out(j, next, m);
            next = m;
            any = true;
        }
        /* Operands that an end has not are there, though nothing reads them. */
        for (int i = p->nin; tsri_kernel_has_end(&p->end) && i < p->nin + TSRI_END_ARGS; i++)
            if (i == p->nin || (i == p->nin + TSRI_END_ADD ? !p->end.adds : !p->end.scales)) {
                p->in[i] = p->in[1];
                d->in[m][i] = d->in[m][1];
            }
    }
    return any;
}
