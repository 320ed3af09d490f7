/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's CPU generator: MT19937 (Matsumoto and Nishimura, 1998) with init_genrand's seeding, and
 * the ways in which PyTorch makes numbers of its words.
 */
#include "src/data/sampler/torch_rng.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "src/core/live.h"

enum { SHIFT = 397 };

void tsri_generator_seed(tsri_rng_state *s, uint64_t seed)
{
    *s = (tsri_rng_state){.seed = seed, .left = 1};
    s->words[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < TSRI_MT_WORDS; i++)
        s->words[i] = 1812433253u * (s->words[i - 1] ^ s->words[i - 1] >> 30) + i;
}

static void twist(tsri_rng_state *s)
{
    uint32_t *w = s->words;
    for (int i = 0; i < TSRI_MT_WORDS; i++) {
        uint32_t after = w[i + 1 < TSRI_MT_WORDS ? i + 1 : 0];
        uint32_t y = (w[i] & 0x80000000u) | (after & 0x7FFFFFFFu);
        int from = i + SHIFT < TSRI_MT_WORDS ? i + SHIFT : i + SHIFT - TSRI_MT_WORDS;
        w[i] = w[from] ^ y >> 1 ^ (after & 1 ? 0x9908B0DFu : 0);
    }
    s->left = TSRI_MT_WORDS;
    s->next = 0;
}

uint32_t tsri_generator_word(tsri_rng_state *s)
{
    if (--s->left == 0)
        twist(s);
    uint32_t y = s->words[s->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

uint64_t tsri_generator_word64(tsri_rng_state *s)
{
    uint64_t high = tsri_generator_word(s);
    return high << 32 | tsri_generator_word(s);
}

double tsri_generator_f64(tsri_rng_state *s)
{
    return (double)(tsri_generator_word64(s) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static float next_f32(tsri_rng_state *s)
{
    return (float)(tsri_generator_word(s) & 0xFFFFFFu) * 0x1p-24F;
}

void tsri_generator_skip(tsri_rng_state *s, uint64_t words)
{
    while (words) {
        if (s->left == 1) {
            twist(s);
            s->left++; /* as if its first word were still to come */
        }
        uint64_t here = (uint64_t)s->left - 1;
        if (here > words)
            here = words;
        s->left -= (int)here;
        s->next += (int)here;
        words -= here;
    }
}

/* --- permutations and integers ---------------------------------------------------------------- */

void tsri_generator_randperm(tsri_rng_state *s, int64_t n, bool wide, int64_t *out)
{
    if (wide) { /* Fisher and Yates, inside out */
        for (int64_t i = 0; i < n; i++) {
            int64_t j = (int64_t)(tsri_generator_word64(s) % (uint64_t)(i + 1));
            out[i] = i;
            out[i] = out[j];
            out[j] = i;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t j = i + (int64_t)(tsri_generator_word(s) % (uint64_t)(n - i));
        int64_t other = out[j];
        out[j] = out[i];
        out[i] = other;
    }
}

uint64_t tsri_randperm_words(int64_t n)
{
    return n >= TSRI_RANDPERM_WIDE ? 2 * (uint64_t)n : n ? (uint64_t)n - 1 : 0;
}

int64_t tsri_generator_below(tsri_rng_state *s, uint64_t range, int64_t low)
{
    uint64_t draw = range >> 32 ? tsri_generator_word64(s) : tsri_generator_word(s);
    return (int64_t)(draw % range + (uint64_t)low);
}

/* --- normals ---------------------------------------------------------------------------------- */

/* Box and Muller. Below 16 values: one by one, in f64, the second of a pair kept in the generator.
 */
static double next_normal(tsri_rng_state *s)
{
    if (s->has_normal) {
        s->has_normal = false;
        return s->normal;
    }
    double u1 = tsri_generator_f64(s), u2 = tsri_generator_f64(s);
    double r = sqrt(-2 * log1p(-u2)), angle = 2 * M_PI * u1;
    s->normal = r * sin(angle);
    s->has_normal = true;
    return r * cos(angle);
}

/* From 16 on: uniforms first, which blocks of 16 then turn into normals, in their own precision. */
static void block_f64(double d[16])
{
    for (int j = 0; j < 8; j++) {
        double r = sqrt(-2 * log(1 - d[j])), angle = 2 * M_PI * d[j + 8];
        d[j] = r * cos(angle);
        d[j + 8] = r * sin(angle);
    }
}

static void block_f32(float d[16])
{
    for (int j = 0; j < 8; j++) {
        float r = sqrtf(-2 * logf(1 - d[j])), angle = 2 * (float)M_PI * d[j + 8];
        d[j] = r * cosf(angle);
        d[j + 8] = r * sinf(angle);
    }
}

static void normals_f64(tsri_rng_state *s, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = n < 16 ? next_normal(s) : tsri_generator_f64(s);
    if (n < 16)
        return;
    for (int64_t i = 0; i + 16 <= n; i += 16)
        block_f64(out + i);
    if (n % 16) { /* the last 16 once more, over what a block has done already */
        for (int64_t i = n - 16; i < n; i++)
            out[i] = tsri_generator_f64(s);
        block_f64(out + n - 16);
    }
}

static void normals_f32(tsri_rng_state *s, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = n < 16 ? (float)next_normal(s) : next_f32(s);
    if (n < 16)
        return;
    for (int64_t i = 0; i + 16 <= n; i += 16)
        block_f32(out + i);
    if (n % 16) {
        for (int64_t i = n - 16; i < n; i++)
            out[i] = next_f32(s);
        block_f32(out + n - 16);
    }
}

/* --- state ------------------------------------------------------------------------------------ */

/* Offsets of get_state()'s fields, little-endian; what lies between and behind them is 0. */
enum {
    AT_SEED = 0,                                  /* u64 */
    AT_LEFT = 8,                                  /* i32 */
    AT_SEEDED = 12,                               /* i32: 1 */
    AT_NEXT = 16,                                 /* u64 */
    AT_WORDS = 24,                                /* 624 x u64 */
    AT_NORMAL = AT_WORDS + 8 * TSRI_MT_WORDS + 8, /* f64 */
    AT_HAS_NORMAL = AT_NORMAL + 16,               /* i32 */
};

static void put(unsigned char *at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

void tsri_generator_store(const tsri_rng_state *s, unsigned char out[TSR_GENERATOR_STATE_BYTES])
{
    memset(out, 0, TSR_GENERATOR_STATE_BYTES);
    put(out + AT_SEED, 8, s->seed);
    put(out + AT_LEFT, 4, (uint64_t)s->left);
    put(out + AT_SEEDED, 4, 1);
    put(out + AT_NEXT, 8, (uint64_t)s->next);
    for (int i = 0; i < TSRI_MT_WORDS; i++)
        put(out + AT_WORDS + 8 * i, 8, s->words[i]);
    if (s->has_normal) {
        uint64_t bits;
        memcpy(&bits, &s->normal, sizeof bits);
        put(out + AT_NORMAL, 8, bits);
        put(out + AT_HAS_NORMAL, 4, 1);
    }
}

tsr_status tsri_generator_load(tsri_rng_state *s,
                               const unsigned char state[TSR_GENERATOR_STATE_BYTES])
{
    uint64_t left = get(state + AT_LEFT, 4), next = get(state + AT_NEXT, 8);
    bool legal = get(state + AT_SEEDED, 4) == 1 && left >= 1 && left <= TSRI_MT_WORDS &&
                 next <= TSRI_MT_WORDS && (left + next == TSRI_MT_WORDS + 1 || left + next == 1) &&
                 get(state + AT_HAS_NORMAL, 4) <= 1;
    for (int i = 0; legal && i < TSRI_MT_WORDS; i++)
        legal = get(state + AT_WORDS + 8 * i, 8) <= UINT32_MAX;
    if (!legal)
        return tsri_fail(TSR_ERR_FORMAT, "these %d bytes are no state of an mt19937 generator",
                         TSR_GENERATOR_STATE_BYTES);
    *s = (tsri_rng_state){.seed = get(state + AT_SEED, 8), .left = (int)left, .next = (int)next};
    for (int i = 0; i < TSRI_MT_WORDS; i++)
        s->words[i] = (uint32_t)get(state + AT_WORDS + 8 * i, 8);
    s->has_normal = get(state + AT_HAS_NORMAL, 4) == 1;
    uint64_t bits = get(state + AT_NORMAL, 8);
    if (s->has_normal)
        memcpy(&s->normal, &bits, sizeof bits);
    return TSR_OK;
}

/* --- the public face -------------------------------------------------------------------------- */

static void destroy_owned(void *generator)
{
    tsr_generator_destroy(generator);
}

tsr_status tsr_generator_create(tsr_world *world, uint64_t seed, tsr_generator **out_generator)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!out_generator)
        return tsri_fail(TSR_ERR_INVALID, "tsr_generator_create: out_generator is NULL");
    tsr_generator *g = tsri_live_alloc(world ? &world->mem : NULL, sizeof *g, TSRI_LIVE_GENERATOR);
    TSRI_NEED(g);
    tsri_generator_seed(&g->s, seed);
    if (world)
        tsri_world_own(world, &g->owned, g, destroy_owned);
    *out_generator = g;
    return TSR_OK;
}

void tsr_generator_destroy(tsr_generator *g)
{
    if (!tsri_is_live(g, TSRI_LIVE_GENERATOR, __func__))
        return;
    tsri_world_disown(&g->owned);
    tsri_live_free(g, TSRI_LIVE_GENERATOR);
}

void tsr_generator_seed(tsr_generator *g, uint64_t seed)
{
    if (tsri_is_live(g, TSRI_LIVE_GENERATOR, __func__))
        tsri_generator_seed(&g->s, seed);
}

uint64_t tsr_generator_initial_seed(const tsr_generator *g)
{
    return tsri_is_live(g, TSRI_LIVE_GENERATOR, __func__) ? g->s.seed : 0;
}

uint32_t tsr_generator_word(tsr_generator *g)
{
    return tsri_is_live(g, TSRI_LIVE_GENERATOR, __func__) ? tsri_generator_word(&g->s) : 0;
}

uint64_t tsr_generator_word64(tsr_generator *g)
{
    return tsri_is_live(g, TSRI_LIVE_GENERATOR, __func__) ? tsri_generator_word64(&g->s) : 0;
}

int64_t tsr_generator_random(tsr_generator *g)
{
    return tsri_is_live(g, TSRI_LIVE_GENERATOR, __func__)
               ? (int64_t)(tsri_generator_word64(&g->s) & INT64_MAX)
               : 0;
}

static tsr_status check(const char *who, const tsr_generator *g, int64_t n, const void *out)
{
    if (!g || (!out && n))
        return tsri_fail(TSR_ERR_INVALID, "%s: %s is NULL", who, g ? "out" : "the generator");
    TSRI_TRY(tsri_live_check(g, TSRI_LIVE_GENERATOR, who));
    if (n < 0)
        return tsri_fail(TSR_ERR_INVALID, "%s: n is %" PRId64 "; it is 0 or more", who, n);
    return TSR_OK;
}

static tsr_status check_float(const char *who, tsr_dtype dtype)
{
    if (dtype == TSR_F32 || dtype == TSR_F64)
        return TSR_OK;
    return tsri_fail(TSR_ERR_DTYPE, "%s: dtype %s; legal are f32 and f64", who,
                     tsr_dtype_name(dtype));
}

tsr_status tsr_generator_randperm(tsr_generator *g, int64_t n, int64_t *out)
{
    TSRI_TRY(check("tsr_generator_randperm", g, n, out));
    tsri_generator_randperm(&g->s, n, n >= TSRI_RANDPERM_WIDE, out);
    return TSR_OK;
}

tsr_status tsr_generator_rand(tsr_generator *g, tsr_dtype dtype, int64_t n, void *out)
{
    TSRI_TRY(check("tsr_generator_rand", g, n, out));
    TSRI_TRY(check_float("tsr_generator_rand", dtype));
    for (int64_t i = 0; i < n; i++)
        if (dtype == TSR_F64)
            ((double *)out)[i] = tsri_generator_f64(&g->s);
        else
            ((float *)out)[i] = next_f32(&g->s);
    return TSR_OK;
}

tsr_status tsr_generator_randn(tsr_generator *g, tsr_dtype dtype, int64_t n, void *out)
{
    TSRI_TRY(check("tsr_generator_randn", g, n, out));
    TSRI_TRY(check_float("tsr_generator_randn", dtype));
    if (dtype == TSR_F64)
        normals_f64(&g->s, n, out);
    else
        normals_f32(&g->s, n, out);
    return TSR_OK;
}

tsr_status tsr_generator_randint(tsr_generator *g, int64_t low, int64_t high, int64_t n,
                                 int64_t *out)
{
    TSRI_TRY(check("tsr_generator_randint", g, n, out));
    if (low >= high)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_generator_randint: low %" PRId64 " must be below high %" PRId64, low,
                         high);
    for (int64_t i = 0; i < n; i++)
        out[i] = tsri_generator_below(&g->s, (uint64_t)high - (uint64_t)low, low);
    return TSR_OK;
}

tsr_status tsr_generator_bernoulli(tsr_generator *g, double p, int64_t n, bool *out)
{
    TSRI_TRY(check("tsr_generator_bernoulli", g, n, out));
    if (!(p >= 0 && p <= 1))
        return tsri_fail(TSR_ERR_INVALID, "tsr_generator_bernoulli: p is %g; legal is 0 .. 1", p);
    for (int64_t i = 0; i < n; i++)
        out[i] = tsri_generator_f64(&g->s) < p;
    return TSR_OK;
}

tsr_status tsr_generator_get_state(const tsr_generator *g,
                                   unsigned char out_state[TSR_GENERATOR_STATE_BYTES])
{
    TSRI_TRY(tsri_live_check(g, TSRI_LIVE_GENERATOR, __func__));
    if (!g || !out_state)
        return tsri_fail(TSR_ERR_INVALID, "tsr_generator_get_state: %s is NULL",
                         g ? "out_state" : "the generator");
    tsri_generator_store(&g->s, out_state);
    return TSR_OK;
}

tsr_status tsr_generator_set_state(tsr_generator *g,
                                   const unsigned char state[TSR_GENERATOR_STATE_BYTES])
{
    TSRI_TRY(tsri_live_check(g, TSRI_LIVE_GENERATOR, __func__));
    if (!g || !state)
        return tsri_fail(TSR_ERR_INVALID, "tsr_generator_set_state: %s is NULL",
                         g ? "state" : "the generator");
    return tsri_generator_load(&g->s, state);
}
