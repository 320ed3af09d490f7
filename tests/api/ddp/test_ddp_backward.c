/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_ddp_backward: gradients that something else reads too, when they are written, and graphs that
 * it refuses. */
#include "ddp_rank.h"

/* --- parameters that meet before they are used, against finite differences -------------------- */
enum { ROWS = 2, INPUTS = 18, MAX_PARAMS = 4, WIDE = 512, MOST = 12 };

static tsr_tensor *lora(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *w = tsr_add(tsr_use(m, "w", x), tsr_matmul(tsr_use(m, "a", x), tsr_use(m, "b", x)));
    return tsr_linear(x, w, tsr_use(m, "bias", x));
}

static tsr_tensor *sum(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *w = tsr_sub(tsr_add(tsr_use(m, "p", x), tsr_use(m, "q", x)), tsr_use(m, "r", x));
    return tsr_linear(x, w, NULL);
}

/* Two parameters have one gradient, and nothing else reads it. */
static tsr_tensor *pair(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_linear(x, tsr_add(tsr_use(m, "p", x), tsr_use(m, "q", x)), NULL);
}

/* A parameter with two uses, and one that is seen in another shape and as it is. */
static tsr_tensor *twice(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *v = tsr_use(m, "v", x), *w = tsr_use(m, "w", x);
    tsr_tensor *y = tsr_add(tsr_linear(x, w, NULL), tsr_linear(tsr_mul(x, x), w, NULL));
    tsr_tensor *z = tsr_linear(x, tsr_reshape(v, TSR_DIMS(4, INPUTS)), NULL);
    return tsr_add(tsr_add(y, z), tsr_sum(v, TSR_ALL_AXES, false));
}

static tsr_tensor *conv(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *image = tsr_reshape(x, TSR_DIMS(ROWS, 2, 3, 3));
    tsr_tensor *kernel = tsr_mul(tsr_use(m, "k", x), tsr_use(m, "scale", x));
    return tsr_conv2d(tsr_mul(image, tsr_use(m, "gain", x)), kernel, tsr_use(m, "bias", x), NULL);
}

/* w fills the first bucket: it is averaged while the gradients of a and b are made from its own. */
static tsr_tensor *wide(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *w = tsr_add(tsr_use(m, "w", x), tsr_matmul(tsr_use(m, "a", x), tsr_use(m, "b", x)));
    return tsr_linear(tsr_linear(x, tsr_use(m, "in", x), NULL), w, NULL);
}

typedef struct model {
    const char *what;
    tsr_forward_fn *forward;
    struct {
        const char *name;
        tsr_dims dims;
    } param[MAX_PARAMS];
    int nparams;
} model;

static const model models[] = {
    {"lora",
     lora,
     {{"w", {2, {4, INPUTS}}}, {"a", {2, {4, 2}}}, {"b", {2, {2, INPUTS}}}, {"bias", {1, {4}}}},
     4},
    {"sum", sum, {{"p", {2, {4, INPUTS}}}, {"q", {2, {4, INPUTS}}}, {"r", {2, {4, INPUTS}}}}, 3},
    {"pair", pair, {{"p", {2, {4, INPUTS}}}, {"q", {2, {4, INPUTS}}}}, 2},
    {"twice", twice, {{"v", {1, {4 * INPUTS}}}, {"w", {2, {4, INPUTS}}}}, 2},
    {"conv",
     conv,
     {{"k", {4, {4, 2, 2, 2}}},
      {"scale", {4, {4, 1, 1, 1}}},
      {"gain", {4, {1, 2, 3, 3}}},
      {"bias", {1, {4}}}},
     4},
    {"wide",
     wide,
     {{"in", {2, {WIDE, INPUTS}}},
      {"a", {2, {WIDE, 1}}},
      {"b", {2, {1, WIDE}}},
      {"w", {2, {WIDE, WIDE}}}},
     4},
};

/* Values of an array that are not all alike, of about the size that keeps tanh away from its ends.
 */
static void fill(double *x, int64_t n, int seed, double size)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = size * sin(1.3 * (double)i + 0.7 * seed + 0.2);
}

static tsr_tensor *loss_of(tsr_module *net, tsr_tensor *x)
{
    tsr_tensor *y = tsr_tanh(tsr_apply(net, x));
    return tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false);
}

static tsr_status declare(tsr_world *w, tsr_module *net, tsr_ddp *ddp, tsr_plan **out_plan)
{
    const tsr_placement *here = tsr_local_placement(w);
    double rows[ROWS * INPUTS];
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, INPUTS), here, TSR_B);
    tsr_tensor *loss = loss_of(net, x);
    tsr_output(g, "loss", loss, here, TSR_B);
    if (ddp)
        tsr_ddp_backward(ddp, loss);
    TRY(tsr_compile(g, out_plan));
    fill(rows, ROWS * INPUTS, 10 + tsr_world_rank(w), 0.5);
    return tsr_feed(*out_plan, "x", rows, sizeof rows);
}

/* By central differences of this rank's loss, averaged over the ranks: of element `at` of v. */
static tsr_status difference(tsr_world *w, tsr_plan *forward, tsr_variable *v, int64_t at,
                             double *out)
{
    const double h = 1e-5;
    size_t bytes = (size_t)tsr_dims_count(tsr_variable_dims(v)) * sizeof(double);
    double *value = malloc(bytes), loss[2];
    CHECK(value);
    TRY(tsr_variable_get(v, value, bytes));
    for (int i = 0; i < 2; i++) {
        value[at] += i ? -2 * h : h;
        TRY(tsr_variable_set(v, value, bytes));
        TRY(tsr_run(forward));
        TRY(tsr_fetch_scalar(forward, "loss", &loss[i]));
    }
    value[at] += h;
    TRY(tsr_variable_set(v, value, bytes));
    free(value);
    *out = (loss[0] - loss[1]) / (2 * h);
    return tsr_all_reduce(tsr_world_group(w), out, 1, TSR_F64, TSR_REDUCE_AVG);
}

/* Some elements of each gradient, which is there `times` times over. */
static tsr_status check_gradients(tsr_world *w, const model *m, tsr_module *net, tsr_ddp *ddp,
                                  tsr_plan *forward, int times)
{
    for (int i = 0; i < m->nparams; i++) {
        tsr_variable *v = tsr_module_find(net, m->param[i].name);
        int64_t n = tsr_dims_count(m->param[i].dims);
        const double *got = tsr_ddp_gradient(ddp, v, NULL);
        for (int64_t k = 0; k < MOST && k < n; k++) {
            int64_t at = k * (n < MOST ? 1 : n / MOST);
            double want;
            TRY(difference(w, forward, v, at, &want));
            if (fabs(got[at] - times * want) > 1e-8) {
                fprintf(stderr, "%s, %s[%lld]: %.12g, not %d times %.12g\n", m->what,
                        m->param[i].name, (long long)at, got[at], times, want);
                return TSR_ERR_INTERNAL;
            }
        }
    }
    return TSR_OK;
}

/* Done when it returns: what reads a bucket after that sees the average. */
static tsr_status reduce_now(void *arg, const tsr_ddp_bucket *b)
{
    (void)arg;
    return tsr_all_reduce(b->group, b->data, b->count, b->dtype, TSR_REDUCE_AVG);
}

static tsr_status shared(tsr_world *w, void *arg)
{
    const model *m = arg;
    const tsr_nn_opts nn = {.placement = tsr_local_placement(w), .sbp = TSR_B, .dtype = TSR_F64};
    for (int hooked = 0; hooked < 2; hooked++) {
        tsr_module *net = tsr_module_create(w, &nn, m->forward, NULL, NULL);
        for (int i = 0; i < m->nparams; i++) {
            int64_t n = tsr_dims_count(m->param[i].dims);
            tsr_variable *v =
                tsr_module_param(net, m->param[i].name, m->param[i].dims, TSR_B, (tsr_init){0});
            double *value = malloc((size_t)n * sizeof *value);
            CHECK(v && value);
            fill(value, n, i, n > 1000 ? 0.05 : 0.3);
            TRY(tsr_variable_set(v, value, (size_t)n * sizeof *value));
            free(value);
        }
        tsr_ddp *ddp;
        tsr_plan *forward, *plan;
        TRY(tsr_ddp_create(
            net, TSR_DDP_OPTS(.bucket_cap_mb = 1e-4, .hook_fn = hooked ? reduce_now : NULL), &ddp));
        TRY(declare(w, net, NULL, &forward));
        TRY(declare(w, net, ddp, &plan));
        TRY(tsr_ddp_run(ddp, plan));
        TRY(check_gradients(w, m, net, ddp, forward, 1));
        TRY(tsr_ddp_run(ddp, plan)); /* added to what is there */
        TRY(check_gradients(w, m, net, ddp, forward, 2));
        tsr_ddp_zero_grad(ddp);
        tsr_ddp_no_sync(ddp, true);
        TRY(tsr_ddp_run(ddp, plan));
        TRY(tsr_ddp_run(ddp, plan));
        tsr_ddp_no_sync(ddp, false);
        TRY(tsr_ddp_run(ddp, plan));
        TRY(check_gradients(w, m, net, ddp, forward, 3));
        TRY(tsr_ddp_close(&ddp));
    }
    return TSR_OK;
}

static void test_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int n = 1; n <= 2; n++)
            expect_ok(n, shared, (void *)(uintptr_t)&models[i]);
}

/* --- when gradients are written --------------------------------------------------------------- */
enum { BATCH = 2, CLASSES = 10, UNTOUCHED = 0x5b, AT_MOST = 2 };

typedef struct early {
    tsr_module *net;
    tsr_ddp *ddp;
    int written[64]; /* by bucket: gradients of later buckets that were there when it started */
} early;

typedef struct counter {
    const early *e;
    const tsr_ddp_bucket *b; /* whose own do not count; NULL: writes the pattern instead */
    int n;
} counter;

static tsr_status visit_gradient(tsr_variable *v, const char *name, void *arg)
{
    counter *c = arg;
    (void)name;
    unsigned char *grad = tsr_ddp_gradient(c->e->ddp, v, NULL);
    size_t bytes =
        (size_t)tsr_dims_count(tsr_variable_dims(v)) * tsr_dtype_size(tsr_variable_dtype(v));
    if (!grad)
        return TSR_OK; /* a buffer */
    if (!c->b) {
        memset(grad, UNTOUCHED, bytes);
        return TSR_OK;
    }
    for (int i = 0; i < c->b->nparams; i++)
        if (c->b->params[i] == v)
            return TSR_OK;
    for (size_t i = 0; i < bytes; i++)
        if (grad[i] != UNTOUCHED) {
            c->n++;
            break;
        }
    return TSR_OK;
}

/* A hook: a bucket starts. Leaves the pattern in those that have started. */
static tsr_status note_written(void *arg, const tsr_ddp_bucket *b)
{
    early *e = arg;
    counter c = {e, b, 0};
    CHECK(b->index < 64);
    TRY(tsr_module_visit(e->net, visit_gradient, &c));
    e->written[b->index] = c.n;
    memset(b->data, UNTOUCHED, (size_t)b->count * tsr_dtype_size(b->dtype));
    return TSR_OK;
}

static tsr_module *make_mobilenet(tsr_world *w, const tsr_placement *p)
{
    return tsr_mobilenet_v2(w, p, TSR_B,
                            TSR_MOBILENET_V2_OPTS(.num_classes = CLASSES, .dropout = 0));
}

static tsr_module *make_mlp(tsr_world *w, const tsr_placement *p)
{
    return tsr_mlp(w, p, TSR_B,
                   TSR_MLP_OPTS(.inputs = 3072, .hidden = 600, .layers = 5, .outputs = CLASSES));
}

typedef struct network {
    tsr_module *(*make)(tsr_world *, const tsr_placement *);
} network;

/* Buckets start long before the pass ends: when one is complete, hardly another's gradient is (the
 * same layer's may be). */
static tsr_status overlaps(tsr_world *w, void *arg)
{
    const network *n = arg;
    const tsr_placement *here = tsr_local_placement(w);
    early e = {.net = n->make(w, here)};
    TRY(tsr_ddp_create(
        e.net, TSR_DDP_OPTS(.bucket_cap_mb = 0.5, .hook_fn = note_written, .hook_state = &e),
        &e.ddp));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(BATCH, 3, 32, 32), here, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH), here, TSR_B);
    tsr_ddp_backward(e.ddp, tsr_cross_entropy(tsr_apply(e.net, x), y, TSR_MEAN));
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    static float image[BATCH * 3072];
    static const int64_t label[BATCH] = {3, 7};
    for (int i = 0; i < BATCH * 3072; i++)
        image[i] = (float)sin(0.37 * i);
    TRY(tsr_feed(plan, "x", image, sizeof image));
    TRY(tsr_feed(plan, "y", label, sizeof label));
    counter all = {&e, NULL, 0};
    TRY(tsr_module_visit(e.net, visit_gradient, &all));
    TRY(tsr_ddp_run(e.ddp, plan));
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(e.ddp, &info));
    CHECK(info.nbuckets >= 4 && info.bucket_cap_bytes == 1 << 19);
    for (int b = 0; b < info.nbuckets; b++)
        if (e.written[b] > AT_MOST) {
            fprintf(stderr, "bucket %d of %d: %d of %d gradients of others are there\n", b,
                    info.nbuckets, e.written[b], info.nparams);
            return TSR_ERR_INTERNAL;
        }
    return tsr_ddp_close(&e.ddp);
}

static void test_overlaps(void **state)
{
    (void)state;
    static const network networks[] = {{make_mlp}, {make_mobilenet}};
    if (ON_DEVICE) /* the hook writes to gradients, as to host memory */
        skip();
    for (int i = 0; i < 2; i++)
        expect_ok(1, overlaps, (void *)(uintptr_t)&networks[i]);
}

/* --- graphs that are refused ------------------------------------------------------------------ */
static tsr_module *make_two(tsr_world *w)
{
    const tsr_nn_opts nn = {.placement = tsr_local_placement(w), .sbp = TSR_B};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_module_param(m, "a", TSR_DIMS(3), TSR_B, (tsr_init){0});
    tsr_module_param(m, "b", TSR_DIMS(3), TSR_B, (tsr_init){0});
    return m;
}

static tsr_tensor *loss_by(tsr_module *m, const char *name, tsr_tensor *x)
{
    return tsr_sum(tsr_mul(x, tsr_use(m, name, x)), TSR_ALL_AXES, false);
}

/* Whichever parameter the first loss leaves out. */
static tsr_status second_pass(tsr_world *w, void *arg)
{
    static const char *const names[] = {"a", "b"};
    (void)arg;
    for (int i = 0; i < 2; i++) {
        tsr_module *m = make_two(w);
        tsr_ddp *ddp;
        TRY(tsr_ddp_create(m, TSR_DDP_OPTS(.find_unused_parameters = true), &ddp));
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(3), tsr_local_placement(w), TSR_B);
        tsr_ddp_backward(ddp, loss_by(m, names[i], x));
        TRY(tsr_graph_status(g));
        tsr_ddp_backward(ddp, loss_by(m, names[1 - i], x));
        FAILS(tsr_graph_status(g), TSR_ERR_STATE, "has a backward pass already");
        TRY(tsr_ddp_close(&ddp));
    }
    return TSR_OK;
}

static void test_second_pass(void **state)
{
    (void)state;
    expect_ok(2, second_pass, NULL);
}

/* The gradients go with their tsr_ddp, and the graphs that write them with those. */
static tsr_status closed(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_module *m = make_two(w);
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(m, TSR_DDP_OPTS(.find_unused_parameters = true), &ddp));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(3), tsr_local_placement(w), TSR_B);
    tsr_ddp_backward(ddp, loss_by(m, "a", x));
    TRY(tsr_graph_status(g));
    tsr_plan *plan;
    FAILS(tsr_ddp_run(ddp, NULL), TSR_ERR_INVALID, "no plan");
    tsr_ddp_destroy(ddp);
    CHECK(strstr(tsr_last_error(), "no plan")); /* nothing has failed since */
    FAILS(tsr_compile(g, &plan), TSR_ERR_STATE, "a.grad, which this graph writes, was destroyed");
    return TSR_OK;
}

static void test_closed(void **state)
{
    (void)state;
    expect_ok(1, closed, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_second_pass),
        cmocka_unit_test(test_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
