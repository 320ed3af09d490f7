/* SPDX-License-Identifier: Apache-2.0 */
/* What several ops' meanings share, on whole tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "src/core/rng.h"

static double unit_f32 = U_F32;

void unit_by_autocast(bool autocast)
{
    unit_f32 = autocast ? U_BF16 : U_F32;
}

double unit_of(tsr_dtype dtype)
{
    return dtype == TSR_F32 ? unit_f32 : dtype == TSR_F64 ? U_F64 : 0;
}

int64_t count_of(tsr_dims d)
{
    int64_t n = 1;
    for (int i = 0; i < d.ndim; i++)
        n *= d.d[i];
    return n;
}

bool broadcast_dims(tsr_dims a, tsr_dims b, tsr_dims *out)
{
    tsr_dims r = {.ndim = a.ndim > b.ndim ? a.ndim : b.ndim};
    for (int i = 1; i <= r.ndim; i++) {
        int64_t m = i <= a.ndim ? a.d[a.ndim - i] : 1, n = i <= b.ndim ? b.d[b.ndim - i] : 1;
        if (m != n && m != 1 && n != 1)
            return false;
        r.d[r.ndim - i] = m == 1 ? n : m;
    }
    *out = r;
    return true;
}

const int32_t *eval_spread(tape *t, tsr_dims from, tsr_dims to)
{
    int64_t n = count_of(to);
    if (count_of(from) == n)
        return NULL;
    int32_t *at = tape_alloc(t, (n + 1) * (int64_t)sizeof *at);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, index = 0, stride = 1;
        for (int k = 1; k <= to.ndim; k++) {
            int64_t c = rest % to.d[to.ndim - k];
            rest /= to.d[to.ndim - k];
            if (k <= from.ndim) {
                index += from.d[from.ndim - k] == 1 ? 0 : c * stride;
                stride *= from.d[from.ndim - k];
            }
        }
        at[i] = (int32_t)index;
    }
    return at;
}

uint32_t axes_mask(tsr_axes axes, int ndim)
{
    uint32_t mask = 0;
    for (int i = 0; i < axes.n; i++)
        mask |= 1u << (axes.axis[i] < 0 ? axes.axis[i] + ndim : axes.axis[i]);
    return axes.n ? mask : (1u << ndim) - 1;
}

tsr_dims reduced_dims(tsr_dims dims, uint32_t mask, bool keep)
{
    tsr_dims r = {0};
    for (int i = 0; i < dims.ndim; i++)
        if (!(mask >> i & 1))
            r.d[r.ndim++] = dims.d[i];
        else if (keep)
            r.d[r.ndim++] = 1;
    return r;
}

int32_t *eval_groups(tape *t, tsr_dims dims, uint32_t mask)
{
    int64_t n = count_of(dims);
    int32_t *group = tape_alloc(t, (n + 1) * (int64_t)sizeof *group);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, index = 0, stride = 1;
        for (int k = dims.ndim - 1; k >= 0; k--) {
            int64_t c = rest % dims.d[k];
            rest /= dims.d[k];
            if (mask >> k & 1)
                continue;
            index += c * stride;
            stride *= dims.d[k];
        }
        group[i] = (int32_t)index;
    }
    return group;
}

int eval_sum(tape *t, int x, tsr_dims dims, uint32_t mask, double u)
{
    int64_t n = count_of(dims);
    const int32_t *group = eval_groups(t, dims, mask);
    tape_term *terms = tape_alloc(t, (n + 1) * (int64_t)sizeof *terms);
    for (int64_t i = 0; i < n; i++)
        terms[i] = (tape_term){group[i], (int32_t)i, 0, 1};
    return tape_terms(t, count_of(reduced_dims(dims, mask, false)), x, -1, n, terms, u);
}

int eval_extreme(tape *t, int x, tsr_dims dims, uint32_t mask, bool max)
{
    return tape_extreme(t, count_of(reduced_dims(dims, mask, false)), x, eval_groups(t, dims, mask),
                        max);
}

int eval_binary(tape *t, tape_fn fn, int a, tsr_dims ad, int b, tsr_dims bd, tsr_dims to, double u)
{
    return tape_binary(t, count_of(to), a, eval_spread(t, ad, to), b, eval_spread(t, bd, to), fn,
                       u);
}

bool matmul_dims(tsr_dims a, tsr_dims b, bool ta, bool tb, tsr_dims *out)
{
    if (a.ndim < 2 || b.ndim < 2)
        return false;
    int64_t k = a.d[a.ndim - (ta ? 2 : 1)], l = b.d[b.ndim - (tb ? 1 : 2)];
    int64_t m = a.d[a.ndim - (ta ? 1 : 2)], n = b.d[b.ndim - (tb ? 2 : 1)];
    a.ndim -= 2;
    b.ndim -= 2;
    if (k != l || !broadcast_dims(a, b, out))
        return false;
    out->d[out->ndim++] = m;
    out->d[out->ndim++] = n;
    return true;
}

int eval_matmul(walk *w, int a, tsr_dims ad, int b, tsr_dims bd, bool ta, bool tb, tsr_dims *od,
                double u)
{
    tsr_dims o, al = ad, bl = bd, ol;
    matmul_dims(ad, bd, ta, tb, &o);
    al.ndim -= 2;
    bl.ndim -= 2;
    ol = o;
    ol.ndim -= 2;
    int64_t k = ad.d[ad.ndim - (ta ? 2 : 1)], m = o.d[o.ndim - 2], n = o.d[o.ndim - 1];
    int64_t batch = count_of(ol), at = 0;
    const int32_t *ia = eval_spread(w->t, al, ol), *ib = eval_spread(w->t, bl, ol);
    tape_term *terms = tape_alloc(w->t, (batch * m * n * k + 1) * (int64_t)sizeof *terms);
    for (int64_t e = 0; e < batch; e++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t l = 0; l < k; l++) {
                    int64_t ab = (ia ? ia[e] : e) * m * k, bb = (ib ? ib[e] : e) * k * n;
                    terms[at++] = (tape_term){(int32_t)((e * m + i) * n + j),
                                              (int32_t)(ab + (ta ? l * m + i : i * k + l)),
                                              (int32_t)(bb + (tb ? j * k + l : l * n + j)), 1};
                }
    if (od)
        *od = o;
    return tape_terms(w->t, count_of(o), a, b, at, terms, u);
}

int eval_softmax(walk *w, int x, tsr_dims dims, int axis, bool log, double u)
{
    tape *t = w->t;
    uint32_t mask = 1u << (axis < 0 ? axis + dims.ndim : axis);
    tsr_dims keep = reduced_dims(dims, mask, true);
    int m = tape_detach(t, eval_extreme(t, x, dims, mask, true));
    int diff = eval_binary(t, FN_SUB, x, dims, m, keep, dims, u);
    int e = tape_unary(t, diff, FN_EXP, 0, u);
    int sum = eval_sum(t, e, dims, mask, u);
    if (log)
        return eval_binary(t, FN_SUB, diff, dims, tape_unary(t, sum, FN_LOG, 0, u), keep, dims, u);
    return eval_binary(t, FN_DIV, e, dims, sum, keep, dims, u);
}

int eval_permute(tape *t, int x, tsr_dims from, const int *perm)
{
    int64_t n = count_of(from), stride[TSR_MAX_NDIM], s = 1;
    for (int k = from.ndim - 1; k >= 0; k--) {
        stride[k] = s;
        s *= from.d[k];
    }
    tape_from *at = tape_alloc(t, (n + 1) * (int64_t)sizeof *at);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, index = 0;
        for (int k = from.ndim - 1; k >= 0; k--) {
            index += rest % from.d[perm[k]] * stride[perm[k]];
            rest /= from.d[perm[k]];
        }
        at[i] = (tape_from){0, (int32_t)index, 1};
    }
    return tape_move(t, n, 1, &x, at);
}

/* The name of a random op is its scope, its kind, and how many of its kind the scope had before. */
uint64_t eval_key(walk *w, const char *scope, const char *kind)
{
    char name[128];
    uint64_t mark =
        tsri_hash(tsri_hash(TSRI_HASH_INIT, scope, strlen(scope) + 1), kind, strlen(kind));
    int n = 0, i = 0;
    for (; w->keys[i]; i++)
        n += w->keys[i] == mark;
    w->keys[i] = mark;
    snprintf(name, sizeof name, "%s/%s#%d", scope, kind, n);
    return tsri_rng_key(w->g->seed, name);
}

int eval_dropout(walk *w, int x, double p, const char *scope)
{
    int64_t n = tape_at(w->t, x)->n;
    bool off = p == 0 || !w->g->training;
    uint64_t key = off ? 0 : eval_key(w, scope, "dropout");
    tape_from *at = tape_alloc(w->t, (n + 1) * (int64_t)sizeof *at);
    for (int64_t i = 0; i < n; i++) {
        bool keep = off || tsri_rng_uniform(key, w->step, (uint64_t)i) >= p;
        at[i] = keep ? (tape_from){0, (int32_t)i, off ? 1 : 1 / (1 - p)} : (tape_from){0, -1, 0};
    }
    return tape_move(w->t, n, 1, &x, at);
}

void walk_start(walk *w, const program *p, const pgraph *g, tape *t)
{
    *w = (walk){.p = p, .g = g, .t = t};
    memset(w->reads, -1, sizeof w->reads);
    memset(w->updated, -1, sizeof w->updated);
}

int walk_node(walk *w, int node)
{
    const pnode *n = &w->g->node[node];
    int in[MAX_OPERANDS];
    for (int i = 0; i < n->nin; i++)
        in[i] = n->in[i] < 0 ? -1 : w->value[n->in[i]];
    int id = w->value[node] = op_at(n->op)->eval(w, n, in);
    tape_value *x = tape_at(w->t, id);
    for (int k = 0; k < n->sbp.ndim; k++)
        if (n->sbp.d[k].kind == TSR_SBP_PARTIAL)
            x->addends = x->partial = true;
    /* Addends that are fed add up exactly; what is made of each of them rounds as they are large.
     */
    for (int64_t i = 0; x->addends && n->op == op_find("from_local") && i < x->n; i++)
        x->e[i] += x->u * (fabs(x->v[i]) + MOST_ADDENDS);
    for (int64_t i = 0; w->nudge && node == w->nudged && i < x->n; i++)
        x->v[i] += w->nudge[i];
    return id;
}
