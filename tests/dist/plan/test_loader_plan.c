/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsr_loader_feed: what a plan's inputs hold, in any signatures, on any ranks and devices, against
 * the data set's own bytes; where a loader stands after an error; what ranks without inputs do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/data/loader/image_loader.h"
#include "tests/dist/comm/rank_checks.h"

enum { SIDE = 4, BATCH = 7, BATCHES = 3, COUNT = BATCH * BATCHES, IMAGE = 3 * SIDE * SIDE };

/* Where x and y live, by the number of ranks: all of them, the first, the last. */
enum where { EVERYWHERE, FIRST, LAST };

typedef struct inputs {
    tsr_sbp x, y;
    enum where at_x, at_y;
    int workers;
} inputs;

static const tsr_placement *place(tsr_world *w, enum where at)
{
    char text[32];
    snprintf(text, sizeof text, "cpu:[%d]", at == LAST ? tsr_world_size(w) - 1 : 0);
    return at == EVERYWHERE ? tsr_placement_parse(w, "cpu") : tsr_placement_parse(w, text);
}

/* Gives back what it is fed. */
static tsr_status compile_echo(tsr_world *w, const inputs *in, tsr_plan **out_plan)
{
    const tsr_placement *all = place(w, EVERYWHERE);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(BATCH, 3, SIDE, SIDE), place(w, in->at_x),
                              in->at_x == EVERYWHERE ? in->x : TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH), place(w, in->at_y),
                              in->at_y == EVERYWHERE ? in->y : TSR_B);
    tsr_output(g, "x got", tsr_to_global(x, all, TSR_B), all, TSR_B);
    tsr_output(g, "y got", tsr_to_global(y, all, TSR_B), all, TSR_B);
    tsr_status status = tsr_compile(g, out_plan);
    tsr_graph_destroy(g);
    return status;
}

static tsr_status check_batch(tsr_plan *plan, const tsr_dataset *ds, int64_t batch)
{
    float x[BATCH * IMAGE];
    int64_t y[BATCH];
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch(plan, "x got", x, sizeof x));
    TSRI_TRY(tsr_fetch(plan, "y got", y, sizeof y));
    for (int64_t i = 0; i < BATCH; i++)
        CHECK(y[i] == tsr_dataset_labels(ds)[batch * BATCH + i]);
    for (int64_t i = 0; i < (int64_t)BATCH * IMAGE; i++)
        CHECK(x[i] == (float)tsr_dataset_images(ds)[batch * BATCH * IMAGE + i] / 255.0F);
    return TSR_OK;
}

static tsr_status open_loader(tsr_world *w, int workers, tsr_dataset **out_ds, tsr_loader **out_l)
{
    TSRI_TRY(tsr_synthetic_open(w, 3, SIDE, SIDE, 10, COUNT, 3, out_ds));
    return tsr_loader_create(w, *out_ds, TSR_LOADER_OPTS(.batch_size = BATCH, .workers = workers),
                             out_l);
}

/* Two epochs. */
static tsr_status feed_all(tsr_world *w, void *arg)
{
    const inputs *in = arg;
    tsr_dataset *ds;
    tsr_loader *l;
    tsr_plan *plan;
    TSRI_TRY(open_loader(w, in->workers, &ds, &l));
    TSRI_TRY(compile_echo(w, in, &plan));
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int64_t batch = 0; batch < BATCHES; batch++) {
            TSRI_TRY(tsr_loader_feed(l, plan));
            TSRI_TRY(check_batch(plan, ds, batch));
        }
        CHECK(tsr_loader_peek_rows(l) == 0 && tsr_loader_epoch(l) == epoch);
        CHECK(tsr_loader_feed(l, plan) == TSR_END && tsr_loader_epoch(l) == epoch + 1);
    }
    tsr_plan_destroy(plan);
    tsr_loader_destroy(l);
    return TSR_OK;
}

static void on_ranks(tsr_rank_fn *fn, void *arg)
{
    for (int n = 1; n <= 3; n++) {
        tsr_status status = tsr_spawn(n, fn, arg);
        if (status != TSR_OK)
            fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
    }
}

static void any_signatures(void **state)
{
    (void)state;
    const tsr_sbp xs[] = {TSR_S(0), TSR_B, TSR_S(1), TSR_P}, ys[] = {TSR_S(0), TSR_B, TSR_P};
    for (size_t x = 0; x < sizeof xs / sizeof *xs; x++)
        for (size_t y = 0; y < sizeof ys / sizeof *ys; y++)
            for (int off = 0; off < 2; off++)
                on_ranks(feed_all, &(inputs){.x = xs[x], .y = ys[y], .workers = off ? 0 : 1});
}

static void any_ranks(void **state)
{
    (void)state;
    for (int x = EVERYWHERE; x <= LAST; x++)
        for (int y = EVERYWHERE; y <= LAST; y++)
            for (int off = 0; off < 2; off++)
                on_ranks(feed_all,
                         &(inputs){TSR_S(0), TSR_S(0), (enum where)x, (enum where)y, off ? 0 : 1});
}

/* Plans take turns at a loader, so that ranks hold inputs now and then. */
static tsr_status take_turns(tsr_world *w, void *arg)
{
    const inputs in[] = {{.x = TSR_S(0), .y = TSR_S(0)}, {.at_x = FIRST, .at_y = FIRST}};
    const int turns[][BATCHES] = {{0, 1, 0}, {1, 0, 1}, {0, 0, 1}};
    tsr_dataset *ds;
    tsr_loader *l;
    tsr_plan *plan[2];
    (void)arg;
    TSRI_TRY(open_loader(w, 0, &ds, &l));
    for (int i = 0; i < 2; i++)
        TSRI_TRY(compile_echo(w, &in[i], &plan[i]));
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int64_t batch = 0; batch < BATCHES; batch++) {
            tsr_plan *p = plan[turns[epoch][batch]];
            TSRI_TRY(tsr_loader_feed(l, p));
            TSRI_TRY(check_batch(p, ds, batch));
        }
        CHECK(tsr_loader_feed(l, plan[0]) == TSR_END);
    }
    return TSR_OK;
}

static void plans_take_turns(void **state)
{
    (void)state;
    on_ranks(take_turns, NULL);
}

/* Ranks that hold no images decode none. */
static tsr_status hold_none(tsr_world *w, void *arg)
{
    const inputs in = {.at_x = FIRST, .at_y = LAST, .workers = *(const int *)arg};
    int rank = tsr_world_rank(w), last = tsr_world_size(w) - 1;
    tsr_dataset *ds;
    tsr_loader *l;
    tsr_plan *plan;
    TSRI_TRY(open_loader(w, in.workers, &ds, &l));
    TSRI_TRY(compile_echo(w, &in, &plan));
    for (int64_t batch = 0; batch < BATCHES; batch++)
        TSRI_TRY(tsr_loader_feed(l, plan));
    const tsri_image_loader *images = (const tsri_image_loader *)l;
    CHECK(rank == 0 || (!images->ring && !images->held));
    CHECK((images->labels != NULL) == (rank == last && rank != 0));
    CHECK(tsr_loader_feed(l, plan) == TSR_END);
    return TSR_OK;
}

static void ranks_without_inputs_decode_nothing(void **state)
{
    (void)state;
    on_ranks(hold_none, &(int){1});
    on_ranks(hold_none, &(int){0});
}

/* The n-th allocation fails: the loader stays, and gives the batch when it is asked again. */
static tsr_status fail_nth(const inputs *in, tsr_world *w, int64_t n, bool *out_failed)
{
    tsr_dataset *ds;
    tsr_loader *l;
    tsr_plan *plan;
    TSRI_TRY(open_loader(w, in->workers, &ds, &l));
    TSRI_TRY(compile_echo(w, in, &plan));
    w->mem.fail_countdown = n;
    tsr_status status = tsr_loader_feed(l, plan);
    w->mem.fail_countdown = 0;
    *out_failed = status != TSR_OK;
    if (*out_failed) {
        CHECK(status == TSR_ERR_NO_MEMORY);
        TSRI_TRY(tsr_loader_feed(l, plan));
    }
    for (int64_t batch = 0; batch < BATCHES; batch++) {
        if (batch)
            TSRI_TRY(tsr_loader_feed(l, plan));
        TSRI_TRY(check_batch(plan, ds, batch));
    }
    CHECK(tsr_loader_feed(l, plan) == TSR_END);
    tsr_plan_destroy(plan);
    tsr_loader_destroy(l);
    return TSR_OK;
}

static tsr_status fail_each(tsr_world *w, void *arg)
{
    enum { MOST = 12 }; /* for all ranks, which compile together */
    bool failed;
    for (int64_t n = 1; n <= MOST; n++) {
        TSRI_TRY(fail_nth(arg, w, n, &failed));
        CHECK(n > 1 || failed || tsr_world_size(w) == 1);
    }
    CHECK(!failed);
    return TSR_OK;
}

static void errors_leave_it_where_it_is(void **state)
{
    (void)state;
    const tsr_sbp xs[] = {TSR_S(0), TSR_S(1)}, ys[] = {TSR_B, TSR_P};
    for (int x = 0; x < 2; x++)
        for (int y = 0; y < 2; y++)
            for (int off = 0; off < 2; off++)
                on_ranks(fail_each, &(inputs){.x = xs[x], .y = ys[y], .workers = off ? 0 : 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_signatures),
        cmocka_unit_test(any_ranks),
        cmocka_unit_test(plans_take_turns),
        cmocka_unit_test(ranks_without_inputs_decode_nothing),
        cmocka_unit_test(errors_leave_it_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
