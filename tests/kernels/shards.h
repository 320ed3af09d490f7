/* SPDX-License-Identifier: Apache-2.0 */
/* Cases on the reference, and shards of them against the whole. Files that include this header
 * include cmocka before. */
#ifndef TESSERA_TESTS_KERNELS_SHARDS_H
#define TESSERA_TESTS_KERNELS_SHARDS_H

#include "tests/kernels/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline const tsri_kernels *reference(void)
{
    const tsri_kernels *const *list = tsri_kernels_cpu();
    while (list[1])
        list++;
    return *list;
}

static inline void run(const kernel_case *c, kc_layout layout, double *const *in,
                       double *const *out)
{
    if (kc_run(c, reference(), TSR_F64, layout, in, out) != TSR_OK)
        fail_msg("%s: %s", c->name, tsr_last_error());
}

static inline kernel_case find(const char *name)
{
    const kernel_case *c = kernel_case_find(name);
    assert_non_null(c);
    return *c;
}

static inline double *zeros(const kc_arg *a)
{
    double *p = calloc((size_t)kc_count(a) + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Makes `a` the part [begin, begin + n) of itself along an axis. */
static inline void cut(kc_arg *a, int axis, int64_t begin, int64_t n)
{
    if (!a->gshape[0])
        memcpy(a->gshape, a->dims.d, sizeof a->gshape);
    a->offset[axis] += begin;
    a->dims.d[axis] = n;
}

/* The elements of the part, out of the whole. */
static inline double *part_of(const kc_arg *a, const double *whole)
{
    double *p = zeros(a);
    for (int64_t i = 0; i < kc_count(a); i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int k = a->dims.ndim - 1; k >= 0; k--) {
            at += (rest % a->dims.d[k] + a->offset[k]) * step;
            rest /= a->dims.d[k];
            step *= a->gshape[k];
        }
        p[i] = whole[at];
    }
    return p;
}

static inline void same(const char *what, const double *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * (1 + fabs(want[i]))))
            fail_msg("%s: element %lld is %.17g, not %.17g", what, (long long)i, got[i], want[i]);
}

/* Cuts every operand and result that has a mark along that axis, and expects the part of the whole
 * result. */
static inline void check_shard(const char *name, const int *in_axis, int out_axis,
                               const int64_t *in_begin, const int64_t *in_n, int64_t out_begin,
                               int64_t out_n)
{
    kernel_case whole = find(name), shard = whole;
    double *in[8] = {0}, *cut_in[8] = {0};
    for (int i = 0; i < whole.nin; i++) {
        in[i] = kc_make(&whole, i, 21);
        if (in_axis[i] >= 0)
            cut(&shard.in[i], in_axis[i], in_begin[i], in_n[i]);
        else
            cut(&shard.in[i], 0, 0, shard.in[i].dims.ndim ? shard.in[i].dims.d[0] : 0);
        cut_in[i] = part_of(&shard.in[i], in[i]);
    }
    cut(&shard.out[0], out_axis, out_begin, out_n);
    double *full = zeros(&whole.out[0]), *got = zeros(&shard.out[0]);
    for (int layout = KC_ROW; layout <= KC_MIXED; layout++) {
        run(&whole, (kc_layout)layout, in, (double *[4]){full});
        run(&shard, (kc_layout)layout, cut_in, (double *[4]){got});
        double *want = part_of(&shard.out[0], full);
        same(name, got, want, kc_count(&shard.out[0]));
        free(want);
    }
    for (int i = 0; i < 8; i++) {
        free(in[i]);
        free(cut_in[i]);
    }
    free(full);
    free(got);
}

#endif
