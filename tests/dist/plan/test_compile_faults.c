/* SPDX-License-Identifier: Apache-2.0 */
/* A compile that fails on one rank alone, wherever in it: all ranks say so at once, with that
 * rank's text, and go on. On CPUs, or on the kind of device that TESSERA_TEST_DEVICE names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "kernels/device.h"
#include "src/core/status.h"
#include "src/core/world.h"
#include "tests/cuda/gpus.h"
#include "tests/dist/comm/rank_checks.h"
#include "tests/dist/comm/ranks.h"

/* The time-out is what ranks would wait in vain: long, so that it is not what ends them. */
static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 8 << 20, .timeout_s = 100, .threads = 1};

static bool on_cuda(void)
{
    const char *device = getenv("TESSERA_TEST_DEVICE");
    return device && !strcmp(device, "cuda");
}

/* --- an arena that is full -------------------------------------------------------------------- */
enum { LARGE = 1 << 20, SMALL = 1 << 14, MOST_BLOCKS = 1024 };

typedef struct filling {
    tsri_device *device;
    void *large[64], *small[MOST_BLOCKS];
    int nlarge, nsmall;
} filling;

/* Takes blocks until there is no room, then gives the last `left` bytes of them back. */
static tsr_status fill(tsri_device *d, size_t left, filling *f)
{
    *f = (filling){.device = d};
    while (f->nlarge < 64 && d->ops->buffer_alloc(d, LARGE, &f->large[f->nlarge]) == TSR_OK)
        f->nlarge++;
    for (int i = 0; i < 3 && f->nlarge; i++)
        d->ops->buffer_free(d, f->large[--f->nlarge], LARGE);
    while (f->nsmall < MOST_BLOCKS &&
           d->ops->buffer_alloc(d, SMALL, &f->small[f->nsmall]) == TSR_OK)
        f->nsmall++;
    CHECK(f->nsmall < MOST_BLOCKS && (size_t)f->nsmall * SMALL >= left);
    for (; left; left -= SMALL)
        d->ops->buffer_free(d, f->small[--f->nsmall], SMALL);
    tsri_error_clear();
    return TSR_OK;
}

static void empty(filling *f)
{
    for (int i = 0; i < f->nsmall; i++)
        f->device->ops->buffer_free(f->device, f->small[i], SMALL);
    for (int i = 0; i < f->nlarge; i++)
        f->device->ops->buffer_free(f->device, f->large[i], LARGE);
}

/* --- a program of two calls ------------------------------------------------------------------- */
enum { ROWS = 64, COLS = 768 };

/* Columns are gathered, which NCCL does through staging memory, and rows are summed up. */
static tsr_status declare(tsr_world *w, bool gathers, tsr_graph **out_graph)
{
    const tsr_placement *p = tsr_placement_parse(w, on_cuda() ? "cuda" : "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(ROWS, COLS), p, TSR_S(1));
    tsr_tensor *v = tsr_input(g, "v", TSR_F32, TSR_DIMS(ROWS), p, TSR_S(0));
    if (gathers)
        tsr_output(g, "y", x, p, TSR_B);
    tsr_output(g, "sum", tsr_sum(v, TSR_ALL_AXES, false), p, TSR_B);
    *out_graph = g;
    return tsr_graph_status(g);
}

/* Devices are connected by the first compile that needs it, which is not what is tried here. */
static tsr_status connect_devices(tsr_world *w)
{
    tsr_graph *g;
    tsr_plan *plan;
    TSRI_TRY(declare(w, false, &g));
    TSRI_TRY(tsr_compile(g, &plan));
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static tsr_status check_run(tsr_plan *plan)
{
    static const float unset = -1;
    float v[ROWS], sum = unset;
    float *x = malloc(2 * sizeof *x * ROWS * COLS), *y = x + ROWS * COLS;
    for (int i = 0; x && i < ROWS * COLS; i++)
        x[i] = (float)(i % 1009);
    for (int i = 0; i < ROWS; i++)
        v[i] = (float)i;
    tsr_status status = x ? TSR_OK : TSR_ERR_NO_MEMORY;
    size_t bytes = sizeof *x * ROWS * COLS;
    status = status == TSR_OK ? tsr_feed(plan, "x", x, bytes) : status;
    status = status == TSR_OK ? tsr_feed(plan, "v", v, sizeof v) : status;
    status = status == TSR_OK ? tsr_run(plan) : status;
    status = status == TSR_OK ? tsr_fetch(plan, "y", y, bytes) : status;
    status = status == TSR_OK ? tsr_fetch(plan, "sum", &sum, sizeof sum) : status;
    bool same = status == TSR_OK && !memcmp(x, y, bytes);
    free(x);
    TSRI_TRY(status);
    CHECK(same && sum == ROWS * (ROWS - 1) / 2);
    return TSR_OK;
}

typedef struct shortage {
    int rank;    /* whose arena is almost full */
    size_t left; /* what is free of it */
    bool fits;
    bool staging; /* what did not fit was what the call needs besides */
} shortage;

static tsr_status short_body(tsr_world *w, void *arg)
{
    shortage *s = arg;
    bool mine = w->rank == s->rank;
    tsri_device *d;
    tsr_graph *g;
    tsr_plan *plan;
    filling f = {0};
    TSRI_TRY(tsri_device_get(w, on_cuda() ? TSR_DEVICE_CUDA : TSR_DEVICE_CPU, &d));
    if (on_cuda())
        TSRI_TRY(connect_devices(w));
    if (mine)
        TSRI_TRY(fill(d, s->left, &f));
    TSRI_TRY(declare(w, true, &g));
    tsr_status status = tsr_compile(g, &plan);
    if (status != TSR_OK) {
        char who[64];
        snprintf(who, sizeof who, "rank %d could not compile: ", s->rank);
        CHECK(status == TSR_ERR_NO_MEMORY);
        CHECK_TEXT("no room for");
        CHECK(mine ? !strstr(tsr_last_error(), "could not compile")
                   : !!strstr(tsr_last_error(), who));
    }
    if (mine) {
        s->fits = status == TSR_OK;
        s->staging = status != TSR_OK && strstr(tsr_last_error(), "staging memory");
    }
    empty(&f);
    if (status != TSR_OK)
        TSRI_TRY(tsr_compile(g, &plan));
    return check_run(plan);
}

/* From next to nothing up to enough, so that compiling fails in all places in which it can. */
static void try_all(int n, int rank)
{
    int refused = 0, staging = 0;
    shortage s = {.rank = rank};
    for (s.left = 0; !s.fits; s.left += 4 * SMALL) {
        if (s.left > LARGE)
            fail_msg("%zu bytes are not enough", s.left);
        tsr_status status = test_ranks(n, short_body, &s, &opts);
        if (status != TSR_OK)
            fail_msg("%d ranks, %zu bytes left on rank %d: %s: %s", n, s.left, rank,
                     tsr_status_name(status), tsr_last_error());
        refused += !s.fits;
        staging += s.staging;
    }
    assert_true(refused > 1);
    if (on_cuda())
        assert_true(staging > 0);
}

enum { MOST_RANKS = 3 };
static test_gpus gpus = {.n = MOST_RANKS};

static void test_short(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_RANKS && n <= gpus.n; n++)
        try_all(n, n - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_short)};
    const int skipped = on_cuda() ? test_gpus_find(2, &gpus) : 0;
    if (skipped)
        return skipped;
    setenv("TESSERA_CUDA_ARENA_BYTES", "8388608", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
