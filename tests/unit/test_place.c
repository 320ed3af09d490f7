/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_module_place: patterns, errors, and modules that move what they are applied to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <tessera/optim.h>
#include <tessera/plan.h>
#include <tessera/models.h>

#include "src/nn/place.h"

typedef struct fixture {
    tsr_world *world;
    const tsr_placement *a, *b, *grid;
    tsr_module *net;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || tsr_world_create_virtual(4, 1, &f->world) != TSR_OK)
        return -1;
    f->a = tsr_placement_parse(f->world, "cpu:[0,1]");
    f->b = tsr_placement_parse(f->world, "cpu:[2,3]");
    f->grid = tsr_placement_parse(f->world, "cpu:[[0,1],[2,3]]");
    f->net = tsr_mlp(f->world, f->a, TSR_B, TSR_MLP_OPTS(.inputs = 6, .hidden = 8, .layers = 3));
    *state = f;
    return f->net ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    tsr_world_destroy(f->world);
    free(f);
    return 0;
}

static void assert_fails(tsr_status got, tsr_status want, const char *text)
{
    assert_int_equal(got, want);
    assert_string_equal(tsr_last_error(), text);
}

static void assert_sbp(tsr_module *m, const char *name, const char *want)
{
    char text[TSR_SBP_TEXT_MAX];
    assert_string_equal(tsr_sbp_format(tsr_variable_sbp(tsr_module_find(m, name)), text), want);
}

static void test_glob(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool fits;
    } rows[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"*", "", true},
        {"*", "a.b", true},
        {"a*", "a", true},
        {"*.weight", "0.weight", true},
        {"*.weight", "0.weights", false},
        {"a*b*c", "a1b2b3c", true},
        {"a*b*c", "a1b2b3", false},
        {"?.weight", "0.weight", true},
        {"?.weight", "10.weight", false},
        {"?", "", false},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[!a-c]x", "dx", true},
        {"[^a-c]x", "bx", false},
        {"[abz]", "z", true},
        {"[]]", "]", true},
        {"[a-]", "-", true},
        {"[a", "[a", true},
        {"[a", "a", false},
        {"**", "x", true},
        {"*?*", "", false},
        {"features.1[0-2].*", "features.11.conv", true},
        {"features.1[0-2].*", "features.13.conv", false},
        {"h.0-5.*", "h.0.w", true},
        {"h.0-5.*", "h.5.w", true},
        {"h.0-5.*", "h.6.w", false},
        {"h.0-5.*", "h.15.w", false},
        {"h.8-11.*", "h.10.w", true},
        {"h.8-11.*", "h.1.w", false},
        {"h.8-11.*", "w.10.h", false},
        {"h.5-0.*", "h.3.w", false},
        {"0-2", "1", true},
        {"0-2", "3", false},
        {"*.0-1", "a.3.1", true},
        {"a.0-1.b.2-3", "a.1.b.2", true},
        {"a.0-1.b.2-3", "a.2.b.1", false},
        {"h.0-5.*", "h.0-5.w", true},
        {"h.0-5x", "h.0x", false},
        {"h.a0-5", "h.a0", false},
        {"h.123456789-123456799", "h.123456790", false},
    };
    /* Nothing behind its end belongs to a pattern. A range without an end fits nothing. */
    assert_false(tsri_glob("[a-\0x]", "[a-"));
    assert_false(tsri_glob("[a-\0x]", "x"));
    assert_true(tsri_glob("a[b\0]", "a[b"));
    assert_true(tsri_glob("a[!\0b]", "a[!"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (tsri_glob(rows[i].pattern, rows[i].text) != rows[i].fits)
            fail_msg("'%s' on '%s'", rows[i].pattern, rows[i].text);
    /* Exponential for a matcher that tries every star. */
    char stars[201], text[4001];
    for (int i = 0; i < 200; i++)
        stars[i] = i % 2 ? 'a' : '*';
    stars[200] = 0;
    memset(text, 'a', 4000);
    text[3999] = 'b';
    text[4000] = 0;
    assert_false(tsri_glob(stars, text));
}

static void test_place(void **state)
{
    fixture *f = *state;
    assert_int_equal(tsr_module_place(f->net, "*", NULL, TSR_S(0)), TSR_OK);
    assert_sbp(f->net, "0.weight", "S(0)");
    assert_sbp(f->net, "4.bias", "S(0)");
    assert_int_equal(tsr_module_place(f->net, "[24].*", f->b, TSR_AUTO), TSR_OK);
    assert_sbp(f->net, "2.weight", "auto");
    assert_sbp(f->net, "0.weight", "S(0)");
    assert_ptr_equal(tsr_module_find(f->net, "4.bias")->placement, f->b);
    assert_ptr_equal(tsr_module_find(f->net, "0.bias")->placement, f->a);
    /* Names count from the module that is given. */
    assert_int_equal(tsr_module_place(tsr_module_child(f->net, "4"), "weight", f->b, TSR_S(1)),
                     TSR_OK);
    assert_sbp(f->net, "4.weight", "S(1)");
    assert_sbp(f->net, "4.bias", "auto");
}

static void test_errors(void **state)
{
    fixture *f = *state;
    assert_fails(tsr_module_place(NULL, "*", f->a, TSR_B), TSR_ERR_INVALID,
                 "tsr_module_place: the module is NULL");
    assert_fails(tsr_module_place(f->net, NULL, f->a, TSR_B), TSR_ERR_INVALID,
                 "tsr_module_place: the pattern is NULL");
    assert_fails(tsr_module_place(f->net, "2.wieght", f->a, TSR_B), TSR_ERR_INVALID,
                 "tsr_module_place: no variable's name fits '2.wieght'; there are, for example, "
                 "2.weight");
    assert_fails(tsr_module_place(f->net, "x", f->a, TSR_B), TSR_ERR_INVALID,
                 "tsr_module_place: no variable's name fits 'x'; there are, for example, "
                 "0.weight, 0.bias, 2.weight");
    assert_fails(tsr_module_place(f->net, "*", NULL, TSR_S(1)), TSR_ERR_SBP,
                 "tsr_module_place: variable 0.bias: signature S(1) for shape (8); legal are B "
                 "and S(i) with i below its number of axes (P is for values that are computed)");
    /* Nothing was changed, of those before it either. */
    assert_sbp(f->net, "0.weight", "B");
    assert_fails(tsr_module_place(f->net, "0.*", f->grid, TSR_B), TSR_ERR_SBP,
                 "tsr_module_place: variable 0.weight: signature B has 1 entry, but placement "
                 "cpu:[[0,1],[2,3]] has 2 dimensions");
}

static void test_too_late(void **state)
{
    fixture *f = *state;
    tsr_graph *g = tsr_graph_create(f->world, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 6), f->a, TSR_S(0));
    tsr_apply(tsr_module_child(f->net, "0"), x);
    assert_int_equal(tsr_graph_status(g), TSR_OK);
    assert_fails(tsr_module_place(f->net, "0.*", f->b, TSR_B), TSR_ERR_STATE,
                 "tsr_module_place: variable 0.weight is used already, by a graph or an "
                 "optimizer; place variables before that");
    assert_int_equal(tsr_module_place(f->net, "2.*", f->b, TSR_B), TSR_OK);
    assert_non_null(tsr_sgd(f->net, NULL));
    assert_fails(tsr_module_place(f->net, "4.bias", f->b, TSR_B), TSR_ERR_STATE,
                 "tsr_module_place: variable 4.bias is used already, by a graph or an optimizer; "
                 "place variables before that");
}

static tsr_status set_and_place(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *m = tsr_nn_linear(w, &(tsr_nn_opts){.placement = p, .sbp = TSR_B}, 1, 2, true);
    float bias[2] = {1, 2};
    tsr_status status = tsr_variable_set(tsr_module_find(m, "bias"), bias, sizeof bias);
    return status == TSR_OK ? tsr_module_place(m, "bias", NULL, TSR_S(0)) : TSR_ERR_INTERNAL;
}

static void test_has_value(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(1, set_and_place, NULL), TSR_ERR_STATE);
    assert_non_null(strstr(tsr_last_error(), "tsr_module_place: variable bias has its value "
                                             "already; place variables before they are set, "
                                             "loaded or compiled"));
}

static void test_moves(void **state)
{
    fixture *f = *state;
    assert_ptr_equal(tsri_module_home(f->net), f->a);
    assert_null(tsri_module_home(tsr_module_child(f->net, "1")));
    assert_int_equal(tsr_module_place(f->net, "4.*", f->b, TSR_B), TSR_OK);
    assert_null(tsri_module_home(f->net));
    tsr_graph *g = tsr_graph_create(f->world, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 6), f->a, TSR_S(0));
    tsr_tensor *y = tsr_apply(f->net, x);
    assert_int_equal(tsr_graph_status(g), TSR_OK);
    assert_ptr_equal(tsr_tensor_placement(y), f->b);
}

int main(void)
{
#define WITH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glob),      WITH(test_place), WITH(test_errors), WITH(test_too_late),
        cmocka_unit_test(test_has_value), WITH(test_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
