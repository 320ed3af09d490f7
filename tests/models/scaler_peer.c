/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of grad_scalers.py: two optimizers, whose gradients are fed, and one scaler.
 *
 * usage: scaler_peer GRADIENTS KEY=VALUE...
 *
 * GRADIENTS is a file of f32: for each run 15 gradients of a (5, 3) and 4 of b (4), of the loss
 * that is not scaled. After each run rank 0 prints scale, tracker, for each optimizer its updates
 * and rate, whether it was left out, and the elements of a and b.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

enum { A = 15, B = 4, MOST = 512 };

typedef struct job {
    const char *file, *kind, *mode, *folder;
    int ranks, accumulate, from, save, lazy, runs, enabled;
    int apart; /* a and b are each on a rank of its own, and the last rank has neither, and speaks
                */
    double init_scale, growth, backoff, clip_norm, clip_value;
    int64_t interval;
    tsr_sbp param, data, state;
    float x[MOST][A + B];
} job;

typedef struct bench {
    job *j;
    tsr_world *w;
    const tsr_placement *p, *pb; /* of a, of b */
    tsr_module *a, *b;
    tsr_optimizer *oa, *ob;
    tsr_grad_scaler *scaler;
    tsr_ddp *ddp;
} bench;

static void own_update(tsr_update *u)
{
    u->new_state[0] = tsr_add(tsr_mul(u->state[0], u->number[0]), u->grad);
    u->new_param = tsr_sub(u->param, tsr_mul(u->new_state[0], u->lr));
}

static tsr_optimizer *make_optimizer(const bench *t, tsr_module *m)
{
    const tsr_schedule s = TSR_STEP_LR(.step_size = 3, .gamma = 0.5);
    const char *kind = t->j->kind;
    const tsr_adam_opts *adam =
        TSR_ADAM_OPTS(.lr = 0.01, .weight_decay = 0.1, .schedule = s, .state = t->j->state);
    if (!strcmp(kind, "sgd"))
        return tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01,
                                       .schedule = s, .state = t->j->state));
    if (!strcmp(kind, "adam") || !strcmp(kind, "adamw") || !strcmp(kind, "lamb"))
        return !strcmp(kind, "adam")    ? tsr_adam(m, adam)
               : !strcmp(kind, "adamw") ? tsr_adamw(m, adam)
                                        : tsr_lamb(m, adam);
    if (!strcmp(kind, "lion"))
        return tsr_lion(m, TSR_LION_OPTS(.lr = 0.01, .schedule = s));
    if (!strcmp(kind, "rmsprop"))
        return tsr_rmsprop(m, TSR_RMSPROP_OPTS(.lr = 0.01, .momentum = 0.5, .schedule = s));
    if (!strcmp(kind, "adagrad"))
        return tsr_adagrad(m, TSR_ADAGRAD_OPTS(.lr = 0.1, .schedule = s));
    tsr_optimizer_define(t->w,
                         TSR_OPTIMIZER_DEF(.name = "own", .states = {"sum"},
                                           .numbers = {{"keep", 0.5, 0, 1}}, .update = own_update));
    return tsr_optimizer_create(m, "own", TSR_OWN_OPTIMIZER_OPTS(.lr = 0.1, .schedule = s));
}

static tsr_module *make_module(const bench *t, const tsr_placement *p, const char *name,
                               tsr_dims dims)
{
    tsr_nn_opts nn = {.placement = p, .sbp = t->j->param, .seed = 3};
    tsr_module *m = tsr_module_create(t->w, &nn, NULL, NULL, NULL);
    tsr_module_param(m, name, dims, TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    return m;
}

/* A loss whose gradients are what is fed. */
static tsr_tensor *make_loss(bench *t, tsr_module *m, const char *name, tsr_tensor *x)
{
    (void)t;
    return tsr_sum(tsr_mul(tsr_use(m, name, x), x), TSR_ALL_AXES, false);
}

/* The parts of a minimization, one by one. */
static void apply_by_hand(bench *t, tsr_optimizer *o, tsr_module *m, const char *name,
                          tsr_tensor *loss)
{
    tsr_variable *v = tsr_module_find(m, name);
    tsr_tensor *value = tsr_read(tsr_tensor_graph(loss), v), *grad;
    tsr_gradients(tsr_scale_loss(t->scaler, loss), 1, &value, &grad);
    tsr_unscale(t->scaler, o, 1, &grad);
    if (t->j->clip_norm > 0)
        tsr_clip_grad_norm(1, &grad, t->j->clip_norm, 2);
    tsr_apply_gradients(o, 1, &v, &grad);
}

static tsr_graph *declare(bench *t)
{
    const job *j = t->j;
    const bool ddp = !strcmp(j->mode, "ddp"), hand = !strcmp(j->mode, "hand");
    tsr_graph *g = tsr_graph_create(t->w, TSR_GRAPH_OPTS(.training = true, .local = ddp));
    tsr_tensor *xa = tsr_input(g, "xa", TSR_F32, TSR_DIMS(5, 3), t->p, j->data);
    tsr_tensor *xb = tsr_input(g, "xb", TSR_F32, TSR_DIMS(4), t->pb, j->data);
    tsr_tensor *la = make_loss(t, t->a, "a", xa), *lb = make_loss(t, t->b, "b", xb);
    tsr_tensor *found[2] = {0}, *norm;
    const tsr_minimize_opts *opts[2];
    tsr_minimize_opts with[2];
    for (int i = 0; i < 2; i++) {
        with[i] = *TSR_MINIMIZE_OPTS(.clip_norm = j->clip_norm, .clip_value = j->clip_value,
                                     .accumulate = j->accumulate, .scaler = t->scaler,
                                     .out_found_inf = ddp || !j->enabled ? NULL : &found[i]);
        if (j->clip_norm > 0 && !ddp)
            with[i].out_norm = &norm;
        opts[i] = &with[i];
    }
    if (ddp) {
        tsr_tensor *both[] = {la, lb};
        tsr_ddp_minimize(t->ddp, t->oa, 2, both, opts[0]);
        return g;
    }
    if (hand) {
        apply_by_hand(t, t->oa, t->a, "a", la);
        apply_by_hand(t, t->ob, t->b, "b", lb);
        return g;
    }
    tsr_minimize_with(t->oa, 1, &la, opts[0]);
    tsr_minimize_with(t->ob, 1, &lb, opts[1]);
    for (int i = 0; i < 2; i++)
        if (found[i])
            tsr_output(g, i ? "found_b" : "found_a", found[i], NULL, TSR_B);
    return g;
}

static tsr_status print_run(bench *t, tsr_plan *plan)
{
    const job *j = t->j;
    tsr_grad_scaler_state s;
    float v[A];
    double found[2] = {-1, -1};
    const bool first = tsr_world_rank(t->w) == (j->apart ? j->ranks - 1 : 0),
               ddp = !strcmp(j->mode, "ddp");
    TSR_TRY(tsr_grad_scaler_get(t->scaler, &s));
    if (!ddp && strcmp(j->mode, "hand") && j->enabled) {
        TSR_TRY(tsr_fetch_scalar(plan, "found_a", &found[0]));
        TSR_TRY(tsr_fetch_scalar(plan, "found_b", &found[1]));
    }
    if (first)
        printf("%.17g %lld %lld %.17g %lld %.17g %g %g", s.scale, (long long)s.growth_tracker,
               (long long)tsr_optimizer_steps(t->oa), tsr_optimizer_lr(t->oa),
               (long long)tsr_optimizer_steps(t->ob), tsr_optimizer_lr(t->ob), found[0], found[1]);
    for (int i = 0; i < 2; i++) {
        const size_t n = i ? B : A;
        TSR_TRY(
            tsr_variable_get(tsr_module_find(i ? t->b : t->a, i ? "b" : "a"), v, n * sizeof *v));
        for (size_t k = 0; k < n && first; k++)
            printf(" %.9g", (double)v[k]);
    }
    if (first)
        printf("\n");
    return TSR_OK;
}

static tsr_status open_checkpoint(bench *t, tsr_checkpoint **out)
{
    TSR_TRY(tsr_checkpoint_create(t->w, t->j->folder, NULL, out));
    TSR_TRY(tsr_checkpoint_add_module(*out, "a", t->a));
    TSR_TRY(tsr_checkpoint_add_module(*out, "b", t->b));
    TSR_TRY(tsr_checkpoint_add_optimizer(*out, "oa", t->oa));
    TSR_TRY(tsr_checkpoint_add_optimizer(*out, "ob", t->ob));
    return tsr_checkpoint_add_grad_scaler(*out, "scaler", t->scaler);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    job *j = arg;
    const bool ddp = !strcmp(j->mode, "ddp");
    bench t = {.j = j, .w = w, .p = ddp ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu")};
    tsr_checkpoint *c;
    tsr_plan *plan;
    t.pb = t.p;
    if (j->apart) {
        t.p = tsr_placement_parse(w, "cpu:[0]");
        t.pb = tsr_placement_parse(w, "cpu:[1]");
    }
    t.a = make_module(&t, t.p, "a", TSR_DIMS(5, 3));
    t.b = make_module(&t, t.pb, "b", TSR_DIMS(4));
    t.oa = make_optimizer(&t, t.a);
    t.ob = make_optimizer(&t, t.b);
    t.scaler = tsr_grad_scaler_create(
        w, TSR_GRAD_SCALER_OPTS(.init_scale = j->init_scale, .growth_factor = j->growth,
                                .backoff_factor = j->backoff, .growth_interval = j->interval,
                                .enabled = j->enabled));
    if (!t.scaler)
        return TSR_ERR_INVALID;
    if (ddp) /* over a alone: the other is left as it is */
        TSR_TRY(tsr_ddp_create(t.a, NULL, &t.ddp));
    TSR_TRY(tsr_compile(declare(&t), &plan));
    if (j->folder)
        TSR_TRY(open_checkpoint(&t, &c));
    if (j->from)
        TSR_TRY(tsr_checkpoint_load(c, NULL, NULL));
    for (int i = j->from; i < j->runs; i++) {
        TSR_TRY(tsr_feed(plan, "xa", j->x[i], A * sizeof(float)));
        TSR_TRY(tsr_feed(plan, "xb", j->x[i] + A, B * sizeof(float)));
        TSR_TRY(tsr_run(plan));
        if (!j->lazy || i + 1 == j->runs)
            TSR_TRY(print_run(&t, plan));
        if (j->save == i + 1)
            return tsr_checkpoint_save(c, i, NAN);
    }
    return ddp ? tsr_ddp_close(&t.ddp) : TSR_OK;
}

static tsr_sbp sbp_of(const char *text)
{
    tsr_sbp sbp = TSR_AUTO;
    return strcmp(text, "auto") == 0 || tsr_sbp_parse(text, &sbp) != TSR_OK ? TSR_AUTO : sbp;
}

int main(int argc, char **argv)
{
    static job j = {.kind = "sgd",
                    .mode = "global",
                    .ranks = 1,
                    .accumulate = 1,
                    .enabled = 1,
                    .init_scale = 65536,
                    .growth = 2,
                    .backoff = 0.5,
                    .interval = 2000};
    FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!f)
        return 2;
    j.runs = (int)fread(j.x, sizeof *j.x, MOST, f);
    fclose(f);
    j.param = j.data = j.state = TSR_AUTO;
    for (int i = 2; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return 2;
        *value++ = 0;
        const char *key = argv[i];
        struct {
            const char *name;
            int *number;
            double *real;
            const char **text;
            tsr_sbp *sbp;
        } keys[] = {
            {"kind", .text = &j.kind},
            {"mode", .text = &j.mode},
            {"folder", .text = &j.folder},
            {"ranks", .number = &j.ranks},
            {"accumulate", .number = &j.accumulate},
            {"from", .number = &j.from},
            {"save", .number = &j.save},
            {"lazy", .number = &j.lazy},
            {"enabled", .number = &j.enabled},
            {"apart", .number = &j.apart},
            {"init_scale", .real = &j.init_scale},
            {"growth", .real = &j.growth},
            {"backoff", .real = &j.backoff},
            {"clip_norm", .real = &j.clip_norm},
            {"clip_value", .real = &j.clip_value},
            {"param", .sbp = &j.param},
            {"data", .sbp = &j.data},
            {"state", .sbp = &j.state},
        };
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            if (strcmp(keys[k].name, key) != 0)
                continue;
            if (keys[k].number)
                *keys[k].number = atoi(value);
            else if (keys[k].real)
                *keys[k].real = atof(value);
            else if (keys[k].text)
                *keys[k].text = value;
            else
                *keys[k].sbp = sbp_of(value);
        }
        if (!strcmp(key, "interval"))
            j.interval = atoll(value);
    }
    const tsr_status status = tsr_spawn(j.ranks, rank, &j);
    if (status != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    return status != TSR_OK;
}
