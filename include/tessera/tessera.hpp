/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The literals of the C headers for C++17: shapes, signatures, options. <tessera/tessera.h> includes
 * it, so that a C program which keeps to what both languages have is a C++ program.
 *
 *   tsr_optimizer *o = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
 *
 * Two rules are C++'s own. Fields are given in the order of the struct. And the options live until
 * the end of the full expression: pass them to a call, don't keep the pointer; to keep them, copy:
 * `tsr_sgd_opts o = *TSR_SGD_OPTS(.lr = 0.1);`.
 */
#ifndef TESSERA_TESSERA_HPP
#define TESSERA_TESSERA_HPP

#include <tessera/tessera.h>

/* Options leave out most of their fields, which -Wextra would warn of at the caller's line. */
#ifndef TSR_KEEP_OVERRIDE_WARNINGS
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif

/* --- shapes, axes, signatures ----------------------------------------------------------------- */
template <class... A> constexpr tsr_dims tsr_dims_of(A... axes)
{
    static_assert(sizeof...(axes) <= TSR_MAX_NDIM, "a tensor has at most TSR_MAX_NDIM axes");
    return tsr_dims{static_cast<int>(sizeof...(axes)), {static_cast<int64_t>(axes)...}};
}
#define TSR_DIMS(...) tsr_dims_of(__VA_ARGS__)
#define TSR_SCALAR (tsr_dims{0, {}})

template <class... A> constexpr tsr_axes tsr_axes_of(A... axes)
{
    static_assert(sizeof...(axes) <= TSR_MAX_NDIM, "a tensor has at most TSR_MAX_NDIM axes");
    return tsr_axes{static_cast<int>(sizeof...(axes)), {static_cast<int>(axes)...}};
}
#define TSR_AXES(...) tsr_axes_of(__VA_ARGS__)
#define TSR_ALL_AXES (tsr_axes{0, {}})

constexpr tsr_sbp tsr_sbp_of(tsr_sbp_kind kind, int arg)
{
    return tsr_sbp{1, {{static_cast<int8_t>(kind), static_cast<int8_t>(arg)}, {}, {}, {}}};
}
#define TSR_S(axis) tsr_sbp_of(TSR_SBP_SPLIT, (axis))
#define TSR_B tsr_sbp_of(TSR_SBP_BROADCAST, 0)
#define TSR_P tsr_sbp_of(TSR_SBP_PARTIAL, TSR_REDUCE_SUM)
#define TSR_P_MAX tsr_sbp_of(TSR_SBP_PARTIAL, TSR_REDUCE_MAX)
#define TSR_P_MIN tsr_sbp_of(TSR_SBP_PARTIAL, TSR_REDUCE_MIN)
#define TSR_AUTO (tsr_sbp{0, {}})
template <class... S> inline tsr_sbp tsr_sbp_nd_of(S... entries)
{
    const tsr_sbp all[] = {entries...};
    return tsr_sbp_nd(static_cast<int>(sizeof...(entries)), all);
}
#define TSR_ND(...) tsr_sbp_nd_of(__VA_ARGS__)

/* --- options ---------------------------------------------------------------------------------- */
template <class T> constexpr const T *tsr_opts_of(const T &opts)
{
    return &opts;
}
/* C++17 has designated initializers as an extension of compilers. */
#define TSR_OPTS(type, ...) \
    tsr_opts_of(__extension__ type{.size = sizeof(type), __VA_ARGS__})
#undef TSR_CHECK_OPTS
#define TSR_CHECK_OPTS(...) TSR_OPTS(tsr_check_opts, __VA_ARGS__)
#undef TSR_CHECKPOINT_OPTS
#define TSR_CHECKPOINT_OPTS(...) TSR_OPTS(tsr_checkpoint_opts, __VA_ARGS__)
#undef TSR_CHECKPOINT_LOAD_OPTS
#define TSR_CHECKPOINT_LOAD_OPTS(...) TSR_OPTS(tsr_checkpoint_load_opts, __VA_ARGS__)
#undef TSR_LOADER_OPTS
#define TSR_LOADER_OPTS(...) TSR_OPTS(tsr_loader_opts, __VA_ARGS__)
#undef TSR_MAP_LOADER_OPTS
#define TSR_MAP_LOADER_OPTS(...) TSR_OPTS(tsr_map_loader_opts, __VA_ARGS__)
#undef TSR_DDP_OPTS
#define TSR_DDP_OPTS(...) TSR_OPTS(tsr_ddp_opts, __VA_ARGS__)
#undef TSR_DDP_JOIN_OPTS
#define TSR_DDP_JOIN_OPTS(...) TSR_OPTS(tsr_ddp_join_opts, __VA_ARGS__)
#undef TSR_GRAPH_OPTS
#define TSR_GRAPH_OPTS(...) TSR_OPTS(tsr_graph_opts, __VA_ARGS__)
#undef TSR_OP_DEF
#define TSR_OP_DEF(...) TSR_OPTS(tsr_op_def, __VA_ARGS__)
#undef TSR_OP_VERIFY_OPTS
#define TSR_OP_VERIFY_OPTS(...) TSR_OPTS(tsr_op_verify_opts, __VA_ARGS__)
#undef TSR_OPTIMIZER_DEF
#define TSR_OPTIMIZER_DEF(...) TSR_OPTS(tsr_optimizer_def, __VA_ARGS__)
#undef TSR_OWN_OPTIMIZER_OPTS
#define TSR_OWN_OPTIMIZER_OPTS(...) TSR_OPTS(tsr_own_optimizer_opts, __VA_ARGS__)
#undef TSR_LOAD_OPTS
#define TSR_LOAD_OPTS(...) TSR_OPTS(tsr_load_opts, __VA_ARGS__)
#undef TSR_MULTIHEAD_ATTENTION_OPTS
#define TSR_MULTIHEAD_ATTENTION_OPTS(...) TSR_OPTS(tsr_multihead_attention_opts, __VA_ARGS__)
#undef TSR_TRANSFORMER_LAYER_OPTS
#define TSR_TRANSFORMER_LAYER_OPTS(...) TSR_OPTS(tsr_transformer_layer_opts, __VA_ARGS__)
#undef TSR_RNN_OPTS
#define TSR_RNN_OPTS(...) TSR_OPTS(tsr_rnn_opts, __VA_ARGS__)
#undef TSR_MOBILENET_V2_OPTS
#define TSR_MOBILENET_V2_OPTS(...) TSR_OPTS(tsr_mobilenet_v2_opts, __VA_ARGS__)
#undef TSR_CONVNET_OPTS
#define TSR_CONVNET_OPTS(...) TSR_OPTS(tsr_convnet_opts, __VA_ARGS__)
#undef TSR_MLP_OPTS
#define TSR_MLP_OPTS(...) TSR_OPTS(tsr_mlp_opts, __VA_ARGS__)
#undef TSR_TRANSFORMER_OPTS
#define TSR_TRANSFORMER_OPTS(...) TSR_OPTS(tsr_transformer_opts, __VA_ARGS__)
#undef TSR_RESNET18_OPTS
#define TSR_RESNET18_OPTS(...) TSR_OPTS(tsr_resnet18_opts, __VA_ARGS__)
#undef TSR_LENET_OPTS
#define TSR_LENET_OPTS(...) TSR_OPTS(tsr_lenet_opts, __VA_ARGS__)
#undef TSR_GPT_OPTS
#define TSR_GPT_OPTS(...) TSR_OPTS(tsr_gpt_opts, __VA_ARGS__)
#undef TSR_LSTM_LM_OPTS
#define TSR_LSTM_LM_OPTS(...) TSR_OPTS(tsr_lstm_lm_opts, __VA_ARGS__)
#undef TSR_CONV2D_OPTS
#define TSR_CONV2D_OPTS(...) TSR_OPTS(tsr_conv2d_opts, __VA_ARGS__)
#undef TSR_POOL2D_OPTS
#define TSR_POOL2D_OPTS(...) TSR_OPTS(tsr_pool2d_opts, __VA_ARGS__)
#undef TSR_CONV1D_OPTS
#define TSR_CONV1D_OPTS(...) TSR_OPTS(tsr_conv1d_opts, __VA_ARGS__)
#undef TSR_CONV3D_OPTS
#define TSR_CONV3D_OPTS(...) TSR_OPTS(tsr_conv3d_opts, __VA_ARGS__)
#undef TSR_CONV_TRANSPOSE1D_OPTS
#define TSR_CONV_TRANSPOSE1D_OPTS(...) TSR_OPTS(tsr_conv_transpose1d_opts, __VA_ARGS__)
#undef TSR_CONV_TRANSPOSE2D_OPTS
#define TSR_CONV_TRANSPOSE2D_OPTS(...) TSR_OPTS(tsr_conv_transpose2d_opts, __VA_ARGS__)
#undef TSR_CONV_TRANSPOSE3D_OPTS
#define TSR_CONV_TRANSPOSE3D_OPTS(...) TSR_OPTS(tsr_conv_transpose3d_opts, __VA_ARGS__)
#undef TSR_POOL1D_OPTS
#define TSR_POOL1D_OPTS(...) TSR_OPTS(tsr_pool1d_opts, __VA_ARGS__)
#undef TSR_POOL3D_OPTS
#define TSR_POOL3D_OPTS(...) TSR_OPTS(tsr_pool3d_opts, __VA_ARGS__)
#undef TSR_BATCH_NORM_OPTS
#define TSR_BATCH_NORM_OPTS(...) TSR_OPTS(tsr_batch_norm_opts, __VA_ARGS__)
#undef TSR_LAYER_NORM_OPTS
#define TSR_LAYER_NORM_OPTS(...) TSR_OPTS(tsr_layer_norm_opts, __VA_ARGS__)
#undef TSR_ATTENTION_OPTS
#define TSR_ATTENTION_OPTS(...) TSR_OPTS(tsr_attention_opts, __VA_ARGS__)
#undef TSR_CROSS_ENTROPY_OPTS
#define TSR_CROSS_ENTROPY_OPTS(...) TSR_OPTS(tsr_cross_entropy_opts, __VA_ARGS__)
#undef TSR_NLL_LOSS_OPTS
#define TSR_NLL_LOSS_OPTS(...) TSR_OPTS(tsr_nll_loss_opts, __VA_ARGS__)
#undef TSR_EMBEDDING_OPTS
#define TSR_EMBEDDING_OPTS(...) TSR_OPTS(tsr_embedding_opts, __VA_ARGS__)
#undef TSR_SGD_OPTS
#define TSR_SGD_OPTS(...) TSR_OPTS(tsr_sgd_opts, __VA_ARGS__)
#undef TSR_ADAM_OPTS
#define TSR_ADAM_OPTS(...) TSR_OPTS(tsr_adam_opts, __VA_ARGS__)
#undef TSR_RMSPROP_OPTS
#define TSR_RMSPROP_OPTS(...) TSR_OPTS(tsr_rmsprop_opts, __VA_ARGS__)
#undef TSR_ADAGRAD_OPTS
#define TSR_ADAGRAD_OPTS(...) TSR_OPTS(tsr_adagrad_opts, __VA_ARGS__)
#undef TSR_LION_OPTS
#define TSR_LION_OPTS(...) TSR_OPTS(tsr_lion_opts, __VA_ARGS__)
#undef TSR_PARAM_GROUP_OPTS
#define TSR_PARAM_GROUP_OPTS(...) TSR_OPTS(tsr_param_group_opts, __VA_ARGS__)
#undef TSR_MINIMIZE_OPTS
#define TSR_MINIMIZE_OPTS(...) TSR_OPTS(tsr_minimize_opts, __VA_ARGS__)
#undef TSR_GRAD_SCALER_OPTS
#define TSR_GRAD_SCALER_OPTS(...) TSR_OPTS(tsr_grad_scaler_opts, __VA_ARGS__)
#undef TSR_COMPILE_OPTS
#define TSR_COMPILE_OPTS(...) TSR_OPTS(tsr_compile_opts, __VA_ARGS__)
#undef TSR_PROGRAM_OPTS
#define TSR_PROGRAM_OPTS(...) TSR_OPTS(tsr_program_opts, __VA_ARGS__)
#undef TSR_TRAIN_OPTS
#define TSR_TRAIN_OPTS(...) TSR_OPTS(tsr_train_opts, __VA_ARGS__)
#undef TSR_RANDOM_SAMPLER_OPTS
#define TSR_RANDOM_SAMPLER_OPTS(...) TSR_OPTS(tsr_random_sampler_opts, __VA_ARGS__)
#undef TSR_SUBSET_RANDOM_SAMPLER_OPTS
#define TSR_SUBSET_RANDOM_SAMPLER_OPTS(...) TSR_OPTS(tsr_subset_random_sampler_opts, __VA_ARGS__)
#undef TSR_WEIGHTED_RANDOM_SAMPLER_OPTS
#define TSR_WEIGHTED_RANDOM_SAMPLER_OPTS(...) TSR_OPTS(tsr_weighted_random_sampler_opts, __VA_ARGS__)
#undef TSR_DISTRIBUTED_SAMPLER_OPTS
#define TSR_DISTRIBUTED_SAMPLER_OPTS(...) TSR_OPTS(tsr_distributed_sampler_opts, __VA_ARGS__)
#undef TSR_STORE_OPTS
#define TSR_STORE_OPTS(...) TSR_OPTS(tsr_store_opts, __VA_ARGS__)
#undef TSR_WORLD_OPTS
#define TSR_WORLD_OPTS(...) TSR_OPTS(tsr_world_opts, __VA_ARGS__)
#undef TSR_MAP_DATASET
#define TSR_MAP_DATASET(...) TSR_OPTS(tsr_map_dataset, __VA_ARGS__)
#undef TSR_SAMPLER_CALLS
#define TSR_SAMPLER_CALLS(...) TSR_OPTS(tsr_sampler_calls, __VA_ARGS__)
#undef TSR_BATCH_SAMPLER_CALLS
#define TSR_BATCH_SAMPLER_CALLS(...) TSR_OPTS(tsr_batch_sampler_calls, __VA_ARGS__)

/* --- schedules -------------------------------------------------------------------------------- */
/* What two kinds have different defaults for: 0 is no value that either may have. */
constexpr tsr_schedule tsr_schedule_of(tsr_schedule s)
{
    if ((s.kind == TSR_SCHEDULE_STEP || s.kind == TSR_SCHEDULE_MULTI_STEP) && s.gamma == 0)
        s.gamma = 0.1;
    if (s.kind == TSR_SCHEDULE_LINEAR && s.steps == 0)
        s.steps = 5;
    return s;
}
#define TSR_SCHEDULE_OF(named, ...) \
    tsr_schedule_of(__extension__ tsr_schedule{.kind = named, __VA_ARGS__})
#undef TSR_STEP_LR
#define TSR_STEP_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_STEP, __VA_ARGS__)
#undef TSR_MULTI_STEP_LR
#define TSR_MULTI_STEP_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_MULTI_STEP, __VA_ARGS__)
#undef TSR_EXPONENTIAL_LR
#define TSR_EXPONENTIAL_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_EXPONENTIAL, __VA_ARGS__)
#undef TSR_LINEAR_LR
#define TSR_LINEAR_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_LINEAR, __VA_ARGS__)
#undef TSR_COSINE_LR
#define TSR_COSINE_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_COSINE, __VA_ARGS__)
#undef TSR_COSINE_RESTARTS_LR
#define TSR_COSINE_RESTARTS_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_COSINE_RESTARTS, __VA_ARGS__)
#undef TSR_ONE_CYCLE_LR
#define TSR_ONE_CYCLE_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_ONE_CYCLE, __VA_ARGS__)
#undef TSR_PLATEAU_LR
#define TSR_PLATEAU_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_PLATEAU, __VA_ARGS__)

#endif
