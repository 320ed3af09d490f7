/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera plan A.yaml B.yaml`: figures of plans side by side, and the tensors that differ. */
#include "src/cli/plan/ask.h"
#include "src/core/rng.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LEAST = 24, NAME_MOST = 34, RATIO = 24, SHOWN = 24, PLANS = PLAN_COMPARE_MAX };

typedef struct compared {
    plan_made made;
    plan_names names;
    const char **sbp; /* by tensor: its signature; NULL: it is not computed */
} compared;

typedef struct comparison {
    int n, name, width; /* columns of names, and of a plan's figures */
    compared plan[PLANS];
    tsri_pool pool;
    const cli_style *style;
} comparison;

/* --- figures ---------------------------------------------------------------------------------- */
typedef char *number_text(double v, char buf[CLI_NUMBER_MAX]);

static char *count_text(double v, char buf[CLI_NUMBER_MAX])
{
    snprintf(buf, CLI_NUMBER_MAX, v < 9.995 && v > 0 ? "%.2f" : "%.0f", v);
    return buf;
}

static char *percent_text(double v, char buf[CLI_NUMBER_MAX])
{
    snprintf(buf, CLI_NUMBER_MAX, "%.1f %%", 100 * v);
    return buf;
}

static char *whole_text(double v, char buf[CLI_NUMBER_MAX])
{
    snprintf(buf, CLI_NUMBER_MAX, "%.0f", v);
    return buf;
}

/* Prints the name of a line; one that is too long has a line of its own. */
static void print_name(const comparison *c, const char *name)
{
    if ((int)strlen(name) > c->name)
        cli_say("  %s\n  %*s", name, c->name, "");
    else
        cli_say("  %-*s", c->name, name);
}

/* "x0.25 (-611 KB)": how many times the first figure the second is, and of sizes how much more. */
static void print_change(const double *v, number_text *text)
{
    char more[CLI_NUMBER_MAX];
    if (v[0] > 0)
        cli_say("   x%.3g", v[1] / v[0]);
    if (text == cli_bytes)
        cli_say("%s(%c%s)", v[0] > 0 ? " " : "   ", v[1] < v[0] ? '-' : '+',
                cli_bytes(fabs(v[1] - v[0]), more));
}

/* A line of figures; of two plans also their ratio. Nothing where all are 0. */
static void print_row(const comparison *c, const char *name, const double *v, number_text *text)
{
    char buf[CLI_NUMBER_MAX];
    bool any = false;
    for (int i = 0; i < c->n; i++)
        any |= v[i] != 0;
    if (!any)
        return;
    print_name(c, name);
    for (int i = 0; i < c->n; i++)
        cli_say(" %*s", c->width, text(v[i], buf));
    if (c->n == 2 && v[0] != v[1])
        print_change(v, text);
    putchar('\n');
}

static void print_head(const comparison *c)
{
    print_name(c, "");
    for (int i = 0; i < c->n; i++) {
        const char *path = c->plan[i].made.from->path, *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        int length = (int)strlen(name), most = c->width;
        cli_say(" %s%*.*s%s", c->style->bold, most, most,
                length > most ? name + length - most : name, c->style->plain);
    }
    putchar('\n');
}

static void print_title(const comparison *c, const char *title)
{
    cli_say("%s%s%s\n", c->style->bold, title, c->style->plain);
}

/* The seconds of a step of a plan that go to a use by its name, as links are others in others. */
static double spent_on(const comparison *c, int plan, const char *use)
{
    plan_share shares[TSRI_SPENT_COUNT];
    const int n = plan_shares(c->plan[plan].made.report, shares);
    for (int k = 0; k < n; k++)
        if ((int)strlen(use) == shares[k].use && !strncmp(use, shares[k].name, strlen(use)))
            return shares[k].s;
    return 0;
}

/* Prints the uses of a step's time that plans before this one do not have, longest first. */
static void print_spent(const comparison *c, int plan)
{
    plan_share shares[TSRI_SPENT_COUNT];
    const int n = plan_shares(c->plan[plan].made.report, shares);
    for (int k = 0; k < n; k++) {
        char line[sizeof shares->name + 2];
        double v[PLANS];
        bool had = false;
        snprintf(line, sizeof line, "  %.*s", shares[k].use, shares[k].name);
        for (int i = 0; i < c->n; i++) {
            v[i] = spent_on(c, i, line + 2);
            had |= i < plan && v[i] > 0;
        }
        if (!had)
            print_row(c, line, v, cli_seconds);
    }
}

static void print_time(const comparison *c)
{
    double v[PLANS];
    print_title(c, "time of a step (estimate)");
    for (int i = 0; i < c->n; i++)
        v[i] = c->plan[i].made.report->step_s;
    print_row(c, "in all", v, cli_seconds);
    for (int i = 0; i < c->n; i++)
        print_spent(c, i);
    double tokens[PLANS], mfu[PLANS];
    for (int i = 0; i < c->n; i++) {
        const plan_pace pace = plan_pace_of(c->plan[i].made.report, c->plan[i].made.experiment);
        v[i] = pace.samples_per_s;
        tokens[i] = pace.tokens_per_s;
        mfu[i] = pace.mfu;
    }
    print_row(c, "samples a second", v, count_text);
    print_row(c, "tokens a second", tokens, cli_count);
    print_row(c, "MFU", mfu, percent_text);
}

static void print_memory(const comparison *c)
{
    static const char *const names[] = {
        "  parameters", "  masters",     "  buffers",     "  optimizer", "  in, out",
        "  gradients",  "  activations", "  collectives", "  scratch",   "  gaps"};
    enum { KINDS = sizeof names / sizeof *names };
    double v[KINDS + 1][PLANS];
    for (int i = 0; i < c->n; i++) {
        const tsri_report_memory *m = &c->plan[i].made.report->memory[0];
        const uint64_t kinds[] = {m->total,         m->parameters, m->masters,   m->buffers,
                                  m->optimizer,     m->ports,      m->gradients, m->activations,
                                  m->communication, m->scratch,    m->other};
        for (int k = 0; k <= KINDS; k++)
            v[k][i] = (double)kinds[k];
    }
    print_title(c, "memory of the neediest rank");
    print_row(c, "in all", v[0], cli_bytes);
    for (int k = 0; k < KINDS; k++)
        print_row(c, names[k], v[k + 1], cli_bytes);
}

/* The bytes of the rows of a plan of one collective (NULL: any). */
static double bytes_of(const tsri_report *r, const char *what)
{
    uint64_t bytes = 0;
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        if (row->link >= 0 && (!what || !strcmp(row->what, what)))
            bytes += row->bytes;
    }
    return (double)bytes;
}

static void print_kind(const comparison *c, const char *what)
{
    double v[PLANS];
    char name[40];
    for (int i = 0; i < c->n; i++)
        v[i] = bytes_of(c->plan[i].made.report, what);
    snprintf(name, sizeof name, "  %s", what);
    print_row(c, name, v, cli_bytes);
}

enum { AXES_MAX = 32, AXES_TEXT = 64 };

/* "  over dp+tp": the axes of a mesh that a row's groups lie along; false where that is no mesh. */
static bool axes_of(const tsri_report_row *row, char buf[AXES_TEXT])
{
    char name[24];
    const tsr_placement *p = row->item ? row->item->placement : NULL;
    size_t n = (size_t)snprintf(buf, AXES_TEXT, "  over ");
    bool any = false;
    if (row->link < 0 || tsr_placement_ndim(p) < 2)
        return false;
    for (int d = 0; d < tsr_placement_ndim(p) && n < AXES_TEXT; d++)
        if (row->item->box.step.dims >> d & 1) {
            n += (size_t)snprintf(buf + n, AXES_TEXT - n, "%s%.12s", any ? "+" : "",
                                  tsri_axis_name(p, d, name));
            any = true;
        }
    return any;
}

static void print_axes(const comparison *c)
{
    char names[AXES_MAX][AXES_TEXT], name[AXES_TEXT];
    double v[AXES_MAX][PLANS] = {{0}};
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const tsri_report *r = c->plan[i].made.report;
        for (int k = 0; k < r->nrows; k++) {
            int at = 0;
            if (!axes_of(&r->rows[k], name))
                continue;
            while (at < n && strcmp(names[at], name) != 0)
                at++;
            if (at == AXES_MAX)
                continue;
            if (at == n)
                memcpy(names[n++], name, sizeof name);
            v[at][i] += (double)r->rows[k].bytes;
        }
    }
    for (int at = 0; at < n; at++)
        print_row(c, names[at], v[at], cli_bytes);
}

static void print_traffic(const comparison *c)
{
    const char *kinds[64];
    double v[PLANS];
    int nkinds = 0;
    print_title(c, "bytes of a step (what the busiest rank reads)");
    for (int i = 0; i < c->n; i++)
        v[i] = bytes_of(c->plan[i].made.report, NULL);
    print_row(c, "in all", v, cli_bytes);
    for (int i = 0; i < c->n; i++) {
        const tsri_report *r = c->plan[i].made.report;
        for (int t = 0; t < r->ntotals; t++) {
            bool known = false;
            for (int k = 0; k < nkinds; k++)
                known |= !strcmp(kinds[k], r->totals[t].what);
            if (!known && nkinds < 64)
                kinds[nkinds++] = r->totals[t].what;
        }
    }
    for (int k = 0; k < nkinds; k++)
        print_kind(c, kinds[k]);
    print_axes(c);
}

/* --- tensors ---------------------------------------------------------------------------------- */
/* A name that some plan has, and the signatures that its tensor has in each. */
typedef struct named {
    struct named *next; /* of its hash */
    const char *name;
    const char *sbp[PLANS]; /* NULL: there is none */
} named;

/* Names alike with equal signatures. */
typedef struct group {
    const char *pattern;
    const named *first;
    int n;
} group;

typedef struct tensors {
    named **buckets;
    size_t nbuckets;
    named **all;
    int n, capacity, ngroups, cgroups;
    group *groups;
} tensors;

static tsr_status read_signatures(comparison *c, compared *p)
{
    const tsr_plan *plan = p->made.plan;
    p->sbp = tsri_pool_alloc(&c->pool, (size_t)p->names.graph->ntensors * sizeof *p->sbp);
    TSRI_NEED(p->sbp);
    for (int i = 0; i < plan->ir.nvalues; i++) {
        char text[TSRI_LAYOUT_TEXT_MAX];
        const tsri_value *v = &plan->ir.values[i];
        if (v->tensor < 0 || p->sbp[v->tensor])
            continue; /* conversions come behind what they convert */
        p->sbp[v->tensor] = tsri_pool_strdup(&c->pool, tsri_layout_format(&v->layout, text));
        TSRI_NEED(p->sbp[v->tensor]);
    }
    return TSR_OK;
}

static tsr_status add_tensor(comparison *c, tensors *t, const char *name, int plan, const char *sbp)
{
    named **bucket = &t->buckets[tsri_hash(TSRI_HASH_INIT, name, strlen(name)) % t->nbuckets];
    named *x = *bucket;
    while (x && strcmp(x->name, name) != 0)
        x = x->next;
    if (!x) {
        x = tsri_pool_alloc(&c->pool, sizeof *x);
        TSRI_NEED(x && TSRI_PUSH(&c->pool, t->all, t->n, t->capacity));
        *x = (named){.next = *bucket, .name = name};
        t->all[t->n++] = *bucket = x;
    }
    x->sbp[plan] = sbp;
    return TSR_OK;
}

static tsr_status list_tensors(comparison *c, tensors *t)
{
    size_t n = 64;
    for (int i = 0; i < c->n; i++)
        n += (size_t)c->plan[i].names.n;
    t->nbuckets = n;
    t->buckets = tsri_pool_alloc(&c->pool, n * sizeof(named *));
    TSRI_NEED(t->buckets);
    for (int i = 0; i < c->n; i++) {
        const compared *p = &c->plan[i];
        for (int k = 0; k < p->names.n; k++) {
            const plan_name *name = &p->names.all[k];
            bool is_first = p->names.of[name->tensor->id] == name->label;
            if (is_first && p->sbp[name->tensor->id])
                TSRI_TRY(add_tensor(c, t, name->label, i, p->sbp[name->tensor->id]));
        }
    }
    return TSR_OK;
}

/* "features.*.conv.*.weight": numbers, and numbers of numbers, as a star. The second of names that
 * are equal, "#2", as the first. */
static char *pattern_of(tsri_pool *pool, const char *name)
{
    char *to = tsri_pool_strdup(pool, name);
    size_t n = 0;
    for (size_t i = 0; to && name[i];) {
        size_t digits = strspn(name + i, "0123456789");
        bool begins = i == 0 || strchr(". (#", name[i - 1]) != NULL;
        bool ends = !name[i + digits] || strchr(". )", name[i + digits]) != NULL;
        if (digits && begins && ends) {
            bool again = n >= 2 && to[n - 2] == '*' && to[n - 1] == '.';
            n -= again ? 2 : 0;
            to[n++] = '*';
            i += digits;
        } else {
            to[n++] = name[i++];
        }
    }
    if (to)
        to[n] = 0;
    char *second = to ? strstr(to, " #*") : NULL;
    if (second)
        *second = 0;
    return to;
}

/* The first and the last part of a dotted name alone: where there are too many patterns. */
static void shorten(char *pattern)
{
    char *first = strchr(pattern, '.'), *last = strrchr(pattern, '.');
    if (!first || first == last)
        return;
    first[1] = '*';
    memmove(first + 2, last, strlen(last) + 1);
}

static bool same_signatures(const comparison *c, const named *a, const named *b)
{
    for (int i = 0; i < c->n; i++)
        if (!a->sbp[i] != !b->sbp[i] || (a->sbp[i] && strcmp(a->sbp[i], b->sbp[i]) != 0))
            return false;
    return true;
}

/* Whether some plan lacks it, and whether those that have it differ. */
static bool lacks(const comparison *c, const named *x)
{
    bool any = false;
    for (int i = 0; i < c->n; i++)
        any |= !x->sbp[i];
    return any;
}

static bool differs(const comparison *c, const named *x)
{
    for (int i = 1; i < c->n; i++)
        if (!lacks(c, x) && strcmp(x->sbp[i], x->sbp[0]) != 0)
            return true;
    return false;
}

/* Groups the tensors that differ between plans; or, `lacking`, those that some plan has not. */
static tsr_status fold(comparison *c, tensors *t, bool lacking, bool shortened)
{
    t->ngroups = 0;
    for (int i = 0; i < t->n; i++) {
        const named *x = t->all[i];
        if (lacking ? !lacks(c, x) : !differs(c, x))
            continue;
        char *pattern = pattern_of(&c->pool, x->name);
        TSRI_NEED(pattern);
        if (shortened)
            shorten(pattern);
        int k = 0;
        while (k < t->ngroups && (strcmp(t->groups[k].pattern, pattern) != 0 ||
                                  !same_signatures(c, t->groups[k].first, x)))
            k++;
        if (k == t->ngroups) {
            TSRI_NEED(TSRI_PUSH(&c->pool, t->groups, t->ngroups, t->cgroups));
            t->groups[t->ngroups++] = (group){pattern, x, 0};
        }
        t->groups[k].n++;
    }
    return TSR_OK;
}

/* Orders names: first kept tensors, then results of ops, and gradients last. */
static int place_of(const char *name)
{
    bool backward = !strncmp(name, "grad(", 5) || strstr(name, " (backward)");
    return backward ? 2 : strchr(name, ' ') ? 1 : 0;
}

static int by_place(const void *a, const void *b)
{
    const group *x = a, *y = b;
    int order = place_of(x->first->name) - place_of(y->first->name);
    return order ? order : x->n != y->n ? y->n - x->n : strcmp(x->pattern, y->pattern);
}

static void print_groups(const comparison *c, const tensors *t)
{
    for (int k = 0; k < t->ngroups && k < SHOWN; k++) {
        const group *g = &t->groups[k];
        char name[256];
        if (g->n > 1)
            snprintf(name, sizeof name, "%.200s x%d", g->pattern, g->n);
        else
            snprintf(name, sizeof name, "%.200s", g->first->name);
        print_name(c, name);
        for (int i = 0; i < c->n; i++)
            cli_say(" %*s", c->width, g->first->sbp[i] ? g->first->sbp[i] : "-");
        putchar('\n');
    }
    if (t->ngroups > SHOWN)
        cli_say("  ... and %d more kinds of tensors\n", t->ngroups - SHOWN);
}

static tsr_status print_folded(comparison *c, tensors *t, bool lacking, const char *title)
{
    TSRI_TRY(fold(c, t, lacking, false));
    if (t->ngroups > SHOWN)
        TSRI_TRY(fold(c, t, lacking, true));
    if (!t->ngroups)
        return TSR_OK;
    qsort(t->groups, (size_t)t->ngroups, sizeof *t->groups, by_place);
    print_title(c, title);
    print_groups(c, t);
    return TSR_OK;
}

static tsr_status print_tensors(comparison *c)
{
    tensors t = {0};
    int same = 0, shared = 0;
    TSRI_TRY(list_tensors(c, &t));
    for (int i = 0; i < t.n; i++) {
        shared += !lacks(c, t.all[i]);
        same += !lacks(c, t.all[i]) && !differs(c, t.all[i]);
    }
    char title[96];
    snprintf(title, sizeof title, "signatures that differ, of %d of %d tensors of the same name",
             shared - same, shared);
    TSRI_TRY(print_folded(c, &t, false, title));
    if (shared == same)
        cli_say("all %d tensors of the same name have the same signature\n", shared);
    return print_folded(c, &t, true, "tensors without a partner");
}

/* --- the whole -------------------------------------------------------------------------------- */
static tsr_status print_comparison(comparison *c)
{
    double v[PLANS];
    c->width = c->n > 3 ? 12 : 14;
    c->name = cli_columns() - 2 - c->n * (c->width + 1) - (c->n == 2 ? RATIO : 0);
    c->name = c->name > NAME_MOST ? NAME_MOST : c->name < NAME_LEAST ? NAME_LEAST : c->name;
    print_head(c);
    for (int i = 0; i < c->n; i++)
        v[i] = tsr_world_size(c->plan[i].made.world);
    print_row(c, "ranks", v, whole_text);
    for (int i = 0; i < c->n; i++)
        v[i] = c->plan[i].made.plan->info.ops;
    print_row(c, "ops", v, whole_text);
    print_time(c);
    print_memory(c);
    print_traffic(c);
    return print_tensors(c);
}

int plan_compare(const plan_source *from, int n, char *const *paths)
{
    const cli_style style = cli_style_of(stdout);
    comparison *c = calloc(1, sizeof *c);
    plan_source sources[PLANS];
    tsr_status status = c ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (c) {
        c->style = &style;
        tsri_pool_init(&c->pool, NULL);
    }
    for (int i = 0; i < n && status == TSR_OK; i++) {
        compared *p = &c->plan[c->n++];
        sources[i] = *from;
        sources[i].path = paths[i];
        status = plan_make(&sources[i], &p->made);
        if (status == TSR_OK)
            status = plan_names_make(p->made.program, &p->names);
        if (status == TSR_OK)
            status = read_signatures(c, p);
        if (status != TSR_OK)
            tsri_fshow(stderr, "tessera plan: %s has no plan to compare\n", paths[i]);
    }
    if (status == TSR_OK)
        status = print_comparison(c);
    int code = status == TSR_OK ? CLI_OK : plan_failed(status);
    for (int i = 0; c && i < c->n; i++) {
        plan_names_finish(&c->plan[i].names);
        plan_drop(&c->plan[i].made);
    }
    if (c)
        tsri_pool_finish(&c->pool);
    free(c);
    return code;
}
