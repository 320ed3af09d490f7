/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/fast/fast.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { WORTH_A_TEAM = 16384 }; /* elements: a team costs about 2 us */

const tsri_fast_isa *tsri_fast_isa_best(void)
{
#ifdef TSRI_FAST_X86
    const char *limit = getenv("TESSERA_CPU_ISA");
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (limit && !strcmp(limit, "base"))
        return &tsri_fast_isa_base;
    if (avx512 && !(limit && !strcmp(limit, "avx2")))
        return &tsri_fast_isa_avx512;
    if (avx2)
        return &tsri_fast_isa_avx2;
#endif
    return &tsri_fast_isa_base;
}

static void fast_destroy(tsri_kernel *k)
{
    tsri_mem_free(k);
}

void *tsri_fast_make(tsri_mem *mem, tsri_fast_part_fn *part, size_t bytes, int64_t work,
                     int64_t items)
{
    tsri_fast *f = tsri_mem_alloc(mem, bytes);
    if (!f)
        return NULL;
    f->isa = tsri_fast_isa_best();
    f->threads = work < WORTH_A_TEAM ? 1 : omp_get_max_threads();
    f->items = items;
    f->unit = 1;
    f->part = part;
    f->base.run = tsri_fast_run;
    f->base.destroy = fast_destroy;
    f->base.impl = f->isa->impl;
    return f;
}

tsr_status tsri_fast_decline(const tsri_kernel_desc *desc)
{
    return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: the fast kernels do not take these operands",
                     tsri_op_name(desc->op));
}

void tsri_fast_team(int parts, void (*fn)(void *arg, int part), void *arg)
{
    if (parts == 1) {
        fn(arg, 0);
        return;
    }
    /* Always the whole team, though some may idle: libgomp allocates when the size changes. */
#pragma omp parallel for schedule(static)
    for (int i = 0; i < parts; i++)
        fn(arg, i);
}

int64_t tsri_fast_cut(int64_t n, int parts, int part, int64_t unit)
{
    int64_t units = (n + unit - 1) / unit, at = units * part / parts * unit;
    return at < n ? at : n;
}

typedef struct job {
    const tsri_fast *f;
    tsri_fast_part p;
} job;

static void run_part(void *arg, int part)
{
    const job *j = arg;
    const tsri_fast *f = j->f;
    tsri_fast_part p = j->p;
    p.index = part;
    p.begin = tsri_fast_cut(f->items, f->threads, part, f->unit);
    p.end = tsri_fast_cut(f->items, f->threads, part + 1, f->unit);
    f->part(f, &p);
}

tsr_status tsri_fast_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const tsri_fast *f = (const tsri_fast *)k;
    job j = {f, {.in = in, .out = out, .scratch = scratch}};
    tsri_fast_team(f->threads, run_part, &j);
    return TSR_OK;
}

bool tsri_fast_is_f32(const tsri_kernel_desc *desc)
{
    for (int i = 0; i < desc->nin; i++)
        if (desc->in[i].dtype != TSR_F32)
            return false;
    for (int i = 0; i < desc->nout; i++)
        if (desc->out[i].dtype != TSR_F32)
            return false;
    return true;
}

bool tsri_fast_is_full(const tsri_kernel_desc *desc)
{
    bool full = true;
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const tsri_arg *a = i < desc->nin ? &desc->in[i] : &desc->out[i - desc->nin];
        full = full && tsri_arg_count(a) && tsri_fast_is_row_major(a);
    }
    return full;
}

bool tsri_fast_is_plain(const tsri_kernel_desc *desc)
{
    return tsri_fast_is_f32(desc) && tsri_fast_is_full(desc);
}

bool tsri_fast_is_row_major(const tsri_arg *a)
{
    int64_t step = 1;
    for (int i = a->ndim - 1; i >= 0; step *= a->shape[i--])
        if (a->shape[i] != 1 && a->stride[i] != step)
            return false;
    return true;
}

bool tsri_fast_alike(const tsri_arg *a, const tsri_arg *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || (a->shape[i] != 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

bool tsri_fast_is_rows(const tsri_arg *a, int64_t *out_rows, int64_t *out_channels)
{
    if (a->ndim != 2 && a->ndim != 4)
        return false;
    int64_t count = tsri_arg_count(a), channels = a->shape[1];
    if (!count)
        return false;
    tsri_arg last = *a; /* the axes from the outermost */
    if (a->ndim == 4) {
        static const int axis[4] = {0, 2, 3, 1};
        for (int i = 0; i < 4; i++) {
            last.shape[i] = a->shape[axis[i]];
            last.stride[i] = a->stride[axis[i]];
        }
    }
    if (!tsri_fast_is_row_major(&last))
        return false;
    *out_rows = count / channels;
    *out_channels = channels;
    return true;
}
