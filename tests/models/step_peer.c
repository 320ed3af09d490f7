/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of step_values.py: programs in which it matters when an update shows. In f64.
 *
 * usage: step_peer SCENARIO RANKS PARAMETERS STATES DATA DIR
 *
 * PARAMETERS, STATES and DATA are signatures ("B", "S(0)", "auto"). Writes the initial weights to
 * DIR/first.safetensors and those after 5 runs to DIR/last.safetensors; prints what each run gives,
 * one line a run: the outputs' elements in order of declaration.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

enum { ROWS = 6, IN = 3, RUNS = 5 };

typedef struct job {
    const char *scenario, *dir;
    tsr_sbp param, state, data;
} job;

typedef struct bench {
    const job *j;
    tsr_world *w;
    const tsr_placement *p;
    tsr_module *net; /* of all scenarios' parts */
    tsr_graph *g;
    tsr_tensor *x; /* (ROWS, IN) */
    const char *outputs[4];
    int noutputs;
} bench;

static tsr_module *add_part(bench *b, const char *name, int n, const char *const *params,
                            const tsr_dims *dims)
{
    tsr_nn_opts nn = {.placement = b->p, .sbp = b->j->param, .dtype = TSR_F64, .seed = 3};
    tsr_module *m = tsr_module_create(b->w, &nn, NULL, NULL, NULL);
    for (int i = 0; i < n; i++)
        tsr_module_param(m, params[i], dims[i], TSR_AUTO,
                         (tsr_init){.kind = TSR_INIT_UNIFORM, .a = -0.7, .b = 0.7});
    return tsr_module_add(b->net, name, m);
}

static void output(bench *b, const char *name, tsr_tensor *x)
{
    tsr_output(b->g, name, x, b->p, TSR_B);
    b->outputs[b->noutputs++] = name;
}

static tsr_tensor *mean(tsr_tensor *x)
{
    return tsr_mean(x, TSR_ALL_AXES, false);
}

/* --- scenarios -------------------------------------------------------------------------------- */
static tsr_tensor *judge(tsr_module *critic, tsr_tensor *x)
{
    tsr_tensor *h = tsr_linear(x, tsr_use(critic, "w1", x), tsr_use(critic, "b1", x));
    return tsr_linear(tsr_tanh(h), tsr_use(critic, "w2", x), tsr_use(critic, "b2", x));
}

static tsr_module *make_critic(bench *b)
{
    return add_part(b, "critic", 4, (const char *const[]){"w1", "b1", "w2", "b2"},
                    (const tsr_dims[]){TSR_DIMS(4, IN), TSR_DIMS(4), TSR_DIMS(1, 4), TSR_DIMS(1)});
}

/* The critic's update stands before the generator's loss, which reads the critic again. */
static void declare_gan(bench *b)
{
    tsr_module *critic = make_critic(b);
    tsr_module *maker = add_part(b, "maker", 2, (const char *const[]){"w", "b"},
                                 (const tsr_dims[]){TSR_DIMS(IN, IN), TSR_DIMS(IN)});
    tsr_tensor *x = b->x;
    tsr_tensor *made = tsr_linear(x, tsr_use(maker, "w", x), tsr_use(maker, "b", x));
    tsr_tensor *real = mean(judge(critic, x)), *fake = mean(judge(critic, made));
    tsr_tensor *loss = tsr_sub(fake, real);
    tsr_minimize(tsr_sgd(critic, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .nesterov = true,
                                              .state = b->j->state)),
                 loss);
    tsr_tensor *again = judge(critic, made), *maker_loss = tsr_neg(mean(tsr_mul(again, again)));
    tsr_minimize(tsr_adam(maker, TSR_ADAM_OPTS(.lr = 0.02, .state = b->j->state)), maker_loss);
    output(b, "loss", loss);
    output(b, "maker_loss", maker_loss);
    output(b, "after", tsr_tanh(tsr_use(critic, "w2", x)));
}

/* Two optimizers over one net, each with a loss of its own. */
static void declare_shared(bench *b)
{
    tsr_module *critic = make_critic(b);
    tsr_tensor *y = judge(critic, b->x), *first = mean(y), *second = mean(tsr_mul(y, y)), *grad;
    tsr_minimize(tsr_adamw(critic, TSR_ADAM_OPTS(.lr = 0.02, .state = b->j->state)), first);
    tsr_minimize(tsr_sgd(critic, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.5, .weight_decay = 0.1,
                                              .state = b->j->state)),
                 second);
    tsr_tensor *w1 = tsr_use(critic, "w1", b->x);
    tsr_gradients(second, 1, &w1, &grad);
    output(b, "first", first);
    output(b, "second", second);
    output(b, "grad", grad);
}

/* One table for both ends, and the whole applied twice. */
static void declare_tied(bench *b)
{
    tsr_module *part = add_part(b, "tied", 2, (const char *const[]){"w", "b"},
                                (const tsr_dims[]){TSR_DIMS(5, IN), TSR_DIMS(5)});
    tsr_tensor *y = b->x, *h = NULL, *grad;
    for (int i = 0; i < 2; i++) {
        tsr_tensor *w = tsr_use(part, "w", y);
        h = tsr_tanh(tsr_linear(y, w, tsr_use(part, "b", y)));
        y = tsr_matmul(h, w);
    }
    tsr_tensor *loss = tsr_mse_loss(y, b->x, TSR_MEAN);
    tsr_minimize(tsr_adam(part, TSR_ADAM_OPTS(.lr = 0.05, .state = b->j->state)), loss);
    tsr_gradients(loss, 1, &h, &grad);
    output(b, "loss", loss);
    output(b, "grad", grad);
}

/* Batch norm twice over one pair of running averages, which the loss reads too; the data lies far
 * from zero. */
static void declare_norm(bench *b)
{
    tsr_module *part = add_part(b, "norm", 3, (const char *const[]){"gamma", "beta", "w"},
                                (const tsr_dims[]){TSR_DIMS(IN), TSR_DIMS(IN), TSR_DIMS(IN)});
    tsr_module_buffer(part, "mean", TSR_DIMS(IN), TSR_AUTO,
                      (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 2});
    tsr_module_buffer(part, "var", TSR_DIMS(IN), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_tensor *x = tsr_add_scalar(b->x, 1000);
    tsr_tensor *m = tsr_use(part, "mean", x), *v = tsr_use(part, "var", x);
    tsr_tensor *gamma = tsr_use(part, "gamma", x), *beta = tsr_use(part, "beta", x);
    tsr_tensor *y = tsr_batch_norm(x, gamma, beta, m, v, NULL);
    tsr_tensor *z = tsr_batch_norm(tsr_mul(y, y), gamma, beta, m, v, NULL);
    tsr_tensor *l = tsr_layer_norm(x, gamma, beta, NULL);
    tsr_tensor *loss = tsr_add(mean(tsr_mul(z, tsr_mul(l, x))),
                               mean(tsr_mul(tsr_mul(m, v), tsr_use(part, "w", x))));
    tsr_minimize(tsr_sgd(part, TSR_SGD_OPTS(.lr = 1e-4, .state = b->j->state)), loss);
    output(b, "loss", loss);
    output(b, "l", l);
    output(b, "mean", m);
}

static const struct {
    const char *name;
    void (*declare)(bench *b);
} scenarios[] = {{"gan", declare_gan},
                 {"shared", declare_shared},
                 {"tied", declare_tied},
                 {"norm", declare_norm}};

/* --- running ---------------------------------------------------------------------------------- */
static tsr_status print_outputs(const bench *b, tsr_plan *plan)
{
    double y[ROWS * 5];
    for (int i = 0; i < b->noutputs; i++) {
        tsr_dims dims;
        TSR_TRY(tsr_fetch_shard(plan, b->outputs[i], NULL, 0, &dims));
        TSR_TRY(tsr_fetch(plan, b->outputs[i], y, (size_t)tsr_dims_count(dims) * sizeof *y));
        for (int64_t k = 0; k < tsr_dims_count(dims) && tsr_world_rank(b->w) == 0; k++)
            printf("%.17g ", y[k]);
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
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(scenarios[i].name, b.j->scenario))
            scenarios[i].declare(&b);
    tsr_plan *plan;
    /* Figures by which it pays to split even these few elements. */
    const tsr_compile_opts *slow = TSR_COMPILE_OPTS(.nlinks = 1, .link = {{0, 1e-9, 1e12}},
                                                    .flops_per_s = 1e4, .local_bytes_per_s = 1e5);
    TSR_TRY(tsr_compile_with(b.g, slow, &plan));
    TSR_TRY(save(&b, "first"));
    for (int run = 0; run < RUNS; run++) {
        double x[ROWS * IN];
        for (int i = 0; i < ROWS * IN; i++)
            x[i] = (double)((i * 7 + run * 5) % 11) / 8 - 0.5; /* exact */
        TSR_TRY(tsr_feed(plan, "x", x, sizeof x));
        TSR_TRY(tsr_run(plan));
        TSR_TRY(print_outputs(&b, plan));
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
    if (argc != 7 || !read_sbp(argv[3], &j.param) || !read_sbp(argv[4], &j.state) ||
        !read_sbp(argv[5], &j.data)) {
        fprintf(stderr, "usage: step_peer SCENARIO RANKS PARAMETERS STATES DATA DIR\n");
        return 2;
    }
    j.scenario = argv[1];
    j.dir = argv[6];
    if (tsr_spawn(atoi(argv[2]), rank, &j) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
