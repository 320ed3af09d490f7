/* SPDX-License-Identifier: Apache-2.0 */
/* The files that `tessera run --out DIR` leaves there. */
#include "src/cli/run/run.h"
#include "src/data/npy.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MAX_ = 4096 };

static tsr_status path_of(const run_rank *r, const char *name, const char *end, char *path)
{
    int n = snprintf(path, PATH_MAX_, "%s/%s%s", r->job->out, name, end);
    if (n < 0 || n >= PATH_MAX_)
        return tsr_set_error(TSR_ERR_IO, "%.100s...: the name is too long", r->job->out);
    return TSR_OK;
}

/* --- arrays ----------------------------------------------------------------------------------- */
/* Writes the value of an output, or, under a name with `end`, this rank's part of it. */
static tsr_status write_array(const run_rank *r, const tsri_fetch *f, bool is_part, const char *end)
{
    char path[PATH_MAX_];
    tsr_dims dims = f->dims;
    TSRI_TRY(path_of(r, f->name, end, path));
    if (is_part)
        TSRI_TRY(tsr_fetch_shard(r->plan, f->shard, NULL, 0, &dims));
    size_t bytes = (size_t)tsr_dims_count(dims) * tsr_dtype_size(f->dtype);
    void *data = malloc(bytes + 1);
    if (!data)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
    tsr_status status = is_part ? tsr_fetch_shard(r->plan, f->shard, data, bytes, NULL)
                                : tsr_fetch(r->plan, f->name, data, bytes);
    if (status == TSR_OK)
        status = tsri_npy_write(path, f->dtype, dims, data);
    free(data);
    return status;
}

tsr_status run_write_arrays(const run_rank *r)
{
    int rank = tsr_world_rank(r->world);
    char end[32];
    snprintf(end, sizeof end, ".rank%d.npy", rank);
    for (int i = 0; i < r->program->nfetches; i++) {
        const tsri_fetch *f = &r->program->fetches[i];
        if (rank == run_owner(r, f->name))
            TSRI_TRY(write_array(r, f, false, ".npy"));
        if (f->shard && tsr_placement_find(run_port(r, f->shard).placement, rank) >= 0)
            TSRI_TRY(write_array(r, f, true, end));
    }
    /* When a rank says that it is done, all files are there. */
    return tsr_world_barrier(r->world);
}

/* --- the result ------------------------------------------------------------------------------- */
/* The number of steps that update, where the optimizer accumulates over several; else 0. */
static double count_updates(const run_rank *r)
{
    const int64_t every = tsri_ir_every(&r->plan->ir), end = *r->plan->ir.step_value;
    return every ? (double)(end / every - (end - r->steps) / every) : 0;
}

static cJSON *json_collectives(const run_rank *r, const run_figures *figures, int n)
{
    cJSON *list = cJSON_CreateArray();
    const double steps = (double)r->steps, updates = count_updates(r);
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++) {
        double calls = 0, bytes = 0, planned_calls = 0, planned_bytes = 0;
        for (int i = 0; i < n; i++) {
            calls += (double)figures[i].coll[k].calls;
            bytes += (double)figures[i].coll[k].bytes;
            planned_calls += steps * (double)figures[i].coll[k].planned_calls +
                             updates * (double)figures[i].coll[k].once_calls;
            planned_bytes += steps * (double)figures[i].coll[k].planned_bytes +
                             updates * (double)figures[i].coll[k].once_bytes;
        }
        if (calls == 0 && planned_calls == 0)
            continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "kind", tsri_coll_kind_name((tsri_coll_kind)k));
        cJSON_AddNumberToObject(one, "calls", calls);
        cJSON_AddNumberToObject(one, "bytes", bytes);
        cJSON_AddNumberToObject(one, "planned_calls", planned_calls);
        cJSON_AddNumberToObject(one, "planned_bytes", planned_bytes);
        cJSON_AddItemToArray(list, one);
    }
    return list;
}

static cJSON *json_rank(const run_rank *r, int rank)
{
    const run_figures *f = &r->all[rank];
    cJSON *json = cJSON_CreateObject(), *memory = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "rank", rank);
    cJSON_AddNumberToObject(json, "compile_s", f->compile_s);
    cJSON_AddNumberToObject(json, "run_s", f->run_s);
    cJSON_AddNumberToObject(json, "compute_s", f->compute_s);
    cJSON_AddNumberToObject(json, "communication_s", f->comm_s);
    cJSON_AddNumberToObject(memory, "variables", (double)f->variables);
    cJSON_AddNumberToObject(memory, "activations", (double)f->activations);
    cJSON_AddNumberToObject(memory, "scratch", (double)f->scratch);
    cJSON_AddNumberToObject(memory, "kept", (double)f->kept);
    cJSON_AddNumberToObject(memory, "inputs_outputs", (double)f->ports);
    cJSON_AddNumberToObject(memory, "host", (double)f->host);
    cJSON_AddNumberToObject(memory, "peak", (double)run_memory(f));
    cJSON_AddItemToObject(json, "memory", memory);
    cJSON_AddItemToObject(json, "collectives", json_collectives(r, f, 1));
    return json;
}

static void add_times(cJSON *json, const run_rank *r)
{
    double sum = 0, least = 0;
    for (int64_t i = 0; i < r->steps; i++) {
        sum += r->seconds[i];
        least = i == 0 || r->seconds[i] < least ? r->seconds[i] : least;
    }
    cJSON_AddNumberToObject(json, "compile_s", r->mine.compile_s);
    cJSON_AddNumberToObject(json, "infer_s", r->mine.infer_s);
    cJSON_AddNumberToObject(json, "seconds", sum);
    cJSON_AddItemToObject(json, "step_seconds", cJSON_CreateDoubleArray(r->seconds, (int)r->steps));
    cJSON_AddNumberToObject(json, "fastest_step_s", least);
    cJSON_AddNumberToObject(json, "estimated_step_s", r->mine.cost_s);
    cJSON_AddNumberToObject(json, "planned_step_s", r->mine.step_s);
    cJSON_AddNumberToObject(json, "steps_per_s", sum > 0 ? (double)r->steps / sum : 0);
    if (r->program->rows > 0)
        cJSON_AddNumberToObject(json, "rows_per_s",
                                sum > 0 ? (double)(r->steps * r->program->rows) / sum : 0);
}

/* A step of this rank, by kind: planned beside measured. */
static cJSON *json_kinds(const run_rank *r)
{
    run_kind kinds[RUN_KINDS];
    cJSON *list = cJSON_CreateArray();
    for (int i = 0, n = run_kinds(r->plan, kinds); i < n; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "kind", kinds[i].what);
        cJSON_AddBoolToObject(one, "communicates", kinds[i].is_comm);
        cJSON_AddNumberToObject(one, "planned_s", kinds[i].planned_s);
        cJSON_AddNumberToObject(one, "measured_s", kinds[i].measured_s);
        cJSON_AddItemToArray(list, one);
    }
    return list;
}

static cJSON *json_evals(const run_rank *r)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < r->nevals; i++) {
        const run_eval *e = &r->evals[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "step", (double)e->step);
        cJSON_AddNumberToObject(one, "loss", e->mean.loss);
        if (e->mean.has_classes) {
            cJSON_AddNumberToObject(one, "accuracy", e->mean.accuracy);
            cJSON_AddNumberToObject(one, "top5", e->mean.top5);
        }
        cJSON_AddNumberToObject(one, "rows", (double)e->mean.rows);
        cJSON_AddNumberToObject(one, "seconds", e->seconds);
        cJSON_AddItemToArray(list, one);
    }
    return list;
}

static cJSON *json_fetch(const run_rank *r, const tsri_fetch *f)
{
    cJSON *json = cJSON_CreateObject(), *shape = cJSON_CreateArray();
    char name[512], sbp[TSR_SBP_TEXT_MAX];
    cJSON_AddStringToObject(json, "name", f->name);
    cJSON_AddStringToObject(json, "dtype", tsr_dtype_name(f->dtype));
    for (int i = 0; i < f->dims.ndim; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)f->dims.d[i]));
    cJSON_AddItemToObject(json, "shape", shape);
    if (!r->job->out)
        return json;
    snprintf(name, sizeof name, "%s.npy", f->name);
    cJSON_AddStringToObject(json, "file", name);
    if (!f->shard)
        return json;
    tsr_port port = run_port(r, f->shard);
    cJSON *shards = cJSON_CreateArray();
    cJSON_AddStringToObject(json, "placement", tsr_placement_text(port.placement));
    cJSON_AddStringToObject(json, "sbp", tsr_sbp_format(port.sbp, sbp));
    for (int i = 0; i < tsr_placement_nranks(port.placement); i++) {
        snprintf(name, sizeof name, "%s.rank%d.npy", f->name,
                 tsr_placement_rank(port.placement, i));
        cJSON_AddItemToArray(shards, cJSON_CreateString(name));
    }
    cJSON_AddItemToObject(json, "shards", shards);
    return json;
}

cJSON *run_make_result(const run_rank *r)
{
    cJSON *json = cJSON_CreateObject(), *fetches = cJSON_CreateArray(),
          *ranks = cJSON_CreateArray();
    int n = tsr_world_size(r->world);
    cJSON_AddStringToObject(json, "file", r->job->path);
    cJSON_AddNumberToObject(json, "ranks", n);
    cJSON_AddNumberToObject(json, "steps", (double)r->steps);
    if (r->first > 0)
        cJSON_AddNumberToObject(json, "after_step", (double)r->first);
    if (r->first + r->steps < r->planned && r->job->stopped_by) {
        char name[32];
        cJSON *stop = cJSON_CreateObject();
        snprintf(name, sizeof name, "SIG%s", sigabbrev_np(r->job->stopped_by));
        cJSON_AddStringToObject(stop, "signal", name);
        cJSON_AddNumberToObject(stop, "step", (double)(r->first + r->steps));
        cJSON_AddNumberToObject(stop, "planned_steps", (double)r->planned);
        cJSON_AddItemToObject(json, "interrupted", stop);
    }
    if (r->failure[0]) {
        cJSON *failed = cJSON_CreateObject();
        cJSON_AddStringToObject(failed, "error", r->failure);
        cJSON_AddNumberToObject(failed, "step", (double)(r->first + r->steps + 1));
        cJSON_AddNumberToObject(failed, "planned_steps", (double)r->planned);
        cJSON_AddItemToObject(json, "failed", failed);
    }
    if (r->program->rows > 0)
        cJSON_AddNumberToObject(json, "rows", (double)r->program->rows);
    if (r->losses)
        cJSON_AddItemToObject(json, "losses", cJSON_CreateDoubleArray(r->losses, (int)r->steps));
    if (r->nevals > 0)
        cJSON_AddItemToObject(json, "evaluations", json_evals(r));
    add_times(json, r);
    cJSON_AddItemToObject(json, "step_by_kind", json_kinds(r));
    cJSON_AddItemToObject(json, "collectives", json_collectives(r, r->all, n));
    for (int i = 0; i < r->program->nfetches; i++)
        cJSON_AddItemToArray(fetches, json_fetch(r, &r->program->fetches[i]));
    cJSON_AddItemToObject(json, "fetches", fetches);
    for (int i = 0; i < n; i++)
        if (!r->is_alone || i == tsr_world_rank(r->world))
            cJSON_AddItemToArray(ranks, json_rank(r, i));
    cJSON_AddItemToObject(json, "per_rank", ranks);
    cJSON_AddNumberToObject(json, "process_peak_bytes", run_process_bytes("VmHWM:"));
    return json;
}

/* A trace that an earlier run has left there is not of this result. */
tsr_status run_write_result(const run_rank *r)
{
    char path[PATH_MAX_];
    TSRI_TRY(path_of(r, "trace", ".json", path));
    if (!r->is_traced)
        unlink(path);
    TSRI_TRY(path_of(r, "result", ".json", path));
    return cli_write_json(run_make_result(r), path);
}
