/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout and random numbers of shards, in both layouts and by several threads, against the plain
 * kernels: what is dropped, and all bits of random numbers. */
#include "src/core/rng.h"
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

/* The normal numbers of a shard, by a kernel. */
static void fill(const tsri_kernels *impl, const tsri_attrs *at, const shard *s, float *out)
{
    fc_tensor y = data_of(s, false);
    assert_true(fc_run(impl, TSRI_OP_RANDOM, at, 1, 0, NULL, 1, (fc_tensor *[]){&y}));
    memcpy(out, y.data, (size_t)y.n * sizeof *out);
    fc_free(1, (fc_tensor *[]){&y});
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

/* A number goes by its index alone: all instruction sets give the bits of the plain kernel, however
 * a tensor is cut. */
static void test_instruction_sets(void **state)
{
    (void)state;
    enum { N = 200000, LONG = 1003 };
    static const char *const isas[] = {"avx512", "avx2", "base"};
    static const shard all = {{1, 1, 1, N}, {0, 0, 0, 0}, {1, 1, 1, N}};
    static float want[N], got[N];
    const tsri_attrs at = {
        .random = {.key = 0xfedcba9876543210, .dist = TSRI_RANDOM_NORMAL, .b = 1}};
    fill(&tsri_kernels_cpu_ref, &at, &all, want);
    for (int i = 0; i < 3; i++) {
        setenv("TESSERA_CPU_ISA", isas[i], 1);
        fill(&tsri_kernels_cpu_fast, &at, &all, got);
        assert_memory_equal(got, want, sizeof want);
        for (int64_t first = 0; first < N; first += LONG) {
            const int64_t n = N - first < LONG ? N - first : LONG;
            const shard part = {{1, 1, 1, n}, {0, 0, 0, first}, {1, 1, 1, N}};
            fill(&tsri_kernels_cpu_fast, &at, &part, got + first);
        }
        assert_memory_equal(got, want, sizeof want);
    }
    unsetenv("TESSERA_CPU_ISA");
}

/* The known answers of Philox 4x32-10, from its authors' Random123. */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t got[4];
        tsri_philox(known[i].counter, known[i].key, got);
        assert_memory_equal(got, known[i].want, sizeof got);
    }
}

/* Box and Muller's formula by the C library. 2^-64 and 1 are the least radius' number and the most.
 */
static void check_pair(uint64_t key, uint64_t step, uint64_t block)
{
    uint32_t w[4];
    double got[2];
    tsri_rng_block(key, step, block, w);
    tsri_rng_normals(key, step, 2 * block, 2, got);
    const double u = (w[0] + (w[1] + 1.0) * 0x1p-32) * 0x1p-32,
                 v = (w[2] + w[3] * 0x1p-32) * 0x1p-32;
    const double r = sqrt(-2 * log(u)), angle = 2 * acos(-1) * v;
    const double want[2] = {r * cos(angle), r * sin(angle)};
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(got[i] - want[i]) <= 4e-15); /* of which 2 pi v's rounding is most */
        assert_true(got[i] == tsri_rng_normal(key, step, 2 * block + (uint64_t)i));
    }
}

static void test_formula(void **state)
{
    (void)state;
    double sum = 0, squares = 0, fourth = 0;
    enum { BLOCKS = 300000 };
    for (uint64_t block = 0; block < BLOCKS; block++) {
        double z[2];
        check_pair(12345, block % 7, block);
        tsri_rng_normals(12345, 0, 2 * block, 2, z);
        for (int i = 0; i < 2; i++) {
            sum += z[i];
            squares += z[i] * z[i];
            fourth += z[i] * z[i] * z[i] * z[i];
        }
    }
    assert_true(fabs(sum / (2 * BLOCKS)) < 0.006);
    assert_true(fabs(squares / (2 * BLOCKS) - 1) < 0.009);
    assert_true(fabs(fourth / (2 * BLOCKS) - 3) < 0.06);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards), cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_philox), cmocka_unit_test(test_formula)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
