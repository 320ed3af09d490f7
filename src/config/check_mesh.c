/* SPDX-License-Identifier: Apache-2.0 */
/* Placements: those of the file, or the one of `mesh`; sizes that the number of ranks decides. */
#include <string.h>

#include "src/config/inside.h"

static bool has(const tsri_experiment *e, const char *key)
{
    return tsri_section_has(&tsri_experiment_section, e, key);
}

static bool says(const tsri_config_placement *p, const char *key)
{
    return tsri_section_has(&tsri_placement_section, p, key);
}

static const tsri_yaml *mesh_node(const tsri_config_placement *p)
{
    const tsri_yaml *node = tsri_yaml_find(p->head.node, "mesh");
    return node && node->kind == TSRI_YAML_MAP ? node : p->head.node;
}

/* --- sizes ------------------------------------------------------------------------------------ */
/* The axis that takes what the others leave: the open one, else the first. */
static int growing_axis(const tsri_mesh_axes *m, int *out_others)
{
    int grows = 0;
    for (int d = 0; d < m->ndim; d++)
        grows = m->size[d] ? grows : d;
    *out_others = 1;
    for (int d = 0; d < m->ndim; d++)
        *out_others *= d == grows ? 1 : m->size[d];
    return grows;
}

/* Makes the mesh one of n ranks. `what`: where n comes from. */
static tsr_status scale_mesh(tsri_config_placement *p, int64_t n, const char *what)
{
    tsri_mesh_axes *m = &p->mesh;
    const tsri_yaml *node = mesh_node(p);
    int others, grows = growing_axis(m, &others);
    if (n > TSRI_MAX_RANK + 1)
        return tsri_yaml_fail(node, "more than %d ranks", TSRI_MAX_RANK + 1);
    if (n % others || n < others) {
        int64_t below = n / others * others;
        char nearest[48];
        snprintf(nearest, sizeof nearest, below ? "%lld or %lld" : "%lld",
                 (long long)(below ? below : others), (long long)(below + others));
        return tsri_yaml_fail(node,
                              "%lld ranks, %s, are no multiple of %d, the size of the axes beside "
                              "'%s', which takes the rest; the nearest legal is %s",
                              (long long)n, what, others, m->name[grows], nearest);
    }
    m->size[grows] = (int)(n / others);
    return TSR_OK;
}

static const tsri_yaml *open_axis(const tsri_config_placement *p)
{
    const tsri_yaml *c = mesh_node(p)->first;
    for (int d = 0; d < p->mesh.ndim && p->mesh.size[d]; d++)
        c = c->next;
    return c;
}

/* Ranks 0 to the mesh's last, row-major. */
static tsr_status count_up(tsri_config_placement *p, const tsri_reader *r)
{
    int64_t n = 1;
    for (int d = 0; d < p->mesh.ndim; d++)
        n *= p->mesh.size[d];
    TSRI_TRY(tsri_ranks_take(r, mesh_node(p), n));
    p->ranks.n = (int)n;
    p->ranks.ranks = tsri_pool_alloc(r->pool, (size_t)n * sizeof *p->ranks.ranks);
    TSRI_NEED(p->ranks.ranks);
    for (int i = 0; i < n; i++)
        p->ranks.ranks[i] = i;
    return TSR_OK;
}

/* Ranks that are listed have the mesh's shape already, or are a row that takes it. */
static tsr_status check_listed(const tsri_config_placement *p)
{
    const tsri_yaml *node = tsri_section_node(p, "ranks");
    const tsri_mesh_axes *m = &p->mesh;
    int64_t n = 1;
    for (int d = 0; d < m->ndim; d++)
        n *= m->size[d];
    if (n != p->ranks.n)
        return tsri_yaml_fail(node, "%d rank%s; the mesh has %lld", p->ranks.n,
                              p->ranks.n == 1 ? "" : "s", (long long)n);
    if (p->ranks.ndim == 1)
        return TSR_OK;
    if (p->ranks.ndim != m->ndim)
        return tsri_yaml_fail(node, "lists in %d levels; the mesh has %d ax%cs", p->ranks.ndim,
                              m->ndim, m->ndim == 1 ? 'i' : 'e');
    for (int d = 0; d < m->ndim; d++)
        if (p->ranks.dim[d] != m->size[d])
            return tsri_yaml_fail(node, "lists of %d in level %d; axis '%s' of the mesh has %d",
                                  p->ranks.dim[d], d, m->name[d], m->size[d]);
    return TSR_OK;
}

static tsr_status fill_mesh(const tsri_experiment *e, tsri_config_placement *p,
                            const tsri_reader *r)
{
    int others, grows = growing_axis(&p->mesh, &others);
    bool is_open = !p->mesh.size[grows], listed = says(p, "ranks");
    if (is_open && listed)
        TSRI_TRY(scale_mesh(p, p->ranks.n, "as listed"));
    if (e->world && !listed)
        TSRI_TRY(scale_mesh(p, e->world, "the number asked for"));
    else if (is_open && !listed)
        return tsri_yaml_fail_key(open_axis(p),
                                  "axis '%s' has no size, and no number of ranks (-n N) is given "
                                  "that would decide it",
                                  p->mesh.name[grows]);
    TSRI_TRY(listed ? check_listed(p) : count_up(p, r));
    p->ranks.ndim = p->mesh.ndim;
    memcpy(p->ranks.dim, p->mesh.size, sizeof p->ranks.dim);
    return TSR_OK;
}

/* --- placements ------------------------------------------------------------------------------- */
/* Equal placements are one to the planner, so that their dimensions must have the same names. */
static tsr_status check_same_names(const tsri_experiment *e, const tsri_config_placement *p)
{
    const tsri_config_placement *q = e->placements.items;
    for (; q < p; q++) {
        bool same = p->mesh.ndim && p->mesh.ndim == q->mesh.ndim && p->device == q->device &&
                    !memcmp(p->mesh.size, q->mesh.size, sizeof p->mesh.size) &&
                    !memcmp(p->ranks.ranks, q->ranks.ranks, (size_t)p->ranks.n * sizeof(int));
        for (int d = 0; same && d < p->mesh.ndim; d++)
            if (strcmp(p->mesh.name[d], q->mesh.name[d]))
                return tsri_yaml_fail(mesh_node(p),
                                      "axis '%s' is called '%s' in placement %s, which has the "
                                      "same ranks; equal placements have equal names",
                                      p->mesh.name[d], q->mesh.name[d], q->head.name);
    }
    return TSR_OK;
}

static tsr_status check_placement(const tsri_experiment *e, tsri_config_placement *p,
                                  const tsri_reader *r)
{
    if (!says(p, "device"))
        p->device = (int)tsri_cluster_device(&e->cluster.said) - 1;
    tsri_section_give(&tsri_placement_section, p, "device");
    if (!says(p, "mesh") && !says(p, "ranks"))
        return tsri_yaml_fail_key(p->head.node, "neither 'mesh' nor 'ranks' is there, as in {mesh: "
                                                "{dp: 16, tp: 8}} or {ranks: 0..7}");
    if (says(p, "mesh"))
        TSRI_TRY(fill_mesh(e, p, r));
    return check_same_names(e, p);
}

/* The one placement of a file that has `mesh` in place of `placements`. */
static tsr_status make_single(tsri_experiment *e, const tsri_reader *r)
{
    tsri_config_placement *p = tsri_pool_alloc(r->pool, sizeof *p);
    TSRI_NEED(p);
    *p = (tsri_config_placement){
        .head = {.node = tsri_yaml_find(e->head.node, "mesh"), .name = "mesh"},
        .device = e->device,
        .mesh = e->mesh};
    tsri_section_give(&tsri_placement_section, p, "mesh");
    if (has(e, "device"))
        tsri_section_give(&tsri_placement_section, p, "device");
    e->placements = (tsri_items){1, p};
    TSRI_TRY(check_placement(e, p, r));
    e->mesh = p->mesh;
    return TSR_OK;
}

tsr_status tsri_check_placements(tsri_experiment *e, const tsri_reader *r)
{
    static const char *const short_form[] = {"mesh", "device"};
    for (int i = 0; i < 2 && has(e, "placements"); i++)
        if (has(e, short_form[i]))
            return tsri_yaml_fail_key(tsri_section_node(e, short_form[i]),
                                      "not beside 'placements': it is the short form for a file "
                                      "with one placement");
    if (!has(e, "placements") && !has(e, "mesh"))
        return tsri_yaml_fail(e->head.node, "neither 'mesh' nor 'placements' is there: where to "
                                            "compute, as in mesh: {dp: 16, tp: 8}");
    if (!has(e, "placements"))
        return make_single(e, r);
    tsri_config_placement *p = e->placements.items;
    for (int i = 0; i < e->placements.n; i++)
        TSRI_TRY(check_placement(e, &p[i], r));
    return TSR_OK;
}
