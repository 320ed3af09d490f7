/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an experiment, and what it says of itself. */
#include "src/config/experiment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/config/inside.h"

/* --- folders ---------------------------------------------------------------------------------- */
/* The folder of a file as an absolute path, so that what is made of it holds anywhere. */
static tsr_status folder_of(tsri_pool *pool, const char *name, const char **out_folder)
{
    char folder[PATH_MAX], full[PATH_MAX];
    const char *slash = strrchr(name, '/');
    int n = slash ? (int)(slash - name) : 0;
    if (snprintf(folder, sizeof folder, "%.*s", n, name) >= (int)sizeof folder)
        return tsri_fail(TSR_ERR_IO, "%.100s...: the file name is too long", name);
    const char *path = slash == name ? "/" : n ? folder : ".";
    if (!realpath(path, full))
        snprintf(full, sizeof full, "%s", path);
    *out_folder = tsri_pool_strdup(pool, full);
    return *out_folder ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* --- parsing ---------------------------------------------------------------------------------- */
static tsr_status parse(tsri_experiment *e, const char *name, const void *data, size_t size,
                        int nsets, const char *const *sets)
{
    int64_t ranks_left = TSRI_MAX_RANKS_LISTED;
    tsri_reader r = {.pool = &e->pool, .ranks_left = &ranks_left};
    tsri_yaml *root;
    r.main = tsri_pool_strdup(&e->pool, name);
    TSRI_NEED(r.main);
    TSRI_TRY(folder_of(&e->pool, name, &r.folder));
    TSRI_TRY(folder_of(&e->pool, "x", &r.working));
    TSRI_TRY(tsri_yaml_parse(&e->pool, r.main, data, size, &root));
    for (int i = 0; i < nsets; i++) {
        /* So that an override may add a key to a cluster in short. */
        TSRI_TRY(tsri_cluster_expand(&e->pool, tsri_yaml_find(root, "cluster")));
        TSRI_TRY(tsri_yaml_set(&e->pool, root, sets[i]));
    }
    TSRI_TRY(tsri_cluster_expand(&e->pool, tsri_yaml_find(root, "cluster")));
    TSRI_TRY(tsri_section_read(&r, &tsri_experiment_section, root, root, e));
    return tsri_experiment_check(e, &r);
}

tsr_status tsri_experiment_parse_with(tsri_mem *mem, const char *name, const void *data,
                                      size_t size, int nranks, int nsets, const char *const *sets,
                                      tsri_experiment **out_experiment)
{
    if (!name || !out_experiment || (!data && size) || (nsets > 0 && !sets))
        return tsri_fail(TSR_ERR_INVALID, "tsri_experiment_parse: the %s is NULL",
                         !name             ? "name"
                         : !out_experiment ? "result's place"
                         : !data && size   ? "data"
                                           : "list of overrides");
    tsri_experiment *e = tsri_mem_alloc(mem, sizeof *e);
    TSRI_NEED(e);
    tsri_pool_init(&e->pool, mem);
    e->world = nranks;
    tsr_status status = parse(e, name, data, size, nsets, sets);
    if (status != TSR_OK) {
        tsri_experiment_destroy(e);
        return status;
    }
    /* Later allocations aren't counted: `mem` need not live as long. */
    e->pool.mem = NULL;
    *out_experiment = e;
    return TSR_OK;
}

tsr_status tsri_experiment_parse(const char *name, const void *data, size_t size, int nsets,
                                 const char *const *sets, tsri_experiment **out_experiment)
{
    return tsri_experiment_parse_with(NULL, name, data, size, 0, nsets, sets, out_experiment);
}

/* --- files ------------------------------------------------------------------------------------ */
/* All of a file, in one piece of memory that the caller frees. */
static tsr_status read_all(const char *path, FILE *f, char **out_data, size_t *out_size)
{
    size_t size = 0, room = 0;
    char *data = NULL;
    /* One byte more than a file may have is enough: the parser tells. */
    for (size_t n = 1; n > 0 && size <= TSRI_YAML_MAX_BYTES; size += n) {
        if (size == room) {
            room = room ? 2 * room : 65536;
            char *more = tsri_mem_realloc(NULL, data, room);
            if (!more) {
                tsri_mem_free(data);
                return TSR_ERR_NO_MEMORY;
            }
            data = more;
        }
        n = fread(data + size, 1, room - size, f);
    }
    if (ferror(f)) {
        tsri_mem_free(data);
        return tsri_fail(TSR_ERR_IO, "%s: can't be read: %s", path, strerror(errno));
    }
    *out_data = data;
    *out_size = size;
    return TSR_OK;
}

/* Opens without waiting for the writer of a FIFO, who may never come. A pipe of the process itself,
 * such as a shell's <(...), has its writer already. */
static tsr_status open_file(const char *path, FILE **out_file)
{
    char link[64], target[8] = "";
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st)) {
        tsr_status status = tsri_fail(TSR_ERR_IO, "%s: can't be opened: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (S_ISFIFO(st.st_mode) &&
        (readlink(link, target, sizeof target - 1) < 5 || strncmp(target, "pipe:", 5))) {
        close(fd);
        return tsri_fail(TSR_ERR_IO,
                         "%s: is a FIFO, which may never have a writer: give a file, or - to read "
                         "standard input",
                         path);
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    if ((*out_file = fdopen(fd, "r")))
        return TSR_OK;
    close(fd);
    return tsri_fail(TSR_ERR_NO_MEMORY, "%s: can't be opened: no memory", path);
}

tsr_status tsri_experiment_load_for(const char *path, int nranks, int nsets,
                                    const char *const *sets, tsri_experiment **out_experiment)
{
    if (!path)
        return tsri_fail(TSR_ERR_INVALID, "tsri_experiment_load: the path is NULL");
    bool is_stdin = !strcmp(path, "-");
    FILE *f = stdin;
    if (!is_stdin)
        TSRI_TRY(open_file(path, &f));
    char *data = NULL;
    size_t size = 0;
    tsr_status status = read_all(path, f, &data, &size);
    if (!is_stdin)
        fclose(f);
    if (status == TSR_OK)
        status = tsri_experiment_parse_with(NULL, is_stdin ? "(standard input)" : path, data, size,
                                            nranks, nsets, sets, out_experiment);
    tsri_mem_free(data);
    return status;
}

tsr_status tsri_experiment_load(const char *path, int nsets, const char *const *sets,
                                tsri_experiment **out_experiment)
{
    return tsri_experiment_load_for(path, 0, nsets, sets, out_experiment);
}

void tsri_experiment_destroy(tsri_experiment *e)
{
    if (!e)
        return;
    tsri_pool_finish(&e->pool);
    tsri_mem_free(e);
}

/* --- what it says ----------------------------------------------------------------------------- */
int tsri_experiment_nranks(const tsri_experiment *e)
{
    return e ? e->nranks : 0;
}

int tsri_experiment_asked(const tsri_experiment *e)
{
    return e ? e->world : 0;
}

tsr_device tsri_experiment_device(const tsri_experiment *e)
{
    const tsri_config_placement *p = e ? e->placements.items : NULL;
    for (int i = 0; p && i < e->placements.n; i++)
        if (p[i].device + 1 == TSR_DEVICE_CUDA)
            return TSR_DEVICE_CUDA;
    return TSR_DEVICE_CPU;
}

bool tsri_experiment_trains(const tsri_experiment *e)
{
    return e && e->trains;
}

int64_t tsri_experiment_batch_size(const tsri_experiment *e)
{
    return tsri_experiment_trains(e) ? e->data.batch_size : 0;
}

void tsri_experiment_fill(const tsri_experiment *e, tsr_compile_opts *opts)
{
    static const tsr_on_nan meanings[] = {TSR_NAN_STOP, TSR_NAN_WARN, TSR_NAN_IGNORE};
    if (!e)
        return;
    tsr_on_nan said = meanings[e->train.on_nan];
    opts->on_nan = said == TSR_NAN_STOP && !e->trains ? TSR_NAN_WARN : said;
    opts->memory_limit =
        (size_t)(tsri_experiment_limit_is_gpu(e) ? tsri_cluster_memory(&e->cluster.said)
                                                 : e->memory_limit);
    opts->bucket_mb = e->bucket_mb;
    opts->infer_updates = e->infer_updates;
}

const tsri_cluster *tsri_experiment_cluster(const tsri_experiment *e)
{
    return e && tsri_section_has(&tsri_experiment_section, e, "cluster") ? &e->cluster.said : NULL;
}

bool tsri_experiment_limit_is_gpu(const tsri_experiment *e)
{
    return e && !e->memory_limit && tsri_cluster_memory(&e->cluster.said) > 0;
}

tsr_status tsri_experiment_dump(const tsri_experiment *e, FILE *out)
{
    if (!e || !out)
        return tsri_fail(TSR_ERR_INVALID, "tsri_experiment_dump: the %s is NULL",
                         e ? "file" : "experiment");
    tsri_section_dump(&tsri_experiment_section, e, 0, false, out);
    return ferror(out) ? tsri_fail(TSR_ERR_IO, "can't write the experiment: %s", strerror(errno))
                       : TSR_OK;
}

static const void *find_named(const tsri_items *items, size_t size, const tsri_yaml *map,
                              const char *name)
{
    /* The tree has an index by name; items are in its order. */
    const tsri_yaml *node = name ? tsri_yaml_find(map, name) : NULL;
    return node && node->index < items->n ? (const char *)items->items + (size_t)node->index * size
                                          : NULL;
}

const tsri_config_placement *tsri_experiment_placement(const tsri_experiment *e, const char *name)
{
    const tsri_config_placement *only = e->placements.items;
    if (e->mesh.ndim)
        return name && !strcmp(name, only->head.name) ? only : NULL;
    return find_named(&e->placements, sizeof(tsri_config_placement),
                      tsri_yaml_find(e->head.node, "placements"), name);
}

const tsri_config_op *tsri_experiment_op(const tsri_experiment *e, const char *name)
{
    return find_named(&e->graph, sizeof(tsri_config_op), tsri_yaml_find(e->head.node, "graph"),
                      name);
}

const tsri_config_op *tsri_experiment_result(const tsri_experiment *e, const char *name,
                                             int *out_index)
{
    const char *dot = strrchr(name, '.');
    size_t digits = dot ? strspn(dot + 1, "0123456789") : 0;
    bool numbered = digits && digits < 6 && !dot[1 + digits] && dot - name < TSRI_YAML_TEXT_MAX;
    char base[TSRI_YAML_TEXT_MAX];
    const tsri_config_op *op;
    *out_index = 0;
    if (numbered) {
        snprintf(base, sizeof base, "%.*s", (int)(dot - name), name);
        *out_index = atoi(dot + 1);
    }
    op = tsri_experiment_op(e, numbered ? base : name);
    if (op && ((tsri_op_results(op) > 1) != numbered || *out_index >= tsri_op_results(op)))
        *out_index = -1;
    return op;
}

const char *tsri_grad_of(const char *text, char buf[TSRI_YAML_TEXT_MAX])
{
    size_t n = strlen(text);
    if (n < 7 || n >= TSRI_YAML_TEXT_MAX || strncmp(text, "grad(", 5) || text[n - 1] != ')')
        return NULL;
    snprintf(buf, TSRI_YAML_TEXT_MAX, "%.*s", (int)(n - 6), text + 5);
    return buf;
}
