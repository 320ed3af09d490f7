/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target on stored inputs, and on changed ones. usage: TARGET [--mutate N]
 * FILE-OR-FOLDER... Of the N inputs each is a stored one that the target's mutator has changed up
 * to eight times, drawn from TESSERA_SEED.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static char current[4096]; /* what a crash names */
static const uint8_t *current_data;
static size_t current_size;
/* The stored inputs, where they are changed. */
static struct {
    uint8_t *data;
    size_t size;
} * stored;
static int nstored;
static bool keeps;

static int fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", path, what, strerror(errno));
    return -1;
}

/* Runs it on a copy of just its size, so that sanitizers see a read behind its end. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    current_data = copy;
    current_size = size;
    LLVMFuzzerTestOneInput(copy, size);
    current_data = NULL;
    free(copy);
}

static int replay_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return fail(path, "can't be opened");
    uint8_t *data = malloc(size ? size : 1);
    bool ok = data && fread(data, 1, size, f) == size;
    fclose(f);
    if (ok) {
        snprintf(current, sizeof current, "%s", path);
        run(data, size);
    }
    void *more = ok && keeps ? realloc(stored, (size_t)(nstored + 1) * sizeof *stored) : NULL;
    if (more) {
        stored = more;
        stored[nstored].data = data;
        stored[nstored++].size = size;
    } else {
        free(data);
    }
    return ok ? 1 : fail(path, "can't be read");
}

/* The number of inputs replayed; -1 if one can't be read. */
static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return fail(path, "can't be read");
    if (!S_ISDIR(st.st_mode))
        return replay_file(path, (size_t)st.st_size);
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), count = 0;
    if (n < 0)
        return fail(path, "can't be read");
    for (int i = 0; i < n; i++) {
        char child[4096];
        snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && count >= 0) {
            int more = replay(child);
            count = more < 0 ? -1 : count + more;
        }
        free(entries[i]);
    }
    free(entries);
    return count;
}

static void tell_current(int signal)
{
    static const char crash[] = "fuzz-crash.input";
    FILE *f = keeps && current_data ? fopen(crash, "wb") : NULL;
    fprintf(stderr, "signal %d at input %s%s%s\n", signal, current, f ? ", left as " : "",
            f ? crash : "");
    if (f) {
        fwrite(current_data, 1, current_size, f);
        fclose(f);
    }
    _Exit(1);
}

/* --- changed ones ----------------------------------------------------------------------------- */
static uint64_t rng;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint32_t draw(uint32_t below)
{
    uint64_t z = rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

/* Changes, adds or takes a byte, in the place of libFuzzer's. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most)
{
    const size_t at = size ? draw((uint32_t)size) : 0;
    const uint32_t way = draw(3);
    if (way == 0 && size) {
        data[at] ^= (uint8_t)(1u << draw(8));
    } else if (way == 1 && size < most) {
        memmove(data + at + 1, data + at, size - at);
        data[at] = (uint8_t)draw(256);
        return size + 1;
    } else if (size > 1) {
        memmove(data + at, data + at + 1, size - at - 1);
        return size - 1;
    }
    return size;
}

/* For targets that have none. */
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                                                     unsigned seed)
{
    rng += seed;
    return LLVMFuzzerMutate(data, size, most);
}

static void run_changed(long n, uint64_t seed)
{
    enum { MORE = 512 };
    for (long i = 0; i < n && nstored; i++) {
        rng = seed * 1000003 + (uint64_t)i;
        const int from = (int)draw((uint32_t)nstored);
        size_t size = stored[from].size, most = size + MORE;
        uint8_t *data = malloc(most);
        if (!data)
            abort();
        memcpy(data, stored[from].data, size);
        for (uint32_t k = 1 + draw(8); k; k--)
            size = LLVMFuzzerCustomMutator(data, size, most, draw(UINT32_MAX));
        snprintf(current, sizeof current, "%ld of seed %llu", i, (unsigned long long)seed);
        run(data, size);
        free(data);
    }
    for (int i = 0; i < nstored; i++)
        free(stored[i].data);
    free(stored);
}

int main(int argc, char **argv)
{
    int total = 0, first = 1;
    long changed = 0;
    const char *seed = getenv("TESSERA_SEED");
    signal(SIGABRT, tell_current);
    if (argc > 2 && !strcmp(argv[1], "--mutate")) {
        changed = strtol(argv[2], NULL, 10);
        keeps = true;
        first = 3;
    }
    for (int i = first; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0)
            return 1;
        total += count;
    }
    if (changed) {
        printf("seed %s: %ld changed inputs of %d\n", seed ? seed : "1", changed, nstored);
        fflush(stdout);
        run_changed(changed, strtoull(seed ? seed : "1", NULL, 10));
    }
    printf("%d inputs\n", total);
    /* A test that replays nothing tests nothing. */
    return total > 0 ? 0 : 1;
}
