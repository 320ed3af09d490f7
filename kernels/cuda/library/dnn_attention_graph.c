/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and its gradient as graphs of cuDNN's backend API, which its fused engines recognise:
 * products, the mask as a comparison of generated indices, softmax as its parts; see dnn.h. The
 * order and the types of the operations are those of NVIDIA's own front end, as engines compare
 * graphs with patterns.
 */
#include "kernels/cuda/library/dnn.h"

/* A graph that is being made. Operands in memory have their names; virtual tensors, which no memory
 * holds, are numbered from FIRST_VIRTUAL on. */
enum { FIRST_VIRTUAL = 100, MOST_OPS = 24 };
typedef struct maker {
    tsri_dnn_graph *graph;
    const tsri_dnn_attention *of;
    cudnnDataType_t type; /* of q, k, v and what has their dtype */
    cudnnBackendDescriptor_t ops[MOST_OPS];
    int nops;
    int64_t uid;       /* of the next virtual tensor */
    tsr_status status; /* the first failure: what follows does nothing */
} maker;

typedef cudnnBackendDescriptor_t tensor;

static tensor failed(maker *m, tsr_status status)
{
    if (m->status == TSR_OK)
        m->status = status;
    return NULL;
}

/* One attribute of a descriptor that is being made. */
typedef struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *values;
} attribute;

static tsr_status make_part(maker *m, cudnnBackendDescriptorType_t type, int n, const attribute *a,
                            cudnnBackendDescriptor_t *out)
{
    if (m->graph->nparts == TSRI_DNN_PARTS)
        return tsri_fail(TSR_ERR_INTERNAL, "a graph of more than %d parts", TSRI_DNN_PARTS);
    TSRI_DNN(cudnnBackendCreateDescriptor(type, out));
    m->graph->part[m->graph->nparts++] = *out;
    for (int i = 0; i < n; i++)
        if (a[i].values)
            TSRI_TRY(tsri_dnn_set(*out, a[i].name, a[i].type, a[i].n, a[i].values));
    TSRI_DNN(cudnnBackendFinalize(*out));
    return TSR_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */
static tensor add_tensor(maker *m, int64_t uid, cudnnDataType_t type, const int64_t *dims,
                         const int64_t *steps, bool is_virtual, bool by_value)
{
    const int64_t alignment = TSRI_DNN_ALIGNMENT;
    const attribute a[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, steps},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, is_virtual ? &is_virtual : NULL},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, by_value ? &by_value : NULL},
    };
    tensor t = NULL;
    if (m->status != TSR_OK)
        return NULL;
    const tsr_status status = make_part(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 7, a, &t);
    return status == TSR_OK ? t : failed(m, status);
}

static tensor add_virtual(maker *m, cudnnDataType_t type, int64_t rows, int64_t cols, bool turned)
{
    const int64_t *q = m->of->dims[TSRI_DNN_Q];
    const int64_t dims[4] = {q[0], q[1], rows, cols};
    const int64_t steps[4] = {q[1] * rows * cols, rows * cols, turned ? 1 : cols,
                              turned ? rows : 1};
    return add_tensor(m, m->uid++, type, dims, steps, true, false);
}

/* Adds an operand of the op. turned: with its rows as columns. */
static tensor add_operand(maker *m, int which, bool turned)
{
    const int64_t *d = m->of->dims[which], *s = m->of->steps[which];
    const int64_t dims[4] = {d[0], d[1], d[turned ? 3 : 2], d[turned ? 2 : 3]};
    const int64_t steps[4] = {s[0], s[1], s[turned ? 3 : 2], s[turned ? 2 : 3]};
    return add_tensor(m, which, tsri_dnn_is_f32(which) ? CUDNN_DATA_FLOAT : m->type, dims, steps,
                      false, false);
}

static tensor add_scalar(maker *m, int which)
{
    static const int64_t ones[4] = {1, 1, 1, 1};
    return add_tensor(m, which, CUDNN_DATA_FLOAT, ones, ones, false, true);
}

/* --- operations ------------------------------------------------------------------------------- */
static void add_op(maker *m, cudnnBackendDescriptorType_t type, int n, const attribute *a)
{
    cudnnBackendDescriptor_t op;
    if (m->status == TSR_OK)
        m->status = make_part(m, type, n, a, &op);
    if (m->status == TSR_OK)
        m->ops[m->nops++] = op;
}

static void multiply(maker *m, tensor a, tensor b, tensor c)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const attribute comp = {CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute};
    cudnnBackendDescriptor_t how;
    if (m->status == TSR_OK)
        m->status = make_part(m, CUDNN_BACKEND_MATMUL_DESCRIPTOR, 1, &comp, &how);
    const attribute all[] = {
        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a},
        {CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b},
        {CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c},
        {CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how},
    };
    add_op(m, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 4, all);
}

/* Adds y = mode(x, b), mode(x) where b is NULL, or a selection between x and b by t. Returns y. */
static tensor pointwise(maker *m, cudnnPointwiseMode_t mode, int64_t axis, tensor x, tensor b,
                        tensor t, tensor y)
{
    const bool compares = mode == CUDNN_POINTWISE_CMP_GE;
    const cudnnDataType_t type = compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    const attribute how[] = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, axis >= 0 ? &axis : NULL},
    };
    cudnnBackendDescriptor_t d;
    if (m->status == TSR_OK)
        m->status = make_part(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 3, how, &d);
    const attribute all[] = {
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, b ? &b : NULL},
        {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, t ? &t : NULL},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
    };
    add_op(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 5, all);
    return y;
}

static tensor reduce(maker *m, cudnnReduceTensorOp_t how, tensor x, tensor y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const attribute of[] = {
        {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
    };
    cudnnBackendDescriptor_t d;
    if (m->status == TSR_OK)
        m->status = make_part(m, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 2, of, &d);
    const attribute all[] = {
        {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
        {CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d},
    };
    add_op(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 3, all);
    return y;
}

static tensor reshape(maker *m, tensor x, tensor y)
{
    const attribute all[] = {
        {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
    };
    add_op(m, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 2, all);
    return y;
}

/* --- attention -------------------------------------------------------------------------------- */
static tensor scores(maker *m)
{
    return add_virtual(m, CUDNN_DATA_FLOAT, m->of->dims[TSRI_DNN_Q][2], m->of->dims[TSRI_DNN_K][2],
                       false);
}

/* Adds a selection: x where query i sees key j <= i, else a score without weight. Returns it. */
static tensor mask(maker *m, tensor x)
{
    const int64_t s = m->of->dims[TSRI_DNN_Q][2], t = m->of->dims[TSRI_DNN_K][2];
    tensor row = pointwise(m, CUDNN_POINTWISE_GEN_INDEX, 2, x, NULL, NULL,
                           add_virtual(m, CUDNN_DATA_INT32, s, t, false));
    tensor col = pointwise(m, CUDNN_POINTWISE_GEN_INDEX, 3, x, NULL, NULL,
                           add_virtual(m, CUDNN_DATA_INT32, s, t, false));
    tensor sees = pointwise(m, CUDNN_POINTWISE_CMP_GE, -1, row, col, NULL,
                            add_virtual(m, CUDNN_DATA_BOOLEAN, s, t, false));
    return pointwise(m, CUDNN_POINTWISE_BINARY_SELECT, -1, x, add_scalar(m, TSRI_DNN_HIDDEN), sees,
                     scores(m));
}

static void forward(maker *m)
{
    const int64_t s = m->of->dims[TSRI_DNN_Q][2], t = m->of->dims[TSRI_DNN_K][2];
    tensor x = scores(m);
    multiply(m, add_operand(m, TSRI_DNN_Q, false), add_operand(m, TSRI_DNN_K, true), x);
    x = pointwise(m, CUDNN_POINTWISE_MUL, -1, x, add_scalar(m, TSRI_DNN_SCALE), NULL, scores(m));
    if (m->of->causal)
        x = mask(m, x);
    tensor most =
        reduce(m, CUDNN_REDUCE_TENSOR_MAX, x, add_virtual(m, CUDNN_DATA_FLOAT, s, 1, false));
    x = pointwise(m, CUDNN_POINTWISE_SUB, -1, x, most, NULL, scores(m));
    x = pointwise(m, CUDNN_POINTWISE_EXP, -1, x, NULL, NULL, scores(m));
    tensor sum =
        reduce(m, CUDNN_REDUCE_TENSOR_ADD, x, add_virtual(m, CUDNN_DATA_FLOAT, s, 1, false));
    tensor log = pointwise(m, CUDNN_POINTWISE_LOG, -1, sum, NULL, NULL,
                           add_virtual(m, CUDNN_DATA_FLOAT, s, 1, false));
    pointwise(m, CUDNN_POINTWISE_ADD, -1, most, log, NULL, add_operand(m, TSRI_DNN_STATS, false));
    x = pointwise(m, CUDNN_POINTWISE_DIV, -1, x, sum, NULL, add_virtual(m, m->type, s, t, false));
    multiply(m, x, add_operand(m, TSRI_DNN_V, false), add_operand(m, TSRI_DNN_O, false));
}

static void backward(maker *m)
{
    const int64_t s = m->of->dims[TSRI_DNN_Q][2], t = m->of->dims[TSRI_DNN_K][2];
    const int64_t e = m->of->dims[TSRI_DNN_V][3];
    tensor q = add_operand(m, TSRI_DNN_Q, false), dy = add_operand(m, TSRI_DNN_DO, false);
    tensor scale = add_scalar(m, TSRI_DNN_SCALE);
    tensor y_dy = pointwise(m, CUDNN_POINTWISE_MUL, -1, dy, add_operand(m, TSRI_DNN_O, false), NULL,
                            add_virtual(m, CUDNN_DATA_FLOAT, s, e, false));
    tensor sum =
        reduce(m, CUDNN_REDUCE_TENSOR_ADD, y_dy, add_virtual(m, CUDNN_DATA_FLOAT, s, 1, false));
    /* The engines know the graph by this product. */
    sum = pointwise(m, CUDNN_POINTWISE_MUL, -1, sum, add_scalar(m, TSRI_DNN_ONE), NULL,
                    add_operand(m, TSRI_DNN_SUM, false));
    tensor k = add_operand(m, TSRI_DNN_K, true);
    tensor x = scores(m);
    multiply(m, q, k, x);
    x = pointwise(m, CUDNN_POINTWISE_MUL, -1, x, scale, NULL, scores(m));
    x = pointwise(m, CUDNN_POINTWISE_SUB, -1, x, add_operand(m, TSRI_DNN_STATS, false), NULL,
                  scores(m));
    if (m->of->causal)
        x = mask(m, x);
    tensor p = pointwise(m, CUDNN_POINTWISE_EXP, -1, x, NULL, NULL, scores(m));
    multiply(m, reshape(m, p, add_virtual(m, m->type, t, s, true)), dy,
             add_operand(m, TSRI_DNN_DV, false));
    x = scores(m);
    multiply(m, dy, add_operand(m, TSRI_DNN_V, true), x);
    x = pointwise(m, CUDNN_POINTWISE_SUB, -1, x, sum, NULL, scores(m));
    x = pointwise(m, CUDNN_POINTWISE_MUL, -1, x, p, NULL, scores(m));
    x = pointwise(m, CUDNN_POINTWISE_MUL, -1, x, scale, NULL, add_virtual(m, m->type, s, t, false));
    multiply(m, reshape(m, x, add_virtual(m, m->type, t, s, true)), q,
             add_operand(m, TSRI_DNN_DK, false));
    const int64_t *steps = m->of->steps[TSRI_DNN_K];
    tensor kt = reshape(
        m, k, add_tensor(m, m->uid++, m->type, m->of->dims[TSRI_DNN_K], steps, true, false));
    if (m->of->dq_sum) {
        tensor to = add_operand(m, TSRI_DNN_DQ_SUM, false);
        multiply(m, x, kt, to);
        pointwise(m, CUDNN_POINTWISE_IDENTITY, -1, to, NULL, NULL,
                  add_operand(m, TSRI_DNN_DQ, false));
    } else {
        multiply(m, x, kt, add_operand(m, TSRI_DNN_DQ, false));
    }
}

tsr_status tsri_dnn_attention_graph(const tsri_dnn_target *target, const tsri_dnn_attention *of,
                                    tsri_dnn_graph *out_graph)
{
    maker m = {.graph = out_graph,
               .of = of,
               .type = of->dtype == TSR_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
               .uid = FIRST_VIRTUAL};
    cudnnBackendDescriptor_t graph;
    *out_graph = (tsri_dnn_graph){.nparts = 0};
    (of->back ? backward : forward)(&m);
    TSRI_TRY(m.status);
    const attribute a[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, m.nops, m.ops},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
         target->handle ? &target->handle : NULL},
    };
    return make_part(&m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 2, a, &graph);
}
