/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong programs of several ranks: nobody hangs, and every rank is told. */
#include "rank.h"

/* What each rank was told; written before the rank ends. */
typedef struct told {
    tsr_status status[3];
    char text[3][1024];
} told;

static void note(tsr_world *w, told *t, tsr_status status)
{
    int me = tsr_world_rank(w);
    t->status[me] = status;
    snprintf(t->text[me], sizeof t->text[me], "%s", tsr_last_error());
}

static void says_all(const char *text, int line, const char *const *words)
{
    for (; *words; words++)
        if (!strstr(text, *words))
            fail_msg("line %d: no '%s' in: %s", line, *words, text);
}
#define SAYS(text, ...) says_all(text, __LINE__, (const char *const[]){__VA_ARGS__, NULL})

/* All n ranks got `status` and a text with the words. */
#define ALL_SAY(t, n, want, ...)                 \
    for (int r_ = 0; r_ < (n); r_++) {           \
        assert_int_equal((t)->status[r_], want); \
        SAYS((t)->text[r_], __VA_ARGS__);        \
    }

/* --- programs that differ --------------------------------------------------------------------- */
enum { SHAPE, OP, MORE, OUTPUT, SIGNATURE };
typedef struct difference {
    told told;
    int kind;
} difference;

static tsr_status declare_differently(tsr_world *w, void *arg)
{
    difference *d = arg;
    bool odd = tsr_world_rank(w) == 1;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, odd && d->kind == SHAPE ? 6 : 5), p,
                              odd && d->kind == SIGNATURE ? TSR_S(1) : TSR_S(0));
    tsr_tensor *y = odd && d->kind == OP ? tsr_exp(x) : tsr_tanh(x);
    if (odd && d->kind == MORE)
        y = tsr_neg(y);
    tsr_output(g, odd && d->kind == OUTPUT ? "z" : "y", y, p, TSR_B);
    tsr_plan *plan;
    note(w, &d->told, tsr_compile(g, &plan));
    CHECK(d->told.status[tsr_world_rank(w)] != TSR_OK);
    /* The world is none the worse: a program that agrees runs. */
    tsr_graph *good = tsr_graph_create(w, NULL);
    double sum;
    TRY(tsr_eval(tsr_sum(tsr_full(good, TSR_F64, TSR_DIMS(7), p, TSR_S(0), 2), TSR_ALL_AXES, false),
                 &sum, sizeof sum));
    CHECK(sum == 14);
    return TSR_OK;
}

static void differ(int kind, difference *d)
{
    *d = (difference){.kind = kind};
    if (tsr_spawn(3, declare_differently, d) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

static void test_programs_differ(void **state)
{
    (void)state;
    static difference d;
    differ(SHAPE, &d);
    ALL_SAY(&d.told, 3, TSR_ERR_MISMATCH, "op 0", "rank 0", "rank 1", "(4,5)", "(4,6)", "input x",
            "test_rank_errors.c:");
    differ(OP, &d);
    ALL_SAY(&d.told, 3, TSR_ERR_MISMATCH, "op 1", "rank 0", "rank 1", "test_rank_errors.c:");
    differ(MORE, &d);
    ALL_SAY(&d.told, 3, TSR_ERR_MISMATCH, "op 2", "rank 0", "no more ops", "rank 1");
    differ(SIGNATURE, &d);
    ALL_SAY(&d.told, 3, TSR_ERR_MISMATCH, "op 0", "S(0)", "S(1)");
    differ(OUTPUT, &d);
    ALL_SAY(&d.told, 3, TSR_ERR_MISMATCH, "outputs");
}

/* One rank's error of the declaration is everybody's. */
static tsr_status one_fails(tsr_world *w, void *arg)
{
    told *t = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 5), p, TSR_S(0));
    tsr_output(g, "y", tsr_world_rank(w) == 2 ? tsr_matmul(x, x) : x, p, TSR_B);
    tsr_plan *plan;
    note(w, t, tsr_compile(g, &plan));
    return TSR_OK;
}

static void test_one_fails(void **state)
{
    (void)state;
    static told t;
    assert_int_equal(tsr_spawn(3, one_fails, &t), TSR_OK);
    ALL_SAY(&t, 3, TSR_ERR_SHAPE, "matmul", "(4,5)", "test_rank_errors.c:");
    SAYS(t.text[0], "rank 2");
    SAYS(t.text[1], "rank 2");
}

/* --- ports ------------------------------------------------------------------------------------ */
static tsr_status fetch_wrongly(tsr_world *w, void *arg)
{
    told *t = arg;
    float v[6] = {0};
    double value;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(6), p, TSR_S(0));
    tsr_output(g, "partial", tsr_sum(x, TSR_ALL_AXES, false), p, TSR_P);
    tsr_output(g, "split", x, p, TSR_S(0));
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", v, sizeof v));
    TRY(tsr_run(plan));
    CHECK(tsr_fetch(plan, "split", v, sizeof v) == TSR_ERR_SBP);
    CHECK(strstr(tsr_last_error(), "S(0)") && strstr(tsr_last_error(), "tsr_fetch_shard"));
    CHECK(tsr_fetch_shard(plan, "split", v, sizeof v, NULL) == TSR_ERR_SHAPE);
    CHECK(tsr_fetch_scalar(plan, "partial", &value) == TSR_ERR_SBP);
    note(w, t, tsr_fetch(plan, "partial", v, 4));
    return TSR_OK;
}

static void test_fetch_partial(void **state)
{
    (void)state;
    static told t;
    if (tsr_spawn(3, fetch_wrongly, &t) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    ALL_SAY(&t, 3, TSR_ERR_SBP, "'partial'", "P", "tsr_fetch_shard", "B");
}

/* --- runs that fail --------------------------------------------------------------------------- */
static tsr_status wrong_label(tsr_world *w, void *arg)
{
    told *t = arg;
    float x[6][3] = {{0}};
    int64_t y[6] = {0, 1, 2, 0, 1, 7}; /* the last rank's */
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *logits = tsr_input(g, "x", TSR_F32, TSR_DIMS(6, 3), p, TSR_S(0));
    tsr_tensor *labels = tsr_input(g, "y", TSR_I64, TSR_DIMS(6), p, TSR_S(0));
    tsr_tensor *each = tsr_cross_entropy(logits, labels, TSR_NONE);
    tsr_output(g, "loss", tsr_to_global(each, p, TSR_S(0)), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", x, sizeof x));
    TRY(tsr_feed(plan, "y", y, sizeof y));
    note(w, t, tsr_run(plan));
    CHECK(tsr_run(plan) == TSR_ERR_STATE); /* and again, without a hang */
    CHECK(strstr(tsr_last_error(), "earlier run") && strstr(tsr_last_error(), "7"));
    CHECK(tsr_run(plan) == TSR_ERR_STATE);
    CHECK(strstr(tsr_last_error(), "earlier run") && strstr(tsr_last_error(), "7"));
    return TSR_OK;
}

static void test_run_fails(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        static told t;
        if (tsr_spawn(n, wrong_label, &t) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        assert_int_equal(t.status[n - 1], TSR_ERR_INVALID);
        SAYS(t.text[n - 1], "test_rank_errors.c:", "label", "7", "3");
        for (int i = 0; i < n - 1; i++) {
            assert_int_equal(t.status[i], TSR_ERR_REMOTE);
            SAYS(t.text[i], "label", "7", "rank");
        }
    }
}

/* A rank that gives up by itself. */
static tsr_status give_up(tsr_world *w, void *arg)
{
    told *t = arg;
    if (tsr_world_rank(w) == 1) {
        tsr_world_abort(w, "the coffee is out");
        return TSR_OK;
    }
    note(w, t, tsr_world_barrier(w));
    return TSR_OK;
}

static void test_abort(void **state)
{
    (void)state;
    static told t;
    assert_int_equal(tsr_spawn(2, give_up, &t), TSR_OK);
    assert_int_equal(t.status[0], TSR_ERR_REMOTE);
    SAYS(t.text[0], "the coffee is out", "rank 1");
}

static tsr_status one_leaves(tsr_world *w, void *arg)
{
    told *t = arg;
    if (tsr_world_rank(w) == 0)
        return TSR_OK; /* its peers wait for it in vain */
    note(w, t, tsr_world_barrier(w));
    return TSR_OK;
}

static void test_one_leaves(void **state)
{
    (void)state;
    static told t;
    assert_int_equal(
        tsr_spawn_with(2, one_leaves, &t, TSR_WORLD_OPTS(.timeout_s = 5, .threads = 1)), TSR_OK);
    assert_int_not_equal(t.status[1], TSR_OK);
    SAYS(t.text[1], "rank 0");
}

/* --- memory ----------------------------------------------------------------------------------- */
/* kind 0: variables don't fit, 1: a plan doesn't, 2: an input doesn't. */
static tsr_status too_much(tsr_world *w, void *arg)
{
    int kind = *(const int *)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    if (kind == 0) {
        tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 10000));
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 10000), p, TSR_S(0));
        tsr_output(g, "y", tsr_apply(net, x), p, TSR_B);
    } else {
        tsr_tensor *x = kind == 1
                            ? tsr_uniform(g, "r", TSR_F32, TSR_DIMS(1000, 1000), p, TSR_B, 0, 1)
                            : tsr_input(g, "x", TSR_F32, TSR_DIMS(1000, 1000), p, TSR_B);
        tsr_output(g, "y", tsr_sum(x, TSR_ALL_AXES, false), p, TSR_B);
    }
    tsr_plan *plan;
    return tsr_compile(g, &plan);
}

static void test_arena_too_small(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++)
        for (int kind = 0; kind < 3; kind++) {
            tsr_status status = tsr_spawn_with(
                n, too_much, &kind, TSR_WORLD_OPTS(.arena_bytes = 1 << 21, .threads = 1));
            assert_int_equal(status, TSR_ERR_NO_MEMORY);
            SAYS(tsr_last_error(), "arena_bytes", "TESSERA_ARENA_BYTES", "2097152");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_differ), cmocka_unit_test(test_one_fails),
        cmocka_unit_test(test_fetch_partial),   cmocka_unit_test(test_run_fails),
        cmocka_unit_test(test_abort),           cmocka_unit_test(test_one_leaves),
        cmocka_unit_test(test_arena_too_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
