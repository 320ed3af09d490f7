/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Search problems shaped like a convolutional network's training step: per layer the forward chain
 * (convolution, statistics, normalisation, activation), the backward one with the activations that
 * it reads again, parameters, optimizer updates, and residual joins over every third layer.
 */
#ifndef TESSERA_TESTS_SEARCH_LADDER_H
#define TESSERA_TESTS_SEARCH_LADDER_H

#include "sbp/search/search.h"

#include <math.h>
#include <stdlib.h>

typedef struct ladder {
    tsri_search_problem problem;
    tsri_search_node *nodes;
    tsri_search_edge *edges;
    uint64_t state;
} ladder;

/* What the costs look like: uniform noise (nothing is dominated), or layouts: strategies read and
 * write one of six layouts, equal ones join for free, some are forbidden. */
typedef enum ladder_costs { LADDER_NOISE, LADDER_LAYOUTS } ladder_costs;

static inline uint64_t ladder_random(ladder *l)
{
    uint64_t z = l->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline float ladder_uniform(ladder *l)
{
    return (float)(ladder_random(l) >> 40) * 0x1p-24f;
}

static inline int ladder_node(ladder *l, int nstrat)
{
    int v = l->problem.nnodes++;
    float *cost = malloc((size_t)nstrat * sizeof(float));
    for (int s = 0; s < nstrat; s++)
        cost[s] = ladder_uniform(l);
    l->nodes[v] = (tsri_search_node){.nstrat = nstrat, .cost = cost};
    return v;
}

static inline void ladder_edge(ladder *l, ladder_costs kind, int u, int v)
{
    int ku = l->nodes[u].nstrat, kv = l->nodes[v].nstrat;
    float *cost = malloc((size_t)ku * (size_t)kv * sizeof(float));
    float bytes = 0.1f + ladder_uniform(l);
    for (int i = 0; i < ku; i++)
        for (int j = 0; j < kv; j++) {
            float *c = &cost[i * kv + j];
            if (kind == LADDER_NOISE)
                *c = ladder_uniform(l);
            else if (i % 6 == j % 6)
                *c = 0.0f;
            else
                *c = (i * 7 + j * 3) % 11 == 0 ? INFINITY : bytes * (float)(1 + (i + 2 * j) % 3);
        }
    l->edges[l->problem.nedges++] = (tsri_search_edge){u, v, cost};
}

/* strategies: at most, 2 at least; node v has 2 + v's draw of them, or all if `full`. */
static inline int ladder_op(ladder *l, int strategies, bool full)
{
    int draw = (int)(ladder_random(l) % (uint64_t)(strategies - 1));
    return ladder_node(l, full ? strategies : 2 + draw);
}

/* The backward half of a layer, from the gradient `grad` of its output. */
static inline int ladder_backward(ladder *l, ladder_costs kind, int strategies, bool full,
                                  const int *fwd, int grad)
{
    enum { W, G, B, CONV, STATS, NORM, ACT, INPUT };
    int dact = ladder_op(l, strategies, full), sums = ladder_op(l, strategies, full);
    int dnorm = ladder_op(l, strategies, full), dx = ladder_op(l, strategies, full);
    int dw = ladder_op(l, strategies, full), updates[3];
    ladder_edge(l, kind, grad, dact);
    ladder_edge(l, kind, fwd[NORM], dact);
    ladder_edge(l, kind, dact, sums);
    ladder_edge(l, kind, fwd[CONV], sums);
    ladder_edge(l, kind, fwd[STATS], sums);
    ladder_edge(l, kind, dact, dnorm);
    ladder_edge(l, kind, sums, dnorm);
    ladder_edge(l, kind, fwd[CONV], dnorm);
    ladder_edge(l, kind, fwd[G], dnorm);
    ladder_edge(l, kind, dnorm, dx);
    ladder_edge(l, kind, fwd[W], dx);
    ladder_edge(l, kind, dnorm, dw);
    ladder_edge(l, kind, fwd[INPUT], dw);
    for (int i = 0; i < 3; i++) {
        int momentum = ladder_op(l, strategies, full);
        updates[i] = ladder_op(l, strategies, full);
        ladder_edge(l, kind, momentum, updates[i]);
        ladder_edge(l, kind, fwd[W + i], updates[i]);
        ladder_edge(l, kind, i == 0 ? dw : sums, updates[i]);
    }
    return dx;
}

/* 18 nodes a layer. Free with ladder_free. */
static inline ladder ladder_create(int layers, int strategies, bool full, ladder_costs kind,
                                   uint64_t seed)
{
    enum { W, G, B, CONV, STATS, NORM, ACT, INPUT, COUNT };
    ladder l = {.state = seed};
    int(*fwd)[COUNT] = calloc((size_t)layers, sizeof *fwd);
    l.nodes = calloc((size_t)layers * 20 + 2, sizeof *l.nodes);
    l.edges = calloc((size_t)layers * 40, sizeof *l.edges);
    int x = ladder_op(&l, strategies, full);
    for (int i = 0; i < layers; i++) {
        int *f = fwd[i];
        f[INPUT] = x;
        for (int j = W; j <= ACT; j++)
            f[j] = ladder_op(&l, strategies, full);
        ladder_edge(&l, kind, x, f[CONV]);
        ladder_edge(&l, kind, f[W], f[CONV]);
        ladder_edge(&l, kind, f[CONV], f[STATS]);
        ladder_edge(&l, kind, f[CONV], f[NORM]);
        ladder_edge(&l, kind, f[STATS], f[NORM]);
        ladder_edge(&l, kind, f[G], f[NORM]);
        ladder_edge(&l, kind, f[B], f[NORM]);
        ladder_edge(&l, kind, f[NORM], f[ACT]);
        if (i % 3 == 2)
            ladder_edge(&l, kind, fwd[i - 2][INPUT], f[ACT]);
        x = f[ACT];
    }
    int grad = ladder_op(&l, strategies, full), joined = grad;
    ladder_edge(&l, kind, x, grad);
    for (int i = layers - 1; i >= 0; i--) {
        if (i % 3 == 2)
            joined = grad;
        grad = ladder_backward(&l, kind, strategies, full, fwd[i], grad);
        if (i % 3 == 0 && i + 2 < layers)
            ladder_edge(&l, kind, joined, grad);
    }
    free(fwd);
    l.problem.nodes = l.nodes;
    l.problem.edges = l.edges;
    return l;
}

static inline void ladder_free(ladder *l)
{
    for (int v = 0; v < l->problem.nnodes; v++)
        free((void *)(uintptr_t)l->nodes[v].cost);
    for (int e = 0; e < l->problem.nedges; e++)
        free((void *)(uintptr_t)l->edges[e].cost);
    free(l->nodes);
    free(l->edges);
}

#endif
