/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of values, placements and modules, by which the rest of the JSON names them. */
#include "src/cli/plan/json.h"

#include "placement/placement.h"
#include "src/core/rng.h"

#include <string.h>

enum { BUCKETS = 4096 };

/* A module of the program, by its qualified name; the first one is the program itself, "". */
typedef struct plan_module {
    const char *path;
    int parent, next; /* next: of its hash */
} plan_module;

/* --- modules ---------------------------------------------------------------------------------- */
static int find_module(const plan_json *j, const char *path, size_t length)
{
    int m = j->module_buckets[tsri_hash(TSRI_HASH_INIT, path, length) % BUCKETS];
    while (m >= 0 && (strncmp(j->modules[m].path, path, length) || j->modules[m].path[length]))
        m = j->modules[m].next;
    return m;
}

/* The length of the path without its last name; 0 of a path of one name. */
static size_t parent_length(const char *path, size_t length)
{
    while (length > 0 && path[--length] != '.')
        ;
    return length;
}

static int add_module(plan_json *j, const char *path, size_t length)
{
    int found = find_module(j, path, length);
    if (found >= 0)
        return found;
    int parent = length ? add_module(j, path, parent_length(path, length)) : -1;
    char *copy = tsri_pool_printf(&j->pool, "%.*s", (int)length, path);
    j->failed |= !copy || !TSRI_PUSH(&j->pool, j->modules, j->nmodules, j->cmodules);
    if (j->failed)
        return 0;
    int *bucket = &j->module_buckets[tsri_hash(TSRI_HASH_INIT, path, length) % BUCKETS];
    j->modules[j->nmodules] = (plan_module){copy, parent, *bucket};
    *bucket = j->nmodules;
    return j->nmodules++;
}

/* Whether a row is called by a variable instead of a module. */
static bool is_of_variable(const tsri_report_row *row)
{
    return row->kind == TSRI_REPORT_SOURCE || (row->item && tsri_item_is_update(row->item));
}

int plan_json_module(plan_json *j, const tsri_report_row *row)
{
    const char *name = row->kind == TSRI_REPORT_BOX && row->item->nin > 1 ? "" : row->name;
    size_t length = strlen(name);
    int found = find_module(j, name, length);
    while (found < 0 && length > 0) {
        length = parent_length(name, length);
        found = find_module(j, name, length);
    }
    return found < 0 ? 0 : found;
}

cJSON *plan_json_modules(plan_json *j)
{
    cJSON *json = cJSON_CreateArray();
    for (int i = 0; i < j->nmodules; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "id", i);
        cJSON_AddStringToObject(one, "path", j->modules[i].path);
        if (j->modules[i].parent >= 0)
            cJSON_AddNumberToObject(one, "parent", j->modules[i].parent);
        cJSON_AddItemToArray(json, one);
    }
    return json;
}

/* --- numbers ---------------------------------------------------------------------------------- */
static void number_value(plan_json *j, int value)
{
    if (j->value_id[value] >= 0)
        return;
    j->value_id[value] = 0; /* its own number comes in the plan's order */
    number_value(j, tsri_ir_root(&j->plan->ir, value));
}

/* Modules are where parameters and buffers are, and what names of ops have before and behind a dot;
 * another name is a tensor's. */
static void add_row_module(plan_json *j, const tsri_report_row *row)
{
    const tsr_variable *v = row->item ? NULL : j->plan->ir.values[row->value].variable;
    if (v && v->scope)
        add_module(j, row->name, parent_length(row->name, strlen(row->name)));
    else if (row->kind == TSRI_REPORT_OP && !is_of_variable(row) && strchr(row->name, '.'))
        add_module(j, row->name, strlen(row->name));
}

static void number_rows(plan_json *j)
{
    const tsri_report *r = j->report;
    add_module(j, "", 0);
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        const tsri_item *it = row->item;
        if (!it)
            number_value(j, row->value);
        else
            j->row_of[it - j->plan->ir.items] = i;
        for (int k = 0; it && k < it->nin; k++)
            number_value(j, it->in[k]);
        for (int k = 0; it && k < it->nout; k++)
            number_value(j, it->out[k]);
        add_row_module(j, row);
    }
}

void plan_json_number(plan_json *j)
{
    const tsr_plan *plan = j->plan;
    j->value_id = tsri_pool_alloc(&j->pool, ((size_t)plan->ir.nvalues + 1) * sizeof(int));
    j->row_of = tsri_pool_alloc(&j->pool, ((size_t)plan->ir.nitems + 1) * sizeof(int));
    j->module_buckets = tsri_pool_alloc(&j->pool, BUCKETS * sizeof(int));
    j->failed |= !j->value_id || !j->row_of || !j->module_buckets;
    if (j->failed)
        return;
    memset(j->value_id, -1, (size_t)plan->ir.nvalues * sizeof(int));
    memset(j->row_of, -1, (size_t)plan->ir.nitems * sizeof(int));
    memset(j->module_buckets, -1, BUCKETS * sizeof(int));
    number_rows(j);
    for (int i = 0; i < plan->ir.nvalues; i++)
        if (j->value_id[i] >= 0)
            j->value_id[i] = j->nvalues++;
}

/* --- placements ------------------------------------------------------------------------------- */
int plan_json_placement(plan_json *j, const tsr_placement *p)
{
    for (int i = 0; i < j->nplacements; i++)
        if (j->placements[i] == p)
            return i;
    j->failed |= !TSRI_PUSH(&j->pool, j->placements, j->nplacements, j->cplacements);
    if (j->failed)
        return 0;
    j->placements[j->nplacements] = p;
    return j->nplacements++;
}

/* The names of a mesh's dimensions. */
static cJSON *axes_of(const tsr_placement *p)
{
    cJSON *axes = cJSON_CreateArray();
    for (int d = 0; d < tsr_placement_ndim(p); d++)
        cJSON_AddItemToArray(axes, cJSON_CreateString(tsri_placement_axis(p, d)));
    return axes;
}

cJSON *plan_json_placements(plan_json *j)
{
    cJSON *json = cJSON_CreateArray();
    for (int i = 0; i < j->nplacements; i++) {
        const tsr_placement *p = j->placements[i];
        cJSON *one = cJSON_CreateObject(), *dims = cJSON_CreateArray(),
              *ranks = cJSON_CreateArray();
        for (int d = 0; d < tsr_placement_ndim(p); d++)
            cJSON_AddItemToArray(dims, cJSON_CreateNumber(tsr_placement_dim(p, d)));
        for (int k = 0; k < tsr_placement_nranks(p); k++)
            cJSON_AddItemToArray(ranks, cJSON_CreateNumber(tsr_placement_rank(p, k)));
        cJSON_AddNumberToObject(one, "id", i);
        cJSON_AddStringToObject(one, "device", tsr_device_name(tsr_placement_device(p)));
        cJSON_AddItemToObject(one, "hierarchy", dims);
        cJSON_AddItemToObject(one, "ranks", ranks);
        if (tsri_placement_axis(p, 0))
            cJSON_AddItemToObject(one, "axes", axes_of(p));
        cJSON_AddItemToArray(json, one);
    }
    return json;
}

/* --- values ----------------------------------------------------------------------------------- */
static const char *memory_name(const tsri_report *r, int value)
{
    static const char *const names[] = {"parameters",  "masters",        "buffers",
                                        "optimizer",   "inputs_outputs", "gradients",
                                        "activations", "communication"};
    return tsri_value_takes_memory(&r->plan->ir.values[value]) ? names[r->kind_of[value]] : NULL;
}

static void add_memory(plan_json *j, cJSON *json, int value)
{
    const tsri_report *r = j->report;
    const tsri_value *v = &j->plan->ir.values[value];
    const char *memory = memory_name(r, value);
    int root = tsri_ir_root(&j->plan->ir, value);
    if (root != value)
        cJSON_AddNumberToObject(json, "shares", j->value_id[root]);
    if (!memory)
        return;
    cJSON *bytes = cJSON_AddArrayToObject(json, "bytes");
    for (int m = 0; m < r->nmemory; m++) {
        const size_t room = tsri_value_room(v, tsri_value_bytes(v, r->memory[m].rank));
        cJSON_AddItemToArray(bytes, cJSON_CreateNumber((double)room));
    }
    if (v->slots > 1)
        cJSON_AddNumberToObject(json, "copies", v->slots);
    cJSON_AddStringToObject(json, "memory", memory);
    if (v->storage == TSRI_STORAGE_ARENA) {
        const int alive[2] = {v->first, v->last};
        cJSON_AddItemToObject(json, "alive", cJSON_CreateIntArray(alive, 2));
    }
}

static cJSON *value_json(plan_json *j, int value)
{
    const tsri_value *v = &j->plan->ir.values[value];
    cJSON *json = cJSON_CreateObject(), *shape = cJSON_CreateArray();
    char sbp[TSRI_LAYOUT_TEXT_MAX];
    for (int i = 0; i < v->shape.ndim; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)v->shape.d[i]));
    cJSON_AddNumberToObject(json, "id", j->value_id[value]);
    cJSON_AddStringToObject(json, "name", v->name ? v->name : "");
    cJSON_AddStringToObject(json, "dtype", tsr_dtype_name(v->dtype));
    cJSON_AddItemToObject(json, "shape", shape);
    cJSON_AddStringToObject(json, "sbp", tsri_layout_format(&v->layout, sbp));
    cJSON_AddNumberToObject(json, "placement", plan_json_placement(j, v->placement));
    const tsri_mesh mesh = tsri_mesh_of(v->placement);
    cJSON_AddItemToObject(json, "pieces", page_pieces(&j->splits, v->shape, &mesh, &v->layout));
    if (v->storage == TSRI_STORAGE_PORT && v->port >= 0 && j->plan->ir.ports[v->port].is_output)
        cJSON_AddStringToObject(json, "output", j->plan->ir.ports[v->port].info.name);
    add_memory(j, json, value);
    return json;
}

cJSON *plan_json_values(plan_json *j)
{
    cJSON *json = cJSON_CreateArray();
    for (int i = 0; i < j->plan->ir.nvalues; i++)
        if (j->value_id[i] >= 0)
            cJSON_AddItemToArray(json, value_json(j, i));
    return json;
}
