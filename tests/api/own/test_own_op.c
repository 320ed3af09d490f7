/* SPDX-License-Identifier: Apache-2.0 */
/* An op of a plug-in, as a user has it: on 4 ranks in every signature, in f32 and f64, beside the
 * same function made of the library's ops; in tsr_ddp; and what is said where ranks define
 * different ops. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#define CHECK(e)                                                                         \
    do {                                                                                 \
        if (!(e))                                                                        \
            return tsr_set_error(TSR_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #e); \
    } while (0)

enum { M = 8, N = 6 };

static tsr_status begin(tsr_world *w, tsr_op **op)
{
    TSR_TRY(tsr_plugin_load(w, PLUGIN));
    *op = tsr_op_find(w, "swish_gate");
    CHECK(*op);
    return TSR_OK;
}

static tsr_tensor *composed(tsr_tensor *x, tsr_tensor *g, double beta)
{
    return tsr_mul(tsr_mul(x, tsr_sigmoid(tsr_mul_scalar(x, beta))), g);
}

/* Whether two tensors have the same values. */
static tsr_status same(tsr_tensor *a, tsr_tensor *b, double tol)
{
    double left[M * N], right[M * N];
    const size_t n = (size_t)tsr_dims_count(tsr_tensor_dims(a));
    TSR_TRY(tsr_eval(tsr_cast(a, TSR_F64), left, n * sizeof *left));
    TSR_TRY(tsr_eval(tsr_cast(b, TSR_F64), right, n * sizeof *right));
    for (size_t i = 0; i < n; i++)
        CHECK(fabs(left[i] - right[i]) <= tol);
    return TSR_OK;
}

/* Holds the op and its gradients against the composition, with x and g in these signatures. */
static tsr_status compare(tsr_world *w, tsr_op *op, const tsr_placement *p, tsr_sbp sx, tsr_sbp sg,
                          tsr_dtype dtype)
{
    tsr_graph *graph = tsr_graph_create(w, NULL);
    tsr_sbp b;
    TSR_TRY(tsr_sbp_parse(tsr_placement_ndim(p) == 1 ? "B" : "(B,B)", &b));
    tsr_tensor *x = tsr_normal(graph, "x", dtype, TSR_DIMS(M, N), p, b, 0, 1);
    tsr_tensor *g = tsr_normal(graph, "g", dtype, TSR_DIMS(M, N), p, b, 0, 1);
    tsr_tensor *v = tsr_normal(graph, "v", dtype, TSR_DIMS(M, N), p, b, 0, 1);
    tsr_tensor *in[2] = {tsr_to_global(x, p, sx), tsr_to_global(g, p, sg)}, *d[2][2];
    tsr_tensor *y[2] = {tsr_op_apply(op, 2, in, (double[]){1.5}), composed(in[0], in[1], 1.5)};
    for (int i = 0; i < 2; i++)
        tsr_gradients(tsr_sum(tsr_mul(y[i], v), TSR_ALL_AXES, false), 2, in, d[i]);
    TSR_TRY(tsr_graph_status(graph));
    const double tol = dtype == TSR_F64 ? 1e-13 : 2e-6;
    TSR_TRY(same(y[0], y[1], tol));
    for (int i = 0; i < 2; i++)
        TSR_TRY(same(d[0][i], d[1][i], tol));
    tsr_graph_destroy(graph);
    return TSR_OK;
}

static tsr_status every_signature(tsr_world *w, void *arg)
{
    static const char *const flat[] = {"B", "S(0)", "S(1)", "P"};
    static const char *const grid[] = {"(B,S(0))", "(S(0),S(1))", "(S(1),B)", "(P,S(0))",
                                       "(S(0),S(0))"};
    tsr_op *op;
    (void)arg;
    TSR_TRY(begin(w, &op));
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0,1,2,3]");
    const tsr_placement *q = tsr_placement_parse(w, "cpu:[[0,1],[2,3]]");
    CHECK(p && q);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int t = 0; t < 2; t++) {
                tsr_sbp sx, sg;
                TSR_TRY(tsr_sbp_parse(flat[i], &sx));
                TSR_TRY(tsr_sbp_parse(flat[j], &sg));
                TSR_TRY(compare(w, op, p, sx, sg, t ? TSR_F32 : TSR_F64));
            }
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            tsr_sbp sx, sg;
            TSR_TRY(tsr_sbp_parse(grid[i], &sx));
            TSR_TRY(tsr_sbp_parse(grid[j], &sg));
            TSR_TRY(compare(w, op, q, sx, sg, TSR_F64));
        }
    return TSR_OK;
}

/* --- beside the library's ops in tsr_ddp ------------------------------------------------------ */
static tsr_tensor *gate_layer(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *in[2] = {x, tsr_use(m, "g", x)};
    return arg ? tsr_op_apply(arg, 2, in, NULL) : composed(in[0], in[1], 1);
}

/* Trains `g` for three steps by tsr_ddp, with rows that differ by rank; arg: the op, or NULL. */
static tsr_status train(tsr_world *w, void *arg, double out[N])
{
    const tsr_placement *here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, gate_layer, arg, NULL);
    tsr_variable *g =
        tsr_module_param(m, "g", TSR_DIMS(N), TSR_B, (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 1});
    CHECK(g);
    TSR_TRY(tsr_module_set_local(m));
    tsr_optimizer *o = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1));
    tsr_ddp *ddp;
    TSR_TRY(tsr_ddp_create(m, NULL, &ddp));
    tsr_graph *graph = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(graph, "x", TSR_F64, TSR_DIMS(N), here, TSR_B);
    tsr_tensor *loss = tsr_sum(tsr_square(tsr_apply(m, x)), TSR_ALL_AXES, false);
    tsr_ddp_minimize(ddp, o, 1, &loss, NULL);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(graph, &plan));
    for (int step = 0; step < 3; step++) {
        double rows[N];
        for (int i = 0; i < N; i++)
            rows[i] = 0.3 * i - 0.5 + 0.2 * tsr_world_rank(w) + 0.1 * step;
        TSR_TRY(tsr_feed(plan, "x", rows, sizeof rows));
        TSR_TRY(tsr_run(plan));
    }
    return tsr_variable_get(g, out, N * sizeof *out);
}

static tsr_status in_ddp(tsr_world *w, void *arg)
{
    tsr_op *op;
    double own[N], other[N];
    (void)arg;
    TSR_TRY(begin(w, &op));
    TSR_TRY(train(w, op, own));
    TSR_TRY(train(w, NULL, other));
    for (int i = 0; i < N; i++)
        CHECK(fabs(own[i] - other[i]) < 1e-13 && own[i] != 1);
    return TSR_OK;
}

/* --- ranks that disagree ---------------------------------------------------------------------- */
static tsr_status copy(tsr_op_args *a)
{
    memcpy(a->out[0].data, a->in[0].data,
           (size_t)tsr_dims_count(a->in[0].shape) * tsr_dtype_size(a->in[0].dtype));
    return TSR_OK;
}

static tsr_status fail_on_rank_1(tsr_op_args *a)
{
    if (a->in[0].offset[0] == 0)
        return copy(a);
    return tsr_set_error(TSR_ERR_INVALID, "row %lld is no good", (long long)a->in[0].offset[0]);
}

static tsr_status affine(tsr_op_args *a)
{
    const double *x = a->in[0].data;
    double *y = a->out[0].data;
    for (int64_t i = 0, n = tsr_dims_count(a->out[0].shape); i < n; i++)
        y[i] = 2 * x[i] + 1;
    return TSR_OK;
}

/* Chains of an op that may write over its operand, which others read too. */
static tsr_status in_place(tsr_world *w, void *arg)
{
    tsr_op *op;
    (void)arg;
    TSR_TRY(tsr_op_define(w,
                          TSR_OP_DEF(.name = "affine", .inputs = 1, .forward = affine,
                                     .rule = "!... -> ...", .flags = TSR_OP_IN_PLACE),
                          &op));
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0,1]");
    tsr_tensor *x = tsr_arange(g, TSR_F64, 64, 0, 1, p, TSR_S(0));
    tsr_tensor *a = tsr_mul_scalar(x, 3), *b = tsr_op_apply(op, 1, &a, NULL);
    tsr_tensor *c = tsr_op_apply(op, 1, &b, NULL), *d = tsr_op_apply(op, 1, &c, NULL);
    double y[64];
    TSR_TRY(tsr_eval(tsr_add(d, b), y, sizeof y));
    for (int i = 0; i < 64; i++)
        CHECK(y[i] == 2 * (2 * (2 * (3.0 * i) + 1) + 1) + 1 + 2 * (3.0 * i) + 1);
    return TSR_OK;
}

static tsr_status different_rules(tsr_world *w, void *arg)
{
    tsr_op *op;
    (void)arg;
    TSR_TRY(tsr_op_define(w,
                          TSR_OP_DEF(.name = "mine", .inputs = 1, .forward = copy,
                                     .rule = tsr_world_rank(w) ? "... -> ..." : "!... -> ..."),
                          &op));
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0,1]");
    tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(4), p, TSR_B, 1);
    double y[4];
    const tsr_status status = tsr_eval(tsr_op_apply(op, 1, &x, NULL), y, sizeof y);
    CHECK(status != TSR_OK && strstr(tsr_last_error(), "mine"));
    return TSR_OK;
}

static tsr_status failing(tsr_world *w, void *arg)
{
    tsr_op *op;
    (void)arg;
    TSR_TRY(tsr_op_define(
        w,
        TSR_OP_DEF(.name = "picky", .inputs = 1, .forward = fail_on_rank_1, .rule = "!... -> ..."),
        &op));
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0,1]");
    tsr_tensor *x = tsr_to_global(tsr_full(g, TSR_F64, TSR_DIMS(4), p, TSR_B, 1), p, TSR_S(0));
    tsr_tensor *y = tsr_to_global(tsr_op_apply(op, 1, &x, NULL), p, TSR_S(0));
    double out[4];
    CHECK(tsr_eval(y, out, sizeof out) != TSR_OK);
    CHECK(tsr_world_rank(w) == 0 || strstr(tsr_last_error(), "picky: row 2 is no good"));
    return TSR_OK;
}

int main(void)
{
    static const struct {
        const char *name;
        int ranks;
        tsr_rank_fn *fn;
    } tests[] = {{"every_signature", 4, every_signature},
                 {"in_ddp", 4, in_ddp},
                 {"in_place", 2, in_place},
                 {"different_rules", 2, different_rules},
                 {"failing", 2, failing}};
    int failed = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (tsr_spawn(tests[i].ranks, tests[i].fn, NULL) != TSR_OK) {
            fprintf(stderr, "%s: %s\n", tests[i].name, tsr_last_error());
            failed++;
        }
    return failed != 0;
}
