/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: an experiment in a world. */
#include "src/config/program.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "placement/placement.h"
#include "src/config/rules/stages.h"
#include "src/core/world.h"

/* --- errors ----------------------------------------------------------------------------------- */
static bool has_variant(const tsri_section *s, const char *name, size_t n)
{
    for (int i = 0; i < s->nvariants; i++)
        if (!strncmp(s->variants[i].name, name, n) && !s->variants[i].name[n])
            return true;
    return false;
}

/* How much of the name of a call stands before the word that a file has for it; 0: it has none. */
static size_t c_prefix(const char *text, size_t n)
{
    const tsri_section *const named[] = {&tsri_op_section, &tsri_model_section,
                                         &tsri_optimizer_section};
    if (n > 7 && !strncmp(text, "tsr_nn_", 7) && has_variant(&tsri_layer_section, text + 7, n - 7))
        return 7;
    for (int i = 0; i < 3 && n > 4 && !strncmp(text, "tsr_", 4); i++)
        if (has_variant(named[i], text + 4, n - 4))
            return 4;
    return 0;
}

static size_t word_length(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_')
        n++;
    return n;
}

/* Puts what a file says in the place of a C call or constant at `text`; returns how long that is,
 * 0: there is none. "tsr_cast(x, TSR_F32)" is "{op: cast, dtype: f32}", "tsr_reshape" is "reshape".
 */
static size_t translate(const char *text, char *out, size_t room)
{
    char dtype[8];
    int used = 0;
    if (sscanf(text, "tsr_cast(%*[a-z], TSR_%7[A-Z0-9])%n", dtype, &used) == 1 && used) {
        for (char *c = dtype; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        snprintf(out, room, "{op: cast, dtype: %s}", dtype);
        return (size_t)used;
    }
    const size_t n = word_length(text);
    if (n > 4 && !strncmp(text, "TSR_", 4)) {
        snprintf(out, room, "%.*s", (int)(n - 4), text + 4);
        for (char *c = out; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        return n;
    }
    const size_t prefix = c_prefix(text, n);
    snprintf(out, room, "%.*s", (int)(n - prefix), text + prefix);
    return prefix ? n : 0;
}

/* Says in a file's words what an error of a call says in those of C. */
static void use_words_of_file(char *text, size_t room)
{
    const size_t name = word_length(text); /* of the call, where no word of files is it */
    if (!strncmp(text, "tsr_", 4) && !strncmp(text + name, ": ", 2) && !c_prefix(text, name))
        memmove(text, text + name + 2, strlen(text + name + 2) + 1);
    char said[1600], word[200];
    size_t used = 0;
    bool begins = true; /* a word; those of file names and in quotes are the user's own */
    for (const char *at = text; *at && used + sizeof word < sizeof said;) {
        size_t n = begins ? translate(at, word, sizeof word) : 0;
        if (n &&
            (at[n] == '/' || at[n] == '-' || (at[n] == '.' && isalnum((unsigned char)at[n + 1]))))
            n = 0;
        if (n)
            used += (size_t)snprintf(said + used, sizeof said - used, "%s", word);
        else
            said[used++] = *at;
        at += n ? n : 1;
        begins = at[-1] == ' ' || at[-1] == '(';
    }
    said[used] = 0;
    snprintf(text, room, "%s", said);
}

tsr_status tsri_program_fail(const tsri_yaml *node, tsr_status status)
{
    char text[1600], path[TSRI_YAML_TEXT_MAX], place[400];
    if (status == TSR_OK || status == TSR_ERR_NO_MEMORY || !node)
        return status;
    snprintf(text, sizeof text, "%s", tsr_last_error());
    tsri_yaml_path(node, path);
    /* The library's own "file:line: " of this entry says less. */
    int n = snprintf(place, sizeof place, "%.300s:%d: ", tsri_basename(node->file),
                     node->key_line ? node->key_line : node->line);
    if (!strncmp(text, place, (size_t)n))
        memmove(text, text + n, strlen(text + n) + 1);
    use_words_of_file(text, sizeof text);
    return tsri_fail(status, "%.300s:%d:%d: %s%s%s", node->file, node->line, node->column, path,
                     path[0] ? ": " : "", text);
}

tsr_status tsri_program_placement(const tsri_program *p, const tsri_config_placement *from,
                                  const tsr_placement **out_placement)
{
    *out_placement = tsr_placement_create(p->world, (tsr_device)(from->device + 1),
                                          from->ranks.ndim, from->ranks.dim, from->ranks.ranks);
    if (!*out_placement)
        return tsri_program_fail(from->head.node, TSR_ERR_PLACEMENT);
    return from->mesh.ndim ? tsri_placement_name_axes(*out_placement, from->mesh.name) : TSR_OK;
}

/* The entry that says cuda: the placement's, or the mesh's, or the cluster whose GPU it is. */
static const tsri_yaml *device_node(const tsri_experiment *e, const tsri_config_placement *from)
{
    const tsri_yaml *holder = e->mesh.ndim ? e->head.node : from->head.node;
    const tsri_yaml *said = tsri_yaml_find(holder, "device");
    return said ? said : tsri_section_node(e, "cluster");
}

tsr_status tsri_program_say_device(const tsri_program *p, tsr_status status)
{
    const tsri_experiment *e = p->experiment;
    const tsri_config_placement *from = e->placements.items;
    for (int i = 0; i < e->placements.n && status != TSR_OK; i++) {
        const tsr_device kind = (tsr_device)(from[i].device + 1);
        tsri_device *device;
        bool mine = false;
        for (int r = 0; r < from[i].ranks.n; r++)
            mine |= from[i].ranks.ranks[r] == tsr_world_rank(p->world);
        if (!mine || tsri_target_can(kind, TSRI_CAN_HOST_MEMORY) ||
            tsri_device_get(p->world, kind, &device) == TSR_OK)
            continue;
        char why[1200];
        snprintf(why, sizeof why, "%s", tsr_last_error());
        status = tsri_fail(status,
                           "%s can't be used here; --set %s%s%sdevice=cpu computes without a "
                           "GPU, and `tessera plan` needs none\n  %s",
                           tsr_device_name(kind), e->mesh.ndim ? "" : "placements.",
                           e->mesh.ndim ? "" : from[i].head.name, e->mesh.ndim ? "" : ".", why);
        return tsri_program_fail(device_node(e, &from[i]), status);
    }
    return status;
}

static tsr_status read_sbp(const tsri_yaml *node, const tsr_placement *p, tsr_sbp *sbp)
{
    const char *axis[TSR_MAX_HIERARCHY] = {NULL};
    int ndim = tsr_placement_ndim(p);
    for (int d = 0; d < ndim; d++)
        axis[d] = tsri_placement_axis(p, d);
    if (sbp->ndim == TSRI_SBP_NAMED)
        return tsri_sbp_by_axes(node, tsr_placement_text(p), axis[0] ? ndim : 0, axis,
                                TSR_SBP_BROADCAST, sbp);
    *sbp = tsri_sbp_extend(*sbp, ndim);
    return TSR_OK;
}

tsr_status tsri_program_sbp(const tsri_program *p, const tsri_yaml *node,
                            const tsr_placement *where, tsr_sbp *sbp)
{
    if (!tsri_stages_have(p, where))
        return read_sbp(node, where, sbp);
    if (sbp->ndim == TSRI_SBP_NAMED)
        TSRI_TRY(read_sbp(node, p->inside->stages.mesh, sbp));
    if (sbp->ndim == tsr_placement_ndim(p->inside->stages.mesh))
        TSRI_TRY(tsri_stages_sbp(p, node, sbp));
    return read_sbp(node, where, sbp);
}

/* --- building --------------------------------------------------------------------------------- */
static tsr_status build(tsri_program *p, int64_t steps)
{
    const tsri_experiment *e = p->experiment;
    if (e->nranks > tsr_world_size(p->world))
        return tsri_program_fail(tsri_yaml_find(e->head.node, "placements"),
                                 tsri_fail(TSR_ERR_PLACEMENT,
                                           "the placements name ranks up to %d; the world has %d",
                                           e->nranks - 1, tsr_world_size(p->world)));
    /* All of the file's placements, in its order, whether they are used or not. */
    const tsri_config_placement *places = e->placements.items;
    for (int i = 0; i < e->placements.n; i++) {
        const tsr_placement *made;
        TSRI_TRY(tsri_program_placement(p, &places[i], &made));
    }
    bool training = e->trains || tsri_section_has(&tsri_experiment_section, e, "loss");
    p->graph =
        tsr_graph_create(p->world, TSR_GRAPH_OPTS(.training = training, .seed = e->train.seed,
                                                  .autocast = tsri_config_autocast(e)));
    TSRI_NEED(p->graph);
    bool has_data = tsri_section_has(&tsri_experiment_section, e, "data");
    const bool has_model = tsri_section_has(&tsri_experiment_section, e, "model");
    if (has_model)
        TSRI_TRY(tsri_program_build_training(p, steps));
    else
        TSRI_TRY(tsri_program_build_graph(p, steps));
    if (e->trains && !has_model && tsri_section_has(&tsri_train_section, &e->train, "eval"))
        TSRI_TRY(tsri_program_try_eval(p));
    if (!has_data)
        p->steps = steps > 0                                                   ? steps
                   : tsri_section_has(&tsri_train_section, &e->train, "steps") ? e->train.steps
                                                                               : 1;
    return tsr_graph_status(p->graph);
}

static tsr_status make(const tsri_experiment *e, tsr_world *world, const tsri_program_opts *opts,
                       bool in_one_stage, tsri_program **out_program)
{
    tsri_program *p = tsri_mem_alloc(&world->mem, sizeof *p);
    tsri_program_inside *inside = tsri_mem_alloc(&world->mem, sizeof *inside);
    if (!p || !inside) {
        tsri_mem_free(p);
        tsri_mem_free(inside);
        return TSR_ERR_NO_MEMORY;
    }
    tsri_pool_init(&inside->pool, &world->mem);
    inside->no_data = world->is_virtual || (opts && opts->no_data);
    inside->shards = opts && opts->shards;
    inside->compile = opts ? opts->compile : NULL;
    inside->stages.is_one = in_one_stage;
    p->inside = inside;
    p->world = world;
    p->experiment = e;
    tsri_error_clear();
    tsr_status status = build(p, opts ? opts->steps : 0);
    if (status != TSR_OK) {
        tsri_program_destroy(p);
        return status;
    }
    p->fetches = inside->fetches;
    *out_program = p;
    return TSR_OK;
}

tsr_status tsri_program_build(const tsri_experiment *e, tsr_world *world,
                              const tsri_program_opts *opts, tsri_program **out_program)
{
    if (!e || !world || !out_program)
        return tsri_fail(TSR_ERR_INVALID, "tsri_program_build: the %s is NULL",
                         !e       ? "experiment"
                         : !world ? "world"
                                  : "result's place");
    return make(e, world, opts, false, out_program);
}

tsr_status tsri_program_build_in_one_stage(const tsri_experiment *e, tsr_world *world,
                                           tsri_program **out_program)
{
    return make(e, world, NULL, true, out_program);
}

void tsri_program_destroy(tsri_program *p)
{
    if (!p)
        return;
    tsr_program_destroy(p->inside->evaluator);
    tsri_program_part_close(&p->inside->test);
    tsri_program_part_close(&p->inside->train);
    tsr_graph_destroy(p->graph);
    tsr_optimizer_destroy(p->optimizer);
    tsr_grad_scaler_destroy(p->scaler);
    tsr_module_destroy(p->module);
    tsri_pool_finish(&p->inside->pool);
    tsri_mem_free(p->inside);
    tsri_mem_free(p);
}

/* --- feeding ---------------------------------------------------------------------------------- */
tsr_status tsri_program_feed_value(tsri_program *p, tsr_plan *plan, const tsri_config_feed *f)
{
    void *data;
    size_t bytes;
    if (f->op->locals && f->local < 0)
        return TSR_OK; /* this rank isn't part of the placement */
    TSRI_TRY(tsri_value_make(p, f, &data, &bytes));
    tsr_status status = f->variable     ? tsr_variable_set(f->variable, data, bytes)
                        : f->op->locals ? tsr_feed_shard(plan, f->name, data, bytes)
                                        : tsr_feed(plan, f->name, data, bytes);
    tsri_mem_free(data);
    return status;
}

tsr_status tsri_program_start(tsri_program *p, tsr_plan *plan)
{
    const tsri_config_train *t = &p->experiment->train;
    if (p->inside->started)
        return TSR_OK;
    p->inside->started = true;
    if (p->module && p->experiment->trains && t->init) {
        tsr_status status = tsr_load(p->module, t->init, NULL);
        if (status != TSR_OK)
            return tsri_program_fail(tsri_section_node(t, "init"), status);
    }
    /* Weights that were loaded stay. */
    for (int i = 0; i < p->inside->nfeeds; i++)
        if (!p->inside->feeds[i].variable || !p->experiment->trains || !t->init)
            TSRI_TRY(tsri_program_feed_value(p, plan, &p->inside->feeds[i]));
    return TSR_OK;
}

tsr_status tsri_program_feed(tsri_program *p, tsr_plan *plan)
{
    if (!p || !plan)
        return tsri_fail(TSR_ERR_INVALID, "tsri_program_feed: the %s is NULL",
                         p ? "plan" : "program");
    if (p->inside->no_data)
        return tsri_fail(TSR_ERR_STATE, "tsri_program_feed: the program was built without data");
    TSRI_TRY(tsri_program_start(p, plan));
    if (!p->loader)
        return TSR_OK;
    tsr_status status = tsr_loader_feed(p->loader, plan);
    return status == TSR_END ? tsr_loader_feed(p->loader, plan) : status;
}
