/* SPDX-License-Identifier: Apache-2.0 */
/* An instruction set's templates and the table of their functions. VEC_ISA, ISA_TABLE, ISA_NAME: of
 * the including file. */
#include "kernels/cpu/fast/vec.h"

#include "kernels/cpu/fast/bn_t.h"
#include "kernels/cpu/fast/dw_t.h"
#include "kernels/cpu/fast/map_t.h"
#include "kernels/cpu/fast/math_t.h"
#include "kernels/cpu/fast/end_t.h"
#include "kernels/cpu/fast/products_t.h"
#include "kernels/cpu/fast/index_t.h"
#include "kernels/cpu/fast/ln_t.h"
#include "kernels/cpu/fast/optim_t.h"
#include "kernels/cpu/fast/planes_t.h"
#include "kernels/cpu/fast/pool_t.h"
#include "kernels/cpu/fast/reduce_t.h"
#include "kernels/cpu/fast/scan_t.h"
#include "kernels/cpu/fast/softmax_t.h"
#include "kernels/cpu/fast/attention_t.h"
#include "kernels/cpu/fast/typed_t.h"
#include "kernels/cpu/fast/walk_t.h"
#include "kernels/cpu/fast/wino_t.h"

#include "kernels/cpu/fast/of_f32.h"

#include "kernels/cpu/fast/recurrent_t.h"

#include "kernels/cpu/fast/of_none.h"

#include "kernels/cpu/fast/of_f64.h"

#include "kernels/cpu/fast/recurrent_t.h"

#include "kernels/cpu/fast/of_none.h"

#define CELLS(end, dtype)                                                                         \
    {                                                                                             \
        [TSRI_CELL_TANH] = cell_tanh##end##_##dtype, [TSRI_CELL_RELU] = cell_relu##end##_##dtype, \
        [TSRI_CELL_LSTM] = cell_lstm##end##_##dtype, [TSRI_CELL_GRU] = cell_gru##end##_##dtype    \
    }
#define LOOPS(lanes, T, dtype)                                                            \
    {                                                                                     \
        .width = lanes, .size = sizeof(T),                                                \
        .tile = {NULL, gemm_tile1_##dtype, gemm_tile2_##dtype, gemm_tile3_##dtype},       \
        .pack = gemm_pack_##dtype, .transpose = transpose_##dtype, .dots = dots_##dtype,  \
        .add = gemm_add_##dtype, .cell = CELLS(, dtype), .cell_back = CELLS(_back, dtype) \
    }

#define SLOT_BY_VECTORS(loops, FN) [TSRI_UNARY_##FN] = loops##_##FN,
#define SLOT_BY_LANES(loops, FN)
#define UNARY_SLOT(loops, FN, name, gets, cost, by, ...) SLOT_BY_##by(loops, FN)
#define SLOT2_BY_VECTORS(FN) [TSRI_BINARY_##FN] = binary_##FN,
#define SLOT2_BY_LANES(FN)
#define BINARY_SLOT(T, FN, name, takes, rule, cost, by, ...) SLOT2_BY_##by(FN)
#define COMPARE_SLOT(T, FN, name, ...) [TSRI_BINARY_##FN] = COMPARES(name),
#define WHOLE_SLOT(T, FN, name, takes, rule, cost, ...) WHOLES_OF_##takes##_##cost(FN)
#define UPDATE_SLOT(KIND, name, ...) [TSRI_OP_##KIND] = update_loop_##name,
const tsri_fast_isa ISA_TABLE = {
    .impl = ISA_NAME,
    .width = W,
    .f32 = LOOPS(W, float, f32),
    .f64 = LOOPS(W / 2, double, f64),
    .join_planes = join_planes,
    .split_planes = split_planes,
    .copy_rows = copy_rows,
    .reverse = reverse,
    .most_id = most_id,
    .pick = pick,
    .sum_places = sum_places,
    .add_rows = add_rows,
    .mix = mix,
    .keys = keys,
    .below = below,
    .bn =
        {
            [TSRI_BN_DO_STATS] = {bn_stats, bn16_stats},
            [TSRI_BN_DO_APPLY] = {bn_apply, bn16_apply},
            [TSRI_BN_DO_APPLY_ACT] = {bn_apply_act, bn16_apply_act},
            [TSRI_BN_DO_BWD_STATS] = {bn_bwd_stats, bn16_bwd_stats},
            [TSRI_BN_DO_BWD_STATS_ACT] = {bn_bwd_stats_act, bn16_bwd_stats_act},
            [TSRI_BN_DO_BWD_APPLY] = {bn_bwd_apply, bn16_bwd_apply},
            [TSRI_BN_DO_BWD_APPLY_ACT] = {bn_bwd_apply_act, bn16_bwd_apply_act},
        },
    .ln =
        {
            [TSRI_LN_DO_STATS] = ln_stats,
            [TSRI_LN_DO_APPLY] = ln_apply,
            [TSRI_LN_DO_BWD_STATS] = ln_bwd_stats,
            [TSRI_LN_DO_BWD_APPLY] = ln_bwd_apply,
            [TSRI_LN_DO_PARAMS] = ln_params,
        },
    .reduce = {[TSR_REDUCE_SUM] = {sum_rows, sum_columns},
               [TSR_REDUCE_MAX] = {max_rows, max_columns},
               [TSR_REDUCE_MIN] = {min_rows, min_columns},
               [TSR_REDUCE_PRODUCT] = {prod_rows, prod_columns},
               [TSRI_REDUCE_FAULT] = {fault_rows, fault_columns}},
    .reduce_i64 = {[TSR_REDUCE_SUM] = {sum_i64_rows, sum_i64_columns},
                   [TSR_REDUCE_MAX] = {max_i64_rows, max_i64_columns},
                   [TSR_REDUCE_MIN] = {min_i64_rows, min_i64_columns}},
    .find = find,
    .argmax_columns = argmax_columns,
    .sum_products = sum_products,
    .scan_rows = {scan_sum_rows, scan_product_rows},
    .scan_columns = {scan_sum_columns, scan_product_columns},
    .softmax = softmax,
    .softmax_dx = softmax_dx,
    .softmax_columns = softmax_columns,
    .softmax_dx_columns = softmax_dx_columns,
    .ce_sum = ce_sum,
    .ce_dx = ce_dx,
    .attend = attend,
    .attend_back = attend_back,
    .dot = dot,
    .dw_rows = {dw_rows, dw16_rows},
    .dw_weights = {dw_weights, dw16_weights},
    .wino_image = wino_image,
    .wino_slopes = wino_slopes,
    .wino_pixels = wino_pixels,
    .wino_weights = wino_weights,
    .wino_fold = wino_fold,
    .end = end_rows,
    .fill = map_fill,
    .scale = map_scale,
    .few_power = few_power,
    .unary = {TSRI_UNARY_LIST(UNARY_SLOT, unary)},
    .unary_grad = {TSRI_UNARY_LIST(UNARY_SLOT, unary_grad)},
    .binary = {TSRI_ARITHMETIC_LIST(BINARY_SLOT, )},
    .compare = {TSRI_COMPARISON_LIST(COMPARE_SLOT, )},
    .whole = {TSRI_ARITHMETIC_LIST(WHOLE_SLOT, )},
    .where = {where_uint8_t, where_uint16_t, where_uint32_t, where_uint64_t},
    .cast = {[TSR_F32] = {[TSR_F64] = cast_f32_f64, CASTS_TO_WHOLE(f32)},
             [TSR_F64] = {[TSR_F32] = cast_f64_f32, CASTS_TO_WHOLE(f64)},
             [TSR_I64] = CASTS_OF(i64),
             [TSR_I32] = CASTS_OF(i32),
             [TSR_U8] = CASTS_OF(u8),
             [TSR_BOOL] = CASTS_OF(u8)},
    .update = {TSRI_UPDATE_LIST(UPDATE_SLOT)},
    .dropout = dropout,
    .uniform = uniform,
    .normal = normal,
    .keep = keep,
    .max_line = max_line,
    .max_line_dx = max_line_dx,
    .mean_line = mean_line,
};
