/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/rule/layout.h"
#include "placement/placement.h"
#include "src/core/status.h"

#include <stdio.h>
#include <string.h>

tsri_mesh tsri_mesh_of(const tsr_placement *p)
{
    tsri_mesh m = {.ndim = p->ndim, .nranks = p->nranks, .rank = p->ranks};
    for (int d = 0; d < TSR_MAX_HIERARCHY; d++)
        m.dim[d] = d < p->ndim ? p->dim[d] : 1;
    return m;
}

bool tsri_mesh_equal(const tsri_mesh *a, const tsri_mesh *b)
{
    if (a->ndim != b->ndim || a->nranks != b->nranks || memcmp(a->dim, b->dim, sizeof a->dim) != 0)
        return false;
    if (a->rank == b->rank)
        return true;
    for (int i = 0; i < a->nranks; i++)
        if (tsri_mesh_rank(a, i) != tsri_mesh_rank(b, i))
            return false;
    return true;
}

int tsri_mesh_find(const tsri_mesh *m, int rank)
{
    if (!m->rank)
        return rank >= 0 && rank < m->nranks ? rank : -1;
    for (int i = 0; i < m->nranks; i++)
        if (m->rank[i] == rank)
            return i;
    return -1;
}

int tsri_mesh_count(const tsri_mesh *m, unsigned dims)
{
    int count = 1;
    for (int d = 0; d < TSR_MAX_HIERARCHY; d++)
        count *= dims >> d & 1 ? m->dim[d] : 1;
    return count;
}

int tsri_mesh_index(const tsri_mesh *m, unsigned dims, const int *at)
{
    int index = 0;
    for (int d = 0; d < TSR_MAX_HIERARCHY; d++)
        if (dims >> d & 1)
            index = index * m->dim[d] + at[d];
    return index;
}

void tsri_mesh_coord(const tsri_mesh *m, unsigned dims, int index, int *at)
{
    for (int d = TSR_MAX_HIERARCHY - 1; d >= 0; d--)
        if (dims >> d & 1) {
            at[d] = index % m->dim[d];
            index /= m->dim[d];
        }
}

tsri_layout tsri_layout_of(const tsri_mesh *m, tsr_sbp sbp)
{
    tsri_layout l = {.sbp = {.ndim = (int8_t)m->ndim}};
    int8_t splits[TSR_MAX_NDIM] = {0};
    for (int d = 0; d < m->ndim; d++) {
        tsr_sbp1 e = d < sbp.ndim ? sbp.d[d] : (tsr_sbp1){0, 0};
        l.sbp.d[d] = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
        if (m->dim[d] == 1 || (e.kind != TSR_SBP_SPLIT && e.kind != TSR_SBP_PARTIAL))
            continue;
        l.sbp.d[d] = e;
        if (e.kind == TSR_SBP_SPLIT)
            l.depth[d] = splits[e.arg]++;
    }
    return l;
}

bool tsri_layout_equal(const tsri_layout *a, const tsri_layout *b)
{
    return !memcmp(a, b, sizeof *a);
}

bool tsri_layout_in_order(const tsri_layout *l)
{
    int8_t splits[TSR_MAX_NDIM] = {0};
    for (int d = 0; d < l->sbp.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_SPLIT && l->depth[d] != splits[l->sbp.d[d].arg]++)
            return false;
    return true;
}

char *tsri_layout_format(const tsri_layout *l, char buf[TSRI_LAYOUT_TEXT_MAX])
{
    char text[TSR_SBP_TEXT_MAX];
    tsr_sbp_format(l->sbp, text);
    if (tsri_layout_in_order(l)) {
        snprintf(buf, TSRI_LAYOUT_TEXT_MAX, "%s", text);
        return buf;
    }
    char *at = buf;
    for (const char *t = text, *end = buf + TSRI_LAYOUT_TEXT_MAX - 3; *t && at < end; t++) {
        /* An entry ends at a comma, or at the last bracket. */
        int d = 0;
        for (const char *u = text; u < t; u++)
            d += *u == ',';
        if ((*t == ',' || !t[1]) && l->sbp.d[d].kind == TSR_SBP_SPLIT) {
            *at++ = '/';
            *at++ = (char)('0' + l->depth[d]);
        }
        *at++ = *t;
    }
    *at = 0;
    return buf;
}

/* Whether the depths of each axis are 0, 1, ... in some order, and those of others 0. */
static bool has_depths(const tsri_layout *l)
{
    unsigned seen[TSR_MAX_NDIM] = {0};
    for (int d = 0; d < l->sbp.ndim; d++) {
        const bool is_split = l->sbp.d[d].kind == TSR_SBP_SPLIT;
        if (is_split ? l->depth[d] >= TSR_MAX_HIERARCHY : l->depth[d] != 0)
            return false;
        if (is_split && seen[l->sbp.d[d].arg] >> l->depth[d] & 1)
            return false;
        if (is_split)
            seen[l->sbp.d[d].arg] |= 1u << l->depth[d];
    }
    for (int a = 0; a < TSR_MAX_NDIM; a++)
        if (seen[a] & (seen[a] + 1))
            return false;
    return true;
}

tsr_status tsri_layout_parse(const tsri_mesh *m, const char *text, tsri_layout *out)
{
    char plain[TSRI_LAYOUT_TEXT_MAX], *to = plain;
    int8_t depth[TSR_MAX_HIERARCHY] = {0};
    tsr_sbp sbp;
    int d = 0;
    for (const char *t = text; *t && to < plain + sizeof plain - 1; t++) {
        d += *t == ',';
        if (*t != '/')
            *to++ = *t;
        else if (d < TSR_MAX_HIERARCHY && t[1] >= '0' && t[1] < '0' + TSR_MAX_HIERARCHY)
            depth[d] = (int8_t)(*++t - '0');
        else
            return tsri_fail(TSR_ERR_INVALID, "layout '%s': a depth is expected at '%s'", text, t);
    }
    *to = 0;
    TSRI_TRY(tsr_sbp_parse(plain, &sbp));
    if (sbp.ndim != m->ndim)
        return tsri_fail(TSR_ERR_INVALID, "layout '%s': the mesh has %d dimensions", text, m->ndim);
    *out = tsri_layout_of(m, sbp);
    if (!strchr(text, '/'))
        return TSR_OK;
    memcpy(out->depth, depth, sizeof depth);
    return has_depths(out) && !strcmp(tsri_layout_format(out, plain), text)
               ? TSR_OK
               : tsri_fail(TSR_ERR_INVALID,
                           "layout '%s': the depths of an axis are not 0, 1, ... after its splits",
                           text);
}

void tsri_layout_part(tsr_dims shape, const tsri_mesh *m, const tsri_layout *l, int index,
                      int64_t *offset, tsr_dims *out_shape)
{
    int at[TSR_MAX_HIERARCHY];
    tsri_mesh_coord(m, TSRI_ALL_DIMS, index, at);
    *out_shape = shape;
    for (int a = 0; a < shape.ndim; a++)
        offset[a] = 0;
    for (int depth = 0; depth < m->ndim; depth++)
        for (int d = 0; d < m->ndim; d++) {
            if (l->sbp.d[d].kind != TSR_SBP_SPLIT || l->depth[d] != depth)
                continue;
            int axis = l->sbp.d[d].arg;
            int64_t begin, length;
            tsr_balanced_split(out_shape->d[axis], m->dim[d], at[d], &begin, &length);
            offset[axis] += begin;
            out_shape->d[axis] = length;
        }
}

int64_t tsri_layout_most(tsr_dims shape, size_t element, const tsri_mesh *m, const tsri_layout *l)
{
    for (int d = 0; d < l->sbp.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_SPLIT) {
            int64_t *n = &shape.d[(int)l->sbp.d[d].arg];
            *n = (*n + m->dim[d] - 1) / m->dim[d];
        }
    return tsr_dims_count(shape) * (int64_t)element;
}

double tsri_largest_part(tsr_dims shape, const tsr_placement *p, tsr_sbp sbp)
{
    const tsri_mesh m = tsri_mesh_of(p);
    return (double)tsri_layout_most(shape, 1, &m, &(tsri_layout){.sbp = sbp});
}
