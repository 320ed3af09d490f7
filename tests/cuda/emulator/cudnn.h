/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the emulated cuDNN: descriptors (cudnn.cc), convolutions (cudnn_conv.cc) and graphs
 * of several operations (cudnn_steps.cc). */
#ifndef TESSERA_TESTS_CUDA_EMULATOR_CUDNN_H
#define TESSERA_TESTS_CUDA_EMULATOR_CUDNN_H

#include "tests/cuda/emulator/emulator.h"

#include <cudnn.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

namespace emulated_dnn {

struct tensor {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    std::vector<int64_t> dims, strides;
    int64_t uid = 0, alignment = 1;
    bool is_virtual = false, by_value = false;
};

/* An operation of a graph that is no convolution; mode: that of its type. */
struct step {
    cudnnBackendDescriptorType_t type;
    int mode = 0;
    int64_t axis = 0;
    std::vector<tensor> in;
    tensor out;
};
const char *check(const step &s);
/* Of a whole graph: NULL, or what fused engines do not take. */
const char *check(const std::vector<step> &steps);
int64_t workspace_of(const std::vector<step> &steps);
void compute(const std::vector<step> &steps, const std::map<int64_t, void *> &at,
             const std::map<int64_t, float> &values);

struct window {
    std::vector<int64_t> stride, dilation, pad, pad_after;
};

enum class kind { forward, data, filter };

struct convolution {
    emulated_dnn::kind kind = kind::forward;
    window slide;
    tensor x, w, y;
    float alpha = 1, beta = 0;
};

/* tf32: f32 operands lose 13 bits. unsteady: marked as not deterministic. huge: its workspace is
 * above any cap. unmade: no plan can be made of it. plain: takes all, proposed as a fallback. */
enum class engine { plain, tf32, unsteady, huge, unmade, tensor_core, fma };

/* NULL, or what is wrong with it. */
const char *check(const convolution &c);
std::vector<engine> proposals(const convolution &c, cudnnBackendHeurMode_t mode);
std::vector<cudnnBackendNumericalNote_t> notes(engine e);
size_t workspace_of(const convolution &c, engine e);
void compute(const convolution &c, engine e, void *x, void *w, void *y);

/* What a finalized descriptor stands for: those of its members that its type needs. */
struct contents {
    tensor operand;
    window slide;
    convolution conv;
    engine choice = engine::plain;
    step how;                /* of a pointwise operation or a reduction */
    std::vector<step> steps; /* a graph, or what is made of it; none: a convolution */
};
typedef std::shared_ptr<contents> part;

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<cudnnBackendAttributeName_t, std::vector<char>> values;
    std::map<cudnnBackendAttributeName_t, part> parts;
    part what;
    std::vector<part> operations; /* of a graph */

    template <typename T> T get(cudnnBackendAttributeName_t name) const
    {
        T v;
        std::memcpy(&v, values.at(name).data(), sizeof v);
        return v;
    }
    std::vector<int64_t> ints(cudnnBackendAttributeName_t name) const
    {
        const std::vector<char> &bytes = values.at(name);
        std::vector<int64_t> v(bytes.size() / sizeof(int64_t));
        std::memcpy(v.data(), bytes.data(), v.size() * sizeof(int64_t));
        return v;
    }
};

} // namespace emulated_dnn

#endif
