/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <tessera/sbp.h>
#include <string.h>

/* clang-format off */
#define D(...) {(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}}
#define F(...) {.dims = D(__VA_ARGS__)}
#define FILLED(how, ...) {.dims = D(__VA_ARGS__), .fill = how}
#define OF(type, how, ...) {.dims = D(__VA_ARGS__), .dtype = type, .fill = how}
#define CONV(kh, kw, sh, sw, ph, pw, dh, dw, g)                                                    \
    .attrs.conv = {{sh, sw}, {ph, pw}, {dh, dw}, {kh, kw}, g}, .groups = g
#define POOL(kh, kw, sh, sw, ph, pw, include)                                                      \
    .attrs.pool = {{kh, kw}, {sh, sw}, {ph, pw}, include, 0}
#define BN(n, spatial_, parts_, act_)                                                              \
    .attrs.bn = {.eps = 1e-5, .momentum = 0.1, .batch = n, .spatial = spatial_, .parts = parts_,   \
                 .act = act_}

#define UNARY(text, fn_, how, a_)                                                                  \
    {.name = "unary " text, .op = TSRI_OP_UNARY, .attrs.unary = {fn_, 0, a_, 0}, .nin = 1,         \
     .nout = 1, .in = {FILLED(how, 3, 5, 2, 7)}, .out = {F(3, 5, 2, 7)}},                          \
    {.name = "unary_grad " text, .op = TSRI_OP_UNARY_GRAD, .attrs.unary = {fn_, 0, a_, 0},         \
     .nin = 2, .nout = 1, .in = {FILLED(how, 3, 5, 2, 7), F(3, 5, 2, 7)}, .out = {F(3, 5, 2, 7)}}
#define BINARY(text, fn_, how)                                                                     \
    {.name = "binary " text, .op = TSRI_OP_BINARY, .attrs.binary = {fn_, 0}, .nin = 2, .nout = 1,  \
     .in = {FILLED(how, 3, 5, 4, 7), FILLED(how, 3, 5, 4, 7)}, .out = {F(3, 5, 4, 7)}},            \
    {.name = "binary broadcast " text, .op = TSRI_OP_BINARY, .attrs.binary = {fn_, 0}, .nin = 2,   \
     .nout = 1, .in = {FILLED(how, 3, 5, 4, 7), FILLED(how, 5, 1, 7)}, .out = {F(3, 5, 4, 7)}}

/* A forward convolution and its two gradients. */
#define CONVS(text, N, C, H, W, O, KH, KW, OH, OW, g, ...)                                         \
    {.name = "conv2d " text, .op = TSRI_OP_CONV2D, __VA_ARGS__, .nin = 3, .nout = 1,               \
     .in = {F(N, C, H, W), F(O, C / g, KH, KW), F(O)}, .out = {F(N, O, OH, OW)}},                  \
    {.name = "conv2d no bias " text, .op = TSRI_OP_CONV2D, __VA_ARGS__, .nin = 2, .nout = 1,       \
     .in = {F(N, C, H, W), F(O, C / g, KH, KW)}, .out = {F(N, O, OH, OW)}},                        \
    {.name = "conv2d_dx " text, .op = TSRI_OP_CONV2D_DX, __VA_ARGS__, .nin = 2, .nout = 1,         \
     .in = {F(N, O, OH, OW), F(O, C / g, KH, KW)}, .out = {F(N, C, H, W)}},                        \
    {.name = "conv2d_dw " text, .op = TSRI_OP_CONV2D_DW, __VA_ARGS__, .nin = 2, .nout = 1,         \
     .in = {F(N, C, H, W), F(N, O, OH, OW)}, .out = {F(O, C / g, KH, KW)}}

/* Batch norm of one shape: all its parts. */
#define NORMS(text, N, C, R, act_, spatial_, ...)                                                  \
    {.name = "bn_stats " text, .op = TSRI_OP_BN_STATS, BN(N, spatial_, R, 0), .nin = 1, .nout = 1, \
     .in = {F(__VA_ARGS__)}, .out = {OF(TSR_F64, 0, R, 2, C)}},                                    \
    {.name = "bn_apply " text, .op = TSRI_OP_BN_APPLY, BN(N, spatial_, R, 0), .nin = 4, .nout = 1, \
     .in = {F(__VA_ARGS__), OF(TSR_F64, KC_STATS, R, 2, C), F(C), F(C)}, .out = {F(__VA_ARGS__)}}, \
    {.name = "bn_act " text, .op = TSRI_OP_BN_ACT, BN(N, spatial_, R, act_), .nin = 4, .nout = 1,  \
     .in = {FILLED(KC_SPREAD, __VA_ARGS__), OF(TSR_F64, KC_STATS, R, 2, C), F(C), F(C)},           \
     .out = {F(__VA_ARGS__)}},                                                                     \
    {.name = "bn_bwd_stats " text, .op = TSRI_OP_BN_BWD_STATS, BN(N, spatial_, R, 0), .nin = 3,    \
     .nout = 1, .in = {F(__VA_ARGS__), OF(TSR_F64, KC_STATS, R, 2, C), F(__VA_ARGS__)},            \
     .out = {OF(TSR_F64, 0, R, 2, C)}},                                                            \
    {.name = "bn_bwd_apply " text, .op = TSRI_OP_BN_BWD_APPLY, BN(N, spatial_, R, 0), .nin = 5,    \
     .nout = 1,                                                                                    \
     .in = {F(__VA_ARGS__), OF(TSR_F64, KC_STATS, R, 2, C), F(C), F(__VA_ARGS__),                  \
            OF(TSR_F64, 0, R, 2, C)},                                                              \
     .out = {F(__VA_ARGS__)}},                                                                     \
    {.name = "bn_act_bwd_stats " text, .op = TSRI_OP_BN_ACT_BWD_STATS, BN(N, spatial_, R, act_),   \
     .nin = 5, .nout = 1,                                                                          \
     .in = {FILLED(KC_SPREAD, __VA_ARGS__), OF(TSR_F64, KC_STATS, R, 2, C), F(C), F(C),            \
            F(__VA_ARGS__)},                                                                       \
     .out = {OF(TSR_F64, 0, R, 2, C)}},                                                            \
    {.name = "bn_act_bwd_apply " text, .op = TSRI_OP_BN_ACT_BWD_APPLY, BN(N, spatial_, R, act_),   \
     .nin = 6, .nout = 1,                                                                          \
     .in = {FILLED(KC_SPREAD, __VA_ARGS__), OF(TSR_F64, KC_STATS, R, 2, C), F(C), F(C),            \
            F(__VA_ARGS__), OF(TSR_F64, 0, R, 2, C)},                                              \
     .out = {F(__VA_ARGS__)}}

#define POOLS(text, C, H, W, OH, OW, ...)                                                          \
    {.name = "max_pool " text, .op = TSRI_OP_MAX_POOL, __VA_ARGS__, .nin = 1, .nout = 2,           \
     .in = {FILLED(KC_FEW, 2, C, H, W)}, .out = {F(2, C, OH, OW), OF(TSR_I32, 0, 2, C, OH, OW)}},  \
    {.name = "max_pool_dx " text, .op = TSRI_OP_MAX_POOL_DX, __VA_ARGS__, .nin = 2, .nout = 1,     \
     .in = {OF(TSR_I32, KC_POOL_IDX, 2, C, OH, OW), F(2, C, OH, OW)}, .out = {F(2, C, H, W)}},     \
    {.name = "avg_pool " text, .op = TSRI_OP_AVG_POOL, __VA_ARGS__, .nin = 1, .nout = 1,           \
     .in = {F(2, C, H, W)}, .out = {F(2, C, OH, OW)}},                                             \
    {.name = "avg_pool_dx " text, .op = TSRI_OP_AVG_POOL_DX, __VA_ARGS__, .nin = 1, .nout = 1,     \
     .in = {F(2, C, OH, OW)}, .out = {F(2, C, H, W)}}

#define REDUCE(text, op_, axes_, keep, scale_, ...)                                                \
    {.name = "reduce " text, .op = TSRI_OP_REDUCE, .attrs.reduce = {op_, axes_, keep, 0, scale_},  \
     .nin = 1, .nout = 1, .in = {F(3, 5, 4, 7)}, .out = {F(__VA_ARGS__)}}

/* The parts; those of cross entropy of n_ classes from at_ on, of c_. */
#define SOFTMAX_PARTS(text, axis_, log_, how, ...)                                                 \
    {.name = "softmax_sum " text, .op = TSRI_OP_SOFTMAX_SUM, .attrs.softmax = {axis_, log_},       \
     .nin = 2, .nout = 1, .in = {FILLED(KC_SPREAD, 4, 6, 5), FILLED(KC_SPREAD, __VA_ARGS__)},      \
     .out = {F(__VA_ARGS__)}},                                                                     \
    {.name = "softmax_finish " text, .op = TSRI_OP_SOFTMAX_FINISH,                                 \
     .attrs.softmax = {axis_, log_}, .nin = 3, .nout = 1,                                          \
     .in = {FILLED(KC_SPREAD, 4, 6, 5), FILLED(KC_SPREAD, __VA_ARGS__),                            \
            FILLED(KC_POSITIVE, __VA_ARGS__)},                                                     \
     .out = {F(4, 6, 5)}},                                                                         \
    {.name = "softmax_dot " text, .op = TSRI_OP_SOFTMAX_DOT, .attrs.softmax = {axis_, log_},       \
     .nin = 2, .nout = 1, .in = {FILLED(how, 4, 6, 5), F(4, 6, 5)}, .out = {F(__VA_ARGS__)}},      \
    {.name = "softmax_bwd " text, .op = TSRI_OP_SOFTMAX_BWD, .attrs.softmax = {axis_, log_},       \
     .nin = 3, .nout = 1, .in = {FILLED(how, 4, 6, 5), F(4, 6, 5), F(__VA_ARGS__)},                \
     .out = {F(4, 6, 5)}}
#define OF_CLASSES(how, n_, c_, at_)                                                               \
    {.dims = D(9, n_), .fill = how, .gshape = {9, c_}, .offset = {0, at_}}
#define CE_PARTS(text, n_, c_, at_, ...)                                                           \
    {.name = "ce_terms " text, .op = TSRI_OP_CE_TERMS, .attrs.ce = {__VA_ARGS__, .classes = c_},   \
     .nin = 3, .nout = 1,                                                                          \
     .in = {OF_CLASSES(KC_SPREAD, n_, c_, at_), OF(TSR_I64, KC_CLASS, 9), F(9)},                   \
     .out = {OF(TSR_F64, 0, 9, 3)}},                                                               \
    {.name = "ce_finish " text, .op = TSRI_OP_CE_FINISH, .attrs.ce = {__VA_ARGS__, .classes = c_}, \
     .nin = 3, .nout = 3,                                                                          \
     .in = {OF(TSR_F64, KC_POSITIVE, 9, 3), FILLED(KC_SPREAD, 9), OF(TSR_I64, KC_CLASS, 9)},       \
     .out = {F(9), F(9), F(9)}},                                                                   \
    {.name = "ce_dx part " text, .op = TSRI_OP_CE_DX, .attrs.ce = {__VA_ARGS__, .classes = c_},    \
     .nin = 4, .nout = 1,                                                                          \
     .in = {OF_CLASSES(KC_UNIFORM, n_, c_, at_), OF(TSR_I64, KC_CLASS, 9), FILLED(KC_POSITIVE, 9), \
            F(9)},                                                                                 \
     .out = {OF_CLASSES(0, n_, c_, at_)}}

#define CE(text, ...)                                                                              \
    {.name = "ce " text, .op = TSRI_OP_CE, .attrs.ce = {__VA_ARGS__}, .nin = 2, .nout = 3,         \
     .in = {FILLED(KC_SPREAD, 9, 7), OF(TSR_I64, KC_LABEL, 9)}, .out = {F(9), F(9), F(9)}},        \
    {.name = "ce_dx " text, .op = TSRI_OP_CE_DX, .attrs.ce = {__VA_ARGS__}, .nin = 4, .nout = 1,   \
     .in = {FILLED(KC_SPREAD, 9, 7), OF(TSR_I64, KC_LABEL, 9), FILLED(KC_LSE, 9), F(9)},           \
     .out = {F(9, 7)}}

#define SOFTMAX(text, axis_, log_, how)                                                            \
    {.name = "softmax " text, .op = TSRI_OP_SOFTMAX, .attrs.softmax = {axis_, log_}, .nin = 1,     \
     .nout = 1, .in = {FILLED(KC_SPREAD, 4, 6, 5)}, .out = {F(4, 6, 5)}},                          \
    {.name = "softmax_dx " text, .op = TSRI_OP_SOFTMAX_DX, .attrs.softmax = {axis_, log_},         \
     .nin = 2, .nout = 1, .in = {FILLED(how, 4, 6, 5), F(4, 6, 5)}, .out = {F(4, 6, 5)}}

#define SGD(text, how, ...)                                                                        \
    {.name = "sgd " text, .op = TSRI_OP_SGD, .attrs.sgd = {__VA_ARGS__}, .nin = 4, .nout = 2,      \
     .in = {F(70, 3), F(70, 3), F(70, 3), OF(TSR_F64, how, 8)}, .out = {F(70, 3), F(70, 3)},       \
     .in_place = 1}
#define ADAM(text, how, ...)                                                                       \
    {.name = "adam " text, .op = TSRI_OP_ADAM, .attrs.adam = {0.9, 0.999, 1e-8, __VA_ARGS__},      \
     .nin = 5, .nout = 3,                                                                          \
     .in = {F(70, 3), F(70, 3), FILLED(KC_POSITIVE, 70, 3), F(70, 3), OF(TSR_F64, how, 8)},        \
     .out = {F(70, 3), F(70, 3), F(70, 3)}, .in_place = 1}

/* A gather and its gradient; ids are 0..3. */
#define GATHER(text, axis_, has_pad_, pad_, X, IDS, Y)                                             \
    {.name = "gather " text, .op = TSRI_OP_GATHER, .attrs.gather = {axis_, has_pad_, pad_},        \
     .nin = 2, .nout = 1, .in = {{.dims = X}, {.dims = IDS, .dtype = TSR_I64, .fill = KC_FEW}},    \
     .out = {{.dims = Y}}},                                                                        \
    {.name = "gather_dx " text, .op = TSRI_OP_GATHER_DX, .attrs.gather = {axis_, has_pad_, pad_},  \
     .nin = 2, .nout = 1, .in = {{.dims = IDS, .dtype = TSR_I64, .fill = KC_FEW}, {.dims = Y}},    \
     .out = {{.dims = X}}}

static const float numbers[30] = {3, -1, 4, 1, -5, 9, 2, 6, -5, 3, 5, -8, 9, 7, 9,
                                  3, 2,  3, 8, -4, 6, 2, 6, 4,  3, 3, -8, 3, 2, 7};
static const int64_t wholes[6] = {1, -2, 3, 1L << 50, 5, -6};
#define BATCH(text, ta_, tb_, ...)                                                                 \
    {.name = "batch_matmul " text, .op = TSRI_OP_BATCH_MATMUL, .attrs.matmul = {ta_, tb_},         \
     .nin = 2, .nout = 1, __VA_ARGS__}

/* Layer norm: all its parts. r_ and f_: axes of the rows and of the features, in ( ). */
#define R(...) __VA_ARGS__
#define LN(axes_, n_, g_, b_)                                                                      \
    .attrs.ln = {.eps = 1e-5, .count = n_, .axes = axes_, .has_gamma = g_, .has_beta = b_}
#define LN_DATA(r_, f_) F(R r_, R f_)
#define LN_SUMS(how, r_) OF(TSR_F64, how, R r_, 2)
#define LN_CASE(name_, op_, axes_, n_, g_, b_, nin_, nout_, ...)                                   \
    {.name = name_, .op = op_, LN(axes_, n_, g_, b_), .nin = nin_, .nout = nout_, __VA_ARGS__}
#define LAYERS(text, axes_, n_, r_, f_)                                                            \
    LN_CASE("ln_stats " text, TSRI_OP_LN_STATS, axes_, n_, 1, 1, 1, 1,                             \
        .in = {LN_DATA(r_, f_)},                                                                   \
        .out = {LN_SUMS(0, r_)}),                                                                  \
    LN_CASE("ln_apply " text, TSRI_OP_LN_APPLY, axes_, n_, 1, 1, 4, 1,                             \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R f_), F(R f_)},                      \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_apply gamma " text, TSRI_OP_LN_APPLY, axes_, n_, 1, 0, 3, 1,                       \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R f_)},                               \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_apply beta " text, TSRI_OP_LN_APPLY, axes_, n_, 0, 1, 3, 1,                        \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R f_)},                               \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_apply plain " text, TSRI_OP_LN_APPLY, axes_, n_, 0, 0, 2, 1,                       \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_)},                                        \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_bwd_stats " text, TSRI_OP_LN_BWD_STATS, axes_, n_, 1, 1, 4, 1,                     \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R f_), LN_DATA(r_, f_)},              \
        .out = {LN_SUMS(0, r_)}),                                                                  \
    LN_CASE("ln_bwd_stats plain " text, TSRI_OP_LN_BWD_STATS, axes_, n_, 0, 1, 3, 1,               \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), LN_DATA(r_, f_)},                       \
        .out = {LN_SUMS(0, r_)}),                                                                  \
    LN_CASE("ln_bwd_apply " text, TSRI_OP_LN_BWD_APPLY, axes_, n_, 1, 1, 5, 1,                     \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R f_), LN_DATA(r_, f_),               \
               LN_SUMS(0, r_)},                                                                    \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_bwd_apply plain " text, TSRI_OP_LN_BWD_APPLY, axes_, n_, 0, 1, 4, 1,               \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), LN_DATA(r_, f_), LN_SUMS(0, r_)},       \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_param_grad " text, TSRI_OP_LN_PARAM_GRAD, axes_, n_, 1, 1, 3, 2,                   \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), LN_DATA(r_, f_)},                       \
        .out = {F(R f_), F(R f_)})

const kernel_case kernel_cases[] = {
    UNARY("abs", TSRI_UNARY_ABS, KC_UNIFORM, 0),
    UNARY("exp", TSRI_UNARY_EXP, KC_UNIFORM, 0),
    UNARY("log", TSRI_UNARY_LOG, KC_POSITIVE, 0),
    UNARY("sqrt", TSRI_UNARY_SQRT, KC_POSITIVE, 0),
    UNARY("relu", TSRI_UNARY_RELU, KC_SPREAD, 0),
    UNARY("relu6", TSRI_UNARY_RELU6, KC_SPREAD, 0),
    UNARY("tanh", TSRI_UNARY_TANH, KC_UNIFORM, 0),
    UNARY("sigmoid", TSRI_UNARY_SIGMOID, KC_SPREAD, 0),
    UNARY("silu", TSRI_UNARY_SILU, KC_SPREAD, 0),
    UNARY("pow", TSRI_UNARY_POW, KC_POSITIVE, 2.5),
    UNARY("add", TSRI_UNARY_ADD, KC_UNIFORM, 1.5),
    UNARY("rdiv", TSRI_UNARY_RDIV, KC_POSITIVE, 2),
    {.name = "scale", .op = TSRI_OP_SCALE, .attrs.scale = {-2.5}, .nin = 1, .nout = 1,
     .in = {F(3, 5, 2, 7)}, .out = {F(3, 5, 2, 7)}},
    BINARY("add", TSRI_BINARY_ADD, KC_UNIFORM),
    BINARY("sub", TSRI_BINARY_SUB, KC_UNIFORM),
    BINARY("mul", TSRI_BINARY_MUL, KC_UNIFORM),
    BINARY("div", TSRI_BINARY_DIV, KC_POSITIVE),
    BINARY("pow", TSRI_BINARY_POW, KC_POSITIVE),
    BINARY("equal", TSRI_BINARY_EQUAL, KC_FEW),
    BINARY("not_equal", TSRI_BINARY_NOT_EQUAL, KC_FEW),
    BINARY("less", TSRI_BINARY_LESS, KC_FEW),
    BINARY("less_equal", TSRI_BINARY_LESS_EQUAL, KC_FEW),
    BINARY("greater", TSRI_BINARY_GREATER, KC_FEW),
    BINARY("greater_equal", TSRI_BINARY_GREATER_EQUAL, KC_FEW),
    BINARY("step", TSRI_BINARY_STEP, KC_FEW),
    BINARY("maximum", TSRI_BINARY_MAXIMUM, KC_UNIFORM),
    BINARY("minimum", TSRI_BINARY_MINIMUM, KC_UNIFORM),
    {.name = "binary less bool", .op = TSRI_OP_BINARY, .attrs.binary = {TSRI_BINARY_LESS, 0},
     .nin = 2, .nout = 1, .in = {OF(TSR_BOOL, KC_BOOL, 3, 33), OF(TSR_BOOL, KC_BOOL, 33)},
     .out = {OF(TSR_BOOL, 0, 3, 33)}},
    {.name = "binary greater i32 -> bool", .op = TSRI_OP_BINARY,
     .attrs.binary = {TSRI_BINARY_GREATER, 0}, .nin = 2, .nout = 1,
     .in = {OF(TSR_I32, KC_FEW, 700, 3), OF(TSR_I32, KC_FEW, 1, 3)},
     .out = {OF(TSR_BOOL, 0, 700, 3)}},
    {.name = "binary minimum u8", .op = TSRI_OP_BINARY, .attrs.binary = {TSRI_BINARY_MINIMUM, 0},
     .nin = 2, .nout = 1, .in = {OF(TSR_U8, KC_FEW, 33), OF(TSR_U8, KC_FEW, 33)},
     .out = {OF(TSR_U8, 0, 33)}},
    {.name = "binary equal i64 -> bool", .op = TSRI_OP_BINARY,
     .attrs.binary = {TSRI_BINARY_EQUAL, 0}, .nin = 2, .nout = 1,
     .in = {OF(TSR_I64, KC_FEW, 33), OF(TSR_I64, KC_FEW, 33)}, .out = {OF(TSR_BOOL, 0, 33)}},
    {.name = "binary add i64", .op = TSRI_OP_BINARY, .attrs.binary = {TSRI_BINARY_ADD, 0},
     .nin = 2, .nout = 1, .in = {OF(TSR_I64, KC_FEW, 33), OF(TSR_I64, KC_FEW, 1)},
     .out = {OF(TSR_I64, 0, 33)}},
    {.name = "add_n", .op = TSRI_OP_ADD_N, .nin = 3, .nout = 1,
     .in = {F(3, 5, 20, 7), F(3, 5, 20, 7), F(3, 5, 20, 7)}, .out = {F(3, 5, 20, 7)}},
    {.name = "cast i64", .op = TSRI_OP_CAST, .nin = 1, .nout = 1, .in = {OF(TSR_I64, KC_FEW, 50)},
     .out = {F(50)}},
    {.name = "cast to i32", .op = TSRI_OP_CAST, .nin = 1, .nout = 1, .in = {FILLED(KC_SPREAD, 50)},
     .out = {OF(TSR_I32, 0, 50)}},
    {.name = "cast to bool", .op = TSRI_OP_CAST, .nin = 1, .nout = 1, .in = {FILLED(KC_FEW, 50)},
     .out = {OF(TSR_BOOL, 0, 50)}},
    {.name = "broadcast_to", .op = TSRI_OP_BROADCAST_TO, .nin = 1, .nout = 1, .in = {F(5, 1, 7)},
     .out = {F(3, 5, 4, 7)}},
    REDUCE("sum all", TSR_REDUCE_SUM, 15, 0, 0.25, 1),
    REDUCE("sum 0", TSR_REDUCE_SUM, 1, 0, 1, 5, 4, 7),
    REDUCE("sum 023 keep", TSR_REDUCE_SUM, 13, 1, 1, 1, 5, 1, 1),
    REDUCE("sum 13", TSR_REDUCE_SUM, 10, 0, 1, 3, 4),
    REDUCE("max 2", TSR_REDUCE_MAX, 4, 0, 1, 3, 5, 7),
    REDUCE("min 03", TSR_REDUCE_MIN, 9, 0, 1, 5, 4),
    {.name = "argmax last", .op = TSRI_OP_ARGMAX, .attrs.softmax = {1, 0}, .nin = 1, .nout = 1,
     .in = {FILLED(KC_FEW, 11, 9)}, .out = {OF(TSR_I64, 0, 11)}},
    {.name = "argmax first", .op = TSRI_OP_ARGMAX, .attrs.softmax = {0, 0}, .nin = 1, .nout = 1,
     .in = {FILLED(KC_FEW, 9, 4, 3)}, .out = {OF(TSR_I64, 0, 4, 3)}},

    {.name = "matmul", .op = TSRI_OP_MATMUL, .nin = 2, .nout = 1, .in = {F(37, 29), F(29, 43)},
     .out = {F(37, 43)}},
    {.name = "matmul ta", .op = TSRI_OP_MATMUL, .attrs.matmul = {1, 0}, .nin = 2, .nout = 1,
     .in = {F(29, 37), F(29, 43)}, .out = {F(37, 43)}},
    {.name = "matmul tb", .op = TSRI_OP_MATMUL, .attrs.matmul = {0, 1}, .nin = 2, .nout = 1,
     .in = {F(37, 29), F(43, 29)}, .out = {F(37, 43)}},
    {.name = "matmul ta tb", .op = TSRI_OP_MATMUL, .attrs.matmul = {1, 1}, .nin = 2, .nout = 1,
     .in = {F(29, 37), F(43, 29)}, .out = {F(37, 43)}},
    {.name = "matmul blocks", .op = TSRI_OP_MATMUL, .nin = 2, .nout = 1,
     .in = {F(131, 401), F(401, 203)}, .out = {F(131, 203)}},
    {.name = "linear", .op = TSRI_OP_LINEAR, .nin = 3, .nout = 1,
     .in = {F(3, 5, 11), F(13, 11), F(13)}, .out = {F(3, 5, 13)}},
    {.name = "linear no bias", .op = TSRI_OP_LINEAR, .nin = 2, .nout = 1,
     .in = {F(9, 11), F(13, 11)}, .out = {F(9, 13)}},
    {.name = "linear wide", .op = TSRI_OP_LINEAR, .nin = 3, .nout = 1,
     .in = {F(70, 11), F(211, 11), F(211)}, .out = {F(70, 211)}},
    {.name = "linear_dx", .op = TSRI_OP_LINEAR_DX, .nin = 2, .nout = 1,
     .in = {F(3, 5, 13), F(13, 11)}, .out = {F(3, 5, 11)}},
    {.name = "linear_dw", .op = TSRI_OP_LINEAR_DW, .nin = 2, .nout = 1,
     .in = {F(3, 5, 11), F(3, 5, 13)}, .out = {F(13, 11)}},

    CONVS("1x1", 2, 6, 5, 7, 9, 1, 1, 5, 7, 1, CONV(1, 1, 1, 1, 0, 0, 1, 1, 1)),
    CONVS("1x1 stride 2", 2, 6, 5, 7, 9, 1, 1, 3, 4, 1, CONV(1, 1, 2, 2, 0, 0, 1, 1, 1)),
    CONVS("3x3", 2, 3, 6, 5, 8, 3, 3, 6, 5, 1, CONV(3, 3, 1, 1, 1, 1, 1, 1, 1)),
    CONVS("3x3 stride 2", 2, 3, 7, 8, 5, 3, 3, 4, 4, 1, CONV(3, 3, 2, 2, 1, 1, 1, 1, 1)),
    CONVS("3x2 all different", 2, 4, 9, 8, 6, 3, 2, 3, 7, 2, CONV(3, 2, 2, 1, 1, 0, 3, 1, 2)),
    CONVS("5x5 dilated", 1, 2, 9, 10, 3, 5, 5, 5, 6, 1, CONV(5, 5, 1, 1, 2, 2, 2, 2, 1)),
    CONVS("grouped", 2, 6, 5, 5, 9, 3, 3, 5, 5, 3, CONV(3, 3, 1, 1, 1, 1, 1, 1, 3)),
    CONVS("patches", 2, 3, 8, 8, 7, 4, 4, 2, 2, 1, CONV(4, 4, 4, 4, 0, 0, 1, 1, 1)),
    CONVS("depthwise", 2, 7, 5, 6, 7, 3, 3, 5, 6, 7, CONV(3, 3, 1, 1, 1, 1, 1, 1, 7)),
    CONVS("depthwise stride 2", 2, 5, 6, 7, 5, 3, 3, 3, 4, 5, CONV(3, 3, 2, 2, 1, 1, 1, 1, 5)),
    CONVS("depthwise 2x2 plane", 3, 96, 2, 2, 96, 3, 3, 2, 2, 96, CONV(3, 3, 1, 1, 1, 1, 1, 1, 96)),
    CONVS("depthwise 1x1 plane", 3, 70, 1, 1, 70, 3, 3, 1, 1, 70, CONV(3, 3, 1, 1, 1, 1, 1, 1, 70)),
    CONVS("depthwise dilated", 2, 5, 8, 9, 5, 3, 5, 6, 5, 5, CONV(3, 5, 1, 1, 1, 0, 2, 1, 5)),
    CONVS("depthwise multiplier", 2, 4, 5, 5, 8, 3, 3, 5, 5, 4, CONV(3, 3, 1, 1, 1, 1, 1, 1, 4)),

    POOLS("2x2", 3, 6, 8, 3, 4, POOL(2, 2, 2, 2, 0, 0, 0)),
    POOLS("3x3 pad", 5, 7, 6, 4, 3, POOL(3, 3, 2, 2, 1, 1, 0)),
    POOLS("3x2 pad counted", 70, 5, 6, 5, 6, POOL(3, 3, 1, 1, 1, 1, 1)),
    {.name = "adaptive_pool 1x1", .op = TSRI_OP_ADAPTIVE_POOL, .nin = 1, .nout = 1,
     .in = {F(2, 5, 4, 3)}, .out = {F(2, 5, 1, 1)}},
    {.name = "adaptive_pool uneven", .op = TSRI_OP_ADAPTIVE_POOL, .nin = 1, .nout = 1,
     .in = {F(2, 5, 7, 5)}, .out = {F(2, 5, 3, 4)}},
    {.name = "adaptive_pool up", .op = TSRI_OP_ADAPTIVE_POOL, .nin = 1, .nout = 1,
     .in = {F(2, 5, 2, 3)}, .out = {F(2, 5, 7, 7)}},
    {.name = "adaptive_pool even", .op = TSRI_OP_ADAPTIVE_POOL, .nin = 1, .nout = 1,
     .in = {F(2, 5, 6, 8)}, .out = {F(2, 5, 3, 4)}},
    {.name = "adaptive_pool_dx even", .op = TSRI_OP_ADAPTIVE_POOL_DX, .nin = 1, .nout = 1,
     .in = {F(2, 5, 3, 4)}, .out = {F(2, 5, 6, 8)}},
    {.name = "adaptive_pool_dx 1x1", .op = TSRI_OP_ADAPTIVE_POOL_DX, .nin = 1, .nout = 1,
     .in = {F(2, 5, 1, 1)}, .out = {F(2, 5, 4, 3)}},
    {.name = "adaptive_pool_dx uneven", .op = TSRI_OP_ADAPTIVE_POOL_DX, .nin = 1, .nout = 1,
     .in = {F(2, 5, 3, 4)}, .out = {F(2, 5, 7, 5)}},
    {.name = "adaptive_pool_dx up", .op = TSRI_OP_ADAPTIVE_POOL_DX, .nin = 1, .nout = 1,
     .in = {F(2, 5, 7, 7)}, .out = {F(2, 5, 2, 3)}},

    NORMS("4-D", 4, 5, 1, TSRI_ACT_RELU6, 6, 4, 5, 2, 3),
    NORMS("4-D parts", 7, 5, 3, TSRI_ACT_RELU, 6, 7, 5, 3, 2),
    NORMS("4-D wide", 3, 70, 1, TSRI_ACT_RELU6, 16, 3, 70, 4, 4),
    NORMS("2-D", 9, 6, 2, TSRI_ACT_RELU, 1, 9, 6),
    {.name = "bn_param_grad", .op = TSRI_OP_BN_PARAM_GRAD, .nin = 1, .nout = 2,
     .in = {OF(TSR_F64, 0, 3, 2, 5)}, .out = {F(5), F(5)}},
    {.name = "bn_running", .op = TSRI_OP_BN_RUNNING, BN(4, 6, 1, 0), .nin = 3, .nout = 2,
     .in = {OF(TSR_F64, KC_STATS, 1, 2, 5), F(5), FILLED(KC_POSITIVE, 5)}, .out = {F(5), F(5)},
     .in_place = 2},
    {.name = "bn_running parts", .op = TSRI_OP_BN_RUNNING, BN(7, 6, 3, 0), .nin = 3, .nout = 2,
     .in = {OF(TSR_F64, KC_STATS, 3, 2, 5), F(3, 5), FILLED(KC_POSITIVE, 3, 5)},
     .out = {F(3, 5), F(3, 5)}, .in_place = 2},
    {.name = "bn_fold", .op = TSRI_OP_BN_FOLD, BN(1, 1, 1, 0), .nin = 4, .nout = 2,
     .in = {F(5), F(5), F(5), FILLED(KC_POSITIVE, 5)}, .out = {F(5), F(5)}},
    {.name = "scale_shift", .op = TSRI_OP_SCALE_SHIFT, .nin = 3, .nout = 1,
     .in = {F(3, 5, 4, 2), F(5), F(5)}, .out = {F(3, 5, 4, 2)}},
    {.name = "scale_shift 2-D", .op = TSRI_OP_SCALE_SHIFT, .nin = 3, .nout = 1,
     .in = {F(3, 5), F(5), F(5)}, .out = {F(3, 5)}},

    SOFTMAX("last", 2, 0, KC_POSITIVE),
    SOFTMAX("middle", 1, 0, KC_POSITIVE),
    SOFTMAX("log", 2, 1, KC_NEGATIVE),
    SOFTMAX("log first", 0, 1, KC_NEGATIVE),
    CE("plain", 0, 0, 0, 0),
    CE("smoothed", 0.1, 0, 0, 0),
    CE("ignoring", 0.2, 2, 1, 0),

    {.name = "dropout", .op = TSRI_OP_DROPOUT, .attrs.dropout = {42, 0.3}, .nin = 2, .nout = 1,
     .in = {F(3, 5, 4, 7), {.dims = {0, {0}}, .dtype = TSR_I64, .fill = KC_STEP}},
     .out = {F(3, 5, 4, 7)}},
    {.name = "random uniform", .op = TSRI_OP_RANDOM,
     .attrs.random = {7, TSRI_RANDOM_UNIFORM, 0, -2, 3}, .nout = 1, .out = {F(3, 5, 4, 7)}},
    {.name = "random normal", .op = TSRI_OP_RANDOM,
     .attrs.random = {7, TSRI_RANDOM_NORMAL, 0, 1, 2}, .nout = 1, .out = {F(3, 5, 4, 7)}},
    {.name = "fill", .op = TSRI_OP_FILL, .attrs.fill = {3.5}, .nout = 1, .out = {F(3, 5)}},
    {.name = "arange", .op = TSRI_OP_ARANGE, .attrs.arange = {2.5, -0.25}, .nout = 1,
     .out = {F(33)}},
    {.name = "arange shard", .op = TSRI_OP_ARANGE, .attrs.arange = {-7, 3}, .nout = 1,
     .out = {{.dims = D(5), .dtype = TSR_I64, .gshape = {20}, .offset = {11}}}},
    {.name = "constant", .op = TSRI_OP_CONSTANT, .attrs.constant = {0, numbers}, .nout = 1,
     .out = {OF(TSR_F32, 0, 1, 5, 2, 3)}},
    {.name = "constant shard", .op = TSRI_OP_CONSTANT, .attrs.constant = {0, numbers}, .nout = 1,
     .out = {{.dims = D(1, 2, 2, 1), .dtype = TSR_F32, .gshape = {1, 5, 2, 3},
              .offset = {0, 3, 0, 1}}}},
    {.name = "constant i64", .op = TSRI_OP_CONSTANT, .attrs.constant = {0, wholes}, .nout = 1,
     .out = {OF(TSR_I64, 0, 2, 3)}},
    {.name = "one_hot", .op = TSRI_OP_ONE_HOT, .nin = 1, .nout = 1,
     .in = {OF(TSR_I64, KC_FEW, 3, 5, 4)}, .out = {F(3, 5, 4, 6)}},
    {.name = "one_hot bool shard", .op = TSRI_OP_ONE_HOT, .nin = 1, .nout = 1,
     .in = {OF(TSR_I64, KC_FEW, 9)},
     .out = {{.dims = D(9, 2), .dtype = TSR_BOOL, .gshape = {9, 5}, .offset = {0, 1}}}},
    {.name = "reshape", .op = TSRI_OP_RESHAPE, .nin = 1, .nout = 1, .in = {F(3, 4, 2, 5)},
     .out = {F(3, 40)}},
    {.name = "reshape across", .op = TSRI_OP_RESHAPE, .nin = 1, .nout = 1, .in = {F(6, 4, 2, 5)},
     .out = {F(2, 5, 3, 8)}},
    {.name = "permute", .op = TSRI_OP_PERMUTE, .attrs.permute = {{2, 0, 3, 1}}, .nin = 1, .nout = 1,
     .in = {F(3, 4, 2, 5)}, .out = {F(2, 3, 5, 4)}},
    {.name = "copy", .op = TSRI_OP_COPY, .nin = 1, .nout = 1, .in = {F(3, 4, 2, 5)},
     .out = {F(3, 4, 2, 5)}},
    {.name = "assign", .op = TSRI_OP_ASSIGN, .nin = 1, .nout = 1, .in = {OF(TSR_U8, KC_FEW, 13)},
     .out = {OF(TSR_U8, 0, 13)}},

    {.name = "where", .op = TSRI_OP_WHERE, .nin = 3, .nout = 1,
     .in = {OF(TSR_BOOL, KC_BOOL, 3, 5, 4, 7), F(3, 5, 4, 7), F(3, 5, 4, 7)},
     .out = {F(3, 5, 4, 7)}},
    {.name = "where broadcast", .op = TSRI_OP_WHERE, .nin = 3, .nout = 1,
     .in = {OF(TSR_BOOL, KC_BOOL, 5, 1, 7), F(3, 1, 4, 1), F(7)}, .out = {F(3, 5, 4, 7)}},
    {.name = "where i64", .op = TSRI_OP_WHERE, .nin = 3, .nout = 1,
     .in = {OF(TSR_BOOL, KC_BOOL, 33), OF(TSR_I64, KC_FEW, 33), OF(TSR_I64, KC_FEW, 1)},
     .out = {OF(TSR_I64, 0, 33)}},
    {.name = "where bool", .op = TSRI_OP_WHERE, .nin = 3, .nout = 1,
     .in = {OF(TSR_BOOL, KC_BOOL, 33), OF(TSR_BOOL, KC_BOOL, 33), OF(TSR_BOOL, KC_BOOL, 33)},
     .out = {OF(TSR_BOOL, 0, 33)}},
    {.name = "mask keep", .op = TSRI_OP_MASK, .attrs.mask = {1, 0}, .nin = 2, .nout = 1,
     .in = {OF(TSR_BOOL, KC_BOOL, 3, 5, 4, 7), F(3, 5, 4, 7)}, .out = {F(3, 5, 4, 7)}},
    {.name = "mask drop", .op = TSRI_OP_MASK, .attrs.mask = {0, 0}, .nin = 2, .nout = 1,
     .in = {OF(TSR_BOOL, KC_BOOL, 5, 1, 7), F(3, 5, 4, 7)}, .out = {F(3, 5, 4, 7)}},
    {.name = "triangle upper", .op = TSRI_OP_TRIANGLE, .attrs.triangle = {1, 1, 0}, .nin = 1,
     .nout = 1, .in = {F(3, 2, 6, 7)}, .out = {F(3, 2, 6, 7)}},
    {.name = "triangle lower", .op = TSRI_OP_TRIANGLE, .attrs.triangle = {-2, 0, 0}, .nin = 1,
     .nout = 1, .in = {F(9, 4)}, .out = {F(9, 4)}},
    {.name = "triangle shard", .op = TSRI_OP_TRIANGLE, .attrs.triangle = {0, 1, 0}, .nin = 1,
     .nout = 1,
     .in = {{.dims = D(3, 4), .dtype = TSR_I32, .fill = KC_FEW, .gshape = {8, 9},
             .offset = {4, 3}}},
     .out = {{.dims = D(3, 4), .dtype = TSR_I32, .gshape = {8, 9}, .offset = {4, 3}}}},
    {.name = "cumsum last", .op = TSRI_OP_CUMSUM, .attrs.cumsum = {1, 0}, .nin = 1, .nout = 1,
     .in = {F(90, 33)}, .out = {F(90, 33)}},
    {.name = "cumsum reverse", .op = TSRI_OP_CUMSUM, .attrs.cumsum = {1, 1}, .nin = 1, .nout = 1,
     .in = {F(3, 5, 4, 7)}, .out = {F(3, 5, 4, 7)}},
    {.name = "cumsum first", .op = TSRI_OP_CUMSUM, .attrs.cumsum = {0, 0}, .nin = 1, .nout = 1,
     .in = {F(9, 130)}, .out = {F(9, 130)}},
    {.name = "cumsum i32", .op = TSRI_OP_CUMSUM, .attrs.cumsum = {0, 1}, .nin = 1, .nout = 1,
     .in = {OF(TSR_I32, KC_FEW, 33)}, .out = {OF(TSR_I32, 0, 33)}},
    {.name = "concat 1", .op = TSRI_OP_CONCAT, .attrs.cut = {1, 0}, .nin = 3, .nout = 1,
     .in = {F(3, 2, 4, 7), F(3, 0, 4, 7), F(3, 3, 4, 7)}, .out = {F(3, 5, 4, 7)}},
    {.name = "concat last", .op = TSRI_OP_CONCAT, .attrs.cut = {1, 0}, .nin = 2, .nout = 1,
     .in = {OF(TSR_I64, KC_FEW, 5, 3), OF(TSR_I64, KC_FEW, 5, 1)}, .out = {OF(TSR_I64, 0, 5, 4)}},
    {.name = "concat large", .op = TSRI_OP_CONCAT, .attrs.cut = {0, 0}, .nin = 2, .nout = 1,
     .in = {F(300, 300), F(7, 300)}, .out = {F(307, 300)}},
    {.name = "split 2", .op = TSRI_OP_SPLIT, .attrs.cut = {2, 0}, .nin = 1, .nout = 3,
     .in = {F(3, 5, 6, 7)}, .out = {F(3, 5, 1, 7), F(3, 5, 5, 7), F(3, 5, 0, 7)}},
    {.name = "slice 4-D", .op = TSRI_OP_SLICE,
     .attrs.slice = {{1, 0, 1, 0}, {1, 1, 2, 3, 1, 1, 1, 1}, 0}, .nin = 1, .nout = 1,
     .in = {F(3, 5, 4, 7)}, .out = {F(2, 5, 2, 3)}},
    {.name = "slice bool", .op = TSRI_OP_SLICE,
     .attrs.slice = {{3}, {4, 1, 1, 1, 1, 1, 1, 1}, 0}, .nin = 1, .nout = 1,
     .in = {OF(TSR_BOOL, KC_BOOL, 33)}, .out = {OF(TSR_BOOL, 0, 8)}},
    {.name = "pad 4-D", .op = TSRI_OP_PAD,
     .attrs.slice = {{0, 1, 2, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, -1.5}, .nin = 1, .nout = 1,
     .in = {F(3, 5, 4, 3)}, .out = {F(3, 7, 6, 6)}},
    {.name = "pad 0 in steps", .op = TSRI_OP_PAD,
     .attrs.slice = {{1, 0, 1, 0}, {1, 1, 2, 3, 1, 1, 1, 1}, 0}, .nin = 1, .nout = 1,
     .in = {F(2, 5, 2, 3)}, .out = {F(3, 5, 4, 7)}},
    {.name = "pad large", .op = TSRI_OP_PAD,
     .attrs.slice = {{1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, 2.5}, .nin = 1, .nout = 1,
     .in = {F(300, 300)}, .out = {F(302, 301)}},
    {.name = "pad i32", .op = TSRI_OP_PAD,
     .attrs.slice = {{2}, {1, 1, 1, 1, 1, 1, 1, 1}, -7}, .nin = 1, .nout = 1,
     .in = {OF(TSR_I32, KC_FEW, 5)}, .out = {OF(TSR_I32, 0, 8)}},
    GATHER("rows", 0, 0, 0, D(5, 7), D(9), D(9, 7)),
    GATHER("rows wide", 0, 0, 0, D(6, 300), D(40, 3), D(40, 3, 300)),
    GATHER("middle", 1, 0, 0, D(3, 4, 5), D(2, 3), D(3, 2, 3, 5)),
    GATHER("last", 2, 0, 0, D(3, 2, 6), D(7), D(3, 2, 7)),
    GATHER("4-D", 1, 0, 0, D(3, 5, 4, 7), D(6), D(3, 6, 4, 7)),
    {.name = "gather whole numbers", .op = TSRI_OP_GATHER, .nin = 2, .nout = 1,
     .in = {OF(TSR_I64, KC_FEW, 5, 3), OF(TSR_I64, KC_FEW, 4)}, .out = {OF(TSR_I64, 0, 4, 3)}},
    {.name = "gather_dx padding", .op = TSRI_OP_GATHER_DX, .attrs.gather = {0, 1, 2}, .nin = 2,
     .nout = 1, .in = {OF(TSR_I64, KC_FEW, 20), F(20, 7)}, .out = {F(5, 7)}},

    {.name = "sgd plain", .op = TSRI_OP_SGD, .attrs.sgd = {0, 0, 0.01, 0, 0}, .nin = 3, .nout = 1,
     .in = {F(70, 3), F(70, 3), OF(TSR_F64, KC_HYPER, 8)}, .out = {F(70, 3)}, .in_place = 1},
    SGD("first", KC_HYPER_FIRST, 0.9, 0.1, 0.01, 0, 0),
    SGD("momentum", KC_HYPER, 0.9, 0.1, 0.01, 0, 0),
    SGD("nesterov", KC_HYPER, 0.9, 0, 0.01, 1, 0),
    ADAM("plain", KC_HYPER, 0.01, 0, 0),
    ADAM("first", KC_HYPER_FIRST, 0, 0, 0),
    ADAM("adamw", KC_HYPER, 0.01, 1, 0),

    UNARY("gelu", TSRI_UNARY_GELU, KC_SPREAD, 0),
    UNARY("gelu negative", TSRI_UNARY_GELU, KC_NEGATIVE, 0),
    UNARY("gelu_tanh", TSRI_UNARY_GELU_TANH, KC_SPREAD, 0),
    UNARY("gelu_tanh negative", TSRI_UNARY_GELU_TANH, KC_NEGATIVE, 0),
    LAYERS("", 1, 37, (3, 5), (37)),
    LAYERS("2 axes", 2, 15, (4, 3), (5, 3)),
    LAYERS("one feature", 1, 1, (6), (1)),
    LAYERS("part of a row", 1, 90, (70), (33)),
    LAYERS("long rows", 1, 1030, (67), (1030)),
    {.name = "softmax_max", .op = TSRI_OP_SOFTMAX_MAX,
     .attrs.reduce = {TSR_REDUCE_MAX, 2, 1, 0, 1}, .nin = 1, .nout = 1, .in = {F(4, 6, 5)},
     .out = {F(4, 1, 5)}},
    SOFTMAX_PARTS("last", 2, 0, KC_POSITIVE, 4, 6, 1),
    SOFTMAX_PARTS("middle", 1, 0, KC_POSITIVE, 4, 1, 5),
    SOFTMAX_PARTS("log", 0, 1, KC_NEGATIVE, 1, 6, 5),
    CE_PARTS("whole", 7, 7, 0, .smoothing = 0),
    CE_PARTS("from 3", 4, 11, 3, .smoothing = 0),
    CE_PARTS("smooth from 3", 4, 11, 3, .smoothing = 0.1),
    CE_PARTS("ignored from 5", 2, 7, 5, .smoothing = 0.1, .has_ignore = 1, .ignore_index = 2),
    CE_PARTS("none", 0, 7, 7, .smoothing = 0),
    {.name = "causal_mask", .op = TSRI_OP_CAUSAL_MASK, .attrs.mask_above = {0, -7}, .nin = 1,
     .nout = 1, .in = {F(2, 3, 5, 6)}, .out = {F(2, 3, 5, 6)}},
    {.name = "causal_mask up", .op = TSRI_OP_CAUSAL_MASK, .attrs.mask_above = {3, 0}, .nin = 1,
     .nout = 1, .in = {F(5, 9)}, .out = {F(5, 9)}},
    {.name = "causal_mask shard", .op = TSRI_OP_CAUSAL_MASK, .attrs.mask_above = {-2, 5}, .nin = 1,
     .nout = 1, .in = {{.dims = D(2, 4, 33), .gshape = {2, 30, 50}, .offset = {0, 20, 7}}},
     .out = {{.dims = D(2, 4, 33), .gshape = {2, 30, 50}, .offset = {0, 20, 7}}}},
    {.name = "softmax rows", .op = TSRI_OP_SOFTMAX, .attrs.softmax = {1, 0}, .nin = 1, .nout = 1,
     .in = {FILLED(KC_SPREAD, 29, 1207)}, .out = {F(29, 1207)}},
    {.name = "softmax_dx wide rows", .op = TSRI_OP_SOFTMAX_DX, .attrs.softmax = {1, 0}, .nin = 2,
     .nout = 1, .in = {FILLED(KC_POSITIVE, 29, 1207), F(29, 1207)}, .out = {F(29, 1207)}},
    {.name = "softmax log rows", .op = TSRI_OP_SOFTMAX, .attrs.softmax = {1, 1}, .nin = 1,
     .nout = 1, .in = {FILLED(KC_SPREAD, 29, 1207)}, .out = {F(29, 1207)}},
    {.name = "softmax_dx log wide rows", .op = TSRI_OP_SOFTMAX_DX, .attrs.softmax = {1, 1},
     .nin = 2, .nout = 1, .in = {FILLED(KC_NEGATIVE, 29, 1207), F(29, 1207)}, .out = {F(29, 1207)}},
    BATCH("", 0, 0, .in = {F(5, 7, 9), F(5, 9, 11)}, .out = {F(5, 7, 11)}),
    BATCH("ta", 1, 0, .in = {F(2, 3, 9, 7), F(2, 3, 9, 11)}, .out = {F(2, 3, 7, 11)}),
    BATCH("tb", 0, 1, .in = {F(2, 3, 7, 9), F(2, 3, 11, 9)}, .out = {F(2, 3, 7, 11)}),
    BATCH("ta tb", 1, 1, .in = {F(5, 9, 7), F(5, 11, 9)}, .out = {F(5, 7, 11)}),
    BATCH("broadcast", 0, 0, .in = {F(2, 1, 7, 9), F(3, 9, 11)}, .out = {F(2, 3, 7, 11)}),
    BATCH("one b", 0, 1, .in = {F(3, 4, 7, 9), F(11, 9)}, .out = {F(3, 4, 7, 11)}),
    BATCH("one b, ta", 1, 0, .in = {F(3, 9, 7), F(1, 9, 11)}, .out = {F(3, 7, 11)}),
    BATCH("one a", 0, 0, .in = {F(7, 9), F(3, 9, 11)}, .out = {F(3, 7, 11)}),
    BATCH("single", 0, 0, .in = {F(1, 1, 1), F(4, 1, 1)}, .out = {F(4, 1, 1)}),
    BATCH("blocks", 0, 1, .in = {F(2, 67, 201), F(2, 205, 201)}, .out = {F(2, 67, 205)}),
    BATCH("blocks ta", 1, 0, .in = {F(9, 130, 65), F(9, 130, 50)}, .out = {F(9, 65, 50)}),
    BATCH("no batch", 0, 0, .in = {F(0, 7, 9), F(1, 9, 11)}, .out = {F(0, 7, 11)}),
    BATCH("no rows", 0, 0, .in = {F(2, 0, 9), F(2, 9, 11)}, .out = {F(2, 0, 11)}),
    BATCH("no terms", 0, 0, .in = {F(2, 7, 0), F(2, 0, 11)}, .out = {F(2, 7, 11)}),
};
const int kernel_cases_count = (int)(sizeof kernel_cases / sizeof *kernel_cases);

const kernel_case *kernel_case_find(const char *name)
{
    for (int i = 0; i < kernel_cases_count; i++)
        if (!strcmp(kernel_cases[i].name, name))
            return &kernel_cases[i];
    return NULL;
}
