/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report as a picture for Graphviz. A node is what one module does at a time, or a part of a
 * block where those would be very many; blocks of modules are clusters, and blocks of a network
 * that do the same, as h.0 to h.23, are one. Left out are views, variables, and all that serves the
 * optimizer alone: gradients of parameters with their reductions, and updates. --verbose folds and
 * leaves out nothing.
 */
#include "src/cli/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/ir/flow.h"

enum { MANY_NODES = 100, WORKS = 8 };

/* A block: the rows of modules whose names begin alike, up to the first number. */
typedef struct block {
    const char *name;
    int length, stem; /* of the name; without its number. stem 0: it has none, and is not folded */
    int like;         /* the block that is drawn for it: itself, or one that does the same */
    int count;        /* of one that is drawn: how many it stands for */
    const char *last; /* of one that is drawn: the name of the last */
    int nrows, crows;
    int *rows;
    uint64_t hash;
} block;

typedef struct drawing {
    const plan_view *v;
    const tsri_report *r;
    FILE *f;
    tsri_pool pool;
    int *block_of; /* per row; -1: not drawn */
    int *place;    /* per row: its place among its block's rows */
    int *lead;     /* per row: the row whose node it is a part of */
    int *next;     /* per row: the next of its node, -1 */
    int depth;     /* parts of a name behind its block's that tell nodes apart */
    int nnodes;
    int *maker;   /* per value: the row that makes it, -1 */
    bool *serves; /* per item: something that is drawn reads its results, or it is an output */
    block *blocks;
    int nblocks, cblocks;
} drawing;

/* --- texts ------------------------------------------------------------------------------------ */
static void put_quoted(FILE *f, const char *text, int length)
{
    char shown[2048];
    tsri_snshow(shown, sizeof shown, "%.*s", length, text);
    for (const char *p = shown; *p; p++)
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else
            fputc(*p, f);
}

/* B is white, S(i) by its axis, P red. */
static const char *color_of(tsr_sbp1 d)
{
    static const char *const splits[] = {"#8ecae6", "#95d5b2", "#cdb4db", "#ffd6a5"};
    return d.kind == TSR_SBP_SPLIT     ? splits[d.arg % 4]
           : d.kind == TSR_SBP_PARTIAL ? "#ff9b94"
                                       : "#ffffff";
}

/* A stripe for each dimension; shapes that can't have stripes shade from the first to the last. */
static void put_colors(FILE *f, const tsri_value *v, bool stripes)
{
    int n = v->layout.sbp.ndim;
    fprintf(f, "style=%s, fillcolor=\"", n > 1 && stripes ? "striped" : "filled");
    for (int d = 0; d < n; d++)
        if (stripes || d == 0 || d == n - 1)
            fprintf(f, "%s%s", d ? ":" : "", color_of(v->layout.sbp.d[d]));
    fprintf(f, "\"");
}

/* --- what is drawn ---------------------------------------------------------------------------- */
/* Whether all results of an item are gradients of parameters, or parts of them. */
static bool makes_gradients(const drawing *d, const tsri_item *it)
{
    const tsr_plan *plan = d->r->plan;
    for (int j = 0; j < it->nout; j++)
        if (d->r->kind_of[tsri_ir_root(&plan->ir, it->out[j])] != TSRI_MEMORY_GRADIENTS)
            return false;
    return it->nout > 0;
}

static bool is_drawn(const drawing *d, const tsri_report_row *row)
{
    const tsr_plan *plan = d->r->plan;
    const tsri_item *it = row->item;
    if (d->v->verbose)
        return true;
    if (!it)
        return plan->ir.values[row->value].storage != TSRI_STORAGE_VARIABLE &&
               strcmp(row->name, TSRI_STEP_INPUT) != 0;
    if (tsri_item_shows(it) || makes_gradients(d, it))
        return false;
    if (row->kind == TSRI_REPORT_BOX)
        return d->serves[it - plan->ir.items];
    return !it->kernel.updates && !it->kernel.again && it->kernel.op != TSRI_OP_COPY;
}

/* Finds the conversions that serve more than updates: from the last to the first, as what reads a
 * conversion's result comes later. */
static bool find_serving(drawing *d)
{
    const tsr_plan *plan = d->r->plan;
    tsri_flow flow;
    d->serves = tsri_pool_alloc(&d->pool, (size_t)plan->ir.nitems * sizeof *d->serves);
    if (!d->serves || tsri_flow_find(&plan->ir, &d->pool, &flow) != TSR_OK)
        return false;
    for (int i = plan->ir.nitems - 1; i >= 0; i--) {
        const tsri_item *it = &plan->ir.items[i];
        for (int j = 0; j < it->nout; j++) {
            int value = it->out[j];
            d->serves[i] |= plan->ir.values[value].storage == TSRI_STORAGE_PORT;
            for (int r = flow.first[value]; r < flow.first[value + 1]; r++) {
                const tsri_item *reader = &plan->ir.items[flow.reader[r]];
                bool passes = reader->kind != TSRI_ITEM_KERNEL || reader->kernel.op == TSRI_OP_COPY;
                d->serves[i] |= passes ? d->serves[flow.reader[r]] : !reader->kernel.updates;
            }
        }
    }
    return true;
}

/* The row that makes a value, or what the value is a form of; -1: none that is drawn. */
static int source_of(const drawing *d, int value)
{
    for (;;) {
        int row = d->maker[value];
        if (row < 0 || d->block_of[row] >= 0)
            return row;
        const tsri_item *it = d->r->rows[row].item;
        const bool again = it && it->kind == TSRI_ITEM_KERNEL && it->kernel.again;
        if (!again && (!it || it->nin == 0 || !(it->nin == 1 || tsri_item_shows(it))))
            return -1;
        value = again ? it->kernel.again - 1 : it->in[0];
    }
}

/* --- blocks ----------------------------------------------------------------------------------- */
/* Sets the length of the block that a module's name is in, and that without its number. */
static void cut_name(const char *name, int *length, int *stem)
{
    *stem = 0;
    for (int begin = 0, i = 0;; i++) {
        if (name[i] != '.' && name[i])
            continue;
        *length = i;
        if (begin > 0 && i > begin && strspn(name + begin, "0123456789") == (size_t)(i - begin)) {
            *stem = begin;
            return;
        }
        if (!name[i])
            break;
        begin = i + 1;
    }
    *length = (int)strcspn(name, ".");
}

static block *find_block(drawing *d, const char *name)
{
    int length, stem;
    cut_name(name, &length, &stem);
    for (int i = 0; i < d->nblocks; i++)
        if (d->blocks[i].length == length && !memcmp(d->blocks[i].name, name, (size_t)length))
            return &d->blocks[i];
    if (!TSRI_PUSH(&d->pool, d->blocks, d->nblocks, d->cblocks))
        return NULL;
    block *b = &d->blocks[d->nblocks];
    *b = (block){.name = name, .length = length, .stem = stem, .like = d->nblocks++, .count = 1};
    return b;
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    return tsri_hash(h, text, strlen(text) + 1);
}

/* All that is drawn of a row, but for the number of its block. */
static uint64_t hash_row(const drawing *d, uint64_t h, const block *b, const tsri_report_row *row)
{
    char sbp[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    int n = row->item ? row->item->nin + row->item->nout : 1;
    h = hash_text(hash_text(h, row->what), row->name + b->length);
    for (int j = 0; j < n; j++) {
        int value = !row->item           ? row->value
                    : j < row->item->nin ? row->item->in[j]
                                         : row->item->out[j - row->item->nin];
        const tsri_value *v = &d->r->plan->ir.values[value];
        h = hash_text(h, tsri_layout_format(&v->layout, sbp));
        h = hash_text(hash_text(h, tsri_dims_format(v->shape, dims)),
                      tsr_placement_text(v->placement));
    }
    return tsri_hash(h, &row->bytes, sizeof row->bytes);
}

/* Finds the rows that are drawn, and their blocks. */
static bool list_rows(drawing *d)
{
    const tsri_report *r = d->r;
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        block *b = is_drawn(d, row) ? find_block(d, row->name) : NULL;
        d->block_of[i] = b ? (int)(b - d->blocks) : -1;
        for (int j = 0; row->item && j < row->item->nout; j++)
            d->maker[row->item->out[j]] = i;
        if (!row->item)
            d->maker[row->value] = i;
        if (!b)
            continue;
        if (!TSRI_PUSH(&d->pool, b->rows, b->nrows, b->crows))
            return false;
        d->place[i] = b->nrows;
        b->rows[b->nrows++] = i;
        b->hash = hash_row(d, b->hash, b, row);
    }
    return true;
}

/* The length of the part of a row's name that its node has. */
static int node_name(const drawing *d, int row)
{
    const char *name = d->r->rows[row].name;
    int length, stem;
    cut_name(name, &length, &stem);
    for (int i = 0; i < d->depth && name[length]; i++)
        length += 1 + (int)strcspn(name + length + 1, ".");
    return length;
}

/* Whether two rows are of one module, in one pass. */
static bool are_one(const drawing *d, int a, int b)
{
    const tsri_report_row *x = &d->r->rows[a], *y = &d->r->rows[b];
    int n = node_name(d, a);
    return x->item && y->item && x->item->backward == y->item->backward &&
           x->item->placement == y->item->placement && n == node_name(d, b) &&
           !memcmp(x->name, y->name, (size_t)n);
}

/* Whether an op of the same module follows a conversion, with nothing but conversions between. */
static bool is_between(const drawing *d, int row)
{
    const tsri_report *r = d->r;
    int k = row + 1;
    while (k < r->nrows &&
           (d->block_of[k] < 0 || (r->rows[k].kind == TSRI_REPORT_BOX && are_one(d, row, k))))
        k++;
    return k < r->nrows && are_one(d, row, k);
}

/* Joins the rows of a module that follow each other, with the conversions between them, to nodes.
 * No row of another module that is drawn lies between them, so no circle can come of it. */
static void join_rows(drawing *d)
{
    int lead = -1, last = -1;
    d->nnodes = 0;
    for (int i = 0; i < d->r->nrows; i++) {
        const tsri_report_row *row = &d->r->rows[i];
        d->next[i] = -1;
        d->lead[i] = i;
        if (d->block_of[i] < 0)
            continue;
        bool joins = lead >= 0 && !d->v->verbose && are_one(d, lead, i) &&
                     (row->kind == TSRI_REPORT_OP || is_between(d, i));
        if (joins) {
            d->lead[i] = lead;
            d->next[last] = i;
        } else {
            /* A weight that is gathered is a part of the op that reads it. */
            bool begins = row->kind == TSRI_REPORT_OP ||
                          (row->item && source_of(d, row->item->in[0]) < 0 && is_between(d, i));
            lead = begins ? i : -1;
            d->nnodes += d->blocks[d->block_of[i]].like == d->block_of[i];
        }
        last = i;
    }
}

/* Blocks of one stem that do the same are drawn as the first of them. */
static void fold_blocks(drawing *d)
{
    for (int i = 0; i < d->nblocks && !d->v->verbose; i++) {
        block *b = &d->blocks[i];
        for (int k = 0; k < i && b->stem; k++) {
            block *other = &d->blocks[k];
            if (other->like != k || other->stem != b->stem || other->hash != b->hash ||
                other->nrows != b->nrows || memcmp(other->name, b->name, (size_t)b->stem) != 0)
                continue;
            b->like = k;
            other->count++;
            other->last = b->name;
            break;
        }
    }
}

/* The row that is drawn for a row. */
static int drawn_for(const drawing *d, int row)
{
    const block *b = &d->blocks[d->block_of[row]];
    return d->lead[d->blocks[b->like].rows[d->place[row]]];
}

/* --- drawing ---------------------------------------------------------------------------------- */
/* One kind of work of a node. */
typedef struct work {
    const char *what;
    int count;
    uint64_t bytes;
} work;

static void put_work(const drawing *d, const work *w, const char *before)
{
    char bytes[CLI_NUMBER_MAX];
    fputs(before, d->f);
    if (w->count > 1)
        fprintf(d->f, "%d ", w->count);
    fputs(w->what, d->f);
    if (w->bytes)
        fprintf(d->f, " %s", cli_bytes((double)w->bytes, bytes));
}

/* "3 conv2d, 3 bn_stats, 3 all_reduce 4.61 KB": what the rows of a node do. */
static void put_works(const drawing *d, int lead)
{
    work works[WORKS];
    int n = 0;
    for (int i = lead; i >= 0; i = d->next[i]) {
        const tsri_report_row *row = &d->r->rows[i];
        int at = 0;
        if (i != lead && row->kind == TSRI_REPORT_BOX && row->link < 0)
            continue;
        while (at < n && strcmp(works[at].what, row->what) != 0)
            at++;
        if (at == WORKS)
            continue;
        if (at == n)
            works[n++] = (work){row->what, 0, 0};
        works[at].count++;
        works[at].bytes += row->bytes;
    }
    for (int i = 0; i < n; i++)
        put_work(d, &works[i], i == 0 ? "" : i % 3 ? ", " : ",\\n");
}

static void put_node(const drawing *d, int lead)
{
    const tsri_report_row *row = &d->r->rows[lead];
    const bool boxes = row->kind == TSRI_REPORT_BOX && d->next[lead] < 0;
    const tsr_plan *plan = d->r->plan;
    char a[TSRI_LAYOUT_TEXT_MAX], b[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    int last = lead;
    while (d->next[last] >= 0)
        last = d->next[last];
    const tsri_item *it = d->r->rows[last].item;
    int made = it && it->nout ? it->out[0] : d->r->rows[last].value;
    fprintf(d->f, "    n%d [", lead);
    if (made >= 0)
        put_colors(d->f, &plan->ir.values[made], row->kind != TSRI_REPORT_SOURCE && !boxes);
    fprintf(d->f, "%s, label=\"", row->kind == TSRI_REPORT_SOURCE ? ", shape=ellipse" : "");
    put_works(d, lead);
    if (row->name[0] && !boxes) {
        fprintf(d->f, "\\n");
        put_quoted(d->f, row->name, d->next[lead] < 0 ? 80 : node_name(d, lead));
    }
    if (boxes)
        fprintf(d->f, "\\n%s -> %s\", shape=hexagon, penwidth=%d",
                tsri_layout_format(&plan->ir.values[row->item->in[0]].layout, a),
                tsri_layout_format(&plan->ir.values[made].layout, b), row->link >= 0 ? 2 : 1);
    else if (made >= 0)
        fprintf(d->f, "\\n[%s] %s\"", tsri_dims_format(plan->ir.values[made].shape, dims),
                tsri_layout_format(&plan->ir.values[made].layout, a));
    else
        fputc('"', d->f);
    fprintf(d->f, "%s];\n", it && it->backward ? ", color=gray50" : "");
}

static void put_block(const drawing *d, int i)
{
    const block *b = &d->blocks[i];
    bool boxed = b->length > 0 && b->nrows > 1;
    if (boxed) {
        fprintf(d->f, "  subgraph cluster%d {\n    label=\"", i);
        put_quoted(d->f, b->name, b->length);
        if (b->count > 1) {
            int length, stem;
            cut_name(b->last, &length, &stem);
            fprintf(d->f, " .. ");
            put_quoted(d->f, b->last + stem, length - stem);
            fprintf(d->f, "  x%d", b->count);
        }
        fprintf(d->f, "\";\n");
    }
    for (int k = 0; k < b->nrows; k++)
        if (d->lead[b->rows[k]] == b->rows[k])
            put_node(d, b->rows[k]);
    if (boxed)
        fprintf(d->f, "  }\n");
}

/* Backward passes are drawn upwards, so that they stand beside the forward one. */
static void put_edge(const drawing *d, int from, int to)
{
    const tsri_item *a = d->r->rows[from].item, *b = d->r->rows[to].item;
    if (!b || !b->backward)
        fprintf(d->f, "  n%d -> n%d;\n", from, to);
    else if (a && a->backward)
        fprintf(d->f, "  n%d -> n%d [dir=back, color=gray50];\n", to, from);
    else
        fprintf(d->f, "  n%d -> n%d [constraint=false, color=gray75];\n", from, to);
}

typedef struct edge {
    int from, to;
} edge;

static int by_ends(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

/* Lists the edges into a row, but for edges between blocks that are drawn as one, which would be
 * loops, and edges within a block that is drawn as another, which are the other's. */
static bool list_edges(drawing *d, int i, edge **edges, int *n, int *capacity)
{
    const tsri_item *it = d->r->rows[i].item;
    int to = drawn_for(d, i), own_block = d->block_of[i];
    for (int j = 0; it && j < it->nin; j++) {
        int row = source_of(d, it->in[j]), from = row >= 0 ? drawn_for(d, row) : -1;
        if (from < 0 || from == to)
            continue;
        if (d->block_of[row] == own_block ? d->blocks[own_block].like != own_block
                                          : d->block_of[from] == d->block_of[to])
            continue;
        if (!TSRI_PUSH(&d->pool, *edges, *n, *capacity))
            return false;
        (*edges)[(*n)++] = (edge){from, to};
    }
    return true;
}

/* Each edge is drawn once. */
static bool put_edges(drawing *d)
{
    edge *edges = NULL;
    int n = 0, capacity = 0;
    for (int i = 0; i < d->r->nrows; i++)
        if (d->block_of[i] >= 0 && !list_edges(d, i, &edges, &n, &capacity))
            return false;
    if (n)
        qsort(edges, (size_t)n, sizeof *edges, by_ends);
    for (int i = 0; i < n; i++)
        if (i == 0 || by_ends(&edges[i - 1], &edges[i]) != 0)
            put_edge(d, edges[i].from, edges[i].to);
    return true;
}

static void put_outputs(const drawing *d)
{
    const tsr_plan *plan = d->r->plan;
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsri_value *v = &plan->ir.values[i];
        int row =
            v->storage == TSRI_STORAGE_PORT && v->port >= 0 && plan->ir.ports[v->port].is_output
                ? source_of(d, i)
                : -1;
        if (row < 0)
            continue;
        fprintf(d->f, "  out%d [shape=ellipse, style=bold, label=\"output\\n", i);
        put_quoted(d->f, plan->ir.ports[v->port].info.name, 80);
        fprintf(d->f, "\"];\n  n%d -> out%d;\n", drawn_for(d, row), i);
    }
}

/* A row and its place in the program. */
typedef struct placed {
    int place, row;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    return x->place != y->place ? (x->place > y->place) - (x->place < y->place) : x->row - y->row;
}

/* Puts the rows into `*out` in the order from before chains of kernels were made, in which what a
 * module does is in one piece. */
static bool unchain(drawing *d, tsri_report *out)
{
    const size_t n = (size_t)d->r->nrows + 1;
    placed *order = tsri_pool_alloc(&d->pool, n * sizeof *order);
    *out = *d->r;
    out->rows = tsri_pool_alloc(&d->pool, n * sizeof *out->rows);
    if (!order || !out->rows)
        return false;
    for (int i = 0, place = 0; i < d->r->nrows; i++) {
        const tsri_item *it = d->r->rows[i].item;
        place = it && it->place ? it->place : place;
        order[i] = (placed){place, i};
    }
    qsort(order, n - 1, sizeof *order, by_place);
    for (int i = 0; i < d->r->nrows; i++)
        out->rows[i] = d->r->rows[order[i].row];
    d->r = out;
    return true;
}

static bool draw(drawing *d)
{
    tsri_report unchained;
    if (!unchain(d, &unchained))
        return false;
    size_t rows = (size_t)d->r->nrows + 1, values = (size_t)d->r->plan->ir.nvalues + 1;
    d->block_of = tsri_pool_alloc(&d->pool, rows * sizeof *d->block_of);
    d->place = tsri_pool_alloc(&d->pool, rows * sizeof *d->place);
    d->maker = tsri_pool_alloc(&d->pool, values * sizeof *d->maker);
    d->lead = tsri_pool_alloc(&d->pool, rows * sizeof *d->lead);
    d->next = tsri_pool_alloc(&d->pool, rows * sizeof *d->next);
    if (!d->block_of || !d->place || !d->maker || !d->lead || !d->next)
        return false;
    memset(d->maker, -1, values * sizeof *d->maker);
    if (!find_serving(d) || !list_rows(d))
        return false;
    fold_blocks(d);
    join_rows(d);
    for (d->depth = 2; d->nnodes > MANY_NODES && d->depth-- > 0 && !d->v->verbose;)
        join_rows(d);
    fprintf(d->f, "digraph plan {\n"
                  "  graph [fontname=sans, fontsize=11, ranksep=0.3, nodesep=0.2, style=rounded];\n"
                  "  node [fontname=sans, fontsize=9, shape=box, margin=\"0.08,0.04\"];\n"
                  "  edge [arrowsize=0.6];\n");
    fprintf(d->f, "  label=\"");
    put_quoted(d->f, d->r->strategy.words, 400);
    fprintf(d->f, "\";\n");
    for (int i = 0; i < d->nblocks; i++)
        if (d->blocks[i].like == i)
            put_block(d, i);
    if (!put_edges(d))
        return false;
    put_outputs(d);
    fprintf(d->f, "}\n");
    return true;
}

bool plan_write_dot(const plan_view *v, FILE *f)
{
    drawing d = {.v = v, .r = v->report, .f = f, .depth = 1 << 10};
    tsri_pool_init(&d.pool, NULL);
    bool ok = draw(&d);
    tsri_pool_finish(&d.pool);
    return ok;
}
