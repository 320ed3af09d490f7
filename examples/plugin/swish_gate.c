/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in: x sigmoid(beta x) g, an activation with a gate, in one pass over the data. */
#include <math.h>

#include <tessera/tessera.h>

/* The loops are the same for both dtypes. */
#define LOOPS(T, NAME, EXP)                                                     \
    static void NAME(const tsr_op_args *a, T beta)                              \
    {                                                                           \
        const T *x = a->in[0].data, *g = a->in[1].data;                         \
        T *y = a->out[0].data;                                                  \
        for (int64_t i = 0, n = tsr_dims_count(a->out[0].shape); i < n; i++)    \
            y[i] = x[i] / (1 + EXP(-beta * x[i])) * g[i];                       \
    }                                                                           \
    static void NAME##_backward(const tsr_op_args *a, T beta)                   \
    {                                                                           \
        const T *x = a->in[0].data, *g = a->in[1].data, *dy = a->dout[0].data;  \
        T *dx = a->din[0].data, *dg = a->din[1].data;                           \
        for (int64_t i = 0, n = tsr_dims_count(a->dout[0].shape); i < n; i++) { \
            const T s = 1 / (1 + EXP(-beta * x[i]));                            \
            if (dx)                                                             \
                dx[i] = dy[i] * g[i] * s * (1 + beta * x[i] * (1 - s));         \
            if (dg)                                                             \
                dg[i] = dy[i] * x[i] * s;                                       \
        }                                                                       \
    }
LOOPS(float, gate_f32, expf)
LOOPS(double, gate_f64, exp)

static tsr_status forward(tsr_op_args *a)
{
    if (a->in[0].dtype == TSR_F32)
        gate_f32(a, (float)a->option[0]);
    else
        gate_f64(a, a->option[0]);
    return TSR_OK;
}

static tsr_status backward(tsr_op_args *a)
{
    if (a->in[0].dtype == TSR_F32)
        gate_f32_backward(a, (float)a->option[0]);
    else
        gate_f64_backward(a, a->option[0]);
    return TSR_OK;
}

TSR_API tsr_plugin_begin_fn tsr_plugin_begin;

tsr_status tsr_plugin_begin(tsr_world *world)
{
    tsr_op *op;
    return tsr_op_define(world,
                         TSR_OP_DEF(.name = "swish_gate", .inputs = 2, .rule = "!..., ... -> ...",
                                    .dtypes = TSR_OP_FLOATS, .forward = forward,
                                    .backward = backward, .flops = 8,
                                    .options = {{"beta", 1, 0, INFINITY}}),
                         &op);
}
