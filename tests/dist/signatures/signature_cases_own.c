/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of ops that the test defines itself: x sigmoid(x) g, and the cubes of each row. */
#include <math.h>
#include <string.h>

#include "tests/dist/signatures/signature_cases.h"

static double at(const tsr_op_buffer *b, int64_t i)
{
    return b->dtype == TSR_F32 ? (double)((const float *)b->data)[i] : ((const double *)b->data)[i];
}

static void put(const tsr_op_buffer *b, int64_t i, double v)
{
    if (b->data && b->dtype == TSR_F32)
        ((float *)b->data)[i] = (float)v;
    else if (b->data)
        ((double *)b->data)[i] = v;
}

static tsr_status gate(tsr_op_args *a)
{
    for (int64_t i = 0; i < tsr_dims_count(a->out[0].shape); i++) {
        const double x = at(&a->in[0], i);
        put(&a->out[0], i, x / (1 + exp(-x)) * at(&a->in[1], i));
    }
    return TSR_OK;
}

static tsr_status gate_backward(tsr_op_args *a)
{
    for (int64_t i = 0; i < tsr_dims_count(a->dout[0].shape); i++) {
        const double x = at(&a->in[0], i), s = 1 / (1 + exp(-x)), dy = at(&a->dout[0], i);
        put(&a->din[0], i, dy * at(&a->in[1], i) * s * (1 + x * (1 - s)));
        put(&a->din[1], i, dy * x * s);
    }
    return TSR_OK;
}

static tsr_status rows(tsr_op_args *a)
{
    const int64_t n = a->in[0].shape.d[1];
    for (int64_t i = 0; i < a->in[0].shape.d[0]; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += pow(at(&a->in[0], i * n + j), 3);
        put(&a->out[0], i, sum);
    }
    return TSR_OK;
}

static tsr_status rows_backward(tsr_op_args *a)
{
    const int64_t n = a->in[0].shape.d[1];
    for (int64_t i = 0; i < a->in[0].shape.d[0] * n; i++)
        put(&a->din[0], i, 3 * pow(at(&a->in[0], i), 2) * at(&a->dout[0], i / n));
    return TSR_OK;
}

static tsr_op *find_or_define(tsr_world *w, const tsr_op_def *def)
{
    tsr_op *op = tsr_op_find(w, def->name);
    if (!op)
        tsr_op_define(w, def, &op);
    return op;
}

void sc_own(sc_graph *s)
{
    tsr_op *swish = find_or_define(s->world, TSR_OP_DEF(.name = "test_gate", .inputs = 2,
                                                        .rule = "!..., ... -> ...", .forward = gate,
                                                        .backward = gate_backward));
    static const tsr_dims shapes[] = {
        {2, {5, 7}}, {3, {4, 3, 2}}, {1, {6}}, {2, {0, 3}}, {2, {1, 4}}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        tsr_tensor *x[2] = {sc_make(s, s->real, shapes[i], SC_SPREAD),
                            sc_make(s, s->real, shapes[i], SC_SPREAD)};
        sc_grads(s, tsr_op_apply(swish, 2, x, NULL), 2, x);
    }
    tsr_op *sums =
        find_or_define(s->world, TSR_OP_DEF(.name = "test_rows", .inputs = 1, .rule = "!r c -> r",
                                            .forward = rows, .backward = rows_backward));
    tsr_tensor *x = sc_make(s, s->real, TSR_DIMS(5, 7), SC_SPREAD);
    sc_grads(s, tsr_op_apply(sums, 1, &x, NULL), 1, &x);
}
