/* SPDX-License-Identifier: Apache-2.0 */
/* A report as a graph for Graphviz: ops, and the boxing between them. */
#include "src/cli/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static void put_quoted(FILE *f, const char *text)
{
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(f, "\\%c", *text);
        else
            fputc(*text, f);
}

static void put_value(FILE *f, const tsri_value *v)
{
    char sbp[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    fprintf(f, "[%s] %s", tsri_dims_format(v->shape, dims), tsri_layout_format(&v->layout, sbp));
}

static void put_node(FILE *f, const tsri_report *r, int i)
{
    static const char *const looks[] = {"shape=ellipse", "shape=box",
                                        "shape=box, style=\"rounded,filled\", fillcolor=khaki"};
    const tsri_report_row *row = &r->rows[i];
    char bytes[CLI_NUMBER_MAX];
    fprintf(f, "  n%d [%s, label=\"%s\\n", i, looks[row->kind], row->what);
    put_quoted(f, row->name);
    if (row->kind == TSRI_REPORT_BOX && row->link >= 0)
        fprintf(f, "\\n%s", cli_bytes((double)row->bytes, bytes));
    fprintf(f, "\"];\n");
}

bool plan_write_dot(const plan_view *v, FILE *f)
{
    const tsri_report *r = v->report;
    const tsr_plan *plan = r->plan;
    int *maker = malloc(((size_t)plan->nvalues + 1) * sizeof *maker);
    if (!maker)
        return false;
    memset(maker, -1, ((size_t)plan->nvalues + 1) * sizeof *maker);
    fprintf(f, "digraph plan {\n  node [fontsize=10];\n  edge [fontsize=9];\n");
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        put_node(f, r, i);
        for (int j = 0; row->item && j < row->item->nout; j++)
            maker[row->item->out[j]] = i;
        if (!row->item)
            maker[row->value] = i;
    }
    for (int i = 0; i < r->nrows; i++) {
        const tsri_item *it = r->rows[i].item;
        for (int j = 0; it && j < it->nin; j++) {
            if (maker[it->in[j]] < 0)
                continue;
            fprintf(f, "  n%d -> n%d [label=\"", maker[it->in[j]], i);
            put_value(f, &plan->values[it->in[j]]);
            fprintf(f, "\"];\n");
        }
    }
    for (int i = 0; i < plan->nvalues; i++) {
        const tsri_value *value = &plan->values[i];
        if (value->storage != TSRI_STORAGE_PORT || value->port < 0 ||
            !plan->ports[value->port].is_output || maker[i] < 0)
            continue;
        fprintf(f, "  out%d [shape=ellipse, style=bold, label=\"output\\n", i);
        put_quoted(f, plan->ports[value->port].info.name);
        fprintf(f, "\"];\n  n%d -> out%d;\n", maker[i], i);
    }
    fprintf(f, "}\n");
    free(maker);
    return true;
}
