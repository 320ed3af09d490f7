/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose programs, settings or optimizers differ in one thing: all are told which, and what it
 * is on two ranks that differ, before any data moves. */
#include "rank.h"

/* What a case declares on, with `odd` 1 on rank 1 alone. */
typedef struct declared {
    tsr_graph *g;
    const tsr_placement *p;
    tsr_tensor *x, *m, *ids; /* f32 (4,4,8,8), f32 (4,4), i64 (4) */
    tsr_tensor *w, *v;       /* f32 (4,2,3,3), f32 (4) */
    int odd;
} declared;

typedef tsr_tensor *declare_fn(const declared *c);
typedef struct difference {
    declare_fn *declare;
    const char *text;
} difference;

/* --- ops: each attribute by itself ------------------------------------------------------------ */
#define CASE(name, expr)                       \
    static tsr_tensor *name(const declared *c) \
    {                                          \
        const int o = c->odd;                  \
        (void)o;                               \
        return expr;                           \
    }
CASE(unary_fn, o ? tsr_exp(c->m) : tsr_tanh(c->m))
CASE(unary_a, tsr_pow_scalar(c->m, 2 + o))
CASE(unary_add, tsr_add_scalar(c->m, 0.1 + o))
CASE(scale, tsr_mul_scalar(c->m, 2 + o))
CASE(binary_fn, o ? tsr_sub(c->m, c->m) : tsr_mul(c->m, c->m))
CASE(reduce_axes, tsr_sum(c->m, o ? TSR_AXES(1) : TSR_AXES(0), false))
CASE(reduce_factor, o ? tsr_mean(c->m, TSR_AXES(1), true) : tsr_sum(c->m, TSR_AXES(1), true))
CASE(reduce_op, o ? tsr_max(c->m, TSR_AXES(1), true) : tsr_min(c->m, TSR_AXES(1), true))
CASE(matmul_t, tsr_matmul_t(c->m, c->m, false, o))
CASE(softmax_axis, tsr_softmax(c->m, o))
CASE(softmax_log, o ? tsr_log_softmax(c->m, 1) : tsr_softmax(c->m, 1))
CASE(argmax_axis, tsr_argmax(c->m, o))
CASE(cumsum_axis, tsr_cumsum(c->m, o))
CASE(conv_stride, tsr_conv2d(c->x, c->w, NULL,
                             TSR_CONV2D_OPTS(.stride = {1 + o, 1}, .padding = {3, 1}, .groups = 2)))
CASE(conv_pad, tsr_conv2d(c->x, c->w, NULL, TSR_CONV2D_OPTS(.padding = {1 + o, 1}, .groups = 2)))
CASE(conv_dilation,
     tsr_conv2d(c->x, c->w, NULL, TSR_CONV2D_OPTS(.dilation = {1, 1 + o}, .groups = 2)))
CASE(pool_stride, tsr_max_pool2d(c->x, TSR_POOL2D_OPTS(.kernel = {2, 2}, .stride = {1 + o, 1 + o})))
CASE(pool_kernel, tsr_avg_pool2d(c->x, TSR_POOL2D_OPTS(.kernel = {2 + o, 2}, .stride = {2, 2},
                                                       .padding = {1, 1})))
CASE(pool_count, tsr_avg_pool2d(c->x, TSR_POOL2D_OPTS(.kernel = {2, 2}, .padding = {1, 1},
                                                      .count_include_pad = !o)))
CASE(bn_eps, tsr_batch_norm(c->x, c->v, c->v, c->v, c->v, TSR_BATCH_NORM_OPTS(.eps = 1e-5 + o)))
CASE(ln_eps, tsr_layer_norm(c->m, c->v, c->v, TSR_LAYER_NORM_OPTS(.eps = 1e-5 + o)))
CASE(ce_smoothing,
     tsr_cross_entropy_with(c->m, c->ids, TSR_CROSS_ENTROPY_OPTS(.label_smoothing = 0.1 + o / 8.)))
CASE(ce_ignore, tsr_cross_entropy_with(c->m, c->ids,
                                       TSR_CROSS_ENTROPY_OPTS(.has_ignore_index = true,
                                                              .ignore_index = 1 + o)))
CASE(causal, tsr_causal_mask(c->m, o, -1))
CASE(causal_value, tsr_causal_mask(c->m, 0, -1 - o))
CASE(dropout_p, tsr_dropout(c->m, o ? 0.5 : 0.25))
CASE(uniform_b, tsr_uniform(c->g, "u", TSR_F32, TSR_DIMS(4), c->p, TSR_B, 0, 1 + o))
CASE(uniform_name, tsr_uniform(c->g, o ? "u" : "v", TSR_F32, TSR_DIMS(4), c->p, TSR_B, 0, 1))
CASE(full_value, tsr_full(c->g, TSR_F32, TSR_DIMS(4), c->p, TSR_B, 7 + o))
CASE(arange_step, tsr_arange(c->g, TSR_F32, 4, 0, 1 + o, c->p, TSR_B))
CASE(permute_order, tsr_permute(c->x, o ? TSR_AXES(0, 1, 3, 2) : TSR_AXES(1, 0, 2, 3)))
CASE(concat_axis, tsr_concat(2, (tsr_tensor *const[]){c->m, c->m}, o))
CASE(slice_start, tsr_narrow(c->m, 0, o, 2))
CASE(pad_value, tsr_pad(c->m, TSR_DIMS(1, 1), TSR_DIMS(0, 0), 1 + o))
CASE(triu_diagonal, tsr_triu(c->m, o))
CASE(triu_or_tril, o ? tsr_tril(c->m, 0) : tsr_triu(c->m, 0))
CASE(gather_axis, tsr_index_select(c->m, o, c->ids))
CASE(padding_idx,
     tsr_embedding(c->m, c->ids, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = 1 + o)))
CASE(to_global, tsr_to_global(c->m, c->p, o ? TSR_B : TSR_S(0)))
CASE(operand, o ? tsr_add(c->m, c->m) : tsr_add(c->m, tsr_tensor_ok(c->v) ? c->v : c->m))
CASE(cast, tsr_cast(c->m, o ? TSR_F64 : TSR_BF16))

static const difference ops[] = {
    {unary_fn, "function is tanh on rank 0 and exp on rank 1"},
    {unary_a, "a is 2 on rank 0 and 3 on rank 1"},
    {unary_add, "a is 0.1 on rank 0 and 1.1 on rank 1"},
    {scale, "factor is 2 on rank 0 and 3 on rank 1"},
    {binary_fn, "function is mul on rank 0 and sub on rank 1"},
    {reduce_axes, "axes is 0x1 on rank 0 and 0x2 on rank 1"},
    {reduce_factor, "factor is 1 on rank 0 and 0.25 on rank 1"},
    {reduce_op, "reduction is "},
    {matmul_t, "transpose_b is 0 on rank 0 and 1 on rank 1"},
    {softmax_axis, "axes is 0x1 on rank 0 and 0x2 on rank 1"},
    {softmax_log, "log is 0 on rank 0 and 1 on rank 1"},
    {argmax_axis, "axis is 0 on rank 0 and 1 on rank 1"},
    {cumsum_axis, "axis is 0 on rank 0 and 1 on rank 1"},
    {conv_stride, "stride is 1,1 on rank 0 and 2,1 on rank 1"},
    {conv_pad, "padding is 1,1 on rank 0 and 2,1 on rank 1"},
    {conv_dilation, "dilation is 1,1 on rank 0 and 1,2 on rank 1"},
    {pool_stride, "stride is 1,1 on rank 0 and 2,2 on rank 1"},
    {pool_kernel, "kernel is 2,2 on rank 0 and 3,2 on rank 1"},
    {pool_count, "count_include_pad is 1 on rank 0 and 0 on rank 1"},
    {bn_eps, "eps is 1e-05 on rank 0 and 1.00001 on rank 1"},
    {ln_eps, "eps is 1e-05 on rank 0 and 1.00001 on rank 1"},
    {ce_smoothing, "label_smoothing is 0.1 on rank 0 and 0.225"},
    {ce_ignore, "ignore_index is 1 on rank 0 and 2 on rank 1"},
    {causal, "diagonal is 0 on rank 0 and 1 on rank 1"},
    {causal_value, "value is -1 on rank 0 and -2 on rank 1"},
    {dropout_p, "p is 0.25 on rank 0 and 0.5 on rank 1"},
    {uniform_b, "b is 1 on rank 0 and 2 on rank 1"},
    {uniform_name, "random key (of the graph's seed and the name) is 0x"},
    {full_value, "value is 7 on rank 0 and 8 on rank 1"},
    {arange_step, "step is 1 on rank 0 and 2 on rank 1"},
    {permute_order, "order of axes is 1,0,2,3"},
    {concat_axis, "axis is 0 on rank 0 and 1 on rank 1"},
    {slice_start, "start is 0,0"},
    {pad_value, "value is 1 on rank 0 and 2 on rank 1"},
    {triu_diagonal, "diagonal is 0 on rank 0 and 1 on rank 1"},
    {triu_or_tril, "upper is 1 on rank 0 and 0 on rank 1"},
    {gather_axis, "axis is 0 on rank 0 and 1 on rank 1"},
    {padding_idx, "padding_index is 1 on rank 0 and 2 on rank 1"},
    {to_global, "signature is S(0) on rank 0 and B on rank 1"},
    {operand, "operand 1 is result 0 of op "},
    {cast, "dtype of result 0 is bf16 on rank 0 and f64 on rank 1"},
};

/* --- on ranks --------------------------------------------------------------------------------- */
enum { RANKS = 3 };
typedef struct told {
    const void *what;
    tsr_status status[RANKS];
    char text[RANKS][2048];
} told;

static tsr_status note(tsr_world *w, told *t, tsr_status status)
{
    int me = tsr_world_rank(w);
    t->status[me] = status;
    snprintf(t->text[me], sizeof t->text[me], "%s", tsr_last_error());
    return TSR_OK;
}

/* All ranks are told the same. */
static void expect(tsr_rank_fn *fn, const void *what, const char *text)
{
    static told t;
    t = (told){.what = what};
    if (tsr_spawn(RANKS, fn, &t) != TSR_OK)
        fail_msg("%s: %s", text, tsr_last_error());
    for (int r = 0; r < RANKS; r++) {
        if (t.status[r] != TSR_ERR_MISMATCH || !strstr(t.text[r], text))
            fail_msg("rank %d: no '%s' in: %s: %s", r, text, tsr_status_name(t.status[r]),
                     t.text[r]);
        assert_string_equal(t.text[r], t.text[0]);
    }
}

static const tsr_init ones = {.kind = TSR_INIT_ONES};

static tsr_status declare_op(tsr_world *w, void *arg)
{
    told *t = arg;
    const difference *d = t->what;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    declared c = {.g = g, .p = p, .odd = tsr_world_rank(w) == 1};
    c.x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 4, 8, 8), p, TSR_B);
    c.m = tsr_input(g, "m", TSR_F32, TSR_DIMS(4, 4), p, TSR_B);
    c.ids = tsr_input(g, "ids", TSR_I64, TSR_DIMS(4), p, TSR_B);
    const tsr_nn_opts o = {.placement = p, .sbp = TSR_B};
    tsr_module *m = tsr_module_create(w, &o, NULL, NULL, NULL);
    tsr_module_param(m, "w", TSR_DIMS(4, 2, 3, 3), TSR_B, ones);
    tsr_module_param(m, "v", TSR_DIMS(4), TSR_B, ones);
    c.w = tsr_use(m, "w", c.x);
    c.v = tsr_use(m, "v", c.x);
    tsr_output(g, "y", d->declare(&c), p, TSR_B);
    TRY(tsr_graph_status(g));
    tsr_plan *plan;
    return note(w, t, tsr_compile(g, &plan));
}

static void test_ops(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        expect(declare_op, &ops[i], ops[i].text);
}

/* --- settings, variables, optimizers ---------------------------------------------------------- */
typedef struct program {
    tsr_graph_opts graph;
    tsr_compile_opts compile;
    uint64_t seed;
    tsr_init init;
    tsr_dtype dtype;
    bool buffer, adam, decoupled, sharded, output;
    double later_lr;
    tsr_sgd_opts sgd;
    tsr_adam_opts moments;
} program;

typedef struct change {
    program odd; /* rank 1's */
    const char *text;
} change;

static void or_usual(double *value, double usual)
{
    *value = *value != 0 ? *value : usual;
}

static tsr_status declare_program(tsr_world *w, void *arg)
{
    told *t = arg;
    const change *d = t->what;
    static const program usual = {0};
    program c = tsr_world_rank(w) == 1 ? d->odd : usual;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts o = {.placement = p, .sbp = TSR_B, .dtype = TSR_F32, .seed = c.seed};
    tsr_module *m = tsr_module_create(w, &o, NULL, NULL, NULL);
    tsr_init init = c.init.kind ? c.init : (tsr_init){TSR_INIT_NORMAL, 0, 1, false};
    tsr_module_param(m, "w", TSR_DIMS(6, 4), c.sharded ? TSR_S(0) : TSR_B, init);
    (c.buffer ? tsr_module_buffer : tsr_module_param)(m, "v", TSR_DIMS(4), TSR_B, ones);
    c.graph.size = sizeof c.graph;
    c.compile.size = sizeof c.compile;
    c.sgd.size = sizeof c.sgd;
    c.moments.size = sizeof c.moments;
    or_usual(&c.compile.bucket_mb, 4);
    or_usual(&c.compile.kernel_s, TSR_NOT_GIVEN);
    or_usual(&c.sgd.lr, 1e-3);
    or_usual(&c.sgd.momentum, 0.5);
    or_usual(&c.moments.lr, 1e-3);
    or_usual(&c.moments.beta1, 0.9);
    or_usual(&c.moments.beta2, 0.999);
    or_usual(&c.moments.eps, 1e-8);
    tsr_optimizer *opt = c.decoupled             ? tsr_adamw(m, &c.moments)
                         : c.adam || d->odd.adam ? tsr_adam(m, &c.moments)
                                                 : tsr_sgd(m, &c.sgd);
    CHECK(opt);
    if (c.later_lr > 0)
        tsr_optimizer_set_lr(opt, c.later_lr);
    tsr_graph *g = tsr_graph_create(w, &c.graph);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(4, 4), p, TSR_B, 1);
    tsr_tensor *y = tsr_mul(tsr_linear(x, tsr_use(m, "w", x), NULL),
                            tsr_full(g, TSR_F32, TSR_SCALAR, p, TSR_B, 2));
    tsr_tensor *loss = tsr_sum(y, TSR_ALL_AXES, false);
    tsr_tensor *v = tsr_sum(tsr_use(m, "v", x), TSR_ALL_AXES, false);
    tsr_minimize(opt, loss);
    tsr_output(g, c.output ? "other" : "loss", loss, p, TSR_B);
    tsr_output(g, "v", v, p, TSR_B);
    TRY(tsr_graph_status(g));
    tsr_plan *plan;
    return note(w, t, tsr_compile_with(g, &c.compile, &plan));
}

#define SCHEDULE(...)                       \
    {                                       \
        .sgd = {.schedule = {__VA_ARGS__} } \
    }
static const change changes[] = {
    {{.graph = {.training = true}}, "the graph's training is 0 on rank 0 and 1 on rank 1"},
    {{.graph = {.seed = 5}}, "the graph's seed is 0 on rank 0 and 5 on rank 1"},
    {{.compile = {.bucket_mb = 2}}, "bucket_mb is 4 on rank 0 and 2 on rank 1"},
    {{.compile = {.no_fusion = true}}, "no_fusion is 0 on rank 0 and 1 on rank 1"},
    {{.compile = {.memory_limit = 1 << 30}}, "memory_limit is 0 on rank 0 and 1073741824"},
    {{.compile = {.local_bytes_per_s = 1e9}}, "local_bytes_per_s is 0 on rank 0 and 1000000000"},
    {{.compile = {.flops_per_s = 1e9}}, "flops_per_s is 0 on rank 0 and 1000000000"},
    {{.compile = {.kernel_s = 0.5}}, "kernel_s is nan on rank 0 and 0.5 on rank 1"},
    {{.compile = {.attention_share = 0.5}}, "attention_share is 0 on rank 0 and 0.5 on rank 1"},
    {{.compile = {.product_share = {[7] = 0.5}}},
     "product_share[7] is 0 on rank 0 and 0.5 on rank 1"},
    {{.compile = {.dtype_flops_per_s = {[TSR_BF16] = 5e12}}},
     "flops_per_s of bf16 is 0 on rank 0 and 5000000000000 on rank 1"},
    {{.compile = {.nlinks = 1, .link = {{0, 1e-6, 1e9}}}}, "nlinks is 0 on rank 0 and 1 on rank 1"},
    {{.seed = 3}, "seed of the initial values is 0 on rank 0 and 3 on rank 1"},
    {{.init = {TSR_INIT_UNIFORM, 0, 1, false}}, "initial values is normal on rank 0 and uniform"},
    {{.init = {TSR_INIT_NORMAL, 0.5, 1, false}}, "a of the initial values is 0 on rank 0 and 0.5"},
    {{.init = {TSR_INIT_NORMAL, 0, 2, false}}, "b of the initial values is 1 on rank 0 and 2"},
    {{.init = {TSR_INIT_NORMAL, 0, 1, true}}, "fan_out of the initial values is 0 on rank 0 and 1"},
    {{.sharded = true}, "signature of the variable is B on rank 0 and S(0) on rank 1"},
    {{.buffer = true}, "trainable is 1 on rank 0 and 0 on rank 1"},
    {{.output = true},
     "different inputs or outputs: port 0 is the first that differs: name is "
     "loss on rank 0 and other on rank 1"},
    {{.sgd = {.lr = 0.5}}, "optimizer 0 is the first that differs: lr is 0.001 on rank 0 and 0.5"},
    {{.later_lr = 0.25}, "lr is 0.001 on rank 0 and 0.25 on rank 1"},
    {{.sgd = {.momentum = 0.75}}, "momentum is 0.5 on rank 0 and 0.75 on rank 1"},
    {{.sgd = {.dampening = 0.5}}, "dampening is 0 on rank 0 and 0.5 on rank 1"},
    {{.sgd = {.weight_decay = 0.5}}, "weight_decay is 0 on rank 0 and 0.5 on rank 1"},
    {{.sgd = {.nesterov = true}}, "nesterov is 0 on rank 0 and 1 on rank 1"},
    {{.sgd = {.state = {1, {{TSR_SBP_SPLIT, 0}}}}}, "state is auto on rank 0 and S(0) on rank 1"},
    {SCHEDULE(.warmup = 3), "warmup is 0 on rank 0 and 3 on rank 1"},
    {SCHEDULE(.kind = TSR_SCHEDULE_STEP, .step_size = 2, .gamma = 0.1),
     "schedule is 0 on rank 0 and 1 on rank 1"},
    {SCHEDULE(.gamma = 0.5), "gamma is 0 on rank 0 and 0.5 on rank 1"},
    {SCHEDULE(.step_size = 7), "step_size is 0 on rank 0 and 7 on rank 1"},
    {SCHEDULE(.steps = 9), "steps is 0 on rank 0 and 9 on rank 1"},
    {SCHEDULE(.min_lr = 0.5), "min_lr is 0 on rank 0 and 0.5 on rank 1"},
    {{.adam = true, .moments = {.beta1 = 0.5}}, "beta1 is 0.9 on rank 0 and 0.5"},
    {{.adam = true, .moments = {.beta2 = 0.5}}, "beta2 is 0.999 on rank 0 and 0.5 on rank 1"},
    {{.adam = true, .moments = {.eps = 0.5}}, "eps is 1e-08 on rank 0 and 0.5 on rank 1"},
    {{.adam = true, .moments = {.weight_decay = 0.5}}, "weight_decay is 0 on rank 0 and 0.5"},
    {{.adam = true, .decoupled = true, .moments = {.weight_decay = 0}},
     "kind is adam on rank 0 and adamw on rank 1"},
};

static void test_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        expect(declare_program, &changes[i], changes[i].text);
}

/* The text from its first to its last word: nothing follows where there is no place to name. */
static void test_text(void **state)
{
    (void)state;
    static const change whole = {{.compile = {.bucket_mb = 2}}, ""};
    static told t;
    t = (told){.what = &whole};
    assert_int_equal(tsr_spawn(RANKS, declare_program, &t), TSR_OK);
    assert_string_equal(
        t.text[0],
        "ranks compile with different settings: bucket_mb is 4 on rank 0 and 2 on rank 1");
    t = (told){.what = &(const change){{.sgd = {.lr = 0.5}}, ""}};
    assert_int_equal(tsr_spawn(RANKS, declare_program, &t), TSR_OK);
    assert_string_equal(
        t.text[0], "ranks have different optimizers: optimizer 0 is the first that differs: lr is "
                   "0.001 on rank 0 and 0.5 on rank 1; rank 0: tsr_sgd; rank 1: tsr_sgd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
