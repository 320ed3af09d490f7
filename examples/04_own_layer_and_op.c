/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer and an op of the program's own. The op, relu(x)^2, is a rule and two C functions; the
 * layer, x + gain * relu(fc(x))^2, is a module with a child and a parameter. tsr_op_verify holds
 * the op in all its signatures and its gradient against the whole before it is used.
 *
 * usage: 04_own_layer_and_op, or tessera launch -n 2 -- 04_own_layer_and_op
 *
 *   verified
 *   step 0: loss 1.9889
 *   step 100: loss 0.0242
 *   step 200: loss 0.0241
 *   step 300: loss 0.0241
 */
#include <stdio.h>

#include <tessera/tessera.h>

enum { ROWS = 64, WIDTH = 8, STEPS = 301 };

/* --- the op: one rank's part of each tensor, in f32 or, to be verified, in f64 ---------------- */
static tsr_status relu2_forward(tsr_op_args *a)
{
    const int64_t n = tsr_dims_count(a->out[0].shape);
    if (a->in[0].dtype == TSR_F64) {
        const double *x = a->in[0].data;
        double *y = a->out[0].data;
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] > 0 ? x[i] * x[i] : 0;
    } else {
        const float *x = a->in[0].data;
        float *y = a->out[0].data;
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] > 0 ? x[i] * x[i] : 0;
    }
    return TSR_OK;
}

static tsr_status relu2_backward(tsr_op_args *a)
{
    const int64_t n = tsr_dims_count(a->din[0].shape);
    if (a->in[0].dtype == TSR_F64) {
        const double *x = a->in[0].data, *dy = a->dout[0].data;
        double *dx = a->din[0].data;
        for (int64_t i = 0; i < n; i++)
            dx[i] = x[i] > 0 ? 2 * x[i] * dy[i] : 0;
    } else {
        const float *x = a->in[0].data, *dy = a->dout[0].data;
        float *dx = a->din[0].data;
        for (int64_t i = 0; i < n; i++)
            dx[i] = x[i] > 0 ? 2 * x[i] * dy[i] : 0;
    }
    return TSR_OK;
}

/* --- the layer: `arg` is what tsr_module_create was given ------------------------------------- */
static tsr_tensor *layer_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *h = tsr_apply(tsr_module_child(m, "fc"), x);
    h = tsr_op_apply((tsr_op *)arg, 1, &h, NULL);
    return tsr_add(x, tsr_mul(h, tsr_use(m, "gain", x)));
}

static tsr_module *layer(tsr_world *w, const tsr_nn_opts *o, tsr_op *relu2)
{
    tsr_module *m = tsr_module_create(w, o, layer_forward, relu2, NULL);
    tsr_module_add(m, "fc", tsr_nn_linear(w, o, WIDTH, WIDTH, true));
    tsr_module_param(m, "gain", TSR_DIMS(WIDTH), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    return m;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_op *relu2;
    TSR_TRY(tsr_op_define(w,
                          TSR_OP_DEF(.name = "relu_squared", .inputs = 1, .rule = "!... -> ...",
                                     .forward = relu2_forward, .backward = relu2_backward,
                                     .dtypes = TSR_OP_FLOATS, .flops = 2),
                          &relu2));
    TSR_TRY(tsr_op_verify(relu2, &TSR_DIMS(5, 3), NULL));
    if (tsr_world_rank(w) == 0)
        printf("verified\n");

    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts o = {.placement = p, .sbp = TSR_B, .dtype = TSR_F32, .seed = 1};
    tsr_module *net = layer(w, &o, relu2);
    tsr_optimizer *adam = tsr_adam(net, TSR_ADAM_OPTS(.lr = 0.02));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_normal(g, "x", TSR_F32, TSR_DIMS(ROWS, WIDTH), p, TSR_S(0), 0.0, 1.0);
    tsr_tensor *error = tsr_sub(tsr_apply(net, x), tsr_abs(x)); /* it is to learn |x| */
    tsr_tensor *loss = tsr_mean(tsr_square(error), TSR_ALL_AXES, false);
    tsr_minimize(adam, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    for (int step = 0; step < STEPS; step++) {
        double value;
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch_scalar(plan, "loss", &value));
        if (step % 100 == 0 && tsr_world_rank(w) == 0)
            printf("step %d: loss %.4f\n", step, value);
    }
    return TSR_OK;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (tsr_start_ranks(2, rank, NULL) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
