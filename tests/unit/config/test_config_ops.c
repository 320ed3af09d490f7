/* SPDX-License-Identifier: Apache-2.0 */
/* Every op of the table: an entry with all its keys declares what the C call declares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/functional.h>

#include "src/config/program.h"
#include "src/graph/graph.h"
#include "tests/unary_cases.h"

/* Operands of the rows below, in the file and in C. */
#define SOURCES                                              \
    "tessera: 1\n"                                           \
    "placements: {p: {ranks: [0, 1]}, q: {ranks: [1, 0]}}\n" \
    "graph:\n"                                               \
    "  x: {op: full, value: 0.5, shape: [4, 6]}\n"           \
    "  y: {op: full, value: 0.5, shape: [4, 6]}\n"           \
    "  m: {op: full, value: 0.5, shape: [6, 4]}\n"           \
    "  v: {op: full, value: 0.5, shape: [4]}\n"              \
    "  l: {op: full, value: 1, shape: [4], dtype: i64}\n"    \
    "  i: {op: full, value: 0.5, shape: [2, 4, 8, 8]}\n"     \
    "  k: {op: full, value: 0.5, shape: [4, 2, 3, 3]}\n"     \
    "  b: {op: full, value: 1, shape: [4, 6], dtype: bool}\n"

typedef struct sources {
    tsr_graph *g;
    const tsr_placement *p, *q;
    tsr_tensor *x, *y, *m, *v, *l, *i, *k, *b;
} sources;

static void declare_sources(sources *s, tsr_world *w)
{
    s->g = tsr_graph_create(w, NULL);
    s->p = tsr_placement_parse(w, "cpu:[0,1]");
    s->q = tsr_placement_parse(w, "cpu:[1,0]");
    s->x = tsr_full(s->g, TSR_F32, TSR_DIMS(4, 6), s->p, TSR_AUTO, 0.5);
    s->y = tsr_full(s->g, TSR_F32, TSR_DIMS(4, 6), s->p, TSR_AUTO, 0.5);
    s->m = tsr_full(s->g, TSR_F32, TSR_DIMS(6, 4), s->p, TSR_AUTO, 0.5);
    s->v = tsr_full(s->g, TSR_F32, TSR_DIMS(4), s->p, TSR_AUTO, 0.5);
    s->l = tsr_full(s->g, TSR_I64, TSR_DIMS(4), s->p, TSR_AUTO, 1);
    s->i = tsr_full(s->g, TSR_F32, TSR_DIMS(2, 4, 8, 8), s->p, TSR_AUTO, 0.5);
    s->k = tsr_full(s->g, TSR_F32, TSR_DIMS(4, 2, 3, 3), s->p, TSR_AUTO, 0.5);
    s->b = tsr_full(s->g, TSR_BOOL, TSR_DIMS(4, 6), s->p, TSR_AUTO, 1);
}

/* The functions of x alone, from tests/unary_cases.h. */
#define ROW_0(ROW, name) ROW(name, "in: x", tsr_##name(s->x))
#define ROW_1(ROW, name)
#define ROW_2(ROW, name)
#define PLAIN_ROW(ROW, FN, name, arity, ...) ROW_##arity(ROW, name)

/* The op, the rest of its entry, and what it must declare. */
#define ROWS(ROW)                                                                                 \
    ROW(normal, "shape: [2, 3], mean: 1, std: 2",                                                 \
        tsr_normal(s->g, "t", TSR_F32, TSR_DIMS(2, 3), s->p, TSR_AUTO, 1, 2))                     \
    ROW(uniform, "shape: [2], low: -1, high: 3, dtype: f64, sbp: S(0)",                           \
        tsr_uniform(s->g, "t", TSR_F64, TSR_DIMS(2), s->p, TSR_S(0), -1, 3))                      \
    ROW(full, "shape: [], value: 7, dtype: i32, placement: q, sbp: B",                            \
        tsr_full(s->g, TSR_I32, TSR_SCALAR, s->q, TSR_B, 7))                                      \
    ROW(arange, "n: 5, start: 2, step: -1, dtype: i64",                                           \
        tsr_arange(s->g, TSR_I64, 5, 2, -1, s->p, TSR_AUTO))                                      \
    ROW(not_equal, "in: [x, y]", tsr_not_equal(s->x, s->y))                                       \
    ROW(less, "in: [x, y]", tsr_less(s->x, s->y))                                                 \
    ROW(less_equal, "in: [x, y]", tsr_less_equal(s->x, s->y))                                     \
    ROW(greater, "in: [x, y]", tsr_greater(s->x, s->y))                                           \
    ROW(greater_equal, "in: [x, y]", tsr_greater_equal(s->x, s->y))                               \
    ROW(maximum, "in: [x, y]", tsr_maximum(s->x, s->y))                                           \
    ROW(minimum, "in: [x, y]", tsr_minimum(s->x, s->y))                                           \
    ROW(atan2, "in: [x, y]", tsr_atan2(s->x, s->y))                                               \
    ROW(fmod, "in: [x, y]", tsr_fmod(s->x, s->y))                                                 \
    ROW(remainder, "in: [x, y]", tsr_remainder(s->x, s->y))                                       \
    ROW(floor_divide, "in: [x, y]", tsr_floor_divide(s->x, s->y))                                 \
    ROW(where, "in: [b, x, y]", tsr_where(s->b, s->x, s->y))                                      \
    ROW(cumsum, "in: x, axis: -1", tsr_cumsum(s->x, -1))                                          \
    ROW(variance, "in: x, axes: 1, correction: 0", tsr_variance(s->x, TSR_AXES(1), false, 0))     \
    ROW(std, "in: x, axes: 0, keepdim: true", tsr_std(s->x, TSR_AXES(0), true, 1))                \
    ROW(concat, "in: [x, y, x], axis: 1", tsr_concat(3, (tsr_tensor *[]){s->x, s->y, s->x}, 1))   \
    ROW(stack, "in: [x, y]", tsr_stack(2, (tsr_tensor *[]){s->x, s->y}, 0))                       \
    ROW(split, "in: x, sizes: [1, 3, 2], axis: -1, sbp: B", split_x(s))                           \
    ROW(slice, "in: x, starts: [1, -2], steps: [2, 1]",                                           \
        tsr_slice(s->x, TSR_DIMS(1, -2), TSR_DIMS(INT64_MAX, INT64_MAX), TSR_DIMS(2, 1)))         \
    ROW(narrow, "in: x, axis: 1, start: 2, length: 3", tsr_narrow(s->x, 1, 2, 3))                 \
    ROW(pad, "in: x, after: [0, 2], value: 9", tsr_pad(s->x, TSR_DIMS(0, 0), TSR_DIMS(0, 2), 9))  \
    ROW(triu, "in: x, diagonal: -1", tsr_triu(s->x, -1))                                          \
    ROW(tril, "in: x", tsr_tril(s->x, 0))                                                         \
    ROW(embedding, "in: [m, l], padding_idx: 2",                                                  \
        tsr_embedding(s->m, s->l, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = 2))) \
    ROW(index_select, "in: [x, l], axis: 1", tsr_index_select(s->x, 1, s->l))                     \
    ROW(one_hot, "in: l, classes: 3", tsr_one_hot(s->l, 3, TSR_F32))                              \
    ROW(to_global, "in: x, sbp: P(max)", tsr_to_global(s->x, NULL, TSR_P_MAX))                    \
    ROW(neg, "in: [x], sbp: S(1)", tsr_to_global(tsr_neg(s->x), NULL, TSR_S(1)))                  \
    ROW(leaky_relu, "in: x, slope: 0.25", tsr_leaky_relu(s->x, 0.25))                             \
    ROW(elu, "in: x", tsr_elu(s->x, 1))                                                           \
    ROW(celu, "in: x, alpha: 2", tsr_celu(s->x, 2))                                               \
    ROW(softshrink, "in: x", tsr_softshrink(s->x, 0.5))                                           \
    ROW(hardshrink, "in: x, edge: 2", tsr_hardshrink(s->x, 2))                                    \
    ROW(clamp, "in: x, high: 2", tsr_clamp(s->x, -INFINITY, 2))                                   \
    ROW(hardtanh, "in: x, low: -2", tsr_hardtanh(s->x, -2, 1))                                    \
    ROW(threshold, "in: x, edge: 2, value: 3", tsr_threshold(s->x, 2, 3))                         \
    ROW(gelu, "in: x, form: tanh", tsr_gelu(s->x, TSR_GELU_TANH))                                 \
    ROW(layer_norm, "in: [m, v, v], eps: 0.5",                                                    \
        tsr_layer_norm(s->m, s->v, s->v, TSR_LAYER_NORM_OPTS(.eps = 0.5)))                        \
    ROW(causal_mask, "in: x, diagonal: 2, value: 7", tsr_causal_mask(s->x, 2, 7))                 \
    ROW(attention, "in: [i, i, i], causal: true, scale: 3",                                       \
        tsr_attention(s->i, s->i, s->i, TSR_ATTENTION_OPTS(.causal = true, .scale = 3)))          \
    ROW(scaled_dot_product_attention, "in: [i, i, i], causal: true, scale: 3",                    \
        tsr_scaled_dot_product_attention(s->i, s->i, s->i, NULL,                                  \
                                         TSR_ATTENTION_OPTS(.causal = true, .scale = 3)))         \
    ROW(pow_scalar, "in: x, p: 3", tsr_pow_scalar(s->x, 3))                                       \
    ROW(add_scalar, "in: x, a: 3", tsr_add_scalar(s->x, 3))                                       \
    ROW(sub_scalar, "in: x, a: 3", tsr_sub_scalar(s->x, 3))                                       \
    ROW(mul_scalar, "in: x, a: -3.5", tsr_mul_scalar(s->x, -3.5))                                 \
    ROW(div_scalar, "in: x, a: 3", tsr_div_scalar(s->x, 3))                                       \
    ROW(rdiv_scalar, "in: x, a: 3", tsr_rdiv_scalar(s->x, 3))                                     \
    ROW(cast, "in: x, dtype: i64", tsr_cast(s->x, TSR_I64))                                       \
    ROW(add, "in: [x, y]", tsr_add(s->x, s->y))                                                   \
    ROW(sub, "in: [y, x]", tsr_sub(s->y, s->x))                                                   \
    ROW(mul, "in: [x, y]", tsr_mul(s->x, s->y))                                                   \
    ROW(div, "in: [x, y]", tsr_div(s->x, s->y))                                                   \
    ROW(pow, "in: [x, y]", tsr_pow(s->x, s->y))                                                   \
    ROW(equal, "in: [x, y]", tsr_equal(s->x, s->y))                                               \
    ROW(prod, "in: x, axes: 1", tsr_prod(s->x, TSR_AXES(1), false))                               \
    ROW(sum, "in: i, axes: [0, -1], keepdim: true", tsr_sum(s->i, TSR_AXES(0, -1), true))         \
    ROW(mean, "in: x", tsr_mean(s->x, TSR_ALL_AXES, false))                                       \
    ROW(max, "in: x, axes: 1", tsr_max(s->x, TSR_AXES(1), false))                                 \
    ROW(min, "in: x, axes: [1], keepdim: true", tsr_min(s->x, TSR_AXES(1), true))                 \
    ROW(norm, "in: x, p: 3, axes: 0", tsr_norm(s->x, 3, TSR_AXES(0), false))                      \
    ROW(argmax, "in: x, axis: 1", tsr_argmax(s->x, 1))                                            \
    ROW(matmul, "in: [x, m]", tsr_matmul(s->x, s->m))                                             \
    ROW(matmul_t, "in: [x, y], tb: true", tsr_matmul_t(s->x, s->y, false, true))                  \
    ROW(linear, "in: [x, y, v]", tsr_linear(s->x, s->y, s->v))                                    \
    ROW(conv2d, "in: [i, k, v], stride: 2, padding: [1, 0], dilation: [1, 2], groups: 2",         \
        tsr_conv2d(s->i, s->k, s->v,                                                              \
                   TSR_CONV2D_OPTS(.stride = {2, 2}, .padding = {1, 0}, .dilation = {1, 2},       \
                                   .groups = 2)))                                                 \
    ROW(max_pool2d, "in: i, kernel: [3, 2], padding: [1, 0]",                                     \
        tsr_max_pool2d(s->i, TSR_POOL2D_OPTS(.kernel = {3, 2}, .padding = {1, 0})))               \
    ROW(avg_pool2d, "in: i, kernel: 3, stride: [1, 2], padding: 1, count_include_pad: false",     \
        tsr_avg_pool2d(s->i, TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {1, 2},                  \
                                             .padding = {1, 1}, .count_include_pad = false)))     \
    ROW(adaptive_avg_pool2d, "in: i, out_h: 2, out_w: 3", tsr_adaptive_avg_pool2d(s->i, 2, 3))    \
    ROW(batch_norm, "in: [i, v, v, v, v], eps: 0.5, momentum: 0, stats: local, parts: 3",         \
        tsr_batch_norm(                                                                           \
            s->i, s->v, s->v, s->v, s->v,                                                         \
            TSR_BATCH_NORM_OPTS(.eps = 0.5, .momentum = 0, .stats = TSR_BN_LOCAL, .parts = 3)))   \
    ROW(softmax, "in: x", tsr_softmax(s->x, -1))                                                  \
    ROW(log_softmax, "in: x, axis: 0", tsr_log_softmax(s->x, 0))                                  \
    ROW(cross_entropy, "in: [x, l], reduction: none, label_smoothing: 0.1, ignore_index: -1",     \
        tsr_cross_entropy_with(                                                                   \
            s->x, s->l,                                                                           \
            TSR_CROSS_ENTROPY_OPTS(.reduction = TSR_NONE, .label_smoothing = 0.1,                 \
                                   .has_ignore_index = true, .ignore_index = -1)))                \
    ROW(mse_loss, "in: [x, y], reduction: sum", tsr_mse_loss(s->x, s->y, TSR_SUM))                \
    ROW(gumbel_softmax, "in: x, tau: 0.5, hard: true, axis: 0",                                   \
        tsr_gumbel_softmax(s->x, 0.5, true, 0))                                                   \
    ROW(rand_like, "in: x", tsr_rand_like(s->x))                                                  \
    ROW(randn_like, "in: x", tsr_randn_like(s->x))                                                \
    ROW(dropout, "in: x, p: 0.25", tsr_dropout(s->x, 0.25))                                       \
    ROW(reshape, "in: x, shape: [2, -1]", tsr_reshape(s->x, TSR_DIMS(2, -1)))                     \
    ROW(flatten, "in: i, from_axis: 1", tsr_flatten(s->i, 1))                                     \
    ROW(detach, "in: i", tsr_detach(s->i))                                                        \
    ROW(transpose, "in: i, a: 0, b: -1", tsr_transpose(s->i, 0, -1))                              \
    ROW(permute, "in: i, order: [3, 2, 1, 0]", tsr_permute(s->i, TSR_AXES(3, 2, 1, 0)))           \
    ROW(expand, "in: x, shape: [3, 4, 6]", tsr_expand(s->x, TSR_DIMS(3, 4, 6)))

static tsr_tensor *split_x(const sources *s)
{
    tsr_tensor *y[3];
    const int64_t sizes[3] = {1, 3, 2};
    tsr_split(s->x, 3, sizes, -1, y);
    for (int i = 0; i < 3; i++)
        y[i] = tsr_to_global(y[i], NULL, TSR_B);
    return y[2];
}

#define DECLARE(op, entry, call)                      \
    static tsr_tensor *declare_##op(const sources *s) \
    {                                                 \
        return call;                                  \
    }
ROWS(DECLARE)
UNARY_CASES(PLAIN_ROW, DECLARE)

static const struct {
    const char *op, *entry;
    tsr_tensor *(*declare)(const sources *s);
} rows[] = {
#define ENTRY(op, entry, call) {#op, entry, declare_##op},
    ROWS(ENTRY) UNARY_CASES(PLAIN_ROW, ENTRY)};
enum { NROWS = sizeof rows / sizeof *rows };

static void assert_same_op(const char *name, const tsri_op *a, const tsri_op *b)
{
    bool same = a->kind == b->kind && a->nin == b->nin && a->nout == b->nout &&
                a->placement == b->placement && tsr_sbp_equal(a->sbp, b->sbp) &&
                !memcmp(&a->attrs, &b->attrs, sizeof a->attrs);
    for (int i = 0; same && i < a->nin; i++)
        same = a->in[i]->id == b->in[i]->id;
    for (int i = 0; same && i < a->nout; i++)
        same = tsr_dims_equal(a->out[i]->shape, b->out[i]->shape) &&
               a->out[i]->dtype == b->out[i]->dtype;
    if (!same)
        fail_msg("%s: op %d differs", name, a->id);
}

static void check_row(tsr_world *w, int r)
{
    char text[2000];
    tsri_experiment *e;
    tsri_program *p;
    sources s;
    snprintf(text, sizeof text, SOURCES "  t: {op: %s, %s}\nfetch: %s\n", rows[r].op, rows[r].entry,
             strcmp(rows[r].op, "split") ? "t" : "t.2");
    if (tsri_experiment_parse("f.yaml", text, strlen(text), 0, NULL, &e) != TSR_OK ||
        tsri_program_build(e, w, NULL, &p) != TSR_OK)
        fail_msg("%s: %s", rows[r].op, tsr_last_error());
    declare_sources(&s, w);
    tsr_tensor *t = rows[r].declare(&s);
    if (!tsr_tensor_ok(t))
        fail_msg("%s: %s", rows[r].op, tsr_last_error());
    /* The last one of the program is what it fetches. */
    assert_int_equal(p->graph->nops, s.g->nops);
    for (int i = 0; i < s.g->nops; i++)
        assert_same_op(rows[r].op, p->graph->ops[i], s.g->ops[i]);
    const tsri_op *last = p->graph->ops[s.g->nops - 1];
    assert_int_equal(last->loc.line, 12);
    assert_string_equal(last->loc.file, "f.yaml");
    tsr_graph_destroy(s.g);
    tsri_program_destroy(p);
    tsri_experiment_destroy(e);
}

static void test_rows(void **state)
{
    (void)state;
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(2, 0, &w), TSR_OK);
    for (int r = 0; r < NROWS; r++)
        check_row(w, r);
    tsr_world_destroy(w);
}

/* Whether tests/models/functions.py has a case of an op. */
static bool is_beside_pytorch(const char *op)
{
    FILE *f = fopen(TESSERA_SOURCE "/tests/models/functions.py", "r");
    char line[400], want[80];
    bool found = false;
    assert_non_null(f);
    snprintf(want, sizeof want, "(\"%s\", ", op);
    while (!found && fgets(line, sizeof line, f))
        found = strstr(line, want);
    fclose(f);
    return found;
}

/* Each op of the table is tried above, or beside PyTorch; those of the program's own are run in
 * another test. */
static void test_all_are_there(void **state)
{
    (void)state;
    for (int i = 0; i < tsri_nops; i++) {
        /* Plug-ins' ops are tests/cli/plugins.py's. */
        bool found =
            tsri_op_rows[i].role >= TSRI_ROLE_CONSTANT || !strcmp(tsri_op_sections[i].name, "own");
        for (int r = 0; r < NROWS && !found; r++)
            found = !strcmp(rows[r].op, tsri_op_sections[i].name);
        if (!found && !is_beside_pytorch(tsri_op_sections[i].name))
            fail_msg("op %s is not tested", tsri_op_sections[i].name);
    }
}

/* Each public call of a header that makes a tensor is an op of the table. */
static void check_header(const char *calls)
{
    static const char *const others[] = {
        "apply",    "use",       "input",       "from_local", "cross_entropy_with",
        "sum_with", "prod_with", "cumsum_with", "to_global",  "rank_sum"};
    FILE *f = fopen(calls, "r");
    char line[300], name[64];
    int n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "#define tsr_%63[a-z0-9_](...)", name) != 1)
            continue;
        bool found = false;
        for (int i = 0; i < tsri_nops && !found; i++)
            found = !strcmp(name, tsri_op_sections[i].name);
        for (size_t i = 0; i < sizeof others / sizeof *others && !found; i++)
            found = !strcmp(name, others[i]);
        if (!found)
            fail_msg("%s is not in src/config/op_table.h", name);
        n++;
    }
    fclose(f);
    assert_true(n > 40);
}

static void test_library(void **state)
{
    (void)state;
    check_header(TESSERA_SOURCE "/include/tessera/ops_calls.h");
    check_header(TESSERA_SOURCE "/include/tessera/functional_calls.h");
}

static void test_operands(void **state)
{
    (void)state;
    static const struct {
        const char *operands;
        int least, most;
    } cases[] = {{NULL, 0, 0},
                 {"x", 1, 1},
                 {"x y", 2, 2},
                 {"x w b?", 2, 3},
                 {"x...", 1, TSRI_CONFIG_MAX_IN},
                 {"cond x...", 2, TSRI_CONFIG_MAX_IN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tsri_section s = {.operands = cases[i].operands};
        int least, most;
        tsri_op_operands(&s, &least, &most);
        assert_int_equal(least, cases[i].least);
        assert_true(most >= cases[i].most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_all_are_there),
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
