/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What samplers.py compares with PyTorch: reads one case a line from its input and writes what
 * Tessera draws for it, a line each. Words are separated by blanks; see the functions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#define TRY(expr)                                                               \
    do {                                                                        \
        tsr_status try_ = (expr);                                               \
        if (try_ != TSR_OK) {                                                   \
            fprintf(stderr, "sampler_peer: %s: %s\n", #expr, tsr_last_error()); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* The next word of the line, as a number. */
static long long number(void)
{
    const char *word = strtok(NULL, " \n");
    if (!word) {
        fprintf(stderr, "sampler_peer: a line is too short\n");
        exit(1);
    }
    return strtoll(word, NULL, 10);
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes + 1);
    if (!p)
        exit(1);
    return p;
}

static tsr_generator *generator(long long seed)
{
    tsr_generator *g;
    TRY(tsr_generator_create(NULL, (uint64_t)seed, &g));
    return g;
}

/* One pass, after which "| ". */
static void print_pass(tsr_sampler *s)
{
    int64_t index;
    tsr_status status;
    while ((status = tsr_sampler_next(s, &index)) == TSR_OK)
        printf("%lld ", (long long)index);
    if (status != TSR_END)
        TRY(status);
    printf("| ");
}

/* The generator's next word shows how much was drawn. NULL: none. */
static void print_next(tsr_generator *g)
{
    if (g)
        printf("next %u", tsr_generator_word(g));
}

/* N WORLD EPOCH SEED SHUFFLE DROP_LAST PAD: the replicas' indices. */
static void distributed(void)
{
    long long n = number();
    int replicas = (int)number();
    long long epoch = number(), seed = number();
    bool shuffle = number(), drop_last = number(), pad = number();
    for (int rank = 0; rank < replicas; rank++) {
        tsr_sampler *s;
        TRY(tsr_distributed_sampler(
            NULL, n,
            TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = replicas, .rank = rank, .seed = seed,
                                         .shuffle = shuffle, .drop_last = drop_last, .pad = pad),
            &s));
        TRY(tsr_sampler_set_epoch(s, epoch));
        printf("%lld: ", (long long)tsr_sampler_count(s));
        print_pass(s);
        tsr_sampler_destroy(s);
    }
}

/* SEED N: two of them from one generator. */
static void randperm(void)
{
    tsr_generator *g = generator(number());
    long long n = number();
    int64_t *out = room((size_t)n * sizeof *out);
    for (int twice = 0; twice < 2; twice++) {
        TRY(tsr_generator_randperm(g, n, out));
        for (long long i = 0; i < n; i++)
            printf("%lld ", (long long)out[i]);
    }
    print_next(g);
    free(out);
    tsr_generator_destroy(g);
}

/* SEED F64 NORMAL N [N...]: hexadecimal bits. */
static void floats(void)
{
    tsr_generator *g = generator(number());
    bool f64 = number(), normal = number();
    for (const char *word; (word = strtok(NULL, " \n"));) {
        long long n = strtoll(word, NULL, 10);
        size_t size = f64 ? 8 : 4;
        unsigned char *out = room((size_t)n * size);
        tsr_dtype dtype = f64 ? TSR_F64 : TSR_F32;
        TRY(normal ? tsr_generator_randn(g, dtype, n, out) : tsr_generator_rand(g, dtype, n, out));
        for (long long i = 0; i < n; i++) {
            uint64_t bits = 0;
            memcpy(&bits, out + (size_t)i * size, size);
            printf("%llx ", (unsigned long long)bits);
        }
        free(out);
    }
    print_next(g);
    tsr_generator_destroy(g);
}

/* SEED LOW HIGH N */
static void randint(void)
{
    tsr_generator *g = generator(number());
    long long low = number(), high = number(), n = number();
    int64_t *out = room((size_t)n * sizeof *out);
    TRY(tsr_generator_randint(g, low, high, n, out));
    for (long long i = 0; i < n; i++)
        printf("%lld ", (long long)out[i]);
    print_next(g);
    free(out);
    tsr_generator_destroy(g);
}

/* SEED N P-IN-THOUSANDTHS */
static void bernoulli(void)
{
    tsr_generator *g = generator(number());
    long long n = number();
    bool *out = room((size_t)n * sizeof *out);
    TRY(tsr_generator_bernoulli(g, (double)number() / 1000, n, out));
    for (long long i = 0; i < n; i++)
        printf("%d ", out[i]);
    print_next(g);
    free(out);
    tsr_generator_destroy(g);
}

/* SEED WORDS NORMALS: the state after them, and what a generator set to it gives next. */
static void state(void)
{
    tsr_generator *g = generator(number()), *other = generator(0);
    for (long long words = number(); words; words--)
        tsr_generator_word(g);
    double normal;
    for (long long normals = number(); normals; normals--)
        TRY(tsr_generator_randn(g, TSR_F64, 1, &normal));
    unsigned char bytes[TSR_GENERATOR_STATE_BYTES];
    TRY(tsr_generator_get_state(g, bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        printf("%02x", bytes[i]);
    TRY(tsr_generator_set_state(other, bytes));
    printf(" %u", tsr_generator_word(other));
    tsr_generator_destroy(g);
    tsr_generator_destroy(other);
}

/* The peer writes 0 for a number of samples that is not given. */
static int64_t given_or_all(int64_t num_samples)
{
    return num_samples ? num_samples : -1;
}

/* GENERATOR SEED PASSES N REPLACEMENT NUM_SAMPLES */
static void random_sampler(void)
{
    bool given = number();
    long long seed = number(), passes = number(), n = number();
    bool replacement = number();
    tsr_generator *g = given ? generator(seed) : NULL;
    tsr_sampler *s;
    TRY(tsr_random_sampler(NULL, n,
                           TSR_RANDOM_SAMPLER_OPTS(.replacement = replacement, .generator = g,
                                                   .num_samples = given_or_all(number()),
                                                   .seed = (uint64_t)seed),
                           &s));
    for (; passes; passes--)
        print_pass(s);
    print_next(g);
    tsr_sampler_destroy(s);
    tsr_generator_destroy(g);
}

/* GENERATOR SEED PASSES N: the subset 1000, 998, ... */
static void subset(void)
{
    bool given = number();
    long long seed = number(), passes = number(), n = number();
    tsr_generator *g = given ? generator(seed) : NULL;
    int64_t *indices = room((size_t)n * sizeof *indices);
    for (long long i = 0; i < n; i++)
        indices[i] = 1000 - 2 * i;
    tsr_sampler *s;
    TRY(tsr_subset_random_sampler(
        NULL, indices, n, TSR_SUBSET_RANDOM_SAMPLER_OPTS(.generator = g, .seed = (uint64_t)seed),
        &s));
    free(indices);
    for (; passes; passes--)
        print_pass(s);
    print_next(g);
    tsr_sampler_destroy(s);
    tsr_generator_destroy(g);
}

/* GENERATOR SEED PASSES NUM_SAMPLES WEIGHT...: weights in thousandths */
static void weighted(void)
{
    bool given = number();
    long long seed = number(), passes = number(), num_samples = number();
    tsr_generator *g = given ? generator(seed) : NULL;
    double weights[512];
    int n = 0;
    for (const char *word; n < 512 && (word = strtok(NULL, " \n"));)
        weights[n++] = strtod(word, NULL) / 1000;
    tsr_sampler *s;
    TRY(tsr_weighted_random_sampler(
        NULL, weights, n,
        TSR_WEIGHTED_RANDOM_SAMPLER_OPTS(.generator = g, .num_samples = given_or_all(num_samples),
                                         .seed = (uint64_t)seed),
        &s));
    for (; passes; passes--)
        print_pass(s);
    print_next(g);
    tsr_sampler_destroy(s);
    tsr_generator_destroy(g);
}

static int64_t len(void *arg)
{
    return *(int64_t *)arg;
}

/* A sample is its index, and the base seed. */
static tsr_status get(void *arg, int64_t index, void *const *out_fields, const tsr_worker *worker)
{
    (void)arg;
    *(int64_t *)out_fields[0] = index;
    *(uint64_t *)out_fields[1] = worker->seed - (uint64_t)worker->id;
    return TSR_OK;
}

/* GENERATOR SEED EPOCHS N BATCH SHUFFLE DROP_LAST WORKERS PERSISTENT: per epoch the base seed and
 * the batches. */
static void loader(void)
{
    bool given = number();
    long long seed = number(), epochs = number();
    int64_t n = number(), batch_size = number();
    bool shuffle = number(), drop_last = number();
    int workers = (int)number();
    tsr_generator *g = given ? generator(seed) : NULL;
    tsr_loader *l;
    TRY(tsr_map_loader_create(
        NULL, TSR_MAP_DATASET(.len = len, .get = get, .arg = &n),
        TSR_MAP_LOADER_OPTS(.nfields = 2, .field_bytes = {8, 8}, .batch_size = batch_size,
                            .shuffle = shuffle, .drop_last = drop_last, .num_workers = workers,
                            .persistent_workers = number(), .generator = g, .seed = (uint64_t)seed),
        &l));
    for (; epochs; epochs--) {
        const tsr_batch *b;
        tsr_status status;
        while ((status = tsr_loader_next(l, &b)) == TSR_OK) {
            if (!b->number)
                printf("base %llu ", (unsigned long long)*(const uint64_t *)b->data[1]);
            for (int64_t i = 0; i < b->rows; i++)
                printf("%lld ", (long long)((const int64_t *)b->data[0])[i]);
            printf(", ");
        }
        if (status != TSR_END)
            TRY(status);
        printf("| ");
    }
    print_next(g);
    tsr_loader_destroy(l);
    tsr_generator_destroy(g);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*fn)(void);
    } cases[] = {{"distributed", distributed}, {"randperm", randperm},
                 {"floats", floats},           {"randint", randint},
                 {"bernoulli", bernoulli},     {"state", state},
                 {"random", random_sampler},   {"subset", subset},
                 {"weighted", weighted},       {"loader", loader}};
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin)) {
        const char *name = strtok(line, " \n");
        size_t i = 0;
        while (name && i < sizeof cases / sizeof *cases && strcmp(name, cases[i].name) != 0)
            i++;
        if (!name || i == sizeof cases / sizeof *cases) {
            fprintf(stderr, "sampler_peer: no case \"%s\"\n", name ? name : "");
            return 1;
        }
        cases[i].fn();
        printf("\n");
    }
    return 0;
}
