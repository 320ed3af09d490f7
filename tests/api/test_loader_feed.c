/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaders of both kinds through the same calls: what they give, what they feed to global and to
 * local graphs, where they stand; and tsr_train under tsr_ddp beside the global program.
 */
#include <math.h>
#include <stdlib.h>

#include "rank.h"

enum { SAMPLES = 26, BATCH = 6, PIXELS = 4, CLASSES = 3 };

static void run_on(int ranks, tsr_rank_fn *fn, void *arg)
{
    if (tsr_spawn(ranks, fn, arg) != TSR_OK)
        fail_msg("%d ranks: %s", ranks, tsr_last_error());
}

/* --- a data set that both kinds can read ------------------------------------------------------ */
static double pixel(int64_t sample, int64_t i)
{
    return (double)(sample * PIXELS + i);
}

static int64_t count(void *arg)
{
    (void)arg;
    return SAMPLES;
}

static tsr_status get(void *arg, int64_t index, void *const *out, const tsr_worker *worker)
{
    (void)arg;
    (void)worker;
    double *x = out[0];
    for (int64_t i = 0; i < PIXELS; i++)
        x[i] = pixel(index, i);
    *(int64_t *)out[1] = index;
    return TSR_OK;
}

/* By functions; ranks > 1: each rank has its part by a distributed sampler. */
static tsr_status open_map(tsr_world *w, int ranks, const char *const inputs[2], tsr_loader **out)
{
    tsr_sampler *sampler = NULL;
    tsr_map_loader_opts o =
        *TSR_MAP_LOADER_OPTS(.nfields = 2,
                             .field_bytes = {PIXELS * sizeof(double), sizeof(int64_t)},
                             .ranks = ranks, .batch_size = BATCH / ranks, .num_workers = 1);
    for (int f = 0; inputs && f < 2; f++)
        o.inputs[f] = inputs[f];
    if (ranks > 1)
        TRY(tsr_distributed_sampler(w, SAMPLES, TSR_DISTRIBUTED_SAMPLER_OPTS(.shuffle = false),
                                    &sampler));
    o.sampler = sampler;
    return tsr_map_loader_create(w, TSR_MAP_DATASET(.len = count, .get = get), &o, out);
}

/* --- feeding ---------------------------------------------------------------------------------- */
/* A plan that gives back what is fed; p NULL: this rank's own. */
static tsr_status make_echo(tsr_world *w, int64_t rows, bool local, tsr_sbp sbp, const char *x_name,
                            tsr_plan **out)
{
    const tsr_placement *p = local ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.local = local));
    tsr_tensor *x = tsr_input(g, x_name, TSR_F64, TSR_DIMS(rows, PIXELS), p, sbp);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, TSR_AUTO);
    tsr_output(g, "gives_x", tsr_mul_scalar(x, 1), p, TSR_B);
    tsr_output(g, "gives_y", tsr_add(y, y), p, TSR_B);
    return tsr_compile(g, out);
}

static tsr_status check_echo(tsr_plan *plan, int64_t rows, const int64_t *want)
{
    double x[BATCH * PIXELS];
    int64_t y[BATCH];
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "gives_x", x, (size_t)rows * PIXELS * sizeof *x));
    TRY(tsr_fetch(plan, "gives_y", y, (size_t)rows * sizeof *y));
    for (int64_t r = 0; r < rows; r++) {
        CHECK(y[r] == 2 * want[r]);
        for (int64_t i = 0; i < PIXELS; i++)
            CHECK(x[r * PIXELS + i] == pixel(want[r], i));
    }
    return TSR_OK;
}

/* Row r of batch k of all ranks: their parts one after the other, each of every n-th sample. */
static int64_t sample_at(int ranks, int64_t batch, int64_t row)
{
    const int64_t own = BATCH / ranks, rank = row / own;
    return (batch * own + row % own) * ranks + rank;
}

typedef struct feeding {
    bool own, local; /* each rank has its own rows; and graphs of its own */
    tsr_sbp sbp;
} feeding;

static tsr_status feeds(tsr_world *w, void *arg)
{
    const feeding *f = arg;
    const int n = f->own ? tsr_world_size(w) : 1, rank = tsr_world_rank(w);
    const int64_t rows = f->local ? BATCH / n : BATCH;
    tsr_loader *l;
    tsr_plan *plan;
    TRY(open_map(w, n, NULL, &l));
    TRY(make_echo(w, rows, f->local, f->sbp, "x", &plan));
    for (int64_t k = 0; k < 4; k++) {
        int64_t want[BATCH];
        for (int64_t r = 0; r < rows; r++)
            want[r] = sample_at(n, k, f->local ? rank % n * rows + r : r);
        CHECK(tsr_loader_peek_rows(l) == BATCH && tsr_loader_position(l) == k);
        TRY(tsr_loader_feed(l, plan));
        TRY(check_echo(plan, rows, want));
    }
    CHECK(tsr_loader_peek_rows(l) < BATCH && tsr_loader_peek_rows(l) > 0);
    tsr_status status = tsr_loader_feed(l, plan); /* of fewer rows: it stays */
    CHECK(status == TSR_ERR_SHAPE && tsr_loader_position(l) == 4);
    const tsr_batch *b;
    TRY(tsr_loader_next(l, &b));
    CHECK(b->number == 4 && b->rows * n < BATCH && tsr_loader_position(l) == 5);
    CHECK(tsr_loader_peek_rows(l) == 0 && tsr_loader_epoch(l) == 0);
    CHECK(tsr_loader_feed(l, plan) == TSR_END && tsr_loader_epoch(l) == 1);
    tsr_loader_destroy(l);
    return TSR_OK;
}

static void test_feeds(void **state)
{
    (void)state;
    feeding all[] = {{false, false, TSR_S(0)}, {false, false, TSR_B}, {false, false, TSR_S(1)},
                     {true, false, TSR_S(0)},  {true, true, TSR_B},   {false, true, TSR_B}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int n = 1; n <= 3; n++)
            run_on(n, feeds, &all[i]);
}

/* --- images ----------------------------------------------------------------------------------- */
/* tsr_loader_next and tsr_loader_feed of images are the same batches; with .local, each rank's
 * part. */
static tsr_status images(tsr_world *w, void *arg)
{
    const bool local = *(const bool *)arg;
    const int n = tsr_world_size(w), rank = tsr_world_rank(w);
    tsr_dataset *set;
    tsr_loader *whole, *given, *fed;
    tsr_loader_opts o = *TSR_LOADER_OPTS(.batch_size = BATCH, .shuffle = true, .dtype = TSR_F64);
    TRY(tsr_synthetic_open(w, 1, 2, 2, CLASSES, SAMPLES, 7, &set));
    TRY(tsr_loader_create(w, set, &o, &whole));
    o.local = local;
    TRY(tsr_loader_create(w, set, &o, &given));
    TRY(tsr_loader_create(w, set, &o, &fed));
    for (int k = 0; k < 12; k++) {
        const tsr_batch *all, *own;
        const int64_t rows = tsr_loader_peek_rows(given);
        tsr_status status = tsr_loader_next(given, &own);
        if (status == TSR_END) {
            CHECK(rows == 0 && tsr_loader_peek_rows(fed) == 0);
            TRY(tsr_loader_reset(whole));
            TRY(tsr_loader_reset(fed));
            CHECK(tsr_loader_epoch(whole) == tsr_loader_epoch(given));
            CHECK(tsr_loader_epoch(fed) == tsr_loader_epoch(given));
            continue;
        }
        TRY(status);
        TRY(tsr_loader_next(whole, &all));
        const int64_t mine = local ? rows / n : rows, first = local ? mine * rank : 0;
        CHECK(own->rows == mine && rows % (local ? n : 1) == 0 && rows <= all->rows);
        CHECK(own->nfields == 2 && own->number == all->number && own->epoch == all->epoch);
        CHECK(!memcmp(own->indices, all->indices + first, (size_t)mine * sizeof(int64_t)));
        const double *x = all->data[0];
        const int64_t *y = all->data[1];
        CHECK(!memcmp(own->data[0], x + first * PIXELS, own->bytes[0]));
        CHECK(!memcmp(own->data[1], y + first, own->bytes[1]));
        for (int64_t r = 0; r < all->rows; r++)
            CHECK(y[r] == tsr_dataset_labels(set)[all->indices[r]]);
        tsr_plan *plan;
        const tsr_placement *p = local ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu");
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.local = local));
        tsr_tensor *t = tsr_input(g, "x", TSR_F64, TSR_DIMS(mine, 1, 2, 2), p, TSR_AUTO);
        tsr_input(g, "y", TSR_I64, TSR_DIMS(mine), p, TSR_AUTO);
        tsr_output(g, "gives", tsr_mul_scalar(t, 1), p, TSR_B);
        TRY(tsr_compile(g, &plan));
        TRY(tsr_loader_feed(fed, plan));
        TRY(tsr_run(plan));
        double gives[BATCH * PIXELS];
        TRY(tsr_fetch(plan, "gives", gives, (size_t)(mine * PIXELS) * sizeof *gives));
        CHECK(!memcmp(gives, x + first * PIXELS, (size_t)(mine * PIXELS) * sizeof *gives));
        tsr_plan_destroy(plan);
        tsr_graph_destroy(g);
    }
    return TSR_OK;
}

static void test_images(void **state)
{
    (void)state;
    for (int local = 0; local < 2; local++)
        for (int n = 1; n <= 3; n++)
            run_on(n, images, &(bool){local});
}

/* --- standing --------------------------------------------------------------------------------- */
static tsr_status stands(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_dataset *set;
    tsr_loader *l[2], *other[2];
    TRY(tsr_synthetic_open(w, 1, 2, 2, CLASSES, SAMPLES, 7, &set));
    for (int i = 0; i < 2; i++) {
        tsr_loader **to = i ? other : l;
        TRY(tsr_loader_create(w, set, TSR_LOADER_OPTS(.batch_size = BATCH, .shuffle = true),
                              &to[0]));
        TRY(tsr_map_loader_create(w, TSR_MAP_DATASET(.len = count, .get = get),
                                  TSR_MAP_LOADER_OPTS(.nfields = 2, .field_bytes = {32, 8},
                                                      .batch_size = BATCH, .shuffle = true,
                                                      .num_workers = 2, .seed = 3),
                                  &to[1]));
    }
    tsr_loader_state state[2];
    for (int i = 0; i < 2; i++) {
        const tsr_batch *b;
        int64_t want[BATCH];
        CHECK(tsr_loader_batches(l[i]) == 5);
        for (int k = 0; k < 9; k++) /* the third of the second epoch is next */
            CHECK(tsr_loader_next(l[i], &b) == (k == 5 ? TSR_END : TSR_OK));
        CHECK(tsr_loader_epoch(l[i]) == 1 && tsr_loader_position(l[i]) == 3);
        TRY(tsr_loader_get_state(l[i], &state[i]));
        TRY(tsr_loader_next(l[i], &b));
        memcpy(want, b->indices, sizeof want);
        TRY(tsr_loader_set_state(other[i], &state[i]));
        CHECK(tsr_loader_peek_rows(other[i]) == BATCH && tsr_loader_position(other[i]) == 3);
        TRY(tsr_loader_next(other[i], &b));
        CHECK(!memcmp(want, b->indices, sizeof want));
        TRY(tsr_loader_set_epoch(other[i], 1)); /* the same by hand */
        TRY(tsr_loader_set_position(other[i], 3));
        TRY(tsr_loader_next(other[i], &b));
        CHECK(!memcmp(want, b->indices, sizeof want));
        CHECK(tsr_loader_set_position(other[i], 6) == TSR_ERR_INVALID);
        CHECK(tsr_loader_set_position(other[i], -1) == TSR_ERR_INVALID);
        TRY(tsr_loader_set_position(other[i], 5));
        CHECK(tsr_loader_next(other[i], &b) == TSR_END);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(tsr_loader_set_state(l[i], &state[!i]) == TSR_ERR_INVALID);
        CHECK(strstr(tsr_last_error(), i ? "of a loader of images" : "of a tsr_map_loader_create"));
    }
    return TSR_OK;
}

static void test_stands(void **state)
{
    (void)state;
    run_on(1, stands, NULL);
}

/* --- wrong calls ------------------------------------------------------------------------------ */
static tsr_status refuses(tsr_world *w, void *arg)
{
    (void)arg;
    const int n = tsr_world_size(w);
    tsr_loader *l;
    tsr_plan *plan, *named, *split;
    tsr_dataset *set;
    TRY(make_echo(w, BATCH, false, TSR_S(0), "x", &plan));
    TRY(make_echo(w, BATCH, false, TSR_S(0), "pictures", &named));
    TRY(make_echo(w, BATCH, false, TSR_S(1), "x", &split));
    TRY(open_map(w, 1, NULL, &l));
    CHECK(tsr_loader_feed(l, named) == TSR_ERR_INVALID);
    CHECK(strstr(tsr_last_error(), "no input named 'x'"));
    TRY(tsr_loader_feed(l, plan)); /* the same batch */
    TRY(check_echo(plan, BATCH, (int64_t[]){0, 1, 2, 3, 4, 5}));
    TRY(open_map(w, 1, (const char *const[]){"pictures", "y"}, &l));
    TRY(tsr_loader_feed(l, named));
    TRY(check_echo(named, BATCH, (int64_t[]){0, 1, 2, 3, 4, 5}));
    TRY(open_map(w, 1, (const char *const[]){"x", NULL}, &l));
    CHECK(tsr_loader_feed(l, plan) == TSR_ERR_INVALID);
    CHECK(strstr(tsr_last_error(), "which input takes field 1"));
    TRY(open_map(w, 1, (const char *const[]){"x", ""}, &l));
    TRY(tsr_loader_feed(l, plan));
    /* An own part in an input that is split by columns has the right number of bytes. */
    TRY(open_map(w, n, NULL, &l));
    CHECK(tsr_loader_feed(l, split) == TSR_ERR_SHAPE);
    CHECK(strstr(tsr_last_error(), "split by rows"));
    CHECK(tsr_map_loader_create(w, TSR_MAP_DATASET(.len = count, .get = get),
                                TSR_MAP_LOADER_OPTS(.sample_bytes = 8, .ranks = 0),
                                &l) == TSR_ERR_INVALID);
    TRY(tsr_synthetic_open(w, 1, 2, 2, CLASSES, SAMPLES, 7, &set));
    CHECK(tsr_loader_create(w, set, TSR_LOADER_OPTS(.batch_size = 2 * n + 1, .local = true), &l) ==
          TSR_ERR_INVALID);
    CHECK(strstr(tsr_last_error(), "no multiple of the 2 ranks"));
    TRY(tsr_loader_create(
        w, set, TSR_LOADER_OPTS(.batch_size = BATCH, .local = true, .dtype = TSR_F64), &l));
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_input(g, "x", TSR_F64, TSR_DIMS(BATCH / 2, 1, 2, 2), p, TSR_B);
    tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH / 2), p, TSR_B);
    TRY(tsr_compile(g, &plan));
    CHECK(tsr_loader_feed(l, plan) == TSR_ERR_PLACEMENT);
    return TSR_OK;
}

static void test_refuses(void **state)
{
    (void)state;
    run_on(2, refuses, NULL);
}

/* --- training under tsr_ddp ------------------------------------------------------------------- */
typedef struct net {
    tsr_world *w;
    const tsr_placement *p;
    tsr_module *m;
    tsr_optimizer *o;
    tsr_ddp *ddp; /* NULL: the global program */
} net;

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    net *n = arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, 1, 2, 2), n->p, TSR_AUTO);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->p, TSR_AUTO);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(n->m, x), y, TSR_MEAN);
    const tsr_minimize_opts how = *TSR_MINIMIZE_OPTS(.clip_norm = 0.5, .accumulate = 2);
    tsr_output(g, "loss", loss, n->p, TSR_B);
    if (training && n->ddp)
        tsr_ddp_minimize(n->ddp, n->o, 1, &loss, &how);
    else if (training)
        tsr_minimize_with(n->o, 1, &loss, &how);
    return TSR_OK;
}

typedef struct trained {
    bool ddp;
    tsr_epoch last;
    double weights[8 * PIXELS];
} trained;

static tsr_status trains(tsr_world *w, void *arg)
{
    trained *t = arg;
    net n = {.w = w, .p = t->ddp ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu")};
    tsr_dataset *set;
    tsr_loader *train, *eval;
    tsr_program *program;
    tsr_epoch last;
    n.m =
        tsr_mlp(w, n.p, TSR_B,
                TSR_MLP_OPTS(.inputs = PIXELS, .hidden = 8, .outputs = CLASSES, .dtype = TSR_F64));
    n.o = tsr_adam(n.m, TSR_ADAM_OPTS(.lr = 0.02));
    if (t->ddp)
        TRY(tsr_ddp_create(n.m, NULL, &n.ddp));
    TRY(tsr_synthetic_open(w, 1, 2, 2, CLASSES, SAMPLES, 7, &set));
    tsr_loader_opts o = *TSR_LOADER_OPTS(.batch_size = BATCH, .shuffle = true, .drop_last = true,
                                         .local = t->ddp, .dtype = TSR_F64);
    TRY(tsr_loader_create(w, set, &o, &train));
    o.shuffle = false;
    TRY(tsr_loader_create(w, set, &o, &eval));
    TRY(tsr_program_create(w, declare, &n, TSR_PROGRAM_OPTS(.local = t->ddp), &program));
    TRY(tsr_train(program, TSR_TRAIN_OPTS(.epochs = 3, .train = train, .eval = eval, .quiet = true),
                  &last));
    double weights[8 * PIXELS];
    TRY(tsr_variable_get(tsr_module_find(n.m, "0.weight"), weights, sizeof weights));
    if (tsr_world_rank(w) == tsr_world_size(w) - 1) {
        t->last = last;
        memcpy(t->weights, weights, sizeof weights);
    }
    return n.ddp ? tsr_ddp_close(&n.ddp) : TSR_OK;
}

static void test_trains(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        trained global = {.ddp = false}, ddp = {.ddp = true};
        run_on(n, trains, &global);
        run_on(n, trains, &ddp);
        assert_int_equal(ddp.last.step, global.last.step);
        assert_true(fabs(ddp.last.train[0] - global.last.train[0]) < 1e-12);
        assert_true(fabs(ddp.last.eval[0] - global.last.eval[0]) < 1e-12);
        for (int i = 0; i < 8 * PIXELS; i++)
            assert_true(fabs(ddp.weights[i] - global.weights[i]) < 1e-12);
    }
}

/* --- going on under tsr_ddp ------------------------------------------------------------------- */
typedef struct going {
    char folder[64];
    int64_t steps; /* 0: to the end */
    bool saves;
    double weights[3][8 * PIXELS]; /* by rank */
    tsr_epoch last;
} going;

/* Three epochs of samples by functions, each rank's by a distributed sampler. */
static tsr_status goes(tsr_world *w, void *arg)
{
    going *t = arg;
    const int n = tsr_world_size(w);
    net mine = {.w = w, .p = tsr_local_placement(w)};
    tsr_sampler *sampler;
    tsr_loader *loader;
    tsr_program *program;
    tsr_checkpoint *c = NULL;
    tsr_epoch last;
    mine.m =
        tsr_mlp(w, mine.p, TSR_B,
                TSR_MLP_OPTS(.inputs = PIXELS, .hidden = 8, .outputs = SAMPLES, .dtype = TSR_F64));
    mine.o = tsr_adam(mine.m, TSR_ADAM_OPTS(.lr = 0.02));
    TRY(tsr_ddp_create(mine.m, NULL, &mine.ddp));
    TRY(tsr_distributed_sampler(
        w, SAMPLES, TSR_DISTRIBUTED_SAMPLER_OPTS(.seed = 3, .drop_last = true), &sampler));
    TRY(tsr_map_loader_create(
        w, TSR_MAP_DATASET(.len = count, .get = get),
        TSR_MAP_LOADER_OPTS(.nfields = 2, .field_bytes = {PIXELS * sizeof(double), 8}, .ranks = n,
                            .batch_size = BATCH / n, .sampler = sampler, .num_workers = 2,
                            .drop_last = true),
        &loader));
    TRY(tsr_program_create(w, declare, &mine, TSR_PROGRAM_OPTS(.local = true), &program));
    if (t->saves) {
        TRY(tsr_checkpoint_create(w, t->folder, NULL, &c));
        TRY(tsr_checkpoint_add_module(c, "model", mine.m));
        TRY(tsr_checkpoint_add_optimizer(c, "optimizer", mine.o));
        TRY(tsr_checkpoint_add_loader(c, "loader", loader));
    }
    TRY(tsr_train(program,
                  TSR_TRAIN_OPTS(.epochs = 3, .steps = t->steps, .train = loader, .checkpoint = c,
                                 .quiet = true),
                  &last));
    TRY(tsr_variable_get(tsr_module_find(mine.m, "0.weight"), t->weights[tsr_world_rank(w)],
                         sizeof t->weights[0]));
    if (tsr_world_rank(w) == 0)
        t->last = last;
    tsr_checkpoint_destroy(c);
    return tsr_ddp_close(&mine.ddp);
}

/* Stopped inside an epoch, between two updates and behind one, and gone on with: the same bits. */
static void test_goes_on(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        going whole = {0};
        run_on(n, goes, &whole);
        for (int64_t stop = 5; stop <= 6; stop++) {
            going part = {.folder = "/tmp/tessera-loader-XXXXXX", .steps = stop, .saves = true};
            char command[128];
            assert_non_null(mkdtemp(part.folder));
            run_on(n, goes, &part);
            assert_int_equal(part.last.step, stop);
            part.steps = 0;
            run_on(n, goes, &part);
            assert_int_equal(part.last.step, whole.last.step);
            assert_true(part.last.train[0] == whole.last.train[0]);
            for (int r = 0; r < n; r++) {
                assert_memory_equal(part.weights[r], whole.weights[r], sizeof whole.weights[r]);
                assert_memory_equal(part.weights[r], whole.weights[0], sizeof whole.weights[r]);
            }
            snprintf(command, sizeof command, "rm -r %s", part.folder);
            assert_int_equal(system(command), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_feeds),  cmocka_unit_test(test_images),
        cmocka_unit_test(test_stands), cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_trains), cmocka_unit_test(test_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
