/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of products, pointwise operations, reductions and reshapes on the emulated cuDNN: one
 * operation after the other, each as its definition has it, in f64 rounded to the result's type. */
#include "tests/cuda/emulator/cudnn.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace emulated_dnn {

namespace {

double rounded(cudnnDataType_t type, double v)
{
    switch (type) {
    case CUDNN_DATA_HALF:
        return __half2float(__double2half(v));
    case CUDNN_DATA_BFLOAT16:
        return __bfloat162float(__double2bfloat16(v));
    default:
        return (float)v;
    }
}

int64_t place(const tensor &t, const int64_t *at)
{
    int64_t p = 0;
    for (int i = 0; i < 4; i++)
        p += t.dims[(size_t)i] == 1 ? 0 : at[i] * t.strides[(size_t)i];
    return p;
}

/* Calls f with each index of a tensor. */
template <typename F> void each(const tensor &t, const F &f)
{
    int64_t at[4];
    for (at[0] = 0; at[0] < t.dims[0]; at[0]++)
        for (at[1] = 0; at[1] < t.dims[1]; at[1]++)
            for (at[2] = 0; at[2] < t.dims[2]; at[2]++)
                for (at[3] = 0; at[3] < t.dims[3]; at[3]++)
                    f(at);
}

typedef std::map<int64_t, std::vector<double>> memory;

std::vector<double> &room_of(memory &all, const tensor &t)
{
    std::vector<double> &v = all[t.uid];
    int64_t last = 1;
    for (size_t i = 0; i < 4; i++)
        last += (t.dims[i] - 1) * t.strides[i];
    if ((int64_t)v.size() < last)
        v.resize((size_t)last, NAN); /* what nobody wrote shows */
    return v;
}

double read(cudnnDataType_t type, const void *p, int64_t i)
{
    return type == CUDNN_DATA_HALF       ? __half2float(((const __half *)p)[i])
           : type == CUDNN_DATA_BFLOAT16 ? __bfloat162float(((const __nv_bfloat16 *)p)[i])
                                         : ((const float *)p)[i];
}

void write(cudnnDataType_t type, void *p, int64_t i, double v)
{
    if (type == CUDNN_DATA_HALF)
        ((__half *)p)[i] = __double2half(v);
    else if (type == CUDNN_DATA_BFLOAT16)
        ((__nv_bfloat16 *)p)[i] = __double2bfloat16(v);
    else
        ((float *)p)[i] = (float)v;
}

double pointwise(const step &s, const int64_t *at, const double *v)
{
    switch (s.mode) {
    case CUDNN_POINTWISE_MUL:
        return v[0] * v[1];
    case CUDNN_POINTWISE_ADD:
        return v[0] + v[1];
    case CUDNN_POINTWISE_SUB:
        return v[0] - v[1];
    case CUDNN_POINTWISE_DIV:
        return v[0] / v[1];
    case CUDNN_POINTWISE_EXP:
        return exp(v[0]);
    case CUDNN_POINTWISE_LOG:
        return log(v[0]);
    case CUDNN_POINTWISE_GEN_INDEX:
        return (double)at[s.axis];
    case CUDNN_POINTWISE_CMP_GE:
        return v[0] >= v[1];
    case CUDNN_POINTWISE_BINARY_SELECT:
        return v[2] != 0 ? v[0] : v[1];
    case CUDNN_POINTWISE_IDENTITY:
        return v[0];
    default:
        return NAN;
    }
}

void run_step(const step &s, memory &all)
{
    std::vector<double> &out = room_of(all, s.out);
    if (s.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
        out = room_of(all, s.in[0]); /* another view of the same memory */
        return;
    }
    std::vector<const std::vector<double> *> in;
    for (const tensor &t : s.in)
        in.push_back(&room_of(all, t));
    if (s.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        const bool adds = s.mode == CUDNN_REDUCE_TENSOR_ADD;
        each(s.out,
             [&](const int64_t *at) { out[(size_t)place(s.out, at)] = adds ? 0 : -HUGE_VAL; });
        each(s.in[0], [&](const int64_t *at) {
            double &to = out[(size_t)place(s.out, at)];
            const double v = (*in[0])[(size_t)place(s.in[0], at)];
            to = adds ? to + v : v > to || v != v ? v : to;
        });
        return;
    }
    each(s.out, [&](const int64_t *at) {
        double v[3] = {0, 0, 0};
        if (s.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
            for (int64_t k = 0; k < s.in[0].dims[3]; k++) {
                const int64_t a[4] = {at[0], at[1], at[2], k}, b[4] = {at[0], at[1], k, at[3]};
                v[0] += (*in[0])[(size_t)place(s.in[0], a)] * (*in[1])[(size_t)place(s.in[1], b)];
            }
        } else {
            for (size_t i = 0; i < in.size(); i++)
                v[i] = (*in[i])[(size_t)place(s.in[i], at)];
            v[0] = pointwise(s, at, v);
        }
        out[(size_t)place(s.out, at)] = rounded(s.out.type, v[0]);
    });
}

} // namespace

const char *check(const step &s)
{
    for (const tensor &t : s.in)
        if (t.dims.size() != 4)
            return "four axes each";
    const std::vector<int64_t> &a = s.in[0].dims, &o = s.out.dims;
    if (o.size() != 4)
        return "four axes each";
    if (s.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        const std::vector<int64_t> &b = s.in[1].dims;
        if (a[3] != b[2] || o[2] != a[2] || o[3] != b[3] || s.in[0].type != s.in[1].type)
            return "a product's sizes and types";
        return nullptr;
    }
    if (s.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        return a[2] * a[3] == o[2] * o[3] ? nullptr : "a reshape of as many elements";
    const bool reduces = s.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
    for (const tensor &t : s.in)
        for (size_t i = 0; i < 4; i++)
            if (t.dims[i] != o[i] && (reduces ? o[i] : t.dims[i]) != 1)
                return "sizes that do not broadcast";
    return nullptr;
}

/* Halves in memory have a multiple of 8 features, at most 256, one after the other: the last axis,
 * or the one before it. */
const char *check(const std::vector<step> &steps)
{
    for (const step &s : steps) {
        std::vector<tensor> all = s.in;
        all.push_back(s.out);
        for (const tensor &t : all) {
            if (t.is_virtual || t.by_value || t.type == CUDNN_DATA_FLOAT)
                continue;
            const size_t features = t.strides[3] == 1 ? 3 : 2;
            if (t.strides[features] != 1 || t.dims[features] % 8 || t.dims[features] > 256)
                return "features that no engine takes";
            for (size_t i = 0; i < 4; i++)
                if (i != features && t.strides[i] % 8)
                    return "steps that are no multiples of 16 bytes";
        }
    }
    return nullptr;
}

/* A gradient whose last product makes its result in one piece keeps the product's first operand, in
 * tiles of 128. */
int64_t workspace_of(const std::vector<step> &steps)
{
    int products = 0;
    for (const step &s : steps)
        products += s.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    const step &last = steps.back();
    if (products < 5 || last.type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        return 4096;
    const std::vector<int64_t> &d = last.in[0].dims;
    return d[0] * d[1] * ((d[2] + 127) / 128 * 128) * ((d[3] + 127) / 128 * 128) * 2;
}

/* at: the buffers by name; those by value are in `values`. */
void compute(const std::vector<step> &steps, const std::map<int64_t, void *> &at,
             const std::map<int64_t, float> &values)
{
    memory all;
    for (const auto &v : values)
        all[v.first] = {v.second};
    std::set<int64_t> written;
    for (const step &s : steps) {
        for (const tensor &t : s.in)
            if (at.count(t.uid) && !written.count(t.uid)) {
                std::vector<double> &v = room_of(all, t);
                each(t, [&](const int64_t *i) {
                    v[(size_t)place(t, i)] = read(t.type, at.at(t.uid), place(t, i));
                });
            }
        run_step(s, all);
        if (at.count(s.out.uid)) {
            written.insert(s.out.uid);
            each(s.out, [&](const int64_t *i) {
                const int64_t p = place(s.out, i);
                write(s.out.type, at.at(s.out.uid), p, all[s.out.uid][(size_t)p]);
            });
        }
    }
}

} // namespace emulated_dnn
