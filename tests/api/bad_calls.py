#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of test_bad_calls.c from the public headers: a row for every public function, each
of its parameters and each bad value of the parameter's type. A parameter of a type that is not known
here is an error, so that a new function cannot be forgotten."""
import re
import sys


def functions(text):
    """(return type, name, [(type, parameter)]) of all that is declared in a header."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    text = re.sub(r"TSR_PRINTF\([^)]*\)", "", text)
    found = []
    for head, args in re.findall(r"TSR_API\s+([^;(]*)\(((?:[^()]|\([^()]*\))*)\)\s*;", text):
        ret, name = re.fullmatch(r"(.*?)(\w+)", " ".join(head.split())).groups()
        args = [a.strip() for a in " ".join(args.split()).split(",")]
        found.append((ret.strip(), name, [parameter(a) for a in args if a != "void"]))
    return found


def parameter(text):
    if "(*" in text:
        return (re.sub(r"\(\*(\w+)\)", "(*)", text), re.search(r"\(\*(\w+)\)", text)[1])
    if text == "...":
        return ("...", "")
    array = re.fullmatch(r"(.*?)(\w+)\[\w+\]", text)
    if array:
        return (array[1].strip() + "[]", array[2])
    kind, name = re.fullmatch(r"(.*?)(\w+)", text).groups()
    return (kind.strip(), name)


# Bad values of each type: (what it is, an expression). An expression may call what bad_objects.h has.
HANDLES = ["world", "graph", "tensor", "placement", "module", "variable", "optimizer", "plan",
           "store", "group", "dataset", "loader", "sampler", "batch_sampler",
           "generator", "ddp", "work", "worker", "batch_out",
           "safetensors", "checkpoint", "program", "op", "grad_scaler"]
# Objects of a callback end with it, and nothing knows when.
BORROWED = ["worker", "batch_out"]
FOREIGN = ["world", "graph", "tensor", "placement", "module", "variable", "optimizer", "plan", "op",
           "grad_scaler"]
NUMBERS = {
    "int": ["-1", "0", "INT_MAX", "INT_MIN"],
    "int64_t": ["-1", "0", "INT64_MAX", "INT64_MIN"],
    "size_t": ["0", "1", "SIZE_MAX"],
    "uint64_t": ["0", "UINT64_MAX"],
    "double": ["NAN", "INFINITY", "-1", "0"],
    "bool": ["false"],
}
ENUMS = ["dtype", "device", "reduce_op", "reduction", "gelu_form", "interpolation", "status", "role"]
STRUCTS = {
    "tsr_dims": ["{.ndim = -1}", "{.ndim = 9}", "{.ndim = INT_MAX}", "{1, {-2}}", "{1, {INT64_MAX}}",
                 "{2, {INT64_MAX, INT64_MAX}}", "{1, {INT64_MIN}}"],
    "tsr_axes": ["{.n = -1}", "{.n = 9}", "{.n = INT_MAX}", "{1, {99}}", "{2, {0, 0}}",
                 "{1, {INT_MIN}}"],
    "tsr_sbp": ["{.ndim = -1}", "{.ndim = 127}", "{1, {{77, 0}}}", "{1, {{TSR_SBP_SPLIT, 100}}}",
                "{1, {{TSR_SBP_SPLIT, -1}}}", "{1, {{TSR_SBP_PARTIAL, 99}}}",
                "{2, {{TSR_SBP_BROADCAST, 0}, {TSR_SBP_BROADCAST, 0}}}"],
    "tsr_hw": ["{-1, 1}", "{1, INT_MIN}"],
    "tsr_dhw": ["{-1, 1, 1}", "{1, 0, 1}", "{1, 1, INT_MIN}"],
    "tsr_init": ["{.kind = (tsr_init_kind)99}", "{.kind = (tsr_init_kind)-1}",
                 "{TSR_INIT_NORMAL, NAN, NAN, false}"],
}
STRINGS = ['""', "long_text", '"\\x01\\x1b[31m\\n%s%n"', '"no such thing"']

# Where a bad value can't be known for one: memory is the caller's, of a size that the call is told.
UNKNOWABLE = {
    "n": ["tsr_generator_", "tsr_gradients_at", "tsr_concat_at", "tsr_stack_at", "tsr_op_apply", "tsr_einsum_at", "tsr_split_at",
          "tsr_weighted_random_sampler", "tsr_plan_times", "tsr_apply_gradients_at",
          "tsr_minimize_with_at", "tsr_ddp_minimize_at", "tsr_global_norm_at", "tsr_clip_grad_", "tsr_unscale_at"], "count": ["tsr_all_", "tsr_broadcast_at", "tsr_reduce", "tsr_gather_to",
                                       "tsr_scatter_from", "tsr_send", "tsr_recv",
                                       "tsr_subset_random_sampler"],
    "bytes": ["tsr_store_"], "room": ["tsr_store_"], "expected_bytes": ["tsr_store_"],
    "desired_bytes": ["tsr_store_"], "nkeys": ["tsr_store_"], "nranks": ["tsr_group_create"],
}


# Structs whose first member is their size.
SIZED = set()


def bad_values(function, kind, name):
    plain = kind.removeprefix("const ")
    if kind == "...":
        return []
    if name in ("file", "line"):
        return ["NULL"] if name == "file" else ["-1"]
    match = re.fullmatch(r"tsr_(\w+) \*", plain)
    if match and match[1] in HANDLES:
        obj = match[1]
        # A slice of another world's placement is one of that world.
        foreign = obj in FOREIGN and function != "tsr_placement_slice"
        return (["NULL"] + [f"gone_{obj}()"] * (obj not in BORROWED) + [f"foreign_{obj}()"] * foreign
                + ["failed_tensor()", "other_tensor()"] * (obj == "tensor")
                + ["failed_graph()"] * (obj == "graph"))
    if kind in ("tsr_work **", "tsr_ddp **") and not name.startswith("out_"):
        return ["NULL", f"gone_{plain[4:-3]}_handle()"]
    if match and plain[:-2] in SIZED:
        return ["NULL"] + [f"sized({n}, {good_value(function, kind, name)}, sizeof({plain[:-2]}))"
                           for n in ("0", "1", "2 * sizeof(" + plain[:-2] + ")")]
    if kind == "const char *":
        return ["NULL"] + STRINGS
    if "*" in kind or kind.endswith("[]") or kind.endswith("_fn *"):
        return ["NULL"]
    if kind in NUMBERS:
        told = any(function.startswith(f) for f in UNKNOWABLE.get(name, []))
        return [v for v in NUMBERS[kind] if not (told and (v.endswith("_MAX") or function.startswith(
            "tsr_store_") and v == "1"))]
    if kind.startswith("tsr_") and kind[4:] in ENUMS:
        return [f"({kind})-1", f"({kind})99"]
    if kind in STRUCTS:
        return [f"({kind}){v}" for v in STRUCTS[kind]]
    sys.exit(f"{function}: {name} is of type '{kind}', of which bad_calls.py knows no bad values")


GOOD = {
    "const char *": '"x"', "int": "1", "int64_t": "4", "size_t": "sizeof numbers", "uint64_t": "7",
    "double": "0.5", "bool": "true", "tsr_dims": "TSR_DIMS(4, 6)", "tsr_axes": "TSR_AXES(1)",
    "tsr_sbp": "TSR_B", "tsr_init": "(tsr_init){0}", "tsr_hw": "(tsr_hw){1, 1}", "tsr_dhw": "(tsr_dhw){1, 1, 1}", "tsr_dtype": "TSR_F32",
    "tsr_device": "TSR_DEVICE_CPU", "tsr_status": "TSR_ERR_STATE", "void *": "numbers",
    "const void *": "numbers", "void **": "(void *[1]){0}", "int64_t *": "integers",
    "size_t *": "(size_t[1]){0}", "bool *": "(bool[64]){0}", "double *": "doubles",
    "const double *": "doubles", "const int64_t *": "integers", "const int *": "places",
    "const int64_t **": "(const int64_t *[1]){0}", "char[]": "text",
    "const char *const *": '(const char *[]){"x"}', "const unsigned char[]": "bytes",
    "unsigned char[]": "bytes", "void *const *": "(void *[]){numbers}",
    "tsr_tensor *const *": "(tsr_tensor *[]){f.x, f.x}", "tsr_tensor **": "(tsr_tensor *[4]){0}",
    "tsr_variable *const *": "(tsr_variable *[]){f.variable}", "const tsr_sbp *": "(const tsr_sbp[]){TSR_B}",
    "tsr_dims *": "(tsr_dims[1]){0}", "tsr_sbp *": "(tsr_sbp[1]){0}", "void (*)(void *)": "free_nothing",
    "tsr_rank_fn *": "rank_nothing", "tsr_declare_fn *": "declare_images", "tsr_check_fn *": "check_same", "tsr_epoch *": "(tsr_epoch[1]){0}", "tsr_forward_fn *": "forward_same", "tsr_forward_n_fn *": "forward_first", "tsr_unary_op_fn *": "tsr_tanh_at",
    "tsr_variable_fn *": "visit_nothing", "tsr_plan_time *": "(tsr_plan_time[4]){0}",
    "const tsr_batch **": "(const tsr_batch *[1]){0}", "tsr_graph_opts": "NULL",
    "tsr_gelu_form": "TSR_GELU_ERF", "tsr_role": "TSR_ROLE_COLUMN", "tsr_interpolation": "TSR_NEAREST", "tsr_reduction": "TSR_MEAN", "tsr_reduce_op": "TSR_REDUCE_SUM",
    "tsr_grad_scaler_state *": "(tsr_grad_scaler_state[1]){0}",
    "const tsr_grad_scaler_state *": "&(const tsr_grad_scaler_state){1, 2, 0.5, 1, 0}",
    "tsr_batch_out *": "f.batch_out", "tsr_safetensors_info *": "(tsr_safetensors_info[1]){0}",
}
# Good options: what must be in them.
OPTS = {
    "tsr_map_dataset": ".len = map_len, .get = map_get", "tsr_sampler_calls": ".next = custom_next",
    "tsr_batch_sampler_calls": ".max_rows = 4, .next = custom_batch_next",
    "tsr_map_loader_opts": ".sample_bytes = 8", "tsr_mlp_opts": ".inputs = 6",
    "tsr_pool2d_opts": ".kernel = {2, 2}", "tsr_pool1d_opts": ".kernel = 2", "tsr_pool3d_opts": ".kernel = {2, 2, 2}", "tsr_store_opts": ".timeout_s = 0.2",
    "tsr_optimizer_def": '.name = "fresh_optimizer", .update = keep_all',
    "tsr_op_def": '.name = "fresh_op", .inputs = 1, .outputs = 1, .rule = "... -> ...", .forward = own_same',
    "tsr_train_opts": ".train = f.loader, .quiet = true",
    "tsr_world_opts": ".timeout_s = 2, .threads = 1, .arena_bytes = 1 << 22, .log = log_nothing",
    "tsr_transformer_opts": ".width = 8, .heads = 2, .layers = 1", "tsr_convnet_opts": ".seed = 1",
    "tsr_gpt_opts": ".positions = 8, .width = 8, .heads = 2, .layers = 1", "tsr_lenet_opts": ".seed = 1",
    "tsr_lstm_lm_opts": ".width = 4, .hidden = 6", "tsr_resnet18_opts": ".num_classes = 4, .width = 2",
    "tsr_mobilenet_v2_opts": ".num_classes = 4, .width = 0.1", "tsr_loader_opts": ".workers = 0",
}
# Good values of some functions' parameters, where their type's is not.
NAMED = {
    "tsr_dtype_parse.name": '"f32"', "tsr_plan_port.i": "0", "tsr_placement_dim.dim": "0",
    "tsr_placement_create.hierarchy": "ones", "tsr_eval.x": "f.w", "tsr_placement_parse.text": '"cpu"',
    "tsr_sbp_parse.text": '"B"', "tsr_group_create.ranks": "places", "tsr_group_world_rank.index": "0",
    "tsr_feed.bytes": "f.x_bytes", "tsr_feed_shard.bytes": "f.x_bytes", "tsr_fetch.name": '"y"',
    "tsr_fetch.bytes": "f.x_bytes", "tsr_fetch_shard.name": '"y"', "tsr_fetch_shard.bytes": "f.x_bytes",
    "tsr_fetch_scalar.name": '"loss"', "tsr_eval.bytes": "f.x_bytes", "tsr_set_error.fmt": '"text"',
    "tsr_cifar10_open.dir": "f.folder", "tsr_mnist_open.dir": "f.mnist",
    "tsr_synthetic_write_cifar10.dir": "f.new_folder", "tsr_flight_dump.dir": "f.folder",
    "tsr_synthetic_open.channels": "1", "tsr_loader_feed.plan": "f.loader_plan",
    "tsr_loader_set_epoch.epoch": "1", "tsr_module_add.child": "f.child",
    "tsr_module_add.name": '"one"', "tsr_module_child.name": '"0"', "tsr_module_child_at.i": "0",
    "tsr_module_find.qualified_name": '"0.weight"', "tsr_module_place.pattern": '"*"',
    "tsr_module_place.m": "f.fresh_module", "tsr_module_stage.m": "f.fresh_module", "tsr_placement_slice.dim": "0", "tsr_placement_slice.index": "0", "tsr_use_at.m": "f.linear", "tsr_use_at.name": '"weight"',
    "tsr_variable_save_as.dims": "TSR_DIMS(768)",
    "tsr_variable_set.bytes": "f.weight_bytes", "tsr_variable_get.bytes": "f.weight_bytes",
    "tsr_load.path": "f.weights", "tsr_save.path": "f.saved", "tsr_store_open.url": "f.url",
    "tsr_store_get.room": "sizeof numbers", "tsr_store_add.key": '"counter"',
    "tsr_store_set.key": '"key"', "tsr_store_compare_set.key": '"other"',
    "tsr_store_set.bytes": "4", "tsr_store_compare_set.expected_bytes": "0",
    "tsr_store_compare_set.desired_bytes": "4", "tsr_store_delete.key": '"key"',
    "tsr_input_at.name": '"new"', "tsr_from_local_at.name": '"new"', "tsr_input_with_at.name": '"new"', "tsr_from_local_with_at.name": '"new"',
    "tsr_output_at.name": '"new"',
    "tsr_to_local_at.name": '"new"', "tsr_gradients_at.x": "(tsr_tensor *[]){f.x}",
    "tsr_gradients_at.y": "f.loss", "tsr_minimize_at.loss": "f.wloss",
    "tsr_minimize_with_at.losses": "(tsr_tensor *[]){f.wloss}", "tsr_assign_at.x": "f.w",
    "tsr_apply_gradients_at.grads": "(tsr_tensor *[]){f.w}", "tsr_global_norm_at.power": "2",
    "tsr_clip_grad_norm_at.grads": "(tsr_tensor *[]){f.x}", "tsr_clip_grad_norm_at.power": "2",
    "tsr_clip_grad_value_at.grads": "(tsr_tensor *[]){f.x}", "tsr_unscale_at.grads": "(tsr_tensor *[]){f.x}",
    "tsr_optimizer_param_group.pattern": '"*"', "tsr_optimizer_freeze.pattern": '"*"',
    "tsr_ddp_backward_at.loss": "f.local_loss", "tsr_ddp_run_at.plan": "f.ddp_plan",
    "tsr_ddp_create.module": "f.local_module", "tsr_ddp_step.optimizer": "f.local_optimizer",
    "tsr_print_at.every": "1", "tsr_read_gradient_at.g": "f.trained", "tsr_check_gradients.n": "1", "tsr_check_gradients.dims": "&(const tsr_dims){1, {2}}", "tsr_optimizer_state.param": "f.variable",
    "tsr_optimizer_state.name": '"momentum_buffer"', "tsr_ddp_step_with.optimizer": "f.local_optimizer", "tsr_ddp_minimize_at.optimizer": "f.local_optimizer",
    "tsr_ddp_minimize_at.losses": "(tsr_tensor *[]){f.local_loss}", "tsr_ddp_read_gradient_at.g": "f.local_graph",
    "tsr_ddp_read_gradient_at.v": "f.local_variable", "tsr_ddp_gradient.v": "f.local_variable", "tsr_ddp_gradient_get.v": "f.local_variable", "tsr_ddp_bucket_bytes.index": "0",
    "tsr_op_apply_at.n": "1", "tsr_op_apply_all_at.n": "1", "tsr_op_verify.dims": "&(const tsr_dims){1, {2}}",
    "tsr_optimizer_create.name": '"same"', "tsr_plugin_load.path": "PLUGIN", "tsr_rank_sum_at.x": "f.local_x", "tsr_convert_sync_batchnorm.m": "f.bn_module",
    **{f"tsr_bitwise_{f}_at.{x}": "f.ids" for f in ("and", "or", "xor", "left_shift", "right_shift") for x in "xy"},
    "tsr_gather_at.x": "f.c4", "tsr_gather_at.axis": "0", "tsr_gather_at.ids": "f.ids",
    **{f"tsr_{f}_at.{p}": v for f in ("scatter", "scatter_add", "index_add")
       for p, v in (("x", "f.c4"), ("axis", "0"), ("ids", "f.ids"), ("y", "f.c4"))},
    "tsr_bincount_at.ids": "f.ids",
    "tsr_prelu_at.w": "f.c6", "tsr_outer_at.x": "f.c4", "tsr_outer_at.y": "f.c6", "tsr_dot_at.x": "f.c4",
    "tsr_dot_at.y": "f.c4", "tsr_einsum_at.equation": '"ab,ab"', "tsr_einsum_at.n": "2",
    "tsr_squeeze_at.x": "tsr_sum(f.x, TSR_AXES(1), true)", "tsr_repeat_at.counts": "TSR_DIMS(2, 3)",
    "tsr_pixel_shuffle_at.x": "f.image", "tsr_pixel_shuffle_at.r": "2", "tsr_pixel_unshuffle_at.x": "f.image",
    "tsr_group_norm_at.x": "f.image", "tsr_group_norm_at.gamma": "f.c4", "tsr_group_norm_at.beta": "f.c4",
    "tsr_group_norm_at.groups": "2", "tsr_rms_norm_at.gamma": "f.c6", "tsr_interpolate_at.x": "f.image",
    "tsr_affine_grid_at.theta": "tsr_full(f.graph, TSR_F32, TSR_DIMS(2, 2, 3), f.placement, TSR_B, 1)",
    "tsr_grid_sample_at.x": "f.image", "tsr_grid_sample_at.grid": "tsr_full(f.graph, TSR_F32, TSR_DIMS(2, 3, 3, 2), f.placement, TSR_B, 0)",
    "tsr_multi_margin_loss_at.labels": "f.ids", "tsr_multi_margin_loss_at.power": "1", "tsr_feature_alpha_dropout_at.p": "0.5",
    "tsr_unfold_at.x": "f.image", "tsr_masked_fill_at.mask": "f.cond", "tsr_cosine_embedding_loss_at.y": "f.c4",
    "tsr_nll_loss_at.labels": "f.ids", "tsr_rotary_embedding_at.base": "10", "tsr_tensordot_at.b": "f.x", "tsr_baddbmm_at.a": "f.x",
    "tsr_baddbmm_at.b": "tsr_transpose(f.x, 0, 1)", "tsr_baddbmm_at.c": "tsr_matmul_t(f.x, f.x, false, true)",
    **{f"tsr_{f}{n}d_at.{p}": v for f in ("conv", "conv_transpose") for n in (1, 2, 3) for p, v in (
        ("x", ("f.signal", "f.image", "f.volume")[n - 1]),
        ("w", ("f.signal_kernel", "f.kernel", "f.volume_kernel")[n - 1]), ("b", "f.c4"))},
    **{f"tsr_{f}_pool{n}d_at.x": x for f in ("max", "avg", "adaptive_max", "adaptive_avg")
       for n, x in ((1, "f.signal"), (3, "f.volume"))},
    "tsr_adaptive_max_pool2d_at.x": "f.image", "tsr_lp_pool2d_at.x": "f.image", "tsr_channel_shuffle_at.x": "f.image",
    "tsr_fold_at.x": "f.signal", "tsr_fold_at.out_h": "6", "tsr_fold_at.out_w": "6",
    "tsr_max_pool2d_at.x": "f.image", "tsr_avg_pool2d_at.x": "f.image",
    "tsr_adaptive_avg_pool2d_at.x": "f.image", "tsr_batch_norm_at.x": "f.image",
    "tsr_batch_norm_at.gamma": "f.c4", "tsr_batch_norm_at.beta": "f.c4",
    "tsr_batch_norm_at.running_mean": "NULL", "tsr_batch_norm_at.running_var": "NULL",
    "tsr_layer_norm_at.gamma": "f.c6", "tsr_layer_norm_at.beta": "f.c6",
    "tsr_matmul_at.b": "f.w", "tsr_matmul_t_at.ta": "false", "tsr_linear_at.b": "f.c4",
    "tsr_linear_at.w": "f.x", "tsr_attention_at.q": "f.image", "tsr_attention_at.k": "f.image",
    "tsr_attention_at.v": "f.image", **{f"tsr_scaled_dot_product_attention_at.{p}": "f.image" for p in "qkv"},
    "tsr_scaled_dot_product_attention_at.mask": "NULL", "tsr_cross_entropy_at.labels": "f.ids",
    "tsr_cross_entropy_with_at.labels": "f.ids", "tsr_where_at.cond": "f.cond",
    "tsr_embedding_at.ids": "f.ids", "tsr_index_select_at.ids": "f.ids", "tsr_one_hot_at.ids": "f.ids",
    "tsr_variance_at.correction": "1", "tsr_std_at.correction": "1", "tsr_norm_at.p": "2",
    "tsr_constant_at.data": "numbers", "tsr_expand_at.dims": "TSR_DIMS(2, 4, 6)",
    "tsr_permute_at.order": "TSR_AXES(1, 0)", "tsr_transpose_at.a": "0",
    "tsr_slice_at.starts": "TSR_DIMS(0, 1)", "tsr_slice_at.ends": "TSR_DIMS(4, 3)",
    "tsr_slice_at.steps": "TSR_SCALAR", "tsr_narrow_at.start": "0",
    "tsr_pad_at.before": "TSR_DIMS(1, 1)", "tsr_pad_at.after": "TSR_DIMS(1, 1)",
    "tsr_split_at.sizes": "(int64_t[]){6}", "tsr_balanced_split.part": "0",
    "tsr_nn_layer_norm.shape": "TSR_DIMS(6)", "tsr_generator_set_state.state": "f.generator_state",
    "tsr_generator_randint.high": "9", "tsr_sampler_set_state.state": "&f.sampler_state",
    "tsr_batch_sampler_set_state.state": "&f.batch_sampler_state",
    "tsr_loader_set_state.state": "&f.loader_state",
    "tsr_sampler_set_position.position": "1", "tsr_batch_sampler_set_position.position": "1",
    "tsr_safetensors_tensor.i": "0", "tsr_safetensors_read.i": "0", "tsr_safetensors_read.offset": "0",
    "tsr_safetensors_read.bytes": "4", "tsr_safetensors_open.path": "f.safetensors_path",
    "tsr_adam.m": "f.module", "tsr_module_param.name": '"extra"', "tsr_module_buffer.name": '"extra"',
    "tsr_weighted_random_sampler.weights": "doubles", "tsr_worker_is_stopping.worker": "f.worker",
    "tsr_work_wait.work": "&f.work", "tsr_ddp_close_at.ddp": "&f.ddp", "tsr_free.ptr": "f.memory",
    "tsr_broadcast_at.root": "0", "tsr_reduce_at.root": "0", "tsr_gather_to_at.root": "0",
    "tsr_scatter_from_at.root": "0", "tsr_all_to_all_at.src_counts": "(int64_t[]){4}",
    "tsr_all_to_all_at.dst_counts": "(int64_t[]){4}", "tsr_world_create_virtual.rank": "0",
    "tsr_checkpoint_remove.name": '"there"', "tsr_apply_at.m": "f.module", "tsr_apply_n_at.m": "f.module", "tsr_save.m": "f.module", "tsr_module_set_local.m": "f.fresh_module",
    "tsr_module_create.arg": "NULL", "tsr_narrow_at.axis": "1", "tsr_loader_set_epoch.epoch": "1",
    "tsr_map_loader_create.opts": "TSR_MAP_LOADER_OPTS(.sample_bytes = 8)",
}


def good_value(function, kind, name):
    plain = kind.removeprefix("const ")
    named = NAMED.get(f"{function}.{name}")
    if named:
        return named
    if kind in GOOD:
        return GOOD[kind]
    if name == "out_work":
        return "NULL"
    if re.fullmatch(r"tsr_\w+ \*\*", plain):
        return f"({plain[:-1]}[1]){{0}}"
    match = re.fullmatch(r"tsr_(\w+) \*", plain)
    if match and match[1] == "nn_opts":
        return "&(const tsr_nn_opts){.placement = f.placement, .sbp = TSR_B}"
    if match and match[1] == "tensor":
        return "f.x"
    if match and match[1] in HANDLES:
        return "f." + match[1]
    if match:
        more = OPTS.get("tsr_" + match[1])
        if match[1].endswith("_opts"):
            return f"{plain[:-2].upper()}({more or ''})"
        return f"&({kind[:-2]}){{.size = sizeof({plain[:-2]}){', ' + more if more else ''}}}"
    sys.exit(f"{function}: {name} is of type '{kind}', of which bad_calls.py knows no good value")


def check_of(ret):
    if ret == "void":
        return None
    if ret in ("tsr_status", "tsr_tensor *"):
        return {"tsr_status": "status", "tsr_tensor *": "tensor"}[ret]
    return "pointer" if ret.endswith("*") else None


# Their NULL is an answer, not an error.
ANSWERS = {"tsr_op_find", "tsr_module_child", "tsr_module_child_at", "tsr_tensor_placement", "tsr_tensor_graph",
           "tsr_dataset_images", "tsr_dataset_labels", "tsr_last_error", "tsr_set_error", "tsr_safetensors_metadata",
           "tsr_sbp_format", "tsr_placement_text", "tsr_plan_explain"}


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(out, found):
    print("/* SPDX-License-Identifier: Apache-2.0 */\n/* Written by bad_calls.py. */", file=out)
    rows = []
    for ret, name, args in found:
        bad = [bad_values(name, kind, p) for kind, p in args]
        rows.append((name, -1, 0, "", "good"))
        print(f"static void call_{name}(int p, int v)\n{{\n    (void)p, (void)v;", file=out)
        names = []
        for i, (kind, p) in enumerate(args):
            if kind == "...":
                names.insert(-1, '"%s"')
                continue
            pointer = kind[:-2] + " *" if kind.endswith("[]") else kind
            left = pointer.replace("(*)", f"(*a{i})") if "(*)" in pointer else f"{pointer} a{i}"
            print(f"    {left} = {good_value(name, kind, p)};", file=out)
            names.append(f"a{i}")
            for j, value in enumerate(bad[i]):
                print(f"    if (p == {i} && v == {j})\n        a{i} = {value};", file=out)
                rows.append((name, i, j, p, value))
        call, check = f"{name}({', '.join(names)})", check_of(ret)
        print("    ready();", file=out)
        if check and name not in ANSWERS:
            print(f"    {ret} got = {call};\n    check_{check}(p, got);\n}}\n", file=out)
        else:
            print(f"    {'' if ret == 'void' else '(void)'}{call};\n    check_gone();\n}}\n", file=out)
    print("static const row rows[] = {", file=out)
    for name, i, j, p, value in rows:
        print(f"    {{{quoted(name)}, call_{name}, {i}, {j}, {quoted(p)}, {quoted(value)}}},", file=out)
    print("};", file=out)


def main():
    found = []
    for path in sys.argv[2:]:
        with open(path) as f:
            text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
        SIZED.update(re.findall(r"typedef struct \w+ \{\s*size_t size;[^{}]*\} (\w+);", text))
        here = functions(text)
        declared = len(re.findall(r"^TSR_API ", text, flags=re.M))
        if len(here) != declared:
            sys.exit(f"{path}: {declared} declarations, of which bad_calls.py understands {len(here)}")
        found += here
    with open(sys.argv[1], "w") as out:
        write(out, found)


if __name__ == "__main__":
    main()
