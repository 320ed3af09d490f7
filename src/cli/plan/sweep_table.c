/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a sweep, as text and as CSV. */
#include "src/cli/plan/ask.h"
#include "src/core/new_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STEP, SAMPLES, TOKENS, MFU, MEMORY, SENT, COLUMNS, ROWS_MAX = 60 };

/* A figure of a point, and whether more of it is better. */
static const struct {
    const char *head, *name, *csv;
    bool more;
} columns[COLUMNS] = {[STEP] = {"step", "step", "step_s", false},
                      [SAMPLES] = {"samples/s", "samples_per_s", "samples_per_s", true},
                      [TOKENS] = {"tokens/s", "tokens_per_s", "tokens_per_s", true},
                      [MFU] = {"MFU", "mfu", "mfu", true},
                      [MEMORY] = {"memory", "memory", "memory_bytes", false},
                      [SENT] = {"sent", "sent", "bytes_per_step", false}};

static double figure_of(const sweep_point *x, int column)
{
    const double all[COLUMNS] = {
        [STEP] = x->step_s,  [SAMPLES] = x->pace.samples_per_s, [TOKENS] = x->pace.tokens_per_s,
        [MFU] = x->pace.mfu, [MEMORY] = (double)x->memory,      [SENT] = (double)x->bytes,
    };
    return all[column];
}

int sweep_column(const char *name)
{
    for (int c = 0; c < COLUMNS; c++)
        if (!strcmp(name, columns[c].name))
            return c;
    return -1;
}

bool sweep_has_column(const sweep_grid *g, int column)
{
    bool any = column != SAMPLES && column != TOKENS && column != MFU;
    for (int i = 0; i < g->npoints && !any; i++)
        any = figure_of(&g->points[i], column) > 0;
    return any;
}

/* Whether the text has a column: samples a second where there are no tokens. */
static bool has_column(const sweep_grid *g, int column)
{
    return sweep_has_column(g, column) &&
           (column != SAMPLES || g->best == SAMPLES || !sweep_has_column(g, TOKENS));
}

/* The best of each column: its figure, and the first row that has it; -1: all rows are alike. */
typedef struct best_of {
    double figure[COLUMNS];
    int first[COLUMNS];
} best_of;

static best_of find_best(const sweep_grid *g)
{
    best_of best;
    for (int c = 0; c < COLUMNS; c++) {
        bool differ = false;
        best.first[c] = -1;
        for (int i = 0; i < g->npoints; i++) {
            double x = figure_of(&g->points[i], c);
            if (g->points[i].failure[0])
                continue;
            differ |= best.first[c] >= 0 && x != best.figure[c];
            if (best.first[c] >= 0 && !(columns[c].more ? x > best.figure[c] : x < best.figure[c]))
                continue;
            best.figure[c] = x;
            best.first[c] = i;
        }
        if (!differ || !sweep_has_column(g, c) || (g->best >= 0 && g->best != c))
            best.first[c] = -1;
    }
    return best;
}

static bool is_best(const sweep_point *x, const best_of *best, int column)
{
    return !x->failure[0] && best->first[column] >= 0 &&
           figure_of(x, column) == best->figure[column];
}

/* --- text ------------------------------------------------------------------------------------- */
static char *figure_text(const sweep_point *x, int column, char buf[CLI_NUMBER_MAX])
{
    const double v = figure_of(x, column);
    if (column == STEP)
        return cli_seconds(v, buf);
    if (column == MEMORY || column == SENT)
        return cli_bytes(v, buf);
    if (column == MFU)
        snprintf(buf, CLI_NUMBER_MAX, "%.1f %%", 100 * v);
    else if (column == TOKENS)
        return cli_count(v, buf);
    else
        snprintf(buf, CLI_NUMBER_MAX, v < 9.995 ? "%.2f" : v < 99.95 ? "%.1f" : "%.0f", v);
    return buf;
}

/* How the table is laid out: names of keys in full, or where lines would be too long, their last
 * parts. */
typedef struct layout {
    int columns, last; /* of the screen; the last column that the table has */
    bool brief;
} layout;

enum { CELL = 9 };

static const char *head_of(const layout *l, const sweep_axis *a)
{
    const char *dot = l->brief ? strrchr(a->key, '.') : NULL;
    return dot ? dot + 1 : a->key;
}

static int width_of(const layout *l, const sweep_axis *a)
{
    int width = (int)strlen(head_of(l, a));
    for (int i = 0; i < a->n; i++) {
        int length = (int)strlen(a->values[i]);
        width = length > width ? length : width;
    }
    return width;
}

static layout find_layout(const sweep_grid *g)
{
    layout l = {.columns = cli_columns()}, brief = {.brief = true};
    int width = 0;
    bool differ = true;
    for (int c = 0; c < COLUMNS; c++)
        if (has_column(g, c)) {
            width += CELL + 3;
            l.last = c;
        }
    for (int a = 0; a < g->naxes; a++) {
        width += 2 + width_of(&l, &g->axes[a]);
        for (int b = 0; b < a; b++)
            differ &= strcmp(head_of(&brief, &g->axes[a]), head_of(&brief, &g->axes[b])) != 0;
    }
    l.brief = width > l.columns && differ;
    return l;
}

/* Prints whose plan a row has, by the values in which they differ, where that shows in its step. */
static void print_by(const sweep_grid *g, int point, const layout *l)
{
    const sweep_point *x = &g->points[point];
    char text[512], anew[CLI_NUMBER_MAX], step[CLI_NUMBER_MAX];
    if (!strcmp(cli_seconds(x->anew_s, anew), cli_seconds(x->step_s, step)))
        return;
    int n = snprintf(text, sizeof text, "by the plan of");
    for (int a = 0; a < g->naxes && n < (int)sizeof text; a++)
        if (sweep_value(g, point, a) != sweep_value(g, x->by, a))
            n += snprintf(text + n, sizeof text - (size_t)n, " %s=%s", head_of(l, &g->axes[a]),
                          g->axes[a].values[sweep_value(g, x->by, a)]);
    if (n < (int)sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, "; found anew: %s", anew);
    cli_say("      ");
    cli_wrap(text, 6, 6, l->columns);
}

static void print_row(const sweep_grid *g, int point, const best_of *best, const layout *l,
                      const cli_style *style)
{
    const sweep_point *x = &g->points[point];
    int used = 0;
    for (int a = 0; a < g->naxes; a++)
        used +=
            cli_say("  %*s", width_of(l, &g->axes[a]), g->axes[a].values[sweep_value(g, point, a)]);
    if (x->failure[0]) {
        char text[sizeof x->failure + 16];
        snprintf(text, sizeof text, "%s%s", strncmp(x->failure, "no plan", 7) ? "no plan: " : "",
                 x->failure);
        cli_say("  ");
        cli_wrap(text, used + 2, 6, l->columns);
        return;
    }
    for (int c = 0; c < COLUMNS; c++) {
        char text[CLI_NUMBER_MAX];
        bool mark = is_best(x, best, c);
        if (has_column(g, c))
            cli_say("  %s%*s%s%s", mark ? style->bold : "", CELL, figure_text(x, c, text),
                    mark          ? "*"
                    : c < l->last ? " "
                                  : "",
                    mark ? style->plain : "");
    }
    putchar('\n');
    if (x->by >= 0)
        print_by(g, point, l);
}

/* Says what rows are, and which plans were not tried at others' values. */
static void print_what(const sweep_grid *g, const layout *l)
{
    int alone = 0, first = -1;
    char text[512];
    for (int i = 0; i < g->npoints; i++)
        if (g->points[i].alone[0]) {
            alone++;
            first = first < 0 ? i : first;
        }
    cli_say("* ");
    snprintf(text, sizeof text, "best %s; times are estimates; memory of the neediest rank, %s",
             g->best >= 0 ? columns[g->best].head : "of its column",
             g->fixed ? "without gaps between tensors" : "gaps between tensors included");
    cli_wrap(text, 2, 2, l->columns);
    cli_wrap(g->fixed      ? "re-priced: each row is the file's own plan at other links or another "
                             "batch; another may be better"
             : g->compared ? "re-planned: each row is the best plan of its values, the other rows' "
                             "plans among them"
             : g->left     ? "re-planned: each row is the plan that is found for its values; other "
                             "rows' plans are not tried where there are so many"
                           : "re-planned: each row is the best plan of its values",
             0, 2, l->columns);
    if (!alone)
        return;
    snprintf(text, sizeof text, "%s of %d row%s not tried at other rows' values: %s",
             alone == 1 ? "the plan" : "the plans", alone, alone == 1 ? " is" : "s are",
             g->points[first].alone);
    cli_wrap(text, 0, 2, l->columns);
}

static bool is_first_best(const best_of *best, int point)
{
    bool any = false;
    for (int c = 0; c < COLUMNS; c++)
        any |= best->first[c] == point;
    return any;
}

void sweep_print(const sweep_grid *g, bool every)
{
    const cli_style style = cli_style_of(stdout);
    const best_of best = find_best(g);
    const layout l = find_layout(g);
    int left_out = 0;
    for (int a = 0; a < g->naxes; a++)
        cli_say("  %*s", width_of(&l, &g->axes[a]), head_of(&l, &g->axes[a]));
    for (int c = 0; c < COLUMNS; c++)
        if (has_column(g, c))
            cli_say("  %*s%s", CELL, columns[c].head, c < l.last ? " " : "");
    putchar('\n');
    for (int i = 0; i < g->npoints; i++) {
        bool shown = every || i < ROWS_MAX || is_first_best(&best, i);
        if (shown)
            print_row(g, i, &best, &l, &style);
        left_out += !shown;
    }
    if (left_out)
        cli_say(
            "  ... and %d rows more, none of them better in a column (--verbose, or --csv FILE)\n",
            left_out);
    print_what(g, &l);
}

/* --- CSV -------------------------------------------------------------------------------------- */
static void put_best(FILE *f, const sweep_point *x, const best_of *best)
{
    bool any = false;
    for (int c = 0; c < COLUMNS; c++)
        if (is_best(x, best, c)) {
            tsri_fshow(f, "%s%s", any ? " " : "", columns[c].csv);
            any = true;
        }
}

static void put_csv(FILE *f, const sweep_grid *g)
{
    const best_of best = find_best(g);
    for (int a = 0; a < g->naxes; a++) {
        cli_put_cell(f, g->axes[a].key);
        putc(',', f);
    }
    fputs("how,step_s,compute_s,communication_s,samples_per_s,tokens_per_s,mfu,memory_bytes,"
          "bytes_per_step,best,error\n",
          f);
    for (int i = 0; i < g->npoints; i++) {
        const sweep_point *x = &g->points[i];
        for (int a = 0; a < g->naxes; a++) {
            cli_put_cell(f, g->axes[a].values[sweep_value(g, i, a)]);
            putc(',', f);
        }
        fputs(g->fixed || x->by >= 0 ? "re-priced," : "re-planned,", f);
        if (x->failure[0]) {
            fputs(",,,,,,,,,", f);
            cli_put_cell(f, x->failure);
        } else {
            tsri_fshow(f, "%.9g,%.9g,%.9g,", x->step_s, x->compute_s, x->comm_s);
            for (int c = SAMPLES; c <= MFU; c++) {
                if (sweep_has_column(g, c))
                    tsri_fshow(f, "%.9g", figure_of(x, c));
                putc(',', f);
            }
            tsri_fshow(f, "%llu,%llu,", (unsigned long long)x->memory,
                       (unsigned long long)x->bytes);
            put_best(f, x, &best);
            putc(',', f);
        }
        putc('\n', f);
    }
}

int sweep_write_csv(const sweep_grid *g, const char *path)
{
    tsri_new_file file;
    int rc = tsri_new_file_stream(&file, path);
    if (rc)
        return rc;
    put_csv(file.stream, g);
    return tsri_new_file_keep(&file, false);
}
