/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise ops in chains of which one operand broadcasts: it has b elements, of which the
 * result[a][b][c] takes element i / c % b. Expand is the same with no other operand. By pieces the
 * operand is walked with the result where a is 1, and else whole.
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

typedef struct spread {
    tsri_fast base;
    tsri_fast_map_fn *map; /* NULL: copies */
    int which;             /* the operand that broadcasts */
    int64_t a, b, c;
} spread;

/* Does n elements of the result from `at` on, whose operand is one number or `n` ones. */
static void spread_run(const spread *k, const tsri_fast_part *p, int64_t at, int64_t n,
                       const float *operand, bool fixed)
{
    float *y = (float *)p->out[0] + at;
    tsri_fast_map map = {.out = y, .a = *operand};
    if (!k->map && fixed) {
        k->base.isa->fill(&map, 0, n);
        return;
    }
    if (!k->map) {
        memcpy(y, operand, (size_t)n * sizeof *y);
        return;
    }
    const float *other = (const float *)p->in[1 - k->which] + at;
    map.a = 0;
    map.x = k->which == 0 ? operand : other;
    map.y = k->which == 0 ? other : operand;
    map.fixed_x = fixed && k->which == 0;
    map.fixed_y = fixed && k->which == 1;
    k->map(&map, 0, n);
}

static void spread_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const spread *k = (const spread *)f;
    const float *operand = p->in[k->which];
    if (k->b == 1) {
        spread_run(k, p, p->begin, p->end - p->begin, operand, true);
        return;
    }
    const bool fixed = k->c > 1;
    const int64_t run = fixed ? k->c : k->b;
    for (int64_t r = p->begin / run; r < p->end / run; r++)
        spread_run(k, p, r * run, run, operand + (fixed ? r % k->b : 0), fixed);
}

/* Sets a, b and c; false where the operand broadcasts along an axis between others, or along none.
 */
static bool read_sizes(const tsri_arg *u, const tsri_arg *y, spread *k)
{
    k->a = k->b = k->c = 1;
    for (int i = 0; i < y->ndim; i++) {
        const int lead = y->ndim - u->ndim;
        const int64_t size = i < lead ? 1 : u->shape[i - lead];
        if (y->shape[i] == 1)
            continue;
        if (size == 1) {
            *(k->b > 1 ? &k->c : &k->a) *= y->shape[i];
        } else {
            if (k->c > 1)
                return false;
            k->b *= size;
        }
    }
    if (k->b == 1) { /* a single number */
        k->c = k->a;
        k->a = 1;
    }
    return k->a > 1 || k->c > 1;
}

tsr_status tsri_fast_spread(tsri_mem *mem, const tsri_kernel_desc *d, tsri_fast_map_fn *map,
                            tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    const int64_t count = tsri_arg_count(y);
    spread sizes = {.map = map};
    for (int i = 0; i < d->nin; i++)
        if (tsri_arg_count(&d->in[i]) != count)
            sizes.which = i;
    if (!tsri_fast_is_plain(d) || d->nin != (map ? 2 : 1) ||
        !read_sizes(&d->in[sizes.which], y, &sizes) ||
        (map && !tsri_fast_alike(&d->in[1 - sizes.which], y)))
        return tsri_fast_decline(d);
    spread *k = tsri_fast_make(mem, d, spread_part, sizeof *k, count, count);
    TSRI_NEED(k);
    sizes.base = k->base;
    *k = sizes;
    k->base.unit = k->b == 1 ? 1 : k->c > 1 ? k->c : k->b;
    const bool walked = k->a == 1 && k->b > 1;
    const uint32_t other = map ? 1u << (1 - k->which) : 0;
    tsri_fast_walks(&k->base, other | (walked ? 1u << k->which : 0), 1, false);
    k->base.pieces.units = k->b == 1 ? 0 : walked ? k->b : k->a;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_expand(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return d->threads ? tsri_fast_spread(mem, d, NULL, out_kernel)
                      : tsri_fast_copy(mem, d, out_kernel);
}
