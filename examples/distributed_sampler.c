/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which samples each replica gets: PyTorch's DistributedSampler, index for index. One line a
 * replica, each a JSON list.
 *
 *     distributed_sampler --size 10 --replicas 3 --epoch 1
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <tessera/tessera.h>

static const char usage[] =
    "usage: distributed_sampler --size N --replicas W [options]\n"
    "  --size N        samples of the data set\n"
    "  --replicas W    ranks that share them\n"
    "  --epoch E       whose order it is (default 0)\n"
    "  --seed S        of all orders (default 0)\n"
    "  --no-shuffle    in the data set's order\n"
    "  --drop-last     leave out what doesn't divide, instead of repeating from the head\n"
    "  --no-pad        neither: each sample exactly once, as evaluation wants it\n";

typedef struct options {
    int64_t size, replicas, epoch, seed;
    bool no_shuffle, drop_last, no_pad;
} options;

/* A whole number of low .. high, and nothing behind it. */
static bool parse(const char *name, const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool is_number = (*text == '-' || (*text >= '0' && *text <= '9')) && end != text && !*end;
    if (!is_number || errno || value < low || value > high) {
        fprintf(stderr,
                "distributed_sampler: --%s is \"%s\"; legal are whole numbers of %" PRId64
                " .. %" PRId64 "\n",
                name, text, low, high);
        return false;
    }
    *out = value;
    return true;
}

static bool read_options(int argc, char **argv, options *o)
{
    static const struct option known[] = {
        {"size", required_argument, NULL, 'n'},  {"replicas", required_argument, NULL, 'w'},
        {"epoch", required_argument, NULL, 'e'}, {"seed", required_argument, NULL, 's'},
        {"no-shuffle", no_argument, NULL, 'f'},  {"drop-last", no_argument, NULL, 'd'},
        {"no-pad", no_argument, NULL, 'p'},      {0},
    };
    bool good = true;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'n')
            good = good && parse("size", optarg, 0, 100000000, &o->size);
        else if (c == 'w')
            good = good && parse("replicas", optarg, 1, 1000000, &o->replicas);
        else if (c == 'e')
            good = good && parse("epoch", optarg, 0, INT64_MAX, &o->epoch);
        else if (c == 's')
            good = good && parse("seed", optarg, INT64_MIN, INT64_MAX, &o->seed);
        else if (c == 'f')
            o->no_shuffle = true;
        else if (c == 'd')
            o->drop_last = true;
        else if (c == 'p')
            o->no_pad = true;
        else
            good = false; /* getopt_long has said why */
    }
    if (good && optind < argc) {
        fprintf(stderr, "distributed_sampler: \"%s\" is no option\n", argv[optind]);
        good = false;
    }
    if (good && (o->size < 0 || !o->replicas)) {
        fprintf(stderr, "distributed_sampler: --%s is missing\n",
                o->size < 0 ? "size" : "replicas");
        good = false;
    }
    if (good && o->drop_last && o->no_pad) {
        fprintf(stderr, "distributed_sampler: --drop-last and --no-pad exclude each other\n");
        good = false;
    }
    if (!good)
        fputs(usage, stderr);
    return good;
}

static tsr_status print_replica(const options *o, int rank)
{
    tsr_sampler *sampler;
    tsr_status status = tsr_distributed_sampler(
        NULL, o->size,
        TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = (int)o->replicas, .rank = rank, .seed = o->seed,
                                     .shuffle = !o->no_shuffle, .drop_last = o->drop_last,
                                     .pad = !o->no_pad),
        &sampler);
    if (status != TSR_OK)
        return status;
    status = tsr_sampler_set_epoch(sampler, o->epoch);
    int64_t index;
    const char *before = "[";
    for (; status == TSR_OK; before = ", ") {
        status = tsr_sampler_next(sampler, &index);
        if (status == TSR_OK)
            printf("%s%" PRId64, before, index);
        else if (status == TSR_END)
            printf("%s]\n", *before == '[' ? before : "");
    }
    tsr_sampler_destroy(sampler);
    return status == TSR_END ? TSR_OK : status;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    options o = {.size = -1};
    if (!read_options(argc, argv, &o))
        return 2;
    for (int rank = 0; rank < o.replicas; rank++)
        if (print_replica(&o, rank) != TSR_OK) {
            fprintf(stderr, "distributed_sampler: %s\n", tsr_last_error());
            return 1;
        }
    if (fflush(stdout) || ferror(stdout)) {
        perror("distributed_sampler: standard output");
        return 1;
    }
    return 0;
}
