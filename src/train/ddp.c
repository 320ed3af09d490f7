/* SPDX-License-Identifier: Apache-2.0 */
/* Making a tsr_ddp: whose variables, the same on all ranks, from the same values; and its end. */
#include "src/core/opts.h"
#include "src/train/ddp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"
#include "src/core/rng.h"
#include "src/exec/compare.h"
#include "src/nn/module.h"
#include "src/nn/place.h"

const tsr_placement *tsr_local_placement_on(tsr_world *world, tsr_device device)
{
    if (!world) {
        tsri_fail(TSR_ERR_INVALID, "tsr_local_placement: the world is NULL");
        return NULL;
    }
    if (!tsri_is_live(world, TSRI_LIVE_WORLD, "tsr_local_placement"))
        return NULL;
    const int one = 1, rank = tsr_world_rank(world);
    return tsr_placement_create(world, device, 1, &one, &rank);
}

const tsr_placement *tsr_local_placement(tsr_world *world)
{
    return tsr_local_placement_on(world, TSRI_TARGET_HOST);
}

/* --- the variables ---------------------------------------------------------------------------- */
typedef struct collector {
    tsr_ddp *d;
    bool count; /* else they are kept */
} collector;

static bool fits_any(int n, const char *const *patterns, const char *name)
{
    for (int i = 0; i < n; i++)
        if (tsri_glob(patterns[i], name))
            return true;
    return false;
}

static tsr_status collect(tsr_variable *v, const char *name, void *arg)
{
    const collector *c = arg;
    tsr_ddp *d = c->d;
    if (v->placement != d->here)
        return tsri_fail(TSR_ERR_PLACEMENT,
                         "tsr_ddp_create: %s is on %s; each rank's copy of the module belongs on "
                         "tsr_local_placement or tsr_local_placement_on, here %s",
                         name, tsr_placement_text(v->placement), tsr_placement_text(d->here));
    if (fits_any(d->opts.nignored, d->opts.ignored, name))
        return TSR_OK;
    char *copy = c->count ? NULL : tsri_pool_strdup(&d->pool, name);
    if (!c->count && !copy)
        return TSR_ERR_NO_MEMORY;
    if (!v->trainable) {
        if (!c->count) {
            d->sent.buffers[d->sent.nbuffers] = v;
            d->sent.names[d->sent.nbuffers] = copy;
        }
        d->sent.nbuffers++;
        return TSR_OK;
    }
    if (fits_any(d->opts.nfrozen, d->opts.frozen, name)) {
        if (!c->count)
            d->sent.frozen[d->sent.nfrozen] = v;
        d->sent.nfrozen++;
        return TSR_OK;
    }
    if (!c->count) {
        d->params[d->nparams] = (tsri_ddp_param){.v = v, .name = copy, .number = d->nparams};
        v->used = true;
    }
    d->nparams++;
    return TSR_OK;
}

static tsr_status find_variables(tsr_ddp *d)
{
    collector c = {d, true};
    TSRI_TRY(tsr_module_visit(d->module, collect, &c));
    if (!d->nparams)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_ddp_create: the module has no parameters to average%s",
                         d->sent.nfrozen ? ": all are frozen" : "");
    size_t n = (size_t)d->nparams, nb = (size_t)d->sent.nbuffers;
    d->params = tsri_pool_alloc(&d->pool, n * sizeof *d->params);
    d->sent.buffers = tsri_pool_alloc(&d->pool, nb * sizeof(tsr_variable *));
    d->sent.names = tsri_pool_alloc(&d->pool, nb * sizeof(char *));
    d->sent.frozen = tsri_pool_alloc(&d->pool, (size_t)d->sent.nfrozen * sizeof(tsr_variable *));
    d->listed = tsri_pool_alloc(&d->pool, n * sizeof(tsr_variable *));
    d->joining.rounds = tsri_pool_alloc(&d->pool, (size_t)d->nranks * sizeof *d->joining.rounds);
    TSRI_NEED(d->params && d->sent.buffers && d->sent.names && d->sent.frozen && d->listed &&
              d->joining.rounds);
    d->nparams = d->sent.nbuffers = d->sent.nfrozen = 0;
    c.count = false;
    return tsr_module_visit(d->module, collect, &c);
}

/* --- the same on all ranks -------------------------------------------------------------------- */
/* "parameter 3 'features.0.0.weight' f32 (32,3,3,3)"; of buffers, those that are broadcast. */
static void describe(const tsr_ddp *d, bool buffers, int i, char buf[256])
{
    const char *kind = buffers ? "buffer" : "parameter";
    memset(buf, 0, 256);
    if (i >= (buffers ? d->sent.nbuffers : d->nparams)) {
        snprintf(buf, 256, "there is no %s %d", kind, i);
        return;
    }
    const tsr_variable *v = buffers ? d->sent.buffers[i] : d->params[i].v;
    const char *name = buffers ? d->sent.names[i] : d->params[i].name;
    char dims[TSRI_DIMS_TEXT_MAX];
    snprintf(buf, 256, "%s %d is '%.120s' %s (%s)", kind, i, name, tsr_dtype_name(v->dtype),
             tsri_dims_format(v->shape, dims));
}

static uint64_t hash_of(const tsr_ddp *d, bool buffers, int i)
{
    char text[256];
    describe(d, buffers, i, text);
    return tsri_hash(TSRI_HASH_INIT, text, strlen(text));
}

/* The facts that ranks compare. */
typedef struct summary {
    int64_t nvariables[2]; /* parameters and buffers */
    int64_t variables[2];  /* their hashes */
    int64_t options;
    int64_t compares; /* 1: this rank asks for comparisons; need not be alike */
} summary;

/* The first parameter or buffer in which some rank differs from the first rank, and the first such
 * rank. Collective. */
static tsr_status find_difference(tsr_ddp *d, bool buffers, const summary *of, int *out_first,
                                  int *out_rank)
{
    int64_t most = 0;
    for (int r = 0; r < d->nranks; r++)
        most = of[r].nvariables[buffers] > most ? of[r].nvariables[buffers] : most;
    uint64_t *mine = tsri_mem_alloc(&d->world->mem, (size_t)most * sizeof *mine);
    uint64_t *all = tsri_mem_alloc(&d->world->mem, (size_t)(most * d->nranks) * sizeof *all);
    tsr_status status = mine && all ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; i < most && status == TSR_OK; i++)
        mine[i] = hash_of(d, buffers, i);
    if (status == TSR_OK)
        status = tsr_all_gather_into(d->group, mine, all, most, TSR_I64);
    *out_first = -1;
    for (int i = 0; i < most && *out_first < 0 && status == TSR_OK; i++)
        for (int r = 1; r < d->nranks && *out_first < 0; r++)
            if (all[r * most + i] != all[i]) {
                *out_first = i;
                *out_rank = r;
            }
    tsri_mem_free(mine);
    tsri_mem_free(all);
    return status;
}

/* Some rank's parameters differ, or its buffers: all name the first that does. */
static tsr_status name_difference(tsr_ddp *d, bool buffers, const summary *of)
{
    int first = -1, other = 0;
    char text[256];
    TSRI_TRY(find_difference(d, buffers, of, &first, &other));
    if (first < 0)
        return tsri_fail(TSR_ERR_INTERNAL, "tsr_ddp_create: modules differ, and none of their %s",
                         buffers ? "buffers" : "parameters");
    char *texts = tsri_mem_alloc(&d->world->mem, (size_t)d->nranks * sizeof text);
    TSRI_NEED(texts);
    describe(d, buffers, first, text);
    tsr_status status = tsr_all_gather_into(d->group, text, texts, sizeof text, TSR_U8);
    if (status == TSR_OK)
        status =
            tsri_fail(TSR_ERR_MISMATCH,
                      "tsr_ddp_create: ranks wrap different modules: on rank %d %s; on rank "
                      "%d %s",
                      tsr_group_world_rank(d->group, 0), texts,
                      tsr_group_world_rank(d->group, other), texts + (size_t)other * sizeof text);
    tsri_mem_free(texts);
    return status;
}

static summary summarize(const tsr_ddp *d)
{
    const tsr_ddp_opts *o = &d->opts;
    const int64_t opts[6] = {(int64_t)(o->bucket_cap_mb * 1048576),
                             o->broadcast_buffers,
                             o->find_unused_parameters,
                             o->static_graph,
                             o->hook,
                             o->hook_fn != NULL};
    summary s = {.nvariables = {d->nparams, d->sent.nbuffers},
                 .compares = tsri_compare_in_environment(),
                 .options = (int64_t)tsri_hash(TSRI_HASH_INIT, opts, sizeof opts)};
    for (int k = 0; k < 2; k++) {
        uint64_t h = TSRI_HASH_INIT;
        for (int i = 0; i < s.nvariables[k]; i++) {
            uint64_t one = hash_of(d, k, i);
            h = tsri_hash(h, &one, sizeof one);
        }
        s.variables[k] = (int64_t)h;
    }
    return s;
}

static tsr_status compare_all(tsr_ddp *d, const summary *all)
{
    for (int k = 0; k < 2; k++)
        for (int r = 1; r < d->nranks; r++)
            if (all[r].nvariables[k] != all[0].nvariables[k] ||
                all[r].variables[k] != all[0].variables[k])
                return name_difference(d, k, all);
    for (int r = 1; r < d->nranks; r++)
        if (all[r].options != all[0].options)
            return tsri_fail(
                TSR_ERR_MISMATCH,
                "tsr_ddp_create: ranks %d and %d give different options (bucket_cap_mb, "
                "broadcast_buffers, find_unused_parameters, static_graph, hook)",
                tsr_group_world_rank(d->group, 0), tsr_group_world_rank(d->group, r));
    return TSR_OK;
}

static tsr_status compare(tsr_ddp *d)
{
    const summary mine = summarize(d);
    summary *all = tsri_mem_alloc(&d->world->mem, (size_t)d->nranks * sizeof mine);
    TSRI_NEED(all);
    tsr_status status =
        tsr_all_gather_into(d->group, &mine, all, sizeof mine / sizeof(int64_t), TSR_I64);
    if (status == TSR_OK)
        status = compare_all(d, all);
    for (int r = 0; r < d->nranks && status == TSR_OK; r++)
        d->compared.on |= all[r].compares != 0;
    tsri_mem_free(all);
    return status;
}

static tsr_status send_value(tsr_ddp *d, tsr_variable *v)
{
    TSRI_TRY(tsri_variable_prepare(v));
    if (!d->opts.init_sync || !v->bytes || d->side)
        return TSR_OK;
    tsri_variable_wrote(v);
    return tsr_broadcast(d->group, v->data, tsr_dims_count(v->shape), v->dtype,
                         tsr_group_world_rank(d->group, 0));
}

static tsr_status send_values(tsr_ddp *d)
{
    for (int i = 0; i < d->nparams; i++)
        TSRI_TRY(send_value(d, d->params[i].v));
    for (int i = 0; i < d->sent.nbuffers; i++)
        TSRI_TRY(send_value(d, d->sent.buffers[i]));
    for (int i = 0; i < d->sent.nfrozen; i++)
        TSRI_TRY(send_value(d, d->sent.frozen[i]));
    if (!d->side || !d->opts.init_sync)
        return TSR_OK;
    TSRI_TRY(tsri_ddp_send(d, d->nparams, d->listed, 0));
    TSRI_TRY(tsri_ddp_send(d, d->sent.nbuffers, d->sent.buffers, 0));
    return tsri_ddp_send(d, d->sent.nfrozen, d->sent.frozen, 0);
}

/* Takes the kind of device from the first variable. */
static tsr_status note_device(tsr_variable *v, const char *name, void *arg)
{
    tsr_ddp *d = arg;
    (void)name;
    if (d->device)
        return TSR_OK;
    return tsri_device_get(d->world, tsr_placement_device(v->placement), &d->device);
}

/* Opens the device on which the parameters are, which must outlive d: so before d is the world's.
 */
static tsr_status find_device(tsr_ddp *d)
{
    TSRI_TRY(tsr_module_visit(d->module, note_device, d));
    return d->device ? TSR_OK : tsri_device_get(d->world, TSRI_TARGET_HOST, &d->device);
}

/* --- making and ending ------------------------------------------------------------------------ */
/* Larger than any memory; its bytes are an int64_t. */
static const double MAX_CAP_MIB = 1e12;

static tsr_status check_patterns(int n, const char *const *patterns, const char *what)
{
    if (n < 0 || (n && !patterns))
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_create: %d patterns are %s, but %s", n, what,
                         patterns ? "the number is negative" : "there are none");
    for (int i = 0; i < n; i++)
        if (!patterns[i])
            return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_create: .%s[%d] is NULL", what, i);
    return TSR_OK;
}

static tsr_status read_options(const tsr_module *m, const tsr_ddp_opts *opts, tsr_ddp_opts *o)
{
    if (!m)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_create: the module is NULL%s",
                         tsri_error_cause());
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_ddp_create"));
    if (m->world->is_virtual)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_ddp_create: in a virtual world, whose ranks do not exist");
    *o = *TSR_DDP_OPTS();
    TSRI_TRY(tsri_opts_read(o, sizeof *o, opts, "tsr_ddp_create"));
    if (!(o->bucket_cap_mb >= 0 && o->bucket_cap_mb <= MAX_CAP_MIB))
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_ddp_create: bucket_cap_mb is %g; expected MiB up to %g",
                         o->bucket_cap_mb, MAX_CAP_MIB);
    if (o->hook < TSR_DDP_ALL_REDUCE || o->hook > TSR_DDP_BF16_COMPRESS)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_create: %d is no tsr_ddp_hook", (int)o->hook);
    TSRI_TRY(check_patterns(o->nignored, o->ignored, "ignored"));
    return check_patterns(o->nfrozen, o->frozen, "frozen");
}

static void release(tsr_ddp *d, bool plans_too)
{
    tsri_world_disown(&d->owned);
    tsri_ddp_unlend(d);
    tsri_ddp_free_updates(d, plans_too);
    tsri_ddp_free_buckets(d);
    tsri_pool_finish(&d->pool);
    tsri_live_free(d, TSRI_LIVE_DDP);
}

static void destroy(tsr_ddp *d)
{
    release(d, true);
}

/* With the world: the updates' plans, which are younger, have gone already. */
static void destroy_owned(void *object)
{
    release(object, false);
}

static tsr_status fill(tsr_ddp *d)
{
    d->here = tsr_local_placement_on(d->world, d->device->kind);
    TSRI_NEED(d->here);
    d->nranks = tsr_group_size(d->group);
    d->rank = tsr_group_rank(d->group);
    d->run.divisor = d->nranks;
    d->buffers_next = true;
    TSRI_TRY(find_variables(d));
    TSRI_TRY(tsr_module_set_local(d->module));
    TSRI_TRY(tsri_ddp_label(d, "tsr_ddp_create"));
    TSRI_TRY(compare(d));
    if (tsri_ddp_on_device(d))
        TSRI_TRY(tsri_side_of(d->group, d->device, &d->side));
    for (int i = 0; i < d->nparams; i++)
        d->listed[i] = d->params[i].v;
    TSRI_TRY(send_values(d));
    TSRI_TRY(tsri_ddp_make_buckets(d));
    TSRI_TRY(d->side ? tsri_ddp_make_on_device(d) : tsri_ddp_make_small(d));
    TSRI_TRY(tsr_alloc(d->world, (size_t)d->nparams, (void **)&d->used));
    d->info = (tsr_ddp_info){.nranks = d->nranks,
                             .rank = d->rank,
                             .nparams = d->nparams,
                             .nbuckets = d->nbuckets,
                             .bucket_cap_bytes = (size_t)(d->opts.bucket_cap_mb * 1048576),
                             .first_bucket_bytes = 1048576,
                             .grad_norm = NAN};
    for (int i = 0; i < d->nbuckets; i++)
        d->info.gradient_bytes += d->buckets[i].bytes;
    return TSR_OK;
}

tsr_status tsr_ddp_create(tsr_module *module, const tsr_ddp_opts *opts, tsr_ddp **out_ddp)
{
    tsr_ddp_opts o;
    if (!out_ddp)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_create: out_ddp is NULL");
    TSRI_TRY(read_options(module, opts, &o));
    TSRI_TRY(tsri_live_check(o.group, TSRI_LIVE_GROUP, __func__));
    /* The server of groups is made before its users, and so goes behind them. */
    tsr_group *group = o.group ? o.group : tsr_world_group(module->world);
    tsr_ddp *d = group ? tsri_live_alloc(&module->world->mem, sizeof *d, TSRI_LIVE_DDP) : NULL;
    TSRI_NEED(d);
    d->group = group;
    d->world = module->world;
    d->module = module;
    d->opts = o;
    tsri_pool_init(&d->pool, &d->world->mem);
    tsr_status status = find_device(d);
    tsri_world_own(d->world, &d->owned, d, destroy_owned);
    tsri_ddp_kept kept = tsri_ddp_keep_label(d);
    status = status == TSR_OK ? fill(d) : status;
    tsri_ddp_put_back(d, &kept);
    if (status != TSR_OK) {
        destroy(d);
        return status;
    }
    *out_ddp = d;
    return TSR_OK;
}

void tsr_ddp_destroy(tsr_ddp *ddp)
{
    if (tsri_is_live(ddp, TSRI_LIVE_DDP, __func__))
        destroy(ddp);
}

/* Meets the other ranks where they reduce buckets, so that one that still does is told. */
static tsr_status meet(tsr_ddp *d, tsri_loc loc)
{
    const tsri_coll coll = {.kind = TSRI_COLL_BARRIER, .what = d->group->label, .loc = loc};
    if (!d->side || d->nranks == 1)
        return tsr_barrier_at(d->group, NULL, loc.file, loc.line);
    return tsri_side_once(d->side, &coll);
}

tsr_status tsr_ddp_close_at(tsr_ddp **ddp, const char *file, int line)
{
    if (!ddp || !*ddp)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_close: ddp is NULL");
    TSRI_TRY(tsri_live_check(*ddp, TSRI_LIVE_DDP, "tsr_ddp_close"));
    tsr_ddp *d = *ddp;
    *ddp = NULL;
    tsri_ddp_kept kept = tsri_ddp_keep_label(d);
    tsr_status status = tsri_ddp_label(d, "ddp end after %lld runs", (long long)d->info.syncs);
    if (status == TSR_OK)
        status = meet(d, (tsri_loc){file, line});
    tsri_ddp_put_back(d, &kept);
    destroy(d);
    return status;
}

/* --- telling ---------------------------------------------------------------------------------- */
tsr_status tsr_ddp_get_info(const tsr_ddp *ddp, tsr_ddp_info *info)
{
    TSRI_TRY(tsri_live_check(ddp, TSRI_LIVE_DDP, __func__));
    if (!ddp || !info || info->size < sizeof info->size)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_ddp_get_info: ddp or info is NULL, or info->size is not set");
    size_t size = info->size < sizeof *info ? info->size : sizeof *info;
    tsr_ddp_info all = ddp->info;
    if (ddp->norm_of)
        TSRI_TRY(tsr_fetch_scalar(ddp->norm_of, "norm", &all.grad_norm));
    all.size = info->size;
    memcpy(info, &all, size);
    return TSR_OK;
}

size_t tsr_ddp_bucket_bytes(const tsr_ddp *ddp, int index)
{
    return tsri_is_live(ddp, TSRI_LIVE_DDP, __func__) && index >= 0 && index < ddp->nbuckets
               ? ddp->buckets[index].bytes
               : 0;
}

void tsr_ddp_no_sync(tsr_ddp *ddp, bool on)
{
    if (tsri_is_live(ddp, TSRI_LIVE_DDP, __func__))
        ddp->no_sync = on;
}

/* NULL: v is none of ddp's parameters. */
static const tsri_ddp_param *find_param(const tsr_ddp *ddp, const tsr_variable *v, const char *who)
{
    if (tsri_live_check(ddp, TSRI_LIVE_DDP, who) != TSR_OK ||
        tsri_live_check(v, TSRI_LIVE_VARIABLE, who) != TSR_OK)
        return NULL;
    for (int i = 0; ddp && i < ddp->nparams; i++)
        if (ddp->params[i].v == v)
            return &ddp->params[i];
    tsri_fail(TSR_ERR_INVALID,
              "%s: the variable is none of ddp's parameters%s; see tsr_module_find", who,
              !ddp ? ": ddp is NULL"
              : !v ? ": it is NULL"
                   : "");
    return NULL;
}

void *tsr_ddp_gradient(tsr_ddp *ddp, const tsr_variable *v, bool *out_there)
{
    const tsri_ddp_param *p = find_param(ddp, v, __func__);
    if (out_there)
        *out_there = p && p->there;
    return p ? p->grad->data : NULL;
}

tsr_status tsr_ddp_gradient_get(tsr_ddp *ddp, const tsr_variable *v, void *data, bool *out_there)
{
    const tsri_ddp_param *p = find_param(ddp, v, __func__);
    if (!p)
        return TSR_ERR_INVALID;
    if (!data && p->grad->bytes)
        return tsri_fail(TSR_ERR_INVALID, "%s: data is NULL", __func__);
    TSRI_TRY(tsri_variable_read(p->grad, 0, data, p->grad->bytes));
    if (out_there)
        *out_there = p->there;
    return TSR_OK;
}
