/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool oracle_owns(const program *p, int optimizer, int var)
{
    const poptimizer *o = &p->optimizer[optimizer];
    return p->var[var].trainable && (o->module < 0 || o->module == p->var[var].module);
}

bool oracle_freezes(const program *p, int optimizer, int var)
{
    return p->optimizer[optimizer].frozen == p->var[var].module;
}

bool oracle_owns_in(const program *p, int optimizer, int module)
{
    bool any = false;
    for (int i = 0; i < p->nvars; i++)
        any |= p->var[i].module == module && oracle_owns(p, optimizer, i);
    return any;
}

int oracle_states(const poptimizer *o)
{
    switch (o->kind) {
    case OPT_SGD:
        return o->momentum != 0;
    case OPT_RMSPROP:
        return 1 + (o->momentum != 0 || o->centered);
    case OPT_ADAGRAD:
    case OPT_LION:
        return 1;
    default:
        return 2;
    }
}

static held new_held(int64_t n, const double *v)
{
    held h = {n, calloc((size_t)n + 1, sizeof(double)), calloc((size_t)n + 1, sizeof(double))};
    if (v)
        memcpy(h.v, v, (size_t)n * sizeof *v);
    return h;
}

static held filled_held(int64_t n, double value)
{
    held h = new_held(n, NULL);
    for (int64_t i = 0; i < n; i++)
        h.v[i] = value;
    return h;
}

void oracle_start(oracle *o, const program *p)
{
    *o = (oracle){.p = p, .t = tape_new()};
    tape_by_class(o->t, p->special);
    unit_by_autocast(p->autocast);
    for (int i = 0; i < p->nvars; i++)
        o->var[i] = new_held(count_of(p->var[i].dims), p->var[i].data);
    for (int k = 0; k < p->noptimizers; k++) {
        o->lr[k] = p->optimizer[k].lr;
        for (int i = 0; i < p->nvars; i++)
            o->mean[k][i] = new_held(o->var[i].n, NULL);
        for (int i = 0; i < p->nvars; i++)
            for (int s = 0; s < 2; s++)
                o->state[k][i][s] = filled_held(o->var[i].n, p->optimizer[k].start);
    }
}

void oracle_finish(oracle *o)
{
    for (int i = 0; i < o->p->nvars; i++) {
        free(o->var[i].v);
        free(o->var[i].e);
        for (int k = 0; k < o->p->noptimizers; k++) {
            free(o->mean[k][i].v);
            free(o->mean[k][i].e);
            for (int s = 0; s < 2; s++) {
                free(o->state[k][i][s].v);
                free(o->state[k][i][s].e);
            }
        }
    }
    tape_free(o->t);
}

/* --- updates ---------------------------------------------------------------------------------- */
static double rate(const tsr_schedule *s, double base, int64_t step)
{
    if (step < s->warmup)
        return base * (double)(step + 1) / (double)s->warmup;
    step -= s->warmup;
    if (s->kind == TSR_SCHEDULE_STEP)
        return base * pow(s->gamma, (double)(step / s->step_size));
    if (s->kind != TSR_SCHEDULE_COSINE)
        return base;
    double part = step < s->steps ? (double)step / (double)s->steps : 1;
    return s->min_lr + (base - s->min_lr) * (1 + cos(3.14159265358979323846 * part)) / 2;
}

static bool is_decoupled(const poptimizer *o)
{
    return o->kind == OPT_ADAMW || o->kind == OPT_LION;
}

/* x: parameter, gradient, states; the same order out. The formulas of torch.optim, and of Lion. */
static void update(const poptimizer *o, double lr, int64_t step, const double x[4], double y[4])
{
    double p = x[0], g = x[1], a = x[2], b = x[3];
    if (is_decoupled(o))
        p *= 1 - lr * o->weight_decay;
    else
        g += o->weight_decay * p;
    switch (o->kind) {
    case OPT_SGD:
        if (o->momentum != 0) {
            a = step == 1 ? g : o->momentum * a + (1 - o->dampening) * g;
            g = o->nesterov ? g + o->momentum * a : a;
        }
        p -= lr * g;
        break;
    case OPT_RMSPROP:
        a = o->alpha * a + (1 - o->alpha) * g * g;
        if (o->centered) {
            b = o->alpha * b + (1 - o->alpha) * g;
            p -= lr * g / (sqrt(a - b * b) + o->eps);
        } else if (o->momentum != 0) {
            b = o->momentum * b + g / (sqrt(a) + o->eps);
            p -= lr * b;
        } else {
            p -= lr * g / (sqrt(a) + o->eps);
        }
        break;
    case OPT_ADAGRAD:
        a += g * g;
        p -= lr / (1 + (double)(step - 1) * o->lr_decay) * g / (sqrt(a) + o->eps);
        break;
    case OPT_LION: {
        double c = o->beta1 * a + (1 - o->beta1) * g;
        p -= lr * (c > 0 ? 1 : c < 0 ? -1 : c);
        a = o->beta2 * a + (1 - o->beta2) * g;
        break;
    }
    default: {
        a = o->beta1 * a + (1 - o->beta1) * g;
        b = o->beta2 * b + (1 - o->beta2) * g * g;
        double ma = a / (1 - pow(o->beta1, (double)step)),
               mb = b / (1 - pow(o->beta2, (double)step));
        p -= lr * ma / (sqrt(mb) + o->eps);
        break;
    }
    }
    y[0] = p;
    y[2] = a;
    y[3] = b;
}

/* Whether a state is an average of squares, which no error makes negative. */
static bool is_square(const poptimizer *o, int state)
{
    return o->kind == OPT_RMSPROP || o->kind == OPT_ADAGRAD ? state == 0
           : o->kind == OPT_ADAM || o->kind == OPT_ADAMW    ? state == 1
                                                            : false;
}

/* The same with errors: what each argument's error moves, one at a time. The rounding inside is
 * that of a relative change of each argument. */
static void update_bounded(const poptimizer *o, double lr, int64_t step, double u,
                           const double x[4], const double e[4], double y[4], double f[4])
{
    update(o, lr, step, x, y);
    /* Rounded in the sum with the gradient; beside a parameter that is no number so is the sum. */
    double decay = !is_decoupled(o) && isfinite(x[0]) ? o->weight_decay * fabs(x[0]) : 0;
    for (int k = 0; k < 4; k++)
        f[k] = isnan(y[k]) ? INFINITY : 4 * u * (fabs(y[k]) + (k == 0 ? fabs(x[0]) : 0));
    for (int j = 0; j < 4; j++) {
        double move = e[j] + 4 * u * (fabs(x[j]) + (j == 1 ? decay : 0));
        for (int s = -1; s <= 1 && move > 0; s += 2) {
            double z[4] = {x[0], x[1], x[2], x[3]}, r[4];
            z[j] += s * move;
            if (j >= 2 && is_square(o, j - 2) && z[j] < 0)
                z[j] = 0;
            update(o, lr, step, z, r);
            for (int k = 0; k < 4; k++) {
                double d = fabs(r[k] - y[k]);
                if (k != 1)
                    f[k] += isnan(d) ? isfinite(move) && isnan(y[k]) ? 0 : INFINITY : d;
            }
        }
    }
}

/* --- clipping --------------------------------------------------------------------------------- */
/* The gradients of one sink, clipped as its optimizer says, with their errors. */
typedef struct clipped {
    double *g[MAX_VARS], *e[MAX_VARS]; /* NULL: not updated */
} clipped;

/* The norm of all gradients, each moved by `by` times its error towards or from 0. */
static double norm_of(const oracle *o, const poptimizer *opt, const clipped *c, double by)
{
    double sum = 0;
    for (int i = 0; i < o->p->nvars; i++)
        for (int64_t k = 0; c->g[i] && k < o->var[i].n; k++) {
            double size = fabs(c->g[i][k]) + by * c->e[i][k];
            if (isnan(size))
                return size;
            size = fmax(0, size);
            sum = isinf(opt->norm_type) ? fmax(sum, size) : sum + pow(size, opt->norm_type);
        }
    return isinf(opt->norm_type) ? sum : pow(sum, 1 / opt->norm_type);
}

static double scale_for(const poptimizer *opt, double norm)
{
    double scale = opt->clip_norm / (norm + 1e-6);
    return isnan(scale) ? scale : fmin(scale, 1);
}

static void clip(const oracle *o, const poptimizer *opt, double u, clipped *c)
{
    for (int i = 0; i < o->p->nvars && opt->clip_value > 0; i++)
        for (int64_t k = 0; c->g[i] && k < o->var[i].n; k++)
            if (!isnan(c->g[i][k]))
                c->g[i][k] = fmax(-opt->clip_value, fmin(opt->clip_value, c->g[i][k]));
    if (opt->clip_norm == 0)
        return;
    const double norm = norm_of(o, opt, c, 0);
    double scale = scale_for(opt, norm);
    double low = scale_for(opt, norm_of(o, opt, c, 1)),
           high = scale_for(opt, norm_of(o, opt, c, -1));
    double error = fmax(fabs(low - scale), fabs(high - scale)) + 400 * u * fabs(scale);
    /* The norm's powers of such numbers are beyond f32, as in PyTorch. */
    const bool is_beyond = u >= U_F32 && isfinite(opt->norm_type) && norm > 1e17;
    if (!isfinite(scale) || !isfinite(error) || is_beyond)
        error = INFINITY;
    for (int i = 0; i < o->p->nvars; i++)
        for (int64_t k = 0; c->g[i] && k < o->var[i].n; k++) {
            c->e[i][k] = c->e[i][k] * (fabs(scale) + error) + fabs(c->g[i][k]) * error;
            c->g[i][k] *= scale;
            if (isnan(c->e[i][k]))
                c->e[i][k] = INFINITY;
        }
}

/* --- sinks ------------------------------------------------------------------------------------ */
static bool updates(const oracle *o, int optimizer, int var)
{
    const walk *w = &o->w;
    return w->reads[var] >= 0 && oracle_owns(o->p, optimizer, var) &&
           !oracle_freezes(o->p, optimizer, var) && tape_at(o->t, w->reads[var])->reached;
}

static void update_var(oracle *o, int optimizer, int i, const double *g, const double *ge)
{
    const program *p = o->p;
    walk *w = &o->w;
    poptimizer opt = p->optimizer[optimizer];
    double base = o->lr[optimizer];
    if (opt.group == p->var[i].module) {
        base = opt.group_lr;
        opt.weight_decay = opt.group_decay;
    }
    double lr = rate(&opt.schedule, base, o->step[optimizer]);
    int64_t step = o->step[optimizer] + 1;
    const tape_value *read = tape_at(o->t, w->reads[i]);
    const tape_value *now = w->updated[i] >= 0 ? tape_at(o->t, w->updated[i]) : read;
    held *st = o->state[optimizer][i];
    double *v = tape_alloc(o->t, (read->n + 1) * 8), *e = tape_alloc(o->t, (read->n + 1) * 8);
    for (int64_t k = 0; k < read->n; k++) {
        double x[4] = {now->v[k], g[k], st[0].v[k], st[1].v[k]}, y[4] = {0}, f[4];
        double xe[4] = {now->e[k], ge[k], st[0].e[k], st[1].e[k]};
        update_bounded(&opt, lr, step, unit_of(p->var[i].dtype), x, xe, y, f);
        /* Squares of such numbers are beyond f32. */
        if (o->is_lost[optimizer] || (read->u >= U_F32 && (fabs(x[1]) > 1e17 || fabs(x[0]) > 1e17)))
            f[0] = f[2] = f[3] = INFINITY;
        v[k] = y[0];
        e[k] = f[0];
        for (int s = 0; s < 2; s++) {
            st[s].v[k] = y[2 + s];
            st[s].e[k] = f[2 + s];
        }
    }
    w->updated[i] = tape_leaf(o->t, read->n, v, e, read->u, false);
}

/* Adds the gradients to their means so far, which take their place. */
static void accumulate(oracle *o, int optimizer, double u, clipped *c)
{
    const int64_t runs = o->p->optimizer[optimizer].accumulate;
    const bool first = o->optimizer_runs[optimizer] % runs == 0;
    for (int i = 0; i < o->p->nvars && runs > 1; i++)
        for (int64_t k = 0; c->g[i] && k < o->var[i].n; k++) {
            held *mean = &o->mean[optimizer][i];
            double part = c->g[i][k] / (double)runs, v = (first ? 0 : mean->v[k]) + part;
            double e = (first ? 0 : mean->e[k]) + c->e[i][k] / (double)runs;
            mean->v[k] = c->g[i][k] = v;
            mean->e[k] = c->e[i][k] = e + 2 * u * (fabs(v) + fabs(part));
        }
}

/* Whether this run of an optimizer is one that updates. */
static bool applies(const oracle *o, int optimizer)
{
    return (o->optimizer_runs[optimizer] + 1) % o->p->optimizer[optimizer].accumulate == 0;
}

/* Returns whether an infinite loss makes a gradient infinite or NaN for sure, because some gradient
 * of the finite loss is not 0. (The gradient of ceil and its kind is 0 whatever the loss is.) */
static bool follows_loss(const oracle *o, const clipped *c)
{
    for (int i = 0; i < o->p->nvars; i++)
        for (int64_t k = 0; c->g[i] && k < o->var[i].n; k++)
            if (fabs(c->g[i][k]) > c->e[i][k])
                return true;
    return false;
}

/* Whether gradients, times a scale, are finite in f32. */
static bool are_finite(const oracle *o, const clipped *c)
{
    for (int i = 0; i < o->p->nvars; i++)
        for (int64_t k = 0; c->g[i] && k < o->var[i].n; k++)
            if (!(fabs(c->g[i][k]) + c->e[i][k] < 1e17))
                return false;
    return true;
}

/* Whether a scaler leaves out this update is known. */
static bool is_known(const oracle *o, int optimizer, const clipped *c)
{
    return !o->p->optimizer[optimizer].scaled ||
           (o->overflowed[optimizer] ? follows_loss(o, c) : are_finite(o, c));
}

static void minimize(oracle *o, int loss, int optimizer)
{
    const program *p = o->p;
    clipped c = {0};
    double u = 0;
    tape_backward(o->t, o->w.value[loss]);
    for (int i = 0; i < p->nvars; i++) {
        if (!updates(o, optimizer, i))
            continue;
        const tape_value *read = tape_at(o->t, o->w.reads[i]);
        c.g[i] = tape_alloc(o->t, (read->n + 1) * 8);
        c.e[i] = tape_alloc(o->t, (read->n + 1) * 8);
        memcpy(c.g[i], read->g, (size_t)read->n * sizeof(double));
        memcpy(c.e[i], read->ge, (size_t)read->n * sizeof(double));
        u = fmax(u, read->u);
    }
    o->is_lost[optimizer] = o->is_lost[optimizer] || !is_known(o, optimizer, &c);
    accumulate(o, optimizer, u, &c);
    clip(o, &p->optimizer[optimizer], u, &c);
    for (int i = 0; i < p->nvars; i++)
        if (c.g[i] && applies(o, optimizer) && (!o->overflowed[optimizer] || o->is_lost[optimizer]))
            update_var(o, optimizer, i, c.g[i], c.e[i]);
}

void oracle_run(oracle *o, const act *a)
{
    const program *p = o->p;
    const pgraph *g = &p->graph[a->graph];
    walk *w = &o->w;
    tape_clear(o->t);
    walk_start(w, p, g, o->t);
    w->run_seed = a->seed;
    for (int s = 0; s < g->nsinks; s++)
        if (g->sink[s].kind == SINK_MINIMIZE && a->overflow >> g->sink[s].optimizer & 1)
            o->overflowed[g->sink[s].optimizer] = true;
    for (int i = 0; i < p->nvars; i++) {
        w->var_v[i] = o->var[i].v;
        w->var_e[i] = o->var[i].e;
    }
    /* Masks follow the step of the first optimizer of the graph, else the plan's own count of runs.
     */
    w->step = (uint64_t)o->runs[a->graph];
    for (int s = g->nsinks - 1; s >= 0; s--)
        if (g->sink[s].kind == SINK_MINIMIZE)
            w->step = (uint64_t)o->optimizer_runs[g->sink[s].optimizer];
    for (int i = 0; i < g->nnodes; i++) {
        walk_node(w, i);
        for (int s = 0; s < g->nsinks; s++) {
            if (g->sink[s].after != i)
                continue;
            if (g->sink[s].kind == SINK_MINIMIZE)
                minimize(o, g->sink[s].node, g->sink[s].optimizer);
            else if (g->sink[s].kind == SINK_ASSIGN)
                w->updated[g->sink[s].var] = tape_detach(o->t, w->value[g->sink[s].node]);
        }
    }
    for (int s = 0; s < g->nsinks; s++)
        if (g->sink[s].kind == SINK_MINIMIZE) {
            const int k = g->sink[s].optimizer;
            o->step[k] += applies(o, k) && !o->overflowed[k];
            o->overflowed[k] = o->overflowed[k] && !applies(o, k);
            o->optimizer_runs[k]++;
        }
    o->runs[a->graph]++;
    for (int i = 0; i < p->nvars; i++) {
        if (w->updated[i] < 0)
            continue;
        const tape_value *v = tape_at(o->t, w->updated[i]);
        memcpy(o->var[i].v, v->v, (size_t)v->n * sizeof(double));
        memcpy(o->var[i].e, v->e, (size_t)v->n * sizeof(double));
    }
}

void oracle_set(oracle *o, const act *a)
{
    held *h = &o->var[a->var];
    for (int64_t i = 0; i < h->n; i++) {
        h->v[i] = (floor(rnd_number(a->seed, i) * 1800) + 200) / 1024;
        h->e[i] = 0;
    }
}
