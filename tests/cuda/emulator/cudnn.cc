/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's backend API on host memory, as far as convolutions and attention use it. As strict as the
 * true one, or stricter: an attribute that a descriptor does not have, of the wrong type or number,
 * set after finalizing or missing at it, fails; so do parts that are not finalized or no longer
 * there.
 *
 * Its engines are there to be told apart: of those that heuristics propose first, some may not be
 * taken (TF32, not deterministic, a huge workspace), one can't be made a plan of; each fails or
 * computes something else if it is taken all the same. Workspaces are written over.
 */
#include "tests/cuda/emulator/cudnn.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

using namespace emulated_dnn;

namespace {

thread_local char last_text[256];

cudnnStatus_t refuse(cudnnStatus_t status, const char *text)
{
    snprintf(last_text, sizeof last_text, "emulated: %s", text);
    return status;
}

/* --- descriptors ------------------------------------------------------------------------------ */
/* What a descriptor may be given. `most` 0: exactly `least`. */
struct attribute {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most;
    bool required;
    int part; /* the descriptor type of a part; -1: not one */
};

enum { DIMS = CUDNN_DIM_MAX, MANY = 64, ANY_OPERATION = -2 };

#define TENSOR CUDNN_BACKEND_TENSOR_DESCRIPTOR
#define WINDOW CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
#define FORWARD CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
#define DATA CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
#define FILTER CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
#define GRAPH CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
#define HEURISTICS CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
#define CONFIG CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
#define ENGINE CUDNN_BACKEND_ENGINE_DESCRIPTOR
#define PLAN CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
#define PACK CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
#define PART CUDNN_TYPE_BACKEND_DESCRIPTOR
#define MATMUL CUDNN_BACKEND_MATMUL_DESCRIPTOR
#define POINTWISE CUDNN_BACKEND_POINTWISE_DESCRIPTOR
#define REDUCTION CUDNN_BACKEND_REDUCTION_DESCRIPTOR
#define MATMUL_OP CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR
#define POINTWISE_OP CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
#define REDUCTION_OP CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
#define RESHAPE_OP CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR
#define CONV(of, name, X, Y, W)                                                                  \
    {of, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, PART, 1, 0, true, WINDOW},         \
        {of, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##X, PART, 1, 0, true, TENSOR},           \
        {of, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##Y, PART, 1, 0, true, TENSOR},           \
        {of, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##W, PART, 1, 0, true, TENSOR},           \
        {of, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA, CUDNN_TYPE_FLOAT, 1, 0, true, -1}, \
    {                                                                                            \
        of, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA, CUDNN_TYPE_FLOAT, 1, 0, true, -1     \
    }

const attribute attributes[] = {
    {TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 0, true, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 3, DIMS, true, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, DIMS, true, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 0, true, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 0, true, -1},
    {WINDOW, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 0, true, -1},
    {WINDOW, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 0, true, -1},
    {WINDOW, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 0, true, -1},
    {WINDOW, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, 0, true, -1},
    {WINDOW, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, 0, true, -1},
    {WINDOW, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, 0, true, -1},
    {WINDOW, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, 0, true, -1},
    CONV(FORWARD, FORWARD, X, Y, W),
    CONV(DATA, BWD_DATA, DX, DY, W),
    CONV(FILTER, BWD_FILTER, X, DY, DW),
    {TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 0, false, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, 0, false, -1},
    {MATMUL, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 0, true, -1},
    {POINTWISE, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 0, true, -1},
    {POINTWISE, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 0, true, -1},
    {POINTWISE, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, 0, false, -1},
    {REDUCTION, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 0, true, -1},
    {REDUCTION, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 0, true, -1},
    /* Of these the operands come first, in their order, then the result. */
    {MATMUL_OP, CUDNN_ATTR_OPERATION_MATMUL_ADESC, PART, 1, 0, true, TENSOR},
    {MATMUL_OP, CUDNN_ATTR_OPERATION_MATMUL_BDESC, PART, 1, 0, true, TENSOR},
    {MATMUL_OP, CUDNN_ATTR_OPERATION_MATMUL_CDESC, PART, 1, 0, true, TENSOR},
    {MATMUL_OP, CUDNN_ATTR_OPERATION_MATMUL_DESC, PART, 1, 0, true, MATMUL},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, PART, 1, 0, true, TENSOR},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, PART, 1, 0, false, TENSOR},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, PART, 1, 0, false, TENSOR},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, PART, 1, 0, true, TENSOR},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, PART, 1, 0, true, POINTWISE},
    {REDUCTION_OP, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, PART, 1, 0, true, TENSOR},
    {REDUCTION_OP, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, PART, 1, 0, true, TENSOR},
    {REDUCTION_OP, CUDNN_ATTR_OPERATION_REDUCTION_DESC, PART, 1, 0, true, REDUCTION},
    {RESHAPE_OP, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, PART, 1, 0, true, TENSOR},
    {RESHAPE_OP, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, PART, 1, 0, true, TENSOR},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, PART, 1, MANY, true, ANY_OPERATION},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 0, true, -1},
    {HEURISTICS, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, PART, 1, 0, true, GRAPH},
    {HEURISTICS, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 0, true, -1},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, PART, 1, 0, true, CONFIG},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 0, true, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, MANY, true, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, MANY, true, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 0, true, -1},
};

size_t size_of(cudnnBackendAttributeType_t type)
{
    return type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_HANDLE ? 8
           : type == CUDNN_TYPE_BOOLEAN                                                         ? 1
                                        : 4; /* floats and enums */
}

std::mutex lock;
std::set<descriptor *> there;

/* The descriptor behind what the caller holds; NULL if there is none (any more). */
descriptor *of(cudnnBackendDescriptor_t d)
{
    std::lock_guard<std::mutex> hold(lock);
    return there.count((descriptor *)d) ? (descriptor *)d : nullptr;
}

bool is_operation(int type)
{
    return type == FORWARD || type == DATA || type == FILTER || type == MATMUL_OP ||
           type == POINTWISE_OP || type == REDUCTION_OP || type == RESHAPE_OP;
}

const attribute *find(cudnnBackendDescriptorType_t type, cudnnBackendAttributeName_t name)
{
    for (const attribute &a : attributes)
        if (a.of == type && a.name == name)
            return &a;
    return nullptr;
}

cudnnStatus_t set_part(descriptor &d, const attribute &a, const void *value)
{
    descriptor *part = of(*(cudnnBackendDescriptor_t const *)value);
    if (!part || !part->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part is missing or not finalized");
    if (a.part == ANY_OPERATION ? !is_operation(part->type) : part->type != a.part)
        return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a part of another type");
    d.parts[a.name] = part->what;
    if (a.part == ANY_OPERATION)
        d.operations.push_back(part->what);
    return CUDNN_STATUS_SUCCESS;
}

/* --- finalizing ------------------------------------------------------------------------------- */
cudnnStatus_t finish_tensor(descriptor &d)
{
    tensor t;
    t.dims = d.ints(CUDNN_ATTR_TENSOR_DIMENSIONS);
    t.strides = d.ints(CUDNN_ATTR_TENSOR_STRIDES);
    t.uid = d.ints(CUDNN_ATTR_TENSOR_UNIQUE_ID)[0];
    t.alignment = d.ints(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)[0];
    t.type = d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (t.dims.size() != t.strides.size())
        return refuse(CUDNN_STATUS_BAD_PARAM, "as many strides as dimensions");
    for (size_t i = 0; i < t.dims.size(); i++)
        if (t.dims[i] <= 0 || t.strides[i] <= 0)
            return refuse(CUDNN_STATUS_BAD_PARAM, "dimensions and strides are positive");
    if (t.alignment <= 0 || (t.alignment & (t.alignment - 1)))
        return refuse(CUDNN_STATUS_BAD_PARAM, "alignment is a power of two");
    t.is_virtual = d.values.count(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.by_value = d.values.count(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    d.what->operand = t;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_window(descriptor &d)
{
    window w;
    w.stride = d.ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    w.dilation = d.ints(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    w.pad = d.ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    w.pad_after = d.ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    if (d.ints(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)[0] != 2 ||
        d.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) !=
            CUDNN_CROSS_CORRELATION ||
        d.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only correlations of planes, in f32");
    for (int i = 0; i < 2; i++)
        if (w.stride[i] < 1 || w.dilation[i] < 1 || w.pad[i] < 0 || w.pad_after[i] < 0)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a window that does not move");
    d.what->slide = w;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_operation(descriptor &d)
{
    /* In the order of the table: window, x, y, w, alpha, beta. */
    cudnnBackendAttributeName_t name[6];
    int n = 0;
    for (const attribute &a : attributes)
        if (a.of == d.type)
            name[n++] = a.name;
    convolution c;
    c.kind = d.type == FORWARD ? kind::forward : d.type == DATA ? kind::data : kind::filter;
    c.slide = d.parts[name[0]]->slide;
    c.x = d.parts[name[1]]->operand;
    c.y = d.parts[name[2]]->operand;
    c.w = d.parts[name[3]]->operand;
    c.alpha = d.get<float>(name[4]);
    c.beta = d.get<float>(name[5]);
    const char *wrong = check(c);
    if (wrong)
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, wrong);
    d.what->conv = c;
    return CUDNN_STATUS_SUCCESS;
}

/* An operation that is no convolution. */
cudnnStatus_t finish_step(descriptor &d)
{
    step s;
    s.type = d.type;
    for (const attribute &a : attributes)
        if (a.of == d.type && d.parts.count(a.name)) {
            if (a.part == TENSOR)
                s.in.push_back(d.parts[a.name]->operand);
            else
                s.mode = d.parts[a.name]->how.mode, s.axis = d.parts[a.name]->how.axis;
        }
    s.out = s.in.back();
    s.in.pop_back();
    const char *wrong = check(s);
    if (wrong)
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, wrong);
    d.what->steps = {s};
    return CUDNN_STATUS_SUCCESS;
}

/* Each virtual tensor is made before it is used. */
cudnnStatus_t finish_graph(descriptor &d)
{
    std::set<int64_t> made;
    d.what->conv = d.operations[0]->conv;
    for (const part &p : d.operations) {
        if (p->steps.empty())
            return d.operations.size() == 1
                       ? CUDNN_STATUS_SUCCESS
                       : refuse(CUDNN_STATUS_NOT_SUPPORTED, "a convolution with more");
        for (const tensor &t : p->steps[0].in)
            if (t.is_virtual && !made.count(t.uid))
                return refuse(CUDNN_STATUS_BAD_PARAM, "a virtual tensor that nothing makes");
        made.insert(p->steps[0].out.uid);
        d.what->steps.push_back(p->steps[0]);
    }
    const char *wrong = check(d.what->steps);
    return wrong ? refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, wrong) : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_plan(descriptor &d)
{
    d.what->steps = d.parts[CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG]->steps;
    d.what->choice = d.parts[CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG]->choice;
    d.what->conv = d.parts[CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG]->conv;
    if (d.what->choice == engine::unmade)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "no plan of this one");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_pack(descriptor &d)
{
    std::vector<int64_t> uids = d.ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    if (std::set<int64_t>(uids.begin(), uids.end()).size() != uids.size() ||
        d.ints(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size() != uids.size())
        return refuse(CUDNN_STATUS_BAD_PARAM, "a pointer for each name, and each name once");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish(descriptor &d)
{
    for (const attribute &a : attributes)
        if (a.of == d.type && a.required && !d.values.count(a.name) && !d.parts.count(a.name))
            return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute is missing");
    switch (d.type) {
    case TENSOR:
        return finish_tensor(d);
    case WINDOW:
        return finish_window(d);
    case FORWARD:
    case DATA:
    case FILTER:
        return finish_operation(d);
    case MATMUL_OP:
    case POINTWISE_OP:
    case REDUCTION_OP:
    case RESHAPE_OP:
        return finish_step(d);
    case MATMUL:
        return CUDNN_STATUS_SUCCESS;
    case POINTWISE:
        d.what->how.mode = d.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        if (d.values.count(CUDNN_ATTR_POINTWISE_AXIS))
            d.what->how.axis = d.ints(CUDNN_ATTR_POINTWISE_AXIS)[0];
        return CUDNN_STATUS_SUCCESS;
    case REDUCTION:
        d.what->how.mode = d.get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
        return CUDNN_STATUS_SUCCESS;
    case GRAPH:
        return finish_graph(d);
    case HEURISTICS:
        d.what->steps = d.parts[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH]->steps;
        d.what->conv = d.parts[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH]->conv;
        return CUDNN_STATUS_SUCCESS;
    case PLAN:
        return finish_plan(d);
    case PACK:
        return finish_pack(d);
    default:
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only heuristics make engines");
    }
}

/* --- asking ----------------------------------------------------------------------------------- */
template <typename T>
cudnnStatus_t give(const std::vector<T> &from, int64_t room, int64_t *n, void *values)
{
    *n = (int64_t)from.size();
    for (int64_t i = 0; i < room && i < *n; i++)
        ((T *)values)[i] = from[(size_t)i];
    return CUDNN_STATUS_SUCCESS;
}

/* Results go into descriptors that the caller has made. */
cudnnStatus_t give_parts(const std::vector<part> &from, cudnnBackendDescriptorType_t type,
                         int64_t room, int64_t *n, void *values)
{
    *n = (int64_t)from.size();
    for (int64_t i = 0; i < room && i < *n; i++) {
        descriptor *d = of(((cudnnBackendDescriptor_t *)values)[i]);
        if (!d || d->type != type)
            return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no room for a result");
        d->what = from[(size_t)i];
        d->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get(descriptor &d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t room, int64_t *n, void *values)
{
    const engine e = d.what->choice;
    if (d.type == HEURISTICS && name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == PART) {
        std::vector<part> found;
        cudnnBackendHeurMode_t mode = d.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
        const bool graph = !d.what->steps.empty();
        for (engine each : graph ? std::vector<engine>{engine::unmade, engine::plain}
                                 : proposals(d.what->conv, mode)) {
            found.push_back(std::make_shared<contents>(*d.what));
            found.back()->choice = each;
        }
        return give_parts(found, CONFIG, room, n, values);
    }
    if (d.type == CONFIG && name == CUDNN_ATTR_ENGINECFG_ENGINE && type == PART)
        return give_parts({d.what}, ENGINE, room, n, values);
    if (d.type == ENGINE && name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64)
        return give<int64_t>({(int64_t)e}, room, n, values);
    if (d.type == ENGINE && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
        type == CUDNN_TYPE_NUMERICAL_NOTE)
        return give(notes(e), room, n, values);
    if (d.type == ENGINE && name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE &&
        type == CUDNN_TYPE_BEHAVIOR_NOTE)
        return give<cudnnBackendBehaviorNote_t>({}, room, n, values);
    if (d.type == PLAN && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
        type == CUDNN_TYPE_INT64)
        return give<int64_t>({d.what->steps.empty() ? (int64_t)workspace_of(d.what->conv, e)
                                                    : workspace_of(d.what->steps)},
                             room, n, values);
    return refuse(CUDNN_STATUS_BAD_PARAM, "not an attribute of this descriptor");
}

/* --- executing -------------------------------------------------------------------------------- */
cudnnStatus_t point(const descriptor &pack, const tensor &t, void **out)
{
    std::vector<int64_t> uids = pack.ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::vector<int64_t> pointers = pack.ints(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < uids.size(); i++) {
        if (uids[i] != t.uid)
            continue;
        if (!pointers[i] || pointers[i] % t.alignment)
            return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "an operand's pointer");
        *out = (void *)pointers[i];
        return CUDNN_STATUS_SUCCESS;
    }
    return refuse(CUDNN_STATUS_BAD_PARAM, "an operand without a pointer");
}

/* A graph of steps: values are read now, buffers when the work is done. */
cudnnStatus_t execute_steps(const std::vector<step> &steps, const descriptor &pack,
                            cudaStream_t stream)
{
    std::map<int64_t, void *> at;
    std::map<int64_t, float> values;
    void *room = (void *)pack.ints(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0], *p;
    for (const step &s : steps) {
        std::vector<tensor> all = s.in;
        all.push_back(s.out);
        for (const tensor &t : all) {
            if (t.is_virtual)
                continue;
            tensor any = t;
            any.alignment = t.by_value ? 4 : t.alignment;
            const cudnnStatus_t status = point(pack, any, &p);
            if (status != CUDNN_STATUS_SUCCESS)
                return status;
            if (t.by_value)
                values[t.uid] = *(const float *)p;
            else
                at[t.uid] = p;
        }
    }
    if (!room)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
    tsri_emulated_submit("cudnnBackendExecute", dim3(1), dim3(1), stream, [=]() {
        memset(room, 0xff, (size_t)workspace_of(steps));
        compute(steps, at, values);
    });
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

struct cudnnContext {
    cudaStream_t stream;
};

extern "C" {

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}
const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static thread_local char text[32];
    snprintf(text, sizeof text, "status %d", (int)status);
    return text;
}
void cudnnGetLastErrorString(char *message, size_t size)
{
    snprintf(message, size, "%s", last_text);
    last_text[0] = 0;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = new cudnnContext{nullptr};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    bool known = type == CONFIG || type == ENGINE;
    for (const attribute &a : attributes)
        known |= a.of == type;
    if (!known)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "not among those that are emulated");
    descriptor *d = new descriptor{type, false, {}, {}, std::make_shared<contents>(), {}};
    std::lock_guard<std::mutex> hold(lock);
    there.insert(d);
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor_)
{
    descriptor *d = of(descriptor_);
    if (!d)
        return refuse(CUDNN_STATUS_BAD_PARAM, "destroyed twice");
    std::lock_guard<std::mutex> hold(lock);
    there.erase(d);
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor_,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    descriptor *d = of(descriptor_);
    if (!d || !values)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor or no values");
    if (d->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "set after it was finalized");
    const attribute *a = find(d->type, name);
    if (!a)
        return refuse(CUDNN_STATUS_BAD_PARAM, "not an attribute of this descriptor");
    if (a->type != type)
        return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
    if (n < a->least || n > (a->most ? a->most : a->least))
        return refuse(CUDNN_STATUS_BAD_PARAM, "too few or too many values");
    for (int64_t i = 0; type == PART && i < n; i++) {
        const cudnnStatus_t status = set_part(*d, *a, (cudnnBackendDescriptor_t const *)values + i);
        if (status != CUDNN_STATUS_SUCCESS || i == n - 1)
            return status;
    }
    const char *bytes = (const char *)values;
    d->values[name].assign(bytes, bytes + size_of(type) * (size_t)n);
    if (type == CUDNN_TYPE_HANDLE && !d->ints(name)[0])
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor_)
{
    descriptor *d = of(descriptor_);
    if (!d || d->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "no descriptor, or finalized twice");
    cudnnStatus_t status = finish(*d);
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor_,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
                                       void *values)
{
    descriptor *d = of(descriptor_);
    int64_t ignored;
    if (!d || !d->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "asked before it was finalized");
    if (room < 0 || (room > 0 && !values))
        return refuse(CUDNN_STATUS_BAD_PARAM, "no room for an answer");
    return get(*d, name, type, room, n ? n : &ignored, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_,
                                  cudnnBackendDescriptor_t pack_)
{
    descriptor *plan = of(plan_), *pack = of(pack_);
    if (!handle || !plan || !pack || plan->type != PLAN || pack->type != PACK || !plan->finalized ||
        !pack->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan and what it runs on");
    if (!plan->what->steps.empty())
        return execute_steps(plan->what->steps, *pack, handle->stream);
    const convolution conv = plan->what->conv;
    const engine e = plan->what->choice;
    void *x, *w, *y, *room = (void *)pack->ints(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0];
    size_t bytes = workspace_of(conv, e);
    cudnnStatus_t status = point(*pack, conv.x, &x);
    if (status == CUDNN_STATUS_SUCCESS)
        status = point(*pack, conv.w, &w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = point(*pack, conv.y, &y);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!room)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
    const char *deterministic = getenv("TESSERA_CUDA_DETERMINISTIC");
    if (e == engine::huge ||
        (e == engine::unsteady && !(deterministic && !strcmp(deterministic, "0"))))
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "an engine that nobody may take");
    tsri_emulated_submit("cudnnBackendExecute", dim3(1), dim3(1), handle->stream, [=]() {
        memset(room, 0xff, bytes);
        compute(conv, e, x, w, y);
        memset(room, 0xff, bytes);
    });
    return CUDNN_STATUS_SUCCESS;
}

} // extern "C"
