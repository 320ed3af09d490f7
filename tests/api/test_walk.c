/* SPDX-License-Identifier: Apache-2.0 */
/* A walk through the public API, as a user's program would go, on 1, 2 and 3 thread ranks. Expected
 * values are worked out by hand. */
#include "rank.h"

/* --- worlds, placements, signatures ----------------------------------------------------------- */
static void keep_text(void *arg, tsr_log_level level, const char *text)
{
    (void)level;
    snprintf(arg, 256, "%s", text);
}

static tsr_status look_around(tsr_world *w, void *arg)
{
    int n = tsr_world_size(w), hierarchy[2] = {1, 1}, me = tsr_world_rank(w);
    bool *seen = arg;
    CHECK(n >= 1 && n <= 3 && me >= 0 && me < n && tsr_world_local_rank(w) == me);
    seen[me] = true;
    TRY(tsr_world_barrier(w));
    for (int i = 0; i < n; i++)
        CHECK(seen[i]);
    TRY(tsr_world_barrier(w));

    const tsr_placement *all = tsr_placement_parse(w, "cpu");
    const tsr_placement *last =
        tsr_placement_create(w, TSR_DEVICE_CPU, 2, hierarchy, &(int){n - 1});
    CHECK(all && last && tsr_placement_nranks(all) == n && tsr_placement_ndim(all) == 1);
    CHECK(tsr_placement_device(all) == TSR_DEVICE_CPU);
    CHECK(!strcmp(tsr_device_name(TSR_DEVICE_CPU), "cpu"));
    CHECK(tsr_placement_parse(w, tsr_placement_text(all)) == all);
    CHECK(tsr_placement_ndim(last) == 2 && tsr_placement_dim(last, 1) == 1);
    CHECK(tsr_placement_rank(last, 0) == n - 1);
    CHECK(tsr_placement_find(last, me) == (me == n - 1 ? 0 : -1));
    CHECK(!strcmp(tsr_placement_text(last), n == 1   ? "cpu:[[0]]"
                                            : n == 2 ? "cpu:[[1]]"
                                                     : "cpu:[[2]]"));
    return TSR_OK;
}

static void test_world(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        bool seen[3] = {false};
        char log[256] = "";
        tsr_status status =
            tsr_spawn_with(n, look_around, seen,
                           TSR_WORLD_OPTS(.timeout_s = 20, .threads = 1, .arena_bytes = 1 << 24,
                                          .log = keep_text, .log_arg = log));
        if (status != TSR_OK)
            fail_msg("%s", tsr_last_error());
        for (int i = 0; i < 3; i++)
            assert_int_equal(seen[i], i < n);
    }
}

/* --- training without .training --------------------------------------------------------------- */
typedef struct warnings {
    int n;
    char text[512];
} warnings;

static void count_warning(void *arg, tsr_log_level level, const char *text)
{
    warnings *w = arg;
    w->n += level == TSR_LOG_WARNING;
    snprintf(w->text, sizeof w->text, "%s", text);
}

typedef struct trained_net {
    bool training, norm, aside; /* aside: dropout, of which the loss is no result */
    double dropout;
    warnings log;
    int line; /* of dropout, or of batch norm */
} trained_net;

static tsr_status train_net(tsr_world *w, void *arg)
{
    trained_net *t = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_B};
    const tsr_init ones = {.kind = TSR_INIT_ONES};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    const char *const names[] = {"gamma", "beta"}, *const buffers[] = {"mean", "var"};
    tsr_tensor *c[4];
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = t->training));
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(6, 2), p, TSR_B, 0.5);
    for (int i = 0; i < 2; i++) {
        CHECK(tsr_module_param(m, names[i], TSR_DIMS(2), TSR_B, ones));
        CHECK(tsr_module_buffer(m, buffers[i], TSR_DIMS(2), TSR_B, ones));
        c[i] = tsr_use(m, names[i], x);
        c[2 + i] = tsr_use(m, buffers[i], x);
    }
    tsr_optimizer *o = tsr_sgd(m, NULL);
    tsr_tensor *y = tsr_mul(x, c[0]);
    t->line = __LINE__ + 1;
    y = t->norm ? tsr_batch_norm(y, c[0], c[1], c[2], c[3], NULL) : tsr_dropout(y, t->dropout);
    if (t->aside)
        tsr_output(g, "aside", tsr_dropout(y, 0.5), p, TSR_B);
    tsr_minimize(o, tsr_mean(y, TSR_ALL_AXES, false));
    tsr_minimize(tsr_adam(m, NULL), tsr_sum(y, TSR_ALL_AXES, false)); /* says nothing again */
    return tsr_graph_status(g);
}

static void test_evaluated_training(void **state)
{
    (void)state;
    static const struct {
        trained_net net;
        const char *says; /* NULL: nothing */
    } rows[] = {
        {{.dropout = 0.5}, "dropout drops nothing (test_walk.c:"},
        {{.norm = true}, "batch norm takes its running averages, and leaves them (test_walk.c:"},
        {{.dropout = 0.5, .training = true}, NULL},
        {{.norm = true, .training = true}, NULL},
        {{.dropout = 0}, NULL},
        {{.aside = true}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trained_net t = rows[i].net;
        char line[32];
        tsr_status status =
            tsr_spawn_with(1, train_net, &t,
                           TSR_WORLD_OPTS(.timeout_s = 20, .threads = 1, .arena_bytes = 1 << 24,
                                          .log = count_warning, .log_arg = &t.log));
        if (status != TSR_OK)
            fail_msg("row %zu: %s", i, tsr_last_error());
        snprintf(line, sizeof line, "test_walk.c:%d, ", t.line);
        if (t.log.n != (rows[i].says != NULL))
            fail_msg("row %zu: %d warnings: %s", i, t.log.n, t.log.text);
        if (rows[i].says && (!strstr(t.log.text, rows[i].says) || !strstr(t.log.text, line) ||
                             !strstr(t.log.text, ".training = true")))
            fail_msg("row %zu: %s", i, t.log.text);
    }
}

static void test_own_world(void **state)
{
    (void)state;
    tsr_world *w;
    assert_int_equal(tsr_world_create(TSR_WORLD_OPTS(.threads = 1), &w), TSR_OK);
    assert_int_equal(tsr_world_size(w), 1);
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    double sum;
    tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(3, 4), p, TSR_B, 0.5);
    assert_int_equal(tsr_eval(tsr_sum(x, TSR_ALL_AXES, false), &sum, sizeof sum), TSR_OK);
    assert_true(sum == 6);
    tsr_world_destroy(w); /* and all that is left */
    tsr_world_destroy(NULL);
}

/* Eight ranks that don't exist: everything but data. */
static void test_virtual_world(void **state)
{
    (void)state;
    tsr_world *w;
    tsr_plan *plan;
    assert_int_equal(tsr_world_create_virtual(8, 5, &w), TSR_OK);
    assert_int_equal(tsr_world_size(w), 8);
    assert_int_equal(tsr_world_rank(w), 5);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 10));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(8005, 10), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(8005), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    if (tsr_compile(g, &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(tsr_plan_port(plan, 0).shard.d[0], 1000); /* 5 have 1001 */
    assert_non_null(strstr(tsr_plan_explain(plan), "all_reduce"));
    tsr_plan_info info = {.size = sizeof info};
    assert_int_equal(tsr_plan_get_info(plan, &info), TSR_OK);
    assert_true(info.collectives > 0 && info.comm_bytes > 0 && info.cost_s > 0);
    tsr_world_destroy(w);
}

static void test_texts(void **state)
{
    (void)state;
    static const char *good[] = {"S(0)", "S(3)", "B", "P", "P(max)", "P(min)", "(S(0),B)", "(B,P)"};
    tsr_sbp sbp;
    char text[TSR_SBP_TEXT_MAX];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(tsr_sbp_parse(good[i], &sbp), TSR_OK);
        assert_string_equal(tsr_sbp_format(sbp, text), good[i]);
    }
    assert_int_equal(tsr_sbp_parse(" p( SUM ) ", &sbp), TSR_OK);
    assert_true(tsr_sbp_equal(sbp, TSR_P));
    assert_int_equal(tsr_sbp_parse("auto", &sbp), TSR_OK);
    assert_true(tsr_sbp_equal(sbp, TSR_AUTO));
    for (int d = TSR_F32; d < TSR_DTYPE_COUNT_; d++)
        assert_int_equal(tsr_dtype_parse(tsr_dtype_name((tsr_dtype)d)), d);
    assert_int_equal(tsr_dtype_size(TSR_BF16), 2);
    assert_int_equal(tsr_dims_count(TSR_DIMS(2, 0, 3)), 0);
    assert_int_equal(tsr_dims_count(TSR_SCALAR), 1);
    assert_true(tsr_dims_equal(TSR_DIMS(2, 3), TSR_DIMS(2, 3)));
    assert_false(tsr_dims_equal(TSR_DIMS(2, 3), TSR_DIMS(2, 3, 1)));
    assert_string_equal(tsr_status_name(TSR_ERR_SHAPE), "TSR_ERR_SHAPE");
    assert_string_equal(tsr_status_text(TSR_END), "end of the data");
    int64_t offset, length;
    tsr_balanced_split(7, 3, 1, &offset, &length); /* 3, 2, 2 */
    assert_int_equal(offset, 3);
    assert_int_equal(length, 2);
}

/* --- feeding and fetching --------------------------------------------------------------------- */
/* x (5,2) = 0..9 in S(0): its rows by rank. Returns the first of this rank. */
static int64_t my_rows(tsr_world *w, int64_t *out_rows)
{
    int64_t offset;
    tsr_balanced_split(5, tsr_world_size(w), tsr_world_rank(w), &offset, out_rows);
    return offset;
}

static tsr_status declare_ports(tsr_world *w, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(5, 2), p, TSR_S(0));
    tsr_tensor *part = tsr_from_local(g, "part", TSR_F64, TSR_DIMS(2), p, TSR_P);
    tsr_tensor *mine = tsr_from_local(g, "mine", TSR_F64, TSR_DIMS(2), p, TSR_B);
    CHECK(tsr_tensor_ok(x) && tsr_tensor_dtype(x) == TSR_F64 && tsr_tensor_graph(x) == g);
    CHECK(tsr_tensor_placement(x) == p && tsr_dims_equal(tsr_tensor_dims(x), TSR_DIMS(5, 2)));
    tsr_tensor *sum = tsr_add(tsr_mul_scalar(x, 10), part);
    tsr_output(g, "whole", sum, p, TSR_B);
    tsr_output(g, "rows", sum, NULL, TSR_S(0));
    tsr_output(g, "columns", sum, p, TSR_S(1));
    tsr_output(g, "total", tsr_sum(x, TSR_ALL_AXES, false), p, TSR_AUTO);
    tsr_output(g, "first", mine, p, TSR_B);
    tsr_to_local(g, "local", x);
    TRY(tsr_graph_status(g));
    TRY(tsr_compile(g, out_plan));
    tsr_graph_destroy(g); /* the plan lives on */
    return TSR_OK;
}

/* sum = 10 x + (n, n(n+1)/2): the addends (1, rank + 1) of the ranks. */
static tsr_status check_ports(tsr_world *w, tsr_plan *plan, double scale)
{
    double whole[10], got[10], value, n = tsr_world_size(w);
    for (int i = 0; i < 10; i++)
        whole[i] = 10 * scale * i + (i % 2 ? n * (n + 1) / 2 : n);
    TRY(tsr_fetch(plan, "whole", got, sizeof got));
    CHECK(all_near("whole", got, whole, 10, 0));

    int64_t rows, first = my_rows(w, &rows), column, columns;
    tsr_dims dims;
    TRY(tsr_fetch_shard(plan, "rows", got, (size_t)rows * 16, &dims));
    CHECK(tsr_dims_equal(dims, TSR_DIMS(rows, 2)));
    CHECK(all_near("rows", got, whole + 2 * first, 2 * rows, 0));
    TRY(tsr_fetch_shard(plan, "local", got, (size_t)rows * 16, NULL));
    for (int i = 0; i < 2 * rows; i++)
        CHECK(got[i] == scale * (double)(2 * first + i));

    tsr_balanced_split(2, (int)n, tsr_world_rank(w), &column, &columns); /* rank 2 of 3 has none */
    TRY(tsr_fetch_shard(plan, "columns", NULL, 0, &dims));
    CHECK(tsr_dims_equal(dims, TSR_DIMS(5, columns)));
    TRY(tsr_fetch_shard(plan, "columns", got, (size_t)columns * 40, &dims));
    for (int i = 0; i < 5 * columns; i++)
        CHECK(got[i] == whole[2 * (i / columns) + column + i % columns]);
    TRY(tsr_fetch_scalar(plan, "total", &value));
    CHECK(value == 45 * scale);
    TRY(tsr_fetch(plan, "first", got, 16));
    CHECK(got[0] == 100 && got[1] == -100);
    return TSR_OK;
}

static tsr_status feed_and_fetch(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_plan *plan;
    TRY(declare_ports(w, &plan));
    double x[10], me = tsr_world_rank(w), part[2] = {1, me + 1}, mine[2] = {100 + me, -100 - me};
    for (int i = 0; i < 10; i++)
        x[i] = i;
    TRY(tsr_feed(plan, "x", x, sizeof x));
    TRY(tsr_feed_shard(plan, "part", part, sizeof part));
    TRY(tsr_feed_shard(plan, "mine", mine, sizeof mine));
    memset(x, 0xff, sizeof x); /* feeds are copied before the call returns */
    TRY(tsr_run(plan));
    TRY(check_ports(w, plan, 1));
    TRY(tsr_run(plan)); /* inputs stay */
    TRY(check_ports(w, plan, 1));
    CHECK(mine[0] == 100 + me); /* the caller's memory is the caller's */

    int64_t rows, first = my_rows(w, &rows);
    for (int i = 0; i < 2 * rows; i++)
        x[i] = -3 * (double)(2 * first + i);
    TRY(tsr_feed_shard(plan, "x", x, (size_t)rows * 16));
    TRY(tsr_run(plan));
    TRY(check_ports(w, plan, -3));

    CHECK(tsr_plan_nports(plan) == 9);
    int inputs = 0;
    for (int i = 0; i < 9; i++) {
        tsr_port port = tsr_plan_port(plan, i);
        inputs += port.is_input;
        CHECK(port.name && port.dtype == TSR_F64 && port.placement);
        if (!strcmp(port.name, "x"))
            CHECK(port.shard.d[0] == rows && port.dims.d[0] == 5 &&
                  tsr_sbp_equal(port.sbp, TSR_S(0)));
        if (!strcmp(port.name, "total"))
            CHECK(tsr_sbp_equal(port.sbp, TSR_B)); /* AUTO of an output */
    }
    CHECK(inputs == 3);
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    CHECK(info.runs == 3 && info.ops > 0 && info.steps > 0 && info.port_bytes > 0);
    CHECK((info.comm_bytes > 0) == (tsr_world_size(w) > 1));
    CHECK(info.run_s >= info.compute_s && info.compile_s > 0);
    const char *text = tsr_plan_explain(plan);
    CHECK(text && strstr(text, "whole") && strstr(text, "S(0)"));
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static void test_feed_and_fetch(void **state)
{
    (void)state;
    on_ranks(feed_and_fetch, NULL);
}

/* A placement of fewer ranks than the world: the others compile too, and have nothing. */
static tsr_status on_last_rank(tsr_world *w, void *arg)
{
    (void)arg;
    char where[24];
    snprintf(where, sizeof where, "cpu:[%d]", tsr_world_size(w) - 1);
    const tsr_placement *p = tsr_placement_parse(w, where);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(3), p, TSR_AUTO);
    tsr_output(g, "y", tsr_mul(x, x), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    float v[3] = {1, 2, 3};
    TRY(tsr_feed(plan, "x", v, sizeof v));
    TRY(tsr_run(plan));
    if (tsr_placement_find(p, tsr_world_rank(w)) < 0) {
        CHECK(tsr_fetch(plan, "y", v, sizeof v) == TSR_ERR_PLACEMENT);
        CHECK(strstr(tsr_last_error(), where) != NULL);
        return TSR_OK;
    }
    TRY(tsr_fetch(plan, "y", v, sizeof v));
    CHECK(v[0] == 1 && v[1] == 4 && v[2] == 9);
    return TSR_OK;
}

static void test_part_of_world(void **state)
{
    (void)state;
    on_ranks(on_last_rank, NULL);
}

/* --- scalars ---------------------------------------------------------------------------------- */
/* Of each dtype: its bytes, and what they are as a double. */
static const struct scalar {
    tsr_dtype dtype;
    uint8_t bytes[8]; /* little-endian */
    double value;
} scalars[] = {
    {TSR_F32, {0, 0, 0xc0, 0xbf}, -1.5},
    {TSR_F64, {0, 0, 0, 0, 0, 0, 0xf8, 0xbf}, -1.5},
    {TSR_F16, {0, 0xbe}, -1.5},
    {TSR_F16, {1, 0}, 0x1p-24},
    {TSR_F16, {0, 0x7c}, INFINITY},
    {TSR_BF16, {0xc0, 0xbf}, -1.5},
    {TSR_BF16, {1, 0}, 0x1p-133},
    {TSR_I64, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -2},
    {TSR_I32, {0xfe, 0xff, 0xff, 0xff}, -2},
    {TSR_U8, {254}, 254},
    {TSR_BOOL, {1}, 1},
};

static tsr_status fetch_scalars(tsr_world *w, void *arg)
{
    enum { N = sizeof scalars / sizeof *scalars };
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_plan *plan;
    char names[N][2][16];
    (void)arg;
    for (int i = 0; i < N; i++) {
        snprintf(names[i][0], sizeof names[i][0], "in %d", i);
        snprintf(names[i][1], sizeof names[i][1], "out %d", i);
        tsr_output(g, names[i][1],
                   tsr_input(g, names[i][0], scalars[i].dtype, TSR_SCALAR, p, TSR_B), p, TSR_B);
    }
    TRY(tsr_compile(g, &plan));
    for (int i = 0; i < N; i++)
        TRY(tsr_feed(plan, names[i][0], scalars[i].bytes, tsr_dtype_size(scalars[i].dtype)));
    TRY(tsr_run(plan));
    for (int i = 0; i < N; i++) {
        double value = NAN;
        TRY(tsr_fetch_scalar(plan, names[i][1], &value));
        CHECK(value == scalars[i].value);
    }
    return TSR_OK;
}

static void test_scalars(void **state)
{
    (void)state;
    on_ranks(fetch_scalars, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_world),          cmocka_unit_test(test_own_world),
        cmocka_unit_test(test_virtual_world),  cmocka_unit_test(test_texts),
        cmocka_unit_test(test_feed_and_fetch), cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_part_of_world),  cmocka_unit_test(test_evaluated_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
