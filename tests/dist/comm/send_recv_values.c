/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/comm/send_recv_values.h"

#include <math.h>
#include <string.h>

int sr_value(int m, int seg, int64_t e)
{
    return (int)((e * 7 + m * 3 + seg + e / 11) % 11);
}

uint64_t sr_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int sr_below(uint64_t *state, int n)
{
    return (int)(sr_random(state) % (uint64_t)n);
}

/* A small whole number, or an infinity, as the upper bits of its f32. */
static uint16_t half_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (f == 0)
        return sign;
    if (isinf(f))
        return sign | 0x7c00;
    return (uint16_t)(sign | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff));
}

static void put_float(tsr_dtype t, char *to, float f)
{
    uint32_t bits;
    double d = (double)f;
    memcpy(&bits, &f, sizeof bits);
    uint16_t bf = (uint16_t)(bits >> 16), half = half_of(f);
    memcpy(to,
           t == TSR_F64   ? (const void *)&d
           : t == TSR_F32 ? (const void *)&f
           : t == TSR_F16 ? &half
                          : &bf,
           tsr_dtype_size(t));
}

static void put_integer(tsr_dtype t, char *to, int v)
{
    v = v == NOTHING ? 0 : v;
    int64_t wide = v == LOWEST ? INT64_MIN : v == HIGHEST ? INT64_MAX : v;
    int32_t word = v == LOWEST ? INT32_MIN : v == HIGHEST ? INT32_MAX : v;
    uint8_t byte = v == LOWEST ? 0 : v == HIGHEST ? 255 : (uint8_t)v;
    if (t == TSR_BOOL)
        byte = v == LOWEST ? 0 : v == HIGHEST ? 1 : v % 3 == 0;
    memcpy(to,
           t == TSR_I64   ? (const void *)&wide
           : t == TSR_I32 ? (const void *)&word
                          : &byte,
           tsr_dtype_size(t));
}

void sr_put(tsr_dtype t, void *base, int64_t i, int v)
{
    size_t size = tsr_dtype_size(t);
    char *to = (char *)base + (size_t)i * size;
    if (v == UNTOUCHED)
        memset(to, 0x5a, size);
    else if (t == TSR_F32 || t == TSR_F64 || t == TSR_F16 || t == TSR_BF16)
        put_float(t, to,
                  v == LOWEST    ? -INFINITY
                  : v == HIGHEST ? INFINITY
                  : v == NOTHING ? -0.0f
                                 : (float)v);
    else
        put_integer(t, to, v);
}

static int combine(tsr_dtype t, tsr_reduce_op op, int a, int b)
{
    if (t == TSR_BOOL) { /* 0 is true, 1 is false: see sr_put */
        bool x = a % 3 == 0, y = b % 3 == 0;
        return (op == TSR_REDUCE_MIN ? x && y : x || y) ? 0 : 1;
    }
    if (op == TSR_REDUCE_SUM)
        return a + b;
    return (op == TSR_REDUCE_MAX) == (a > b) ? a : b;
}

static void pull_element(const tsri_segment *s, tsr_reduce_op op, int seg, const tsri_pull *p,
                         const int64_t *index, int *out)
{
    int64_t from = p->src_at, to = p->dst_at;
    for (int a = 0; a < p->ndim; a++) {
        from += index[a] * p->src_step[a];
        to += index[a] * p->dst_step[a];
    }
    int v = sr_value(p->src[0], seg, from);
    for (int k = 1; k < p->nsrc; k++)
        v = combine(s->dtype, op, v, sr_value(p->src[k], seg, from));
    out[to] = v;
}

void sr_expect(const tsri_segment *s, tsr_reduce_op op, int seg, int *out)
{
    int neutral = op == TSR_REDUCE_SUM   ? (s->dtype == TSR_BOOL ? 1 : NOTHING)
                  : op == TSR_REDUCE_MAX ? LOWEST
                                         : HIGHEST;
    for (int i = 0; i < WHOLE; i++)
        out[i] = s->fill ? neutral : UNTOUCHED;
    for (int k = 0; k < s->npulls; k++) {
        const tsri_pull *p = &s->pulls[k];
        int64_t index[TSR_MAX_NDIM] = {0}, count = 1;
        for (int a = 0; a < p->ndim; a++)
            count *= p->length[a];
        for (int64_t n = 0; n < count; n++) {
            pull_element(s, op, seg, p, index, out);
            for (int a = 0; a < p->ndim && ++index[a] == p->length[a]; a++)
                index[a] = 0;
        }
    }
}

/* Lays the axes out in some order, here and there with gaps; returns false if it is too much. */
static bool lay(uint64_t *state, const tsri_pull *p, const int *order, bool may_turn, int64_t *at,
                int64_t *step)
{
    int64_t next = 1, low = 0, high = 0;
    for (int k = 0; k < p->ndim; k++) {
        int a = order[k];
        if (sr_below(state, 4) == 0)
            next += sr_below(state, 3);
        step[a] = may_turn && sr_below(state, 8) == 0 ? -next : next;
        int64_t reach = (p->length[a] > 0 ? p->length[a] - 1 : 0) * step[a];
        *(reach < 0 ? &low : &high) += reach;
        next *= p->length[a] > 0 ? p->length[a] : 1;
    }
    if (high - low >= WHOLE)
        return false;
    *at = sr_below(state, (int)(WHOLE - (high - low))) - low;
    return true;
}

tsri_pull sr_random_pull(uint64_t *state, int nranks, const bool *gives, int *src)
{
    tsri_pull p;
    bool fits;
    do {
        int from_order[TSR_MAX_NDIM], to_order[TSR_MAX_NDIM];
        p = (tsri_pull){.ndim = sr_below(state, 5), .src = src};
        for (int a = 0; a < p.ndim; a++) {
            p.length[a] = sr_below(state, 40) == 0 ? 0 : 1 + sr_below(state, 6);
            int at = sr_below(state, a + 1);
            from_order[a] = from_order[at];
            from_order[at] = a;
        }
        /* Half the time the same layout on both sides, as of channels-last tensors. */
        bool same = sr_below(state, 2);
        for (int a = 0; a < p.ndim; a++) {
            int at = sr_below(state, a + 1);
            to_order[a] = to_order[at];
            to_order[at] = a;
        }
        fits = lay(state, &p, from_order, true, &p.src_at, p.src_step) &&
               lay(state, &p, same ? from_order : to_order, false, &p.dst_at, p.dst_step);
    } while (!fits);
    int givers[64], n = 0;
    for (int m = 0; m < nranks; m++)
        if (gives[m]) {
            int at = sr_below(state, n + 1);
            givers[n] = givers[at];
            givers[at] = m;
            n++;
        }
    p.nsrc = sr_below(state, 2) ? 1 : 1 + sr_below(state, n);
    memcpy(src, givers, (size_t)p.nsrc * sizeof *src);
    return p;
}
