/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small data sets, shared out among ranks by a distributed sampler and loaded by a data loader:
 * what PyTorch's DataLoader(ds, sampler=DistributedSampler(ds)) gives each rank, also where there
 * are fewer samples than ranks. Rank 0 prints (rank, i, data) for all, in order.
 *
 *     tessera launch -n 2 dataloader_split [SIZE ...]     (alone, it starts two thread ranks)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

enum { MOST = 1000 };

/* A data set of the numbers 0 .. n-1. */
static int64_t len(void *arg)
{
    return *(const int64_t *)arg;
}

static tsr_status get(void *arg, int64_t index, void *const *out_fields, const tsr_worker *worker)
{
    (void)arg;
    (void)worker;
    memcpy(out_fields[0], &index, sizeof index);
    return TSR_OK;
}

/* This rank's samples, batch by batch. *out_count: how many. */
static tsr_status load(tsr_world *world, int64_t n, int64_t *mine, int64_t *out_count)
{
    tsr_sampler *sampler;
    TRY(tsr_distributed_sampler(world, n, NULL, &sampler)); /* replicas and rank: the world's */
    tsr_loader *loader;
    TRY(tsr_map_loader_create(
        world, TSR_MAP_DATASET(.len = len, .get = get, .arg = &n),
        TSR_MAP_LOADER_OPTS(.sample_bytes = sizeof *mine, .sampler = sampler, .num_workers = 1),
        &loader));
    const tsr_batch *batch;
    tsr_status status;
    for (*out_count = 0; (status = tsr_loader_next(loader, &batch)) == TSR_OK; ++*out_count)
        memcpy(&mine[*out_count], batch->data[0], sizeof *mine);
    tsr_loader_destroy(loader);
    tsr_sampler_destroy(sampler);
    return status == TSR_END ? TSR_OK : status;
}

static tsr_status split(tsr_world *world, int64_t n)
{
    int nranks = tsr_world_size(world);
    int64_t mine[MOST], count;
    TRY(load(world, n, mine, &count));
    int64_t *all = malloc((size_t)nranks * sizeof mine);
    if (!all)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "no memory for what %d ranks have", nranks);
    tsr_status status =
        tsr_all_gather_into(tsr_world_group(world), mine, all, count, TSR_I64); /* equal counts */
    if (status == TSR_OK && tsr_world_rank(world) == 0) {
        printf("%" PRId64 " sample%s over %d ranks\n", n, n == 1 ? "" : "s", nranks);
        for (int rank = 0; rank < nranks; rank++)
            for (int64_t i = 0; i < count; i++)
                printf("(%d, %" PRId64 ", %" PRId64 ")\n", rank, i, all[rank * count + i]);
    }
    free(all);
    return status;
}

typedef struct sizes {
    int count;
    int64_t n[16];
} sizes;

static tsr_status run(tsr_world *world, void *arg)
{
    const sizes *s = arg;
    for (int i = 0; i < s->count; i++)
        TRY(split(world, s->n[i]));
    return TSR_OK;
}

static bool read_sizes(int count, char **text, sizes *s)
{
    s->count = count;
    bool good = count <= (int)(sizeof s->n / sizeof *s->n);
    for (int i = 0; good && i < count; i++) {
        char *end;
        s->n[i] = strtoll(text[i], &end, 10);
        good = *text[i] >= '0' && *text[i] <= '9' && !*end && s->n[i] <= MOST;
        if (!good)
            fprintf(stderr, "dataloader_split: \"%s\" is no size; legal are 0 .. %d\n", text[i],
                    MOST);
    }
    if (!good)
        fprintf(stderr, "usage: dataloader_split [SIZE ...]     (at most 16)\n");
    return good;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    sizes s = {.count = 3, .n = {1, 2, 3}};
    if (argc > 1 && !read_sizes(argc - 1, argv + 1, &s))
        return 2;
    if (tsr_start_ranks(2, run, &s) == TSR_OK)
        return 0;
    fprintf(stderr, "dataloader_split: %s\n", tsr_last_error());
    return 1;
}
