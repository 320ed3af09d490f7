/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a sweep, as text and as CSV. */
#include "src/cli/plan/ask.h"
#include "src/core/new_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4, ROWS_MAX = 60 };

/* A figure of a point, and whether more of it is better. */
static const struct {
    const char *head, *csv;
    bool more;
} columns[COLUMNS] = {{"step", "step_s", false},
                      {"samples/s", "samples_per_s", true},
                      {"memory", "memory_bytes", false},
                      {"sent", "bytes_per_step", false}};

static double figure_of(const sweep_point *x, int column)
{
    const double all[COLUMNS] = {x->step_s, x->samples_per_s, (double)x->memory, (double)x->bytes};
    return all[column];
}

static bool has_column(const sweep_grid *g, int column)
{
    return column != 1 || g->trains;
}

/* The best of each column: its figure, and the first row that has it; -1: all rows are alike. */
typedef struct best_of {
    double figure[COLUMNS];
    int first[COLUMNS];
} best_of;

static best_of find_best(const sweep_grid *g)
{
    best_of best = {.first = {-1, -1, -1, -1}};
    for (int c = 0; c < COLUMNS; c++) {
        bool differ = false;
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
        best.first[c] = differ && has_column(g, c) ? best.first[c] : -1;
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
    if (column == 0)
        return cli_seconds(x->step_s, buf);
    if (column > 1)
        return cli_bytes(figure_of(x, column), buf);
    double v = x->samples_per_s;
    snprintf(buf, CLI_NUMBER_MAX, v < 9.995 ? "%.2f" : v < 99.95 ? "%.1f" : "%.0f", v);
    return buf;
}

static int width_of(const sweep_axis *a)
{
    int width = (int)strlen(a->key);
    for (int i = 0; i < a->n; i++) {
        int length = (int)strlen(a->values[i]);
        width = length > width ? length : width;
    }
    return width;
}

static void print_row(const sweep_grid *g, int point, const best_of *best, const cli_style *style)
{
    const sweep_point *x = &g->points[point];
    for (int a = 0; a < g->naxes; a++)
        printf("  %*s", width_of(&g->axes[a]), g->axes[a].values[sweep_value(g, point, a)]);
    if (x->failure[0])
        printf("  %s%s", strncmp(x->failure, "no plan", 7) ? "no plan: " : "", x->failure);
    for (int c = 0; c < COLUMNS && !x->failure[0]; c++) {
        char text[CLI_NUMBER_MAX];
        bool mark = is_best(x, best, c);
        if (has_column(g, c))
            printf("  %s%10s%s%s", mark ? style->bold : "", figure_text(x, c, text),
                   mark ? "*" : " ", mark ? style->plain : "");
    }
    putchar('\n');
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
    int left_out = 0;
    for (int a = 0; a < g->naxes; a++)
        printf("  %*s", width_of(&g->axes[a]), g->axes[a].key);
    for (int c = 0; c < COLUMNS; c++)
        if (has_column(g, c))
            printf("  %10s ", columns[c].head);
    putchar('\n');
    for (int i = 0; i < g->npoints; i++) {
        bool shown = every || i < ROWS_MAX || is_first_best(&best, i);
        if (shown)
            print_row(g, i, &best, &style);
        left_out += !shown;
    }
    if (left_out)
        printf(
            "  ... and %d rows more, none of them better in a column (--verbose, or --csv FILE)\n",
            left_out);
    printf("* best of its column; memory of the neediest rank, %s\n",
           g->fixed ? "without gaps between tensors" : "gaps between tensors included");
    printf(g->fixed ? "re-priced: each row is the file's own plan at other links or another "
                      "batch; the best plan may be another\n"
                    : "re-planned: each row is the best plan of its values\n");
}

/* --- CSV -------------------------------------------------------------------------------------- */
static void put_cell(FILE *f, const char *text)
{
    if (!strpbrk(text, ",\"\n")) {
        fputs(text, f);
        return;
    }
    putc('"', f);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', f);
        putc(*text, f);
    }
    putc('"', f);
}

static void put_best(FILE *f, const sweep_point *x, const best_of *best)
{
    bool any = false;
    for (int c = 0; c < COLUMNS; c++)
        if (is_best(x, best, c)) {
            fprintf(f, "%s%s", any ? " " : "", columns[c].csv);
            any = true;
        }
}

static void put_csv(FILE *f, const sweep_grid *g)
{
    const best_of best = find_best(g);
    for (int a = 0; a < g->naxes; a++) {
        put_cell(f, g->axes[a].key);
        putc(',', f);
    }
    fputs("how,step_s,compute_s,communication_s,samples_per_s,memory_bytes,bytes_per_step,best,"
          "error\n",
          f);
    for (int i = 0; i < g->npoints; i++) {
        const sweep_point *x = &g->points[i];
        for (int a = 0; a < g->naxes; a++) {
            put_cell(f, g->axes[a].values[sweep_value(g, i, a)]);
            putc(',', f);
        }
        fputs(g->fixed ? "re-priced," : "re-planned,", f);
        if (x->failure[0]) {
            fputs(",,,,,,,", f);
            put_cell(f, x->failure);
        } else {
            fprintf(f, "%.9g,%.9g,%.9g,", x->step_s, x->compute_s, x->comm_s);
            if (g->trains)
                fprintf(f, "%.9g", x->samples_per_s);
            fprintf(f, ",%llu,%llu,", (unsigned long long)x->memory, (unsigned long long)x->bytes);
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
