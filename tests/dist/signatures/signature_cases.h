/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that together hold every op that has a rule, at sizes that can tell right from wrong. */
#ifndef TESSERA_TESTS_DIST_SIGNATURE_CASES_H
#define TESSERA_TESTS_DIST_SIGNATURE_CASES_H

#include <tessera/tessera.h>

/* What an input holds. */
typedef enum sc_fill {
    SC_SPREAD = 0, /* -4..10: both sides of every kink */
    SC_POSITIVE,   /* 0.1..2.1 */
    SC_INSIDE,     /* -0.9..0.9 */
    SC_ABOVE,      /* 1.1..3.1 */
    SC_FEW,        /* whole numbers 0..3: many equal */
    SC_WHOLE,      /* whole numbers -9..9, never 0 */
    SC_LABEL,      /* 0..3 */
    SC_ONE,        /* 1 */
} sc_fill;

typedef struct sc_graph {
    tsr_graph *g;
    tsr_world *world;
    const tsr_placement *p;
    tsr_dtype real; /* of the data: f64 or f32 */
    int ninputs;
    sc_fill fill[512]; /* of input "x<i>" */
} sc_graph;

typedef struct sc_case {
    const char *name;
    bool training;
    void (*declare)(sc_graph *s);
} sc_case;

/* A new input. */
tsr_tensor *sc_make(sc_graph *s, tsr_dtype dtype, tsr_dims dims, sc_fill fill);
/* Declares the gradients of y, weighted by numbers that differ from place to place. */
void sc_grads(sc_graph *s, tsr_tensor *y, int n, tsr_tensor *const *x);

/* Programs in files of their own. */
void sc_gather(sc_graph *s);
void sc_lines(sc_graph *s);
void sc_order(sc_graph *s);
void sc_where(sc_graph *s);
void sc_compare(sc_graph *s);
void sc_concat(sc_graph *s);
void sc_slice(sc_graph *s);
void sc_source(sc_graph *s);
void sc_triangle(sc_graph *s);
void sc_cumsum(sc_graph *s);
void sc_resize(sc_graph *s);
void sc_variance(sc_graph *s);
void sc_parts(sc_graph *s);
/* signature_cases_own.c */
void sc_own(sc_graph *s);
/* signature_cases_nn.c */
void sc_batch_matmul(sc_graph *s);
void sc_gelu(sc_graph *s);
void sc_layer_norm(sc_graph *s);
void sc_attention(sc_graph *s);
void sc_flash(sc_graph *s);
void sc_recurrent(sc_graph *s);

extern const sc_case sc_cases[];
extern const int sc_cases_count;

#endif
