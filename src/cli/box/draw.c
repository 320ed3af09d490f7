/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/box/box.h"

#include <stdlib.h>
#include <string.h>

enum { LABEL_MAX = 48, LIST_MAX = 32, GRID_ROWS = 24, GRID_WIDTH = 96 };

/* The part that one rank holds. */
typedef struct holding {
    int64_t offset[TSR_MAX_NDIM], end[TSR_MAX_NDIM];
    int cell; /* holdings of the same region have the same */
    int copy, addend, rank;
} holding;

typedef struct picture {
    tsr_dims shape;
    const tsri_end *end;
    holding *holdings; /* of a non-empty part; by cell, copy, addend */
    int n, ncells;
    int rows, columns; /* axes that are drawn; -1: none */
    int nsplit, axis;  /* axes that are split; the first of them */
} picture;

/* --- who holds what --------------------------------------------------------------------------- */
static int by_region(const void *a, const void *b)
{
    const holding *x = a, *y = b;
    for (int i = 0; i < TSR_MAX_NDIM; i++)
        if (x->offset[i] != y->offset[i])
            return x->offset[i] < y->offset[i] ? -1 : 1;
    return x->copy != y->copy ? x->copy - y->copy : x->addend - y->addend;
}

/* Coordinates over the dimensions that are P, and over those that are B, as numbers. */
static void find_role(const tsri_end *end, int index, holding *h)
{
    int left = index, addends = 1, copies = 1;
    h->addend = h->copy = 0;
    for (int d = end->mesh.ndim - 1; d >= 0; d--) {
        int k = end->mesh.dim[d], at = left % k;
        left /= k;
        if (end->layout.sbp.d[d].kind == TSR_SBP_PARTIAL) {
            h->addend += at * addends;
            addends *= k;
        } else if (end->layout.sbp.d[d].kind == TSR_SBP_BROADCAST) {
            h->copy += at * copies;
            copies *= k;
        }
    }
}

static bool collect(picture *p)
{
    const tsri_mesh *m = &p->end->mesh;
    p->holdings = calloc((size_t)m->nranks, sizeof *p->holdings);
    if (!p->holdings)
        return false;
    for (int i = 0; i < m->nranks; i++) {
        holding h = {.rank = tsri_mesh_rank(m, i)};
        tsr_dims part;
        tsri_layout_part(p->shape, m, &p->end->layout, i, h.offset, &part);
        for (int a = 0; a < part.ndim; a++)
            h.end[a] = h.offset[a] + part.d[a];
        find_role(p->end, i, &h);
        if (tsr_dims_count(part) > 0)
            p->holdings[p->n++] = h;
    }
    qsort(p->holdings, (size_t)p->n, sizeof *p->holdings, by_region);
    for (int i = 0; i < p->n; i++) {
        if (i > 0 && memcmp(p->holdings[i].offset, p->holdings[i - 1].offset,
                            sizeof p->holdings[i].offset) != 0)
            p->ncells++;
        p->holdings[i].cell = p->ncells;
    }
    p->ncells += p->n > 0;
    return true;
}

/* The axes of the grid: those that are split, and where they are fewer than two, the last ones. */
static bool choose_axes(picture *p)
{
    int split[TSR_MAX_HIERARCHY], n = 0, ndim = p->shape.ndim;
    for (int a = 0; a < ndim; a++) {
        bool is_split = false;
        for (int d = 0; d < p->end->mesh.ndim; d++)
            is_split |=
                p->end->layout.sbp.d[d].kind == TSR_SBP_SPLIT && p->end->layout.sbp.d[d].arg == a;
        if (is_split)
            split[n++] = a;
    }
    p->nsplit = n;
    p->axis = n ? split[0] : -1;
    p->rows = ndim > 1 ? ndim - 2 : -1;
    p->columns = ndim > 0 ? ndim - 1 : -1;
    if (ndim <= 2)
        return true;
    if (n == 2) {
        p->rows = split[0];
        p->columns = split[1];
    } else if (n == 1 && split[0] != p->columns) {
        p->rows = split[0];
    }
    return n <= 2;
}

/* --- labels ----------------------------------------------------------------------------------- */
static const char *partial_of(const tsri_end *end)
{
    static const char *const names[] = {"+", "max", "min"};
    for (int d = 0; d < end->mesh.ndim; d++)
        if (end->layout.sbp.d[d].kind == TSR_SBP_PARTIAL)
            return names[end->layout.sbp.d[d].arg];
    return NULL;
}

/* "0,1": copies; "0+1,2+3": copies of a sum of two addends; "max(0,1)". */
static void write_label(const picture *p, int first, int last, char label[LABEL_MAX])
{
    const char *partial = partial_of(p->end);
    bool sum = partial && partial[0] == '+';
    size_t used = 0;
    label[0] = 0;
    for (int i = first; i < last; i++) {
        const holding *h = &p->holdings[i];
        bool opens = partial && !sum && (i == first || h->copy != h[-1].copy);
        bool closes = partial && !sum && (i + 1 == last || h[1].copy != h->copy);
        bool joins = i > first && h->copy == h[-1].copy;
        char text[40];
        int n = snprintf(text, sizeof text, "%s%s%s%d%s",
                         i == first     ? ""
                         : joins && sum ? "+"
                                        : ",",
                         opens ? partial : "", opens ? "(" : "", h->rank, closes ? ")" : "");
        if (used + (size_t)n + 8 > LABEL_MAX) {
            snprintf(label + used, LABEL_MAX - used, "..%d", p->holdings[last - 1].rank);
            return;
        }
        memcpy(label + used, text, (size_t)n + 1);
        used += (size_t)n;
    }
}

static void write_range(const holding *h, int axis, char text[LABEL_MAX])
{
    text[0] = 0;
    if (axis >= 0)
        snprintf(text, LABEL_MAX, "%lld:%lld", (long long)h->offset[axis], (long long)h->end[axis]);
}

/* --- as a list -------------------------------------------------------------------------------- */
static void draw_list(FILE *f, const picture *p)
{
    for (int first = 0, last, shown = 0; first < p->n; first = last) {
        for (last = first; last < p->n && p->holdings[last].cell == p->holdings[first].cell;)
            last++;
        if (shown++ == LIST_MAX) {
            tsri_fshow(f, "  ... and %d more parts\n", p->ncells - LIST_MAX);
            return;
        }
        char label[LABEL_MAX], range[LABEL_MAX];
        fputs("  [", f);
        for (int a = 0; a < p->shape.ndim; a++) {
            write_range(&p->holdings[first], a, range);
            tsri_fshow(f, "%s%s", a ? "," : "", range);
        }
        write_label(p, first, last, label);
        tsri_fshow(f, "]  %s\n", label);
    }
}

/* --- as a ruler ------------------------------------------------------------------------------- */
enum { RULER_TICKS = 4, RULER_STEP = 16 };

/* Writes texts under ticks: each begins at its tick, the last one ends there. */
static void draw_ticks(FILE *f, char text[RULER_TICKS + 1][LABEL_MAX])
{
    char line[RULER_TICKS * RULER_STEP + LABEL_MAX];
    memset(line, ' ', sizeof line);
    int end = 0;
    for (int t = 0; t <= RULER_TICKS; t++) {
        int length = (int)strlen(text[t]), at = t * RULER_STEP;
        at = t == RULER_TICKS && length > 1 ? at + 1 - length : at;
        at = at > end || t == 0 ? at : end + 1;
        memcpy(line + at, text[t], (size_t)length);
        end = at + length;
    }
    tsri_fshow(f, "  %.*s\n", end, line);
}

/* One axis in many parts: where some of them begin, and their ranks. */
static void draw_ruler(FILE *f, const picture *p)
{
    char where[RULER_TICKS + 1][LABEL_MAX], ranks[RULER_TICKS + 1][LABEL_MAX];
    const holding *longest = &p->holdings[0], *last = &p->holdings[p->n - 1];
    int64_t length = longest->end[p->axis] - longest->offset[p->axis];
    int64_t least = last->end[p->axis] - last->offset[p->axis];
    tsri_fshow(f, "  axis %d in %d parts of %lld", p->axis, p->ncells, (long long)length);
    tsri_fshow(f, least < length ? " or %lld\n" : "\n", (long long)least);
    for (int t = 0, first = 0; t <= RULER_TICKS; t++) {
        int cell = (int)((int64_t)(p->ncells - (t == RULER_TICKS)) * t / RULER_TICKS), next;
        cell = t == RULER_TICKS ? p->ncells - 1 : cell;
        while (p->holdings[first].cell < cell)
            first++;
        for (next = first; next < p->n && p->holdings[next].cell == cell;)
            next++;
        write_label(p, first, next, ranks[t]);
        if (strlen(ranks[t]) > RULER_STEP - 2)
            snprintf(ranks[t], LABEL_MAX, "%d,..", p->holdings[first].rank);
        snprintf(
            where[t], LABEL_MAX, "%lld",
            (long long)(t < RULER_TICKS ? p->holdings[first].offset[p->axis] : last->end[p->axis]));
    }
    draw_ticks(f, where);
    fputs("  +", f);
    for (int i = 0; i < RULER_TICKS; i++)
        fputs("---------------+", f);
    fputc('\n', f);
    draw_ticks(f, ranks);
}

/* --- as a grid -------------------------------------------------------------------------------- */
typedef struct grid {
    int nrows, ncolumns, width, margin;
    char (*label)[LABEL_MAX];  /* [nrows * ncolumns] */
    char (*row)[LABEL_MAX];    /* [nrows] */
    char (*column)[LABEL_MAX]; /* [ncolumns] */
} grid;

static void widen(int *width, const char *text)
{
    int n = (int)strlen(text);
    *width = n > *width ? n : *width;
}

/* Cells come row by row, as parts cut each axis in the same places everywhere. */
static bool make_grid(const picture *p, grid *g)
{
    g->ncolumns = 0;
    for (int i = 0; i < p->n && (p->rows < 0 ||
                                 p->holdings[i].offset[p->rows] == p->holdings[0].offset[p->rows]);
         i++)
        g->ncolumns = p->holdings[i].cell + 1;
    g->nrows = g->ncolumns ? p->ncells / g->ncolumns : 0;
    g->label = calloc((size_t)p->ncells + 1, sizeof *g->label);
    g->row = calloc((size_t)g->nrows + 1, sizeof *g->row);
    g->column = calloc((size_t)g->ncolumns + 1, sizeof *g->column);
    if (!g->label || !g->row || !g->column)
        return false;
    for (int first = 0, last; first < p->n; first = last) {
        const holding *h = &p->holdings[first];
        for (last = first; last < p->n && p->holdings[last].cell == h->cell;)
            last++;
        write_label(p, first, last, g->label[h->cell]);
        write_range(h, p->rows, g->row[h->cell / g->ncolumns]);
        write_range(h, p->columns, g->column[h->cell % g->ncolumns]);
        widen(&g->width, g->label[h->cell]);
        widen(&g->width, g->column[h->cell % g->ncolumns]);
        widen(&g->margin, g->row[h->cell / g->ncolumns]);
    }
    return true;
}

static void centre(FILE *f, const char *text, int width, bool pad)
{
    int n = (int)strlen(text), left = (width - n) / 2;
    tsri_fshow(f, "%*s%s%*s", left, "", text, pad ? width - n - left : 0, "");
}

static void draw_line(FILE *f, const grid *g)
{
    tsri_fshow(f, "  %*s ", g->margin, "");
    for (int j = 0; j < g->ncolumns; j++) {
        fputc('+', f);
        for (int i = 0; i < g->width + 2; i++)
            fputc('-', f);
    }
    fputs("+\n", f);
}

static void draw_grid(FILE *f, const picture *p, const grid *g)
{
    if (p->shape.ndim > 2)
        tsri_fshow(f, "  axis %d down, axis %d across\n", p->rows, p->columns);
    tsri_fshow(f, "  %*s ", g->margin, "");
    for (int j = 0; j < g->ncolumns && p->columns >= 0; j++) {
        fputc(' ', f);
        centre(f, g->column[j], g->width + 2, j + 1 < g->ncolumns);
    }
    fputc('\n', f);
    for (int i = 0; i < g->nrows; i++) {
        draw_line(f, g);
        tsri_fshow(f, "  %*s ", g->margin, g->row[i]);
        for (int j = 0; j < g->ncolumns; j++) {
            fputc('|', f);
            centre(f, g->label[i * g->ncolumns + j], g->width + 2, true);
        }
        fputs("|\n", f);
    }
    draw_line(f, g);
}

static bool is_empty(const picture *p, int i)
{
    int64_t offset[TSR_MAX_NDIM];
    tsr_dims part;
    tsri_layout_part(p->shape, &p->end->mesh, &p->end->layout, i, offset, &part);
    return tsr_dims_count(part) == 0;
}

/* "nothing on ranks 0, 1, 4-9": three and more in a row are a range. */
static void draw_empty(FILE *f, const picture *p)
{
    const tsri_mesh *m = &p->end->mesh;
    int left = m->nranks - p->n, shown = 0;
    if (!left)
        return;
    fputs("  nothing on rank", f);
    for (int i = 0; i < m->nranks && shown < LIST_MAX; i++) {
        int last = i, first = tsri_mesh_rank(m, i);
        if (!is_empty(p, i))
            continue;
        while (last + 1 < m->nranks && is_empty(p, last + 1) &&
               tsri_mesh_rank(m, last + 1) == first + last + 1 - i)
            last++;
        tsri_fshow(f, "%s %d", shown++ ? "," : left > 1 ? "s" : "", first);
        if (last - i > 1) {
            tsri_fshow(f, "-%d", first + last - i);
            left -= last - i;
            i = last;
        }
    }
    fputs(left > shown ? ", ...\n" : "\n", f);
}

bool box_draw(FILE *f, tsr_dims shape, const tsri_end *end)
{
    picture p = {.shape = shape, .end = end};
    grid g = {0};
    bool ok = collect(&p);
    bool in_plane = ok && choose_axes(&p);
    if (ok && in_plane && (ok = make_grid(&p, &g)))
        in_plane = g.nrows <= GRID_ROWS && g.margin + 2 + g.ncolumns * (g.width + 3) <= GRID_WIDTH;
    if (ok && p.n && in_plane)
        draw_grid(f, &p, &g);
    else if (ok && p.nsplit == 1 && p.ncells > RULER_TICKS)
        draw_ruler(f, &p);
    else if (ok)
        draw_list(f, &p);
    if (ok)
        draw_empty(f, &p);
    free(g.label);
    free(g.row);
    free(g.column);
    free(p.holdings);
    return ok;
}
