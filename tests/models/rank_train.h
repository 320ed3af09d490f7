/* SPDX-License-Identifier: Apache-2.0 */
/* Training small programs as ranks, for the tests of this folder: a run on any ranks gives its
 * losses and final variables, to be compared with another run's. */
#ifndef TESSERA_TESTS_MODELS_RANK_TRAIN_H
#define TESSERA_TESTS_MODELS_RANK_TRAIN_H

#include "tests/api/rank.h"

enum { STEPS_MAX = 8 };

/* Uniform in [0, 1), by index: the same on every rank. */
static inline double noise(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    i = (i ^ i >> 27) * 0x94d049bb133111ebu;
    return (double)((i ^ i >> 31) >> 11) / 9007199254740992.0;
}

/* All variables of a module, one behind the other, as f64. */
typedef struct flat_state {
    double *values;
    int64_t count, capacity;
} flat_state;

static inline tsr_status append_variable(tsr_variable *v, const char *name, void *arg)
{
    flat_state *s = arg;
    int64_t n = tsr_dims_count(tsr_variable_dims(v));
    CHECK(name && tsr_variable_dtype(v) == TSR_F64);
    if (s->count + n > s->capacity) {
        s->capacity = 2 * (s->count + n);
        s->values = realloc(s->values, (size_t)s->capacity * sizeof *s->values);
        CHECK(s->values);
    }
    TRY(tsr_variable_get(v, s->values + s->count, (size_t)n * sizeof *s->values));
    s->count += n;
    return TSR_OK;
}

#endif
