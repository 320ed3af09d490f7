/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera plan FILE --why NAME`: what a tensor's signature comes from, what it causes, and what
 * each other would cost. */
#include "src/cli/plan/ask.h"
#include "src/core/text_stream.h"
#include "src/plan/infer/strategies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS = 80, SAID_INDENT = 15, STEP_INDENT = 6, SENDS_INDENT = 11 };

typedef struct asker {
    plan_made made;
    plan_names names;
    const tsr_tensor *t;
    const tsri_item **maker;     /* by value: the item that makes it */
    const tsri_report_row **row; /* by item: its row; NULL: it has none */
} asker;

/* --- what the plan has ------------------------------------------------------------------------ */
static tsr_status index_plan(asker *a)
{
    const tsr_plan *plan = a->made.plan;
    const tsri_report *r = a->made.report;
    a->maker = tsri_pool_alloc(&a->names.pool, (size_t)plan->ir.nvalues * sizeof *a->maker);
    a->row = tsri_pool_alloc(&a->names.pool, (size_t)plan->ir.nitems * sizeof *a->row);
    TSRI_NEED(a->maker && a->row);
    for (int i = 0; i < plan->ir.nitems; i++)
        for (int j = 0; j < plan->ir.items[i].nout; j++)
            if (plan->ir.items[i].kind != TSRI_ITEM_DEAD)
                a->maker[plan->ir.items[i].out[j]] = &plan->ir.items[i];
    for (int i = 0; i < r->nrows; i++)
        if (r->rows[i].item)
            a->row[r->rows[i].item - plan->ir.items] = &r->rows[i];
    return TSR_OK;
}

static const tsri_report_row *row_of(const asker *a, const tsri_item *it)
{
    return a->row[it - a->made.plan->ir.items];
}

/* The value that a tensor is made as; NULL: nothing that is kept needs it. */
static const tsri_value *made_value(const tsr_plan *plan, const tsr_tensor *t)
{
    for (int i = 0; i < plan->ir.nvalues; i++)
        if (plan->ir.values[i].tensor == t->id)
            return &plan->ir.values[i];
    return NULL;
}

static const char *layout_text(const tsri_value *v, char buf[TSRI_LAYOUT_TEXT_MAX])
{
    return v ? tsri_layout_format(&v->layout, buf) : "?";
}

static bool is_whole(const tsri_value *v)
{
    return !v || !tsri_sbp_dims(v->placement, v->layout.sbp, TSR_SBP_SPLIT);
}

/* Prints a text in lines that fit: the first behind `indent` blanks, the others behind `rest`. */
static void print_wrapped(const char *text, int indent, int rest)
{
    cli_say("%*s", indent, "");
    cli_wrap(text, indent, rest, cli_columns_or(COLUMNS));
}

/* --- conversions ------------------------------------------------------------------------------ */
/* "all_gather S(0) -> B, 1 group of 4 ranks, NVLink, 3.46 KB, 3.20 us" */
static void put_box(plan_text *t, const asker *a, const tsri_item *it)
{
    const tsri_report_row *row = row_of(a, it);
    const tsr_plan *plan = a->made.plan;
    char from[TSRI_LAYOUT_TEXT_MAX], to[TSRI_LAYOUT_TEXT_MAX], call[PLAN_CALL_MAX];
    plan_put(t, "%s %s -> %s", row->what, layout_text(&plan->ir.values[it->in[0]], from),
             layout_text(&plan->ir.values[it->out[0]], to));
    if (it->nin > 1)
        plan_put(t, " with %d tensor%s more", it->nin - 1, it->nin > 2 ? "s" : "");
    if (row->cost_s > 0)
        plan_put(t, ", %s", plan_call_text(plan, row, call));
}

static void print_box(const asker *a, const tsri_item *it)
{
    plan_text t = {.used = 0};
    put_box(&t, a, it);
    print_wrapped(t.data, STEP_INDENT, STEP_INDENT + 2);
}

static bool is_of(const tsr_plan *plan, int value, const tsr_tensor *t)
{
    return plan->ir.values[value].tensor == t->id;
}

/* Whether the item converts the tensor; *out_pair: which of its pairs. */
static bool converts(const tsr_plan *plan, const tsri_item *it, const tsr_tensor *t, int *out_pair)
{
    for (int j = 0; tsri_item_converts(it) && j < it->nin; j++)
        if (is_of(plan, it->in[j], t)) {
            *out_pair = j;
            return true;
        }
    return false;
}

/* The steps that lead to a value of the tensor, in order; returns how many there are. */
static int list_steps(const asker *a, int value, const tsri_item **steps, int most)
{
    int n = 0;
    for (const tsri_item *it = a->maker[value]; it && tsri_item_converts(it) && n < most;) {
        int pair = 0;
        while (it->out[pair] != value)
            pair++;
        steps[n++] = it;
        value = it->in[pair];
        it = a->maker[value];
    }
    for (int i = 0; i < n / 2; i++) {
        const tsri_item *swapped = steps[i];
        steps[i] = steps[n - 1 - i];
        steps[n - 1 - i] = swapped;
    }
    return n;
}

static void print_steps(const asker *a, int value)
{
    enum { MOST = 16 };
    const tsri_item *steps[MOST];
    int n = list_steps(a, value, steps, MOST);
    for (int i = 0; i < n; i++)
        print_box(a, steps[i]);
}

/* --- from cause to effect --------------------------------------------------------------------- */
/* A name of a file stays in one piece, so that it can be copied. */
static void print_said(const asker *a, const tsr_tensor *t)
{
    tsri_said said;
    if (tsri_program_said(a->made.program, t, &said)) {
        cli_say("%*ssaid at %s: %s\n", SAID_INDENT, "", said.place, said.key);
        if (said.match)
            cli_say("%*sthe last match that fits: %s\n", SAID_INDENT, "", said.match);
        return;
    }
    cli_say("%*s%s\n", SAID_INDENT, "",
            t->op->kind == TSRI_OP_VARIABLE ? "kept as whoever made it chose"
                                            : "nobody said; the planner's choice");
}

/* The operand that a tensor's signature follows: one that is split, and is read as it is made. */
static const tsr_tensor *followed(const asker *a, const tsr_tensor *t)
{
    const tsr_plan *plan = a->made.plan;
    const tsri_value *v = made_value(plan, t);
    const tsri_item *it = v ? a->maker[v - plan->ir.values] : NULL;
    const tsr_tensor *best = NULL;
    int best_rank = -1;
    for (int i = 0; it && i < t->op->nin; i++) {
        const tsr_tensor *x = t->op->in[i];
        const tsri_value *made = made_value(plan, x), *read = made;
        for (int j = 0; j < it->nin; j++)
            if (is_of(plan, it->in[j], x))
                read = &plan->ir.values[it->in[j]];
        int rank = 2 * !is_whole(read) + (read == made);
        if (made && rank > best_rank) {
            best_rank = rank;
            best = x;
        }
    }
    return best;
}

/* The path from a tensor that follows nothing to t; the last of path[n] is t. */
static int list_path(const asker *a, const tsr_tensor **path, int most)
{
    int n = 0;
    for (const tsr_tensor *t = a->t; t && n < most; t = followed(a, t)) {
        tsri_said said;
        path[n++] = t;
        if (tsri_program_said(a->made.program, t, &said))
            break;
    }
    for (int i = 0; i < n / 2; i++) {
        const tsr_tensor *swapped = path[i];
        path[i] = path[n - 1 - i];
        path[n - 1 - i] = swapped;
    }
    return n;
}

static tsr_status print_cause(const asker *a)
{
    enum { MOST = 8192, SHOWN = 3 };
    const tsr_plan *plan = a->made.plan;
    const tsr_tensor **path = calloc(MOST, sizeof(tsr_tensor *));
    char sbp[TSRI_LAYOUT_TEXT_MAX];
    TSRI_NEED(path);
    int n = list_path(a, path, MOST);
    for (int i = 0; i < n; i++) {
        const tsr_tensor *t = path[i];
        if (i == SHOWN && n > 2 * SHOWN + 1) {
            int left_out = n - 2 * SHOWN;
            cli_say("  ... %d tensors between, each from the one before\n", left_out);
            i += left_out - 1;
            continue;
        }
        cli_say("  %-12s ", layout_text(made_value(plan, t), sbp));
        cli_wrap(a->names.of[t->id], SAID_INDENT, SAID_INDENT, cli_columns_or(COLUMNS));
        if (i == 0)
            print_said(a, t);
    }
    free(path);
    return TSR_OK;
}

/* "conv2d features.0.0 takes x in S(0), features.0.0.weight in B, and makes S(0)" */
static void print_maker(const asker *a)
{
    const tsr_plan *plan = a->made.plan;
    const tsri_value *v = made_value(plan, a->t);
    const tsri_item *it = v ? a->maker[v - plan->ir.values] : NULL;
    char sbp[TSRI_LAYOUT_TEXT_MAX];
    if (!it || (it->kind != TSRI_ITEM_KERNEL && it->kind != TSRI_ITEM_VIEW))
        return;
    enum { SHOWN = 16 };
    plan_text t = {.used = 0};
    plan_put(&t, "%s takes", tsri_op_word(it->kernel.op, &it->kernel.attrs));
    for (int i = 0; i < it->nin && i < SHOWN; i++) {
        const tsri_value *in = &plan->ir.values[it->in[i]];
        plan_put(&t, "%s %.90s in %s", i ? "," : "",
                 in->tensor >= 0 ? a->names.of[in->tensor] : in->name, layout_text(in, sbp));
    }
    if (it->nin > SHOWN)
        plan_put(&t, ", and %d more", it->nin - SHOWN);
    plan_put(&t, "%s and makes %s", it->nin ? "," : "", layout_text(v, sbp));
    print_wrapped(t.data, 2, STEP_INDENT);
    for (int i = 0; i < it->nin; i++)
        print_steps(a, it->in[i]);
}

/* --- readers ---------------------------------------------------------------------------------- */
/* The name of a reader: its op's, or that of its module. */
static void print_reader(const asker *a, const tsri_item *it, int operand)
{
    const tsr_plan *plan = a->made.plan;
    const int value = it->in[operand], result = it->nout ? plan->ir.values[it->out[0]].tensor : -1;
    const tsri_item *maker = a->maker[value];
    const char *title = tsri_op_word(it->kernel.op, &it->kernel.attrs);
    const char *name = result >= 0 ? a->names.of[result] : it->name;
    const bool again = !strncmp(name, title, strlen(title));
    char sbp[TSRI_LAYOUT_TEXT_MAX];
    plan_text t = {.used = 0};
    plan_put(&t, "%s%s%s:%s", title, again ? "" : " ", again ? name + strlen(title) : name,
             maker && tsri_item_converts(maker) ? "" : " as it is");
    int used = cli_say("  in %-8s ", layout_text(&plan->ir.values[value], sbp));
    cli_wrap(t.data, used, SAID_INDENT, cli_columns_or(COLUMNS));
    print_steps(a, value);
}

static void print_readers(const asker *a)
{
    const tsr_plan *plan = a->made.plan;
    const tsr_graph *g = a->names.graph;
    char sbp[TSR_SBP_TEXT_MAX];
    int n = 0;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        if (it->kind != TSRI_ITEM_KERNEL && it->kind != TSRI_ITEM_VIEW)
            continue;
        for (int j = 0; j < it->nin; j++)
            if (is_of(plan, it->in[j], a->t)) {
                print_reader(a, it, j);
                n++;
            }
    }
    for (int i = 0; i < g->nports; i++)
        if (!g->ports[i].is_input && g->ports[i].tensor == a->t) {
            cli_say("  in %-8s output '%s'\n", tsr_sbp_format(plan->ir.ports[i].info.sbp, sbp),
                    g->ports[i].name);
            n++;
        }
    if (!n)
        cli_say("  nothing\n");
}

/* Conversions of results that the variable keeps. */
static void print_writers(const asker *a)
{
    const tsr_plan *plan = a->made.plan;
    const tsr_variable *v = a->t->op->kind == TSRI_OP_VARIABLE ? a->t->op->variable : NULL;
    const tsr_graph *g = a->names.graph;
    char sbp[TSRI_LAYOUT_TEXT_MAX];
    for (int i = 0; v && i < g->ntensors; i++) {
        const tsr_tensor *t = g->tensors[i];
        if (t->writes != v || t->superseded || !made_value(plan, t))
            continue;
        cli_say("written by\n  in %-8s %s\n", layout_text(made_value(plan, t), sbp),
                a->names.of[t->id]);
        for (int k = 0, pair; k < plan->ir.nitems; k++)
            if (converts(plan, &plan->ir.items[k], t, &pair))
                print_box(a, &plan->ir.items[k]);
    }
}

/* --- each signature --------------------------------------------------------------------------- */
typedef struct trial {
    tsr_sbp sbp;
    char *set; /* the override that pins it; NULL: none can */
    bool chosen, relaxed;
    plan_figures figures;
    char failure[240]; /* why there is no plan; "": there is one */
    char *sends;       /* the conversions of the tensor */
} trial;

static const tsr_tensor *tensor_named(const asker *a, const plan_names *names)
{
    const char *name = a->names.of[a->t->id];
    for (int i = 0; i < names->n; i++)
        if (!strcmp(names->all[i].label, name))
            return names->all[i].tensor;
    return NULL;
}

/* Whether an item converts the tensor; or, if that is a variable, its gradient or its new value. */
static bool converts_any(const asker *a, const tsri_item *it)
{
    const tsr_graph *g = a->names.graph;
    const tsr_variable *v = a->t->op->kind == TSRI_OP_VARIABLE ? a->t->op->variable : NULL;
    int pair;
    bool any = converts(a->made.plan, it, a->t, &pair);
    for (int i = 0; v && i < g->minimized.ngradients && !any; i++)
        any = g->minimized.gradients[i].variable == v &&
              converts(a->made.plan, it, g->minimized.gradients[i].gradient, &pair);
    for (int j = 0; v && tsri_item_converts(it) && j < it->nin && !any; j++) {
        int tensor = a->made.plan->ir.values[it->in[j]].tensor;
        any = tensor >= 0 && g->tensors[tensor]->writes == v;
    }
    return any;
}

/* Tells what is sent for the tensor: the text of up to three conversions, a line each. */
static char *sends_of(const asker *a)
{
    enum { SHOWN = 3 };
    const tsr_plan *plan = a->made.plan;
    tsri_text_stream out;
    int n = 0;
    if (!tsri_text_open(&out, NULL))
        return NULL;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        if (it->kind == TSRI_ITEM_RELABEL || !converts_any(a, it))
            continue;
        if (n++ < SHOWN) {
            plan_text t = {.used = 0};
            put_box(&t, a, it);
            tsri_fshow(out.stream, "%s: %s\n", t.data, it->box.reason);
        }
    }
    if (n > SHOWN)
        tsri_fshow(out.stream, "and %d more\n", n - SHOWN);
    return tsri_text_close(&out, NULL);
}

/* Keeps the first line of the last error as the reason why there is no plan. */
static void fail_trial(trial *x)
{
    const char *error = tsr_last_error();
    snprintf(x->failure, sizeof x->failure, "%.*s", (int)strcspn(error, "\n"), error);
}

/* Holds the program's tensor to the signature where no override can. */
static void pin(tsri_program *p, const tsr_tensor *t, tsr_sbp sbp)
{
    if (t->op->kind == TSRI_OP_VARIABLE)
        t->op->variable->sbp = sbp;
    else
        p->graph->pin = (tsri_pin){t, sbp};
}

/* Makes the source with an override more (NULL: none). The caller frees the list that it gives,
 * NULL where there is no memory. */
static const char **source_with(const plan_source *from, const char *set, plan_source *out)
{
    const char **sets = calloc((size_t)from->nsets + 1, sizeof *sets);
    *out = *from;
    for (int i = 0; sets && i < from->nsets; i++)
        sets[i] = from->sets[i];
    if (sets && set)
        sets[out->nsets++] = set;
    out->sets = sets;
    return sets;
}

/* Plans anew with the tensor in the signature of x. */
static void try_one(const asker *a, trial *x, bool *out_of_memory)
{
    plan_source with;
    const char **sets = source_with(a->made.from, x->set, &with);
    asker b = {0};
    *out_of_memory = false;
    tsr_status status = sets ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = plan_open(&with, &b.made);
    if (status == TSR_OK)
        status = plan_names_make(b.made.program, &b.names);
    if (status == TSR_OK && !(b.t = tensor_named(a, &b.names)))
        status = tsr_set_error(TSR_ERR_INVALID, "the tensor has another name then");
    if (status == TSR_OK && !x->set)
        pin(b.made.program, b.t, x->sbp);
    if (status == TSR_OK)
        status = plan_compile(&b.made);
    if (status == TSR_OK)
        status = index_plan(&b);
    if (status == TSR_OK) {
        x->figures = plan_figures_of(b.made.report);
        x->relaxed = b.made.plan->ir.relaxed && !a->made.plan->ir.relaxed;
        x->sends = sends_of(&b);
        status = x->sends ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    if (plan_lacks_memory(status, &b.made.opts)) {
        *out_of_memory = true;
    } else if (status != TSR_OK) {
        fail_trial(x);
    }
    plan_names_finish(&b.names);
    plan_drop(&b.made);
    free(sets);
}

static int by_time(const void *a, const void *b)
{
    const trial *x = a, *y = b;
    if (!x->failure[0] != !y->failure[0])
        return x->failure[0] ? 1 : -1;
    return (x->figures.step_s > y->figures.step_s) - (x->figures.step_s < y->figures.step_s);
}

/* "+1.2 us" */
static char *signed_seconds(double s, char buf[CLI_NUMBER_MAX])
{
    char text[CLI_NUMBER_MAX];
    snprintf(buf, CLI_NUMBER_MAX, "%c%.30s", s < 0 ? '-' : '+', cli_seconds(fabs(s), text));
    return buf;
}

/* The parts of a step that take another time, the largest first. */
static void put_difference(plan_text *t, const tsri_cost_model *m, const plan_figures *base,
                           const plan_figures *x)
{
    enum { PARTS = 1 + TSRI_MAX_LINKS };
    double more[PARTS] = {x->compute_s - base->compute_s};
    bool told[PARTS] = {false};
    char text[CLI_NUMBER_MAX], name[TSRI_LINK_NAME_MAX];
    for (int l = 0; l < TSRI_MAX_LINKS; l++)
        more[1 + l] = x->link_s[l] - base->link_s[l];
    for (int k = 0; k < PARTS; k++) {
        int most = -1;
        for (int i = 0; i < PARTS; i++)
            if (!told[i] && (most < 0 || fabs(more[i]) > fabs(more[most])))
                most = i;
        told[most] = true;
        if (fabs(more[most]) <= 1e-9 * base->step_s)
            break;
        plan_put(t, "%s%s %s", t->used ? ", " : "",
                 most ? tsri_link_name(m, most - 1, name) : "compute",
                 signed_seconds(more[most], text));
    }
    double bytes = (double)x->memory - (double)base->memory;
    if (fabs(bytes) >= 1)
        plan_put(t, "%smemory %c%s", t->used ? ", " : "", bytes < 0 ? '-' : '+',
                 cli_bytes(fabs(bytes), text));
    if (!t->used)
        plan_put(t, "the same");
}

/* Prints lines, each wrapped. */
static void print_sends(const char *sends)
{
    while (*sends) {
        plan_text line = {.used = 0};
        size_t length = strcspn(sends, "\n");
        plan_put(&line, "%.*s", (int)length, sends);
        print_wrapped(line.data, SENDS_INDENT, SENDS_INDENT + 2);
        sends += length + (sends[length] == '\n');
    }
}

static void print_trial(const asker *a, const trial *x, int width, const plan_figures *base)
{
    char sbp[TSR_SBP_TEXT_MAX], step[CLI_NUMBER_MAX], more[CLI_NUMBER_MAX];
    plan_text t = {.used = 0};
    int used = cli_say("  %-*s ", width, tsr_sbp_format(x->sbp, sbp));
    if (x->failure[0])
        plan_put(&t, "%s%s", strncmp(x->failure, "no plan", 7) ? "no plan: " : "", x->failure);
    else if (x->chosen)
        plan_put(&t, "as it is");
    else
        put_difference(&t, &a->made.plan->ir.model, base, &x->figures);
    if (!x->failure[0])
        used += cli_say("%9s  ", cli_seconds(x->figures.step_s, step));
    if (!x->failure[0] && !x->chosen)
        used += cli_say("%9s  ", signed_seconds(x->figures.step_s - base->step_s, more));
    cli_wrap(t.data, used, SENDS_INDENT, cli_columns_or(COLUMNS));
    if (x->relaxed)
        print_wrapped("data parallelism cannot reach this signature: planned with infer_updates, "
                      "and compared with the plan that has it",
                      SENDS_INDENT, SENDS_INDENT + 2);
    if (x->sends)
        print_sends(x->sends);
}

/* Tells a terminal how far it is. */
static void show_progress(int done, int all)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (done < all)
        tsri_fshow(stderr, "\rsignature %d of %d", done + 1, all);
    else
        tsri_fshow(stderr, "\r\033[K");
}

static tsr_status run_trials(const asker *a, trial *trials, int n, const plan_figures *base)
{
    const tsri_value *v = made_value(a->made.plan, a->t);
    bool no_memory = false;
    for (int i = 0; i < n && !no_memory; i++) {
        trial *x = &trials[i];
        x->chosen = tsr_sbp_equal(x->sbp, v->layout.sbp);
        show_progress(i, n);
        if (x->chosen) {
            x->figures = *base;
            no_memory = !(x->sends = sends_of(a));
        } else {
            try_one(a, x, &no_memory);
        }
    }
    show_progress(n, n);
    return no_memory ? TSR_ERR_NO_MEMORY : TSR_OK;
}

/* base: of the plan as it is; relaxed: of that with infer_updates. */
static void print_trials(const asker *a, const trial *trials, int n, const plan_figures *base,
                         const plan_figures *relaxed)
{
    char sbp[TSR_SBP_TEXT_MAX];
    int width = 0;
    for (int i = 0; i < n; i++) {
        int length = (int)strlen(tsr_sbp_format(trials[i].sbp, sbp));
        width = length > width ? length : width;
    }
    for (int i = 0; i < n; i++)
        print_trial(a, &trials[i], width, trials[i].relaxed ? relaxed : base);
    for (int i = 0; i < n; i++)
        if (!trials[i].chosen && trials[i].set && !trials[i].failure[0]) {
            cli_say("to plan with one of them:\n  --set '%s'\n", trials[i].set);
            return;
        }
}

/* Lists the signatures that a tensor could have, and the one that it has. */
static tsr_status list_trials(asker *a, trial **out_trials, int *out_n)
{
    const tsri_value *v = made_value(a->made.plan, a->t);
    tsri_pool *pool = &a->names.pool;
    tsr_sbp *legal;
    int n;
    TSRI_TRY(tsri_legal_signatures(&a->made.plan->ir.model, a->t, pool, &n, &legal));
    bool listed = false;
    for (int i = 0; i < n; i++)
        listed |= tsr_sbp_equal(legal[i], v->layout.sbp);
    trial *trials = tsri_pool_alloc(pool, (size_t)(n + 1) * sizeof *trials);
    TSRI_NEED(trials);
    for (int i = 0; i < n + !listed; i++) {
        trials[i].sbp = i < n ? legal[i] : v->layout.sbp;
        TSRI_TRY(tsri_program_set(a->made.program, a->t, trials[i].sbp, pool, &trials[i].set));
    }
    *out_trials = trials;
    *out_n = n + !listed;
    return TSR_OK;
}

/* Plans the file with infer_updates. Where that fails, *figures stays. */
static void plan_relaxed(const asker *a, plan_figures *figures)
{
    plan_source with;
    const char **sets = source_with(a->made.from, "infer_updates=true", &with);
    plan_made made = {.from = &with};
    if (!sets)
        return;
    if (plan_open(&with, &made) == TSR_OK && plan_compile(&made) == TSR_OK)
        *figures = plan_figures_of(made.report);
    plan_drop(&made);
    free(sets);
}

static tsr_status print_signatures(asker *a)
{
    const plan_figures base = plan_figures_of(a->made.report);
    plan_figures with_updates = base;
    trial *trials;
    int n;
    bool relaxed = false;
    char step[CLI_NUMBER_MAX];
    TSRI_TRY(list_trials(a, &trials, &n));
    tsr_status status = run_trials(a, trials, n, &base);
    for (int i = 0; i < n && status == TSR_OK; i++)
        relaxed |= trials[i].relaxed;
    if (relaxed)
        plan_relaxed(a, &with_updates);
    if (status == TSR_OK) {
        qsort(trials, (size_t)n, sizeof *trials, by_time);
        print_trials(a, trials, n, &base, &with_updates);
    }
    if (relaxed)
        cli_say("as it is, but with infer_updates, a step takes %s\n",
                cli_seconds(with_updates.step_s, step));
    for (int i = 0; i < n; i++)
        free(trials[i].sends);
    return status;
}

/* --- the whole -------------------------------------------------------------------------------- */
/* The plan that the tensor is of, as the first screen has it. */
static void print_plan(const asker *a)
{
    const tsri_report *r = a->made.report;
    plan_share shares[TSRI_SPENT_COUNT];
    char step[CLI_NUMBER_MAX], memory[CLI_NUMBER_MAX];
    plan_text t = {.used = 0};
    const int n = plan_shares(r, shares);
    plan_put(&t,
             "in a plan whose step takes %s (estimate), bound by %s, with %s on the neediest rank",
             cli_seconds(r->step_s, step), n ? shares[0].name : "nothing",
             cli_bytes((double)r->memory[0].total, memory));
    print_wrapped(t.data, 2, 2);
}

static tsr_status print_why(asker *a)
{
    const cli_style style = cli_style_of(stdout);
    const tsri_value *v = made_value(a->made.plan, a->t);
    char sbp[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    if (!v)
        return tsr_set_error(TSR_ERR_STATE,
                             "--why %s: nothing that is kept needs it, so it is not "
                             "computed",
                             a->names.of[a->t->id]);
    TSRI_TRY(index_plan(a));
    plan_text head = {.used = 0};
    plan_put(&head, "%s[%s] on ", tsr_dtype_name(v->dtype), tsri_dims_format(v->shape, dims));
    plan_put_placement(&head, v->placement);
    plan_put(&head, ", %s", layout_text(v, sbp));
    int used = cli_say("%s%s%s: ", style.bold, a->names.of[a->t->id], style.plain);
    used -= (int)(strlen(style.bold) + strlen(style.plain));
    cli_wrap(head.data, used, STEP_INDENT, cli_columns_or(COLUMNS));
    print_plan(a);
    cli_say("%sfrom cause to effect%s\n", style.bold, style.plain);
    TSRI_TRY(print_cause(a));
    print_maker(a);
    cli_say("%sread by%s\n", style.bold, style.plain);
    print_readers(a);
    print_writers(a);
    cli_say("%seach signature%s (a step, all else planned anew)\n", style.bold, style.plain);
    return print_signatures(a);
}

int plan_why(const plan_source *from, const char *name)
{
    asker a = {0};
    tsr_status status = plan_make(from, &a.made);
    int code = CLI_OK;
    if (status == TSR_OK)
        status = plan_names_make(a.made.program, &a.names);
    if (status == TSR_OK && !(a.t = plan_names_find(&a.names, name)))
        code = CLI_FAILED;
    if (status == TSR_OK && a.t)
        status = print_why(&a);
    if (status != TSR_OK)
        code = plan_failed(status);
    plan_names_finish(&a.names);
    plan_drop(&a.made);
    return code;
}
