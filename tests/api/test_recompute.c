/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that backward computes again: what is done twice, what once, and what is refused. Bits of
 * models' training are held by tests/cli/recompute.py, values of any program by tests/programs. */
#include "rank.h"

/* So many rows that they are split with and without recomputation: so sums have the same bits. */
enum { ROWS = 480, WIDTH = 24 };

static _Thread_local int squares; /* runs of the own op's forward */

static tsr_status square(tsr_op_args *a)
{
    const double *x = a->in[0].data;
    double *y = a->out[0].data;
    for (int64_t i = 0, n = tsr_dims_count(a->out[0].shape); i < n; i++)
        y[i] = x[i] * x[i];
    squares++;
    return TSR_OK;
}

static tsr_status square_back(tsr_op_args *a)
{
    const double *x = a->in[0].data, *dy = a->dout[0].data;
    double *dx = a->din[0].data;
    for (int64_t i = 0, n = tsr_dims_count(a->din[0].shape); i < n; i++)
        dx[i] = 2 * x[i] * dy[i];
    return TSR_OK;
}

typedef struct bench {
    tsr_world *w;
    const tsr_placement *p;
    tsr_module *root;
    tsr_op *square;
    tsr_variable *weight, *count;
} bench;

static tsr_status begin(tsr_world *w, bench *b)
{
    b->w = w;
    b->p = tsr_placement_parse(w, "cpu");
    TRY(tsr_op_define(w,
                      TSR_OP_DEF(.name = "counted_square", .inputs = 1, .rule = "!... -> ...",
                                 .dtypes = TSR_OP_DTYPE(TSR_F64), .forward = square,
                                 .backward = square_back),
                      &b->square));
    b->root = tsr_module_create(
        w, &(tsr_nn_opts){.placement = b->p, .sbp = TSR_B, .dtype = TSR_F64}, NULL, NULL, NULL);
    b->weight = tsr_module_param(b->root, "weight", TSR_DIMS(WIDTH, WIDTH), TSR_B,
                                 (tsr_init){.kind = TSR_INIT_NORMAL, .b = 0.1});
    b->count =
        tsr_module_buffer(b->root, "count", TSR_DIMS(1), TSR_B, (tsr_init){.kind = TSR_INIT_ZEROS});
    CHECK(b->weight && b->count);
    return TSR_OK;
}

/* sum(square(sin(x w)) dropped out), with an effect inside: the gradient by w, the dropped values.
 * `region`: 0 none, 1 one, 2 one inside another. */
typedef struct result {
    double dw[WIDTH * WIDTH], y[ROWS * WIDTH], count;
    int squares;
    size_t bytes;
} result;

static tsr_status run(bench *b, int region, result *out)
{
    tsr_graph *g = tsr_graph_create(b->w, TSR_GRAPH_OPTS(.training = true, .seed = 3));
    double x0[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x0[i] = cos(i);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, WIDTH), b->p, TSR_S(0));
    tsr_tensor *w = tsr_read(g, b->weight), *dw, *h = x;
    for (int i = 0; i < region; i++)
        tsr_recompute(g);
    for (int i = 0; i < 3; i++) {
        h = tsr_dropout(tsr_sin(tsr_matmul(h, w)), 0.2);
        if (i == 1)
            h = tsr_op_apply(b->square, 1, &h, NULL);
    }
    tsr_assign(b->count, tsr_add_scalar(tsr_read(g, b->count), 1));
    for (int i = 0; i < region; i++)
        tsr_recompute_end(g);
    tsr_gradients(tsr_sum(tsr_sin(h), TSR_ALL_AXES, false), 1, &w, &dw);
    tsr_output(g, "dw", dw, NULL, TSR_B);
    tsr_output(g, "y", h, NULL, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile_with(
        g, TSR_COMPILE_OPTS(.no_fusion = TSR_FUSE_CHAINS | TSR_FUSE_ROWS | TSR_FUSE_UPDATES),
        &plan));
    TRY(tsr_feed(plan, "x", x0, sizeof x0));
    squares = 0;
    TRY(tsr_run(plan));
    out->squares = squares;
    TRY(tsr_fetch(plan, "dw", out->dw, sizeof out->dw));
    TRY(tsr_fetch(plan, "y", out->y, sizeof out->y));
    TRY(tsr_variable_get(b->count, &out->count, sizeof out->count));
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    out->bytes = info.activation_bytes;
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    return TSR_OK;
}

static tsr_status same_and_once(tsr_world *world, void *arg)
{
    static _Thread_local result plain, again, nested;
    (void)arg;
    bench b;
    TRY(begin(world, &b));
    TRY(run(&b, 0, &plain));
    TRY(run(&b, 1, &again));
    TRY(run(&b, 2, &nested));
    CHECK(!memcmp(plain.dw, again.dw, sizeof plain.dw) &&
          !memcmp(plain.y, again.y, sizeof plain.y));
    CHECK(!memcmp(again.dw, nested.dw, sizeof again.dw));
    CHECK(plain.squares == 1 && again.squares == 2 && nested.squares == 2);
    CHECK(plain.count == 1 && again.count == 2 && nested.count == 3);
    CHECK(nested.bytes == again.bytes);
    tsr_module_destroy(b.root);
    return TSR_OK;
}

static void test_same_and_once(void **state)
{
    (void)state;
    on_ranks(same_and_once, NULL);
}

/* Ranks that declare other regions are told so. */
static tsr_status differ(tsr_world *world, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(world, "cpu");
    tsr_graph *g = tsr_graph_create(world, TSR_GRAPH_OPTS(.training = true));
    tsr_plan *plan;
    if (tsr_world_rank(world) == 1)
        tsr_recompute(g);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(8), p, TSR_B);
    tsr_output(g, "y", tsr_sin(x), NULL, TSR_B);
    const tsr_status status = tsr_compile(g, &plan);
    CHECK(status == TSR_ERR_MISMATCH);
    CHECK(strstr(tsr_last_error(), "region of recomputation"));
    return TSR_OK;
}

static void test_ranks_differ(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(2, differ, NULL), TSR_OK);
}

static void test_refused(void **state)
{
    (void)state;
    tsr_world *w;
    assert_int_equal(tsr_world_create(TSR_WORLD_OPTS(.threads = 1, .arena_bytes = 1 << 22), &w),
                     TSR_OK);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_recompute(g);
    tsr_recompute_end(g);
    assert_int_equal(tsr_graph_status(g), TSR_OK);
    tsr_recompute_end(g);
    assert_int_equal(tsr_graph_status(g), TSR_ERR_STATE);
    assert_non_null(strstr(tsr_last_error(), "no region is open"));
    assert_int_equal(tsr_module_recompute(NULL), TSR_ERR_INVALID);
    tsr_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_and_once),
        cmocka_unit_test(test_ranks_differ),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
