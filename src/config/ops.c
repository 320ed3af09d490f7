/* SPDX-License-Identifier: Apache-2.0 */
/* The op table at work: sections for the reader, calls for the builder. */
#include "src/config/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tessera/functional.h>

#include "src/config/op_table.h"
#include "src/config/own.h"
#include "src/core/own_op.h"
#include "src/graph/graph.h"

static const char *const reduction_words[] = {"mean", "sum", "none", NULL};
static const char *const input_words[] = {"x", "y", NULL};
static const char *const gelu_words[] = {"erf", "tanh", NULL};
static const char *const interpolation_words[] = {"nearest", "bilinear", "corners", NULL};
static const char *const bn_words[] = {"global", "local", NULL};

/* --- calls with options ----------------------------------------------------------------------- */
static tsr_hw hw_of(const int64_t pair[2])
{
    return (tsr_hw){(int)pair[0], (int)pair[1]};
}

static tsr_tensor *declare_conv2d(const tsri_op_call *c)
{
    return tsr_conv2d_at(I(0), I(1), I(2),
                         TSR_CONV2D_OPTS(.stride = hw_of(A.stride), .padding = hw_of(A.padding),
                                         .dilation = hw_of(A.dilation), .groups = A.groups),
                         AT);
}

typedef tsr_tensor *pool2d_fn(tsr_tensor *x, const tsr_pool2d_opts *opts, const char *file,
                              int line);
static tsr_tensor *declare_pool2d(const tsri_op_call *c, pool2d_fn *pool)
{
    bool include = A.count_include_pad || !tsri_op_has(c->op, "count_include_pad");
    bool has_stride = tsri_op_has(c->op, "stride");
    return pool(I(0),
                TSR_POOL2D_OPTS(.kernel = hw_of(A.kernel),
                                .stride = hw_of(has_stride ? A.stride : A.kernel),
                                .padding = hw_of(A.padding), .count_include_pad = include),
                AT);
}

static tsr_dhw dhw_of(const int64_t triple[3])
{
    return (tsr_dhw){(int)triple[0], (int)triple[1], (int)triple[2]};
}

static tsr_tensor *declare_conv1d(const tsri_op_call *c)
{
    return tsr_conv1d_at(I(0), I(1), I(2),
                         TSR_CONV1D_OPTS(.stride = (int)A.stride[0], .padding = (int)A.padding[0],
                                         .dilation = (int)A.dilation[0], .groups = A.groups),
                         AT);
}

static tsr_tensor *declare_conv3d(const tsri_op_call *c)
{
    return tsr_conv3d_at(I(0), I(1), I(2),
                         TSR_CONV3D_OPTS(.stride = dhw_of(A.stride3), .padding = dhw_of(A.padding3),
                                         .dilation = dhw_of(A.dilation3), .groups = A.groups),
                         AT);
}

static tsr_tensor *declare_conv_transpose1d(const tsri_op_call *c)
{
    return tsr_conv_transpose1d_at(
        I(0), I(1), I(2),
        TSR_CONV_TRANSPOSE1D_OPTS(.stride = (int)A.stride[0], .padding = (int)A.padding[0],
                                  .output_padding = (int)A.output_padding[0],
                                  .dilation = (int)A.dilation[0], .groups = A.groups),
        AT);
}

static tsr_tensor *declare_conv_transpose2d(const tsri_op_call *c)
{
    return tsr_conv_transpose2d_at(
        I(0), I(1), I(2),
        TSR_CONV_TRANSPOSE2D_OPTS(.stride = hw_of(A.stride), .padding = hw_of(A.padding),
                                  .output_padding = hw_of(A.output_padding),
                                  .dilation = hw_of(A.dilation), .groups = A.groups),
        AT);
}

static tsr_tensor *declare_conv_transpose3d(const tsri_op_call *c)
{
    return tsr_conv_transpose3d_at(
        I(0), I(1), I(2),
        TSR_CONV_TRANSPOSE3D_OPTS(.stride = dhw_of(A.stride3), .padding = dhw_of(A.padding3),
                                  .output_padding = dhw_of(A.output_padding3),
                                  .dilation = dhw_of(A.dilation3), .groups = A.groups),
        AT);
}

typedef tsr_tensor *pool1d_fn(tsr_tensor *x, const tsr_pool1d_opts *opts, const char *file,
                              int line);
static tsr_tensor *declare_pool1d(const tsri_op_call *c, pool1d_fn *pool)
{
    return pool(I(0),
                TSR_POOL1D_OPTS(.kernel = (int)A.kernel[0], .stride = (int)A.stride[0],
                                .padding = (int)A.padding[0],
                                .count_include_pad = A.count_include_pad),
                AT);
}

typedef tsr_tensor *pool3d_fn(tsr_tensor *x, const tsr_pool3d_opts *opts, const char *file,
                              int line);
static tsr_tensor *declare_pool3d(const tsri_op_call *c, pool3d_fn *pool)
{
    return pool(I(0),
                TSR_POOL3D_OPTS(.kernel = dhw_of(A.kernel3), .stride = dhw_of(A.stride3),
                                .padding = dhw_of(A.padding3),
                                .count_include_pad = A.count_include_pad),
                AT);
}

static tsr_tensor *declare_batch_norm(const tsri_op_call *c)
{
    tsr_batch_norm_opts o = {.size = sizeof o,
                             .eps = A.eps,
                             .momentum = A.momentum,
                             .stats = (tsr_bn_stats)A.stats,
                             .parts = (int)A.parts};
    return tsr_batch_norm_at(I(0), I(1), I(2), I(3), I(4), &o, AT);
}

static tsr_tensor *declare_cross_entropy(const tsri_op_call *c)
{
    tsr_cross_entropy_opts o = {.size = sizeof o,
                                .reduction = (tsr_reduction)A.reduction,
                                .label_smoothing = A.label_smoothing,
                                .has_ignore_index = tsri_op_has(c->op, "ignore_index"),
                                .ignore_index = A.ignore_index};
    return tsr_cross_entropy_with_at(I(0), I(1), &o, AT);
}

static tsr_tensor *declare_layer_norm(const tsri_op_call *c)
{
    tsr_layer_norm_opts o = {.size = sizeof o, .eps = A.eps, .axes = (int)A.axis};
    return tsr_layer_norm_at(I(0), I(1), I(2), &o, AT);
}

static tsr_tensor *declare_causal_mask(const tsri_op_call *c)
{
    bool said = tsri_op_has(c->op, "value");
    return tsr_causal_mask_at(I(0), A.diagonal, said ? A.value_around : -INFINITY, AT);
}

static tsr_tensor *declare_clamp(const tsri_op_call *c)
{
    return tsr_clamp_at(I(0), tsri_op_has(c->op, "low") ? A.low : -INFINITY,
                        tsri_op_has(c->op, "high") ? A.high : INFINITY, AT);
}

static tsr_attention_opts attention_opts(const tsri_op_call *c)
{
    tsr_attention_opts o = *TSR_ATTENTION_OPTS(.causal = A.causal, .dropout = A.p);
    if (tsri_op_has(c->op, "scale"))
        o.scale = A.scale;
    return o;
}

static tsr_tensor *declare_attention(const tsri_op_call *c)
{
    tsr_attention_opts o = attention_opts(c);
    return tsr_attention_at(I(0), I(1), I(2), &o, AT);
}

static tsr_tensor *declare_flash_attention(const tsri_op_call *c)
{
    tsr_attention_opts o = attention_opts(c);
    return tsr_scaled_dot_product_attention_at(I(0), I(1), I(2), I(3), &o, AT);
}

/* Functions that give values and their places. */
#define DECLARE_ORDER(name, ...)                                            \
    static tsr_tensor *declare_##name(const tsri_op_call *c)                \
    {                                                                       \
        tsr_tensor *ids, *y = tsr_##name##_at(I(0), __VA_ARGS__, &ids, AT); \
        return A.ids ? ids : y;                                             \
    }
DECLARE_ORDER(cummax, (int)A.axis)
DECLARE_ORDER(cummin, (int)A.axis)
DECLARE_ORDER(sort, (int)A.axis, A.descending)
DECLARE_ORDER(topk, A.n, (int)A.axis, A.largest)
DECLARE_ORDER(kthvalue, A.n, (int)A.axis, A.keepdim)
DECLARE_ORDER(median, (int)A.axis, A.keepdim)

static tsr_tensor *declare_nll_loss(const tsri_op_call *c)
{
    tsr_nll_loss_opts o = {.size = sizeof o,
                           .reduction = (tsr_reduction)A.reduction,
                           .weight = I(2),
                           .has_ignore_index = tsri_op_has(c->op, "ignore_index"),
                           .ignore_index = A.ignore_index};
    return tsr_nll_loss_at(I(0), I(1), &o, AT);
}

static tsr_tensor *declare_embedding(const tsri_op_call *c)
{
    tsr_embedding_opts o = {.size = sizeof o,
                            .has_padding_idx = tsri_op_has(c->op, "padding_idx"),
                            .padding_idx = A.padding_idx};
    return tsr_embedding_at(I(0), I(1), &o, AT);
}

static tsr_tensor *declare_own(const tsri_op_call *c)
{
    double options[TSR_OP_MAX_OPTIONS];
    char what[64];
    tsr_world *world = c->graph->world;
    tsr_op *op = tsr_op_find(world, A.function);
    tsr_status status = TSR_OK;
    if (!op && A.plugin) {
        status = tsr_plugin_load(world, A.plugin);
        if (status != TSR_OK)
            return tsri_graph_fail_last(c->graph, status);
        op = tsr_op_find(world, A.function);
    }
    if (!op)
        return tsri_graph_fail(c->graph, (tsri_loc){c->file, c->line}, TSR_ERR_INVALID,
                               "own: op '%s' is not defined by %s", A.function,
                               A.plugin ? A.plugin : "a plug-in of this file");
    snprintf(what, sizeof what, "op '%s'", A.function);
    status = tsri_own_numbers(A.options, what, TSR_OP_MAX_OPTIONS, op->def.options, options);
    if (status != TSR_OK)
        return tsri_graph_fail_last(c->graph, status);
    return tsr_op_apply_at(op, c->nin, c->in, options, AT);
}

/* A word for each axis of x, or one for all. */
static tsr_dims dims_or(const tsri_op_call *c, const char *key, tsr_dims said, int64_t fallback)
{
    if (tsri_op_has(c->op, key))
        return said;
    tsr_dims d = {.ndim = tsr_tensor_dims(I(0)).ndim};
    for (int i = 0; i < d.ndim; i++)
        d.d[i] = fallback;
    return d;
}

static tsr_tensor *declare_slice(const tsri_op_call *c)
{
    return tsr_slice_at(I(0), dims_or(c, "starts", A.starts, 0),
                        dims_or(c, "ends", A.ends, INT64_MAX), dims_or(c, "steps", A.steps, 1), AT);
}

static tsr_tensor *declare_pad(const tsri_op_call *c)
{
    return tsr_pad_at(I(0), dims_or(c, "before", A.before, 0), dims_or(c, "after", A.after, 0),
                      A.value_around, AT);
}

/* --- one function, one list of fields, one section and one row for each ----------------------- */
#define CALL(op_, operands_, role_, call_, doc_, ...)   \
    static tsr_tensor *row_##op_(const tsri_op_call *c) \
    {                                                   \
        (void)c;                                        \
        return call_;                                   \
    }
TSRI_OP_TABLE(CALL)

#define TSRI_ATTR(key_, kind_, member_, fallback_, low_, high_, words_, doc_) \
    {.name = #key_,                                                           \
     .kind = TSRI_FIELD_##kind_,                                              \
     .offset = offsetof(tsri_config_op, member_),                             \
     .fallback = fallback_,                                                   \
     .min = low_,                                                             \
     .max = high_,                                                            \
     .words = words_,                                                         \
     .doc = doc_},
#define FIELDS(op_, operands_, role_, call_, doc_, ...) \
    static const tsri_field fields_##op_[] = {__VA_ARGS__{.name = NULL}};
TSRI_OP_TABLE(FIELDS)

#define SECTION(op_, operands_, role_, call_, doc_, ...)             \
    {.name = #op_,                                                   \
     .doc = doc_,                                                    \
     .size = sizeof(tsri_config_op),                                 \
     .nfields = (int)(sizeof fields_##op_ / sizeof(tsri_field)) - 1, \
     .fields = fields_##op_,                                         \
     .operands = operands_},
const tsri_section tsri_op_sections[] = {TSRI_OP_TABLE(SECTION)};

#define ROW(op_, operands_, role_, call_, doc_, ...) \
    {.role = TSRI_ROLE_##role_, .declare = row_##op_},
const tsri_op_row tsri_op_rows[] = {TSRI_OP_TABLE(ROW)};
const int tsri_nops = sizeof tsri_op_rows / sizeof *tsri_op_rows;

static const tsri_field common_fields[] = {
    {.name = "in",
     .kind = TSRI_FIELD_IN,
     .offset = offsetof(tsri_config_op, in),
     .fallback = TSRI_NEEDED,
     .doc = "The operands, by the names of entries above."},
    {.name = "placement",
     .kind = TSRI_FIELD_NAME,
     .offset = offsetof(tsri_config_op, placement),
     .fallback = TSRI_NONE,
     .legal = "the name of a placement",
     .on_resume = TSRI_RESUME_WINS,
     .doc = "Where it is made. Operands that live elsewhere are moved there. By default where the "
            "first operand is; of entries without operands the first placement of the file."},
    {.name = "sbp",
     .kind = TSRI_FIELD_SBP,
     .offset = offsetof(tsri_config_op, sbp),
     .fallback = TSRI_NONE,
     .doc = "The result's signature. B alone is B in each dimension. By default what is cheapest."},
};

const tsri_section tsri_op_section = {.name = "op",
                                      .size = sizeof(tsri_config_op),
                                      .nfields = sizeof common_fields / sizeof *common_fields,
                                      .fields = common_fields,
                                      .selector = "op",
                                      .nvariants = sizeof tsri_op_rows / sizeof *tsri_op_rows,
                                      .variants = tsri_op_sections};

bool tsri_op_has(const tsri_config_op *op, const char *key)
{
    return tsri_section_has(&tsri_op_section, op, key);
}

int tsri_op_results(const tsri_config_op *op)
{
    return tsri_op_rows[op->head.variant].role == TSRI_ROLE_SPLIT ? op->sizes.n : 1;
}

void tsri_op_operands(const tsri_section *op, int *out_least, int *out_most)
{
    *out_least = *out_most = 0;
    for (const char *p = op->operands; p && *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        if (n > 3 && !strncmp(p + n - 3, "...", 3)) {
            *out_least += 1;
            *out_most = TSRI_CONFIG_MAX_IN;
            return;
        } else {
            *out_least += p[n - 1] != '?';
            *out_most += 1;
        }
        p += n;
    }
}
