/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in words: lists, parts of a mesh, placements. */
#include "placement/placement.h"
#include "src/cli/plan/plan.h"

#include <string.h>

/* --- lists ------------------------------------------------------------------------------------ */
char *plan_ranks_like(const int *of, int n, int which, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (int first = 0; first < n; first++) {
        if (of[first] != which)
            continue;
        int last = first;
        while (last + 1 < n && of[last + 1] == which)
            last++;
        char text[48];
        int length = last > first
                         ? snprintf(text, sizeof text, "%s%d-%d", used ? "," : "", first, last)
                         : snprintf(text, sizeof text, "%s%d", used ? "," : "", first);
        if (used + (size_t)length + 5 > size) {
            snprintf(buf + used, size - used, ",...");
            return buf;
        }
        memcpy(buf + used, text, (size_t)length + 1);
        used += (size_t)length;
        first = last;
    }
    return buf;
}

char *plan_ranks_text(const tsri_report *r, int m, char *buf, size_t size)
{
    return plan_ranks_like(r->memory_of, r->plan->ir.world->nranks, m, buf, size);
}

/* --- parts of a mesh -------------------------------------------------------------------------- */
enum { SIDE_MAX = 1024 };

/* The class's ranks on a mesh: per dimension which coordinates they have. */
typedef struct mesh_part {
    int dim[TSR_MAX_HIERARCHY][SIDE_MAX]; /* 1: some rank of the class is there */
    int size[TSR_MAX_HIERARCHY];          /* how many are */
} mesh_part;

/* Finds the part of a mesh that the ranks of class m are; false where they are no part of which
 * each combination of coordinates is a rank of the class, or are not all on the mesh. */
static bool find_part(const tsri_report *r, int m, const tsr_placement *p, mesh_part *out)
{
    int n = tsr_placement_nranks(p), count = 0, product = 1;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < n; i++) {
        if (r->memory_of[tsr_placement_rank(p, i)] != m)
            continue;
        count++;
        for (int d = tsr_placement_ndim(p) - 1, at = i; d >= 0; d--) {
            int k = tsr_placement_dim(p, d);
            if (k > SIDE_MAX)
                return false;
            out->size[d] += !out->dim[d][at % k];
            out->dim[d][at % k] = 1;
            at /= k;
        }
    }
    for (int d = 0; d < tsr_placement_ndim(p); d++)
        product *= out->size[d];
    return count == r->memory[m].nranks && count == product;
}

/* "tp 0-6 of each dp"; false where it is a whole mesh. */
static bool put_part(plan_text *t, const tsr_placement *p, const mesh_part *part)
{
    char name[24], list[64];
    bool any = false;
    for (int d = tsr_placement_ndim(p) - 1; d >= 0; d--) {
        int k = tsr_placement_dim(p, d);
        if (part->size[d] == k)
            continue;
        bool named = tsri_placement_axis(p, d) != NULL;
        plan_put(t, "%s%s%s %s", any ? " of " : "", tsri_axis_name(p, d, name), named ? "" : ":",
                 plan_ranks_like(part->dim[d], k, 1, list, sizeof list));
        any = true;
    }
    for (int d = tsr_placement_ndim(p) - 1, first = 1; d >= 0 && any; d--)
        if (tsr_placement_dim(p, d) > 1 && part->size[d] == tsr_placement_dim(p, d)) {
            plan_put(t, "%s %s", first ? " of each" : " and", tsri_axis_name(p, d, name));
            first = 0;
        }
    return any;
}

void plan_put_ranks(plan_text *t, const tsri_report *r, int m, size_t most)
{
    char list[4096];
    const tsri_strategy *s = &r->strategy;
    plan_text by_axes = {.used = 0};
    mesh_part part;
    plan_ranks_text(r, m, list, sizeof list);
    for (int i = 0; i < s->nstages && strchr(list, ',') && !by_axes.used; i++)
        if (tsr_placement_ndim(s->stages[i].placement) > 1 &&
            find_part(r, m, s->stages[i].placement, &part) &&
            !put_part(&by_axes, s->stages[i].placement, &part))
            by_axes.used = 0;
    if (by_axes.used && by_axes.used < strlen(list)) {
        plan_put(t, "%s", by_axes.data);
        return;
    }
    plan_put(t, "rank%s %s", r->memory[m].nranks > 1 ? "s" : "",
             plan_ranks_text(r, m, list, most < sizeof list ? most : sizeof list));
}

/* --- placements ------------------------------------------------------------------------------- */
/* "2 x 4", "dp 2 x tp 4". */
static void put_sides(plan_text *t, const tsr_placement *p)
{
    for (int d = 0; d < tsr_placement_ndim(p); d++) {
        const char *name = tsri_placement_axis(p, d);
        plan_put(t, "%s%s%s%d", d ? " x " : "", name ? name : "", name ? " " : "",
                 tsr_placement_dim(p, d));
    }
}

void plan_put_mesh(plan_text *t, const tsr_placement *p)
{
    int n = tsr_placement_nranks(p);
    if (tsr_placement_ndim(p) > 1) {
        put_sides(t, p);
        plan_put(t, " = ");
    }
    plan_put(t, "%d %s rank%s", n, tsr_device_name(tsr_placement_device(p)), n == 1 ? "" : "s");
}

void plan_put_placement(plan_text *t, const tsr_placement *p)
{
    enum { WHOLE = 40, LISTED = 8 };
    const char *text = tsr_placement_text(p);
    int n = tsr_placement_nranks(p), first = tsr_placement_rank(p, 0);
    bool in_sequence = true;
    if (strlen(text) <= WHOLE) {
        plan_put(t, "%s", text);
        return;
    }
    for (int i = 1; i < n; i++)
        in_sequence &= tsr_placement_rank(p, i) == first + i;
    plan_put(t, "%s ranks ", tsr_device_name(tsr_placement_device(p)));
    for (int i = 0; i < LISTED && i < n && !in_sequence; i++)
        plan_put(t, "%d,", tsr_placement_rank(p, i));
    if (in_sequence)
        plan_put(t, "%d-%d", first, first + n - 1);
    else
        plan_put(t, "... (%d)", n);
    if (tsr_placement_ndim(p) > 1) {
        plan_put(t, " as ");
        put_sides(t, p);
    }
}
