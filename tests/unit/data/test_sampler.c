/* SPDX-License-Identifier: Apache-2.0 */
/* Generators and samplers against vectors taken from PyTorch 1.13; tests/models/samplers.py has the
 * live comparison. Then what PyTorch has not: positions, states, evaluation without padding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

#include <tessera/sampler.h>
#include "src/core/live.h"
#include "src/data/loader/batch_make.h"
#include "src/data/sampler/index_sampler.h"

static struct tsr_world world = {.nranks = 4, .rank = 2, .threads = 1};

static int tear_down(void **state)
{
    (void)state;
    tsri_world_destroy_owned(&world);
    return 0;
}

static tsr_generator *make(uint64_t seed)
{
    tsr_generator *g;
    assert_int_equal(tsr_generator_create(&world, seed, &g), TSR_OK);
    return g;
}

static void must_say(tsr_status status, tsr_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(tsr_last_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, tsr_last_error());
}

#define ARRAY(...) ((const int64_t[]){__VA_ARGS__}), sizeof((const int64_t[]){__VA_ARGS__}) / 8

/* --- generators ------------------------------------------------------------------------------- */

static void words(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        uint32_t words[6];
    } cases[] = {
        {0, {2357136044, 2546248239, 3071714933, 3626093760, 2588848963, 3684848379}},
        {5489, {3499211612, 581869302, 3890346734, 3586334585, 545404204, 4161255391}},
        {(uint64_t)-1, {419326371, 479346978, 3918654476, 2416749639, 3388880820, 2260532800}},
        {1, {1791095845, 4282876139, 3093770124, 4005303368}},
        {(UINT64_C(1) << 32) + 1, {1791095845, 4282876139, 3093770124, 4005303368}},
        {42, {1608637542, 3421126067, 4083286876, 787846414}},
    };
    tsr_generator *g = make(9);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_generator_seed(g, cases[i].seed);
        assert_true(tsr_generator_initial_seed(g) == cases[i].seed);
        for (int k = 0; k < 6 && cases[i].words[k]; k++)
            assert_int_equal(tsr_generator_word(g), cases[i].words[k]);
    }
    tsr_generator_seed(g, 0);
    assert_true(tsr_generator_word64(g) == (UINT64_C(2357136044) << 32 | 2546248239));
    tsr_generator_seed(g, 0);
    assert_true(tsr_generator_random(g) ==
                (int64_t)((UINT64_C(2357136044) << 32 | 2546248239) & INT64_MAX));
    assert_int_equal(tsr_generator_word(NULL), 0);
}

static void check_perm(uint64_t seed, int64_t n, const int64_t *first, size_t nfirst,
                       const int64_t *last, size_t nlast)
{
    int64_t *p = malloc((size_t)n * sizeof *p);
    char *seen = calloc((size_t)n, 1);
    assert_true(p && seen);
    tsr_generator *g = make(seed);
    assert_int_equal(tsr_generator_randperm(g, n, p), TSR_OK);
    assert_memory_equal(p, first, nfirst * sizeof *p);
    assert_memory_equal(p + n - (int64_t)nlast, last, nlast * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(seen[p[i]]++, 0);
    tsr_generator_destroy(g);
    free(p);
    free(seen);
}

static void permutations(void **state)
{
    (void)state;
    check_perm(0, 3, ARRAY(2, 0, 1), ARRAY(1));
    check_perm(0, 10, ARRAY(4, 1, 7, 5, 3, 9, 0, 8, 6, 2), ARRAY(2));
    check_perm(1, 10, ARRAY(5, 6, 1, 2, 0, 8, 9, 3, 7, 4), ARRAY(4));
    check_perm(42, 10, ARRAY(2, 6, 1, 8, 4, 5, 0, 9, 3, 7), ARRAY(7));
    check_perm(0, 17, ARRAY(7, 16, 10, 5, 1, 8, 2, 6, 9, 12, 3, 13, 11, 4, 15, 14, 0), ARRAY(0));
    check_perm(0, 1000, ARRAY(44, 37, 675, 775, 947, 209, 719, 500), ARRAY(932, 745, 263, 354));
    check_perm(1, 1000, ARRAY(845, 303, 66, 436, 239, 593, 573, 999), ARRAY(364, 513, 935, 639));
    check_perm(0, 100000, ARRAY(36044, 73702, 76369, 2549, 52523, 32634, 95851, 73247),
               ARRAY(70481, 47534, 99934, 84786));
    check_perm(1, 100000, ARRAY(95845, 18969, 32002, 23533, 91283, 17833, 86407, 46725),
               ARRAY(83320, 75609, 36467, 61140));
    check_perm(0, 1000003, ARRAY(128973, 243148, 711864, 93763, 851555, 855752, 262453, 933062),
               ARRAY(850407, 316774, 568254, 49955));
    check_perm(1, 1000003, ARRAY(90472, 867576, 767033, 303371, 491267, 291418, 512391, 863508),
               ARRAY(407752, 504751, 848658, 458022));
    /* Two in a row; then the next word is the ninth. */
    tsr_generator *g = make(0), *other = make(0);
    int64_t p[5];
    assert_int_equal(tsr_generator_randperm(g, 5, p), TSR_OK);
    assert_memory_equal(p, ((int64_t[]){4, 0, 1, 3, 2}), sizeof p);
    assert_int_equal(tsr_generator_randperm(g, 5, p), TSR_OK);
    assert_memory_equal(p, ((int64_t[]){3, 4, 0, 1, 2}), sizeof p);
    tsri_generator_skip(&other->s, 2 * tsri_randperm_words(5));
    assert_int_equal(tsr_generator_word(g), tsr_generator_word(other));
    assert_int_equal(TSRI_RANDPERM_WIDE, 214748364);
}

/* What PyTorch does from n = 214748364 on, at sizes that fit here: 64 bits a draw, and a list that
 * grows by moving what stands at the drawn place to its end. */
static void wide_permutations(void **state)
{
    (void)state;
    enum { MOST = 300 };
    int64_t got[MOST], want[MOST];
    for (int64_t n = 0; n < MOST; n += 1 + n / 7) {
        tsr_generator *g = make((uint64_t)n), *other = make((uint64_t)n);
        tsri_generator_randperm(&g->s, n, true, got);
        for (int64_t i = 0; i < n; i++) {
            uint64_t j = tsr_generator_word64(other) % (uint64_t)(i + 1);
            if ((int64_t)j < i)
                want[i] = want[j];
            want[j] = i;
        }
        assert_memory_equal(got, want, (size_t)n * sizeof *got);
        assert_int_equal(tsr_generator_word(g), tsr_generator_word(other));
    }
    assert_true(tsri_randperm_words(TSRI_RANDPERM_WIDE) == 2 * (uint64_t)TSRI_RANDPERM_WIDE);
    assert_true(tsri_randperm_words(TSRI_RANDPERM_WIDE - 1) == (uint64_t)TSRI_RANDPERM_WIDE - 2);
}

static void skipping(void **state)
{
    (void)state;
    static const uint64_t steps[] = {0, 1, 622, 623, 624, 625, 1248, 5000, 3};
    tsr_generator *g = make(5), *other = make(5);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        tsri_generator_skip(&g->s, steps[i]);
        for (uint64_t k = 0; k < steps[i]; k++)
            tsr_generator_word(other);
        assert_memory_equal(&g->s, &other->s, offsetof(tsri_rng_state, words));
        if (i % 2)
            assert_int_equal(tsr_generator_word(g), tsr_generator_word(other));
    }
}

static void close_to(const double *got, const double *want, int n, double limit)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= limit * fmax(1, fabs(want[i]))))
            fail_msg("[%d]: %.17g, not %.17g", i, got[i], want[i]);
}

static void numbers(void **state)
{
    (void)state;
    tsr_generator *g = make(0);
    float f[16];
    static const uint32_t bits[] = {1056839000, 1061464623, 1035285416,
                                    1040659200, 1050502790, 1059214075};
    assert_int_equal(tsr_generator_rand(g, TSR_F32, 6, f), TSR_OK);
    assert_memory_equal(f, bits, sizeof bits);
    double d[20];
    tsr_generator_seed(g, 0);
    assert_int_equal(tsr_generator_rand(g, TSR_F64, 4, d), TSR_OK);
    static const double rand_f64[] = {0.9700530018065531, 0.707819864399788, 0.45938294312745087,
                                      0.9207476841219603};
    assert_memory_equal(d, rand_f64, sizeof rand_f64);
    static const double randn4[] = {1.5409961082440433, -0.2934289057609464, -2.1787893820745574,
                                    0.5684312772806678};
    tsr_generator_seed(g, 0);
    assert_int_equal(tsr_generator_randn(g, TSR_F64, 4, d), TSR_OK);
    close_to(d, randn4, 4, 1e-15);
    for (int at = 0; at < 4; at += at ? 2 : 1) { /* 1, 2 and 1: a kept second one */
        if (!at)
            tsr_generator_seed(g, 0);
        assert_int_equal(tsr_generator_randn(g, TSR_F64, at == 1 ? 2 : 1, d), TSR_OK);
        close_to(d, randn4 + at, at == 1 ? 2 : 1, 1e-15);
    }
    tsr_generator_seed(g, 0);
    assert_int_equal(tsr_generator_randn(g, TSR_F32, 4, f), TSR_OK);
    static const double randn4_f32[] = {1.5409960746765137, -0.293428897857666, -2.1787893772125244,
                                        0.5684312582015991};
    for (int i = 0; i < 4; i++)
        assert_true(f[i] == (float)randn4_f32[i]);
    tsr_generator_seed(g, 0);
    assert_int_equal(tsr_generator_randn(g, TSR_F64, 16, d), TSR_OK);
    static const double randn16[] = {-2.310411800234176, -0.3732508612577643, -1.0608166785462863,
                                     0.9995093547811761};
    close_to(d, randn16, 4, 1e-15);
    tsr_generator_seed(g, 0);
    assert_int_equal(tsr_generator_randn(g, TSR_F64, 20, d), TSR_OK);
    static const double randn20[] = {0.6748575435940039, 1.0468653769814655, 0.15429517864658948,
                                     -0.7498915228391941};
    close_to(d + 16, randn20, 4, 1e-15);
    tsr_generator_seed(g, 0);
    assert_int_equal(tsr_generator_randn(g, TSR_F32, 16, f), TSR_OK);
    static const double randn16_f32[] = {-1.1258398294448853, -1.152360200881958,
                                         -0.2505785822868347, -0.4338788092136383};
    for (int i = 0; i < 4; i++)
        d[i] = f[i];
    close_to(d, randn16_f32, 4, 1e-6);
}

static void integers(void **state)
{
    (void)state;
    tsr_generator *g = make(0);
    int64_t i[12];
    assert_int_equal(tsr_generator_randint(g, 0, 10, 12, i), TSR_OK);
    assert_memory_equal(i, ((int64_t[]){4, 9, 3, 0, 3, 9, 7, 3, 7, 3, 1, 6}), sizeof i);
    bool b[16];
    static const bool want[16] = {[6] = true, [9] = true, [11] = true};
    tsr_generator_seed(g, 0);
    assert_int_equal(tsr_generator_bernoulli(g, 0.3, 16, b), TSR_OK);
    assert_memory_equal(b, want, sizeof b);
    must_say(tsr_generator_randint(g, 3, 3, 1, i), TSR_ERR_INVALID, "low 3 must be below high 3");
    must_say(tsr_generator_bernoulli(g, 1.5, 1, b), TSR_ERR_INVALID, "p is 1.5; legal is 0 .. 1");
    must_say(tsr_generator_bernoulli(g, NAN, 1, b), TSR_ERR_INVALID, "p is");
    must_say(tsr_generator_randperm(g, -1, i), TSR_ERR_INVALID, "n is -1");
    must_say(tsr_generator_rand(g, TSR_I64, 1, i), TSR_ERR_DTYPE, "legal are f32 and f64");
    must_say(tsr_generator_randn(NULL, TSR_F32, 1, i), TSR_ERR_INVALID, "NULL");
    assert_int_equal(tsr_generator_randperm(g, 0, NULL), TSR_OK);
    assert_int_equal(tsr_generator_randint(g, INT64_MIN, INT64_MAX, 1, i), TSR_OK);
}

static void generator_states(void **state)
{
    (void)state;
    unsigned char bytes[TSR_GENERATOR_STATE_BYTES];
    tsr_generator *g = make((uint64_t)-1), *other = make(3);
    double d;
    for (int k = 0; k < 1300; k += 1 + k / 20) {
        tsri_generator_skip(&g->s, (uint64_t)k % 7);
        if (k % 3 == 0)
            assert_int_equal(tsr_generator_randn(g, TSR_F64, 1, &d), TSR_OK);
        assert_int_equal(tsr_generator_get_state(g, bytes), TSR_OK);
        assert_int_equal(tsr_generator_set_state(other, bytes), TSR_OK);
        assert_true(tsr_generator_initial_seed(other) == UINT64_MAX);
        double a[3], b[3];
        assert_int_equal(tsr_generator_randn(g, TSR_F64, 3, a), TSR_OK);
        assert_int_equal(tsr_generator_randn(other, TSR_F64, 3, b), TSR_OK);
        assert_memory_equal(a, b, sizeof a);
    }
    /* Nothing that isn't one is taken. */
    unsigned char broken[TSR_GENERATOR_STATE_BYTES];
    static const int places[] = {8, 12, 16, 24 + 4, 24 + 8 * 623 + 7, 24 + 8 * 624 + 24};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        memcpy(broken, bytes, sizeof broken);
        broken[places[i]] ^= 0x96;
        must_say(tsr_generator_set_state(other, broken), TSR_ERR_FORMAT, "no state");
    }
}

/* --- samplers --------------------------------------------------------------------------------- */

static void gives(tsr_sampler *s, const int64_t *want, size_t n)
{
    int64_t index = -7;
    assert_int_equal(tsr_sampler_count(s), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tsr_sampler_position(s), i);
        assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
        assert_int_equal(index, want[i]);
    }
    index = -7;
    assert_int_equal(tsr_sampler_next(s, &index), TSR_END);
    assert_int_equal(index, -7);
    assert_int_equal(tsr_sampler_position(s), 0);
}

typedef struct shares {
    int64_t n;
    int world;
    int64_t epoch, seed;
    bool in_order, drop_last, no_pad;
    int64_t count; /* of each replica */
    int64_t want[40];
} shares;

/* Vectors of PyTorch's DistributedSampler: the replicas' indices one after the other. */
static const shares distributed_cases[] = {
    {10, 3, 0, 0, .count = 4, .want = {4, 5, 0, 2, 1, 3, 8, 4, 7, 9, 6, 1}},
    {10, 3, 0, 0, .drop_last = true, .count = 3, .want = {4, 5, 0, 1, 3, 8, 7, 9, 6}},
    {10, 3, 1, 0, .count = 4, .want = {5, 2, 9, 4, 6, 0, 3, 5, 1, 8, 7, 6}},
    {10, 4, 0, 0, .count = 3, .want = {4, 3, 6, 1, 9, 2, 7, 0, 4, 5, 8, 1}},
    {10, 4, 0, 0, .drop_last = true, .count = 2, .want = {4, 3, 1, 9, 7, 0, 5, 8}},
    {10, 4, 5, 0, .count = 3, .want = {1, 3, 8, 4, 5, 7, 9, 0, 1, 6, 2, 4}},
    {7, 2, 0, 42, .count = 4, .want = {1, 3, 4, 2, 6, 5, 0, 1}},
    {7, 2, 3, 42, .drop_last = true, .count = 3, .want = {5, 1, 4, 3, 2, 6}},
    {3, 8, 0, 0, .count = 1, .want = {2, 0, 1, 2, 0, 1, 2, 0}},
    {3, 8, 0, 0, .drop_last = true, .count = 0},
    {1, 4, 0, 0, .count = 1, .want = {0, 0, 0, 0}},
    {2, 5, 1, 1, .count = 1, .want = {0, 1, 0, 1, 0}},
    {17, 4, 2, 7, .count = 5,
     .want = {10, 7, 4, 5, 3, 13, 1, 0, 6, 10, 11, 12, 16, 2, 13, 14, 15, 8, 9, 11}},
    {8, 8, 0, 0, .count = 1, .want = {4, 0, 7, 3, 2, 5, 1, 6}},
    {16, 4, 0, 0, .drop_last = true, .count = 4,
     .want = {12, 11, 2, 4, 10, 8, 14, 3, 9, 13, 15, 7, 6, 5, 0, 1}},
    {10, 3, 0, 0, .in_order = true, .count = 4, .want = {0, 3, 6, 9, 1, 4, 7, 0, 2, 5, 8, 1}},
    {0, 3, 0, 0, .count = 0},
    {0, 3, 0, 0, .in_order = true, .count = 0},
};

static tsr_sampler *share(const shares *c, int rank)
{
    tsr_sampler *s;
    assert_int_equal(tsr_distributed_sampler(
                         &world, c->n,
                         TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = c->world, .rank = rank,
                                                      .seed = c->seed, .shuffle = !c->in_order,
                                                      .drop_last = c->drop_last, .pad = !c->no_pad),
                         &s),
                     TSR_OK);
    assert_int_equal(tsr_sampler_set_epoch(s, c->epoch), TSR_OK);
    return s;
}

static void distributed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof distributed_cases / sizeof *distributed_cases; i++) {
        const shares *c = &distributed_cases[i];
        for (int rank = 0; rank < c->world; rank++) {
            tsr_sampler *s = share(c, rank);
            for (int pass = 0; pass < 2; pass++) /* the same epoch: the same order */
                gives(s, c->want + rank * c->count, (size_t)c->count);
            assert_int_equal(tsr_sampler_epoch(s), c->epoch);
            tsr_sampler_destroy(s);
        }
    }
}

/* Every sample exactly once, over all n and worlds; counts differ by one at most. */
static void unpadded(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 40; n++)
        for (int w = 1; w < 12; w++) {
            int seen[40] = {0};
            int64_t least = n, most = 0;
            for (int rank = 0; rank < w; rank++) {
                const shares c = {
                    .n = n, .world = w, .epoch = n % 3, .no_pad = true, .in_order = w % 2};
                tsr_sampler *s = share(&c, rank);
                int64_t index, count = 0;
                for (; tsr_sampler_next(s, &index) == TSR_OK; count++)
                    seen[index]++;
                assert_int_equal(count, tsr_sampler_count(s));
                least = count < least ? count : least;
                most = count > most ? count : most;
                tsr_sampler_destroy(s);
            }
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(seen[i], 1);
            assert_true(most - least <= 1);
        }
}

static void distributed_errors(void **state)
{
    (void)state;
    tsr_sampler *s = NULL;
#define BAD(n, status, text, ...)                                                               \
    must_say(tsr_distributed_sampler(&world, n, TSR_DISTRIBUTED_SAMPLER_OPTS(__VA_ARGS__), &s), \
             status, text)
    BAD(9, TSR_ERR_INVALID, "Invalid rank 4, rank should be in the interval [0, 3]", .replicas = 4,
        .rank = 4);
    BAD(9, TSR_ERR_INVALID, "Invalid rank -1, rank should be in the interval [0, 0]", .replicas = 1,
        .rank = -1);
    BAD(9, TSR_ERR_INVALID, "Invalid replicas -2", .replicas = -2);
    BAD(9, TSR_ERR_INVALID, "a rank is given", .rank = 1);
    BAD(-1, TSR_ERR_INVALID, "-1 samples; legal are 0", .replicas = 1);
    must_say(tsr_distributed_sampler(NULL, 9, NULL, &s), TSR_ERR_INVALID, "no world");
    must_say(tsr_distributed_sampler(&world, 9, NULL, NULL), TSR_ERR_INVALID, "NULL");
    assert_null(s);
    /* The world says who. */
    assert_int_equal(tsr_distributed_sampler(&world, 10, NULL, &s), TSR_OK);
    gives(s, ARRAY(7, 0, 4));
    must_say(tsr_sampler_set_epoch(s, -1), TSR_ERR_INVALID, "negative");
}

/* A weighted sampler, shared out: what PyTorch has no sampler for. */
static void distributed_over(void **state)
{
    (void)state;
    enum { N = 23, W = 4 };
    double weights[N];
    for (int i = 0; i < N; i++)
        weights[i] = i % 5;
    int64_t whole[3][N];
    tsr_sampler *all, *below, *s;
    assert_int_equal(tsr_weighted_random_sampler(&world, weights, N, NULL, &all), TSR_OK);
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < N; i++)
            assert_int_equal(tsr_sampler_next(all, &whole[pass][i]), TSR_OK);
        assert_int_equal(tsr_sampler_next(all, whole[0]), TSR_END);
    }
    for (int rank = 0; rank < W; rank++) {
        assert_int_equal(tsr_weighted_random_sampler(&world, weights, N, NULL, &below), TSR_OK);
        assert_int_equal(
            tsr_distributed_sampler(&world, N,
                                    TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = W, .rank = rank,
                                                                 .over = below, .pad = false),
                                    &s),
            TSR_OK);
        int64_t index;
        tsr_sampler_state middle = {0};
        for (int pass = 0; pass < 3; pass++) {
            assert_int_equal(tsr_sampler_epoch(s), pass);
            for (int i = rank; i < N; i += W) {
                assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
                assert_int_equal(index, whole[pass][i]);
                if (pass == 1 && i == rank + W)
                    assert_int_equal(tsr_sampler_get_state(s, &middle), TSR_OK);
            }
            assert_int_equal(tsr_sampler_next(s, &index), TSR_END);
        }
        assert_int_equal(tsr_sampler_set_state(s, &middle), TSR_OK);
        for (int i = rank + 2 * W; i < N; i += W) {
            assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
            assert_int_equal(index, whole[1][i]);
        }
        assert_int_equal(tsr_sampler_set_epoch(s, 2), TSR_OK);
        assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
        assert_int_equal(index, whole[2][rank]);
        must_say(tsr_distributed_sampler(&world, N + 1,
                                         TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = 1, .over = below),
                                         &all),
                 TSR_ERR_INVALID, "n is 24, but the sampler below gives 23");
    }
}

/* --- batches ---------------------------------------------------------------------------------- */
/* Room for indices grows with the batch, and is kept: later batches need no memory. */
static void batches_keep_their_room(void **state)
{
    (void)state;
    enum { N = 1000, ROWS = 300 };
    static struct tsr_world own = {.nranks = 1, .threads = 1};
    assert_int_equal(tsri_live_add(NULL, &own, TSRI_LIVE_WORLD), TSR_OK);
    tsr_sampler *in_order;
    tsr_batch_sampler *batches;
    assert_int_equal(tsr_sequential_sampler(&own, N, &in_order), TSR_OK);
    assert_int_equal(tsr_batch_sampler_create(&own, in_order, ROWS, false, &batches), TSR_OK);
    for (int pass = 0; pass < 2; pass++) {
        int64_t seen = 0, rows;
        const int64_t *indices;
        tsr_status status;
        own.mem.fail_countdown = pass;
        while ((status = tsr_batch_sampler_next(batches, &indices, &rows)) == TSR_OK) {
            assert_int_equal(rows, seen < 900 ? ROWS : 100);
            for (int64_t i = 0; i < rows; i++)
                assert_int_equal(indices[i], seen + i);
            seen += rows;
        }
        assert_int_equal(status, TSR_END);
        assert_int_equal(seen, N);
        assert_int_equal(own.mem.fail_countdown, pass);
    }
    own.mem.fail_countdown = 0;
    tsri_world_destroy_owned(&own);
}

static void slots_keep_their_room(void **state)
{
    (void)state;
    static tsri_batch_slot slot;
    tsri_mem mem = {0};
    assert_int_equal(tsri_slot_reserve(&slot, &mem, 8), TSR_OK);
    int64_t *at = slot.indices;
    mem.fail_countdown = 1;
    assert_int_equal(tsri_slot_reserve(&slot, &mem, 8), TSR_OK);
    assert_int_equal(tsri_slot_reserve(&slot, &mem, 3), TSR_OK);
    assert_ptr_equal(slot.indices, at);
    assert_int_equal(tsri_slot_reserve(&slot, &mem, 9), TSR_ERR_NO_MEMORY);
    assert_int_equal(tsri_slot_reserve(&slot, &mem, 9), TSR_OK);
    tsri_mem_free(slot.indices);
}

int main(void)
{
    if (tsri_live_add(NULL, &world, TSRI_LIVE_WORLD) != TSR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(permutations),
        cmocka_unit_test(wide_permutations),
        cmocka_unit_test(skipping),
        cmocka_unit_test(numbers),
        cmocka_unit_test(integers),
        cmocka_unit_test(generator_states),
        cmocka_unit_test(distributed),
        cmocka_unit_test(unpadded),
        cmocka_unit_test(distributed_errors),
        cmocka_unit_test(distributed_over),
        cmocka_unit_test(batches_keep_their_room),
        cmocka_unit_test(slots_keep_their_room),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, tear_down);
}
