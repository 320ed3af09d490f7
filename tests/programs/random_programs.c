/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs against the oracle.
 *
 *   random_programs [--seed A] [--count N] [--ranks R] [--jobs J] [--print] [--shrink] [--stop]
 *                   [--coverage] [--differences] [--special] [--microbatches] [--json DIR]
 *                   [--skip A,B,..]
 *
 * A is 1, or TESSERA_SEED; N is 500, and at most TESSERA_PROGRAMS. Program number s is drawn from
 * seed s, on 1, 2, 3, 4, 6 or 8 thread ranks by turns unless --ranks says how many. --print writes
 * each as C, --shrink a smaller one of each that fails; --stop ends with the first that fails;
 * --coverage tells how often each op was drawn, and which programs cannot have the micro-batches
 * that were drawn; --differences runs nothing, but holds the oracle's gradients against finite
 * differences of its values; --special feeds NaN, infinities, zeros of both signs, denormals and
 * ties, and judges each program by itself on one rank, with fast kernels and with those of
 * reference, element by element and by bit class; --microbatches draws micro-batches for all
 * programs, not for a third of them; --json writes what torch_oracle.py reads. A program that
 * crashes or hangs is one that fails: each job is a process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "difference.h"
#include "dump.h"
#include "src/core/op_list.h"
#include "execute.h"
#include "print.h"
#include "shrink.h"

/* A program that takes this long hangs. ThreadSanitizer makes a search within a memory limit, which
 * takes seconds, fifteen times as slow. */
#ifdef __SANITIZE_THREAD__
enum { HANG_S = 1500 };
#else
enum { HANG_S = 300 };
#endif
enum { MAX_JOBS = 64 };

typedef struct options {
    uint64_t seed, count;
    int ranks, jobs;
    bool print, shrink, stop, coverage, differences, special, microbatches;
    const char *json;
    const char *skip; /* seeds, with a comma behind each */
} options;

enum { MOST_OPS = 256 }; /* of op_at */

/* Counters of the jobs, in memory that all share. */
typedef struct tally {
    uint64_t next[MAX_JOBS]; /* the seed that a job is at */
    uint64_t programs, failed, refused, limits, compared, skipped;
    uint64_t plans_in_parts, parts_by_size, parts_by_op;
    uint64_t ops[TSRI_OP_COUNT_], drawn[MOST_OPS];
    uint64_t slopes, no_slopes;
    uint64_t first_failed; /* 0: none */
    bool stop;
} tally;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ranks_of(const options *o, uint64_t seed)
{
    static const int turns[] = {1, 2, 3, 4, 6, 8};
    return o->ranks ? o->ranks : turns[seed % 6];
}

static program *generate(const options *o, uint64_t seed)
{
    return program_generate(seed, ranks_of(o, seed), o->special, o->microbatches ? 1 : 1.0 / 3);
}

static void add(uint64_t *to, uint64_t n)
{
    __atomic_fetch_add(to, n, __ATOMIC_RELAXED);
}

static void note_failure(const options *o, tally *t, uint64_t seed, const verdict *v)
{
    add(&t->failed, 1);
    if (!t->first_failed || seed < t->first_failed)
        t->first_failed = seed;
    t->stop |= o->stop;
    printf("seed %llu: %s\n", (unsigned long long)seed, v->text);
    fflush(stdout);
}

static void shrink_and_print(const program *p)
{
    verdict v;
    program *small = program_shrink(p);
    try_program(small, &v);
    printf("/* seed %llu, shrunk: %s */\n", (unsigned long long)p->seed, v.text);
    program_print(small, stdout);
    program_free(small);
    fflush(stdout);
}

static void count_ops(tally *t, const program *p, const run_log *log)
{
    for (int i = 0; i < TSRI_OP_COUNT_; i++)
        add(&t->ops[i], (uint64_t)log->nops[i]);
    for (int g = 0; g < p->ngraphs; g++)
        for (int i = 0; i < p->graph[g].nnodes; i++)
            add(&t->drawn[p->graph[g].node[i].op], 1);
}

/* The oracle's own gradients: of a program that is not run. */
static void check_one(const options *o, tally *t, uint64_t seed)
{
    program *p = generate(o, seed);
    difference d = {0};
    check_differences(p, &d);
    add(&t->programs, 1);
    add(&t->slopes, (uint64_t)d.compared);
    add(&t->no_slopes, (uint64_t)d.skipped);
    if (o->json)
        program_dump(p, o->json);
    if (d.failed) {
        verdict v = {.failed = true};
        snprintf(v.text, sizeof v.text, "%s", d.text);
        note_failure(o, t, seed, &v);
    }
    program_free(p);
}

static void run_one(const options *o, tally *t, uint64_t seed)
{
    program *p = generate(o, seed);
    run_log log;
    verdict v;
    if (o->print)
        program_print(p, stdout);
    run_and_judge(p, &log, &v);
    add(&t->programs, 1);
    add(&t->compared, (uint64_t)v.compared);
    add(&t->skipped, (uint64_t)v.skipped);
    add(&t->limits, log.rank[0].rejected_limits);
    add(&t->refused, v.refused);
    add(&t->plans_in_parts, log.rank[0].plans_in_parts);
    add(&t->parts_by_size, log.rank[0].parts_by_size);
    add(&t->parts_by_op, log.rank[0].parts_by_op);
    if (o->coverage && log.rank[0].parts_text[0])
        printf("seed %llu: runs whole: %s\n", (unsigned long long)seed, log.rank[0].parts_text);
    count_ops(t, p, &log);
    if (o->json && !v.failed)
        program_dump(p, o->json);
    if (v.refused)
        printf("seed %llu: refused: %s\n", (unsigned long long)seed, v.text);
    else if (v.failed)
        note_failure(o, t, seed, &v);
    run_log_free(&log);
    program_free(p);
}

static bool is_skipped(const options *o, uint64_t seed)
{
    for (const char *at = o->skip; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "")
        if (strtoull(at, NULL, 10) == seed)
            return true;
    return false;
}

static void job_main(const options *o, tally *t, int job)
{
    uint64_t end = o->seed + o->count;
    while (t->next[job] < end && !t->stop) {
        alarm(HANG_S);
        if (!is_skipped(o, t->next[job]))
            (o->differences ? check_one : run_one)(o, t, t->next[job]);
        t->next[job] += (uint64_t)o->jobs;
    }
    fflush(stdout);
    _exit(0);
}

/* Runs the jobs; one that dies is started again behind the program that killed it. */
static void run_all(const options *o, tally *t)
{
    pid_t pid[MAX_JOBS];
    for (int j = 0; j < o->jobs; j++) {
        t->next[j] = o->seed + (uint64_t)j;
        if ((pid[j] = fork()) == 0)
            job_main(o, t, j);
    }
    for (int left = o->jobs; left > 0;) {
        int status, j = 0;
        pid_t gone = wait(&status);
        while (j < o->jobs && pid[j] != gone)
            j++;
        if (!WIFSIGNALED(status) && WEXITSTATUS(status) == 0) {
            left--;
            continue;
        }
        verdict v = {.failed = true};
        snprintf(v.text, sizeof v.text, "the process ended with %s %d",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        add(&t->programs, 1);
        note_failure(o, t, t->next[j], &v);
        t->next[j] += (uint64_t)o->jobs;
        if ((pid[j] = fork()) == 0)
            job_main(o, t, j);
    }
}

static void shrink_failed(const options *o, const tally *t)
{
    if (!o->shrink || !t->first_failed)
        return;
    program *p = generate(o, t->first_failed);
    shrink_and_print(p);
    program_free(p);
}

static bool parse(int argc, char **argv, options *o)
{
    *o = (options){.seed = 1, .count = 500, .jobs = 1};
    if (getenv("TESSERA_SEED"))
        o->seed = strtoull(getenv("TESSERA_SEED"), NULL, 10);
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(a, "--print"))
            o->print = true;
        else if (!strcmp(a, "--shrink"))
            o->shrink = true;
        else if (!strcmp(a, "--stop"))
            o->stop = true;
        else if (!strcmp(a, "--differences"))
            o->differences = true;
        else if (!strcmp(a, "--special"))
            o->special = true;
        else if (!strcmp(a, "--microbatches"))
            o->microbatches = true;
        else if (!strcmp(a, "--coverage"))
            o->coverage = true;
        else if (!value)
            return false;
        else if (!strcmp(a, "--seed"))
            o->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(a, "--count"))
            o->count = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(a, "--ranks"))
            o->ranks = atoi(argv[++i]);
        else if (!strcmp(a, "--jobs"))
            o->jobs = atoi(argv[++i]);
        else if (!strcmp(a, "--skip"))
            o->skip = argv[++i];
        else if (!strcmp(a, "--json"))
            o->json = argv[++i];
        else
            return false;
    }
    uint64_t most =
        getenv("TESSERA_PROGRAMS") ? strtoull(getenv("TESSERA_PROGRAMS"), NULL, 10) : o->count;
    o->count = o->count < most ? o->count : most;
    return o->ranks >= 0 && o->ranks <= MAX_RANKS && o->jobs >= 1 && o->jobs <= MAX_JOBS;
}

int main(int argc, char **argv)
{
    options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: random_programs [--seed A] [--count N] [--ranks 1-8] [--jobs J] "
                        "[--print] [--shrink] [--stop] [--coverage] [--differences] [--special] "
                        "[--microbatches] [--json DIR] [--skip A,B,..]\n");
        return 2;
    }
    if (op_count() > MOST_OPS) {
        fprintf(stderr, "%d ops are drawn; there are counters of %d\n", op_count(), MOST_OPS);
        return 1;
    }
    tally *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double start = now_s();
    run_all(&o, t);
    shrink_failed(&o, t);
    double all = now_s() - start;
    for (int i = 0; o.coverage && op_at(i); i++)
        printf("drawn %-20s %llu\n", op_at(i)->name, (unsigned long long)t->drawn[i]);
    for (int i = 0; o.coverage && i < TSRI_OP_COUNT_; i++)
        printf("op %-20s %llu\n", tsri_op_name((tsri_op_kind)i), (unsigned long long)t->ops[i]);
    if (o.coverage)
        printf("%llu plans with micro-batches; %llu more cannot have them by a size, %llu by an "
               "op, and run whole\n",
               (unsigned long long)t->plans_in_parts, (unsigned long long)t->parts_by_size,
               (unsigned long long)t->parts_by_op);
    if (o.differences)
        printf("%llu slopes compared, %llu skipped\n", (unsigned long long)t->slopes,
               (unsigned long long)t->no_slopes);
    printf("%llu programs: %llu failed, %llu refused, %llu memory limits not kept; %llu values "
           "compared, "
           "%llu skipped; %.1f s, %.0f programs/s\n",
           (unsigned long long)t->programs, (unsigned long long)t->failed,
           (unsigned long long)t->refused, (unsigned long long)t->limits,
           (unsigned long long)t->compared, (unsigned long long)t->skipped, all,
           (double)t->programs / all);
    uint64_t wanted = 0;
    for (uint64_t seed = o.seed; seed < o.seed + o.count; seed++)
        wanted += !is_skipped(&o, seed);
    if (!t->stop && t->programs != wanted)
        printf("%llu programs were to be run\n", (unsigned long long)wanted);
    return t->failed != 0 || (!t->stop && t->programs != wanted);
}
