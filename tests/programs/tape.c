/* SPDX-License-Identifier: Apache-2.0 */
#include "tape.h"
#include "tape_fn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 4096, BLOCK = 1 << 20 };

typedef enum kind { LEAF, MOVE, TERMS, UNARY, BINARY, EXTREME } kind;

/* How a value was made, for the way back. */
typedef struct node {
    tape_value value;
    kind kind;
    bool stuffed;
    int nops, *ops;
    const tape_from *from;
    const tape_term *terms;
    int64_t nterms;
    const int32_t *ia, *ib;
    double *da, *dae, *db, *dbe; /* partial derivatives and their errors */
} node;

typedef struct block {
    struct block *next;
    char data[];
} block;

struct tape {
    int n;
    node *at;
    block *first;
    size_t used;
    bool by_class;
};

tape *tape_new(void)
{
    tape *t = calloc(1, sizeof *t);
    t->at = calloc(MAX_VALUES, sizeof *t->at);
    return t;
}

void tape_by_class(tape *t, bool on)
{
    t->by_class = on;
}

void tape_clear(tape *t)
{
    while (t->first && t->first->next) {
        block *b = t->first;
        t->first = b->next;
        free(b);
    }
    t->n = 0;
    t->used = t->first ? 0 : BLOCK;
}

void tape_free(tape *t)
{
    tape_clear(t);
    free(t->first);
    free(t->at);
    free(t);
}

void *tape_alloc(tape *t, int64_t bytes)
{
    size_t want = ((size_t)bytes + 15) & ~(size_t)15;
    if (!t->first || t->used + want > BLOCK) {
        block *b = malloc(sizeof *b + (want > BLOCK ? want : BLOCK));
        /* The oldest block, which tape_clear keeps, is never a larger one. */
        if (t->first && want > BLOCK) {
            b->next = t->first->next;
            t->first->next = b;
            block *last = b;
            while (last->next)
                last = last->next;
            return memset(b->data, 0, want), b->data;
        }
        b->next = t->first;
        t->first = b;
        t->used = 0;
    }
    void *p = t->first->data + t->used;
    t->used += want;
    return memset(p, 0, want);
}

tape_value *tape_at(const tape *t, int id)
{
    return &t->at[id].value;
}

static double *doubles(tape *t, int64_t n)
{
    return tape_alloc(t, (n ? n : 1) * (int64_t)sizeof(double));
}

static node *add(tape *t, kind k, int64_t n, double u, int nops, const int *ops)
{
    if (t->n == MAX_VALUES)
        abort();
    node *x = &t->at[t->n++];
    *x = (node){.kind = k, .nops = nops, .value = {.n = n, .u = u}};
    x->value.v = doubles(t, n);
    x->value.e = doubles(t, n);
    x->ops = tape_alloc(t, (nops + 1) * (int64_t)sizeof(int));
    for (int i = 0; i < nops; i++) {
        x->ops[i] = ops[i];
        x->value.diff |= t->at[ops[i]].value.diff;
        x->value.addends |= t->at[ops[i]].value.addends;
    }
    return x;
}

/* a b, where nothing times anything is nothing: for bounds. */
static double bound(double a, double b)
{
    return a == 0 || b == 0 ? 0 : fabs(a) * fabs(b);
}

/* Whether a number may be an infinity in the dtype of x. */
static bool is_too_large(const tape_value *x, double v)
{
    return fabs(v) > (x->u >= U_F32 ? 1e37 : 1e300);
}

/* Whether a number may be 0 in the dtype of x. */
static bool is_too_small(const tape_value *x, double v)
{
    return v != 0 && fabs(v) < (x->u >= U_F32 ? 1e-36 : 1e-290);
}

/* What a relative error of u makes of v: of what is not finite nothing. */
static double rounding(double u, double v)
{
    return isfinite(v) ? u * fabs(v) : 0;
}

/* Adds the rounding of v's own dtype, and says where v is no number to compare. */
static void settle(const tape *t, tape_value *x, int64_t i, bool exact_operands)
{
    double v = x->v[i];
    if (!isfinite(v))
        x->e[i] = exact_operands && (t->by_class || !x->addends) ? 0 : INFINITY;
    else if (isnan(x->e[i]) || is_too_large(x, v))
        x->e[i] = INFINITY;
    else if (is_too_small(x, v))
        x->e[i] = fmax(x->e[i], 2 * fabs(v));
}

int tape_leaf(tape *t, int64_t n, const double *v, const double *e, double u, bool diff)
{
    node *x = add(t, LEAF, n, u, 0, NULL);
    if (n)
        memcpy(x->value.v, v, (size_t)n * sizeof *v);
    if (n && e)
        memcpy(x->value.e, e, (size_t)n * sizeof *e);
    for (int64_t i = 0; i < n; i++)
        x->value.e[i] += u == U_BF16 && isfinite(v[i]) ? u * fabs(v[i]) : 0;
    x->value.diff = diff;
    return t->n - 1;
}

int tape_detach(tape *t, int a)
{
    const tape_value *x = tape_at(t, a);
    const int id = tape_leaf(t, x->n, x->v, x->e, x->u, false);
    tape_at(t, id)->partial = tape_at(t, a)->partial;
    return id;
}

/* By class: what a linear op with a factor makes of an element that may be held as addends. */
static void spread_addends(const tape *t, tape_value *x, int64_t i, double factor)
{
    if (!t->by_class || !x->partial)
        return;
    if (isinf(factor) && !isnan(x->v[i]))
        x->e[i] = INFINITY;
    else if (x->v[i] == 0)
        x->e[i] = fmax(x->e[i], SIGN_OF_ZERO);
}

int tape_move(tape *t, int64_t n, int nops, const int *ops, const tape_from *from)
{
    node *x = add(t, MOVE, n, nops ? tape_at(t, ops[0])->u : 0, nops, ops);
    x->from = from;
    x->value.partial = true; /* elements by ids come from the ranks that have them */
    for (int64_t i = 0; i < n; i++) {
        const tape_from *f = &from[i];
        if (f->at < 0) {
            x->value.v[i] = f->w;
            continue;
        }
        const tape_value *a = tape_at(t, ops[f->which]);
        x->value.v[i] = f->w == 1 ? a->v[f->at] : f->w * a->v[f->at];
        x->value.e[i] =
            bound(f->w, a->e[f->at]) + (f->w == 1 ? 0 : rounding(2 * x->value.u, x->value.v[i]));
        settle(t, &x->value, i, a->e[f->at] == 0 || isfinite(a->e[f->at]));
        if (f->w != 1)
            spread_addends(t, &x->value, i, f->w);
    }
    return t->n - 1;
}

int tape_terms(tape *t, int64_t n, int a, int b, int64_t nterms, const tape_term *terms, double u)
{
    int ops[2] = {a, b};
    node *x = add(t, TERMS, n, u, b < 0 ? 1 : 2, ops);
    const tape_value *p = tape_at(t, a), *q = b < 0 ? NULL : tape_at(t, b);
    double *size = doubles(t, n), *count = doubles(t, n), *bad = doubles(t, n);
    x->terms = terms;
    x->nterms = nterms;
    for (int64_t k = 0; k < nterms; k++) {
        const tape_term *m = &terms[k];
        double va = p->v[m->i], ea = p->e[m->i], vb = q ? q->v[m->j] : 1, eb = q ? q->e[m->j] : 0;
        double term = m->w * va * vb;
        x->value.v[m->o] += term;
        size[m->o] += fabs(term);
        count[m->o]++;
        if (!t->by_class || isfinite(term))
            x->value.e[m->o] += fabs(m->w) * (bound(va, eb) + bound(vb, ea) + bound(ea, eb));
        /* An infinity times a number that may be 0, or that is held as addends. */
        if (t->by_class && ((isinf(va) && (eb >= fabs(vb) ? eb > 0 : q && q->partial)) ||
                            (isinf(vb) && (ea >= fabs(va) ? ea > 0 : p->partial))))
            bad[m->o] = 1;
        if (!isfinite(ea) || !isfinite(eb) || (!isfinite(term) && isfinite(va) && isfinite(vb)))
            bad[m->o] = 1;
    }
    x->value.partial = true;
    for (int64_t i = 0; i < n; i++) {
        x->value.e[i] += rounding(u * (3 + log2(count[i] + 1)), size[i]);
        settle(t, &x->value, i, !bad[i]);
        if (bad[i])
            x->value.e[i] = INFINITY;
    }
    return t->n - 1;
}

static bool all_finite(const tape_value *x, const double *v)
{
    for (int64_t i = 0; i < x->n; i++)
        if (!isfinite(v[i]))
            return false;
    return true;
}

static void lose(int64_t n, double *e)
{
    for (int64_t i = 0; i < n; i++)
        e[i] = INFINITY;
}

void tape_stuffed(tape *t, int id, bool of_sums)
{
    node *x = &t->at[id];
    if (t->by_class && !of_sums)
        return;
    const tape_value *a = tape_at(t, x->ops[0]), *b = tape_at(t, x->ops[1]);
    x->stuffed = true;
    if (!all_finite(a, a->v) || !all_finite(b, b->v))
        lose(x->value.n, x->value.e);
}

/* How far the values at the ends of an interval are from that in its middle. */
static double spread(double mid, double low, double high)
{
    if (!isfinite(mid)) {
        bool same = isnan(mid) ? isnan(low) && isnan(high) : mid == low && mid == high;
        return same ? 0 : INFINITY;
    }
    double a = fabs(low - mid), b = fabs(high - mid), m = a > b ? a : b;
    return isfinite(a) && isfinite(b) ? m : INFINITY;
}

/* Whether a divisor may be 0, for all that is known of it: then 0 / 0 is no number, whatever both
 * ends of its interval give. */
static bool may_be_zero(double v, double e)
{
    return e > 0 && fabs(v) <= e;
}

int tape_unary(tape *t, int a, tape_fn fn, double p, double u)
{
    const tape_value *in = tape_at(t, a);
    node *x = add(t, UNARY, in->n, u, 1, &a);
    if (fn == FN_WHOLE || fn == FN_BOOL)
        x->value.diff = false;
    x->da = doubles(t, in->n);
    x->dae = doubles(t, in->n);
    const bool linear =
        fn == FN_NEG || fn == FN_MULS || fn == FN_DIVS || fn == FN_ADDS || fn == FN_SAME;
    x->value.partial = linear && in->partial;
    for (int64_t i = 0; i < in->n; i++) {
        double f[3], d[3], e = in->e[i];
        tape_apply1(fn, p, in->v[i], &f[0], &d[0]);
        if (isinf(e) || (fn == FN_RDIVS && may_be_zero(in->v[i], e))) {
            x->value.v[i] = f[0];
            x->da[i] = d[0];
            x->value.e[i] = x->dae[i] = INFINITY;
            continue;
        }
        tape_apply1(fn, p, in->v[i] - e, &f[1], &d[1]);
        tape_apply1(fn, p, in->v[i] + e, &f[2], &d[2]);
        x->value.v[i] = f[0];
        x->da[i] = d[0];
        double inner = fn == FN_NEG || fn == FN_RELU || fn == FN_RELU6 || fn == FN_ABS ||
                               fn == FN_SAME || fn == FN_SAFE_SQRT
                           ? 0
                           : 1;
        double own = fn == FN_ADDS ? fabs(p) + rounding(1, f[0]) : rounding(4, f[0]);
        if (fn == FN_GELU || fn == FN_GELU_TANH || fn == FN_SILU)
            own += rounding(1, in->v[i]);
        x->value.e[i] = spread(f[0], f[1], f[2]) + (inner || u > in->u ? u * own : 0);
        x->dae[i] =
            spread(d[0], d[1], d[2]) + u * 4 * (rounding(1, d[0]) + (inner && fn != FN_EXP));
        if (fn == FN_SAFE_SQRT)
            x->value.e[i] += 2 * u * f[0];
        settle(t, &x->value, i, isfinite(x->value.e[i]) || x->value.e[i] == 0);
        if (linear && fn != FN_SAME)
            spread_addends(t, &x->value, i, fn == FN_DIVS && p == 0 ? INFINITY : 1);
    }
    return t->n - 1;
}

int tape_binary(tape *t, int64_t n, int a, const int32_t *ia, int b, const int32_t *ib, tape_fn fn,
                double u)
{
    const tape_value *p = tape_at(t, a), *q = tape_at(t, b);
    int ops[2] = {a, b};
    node *x = add(t, BINARY, n, u, 2, ops);
    x->ia = ia;
    x->ib = ib;
    x->da = doubles(t, n);
    x->dae = doubles(t, n);
    x->db = doubles(t, n);
    x->dbe = doubles(t, n);
    if (tape_compares(fn) || fn == FN_FLOOR_DIVIDE)
        x->value.diff = false;
    const bool by_first = fn == FN_ADD || fn == FN_SUB || fn == FN_MUL || fn == FN_DIV;
    /* A sum may be held as addends whatever its operands are: S to P moves nothing. */
    x->value.partial =
        fn == FN_ADD || fn == FN_SUB || (by_first && p->partial) || (fn == FN_MUL && q->partial);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = ia ? ia[i] : i, bt = ib ? ib[i] : i;
        double f[5], da[5], db[5], va = p->v[at], vb = q->v[bt], ea = p->e[at], eb = q->e[bt];
        tape_apply2(fn, va, vb, &f[0], &da[0], &db[0]);
        if (u == 0 && vb == 0 && (fn == FN_REMAINDER || fn == FN_FMOD || fn == FN_FLOOR_DIVIDE))
            f[0] = 0; /* of whole numbers */
        x->value.v[i] = f[0];
        x->da[i] = da[0];
        x->db[i] = db[0];
        if (!isfinite(ea) || !isfinite(eb) || (fn == FN_DIV && may_be_zero(vb, eb))) {
            x->value.e[i] = x->dae[i] = x->dbe[i] = INFINITY;
            continue;
        }
        /* Comparisons look at both ends of both at once. */
        bool both = tape_compares(fn);
        tape_apply2(fn, va - ea, vb + (both ? eb : 0), &f[1], &da[1], &db[1]);
        tape_apply2(fn, va + ea, vb - (both ? eb : 0), &f[2], &da[2], &db[2]);
        tape_apply2(fn, va - (both ? ea : 0), vb - eb, &f[3], &da[3], &db[3]);
        tape_apply2(fn, va + (both ? ea : 0), vb + eb, &f[4], &da[4], &db[4]);
        if ((fn == FN_MAXIMUM || fn == FN_MINIMUM) && fabs(va - vb) <= ea + eb && ea + eb > 0)
            x->dae[i] = x->dbe[i] = 1;
        double own = fn == FN_ATAN2                 ? 8
                     : fn >= FN_EQUAL               ? 0
                     : fn == FN_ADD || fn == FN_SUB ? 2
                     : fn == FN_POW                 ? 16
                                                    : 4;
        x->value.e[i] = spread(f[0], f[1], f[2]) + spread(f[0], f[3], f[4]) +
                        rounding(own * u, f[0]) + (fn == FN_MUL ? bound(ea, eb) : 0);
        if (both && (fn == FN_EQUAL || fn == FN_NOT_EQUAL) && ea + eb > 0 &&
            fabs(va - vb) <= ea + eb)
            x->value.e[i] = 1;
        x->dae[i] +=
            spread(da[0], da[1], da[2]) + spread(da[0], da[3], da[4]) + rounding(8 * u, da[0]);
        x->dbe[i] +=
            spread(db[0], db[1], db[2]) + spread(db[0], db[3], db[4]) + rounding(8 * u, db[0]);
        if (fn == FN_FMOD || fn == FN_REMAINDER) {
            /* Near a whole quotient its rounding decides what it is a multiple of. A rest whose
             * quotient is not sure may be any: the ends looked at can lie whole periods apart. */
            const double ratio = va / vb, least = fabs(vb) - eb;
            const double unsure = least > 0 ? (fabs(va) + ea) / least - fabs(ratio) : INFINITY;
            const double most = (fn == FN_FMOD ? 2 : 1) * (fabs(vb) + eb);
            if (vb != 0 && ea + eb > 0 && !(floor(ratio - unsure) == floor(ratio + unsure)))
                x->value.e[i] = fmax(x->value.e[i], most);
            x->value.e[i] += fn == FN_REMAINDER ? 2 * u * fabs(vb) : 0;
            x->dbe[i] += fabs(ratio - round(ratio)) <= 8 * u * fabs(ratio) ? 1 : 0;
        }
        settle(t, &x->value, i, isfinite(x->value.e[i]) || x->value.e[i] == 0);
        /* Of a sum the other addends alone may be infinite. */
        const bool meets =
            (fn == FN_MUL && ((p->partial && isinf(vb)) || (q->partial && isinf(va)))) ||
            (fn == FN_DIV && (vb == 0 || isinf(vb)));
        if (by_first)
            spread_addends(t, &x->value, i, meets ? INFINITY : 1);
    }
    return t->n - 1;
}

/* da: each element's share of the gradient. */
int tape_extreme(tape *t, int64_t n, int a, const int32_t *group, bool max)
{
    const tape_value *in = tape_at(t, a);
    node *x = add(t, EXTREME, n, in->u, 1, &a);
    double *equal = doubles(t, n), *near = doubles(t, n);
    x->ia = group;
    x->da = doubles(t, in->n);
    x->dae = doubles(t, in->n);
    for (int64_t i = 0; i < n; i++)
        x->value.v[i] = max ? -INFINITY : INFINITY;
    for (int64_t i = 0; i < in->n; i++) {
        double *m = &x->value.v[group[i]], v = in->v[i];
        if (isnan(v) || (!isnan(*m) && (max ? v > *m : v < *m)))
            *m = v;
        if (in->e[i] > x->value.e[group[i]])
            x->value.e[group[i]] = in->e[i];
    }
    for (int64_t i = 0; i < in->n; i++) {
        double m = x->value.v[group[i]], e = in->e[i] + x->value.e[group[i]];
        equal[group[i]] += in->v[i] == m;
        near[group[i]] += in->v[i] == m || fabs(in->v[i] - m) <= e;
        if (isnan(in->v[i]))
            near[group[i]] += 2;
    }
    for (int64_t i = 0; i < in->n; i++) {
        double m = x->value.v[group[i]], e = in->e[i] + x->value.e[group[i]];
        /* Nothing equals an extreme that is NaN: 0 / 0, as PyTorch says too. */
        x->da[i] = isnan(m) ? NAN : in->v[i] == m ? 1 / equal[group[i]] : 0;
        bool doubt = near[group[i]] > 1 && (e > 0 || isnan(m)) &&
                     (in->v[i] == m || !(fabs(in->v[i] - m) > e));
        /* An extreme that may be anything may be NaN, and then all shares are. */
        x->dae[i] = isinf(e) ? INFINITY : doubt ? 1 : in->u;
    }
    for (int64_t i = 0; i < n; i++)
        settle(t, &x->value, i, isfinite(x->value.e[i]));
    return t->n - 1;
}

/* --- back ------------------------------------------------------------------------------------- */
static void give(const tape *t, tape_value *x, int64_t i, double g, double ge)
{
    x->g[i] += g;
    x->ge[i] += isnan(ge) || (is_too_large(x, g) && (isfinite(g) || !t->by_class))
                    ? INFINITY
                    : ge + rounding(3 * x->u, g);
}

/* give of g * d. By class: every gradient may be held as addends. */
static void give_product(const tape *t, tape_value *x, int64_t i, double g, double ge, double d,
                         double de)
{
    if (t->by_class) {
        const bool unsure = isinf(ge) || isinf(de) || (isinf(g) && de > 0 && fabs(d) <= de) ||
                            (isinf(d) && !isnan(g * d));
        const double e =
            !isfinite(g) || !isfinite(d) ? 0 : bound(g, de) + bound(ge, d) + bound(ge, de);
        give(t, x, i, g * d, unsure ? INFINITY : g * d == 0 ? fmax(e, SIGN_OF_ZERO) : e);
        return;
    }
    double e = bound(g, de) + bound(ge, d) + bound(ge, de);
    bool may_be_infinite = !isfinite(g) || !isfinite(d) || is_too_large(x, g) || is_too_large(x, d);
    give(t, x, i, g * d, may_be_infinite ? INFINITY : e);
}

static void back(tape *t, node *x)
{
    const tape_value *y = &x->value;
    tape_value *a = x->nops ? tape_at(t, x->ops[0]) : NULL,
               *b = x->nops > 1 ? tape_at(t, x->ops[1]) : NULL;
    switch (x->kind) {
    case LEAF:
        break;
    case MOVE:
        for (int64_t i = 0; i < y->n; i++) {
            const tape_from *f = &x->from[i];
            if (f->at >= 0)
                give_product(t, tape_at(t, x->ops[f->which]), f->at, y->g[i], y->ge[i], f->w, 0);
        }
        break;
    case TERMS:
        if (x->stuffed && !(all_finite(y, y->g) && all_finite(a, a->v) && all_finite(b, b->v))) {
            lose(a->n, a->ge);
            lose(b->n, b->ge);
        }
        for (int64_t k = 0; k < x->nterms; k++) {
            const tape_term *m = &x->terms[k];
            give_product(t, a, m->i, y->g[m->o], y->ge[m->o], m->w * (b ? b->v[m->j] : 1),
                         b ? bound(m->w, b->e[m->j]) : 0);
            if (b)
                give_product(t, b, m->j, y->g[m->o], y->ge[m->o], m->w * a->v[m->i],
                             bound(m->w, a->e[m->i]));
        }
        break;
    case UNARY:
        for (int64_t i = 0; i < y->n; i++)
            give_product(t, a, i, y->g[i], y->ge[i], x->da[i], x->dae[i]);
        break;
    case BINARY:
        for (int64_t i = 0; i < y->n; i++) {
            give_product(t, a, x->ia ? x->ia[i] : i, y->g[i], y->ge[i], x->da[i], x->dae[i]);
            give_product(t, b, x->ib ? x->ib[i] : i, y->g[i], y->ge[i], x->db[i], x->dbe[i]);
        }
        break;
    case EXTREME:
        for (int64_t i = 0; i < a->n; i++)
            give_product(t, a, i, y->g[x->ia[i]], y->ge[x->ia[i]], x->da[i], x->dae[i]);
        break;
    }
}

void tape_backward(tape *t, int y)
{
    for (int i = 0; i < t->n; i++) {
        tape_value *x = tape_at(t, i);
        x->reached = i == y;
        if (!x->g) {
            x->g = doubles(t, x->n);
            x->ge = doubles(t, x->n);
        }
        memset(x->g, 0, (size_t)x->n * sizeof *x->g);
        memset(x->ge, 0, (size_t)x->n * sizeof *x->ge);
    }
    for (int64_t i = 0; i < tape_at(t, y)->n; i++)
        tape_at(t, y)->g[i] = 1;
    for (int i = y; i >= 0; i--) {
        node *x = &t->at[i];
        if (!x->value.reached || !x->value.diff)
            continue;
        back(t, x);
        for (int k = 0; k < x->nops; k++)
            if (tape_at(t, x->ops[k])->diff)
                tape_at(t, x->ops[k])->reached = true;
    }
}
