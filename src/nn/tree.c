/* SPDX-License-Identifier: Apache-2.0 */
/* What modules and variables know by their place in the tree: names, homes, whose they are. */
#include <stdio.h>
#include <string.h>

#include "placement/placement.h"
#include "src/nn/module.h"
#include "src/nn/place.h"

void tsri_module_qualified_name(const tsr_module *m, char *buf, size_t size)
{
    const tsr_module *path[TSRI_NAME_MAX];
    int depth = 0;
    for (; m && m->parent && depth < TSRI_NAME_MAX; m = m->parent)
        path[depth++] = m;
    size_t used = 0;
    buf[0] = 0;
    while (depth-- > 0 && used < size) {
        int n = snprintf(buf + used, size - used, "%s%s", used ? "." : "", path[depth]->name);
        used += (size_t)n;
    }
}

void tsri_variable_qualified_name(const tsr_variable *v, char *buf, size_t size)
{
    tsri_module_qualified_name(v->module, buf, size);
    size_t used = strlen(buf);
    if (used < size)
        snprintf(buf + used, size - used, "%s%s", used ? "." : "", v->name);
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

bool tsri_module_is_local(const tsr_module *m)
{
    while (m && !m->local)
        m = m->parent;
    return m;
}

tsr_status tsri_variable_check_local(const tsr_variable *v)
{
    int rank = v->world->rank;
    if (tsr_placement_nranks(v->placement) == 1 && tsr_placement_rank(v->placement, 0) == rank)
        return TSR_OK;
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    return tsri_fail(TSR_ERR_PLACEMENT,
                     "variable %s lives on %s; everything in a module of rank %d's own lives on "
                     "%s:[%d]",
                     name, tsr_placement_text(v->placement), rank,
                     tsr_device_name(tsr_placement_device(v->placement)), rank);
}
