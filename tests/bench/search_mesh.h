/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Search problems shaped like training steps on a two-dimensional mesh: operators whose strategies
 * are pairs of one-dimensional signatures, tensors with several readers as nodes of their own,
 * edges that cost the conversion between layouts, layer after layer with the same tables. Each
 * operator's usage is its output's share, from where it is made to where it is last read.
 */
#ifndef TESSERA_TESTS_SEARCH_MESH_H
#define TESSERA_TESTS_SEARCH_MESH_H

#include "sbp/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One-dimensional layouts; a signature is a string of them, inputs first, the output last. */
enum { MESH_MAX_SIGS = 15, MESH_MAX_IN = 5 };
#define MESH_LAYOUTS "0123BP"

/* Kinds of operators by their signatures; every mesh dimension takes any of them. */
typedef enum mesh_kind {
    MESH_VARIABLE, /* of a matrix */
    MESH_VECTOR,   /* of a vector */
    MESH_LINEAR,
    MESH_LINEAR_DX,
    MESH_LINEAR_DW,
    MESH_SCORES,  /* batch and heads, two activations */
    MESH_UNARY,   /* an activation */
    MESH_BINARY,  /* two of them, one layout */
    MESH_ADD,     /* linear: partial sums too */
    MESH_NORM,    /* over the last dimension, with scale */
    MESH_NORM_DX, /* grad, input, scale */
    MESH_REDUCE,  /* gradient of a vector */
    MESH_UPDATE,  /* variable, gradient, two moments */
    MESH_UPDATE_VECTOR,
    MESH_KINDS
} mesh_kind;

static const char *const mesh_sigs[MESH_KINDS][MESH_MAX_SIGS] = {
    [MESH_VARIABLE] = {"0", "1", "2", "3", "B"},
    [MESH_VECTOR] = {"0", "1", "2", "3", "B"},
    [MESH_LINEAR] = {"0B0", "1B1", "3B3", "B12", "20P", "PBP", "BBB", "BPP"},
    [MESH_LINEAR_DX] = {"0B0", "1B1", "3B3", "B02", "21P", "PBP", "BBB", "BPP"},
    [MESH_LINEAR_DW] = {"00P", "11P", "33P", "B21", "2B0", "PBP", "BPP", "BBB"},
    [MESH_SCORES] = {"000", "111", "2B2", "B23", "33P", "PBP", "BPP", "BBB"},
    [MESH_UNARY] = {"00", "11", "22", "33", "BB"},
    [MESH_BINARY] = {"000", "111", "222", "333", "BBB"},
    [MESH_ADD] = {"000", "111", "222", "333", "BBB", "PPP"},
    [MESH_NORM] = {"0B0", "1B1", "3B3", "22P", "BBB"},
    [MESH_NORM_DX] = {"00B0", "11B1", "33B3", "P2BP", "BBBB"},
    [MESH_REDUCE] = {"0P", "1P", "3P", "20", "PP", "BB"},
    [MESH_UPDATE] = {"00000", "11111", "22222", "33333", "BBBBB", "0P000", "1P111", "2P222",
                     "3P333", "0B000", "1B111", "2B222", "3B333", "BPBBB"},
    [MESH_UPDATE_VECTOR] = {"00000", "BBBBB", "0P000", "0B000", "BPBBB"},
};

typedef struct mesh_op {
    mesh_kind kind;
    int nin, in[MESH_MAX_IN]; /* the operators that make the inputs */
    double bytes, work;       /* of the output; of all of it on one device, in seconds */
    int class;                /* operators of equal tables */
    int node, tensor;         /* nodes of the problem; tensor -1: one reader or none */
    int nreaders, last;
} mesh_op;

typedef struct mesh {
    tsri_search_problem problem;
    tsri_search_node *nodes;
    tsri_search_edge *edges;
    mesh_op *ops;
    int nops, cap;
    /* The tables, each once. */
    struct mesh_table {
        uint64_t key;
        float *cost;
    } * tables;
    int ntables;
    void **owned;
    int nowned, cowned;
    bool plain;   /* tensors with one reader are no nodes */
    float jitter; /* relative differences between equal operators' costs */
    uint64_t state;
} mesh;

static const int mesh_ranks[2] = {16, 8};
static const double mesh_rate[2] = {25e9, 300e9}, mesh_latency[2] = {15e-6, 6e-6};

static inline void *mesh_own(mesh *m, void *p)
{
    if (m->nowned == m->cowned) {
        m->cowned = m->cowned ? 2 * m->cowned : 64;
        m->owned = realloc(m->owned, (size_t)m->cowned * sizeof *m->owned);
    }
    return m->owned[m->nowned++] = p;
}

static inline int mesh_nsigs(mesh_kind kind)
{
    int n = 0;
    while (n < MESH_MAX_SIGS && mesh_sigs[kind][n])
        n++;
    return n;
}

/* Appends an operator; inputs that are -1 end the list. */
static inline int mesh_add(mesh *m, mesh_kind kind, double bytes, double work, int a, int b, int c,
                           int d)
{
    const int in[] = {a, b, c, d};
    if (m->nops == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 256;
        m->ops = realloc(m->ops, (size_t)m->cap * sizeof *m->ops);
    }
    mesh_op op = {.kind = kind, .bytes = bytes, .work = work, .tensor = -1, .last = m->nops};
    for (int i = 0; i < 4 && in[i] >= 0; i++) {
        op.in[op.nin++] = in[i];
        m->ops[in[i]].nreaders++;
        m->ops[in[i]].last = m->nops;
    }
    m->ops[m->nops] = op;
    return m->nops++;
}

/* Seconds to convert `bytes` from layout a to b on mesh dimension `dim`. */
static inline double mesh_convert_1d(int dim, char a, char b, double bytes)
{
    double n = mesh_ranks[dim], part = bytes * (n - 1) / n / mesh_rate[dim];
    double latency = mesh_latency[dim];
    if (a == b || (a == 'B' && b != 'P'))
        return 0.0;
    if (b == 'P')
        return a == 'B' ? bytes / 2e12 : bytes / n / 2e12;
    if (a == 'P')
        return b == 'B' ? 2 * (part + latency) : part + latency;
    return b == 'B' ? part + latency : part / n + latency;
}

static inline double mesh_part(int dim, char layout)
{
    return layout == 'B' || layout == 'P' ? 1.0 : 1.0 / mesh_ranks[dim];
}

/* One dimension after the other, in the better order. */
static inline double mesh_convert(const char *a, const char *b, double bytes)
{
    double one = mesh_convert_1d(0, a[0], b[0], bytes * mesh_part(1, a[1])) +
                 mesh_convert_1d(1, a[1], b[1], bytes * mesh_part(0, b[0]));
    double two = mesh_convert_1d(1, a[1], b[1], bytes * mesh_part(0, a[0])) +
                 mesh_convert_1d(0, a[0], b[0], bytes * mesh_part(1, b[1]));
    return one < two ? one : two;
}

/* The layout pair of strategy s at port `port`; port < 0: a tensor node's. */
static inline void mesh_layout(mesh_kind kind, int port, int s, char out[2])
{
    if (port < 0) {
        int n = (int)strlen(MESH_LAYOUTS);
        out[0] = MESH_LAYOUTS[s / n];
        out[1] = MESH_LAYOUTS[s % n];
        return;
    }
    int n = mesh_nsigs(kind);
    out[0] = mesh_sigs[kind][s / n][port];
    out[1] = mesh_sigs[kind][s % n][port];
}

static inline int mesh_count(mesh_kind kind, int port)
{
    int n = port < 0 ? (int)strlen(MESH_LAYOUTS) : mesh_nsigs(kind);
    return n * n;
}

/* The table of the edge from (kind, port) to (kind, port) for a tensor of `bytes`. */
static inline const float *mesh_table(mesh *m, mesh_kind a, int pa, mesh_kind b, int pb,
                                      double bytes)
{
    uint64_t key = (uint64_t)bytes;
    key = (((key * 32 + (uint64_t)a) * 8 + (uint64_t)(pa + 1)) * 32 + (uint64_t)b) * 8 +
          (uint64_t)(pb + 1);
    for (int i = 0; i < m->ntables; i++)
        if (m->tables[i].key == key)
            return m->tables[i].cost;
    int ka = mesh_count(a, pa), kb = mesh_count(b, pb);
    float *cost = mesh_own(m, malloc((size_t)ka * (size_t)kb * sizeof *cost));
    for (int i = 0; i < ka; i++)
        for (int j = 0; j < kb; j++) {
            char from[2], to[2];
            mesh_layout(a, pa, i, from);
            mesh_layout(b, pb, j, to);
            cost[i * kb + j] = (float)mesh_convert(from, to, bytes);
        }
    m->tables = realloc(m->tables, (size_t)(m->ntables + 1) * sizeof *m->tables);
    m->tables[m->ntables].key = key;
    m->tables[m->ntables++].cost = cost;
    return cost;
}

static inline float mesh_random(mesh *m)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (float)(m->state >> 40) * 0x1p-24f;
}

static inline void mesh_node(mesh *m, int i)
{
    mesh_op *op = &m->ops[i];
    int k = mesh_count(op->kind, 0);
    float *cost = mesh_own(m, malloc((size_t)k * sizeof *cost));
    int64_t *usage = mesh_own(m, malloc((size_t)k * sizeof *usage));
    for (int s = 0; s < k; s++) {
        char out[2], first[2];
        mesh_layout(op->kind, op->nin, s, out);
        mesh_layout(op->kind, 0, s, first);
        double share = 1.0;
        for (int d = 0; d < 2; d++) {
            /* The work is split where the output is, or where a sum is. */
            bool split = mesh_part(d, out[d]) < 1.0 || mesh_part(d, first[d]) < 1.0;
            share *= split ? 1.0 / mesh_ranks[d] : 1.0;
        }
        cost[s] = (float)(2e-6 + op->work * share) * (1.0f + m->jitter * mesh_random(m));
        usage[s] = (int64_t)(op->bytes * mesh_part(0, out[0]) * mesh_part(1, out[1]));
    }
    bool lasts = op->kind == MESH_VARIABLE || op->kind == MESH_VECTOR;
    op->node = m->problem.nnodes++;
    m->nodes[op->node] = (tsri_search_node){.nstrat = k,
                                            .cost = cost,
                                            .usage = usage,
                                            .first = lasts ? 0 : i,
                                            .last = lasts ? m->nops - 1 : op->last};
    if (op->nreaders < (m->plain ? 2 : 1))
        return;
    k = mesh_count(op->kind, -1);
    cost = mesh_own(m, calloc((size_t)k, sizeof *cost));
    op->tensor = m->problem.nnodes++;
    m->nodes[op->tensor] = (tsri_search_node){.nstrat = k, .cost = cost};
    m->edges[m->problem.nedges++] = (tsri_search_edge){
        op->node, op->tensor, mesh_table(m, op->kind, op->nin, op->kind, -1, op->bytes)};
}

/* Nodes and edges of the listed operators. */
static inline void mesh_finish(mesh *m)
{
    m->nodes = calloc((size_t)m->nops * 2, sizeof *m->nodes);
    m->edges = calloc((size_t)m->nops * 5, sizeof *m->edges);
    m->problem.nodes = m->nodes;
    m->problem.edges = m->edges;
    for (int i = 0; i < m->nops; i++) {
        mesh_node(m, i);
        const mesh_op *op = &m->ops[i];
        for (int j = 0; j < op->nin; j++) {
            const mesh_op *from = &m->ops[op->in[j]];
            bool own = from->tensor >= 0;
            const float *cost =
                own ? mesh_table(m, from->kind, -1, op->kind, j, from->bytes)
                    : mesh_table(m, from->kind, from->nin, op->kind, j, from->bytes);
            m->edges[m->problem.nedges++] =
                (tsri_search_edge){own ? from->tensor : from->node, op->node, cost};
        }
    }
}

static inline void mesh_free(mesh *m)
{
    for (int i = 0; i < m->nowned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m->tables);
    free(m->nodes);
    free(m->edges);
    free(m->ops);
}

/* A parameter's optimizer: two moments and an update. */
static inline void mesh_update(mesh *m, int variable, int grad)
{
    const mesh_op *v = &m->ops[variable];
    mesh_kind kind = v->kind;
    double bytes = v->bytes, work = 8 * bytes / 2e12;
    int one = mesh_add(m, kind, bytes, 0, -1, -1, -1, -1);
    int two = mesh_add(m, kind, bytes, 0, -1, -1, -1, -1);
    mesh_add(m, kind == MESH_VARIABLE ? MESH_UPDATE : MESH_UPDATE_VECTOR, bytes, work, variable,
             grad, one, two);
}

/* Sizes of a model: an activation's bytes, a weight's, a linear's seconds, its own memory time. */
typedef struct mesh_sizes {
    double act, weight, vector, linear, touch;
} mesh_sizes;

static inline int mesh_weight(mesh *m, const mesh_sizes *z, double times)
{
    return mesh_add(m, MESH_VARIABLE, z->weight * times, 0, -1, -1, -1, -1);
}

/* The two gradients of y = linear(x, w), and the update of w; returns that of x. */
static inline int mesh_linear_back(mesh *m, const mesh_sizes *z, int x, int w, int grad,
                                   double times)
{
    int dw = mesh_add(m, MESH_LINEAR_DW, m->ops[w].bytes, z->linear * times, x, grad, -1, -1);
    mesh_update(m, w, dw);
    return mesh_add(m, MESH_LINEAR_DX, m->ops[x].bytes, z->linear * times, grad, w, -1, -1);
}

typedef struct mesh_block {
    int x, g1, n1, w[6], qkv[3], scores, soft, context, out, sum, g2, n2, up, act, down;
} mesh_block;

static inline int mesh_block_forward(mesh *m, const mesh_sizes *z, int x, mesh_block *b)
{
    *b = (mesh_block){.x = x};
    b->g1 = mesh_add(m, MESH_VECTOR, z->vector, 0, -1, -1, -1, -1);
    b->g2 = mesh_add(m, MESH_VECTOR, z->vector, 0, -1, -1, -1, -1);
    for (int i = 0; i < 6; i++)
        b->w[i] = mesh_weight(m, z, i < 4 ? 1 : 4);
    b->n1 = mesh_add(m, MESH_NORM, z->act, z->touch, x, b->g1, -1, -1);
    for (int i = 0; i < 3; i++)
        b->qkv[i] = mesh_add(m, MESH_LINEAR, z->act, z->linear, b->n1, b->w[i], -1, -1);
    b->scores = mesh_add(m, MESH_SCORES, 2 * z->act, z->linear / 3, b->qkv[0], b->qkv[1], -1, -1);
    b->soft = mesh_add(m, MESH_UNARY, 2 * z->act, 2 * z->touch, b->scores, -1, -1, -1);
    b->context = mesh_add(m, MESH_SCORES, z->act, z->linear / 3, b->soft, b->qkv[2], -1, -1);
    b->out = mesh_add(m, MESH_LINEAR, z->act, z->linear, b->context, b->w[3], -1, -1);
    b->sum = mesh_add(m, MESH_ADD, z->act, z->touch, x, b->out, -1, -1);
    b->n2 = mesh_add(m, MESH_NORM, z->act, z->touch, b->sum, b->g2, -1, -1);
    b->up = mesh_add(m, MESH_LINEAR, 4 * z->act, 4 * z->linear, b->n2, b->w[4], -1, -1);
    b->act = mesh_add(m, MESH_UNARY, 4 * z->act, 4 * z->touch, b->up, -1, -1, -1);
    b->down = mesh_add(m, MESH_LINEAR, z->act, 4 * z->linear, b->act, b->w[5], -1, -1);
    return mesh_add(m, MESH_ADD, z->act, z->touch, b->sum, b->down, -1, -1);
}

static inline int mesh_norm_back(mesh *m, const mesh_sizes *z, int x, int scale, int grad, int skip)
{
    int both = mesh_add(m, MESH_BINARY, z->act, z->touch, grad, x, -1, -1);
    int dscale = mesh_add(m, MESH_REDUCE, z->vector, z->touch, both, -1, -1, -1);
    mesh_update(m, scale, dscale);
    int dx = mesh_add(m, MESH_NORM_DX, z->act, 2 * z->touch, grad, x, scale, -1);
    return mesh_add(m, MESH_ADD, z->act, z->touch, dx, skip, -1, -1);
}

static inline int mesh_block_backward(mesh *m, const mesh_sizes *z, const mesh_block *b, int grad)
{
    int dact = mesh_linear_back(m, z, b->act, b->w[5], grad, 4);
    int dup = mesh_add(m, MESH_BINARY, 4 * z->act, 4 * z->touch, dact, b->up, -1, -1);
    int dn2 = mesh_linear_back(m, z, b->n2, b->w[4], dup, 4);
    grad = mesh_norm_back(m, z, b->sum, b->g2, dn2, grad);
    int dcontext = mesh_linear_back(m, z, b->context, b->w[3], grad, 1), d[3];
    int dsoft = mesh_add(m, MESH_SCORES, 2 * z->act, z->linear / 3, dcontext, b->qkv[2], -1, -1);
    d[2] = mesh_add(m, MESH_SCORES, z->act, z->linear / 3, b->soft, dcontext, -1, -1);
    int dscores = mesh_add(m, MESH_BINARY, 2 * z->act, 2 * z->touch, dsoft, b->soft, -1, -1);
    d[0] = mesh_add(m, MESH_SCORES, z->act, z->linear / 3, dscores, b->qkv[1], -1, -1);
    d[1] = mesh_add(m, MESH_SCORES, z->act, z->linear / 3, dscores, b->qkv[0], -1, -1);
    for (int i = 0; i < 3; i++)
        d[i] = mesh_linear_back(m, z, b->n1, b->w[i], d[i], 1);
    int sum = mesh_add(m, MESH_ADD, z->act, z->touch, d[0], d[1], -1, -1);
    sum = mesh_add(m, MESH_ADD, z->act, z->touch, sum, d[2], -1, -1);
    return mesh_norm_back(m, z, b->x, b->g1, sum, grad);
}

/* A transformer's step. jitter: see mesh. Free with mesh_free. */
static inline mesh mesh_transformer(int layers, float jitter, uint64_t seed)
{
    const mesh_sizes z = {
        .act = 512e6, .weight = 8e6, .vector = 4e3, .linear = 1.4e-2, .touch = 5e-4};
    mesh m = {.jitter = jitter, .state = seed};
    mesh_block *b = calloc((size_t)layers, sizeof *b);
    int x = mesh_add(&m, MESH_UNARY, z.act, 0, -1, -1, -1, -1);
    for (int i = 0; i < layers; i++)
        x = mesh_block_forward(&m, &z, x, &b[i]);
    int grad = mesh_add(&m, MESH_UNARY, z.act, z.touch, x, -1, -1, -1);
    for (int i = layers - 1; i >= 0; i--)
        grad = mesh_block_backward(&m, &z, &b[i], grad);
    free(b);
    mesh_finish(&m);
    return m;
}

/* A chain of convolution, normalisation, activation, with a residual sum over every third, as in
 * MobileNetV2; sizes shrink along it. */
static inline mesh mesh_convnet(int layers, float jitter, uint64_t seed)
{
    mesh m = {.jitter = jitter, .state = seed};
    int(*f)[6] = calloc((size_t)layers, sizeof *f), skip = -1, grad, later = -1;
    int x = mesh_add(&m, MESH_UNARY, 1e8, 0, -1, -1, -1, -1);
    mesh_sizes *z = calloc((size_t)layers, sizeof *z);
    for (int i = 0; i < layers; i++) {
        double scale = ldexp(1.0, -(i * 5 / layers));
        z[i] = (mesh_sizes){1e8 * scale, 4e4 / scale, 1e3 / scale, 1e-3, 1e-4 * scale};
        int *v = f[i];
        v[0] = x;
        v[1] = mesh_weight(&m, &z[i], 1);
        v[2] = mesh_add(&m, MESH_VECTOR, z[i].vector, 0, -1, -1, -1, -1);
        v[3] = mesh_add(&m, MESH_LINEAR, z[i].act, z[i].linear, x, v[1], -1, -1);
        v[4] = mesh_add(&m, MESH_NORM, z[i].act, z[i].touch, v[3], v[2], -1, -1);
        x = v[5] = mesh_add(&m, MESH_UNARY, z[i].act, z[i].touch, v[4], -1, -1, -1);
        if (i % 3 == 2 && skip >= 0)
            x = mesh_add(&m, MESH_ADD, z[i].act, z[i].touch, x, skip, -1, -1);
        skip = i % 3 == 2 ? x : skip;
    }
    grad = mesh_add(&m, MESH_UNARY, z[layers - 1].act, 1e-6, x, -1, -1, -1);
    for (int i = layers - 1; i >= 0; i--) {
        const int *v = f[i];
        if (i % 3 == 2)
            later = grad;
        int dact = mesh_add(&m, MESH_BINARY, z[i].act, z[i].touch, grad, v[5], -1, -1);
        int both = mesh_add(&m, MESH_BINARY, z[i].act, z[i].touch, dact, v[3], -1, -1);
        int dscale = mesh_add(&m, MESH_REDUCE, z[i].vector, z[i].touch, both, -1, -1, -1);
        mesh_update(&m, v[2], dscale);
        int dnorm = mesh_add(&m, MESH_NORM_DX, z[i].act, z[i].touch, dact, v[3], v[2], -1);
        grad = mesh_linear_back(&m, &z[i], v[0], v[1], dnorm, 1);
        if (i % 3 == 0 && later >= 0 && i + 2 < layers)
            grad = mesh_add(&m, MESH_ADD, z[i].act, z[i].touch, grad, later, -1, -1);
    }
    free(z);
    free(f);
    mesh_finish(&m);
    return m;
}

#endif
