/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <tessera/tessera.h>

#include "sbp/route/cost_model.h"
#include "tests/unit/sbp/route_run.h"

#include <string.h>

static void test_mesh(void **unused)
{
    (void)unused;
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(8, 0, &w), TSR_OK);
    tsri_mesh a = tsri_mesh_of(tsr_placement_parse(w, "cpu:[[3,1],[0,2],[7,5]]"));
    tsri_mesh b = tsri_mesh_of(tsr_placement_parse(w, "cpu:[0,1,2,3]"));
    tsri_mesh c = rr_mesh(1, (int[]){4}, NULL), d = rr_mesh(2, (int[]){2, 2}, NULL);
    assert_int_equal(a.ndim, 2);
    assert_int_equal(a.nranks, 6);
    assert_int_equal(a.dim[0], 3);
    assert_int_equal(a.dim[1], 2);
    assert_int_equal(a.dim[2], 1);
    assert_int_equal(tsri_mesh_rank(&a, 4), 7);
    assert_int_equal(tsri_mesh_find(&a, 7), 4);
    assert_int_equal(tsri_mesh_find(&a, 4), -1);
    assert_int_equal(tsri_mesh_find(&c, 3), 3);
    assert_int_equal(tsri_mesh_find(&c, 4), -1);
    assert_int_equal(tsri_mesh_find(&c, -1), -1);
    assert_true(tsri_mesh_equal(&b, &c));
    assert_false(tsri_mesh_equal(&a, &b));
    assert_false(tsri_mesh_equal(&c, &d));
    tsri_mesh e = rr_mesh(1, (int[]){4}, (int[]){0, 1, 3, 2});
    assert_false(tsri_mesh_equal(&b, &e));
    tsr_world_destroy(w);
}

static tsri_layout layout(const tsri_mesh *m, const char *text)
{
    tsr_sbp s;
    assert_int_equal(tsr_sbp_parse(text, &s), TSR_OK);
    return tsri_layout_of(m, s);
}

static void test_canonical(void **unused)
{
    (void)unused;
    tsri_mesh m = rr_mesh(3, (int[]){2, 1, 2}, NULL);
    tsri_layout a = layout(&m, "(S(0),S(0),S(0))"), b = layout(&m, "(S(0),P,S(0))"),
                c = layout(&m, "(S(0),B,S(1))");
    /* A dimension of one rank says nothing. */
    assert_true(tsri_layout_equal(&a, &b));
    assert_false(tsri_layout_equal(&a, &c));
    assert_int_equal(a.depth[0], 0);
    assert_int_equal(a.depth[2], 1);
    assert_int_equal(c.depth[2], 0);
    assert_int_equal(a.sbp.d[1].kind, TSR_SBP_BROADCAST);
    assert_int_equal(a.sbp.d[3].kind, 0);
    assert_true(tsri_layout_in_order(&a));
    char text[TSRI_LAYOUT_TEXT_MAX];
    assert_string_equal(tsri_layout_format(&a, text), "(S(0),B,S(0))");
    a.depth[0] = 1;
    a.depth[2] = 0;
    assert_false(tsri_layout_in_order(&a));
    assert_string_equal(tsri_layout_format(&a, text), "(S(0)/1,B,S(0)/0)");
}

static void test_longest_text(void **unused)
{
    (void)unused;
    tsri_mesh m = rr_mesh(4, (int[]){2, 2, 2, 2}, NULL);
    tsri_layout l = layout(&m, "(P(max),P(max),S(7),S(7))");
    char text[TSRI_LAYOUT_TEXT_MAX];
    l.depth[2] = 1;
    l.depth[3] = 0;
    assert_string_equal(tsri_layout_format(&l, text), "(P(max),P(max),S(7)/1,S(7)/0)");
}

/* Parts in any order of splits are those of the definition, they tile the tensor, and the first is
 * the largest. */
static void test_parts(void **unused)
{
    (void)unused;
    static const int dims[][4] = {{4}, {2, 3}, {3, 2, 2}, {2, 3, 1, 2}}, ndims[] = {1, 2, 3, 4};
    uint64_t state = 3;
    for (int i = 0; i < 2000; i++) {
        int w = rr_below(&state, 4);
        tsri_mesh m = rr_mesh(ndims[w], dims[w], NULL);
        tsr_dims shape = {.ndim = 1 + rr_below(&state, 3)};
        int64_t all = 1, sum = 0, most = 0, copies = 1;
        for (int a = 0; a < shape.ndim; a++)
            all *= shape.d[a] = rr_below(&state, 12);
        tsr_sbp s;
        (void)rr_signature(m.ndim, shape.ndim, 1,
                           rr_below(&state, rr_signatures(m.ndim, shape.ndim, 1)), &s);
        tsri_layout l = tsri_layout_of(&m, s);
        if (l.depth[0] == 0 && m.ndim > 1 && l.depth[1] == 1) {
            l.depth[0] = 1; /* the other way round */
            l.depth[1] = 0;
        }
        char text[TSRI_LAYOUT_TEXT_MAX];
        tsri_layout read;
        assert_int_equal(tsri_layout_parse(&m, tsri_layout_format(&l, text), &read), TSR_OK);
        assert_true(tsri_layout_equal(&read, &l));
        for (int d = 0; d < m.ndim; d++)
            copies *= l.sbp.d[d].kind == TSR_SBP_BROADCAST ? m.dim[d] : 1;
        for (int r = 0; r < m.nranks; r++) {
            int64_t offset[TSR_MAX_NDIM], begin[TSR_MAX_NDIM], length[TSR_MAX_NDIM];
            tsr_dims part;
            tsri_layout_part(shape, &m, &l, r, offset, &part);
            rr_part(shape, &m, &l, r, begin, length);
            assert_int_equal(part.ndim, shape.ndim);
            for (int a = 0; a < shape.ndim; a++) {
                assert_int_equal(offset[a], begin[a]);
                assert_int_equal(part.d[a], length[a]);
            }
            int64_t count = tsr_dims_count(part);
            sum += count;
            most = count > most ? count : most;
        }
        assert_int_equal(sum, all * copies);
        assert_int_equal(tsri_layout_most(shape, 4, &m, &l), 4 * most);
    }
    tsri_mesh m = rr_mesh(2, (int[]){2, 2}, NULL);
    tsri_layout b = layout(&m, "(B,P)");
    assert_int_equal(tsri_layout_most(TSR_SCALAR, 8, &m, &b), 8);
}

static void test_wrong_layouts(void **unused)
{
    (void)unused;
    static const char *const wrong[] = {
        "",
        "S(0)",
        "(S(0),S(0),B)",
        "(S(0)/1,S(0))/0",
        "(S(0)/1,S(0)/1)",
        "(S(0)/1,B)",
        "(B/1,B)",
        "(S(0)/7,S(0)/0)",
        "(S(0)/,S(0)/0)",
        "(S(0)/-1,S(0)/0)",
        "(S(0)/1,S(0)/0),",
        "(S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0),S(0))",
    };
    tsri_mesh m = rr_mesh(2, (int[]){2, 2}, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tsri_layout l;
        if (tsri_layout_parse(&m, wrong[i], &l) == TSR_OK)
            fail_msg("'%s' is no layout", wrong[i]);
    }
}

static void test_links(void **unused)
{
    (void)unused;
    tsri_cost_model m = {.nlinks = 3, .link = {{2, 0, 1}, {8, 0, 1}, {0, 0, 1}}};
    assert_int_equal(tsri_link_between(&m, 4, 5), 0);
    assert_int_equal(tsri_link_between(&m, 5, 6), 1);
    assert_int_equal(tsri_link_between(&m, 7, 0), 1);
    assert_int_equal(tsri_link_between(&m, 7, 8), 2);
    m = tsri_cost_model_of(TSR_DEVICE_CPU);
    assert_int_equal(tsri_link_between(&m, 0, 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),          cmocka_unit_test(test_canonical),
        cmocka_unit_test(test_longest_text),  cmocka_unit_test(test_parts),
        cmocka_unit_test(test_wrong_layouts), cmocka_unit_test(test_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
