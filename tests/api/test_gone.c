/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that were destroyed, by themselves or with their world, and placements of other worlds
 * are errors by name, not reads of freed memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tessera/tessera.h>

static tsr_world *make_world(void)
{
    tsr_world *w;
    assert_int_equal(tsr_world_create(TSR_WORLD_OPTS(.threads = 1, .arena_bytes = 1 << 22), &w),
                     TSR_OK);
    return w;
}

static tsr_plan *make_plan(tsr_world *w)
{
    tsr_plan *plan;
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2), p, TSR_B);
    tsr_output(g, "y", tsr_neg(x), p, TSR_B);
    assert_int_equal(tsr_compile(g, &plan), TSR_OK);
    return plan;
}

static void check_status(tsr_status status, tsr_status expected, const char *text)
{
    if (status != expected || !strstr(tsr_last_error(), text))
        fail_msg("%s: %s; expected %s: %s", tsr_status_name(status), tsr_last_error(),
                 tsr_status_name(expected), text);
}

/* Every use of a plan that was destroyed. */
static void use_gone_plan(tsr_plan *plan)
{
    float x[2] = {1, 2};
    double y;
    static const char text[] = "the plan has been destroyed";
    check_status(tsr_feed(plan, "x", x, sizeof x), TSR_ERR_INVALID, text);
    check_status(tsr_run(plan), TSR_ERR_INVALID, "tsr_run: the plan has been destroyed");
    check_status(tsr_wait(plan), TSR_ERR_INVALID, text);
    check_status(tsr_fetch(plan, "y", x, sizeof x), TSR_ERR_INVALID, text);
    check_status(tsr_fetch_scalar(plan, "y", &y), TSR_ERR_INVALID, text);
    tsr_set_error(TSR_ERR_STATE, "another");
    assert_int_equal(tsr_plan_nports(plan), 0);
    check_status(TSR_OK, TSR_OK, "tsr_plan_nports: the plan has been destroyed");
    tsr_set_error(TSR_ERR_STATE, "another");
    tsr_plan_destroy(plan);
    check_status(TSR_OK, TSR_OK, "tsr_plan_destroy: the plan has been destroyed");
}

static void test_plan_twice(void **state)
{
    (void)state;
    tsr_world *w = make_world();
    tsr_plan *plan = make_plan(w);
    tsr_plan_destroy(plan);
    use_gone_plan(plan);
    tsr_world_destroy(w);
}

static void test_plan_after_world(void **state)
{
    (void)state;
    tsr_world *w = make_world(), *other = make_world();
    tsr_plan *plan = make_plan(w), *kept = make_plan(other);
    float x[2] = {1, 2};
    tsr_world_destroy(w);
    use_gone_plan(plan);
    /* Another world's goes on. */
    check_status(tsr_feed(kept, "x", x, sizeof x), TSR_OK, "");
    check_status(tsr_run(kept), TSR_OK, "");
    check_status(tsr_fetch(kept, "y", x, sizeof x), TSR_OK, "");
    assert_true(x[0] == -1 && x[1] == -2);
    tsr_world_destroy(other);
}

static void test_world_twice(void **state)
{
    (void)state;
    tsr_world *w = make_world();
    tsr_world_destroy(w);
    tsr_set_error(TSR_ERR_STATE, "another");
    tsr_world_destroy(w);
    check_status(TSR_OK, TSR_OK, "tsr_world_destroy: the world has been destroyed");
    check_status(tsr_world_barrier(w), TSR_ERR_INVALID, "the world has been destroyed");
    assert_null(tsr_graph_create(w, NULL));
    assert_int_equal(tsr_world_size(w), 0);
}

/* An input, a move, an output and a module's variables fail alike. w and its own placement are
 * older than p's end, so that neither is at p's address. */
static void refuse_placement(tsr_world *w, const tsr_placement *p, const char *text)
{
    const tsr_placement *here = tsr_placement_parse(w, "cpu");
    for (int i = 0; i < 4; i++) {
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(2), i == 0 ? p : here, TSR_B, 1);
        if (i == 1)
            tsr_input(g, "in", TSR_F32, TSR_DIMS(2), p, TSR_B);
        if (i == 2)
            tsr_to_global(x, p, TSR_B);
        if (i == 3)
            tsr_output(g, "y", x, p, TSR_B);
        check_status(tsr_graph_status(g), TSR_ERR_PLACEMENT, text);
        tsr_graph_destroy(g);
    }
    assert_null(tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 2)));
    check_status(TSR_OK, TSR_OK, text);
    tsr_module *m = tsr_mlp(w, here, TSR_B, TSR_MLP_OPTS(.inputs = 2));
    check_status(tsr_module_place(m, "*", p, TSR_B), TSR_ERR_PLACEMENT, text);
    tsr_world_destroy(w);
}

static void test_foreign_placement(void **state)
{
    (void)state;
    tsr_world *other = make_world();
    refuse_placement(make_world(), tsr_placement_parse(other, "cpu"), "belongs to another world");
    tsr_world_destroy(other);
}

static void test_gone_placement(void **state)
{
    (void)state;
    tsr_world *w = make_world(), *other;
    tsr_placement_parse(w, "cpu");
    assert_int_equal(tsr_world_create_virtual(2, 0, &other), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(other, "cpu:[1,0]");
    tsr_world_destroy(other);
    refuse_placement(w, p, "the placement has been destroyed");
}

/* A rank's graphs come and go beside another's. While they are gone no rank declares: a tensor of
 * another rank could lie where the tensor was that is asked for, and would be known. */
static tsr_status come_and_go(tsr_world *world, void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        tsr_graph *g = tsr_graph_create(world, TSR_GRAPH_OPTS(.local = true));
        const tsr_placement *p = tsr_local_placement(world);
        tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(2), p, TSR_B, 1);
        for (int k = 0; k < 100; k++)
            x = tsr_neg(x);
        if (tsr_graph_status(g) != TSR_OK)
            return tsr_graph_status(g);
        tsr_status status = tsr_world_barrier(world);
        if (status != TSR_OK)
            return status;
        tsr_graph_destroy(g);
        tsr_set_error(TSR_ERR_STATE, "another");
        tsr_neg(x);
        if (!strstr(tsr_last_error(), "the tensor has been destroyed"))
            return tsr_set_error(TSR_ERR_INTERNAL, "a tensor is not known to be gone");
        status = tsr_world_barrier(world);
        if (status != TSR_OK)
            return status;
    }
    return TSR_OK;
}

static void test_ranks(void **state)
{
    (void)state;
    check_status(tsr_spawn(3, come_and_go, NULL), TSR_OK, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_twice),     cmocka_unit_test(test_plan_after_world),
        cmocka_unit_test(test_world_twice),    cmocka_unit_test(test_foreign_placement),
        cmocka_unit_test(test_gone_placement), cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
