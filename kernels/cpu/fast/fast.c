/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/fast/fast.h"

#include <omp.h>
#include <string.h>

#include "src/core/cpu.h"

enum { WORTH_A_TEAM = 16384 }; /* elements: a team costs about 2 us */

const tsri_fast_isa *tsri_fast_isa_best(void)
{
    switch (tsri_cpu_best()) {
#ifdef TSRI_FAST_X86
    case TSRI_CPU_AVX512:
        return &tsri_fast_isa_avx512;
    case TSRI_CPU_AVX2:
        return &tsri_fast_isa_avx2;
#endif
    default:
        return &tsri_fast_isa_base;
    }
}

static void fast_destroy(tsri_kernel *k)
{
    tsri_mem_free(k);
}

void *tsri_fast_make(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_fast_part_fn *part,
                     size_t bytes, int64_t work, int64_t items)
{
    tsri_fast *f = tsri_mem_alloc(mem, bytes);
    if (!f)
        return NULL;
    f->isa = tsri_fast_isa_best();
    f->threads = desc->threads ? desc->threads : work < WORTH_A_TEAM ? 1 : omp_get_max_threads();
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

int64_t tsri_fast_cut(int64_t n, int parts, int part, int64_t unit)
{
    int64_t units = (n + unit - 1) / unit, at = units * part / parts * unit;
    return at < n ? at : n;
}

/* The part of thread `index` when the whole is done at once. */
static tsri_fast_part whole_part(const tsri_fast *f, int index, void *const *in, void *const *out,
                                 void *scratch)
{
    return (tsri_fast_part){.index = index,
                            .begin = tsri_fast_cut(f->items, f->threads, index, f->unit),
                            .end = tsri_fast_cut(f->items, f->threads, index + 1, f->unit),
                            .total = f->total ? f->total : f->items,
                            .in = in,
                            .out = out,
                            .scratch = scratch};
}

typedef struct job {
    const tsri_fast *f;
    tsri_fast_part_fn *fn;
    void *const *in, *const *out;
    void *scratch;
} job;

static void run_part(void *arg, int part)
{
    const job *j = arg;
    const tsri_fast_part p = whole_part(j->f, part, j->in, j->out, j->scratch);
    j->fn(j->f, &p);
}

tsr_status tsri_fast_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const tsri_fast *f = (const tsri_fast *)k;
    tsri_fast_part_fn *const phases[] = {f->begin, f->part, f->end};
    for (int i = 0; i < 3; i++) {
        job j = {f, phases[i], in, out, scratch};
        if (phases[i])
            tsri_team(f->threads, run_part, &j);
    }
    return TSR_OK;
}

static void begin_pieces(const tsri_kernel *k, const tsri_kernel_piece *p)
{
    const tsri_fast *f = (const tsri_fast *)k;
    const tsri_fast_part part = whole_part(f, p->thread, p->in, p->out, p->scratch);
    f->begin(f, &part);
}

static void end_pieces(const tsri_kernel *k, const tsri_kernel_piece *p)
{
    const tsri_fast *f = (const tsri_fast *)k;
    const tsri_fast_part part = whole_part(f, p->thread, p->in, p->out, p->scratch);
    f->end(f, &part);
}

static void do_piece(const tsri_kernel *k, const tsri_kernel_piece *p)
{
    const tsri_fast *f = (const tsri_fast *)k;
    const int64_t per_item = f->total ? f->per_item : 1;
    const int64_t total = (f->total ? f->total : f->items) / p->units * p->n;
    const tsri_fast_part part = {.index = p->thread,
                                 .end = (total + per_item - 1) / per_item,
                                 .total = total,
                                 .in = p->in,
                                 .out = p->out,
                                 .scratch = p->scratch,
                                 .ahead = p->ahead};
    f->part(f, &part);
}

void tsri_fast_walks(tsri_fast *f, uint32_t in, uint32_t out, bool images)
{
    f->pieces = (tsri_kernel_pieces){.in = in,
                                     .out = out,
                                     .images = images,
                                     .begin = f->begin ? begin_pieces : NULL,
                                     .piece = do_piece,
                                     .end = f->end ? end_pieces : NULL};
    f->base.pieces = &f->pieces;
}

void tsri_fast_takes_end(tsri_fast *f, const tsri_kernel_desc *desc, int64_t columns)
{
    f->ends = desc->end;
    f->ends_at = desc->nin;
    f->ends_columns = columns;
    f->ends_rows = tsri_arg_count(&desc->out[0]) / columns;
    /* A power is another loop for some exponents. */
    f->base.takes_end =
        !desc->end.acts || (desc->end.fn != TSRI_UNARY_POW && f->isa->unary[desc->end.fn] != NULL);
    if (desc->end.adds)
        f->pieces.in |= 1u << (desc->nin + TSRI_END_ADD);
}

bool tsri_fast_tiles_end(const tsri_fast *f)
{
    const tsri_kernel_end *e = &f->ends;
    return !e->acts || e->fn == TSRI_UNARY_RELU || e->fn == TSRI_UNARY_RELU6;
}

tsri_fast_end tsri_fast_end_of(const tsri_fast *f, void *const *in, int64_t row, int64_t column)
{
    const tsri_kernel_end *e = &f->ends;
    void *const *own = in + f->ends_at;
    tsri_fast_end end = {0};
    if (e->acts && tsri_fast_tiles_end(f))
        end.relu = e->fn == TSRI_UNARY_RELU6 ? 6 : 1;
    if (e->scales) {
        end.scale = (const float *)own[TSRI_END_SCALE] + column;
        end.shift = (const float *)own[TSRI_END_SHIFT] + column;
    }
    if (e->adds)
        end.add = (const float *)own[TSRI_END_ADD] + row * f->ends_columns + column;
    return end;
}

void tsri_fast_end_rows(const tsri_fast *f, void *const *in, float *y, int64_t row, int64_t rows,
                        int64_t c0, int64_t c1)
{
    const tsri_kernel_end *e = &f->ends;
    if (!tsri_kernel_has_end(e) || rows <= 0 || c0 >= c1)
        return;
    const int64_t pitch = f->ends_columns;
    const bool whole = c0 == 0 && c1 == pitch;
    const tsri_fast_end end = tsri_fast_end_of(f, in, row, c0);
    y += row * pitch + c0;
    if (end.scale || end.add || end.relu)
        f->isa->end(&end, y, pitch, rows, c1 - c0);
    for (int64_t r = 0; r < (tsri_fast_tiles_end(f) ? 0 : whole ? 1 : rows); r++) {
        float *to = y + r * pitch;
        const tsri_fast_map map = {.x = to, .out = to, .a = (float)e->a, .b = (float)e->b};
        f->isa->unary[e->fn](&map, 0, whole ? rows * pitch : c1 - c0);
    }
}

/* Whether all operands and results are of `dtype`. */
static bool is_of(const tsri_kernel_desc *desc, tsr_dtype dtype)
{
    for (int i = 0; i < desc->nin; i++)
        if (desc->in[i].dtype != dtype)
            return false;
    for (int i = 0; i < desc->nout; i++)
        if (desc->out[i].dtype != dtype)
            return false;
    return true;
}

bool tsri_fast_is_f32(const tsri_kernel_desc *desc)
{
    return is_of(desc, TSR_F32);
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

bool tsri_fast_is_plain_or_wide(const tsri_kernel_desc *desc)
{
    return tsri_fast_is_plain(desc) || (is_of(desc, TSR_F64) && tsri_fast_is_full(desc));
}

const tsri_fast_loops *tsri_fast_loops_of(const tsri_fast_isa *isa, tsr_dtype dtype)
{
    return dtype == TSR_F64 ? &isa->f64 : &isa->f32;
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
