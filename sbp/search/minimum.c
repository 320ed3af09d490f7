/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/minimum.h"

#include <stdbool.h>
#include <string.h>

typedef void block_fn(const tsri_minimum *m, double *out);

static void min_columns(const tsri_minimum *m, int64_t from, double *out)
{
    for (int64_t j = from; j < m->block; j++)
        for (int s = 0; s < m->k; s++) {
            double x = m->rows[0].at[s * m->rows[0].row + j];
            for (int i = 1; i < m->nrows; i++)
                x += m->rows[i].at[s * m->rows[i].row + j];
            x += m->sums[s];
            if (s == 0 || x < out[j]) {
                out[j] = x;
                m->arg[j] = s;
            }
        }
}

/* A block in vectors of `bytes`: what the compiler can't find itself is that minimum and argument
 * share one comparison. */
#define DEFINE_MIN_BLOCK(name, bytes)                                             \
    static void name(const tsri_minimum *m, double *out)                          \
    {                                                                             \
        typedef double lanes __attribute__((vector_size(bytes)));                 \
        typedef int64_t bits __attribute__((vector_size(bytes)));                 \
        enum { LANES = (bytes) / 8 };                                             \
        int64_t j = 0;                                                            \
        for (; j + LANES <= m->block; j += LANES) {                               \
            lanes best = {0}, x, y;                                               \
            bits arg = {0};                                                       \
            for (int s = 0; s < m->k; s++) {                                      \
                memcpy(&x, m->rows[0].at + s * m->rows[0].row + j, sizeof x);     \
                for (int i = 1; i < m->nrows; i++) {                              \
                    memcpy(&y, m->rows[i].at + s * m->rows[i].row + j, sizeof y); \
                    x += y;                                                       \
                }                                                                 \
                x += m->sums[s];                                                  \
                if (s == 0) {                                                     \
                    best = x;                                                     \
                    continue;                                                     \
                }                                                                 \
                bits take = x < best;                                             \
                best = (lanes)((take & (bits)x) | (~take & (bits)best));          \
                arg = (take & s) | (~take & arg);                                 \
            }                                                                     \
            memcpy(out + j, &best, sizeof best);                                  \
            memcpy(m->arg + j, &arg, sizeof arg);                                 \
        }                                                                         \
        min_columns(m, j, out);                                                   \
    }

DEFINE_MIN_BLOCK(min_block, 16)

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_WIDE
__attribute__((target("avx2"))) DEFINE_MIN_BLOCK(min_block_wide, 32)
#endif

    static block_fn *pick_block_fn(void)
{
#ifdef HAVE_WIDE
    if (__builtin_cpu_supports("avx2"))
        return min_block_wide;
#endif
    return min_block;
}

static void advance(tsri_minimum *m, int *index)
{
    for (int d = m->nouter - 1; d >= 0; d--) {
        int64_t step = 1;
        if (++index[d] == m->size[d]) {
            index[d] = 0;
            step = 1 - m->size[d];
        }
        for (int i = 0; i < m->nrows; i++)
            m->rows[i].at += step * m->rows[i].stride[d];
        for (int i = 0; i < m->nscalars; i++)
            m->scalars[i].at += step * m->scalars[i].stride[d];
        if (step == 1)
            return;
    }
}

void tsri_minimum_run(tsri_minimum *m, double *out, uint8_t *arg)
{
    int index[TSRI_MIN_VARS] = {0};
    int64_t count = 1;
    block_fn *block_min = pick_block_fn();
    for (int d = 0; d < m->nouter; d++)
        count *= m->size[d];
    for (int64_t o = 0; o < count; o++, out += m->block) {
        for (int s = 0; s < m->k; s++)
            m->sums[s] = m->cost ? m->cost[s] : 0.0;
        for (int i = 0; i < m->nscalars; i++)
            for (int s = 0; s < m->k; s++)
                m->sums[s] += m->scalars[i].at[s * m->scalars[i].row];
        block_min(m, out);
        for (int64_t j = 0; j < m->block && arg; j++)
            arg[o * m->block + j] = (uint8_t)m->arg[j];
        advance(m, index);
    }
}
