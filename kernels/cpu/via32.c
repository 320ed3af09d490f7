/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op on halves: a kernel of the same op on f32, between conversions of the operands and
 * results that are halves. Where elements, or the rows of an axis, do not see each other, the work
 * goes in pieces that stay in a core's cache, with a kernel of a piece; results that are sums over
 * rows are added up. Another op's operands are converted as a whole, into scratch.
 */
#include "kernels/cpu/fast/half.h"
#include "kernels/norm.h"

#include <omp.h>
#include <string.h>

enum {
    PIECE = 2048,           /* elements of an element-wise piece: for the first-level cache */
    ROWS_PIECE = 60 << 10,  /* of an operand of rows: for the second; no kernel starts a team */
    SUM_MOST = 16 << 10,    /* elements of a sum that are worth adding up for each piece */
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
    bool sum;      /* a result: over all items */
    size_t total;  /* where its sum so far is, in a part's scratch */
} operand;

/* The work is `items`, of which a piece has `piece` and the last one what is left. */
typedef struct via32 {
    tsri_kernel base;
    tsri_kernel *body, *tail; /* of a piece, and of the last where that is shorter */
    int nin, nout, threads;
    bool flat;  /* items are elements; else rows, or piece is 0 and there are none */
    bool large; /* a row is more than a piece ought to be */
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

/* --- whole operands --------------------------------------------------------------------------- */

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
        tsri_team(c.threads, convert_part, &c);
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

/* --- in pieces -------------------------------------------------------------------------------- */

/* Where a piece of n items from `begin` on is, for the f32 kernel. */
static void *piece_of(const job *j, const operand *o, char *own, void *buffer, int64_t begin)
{
    if (!o->half && !o->sum)
        return element(buffer, o->size, begin * o->step);
    return (o->step || o->sum ? own : j->scratch) + o->at;
}

/* Results that are sums are of f64, or else added up in f32. */
static size_t sum_bytes(const operand *o)
{
    return tsri_fast_align((size_t)o->count * (o->size == 8 ? 8 : 4));
}

static void add_sum(const operand *o, const void *from, void *to)
{
    for (int64_t i = 0; i < o->count; i++)
        if (o->size == 8)
            ((double *)to)[i] += ((const double *)from)[i];
        else
            ((float *)to)[i] += ((const float *)from)[i];
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
        if (o->sum)
            add_sum(o, y[i], own + o->total);
        else if (o->half)
            o->narrow(y[i], (uint16_t *)j->out[i] + begin * o->step, n * o->step);
    }
    return TSR_OK;
}

static char *own_of(const job *j, int part)
{
    return j->scratch + j->k->shared_bytes + (size_t)part * j->k->part_bytes;
}

static void run_part(void *arg, int part)
{
    const job *j = arg;
    const via32 *k = j->k;
    char *own = own_of(j, part);
    for (int i = 0; i < k->nout; i++)
        if (k->out[i].sum)
            memset(own + k->out[i].total, 0, sum_bytes(&k->out[i]));
    const int64_t end = tsri_fast_cut(k->items, k->threads, part + 1, k->piece);
    for (int64_t i = tsri_fast_cut(k->items, k->threads, part, k->piece); i < end; i += k->piece) {
        const tsr_status s = run_piece(j, own, i, end - i < k->piece ? end - i : k->piece);
        if (s != TSR_OK)
            __atomic_store_n(j->status, s, __ATOMIC_RELAXED);
    }
}

/* Adds up what all parts have summed, in order. */
static void store_sum(const job *j, const operand *o, void *out)
{
    void *total = own_of(j, 0) + o->total;
    for (int part = 1; part < j->k->threads; part++)
        add_sum(o, own_of(j, part) + o->total, total);
    if (o->half)
        o->narrow(total, out, o->count);
    else
        memcpy(out, total, (size_t)o->count * o->size);
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
    tsri_whole_team(k->threads, run_part, &j);
    for (int i = 0; i < k->nout; i++)
        if (k->out[i].sum)
            store_sum(&j, &k->out[i], out[i]);
    return status;
}

/* --- making ----------------------------------------------------------------------------------- */

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

/* Returns the operands, bit by bit, that have a row for each of the results' rows along axis 0, or
 * for each of those that the results are sums over; the others are for all rows. 0: rows see each
 * other, or an error of the run may need to be told from the caller's thread. */
static unsigned operands_by_rows(const tsri_kernel_desc *d)
{
    const unsigned all = (1u << d->nin) - 1;
    switch (d->op) {
    case TSRI_OP_SOFTMAX:
    case TSRI_OP_SOFTMAX_DX:
    case TSRI_OP_SOFTMAX_SUM:
    case TSRI_OP_SOFTMAX_FINISH:
    case TSRI_OP_SOFTMAX_DOT:
    case TSRI_OP_SOFTMAX_BWD:
        return d->attrs->softmax.axis != 0 ? all : 0;
    case TSRI_OP_LN_STATS:
    case TSRI_OP_LN_APPLY:
    case TSRI_OP_LN_BWD_STATS:
    case TSRI_OP_LN_BWD_APPLY:
    case TSRI_OP_LN_PARAM_GRAD: {
        const tsri_norm_roles r = tsri_ln_roles(d);
        const unsigned params = (1u << r.gamma | 1u << r.beta) & ~1u;
        return d->attrs->ln.axes < d->in[0].ndim ? all & ~params : 0;
    }
    case TSRI_OP_BN_STATS:
    case TSRI_OP_BN_APPLY:
    case TSRI_OP_BN_ACT:
    case TSRI_OP_BN_BWD_STATS:
    case TSRI_OP_BN_BWD_APPLY:
    case TSRI_OP_BN_ACT_BWD_STATS:
    case TSRI_OP_BN_ACT_BWD_APPLY:
        return d->attrs->bn.parts <= 1 ? 1u | 1u << tsri_bn_roles(d->op).dy : 0;
    case TSRI_OP_SCALE_SHIFT:
    case TSRI_OP_CONV2D:
    case TSRI_OP_CONV2D_DX:
    case TSRI_OP_LINEAR:
    case TSRI_OP_LINEAR_DX:
        return 1;
    case TSRI_OP_MAX_POOL:
    case TSRI_OP_MAX_POOL_DX:
    case TSRI_OP_AVG_POOL:
    case TSRI_OP_AVG_POOL_DX:
    case TSRI_OP_ADAPTIVE_POOL:
    case TSRI_OP_ADAPTIVE_POOL_DX:
    case TSRI_OP_CONV2D_DW:
    case TSRI_OP_LINEAR_DW:
        return all;
    case TSRI_OP_FLASH_ATTENTION:
    case TSRI_OP_FLASH_ATTENTION_DX:
        return d->attrs->attention.has_mask && d->in[3].shape[0] == 1 ? all & ~8u : all;
    default:
        return 0;
    }
}

static bool are_sums(tsri_op_kind op)
{
    return op == TSRI_OP_BN_STATS || op == TSRI_OP_BN_BWD_STATS || op == TSRI_OP_BN_ACT_BWD_STATS ||
           op == TSRI_OP_LN_PARAM_GRAD || op == TSRI_OP_CONV2D_DW || op == TSRI_OP_LINEAR_DW;
}

/* Whether a has `items` rows, one behind the other. */
static bool has_rows(const tsri_arg *a, int64_t items)
{
    return a->ndim > 0 && a->shape[0] == items && a->stride[0] == tsri_arg_count(a) / items;
}

/* Sets items and piece where the work can go by rows, in more than one piece. */
static void cut_rows(via32 *k, const tsri_kernel_desc *d)
{
    const unsigned by = operands_by_rows(d);
    const int64_t items = by && d->in[0].ndim ? d->in[0].shape[0] : 0;
    int64_t largest = 1;
    for (int i = 0; i < d->nin + d->nout; i++) {
        const bool out = i >= d->nin;
        const tsri_arg *a = out ? &d->out[i - d->nin] : &d->in[i];
        if (out && are_sums(d->op) && tsri_arg_count(a) > SUM_MOST)
            return;
        if (out ? are_sums(d->op) : !(by >> i & 1))
            continue;
        if (items < 2 || !tsri_arg_count(a) || !has_rows(a, items))
            return;
        const int64_t row = tsri_arg_count(a) / items;
        largest = row > largest ? row : largest;
    }
    const int64_t piece = largest > ROWS_PIECE ? 1 : ROWS_PIECE / largest;
    if (items < 2 || piece >= items)
        return;
    k->items = items;
    k->piece = piece;
    k->large = largest > ROWS_PIECE;
}

static operand make_operand(const via32 *k, const tsri_arg *a, bool by_items)
{
    operand o = {.size = tsr_dtype_size(a->dtype), .count = tsri_arg_count(a), .same = -1};
    o.step = k->piece && by_items ? o.count / k->items : 0;
    if (tsri_is_half(a->dtype)) {
        o.half = a->dtype;
        o.widen = tsri_widen_of(a->dtype);
        o.narrow = tsri_narrow_of(a->dtype);
    }
    return o;
}

static size_t take(size_t *end, size_t bytes)
{
    const size_t at = *end;
    *end += tsri_fast_align(bytes);
    return at;
}

static void place(via32 *k, operand *o)
{
    if (o->sum) {
        o->at = take(&k->part_bytes, sum_bytes(o));
        o->total = take(&k->part_bytes, sum_bytes(o));
    } else if (o->same >= 0 && k->in[o->same].half) {
        o->at = k->in[o->same].at;
    } else if (o->half && o->step) {
        o->at = take(&k->part_bytes, (size_t)(o->step * k->piece) * sizeof(float));
    } else if (o->half) {
        o->at = take(&k->shared_bytes, (size_t)o->count * sizeof(float));
    }
}

/* The op on f32; `n` items of it, unless n is 0. */
static tsri_kernel_desc describe(const via32 *k, const tsri_kernel_desc *desc, int64_t n)
{
    tsri_kernel_desc d = *desc;
    d.fixed = 0; /* its operands are copies */
    for (int i = 0; i < d.nin + d.nout; i++) {
        tsri_arg *a = i < d.nin ? &d.in[i] : &d.out[i - d.nin];
        const operand *o = i < d.nin ? &k->in[i] : &k->out[i - d.nin];
        if (tsri_is_half(a->dtype))
            a->dtype = TSR_F32;
        if (n && o->step && k->flat)
            *a = (tsri_arg){
                .dtype = a->dtype, .ndim = 1, .shape = {n}, .stride = {1}, .gshape = {n}};
        else if (n && o->step)
            a->shape[0] = n;
    }
    return d;
}

/* Makes a kernel of the op on f32. Kernels of pieces that threads share are for one thread. */
static tsr_status make_f32(tsri_mem *mem, const via32 *k, const tsri_kernel_desc *desc, int64_t n,
                           tsri_kernel **out_kernel)
{
    static const tsri_kernels *const f32[] = {&tsri_kernels_cpu_fast, &tsri_kernels_cpu_onednn,
                                              &tsri_kernels_cpu_ref, NULL};
    const tsri_kernel_desc d = describe(k, desc, n);
    const int team = omp_get_max_threads();
    if (k->piece && k->threads > 1)
        omp_set_num_threads(1);
    const tsr_status status = tsri_kernel_create(mem, f32, &d, out_kernel);
    omp_set_num_threads(team);
    return status;
}

/* Whether several threads may run the kernel of a piece at once: oneDNN's keeps the buffers of its
 * run, and the reference starts a team by itself where there is much to do. */
static bool shares_threads(const via32 *k)
{
    return strcmp(k->body->impl, "onednn") != 0 && !(k->large && !strcmp(k->body->impl, "ref"));
}

static tsr_status make_inner(tsri_mem *mem, via32 *k, const tsri_kernel_desc *desc)
{
    TSRI_TRY(make_f32(mem, k, desc, k->piece, &k->body));
    if (k->threads > 1 && k->piece && !shares_threads(k)) {
        k->body->destroy(k->body);
        k->body = NULL;
        k->threads = 1;
        TSRI_TRY(make_f32(mem, k, desc, k->piece, &k->body));
    }
    size_t inner = k->body->scratch_bytes;
    if (k->piece && k->items % k->piece) {
        TSRI_TRY(make_f32(mem, k, desc, k->items % k->piece, &k->tail));
        inner = inner < k->tail->scratch_bytes ? k->tail->scratch_bytes : inner;
    }
    k->inner_at = k->piece ? k->part_bytes : k->shared_bytes;
    if (k->piece)
        k->part_bytes += tsri_fast_align(inner);
    k->base.scratch_bytes =
        k->piece ? k->shared_bytes + (size_t)k->threads * k->part_bytes : k->shared_bytes + inner;
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
    k->nin = d->nin;
    k->nout = d->nout;
    k->flat = is_flat(d);
    k->threads = omp_get_max_threads();
    if (k->flat) {
        k->items = tsri_arg_count(&d->out[0]);
        k->piece = PIECE < k->items ? PIECE : k->items;
        k->threads = k->items < WORTH_A_TEAM ? 1 : k->threads;
    } else {
        cut_rows(k, d);
    }
    k->base = (tsri_kernel){
        .run = k->piece ? run_pieces : run_whole, .destroy = destroy, .impl = "via32"};
    for (int i = 0; i < d->nin; i++) {
        const bool is_hyper = is_update(d) && i == d->nin - 1;
        k->in[i] = make_operand(k, &d->in[i], k->flat ? !is_hyper : operands_by_rows(d) >> i & 1);
        place(k, &k->in[i]);
    }
    for (int i = 0; i < d->nout; i++) {
        k->out[i] = make_operand(k, &d->out[i], !are_sums(d->op));
        k->out[i].sum = k->piece && are_sums(d->op);
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
     (op) == TSRI_OP_ASSIGN || (op) == TSRI_OP_PART || (op) == TSRI_OP_WHOLE ||         \
     (op) == TSRI_OP_TOTAL)

#define SLOT(upper, lower) [TSRI_OP_##upper] = OF_ANY_DTYPE(TSRI_OP_##upper) ? NULL : create,
const tsri_kernels tsri_kernels_cpu_via32 = {
    .size = sizeof(tsri_kernels),
    .name = "via32",
    .slot = {TSRI_OP_KERNEL_LIST(SLOT)},
    .is_needed = true,
};
