/* SPDX-License-Identifier: Apache-2.0 */
/* linear and its gradients, on row-major operands; 1x1 convolutions are of these too. */
#include "kernels/cpu/fast/gemm16.h"

#include <string.h>

typedef struct product {
    tsri_fast base;
    tsri_fast_gemm gemm;
    bool swap, bias; /* swap: a is operand 1, b operand 0 */
    int b;           /* the operand that is b: the kept one, where b is packed */
} product;

static tsr_status product_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    const product *p = (const product *)k;
    const tsri_fast_ending ending = {&p->base, in};
    tsri_fast_gemm gemm = p->gemm;
    gemm.ending = tsri_kernel_has_end(&ending.kernel->ends) ? &ending : NULL;
    tsri_fast_gemm_run(&gemm, in[p->swap], in[p->b], p->bias ? in[2] : NULL, out[0], scratch);
    return TSR_OK;
}

static tsr_status product_run_into(const tsri_kernel *k, void *const *in, void *const *out,
                                   void *scratch, const tsri_kernel_sink *sink)
{
    const product *p = (const product *)k;
    (void)out;
    tsri_fast_outer_run(&p->gemm, in[p->swap], in[p->b], NULL, scratch, sink);
    return TSR_OK;
}

/* --- packed weights --------------------------------------------------------------------------- */
static void keep_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    tsri_fast_gemm_pack(&k->gemm, p->index, f->threads, p->in[1], p->out[0]);
}

static tsr_status keep_weights(const tsri_kernel *kernel, void *const *in, void *kept,
                               void *scratch)
{
    product packs = *(const product *)kernel;
    packs.base.begin = packs.base.end = NULL;
    packs.base.part = keep_part;
    return tsri_fast_run(&packs.base.base, in, &kept, scratch);
}

/* --- piece by piece --------------------------------------------------------------------------- */
static void pack_begin(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    if (!k->gemm.packed)
        tsri_fast_gemm_pack(&k->gemm, p->index, f->threads, p->in[1], p->scratch);
}

static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    const tsri_fast_ending ending = {&k->base, p->in};
    tsri_fast_gemm gemm = k->gemm;
    gemm.ending = tsri_kernel_has_end(&ending.kernel->ends) ? &ending : NULL;
    tsri_fast_gemm_rows(&gemm, p->end, p->in[0], k->gemm.packed ? p->in[k->b] : p->scratch,
                        k->bias ? p->in[2] : NULL, p->out[0], p->ahead);
}

/* A thread's sums over rows of dy^T x: of `block` those that wait to join `sum`, where there are
 * more than TSRI_FAST_TA_LONG terms in all; otherwise everything is in `sum`. */
typedef struct sums {
    int64_t terms; /* in `block`, or in `sum` where that is alone */
    bool any;      /* `sum` holds something */
    void *sum, *block;
} sums;

/* Returns the bytes of so many elements. */
static size_t bytes_of(const product *k, int64_t elements)
{
    return (size_t)elements * (size_t)k->gemm.loops->size;
}

static bool is_long(const product *k)
{
    return k->gemm.k > TSRI_FAST_TA_LONG;
}

static size_t sums_bytes(const product *k)
{
    return tsri_fast_align(sizeof(sums)) + k->gemm.part_bytes * (is_long(k) ? 2 : 1);
}

static sums *sums_of(const product *k, void *scratch, int thread)
{
    return (sums *)(void *)((char *)scratch + (size_t)thread * sums_bytes(k));
}

/* The first thread sums into the result itself. */
static void sums_begin(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    sums *s = sums_of(k, p->scratch, p->index);
    char *own = (char *)s + tsri_fast_align(sizeof *s);
    *s = (sums){.sum = p->index ? own : p->out[0], .block = own + k->gemm.part_bytes};
}

static void join_block(const product *k, sums *s)
{
    if (s->any)
        tsri_fast_gemm_add(&k->gemm, s->block, s->sum, 0, k->gemm.m);
    else
        memcpy(s->sum, s->block, bytes_of(k, k->gemm.m * k->gemm.n));
    s->any = true;
    s->terms = 0;
}

static void sums_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    sums *s = sums_of(k, p->scratch, p->index);
    tsri_fast_gemm_ta(&k->gemm, 0, p->end, 0, k->gemm.m, p->in[1], p->in[0],
                      is_long(k) ? s->block : s->sum, s->terms > 0, p->ahead);
    s->terms += p->end;
    if (!is_long(k))
        s->any = true;
    else if (s->terms >= TSRI_FAST_TA_LONG)
        join_block(k, s);
}

/* Rows [m0, m1) of the result: from the first list of sums that holds any, then all others. */
static void add_sums(const product *k, const void *from, void *c, int64_t m0, int64_t m1, bool *any)
{
    const int64_t n = k->gemm.n;
    if (*any)
        tsri_fast_gemm_add(&k->gemm, from, c, m0, m1);
    else if (from != c)
        memcpy(tsri_fast_gemm_to(&k->gemm, c, m0 * n), tsri_fast_gemm_at(&k->gemm, from, m0 * n),
               bytes_of(k, (m1 - m0) * n));
    *any = true;
}

static void sums_end(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    const int64_t m0 = tsri_fast_cut(k->gemm.m, f->threads, p->index, 8);
    const int64_t m1 = tsri_fast_cut(k->gemm.m, f->threads, p->index + 1, 8);
    void *c = p->out[0];
    bool any = false;
    for (int t = 0; t < f->threads; t++) {
        const sums *s = sums_of(k, p->scratch, t);
        if (s->any)
            add_sums(k, s->sum, c, m0, m1, &any);
        if (is_long(k) && s->terms)
            add_sums(k, s->block, c, m0, m1, &any);
    }
    if (!any)
        memset(tsri_fast_gemm_to(&k->gemm, c, m0 * k->gemm.n), 0,
               bytes_of(k, (m1 - m0) * k->gemm.n));
}

static void walk(product *p)
{
    size_t bytes;
    if (p->gemm.ta) {
        p->base.begin = sums_begin;
        p->base.part = sums_part;
        p->base.end = sums_end;
        tsri_fast_walks(&p->base, 3, 0, false);
        bytes = (size_t)p->base.threads * sums_bytes(p);
    } else {
        p->base.begin = pack_begin;
        p->base.part = rows_part;
        tsri_fast_walks(&p->base, 1, 1, false);
        bytes = p->gemm.packed ? 0 : bytes_of(p, tsri_fast_packed(&p->gemm));
    }
    if (bytes > p->base.base.scratch_bytes)
        p->base.base.scratch_bytes = bytes;
}

tsr_status tsri_fast_product(tsri_mem *mem, const tsri_kernel_desc *desc, int64_t rows, int64_t out,
                             int64_t in, tsri_kernel **out_kernel)
{
    if (desc->in[0].dtype == TSR_BF16)
        return tsri_fast_product16(mem, desc, rows, out, in, out_kernel);
    product *p = tsri_fast_make(mem, desc, NULL, sizeof *p, 0, rows);
    TSRI_NEED(p);
    p->base.base.run = product_run;
    p->gemm = tsri_fast_gemm_linear(tsri_fast_loops_of(p->base.isa, desc->in[0].dtype), desc->op,
                                    rows, out, in);
    p->swap = p->gemm.ta; /* dw[out, in]: dy is its a, x its b */
    p->bias = desc->nin > 2;
    p->b = !p->swap;
    if (desc->fixed >> 1 & 1 && tsri_fast_gemm_keeps(&p->gemm)) {
        p->b = desc->nin;
        p->gemm.packed = true;
        p->base.base.keep = keep_weights;
        p->base.base.kept_bytes = bytes_of(p, tsri_fast_packed(&p->gemm));
    }
    tsri_fast_gemm_plan(&p->gemm, desc->threads);
    p->base.base.scratch_bytes = p->gemm.scratch_bytes;
    p->base.base.run_into = tsri_fast_outer_hands_on(&p->gemm) ? product_run_into : NULL;
    if (desc->threads) /* pieces' scratch may be large: only who asks for threads works so */
        walk(p);
    if (!p->gemm.ta && desc->in[0].dtype == TSR_F32)
        tsri_fast_takes_end(&p->base, desc, p->gemm.n);
    *out_kernel = &p->base.base;
    return TSR_OK;
}

/* x[..., in], w[out, in], b[out]? */
tsr_status tsri_fast_linear(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    if (!tsri_fast_is_plain_or_wide(desc) && !(tsri_fast_is_full(desc) && tsri_fast_takes16(desc)))
        return tsri_fast_decline(desc);
    const tsri_arg *w = desc->op == TSRI_OP_LINEAR_DW ? &desc->out[0] : &desc->in[1];
    const int64_t out = w->shape[0], in = w->shape[1];
    const int64_t rows = tsri_arg_count(&desc->in[0]) / (desc->op == TSRI_OP_LINEAR_DX ? out : in);
    return tsri_fast_product(mem, desc, rows, out, in, out_kernel);
}
