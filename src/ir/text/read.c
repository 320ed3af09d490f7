/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "placement/placement.h"
#include "src/core/attrs_text.h"
#include "src/ir/text/text.h"
#include "src/ir/text/words.h"

typedef struct reader {
    tsri_ir *ir;
    const tsri_ir *of;
    const char *at; /* the next character to parse */
    int line;
    const tsr_placement **placement;
    tsr_variable **variable; /* created by this reader; unused if `of` provides variables */
    int nplacement, cplacement, nvariable, cvariable;
} reader;

static tsr_status fail(const reader *r, const char *what)
{
    const int length = (int)strcspn(r->at, " \n");
    return tsri_fail(TSR_ERR_INVALID, "the plan's text, line %d: %s is expected at '%.*s'", r->line,
                     what, length < 40 ? length : 40, r->at);
}
#define EXPECT(good, what)        \
    do {                          \
        if (!(good))              \
            return fail(r, what); \
    } while (0)

/* --- words ------------------------------------------------------------------------------------ */
static void skip_blanks(reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

/* Consumes `text` if it is the next whole word; returns whether it was. */
static bool accept(reader *r, const char *text)
{
    const size_t n = strlen(text);
    skip_blanks(r);
    if (strncmp(r->at, text, n) != 0 || !strchr(" \n:|", r->at[n]))
        return false;
    r->at += n;
    return true;
}

static bool accept_char(reader *r, char c)
{
    skip_blanks(r);
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

/* Parses a number at the current position, without skipping blanks. */
static bool get_number(reader *r, tsri_text_type type, void *out)
{
    char *end;
    if (*r->at == ' ' || *r->at == '\n')
        return false;
    if (type == TSRI_TEXT_F64) {
        *(double *)out = strtod(r->at, &end);
    } else {
        const int64_t n = strtoll(r->at, &end, 10);
        if (type == TSRI_TEXT_INT && n != (int)n)
            return false;
        if (type == TSRI_TEXT_INT)
            *(int *)out = (int)n;
        else if (type == TSRI_TEXT_I64)
            *(int64_t *)out = n;
        else
            *(size_t *)out = (size_t)n;
    }
    if (end == r->at)
        return false;
    r->at = end;
    return true;
}

static bool get_int(reader *r, int *out)
{
    skip_blanks(r);
    return get_number(r, TSRI_TEXT_INT, out);
}

/* Parses a letter and a number below n, such as "v12". */
static bool get_numbered(reader *r, char letter, int n, int *out)
{
    return accept_char(r, letter) && get_number(r, TSRI_TEXT_INT, out) && *out >= 0 && *out < n;
}

/* Parses a quoted string into the plan's pool of the program. */
static tsr_status get_quoted(reader *r, const char **out)
{
    EXPECT(accept_char(r, '"'), "a quoted name");
    char *text = tsri_pool_alloc(&r->ir->program, strcspn(r->at, "\n") + 1), *t = text;
    TSRI_NEED(text);
    while (*r->at && *r->at != '\n' && *r->at != '"') {
        const bool escaped = *r->at == '\\' && r->at[1];
        r->at += escaped;
        *t++ = escaped && *r->at == 'n' ? '\n' : *r->at;
        r->at++;
    }
    EXPECT(*r->at++ == '"', "a closing quote");
    *t = 0;
    *out = text;
    return TSR_OK;
}

/* Parses an optional quoted name after `word`; leaves *out as it is if there is none. */
static tsr_status get_name(reader *r, const char *word, const char **out)
{
    skip_blanks(r);
    return word[0] ? (accept(r, word) ? get_quoted(r, out) : TSR_OK)
                   : (*r->at == '"' ? get_quoted(r, out) : TSR_OK);
}

static tsr_status get_place(reader *r, const char *word, tsri_loc *out)
{
    TSRI_TRY(get_name(r, word, &out->file));
    EXPECT(!out->file || (accept_char(r, ':') && get_number(r, TSRI_TEXT_INT, &out->line)),
           "a line's number");
    return TSR_OK;
}

static void get_flags(reader *r, const tsri_text_flag *flags, void *of)
{
    for (; flags->word; flags++)
        if (accept(r, flags->word))
            *(bool *)((char *)of + flags->offset) = true;
}

static tsr_status get_numbers(reader *r, const tsri_text_number *numbers, void *of)
{
    for (const tsri_text_number *n = numbers; n->word; n++) {
        char *at = (char *)of + n->offset;
        if (n->none)
            *(int *)at = n->none;
        if (!accept(r, n->word))
            continue;
        skip_blanks(r);
        for (int i = 0; i < n->n; i++) {
            EXPECT(!i || *r->at++ == ',', "a comma");
            EXPECT(get_number(r, n->type, at), "a number");
            at += n->type == TSRI_TEXT_INT ? sizeof(int) : sizeof(double);
        }
    }
    return TSR_OK;
}

/* Parses a word; a blank, a colon, a brace or the end of the line ends it. */
static tsr_status get_word(reader *r, char *buf, size_t size)
{
    skip_blanks(r);
    const size_t n = strcspn(r->at, " \n{:");
    EXPECT(n && n < size, "a word");
    memcpy(buf, r->at, n);
    buf[n] = 0;
    r->at += n;
    return TSR_OK;
}

static tsr_status get_dtype(reader *r, tsr_dtype *out)
{
    char word[16];
    TSRI_TRY(get_word(r, word, sizeof word));
    *out = tsr_dtype_parse(word);
    EXPECT(*out != TSR_DTYPE_NONE, "a dtype before this");
    return TSR_OK;
}

static tsr_status get_dims(reader *r, tsr_dims *out)
{
    EXPECT(accept_char(r, '('), "a shape");
    for (out->ndim = 0; *r->at && *r->at != ')'; r->at += *r->at == ',') {
        EXPECT(out->ndim < TSR_MAX_NDIM && get_number(r, TSRI_TEXT_I64, &out->d[out->ndim]),
               "a size");
        out->ndim++;
    }
    EXPECT(accept_char(r, ')'), "a closing bracket");
    return TSR_OK;
}

static tsr_status get_layout(reader *r, const tsr_placement *p, tsri_layout *out)
{
    char text[TSRI_LAYOUT_TEXT_MAX];
    const tsri_mesh mesh = tsri_mesh_of(p);
    TSRI_TRY(get_word(r, text, sizeof text));
    const tsr_status status = tsri_layout_parse(&mesh, text, out);
    return status == TSR_OK ? TSR_OK
                            : tsri_fail_prefix(status, "the plan's text, line %d", r->line);
}

static tsr_status get_placement(reader *r, const char *word, const tsr_placement **out)
{
    int n;
    EXPECT((!word[0] || accept(r, word)) && get_numbered(r, 'p', r->nplacement, &n), "a placement");
    *out = r->placement[n];
    return TSR_OK;
}

/* --- lines ------------------------------------------------------------------------------------ */
static tsr_status read_placement(reader *r)
{
    int n;
    EXPECT(get_numbered(r, 'p', r->nplacement + 1, &n) && n == r->nplacement,
           "the next placement's number");
    skip_blanks(r);
    const size_t length = strcspn(r->at, "\n");
    char *text = tsri_pool_alloc(&r->ir->scratch, length + 1);
    TSRI_NEED(text && TSRI_PUSH(&r->ir->scratch, r->placement, r->nplacement, r->cplacement));
    memcpy(text, r->at, length);
    r->at += length;
    TSRI_TRY(tsri_placement_parse(r->ir->world, text, &r->placement[n]));
    r->nplacement++;
    return TSR_OK;
}

/* Returns the variable of a number, created with the value's name and type at its first use. */
static tsr_status make_variable(reader *r, int number, const tsri_value *v, tsr_variable **out)
{
    if (number == r->nvariable) {
        tsr_variable *made = tsri_pool_alloc(&r->ir->program, sizeof *made);
        TSRI_NEED(made && TSRI_PUSH(&r->ir->scratch, r->variable, r->nvariable, r->cvariable));
        *made = (tsr_variable){.world = r->ir->world,
                               .name = v->name ? v->name : "",
                               .dtype = v->dtype,
                               .shape = v->shape,
                               .placement = v->placement,
                               .sbp = v->layout.sbp,
                               .trainable = true};
        r->variable[r->nvariable++] = made;
    }
    EXPECT(number >= 0 && number < r->nvariable, "a variable's number before");
    *out = r->variable[number];
    return TSR_OK;
}

/* Parses the storage of a value. *out_variable is the number of its variable, or -1 without one. */
static tsr_status read_storage(reader *r, tsri_value *v, int *out_variable)
{
    *out_variable = -1;
    if (accept(r, "over")) {
        v->storage = TSRI_STORAGE_ALIAS;
        EXPECT(get_numbered(r, 'v', INT32_MAX, &v->alias), "a value");
    } else if (accept(r, "port")) {
        v->storage = TSRI_STORAGE_PORT;
        EXPECT(get_int(r, &v->port), "a port's number");
    } else if (accept(r, "inner")) {
        v->storage = TSRI_STORAGE_INNER;
    }
    const bool held = accept(r, "variable");
    if (held)
        v->storage = TSRI_STORAGE_VARIABLE;
    if (held || accept(r, "of"))
        EXPECT(get_int(r, out_variable), "a variable's number");
    return TSR_OK;
}

static tsr_status read_value(reader *r)
{
    tsri_value v = {0};
    int number, variable, first, last;
    EXPECT(get_numbered(r, 'v', r->ir->nvalues + 1, &number) && number == r->ir->nvalues,
           "the next value's number");
    TSRI_TRY(get_dtype(r, &v.dtype));
    TSRI_TRY(get_dims(r, &v.shape));
    /* The text of a layout precedes its placement, which is needed to parse it. */
    reader ahead = *r;
    char word[TSRI_LAYOUT_TEXT_MAX];
    TSRI_TRY(get_word(&ahead, word, sizeof word));
    TSRI_TRY(get_placement(&ahead, "", &v.placement));
    TSRI_TRY(get_layout(r, v.placement, &v.layout));
    TSRI_TRY(get_placement(r, "", &v.placement));
    TSRI_TRY(read_storage(r, &v, &variable));
    get_flags(r, tsri_text_value, &v);
    TSRI_TRY(get_name(r, "", &v.name));
    EXPECT(accept_char(r, '|'), "'|'");
    TSRI_TRY(get_numbers(r, tsri_text_value_numbers, &v));
    TSRI_TRY(get_name(r, "by", &v.said_by));
    TSRI_TRY(get_place(r, "from", &v.said_at));
    if (r->of) {
        EXPECT(number < r->of->nvalues && (variable < 0) == !r->of->values[number].variable,
               "a value of the plan");
        v.variable = r->of->values[number].variable;
        v.alternatives = r->of->values[number].alternatives;
    } else if (variable >= 0) {
        TSRI_TRY(make_variable(r, variable, &v, &v.variable));
    }
    first = v.first;
    last = v.last;
    TSRI_NEED(tsri_ir_add_value(r->ir, &v) >= 0);
    r->ir->values[number].first = first;
    r->ir->values[number].last = last;
    return TSR_OK;
}

static tsr_status read_attrs(reader *r, tsri_item *it)
{
    tsri_attrs *attrs = &it->kernel.attrs;
    if (!accept_char(r, '{'))
        return TSR_OK;
    do {
        skip_blanks(r);
        const tsri_attr_field *a = tsri_op_def_of(it->kernel.op)->attrs;
        size_t n = 0;
        for (; a && a->name; a++) {
            n = strlen(a->name);
            if (!strncmp(r->at, a->name, n) && r->at[n] == '=')
                break;
        }
        int64_t word = 0;
        if (a && a->name) {
            r->at += n + 1;
            EXPECT(tsri_attr_get(&r->at, a, attrs), "an attribute's value");
        } else {
            EXPECT(accept(r, "raw"), "an attribute");
            skip_blanks(r);
            EXPECT(get_number(r, TSRI_TEXT_I64, &word) && *r->at++ == '=' && word >= 0 &&
                       word < (int64_t)(sizeof attrs->raw / sizeof *attrs->raw),
                   "a word's number");
            char *end;
            attrs->raw[word] |= (int64_t)strtoull(r->at, &end, 16);
            r->at = end;
        }
    } while (accept_char(r, ';'));
    EXPECT(accept_char(r, '}'), "'}'");
    return TSR_OK;
}

static tsr_status read_kernel(reader *r, tsri_item *it)
{
    char word[64];
    TSRI_TRY(get_word(r, word, sizeof word));
    const int op = tsri_op_named(word, strlen(word));
    EXPECT(op >= 0, "an op before this");
    it->kernel.op = (tsri_op_kind)op;
    TSRI_TRY(read_attrs(r, it));
    get_flags(r, tsri_text_kernel, it);
    return TSR_OK;
}

static tsr_status read_box(reader *r, tsri_item *it)
{
    int kind = 0, number;
    for (; kind <= TSRI_BOX_SEND_RECV; kind++)
        if (accept(r, tsri_box_kind_name((tsri_box_kind)kind)))
            break;
    EXPECT(kind <= TSRI_BOX_SEND_RECV, "a conversion");
    it->box.step.kind = (tsri_box_kind)kind;
    if (accept(r, "dims")) {
        EXPECT(get_int(r, &number), "the bits of dimensions");
        it->box.step.dims = (uint8_t)number;
    }
    if (accept(r, "reduce")) {
        EXPECT(get_int(r, &number), "a reduction's number");
        it->box.step.op = (tsr_reduce_op)number;
    }
    get_flags(r, tsri_text_box, it);
    return TSR_OK;
}

/* Parses a list of values, " v1 v2", into the plan's scratch. */
static tsr_status read_list(reader *r, int **out, int *out_n)
{
    int capacity = 0;
    *out = NULL;
    *out_n = 0;
    for (skip_blanks(r); *r->at == 'v'; skip_blanks(r)) {
        TSRI_NEED(TSRI_PUSH(&r->ir->scratch, *out, *out_n, capacity));
        EXPECT(get_numbered(r, 'v', r->ir->nvalues, &(*out)[*out_n]), "a value");
        ++*out_n;
    }
    return TSR_OK;
}

static tsr_status read_ranks(reader *r, tsri_item *it)
{
    int *ranks = NULL, capacity = 0;
    if (!accept(r, "ranks"))
        return TSR_OK;
    do {
        TSRI_NEED(TSRI_PUSH(&r->ir->program, ranks, it->box.nranks, capacity));
        EXPECT(get_int(r, &ranks[it->box.nranks]), "a rank");
        it->box.nranks++;
    } while (accept_char(r, ','));
    it->box.ranks = ranks;
    return TSR_OK;
}

/* Parses the part of an item's line after the bar. */
static tsr_status read_behind(reader *r, tsri_item *it)
{
    skip_blanks(r);
    if (!strncmp(r->at, "on ", 3))
        TSRI_TRY(get_placement(r, "on", &it->placement));
    if (it->kind == TSRI_ITEM_KERNEL || it->kind == TSRI_ITEM_VIEW) {
        TSRI_TRY(get_numbers(r, tsri_text_kernel_numbers, it));
        if (accept(r, "in"))
            TSRI_TRY(get_dtype(r, &it->kernel.dtype));
    } else if (tsri_item_converts(it)) {
        TSRI_TRY(get_placement(r, "at", &it->box.from));
        EXPECT(accept(r, "from"), "'from'");
        TSRI_TRY(get_layout(r, it->box.from, &it->box.step.from));
        EXPECT(accept(r, "to"), "'to'");
        TSRI_TRY(get_layout(r, it->placement, &it->box.step.to));
        TSRI_TRY(get_numbers(r, tsri_text_box_numbers, it));
        TSRI_TRY(read_ranks(r, it));
        TSRI_TRY(get_name(r, "for", &it->box.reason));
    }
    TSRI_TRY(get_numbers(r, tsri_text_item_numbers, it));
    return get_place(r, "said", &it->loc);
}

/* Copies the pointers that have no text from the same item of the other plan. */
static tsr_status bind(const reader *r, int number, tsri_item *it)
{
    const bool is_group = tsri_item_converts(it) && it->box.nranks;
    if (!is_group && !tsri_text_is_bound(it))
        return TSR_OK;
    EXPECT(r->of && number < r->of->nitems, "a plan to take a constant, an own op or a group from");
    const tsri_item *of = &r->of->items[number];
    if (is_group)
        it->box.group = of->box.group;
    else if (it->kernel.op == TSRI_OP_CONSTANT)
        it->kernel.attrs.constant.data = of->kernel.attrs.constant.data;
    else
        it->kernel.attrs.own.op = of->kernel.attrs.own.op;
    return TSR_OK;
}

/* Reads the condition of an item that one of several runs executes: the condition of the same item
 * of the other plan, or one that never holds and is shared by items with equal numbers of runs. */
static tsr_status read_condition(reader *r, int number, tsri_item *it)
{
    int64_t every;
    if (!accept(r, "once"))
        return TSR_OK;
    skip_blanks(r);
    EXPECT(get_number(r, TSRI_TEXT_I64, &every) && every > 1, "a number of runs above 1");
    it->every = every;
    if (r->of && number < r->of->nitems && tsri_item_every(&r->of->items[number]) == every) {
        it->only_if = r->of->items[number].only_if;
        return TSR_OK;
    }
    for (int i = 0; i < r->ir->nitems; i++)
        if (r->ir->items[i].only_if && r->ir->items[i].every == every) {
            it->only_if = r->ir->items[i].only_if;
            return TSR_OK;
        }
    const tsri_condition condition = {.every = every};
    it->only_if = tsri_pool_dup(&r->ir->program, &condition, sizeof condition);
    TSRI_NEED(it->only_if);
    return TSR_OK;
}

static tsr_status read_item(reader *r)
{
    tsri_item it = {0};
    int number, kind = 0, *in = NULL, *out = NULL;
    EXPECT(get_numbered(r, 'i', r->ir->nitems + 1, &number) && number == r->ir->nitems,
           "the next item's number");
    while (kind < TSRI_TEXT_ITEMS && !accept(r, tsri_text_items[kind]))
        kind++;
    EXPECT(kind < TSRI_TEXT_ITEMS, "a kind of item");
    it.kind = (tsri_item_kind)kind;
    if (it.kind != TSRI_ITEM_DEAD) {
        if (it.kind == TSRI_ITEM_KERNEL || it.kind == TSRI_ITEM_VIEW)
            TSRI_TRY(read_kernel(r, &it));
        else if (tsri_item_converts(&it))
            TSRI_TRY(read_box(r, &it));
        else
            EXPECT(get_int(r, &it.port), "a port's number");
        it.backward = accept(r, "back");
        for (int turn = TSRI_TURN_PARTS; turn <= TSRI_TURN_TAIL; turn++)
            if (accept(r, tsri_text_turns[turn]))
                it.turn = (tsri_turn)turn;
        TSRI_TRY(read_condition(r, number, &it));
        TSRI_TRY(get_name(r, "", &it.name));
        EXPECT(accept_char(r, ':'), "':'");
        TSRI_TRY(read_list(r, &in, &it.nin));
        EXPECT(accept(r, "->"), "'->'");
        TSRI_TRY(read_list(r, &out, &it.nout));
        EXPECT(accept_char(r, '|'), "'|'");
        TSRI_TRY(read_behind(r, &it));
        TSRI_TRY(bind(r, number, &it));
    }
    return tsri_ir_add_item(r->ir, &it, in, out) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status read_entries(reader *r)
{
    tsri_ir *ir = r->ir;
    for (skip_blanks(r); *r->at == 'i'; skip_blanks(r)) {
        tsri_entry e = {0};
        EXPECT(get_numbered(r, 'i', ir->nitems, &e.item), "an item");
        for (int phase = TSRI_PHASE_START; phase <= TSRI_PHASE_RELEASE; phase++)
            if (*r->at == tsri_text_phases[phase])
                e.phase = (tsri_phase)phase;
        r->at += e.phase != TSRI_PHASE_DO;
        for (int side = TSRI_SIDE_SENDS; side <= TSRI_SIDE_RECEIVES; side++)
            if (*r->at == tsri_text_sides[side])
                e.side = (tsri_entry_side)side;
        r->at += e.side != TSRI_SIDE_ALL;
        TSRI_NEED(TSRI_PUSH(&ir->scratch, ir->entries, ir->nentries, ir->centries));
        ir->entries[ir->nentries++] = e;
    }
    return TSR_OK;
}

static bool get_seconds(reader *r, double *out)
{
    skip_blanks(r);
    return get_number(r, TSRI_TEXT_F64, out);
}

/* "stages 2 2 1": a new timetable. */
static tsr_status read_stages(reader *r)
{
    tsri_timetable *t = &r->ir->timetable;
    *t = (tsri_timetable){.stage_of = t->stage_of};
    EXPECT(get_int(r, &t->nstages) && t->nstages > 1 && t->nstages <= r->ir->world->nranks,
           "a number of stages");
    t->slots = tsri_pool_alloc(&r->ir->scratch, (size_t)t->nstages * sizeof *t->slots);
    TSRI_NEED(t->slots);
    for (int s = 0; s < t->nstages; s++)
        EXPECT(get_int(r, &t->slots[s]) && t->slots[s] > 0, "a number of copies");
    return TSR_OK;
}

/* "segment 0 1 2.5e-06": a stage, a depth, and the seconds of a task. */
static tsr_status read_segment(reader *r)
{
    tsri_timetable *t = &r->ir->timetable;
    tsri_part_segment s;
    int room = t->nsegments;
    EXPECT(get_int(r, &s.stage) && s.stage >= 0 && s.stage < t->nstages, "a stage");
    EXPECT(get_int(r, &s.depth) && get_seconds(r, &s.task_s), "depth and seconds");
    TSRI_NEED(TSRI_PUSH(&r->ir->scratch, t->segment, t->nsegments, room));
    t->segment[t->nsegments++] = s;
    return TSR_OK;
}

/* Tasks, each as a segment, a part, its start and its end. */
static tsr_status read_tasks(reader *r)
{
    tsri_timetable *t = &r->ir->timetable;
    if (!t->task)
        t->task = tsri_pool_alloc(&r->ir->scratch,
                                  (size_t)t->nsegments * (size_t)r->ir->parts * sizeof *t->task);
    TSRI_NEED(t->task);
    for (skip_blanks(r); *r->at != '\n'; skip_blanks(r)) {
        tsri_task_of task;
        EXPECT(get_int(r, &task.segment) && task.segment >= 0 && task.segment < t->nsegments,
               "a segment");
        EXPECT(get_int(r, &task.part) && task.part >= 0 && task.part < r->ir->parts, "a part");
        EXPECT(get_seconds(r, &task.start_s) && get_seconds(r, &task.end_s), "a start and an end");
        EXPECT(t->ntasks < t->nsegments * r->ir->parts, "no more tasks than segments have parts");
        t->task[t->ntasks++] = task;
    }
    return TSR_OK;
}

static tsr_status read_head(reader *r)
{
    int version, ranks, rank;
    EXPECT(accept(r, "plan") && get_int(r, &version) && version == TSRI_TEXT_VERSION,
           "'plan' and the number of this format");
    EXPECT(accept(r, "ranks") && get_int(r, &ranks) && ranks == r->ir->world->nranks,
           "the world's number of ranks");
    EXPECT(accept(r, "rank") && get_int(r, &rank) && rank == r->ir->world->rank,
           "the world's rank");
    r->ir->parts = 1;
    if (accept(r, "parts"))
        EXPECT(get_int(r, &r->ir->parts) && r->ir->parts > 1, "a number of parts");
    return TSR_OK;
}

static tsr_status read_line(reader *r)
{
    if (r->line == 1)
        return read_head(r);
    if (accept(r, "run"))
        return read_entries(r);
    if (accept(r, "stages"))
        return read_stages(r);
    if (accept(r, "segment"))
        return read_segment(r);
    if (accept(r, "task"))
        return read_tasks(r);
    switch (*r->at) {
    case 'p':
        return read_placement(r);
    case 'v':
        return read_value(r);
    case 'i':
        return read_item(r);
    default:
        EXPECT(*r->at == '\n' || *r->at == '#', "a placement, a value, an item, stages or 'run'");
        r->at += strcspn(r->at, "\n");
        return TSR_OK;
    }
}

tsr_status tsri_text_read(tsri_ir *ir, const char *text, const tsri_ir *of)
{
    const tsri_ir before = of ? *of : (tsri_ir){0};
    reader reading = {.ir = ir, .of = of ? &before : NULL, .at = text, .line = 1};
    reader *r = &reading;
    ir->values = NULL;
    ir->items = NULL;
    ir->entries = NULL;
    ir->nvalues = ir->cvalues = ir->nitems = ir->citems = 0;
    ir->nentries = ir->centries = 0;
    for (; *r->at; r->line++) {
        TSRI_TRY(read_line(r));
        skip_blanks(r);
        EXPECT(*r->at == '\n', "the end of the line");
        r->at++;
    }
    for (int i = 0; i < ir->nvalues; i++)
        if (ir->values[i].storage == TSRI_STORAGE_ALIAS)
            EXPECT(ir->values[i].alias < ir->nvalues, "a value that others lie over");
    return TSR_OK;
}
