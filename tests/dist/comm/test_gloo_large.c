/* SPDX-License-Identifier: Apache-2.0 */
/* Large calls over Gloo: in parts, in two phases, in place; what they move, and in which order they
 * reduce. */
#include "tests/dist/comm/gloo_processes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { LARGE = (1 << 17) + 5, FEW = 3 };

static tsri_segment whole(void *src, void *dst, int64_t count)
{
    return (tsri_segment){.src = src,
                          .dst = dst,
                          .dtype = TSR_I64,
                          .shape = TSR_DIMS(count),
                          .src_axis = -1,
                          .dst_axis = -1};
}

/* What this rank has read must be what tsri_coll_bytes says. */
static tsr_status call_counted(tsr_world *w, tsri_group *g, tsri_coll *c)
{
    tsri_comm_stats before, after;
    uint64_t bytes = 0;
    for (int i = 0; i < c->nseg; i++)
        bytes += tsri_coll_bytes(c->kind, c->algo, w->nranks, w->rank, c->root, &c->seg[i]);
    w->comm->ops->stats(w->comm, &before);
    TSRI_TRY(gloo_call(g, c));
    w->comm->ops->stats(w->comm, &after);
    CHECK(after.bytes_read[c->kind] - before.bytes_read[c->kind] == bytes);
    return TSR_OK;
}

/* A large and a small segment, which go the same way down: in parts. Called again and again, with
 * other values, and then from other buffers. */
static tsr_status broadcast_large(tsr_world *w, tsri_group *g, int64_t *data)
{
    tsri_segment seg[2];
    tsri_coll c = {.kind = TSRI_COLL_BROADCAST, .root = w->nranks / 2, .nseg = 2, .seg = seg};
    bool is_root = w->rank == c.root;
    for (int round = 0; round < 4; round++) {
        int64_t *at = data + (round == 3);
        for (int64_t i = 0; i < LARGE + FEW; i++)
            at[i] = is_root ? 5 * i + round : -1;
        seg[0] = whole(is_root ? at : NULL, at, LARGE);
        seg[1] = whole(is_root ? at + LARGE : NULL, at + LARGE, FEW);
        if (round == 1)
            TSRI_TRY(w->comm->ops->prepare(g, &c));
        TSRI_TRY(call_counted(w, g, &c));
        for (int64_t i = 0; i < LARGE + FEW; i++)
            CHECK(at[i] == 5 * i + round);
        if (round == 2)
            w->comm->ops->unprepare(g, &c);
    }
    return TSR_OK;
}

/* In place: the result is where the addend was. */
static tsr_status reduce_large(tsr_world *w, tsri_group *g, int64_t *data, tsri_coll_kind kind,
                               tsri_coll_algo algo)
{
    int64_t n = w->nranks;
    const tsri_segment seg = whole(data, data, LARGE);
    tsri_coll c = {.kind = kind, .algo = algo, .root = w->nranks - 1, .nseg = 1, .seg = &seg};
    bool gets = kind == TSRI_COLL_ALL_REDUCE || w->rank == c.root;
    for (int64_t round = 0; round < 3; round++) {
        for (int64_t i = 0; i < LARGE; i++)
            data[i] = i * (w->rank + 1) + round;
        TSRI_TRY(call_counted(w, g, &c));
        for (int64_t i = 0; i < LARGE; i++)
            CHECK(data[i] == (gets ? i * n * (n + 1) / 2 + n * round : i * (w->rank + 1) + round));
    }
    return TSR_OK;
}

/* Addend i of a rank: between -1 and 1, with all bits in use. */
static float addend(int rank, uint32_t i)
{
    uint32_t h = (i * 64 + (uint32_t)rank + 1) * UINT32_C(2654435761);
    h = (h ^ h >> 15) * UINT32_C(2246822519);
    return (float)(int32_t)(h ^ h >> 13) * 0x1p-31F;
}

/* The sum of floats is that of the members in their order, for each way to do it. */
static tsr_status sum_in_order(tsr_world *w, tsri_group *g, float *data, tsr_reduce_op op,
                               tsri_coll_algo algo)
{
    const float part = 1 / (float)w->nranks;
    tsri_segment seg = whole(data, data, LARGE);
    seg.dtype = TSR_F32;
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .op = op, .algo = algo, .nseg = 1, .seg = &seg};
    for (uint32_t i = 0; i < LARGE; i++)
        data[i] = addend(w->rank, i);
    TSRI_TRY(call_counted(w, g, &c));
    for (uint32_t i = 0; i < LARGE; i++) {
        volatile float sum = 0;
        for (int r = 0; r < w->nranks; r++) {
            volatile float x = addend(r, i);
            if (op == TSR_REDUCE_AVG)
                x *= part;
            sum = r ? sum + x : x;
        }
        float want = sum;
        CHECK(!memcmp(&data[i], &want, sizeof want));
    }
    return TSR_OK;
}

static tsr_status large_body(tsr_world *w, shared *s)
{
    static int64_t data[LARGE + FEW + 1];
    static float floats[LARGE];
    tsri_group *g;
    (void)s;
    TSRI_TRY(gloo_group(w, 0, &g));
    TSRI_TRY(broadcast_large(w, g, data));
    for (int i = 0; i < 4; i++) {
        tsri_coll_algo algo = i % 2 ? TSRI_ALGO_TWO_PHASE : TSRI_ALGO_ONE_SHOT;
        TSRI_TRY(reduce_large(w, g, data, i / 2 ? TSRI_COLL_REDUCE : TSRI_COLL_ALL_REDUCE, algo));
        TSRI_TRY(sum_in_order(w, g, floats, i / 2 ? TSR_REDUCE_AVG : TSR_REDUCE_SUM, algo));
    }
    return TSR_OK;
}

static void test_large(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++)
        gloo_processes_ok(n, large_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large)};
    return cmocka_run_group_tests_name("gloo_large", tests, NULL, NULL);
}
