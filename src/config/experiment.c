/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an experiment, and what it says of itself. */
#include "src/config/experiment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/program.h"
#include "src/config/source/source.h"

/* --- parsing ---------------------------------------------------------------------------------- */
/* Whether an override is of a key of the file, or of something in it. */
static bool sets_key(const char *set, const char *key)
{
    size_t n = strlen(key);
    return !strncmp(set, key, n) && strchr("=[.", set[n]);
}

/* Applies the overrides of `include`, or all others. */
static tsr_status apply_sets(tsri_pool *pool, tsri_yaml *root, bool of_include, int n,
                             const char *const *sets)
{
    for (int i = 0; i < n; i++) {
        if (sets_key(sets[i], "include") != of_include)
            continue;
        /* So that an override may add a key to a cluster in short. */
        TSRI_TRY(tsri_cluster_expand(pool, tsri_yaml_find(root, "cluster")));
        TSRI_TRY(tsri_yaml_set(pool, root, sets[i]));
    }
    return TSR_OK;
}

static tsr_status parse(tsri_experiment *e, const char *name, const void *data, size_t size,
                        int nsets, const char *const *sets)
{
    int64_t ranks_left = TSRI_MAX_RANKS_LISTED;
    tsri_reader r = {.pool = &e->pool, .ranks_left = &ranks_left};
    tsri_source *source;
    tsri_yaml *root;
    TSRI_TRY(tsri_source_add(&r, name, NULL, &source));
    TSRI_TRY(tsri_yaml_parse(&e->pool, source->name, data, size, &root));
    TSRI_TRY(apply_sets(&e->pool, root, true, nsets, sets));
    TSRI_TRY(tsri_include(&r, root));
    TSRI_TRY(apply_sets(&e->pool, root, false, nsets, sets));
    TSRI_TRY(tsri_vars(&r, root));
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
tsr_status tsri_experiment_load_for(const char *path, int nranks, int nsets,
                                    const char *const *sets, tsri_experiment **out_experiment)
{
    if (!path)
        return tsri_fail(TSR_ERR_INVALID, "tsri_experiment_load: the path is NULL");
    char *data = NULL;
    size_t size = 0;
    TSRI_TRY(tsri_source_read(path, &data, &size));
    tsr_status status =
        tsri_experiment_parse_with(NULL, strcmp(path, "-") ? path : "(standard input)", data, size,
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
        if (!tsri_target_can((tsr_device)(p[i].device + 1), TSRI_CAN_HOST_MEMORY))
            return (tsr_device)(p[i].device + 1);
    return TSRI_TARGET_HOST;
}

tsr_dtype tsri_config_autocast(const tsri_experiment *e)
{
    static const tsr_dtype dtypes[] = {[TSRI_AMP_BF16] = TSR_BF16, [TSRI_AMP_F16] = TSR_F16};
    return tsri_section_has(&tsri_train_section, &e->train, "amp")
               ? dtypes[e->train.amp.head.variant]
               : TSR_DTYPE_NONE;
}

bool tsri_experiment_trains(const tsri_experiment *e)
{
    return e && e->trains;
}

const char *tsri_experiment_subject(const tsri_experiment *e)
{
    return e && tsri_section_has(&tsri_experiment_section, e, "model")
               ? tsri_model_section.variants[e->model.head.variant].name
               : "graph";
}

tsr_dtype tsri_experiment_dtype(const tsri_experiment *e)
{
    return e ? e->dtype : TSR_DTYPE_NONE;
}

int64_t tsri_experiment_batch_size(const tsri_experiment *e)
{
    return tsri_experiment_trains(e) ? e->data.batch_size : 0;
}

int64_t tsri_experiment_microbatches(const tsri_experiment *e)
{
    return e && e->schedule.microbatches ? e->schedule.microbatches : 1;
}

bool tsri_experiment_warning(const tsri_experiment *e, char buf[160])
{
    const tsri_config_data *d = &e->data;
    if (!d->rows || d->rows >= d->batch_size)
        return false;
    snprintf(
        buf, 160,
        "a batch of %lld rows is more than the %lld that there are to train on: a run refuses it",
        (long long)d->batch_size, (long long)d->rows);
    return true;
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
                                                 : e->planning.memory_limit);
    opts->bucket_mb = e->planning.bucket_mb;
    opts->infer_updates = e->planning.infer_updates;
    opts->search_s = e->search.seconds;
    opts->microbatches = (int)tsri_experiment_microbatches(e);
    opts->pipeline = (tsr_pipeline)e->schedule.kind;
    opts->reshard_after_forward = e->planning.reshard_after_forward;
    if (tsri_section_has(&tsri_experiment_section, e, "fusion"))
        opts->no_fusion =
            (e->fusion.activations ? 0 : TSR_FUSE_ACTIVATIONS) |
            (e->fusion.softmax ? 0 : TSR_FUSE_SOFTMAX) | (e->fusion.chains ? 0 : TSR_FUSE_CHAINS) |
            (e->fusion.updates ? 0 : TSR_FUSE_UPDATES) | (e->fusion.rows ? 0 : TSR_FUSE_ROWS) |
            (e->fusion.pools ? 0 : TSR_FUSE_POOLS) | (e->fusion.kept ? 0 : TSR_FUSE_KEPT);
}

tsri_upkeep tsri_experiment_upkeep(const tsri_experiment *e)
{
    if (!tsri_experiment_trains(e))
        return (tsri_upkeep){0};
    const tsri_config_train *t = &e->train;
    return (tsri_upkeep){.evaluates = tsri_section_has(&tsri_train_section, t, "eval"),
                         .eval = t->eval.each,
                         .save = t->checkpoint.each,
                         .checkpoint = t->checkpoint.dir,
                         .metrics = t->metrics,
                         .tensorboard = t->tensorboard,
                         .keep = (int)t->checkpoint.keep,
                         .resumes = t->checkpoint.resume};
}

tsr_status tsri_experiment_fail(const tsri_experiment *e, const char *train_key, tsr_status status)
{
    return tsri_program_fail(tsri_section_node(&e->train, train_key), status);
}

const tsri_cluster *tsri_experiment_cluster(const tsri_experiment *e)
{
    return e && tsri_section_has(&tsri_experiment_section, e, "cluster") ? &e->cluster.said : NULL;
}

bool tsri_experiment_limit_is_gpu(const tsri_experiment *e)
{
    return e && !e->planning.memory_limit && tsri_cluster_memory(&e->cluster.said) > 0;
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
