/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/links.h"
#include "src/cli/cli.h"
#include "src/comm/world/measure.h"
#include "src/core/clock.h"
#include "src/core/new_file.h"
#include "src/exec/exec.h"
#include "src/plan/plan.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_MAX = 4096 };

/* --- the file --------------------------------------------------------------------------------- */
bool cli_links_path(char *buf, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = cache && cache[0] == '/' ? snprintf(buf, size, "%s/tessera/links.json", cache)
            : home && home[0] == '/' ? snprintf(buf, size, "%s/.cache/tessera/links.json", home)
                                     : -1;
    return n > 0 && (size_t)n < size;
}

void cli_machine(char *buf, size_t size)
{
    char line[256], model[128] = "unknown processor";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (value && !strncmp(line, "model name", 10)) {
            snprintf(model, sizeof model, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
            break;
        }
    }
    if (f)
        fclose(f);
    snprintf(buf, size, "%s, %ld cores", model, sysconf(_SC_NPROCESSORS_ONLN));
}

static double number(const cJSON *json, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

static const char *text(const cJSON *json, const char *key)
{
    const char *v = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
    return v ? v : "";
}

static bool read_file(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    size_t n = fread(buf, 1, size - 1, f);
    buf[n] = 0;
    fclose(f);
    return true;
}

void cli_links_find(tsr_device kind, cli_links *l)
{
    char path[1024], data[FILE_MAX], machine[192];
    const tsri_cost_model m = tsri_cost_model_of(kind);
    *l = (cli_links){.name = m.link_name[0],
                     .latency_s = m.link[0].latency_s,
                     .bytes_per_s = m.link[0].bytes_per_s,
                     .local_bytes_per_s = m.local_bytes_per_s,
                     .kernel_s = -1};
    if (!tsri_target_can(kind, TSRI_CAN_HOST_MEMORY) || !cli_links_path(path, sizeof path) ||
        !read_file(path, data, sizeof data))
        return;
    cJSON *json = cJSON_Parse(data);
    cli_machine(machine, sizeof machine);
    double latency = number(json, "latency_s"), bytes = number(json, "bytes_per_s");
    double local = number(json, "local_bytes_per_s"), flops = number(json, "flops_per_s");
    double f64 = number(json, "f64_flops_per_s"), kernel = number(json, "kernel_s");
    if (!(latency > 0) || !(bytes > 0) || !(local > 0)) {
        snprintf(l->why, sizeof l->why, "%.150s holds no figures", path);
    } else if (!(flops > 0) || !(f64 > 0) || !(kernel > 0)) {
        snprintf(l->why, sizeof l->why, "%.120s is older than the figures of computing", path);
    } else if (strcmp(machine, text(json, "machine")) != 0) {
        snprintf(l->why, sizeof l->why, "those kept are of another machine (%.100s)",
                 text(json, "machine"));
    } else {
        *l = (cli_links){.measured = true,
                         .name = m.link_name[0],
                         .ranks = (int)number(json, "ranks"),
                         .latency_s = latency,
                         .bytes_per_s = bytes,
                         .local_bytes_per_s = local,
                         .flops_per_s = flops,
                         .f64_flops_per_s = f64,
                         .kernel_s = kernel};
        snprintf(l->when, sizeof l->when, "%s", text(json, "measured"));
    }
    cJSON_Delete(json);
}

/* Another process may read, or write, meanwhile: the file appears as a whole. */
static tsr_status keep(const cli_links *l)
{
    char path[1024], machine[192];
    if (!cli_links_path(path, sizeof path))
        return tsr_set_error(TSR_ERR_IO, "the figures can't be kept: neither XDG_CACHE_HOME nor "
                                         "HOME names a folder");
    char *name = strrchr(path, '/');
    *name = 0;
    int rc = tsri_make_folders(path, 0700);
    *name = '/';
    if (rc)
        return tsr_set_error(TSR_ERR_IO, "%s: %s", path, strerror(-rc));
    cli_machine(machine, sizeof machine);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "machine", machine);
    cJSON_AddStringToObject(json, "measured", l->when);
    cJSON_AddNumberToObject(json, "ranks", l->ranks);
    cJSON_AddNumberToObject(json, "latency_s", l->latency_s);
    cJSON_AddNumberToObject(json, "bytes_per_s", l->bytes_per_s);
    cJSON_AddNumberToObject(json, "local_bytes_per_s", l->local_bytes_per_s);
    cJSON_AddNumberToObject(json, "flops_per_s", l->flops_per_s);
    cJSON_AddNumberToObject(json, "f64_flops_per_s", l->f64_flops_per_s);
    cJSON_AddNumberToObject(json, "kernel_s", l->kernel_s);
    return cli_write_json(json, path);
}

/* --- measuring -------------------------------------------------------------------------------- */
enum { MOST_RANKS = 256 };

/* Each rank's figures. */
typedef struct measuring {
    cli_links of[MOST_RANKS];
} measuring;

static tsr_status measure_on_rank(tsr_world *world, void *arg)
{
    cli_links *mine = &((measuring *)arg)->of[tsr_world_rank(world)];
    TSRI_TRY(
        tsri_comm_measure(world, &mine->latency_s, &mine->bytes_per_s, &mine->local_bytes_per_s));
    return cli_measure_compute(world, mine);
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* One measurement by `ranks` thread ranks. */
static tsr_status measure_once(int ranks, cli_links *l)
{
    measuring *m = calloc(1, sizeof *m);
    if (!m)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "no memory to measure with");
    tsr_status status = tsr_spawn(ranks, measure_on_rank, m);
    *l = m->of[0];
    /* Links' figures are the same on all ranks; of what they compute the slowest counts. */
    for (int r = 1; r < ranks; r++) {
        l->flops_per_s = least(l->flops_per_s, m->of[r].flops_per_s);
        l->f64_flops_per_s = least(l->f64_flops_per_s, m->of[r].f64_flops_per_s);
        l->kernel_s = -least(-l->kernel_s, -m->of[r].kernel_s);
        l->core_share = least(l->core_share, m->of[r].core_share);
    }
    free(m);
    return status;
}

/* --- which measurements count ----------------------------------------------------------------- */

/* A figure: as a rate, greater is better. Outside its bounds, which leave a hundredth of a slow
 * machine and a hundred times a fast one, it is no machine's. */
typedef struct figure {
    const char *name, *unit;
    size_t at;
    bool is_time;
    double scale, low, high; /* low, high: in units */
} figure;

#define AT(field) offsetof(cli_links, field)
static const figure figures[] = {
    {"the hand-shake", "us", AT(latency_s), true, 1e6, 0.01, 10000},
    {"the rate between ranks", "GB/s", AT(bytes_per_s), false, 1e-9, 0.2, 1e5},
    {"the rate of own memory", "GB/s", AT(local_bytes_per_s), false, 1e-9, 0.2, 1e5},
    {"f32 products", "GFLOP/s", AT(flops_per_s), false, 1e-9, 0.2, 1e6},
    {"f64 products", "GFLOP/s", AT(f64_flops_per_s), false, 1e-9, 0.1, 1e6},
    {"a kernel's start", "us", AT(kernel_s), true, 1e6, 0.001, 1000},
};
#undef AT
enum { FIGURES = sizeof figures / sizeof *figures };

static double *figure_of(cli_links *l, int i)
{
    return (double *)(void *)((char *)l + figures[i].at);
}

/* The best of each figure so far, and the next best. */
typedef struct best_two {
    cli_links first, second;
    int n;
} best_two;

static void take_measurement(best_two *b, cli_links *l)
{
    if (b->n++ == 0) {
        b->first = *l;
        return;
    }
    for (int i = 0; i < FIGURES; i++) {
        double v = *figure_of(l, i), *first = figure_of(&b->first, i);
        double *second = figure_of(&b->second, i);
        double sign = figures[i].is_time ? -1 : 1;
        bool is_first = sign * v > sign * *first;
        double next = is_first ? *first : v;
        *second = b->n == 2 || sign * next > sign * *second ? next : *second;
        *first = is_first ? v : *first;
    }
}

/* The first figure whose best was not met twice; -1: all were. */
static int find_unstable(best_two *b)
{
    const double agree = 1.25;
    for (int i = 0; i < FIGURES; i++) {
        double one = *figure_of(&b->first, i), two = *figure_of(&b->second, i);
        if (b->n < 2 || !(one < agree * two) || !(two < agree * one))
            return i;
    }
    return -1;
}

static tsr_status check_plausible(cli_links *l)
{
    for (int i = 0; i < FIGURES; i++) {
        const figure *f = &figures[i];
        double v = f->scale * *figure_of(l, i);
        if (!(v >= f->low && v <= f->high))
            return tsr_set_error(
                TSR_ERR_STATE,
                "nothing is kept: %s came out as %.3g %s, and between %g and %g is "
                "plausible: measure again when nothing else runs",
                f->name, v, f->unit, f->low, f->high);
    }
    return TSR_OK;
}

static tsr_status fail_unstable(best_two *b, double share, int tries)
{
    if (b->n < 2)
        return tsr_set_error(
            TSR_ERR_STATE,
            "nothing is kept: other programs had the cores for %.0f %% of the time "
            "in which this was measured %d times: measure again when they have ended",
            100 * (1 - share), tries);
    const int i = find_unstable(b);
    return tsr_set_error(TSR_ERR_STATE,
                         "nothing is kept: of %d measurements no two agree on %s (%.3g and %.3g %s "
                         "at best): measure again when nothing else runs",
                         b->n, figures[i].name, figures[i].scale * *figure_of(&b->first, i),
                         figures[i].scale * *figure_of(&b->second, i), figures[i].unit);
}

tsr_status cli_links_measure(int ranks, bool force, cli_links *l)
{
    enum { FEW = 2, TRIES = 12 };
    const double patience_s = 5;
    const double enough = 0.5; /* of a core, for each rank */
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double due = ranks > cores ? (double)cores / ranks : 1, share = 0;
    double begin = tsri_now_s();
    best_two b = {.n = 0};
    int tries = 0;
    for (; tries < TRIES && find_unstable(&b) >= 0; tries++) {
        if (tries >= FEW && tsri_now_s() - begin > patience_s)
            break;
        TSRI_TRY(measure_once(ranks, l));
        share = l->core_share / due > share ? l->core_share / due : share;
        if (force || l->core_share >= enough * due)
            take_measurement(&b, l);
    }
    if (!force && find_unstable(&b) >= 0)
        return fail_unstable(&b, share, tries);
    *l = b.first;
    if (!force)
        TSRI_TRY(check_plausible(l));
    l->measured = true;
    l->ranks = ranks;
    time_t now = time(NULL);
    struct tm utc;
    strftime(l->when, sizeof l->when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return keep(l);
}

/* --- for the planner -------------------------------------------------------------------------- */
void cli_links_fill(const cli_links *l, const tsri_cluster *c, tsr_compile_opts *opts)
{
    static const tsri_cluster none;
    tsri_cluster_figures f = {
        .link = {{.latency_s = l->latency_s, .bytes_per_s = l->bytes_per_s, .name = l->name}},
        .local_bytes_per_s = l->local_bytes_per_s,
        .flops_per_s = l->flops_per_s,
        .flops_of_dtype = {[TSR_F64] = l->f64_flops_per_s},
        .kernel_s = l->measured ? l->kernel_s : opts->kernel_s};
    tsri_cluster_apply(c ? c : &none, &f);
    for (int i = 0; i < f.nlinks; i++) {
        opts->link[i] = (tsr_link){f.link[i].ranks, f.link[i].latency_s, f.link[i].bytes_per_s};
        opts->link_name[i] = f.link[i].name;
    }
    opts->nlinks = f.nlinks;
    opts->local_bytes_per_s = f.local_bytes_per_s;
    opts->flops_per_s = f.flops_per_s;
    opts->kernel_s = f.kernel_s;
    for (int d = 0; d < TSR_DTYPE_COUNT_; d++)
        opts->dtype_flops_per_s[d] = f.flops_of_dtype[d];
    opts->attention_share = f.attention_share;
    memcpy(opts->product_share, f.product_share, sizeof opts->product_share);
}

const char *cli_limit_source(const tsri_experiment *e, size_t limit, char buf[CLI_SOURCE_MAX])
{
    const tsri_cluster *c = tsri_experiment_cluster(e);
    if (!limit)
        return NULL;
    if (!tsri_experiment_limit_is_gpu(e) || limit != (size_t)tsri_cluster_memory(c))
        return "as said";
    snprintf(buf, CLI_SOURCE_MAX, "the memory of %s (cluster.%s)",
             c->gpu ? tsri_gpu_names[c->gpu] : "a rank", c->memory > 0 ? "memory" : "gpu");
    return buf;
}

void cli_say_limit_source(const tsri_experiment *e, size_t limit)
{
    char size[CLI_NUMBER_MAX], source[CLI_SOURCE_MAX];
    const char *is = cli_limit_source(e, limit, source);
    if (is == source)
        tsri_fshow(stderr, "  the limit is %s, %s; memory_limit sets another\n", is,
                   cli_bytes((double)limit, size));
}

tsri_cost_model cli_links_model(const tsr_compile_opts *opts, tsr_device kind)
{
    return tsri_plan_cost_model(opts, kind);
}
