/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's surroundings: its variables, its arguments, its cores. All made before it is forked. */
#include "src/cli/cli.h"
#include "src/cli/launch/launch.h"

#include <stdarg.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* --- lists of words --------------------------------------------------------------------------- */

typedef struct words {
    char **word;
    size_t n, room;
    bool failed;
} words;

static void add_word(words *w, char *word)
{
    if (w->n + 2 > w->room) {
        size_t room = 2 * w->room + 64;
        char **more = realloc(w->word, room * sizeof *more);
        if (!more) {
            free(word);
            w->failed = true;
            return;
        }
        w->word = more;
        w->room = room;
    }
    w->failed |= !word;
    w->word[w->n] = word;
    w->n += word != NULL;
    w->word[w->n] = NULL;
}

void launch_words_free(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

static char **finish_words(words *w)
{
    if (!w->failed)
        return w->word;
    launch_words_free(w->word);
    return NULL;
}

/* --- variables -------------------------------------------------------------------------------- */

/* Adds "NAME=value". */
__attribute__((format(printf, 2, 3))) static void set(words *w, const char *fmt, ...)
{
    char *entry;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&entry, fmt, ap);
    va_end(ap);
    add_word(w, n < 0 ? NULL : entry);
}

static bool has(const words *w, size_t n, const char *entry)
{
    size_t length = strcspn(entry, "=") + 1;
    for (size_t i = 0; i < n; i++)
        if (!strncmp(w->word[i], entry, length))
            return true;
    return false;
}

/* Variables that an outer launcher has left would mislead. */
static bool is_stale(const char *entry)
{
    static const char *const names[] = {"TESSERA_STORE_HOSTED=", "TORCHELASTIC_ERROR_FILE="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(entry, names[i], strlen(names[i])))
            return true;
    return false;
}

int launch_count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static void set_identity(words *w, const launch *l, int local)
{
    int rank = l->base + local;
    set(w, "RANK=%d", rank);
    set(w, "LOCAL_RANK=%d", local);
    set(w, "WORLD_SIZE=%d", l->world);
    set(w, "LOCAL_WORLD_SIZE=%d", l->config.nlocal);
    set(w, "GROUP_RANK=%d", l->node_rank);
    set(w, "GROUP_WORLD_SIZE=%d", l->config.nnodes);
    set(w, "ROLE_NAME=%s", l->config.role);
    set(w, "ROLE_RANK=%d", rank);
    set(w, "ROLE_WORLD_SIZE=%d", l->world);
    set(w, "MASTER_ADDR=%s", l->config.addr);
    set(w, "MASTER_PORT=%d", l->config.port);
    set(w, "TORCHELASTIC_RUN_ID=%s", l->config.run_id);
    set(w, "TORCHELASTIC_RESTART_COUNT=%d", l->attempt);
    set(w, "TORCHELASTIC_MAX_RESTARTS=%d", l->config.max_restarts);
    /* PyTorch's own store is not here: its rank 0 serves one. */
    set(w, "TORCHELASTIC_USE_AGENT_STORE=False");
    set(w, "TESSERA_ARENA=%d:%d:%zu", (int)getpid(), l->arena_fd, l->bytes_per_rank);
    set(w, "TESSERA_RUN_ID=%s", l->config.run_id);
    set(w, "TESSERA_RESTART_COUNT=%d", l->attempt);
    set(w, "TESSERA_MAX_RESTARTS=%d", l->config.max_restarts);
    if (l->nodes)
        set(w, "TESSERA_STORE_HOSTED=1");
}

/* From the root: a rank may go to another folder. */
static void set_flight_dir(words *w, const launch *l)
{
    const launch_config *c = &l->config;
    char *here = *c->log_dir == '/' ? NULL : getcwd(NULL, 0);
    set(w, "TESSERA_FLIGHT_DIR=%s%s%s/%s/attempt_%d", here ? here : "", here ? "/" : "", c->log_dir,
        c->run_id, l->attempt);
    free(here);
}

/* In a build tree the module is neither beside the library nor installed. */
static void set_gloo_module(words *w)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    const char *there = "/../comm/gloo/libtessera_gloo.so";
    if (!slash || (size_t)(slash - path) + strlen(there) >= sizeof path)
        return;
    strcpy(slash, there);
    if (!access(path, R_OK))
        set(w, "TESSERA_GLOO_MODULE=%s", path);
}

char **launch_environment(const launch *l, int local)
{
    words w = {0};
    const launch_config *c = &l->config;
    set_identity(&w, l, local);
    if (c->timeout)
        set(&w, "TESSERA_TIMEOUT_S=%s", c->timeout);
    if (c->gpus)
        set(&w, "CUDA_VISIBLE_DEVICES=%s", c->gpus);
    if (!getenv("OMP_NUM_THREADS")) {
        int threads = launch_count_cores() / c->nlocal;
        set(&w, "OMP_NUM_THREADS=%d", threads > 1 ? threads : 1);
    }
    if (cli_spins_freely())
        set(&w, "GOMP_SPINCOUNT=" CLI_SPINS);
    if (l->nodes && !getenv("TESSERA_GLOO_MODULE"))
        set_gloo_module(&w);
    if (c->log_dir && !getenv("TESSERA_FLIGHT_DIR"))
        set_flight_dir(&w, l);
    size_t own = w.n;
    for (char **e = environ; *e && !w.failed; e++)
        if (!has(&w, own, *e) && !is_stale(*e))
            add_word(&w, strdup(*e));
    return finish_words(&w);
}

/* --- arguments -------------------------------------------------------------------------------- */

/* ${rank} and ${local_rank}, as torchrun's users write them. */
static char *with_numbers(const char *text, int rank, int local)
{
    const struct {
        const char *name;
        int value;
    } macros[] = {{"${rank}", rank}, {"${local_rank}", local}};
    char *out = malloc(strlen(text) + 1), *at = out; /* a number is shorter than its macro */
    while (out && *text) {
        int m = 0;
        while (m < 2 && strncmp(text, macros[m].name, strlen(macros[m].name)) != 0)
            m++;
        if (m == 2) {
            *at++ = *text++;
            continue;
        }
        at += sprintf(at, "%d", macros[m].value);
        text += strlen(macros[m].name);
    }
    if (out)
        *at = 0;
    return out;
}

char **launch_arguments(const launch *l, int local)
{
    words w = {0};
    for (int i = 0; l->config.argv[i] && !w.failed; i++)
        add_word(&w, i ? with_numbers(l->config.argv[i], l->base + local, local)
                       : strdup(l->config.argv[i]));
    return finish_words(&w);
}

/* --- cores ------------------------------------------------------------------------------------ */

typedef struct core {
    int cpu, package, core;
} core;

static int topology(int cpu, const char *what)
{
    char path[96];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%d", &value) != 1)
        value = 0;
    if (f)
        fclose(f);
    return value;
}

static int by_place(const void *a, const void *b)
{
    const core *x = a, *y = b;
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

static int threads_per_rank(int cores, int nlocal)
{
    const char *text = getenv("OMP_NUM_THREADS");
    int threads = text ? atoi(text) : 0;
    if (threads < 1)
        threads = cores / nlocal > 1 ? cores / nlocal : 1;
    return threads;
}

/* Every rank gets an equal share of the cores, neighbours in the machine: whole shares, so that
 * loaders' threads and another run beside this one have room to move. */
void launch_choose_cores(launch *l)
{
    cpu_set_t all;
    int n = l->config.nlocal, cores = 0;
    bool asked = l->config.pin == LAUNCH_PIN_CORE;
    if (l->config.pin == LAUNCH_PIN_NONE || (n == 1 && !asked) ||
        sched_getaffinity(0, sizeof all, &all))
        return;
    int have = CPU_COUNT(&all);
    if (n > have || (!asked && n * threads_per_rank(have, n) > have))
        return;
    core *place = calloc((size_t)have, sizeof *place);
    l->cores = calloc((size_t)n, sizeof *l->cores);
    for (int cpu = 0; place && l->cores && cpu < CPU_SETSIZE && cores < have; cpu++)
        if (CPU_ISSET(cpu, &all))
            place[cores++] =
                (core){cpu, topology(cpu, "physical_package_id"), topology(cpu, "core_id")};
    if (cores > 0)
        qsort(place, (size_t)cores, sizeof *place, by_place);
    for (int i = 0; i < cores; i++)
        CPU_SET(place[i].cpu, &l->cores[(int64_t)i * n / have]);
    free(place);
    if (!cores) {
        free(l->cores);
        l->cores = NULL;
    }
}
