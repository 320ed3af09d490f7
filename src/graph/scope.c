/* SPDX-License-Identifier: Apache-2.0 */
/* The place of variables in a tree of modules: names, and whose they are. */
#include <stdio.h>
#include <string.h>

#include "src/graph/graph.h"

void tsri_scope_qualified_name(const tsri_scope *s, char *buf, size_t size)
{
    const tsri_scope *path[TSRI_NAME_MAX];
    int depth = 0;
    for (; s && s->parent && depth < TSRI_NAME_MAX; s = s->parent)
        path[depth++] = s;
    size_t used = 0;
    buf[0] = 0;
    while (depth-- > 0 && used < size) {
        int n = snprintf(buf + used, size - used, "%s%s", used ? "." : "", path[depth]->name);
        used += (size_t)n;
    }
}

void tsri_variable_qualified_name(const tsr_variable *v, char *buf, size_t size)
{
    tsri_scope_qualified_name(v->scope, buf, size);
    size_t used = strlen(buf);
    if (used < size)
        snprintf(buf + used, size - used, "%s%s", used ? "." : "", v->name);
}

tsri_stage tsri_scope_stage(const tsri_scope *s)
{
    while (s && !s->stage.number)
        s = s->parent;
    return s ? s->stage : (tsri_stage){0};
}

bool tsri_scope_is_local(const tsri_scope *s)
{
    while (s && !s->local)
        s = s->parent;
    return s;
}
