/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of recipes.py: training recipes as a user writes them, in f64.
 *
 * usage: recipe_peer RECIPE RANKS PARAMETERS STATES DATA RUNS DIR
 *
 * PARAMETERS, STATES and DATA are signatures ("B", "S(0)", "auto"); PARAMETERS "ddp": the recipe
 * under tsr_ddp, with the rows divided among the ranks. RECIPE is a name of the table below, or
 * OPTIMIZER/SCHEDULE of the tables before it. Writes the initial weights to DIR/first.R.safetensors
 * and the last to DIR/last.R.safetensors, R a rank (0 alone without ddp); prints a line a run: the
 * outputs' elements in order of declaration, then the norms of clipped gradients.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#include "recipe_tables.h"

enum { ROWS = 6, IN = 3, HIDDEN = 4, MOST = 400 };

typedef struct job {
    const char *recipe, *dir;
    bool ddp;
    tsr_sbp param, state, data;
    int runs;
} job;

/* A graph of a recipe; under tsr_ddp there may be several, which are run one after the other. */
typedef struct stage {
    tsr_graph *g;
    tsr_plan *plan;
    tsr_ddp *ddp; /* by which it is run, of tsr_ddp_backward; NULL: tsr_run runs it */
    const char *outputs[6];
    int noutputs;
} stage;

typedef struct bench bench;
struct bench {
    const job *j;
    tsr_world *w;
    const tsr_placement *p;
    tsr_module *net; /* all that is saved */
    tsr_optimizer *opt;
    stage stages[2], *at;
    int nstages;
    tsr_graph *g;
    tsr_tensor *x;   /* (rows, IN) */
    int first, rows; /* of the ROWS, what this rank's graphs have */
    tsr_ddp *ddps[2];
    int nddps;
    bool norms;   /* gradients are clipped by tsr_ddp_minimize or tsr_ddp_step_with */
    bool reports; /* the first output, after each run, to a plateau */
    tsr_status (*last)(struct bench *b); /* is called behind the stages; NULL: nothing */
};

static void begin_stage(bench *b)
{
    b->at = &b->stages[b->nstages++];
    b->g = b->at->g = tsr_graph_create(b->w, TSR_GRAPH_OPTS(.training = true, .local = b->j->ddp));
    b->x = tsr_input(b->g, "x", TSR_F64, TSR_DIMS(b->rows, IN), b->p, b->j->data);
}

/* What follows is run behind the update of what was declared so far: under tsr_ddp it is another
 * graph. */
static void after_update(bench *b)
{
    if (b->j->ddp)
        begin_stage(b);
}

/* The value that the update before after_update gives a variable. */
static tsr_tensor *updated(bench *b, tsr_variable *v)
{
    return b->j->ddp ? tsr_read(b->g, v) : tsr_read_updated(b->g, v);
}

static void output(bench *b, const char *name, tsr_tensor *x)
{
    tsr_output(b->g, name, x, b->p, TSR_B);
    b->at->outputs[b->at->noutputs++] = name;
}

static tsr_ddp *ddp_of(bench *b, tsr_module *m)
{
    tsr_ddp *d = NULL;
    if (tsr_ddp_create(m, NULL, &d) != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    b->ddps[b->nddps++] = d;
    return d;
}

/* tsr_minimize_with, of a global program or of a rank's own. */
static void minimize(bench *b, tsr_module *m, tsr_optimizer *opt, int n, tsr_tensor *const *losses,
                     const tsr_minimize_opts *opts)
{
    tsr_tensor *norm = NULL;
    tsr_minimize_opts o = *TSR_MINIMIZE_OPTS();
    if (opts)
        o = *opts;
    if (b->j->ddp) {
        b->norms |= o.clip_norm > 0;
        tsr_ddp_minimize(ddp_of(b, m), opt, n, losses, &o);
        return;
    }
    o.out_norm = o.clip_norm > 0 ? &norm : NULL;
    tsr_minimize_with(opt, n, losses, &o);
    if (norm)
        output(b, "norm", norm);
}

static void minimize_one(bench *b, tsr_module *m, tsr_tensor *loss)
{
    minimize(b, m, b->opt, 1, &loss, NULL);
}

static tsr_tensor *mean(tsr_tensor *x)
{
    return tsr_mean(x, TSR_ALL_AXES, false);
}

/* A net of two layers, with PyTorch's names: w1, b1, w2, b2. */
static tsr_module *add_net(bench *b, const char *name, uint64_t seed)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    const tsr_dims dims[] = {TSR_DIMS(HIDDEN, IN), TSR_DIMS(HIDDEN), TSR_DIMS(IN, HIDDEN),
                             TSR_DIMS(IN)};
    tsr_nn_opts nn = {.placement = b->p, .sbp = b->j->param, .dtype = TSR_F64, .seed = seed};
    tsr_module *m = tsr_module_add(b->net, name, tsr_module_create(b->w, &nn, NULL, NULL, NULL));
    for (int i = 0; i < 4; i++)
        tsr_module_param(m, names[i], dims[i], TSR_AUTO,
                         (tsr_init){.kind = TSR_INIT_UNIFORM, .a = -0.7, .b = 0.7});
    return m;
}

static tsr_tensor *hidden(tsr_module *m, tsr_tensor *x)
{
    return tsr_tanh(tsr_linear(x, tsr_use(m, "w1", x), tsr_use(m, "b1", x)));
}

static tsr_tensor *apply(tsr_module *m, tsr_tensor *x)
{
    return tsr_linear(hidden(m, x), tsr_use(m, "w2", x), tsr_use(m, "b2", x));
}

/* The mean square of the net's distance from three times its input. */
static tsr_tensor *loss_of(bench *b, tsr_module *m)
{
    return tsr_mse_loss(apply(m, b->x), tsr_mul_scalar(b->x, 3), TSR_MEAN);
}

/* --- optimizers under schedules --------------------------------------------------------------- */
static bool declare_named(bench *b)
{
    const char *slash = strchr(b->j->recipe, '/');
    for (size_t i = 0; slash && i < sizeof optimizers / sizeof *optimizers; i++) {
        const size_t n = strlen(optimizers[i].name);
        if ((size_t)(slash - b->j->recipe) != n || strncmp(optimizers[i].name, b->j->recipe, n))
            continue;
        tsr_module *m = add_net(b, "net", 3);
        b->opt = optimizers[i].make(m, b->j->state, schedule_named(slash + 1));
        b->reports = !strcmp(slash + 1, "plateau");
        tsr_tensor *loss = loss_of(b, m);
        output(b, "loss", loss);
        minimize_one(b, m, loss);
        return true;
    }
    return false;
}

/* --- recipes ---------------------------------------------------------------------------------- */
/* AdamW without decay on biases, gradients clipped to a norm, a cosine behind a warm-up. */
static void declare_adamw(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.05, .weight_decay = 0.1, .state = b->j->state,
                                        .schedule = TSR_COSINE_LR(.warmup = 4, .steps = 16)));
    tsr_optimizer_param_group(b->opt, "net.b?", TSR_PARAM_GROUP_OPTS(.weight_decay = 0));
    tsr_tensor *loss = loss_of(b, m);
    output(b, "loss", loss);
    minimize(b, m, b->opt, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 1));
}

/* The sum of two losses, scaled; elements clipped, then the largest; two rates. */
static void declare_clips(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .state = b->j->state));
    tsr_optimizer_param_group(b->opt, "net.?2", TSR_PARAM_GROUP_OPTS(.lr = 0.2, .momentum = 0.5));
    tsr_tensor *losses[] = {loss_of(b, m), mean(tsr_abs(apply(m, b->x)))};
    output(b, "first", losses[0]);
    output(b, "second", losses[1]);
    minimize(b, m, b->opt, 2, losses,
             TSR_MINIMIZE_OPTS(.loss_scale = 64, .clip_value = 0.5, .clip_norm = 0.4,
                               .norm_type = INFINITY));
}

/* A frozen layer below a new head. */
static void declare_frozen(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.05, .state = b->j->state));
    tsr_optimizer_freeze(b->opt, "net.?1", true);
    tsr_tensor *loss = loss_of(b, m);
    output(b, "loss", loss);
    minimize_one(b, m, loss);
}

/* An average of the weights that follows each update, and the loss that it would have. */
static void declare_ema(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    tsr_module *m = add_net(b, "net", 3), *average = add_net(b, "average", 3);
    b->opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .state = b->j->state));
    tsr_tensor *loss = loss_of(b, m);
    output(b, "loss", loss);
    output(b, "averaged", loss_of(b, average));
    minimize_one(b, m, loss);
    after_update(b);
    for (int i = 0; i < 4; i++) {
        tsr_variable *to = tsr_module_find(average, names[i]);
        tsr_tensor *now = updated(b, tsr_module_find(m, names[i]));
        tsr_assign(to, tsr_add(tsr_mul_scalar(tsr_read(b->g, to), 0.9), tsr_mul_scalar(now, 0.1)));
    }
}

/* A net that learns to foresee what a slower copy of it says of the next input. */
static void declare_target(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    tsr_module *m = add_net(b, "net", 3), *slow = add_net(b, "slow", 4);
    b->opt = tsr_rmsprop(m, TSR_RMSPROP_OPTS(.lr = 0.01, .state = b->j->state));
    tsr_tensor *goal = tsr_add(b->x, tsr_mul_scalar(apply(slow, tsr_mul_scalar(b->x, 2)), 0.9));
    tsr_tensor *loss = tsr_mse_loss(apply(m, b->x), tsr_detach(goal), TSR_MEAN);
    output(b, "loss", loss);
    minimize_one(b, m, loss);
    after_update(b);
    for (int i = 0; i < 4; i++) {
        tsr_variable *to = tsr_module_find(slow, names[i]);
        tsr_tensor *now = updated(b, tsr_module_find(m, names[i]));
        tsr_tensor *old = tsr_read(b->g, to);
        tsr_assign(to, tsr_add(old, tsr_mul_scalar(tsr_sub(now, old), 0.25)));
    }
}

/* One cycle, and cross-entropy with smoothed labels. */
static void declare_smooth(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt =
        tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .nesterov = true, .state = b->j->state,
                                .schedule = TSR_ONE_CYCLE_LR(.steps = 20, .max_lr = 0.5)));
    static const int64_t labels[ROWS] = {0, 1, 2, 2, 1, 0};
    tsr_tensor *y = tsr_constant(b->g, TSR_I64, TSR_DIMS(b->rows), labels + b->first, b->p, TSR_B);
    tsr_tensor *loss =
        tsr_cross_entropy_with(apply(m, b->x), y, TSR_CROSS_ENTROPY_OPTS(.label_smoothing = 0.1));
    output(b, "loss", loss);
    minimize_one(b, m, loss);
}

static tsr_status consume(bench *b)
{
    tsr_ddp_zero_grad(b->ddps[0]);
    return TSR_OK;
}

/* The four parameters and their gradients, in the graph that updates them. */
static void own_gradients(bench *b, tsr_module *m, tsr_tensor *loss, tsr_tensor **params,
                          tsr_tensor **grads)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    output(b, "loss", loss);
    if (b->j->ddp) {
        b->at->ddp = ddp_of(b, m);
        tsr_ddp_backward(b->at->ddp, loss);
        b->last = consume;
        after_update(b);
    }
    for (int i = 0; i < 4; i++) {
        tsr_variable *v = tsr_module_find(m, names[i]);
        params[i] = tsr_read(b->g, v);
        grads[i] = b->j->ddp ? tsr_ddp_read_gradient(b->g, b->ddps[0], v) : NULL;
    }
    if (!b->j->ddp)
        tsr_gradients(loss, 4, params, grads);
}

/* An optimizer of the user's own: Lion, from ops and a buffer for each parameter. */
static void declare_own_lion(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, decay = 0.1;
    tsr_module *m = add_net(b, "net", 3);
    tsr_nn_opts nn = {.placement = b->p, .sbp = b->j->param, .dtype = TSR_F64};
    tsr_module *states = tsr_module_create(b->w, &nn, NULL, NULL, NULL);
    if (b->j->ddp)
        tsr_module_set_local(states);
    tsr_tensor *params[4], *grads[4];
    own_gradients(b, m, loss_of(b, m), params, grads);
    for (int i = 0; i < 4; i++) {
        tsr_variable *s = tsr_module_buffer(states, names[i], tsr_tensor_dims(params[i]), TSR_AUTO,
                                            (tsr_init){0});
        tsr_tensor *old = tsr_read(b->g, s);
        tsr_tensor *move = tsr_add(tsr_mul_scalar(old, beta1), tsr_mul_scalar(grads[i], 1 - beta1));
        tsr_tensor *zero = tsr_mul_scalar(move, 0), *one = tsr_add_scalar(zero, 1);
        tsr_tensor *sign = tsr_where(tsr_greater(move, zero), one,
                                     tsr_where(tsr_less(move, zero), tsr_neg(one), zero));
        tsr_tensor *p = tsr_mul_scalar(params[i], 1 - lr * decay);
        tsr_assign(tsr_module_find(m, names[i]), tsr_sub(p, tsr_mul_scalar(sign, lr)));
        tsr_assign(s, tsr_add(tsr_mul_scalar(old, beta2), tsr_mul_scalar(grads[i], 1 - beta2)));
    }
}

/* LAMB of the user's own: two averages a parameter, a count of updates, and norms. */
static void declare_own_lamb(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    const double lr = 0.02, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1;
    tsr_module *m = add_net(b, "net", 3);
    tsr_nn_opts nn = {.placement = b->p, .sbp = b->j->param, .dtype = TSR_F64};
    tsr_module *states = tsr_module_create(b->w, &nn, NULL, NULL, NULL);
    if (b->j->ddp)
        tsr_module_set_local(states);
    tsr_variable *count = tsr_module_buffer(states, "count", TSR_SCALAR, TSR_B, (tsr_init){0});
    tsr_tensor *params[4], *grads[4];
    own_gradients(b, m, loss_of(b, m), params, grads);
    tsr_tensor *t = tsr_add_scalar(tsr_read(b->g, count), 1), *one = tsr_add_scalar(t, 0);
    one = tsr_sub(tsr_add_scalar(t, 1), one);
    tsr_assign(count, t);
    tsr_tensor *right1 = tsr_sub(one, tsr_exp(tsr_mul_scalar(t, log(beta1))));
    tsr_tensor *right2 = tsr_sub(one, tsr_exp(tsr_mul_scalar(t, log(beta2))));
    for (int i = 0; i < 4; i++) {
        char name[8];
        const tsr_dims dims = tsr_tensor_dims(params[i]);
        snprintf(name, sizeof name, "%sm", names[i]);
        tsr_variable *first = tsr_module_buffer(states, name, dims, TSR_AUTO, (tsr_init){0});
        name[2] = 'v';
        tsr_variable *second = tsr_module_buffer(states, name, dims, TSR_AUTO, (tsr_init){0});
        tsr_tensor *g = grads[i], *old1 = tsr_read(b->g, first), *old2 = tsr_read(b->g, second);
        tsr_tensor *m1 = tsr_add(tsr_mul_scalar(old1, beta1), tsr_mul_scalar(g, 1 - beta1));
        tsr_tensor *m2 =
            tsr_add(tsr_mul_scalar(old2, beta2), tsr_mul_scalar(tsr_mul(g, g), 1 - beta2));
        tsr_tensor *root = tsr_add_scalar(tsr_sqrt(tsr_div(m2, right2)), eps);
        tsr_tensor *r =
            tsr_add(tsr_div(tsr_div(m1, right1), root), tsr_mul_scalar(params[i], decay));
        tsr_tensor *ratio = tsr_div(tsr_norm(params[i], 2, TSR_ALL_AXES, false),
                                    tsr_norm(r, 2, TSR_ALL_AXES, false));
        tsr_assign(tsr_module_find(m, names[i]),
                   tsr_sub(params[i], tsr_mul(r, tsr_mul_scalar(ratio, lr))));
        tsr_assign(first, m1);
        tsr_assign(second, m2);
    }
}

/* A block of a GPT: token and position embeddings, causal attention, a perceptron, and a head that
 * is the embedding's weight; no decay on biases and norms, clipping. */
static void declare_gpt(bench *b)
{
    enum { BATCH = 2, SEQ = ROWS / BATCH, WIDTH = HIDDEN, HEADS = 2, VOCAB = 5, INNER = 8 };
    static const int64_t ids[ROWS] = {0, 3, 1, 4, 4, 2}, next[ROWS] = {3, 1, 2, 4, 2, 0};
    static const struct {
        const char *name;
        tsr_dims dims;
    } params[] = {
        {"emb", {2, {VOCAB, WIDTH}}},  {"pos", {2, {SEQ, WIDTH}}},   {"in", {2, {WIDTH, IN}}},
        {"q", {2, {WIDTH, WIDTH}}},    {"k", {2, {WIDTH, WIDTH}}},   {"v", {2, {WIDTH, WIDTH}}},
        {"proj", {2, {WIDTH, WIDTH}}}, {"fc1", {2, {INNER, WIDTH}}}, {"fc2", {2, {WIDTH, INNER}}},
        {"n1_w", {1, {WIDTH}}},        {"n1_b", {1, {WIDTH}}},       {"n2_w", {1, {WIDTH}}},
        {"n2_b", {1, {WIDTH}}},        {"fc1_b", {1, {INNER}}},      {"fc2_b", {1, {WIDTH}}},
    };
    tsr_nn_opts nn = {.placement = b->p, .sbp = b->j->param, .dtype = TSR_F64, .seed = 5};
    tsr_module *m = tsr_module_add(b->net, "gpt", tsr_module_create(b->w, &nn, NULL, NULL, NULL));
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        tsr_module_param(m, params[i].name, params[i].dims, TSR_AUTO,
                         (tsr_init){.kind = TSR_INIT_UNIFORM, .a = -0.7, .b = 0.7});
    const int64_t batch = b->rows / SEQ;
    tsr_tensor *x = b->x;
    tsr_tensor *in = tsr_constant(b->g, TSR_I64, TSR_DIMS(batch, SEQ), ids + b->first, b->p, TSR_B);
    tsr_tensor *to = tsr_constant(b->g, TSR_I64, TSR_DIMS(b->rows), next + b->first, b->p, TSR_B);
    tsr_tensor *table = tsr_use(m, "emb", x);
    const tsr_dims rows = TSR_DIMS(batch, SEQ, WIDTH),
                   split = TSR_DIMS(batch, SEQ, HEADS, WIDTH / HEADS);
    tsr_tensor *h = tsr_reshape(tsr_linear(x, tsr_use(m, "in", x), NULL), rows);
    h = tsr_add(tsr_add(h, tsr_embedding(table, in, NULL)), tsr_use(m, "pos", x));
    tsr_tensor *y = tsr_layer_norm(h, tsr_use(m, "n1_w", x), tsr_use(m, "n1_b", x), NULL), *qkv[3];
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"q", "k", "v"};
        qkv[i] = tsr_permute(tsr_reshape(tsr_linear(y, tsr_use(m, names[i], x), NULL), split),
                             TSR_AXES(0, 2, 1, 3));
    }
    y = tsr_attention(qkv[0], qkv[1], qkv[2], TSR_ATTENTION_OPTS(.causal = true));
    y = tsr_reshape(tsr_permute(y, TSR_AXES(0, 2, 1, 3)), rows);
    h = tsr_add(h, tsr_linear(y, tsr_use(m, "proj", x), NULL));
    y = tsr_layer_norm(h, tsr_use(m, "n2_w", x), tsr_use(m, "n2_b", x), NULL);
    y = tsr_gelu(tsr_linear(y, tsr_use(m, "fc1", x), tsr_use(m, "fc1_b", x)), TSR_GELU_TANH);
    h = tsr_add(h, tsr_linear(y, tsr_use(m, "fc2", x), tsr_use(m, "fc2_b", x)));
    tsr_tensor *logits = tsr_linear(tsr_reshape(h, TSR_DIMS(b->rows, WIDTH)), table, NULL);
    tsr_tensor *loss = tsr_cross_entropy(logits, to, TSR_MEAN);
    b->opt = tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.03, .weight_decay = 0.1, .state = b->j->state));
    tsr_optimizer_param_group(b->opt, "gpt.*_b", TSR_PARAM_GROUP_OPTS(.weight_decay = 0));
    tsr_optimizer_param_group(b->opt, "gpt.n?_w", TSR_PARAM_GROUP_OPTS(.weight_decay = 0));
    output(b, "loss", loss);
    minimize(b, m, b->opt, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 1));
}

/* The same under tsr_ddp: one is halved where it lies, one is none of the update's. */
static tsr_status step_with(bench *b)
{
    double *w2 =
        tsr_ddp_gradient(b->ddps[0], tsr_module_find(tsr_module_child(b->net, "net"), "w2"), NULL);
    for (int i = 0; i < IN * HIDDEN; i++)
        w2[i] *= 0.5;
    return tsr_ddp_step_with(
        b->ddps[0], b->opt, TSR_MINIMIZE_OPTS(.clip_value = 0.3, .clip_norm = 0.5, .norm_type = 3));
}

/* Gradients of the user's making: half of them, clipped, applied by a built-in optimizer. */
static void declare_gradients(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.05, .state = b->j->state));
    tsr_tensor *loss = loss_of(b, m), *values[4], *grads[4];
    tsr_variable *params[4];
    output(b, "loss", loss);
    if (b->j->ddp) {
        tsr_optimizer_freeze(b->opt, "net.b1", true);
        b->at->ddp = ddp_of(b, m);
        tsr_ddp_backward(b->at->ddp, loss);
        b->last = step_with;
        b->norms = true;
        return;
    }
    for (int i = 0; i < 4; i++) {
        params[i] = tsr_module_find(m, names[i]);
        values[i] = tsr_read(b->g, params[i]);
    }
    tsr_gradients(loss, 4, values, grads);
    grads[1] = NULL;
    grads[2] = tsr_mul_scalar(grads[2], 0.5);
    tsr_clip_grad_value(4, grads, 0.3);
    tsr_tensor *norm = tsr_clip_grad_norm(4, grads, 0.5, 3);
    tsr_apply_gradients(b->opt, 4, params, grads);
    output(b, "norm", norm);
}

/* The whole of it: no decay on biases, clipping, a warm-up, and four runs for each update. */
static void declare_accumulated(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.05, .weight_decay = 0.1, .state = b->j->state,
                                        .schedule = TSR_COSINE_LR(.warmup = 2, .steps = 3)));
    tsr_optimizer_param_group(b->opt, "net.b?", TSR_PARAM_GROUP_OPTS(.weight_decay = 0));
    tsr_tensor *loss = loss_of(b, m);
    output(b, "loss", loss);
    minimize(b, m, b->opt, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 1, .accumulate = 4));
}

/* LAMB over three runs and a momentum over two, in one graph, or under tsr_ddp in two. */
static void declare_accumulated_two(bench *b)
{
    tsr_module *m = add_net(b, "net", 3), *other = add_net(b, "other", 4);
    tsr_tensor *loss = loss_of(b, m);
    output(b, "first", loss);
    minimize(b, m, tsr_lamb(m, TSR_ADAM_OPTS(.lr = 0.02, .state = b->j->state)), 1, &loss,
             TSR_MINIMIZE_OPTS(.accumulate = 3));
    after_update(b);
    loss = loss_of(b, other);
    output(b, "second", loss);
    minimize(b, other,
             tsr_sgd(other, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .state = b->j->state)), 1,
             &loss, TSR_MINIMIZE_OPTS(.accumulate = 2, .loss_scale = 4));
}

/* A critic's update, and then its maker's by what the critic says. For tsr_ddp: what both say of
 * the same weights is a scenario of step_peer. */
static void declare_gan(bench *b)
{
    tsr_module *critic = add_net(b, "critic", 3), *maker = add_net(b, "maker", 4);
    tsr_tensor *fake = mean(apply(critic, tsr_detach(apply(maker, b->x))));
    tsr_tensor *loss = tsr_sub(fake, mean(apply(critic, b->x)));
    output(b, "loss", loss);
    minimize(b, critic, tsr_sgd(critic, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9)), 1, &loss, NULL);
    after_update(b);
    tsr_tensor *again = apply(critic, apply(maker, b->x));
    loss = tsr_neg(mean(tsr_mul(again, again)));
    output(b, "maker_loss", loss);
    minimize(b, maker, tsr_adam(maker, TSR_ADAM_OPTS(.lr = 0.02)), 1, &loss, NULL);
}

static const struct {
    const char *name;
    void (*declare)(bench *b);
} recipes[] = {
    {"accumulated", declare_accumulated},
    {"accumulated_two", declare_accumulated_two},
    {"adamw", declare_adamw},
    {"clips", declare_clips},
    {"frozen", declare_frozen},
    {"ema", declare_ema},
    {"target", declare_target},
    {"smooth", declare_smooth},
    {"own_lion", declare_own_lion},
    {"own_lamb", declare_own_lamb},
    {"gpt", declare_gpt},
    {"gradients", declare_gradients},
    {"gan", declare_gan},
};

/* --- running ---------------------------------------------------------------------------------- */
/* A value of all rows: the mean of what ranks say of theirs. */
static tsr_status print_value(const bench *b, double y)
{
    if (b->j->ddp)
        TSR_TRY(tsr_all_reduce(tsr_world_group(b->w), &y, 1, TSR_F64, TSR_REDUCE_AVG));
    if (tsr_world_rank(b->w) == 0)
        printf("%.17g ", y);
    return TSR_OK;
}

static tsr_status print_outputs(const bench *b, const stage *s)
{
    double y[MOST];
    for (int i = 0; i < s->noutputs; i++) {
        tsr_dims dims;
        TSR_TRY(tsr_fetch_shard(s->plan, s->outputs[i], NULL, 0, &dims));
        TSR_TRY(tsr_fetch(s->plan, s->outputs[i], y, (size_t)tsr_dims_count(dims) * sizeof *y));
        for (int64_t k = 0; k < tsr_dims_count(dims); k++)
            TSR_TRY(print_value(b, y[k]));
        if (b->reports && i == 0) {
            if (b->j->ddp)
                TSR_TRY(tsr_all_reduce(tsr_world_group(b->w), y, 1, TSR_F64, TSR_REDUCE_AVG));
            tsr_optimizer_report(b->opt, y[0]);
        }
    }
    return TSR_OK;
}

static tsr_status print_norm(const bench *b)
{
    tsr_ddp_info info = {.size = sizeof info};
    TSR_TRY(tsr_ddp_get_info(b->ddps[0], &info));
    return print_value(b, info.grad_norm);
}

static tsr_status save(const bench *b, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d.safetensors", b->j->dir, name,
             b->j->ddp ? tsr_world_rank(b->w) : 0);
    return tsr_save(b->net, path);
}

static tsr_status run_stage(bench *b, stage *s, int run)
{
    double x[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (double)((i * 7 + run * 5) % 11) / 8 - 0.5; /* exact */
    TSR_TRY(tsr_feed(s->plan, "x", x + (ptrdiff_t)b->first * IN, (size_t)b->rows * IN * sizeof *x));
    TSR_TRY(s->ddp ? tsr_ddp_run(s->ddp, s->plan) : tsr_run(s->plan));
    return print_outputs(b, s);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    bench b = {.j = arg, .w = w, .rows = ROWS};
    b.p = b.j->ddp ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu");
    if (b.j->ddp) {
        b.rows = ROWS / tsr_world_size(w);
        b.first = b.rows * tsr_world_rank(w);
    }
    tsr_nn_opts nn = {.placement = b.p, .sbp = b.j->param, .dtype = TSR_F64};
    b.net = tsr_nn_sequential(w, &nn);
    if (b.j->ddp)
        TSR_TRY(tsr_module_set_local(b.net));
    begin_stage(&b);
    bool known = declare_named(&b);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes && !known; i++) {
        known = !strcmp(recipes[i].name, b.j->recipe);
        if (known)
            recipes[i].declare(&b);
    }
    /* Figures by which it pays to split even these few elements. */
    const tsr_compile_opts *slow = TSR_COMPILE_OPTS(.nlinks = 1, .link = {{0, 1e-9, 1e12}},
                                                    .flops_per_s = 1e4, .local_bytes_per_s = 1e5);
    for (int i = 0; i < b.nstages; i++)
        TSR_TRY(tsr_compile_with(b.stages[i].g, slow, &b.stages[i].plan));
    TSR_TRY(save(&b, "first"));
    for (int run = 0; run < b.j->runs; run++) {
        for (int i = 0; i < b.nstages; i++)
            TSR_TRY(run_stage(&b, &b.stages[i], run));
        TSR_TRY(b.last ? b.last(&b) : TSR_OK);
        TSR_TRY(b.norms ? print_norm(&b) : TSR_OK);
        if (tsr_world_rank(w) == 0)
            printf("\n");
    }
    for (int i = 0; i < b.nddps; i++)
        TSR_TRY(tsr_ddp_close(&b.ddps[i]));
    return save(&b, "last");
}

static bool read_sbp(const char *text, tsr_sbp *out)
{
    *out = TSR_AUTO;
    return !strcmp(text, "auto") || tsr_sbp_parse(text, out) == TSR_OK;
}

int main(int argc, char **argv)
{
    job j;
    j.ddp = argc == 8 && !strcmp(argv[3], "ddp");
    if (argc != 8 || !read_sbp(j.ddp ? "B" : argv[3], &j.param) || !read_sbp(argv[4], &j.state) ||
        !read_sbp(argv[5], &j.data)) {
        fprintf(stderr, "usage: recipe_peer RECIPE RANKS PARAMETERS STATES DATA RUNS DIR\n");
        return 2;
    }
    j.recipe = argv[1];
    j.runs = atoi(argv[6]);
    j.dir = argv[7];
    if (tsr_spawn(atoi(argv[2]), rank, &j) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
