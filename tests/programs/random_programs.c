/* SPDX-License-Identifier: Apache-2.0 */
/* Random programs against the oracle: see --help. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "execute.h"
#include "print.h"

static const int default_ranks[] = {1, 2, 3, 4, 6, 8};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, count = 100;
    int ranks = 0;
    bool print = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--count") && i + 1 < argc)
            count = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--ranks") && i + 1 < argc)
            ranks = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--print"))
            print = true;
    }
    int failed = 0, refused = 0;
    int64_t compared = 0, skipped = 0;
    double start = now_s(), gen = 0, run = 0;
    for (uint64_t s = seed; s < seed + count; s++) {
        double t0 = now_s();
        program *p = program_generate(s, ranks ? ranks : default_ranks[s % 6]);
        run_log log;
        verdict v;
        double t1 = now_s();
        if (print)
            program_print(p, stdout);
        execute(p, &log);
        run += now_s() - t1;
        gen += t1 - t0;
        judge(p, &log, &v);
        compared += v.compared;
        skipped += v.skipped;
        failed += v.failed && !v.refused;
        refused += v.refused;
        if (v.failed)
            printf("seed %llu: %s%s\n", (unsigned long long)s, v.refused ? "(refused) " : "", v.text);
        fflush(stdout);
        run_log_free(&log);
        program_free(p);
    }
    double all = now_s() - start;
    printf("%llu programs, %d failed, %d refused; %lld values compared, %lld skipped; %.1f s, %.0f programs/s (drawing %.1f s, running %.1f s)\n",
           (unsigned long long)count, failed, refused, (long long)compared, (long long)skipped, all, (double)count / all, gen, run);
    return failed != 0;
}
