/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops, and random numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

extern const op_def *const ops_source[];
extern const op_def *const ops_pointwise[];
extern const op_def *const ops_reduce[];
extern const op_def *const ops_lines[];
extern const op_def *const ops_matrix[];
extern const op_def *const ops_norm[];
extern const op_def *const ops_shape[];
extern const op_def *const ops_index[];
extern const op_def *const ops_whole[];

static const op_def *const *const families[] = {ops_source, ops_pointwise, ops_reduce,
                                                ops_lines,  ops_matrix,    ops_norm,
                                                ops_shape,  ops_index,     ops_whole};
enum { NFAMILIES = sizeof families / sizeof *families };

const op_def *op_at(int op)
{
    for (int f = 0; f < NFAMILIES; f++)
        for (int k = 0; families[f][k]; k++)
            if (op-- == 0)
                return families[f][k];
    return NULL;
}

int op_count(void)
{
    int n = 0;
    while (op_at(n))
        n++;
    return n;
}

int op_find(const char *name)
{
    for (int i = 0; op_at(i); i++)
        if (!strcmp(op_at(i)->name, name))
            return i;
    abort();
}

/* splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t rnd_next(rnd *r)
{
    return mix(r->s += 0x9e3779b97f4a7c15u);
}

int rnd_below(rnd *r, int n)
{
    return (int)(rnd_next(r) % (uint64_t)n);
}

bool rnd_chance(rnd *r, double p)
{
    return (double)(rnd_next(r) >> 11) * 0x1p-53 < p;
}

double rnd_in(rnd *r, double low, double high)
{
    return low + (high - low) * (double)(rnd_next(r) >> 11) * 0x1p-53;
}

double special_number(tsr_dtype dtype, uint64_t seed, int64_t i, double v)
{
    const double small = dtype == TSR_F32 ? 0x1p-140 : 0x1p-1060;
    const double some[] = {NAN, INFINITY, -INFINITY, 0, -0.0, -0.0, small, -small};
    const double r = rnd_number(seed ^ 0x5bec1a1, i);
    /* Half of all tensors have none: else there is a desert of NaN. */
    return rnd_number(seed ^ 0x5bec1a2, -1) < 0.5 || r >= 0.25 ? v : some[(int)(r * 32)];
}

double rnd_number(uint64_t seed, int64_t i)
{
    return (double)(mix(mix(seed) + (uint64_t)i * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}
