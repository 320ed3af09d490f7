/* SPDX-License-Identifier: Apache-2.0 */
/* Draws what is around the graphs: placements, optimizers, what is done in which order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "src/core/dims.h"

static void write_place(program *p, int at)
{
    char *text = p->place[at];
    const int *d = p->place_dim[at], *r = p->place_rank[at];
    int n = 1, used;
    for (int i = 0; i < p->place_ndim[at]; i++)
        n *= d[i];
    used = sprintf(text, "cpu:");
    for (int i = 0; i < n; i++) {
        int run = 1;
        used += sprintf(text + used, "%s", i ? "," : "");
        for (int k = p->place_ndim[at] - 1; k >= 0; k--) {
            run *= d[k];
            if (i % run == 0)
                used += sprintf(text + used, "[");
        }
        used += sprintf(text + used, "%d", r[i]);
        run = 1;
        for (int k = p->place_ndim[at] - 1; k >= 0; k--) {
            run *= d[k];
            if ((i + 1) % run == 0)
                used += sprintf(text + used, "]");
        }
    }
}

static void draw_place(gen *g, int at)
{
    program *p = g->p;
    int ranks[MAX_RANKS], n = p->nranks;
    bool all = at == 0 ? rnd_chance(&g->r, 0.85) : rnd_chance(&g->r, 0.4);
    for (int i = 0; i < n; i++) {
        int j = rnd_chance(&g->r, at == 0 ? 0.15 : 0.4) ? rnd_below(&g->r, i + 1) : i;
        ranks[i] = ranks[j];
        ranks[j] = i;
    }
    int m = all ? n : 1 + rnd_below(&g->r, n);
    p->place_ndim[at] = 1;
    p->place_dim[at][0] = m;
    if (m % 2 == 0 && m > 2 && rnd_chance(&g->r, 0.4)) {
        p->place_ndim[at] = 2;
        p->place_dim[at][0] = rnd_chance(&g->r, 0.5) ? 2 : m / 2;
        p->place_dim[at][1] = m / p->place_dim[at][0];
        if (m == 8 && rnd_chance(&g->r, 0.5)) {
            p->place_ndim[at] = 3;
            p->place_dim[at][0] = p->place_dim[at][1] = p->place_dim[at][2] = 2;
        }
    }
    for (int i = 0; i < m; i++)
        p->place_rank[at][i] = ranks[i];
    write_place(p, at);
}

/* How gradients are clipped and scaled, and a module apart. */
static void draw_treatment(gen *g, poptimizer *o)
{
    static const double types[] = {2, 2, 1, 3, INFINITY};
    rnd *r = &g->r;
    if (rnd_chance(r, 0.15))
        o->clip_value = 0.125;
    if (rnd_chance(r, 0.3)) {
        o->clip_norm = rnd_chance(r, 0.5) ? 0.25 : 1;
        o->norm_type = types[rnd_below(r, 5)];
    }
    if (rnd_chance(r, 0.1))
        o->loss_scale = 8;
    if (rnd_chance(r, 0.15))
        o->accumulate = 2;
    if (rnd_chance(r, 0.2)) {
        o->group = rnd_below(r, g->p->nmodules);
        o->group_lr = 0.02;
        o->group_decay = rnd_chance(r, 0.5) ? 0.2 : 0;
    }
    if (rnd_chance(r, 0.08))
        o->frozen = rnd_below(r, g->p->nmodules);
}

static void draw_optimizer(gen *g, poptimizer *o)
{
    rnd *r = &g->r;
    *o = (poptimizer){.kind = (opt_kind)rnd_below(r, OPT_KINDS),
                      .module = rnd_chance(r, 0.5) ? -1 : rnd_below(r, g->p->nmodules),
                      .loss_scale = 1,
                      .accumulate = 1,
                      .norm_type = 2,
                      .group = -1,
                      .frozen = -1};
    o->lr = o->kind == OPT_SGD ? 0.1 : 0.01;
    o->weight_decay = rnd_chance(r, 0.4) ? 0.1 : 0;
    o->beta1 = 0.9;
    o->beta2 = o->kind == OPT_LION ? 0.99 : 0.999;
    o->alpha = 0.9;
    o->eps = 1e-8;
    if (o->kind == OPT_SGD && rnd_chance(r, 0.6)) {
        o->momentum = 0.9;
        o->nesterov = rnd_chance(r, 0.4);
        o->dampening = !o->nesterov && rnd_chance(r, 0.3) ? 0.25 : 0;
    }
    if (o->kind == OPT_RMSPROP && rnd_chance(r, 0.6)) {
        o->centered = rnd_chance(r, 0.5);
        o->momentum = o->centered ? 0 : 0.5;
    }
    if (o->kind == OPT_ADAGRAD && rnd_chance(r, 0.5)) {
        o->lr_decay = 0.25;
        o->start = 0.5;
    }
    draw_treatment(g, o);
    if (rnd_chance(r, 0.3))
        o->schedule = (tsr_schedule){
            .kind = TSR_SCHEDULE_STEP, .step_size = 2, .gamma = 0.5, .warmup = rnd_below(r, 3)};
    else if (rnd_chance(r, 0.2))
        o->schedule = (tsr_schedule){.kind = TSR_SCHEDULE_COSINE, .steps = 5, .min_lr = 0.001};
    bool flat = true;
    for (int i = 0; i < g->p->nplaces; i++)
        flat &= g->p->place_ndim[i] == 1;
    if (flat && rnd_chance(r, 0.4))
        o->state = TSR_S(rnd_below(r, 2));
}

static void draw_acts(gen *g)
{
    program *p = g->p;
    int runs = 1 + rnd_below(&g->r, 3);
    for (int k = 0; k < runs && p->nacts < MAX_ACTS - 5; k++) {
        if (k && p->nvars && rnd_chance(&g->r, 0.3))
            p->act[p->nacts++] =
                (act){.kind = ACT_SET, .var = rnd_below(&g->r, p->nvars), .seed = rnd_next(&g->r)};
        if (k && p->noptimizers && rnd_chance(&g->r, 0.2))
            p->act[p->nacts++] = (act){
                .kind = ACT_SET_LR, .optimizer = rnd_below(&g->r, p->noptimizers), .lr = 0.03};
        if (k && p->nvars && (p->nvars + p->noptimizers) % 5 == 0)
            p->act[p->nacts++] = (act){.kind = ACT_SAVE_LOAD};
        p->act[p->nacts++] = (act){.kind = ACT_RUN, .graph = 0, .seed = k};
        if (p->ngraphs > 1 && rnd_chance(&g->r, 0.6))
            p->act[p->nacts++] = (act){.kind = ACT_RUN, .graph = 1, .seed = k};
    }
    if (p->nvars && rnd_chance(&g->r, 0.1))
        p->act[p->nacts++] = (act){.kind = ACT_SAVE_LOAD};
}

/* A grad scaler for some optimizers, and runs in which their losses are infinite. By choices of its
 * own, so that the rest of a program stays what it was. */
static void draw_scaler(program *p)
{
    rnd r = {p->seed * 0x9e3779b97f4a7c15u + 7};
    if (!rnd_chance(&r, 0.3))
        return;
    p->init_scale = ldexp(1, rnd_below(&r, 11));
    p->growth_interval = 1 + rnd_below(&r, 3);
    /* The optimizers of a scaler accumulate alike. */
    int64_t runs = 0;
    for (int i = 0; i < p->noptimizers; i++) {
        poptimizer *o = &p->optimizer[i];
        o->scaled = rnd_chance(&r, 0.7) && (!runs || o->accumulate == runs);
        runs = o->scaled ? o->accumulate : runs;
    }
    for (int i = 0; i < p->nacts; i++)
        for (int k = 0; p->act[i].kind == ACT_RUN && k < p->noptimizers; k++)
            if (p->optimizer[k].scaled && rnd_chance(&r, 0.3))
                p->act[i].overflow |= 1u << k;
}

/* Some programs of f32 alone are made by autocast. */
static void draw_autocast(program *p, tsr_dtype dtype)
{
    rnd r = {p->seed * 0xda942042e4dd58b5u + 3};
    bool all = dtype == TSR_F32;
    for (int i = 0; i < p->nmodules; i++)
        all &= p->module_dtype[i] == TSR_F32;
    p->autocast = all && rnd_chance(&r, 0.5);
}

/* Some programs have regions that are computed again. */
static void draw_recompute(program *p)
{
    rnd r = {p->seed * 0x9e3779b97f4a7c15u + 5};
    p->recompute = rnd_chance(&r, 0.3) ? 2 + rnd_below(&r, 12) : 0;
}

/* --- micro-batches ---------------------------------------------------------------------------- */
static int ranks_of_place(const program *p, int place)
{
    int n = 1;
    for (int k = 0; k < p->place_ndim[place]; k++)
        n *= p->place_dim[place][k];
    return n;
}

/* Gives a program placements that share no rank, which are stages of its micro-batches. */
static void draw_stages(gen *g, rnd *r)
{
    program *p = g->p;
    int ranks[MAX_RANKS], n = p->nranks, first = 0;
    for (int i = 0; i < n; i++) {
        const int j = rnd_chance(r, 0.3) ? rnd_below(r, i + 1) : i;
        ranks[i] = ranks[j];
        ranks[j] = i;
    }
    p->nplaces = n > 2 && rnd_chance(r, 0.4) ? 3 : 2;
    p->gpipe = rnd_chance(r, 0.3);
    g->has_stages = true;
    for (int at = 0; at < p->nplaces; at++) {
        const int left = n - first - (p->nplaces - 1 - at);
        const int even = n / p->nplaces < left ? n / p->nplaces : left;
        const int m = rnd_chance(r, 0.6) ? even : 1 + rnd_below(r, left);
        p->place_ndim[at] = m == 4 ? 2 : 1;
        p->place_dim[at][0] = m == 4 ? 2 : m;
        p->place_dim[at][1] = 2;
        for (int i = 0; i < m; i++)
            p->place_rank[at][i] = ranks[first++];
        write_place(p, at);
    }
}

/* Gives this share of the programs micro-batches. It draws from its own stream of random numbers,
 * so all other choices stay the same. */
static void draw_parts(gen *g, rnd *r, double share)
{
    enum { MOST_ROWS = 32 };
    program *p = g->p;
    if (!rnd_chance(r, share))
        return;
    g->parts = 2 + rnd_below(r, 3);
    if (p->nranks > 1 && rnd_chance(r, 0.5))
        draw_stages(g, r);
    const int places = rnd_chance(r, 0.8) ? p->nplaces : rnd_below(r, p->nplaces + 1);
    g->pieces = 1;
    for (int i = 0; i < places; i++) {
        const int64_t pieces = tsri_lcm(g->pieces, ranks_of_place(p, i));
        g->pieces = pieces * g->parts <= MOST_ROWS ? pieces : g->pieces;
    }
    g->rows = g->pieces * g->parts;
    if (2 * g->rows <= MOST_ROWS && rnd_chance(r, 0.4))
        g->rows *= 2;
}

/* Returns in how many equal pieces an input's axis is held, by its signature or by inference. */
static int64_t pieces_of(const program *p, const pnode *n, int axis, int parts)
{
    int64_t pieces = 1;
    for (int k = 0; k < n->sbp.ndim; k++)
        if (n->sbp.d[k].kind == TSR_SBP_SPLIT && n->sbp.d[k].arg == axis)
            pieces *= p->place_dim[n->place][k];
    if (n->sbp.ndim == 0)
        pieces = tsri_gcd(ranks_of_place(p, n->place), n->shape.d[axis] / parts);
    return pieces;
}

/* Whether all axes that are cut divide into equal pieces of all parts. */
static bool divides(const program *p, const pgraph *g)
{
    int64_t pieces = 1;
    for (int i = 0; i < g->nnodes; i++)
        if (g->node[i].batch)
            pieces =
                tsri_lcm(pieces, pieces_of(p, &g->node[i], g->node[i].batch - 1, g->microbatches));
    for (int i = 0; i < g->nnodes; i++)
        if (g->node[i].batch &&
            g->node[i].shape.d[g->node[i].batch - 1] % (pieces * g->microbatches) != 0)
            return false;
    return true;
}

/* Gives most inputs that divide a batch axis, and a few others. */
static void draw_batches(const program *p, pgraph *g, int parts, rnd *r)
{
    const int op_input = op_find("input");
    bool any = false;
    g->microbatches = parts;
    for (int i = 0; i < g->nnodes; i++) {
        pnode *n = &g->node[i];
        if (n->op != op_input || n->shape.ndim == 0)
            continue;
        n->batch = 1 + (rnd_chance(r, 0.9) ? 0 : rnd_below(r, n->shape.ndim));
        if (!rnd_chance(r, divides(p, g) ? 0.85 : 0.02))
            n->batch = 0;
        any |= n->batch > 0;
    }
    g->microbatches = any ? parts : 0;
}

program *program_generate(uint64_t seed, int nranks, bool special, double microbatches)
{
    gen g = {.r = {seed * 0x2545f4914f6cdd1du + 1}};
    unit_by_autocast(false);
    program *p = g.p = calloc(1, sizeof *p);
    p->special = special;
    p->seed = seed;
    p->nranks = nranks;
    p->nmodules = 1 + rnd_below(&g.r, 3);
    p->module_seed = seed % 97;
    p->nplaces = rnd_chance(&g.r, 0.55) ? 1 : 2 + rnd_below(&g.r, 2);
    for (int i = 0; i < p->nplaces; i++)
        draw_place(&g, i);
    rnd apart = {seed * 0x9e3779b97f4a7c15u + 11};
    draw_parts(&g, &apart, microbatches);
    g.dtype = rnd_chance(&g.r, 0.65) ? TSR_F64 : TSR_F32;
    g.wild = rnd_chance(&g.r, 0.08) ? 0.15 : 0.004;
    g.exact = rnd_chance(&g.r, 0.25);
    g.data_parallel = rnd_chance(&g.r, 0.3);
    if (special) {
        g.wild = 0.5;
        g.exact = rnd_chance(&g.r, 0.8);
    }
    for (int i = 0; i < p->nmodules; i++)
        p->module_dtype[i] =
            i && rnd_chance(&g.r, 0.2) ? (tsr_dtype)(TSR_F32 + TSR_F64 - g.dtype) : g.dtype;
    p->noptimizers = rnd_chance(&g.r, 0.25) ? 0 : 1 + rnd_below(&g.r, 3);
    for (int i = 0; i < p->noptimizers; i++)
        draw_optimizer(&g, &p->optimizer[i]);
    g.w.t = tape_new();
    tape_by_class(g.w.t, special);
    int nops = rnd_chance(&g.r, 0.5) ? 1 + rnd_below(&g.r, 12) : 1 + rnd_below(&g.r, 60);
    p->ngraphs = 1;
    gen_graph(&g, 0, nops);
    if (rnd_chance(&g.r, 0.25)) {
        p->ngraphs = 2;
        gen_graph(&g, 1, 1 + rnd_below(&g.r, 10));
    }
    for (int i = 0; i < p->ngraphs && g.parts; i++)
        draw_batches(p, &p->graph[i], g.parts, &apart);
    draw_acts(&g);
    draw_recompute(p);
    if (!special) {
        draw_scaler(p);
        draw_autocast(p, g.dtype);
    }
    tape_free(g.w.t);
    return p;
}

program *program_copy(const program *p)
{
    program *q = malloc(sizeof *q);
    *q = *p;
    for (int i = 0; i < q->nvars; i++) {
        size_t n = (size_t)(count_of(q->var[i].dims) + 1) * sizeof(double);
        q->var[i].data = memcpy(malloc(n), p->var[i].data, n);
    }
    return q;
}

program *program_alone(const program *p)
{
    program *q = program_copy(p);
    q->nranks = 1;
    for (int i = 0; i < q->nplaces; i++) {
        for (int k = 0; k < q->place_ndim[i]; k++)
            q->place_dim[i][k] = 1;
        q->place_rank[i][0] = 0;
        write_place(q, i);
    }
    for (int i = 0; i < q->ngraphs; i++)
        q->graph[i].microbatches = 0;
    return q;
}

void program_free(program *p)
{
    for (int i = 0; p && i < p->nvars; i++)
        free(p->var[i].data);
    free(p);
}
