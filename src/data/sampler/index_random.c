/* SPDX-License-Identifier: Apache-2.0 */
/* Samplers that draw: RandomSampler, SubsetRandomSampler and WeightedRandomSampler of PyTorch. */
#include "src/core/opts.h"
#include "src/data/sampler/index_sampler.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "src/core/live.h"

/* --- random ----------------------------------------------------------------------------------- */

enum { WITH_REPLACEMENT = 32 }; /* drawn at a time */

static tsr_status fill_random(tsr_sampler *s)
{
    s->block_first += s->block_count;
    if (!s->replacement) {
        tsri_generator_randperm(s->pass, s->n, s->n >= TSRI_RANDPERM_WIDE, s->block);
        s->block_count = s->n;
        return TSR_OK;
    }
    int64_t left = s->count - s->block_first;
    s->block_count = left < WITH_REPLACEMENT ? left : WITH_REPLACEMENT;
    for (int64_t i = 0; i < s->block_count; i++)
        s->block[i] = tsri_generator_below(s->pass, (uint64_t)s->n, 0);
    return TSR_OK;
}

/* PyTorch draws the order of the last count % n samples also where that is 0. */
static void end_random(tsr_sampler *s)
{
    if (!s->replacement && !s->seeds_passes && s->n && s->count % s->n == 0)
        tsri_generator_skip(s->pass, tsri_randperm_words(s->n));
}

static uint64_t words_of_seed(const tsr_sampler *s)
{
    (void)s;
    return 2;
}

static const tsri_sampler_ops random_ops = {
    .kind = 3, .name = "random", .fill = fill_random, .end = end_random, .words = words_of_seed};

static tsr_status check_num_samples(const char *who, int64_t num_samples)
{
    if (num_samples == -1 || (num_samples > 0 && num_samples <= TSRI_MAX_SAMPLES))
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID,
                     "%s: num_samples should be a positive integer value, but got %" PRId64, who,
                     num_samples);
}

tsr_status tsr_random_sampler(tsr_world *world, int64_t n, const tsr_random_sampler_opts *opts,
                              tsr_sampler **out_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    static const char who[] = "tsr_random_sampler";
    tsr_random_sampler_opts o = *TSR_RANDOM_SAMPLER_OPTS();
    TSRI_TRY(tsri_sampler_check(who, n, out_sampler));
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, who));
    TSRI_TRY(check_num_samples(who, o.num_samples));
    if (!n && o.num_samples > 0)
        return tsri_fail(TSR_ERR_INVALID, "%s: %" PRId64 " samples can't be drawn from none", who,
                         o.num_samples);
    tsr_sampler *s;
    TSRI_TRY(tsri_sampler_create(world, &random_ops, n, o.num_samples > 0 ? o.num_samples : n, &s));
    s->replacement = o.replacement;
    s->seeds_passes = !o.generator;
    tsr_status status = tsri_sampler_draw_from(s, o.generator, o.seed);
    if (status == TSR_OK)
        status = tsri_sampler_room(s, o.replacement ? WITH_REPLACEMENT : n);
    return tsri_sampler_finish(world, s, status, out_sampler);
}

tsr_status tsri_sampler_shuffled(tsr_world *world, int64_t n, tsri_rng_state *root, bool with_seeds,
                                 tsr_sampler **out_sampler)
{
    tsr_sampler *s;
    TSRI_TRY(tsri_sampler_create(world, &random_ops, n, n, &s));
    s->root = root;
    s->seeds_passes = with_seeds;
    return tsri_sampler_finish(NULL, s, tsri_sampler_room(s, n), out_sampler);
}

/* --- a subset --------------------------------------------------------------------------------- */

static tsr_status fill_subset(tsr_sampler *s)
{
    tsri_generator_randperm(s->pass, s->n, s->n >= TSRI_RANDPERM_WIDE, s->block);
    for (int64_t i = 0; i < s->n; i++)
        s->block[i] = s->indices[s->block[i]];
    s->block_count = s->n;
    return TSR_OK;
}

static uint64_t words_of_order(const tsr_sampler *s)
{
    return tsri_randperm_words(s->n);
}

static const tsri_sampler_ops subset = {
    .kind = 4, .name = "subset random", .fill = fill_subset, .words = words_of_order};

tsr_status tsr_subset_random_sampler(tsr_world *world, const int64_t *indices, int64_t count,
                                     const tsr_subset_random_sampler_opts *opts,
                                     tsr_sampler **out_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    static const char who[] = "tsr_subset_random_sampler";
    tsr_subset_random_sampler_opts o = {.size = sizeof o};
    TSRI_TRY(tsri_sampler_check(who, count, out_sampler));
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, who));
    if (!indices && count)
        return tsri_fail(TSR_ERR_INVALID, "%s: indices is NULL", who);
    tsr_sampler *s;
    TSRI_TRY(tsri_sampler_create(world, &subset, count, count, &s));
    tsr_status status = tsri_sampler_draw_from(s, o.generator, o.seed);
    if (status == TSR_OK)
        status = tsri_sampler_room(s, count);
    if (status == TSR_OK) {
        s->indices = tsri_mem_alloc(s->mem, (size_t)count * sizeof *s->indices);
        if (s->indices && count)
            memcpy(s->indices, indices, (size_t)count * sizeof *s->indices);
        status = s->indices ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    return tsri_sampler_finish(world, s, status, out_sampler);
}

/* --- weighted --------------------------------------------------------------------------------- */

/* The first index whose cumulative weight is not below u. The last one's is 1. */
static int64_t find_weight(const tsr_sampler *s, double u)
{
    int64_t low = 0, high = s->n - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (s->cumulative[middle] < u)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All of a pass at once. */
static tsr_status fill_weighted(tsr_sampler *s)
{
    for (int64_t i = 0; i < s->count; i++)
        s->block[i] = find_weight(s, tsri_generator_f64(s->pass));
    s->block_count = s->count;
    return TSR_OK;
}

static uint64_t words_of_weighted(const tsr_sampler *s)
{
    return 2 * (uint64_t)s->count;
}

static const tsri_sampler_ops weighted = {
    .kind = 5, .name = "weighted random", .fill = fill_weighted, .words = words_of_weighted};

static tsr_status accumulate(tsr_sampler *s, const double *weights)
{
    s->cumulative = tsri_mem_alloc(s->mem, (size_t)s->n * sizeof *s->cumulative);
    TSRI_NEED(s->cumulative);
    double sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (!isfinite(weights[i]) || weights[i] < 0)
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_weighted_random_sampler: weight %" PRId64
                             " is %g; legal are finite ones that aren't negative",
                             i, weights[i]);
        sum += weights[i];
        s->cumulative[i] = sum;
    }
    if (!(sum > 0) || !isfinite(sum))
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_weighted_random_sampler: the weights' sum is %g; it must be finite "
                         "and above 0",
                         sum);
    for (int64_t i = 0; i < s->n; i++)
        s->cumulative[i] /= sum;
    return TSR_OK;
}

tsr_status tsr_weighted_random_sampler(tsr_world *world, const double *weights, int64_t n,
                                       const tsr_weighted_random_sampler_opts *opts,
                                       tsr_sampler **out_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    static const char who[] = "tsr_weighted_random_sampler";
    tsr_weighted_random_sampler_opts o = *TSR_WEIGHTED_RANDOM_SAMPLER_OPTS();
    TSRI_TRY(tsri_sampler_check(who, n, out_sampler));
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, who));
    TSRI_TRY(check_num_samples(who, o.num_samples));
    if (!o.replacement)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "%s: without replacement there is no order that all builds of PyTorch "
                         "share",
                         who);
    if (!weights || n < 1 || n > 1 << 24)
        return tsri_fail(TSR_ERR_INVALID, "%s: %" PRId64 " weights%s; legal are 1 .. 2^24", who, n,
                         weights ? "" : " at NULL");
    tsr_sampler *s;
    TSRI_TRY(tsri_sampler_create(world, &weighted, n, o.num_samples > 0 ? o.num_samples : n, &s));
    tsr_status status = tsri_sampler_draw_from(s, o.generator, o.seed);
    if (status == TSR_OK)
        status = tsri_sampler_room(s, s->count);
    if (status == TSR_OK)
        status = accumulate(s, weights);
    return tsri_sampler_finish(world, s, status, out_sampler);
}
