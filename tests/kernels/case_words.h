/* SPDX-License-Identifier: Apache-2.0 */
/* What the table of cases is written with: a macro per family of ops. */
#ifndef TESSERA_TESTS_KERNELS_CASE_WORDS_H
#define TESSERA_TESTS_KERNELS_CASE_WORDS_H

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

#define KC_ANY KC_SPREAD
#define KC_TAME KC_UNIFORM
#define UNARY_OF(T, FN, name, arity, p, q, from, ...)                                              \
    UNARY(#name, TSRI_UNARY_##FN, KC_##from, p, q),
#define UNARY(text, fn_, how, a_, b_)                                                              \
    {.name = "unary " text, .op = TSRI_OP_UNARY, .attrs.unary = {fn_, 0, a_, b_}, .nin = 1,        \
     .nout = 1, .in = {FILLED(how, 3, 5, 2, 7)}, .out = {F(3, 5, 2, 7)}},                          \
    {.name = "unary_grad " text, .op = TSRI_OP_UNARY_GRAD, .attrs.unary = {fn_, 0, a_, b_},        \
     .nin = 2, .nout = 1, .in = {FILLED(how, 3, 5, 2, 7), F(3, 5, 2, 7)}, .out = {F(3, 5, 2, 7)}}
#define BINARY(text, fn_, how)                                                                     \
    {.name = "binary " text, .op = TSRI_OP_BINARY, .attrs.binary = {fn_, 0}, .nin = 2, .nout = 1,  \
     .in = {FILLED(how, 3, 5, 4, 7), FILLED(how, 3, 5, 4, 7)}, .out = {F(3, 5, 4, 7)}},            \
    {.name = "binary broadcast " text, .op = TSRI_OP_BINARY, .attrs.binary = {fn_, 0}, .nin = 2,   \
     .nout = 1, .in = {FILLED(how, 3, 5, 4, 7), FILLED(how, 5, 1, 7)}, .out = {F(3, 5, 4, 7)}}

#define WHOLES(text, fn_, dtype, how)                                                              \
    {.name = "binary whole " text, .op = TSRI_OP_BINARY, .attrs.binary = {fn_, 0}, .nin = 2,       \
     .nout = 1, .in = {OF(dtype, how, 5, 33), OF(dtype, how, 33)},                           \
     .out = {OF(dtype, 0, 5, 33)}}

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

/* Depthwise, larger: without what finite differences would take long for. */
#define DEPTHWISE(text, N, C, H, W, OH, OW, s, p)                                                  \
    {.name = "conv2d " text, .op = TSRI_OP_CONV2D, CONV(3, 3, s, s, p, p, 1, 1, C), .nin = 3,      \
     .nout = 1, .in = {F(N, C, H, W), F(C, 1, 3, 3), F(C)}, .out = {F(N, C, OH, OW)}},             \
    {.name = "conv2d_dx " text, .op = TSRI_OP_CONV2D_DX, CONV(3, 3, s, s, p, p, 1, 1, C),          \
     .nin = 2, .nout = 1, .in = {F(N, C, OH, OW), F(C, 1, 3, 3)}, .out = {F(N, C, H, W)}},         \
    {.name = "conv2d_dw " text, .op = TSRI_OP_CONV2D_DW, CONV(3, 3, s, s, p, p, 1, 1, C),          \
     .nin = 2, .nout = 1, .in = {F(N, C, H, W), F(N, C, OH, OW)}, .out = {F(C, 1, 3, 3)}}

/* Batch norm of one shape: all its parts. */
#define NORMS(text, N, C, R, act_, spatial_, ...)                                                  \
    {.name = "bn_stats " text, .op = TSRI_OP_BN_STATS, BN(N, spatial_, R, 0), .nin = 1, .nout = 1, \
     .in = {F(__VA_ARGS__)}, .out = {OF(TSR_F64, 0, R, 2, C)}},                                    \
    {.name = "bn_center " text, .op = TSRI_OP_BN_CENTER, BN(N, spatial_, R, 0), .nin = 2,          \
     .nout = 1, .in = {F(__VA_ARGS__), OF(TSR_F64, KC_STATS, R, 2, C)}, .out = {F(__VA_ARGS__)}},  \
    {.name = "bn_apply " text, .op = TSRI_OP_BN_APPLY, BN(N, spatial_, R, 0), .nin = 4, .nout = 1,\
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

#define SAMPLES(how)                                                                               \
    {.dims = D(3, 8, 2, 3), .fill = how, .gshape = {10, 8, 2, 3}, .offset = {5, 0, 0, 0}}
#define BATCHES(how)                                                                               \
    {.dims = D(2, 2, 8), .dtype = TSR_F64, .fill = how, .gshape = {3, 2, 8}, .offset = {1, 0, 0}}

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

/* Of one shape to another, each in R( ). */
#define R(...) __VA_ARGS__
/* A product over axes, and its gradient, whose dy has those axes with size 1. */
#define PROD(text, axes_, keep, fill_, x_, y_)                                                     \
    {.name = "prod " text, .op = TSRI_OP_PROD,                                                     \
     .attrs.reduce = {TSR_REDUCE_PRODUCT, axes_, keep, 0, 0}, .nin = 1, .nout = 1,                 \
     .in = {FILLED(fill_, x_)}, .out = {F(y_)}}
#define PROD_DX(text, axes_, fill_, x_, y_)                                                        \
    {.name = "prod_dx " text, .op = TSRI_OP_PROD_DX,                                               \
     .attrs.reduce = {TSR_REDUCE_PRODUCT, axes_, 1, 0, 0}, .nin = 2, .nout = 1,                    \
     .in = {FILLED(fill_, x_), F(y_)}, .out = {F(x_)}}

#define REDUCED(text, op_, axes_, scale_, x_, y_)                                                  \
    {.name = "reduce " text, .op = TSRI_OP_REDUCE, .attrs.reduce = {op_, axes_, 0, 0, scale_},     \
     .nin = 1, .nout = 1, .in = {F(x_)}, .out = {F(y_)}}

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
     .out = {F(9), F(9), F(9, 2)}},                                                                \
    {.name = "ce_dx part " text, .op = TSRI_OP_CE_DX, .attrs.ce = {__VA_ARGS__, .classes = c_},    \
     .nin = 4, .nout = 1,                                                                          \
     .in = {OF_CLASSES(KC_UNIFORM, n_, c_, at_), OF(TSR_I64, KC_CLASS, 9),                         \
            FILLED(KC_POSITIVE, 9, 2), F(9)},                                                      \
     .out = {OF_CLASSES(0, n_, c_, at_)}}

#define CE(text, ...)                                                                              \
    {.name = "ce " text, .op = TSRI_OP_CE, .attrs.ce = {__VA_ARGS__}, .nin = 2, .nout = 3,         \
     .in = {FILLED(KC_SPREAD, 9, 7), OF(TSR_I64, KC_LABEL, 9)}, .out = {F(9), F(9), F(9, 2)}},     \
    {.name = "ce_dx " text, .op = TSRI_OP_CE_DX, .attrs.ce = {__VA_ARGS__}, .nin = 4, .nout = 1,   \
     .in = {FILLED(KC_SPREAD, 9, 7), OF(TSR_I64, KC_LABEL, 9), FILLED(KC_LSE, 9, 2), F(9)},        \
     .out = {F(9, 7)}}

/* Rows of some length. Names of the gradients differ, so that no test takes differences of them. */
#define CE_ROWS(text, n_, c_, ...)                                                                 \
    {.name = "ce " text, .op = TSRI_OP_CE, .attrs.ce = {__VA_ARGS__}, .nin = 2, .nout = 3,         \
     .in = {FILLED(KC_SPREAD, n_, c_), OF(TSR_I64, KC_LABEL, n_)},                                 \
     .out = {F(n_), F(n_), F(n_, 2)}},                                                             \
    {.name = "ce_dx rows " text, .op = TSRI_OP_CE_DX, .attrs.ce = {__VA_ARGS__}, .nin = 4,         \
     .nout = 1, \
     .in = {FILLED(KC_SPREAD, n_, c_), OF(TSR_I64, KC_LABEL, n_), FILLED(KC_LSE, n_, 2), F(n_)},   \
     .out = {F(n_, c_)}}
#define SOFTMAX_ROWS(text, n_, c_)                                                                 \
    {.name = "softmax rows " text, .op = TSRI_OP_SOFTMAX, .attrs.softmax = {1, 0}, .nin = 1,       \
     .nout = 1, .in = {FILLED(KC_SPREAD, n_, c_)}, .out = {F(n_, c_)}},                            \
    {.name = "softmax_dx wide rows " text, .op = TSRI_OP_SOFTMAX_DX, .attrs.softmax = {1, 0}, \
     .nin = 2, .nout = 1, .in = {FILLED(KC_POSITIVE, n_, c_), F(n_, c_)}, .out = {F(n_, c_)}}

#define SOFTMAX(text, axis_, log_, how)                                                            \
    {.name = "softmax " text, .op = TSRI_OP_SOFTMAX, .attrs.softmax = {axis_, log_}, .nin = 1,     \
     .nout = 1, .in = {FILLED(KC_SPREAD, 4, 6, 5)}, .out = {F(4, 6, 5)}},                          \
    {.name = "softmax_dx " text, .op = TSRI_OP_SOFTMAX_DX, .attrs.softmax = {axis_, log_},         \
     .nin = 2, .nout = 1, .in = {FILLED(how, 4, 6, 5), F(4, 6, 5)}, .out = {F(4, 6, 5)}}

/* Optimizers' updates with all their numbers, with the fewest, and skipped. UPDATE0 to UPDATE3: by
 * how many states there are, whose bits are `has`; the first may be a sum of squares. */
#define HYPER(how) OF(TSR_F64, how, TSRI_HYPER_COUNT)
#define UPDATE0(KIND, text, how)                                                                   \
    {.name = text, .op = TSRI_OP_##KIND, .nin = 3, .nout = 1,                                      \
     .in = {F(70, 3), F(70, 3), HYPER(how)}, .out = {F(70, 3)}, .in_place = 1}
#define UPDATE1(KIND, text, how, filled)                                                           \
    {.name = text, .op = TSRI_OP_##KIND, .attrs.update = {1, 0}, .nin = 4, .nout = 2,              \
     .in = {F(70, 3), FILLED(filled, 70, 3), F(70, 3), HYPER(how)}, .out = {F(70, 3), F(70, 3)},   \
     .in_place = 1}
#define UPDATE2(KIND, text, how, has, first, second)                                               \
    {.name = text, .op = TSRI_OP_##KIND, .attrs.update = {has, 0}, .nin = 5, .nout = 3,            \
     .in = {F(70, 3), FILLED(first, 70, 3), FILLED(second, 70, 3), F(70, 3), HYPER(how)},          \
     .out = {F(70, 3), F(70, 3), F(70, 3)}, .in_place = 1}
#define UPDATE3(KIND, text, how)                                                                   \
    {.name = text, .op = TSRI_OP_##KIND, .attrs.update = {7, 0}, .nin = 6, .nout = 4,              \
     .in = {F(70, 3), FILLED(KC_BIG, 70, 3), F(70, 3), F(70, 3), F(70, 3), HYPER(how)},            \
     .out = {F(70, 3), F(70, 3), F(70, 3), F(70, 3)}, .in_place = 1}

/* A gather and its gradient; ids are 0..3. */
#define RESIZED(what, kind, a, h, from, to) \
    {.name = what, .op = TSRI_OP_##kind, .attrs.resize = {a, TSRI_RESIZE_##h}, .nin = 1, \
     .nout = 1, .in = {F from}, .out = {F to}}
#define GATHER(text, axis_, has_pad_, pad_, X, IDS, Y)                                             \
    {.name = "index_select " text, .op = TSRI_OP_INDEX_SELECT,                                     \
     .attrs.gather = {axis_, has_pad_, pad_},                                                      \
     .nin = 2, .nout = 1, .in = {{.dims = X}, {.dims = IDS, .dtype = TSR_I64, .fill = KC_FEW}},    \
     .out = {{.dims = Y}}},                                                                        \
    {.name = "index_select_dx " text, .op = TSRI_OP_INDEX_SELECT_DX,                               \
     .attrs.gather = {axis_, has_pad_, pad_},                                                      \
     .nin = 2, .nout = 1, .in = {{.dims = IDS, .dtype = TSR_I64, .fill = KC_FEW}, {.dims = Y}},    \
     .out = {{.dims = X}}}
/* Attention of b_ samples and h_ heads; a mask of the size M_. */
#define QKV(b_, h_, s_, t_, d_, e_) F(b_, h_, s_, d_), F(b_, h_, t_, d_), F(b_, h_, t_, e_)
#define LSE(how, b_, h_, s_) OF(TSR_F64, how, b_, h_, s_)
#define FLASH(text, b_, h_, s_, t_, d_, e_, causal_, scale_)                                       \
    {.name = "flash_attention " text, .op = TSRI_OP_FLASH_ATTENTION,                               \
     .attrs.attention = {scale_, causal_, 0}, .nin = 3, .nout = 2,                                 \
     .in = {QKV(b_, h_, s_, t_, d_, e_)}, .out = {F(b_, h_, s_, e_), LSE(0, b_, h_, s_)}},         \
    {.name = "flash_attention_dx " text, .op = TSRI_OP_FLASH_ATTENTION_DX,                         \
     .attrs.attention = {scale_, causal_, 0}, .nin = 6, .nout = 3,                                 \
     .in = {QKV(b_, h_, s_, t_, d_, e_), F(b_, h_, s_, e_), LSE(KC_ABOVE, b_, h_, s_),             \
            F(b_, h_, s_, e_)},                                                                    \
     .out = {QKV(b_, h_, s_, t_, d_, e_)}}
#define FLASH_MASKED(text, b_, h_, s_, t_, d_, e_, causal_, scale_, M_)                            \
    {.name = "flash_masked " text, .op = TSRI_OP_FLASH_ATTENTION,                                  \
     .attrs.attention = {scale_, causal_, 1}, .nin = 4, .nout = 2,                                 \
     .in = {QKV(b_, h_, s_, t_, d_, e_), F(M_)}, .out = {F(b_, h_, s_, e_), LSE(0, b_, h_, s_)}},  \
    {.name = "flash_masked_dx " text, .op = TSRI_OP_FLASH_ATTENTION_DX,                            \
     .attrs.attention = {scale_, causal_, 1}, .nin = 7, .nout = 3,                                 \
     .in = {QKV(b_, h_, s_, t_, d_, e_), F(M_), F(b_, h_, s_, e_), LSE(KC_ABOVE, b_, h_, s_),      \
            F(b_, h_, s_, e_)},                                                                    \
     .out = {QKV(b_, h_, s_, t_, d_, e_)}}

/* Steps of a recurrent layer: cell_ without TSRI_CELL_, of `g_` gates. MORE_IN, MORE_OUT: operands
 * behind w and results behind y; SAVED, MORE_DX: those of the gradient between w and dy, and behind
 * dh0. */
#define STATES(...) __VA_ARGS__
#define RECURRENT(text, cell_, g_, reverse_, t_, n_, h_, nin_, nout_, MORE_IN, MORE_OUT, ndx_,     \
                  ndout_, SAVED, MORE_DX)                                                          \
    {.name = "recurrent " text, .op = TSRI_OP_RECURRENT,                                           \
     .attrs.recurrent = {TSRI_CELL_##cell_, reverse_, 0, 0}, .nin = nin_, .nout = nout_,           \
     .in = {F(t_, n_, (g_) * (h_)), F((g_) * (h_), h_), MORE_IN},                                  \
     .out = {F(t_, n_, h_), MORE_OUT}},                                                            \
    {.name = "recurrent_dx " text, .op = TSRI_OP_RECURRENT_DX,                                     \
     .attrs.recurrent = {TSRI_CELL_##cell_, reverse_, 0, 0}, .nin = ndx_, .nout = ndout_,          \
     .in = {F((g_) * (h_), h_), SAVED, F(t_, n_, h_)},                                             \
     .out = {F(t_, n_, (g_) * (h_)), F(n_, h_), MORE_DX}}
#define LSTM(text, reverse_, t_, n_, h_)                                                           \
    RECURRENT("lstm " text, LSTM, 4, reverse_, t_, n_, h_, 4, 3, STATES(F(n_, h_), F(n_, h_)),     \
              STATES(F(t_, n_, h_), F(t_, n_, 4 * (h_))), 5, 3,                                    \
              STATES(F(n_, h_), F(t_, n_, h_), FILLED(KC_INSIDE, t_, n_, 4 * (h_))), F(n_, h_))
#define GRU(text, reverse_, t_, n_, h_)                                                            \
    RECURRENT("gru " text, GRU, 3, reverse_, t_, n_, h_, 3, 2, F(n_, h_), F(t_, n_, 4 * (h_)), 5,  \
              3, STATES(F(n_, h_), F(t_, n_, h_), FILLED(KC_INSIDE, t_, n_, 4 * (h_))),            \
              F(t_, n_, 3 * (h_)))
#define RNN(text, cell_, reverse_, t_, n_, h_)                                                     \
    RECURRENT(text, cell_, 1, reverse_, t_, n_, h_, 3, 1, F(n_, h_), {.dims = D(0)}, 3, 2,         \
              FILLED(KC_INSIDE, t_, n_, h_), {.dims = D(0)})

/* Along an axis of lines: fn_ without TSRI_SCAN_. */
#define SCAN(text, axis_, fn_, how, ...)                                                           \
    {.name = "scan " text, .op = TSRI_OP_SCAN, .attrs.scan = {axis_, TSRI_SCAN_##fn_}, .nin = 1,   \
     .nout = 1, .in = {FILLED(how, __VA_ARGS__)}, .out = {F(__VA_ARGS__)}},                        \
    {.name = "scan_dx " text, .op = TSRI_OP_SCAN_DX, .attrs.scan = {axis_, TSRI_SCAN_##fn_},       \
     .nin = 3, .nout = 1, .in = {FILLED(how, __VA_ARGS__), F(__VA_ARGS__), F(__VA_ARGS__)},        \
     .out = {F(__VA_ARGS__)}}
#define ARGSCAN(text, axis_, fn_, in_, ...)                                                        \
    {.name = "argscan " text, .op = TSRI_OP_ARGSCAN, .attrs.scan = {axis_, TSRI_SCAN_##fn_},       \
     .nin = 1, .nout = 1, .in = {in_}, .out = {OF(TSR_I64, 0, __VA_ARGS__)}}
#define ARGSORT(text, axis_, down, in_, ...)                                                       \
    {.name = "argsort " text, .op = TSRI_OP_ARGSORT, .attrs.sort = {axis_, down}, .nin = 1,        \
     .nout = 1, .in = {in_}, .out = {OF(TSR_I64, 0, __VA_ARGS__)}}

/* Cases of ops whose ids differ from line to line. */
#define LINES(text, axis_, X, Y)                                                                   \
    {.name = "gather " text, .op = TSRI_OP_GATHER, .attrs.gather = {axis_, 0, 0}, .nin = 2,        \
     .nout = 1, .in = {{.dims = X}, {.dims = Y, .dtype = TSR_I64, .fill = KC_FEW}},                \
     .out = {{.dims = Y}}},                                                                        \
    {.name = "gather_dx " text, .op = TSRI_OP_GATHER_DX, .attrs.gather = {axis_, 0, 0}, .nin = 2,  \
     .nout = 1, .in = {{.dims = Y, .dtype = TSR_I64, .fill = KC_FEW}, {.dims = Y}},                \
     .out = {{.dims = X}}}

/* Parts in time: a shard S of G from O on, the number of a part, rows of a part X that are taken
 * from a whole Y and written into it, and totals; op_ without TSR_REDUCE_. kc_holds explains the
 * last operand. */
#define SHARD(type, how, S, G, O)                                                                  \
    {.dims = D S, .dtype = type, .fill = how, .gshape = {R G}, .offset = {R O}}
#define PART_NO(m_) {.dims = {0, {0}}, .dtype = TSR_I64, .fill = KC_PART_##m_}
#define ROWS(text, m_, axis_, k_, d_, X, Y)                                                        \
    {.name = "part " text, .op = TSRI_OP_PART, .attrs.part = {axis_, k_, d_}, .nin = 2,            \
     .nout = 1, .in = {Y, PART_NO(m_)}, .out = {X}},                                               \
    {.name = "whole " text, .op = TSRI_OP_WHOLE, .attrs.part = {axis_, k_, d_}, .nin = 3,          \
     .nout = 1, .in = {X, PART_NO(m_), Y}, .out = {Y}, .in_place = 3}
#define TOTAL(text, m_, op_, X, Y)                                                                 \
    {.name = "total " text, .op = TSRI_OP_TOTAL, .attrs.total = {TSR_REDUCE_##op_, 0}, .nin = 3,   \
     .nout = 1, .in = {X, PART_NO(m_), Y}, .out = {Y}, .in_place = 3}
#define DROPOUT_PART(text, m_, axis_, k_, d_, X)                                                   \
    {.name = "dropout part " text, .op = TSRI_OP_DROPOUT,                                          \
     .attrs.dropout = {42, 0.3, axis_, k_, d_}, .nin = 3, .nout = 1,                               \
     .in = {X, {.dims = {0, {0}}, .dtype = TSR_I64, .fill = KC_STEP}, PART_NO(m_)}, .out = {X}}

/* Layer norm: all its parts. r_ and f_: axes of the rows and of the features, in ( ). */
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

/* Cases of layer norm whose gamma and beta have the shape p_, which broadcasts to x: x has two axes
 * of rows, r_, and two of features, f_. */
#define GROUPS(text, n_, r_, f_, p_)                                                               \
    LN_CASE("ln_apply groups " text, TSRI_OP_LN_APPLY, 2, n_, 1, 1, 4, 1,                          \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R p_), F(R p_)},                      \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_apply groups beta " text, TSRI_OP_LN_APPLY, 2, n_, 0, 1, 3, 1,                     \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R p_)},                               \
        .out = {LN_DATA(r_, f_)}),                                                                 \
    LN_CASE("ln_bwd_stats groups " text, TSRI_OP_LN_BWD_STATS, 2, n_, 1, 1, 4, 1,                  \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R p_), LN_DATA(r_, f_)},              \
        .out = {LN_SUMS(0, r_)}),                                                                  \
    LN_CASE("ln_bwd_apply groups " text, TSRI_OP_LN_BWD_APPLY, 2, n_, 1, 1, 5, 1,                  \
        .in = {LN_DATA(r_, f_), LN_SUMS(KC_ROW_STATS, r_), F(R p_), LN_DATA(r_, f_),               \
               LN_SUMS(0, r_)},                                                                    \
        .out = {LN_DATA(r_, f_)})
/* clang-format on */

#endif
