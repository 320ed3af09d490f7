/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the library that write files, for disks.py and kills.py: two thread ranks, or a rank
 * that a launcher has started. See usage(). */
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

enum { ROWS = 64, COLUMNS = 129, BIAS = 7 };

typedef struct job {
    const char *path;
    long first, count;
} job;

static tsr_status set_all(tsr_variable *v, const char *name, void *arg)
{
    static _Thread_local float data[ROWS * COLUMNS];
    tsr_dims dims = tsr_variable_dims(v);
    size_t n = 1;
    (void)name;
    for (int i = 0; i < dims.ndim; i++)
        n *= (size_t)dims.d[i];
    for (size_t i = 0; i < n; i++)
        data[i] = *(float *)arg;
    return tsr_variable_set(v, data, n * sizeof *data);
}

static tsr_module *make_module(tsr_world *world)
{
    const tsr_nn_opts opts = {.placement = tsr_placement_parse(world, "cpu"), .sbp = TSR_B};
    tsr_module *m = tsr_module_create(world, &opts, NULL, NULL, NULL);
    tsr_module_param(m, "weight", TSR_DIMS(ROWS, COLUMNS), TSR_S(0), (tsr_init){0});
    tsr_module_param(m, "bias", TSR_DIMS(BIAS), TSR_B, (tsr_init){0});
    tsr_module_buffer(m, "mean", TSR_DIMS(ROWS), TSR_S(0), (tsr_init){0});
    return m;
}

/* All values of the file are the number of the save. */
static tsr_status save(tsr_world *world, void *arg)
{
    const job *j = arg;
    tsr_module *m = make_module(world);
    for (long i = j->first; i < j->first + j->count; i++) {
        float value = (float)i;
        TRY(tsr_module_visit(m, set_all, &value));
        TRY(tsr_save(m, j->path));
        if (tsr_world_rank(world) == 0) {
            printf("saved %ld\n", i);
            fflush(stdout);
        }
    }
    return TSR_OK;
}

static tsr_status read_number(tsr_variable *v, const char *name, void *arg)
{
    static _Thread_local float data[ROWS * COLUMNS];
    float *number = arg;
    tsr_dims dims = tsr_variable_dims(v);
    size_t n = 1;
    for (int i = 0; i < dims.ndim; i++)
        n *= (size_t)dims.d[i];
    TRY(tsr_variable_get(v, data, n * sizeof *data));
    for (size_t i = 0; i < n; i++) {
        if (*number >= 0 && data[i] != *number)
            return tsr_set_error(TSR_ERR_FORMAT, "%s[%zu] is %g, not %g", name, i, (double)data[i],
                                 (double)*number);
        *number = data[i];
    }
    return TSR_OK;
}

/* Prints the number of the save. */
static tsr_status load(tsr_world *world, void *arg)
{
    const job *j = arg;
    float number = -1;
    tsr_module *m = make_module(world);
    TRY(tsr_load(m, j->path, NULL));
    TRY(tsr_module_visit(m, read_number, &number));
    if (tsr_world_rank(world) == 0)
        printf("%.0f\n", (double)number);
    return TSR_OK;
}

static tsr_status flight(tsr_world *world, void *arg)
{
    const job *j = arg;
    for (long i = 0; i < j->count; i++)
        TRY(tsr_world_barrier(world));
    return tsr_flight_dump(world, j->path);
}

/* A rank that says nothing makes the others' call fail, and each leave its dump. */
static tsr_status late(tsr_world *world, void *arg)
{
    (void)arg;
    for (int i = 0; i < 100; i++)
        TRY(tsr_world_barrier(world));
    float x[4] = {0};
    int rank = tsr_world_rank(world);
    return tsr_all_reduce(tsr_world_group(world), x, 3 + (rank > 0), TSR_F32, TSR_REDUCE_SUM);
}

static tsr_status store(const char *url)
{
    tsr_store *s;
    char key[32], value[100];
    memset(value, 'v', sizeof value);
    TRY(tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 1), &s));
    tsr_status status = TSR_OK;
    for (int i = 0; i < 200 && status == TSR_OK; i++) {
        snprintf(key, sizeof key, "key %d", i);
        status = tsr_store_set(s, key, value, sizeof value);
    }
    char text[500];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    tsr_store_close(s);
    return status == TSR_OK ? TSR_OK : tsr_set_error(status, "%s", text);
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: files_child save PATH FIRST COUNT | load PATH | flight DIR | late | synthetic DIR "
        "SEED | store URL\n");
    return 2;
}

int main(int argc, char **argv)
{
    job j = {.path = argc > 2 ? argv[2] : NULL, .count = 100};
    const char *what = argc > 1 ? argv[1] : "";
    tsr_status status;
    if (argc == 5 && !strcmp(what, "save")) {
        j.first = atol(argv[3]);
        j.count = atol(argv[4]);
        status = tsr_start_ranks(2, save, &j);
    } else if (argc == 3 && !strcmp(what, "load")) {
        status = tsr_start_ranks(2, load, &j);
    } else if (argc == 3 && !strcmp(what, "flight")) {
        status = tsr_start_ranks(2, flight, &j);
    } else if (argc == 2 && !strcmp(what, "late")) {
        status = tsr_start_ranks(2, late, NULL);
    } else if (argc == 4 && !strcmp(what, "synthetic")) {
        status = tsr_synthetic_write_cifar10(argv[2], 10, (uint64_t)atol(argv[3]));
    } else if (argc == 3 && !strcmp(what, "store")) {
        status = store(argv[2]);
    } else {
        return usage();
    }
    if (status != TSR_OK)
        fprintf(stderr, "files_child: %s: %s\n", tsr_status_name(status), tsr_last_error());
    return status != TSR_OK;
}
