/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of several inputs and outputs, and what the layers refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <tessera/layers.h>

#include "src/nn/module.h"

static void assert_error(const char *part)
{
    if (!strstr(tsr_last_error(), part))
        fail_msg("'%s' is not in: %s", part, tsr_last_error());
}

typedef struct fixture {
    tsr_world *world;
    const tsr_placement *p;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || tsr_world_create_virtual(4, 1, &f->world) != TSR_OK)
        return -1;
    f->p = tsr_placement_parse(f->world, "cpu:[0,1,2,3]");
    *state = f;
    return f->p ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    tsr_world_destroy(f->world);
    free(f);
    return 0;
}

static const char *seen_scope;

/* Gives its inputs in turned order, but none that is left out. */
static void turn_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout, tsr_tensor **out,
                         void *arg)
{
    (void)m, (void)nout, (void)arg;
    seen_scope = in[0]->graph->now.scope;
    for (int i = 0; i < nin; i++)
        out[i] = in[nin - 1 - i];
    for (int i = nin; i < TSR_APPLY_MAX; i++)
        assert_true(!in[i] && !out[i]);
}

static void test_apply_n(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    tsr_graph *g = tsr_graph_create(f->world, NULL), *other = tsr_graph_create(f->world, NULL);
    tsr_module *root = tsr_nn_sequential(f->world, &o);
    tsr_module *m =
        tsr_module_add(root, "turn", tsr_module_create_n(f->world, &o, turn_forward, NULL, NULL));
    const tsr_placement *first = tsr_placement_parse(f->world, "cpu:[0]");
    tsr_module_param(m, "w", TSR_DIMS(2), TSR_AUTO, (tsr_init){0});
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), f->p, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_F32, TSR_DIMS(4), first, TSR_B), *out[3];
    tsr_tensor *z = tsr_input(other, "z", TSR_F32, TSR_DIMS(4), f->p, TSR_B);
    /* Inputs are moved to where the variables are; a module of one input gives the first output. */
    tsr_apply_n(m, 2, ((tsr_tensor *[]){x, y}), 2, out);
    assert_string_equal(seen_scope, "turn");
    assert_ptr_equal(out[1], x);
    assert_ptr_equal(out[0]->placement, f->p);
    assert_ptr_equal(tsr_apply(root, x), x);
    tsr_apply_n(root, 1, &x, 1, out);
    assert_ptr_equal(out[0], x);
    assert_int_equal(tsr_graph_status(g), TSR_OK);
    assert_null(tsr_module_create_n(f->world, &o, NULL, NULL, NULL));
    assert_error("the forward function is NULL");

    const struct {
        tsr_module *m;
        int nin, nout;
        tsr_tensor *second;
        const char *error;
    } bad[] = {{m, 2, 3, x, "the forward function gave no output 2"},
               {m, 2, 2, NULL, "the forward function gave no output 0"},
               {m, 2, 2, z, "input 1 belongs to another graph than input 0"},
               {root, 2, 1, x, "2 inputs and 1 outputs of a module that has one of each"},
               {root, 1, 2, NULL, "1 inputs and 2 outputs of a module that has one of each"},
               {NULL, 1, 1, NULL, "the module is NULL"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tsr_graph *fresh = tsr_graph_create(f->world, NULL);
        tsr_tensor *in[2] = {tsr_input(fresh, "x", TSR_F32, TSR_DIMS(4), f->p, TSR_B)};
        in[1] = bad[i].second == x ? in[0] : bad[i].second;
        tsr_apply_n(bad[i].m, bad[i].nin, in, bad[i].nout, out);
        assert_false(tsr_tensor_ok(out[bad[i].nout - 1]) && i != 1);
        assert_int_equal(tsr_graph_status(fresh), TSR_ERR_INVALID);
        assert_error(bad[i].error);
        assert_string_equal(fresh->now.scope, "");
    }
    static const int counts[] = {-1, 0, TSR_APPLY_MAX + 1};
    for (int i = 0; i < 3; i++) {
        out[0] = x;
        tsr_apply_n(m, counts[i], &x, 1, out);
        assert_null(out[0]);
        assert_error("1 to 16 can be given");
        tsr_apply_n(m, 1, &x, counts[i], out);
        assert_error("1 to 16 can be had");
    }
}

/* Recurrent layers say which input does not fit. */
static void test_recurrent_errors(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    tsr_module *lstm = tsr_nn_lstm(f->world, &o, 3, 4, TSR_RNN_OPTS(.batch_first = true));
    tsr_module *cell = tsr_nn_gru_cell(f->world, &o, 3, 4, true);
    const struct {
        tsr_module *m;
        int nin, nout;
        tsr_dims x, h;
        const char *error;
    } bad[] = {
        {lstm, 1, 1, TSR_DIMS(5, 3), TSR_SCALAR, "x is (5,3); it must be (n,t,3)"},
        {lstm, 1, 1, TSR_DIMS(5, 0, 3), TSR_SCALAR, "with t of at least 1"},
        {lstm, 2, 1, TSR_DIMS(5, 2, 3), TSR_DIMS(1, 2, 4), "h0 is (1,2,4); it must be (1,5,4)"},
        {lstm, 4, 1, TSR_DIMS(5, 2, 3), TSR_DIMS(1, 5, 4), "4 inputs; there are x and h and c"},
        {lstm, 2, 4, TSR_DIMS(5, 2, 3), TSR_DIMS(1, 5, 4), "gave no output 3"},
        {cell, 1, 1, TSR_DIMS(5, 2, 3), TSR_SCALAR, "x is (5,2,3); it must be (n,3)"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tsr_graph *g = tsr_graph_create(f->world, NULL);
        tsr_tensor *in[4] = {tsr_input(g, "x", TSR_F32, bad[i].x, f->p, TSR_B)}, *out[4];
        if (bad[i].nin > 1)
            in[1] = tsr_input(g, "h", TSR_F32, bad[i].h, f->p, TSR_B);
        tsr_apply_n(bad[i].m, bad[i].nin, in, bad[i].nout, out);
        assert_int_not_equal(tsr_graph_status(g), TSR_OK);
        assert_false(tsr_tensor_ok(out[bad[i].nout - 1]));
        assert_error(bad[i].error);
    }
    assert_null(tsr_nn_lstm(f->world, &o, 3, 0, NULL));
    assert_error("tsr_nn_lstm: in = 3, hidden = 0");
    assert_null(tsr_nn_rnn(f->world, &o, 3, 4, TSR_RNN_OPTS(.dropout = 2)));
    assert_error("dropout = 2");
}

/* Attention says which input does not fit, and layers which option. */
static void test_layer_errors(void **state)
{
    fixture *f = *state;
    const tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    tsr_module *m = tsr_nn_multihead_attention(f->world, &o, 8, 2, NULL);
    const struct {
        int which;
        tsr_dtype dtype;
        tsr_dims dims;
        const char *error;
    } bad[] = {{0, TSR_F32, TSR_DIMS(5, 6), "query is (5,6); it must be (s,n,width), of one n"},
               {1, TSR_F32, TSR_DIMS(5, 4, 8), "key is (5,4,8); it must be"},
               {2, TSR_F32, TSR_DIMS(4, 6, 8), "value is (4,6,8); it must be as long as key"},
               {3, TSR_BOOL, TSR_DIMS(6, 5), "mask is (6,5); it must be (s,t) or (n heads,s,t)"},
               {3, TSR_I64, TSR_DIMS(5, 5), "mask is i64; it must be bool"},
               {4, TSR_BOOL, TSR_DIMS(5, 6), "the mask of keys is (5,6); it must be (n,t)"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tsr_graph *g = tsr_graph_create(f->world, NULL);
        tsr_tensor *in[5] = {tsr_input(g, "x", TSR_F32, TSR_DIMS(5, 6, 8), f->p, TSR_B)}, *out;
        in[bad[i].which] = tsr_input(g, "bad", bad[i].dtype, bad[i].dims, f->p, TSR_B);
        tsr_apply_n(m, 5, in, 1, &out);
        assert_false(tsr_tensor_ok(out));
        assert_error(bad[i].error);
    }
    assert_null(tsr_nn_multihead_attention(f->world, &o, 8, 3, NULL));
    assert_error("heads must divide the width");
    assert_null(tsr_nn_transformer_encoder_layer(f->world, &o, 8, 2,
                                                 TSR_TRANSFORMER_LAYER_OPTS(.inner = 0)));
    assert_error("tsr_nn_linear: in = 8 and out = 0");
    assert_null(tsr_nn_transformer_decoder(f->world, &o, 0, 2, 2, true, NULL));
    assert_error("width 0, heads 2");
    assert_null(tsr_nn_group_norm(f->world, &o, 3, 4, 1e-5, true));
    assert_error("tsr_nn_group_norm: 3 groups of 4 channels");
    assert_null(tsr_nn_rms_norm(f->world, &o, TSR_DIMS(4), -1));
    assert_error("tsr_nn_rms_norm: eps = -1");
    assert_null(tsr_nn_embedding(f->world, &o, 4, 2,
                                 TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = 4)));
    assert_error("padding_idx 4");
    assert_null(tsr_nn_fn(f->world, NULL));
    assert_error("tsr_nn_fn: the function is NULL");
}

/* --- no memory -------------------------------------------------------------------------------- */
static tsr_module *make_lstm(const fixture *f, const tsr_nn_opts *o)
{
    return tsr_nn_lstm(f->world, o, 8, 4, TSR_RNN_OPTS(.layers = 2, .bidirectional = true));
}

static tsr_module *make_gru(const fixture *f, const tsr_nn_opts *o)
{
    return tsr_nn_gru(f->world, o, 8, 4, TSR_RNN_OPTS(.batch_first = true));
}

static tsr_module *make_attention(const fixture *f, const tsr_nn_opts *o)
{
    return tsr_nn_multihead_attention(f->world, o, 8, 2, NULL);
}

static tsr_module *make_encoder(const fixture *f, const tsr_nn_opts *o)
{
    return tsr_nn_transformer_encoder(f->world, o, 8, 2, 2, true,
                                      TSR_TRANSFORMER_LAYER_OPTS(.inner = 6));
}

static tsr_module *make_decoder(const fixture *f, const tsr_nn_opts *o)
{
    return tsr_nn_transformer_decoder(f->world, o, 8, 2, 1, false, NULL);
}

static tsr_module *make_chain(const fixture *f, const tsr_nn_opts *o)
{
    tsr_module *m = tsr_nn_sequential(f->world, o);
    tsr_module *parts[] = {
        m ? tsr_nn_group_norm(f->world, o, 1, 6, 1e-5, true) : NULL,
        m ? tsr_nn_rms_norm(f->world, o, TSR_DIMS(8), 1e-5) : NULL,
        m ? tsr_nn_prelu(f->world, o, 1) : NULL,
        m ? tsr_nn_fn(f->world, tsr_tanh_at) : NULL,
        m ? tsr_nn_softmax(f->world, o, -1) : NULL,
    };
    bool ok = m;
    for (int i = 0; i < 5; i++)
        ok = tsr_module_add(m, (const char[]){(char)('0' + i), 0}, parts[i]) && ok;
    if (ok)
        return m;
    tsr_module_destroy(m);
    return NULL;
}

/* Whichever allocation fails, making a layer and applying it fail, say so, and leave nothing. */
static void test_no_memory(void **state)
{
    const fixture *f = *state;
    const struct {
        tsr_module *(*make)(const fixture *f, const tsr_nn_opts *o);
        int nin, nout;
    } layers[] = {{make_lstm, 1, 3},    {make_gru, 1, 2},     {make_attention, 2, 2},
                  {make_encoder, 1, 1}, {make_decoder, 2, 1}, {make_chain, 1, 1}};
    const tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    tsri_mem *mem = &f->world->mem;
    for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
        bool failed = true;
        for (int n = 1; failed; n++) {
            const tsri_owned *newest = f->world->owned;
            tsr_tensor *in[2] = {NULL}, *out[3] = {NULL};
            tsr_graph *g = tsr_graph_create(f->world, TSR_GRAPH_OPTS(.training = true));
            for (int i = 0; i < layers[k].nin; i++)
                in[i] = tsr_input(g, i ? "y" : "x", TSR_F32, TSR_DIMS(5, 6, 8), f->p, TSR_B);
            tsri_error_clear();
            mem->fail_countdown = n;
            tsr_module *m = layers[k].make(f, &o);
            if (m)
                tsr_apply_n(m, layers[k].nin, in, layers[k].nout, out);
            failed = mem->fail_countdown == 0;
            mem->fail_countdown = 0;
            if (failed)
                assert_error("no memory");
            for (int i = 0; i < layers[k].nout; i++)
                assert_true(tsr_tensor_ok(out[i]) || failed);
            assert_true(failed == (!m || tsr_graph_status(g) != TSR_OK));
            tsr_graph_destroy(g);
            tsr_module_destroy(m);
            assert_ptr_equal(f->world->owned, newest);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_apply_n, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recurrent_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_layer_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
