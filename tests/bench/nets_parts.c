/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that the nets of nets.h are made of, and the values of their parameters. */
#include "nets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tsr_module *bench_add(bench_builder *b, tsr_module *parent, tsr_module *child)
{
    char name[16];
    b->failed |= !child;
    if (b->failed) {
        tsr_module_destroy(child);
        return NULL;
    }
    if (!parent)
        return child;
    snprintf(name, sizeof name, "%d", b->parts++);
    tsr_module *const added = tsr_module_add(parent, name, child);
    b->failed = !added;
    return added;
}

tsr_module *bench_module(bench_builder *b, tsr_module *parent, tsr_forward_fn *forward)
{
    if (b->failed)
        return NULL;
    return bench_add(b, parent, tsr_module_create(b->world, &b->nn, forward, NULL, NULL));
}

tsr_module *bench_conv(bench_builder *b, tsr_module *parent, int64_t in, int64_t out, int kernel,
                       int stride, int64_t groups, bool bias)
{
    const int padding = kernel == stride ? 0 : (kernel - 1) / 2;
    if (b->failed)
        return NULL;
    return bench_add(
        b, parent,
        tsr_nn_conv2d(b->world, &b->nn, in, out, kernel, bias,
                      TSR_CONV2D_OPTS(.stride = {stride, stride}, .padding = {padding, padding},
                                      .groups = groups)));
}

tsr_module *bench_batch_norm(bench_builder *b, tsr_module *parent, int64_t channels)
{
    if (b->failed)
        return NULL;
    return bench_add(b, parent, tsr_nn_batch_norm(b->world, &b->nn, channels, &b->bn));
}

tsr_module *bench_layer_norm(bench_builder *b, tsr_module *parent, int64_t width, double eps)
{
    if (b->failed)
        return NULL;
    return bench_add(
        b, parent,
        tsr_nn_layer_norm(b->world, &b->nn, TSR_DIMS(width), TSR_LAYER_NORM_OPTS(.eps = eps)));
}

tsr_module *bench_linear(bench_builder *b, tsr_module *parent, int64_t in, int64_t out)
{
    if (b->failed)
        return NULL;
    return bench_add(b, parent, tsr_nn_linear(b->world, &b->nn, in, out, true));
}

tsr_module *bench_table(bench_builder *b, tsr_module *parent, int64_t rows, int64_t width)
{
    if (b->failed)
        return NULL;
    return bench_add(b, parent, tsr_nn_embedding(b->world, &b->nn, rows, width, NULL));
}

tsr_module *bench_op(bench_builder *b, tsr_module *parent, tsr_unary_op_fn *function)
{
    if (b->failed)
        return NULL;
    return bench_add(b, parent, tsr_nn_fn(b->world, function));
}

void bench_conv_norm(bench_builder *b, tsr_module *parent, int64_t in, int64_t out, int kernel,
                     int stride, int64_t groups, tsr_unary_op_fn *function)
{
    bench_conv(b, parent, in, out, kernel, stride, groups, false);
    bench_batch_norm(b, parent, out);
    if (function)
        bench_op(b, parent, function);
}

void bench_param(bench_builder *b, tsr_module *m, const char *name, tsr_dims dims)
{
    const tsr_init zeros = {.kind = TSR_INIT_ZEROS};
    b->failed = b->failed || !tsr_module_param(m, name, dims, TSR_AUTO, zeros);
}

/* --- values ----------------------------------------------------------------------------------- */
void bench_put(void *data, tsr_dtype dtype, size_t i, double value)
{
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == TSR_F64)
        ((double *)data)[i] = value;
    else if (dtype == TSR_F32)
        ((float *)data)[i] = f;
    else /* bf16: the upper half, rounded to the nearest, of two to the even one */
        ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double bench_get(const void *data, tsr_dtype dtype, size_t i)
{
    if (dtype == TSR_F64)
        return ((const double *)data)[i];
    if (dtype == TSR_F32)
        return (double)((const float *)data)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Returns a number in [-1, 1) that looks random, of an element's index. */
static double noise(uint32_t i)
{
    i *= 2654435761U;
    i ^= i >> 16;
    i *= 2246822519U;
    i ^= i >> 13;
    return (double)i / 2147483648.0 - 1;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), part = strlen(end);
    return length >= part && !strcmp(name + length - part, end);
}

/* Sets *out_base and *out_scale: a parameter's elements are base + scale * noise. Weights of
 * several axes have the variance 2 / fan_in, those of norms lie around 1, biases around 0. */
static void value_range(const char *name, tsr_dims dims, double *out_base, double *out_scale)
{
    *out_base = dims.ndim == 1 && ends_with(name, "weight") ? 1 : 0;
    *out_scale = 0.1;
    if (dims.ndim > 1 && !ends_with(name, "bias"))
        *out_scale = sqrt(6 * (double)dims.d[0] / (double)tsr_dims_count(dims));
}

static tsr_status fill_variable(tsr_variable *v, const char *name, void *arg)
{
    (void)arg;
    if (!tsr_variable_trainable(v))
        return TSR_OK;
    const tsr_dims dims = tsr_variable_dims(v);
    const size_t count = (size_t)tsr_dims_count(dims);
    const tsr_dtype dtype = tsr_variable_dtype(v);
    const size_t bytes = count * tsr_dtype_size(dtype);
    double base, scale;
    value_range(name, dims, &base, &scale);
    void *const data = malloc(bytes);
    if (!data)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "no memory for the values of %s", name);
    for (size_t i = 0; i < count; i++)
        bench_put(data, dtype, i, base + scale * noise((uint32_t)i));
    const tsr_status status = tsr_variable_set(v, data, bytes);
    free(data);
    return status;
}

tsr_status bench_fill(tsr_module *net)
{
    return tsr_module_visit(net, fill_variable, NULL);
}
