/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution as a graph of cuDNN's backend API, and its execution; see dnn.h. */
#include "kernels/cuda/library/dnn.h"

#include <string.h>

tsr_status tsri_dnn_check(cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return TSR_OK;
    char text[512] = "";
    cudnnGetLastErrorString(text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    tsr_status as = TSR_ERR_BACKEND;
    if (CUDNN_STATUS_CATEGORY((int)status) == CUDNN_STATUS_NOT_SUPPORTED)
        as = TSR_ERR_UNSUPPORTED;
    else if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
             status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        as = TSR_ERR_NO_MEMORY;
    return tsri_fail(as, "%s: %s%s%s", what, cudnnGetErrorString(status), *text ? ": " : "", text);
}

tsr_status tsri_dnn_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    TSRI_DNN(cudnnBackendSetAttribute(d, name, type, n, values));
    return TSR_OK;
}

static tsr_status set_int(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t v)
{
    return tsri_dnn_set(d, name, CUDNN_TYPE_INT64, 1, &v);
}

static tsr_status set_float(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, float v)
{
    return tsri_dnn_set(d, name, CUDNN_TYPE_FLOAT, 1, &v);
}

static tsr_status set_part(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t part)
{
    return tsri_dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static tsr_status add_part(tsri_dnn_graph *g, cudnnBackendDescriptorType_t type,
                           cudnnBackendDescriptor_t *out)
{
    TSRI_DNN(cudnnBackendCreateDescriptor(type, out));
    g->part[g->nparts++] = *out;
    return TSR_OK;
}

static cudnnDataType_t type_of(int64_t dtype)
{
    return dtype == TSR_F16    ? CUDNN_DATA_HALF
           : dtype == TSR_BF16 ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_FLOAT;
}

static tsr_status add_tensor(tsri_dnn_graph *g, int64_t uid, int64_t dtype, const int64_t shape[4],
                             bool last, cudnnBackendDescriptor_t *out)
{
    const int64_t c = shape[1], h = shape[2], w = shape[3];
    const int64_t stride[4] = {h * w * c, last ? 1 : h * w, last ? w * c : w, last ? c : 1};
    cudnnDataType_t type = type_of(dtype);
    cudnnBackendDescriptor_t t;
    TSRI_TRY(add_part(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t));
    TSRI_TRY(tsri_dnn_set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TSRI_TRY(tsri_dnn_set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape));
    TSRI_TRY(tsri_dnn_set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride));
    TSRI_TRY(set_int(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid));
    TSRI_TRY(set_int(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, TSRI_DNN_ALIGNMENT));
    TSRI_DNN(cudnnBackendFinalize(t));
    *out = t;
    return TSR_OK;
}

static tsr_status add_window(tsri_dnn_graph *g, const tsri_dnn_conv *c,
                             cudnnBackendDescriptor_t *out)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t d;
    TSRI_TRY(add_part(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &d));
    TSRI_TRY(tsri_dnn_set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TSRI_TRY(
        tsri_dnn_set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TSRI_TRY(set_int(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2));
    TSRI_TRY(
        tsri_dnn_set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride));
    TSRI_TRY(tsri_dnn_set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilation));
    TSRI_TRY(tsri_dnn_set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad));
    TSRI_TRY(tsri_dnn_set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad));
    TSRI_DNN(cudnnBackendFinalize(d));
    *out = d;
    return TSR_OK;
}

/* Six attributes, under the names that they have in each of the three operations. */
typedef struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
} operation;

static const operation forward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
static const operation data_gradient = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
static const operation weight_gradient = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

static tsr_status add_operation(tsri_dnn_graph *g, const tsri_dnn_conv *c,
                                cudnnBackendDescriptor_t *out)
{
    const operation *names = c->op == TSRI_OP_CONV2D      ? &forward
                             : c->op == TSRI_OP_CONV2D_DX ? &data_gradient
                                                          : &weight_gradient;
    cudnnBackendDescriptor_t x, w, y, window, op;
    TSRI_TRY(add_tensor(g, TSRI_DNN_X, c->dtype, c->x, true, &x));
    TSRI_TRY(add_tensor(g, TSRI_DNN_W, c->dtype, c->w, c->w_last, &w));
    TSRI_TRY(add_tensor(g, TSRI_DNN_Y, c->dtype, c->y, true, &y));
    TSRI_TRY(add_window(g, c, &window));
    TSRI_TRY(add_part(g, names->type, &op));
    TSRI_TRY(set_part(op, names->window, window));
    TSRI_TRY(set_part(op, names->x, x));
    TSRI_TRY(set_part(op, names->w, w));
    TSRI_TRY(set_part(op, names->y, y));
    TSRI_TRY(set_float(op, names->alpha, 1));
    TSRI_TRY(set_float(op, names->beta, 0));
    TSRI_DNN(cudnnBackendFinalize(op));
    *out = op;
    return TSR_OK;
}

tsr_status tsri_dnn_graph_make(const tsri_dnn_target *target, const tsri_dnn_conv *conv,
                               tsri_dnn_graph *out_graph)
{
    cudnnBackendDescriptor_t op, graph;
    *out_graph = (tsri_dnn_graph){.nparts = 0};
    TSRI_TRY(add_operation(out_graph, conv, &op));
    TSRI_TRY(add_part(out_graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph));
    TSRI_TRY(set_part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op));
    if (target->handle)
        TSRI_TRY(tsri_dnn_set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                              &target->handle));
    TSRI_DNN(cudnnBackendFinalize(graph));
    return TSR_OK;
}

void tsri_dnn_graph_finish(tsri_dnn_graph *graph)
{
    while (graph->nparts > 0)
        cudnnBackendDestroyDescriptor(graph->part[--graph->nparts]);
}

static tsr_status execute(cudnnHandle_t handle, const tsri_dnn_plan *plan,
                          cudnnBackendDescriptor_t pack, int n, const int64_t *uids,
                          void *const *operands, void *workspace)
{
    TSRI_TRY(tsri_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids));
    TSRI_TRY(tsri_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                          operands));
    TSRI_TRY(
        tsri_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    TSRI_DNN(cudnnBackendFinalize(pack));
    TSRI_DNN(cudnnBackendExecute(handle, plan->plan, pack));
    return TSR_OK;
}

tsr_status tsri_dnn_execute_all(cudnnHandle_t handle, const tsri_dnn_plan *plan, int n,
                                const int64_t *uids, void *const *operands, void *workspace)
{
    cudnnBackendDescriptor_t pack;
    TSRI_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    tsr_status status = execute(handle, plan, pack, n, uids, operands, workspace);
    cudnnBackendDestroyDescriptor(pack);
    return status;
}

tsr_status tsri_dnn_execute(cudnnHandle_t handle, const tsri_dnn_plan *plan, void *x, void *w,
                            void *y, void *workspace)
{
    static const int64_t uids[] = {TSRI_DNN_X, TSRI_DNN_W, TSRI_DNN_Y};
    return tsri_dnn_execute_all(handle, plan, 3, uids, (void *const[]){x, w, y}, workspace);
}
