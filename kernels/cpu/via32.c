/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op on halves: a kernel of the same op on f32, between conversions of the operands and
 * results that are halves. An op whose elements do not see each other goes in pieces that stay in a
 * core's first-level cache, with a kernel of a piece; another op's operands are converted as a
 * whole, into scratch.
 */
#include "kernels/cpu/fast/half.h"

#include <omp.h>

enum {
    PIECE = 2048,           /* elements of an element-wise piece */
    WORTH_A_TEAM = 1 << 15, /* elements to convert */
};

typedef struct operand {
    tsr_dtype half; /* NONE: the f32 kernel takes the buffer itself */
    tsri_widen_fn *widen;
    tsri_narrow_fn *narrow;
    size_t size;   /* of an element of the buffer */
    int64_t step;  /* elements from one item to the next; 0: every piece gets all of it */
    int64_t count; /* elements of the buffer */
    size_t at;     /* where its f32 form is: in a part's scratch, or among what parts share */
    int same;      /* a result: the operand whose buffer it is, or -1 */
} operand;

/* The work is `items`, of which a piece has `piece` and the last one what is left. */
typedef struct via32 {
    tsri_kernel base;
    tsri_kernel *body, *tail; /* of a piece, and of the last where that is shorter */
    int nin, nout, threads;
    int64_t items, piece;
    size_t shared_bytes, part_bytes, inner_at;
    operand in[TSRI_KERNEL_MAX_ARGS], out[TSRI_KERNEL_MAX_ARGS];
} via32;

typedef struct job {
    const via32 *k;
    void *const *in, *const *out;
    char *scratch;
    tsr_status *status; /* of each part */
} job;

static char *element(void *buffer, size_t size, int64_t i)
{
    return buffer ? (char *)buffer + (size_t)i * size : NULL;
}

/* --- whole operands -----------------------------------------------------------------------------
 */

typedef struct conversion {
    const operand *o;
    void *half;
    float *wide;
    bool narrow;
    int threads;
} conversion;

static void convert_part(void *arg, int part)
{
    const conversion *c = arg;
    const int64_t begin = tsri_fast_cut(c->o->count, c->threads, part, 64);
    const int64_t n = tsri_fast_cut(c->o->count, c->threads, part + 1, 64) - begin;
    if (c->narrow)
        c->o->narrow(c->wide + begin, (uint16_t *)c->half + begin, n);
    else
        c->o->widen((const uint16_t *)c->half + begin, c->wide + begin, n);
}

static void convert_all(const via32 *k, const operand *o, void *half, void *wide, bool narrow)
{
    conversion c = {o, half, wide, narrow, o->count < WORTH_A_TEAM ? 1 : k->threads};
    if (o->count)
        tsri_fast_team(c.threads, convert_part, &c);
}

static void *whole(const operand *o, char *scratch, void *buffer)
{
    return !o->half ? buffer : o->count ? scratch + o->at : NULL;
}

static tsr_status run_whole(const tsri_kernel *kernel, void *const *in, void *const *out,
                            void *scratch)
{
    const via32 *k = (const via32 *)kernel;
    void *x[TSRI_KERNEL_MAX_ARGS] = {0}, *y[TSRI_KERNEL_MAX_ARGS] = {0};
    for (int i = 0; i < k->nin; i++) {
        x[i] = whole(&k->in[i], scratch, in[i]);
        if (k->in[i].half)
            convert_all(k, &k->in[i], in[i], x[i], false);
    }
    for (int i = 0; i < k->nout; i++)
        y[i] = whole(&k->out[i], scratch, out[i]);
    TSRI_TRY(k->body->run(k->body, x, y, (char *)scratch + k->inner_at));
    for (int i = 0; i < k->nout; i++)
        if (k->out[i].half)
            convert_all(k, &k->out[i], out[i], y[i], true);
    return TSR_OK;
}

/* --- in pieces ----------------------------------------------------------------------------------
 */

/* Where a piece of n items from `begin` on is, for the f32 kernel. */
static void *piece_of(const job *j, const operand *o, char *own, void *buffer, int64_t begin)
{
    if (!o->half)
        return element(buffer, o->size, begin * o->step);
    return (o->step ? own : j->scratch) + o->at;
}

static tsr_status run_piece(const job *j, char *own, int64_t begin, int64_t n)
{
    const via32 *k = j->k;
    const tsri_kernel *kernel = n == k->piece ? k->body : k->tail;
    void *x[TSRI_KERNEL_MAX_ARGS] = {0}, *y[TSRI_KERNEL_MAX_ARGS] = {0};
    for (int i = 0; i < k->nin; i++) {
        const operand *o = &k->in[i];
        x[i] = piece_of(j, o, own, j->in[i], begin);
        if (o->half && o->step)
            o->widen((const uint16_t *)j->in[i] + begin * o->step, x[i], n * o->step);
    }
    for (int i = 0; i < k->nout; i++)
        y[i] = piece_of(j, &k->out[i], own, j->out[i], begin);
    TSRI_TRY(kernel->run(kernel, x, y, own + k->inner_at));
    for (int i = 0; i < k->nout; i++) {
        const operand *o = &k->out[i];
        if (o->half)
            o->narrow(y[i], (uint16_t *)j->out[i] + begin * o->step, n * o->step);
    }
    return TSR_OK;
}

static void run_part(void *arg, int part)
{
    const job *j = arg;
    const via32 *k = j->k;
    char *own = j->scratch + k->shared_bytes + (size_t)part * k->part_bytes;
    const int64_t end = tsri_fast_cut(k->items, k->threads, part + 1, k->piece);
    for (int64_t i = tsri_fast_cut(k->items, k->threads, part, k->piece); i < end; i += k->piece) {
        const tsr_status s = run_piece(j, own, i, end - i < k->piece ? end - i : k->piece);
        if (s != TSR_OK)
            __atomic_store_n(j->status, s, __ATOMIC_RELAXED);
    }
}

static tsr_status run_pieces(const tsri_kernel *kernel, void *const *in, void *const *out,
                             void *scratch)
{
    const via32 *k = (const via32 *)kernel;
    tsr_status status = TSR_OK;
    job j = {k, in, out, scratch, &status};
    for (int i = 0; i < k->nin; i++)
        if (k->in[i].half && !k->in[i].step)
            convert_all(k, &k->in[i], in[i], j.scratch + k->in[i].at, false);
    tsri_fast_team(k->threads, run_part, &j);
    return status;
}

/* --- making -------------------------------------------------------------------------------------
 */

static void destroy(tsri_kernel *kernel)
{
    via32 *k = (via32 *)(void *)kernel;
    if (k->body)
        k->body->destroy(k->body);
    if (k->tail)
        k->tail->destroy(k->tail);
    tsri_mem_free(k);
}

/* Returns the operand that result i writes in place, or -1. */
static int in_place(const tsri_kernel_desc *d, int i)
{
    switch (d->op) {
#define UPDATE(KIND, ...) case TSRI_OP_##KIND:
        TSRI_UPDATE_LIST(UPDATE)
#undef UPDATE
        return i;
    case TSRI_OP_BN_RUNNING:
        return 1 + i;
    default:
        return -1;
    }
}

static bool is_update(const tsri_kernel_desc *d)
{
    return in_place(d, 0) == 0;
}

/* Whether element i of every result depends on elements i of the operands alone; an update's last
 * operand has its numbers. */
static bool is_flat(const tsri_kernel_desc *d)
{
    switch (d->op) {
    case TSRI_OP_UNARY:
    case TSRI_OP_UNARY_GRAD:
    case TSRI_OP_SCALE:
    case TSRI_OP_BINARY:
    case TSRI_OP_ADD_N:
        break;
    default:
        if (!is_update(d))
            return false;
    }
    for (int i = 0; i < d->nin - is_update(d); i++)
        if (!tsri_fast_alike(&d->in[i], &d->out[0]))
            return false;
    for (int i = 1; i < d->nout; i++)
        if (!tsri_fast_alike(&d->out[i], &d->out[0]))
            return false;
    return tsri_arg_count(&d->out[0]) > 0;
}

static operand make_operand(const tsri_arg *a, int64_t items, bool shared)
{
    operand o = {.size = tsr_dtype_size(a->dtype), .count = tsri_arg_count(a), .same = -1};
    o.step = shared ? 0 : o.count / items;
    if (tsri_is_half(a->dtype)) {
        o.half = a->dtype;
        o.widen = tsri_widen_of(a->dtype);
        o.narrow = tsri_narrow_of(a->dtype);
    }
    return o;
}

static void place(via32 *k, operand *o)
{
    size_t *at = o->step ? &k->part_bytes : &k->shared_bytes;
    if (o->same >= 0 && k->in[o->same].half) {
        o->at = k->in[o->same].at;
        return;
    }
    if (!o->half)
        return;
    o->at = *at;
    *at += tsri_fast_align((size_t)(o->step ? o->step * k->piece : o->count) * sizeof(float));
}

static void widen_arg(tsri_arg *a)
{
    if (tsri_is_half(a->dtype))
        a->dtype = TSR_F32;
}

/* The op on f32; `n` items of it, all of a row, unless n is 0. */
static tsri_kernel_desc describe(const via32 *k, const tsri_kernel_desc *desc, int64_t n)
{
    tsri_kernel_desc d = *desc;
    for (int i = 0; i < d.nin + d.nout; i++) {
        tsri_arg *a = i < d.nin ? &d.in[i] : &d.out[i - d.nin];
        const operand *o = i < d.nin ? &k->in[i] : &k->out[i - d.nin];
        widen_arg(a);
        if (n && o->step)
            *a = (tsri_arg){
                .dtype = a->dtype, .ndim = 1, .shape = {n}, .stride = {1}, .gshape = {n}};
    }
    return d;
}

static tsr_status make_inner(tsri_mem *mem, via32 *k, const tsri_kernel_desc *desc)
{
    static const tsri_kernels *const f32[] = {&tsri_kernels_cpu_fast, &tsri_kernels_cpu_onednn,
                                              &tsri_kernels_cpu_ref, NULL};
    const bool pieces = k->piece > 0;
    tsri_kernel_desc d = describe(k, desc, k->piece);
    TSRI_TRY(tsri_kernel_create(mem, f32, &d, &k->body));
    size_t inner = k->body->scratch_bytes;
    if (pieces && k->items % k->piece) {
        d = describe(k, desc, k->items % k->piece);
        TSRI_TRY(tsri_kernel_create(mem, f32, &d, &k->tail));
        inner = inner < k->tail->scratch_bytes ? k->tail->scratch_bytes : inner;
    }
    k->inner_at = pieces ? k->part_bytes : k->shared_bytes;
    if (pieces)
        k->part_bytes += tsri_fast_align(inner);
    k->base.scratch_bytes =
        pieces ? k->shared_bytes + (size_t)k->threads * k->part_bytes : k->shared_bytes + inner;
    return TSR_OK;
}

static bool has_half(const tsri_kernel_desc *d)
{
    for (int i = 0; i < d->nin; i++)
        if (tsri_is_half(d->in[i].dtype))
            return true;
    for (int i = 0; i < d->nout; i++)
        if (tsri_is_half(d->out[i].dtype))
            return true;
    return false;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!has_half(d))
        return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: needs no conversion to f32",
                         tsri_op_name(d->op));
    via32 *k = tsri_mem_alloc(mem, sizeof *k);
    TSRI_NEED(k);
    const bool flat = is_flat(d);
    k->base = (tsri_kernel){.run = flat ? run_pieces : run_whole, .destroy = destroy};
    k->base.impl = "via32";
    k->nin = d->nin;
    k->nout = d->nout;
    k->threads = omp_get_max_threads();
    if (flat) {
        k->items = tsri_arg_count(&d->out[0]);
        k->piece = PIECE < k->items ? PIECE : k->items;
        k->threads = k->items < WORTH_A_TEAM ? 1 : k->threads;
    }
    for (int i = 0; i < d->nin; i++) {
        k->in[i] = make_operand(&d->in[i], flat ? k->items : 1,
                                !flat || (is_update(d) && i == d->nin - 1));
        place(k, &k->in[i]);
    }
    for (int i = 0; i < d->nout; i++) {
        k->out[i] = make_operand(&d->out[i], flat ? k->items : 1, !flat);
        k->out[i].same = in_place(d, i);
        place(k, &k->out[i]);
    }
    const tsr_status status = make_inner(mem, k, d);
    if (status == TSR_OK)
        *out_kernel = &k->base;
    else
        destroy(&k->base);
    return status;
}

/* Whether the reference makes an op in any dtype: it moves elements, or writes what it has in f64.
 * A program's own op is called with the dtypes that it declares. */
#define OF_ANY_DTYPE(op)                                                                \
    ((op) == TSRI_OP_CAST || (op) == TSRI_OP_EXPAND || (op) == TSRI_OP_RANDOM ||        \
     (op) == TSRI_OP_FILL || (op) == TSRI_OP_ARANGE || (op) == TSRI_OP_CONSTANT ||      \
     (op) == TSRI_OP_RESHAPE || (op) == TSRI_OP_PERMUTE || (op) == TSRI_OP_COPY ||      \
     (op) == TSRI_OP_CONCAT || (op) == TSRI_OP_SPLIT || (op) == TSRI_OP_SLICE ||        \
     (op) == TSRI_OP_PAD || (op) == TSRI_OP_WHERE || (op) == TSRI_OP_TRIANGLE ||        \
     (op) == TSRI_OP_MASK || (op) == TSRI_OP_INDEX_SELECT || (op) == TSRI_OP_ONE_HOT || \
     (op) == TSRI_OP_GATHER || (op) == TSRI_OP_OWN || (op) == TSRI_OP_OWN_BACKWARD ||   \
     (op) == TSRI_OP_ASSIGN)

#define SLOT(upper, lower) [TSRI_OP_##upper] = OF_ANY_DTYPE(TSRI_OP_##upper) ? NULL : create,
const tsri_kernels tsri_kernels_cpu_via32 = {
    .size = sizeof(tsri_kernels),
    .name = "via32",
    .slot = {TSRI_OP_KERNEL_LIST(SLOT)},
    .is_needed = true,
};
