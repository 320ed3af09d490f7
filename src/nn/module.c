/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of modules. */
#include "src/nn/module.h"

#include <stdio.h>

#include "placement/placement.h"
#include "src/core/live.h"
#include "src/core/near.h"
#include "src/core/rng.h"
#include "src/nn/place.h"
#include "src/nn/safetensors_text.h"
#include "src/graph/variable.h"

static void destroy_module(void *object)
{
    tsr_module *m = object;
    tsri_world_disown(&m->owned);
    tsri_live_remove(m, TSRI_LIVE_MODULE);
    for (tsr_module *c = m->first_child, *next; c; c = next) {
        next = c->sibling;
        destroy_module(c);
    }
    for (tsr_variable *v = m->first_variable, *next; v; v = next) {
        next = v->next;
        tsri_variable_destroy(v);
    }
    if (m->free_arg)
        m->free_arg(m->arg);
    tsri_mem_free(m->children);
    tsri_mem_free(m->slots);
    tsri_mem_free(m->scope.name);
    tsri_mem_free(m->error);
    tsri_mem_free(m);
}

/* On failure `arg` is freed, as it is with a module. */
static tsr_module *create(tsr_world *world, const tsr_nn_opts *opts, void *arg,
                          void (*free_arg)(void *), const char *who)
{
    tsr_module *m = NULL;
    if (!world)
        tsri_fail(TSR_ERR_INVALID, "%s: the world is NULL", who);
    else if (!tsri_is_live(world, TSRI_LIVE_WORLD, who) ||
             (opts && tsri_placement_check(world, opts->placement, who) != TSR_OK))
        ; /* it has said so */
    else if (opts && opts->dtype && !tsr_dtype_size(opts->dtype))
        tsri_fail(TSR_ERR_DTYPE, "%s: %d is no dtype", who, (int)opts->dtype);
    else
        m = tsri_live_alloc(&world->mem, sizeof *m, TSRI_LIVE_MODULE);
    if (m && !(m->scope.name = tsri_mem_strdup(&world->mem, ""))) {
        tsri_live_free(m, TSRI_LIVE_MODULE);
        m = NULL;
    }
    if (!m) {
        if (free_arg)
            free_arg(arg);
        return NULL;
    }
    m->world = world;
    if (opts)
        m->opts = *opts;
    if (!m->opts.dtype)
        m->opts.dtype = TSR_F32;
    m->arg = arg;
    m->free_arg = free_arg;
    tsri_world_own(world, &m->owned, m, destroy_module);
    return m;
}

tsr_module *tsr_module_create(tsr_world *world, const tsr_nn_opts *opts, tsr_forward_fn *forward,
                              void *arg, void (*free_arg)(void *))
{
    tsr_module *m = create(world, opts, arg, free_arg, __func__);
    if (m)
        m->forward = forward;
    return m;
}

tsr_module *tsr_module_create_n(tsr_world *world, const tsr_nn_opts *opts,
                                tsr_forward_n_fn *forward, void *arg, void (*free_arg)(void *))
{
    tsr_module *m = NULL;
    if (forward)
        m = create(world, opts, arg, free_arg, __func__);
    else {
        tsri_fail(TSR_ERR_INVALID, "tsr_module_create_n: the forward function is NULL");
        if (free_arg)
            free_arg(arg);
    }
    if (m)
        m->forward_n = forward;
    return m;
}

void tsr_module_destroy(tsr_module *m)
{
    /* A child goes with its parent. */
    if (tsri_is_live(m, TSRI_LIVE_MODULE, __func__) && !m->scope.parent)
        destroy_module(m);
}

void tsri_module_break(tsr_module *m, tsr_status status)
{
    if (m && m->status == TSR_OK) {
        m->status = status;
        m->error = tsri_mem_strdup(NULL, tsr_last_error());
    }
}

/* --- children by name ------------------------------------------------------------------------- */
/* Fewer children are searched one by one. */
enum { HASHED_FROM = 16 };

/* Returns the slot of the child with the first n bytes of a name, or the free one where it goes. */
static tsr_module **child_slot(const tsr_module *m, const char *name, size_t n)
{
    const uint32_t mask = m->nslots - 1;
    uint32_t i = (uint32_t)tsri_hash(0, name, n) & mask;
    while (m->slots[i] &&
           (strncmp(m->slots[i]->scope.name, name, n) != 0 || m->slots[i]->scope.name[n]))
        i = (i + 1) & mask;
    return &m->slots[i];
}

static tsr_module *child_of(const tsr_module *m, const char *name, size_t n)
{
    if (m->nslots)
        return *child_slot(m, name, n);
    tsr_module *c = m->first_child;
    while (c && (strncmp(c->scope.name, name, n) != 0 || c->scope.name[n]))
        c = c->sibling;
    return c;
}

static void put_in_slot(tsr_module *m, tsr_module *child)
{
    *child_slot(m, child->scope.name, strlen(child->scope.name)) = child;
}

/* Makes room for one more child. */
static tsr_status reserve_child(tsr_module *m)
{
    const uint32_t n = m->nchildren;
    if (!(n & (n - 1))) { /* 0, or all of a power of two */
        tsr_module **more = tsri_mem_realloc(&m->world->mem, m->children,
                                             (n ? 2 * (size_t)n : 1) * sizeof(tsr_module *));
        TSRI_NEED(more);
        m->children = more;
    }
    if (n + 1 < HASHED_FROM || 2 * (n + 1) <= m->nslots)
        return TSR_OK;
    const uint32_t nslots = m->nslots ? 2 * m->nslots : 4 * HASHED_FROM;
    tsr_module **slots = tsri_mem_alloc(&m->world->mem, nslots * sizeof(tsr_module *));
    TSRI_NEED(slots);
    tsri_mem_free(m->slots);
    m->slots = slots;
    m->nslots = nslots;
    for (tsr_module *c = m->first_child; c; c = c->sibling)
        put_in_slot(m, c);
    return TSR_OK;
}

/* Names stand between dots in qualified names, and once among children and variables. */
static tsr_status check_name(const tsr_module *m, const char *what, const char *name)
{
    char own[TSRI_NAME_MAX];
    tsri_scope_qualified_name(&m->scope, own, sizeof own);
    if (!name || !name[0] || strpbrk(name, ".\n") || !tsri_utf8_valid(name, strlen(name)))
        return tsri_fail(TSR_ERR_INVALID,
                         "module '%s': %s name '%s': names are UTF-8, not empty, and have no dots "
                         "and ends of lines",
                         own, what, name ? name : "(NULL)");
    if (strlen(own) + strlen(name) + 2 > TSRI_NAME_MAX)
        return tsri_fail(TSR_ERR_INVALID,
                         "module '%s': %s name '%s': qualified names have at most %d characters",
                         own, what, name, TSRI_NAME_MAX - 1);
    bool taken = tsri_module_child(m, name);
    for (const tsr_variable *v = m->first_variable; v && !taken; v = v->next)
        taken = !strcmp(v->name, name);
    return taken ? tsri_fail(TSR_ERR_INVALID, "module '%s' has a '%s' already", own, name) : TSR_OK;
}

static bool is_ancestor(const tsr_module *m, const tsr_module *of)
{
    while (of && of != m)
        of = tsri_module_parent(of);
    return of;
}

static tsr_status check_child(const tsr_module *parent, const char *name, const tsr_module *child)
{
    TSRI_TRY(check_name(parent, "child", name));
    if (child->world != parent->world)
        return tsri_fail(TSR_ERR_INVALID, "child '%s' belongs to another world", name);
    if (is_ancestor(child, parent))
        return tsri_fail(TSR_ERR_INVALID, "child '%s' would be its own ancestor", name);
    return TSR_OK;
}

tsr_module *tsr_module_add(tsr_module *parent, const char *name, tsr_module *child)
{
    if (tsri_live_check(parent, TSRI_LIVE_MODULE, "tsr_module_add") != TSR_OK ||
        tsri_live_check(child, TSRI_LIVE_MODULE, "tsr_module_add") != TSR_OK)
        return NULL;
    if (child && child->scope.parent) {
        /* Not ours to destroy. */
        tsri_module_break(parent, tsri_fail(TSR_ERR_INVALID,
                                            "child '%s' has a parent already; share variables with "
                                            "tsr_use in a forward function instead",
                                            name ? name : "(NULL)"));
        return NULL;
    }
    if (!parent || !child) {
        if (!tsri_error_cause()[0])
            tsri_fail(TSR_ERR_INVALID, "tsr_module_add: the %s is NULL",
                      parent ? "child" : "parent");
        tsri_module_break(parent, TSR_ERR_INVALID);
        tsr_module_destroy(child);
        return NULL;
    }
    tsr_status status = check_child(parent, name, child);
    if (status == TSR_OK)
        status = reserve_child(parent);
    char *copy = status == TSR_OK ? tsri_mem_strdup(&parent->world->mem, name) : NULL;
    if (!copy) {
        tsri_module_break(parent, status != TSR_OK ? status : TSR_ERR_NO_MEMORY);
        if (!is_ancestor(child, parent))
            tsr_module_destroy(child);
        return NULL;
    }
    tsri_world_disown(&child->owned);
    tsri_mem_free(child->scope.name);
    child->scope.name = copy;
    child->scope.parent = &parent->scope;
    if (parent->last_child)
        parent->last_child->sibling = child;
    else
        parent->first_child = child;
    parent->last_child = child;
    parent->children[parent->nchildren++] = child;
    if (parent->nslots)
        put_in_slot(parent, child);
    return child;
}

tsr_module *tsri_module_child(const tsr_module *m, const char *name)
{
    return child_of(m, name, strlen(name));
}

/* Tells which child a module has not, and the nearest name that it has, or else all of them. */
static void say_no_child(const tsr_module *m, const char *name)
{
    char own[TSRI_NAME_MAX], known[256] = "";
    const tsr_module *near = NULL;
    int distance = 1 + (int)strlen(name) / 2;
    size_t used = 0;
    tsri_scope_qualified_name(&m->scope, own, sizeof own);
    for (const tsr_module *c = m->first_child; c; c = c->sibling) {
        int d = tsri_edit_distance(name, c->scope.name, distance);
        near = d < distance ? c : near;
        distance = d < distance ? d : distance;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     c->scope.name);
    }
    tsri_fail(TSR_ERR_INVALID, "%s%s%s has no child '%.100s'; %s%s%s",
              own[0] ? "module '" : "the model", own, own[0] ? "'" : "", name,
              near ? "did you mean '" : "it has ",
              near       ? near->scope.name
              : known[0] ? known
                         : "none",
              near ? "'?" : "");
}

tsr_module *tsr_module_child(const tsr_module *m, const char *name)
{
    if (!tsri_is_live(m, TSRI_LIVE_MODULE, __func__) || !name)
        return NULL;
    tsr_module *c = tsri_module_child(m, name);
    if (!c)
        say_no_child(m, name);
    return c;
}

tsr_module *tsr_module_child_at(const tsr_module *m, int i)
{
    return tsri_is_live(m, TSRI_LIVE_MODULE, __func__) && i >= 0 && (uint32_t)i < m->nchildren
               ? m->children[i]
               : NULL;
}

/* The module's own signature as it suits a variable of these dims: one entry per hierarchy
 * dimension, B where the split axis is not there (a bias under S(1)). */
static tsr_sbp inherited_sbp(const tsr_module *m, tsr_dims dims)
{
    int ndim = tsr_placement_ndim(m->opts.placement);
    return tsri_sbp_for_axes(tsri_sbp_extend(m->opts.sbp, ndim), dims.ndim);
}

tsr_status tsri_module_add_variable(tsr_module *m, const char *name, const tsr_placement *placement,
                                    tsr_dtype dtype, tsr_dims dims, tsr_sbp sbp, tsr_init init,
                                    bool trainable, tsr_variable **out_variable)
{
    const char *what = trainable ? "parameter" : "buffer";
    TSRI_TRY(check_name(m, what, name));
    if (!placement)
        return tsri_fail(TSR_ERR_PLACEMENT,
                         "%s '%s': the module has no placement (tsr_nn_opts.placement is NULL)%s",
                         what, name, tsri_error_cause());
    tsr_variable *v;
    tsr_status status = tsri_variable_create(m->world, name, placement, dtype, dims, sbp, init, &v);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "%s '%s'", what, name);
    v->scope = &m->scope;
    v->trainable = trainable;
    v->seed = m->opts.seed;
    if (m->last_variable)
        m->last_variable->next = v;
    else
        m->first_variable = v;
    m->last_variable = v;
    *out_variable = v;
    return TSR_OK;
}

static tsr_variable *add_or_break(tsr_module *m, const char *name, tsr_dims dims, tsr_sbp sbp,
                                  tsr_init init, bool trainable)
{
    tsr_variable *v = NULL;
    if (!m) {
        if (!tsri_error_cause()[0])
            tsri_fail(TSR_ERR_INVALID, "variable '%s': the module is NULL", name ? name : "(NULL)");
        return NULL;
    }
    if (tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_module_param") != TSR_OK)
        return NULL;
    tsr_status status =
        tsri_module_add_variable(m, name, m->opts.placement, m->opts.dtype, dims,
                                 sbp.ndim ? sbp : inherited_sbp(m, dims), init, trainable, &v);
    if (status != TSR_OK)
        tsri_module_break(m, status);
    return v;
}

tsr_variable *tsr_module_param(tsr_module *m, const char *name, tsr_dims dims, tsr_sbp sbp,
                               tsr_init init)
{
    return add_or_break(m, name, dims, sbp, init, true);
}

tsr_variable *tsr_module_buffer(tsr_module *m, const char *name, tsr_dims dims, tsr_sbp sbp,
                                tsr_init init)
{
    return add_or_break(m, name, dims, sbp, init, false);
}

static bool one_home(const tsr_module *m, const tsr_placement **home)
{
    for (const tsr_variable *v = m->first_variable; v; v = v->next) {
        if (*home && v->placement != *home)
            return false;
        *home = v->placement;
    }
    for (const tsr_module *c = m->first_child; c; c = c->sibling)
        if (!one_home(c, home))
            return false;
    return true;
}

const tsr_placement *tsri_module_home(const tsr_module *m)
{
    const tsr_placement *home = NULL;
    return one_home(m, &home) ? home : NULL;
}

/* --- visiting --------------------------------------------------------------------------------- */
static tsr_status name_too_long(const char *start)
{
    return tsri_fail(TSR_ERR_INVALID,
                     "qualified names have at most %d characters; too long is '%s...'",
                     TSRI_NAME_MAX - 1, start);
}

/* `prefix` ends where the name of m's next part starts; it is restored before returning. */
static tsr_status visit(tsr_module *m, char *prefix, size_t used, tsr_variable_fn *fn, void *arg)
{
    const size_t room = TSRI_NAME_MAX - used;
    if (m->status != TSR_OK)
        return tsri_fail(m->status, "the module is incomplete: %s",
                         m->error ? m->error : "no memory");
    for (tsr_variable *v = m->first_variable; v; v = v->next) {
        /* Lengths were checked when the parts were added, but trees are put together later. */
        if ((size_t)snprintf(prefix + used, room, "%s", v->name) >= room)
            return name_too_long(prefix);
        TSRI_TRY(fn(v, prefix, arg));
    }
    for (tsr_module *c = m->first_child; c; c = c->sibling) {
        size_t n = (size_t)snprintf(prefix + used, room, "%s.", c->scope.name);
        if (n >= room)
            return name_too_long(prefix);
        TSRI_TRY(visit(c, prefix, used + n, fn, arg));
    }
    return TSR_OK;
}

tsr_status tsr_module_visit(tsr_module *m, tsr_variable_fn *fn, void *arg)
{
    if (!m || !fn)
        return tsri_fail(TSR_ERR_INVALID, "tsr_module_visit: the %s is NULL",
                         m ? "function" : "module");
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_module_visit"));
    char prefix[TSRI_NAME_MAX] = "";
    return visit(m, prefix, 0, fn, arg);
}

tsr_variable *tsri_module_lookup(tsr_module *m, const char *qualified_name)
{
    const char *name = qualified_name, *dot;
    while (m && name && (dot = strchr(name, '.'))) {
        m = child_of(m, name, (size_t)(dot - name));
        name = dot + 1;
    }
    tsr_variable *v = m && name ? m->first_variable : NULL;
    while (v && strcmp(v->name, name))
        v = v->next;
    return v;
}

/* The name nearest to one that is wanted, among those of a module's variables. */
typedef struct nearest_name {
    const char *wanted;
    char name[TSRI_NAME_MAX];
    int distance;
} nearest_name;

static tsr_status compare_name(tsr_variable *v, const char *qualified_name, void *arg)
{
    (void)v;
    nearest_name *n = arg;
    int d = tsri_edit_distance(n->wanted, qualified_name, n->distance);
    if (d < n->distance) {
        n->distance = d;
        snprintf(n->name, sizeof n->name, "%s", qualified_name);
    }
    return TSR_OK;
}

tsr_variable *tsr_module_find(tsr_module *m, const char *qualified_name)
{
    if (tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_module_find") != TSR_OK)
        return NULL;
    tsr_variable *v = tsri_module_lookup(m, qualified_name);
    if (v)
        return v;
    if (!m || !qualified_name) {
        tsri_fail(TSR_ERR_INVALID, "tsr_module_find: the %s is NULL%s", m ? "name" : "module",
                  tsri_error_cause());
        return NULL;
    }
    nearest_name near = {.wanted = qualified_name, .distance = 6};
    if (strlen(qualified_name) < TSRI_NAME_MAX &&
        tsr_module_visit(m, compare_name, &near) == TSR_OK && near.name[0])
        tsri_fail(TSR_ERR_INVALID, "tsr_module_find: no variable is named '%s'; did you mean '%s'?",
                  qualified_name, near.name);
    else
        tsri_fail(
            TSR_ERR_INVALID,
            "tsr_module_find: no variable is named '%.200s'; tsr_module_visit tells all names",
            qualified_name);
    return NULL;
}

static int64_t count_parameters(const tsr_module *m)
{
    int64_t n = 0;
    for (const tsr_variable *v = m->first_variable; v; v = v->next)
        n += v->trainable ? tsr_dims_count(v->shape) : 0;
    for (const tsr_module *c = m->first_child; c; c = c->sibling)
        n += count_parameters(c);
    return n;
}

int64_t tsr_module_count(tsr_module *m)
{
    return tsri_is_live(m, TSRI_LIVE_MODULE, __func__) ? count_parameters(m) : 0;
}
