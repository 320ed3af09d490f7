/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of recipes.py: training recipes as a user writes them, in f64.
 *
 * usage: recipe_peer RECIPE RANKS PARAMETERS STATES DATA RUNS DIR
 *
 * PARAMETERS, STATES and DATA are signatures ("B", "S(0)", "auto"). RECIPE is a name of the table
 * below, or OPTIMIZER/SCHEDULE of the tables before it. Writes the initial weights to
 * DIR/first.safetensors and the last to DIR/last.safetensors; prints a line a run: the outputs'
 * elements in order of declaration.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#define TRY(expr)                 \
    do {                          \
        tsr_status try_ = (expr); \
        if (try_ != TSR_OK)       \
            return try_;          \
    } while (0)

enum { ROWS = 6, IN = 3, HIDDEN = 4, MOST = 400 };

typedef struct job {
    const char *recipe, *dir;
    tsr_sbp param, state, data;
    int runs;
} job;

typedef struct bench {
    const job *j;
    tsr_world *w;
    const tsr_placement *p;
    tsr_module *net; /* all that is saved */
    tsr_optimizer *opt;
    tsr_graph *g;
    tsr_tensor *x; /* (ROWS, IN) */
    const char *outputs[6];
    int noutputs;
    bool reports; /* the first output, after each run, to a plateau */
} bench;

static void output(bench *b, const char *name, tsr_tensor *x)
{
    tsr_output(b->g, name, x, b->p, TSR_B);
    b->outputs[b->noutputs++] = name;
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

/* --- optimizers and schedules ----------------------------------------------------------------- */
typedef tsr_optimizer *make_fn(tsr_module *m, tsr_sbp state, tsr_schedule s);

static tsr_optimizer *make_sgd(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01,
                                   .dampening = 0.1, .schedule = s, .state = state));
}
static tsr_optimizer *make_nesterov(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .nesterov = true, .schedule = s,
                                   .state = state));
}
static tsr_optimizer *make_adam(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_adam(m,
                    TSR_ADAM_OPTS(.lr = 0.05, .weight_decay = 0.01, .schedule = s, .state = state));
}
static tsr_optimizer *make_adamw(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.05, .schedule = s, .state = state));
}
static tsr_optimizer *make_rmsprop(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_rmsprop(
        m, TSR_RMSPROP_OPTS(.lr = 0.01, .weight_decay = 0.01, .schedule = s, .state = state));
}
static tsr_optimizer *make_centered(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_rmsprop(m, TSR_RMSPROP_OPTS(.lr = 0.01, .centered = true, .alpha = 0.9,
                                           .momentum = 0.5, .schedule = s, .state = state));
}
static tsr_optimizer *make_adagrad(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_adagrad(m, TSR_ADAGRAD_OPTS(.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.01,
                                           .initial_accumulator_value = 0.5, .schedule = s,
                                           .state = state));
}
static tsr_optimizer *make_lion(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_lion(m,
                    TSR_LION_OPTS(.lr = 0.01, .weight_decay = 0.1, .schedule = s, .state = state));
}
static tsr_optimizer *make_lamb(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_lamb(m,
                    TSR_ADAM_OPTS(.lr = 0.02, .weight_decay = 0.1, .schedule = s, .state = state));
}

static const struct {
    const char *name;
    make_fn *make;
} optimizers[] = {
    {"sgd", make_sgd},         {"nesterov", make_nesterov}, {"adam", make_adam},
    {"adamw", make_adamw},     {"rmsprop", make_rmsprop},   {"centered", make_centered},
    {"adagrad", make_adagrad}, {"lion", make_lion},         {"lamb", make_lamb},
};

static double by_callback(int64_t step, double lr, void *arg)
{
    const double *slope = arg;
    return lr / (1 + *slope * (double)step);
}

static tsr_schedule schedule_named(const char *name)
{
    static const int64_t milestones[] = {3, 10, 11};
    static double slope = 0.25;
    const struct {
        const char *name;
        tsr_schedule schedule;
    } all[] = {
        {"step", TSR_STEP_LR(.step_size = 7)},
        {"multi_step", TSR_MULTI_STEP_LR(.milestones = milestones, .nmilestones = 3, .gamma = 0.5)},
        {"exponential", TSR_EXPONENTIAL_LR(.gamma = 0.95)},
        {"linear", TSR_LINEAR_LR(.steps = 8)},
        {"cosine", TSR_COSINE_LR(.steps = 50, .min_lr = 1e-3)},
        {"restarts", TSR_COSINE_RESTARTS_LR(.steps = 5, .restart_factor = 2, .min_lr = 1e-3)},
        {"one_cycle", TSR_ONE_CYCLE_LR(.steps = 50, .max_lr = 0.1)},
        {"three_phase",
         TSR_ONE_CYCLE_LR(.steps = 50, .max_lr = 0.1, .three_phase = true, .linear = true)},
        {"plateau", TSR_PLATEAU_LR(.factor = 0.5, .patience = 2, .cooldown = 1, .threshold = 0.05)},
        {"callback", {.kind = TSR_SCHEDULE_CALLBACK, .callback = by_callback, .arg = &slope}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name))
            return all[i].schedule;
    return (tsr_schedule){0};
}

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
        tsr_minimize(b->opt, loss);
        output(b, "loss", loss);
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
    tsr_tensor *loss = loss_of(b, m), *norm;
    tsr_minimize_with(b->opt, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 1, .out_norm = &norm));
    output(b, "loss", loss);
    output(b, "norm", norm);
}

/* The sum of two losses, scaled; elements clipped, then the largest; two rates. */
static void declare_clips(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .state = b->j->state));
    tsr_optimizer_param_group(b->opt, "net.?2", TSR_PARAM_GROUP_OPTS(.lr = 0.2, .momentum = 0.5));
    tsr_tensor *losses[] = {loss_of(b, m), mean(tsr_abs(apply(m, b->x)))}, *norm;
    tsr_minimize_with(b->opt, 2, losses,
                      TSR_MINIMIZE_OPTS(.loss_scale = 64, .clip_value = 0.5, .clip_norm = 0.4,
                                        .norm_type = INFINITY, .out_norm = &norm));
    output(b, "first", losses[0]);
    output(b, "second", losses[1]);
    output(b, "norm", norm);
}

/* A frozen layer below a new head. */
static void declare_frozen(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.05, .state = b->j->state));
    tsr_optimizer_freeze(b->opt, "net.?1", true);
    tsr_tensor *loss = loss_of(b, m);
    tsr_minimize(b->opt, loss);
    output(b, "loss", loss);
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
    tsr_minimize(b->opt, loss);
    for (int i = 0; i < 4; i++) {
        tsr_variable *to = tsr_module_find(average, names[i]);
        tsr_tensor *now = tsr_read_updated(b->g, tsr_module_find(m, names[i]));
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
    tsr_minimize(b->opt, loss);
    for (int i = 0; i < 4; i++) {
        tsr_variable *to = tsr_module_find(slow, names[i]);
        tsr_tensor *now = tsr_read_updated(b->g, tsr_module_find(m, names[i]));
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
    tsr_tensor *y = tsr_constant(b->g, TSR_I64, TSR_DIMS(ROWS), labels, b->p, TSR_B);
    tsr_tensor *loss =
        tsr_cross_entropy_with(apply(m, b->x), y, TSR_CROSS_ENTROPY_OPTS(.label_smoothing = 0.1));
    tsr_minimize(b->opt, loss);
    output(b, "loss", loss);
}

/* An optimizer of the user's own: Lion, from ops and a buffer for each parameter. */
static void declare_own_lion(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, decay = 0.1;
    tsr_module *m = add_net(b, "net", 3);
    tsr_nn_opts nn = {.placement = b->p, .sbp = b->j->param, .dtype = TSR_F64};
    tsr_module *states = tsr_module_create(b->w, &nn, NULL, NULL, NULL);
    tsr_tensor *loss = loss_of(b, m), *params[4], *grads[4];
    for (int i = 0; i < 4; i++)
        params[i] = tsr_read(b->g, tsr_module_find(m, names[i]));
    tsr_gradients(loss, 4, params, grads);
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
    output(b, "loss", loss);
}

/* LAMB of the user's own: two averages a parameter, a count of updates, and norms. */
static void declare_own_lamb(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    const double lr = 0.02, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1;
    tsr_module *m = add_net(b, "net", 3);
    tsr_nn_opts nn = {.placement = b->p, .sbp = b->j->param, .dtype = TSR_F64};
    tsr_module *states = tsr_module_create(b->w, &nn, NULL, NULL, NULL);
    tsr_variable *count = tsr_module_buffer(states, "count", TSR_SCALAR, TSR_B, (tsr_init){0});
    tsr_tensor *t = tsr_add_scalar(tsr_read(b->g, count), 1), *one = tsr_add_scalar(t, 0);
    one = tsr_sub(tsr_add_scalar(t, 1), one);
    tsr_assign(count, t);
    tsr_tensor *right1 = tsr_sub(one, tsr_exp(tsr_mul_scalar(t, log(beta1))));
    tsr_tensor *right2 = tsr_sub(one, tsr_exp(tsr_mul_scalar(t, log(beta2))));
    tsr_tensor *loss = loss_of(b, m), *params[4], *grads[4];
    for (int i = 0; i < 4; i++)
        params[i] = tsr_read(b->g, tsr_module_find(m, names[i]));
    tsr_gradients(loss, 4, params, grads);
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
    output(b, "loss", loss);
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
    tsr_tensor *x = b->x, *in = tsr_constant(b->g, TSR_I64, TSR_DIMS(BATCH, SEQ), ids, b->p, TSR_B);
    tsr_tensor *to = tsr_constant(b->g, TSR_I64, TSR_DIMS(ROWS), next, b->p, TSR_B);
    tsr_tensor *table = tsr_use(m, "emb", x);
    const tsr_dims rows = TSR_DIMS(BATCH, SEQ, WIDTH),
                   split = TSR_DIMS(BATCH, SEQ, HEADS, WIDTH / HEADS);
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
    tsr_tensor *logits = tsr_linear(tsr_reshape(h, TSR_DIMS(ROWS, WIDTH)), table, NULL), *norm;
    tsr_tensor *loss = tsr_cross_entropy(logits, to, TSR_MEAN);
    b->opt = tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.03, .weight_decay = 0.1, .state = b->j->state));
    tsr_optimizer_param_group(b->opt, "gpt.*_b", TSR_PARAM_GROUP_OPTS(.weight_decay = 0));
    tsr_optimizer_param_group(b->opt, "gpt.n?_w", TSR_PARAM_GROUP_OPTS(.weight_decay = 0));
    tsr_minimize_with(b->opt, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 1, .out_norm = &norm));
    output(b, "loss", loss);
    output(b, "norm", norm);
}

/* Gradients of the user's making: half of them, clipped, applied by a built-in optimizer. */
static void declare_gradients(bench *b)
{
    static const char *const names[] = {"w1", "b1", "w2", "b2"};
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.05, .state = b->j->state));
    tsr_tensor *loss = loss_of(b, m), *values[4], *grads[4];
    tsr_variable *params[4];
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
    output(b, "loss", loss);
    output(b, "norm", norm);
}

/* The whole of it: no decay on biases, clipping, a warm-up, and four runs for each update. */
static void declare_accumulated(bench *b)
{
    tsr_module *m = add_net(b, "net", 3);
    b->opt = tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.05, .weight_decay = 0.1, .state = b->j->state,
                                        .schedule = TSR_COSINE_LR(.warmup = 2, .steps = 3)));
    tsr_optimizer_param_group(b->opt, "net.b?", TSR_PARAM_GROUP_OPTS(.weight_decay = 0));
    tsr_tensor *loss = loss_of(b, m), *norm;
    tsr_minimize_with(b->opt, 1, &loss,
                      TSR_MINIMIZE_OPTS(.clip_norm = 1, .accumulate = 4, .out_norm = &norm));
    output(b, "loss", loss);
    output(b, "norm", norm);
}

/* LAMB over three runs and a momentum over two, in one graph. */
static void declare_accumulated_two(bench *b)
{
    tsr_module *m = add_net(b, "net", 3), *other = add_net(b, "other", 4);
    tsr_tensor *first = loss_of(b, m), *second = loss_of(b, other);
    tsr_minimize_with(tsr_lamb(m, TSR_ADAM_OPTS(.lr = 0.02, .state = b->j->state)), 1, &first,
                      TSR_MINIMIZE_OPTS(.accumulate = 3));
    tsr_minimize_with(
        tsr_sgd(other, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .state = b->j->state)), 1, &second,
        TSR_MINIMIZE_OPTS(.accumulate = 2, .loss_scale = 4));
    output(b, "first", first);
    output(b, "second", second);
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
};

/* --- running ---------------------------------------------------------------------------------- */
static tsr_status print_outputs(const bench *b, tsr_plan *plan)
{
    double y[MOST];
    for (int i = 0; i < b->noutputs; i++) {
        tsr_dims dims;
        TRY(tsr_fetch_shard(plan, b->outputs[i], NULL, 0, &dims));
        TRY(tsr_fetch(plan, b->outputs[i], y, (size_t)tsr_dims_count(dims) * sizeof *y));
        for (int64_t k = 0; k < tsr_dims_count(dims) && tsr_world_rank(b->w) == 0; k++)
            printf("%.17g ", y[k]);
        if (b->reports && i == 0)
            tsr_optimizer_report(b->opt, y[0]);
    }
    if (tsr_world_rank(b->w) == 0)
        printf("\n");
    return TSR_OK;
}

static tsr_status save(const bench *b, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.safetensors", b->j->dir, name);
    return tsr_save(b->net, path);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    bench b = {.j = arg, .w = w, .p = tsr_placement_parse(w, "cpu")};
    tsr_nn_opts nn = {.placement = b.p, .sbp = b.j->param, .dtype = TSR_F64};
    b.net = tsr_nn_sequential(w, &nn);
    b.g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    b.x = tsr_input(b.g, "x", TSR_F64, TSR_DIMS(ROWS, IN), b.p, b.j->data);
    bool known = declare_named(&b);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes && !known; i++) {
        known = !strcmp(recipes[i].name, b.j->recipe);
        if (known)
            recipes[i].declare(&b);
    }
    tsr_plan *plan;
    /* Figures by which it pays to split even these few elements. */
    const tsr_compile_opts *slow = TSR_COMPILE_OPTS(.nlinks = 1, .link = {{0, 1e-9, 1e12}},
                                                    .flops_per_s = 1e4, .local_bytes_per_s = 1e5);
    TRY(tsr_compile_with(b.g, slow, &plan));
    TRY(save(&b, "first"));
    for (int run = 0; run < b.j->runs; run++) {
        double x[ROWS * IN];
        for (int i = 0; i < ROWS * IN; i++)
            x[i] = (double)((i * 7 + run * 5) % 11) / 8 - 0.5; /* exact */
        TRY(tsr_feed(plan, "x", x, sizeof x));
        TRY(tsr_run(plan));
        TRY(print_outputs(&b, plan));
    }
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
    if (argc != 8 || !read_sbp(argv[3], &j.param) || !read_sbp(argv[4], &j.state) ||
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
