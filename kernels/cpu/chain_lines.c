/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that do not fit into the cache with all that a chain makes of them go through it by lines.
 * In each of so many steps, kernels that read what is given do their share of the lines; every
 * other one does those whose operands are there, which for a window of a depthwise convolution is a
 * line or so later. The scratch keeps a window of an inner value's lines: from the first one that
 * is still needed to the last one that is there.
 */
#include <string.h>

#include "kernels/cpu/chain.h"

enum { LEAST_STEPS = 2 };

/* How far the kernels have come in an image; of an inner value, the line that its window begins
 * with. */
typedef struct progress {
    int64_t done[TSRI_CHAIN_MAX], base[TSRI_CHAIN_VALUES];
} progress;

/* The value whose lines a kernel counts by: its result, or its last walked operand. */
static int counted(const tsri_chain *k, int m)
{
    const tsri_kernel_pieces *p = k->kernel[m]->pieces;
    if (p->out & 1)
        return k->out[m][0];
    return p->images ? k->in[m][1] : k->in[m][0];
}

static int maker_of(const tsri_chain *k, int v)
{
    for (int m = 0; m < k->nwalked; m++)
        for (int i = 0; i < k->nout[m]; i++)
            if (k->out[m][i] == v)
                return m;
    return -1;
}

/* Lines [*lo, *hi) of operand i that a kernel needs for n of its lines from `first` on. */
static void needs(const tsri_chain *k, int m, int i, int64_t first, int64_t n, int64_t *lo,
                  int64_t *hi)
{
    const tsri_kernel_pieces *p = k->kernel[m]->pieces;
    *lo = first;
    *hi = first + n;
    if (p->images && i == 0)
        p->needs(k->kernel[m], first, n, lo, hi);
}

/* Whether the operands of n more lines of a kernel are there. */
static bool are_there(const tsri_chain *k, const progress *p, int m, int64_t n)
{
    for (int i = 0; i < k->nin[m]; i++) {
        const int maker = maker_of(k, k->in[m][i]);
        int64_t lo, hi;
        needs(k, m, i, p->done[m], n, &lo, &hi);
        if (maker >= 0 && k->unit_bytes[k->in[m][i]] && p->done[maker] < hi)
            return false;
    }
    return true;
}

/* Lines that a kernel does in a step. */
static int64_t lines_now(const tsri_chain *k, const progress *p, int m, int64_t step)
{
    const int64_t height = k->height[counted(k, m)];
    bool given = true;
    for (int i = 0; i < k->nin[m]; i++)
        given = given && (!k->unit_bytes[k->in[m][i]] || k->in[m][i] < k->ngiven);
    if (given)
        return height * (step + 1) / k->steps - p->done[m];
    int64_t n = 0;
    while (p->done[m] + n < height && are_there(k, p, m, n + 1))
        n++;
    return n;
}

/* The first line of a value that any kernel still needs. */
static int64_t first_needed(const tsri_chain *k, const progress *p, int v)
{
    int64_t first = k->height[v];
    for (int m = 0; m < k->nwalked; m++)
        for (int i = 0; i < k->nin[m]; i++) {
            int64_t lo, hi;
            if (k->in[m][i] != v || p->done[m] == k->height[counted(k, m)])
                continue;
            needs(k, m, i, p->done[m], 1, &lo, &hi);
            first = lo < first ? lo : first;
        }
    return first;
}

/* --- planning --------------------------------------------------------------------------------- */
/* Finds the room that windows take by going through the steps of an image. */
static bool try_steps(tsri_chain *k)
{
    progress p = {0};
    for (int64_t step = 0; step < k->steps; step++)
        for (int m = 0; m < k->nwalked; m++) {
            const int v = counted(k, m);
            p.done[m] += lines_now(k, &p, m, step);
            if (k->kernel[m]->pieces->out & 1) {
                const int64_t needed = first_needed(k, &p, v);
                const int64_t lines = p.done[m] - (needed < p.done[m] ? needed : p.done[m]);
                k->room[v] = 2 * lines > k->room[v] ? 2 * lines : k->room[v];
            }
        }
    for (int v = 0; v < k->nvalues; v++)
        k->room[v] = k->room[v] > k->height[v] ? k->height[v] : k->room[v];
    for (int m = 0; m < k->nwalked; m++)
        if (p.done[m] != k->height[counted(k, m)])
            return false;
    return true;
}

bool tsri_chain_plan_lines(tsri_chain *k, const tsri_chain_desc *d, size_t bytes)
{
    int64_t least = INT64_MAX;
    size_t image = 0;
    for (int m = 0; m < k->nwalked; m++) {
        const tsri_kernel_pieces *p = k->kernel[m]->pieces;
        if (p->images && !p->lines)
            return false;
        for (int i = 0; i < k->nin[m] + k->nout[m]; i++) {
            const bool is_out = i >= k->nin[m];
            const int at = is_out ? i - k->nin[m] : i;
            const int v = is_out ? k->out[m][at] : k->in[m][at];
            const tsri_arg *a = is_out ? &d->member[m].out[at] : &d->member[m].in[at];
            if (!k->unit_bytes[v])
                continue;
            if (a->ndim != 4)
                return false;
            k->height[v] = a->shape[2];
            least = a->shape[2] < least ? a->shape[2] : least;
        }
    }
    for (int v = 0; v < k->nvalues; v++)
        image += k->unit_bytes[v];
    k->steps = (int64_t)((image + bytes - 1) / bytes);
    k->steps = k->steps > least ? least : k->steps;
    memset(k->room, 0, sizeof k->room);
    return k->steps >= LEAST_STEPS && try_steps(k);
}

/* --- running ---------------------------------------------------------------------------------- */
/* Makes room in the windows of a kernel's results for n more lines. */
static void make_room(const tsri_chain_job *j, int thread, progress *p, int m, int64_t n)
{
    const tsri_chain *k = j->k;
    for (int i = 0; i < k->nout[m]; i++) {
        const int v = k->out[m][i];
        if (!tsri_chain_is_inner(k, v) || p->done[m] + n - p->base[v] <= k->room[v])
            continue;
        const size_t line = k->unit_bytes[v] / (size_t)k->height[v];
        const int64_t first = first_needed(k, p, v);
        const int64_t keep = first < p->done[m] ? first : p->done[m];
        char *at = tsri_chain_inner(j, thread, v);
        memmove(at, at + (size_t)(keep - p->base[v]) * line, (size_t)(p->done[m] - keep) * line);
        p->base[v] = keep;
    }
}

/* Points at line `line` of what a kernel walks, and at all of the rest. */
static void point(const tsri_chain_job *j, int thread, int64_t image, const progress *p, int n,
                  const int8_t *values, uint32_t walked, int64_t line, void **out)
{
    const tsri_chain *k = j->k;
    for (int i = 0; i < n; i++) {
        const int v = values[i];
        char *at = tsri_chain_whole(j, v);
        if (walked >> i & 1) {
            const int64_t bytes = (int64_t)k->unit_bytes[v] / k->height[v];
            int64_t first = line;
            if (tsri_chain_is_inner(k, v)) {
                at = tsri_chain_inner(j, thread, v);
                first -= p->base[v];
            } else {
                at += image * (int64_t)k->unit_bytes[v];
            }
            at += first * bytes;
        }
        out[i] = at;
    }
}

static void do_lines(const tsri_chain_job *j, int thread, int64_t image, const progress *p, int m,
                     int64_t n)
{
    const tsri_chain *k = j->k;
    const tsri_kernel *kernel = k->kernel[m];
    const tsri_kernel_pieces *pieces = kernel->pieces;
    const int64_t first = pieces->images ? 0 : p->done[m];
    void *in[TSRI_KERNEL_MAX_ARGS + 1], *out[TSRI_KERNEL_MAX_ARGS];
    point(j, thread, image, p, k->nin[m], k->in[m], pieces->in, first, in);
    point(j, thread, image, p, k->nout[m], k->out[m], pieces->out, first, out);
    if (tsri_chain_kept(j, m))
        in[k->kept[m].in] = tsri_chain_kept(j, m);
    const tsri_kernel_piece piece = {.thread = thread,
                                     .n = n,
                                     .units = k->units * k->height[counted(k, m)],
                                     .in = in,
                                     .out = out,
                                     .scratch = j->scratch + k->scratch_at[m]};
    if (pieces->images)
        pieces->lines(kernel, &piece, p->done[m]);
    else
        pieces->piece(kernel, &piece);
}

void tsri_chain_image(const tsri_chain_job *j, int thread, int64_t image)
{
    const tsri_chain *k = j->k;
    progress p = {0};
    for (int64_t step = 0; step < k->steps; step++)
        for (int m = 0; m < k->nwalked; m++) {
            const int64_t n = lines_now(k, &p, m, step);
            if (!n)
                continue;
            make_room(j, thread, &p, m, n);
            do_lines(j, thread, image, &p, m, n);
            p.done[m] += n;
        }
}
