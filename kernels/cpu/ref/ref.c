/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/ref/ref.h"

#include <stdio.h>
#include <string.h>

enum {
    CHUNK = 8192,       /* longest run handed to a row function: the unit that threads share */
    PARALLEL = 1 << 16, /* elements below which a team costs more than it brings */
};

static void move_axis(tsri_ref_iter *it, int to, int from)
{
    it->size[to] = it->size[from];
    for (int o = 0; o < it->nops; o++)
        it->stride[o][to] = it->stride[o][from];
}

static void swap_axes(tsri_ref_iter *it, int a, int b)
{
    int64_t t = it->size[a];
    it->size[a] = it->size[b];
    it->size[b] = t;
    for (int o = 0; o < it->nops; o++) {
        t = it->stride[o][a];
        it->stride[o][a] = it->stride[o][b];
        it->stride[o][b] = t;
    }
}

static bool mergeable(const tsri_ref_iter *it, int outer, int inner)
{
    for (int o = 0; o < it->nops; o++)
        if (it->stride[o][outer] != it->stride[o][inner] * it->size[inner])
            return false;
    return true;
}

void tsri_ref_walk(tsri_ref_iter *it, int ndim, const int64_t *shape, int nops,
                   const int64_t *const *stride)
{
    *it = (tsri_ref_iter){.ndim = ndim, .nops = nops, .count = 1};
    for (int i = 0; i < ndim; i++)
        it->count *= it->size[i] = shape[i];
    for (int o = 0; o < nops; o++)
        memcpy(it->stride[o], stride[o], (size_t)ndim * sizeof *stride[o]);
    int n = 0;
    for (int i = 0; i < it->ndim; i++)
        if (it->size[i] != 1)
            move_axis(it, n++, i);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && it->stride[0][j - 1] < it->stride[0][j]; j--)
            swap_axes(it, j - 1, j);
    int last = 0;
    for (int i = 1; i < n; i++) {
        if (mergeable(it, last, i)) {
            int64_t size = it->size[last];
            move_axis(it, last, i);
            it->size[last] *= size;
        } else {
            move_axis(it, ++last, i);
        }
    }
    if (!n) { /* a scalar is a run of one */
        it->size[0] = 1;
        for (int o = 0; o < it->nops; o++)
            it->stride[o][0] = 1;
    }
    it->ndim = last + 1;
}

/* Runs n lines, the first being `row`, that follow each other along an axis. */
static void run_lines(const tsri_ref_iter *it, int axis, int64_t n, tsri_ref_row row,
                      tsri_ref_row_fn *fn, void *arg)
{
    for (int64_t i = 0; i < n; i++) {
        fn(arg, &row);
        for (int o = 0; o < it->nops; o++)
            row.off[o] += it->stride[o][axis];
    }
}

/* Runs items [item, end): pieces of the innermost axis, `pieces` of each of its lines. */
static void run_items(const tsri_ref_iter *it, int64_t item, int64_t end, int64_t pieces,
                      tsri_ref_row_fn *fn, void *arg)
{
    const int inner = it->ndim - 1;
    int64_t at[TSR_MAX_NDIM], line[TSRI_REF_OPS] = {0}, piece = item % pieces, rest = item / pieces;
    for (int i = inner - 1; i >= 0; rest /= it->size[i--]) {
        at[i] = rest % it->size[i];
        for (int o = 0; o < it->nops; o++)
            line[o] += at[i] * it->stride[o][i];
    }
    tsri_ref_row row;
    for (int o = 0; o < it->nops; o++)
        row.step[o] = it->stride[o][inner];
    for (int64_t n; item < end; item += n) {
        const int64_t begin = piece * CHUNK, left = it->size[inner] - begin;
        row.n = left < CHUNK ? left : CHUNK;
        for (int o = 0; o < it->nops; o++)
            row.off[o] = line[o] + begin * row.step[o];
        n = 1;
        if (pieces == 1 && inner > 0) { /* whole lines: all up to the end of the axis outside */
            const int64_t lines = it->size[inner - 1] - at[inner - 1];
            n = lines < end - item ? lines : end - item;
            run_lines(it, inner - 1, n, row, fn, arg);
        } else {
            fn(arg, &row);
        }
        if (++piece < pieces)
            continue;
        piece = 0;
        int64_t by = n;
        for (int i = inner - 1; i >= 0; i--, by = 1) {
            at[i] += by;
            const bool wraps = at[i] == it->size[i];
            for (int o = 0; o < it->nops; o++)
                line[o] += (by - (wraps ? at[i] : 0)) * it->stride[o][i];
            if (!wraps)
                break;
            at[i] = 0;
        }
    }
}

void tsri_ref_iter_run(const tsri_ref_iter *it, tsri_ref_row_fn *fn, void *arg, bool parallel)
{
    if (!it->count)
        return;
    const int64_t inner = it->size[it->ndim - 1];
    const int64_t pieces = (inner + CHUNK - 1) / CHUNK, items = it->count / inner * pieces;
    const bool wide = parallel && it->count >= PARALLEL;
    const int64_t parts = wide ? omp_get_max_threads() : 1;
    TSRI_REF_EACH(p, 0, parts, wide,
                  { run_items(it, items * p / parts, items * (p + 1) / parts, pieces, fn, arg); });
}

static void ref_destroy(tsri_kernel *k)
{
    tsri_mem_free(k);
}

void *tsri_ref_make(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_run_fn *run, size_t bytes)
{
    tsri_ref *ref = tsri_mem_alloc(mem, bytes);
    if (!ref)
        return NULL;
    ref->base.run = run;
    ref->base.destroy = ref_destroy;
    ref->base.impl = "ref";
    ref->desc = *desc;
    if (desc->attrs)
        ref->attrs = *desc->attrs;
    ref->desc.attrs = &ref->attrs;
    return ref;
}

tsr_status tsri_ref_create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_run_fn *run,
                           tsri_kernel **out_kernel)
{
    tsri_ref *ref = tsri_ref_make(mem, desc, run, sizeof *ref);
    TSRI_NEED(ref);
    *out_kernel = &ref->base;
    return TSR_OK;
}

static tsr_status rows_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const tsri_ref *ref = (const tsri_ref *)k;
    tsri_ref_job j = {ref, in, out, scratch};
    tsri_ref_iter_run(&ref->iter, ref->row, &j, !k->scratch_bytes);
    return TSR_OK;
}

void *tsri_ref_make_rows(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_row_fn *row,
                         size_t bytes)
{
    tsri_ref *ref = tsri_ref_make(mem, desc, rows_run, bytes);
    if (ref)
        ref->row = row;
    return ref;
}

tsr_status tsri_ref_create_rows(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_row_fn *row,
                                int nops, const int64_t *const *stride, tsri_kernel **out_kernel)
{
    tsri_ref *ref = tsri_ref_make_rows(mem, desc, row, sizeof *ref);
    TSRI_NEED(ref);
    tsri_ref_walk(&ref->iter, desc->out[0].ndim, desc->out[0].shape, nops, stride);
    *out_kernel = &ref->base;
    return TSR_OK;
}

void tsri_ref_walk_map(tsri_ref_iter *it, const tsri_kernel_desc *desc)
{
    const tsri_arg *y = &desc->out[0];
    int64_t stride[TSRI_KERNEL_MAX_ARGS][TSR_MAX_NDIM] = {{0}};
    const int64_t *ops[TSRI_REF_OPS] = {y->stride};
    for (int o = 0; o < desc->nin; o++) {
        const tsri_arg *x = &desc->in[o];
        for (int i = x->ndim - 1, at = y->ndim - 1; i >= 0 && at >= 0; i--, at--)
            stride[o][at] = x->shape[i] == 1 && y->shape[at] != 1 ? 0 : x->stride[i];
        ops[1 + o] = stride[o];
    }
    tsri_ref_walk(it, y->ndim, y->shape, 1 + desc->nin, ops);
}

tsr_status tsri_ref_create_map(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_row_fn *row,
                               tsri_kernel **out_kernel)
{
    tsri_ref *ref = tsri_ref_make_rows(mem, desc, row, sizeof *ref);
    TSRI_NEED(ref);
    tsri_ref_walk_map(&ref->iter, desc);
    *out_kernel = &ref->base;
    return TSR_OK;
}

bool tsri_ref_alike(const tsri_kernel_desc *desc, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (desc->in[i].dtype != desc->out[0].dtype)
            return false;
    return true;
}

bool tsri_ref_all_float(const tsri_kernel_desc *desc)
{
    bool all = tsri_ref_is_float(desc->out[0].dtype);
    for (int i = 0; i < desc->nin; i++)
        all = all && tsri_ref_is_float(desc->in[i].dtype);
    return all;
}

tsr_status tsri_ref_decline(const tsri_kernel_desc *desc)
{
    char types[128] = "";
    size_t n = 0;
    for (int i = 0; i < desc->nin + desc->nout && n < sizeof types; i++) {
        const tsri_arg *a = i < desc->nin ? &desc->in[i] : &desc->out[i - desc->nin];
        const char *sep = i == desc->nin ? " -> " : i ? "," : "";
        n += (size_t)snprintf(types + n, sizeof types - n, "%s%s", sep, tsr_dtype_name(a->dtype));
    }
    return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: the reference kernels do not take %s",
                     tsri_op_name(desc->op), types);
}

int64_t tsri_ref_offset(const tsri_arg *arg, int begin, int end, int64_t i)
{
    int64_t off = 0;
    for (int k = end - 1; k >= begin; k--) {
        off += i % arg->shape[k] * arg->stride[k];
        i /= arg->shape[k];
    }
    return off;
}

int64_t tsri_ref_global_index(const tsri_arg *arg, int64_t stride[TSR_MAX_NDIM])
{
    int64_t step = 1, begin = 0;
    for (int i = arg->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        begin += arg->offset[i] * step;
        step *= arg->gshape[i];
    }
    return begin;
}

/* --- moving elements by their size ------------------------------------------------------------ */
#define MOVE(T)                                     \
    do {                                            \
        const T *x = (const T *)(const void *)from; \
        T *y = (T *)(void *)to;                     \
        for (int64_t i = 0; i < n; i++)             \
            y[i * sy] = x[i * sx];                  \
    } while (0)

void tsri_ref_move(size_t size, char *to, int64_t sy, const char *from, int64_t sx, int64_t n)
{
    if (sx == 1 && sy == 1) {
        memmove(to, from, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        MOVE(uint8_t);
        break;
    case 2:
        MOVE(uint16_t);
        break;
    case 4:
        MOVE(uint32_t);
        break;
    default:
        MOVE(uint64_t);
    }
}

void tsri_ref_move_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_moved *m = arg;
    const int64_t size = (int64_t)m->size;
    tsri_ref_move(m->size, m->to + r->off[0] * size, r->step[0], m->from + r->off[1] * size,
                  r->step[1], r->n);
}
