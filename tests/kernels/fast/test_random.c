/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout and random numbers of shards, in both layouts and by several threads, against the plain
 * kernels: what is dropped, and all bits of random numbers. */
#include "tests/kernels/fast/fast_case.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A shard: its shape, where it begins in the global tensor, and that one's shape. */
typedef struct shard {
    int64_t shape[4], offset[4], whole[4];
} shard;

static const shard shards[] = {
    {{3, 5, 4, 7}, {0, 0, 0, 0}, {3, 5, 4, 7}},   {{2, 5, 4, 7}, {1, 0, 0, 0}, {3, 5, 4, 7}},
    {{3, 2, 4, 7}, {0, 2, 0, 0}, {3, 5, 4, 7}},   {{3, 5, 1, 7}, {0, 0, 3, 0}, {3, 5, 4, 7}},
    {{3, 5, 4, 3}, {0, 0, 0, 4}, {3, 5, 4, 7}},   {{1, 2, 2, 2}, {1, 3, 1, 5}, {3, 5, 4, 7}},
    {{2, 70, 9, 9}, {0, 1, 0, 0}, {2, 75, 9, 9}}, {{1, 130, 13, 5}, {0, 0, 0, 2}, {1, 130, 13, 8}},
    {{4, 1, 1, 63}, {0, 0, 0, 1}, {4, 1, 1, 65}}, {{1, 1, 1, 1}, {6, 7, 1, 2}, {7, 8, 3, 3}},
    {{0, 5, 4, 7}, {3, 0, 0, 0}, {3, 5, 4, 7}},
};

static void place(fc_tensor *t, const shard *s)
{
    memcpy(t->arg.offset, s->offset, sizeof s->offset);
    memcpy(t->arg.gshape, s->whole, sizeof s->whole);
}

static fc_tensor data_of(const shard *s, bool images)
{
    const int64_t *n = s->shape;
    fc_tensor t =
        images ? fc_images(n[0], n[1], n[2], n[3]) : fc_rows(TSR_F32, 4, n[0], n[1], n[2], n[3]);
    place(&t, s);
    return t;
}

/* Whether numbers are equal, or as near as a product in f32 is to one in f64. */
static bool is_same(float got, float want, double near)
{
    return memcmp(&got, &want, sizeof got) == 0 || (isnan(got) && isnan(want)) ||
           fabs((double)got - (double)want) <= near * fabs((double)want);
}

/* The op by both kernels, of x if there is one. */
static void compare(const char *what, tsri_op_kind op, const tsri_attrs *at, const shard *s,
                    bool images, fc_tensor *x)
{
    fc_tensor step = fc_rows(TSR_I64, 0, 0, 0, 0, 0);
    *(int64_t *)step.data = 3 + ((int64_t)1 << 33);
    fc_tensor want = data_of(s, images), got = data_of(s, images);
    fc_tensor *in[] = {x ? x : &step, &step};
    const int nin = x ? 2 : 1;
    assert_true(fc_run(&tsri_kernels_cpu_ref, op, at, 1, nin, in, 1, (fc_tensor *[]){&want}));
    const bool took = fc_run(&tsri_kernels_cpu_fast, op, at, 1, nin, in, 1, (fc_tensor *[]){&got});
    if (x || !images)
        assert_int_equal(took, want.n > 0);
    for (int64_t i = 0; took && i < want.n; i++)
        if (!is_same(((float *)got.data)[i], ((float *)want.data)[i], x ? 1.5e-7 : 0))
            fail_msg("%s of shard %d, %s: element %lld is %.9g, not %.9g", what, (int)(s - shards),
                     images ? "images" : "rows", (long long)i, (double)((float *)got.data)[i],
                     (double)((float *)want.data)[i]);
    fc_free(3, (fc_tensor *[]){&step, &want, &got});
}

static void try_shard(const shard *s, bool images)
{
    static const double chances[] = {0, 0.3, 0.999, 1};
    fc_tensor x = data_of(s, images);
    for (int64_t i = 0; i < x.n; i += 11)
        ((float *)x.data)[i] = i % 2 ? NAN : INFINITY;
    for (size_t i = 0; i < sizeof chances / sizeof *chances; i++) {
        const tsri_attrs at = {.dropout = {.key = 0x123456789abcdef, .p = chances[i]}};
        compare("dropout", TSRI_OP_DROPOUT, &at, s, images, &x);
    }
    fc_free(1, (fc_tensor *[]){&x});
    static const double ends[][2] = {{0, 1}, {-2, 3}, {1, 1.0000001}, {16777216, 16777217}, {5, 5}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        tsri_attrs at = {.random = {.key = 77, .a = ends[i][0], .b = ends[i][1]}};
        at.random.dist = TSRI_RANDOM_UNIFORM;
        compare("uniform", TSRI_OP_RANDOM, &at, s, images, NULL);
        at.random.dist = TSRI_RANDOM_NORMAL;
        compare("normal", TSRI_OP_RANDOM, &at, s, images, NULL);
    }
}

static void test_shards(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
            try_shard(&shards[i], false);
            try_shard(&shards[i], true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
