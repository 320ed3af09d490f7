/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions: order, NaN, and the arithmetic of 16-bit floats. */
#include "src/comm/comm.h"
#include "src/comm/move/move.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CHECK(cond)                                                                     \
    do {                                                                                \
        if (!(cond))                                                                    \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #cond); \
    } while (0)

/* What an f16 is worth, by its definition; an infinity is what comes after the largest. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -v : v;
}

static bool is_half_nan(uint16_t h)
{
    return (h & 0x7fff) > 0x7c00;
}

/* Whether h is x rounded: neither neighbour is nearer, nor as near while h is odd. */
static bool is_rounded(uint16_t h, double x)
{
    double here = fabs(half_value(h) - x), up, down;
    if (isinf(x) || fabs(x) >= 65520)
        return (h & 0x7fff) == 0x7c00 && !(h & 0x8000) == (x > 0);
    if ((h & 0x7fff) >= 0x7c00 || (x != 0 && here > 0 && !(h & 0x8000) != (x > 0)))
        return false;
    up = fabs(half_value((uint16_t)(h + 1)) - x);
    down = h & 0x7fff ? fabs(half_value((uint16_t)(h - 1)) - x) : INFINITY;
    return h & 1 ? here < up && here < down : here <= up && here <= down;
}

static const tsr_world_opts small = {
    .size = sizeof small, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

static tsr_status all_ranks(tsr_world *w, int lane, tsri_group **out)
{
    int ranks[16];
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    return w->comm->ops->group(w->comm, w->nranks, ranks, lane, out);
}

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static tsr_status reduce_one(tsr_world *w, tsr_dtype t, tsr_reduce_op op, const void *mine,
                             void *result)
{
    void *src, *dst;
    tsri_group *g;
    tsri_ticket ticket;
    size_t bytes = tsr_dtype_size(t);
    TSRI_TRY(all_ranks(w, 0, &g));
    TSRI_TRY(tsri_region_alloc(&w->region, bytes, &src));
    TSRI_TRY(tsri_region_alloc(&w->region, bytes, &dst));
    memcpy(src, mine, bytes);
    const tsri_segment s = {
        .src = src, .dst = dst, .dtype = t, .shape = TSR_DIMS(1), .src_axis = -1, .dst_axis = -1};
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .op = op, .nseg = 1, .seg = &s};
    TSRI_TRY(w->comm->ops->start(g, &c, &ticket));
    TSRI_TRY(w->comm->ops->finish(g, &ticket));
    TSRI_TRY(w->comm->ops->release(g, &ticket));
    memcpy(result, dst, bytes);
    return TSR_OK;
}

static tsr_status arithmetic_body(tsr_world *w, void *arg)
{
    (void)arg;
    const float order[3] = {1e8f, -1e8f, 1.0f}; /* another order gives 0 */
    float f;
    TSRI_TRY(reduce_one(w, TSR_F32, TSR_REDUCE_SUM, &order[w->rank], &f));
    CHECK(f == 1.0f);
    for (int who = 0; who < 3; who++) {
        float mine = w->rank == who ? __builtin_nanf("") : (float)w->rank;
        double wide = mine;
        TSRI_TRY(reduce_one(w, TSR_F32, TSR_REDUCE_MAX, &mine, &f));
        CHECK(f != f);
        TSRI_TRY(reduce_one(w, TSR_F32, TSR_REDUCE_MIN, &mine, &f));
        CHECK(f != f);
        TSRI_TRY(reduce_one(w, TSR_F64, TSR_REDUCE_MAX, &wide, &wide));
        CHECK(wide != wide);
    }
    /* 2048 + 1 stays 2048 in f16, but is 2049 in f32. */
    const uint16_t h[3] = {0x6800, 0x3c00, 0x3c00};
    uint16_t sum;
    TSRI_TRY(reduce_one(w, TSR_F16, TSR_REDUCE_SUM, &h[w->rank], &sum));
    CHECK(sum == 0x6801);                           /* 2050 */
    const uint16_t b[3] = {0x4380, 0x3f80, 0x3f80}; /* 256 + 1 + 1; 258 is a bf16, 257 is not */
    uint16_t bsum;
    TSRI_TRY(reduce_one(w, TSR_BF16, TSR_REDUCE_SUM, &b[w->rank], &bsum));
    CHECK(bsum == 0x4381);
    return TSR_OK;
}

/* Every f16, through the library's conversions and the definition. */
static tsr_status all_halves_body(tsr_world *w, void *arg)
{
    (void)arg;
    enum { N = 65536 };
    void *src, *dst;
    tsri_group *g;
    tsri_ticket ticket;
    TSRI_TRY(all_ranks(w, 0, &g));
    TSRI_TRY(tsri_region_alloc(&w->region, 2 * N, &src));
    TSRI_TRY(tsri_region_alloc(&w->region, 2 * N, &dst));
    for (uint32_t i = 0; i < N; i++)
        ((uint16_t *)src)[i] = (uint16_t)(w->rank == 0 ? i : i * 40503u >> 3);
    const tsri_segment s = {.src = src,
                            .dst = dst,
                            .dtype = TSR_F16,
                            .shape = TSR_DIMS(N),
                            .src_axis = -1,
                            .dst_axis = -1};
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &s};
    TSRI_TRY(w->comm->ops->start(g, &c, &ticket));
    TSRI_TRY(w->comm->ops->finish(g, &ticket));
    for (uint32_t i = 0; i < N; i++) {
        uint16_t bits[2] = {(uint16_t)i, (uint16_t)(i * 40503u >> 3)};
        uint16_t got = ((uint16_t *)dst)[i];
        bool inf[2] = {(bits[0] & 0x7fff) == 0x7c00, (bits[1] & 0x7fff) == 0x7c00};
        bool sign_differs = ((bits[0] ^ bits[1]) & 0x8000) != 0;
        double exact = half_value(bits[0]) + half_value(bits[1]); /* exact in f64 */
        if (is_half_nan(bits[0]) || is_half_nan(bits[1]) || (inf[0] && inf[1] && sign_differs))
            CHECK(is_half_nan(got));
        else if (inf[0] || inf[1])
            CHECK(got == (inf[0] ? bits[0] : bits[1]));
        else
            CHECK(is_rounded(got, (double)(float)exact));
    }
    return w->comm->ops->release(g, &ticket);
}

static void test_arithmetic(void **state)
{
    (void)state;
    spawn_ok(3, arithmetic_body, NULL, &small);
    spawn_ok(2, all_halves_body, NULL, &small);
}

/* --- the same bits by all instructions -------------------------------------------------------- */
enum { MOST = 1100, SOURCES = 5 };

static bool is_nan_at(tsr_dtype dtype, const char *p, int64_t i)
{
    uint16_t h;
    float f;
    double d;
    memcpy(&h, p + i * 2, dtype == TSR_F16 || dtype == TSR_BF16 ? sizeof h : 0);
    memcpy(&f, p + i * 4, dtype == TSR_F32 ? sizeof f : 0);
    memcpy(&d, p + i * 8, dtype == TSR_F64 ? sizeof d : 0);
    return dtype == TSR_F16    ? is_half_nan(h)
           : dtype == TSR_BF16 ? (h & 0x7fff) > 0x7f80
           : dtype == TSR_F32  ? isnan(f)
           : dtype == TSR_F64  ? isnan(d)
                               : false;
}

/* Whether n elements are equal to the bit, but for what a NaN has in it. */
static bool same_bits(tsr_dtype dtype, const char *a, const char *b, int64_t n)
{
    const size_t size = tsr_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) != 0 &&
            !(is_nan_at(dtype, a, i) && is_nan_at(dtype, b, i)))
            return false;
    return true;
}

/* Random bits, so that subnormals, infinities and NaN are among them; bools are 0 and 1. */
static void fill_bits(char *p, size_t bytes, bool bools, uint64_t *state)
{
    for (size_t i = 0; i < bytes; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        p[i] = (char)(bools ? *state >> 60 & 1 : *state >> 56);
    }
}

static void test_instructions(void **state)
{
    static const int64_t counts[] = {1, 7, 31, 64, 65, 511, 513, 1030};
    static _Alignas(64) char data[SOURCES][8 * MOST], base[8 * MOST], wide[8 * MOST];
    uint64_t random = 1;
    (void)state;
    for (int dtype = TSR_DTYPE_NONE + 1; dtype < TSR_DTYPE_COUNT_; dtype++) {
        const size_t size = tsr_dtype_size((tsr_dtype)dtype);
        for (int m = 0; m < SOURCES; m++)
            fill_bits(data[m], sizeof data[m], dtype == TSR_BOOL, &random);
        for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_AVG; op++) {
            tsri_reduce_fn *plain =
                tsri_reduce_with(TSRI_CPU_BASE, (tsr_dtype)dtype, (tsr_reduce_op)op);
            for (int isa = TSRI_CPU_BASE + 1; plain && isa <= (int)tsri_cpu_best(); isa++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    const int nsrc = 2 + (int)(c % (SOURCES - 1));
                    const int64_t at = (int64_t)c, n = counts[c];
                    const char *src[SOURCES];
                    for (int m = 0; m < SOURCES; m++)
                        src[m] = data[m];
                    memset(base, 0x55, sizeof base);
                    memset(wide, 0x55, sizeof wide);
                    plain(base, src, at, nsrc, n);
                    tsri_reduce_with((tsri_cpu_isa)isa, (tsr_dtype)dtype,
                                     (tsr_reduce_op)op)(wide, src, at, nsrc, n);
                    assert_true(same_bits((tsr_dtype)dtype, base, wide, n));
                    assert_memory_equal(base + (size_t)n * size, wide + (size_t)n * size,
                                        sizeof base - (size_t)n * size);
                }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arithmetic),
                                       cmocka_unit_test(test_instructions)};
    return cmocka_run_group_tests_name("arithmetic", tests, NULL, NULL);
}
