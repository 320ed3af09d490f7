/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix product under matmul, linear and the convolutions. Blocks of both operands are packed
 * into f64 panels of four rows, whatever their dtype, strides or windows (a convolution gathers its
 * patches here, so no im2col buffer exists), and a 4x4 register tile runs over the panels. A block
 * of c is finished by one thread, in the order of k: results do not depend on the team.
 */
#include "kernels/cpu/ref/ref.h"

#include <omp.h>
#include <string.h>

enum { TILE = 4, MC = 64, NC = 192, KC = 192 };

/* Where the elements of a block of one index are. */
typedef struct places {
    int64_t off[NC], h[NC], w[NC];
} places;

typedef double v2 __attribute__((vector_size(16), may_alias));

void tsri_ref_index_add(tsri_ref_index *index, int64_t size, int64_t stride, int64_t h, int64_t w)
{
    int i = index->ndim++;
    index->count = (i ? index->count : 1) * size;
    index->size[i] = size;
    index->stride[i] = stride;
    index->h[i] = h;
    index->w[i] = w;
}

void tsri_ref_matrix_unwindow(tsri_ref_matrix *matrix)
{
    tsri_ref_index *both[2] = {&matrix->row, &matrix->col};
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < both[b]->ndim; i++)
            both[b]->stride[i] +=
                both[b]->h[i] * matrix->stride[0] + both[b]->w[i] * matrix->stride[1];
    matrix->window = false;
}

static void find_places(const tsri_ref_index *index, int64_t begin, int64_t n, places *out)
{
    int64_t at[TSR_MAX_NDIM], off = 0, h = index->h0, w = index->w0;
    for (int i = index->ndim - 1; i >= 0; i--) {
        at[i] = begin % index->size[i];
        begin /= index->size[i];
        off += at[i] * index->stride[i];
        h += at[i] * index->h[i];
        w += at[i] * index->w[i];
    }
    for (int64_t j = 0; j < n; j++) {
        out->off[j] = off;
        out->h[j] = h;
        out->w[j] = w;
        for (int i = index->ndim - 1; i >= 0; i--) {
            off += index->stride[i];
            h += index->h[i];
            w += index->w[i];
            if (++at[i] < index->size[i])
                break;
            off -= at[i] * index->stride[i];
            h -= at[i] * index->h[i];
            w -= at[i] * index->w[i];
            at[i] = 0;
        }
    }
}

/* The offset of a windowed element, or -1 where it is 0. */
static inline int64_t windowed(const tsri_ref_matrix *m, const places *row, int64_t r,
                               const places *col, int64_t c)
{
    int64_t h = row->h[r] + col->h[c], w = row->w[r] + col->w[c];
    if (h < 0 || w < 0)
        return -1;
    if (m->div[0] != 1 || m->div[1] != 1) {
        if (h % m->div[0] || w % m->div[1])
            return -1;
        h /= m->div[0];
        w /= m->div[1];
    }
    if (h >= m->size[0] || w >= m->size[1])
        return -1;
    return row->off[r] + col->off[c] + h * m->stride[0] + w * m->stride[1];
}

/* dst[panel][col][4]: rows that a last panel lacks are 0. */
#define PACK(T, name)                                                                     \
    static void name(const tsri_ref_matrix *m, const T *p, const places *row, int64_t nr, \
                     const places *col, int64_t nc, double *dst)                          \
    {                                                                                     \
        for (int64_t r = 0; r < nr; r += TILE, dst += nc * TILE) {                        \
            int64_t rows = nr - r < TILE ? nr - r : TILE;                                 \
            if (rows == TILE && !m->window) {                                             \
                const T *p0 = p + row->off[r], *p1 = p + row->off[r + 1];                 \
                const T *p2 = p + row->off[r + 2], *p3 = p + row->off[r + 3];             \
                for (int64_t c = 0; c < nc; c++) {                                        \
                    int64_t o = col->off[c];                                              \
                    dst[c * TILE] = (double)p0[o];                                        \
                    dst[c * TILE + 1] = (double)p1[o];                                    \
                    dst[c * TILE + 2] = (double)p2[o];                                    \
                    dst[c * TILE + 3] = (double)p3[o];                                    \
                }                                                                         \
                continue;                                                                 \
            }                                                                             \
            for (int64_t c = 0; c < nc; c++)                                              \
                for (int64_t i = 0; i < TILE; i++) {                                      \
                    int64_t o = i >= rows   ? -1                                          \
                                : m->window ? windowed(m, row, r + i, col, c)             \
                                            : row->off[r + i] + col->off[c];              \
                    dst[c * TILE + i] = o < 0 ? 0.0 : (double)p[o];                       \
                }                                                                         \
        }                                                                                 \
    }
PACK(float, pack_f32)
PACK(double, pack_f64)

static void pack(const tsri_ref_matrix *m, const void *p, const places *row, int64_t nr,
                 const places *col, int64_t nc, double *dst)
{
    if (m->dtype == TSR_F32)
        pack_f32(m, p, row, nr, col, nc, dst);
    else
        pack_f64(m, p, row, nr, col, nc, dst);
}

/* c[4][ldc] += a b over one panel of each. */
static void tile(int64_t k, const double *a, const double *b, double *c, int64_t ldc)
{
    v2 s[TILE][2] = {{{0}}};
    for (int64_t j = 0; j < k; j++, a += TILE, b += TILE) {
        const v2 b0 = *(const v2 *)b, b1 = *(const v2 *)(b + 2);
        for (int i = 0; i < TILE; i++) {
            const v2 x = {a[i], a[i]};
            s[i][0] += x * b0;
            s[i][1] += x * b1;
        }
    }
    for (int i = 0; i < TILE; i++) {
        *(v2 *)(c + i * ldc) += s[i][0];
        *(v2 *)(c + i * ldc + 2) += s[i][1];
    }
}

static void store_block(const tsri_ref_gemm *g, const places *row, int64_t nr, const places *col,
                        int64_t nc, const double *add, const double *acc, void *c)
{
    for (int64_t i = 0; i < nr; i++, acc += NC) {
        if (g->c.dtype == TSR_F32) {
            float *y = (float *)c + row->off[i];
            for (int64_t j = 0; j < nc; j++)
                y[col->off[j]] = (float)(acc[j] + add[j]);
        } else {
            double *y = (double *)c + row->off[i];
            for (int64_t j = 0; j < nc; j++)
                y[col->off[j]] = acc[j] + add[j];
        }
    }
}

/* Where product i of an operand begins; NULL if it has no element, when it is not read. */
static void *product_of(const tsri_ref_matrix *m, void *p, int64_t i)
{
    int64_t off = 0;
    for (int k = m->batch.ndim - 1; k >= 0; k--) {
        off += i % m->batch.size[k] * m->batch.stride[k];
        i /= m->batch.size[k];
    }
    return p ? (char *)p + off * (int64_t)tsr_dtype_size(m->dtype) : NULL;
}

/* The block of c at row m0, column n0 of product i. */
static void block(const tsri_ref_gemm *g, int64_t i, int64_t m0, int64_t n0, void *const *in,
                  void *const *out, double *scratch)
{
    const tsri_kernel_desc *d = &g->ref.desc;
    const void *a = product_of(&g->a, in[g->a.operand], i);
    const void *b = product_of(&g->b, in[g->b.operand], i);
    double add[NC] = {0};
    double *pa = scratch, *pb = pa + MC * KC, *acc = pb + NC * KC;
    int64_t m = g->c.row.count - m0 < MC ? g->c.row.count - m0 : MC;
    int64_t n = g->c.col.count - n0 < NC ? g->c.col.count - n0 : NC, depth = g->a.col.count;
    places row, col, k;
    memset(acc, 0, MC * NC * sizeof *acc);
    for (int64_t k0 = 0; k0 < depth; k0 += KC) {
        int64_t kc = depth - k0 < KC ? depth - k0 : KC;
        find_places(&g->a.row, m0, m, &row);
        find_places(&g->a.col, k0, kc, &k);
        pack(&g->a, a, &row, m, &k, kc, pa);
        find_places(&g->b.row, n0, n, &col);
        find_places(&g->b.col, k0, kc, &k);
        pack(&g->b, b, &col, n, &k, kc, pb);
        for (int64_t j = 0; j < n; j += TILE)
            for (int64_t r = 0; r < m; r += TILE)
                tile(kc, pa + r * kc, pb + j * kc, acc + r * NC + j, NC);
    }
    find_places(&g->c.row, m0, m, &row);
    find_places(&g->c.col, n0, n, &col);
    for (int64_t j = 0; d->nin > 2 && j < n; j++)
        add[j] = tsri_ref_load(d->in[2].dtype, in[2], i * g->c.col.count + n0 + j);
    store_block(g, &row, m, &col, n, add, acc, product_of(&g->c, out[0], i));
}

static tsr_status gemm_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const tsri_ref_gemm *g = (const tsri_ref_gemm *)k;
    const int64_t nb = (g->c.col.count + NC - 1) / NC, each = MC * KC + NC * KC + MC * NC;
    const int64_t n = (g->c.row.count + MC - 1) / MC * nb, all = n * g->c.batch.count;
    if (g->threads <= 1) { /* libgomp would allocate for a team of one */
        for (int64_t i = 0; i < all; i++)
            block(g, i / n, i % n / nb * MC, i % nb * NC, in, out, scratch);
        return TSR_OK;
    }
#pragma omp parallel for schedule(static) num_threads(g->threads)
    for (int64_t i = 0; i < all; i++)
        block(g, i / n, i % n / nb * MC, i % nb * NC, in, out,
              (double *)scratch + omp_get_thread_num() * each);
    return TSR_OK;
}

tsr_status tsri_ref_gemm_make(tsri_mem *mem, const tsri_kernel_desc *d, int a, int b,
                              tsri_ref_gemm **out_gemm)
{
    if (!tsri_ref_all_float(d))
        return tsri_ref_decline(d);
    tsri_ref_gemm *g = tsri_ref_make(mem, d, gemm_run, sizeof *g);
    TSRI_NEED(g);
    g->a.operand = a;
    g->b.operand = b;
    g->a.dtype = d->in[a].dtype;
    g->b.dtype = d->in[b].dtype;
    g->c.dtype = d->out[0].dtype;
    g->c.batch.count = 1;
    *out_gemm = g;
    return TSR_OK;
}

tsr_status tsri_ref_gemm_finish(tsri_ref_gemm *g, tsri_kernel **out_kernel)
{
    double work = (double)g->c.row.count * (double)g->c.col.count * (double)g->a.col.count;
    g->threads = work * (double)g->c.batch.count > 1e6 ? omp_get_max_threads() : 1;
    g->ref.base.scratch_bytes = (size_t)g->threads * (MC * KC + NC * KC + MC * NC) * sizeof(double);
    *out_kernel = &g->ref.base;
    return TSR_OK;
}
