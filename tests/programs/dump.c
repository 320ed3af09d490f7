/* SPDX-License-Identifier: Apache-2.0 */
/* A program as JSON, with the oracle's value of every node in the first run of its first graph, and
 * of every variable after it: what torch_oracle.py computes anew. */
#include "dump.h"

#include <math.h>
#include <stdio.h>

#include "oracle.h"

static void put_numbers(FILE *f, const char *key, int64_t n, const double *v)
{
    fprintf(f, "\"%s\": [", key);
    for (int64_t i = 0; i < n; i++)
        if (isnan(v[i]))
            fprintf(f, "%sNaN", i ? ", " : "");
        else if (isinf(v[i]))
            fprintf(f, "%s%sInfinity", i ? ", " : "", v[i] < 0 ? "-" : "");
        else
            fprintf(f, "%s%.17g", i ? ", " : "", v[i]);
    fputc(']', f);
}

static void put_whole(FILE *f, const char *key, int n, const int64_t *v)
{
    fprintf(f, "\"%s\": [", key);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%lld", i ? ", " : "", (long long)v[i]);
    fprintf(f, "], ");
}

static void put_node(FILE *f, const pnode *n, const tape_value *v)
{
    int64_t in[MAX_OPERANDS], axes[TSR_MAX_NDIM];
    for (int i = 0; i < n->nin; i++)
        in[i] = n->in[i];
    for (int i = 0; i < n->axes.n; i++)
        axes[i] = n->axes.axis[i];
    fprintf(f, "  {\"op\": \"%s\", \"var\": %d, \"dtype\": \"%s\", \"batch_axis\": %d, ",
            op_at(n->op)->name, n->var, tsr_dtype_name(n->dtype), n->batch - 1);
    put_whole(f, "in", n->nin, in);
    put_whole(f, "i", MAX_ATTRS, n->i);
    put_whole(f, "axes", n->axes.n, axes);
    put_whole(f, "shape", n->shape.ndim, n->shape.d);
    put_whole(f, "d0", n->dims[0].ndim, n->dims[0].d);
    put_whole(f, "d1", n->dims[1].ndim, n->dims[1].d);
    put_whole(f, "d2", n->dims[2].ndim, n->dims[2].d);
    put_numbers(f, "f", 2, n->f);
    fputs(", ", f);
    put_numbers(f, "value", v->n, v->v);
    fputs(", ", f);
    put_numbers(f, "error", v->n, v->e);
    fputs("}", f);
}

/* Whether torch_oracle.py is told all that the optimizer does; recipes.py has the rest. */
static bool is_told(const poptimizer *o)
{
    return o->kind <= OPT_ADAMW && o->clip_norm == 0 && o->clip_value == 0 && o->group < 0 &&
           o->frozen < 0 && o->accumulate == 1;
}

static void put_optimizer(FILE *f, const program *p, const sink *s)
{
    const poptimizer *o = &p->optimizer[s->optimizer];
    fprintf(f,
            "  {\"told\": %d, \"kind\": %d, \"loss\": %d, \"lr\": %.17g, \"momentum\": %.17g, "
            "\"dampening\": "
            "%.17g, \"nesterov\": %d, \"decay\": %.17g, \"vars\": [",
            is_told(o), (int)o->kind, s->node,
            o->schedule.warmup ? o->lr / (double)o->schedule.warmup : o->lr, o->momentum,
            o->dampening, o->nesterov, o->weight_decay);
    bool any = false;
    for (int i = 0; i < p->nvars; i++)
        if (oracle_owns(p, s->optimizer, i)) {
            fprintf(f, "%s%d", any ? ", " : "", i);
            any = true;
        }
    fputs("]}", f);
}

void program_dump(const program *p, const char *dir)
{
    char path[512];
    const pgraph *g = &p->graph[0];
    oracle o;
    snprintf(path, sizeof path, "%s/%llu.json", dir, (unsigned long long)p->seed);
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    oracle_start(&o, p);
    fprintf(f, "{\"seed\": %llu, \"training\": %d, \"microbatches\": %d, \"before\": [\n",
            (unsigned long long)p->seed, g->training, g->microbatches > 1 ? g->microbatches : 1);
    for (int i = 0; i < p->nvars; i++) {
        fputs(i ? ",\n  {" : "  {", f);
        put_whole(f, "shape", p->var[i].dims.ndim, p->var[i].dims.d);
        put_numbers(f, "value", o.var[i].n, o.var[i].v);
        fputs("}", f);
    }
    oracle_run(&o, &(act){.kind = ACT_RUN});
    fputs("],\n\"nodes\": [\n", f);
    for (int i = 0; i < g->nnodes; i++) {
        fputs(i ? ",\n" : "", f);
        put_node(f, &g->node[i], tape_at(o.t, o.w.value[i]));
    }
    fputs("],\n\"updates\": [\n", f);
    bool any = false;
    for (int i = 0; i < g->nsinks; i++)
        if (g->sink[i].kind == SINK_ASSIGN) {
            fprintf(f, "%s  {\"told\": 1, \"assigns\": %d, \"var\": %d}", any ? ",\n" : "",
                    g->sink[i].node, g->sink[i].var);
            any = true;
        } else if (g->sink[i].kind == SINK_MINIMIZE) {
            fputs(any ? ",\n" : "", f);
            put_optimizer(f, p, &g->sink[i]);
            any = true;
        }
    fputs("],\n\"after\": [\n", f);
    for (int i = 0; i < p->nvars; i++) {
        fputs(i ? ",\n  {" : "  {", f);
        put_numbers(f, "value", o.var[i].n, o.var[i].v);
        fputs(", ", f);
        put_numbers(f, "error", o.var[i].n, o.var[i].e);
        fputs("}", f);
    }
    fputs("]}\n", f);
    fclose(f);
    oracle_finish(&o);
}
