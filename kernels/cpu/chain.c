/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains: kernels that run as one, piece by piece. A thread takes a share of the rows (or images)
 * and leads each piece of it, small enough to stay in the core's cache, through all kernels. Where
 * one of them does not work by pieces, or a chain is too small, they run in turn over everything.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/chain.h"
#include "kernels/cpu/team/team.h"
#include "src/core/dims.h"

enum {
    UNITS_BYTES = 32 << 10,  /* the same where no product is: a first-level cache, nearly */
    UNIT_STEP = 64,          /* units: whole vectors, and lines of the cache */
    PIECE_BYTES = 512 << 10, /* of all that a piece reads and writes: a second-level cache's half */
    ROW_UNIT = 24,           /* rows: whole tiles of products */
    WORTH_A_TEAM = 16384,    /* elements */
    WORTH_ASKING = 4,        /* kernels: of fewer, memory is all that a chain waits for; */
    MUCH_BYTES = 24 << 20,   /* and of less, a third-level cache holds it */
    FEW_ROWS = 512,          /* below, threads had better share the columns of products; */
    VERY_FEW_ROWS = 64,      /* up to these, products do not pack their weights */
    SUMS_BYTES = 512 << 10,  /* of a thread's sums over rows: what each piece adds to */
    ALIGNMENT = 64,
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static size_t arg_bytes(const tsri_arg *a)
{
    return (size_t)tsri_arg_count(a) * tsr_dtype_size(a->dtype);
}

/* --- running ---------------------------------------------------------------------------------- */
/* Points at units from `first` on of what a kernel walks, and at all of the rest. */
static void point(const tsri_chain_job *j, int thread, int64_t first, int n, const int8_t *values,
                  uint32_t walked, void **out)
{
    const tsri_chain *k = j->k;
    for (int i = 0; i < n; i++) {
        const int v = values[i];
        char *at = tsri_chain_whole(j, v);
        if (tsri_chain_is_inner(k, v))
            at = tsri_chain_inner(j, thread, v);
        else if (walked >> i & 1)
            at += (size_t)first * k->unit_bytes[v];
        out[i] = at;
    }
}

typedef void piece_fn(const tsri_kernel *k, const tsri_kernel_piece *p);

static void call(const tsri_chain_job *j, int thread, int m, piece_fn *fn, int64_t first, int64_t n,
                 tsri_ahead *ahead)
{
    const tsri_chain *k = j->k;
    const tsri_kernel_pieces *pieces = k->kernel[m]->pieces;
    void *in[TSRI_KERNEL_MAX_ARGS + 1], *out[TSRI_KERNEL_MAX_ARGS];
    if (!fn)
        return;
    point(j, thread, first, k->nin[m], k->in[m], pieces->in, in);
    point(j, thread, first, k->nout[m], k->out[m], pieces->out, out);
    if (tsri_chain_kept(j, m))
        in[k->kept[m].in] = tsri_chain_kept(j, m);
    const tsri_kernel_piece p = {thread, n, k->units, in, out, j->scratch + k->scratch_at[m],
                                 ahead};
    fn(k->kernel[m], &p);
}

static void begin_thread(const tsri_chain_job *j, int thread)
{
    for (int m = 0; m < j->k->nwalked; m++)
        call(j, thread, m, j->k->kernel[m]->pieces->begin, 0, 0, NULL);
}

static void end_thread(const tsri_chain_job *j, int thread)
{
    for (int m = 0; m < j->k->nwalked; m++)
        call(j, thread, m, j->k->kernel[m]->pieces->end, 0, 0, NULL);
}

static int64_t share(const tsri_chain *k, int thread)
{
    return k->units * thread / k->threads;
}

/* Lists what n units from `first` on read and write beyond the scratch. */
static void want(const tsri_chain_job *j, int64_t first, int64_t n, tsri_ahead *ahead)
{
    const tsri_chain *k = j->k;
    for (int v = k->ngiven + k->nouter - 1; v >= 0; v--)
        tsri_ahead_add(ahead, tsri_chain_whole(j, v) + (size_t)first * k->unit_bytes[v],
                       (size_t)n * k->unit_bytes[v]);
}

/* Asks for some lines of what is left of `ahead`. */
static void ask(tsri_ahead *ahead, int64_t lines)
{
    for (int64_t n; lines > 0 && ahead->n; lines -= n) {
        const char *at = tsri_ahead_take(ahead, lines, &n);
        for (int64_t i = 0; i < n; i++)
            __builtin_prefetch(at + i * TSRI_AHEAD_LINE, 0, 2);
    }
}

static int64_t lines_of(const tsri_ahead *ahead)
{
    int64_t bytes = 0;
    for (int i = 0; i < ahead->n; i++)
        bytes += ahead->end[i] - ahead->at[i];
    return bytes / TSRI_AHEAD_LINE + ahead->n;
}

static void do_pieces(const tsri_chain_job *j, int thread)
{
    const tsri_chain *k = j->k;
    const int64_t end = share(k, thread + 1);
    for (int64_t i = share(k, thread); k->steps && i < end; i++)
        tsri_chain_image(j, thread, i);
    for (int64_t at = share(k, thread); !k->steps && at < end; at += k->piece) {
        const int64_t n = end - at < k->piece ? end - at : k->piece;
        tsri_ahead ahead = {0};
        want(j, at + n, end - at - n < k->piece ? end - at - n : k->piece, &ahead);
        const int64_t lines = k->asks ? (lines_of(&ahead) + k->nwalked - 1) / k->nwalked : 0;
        for (int m = 0; m < k->nwalked; m++) {
            call(j, thread, m, k->kernel[m]->pieces->piece, at, n, &ahead);
            ask(&ahead, lines);
        }
    }
}

typedef struct phase {
    const tsri_chain_job *job;
    void (*of_thread)(const tsri_chain_job *j, int thread);
} phase;

static void phase_part(void *arg, int part)
{
    const phase *p = arg;
    p->of_thread(p->job, part);
}

static void team(const tsri_chain_job *j, void (*of_thread)(const tsri_chain_job *j, int thread))
{
    phase p = {j, of_thread};
    tsri_team(j->k->threads, phase_part, &p);
}

/* Points at all of what kernel m reads and writes. */
static void point_whole(const tsri_chain_job *j, int m, void **in, void **out)
{
    const tsri_chain *k = j->k;
    for (int i = 0; i < k->nin[m] + k->nout[m]; i++) {
        const bool is_out = i >= k->nin[m];
        const int v = k->place_of[is_out ? k->out[m][i - k->nin[m]] : k->in[m][i]];
        char *at = tsri_chain_is_inner(k, v) ? j->scratch + k->value_at[v] : tsri_chain_whole(j, v);
        if (is_out)
            out[i - k->nin[m]] = at;
        else
            in[i] = at;
    }
    if (tsri_chain_kept(j, m))
        in[k->kept[m].in] = tsri_chain_kept(j, m);
}

/* Hands the pieces of a gradient on to its update. */
typedef struct update_sink {
    tsri_kernel_sink base;
    const tsri_kernel *kernel;
    void *in[TSRI_KERNEL_MAX_ARGS + 1], *out[TSRI_KERNEL_MAX_ARGS];
} update_sink;

static void take_gradient(const tsri_kernel_sink *sink, int64_t first, int64_t n, const void *g)
{
    const update_sink *s = (const update_sink *)(const void *)sink;
    s->kernel->update(s->kernel, s->in, s->out, first, n, g);
}

/* Runs kernels [first, n) one after the other, over everything. A kernel that hands its result on
 * runs when its update's turn comes, when no other kernel has yet to read the parameter. */
static tsr_status run_from(const tsri_chain_job *j, int first)
{
    const tsri_chain *k = j->k;
    for (int m = first; m < k->n; m++) {
        void *in[TSRI_KERNEL_MAX_ARGS + 1], *out[TSRI_KERNEL_MAX_ARGS];
        const int from = k->from[m] - 1;
        update_sink s = {.base.take = take_gradient, .kernel = k->kernel[m]};
        if (k->hands_on[m])
            continue;
        if (from < 0) {
            point_whole(j, m, in, out);
            TSRI_TRY(k->kernel[m]->run(k->kernel[m], in, out, j->scratch + k->scratch_at[m]));
            continue;
        }
        point_whole(j, m, s.in, s.out);
        point_whole(j, from, in, out);
        for (int i = 0; i < k->nout[m] && i < TSRI_SINK_TOUCHES; i++)
            s.base.touches[s.base.ntouches++] = s.out[i];
        TSRI_TRY(k->kernel[from]->run_into(k->kernel[from], in, out,
                                           j->scratch + k->scratch_at[from], &s.base));
    }
    return TSR_OK;
}

static tsr_status run_pieces(const tsri_kernel *kernel, void *const *in, void *const *out,
                             void *scratch)
{
    const tsri_chain_job j = {(const tsri_chain *)kernel, in, out, scratch};
    team(&j, begin_thread);
    team(&j, do_pieces);
    team(&j, end_thread);
    return run_from(&j, j.k->nwalked);
}

static tsr_status run_in_turn(const tsri_kernel *kernel, void *const *in, void *const *out,
                              void *scratch)
{
    const tsri_chain_job j = {(const tsri_chain *)kernel, in, out, scratch};
    return run_from(&j, 0);
}

/* Lets each kernel keep what it packs of its fixed operands, which are the chain's own. */
static tsr_status keep(const tsri_kernel *kernel, void *const *in, void *kept, void *scratch)
{
    const tsri_chain *k = (const tsri_chain *)kernel;
    void *given[TSRI_CHAIN_VALUES + 1];
    memcpy(given, in, (size_t)k->ngiven * sizeof *given);
    given[k->ngiven] = kept;
    const tsri_chain_job j = {k, given, NULL, scratch};
    for (int m = 0; m < k->n; m++) {
        void *own[TSRI_KERNEL_MAX_ARGS + 1] = {NULL};
        for (int i = 0; i < k->nin[m]; i++)
            own[i] = k->in[m][i] < k->ngiven ? given[k->in[m][i]] : NULL;
        if (tsri_chain_kept(&j, m))
            TSRI_TRY(k->kernel[m]->keep(k->kernel[m], own, tsri_chain_kept(&j, m),
                                        (char *)scratch + k->scratch_at[m]));
    }
    return TSR_OK;
}

/* --- making ----------------------------------------------------------------------------------- */
static void destroy(tsri_kernel *kernel)
{
    tsri_chain *k = (tsri_chain *)kernel;
    for (int m = 0; m < k->n; m++)
        if (k->kernel[m])
            k->kernel[m]->destroy(k->kernel[m]);
    tsri_mem_free(k);
}

static tsr_status make_kernels(tsri_chain *k, tsri_mem *mem, const tsri_kernels *const *list,
                               const tsri_chain_desc *d, int threads)
{
    for (int m = 0; m < d->n; m++) {
        tsri_kernel_desc member = d->member[m];
        member.threads = threads;
        if (k->kernel[m])
            k->kernel[m]->destroy(k->kernel[m]);
        k->kernel[m] = NULL;
        TSRI_TRY(tsri_kernel_create(mem, list, &member, &k->kernel[m]));
    }
    return TSR_OK;
}

/* Calls fn for each operand and result: which value it is, and whether the kernel walks it. */
typedef bool arg_fn(tsri_chain *k, const tsri_chain_desc *d, int v, const tsri_arg *a, bool is_out,
                    bool walked);

static bool each_arg(tsri_chain *k, const tsri_chain_desc *d, arg_fn *fn)
{
    for (int m = 0; m < k->nwalked; m++) {
        const tsri_kernel_desc *member = &d->member[m];
        const tsri_kernel_pieces *p = k->kernel[m]->pieces;
        for (int i = 0; i < k->nin[m]; i++)
            if (!fn(k, d, d->in[m][i], &member->in[i], false, p && p->in >> i & 1))
                return false;
        for (int i = 0; i < member->nout; i++)
            if (!fn(k, d, d->out[m][i], &member->out[i], true, p && p->out >> i & 1))
                return false;
    }
    return true;
}

/* Whether kernels that are led through by pieces read a value. */
static bool is_read_by_pieces(const tsri_chain *k, int v)
{
    for (int m = 0; m < k->nwalked; m++)
        for (int i = 0; i < k->nin[m]; i++)
            if (k->in[m][i] == v)
                return true;
    return false;
}

/* A value is walked by all kernels or by none; by none only where it is given, or a last result, or
 * an update's gradient. */
static bool note_units(tsri_chain *k, const tsri_chain_desc *d, int v, const tsri_arg *a,
                       bool is_out, bool walked)
{
    const int64_t bytes = (int64_t)arg_bytes(a);
    if (!walked && is_out && tsri_chain_is_inner(k, v) && !is_read_by_pieces(k, v))
        return k->whole[v] = true;
    if (!walked)
        return !k->unit_bytes[v] &&
               (is_out ? v >= d->ngiven && v < d->ngiven + d->nouter : v < d->ngiven);
    if (bytes == 0 || tsri_arg_count(a) % k->units)
        return false;
    k->unit_bytes[v] = (size_t)(bytes / k->units);
    return true;
}

/* Cuts the units so that they divide what a kernel walks. */
static bool note_common(tsri_chain *k, const tsri_chain_desc *d, int v, const tsri_arg *a,
                        bool is_out, bool walked)
{
    (void)d;
    (void)v;
    (void)is_out;
    if (walked)
        k->units = tsri_gcd(k->units, tsri_arg_count(a));
    return true;
}

/* The most units that divide all that the kernels of a chain walk; 0: one does not by pieces. */
static int64_t common_units(tsri_chain *k, const tsri_chain_desc *d)
{
    k->units = 0;
    for (int m = 0; m < d->n; m++) {
        if (!k->kernel[m]->pieces || k->kernel[m]->pieces->images)
            return 0;
        k->units = tsri_gcd(k->units, k->kernel[m]->pieces->units);
    }
    each_arg(k, d, note_common);
    return k->units;
}

/* The units of a chain whose kernels all work by pieces: rows, or images where one needs them
 * whole; 0: there are none in common. */
static int64_t units_of(const tsri_chain *k, const tsri_chain_desc *d)
{
    bool images = false;
    for (int m = 0; m < k->nwalked; m++) {
        if (!k->kernel[m]->pieces)
            return 0;
        images |= k->kernel[m]->pieces->images;
    }
    const tsri_arg *a = &d->member[0].in[0];
    if (a->ndim < 2 || !tsri_arg_count(a))
        return 0;
    return images ? a->shape[0] : tsri_arg_count(a) / a->shape[a->ndim == 4 ? 1 : a->ndim - 1];
}

/* Whether threads that take rows each are better than threads that share each product: not where
 * rows are few, or what each thread sums by itself is much, or much beside what they read and
 * write. */
static bool is_worth(const tsri_chain *k, const tsri_chain_desc *d)
{
    size_t walked = 0, sums = 0;
    for (int m = 0; m < k->nwalked; m++)
        for (int i = 0; i < d->member[m].nout; i++)
            sums += k->unit_bytes[d->out[m][i]] ? 0 : arg_bytes(&d->member[m].out[i]);
    for (int v = 0; v < k->nvalues; v++)
        walked += (size_t)k->units * k->unit_bytes[v];
    if (sums > SUMS_BYTES)
        return false;
    if (k->threads == 1)
        return k->units > VERY_FEW_ROWS;
    return k->units >= FEW_ROWS && sums * (size_t)(k->threads - 1) <= walked / 4;
}

/* Plans a chain without a product. The sums of each thread must be little beside what it walks. */
static bool plan_units(tsri_chain *k, const tsri_chain_desc *d)
{
    const size_t most = d->piece_bytes ? d->piece_bytes : UNITS_BYTES;
    size_t unit = 0, outer = 0, sums = 0;
    k->units = common_units(k, d);
    memset(k->unit_bytes, 0, sizeof k->unit_bytes);
    if (k->units < k->threads || !each_arg(k, d, note_units))
        return false;
    for (int v = 0; v < k->nvalues; v++) {
        unit += k->unit_bytes[v];
        outer += tsri_chain_is_inner(k, v) ? 0 : k->unit_bytes[v];
    }
    for (int m = 0; m < d->n; m++)
        for (int i = 0; i < d->member[m].nout; i++)
            sums += k->unit_bytes[d->out[m][i]] ? 0 : arg_bytes(&d->member[m].out[i]);
    if (k->threads > 1 && sums * (size_t)k->threads > (size_t)k->units * unit / 4)
        return false;
    k->asks = d->n >= WORTH_ASKING && (size_t)k->units * outer >= MUCH_BYTES;
    k->piece = (int64_t)(most / unit);
    if (k->piece >= UNIT_STEP)
        k->piece = k->piece / UNIT_STEP * UNIT_STEP;
    k->piece = k->piece < 1 ? 1 : k->piece;
    return true;
}

static bool plan_pieces(tsri_chain *k, const tsri_chain_desc *d)
{
    const size_t most = d->piece_bytes ? d->piece_bytes : PIECE_BYTES;
    size_t row = 0;
    k->units = units_of(k, d);
    memset(k->unit_bytes, 0, sizeof k->unit_bytes);
    memset(k->whole, 0, sizeof k->whole);
    if (!k->units || k->nwalked == 1 || !each_arg(k, d, note_units))
        return false;
    bool images = false;
    for (int m = 0; m < k->nwalked; m++)
        images |= k->kernel[m]->pieces->images;
    if (images ? k->units < k->threads : !is_worth(k, d))
        return false;
    for (int v = 0; v < k->nvalues; v++)
        row += k->unit_bytes[v];
    k->piece = (int64_t)(most / row);
    if (!images)
        k->piece = k->piece / ROW_UNIT * ROW_UNIT;
    const int64_t least = images ? 1 : ROW_UNIT;
    k->piece = k->piece < least ? least : k->piece;
    if (images && row > most && !tsri_chain_plan_lines(k, d, most))
        k->steps = 0;
    return true;
}

/* Lays out what the kernels keep. */
static void lay_out_kept(tsri_chain *k)
{
    size_t at = 0;
    for (int m = 0; m < k->n; m++) {
        k->kept[m].at = at;
        at += aligned(k->kernel[m]->kept_bytes);
    }
    k->base.kept_bytes = at;
    k->base.keep = at ? keep : NULL;
}

/* Whether a kernel may write its result over its first operand. */
static bool is_in_place(const tsri_kernel_desc *d)
{
    if (d->op == TSRI_OP_UNARY || d->op == TSRI_OP_SCALE_SHIFT)
        return tsri_chain_alike(&d->in[0], &d->out[0]);
    return d->op == TSRI_OP_BINARY && tsri_chain_alike(&d->in[0], &d->out[0]) &&
           tsri_chain_alike(&d->in[1], &d->out[0]);
}

/* Finds, for kernels that run in turn, inner values that are where the results made of them are. */
static void find_places(tsri_chain *k, const tsri_chain_desc *d)
{
    for (int v = 0; v < k->nvalues; v++)
        k->place_of[v] = (int8_t)v;
    for (int m = k->n - 1; m >= 0 && !k->by_pieces; m--) {
        const int v = k->in[m][0];
        if (tsri_chain_is_inner(k, v) && is_in_place(&d->member[m]) &&
            tsri_chain_readers(d, v) == 1)
            k->place_of[v] = k->place_of[k->out[m][0]];
    }
}

/* Lays out the scratch: the kernels' own, then inner values, by pieces for each thread. */
static void lay_out(tsri_chain *k, const tsri_chain_desc *d)
{
    size_t at = 0, most = 0;
    for (int m = 0; m < k->n; m++) {
        const size_t bytes = aligned(k->kernel[m]->scratch_bytes);
        k->scratch_at[m] = k->by_pieces ? at : 0;
        at += k->by_pieces ? bytes : 0;
        most = bytes > most ? bytes : most;
    }
    at = k->by_pieces ? at : most;
    for (int m = 0; m < k->n && k->by_pieces; m++)
        for (int i = 0; i < d->member[m].nout; i++) {
            const int v = d->out[m][i];
            if (!k->whole[v])
                continue;
            k->value_at[v] = at;
            at += aligned(arg_bytes(&d->member[m].out[i]));
        }
    k->thread_at = k->by_pieces ? at : 0;
    size_t inner = k->by_pieces ? 0 : at;
    for (int m = 0; m < k->n; m++)
        for (int i = 0; i < d->member[m].nout; i++) {
            const int v = d->out[m][i];
            if (!tsri_chain_is_inner(k, v) || k->whole[v] || k->hands_on[m] || k->place_of[v] != v)
                continue;
            k->value_at[v] = inner;
            size_t bytes = k->by_pieces ? (size_t)k->piece * k->unit_bytes[v]
                                        : arg_bytes(&d->member[m].out[i]);
            if (k->by_pieces && k->steps)
                bytes = k->unit_bytes[v] / (size_t)k->height[v] * (size_t)k->room[v];
            inner += aligned(bytes);
        }
    k->thread_bytes = k->by_pieces ? inner : 0;
    k->base.scratch_bytes = k->by_pieces ? at + (size_t)k->threads * inner : inner;
}

static bool is_update(tsri_op_kind op)
{
#define UPDATE_KIND(KIND, ...) || op == TSRI_OP_##KIND
    return false TSRI_UPDATE_LIST(UPDATE_KIND);
#undef UPDATE_KIND
}

/* Finds the updates that can take their gradients as these are made: inner values that they alone
 * read, the result of a kernel that has no other. */
static void find_takers(tsri_chain *k)
{
    for (int u = k->nwalked; u < k->n; u++) {
        const int g = k->in[u][k->nin[u] - 2];
        int readers = 0, maker = -1;
        for (int m = 0; m < k->n; m++) {
            for (int i = 0; i < k->nin[m]; i++)
                readers += k->in[m][i] == g;
            if (m < k->nwalked && k->nout[m] == 1 && k->out[m][0] == g)
                maker = m;
        }
        if (tsri_chain_is_inner(k, g) && readers == 1 && maker >= 0 && k->kernel[maker]->run_into &&
            k->kernel[u]->update) {
            k->hands_on[maker] = true;
            k->from[u] = (int8_t)(maker + 1);
        }
    }
}

static int64_t most_elements(const tsri_chain *k, const tsri_chain_desc *d)
{
    int64_t most = 0;
    for (int m = 0; m < k->nwalked; m++)
        for (int i = 0; i < d->member[m].nout; i++) {
            const int64_t n = tsri_arg_count(&d->member[m].out[i]);
            most = n > most ? n : most;
        }
    return most;
}

static tsr_status make(tsri_chain *k, tsri_mem *mem, const tsri_kernels *const *list,
                       const tsri_chain_desc *d)
{
    k->threads = most_elements(k, d) < WORTH_A_TEAM ? 1 : omp_get_max_threads();
    TSRI_TRY(make_kernels(k, mem, list, d, k->threads));
    k->by_pieces = d->by_units ? plan_units(k, d) : plan_pieces(k, d);
    if (!k->by_pieces) {
        memset(k->whole, 0, sizeof k->whole);
        TSRI_TRY(make_kernels(k, mem, list, d, 0));
        find_takers(k);
    }
    find_places(k, d);
    lay_out(k, d);
    lay_out_kept(k);
    k->base.run = k->by_pieces ? run_pieces : run_in_turn;
    k->base.impl = k->by_pieces ? "chain" : k->kernel[0]->impl;
    return TSR_OK;
}

/* --- members that others do ------------------------------------------------------------------- */
static tsr_status create(tsri_mem *mem, const tsri_kernels *const *list,
                         const tsri_chain_desc *desc, tsri_kernel **out_kernel)
{
    tsri_chain *k = tsri_mem_alloc(mem, sizeof *k);
    TSRI_NEED(k);
    k->base.destroy = destroy;
    k->n = desc->n;
    k->ngiven = desc->ngiven;
    k->nouter = desc->nouter;
    k->nvalues = desc->ngiven + desc->nouter + desc->ninner;
    for (int m = 0; m < desc->n; m++) {
        k->nin[m] = desc->member[m].nin;
        k->kept[m].in = k->nin[m];
        k->made_by[m] = (int8_t)m;
        if (tsri_kernel_has_end(&desc->member[m].end))
            k->nin[m] += TSRI_END_ARGS;
        k->nout[m] = desc->member[m].nout;
        for (int i = 0; i < TSRI_KERNEL_MAX_ARGS; i++) {
            k->in[m][i] = (int8_t)desc->in[m][i];
            k->out[m][i] = (int8_t)desc->out[m][i];
        }
    }
    k->nwalked = k->n;
    while (k->nwalked > 1 && is_update(desc->member[k->nwalked - 1].op))
        k->nwalked--;
    tsr_status status = make(k, mem, list, desc);
    if (status != TSR_OK) {
        destroy(&k->base);
        return status;
    }
    *out_kernel = &k->base;
    return TSR_OK;
}

/* Tries with fewer members: with sums of products, which only kernels that work by pieces know, or
 * with ends, which not all kernels take. */
static tsr_status create_joined(tsri_mem *mem, const tsri_kernels *const *list,
                                const tsri_chain_desc *desc, tsri_kernel **out_kernel)
{
    tsri_chain_joined *j = tsri_mem_alloc(mem, sizeof *j);
    tsri_kernel *k = NULL;
    TSRI_NEED(j);
    j->d = *desc;
    for (int m = 0; m < TSRI_CHAIN_MAX; m++)
        j->place[m] = (int8_t)m;
    tsr_status status = TSR_OK;
    if (desc->by_units ? tsri_chain_join_products(j) : tsri_chain_join_ends(j))
        status = create(mem, list, &j->d, &k);
    if (k)
        memcpy(((tsri_chain *)k)->made_by, j->place, sizeof j->place);
    tsri_mem_free(j);
    if (k && (!desc->by_units || ((const tsri_chain *)k)->by_pieces)) {
        *out_kernel = k;
        return TSR_OK;
    }
    if (k)
        k->destroy(k);
    if (status != TSR_OK && status != TSR_ERR_UNSUPPORTED)
        return status;
    if (status != TSR_OK)
        tsri_error_clear();
    return create(mem, list, desc, out_kernel);
}

tsr_status tsri_chain_create(tsri_mem *mem, const tsri_kernels *const *list,
                             const tsri_chain_desc *desc, tsri_kernel **out_kernel)
{
    return create_joined(mem, list, desc, out_kernel);
}

const char *tsri_chain_impl(const tsri_kernel *kernel, int i)
{
    const tsri_chain *k = (const tsri_chain *)kernel;
    const int m = k->made_by[i];
    return k->by_pieces && m < k->nwalked ? "chain" : k->kernel[m]->impl;
}
