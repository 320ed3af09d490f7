/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of any number of rows, and tsr_train beside a loop that is written out. */
#include <signal.h>
#include <unistd.h>

#include "rank.h"

enum { SAMPLES = 50, ROWS = 16, CLASSES = 3, PIXELS = 16 };

/* A net with its data, and how often it was declared. */
typedef struct net {
    tsr_world *w;
    const tsr_placement *p;
    tsr_module *m;
    tsr_optimizer *o;
    tsr_loader *train, *eval;
    tsr_program *program;
    int declared;
} net;

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    net *n = arg;
    n->declared++;
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, 1, 4, 4), n->p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->p, TSR_S(0));
    tsr_tensor *logits = tsr_apply(n->m, tsr_dropout(x, 0.1));
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_tensor *hit = tsr_cast(tsr_equal(tsr_argmax(logits, 1), y), TSR_F64);
    tsr_output(g, "loss", loss, n->p, TSR_B);
    tsr_output(g, "right", tsr_mean(hit, TSR_ALL_AXES, false), n->p, TSR_B);
    if (training)
        tsr_minimize(n->o, loss);
    return rows == 13 ? tsr_set_error(TSR_ERR_INVALID, "thirteen") : TSR_OK;
}

static tsr_status make(tsr_world *w, net *n)
{
    tsr_dataset *set;
    *n = (net){.w = w, .p = tsr_placement_parse(w, "cpu")};
    n->m =
        tsr_mlp(w, n->p, TSR_B,
                TSR_MLP_OPTS(.inputs = PIXELS, .hidden = 8, .outputs = CLASSES, .dtype = TSR_F64));
    n->o = tsr_adam(n->m, TSR_ADAM_OPTS(.lr = 0.02));
    TSR_TRY(tsr_synthetic_open(w, 1, 4, 4, CLASSES, SAMPLES, 7, &set));
    TSR_TRY(tsr_loader_create(
        w, set, TSR_LOADER_OPTS(.batch_size = ROWS, .shuffle = true, .dtype = TSR_F64), &n->train));
    TSR_TRY(
        tsr_loader_create(w, set, TSR_LOADER_OPTS(.batch_size = 20, .dtype = TSR_F64), &n->eval));
    return tsr_program_create(w, declare, n, TSR_PROGRAM_OPTS(.plans = 3), &n->program);
}

/* --- plans ------------------------------------------------------------------------------------ */
static tsr_status keep_plans(tsr_world *w, void *arg)
{
    (void)arg;
    net n;
    tsr_plan *a, *b, *c, *again;
    int64_t rows, all = 0;
    TSR_TRY(make(w, &n));
    TSR_TRY(tsr_program_plan(n.program, 16, true, &a));
    TSR_TRY(tsr_program_plan(n.program, 2, true, &b));
    TSR_TRY(tsr_program_plan(n.program, 16, false, &c));
    TSR_TRY(tsr_program_plan(n.program, 16, true, &again));
    CHECK(n.declared == 3);
    CHECK(a == again && a != b && a != c && b != c);
    TSR_TRY(tsr_program_plan(n.program, 5, true, &again)); /* that of 2 rows goes */
    TSR_TRY(tsr_program_plan(n.program, 16, true, &again));
    CHECK(n.declared == 4);
    TSR_TRY(tsr_program_plan(n.program, 2, true, &b));
    CHECK(n.declared == 5);
    CHECK(tsr_program_plan(n.program, 13, true, &b) == TSR_ERR_INVALID);
    CHECK(strstr(tsr_last_error(), "thirteen"));
    CHECK(tsr_program_plan(n.program, 0, true, &b) == TSR_ERR_INVALID);
    for (int i = 0; i < 4; i++) { /* 16, 16, 16 and 2 rows */
        TSR_TRY(tsr_program_feed(n.program, n.train, true, &a, &rows));
        TSR_TRY(tsr_run(a));
        all += rows;
    }
    CHECK(all == SAMPLES);
    CHECK(tsr_program_feed(n.program, n.train, true, &a, &rows) == TSR_END);
    CHECK(tsr_loader_epoch(n.train) == 1);
    CHECK(tsr_loader_position(n.train) == 0);
    tsr_program_destroy(n.program);
    return TSR_OK;
}

static void test_plans(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        if (tsr_spawn(ranks, keep_plans, NULL) != TSR_OK)
            fail_msg("%s", tsr_last_error());
}

/* --- training --------------------------------------------------------------------------------- */
typedef struct job {
    int64_t epochs, steps, patience;
    char folder[64];
    double weights[8 * PIXELS];
    tsr_epoch last;
    tsr_status status;
    int signal_at, calls;
} job;

/* Two epochs, written out. */
static tsr_status by_hand(tsr_world *w, void *arg)
{
    job *j = arg;
    net n;
    TSR_TRY(make(w, &n));
    double loss = 0, right = 0, rows_seen = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        tsr_plan *plan;
        int64_t rows;
        tsr_status status;
        loss = right = rows_seen = 0;
        while ((status = tsr_program_feed(n.program, n.train, true, &plan, &rows)) == TSR_OK) {
            double l, r;
            TSR_TRY(tsr_run(plan));
            TSR_TRY(tsr_fetch_scalar(plan, "loss", &l));
            TSR_TRY(tsr_fetch_scalar(plan, "right", &r));
            loss += l * (double)rows;
            right += r * (double)rows;
            rows_seen += (double)rows;
        }
        CHECK(status == TSR_END);
    }
    double weights[8 * PIXELS];
    TSR_TRY(tsr_variable_get(tsr_module_find(n.m, "0.weight"), weights, sizeof weights));
    if (tsr_world_rank(w) == 0) {
        memcpy(j->weights, weights, sizeof weights);
        j->last.train[0] = loss / rows_seen;
        j->last.train[1] = right / rows_seen;
    }
    return TSR_OK;
}

static tsr_status count_epoch(const tsr_epoch *epoch, void *arg)
{
    job *j = arg;
    j->calls++;
    if (j->signal_at && epoch->step >= j->signal_at)
        raise(SIGTERM);
    return TSR_OK;
}

static tsr_status by_trainer(tsr_world *w, void *arg)
{
    job *j = arg;
    net n;
    tsr_checkpoint *c = NULL;
    tsr_epoch last;
    TSR_TRY(make(w, &n));
    if (j->folder[0]) {
        TSR_TRY(tsr_checkpoint_create(w, j->folder, TSR_CHECKPOINT_OPTS(.keep = 0), &c));
        TSR_TRY(tsr_checkpoint_add_module(c, "model", n.m));
        TSR_TRY(tsr_checkpoint_add_optimizer(c, "optimizer", n.o));
        TSR_TRY(tsr_checkpoint_add_loader(c, "loader", n.train));
    }
    const bool chief = tsr_world_rank(w) == 0;
    tsr_status status =
        tsr_train(n.program,
                  TSR_TRAIN_OPTS(.epochs = j->epochs, .steps = j->steps, .train = n.train,
                                 .eval = j->patience ? n.eval : NULL, .outputs = {"loss", "right"},
                                 .patience = j->patience, .checkpoint = c, .quiet = true,
                                 .on_epoch = chief ? count_epoch : NULL, .arg = j),
                  &last);
    double weights[8 * PIXELS];
    TSR_TRY(tsr_variable_get(tsr_module_find(n.m, "0.weight"), weights, sizeof weights));
    if (chief) {
        memcpy(j->weights, weights, sizeof weights);
        j->last = last;
        j->status = status;
    }
    return status == TSR_END ? TSR_OK : status;
}

static void spawn(int ranks, tsr_rank_fn *fn, job *j)
{
    if (tsr_spawn(ranks, fn, j) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

static void test_train(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        job hand = {0}, trainer = {.epochs = 2};
        spawn(ranks, by_hand, &hand);
        spawn(ranks, by_trainer, &trainer);
        assert_memory_equal(hand.weights, trainer.weights, sizeof hand.weights);
        assert_true(hand.last.train[0] == trainer.last.train[0]);
        assert_true(hand.last.train[1] == trainer.last.train[1]);
        assert_int_equal(trainer.last.epoch, 1);
        assert_int_equal(trainer.last.step, 8);
        assert_int_equal(trainer.calls, 2);
        assert_true(isnan(trainer.last.eval[0]) && isnan(trainer.last.train[2]));
    }
}

static void make_folder(job *j)
{
    strcpy(j->folder, "/tmp/tessera_program_XXXXXX");
    assert_non_null(mkdtemp(j->folder));
}

static void remove_folder(const job *j)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", j->folder);
    assert_int_equal(system(command), 0);
}

/* In parts, one of which a signal ends, it gives what it gives in one. */
static void test_goes_on(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        job whole = {.epochs = 4}, parts = {.epochs = 4, .steps = 6};
        spawn(ranks, by_trainer, &whole);
        make_folder(&parts);
        spawn(ranks, by_trainer, &parts); /* stops in the second epoch */
        assert_int_equal(parts.last.step, 6);
        parts.steps = 0;
        parts.signal_at = 12; /* at the end of the third */
        spawn(ranks, by_trainer, &parts);
        assert_int_equal(parts.status, TSR_END);
        assert_int_equal(parts.last.epoch, 2);
        parts.signal_at = 0;
        spawn(ranks, by_trainer, &parts);
        assert_int_equal(parts.status, TSR_OK);
        assert_int_equal(parts.last.step, 16);
        assert_memory_equal(whole.weights, parts.weights, sizeof whole.weights);
        assert_true(whole.last.train[0] == parts.last.train[0]);
        remove_folder(&parts);
    }
}

static void test_patience(void **state)
{
    (void)state;
    job j = {.epochs = 1000, .patience = 2};
    spawn(2, by_trainer, &j);
    assert_true(j.last.epoch > 3 && j.last.epoch < 999);
    assert_false(j.last.is_best);
    assert_false(isnan(j.last.eval[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_train),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
