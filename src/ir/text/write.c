/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "src/core/attrs_text.h"
#include "src/ir/text/text.h"
#include "src/ir/text/words.h"

typedef struct writer {
    FILE *f;
    const tsri_ir *ir;
    bool places;
    tsri_pool pool;
    const void **placement, **variable; /* numbered by first use */
    int nplacement, cplacement, nvariable, cvariable;
} writer;

/* --- words ------------------------------------------------------------------------------------ */
static void put_quoted(FILE *f, const char *text)
{
    fputc('"', f);
    for (const char *t = text; *t; t++) {
        if (*t == '"' || *t == '\\')
            fputc('\\', f);
        if (*t == '\n')
            fputs("\\n", f);
        else
            fputc(*t, f);
    }
    fputc('"', f);
}

static void put_name(const writer *w, const char *word, const char *text)
{
    if (!text)
        return;
    fprintf(w->f, " %s%s", word, word[0] ? " " : "");
    put_quoted(w->f, text);
}

static void put_place(const writer *w, const char *word, tsri_loc loc)
{
    if (!w->places || !loc.file)
        return;
    put_name(w, word, loc.file);
    fprintf(w->f, ":%d", loc.line);
}

static void put_flags(const writer *w, const tsri_text_flag *flags, const void *of)
{
    for (; flags->word; flags++)
        if (*(const bool *)((const char *)of + flags->offset))
            fprintf(w->f, " %s", flags->word);
}

static void put_number(const writer *w, const tsri_text_number *n, const char *at)
{
    switch (n->type) {
    case TSRI_TEXT_INT:
        fprintf(w->f, "%d", *(const int *)at);
        break;
    case TSRI_TEXT_I64:
        fprintf(w->f, "%" PRId64, *(const int64_t *)at);
        break;
    case TSRI_TEXT_SIZE:
        fprintf(w->f, "%zu", *(const size_t *)at);
        break;
    case TSRI_TEXT_F64:
        tsri_put_double(w->f, *(const double *)at);
    }
}

static void put_numbers(const writer *w, const tsri_text_number *numbers, const void *of)
{
    static const char nothing[2 * sizeof(double)];
    for (const tsri_text_number *n = numbers; n->word; n++) {
        const char *at = (const char *)of + n->offset;
        const size_t bytes = n->type == TSRI_TEXT_INT ? sizeof(int) : sizeof(double);
        if (n->none ? *(const int *)at == n->none : !memcmp(at, nothing, (size_t)n->n * bytes))
            continue;
        fprintf(w->f, " %s ", n->word);
        for (int i = 0; i < n->n; i++) {
            if (i)
                fputc(',', w->f);
            put_number(w, n, at + (size_t)i * bytes);
        }
    }
}

static void put_layout(const writer *w, const char *word, const tsri_layout *l)
{
    char text[TSRI_LAYOUT_TEXT_MAX];
    fprintf(w->f, "%s%s", word, tsri_layout_format(l, text));
}

/* --- numbers of placements and variables ------------------------------------------------------ */
/* Returns the index of a pointer in a list, to which it is added first if needed; -1 if there is no
 * memory. */
static int number_of(tsri_pool *pool, const void ***list, int *n, int *capacity, const void *what)
{
    for (int i = 0; i < *n; i++)
        if ((*list)[i] == what)
            return i;
    if (!TSRI_PUSH(pool, *list, *n, *capacity))
        return -1;
    (*list)[*n] = what;
    return (*n)++;
}

/* Writes the line of a placement at its first use. */
static bool put_placement(writer *w, const tsr_placement *p)
{
    const int known = w->nplacement;
    const int n = number_of(&w->pool, &w->placement, &w->nplacement, &w->cplacement, p);
    if (n == known)
        fprintf(w->f, "p%d %s\n", n, tsr_placement_text(p));
    return n >= 0;
}

static int placement_number(writer *w, const tsr_placement *p)
{
    return number_of(&w->pool, &w->placement, &w->nplacement, &w->cplacement, p);
}

/* --- values ----------------------------------------------------------------------------------- */
static bool put_value(writer *w, int number)
{
    const tsri_value *v = &w->ir->values[number];
    char dims[TSRI_DIMS_TEXT_MAX];
    if (!put_placement(w, v->placement))
        return false;
    fprintf(w->f, "v%d %s (%s)", number, tsr_dtype_name(v->dtype),
            tsri_dims_format(v->shape, dims));
    put_layout(w, " ", &v->layout);
    fprintf(w->f, " p%d", placement_number(w, v->placement));
    if (v->storage == TSRI_STORAGE_ALIAS)
        fprintf(w->f, " over v%d", v->alias);
    if (v->storage == TSRI_STORAGE_PORT)
        fprintf(w->f, " port %d", v->port);
    if (v->storage == TSRI_STORAGE_INNER)
        fputs(" inner", w->f);
    if (v->variable) {
        const int n = number_of(&w->pool, &w->variable, &w->nvariable, &w->cvariable, v->variable);
        if (n < 0)
            return false;
        fprintf(w->f, " %s %d", v->storage == TSRI_STORAGE_VARIABLE ? "variable" : "of", n);
    }
    put_flags(w, tsri_text_value, v);
    put_name(w, "", v->name);
    fputs(" |", w->f);
    put_numbers(w, tsri_text_value_numbers, v);
    put_name(w, "by", v->said_by);
    put_place(w, "from", v->said_at);
    fputc('\n', w->f);
    return true;
}

/* --- items ------------------------------------------------------------------------------------ */
static void put_attrs(const writer *w, const tsri_item *it)
{
    static const char nothing[sizeof(tsri_attrs)];
    const tsri_attrs rest = tsri_text_nameless(it);
    const char *before = " {";
    for (const tsri_attr_field *a = tsri_op_def_of(it->kernel.op)->attrs; a && a->name; a++) {
        const char *at = (const char *)&it->kernel.attrs + a->offset;
        if (!memcmp(at, nothing, (size_t)a->n * tsri_attr_bytes(a->type)))
            continue;
        fprintf(w->f, "%s%s=", before, a->name);
        tsri_attr_put(w->f, a, &it->kernel.attrs);
        before = "; ";
    }
    for (size_t i = 0; i < sizeof rest.raw / sizeof *rest.raw; i++)
        if (rest.raw[i]) {
            fprintf(w->f, "%sraw %zu=0x%" PRIx64, before, i, (uint64_t)rest.raw[i]);
            before = "; ";
        }
    if (before[0] == ';')
        fputc('}', w->f);
}

static void put_kernel(const writer *w, const tsri_item *it)
{
    fprintf(w->f, " %s", tsri_op_name(it->kernel.op));
    put_attrs(w, it);
    put_flags(w, tsri_text_kernel, it);
}

static void put_box(const writer *w, const tsri_item *it)
{
    fprintf(w->f, " %s", tsri_box_kind_name(it->box.step.kind));
    if (it->box.step.dims)
        fprintf(w->f, " dims %u", it->box.step.dims);
    if (it->box.step.op)
        fprintf(w->f, " reduce %d", it->box.step.op);
    put_flags(w, tsri_text_box, it);
}

static void put_values(const writer *w, const char *before, const int *values, int n)
{
    fputs(before, w->f);
    for (int i = 0; i < n; i++)
        fprintf(w->f, " v%d", values[i]);
}

static void put_behind(writer *w, const tsri_item *it)
{
    if (it->placement)
        fprintf(w->f, " on p%d", placement_number(w, it->placement));
    if (it->kind == TSRI_ITEM_KERNEL || it->kind == TSRI_ITEM_VIEW) {
        put_numbers(w, tsri_text_kernel_numbers, it);
        if (it->kernel.dtype)
            fprintf(w->f, " in %s", tsr_dtype_name(it->kernel.dtype));
    } else if (tsri_item_converts(it)) {
        fprintf(w->f, " at p%d", placement_number(w, it->box.from));
        put_layout(w, " from ", &it->box.step.from);
        put_layout(w, " to ", &it->box.step.to);
        put_numbers(w, tsri_text_box_numbers, it);
        if (it->box.nranks)
            fprintf(w->f, " ranks");
        for (int i = 0; i < it->box.nranks; i++)
            fprintf(w->f, "%c%d", i ? ',' : ' ', it->box.ranks[i]);
        put_name(w, "for", it->box.reason);
    }
    put_numbers(w, tsri_text_item_numbers, it);
    put_place(w, "said", it->loc);
}

static bool put_item(writer *w, int number)
{
    const tsri_item *it = &w->ir->items[number];
    if (it->kind == TSRI_ITEM_DEAD) {
        fprintf(w->f, "i%d dead\n", number);
        return true;
    }
    if ((it->placement && !put_placement(w, it->placement)) ||
        (tsri_item_converts(it) && !put_placement(w, it->box.from)))
        return false;
    fprintf(w->f, "i%d %s", number, tsri_text_items[it->kind]);
    if (it->kind == TSRI_ITEM_KERNEL || it->kind == TSRI_ITEM_VIEW)
        put_kernel(w, it);
    else if (tsri_item_converts(it))
        put_box(w, it);
    else
        fprintf(w->f, " %d", it->port);
    if (it->backward)
        fputs(" back", w->f);
    if (it->turn != TSRI_TURN_HEAD)
        fprintf(w->f, " %s", tsri_text_turns[it->turn]);
    if (it->only_if)
        fprintf(w->f, " once %lld", (long long)it->every);
    put_name(w, "", it->name);
    put_values(w, ":", it->in, it->nin);
    put_values(w, " ->", it->out, it->nout);
    fputs(" |", w->f);
    put_behind(w, it);
    fputc('\n', w->f);
    return true;
}

static void put_entries(const writer *w)
{
    enum { IN_A_LINE = 16 };
    for (int i = 0; i < w->ir->nentries; i++) {
        const tsri_entry *e = &w->ir->entries[i];
        fprintf(w->f, "%s i%d", i % IN_A_LINE ? "" : i ? "\nrun" : "run", e->item);
        if (tsri_text_phases[e->phase])
            fputc(tsri_text_phases[e->phase], w->f);
        if (tsri_text_sides[e->side])
            fputc(tsri_text_sides[e->side], w->f);
    }
    if (w->ir->nentries)
        fputc('\n', w->f);
}

/* Stages with their copies, segments, and the tasks in their order. */
static void put_timetable(const writer *w)
{
    const tsri_timetable *t = &w->ir->timetable;
    enum { IN_A_LINE = 8 };
    if (t->nstages < 2)
        return;
    fprintf(w->f, "stages %d", t->nstages);
    for (int s = 0; s < t->nstages; s++)
        fprintf(w->f, " %d", t->slots[s]);
    fputc('\n', w->f);
    for (int s = 0; s < t->nsegments; s++)
        fprintf(w->f, "segment %d %d %.17g\n", t->segment[s].stage, t->segment[s].depth,
                t->segment[s].task_s);
    for (int i = 0; i < t->ntasks; i++)
        fprintf(w->f, "%s %d %d %.17g %.17g",
                i % IN_A_LINE ? ""
                : i           ? "\ntask"
                              : "task",
                t->task[i].segment, t->task[i].part, t->task[i].start_s, t->task[i].end_s);
    fputc('\n', w->f);
}

tsr_status tsri_text_write(const tsri_ir *ir, bool places, FILE *f)
{
    writer w = {.f = f, .ir = ir, .places = places};
    tsri_pool_init(&w.pool, &ir->world->mem);
    fprintf(f, "plan %d ranks %d rank %d", TSRI_TEXT_VERSION, ir->world->nranks, ir->world->rank);
    if (ir->parts > 1)
        fprintf(f, " parts %d", ir->parts);
    fputc('\n', f);
    bool good = true;
    for (int i = 0; i < ir->nvalues && good; i++)
        good = put_value(&w, i);
    for (int i = 0; i < ir->nitems && good; i++)
        good = put_item(&w, i);
    if (good) {
        put_timetable(&w);
        put_entries(&w);
    }
    tsri_pool_finish(&w.pool);
    return good ? TSR_OK : TSR_ERR_NO_MEMORY;
}
