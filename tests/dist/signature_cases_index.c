/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the indexing ops. */
#include "tests/dist/signature_cases.h"

#define D(...) TSR_DIMS(__VA_ARGS__)

static tsr_tensor *spread(sc_graph *s, tsr_dims dims)
{
    return sc_make(s, s->real, dims, SC_SPREAD);
}

static void grad(sc_graph *s, tsr_tensor *y, tsr_tensor *x)
{
    sc_grads(s, y, 1, &x);
}

/* --- gather ----------------------------------------------------------------------------------- */

static void gather_of(sc_graph *s, tsr_dims dims, int axis, tsr_dims ids)
{
    tsr_tensor *x = spread(s, dims), *i = sc_make(s, TSR_I64, ids, SC_LABEL);
    grad(s, tsr_gather(x, axis, i), x);
    tsr_gather(sc_make(s, TSR_I64, dims, SC_WHOLE), axis, i);
    tsr_gather(sc_make(s, TSR_BOOL, dims, SC_FEW), axis, i);
}

void sc_gather(sc_graph *s)
{
    gather_of(s, D(5, 4), 0, D(7));
    gather_of(s, D(3, 5, 2), 1, D(2, 3));
    gather_of(s, D(2, 3, 7), 2, D(5));
    gather_of(s, D(4), 0, TSR_SCALAR);
    gather_of(s, D(4, 3), 0, D(1, 1));
    gather_of(s, D(5, 3), 0, D(0, 2));
    gather_of(s, D(0, 3), 0, D(0));
    gather_of(s, D(0, 4, 2), 1, D(3));
    gather_of(s, D(1, 3), 1, D(0));
    tsr_tensor *table = spread(s, D(7, 3)), *ids = sc_make(s, TSR_I64, D(4, 5), SC_LABEL);
    grad(s, tsr_embedding(table, ids, NULL), table);
    grad(s,
         tsr_embedding(table, ids, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = 2)),
         table);
}
