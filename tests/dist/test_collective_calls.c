/* SPDX-License-Identifier: Apache-2.0 */
/* What collectives ask of a communicator that has no way of its own for them, in a group of more
 * ranks than one machine has: of a stand-in that looks at each call and moves nothing. */
#include "src/comm/collective.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 1000, ME = 7 };

static struct {
    tsri_group group;
    int calls, pulls; /* pulls: of the last call */
    bool in_order;    /* the last call reads 1 element of each member, one after the other */
} seen;

static tsr_status find_group(tsri_comm *c, int nranks, const int *ranks, int lane,
                             tsri_group **out_group)
{
    seen.group =
        (tsri_group){.comm = c, .nranks = nranks, .index = ME, .ranks = ranks, .lane = lane};
    *out_group = &seen.group;
    return TSR_OK;
}

static tsr_status start(tsri_group *g, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    const tsri_segment *s = coll->seg;
    *out_ticket = (tsri_ticket){.coll = coll};
    seen.calls++;
    seen.pulls = s->npulls;
    seen.in_order = true;
    for (int i = 0; i < s->npulls; i++) {
        const tsri_pull *p = &s->pulls[i];
        seen.in_order = seen.in_order && p->ndim == 1 && p->nsrc == 1 && p->src[0] == i &&
                        p->length[0] == 1 && p->dst_at == i;
    }
    return g->nranks == RANKS ? TSR_OK : TSR_ERR_INTERNAL;
}

/* All ranks give what this one gives. */
static tsr_status finish(tsri_group *g, tsri_ticket *ticket)
{
    const tsri_segment *s = ticket->coll->seg;
    size_t row = (size_t)s->shape.d[1] * tsr_dtype_size(s->dtype);
    for (int i = 0; ticket->coll->kind == TSRI_COLL_ALL_GATHER && i < g->nranks; i++)
        memcpy((char *)s->dst + (size_t)i * row, s->src, row);
    return TSR_OK;
}

static tsr_status release(tsri_group *g, tsri_ticket *ticket)
{
    (void)g;
    (void)ticket;
    return TSR_OK;
}

static const tsri_comm_ops ops = {.size = sizeof ops,
                                  .name = "stand-in",
                                  .group = find_group,
                                  .start = start,
                                  .finish = finish,
                                  .release = release};

static void test_wide(void **state)
{
    static float src[RANKS], dst[RANKS];
    static int64_t ones[RANKS];
    int ranks[RANKS];
    tsr_world *w;
    tsri_engine *e;
    tsr_group *g;
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = i;
        ones[i] = 1;
    }
    assert_int_equal(tsr_world_create_virtual(RANKS, ME, &w), TSR_OK);
    tsri_comm comm = {.ops = &ops, .world = w};
    assert_int_equal(tsri_engine_create(w, &comm, &e), TSR_OK);
    assert_int_equal(tsri_engine_group(e, RANKS, ranks, &g), TSR_OK);

    assert_int_equal(tsr_gather_to(g, src, dst, 1, TSR_F32, ME), TSR_OK);
    assert_true(seen.calls == 1 && seen.pulls == RANKS && seen.in_order);
    assert_int_equal(tsr_gather_to(g, src, dst, 1, TSR_F32, 3), TSR_OK);
    assert_true(seen.calls == 2 && seen.pulls == 0);
    assert_int_equal(tsr_scatter_from(g, src, dst, 1, TSR_F32, 3), TSR_OK);
    assert_true(seen.calls == 3 && seen.pulls == 1);
    assert_int_equal(tsr_all_to_all(g, src, ones, dst, ones, TSR_F32), TSR_OK);
    assert_true(seen.calls == 5 && seen.pulls == RANKS && seen.in_order);
    tsr_work *work;
    assert_int_equal(tsr_all_to_all_async(g, src, ones, dst, ones, TSR_F32, &work), TSR_OK);
    assert_int_equal(tsr_work_wait(&work, 0), TSR_OK);
    assert_true(seen.calls == 7 && seen.pulls == RANKS && seen.in_order);

    tsri_engine_destroy(e);
    tsr_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wide)};
    return cmocka_run_group_tests_name("collective_calls", tests, NULL, NULL);
}
