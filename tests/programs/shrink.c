/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a failing program smaller: takes something away, keeps what still fails, again and again.
 */
#include "shrink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void try_program(const program *p, verdict *out)
{
    verdict *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        run_log log;
        alarm(60);
        run_and_judge(p, &log, shared);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    *out = *shared;
    if (WIFSIGNALED(status)) {
        *out = (verdict){.failed = true, .kind = 1000 + WTERMSIG(status)};
        snprintf(out->text, sizeof out->text, "killed by signal %d", WTERMSIG(status));
    }
    munmap(shared, sizeof *shared);
}

/* Shapes and dtypes that a change leaves must be those that the nodes say. */
static bool walks(const program *p)
{
    tape *t = tape_new();
    tape_by_class(t, p->special);
    bool fine = true;
    for (int g = 0; g < p->ngraphs && fine; g++) {
        walk w;
        tape_clear(t);
        walk_start(&w, p, &p->graph[g], t);
        for (int i = 0; i < p->nvars; i++)
            w.var_v[i] = p->var[i].data;
        for (int i = 0; i < p->graph[g].nnodes; i++)
            fine &= tape_at(t, walk_node(&w, i))->n == count_of(p->graph[g].node[i].shape);
    }
    tape_free(t);
    return fine;
}

static bool still_fails(const program *p, int kind)
{
    verdict v;
    if (!walks(p))
        return false;
    try_program(p, &v);
    return v.failed && !v.refused && v.kind == kind;
}

/* --- changes: each returns false where it has nothing to do ----------------------------------- */
static void drop_act(program *p, int at)
{
    memmove(&p->act[at], &p->act[at + 1], (size_t)(--p->nacts - at) * sizeof *p->act);
}

static void drop_sink(pgraph *g, int at)
{
    memmove(&g->sink[at], &g->sink[at + 1], (size_t)(--g->nsinks - at) * sizeof *g->sink);
}

/* Takes a node away that nothing reads. */
static void drop_node(pgraph *g, int at)
{
    memmove(&g->node[at], &g->node[at + 1], (size_t)(--g->nnodes - at) * sizeof *g->node);
    for (int i = at; i < g->nnodes; i++)
        for (int k = 0; k < g->node[i].nin; k++)
            g->node[i].in[k] -= g->node[i].in[k] > at;
    for (int i = 0; i < g->nsinks; i++) {
        g->sink[i].node -= g->sink[i].node > at;
        g->sink[i].after -= g->sink[i].after >= at && g->sink[i].after > 0;
    }
}

/* Whether something needs a node: running averages are kept whoever reads the result. */
static bool is_read(const pgraph *g, int node)
{
    if (g->node[node].op == op_find("batch_norm") && g->node[node].in[3] >= 0)
        return true;
    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->node[i].nin; k++)
            if (g->node[i].in[k] == node)
                return true;
    for (int i = 0; i < g->nsinks; i++)
        if (g->sink[i].node == node)
            return true;
    return false;
}

static void drop_unread(program *p)
{
    for (int g = 0; g < p->ngraphs; g++)
        for (int i = p->graph[g].nnodes - 1; i > 0; i--)
            if (!is_read(&p->graph[g], i))
                drop_node(&p->graph[g], i);
}

static bool uses_var(const program *p, int var)
{
    for (int g = 0; g < p->ngraphs; g++)
        for (int i = 0; i < p->graph[g].nnodes; i++)
            if ((p->graph[g].node[i].op == op_find("use") ||
                 p->graph[g].node[i].op == op_find("updated")) &&
                p->graph[g].node[i].var == var)
                return true;
    for (int g = 0; g < p->ngraphs; g++)
        for (int i = 0; i < p->graph[g].nsinks; i++)
            if (p->graph[g].sink[i].kind == SINK_ASSIGN && p->graph[g].sink[i].var == var)
                return true;
    return false;
}

static void drop_var(program *p, int var)
{
    for (int i = p->nacts - 1; i >= 0; i--) {
        if (p->act[i].kind == ACT_SET && p->act[i].var == var)
            drop_act(p, i);
        else
            p->act[i].var -= p->act[i].var > var;
    }
    for (int g = 0; g < p->ngraphs; g++)
        for (int i = 0; i < p->graph[g].nnodes; i++)
            p->graph[g].node[i].var -= p->graph[g].node[i].var > var;
    for (int g = 0; g < p->ngraphs; g++)
        for (int i = 0; i < p->graph[g].nsinks; i++)
            p->graph[g].sink[i].var -= p->graph[g].sink[i].var > var;
    free(p->var[var].data);
    memmove(&p->var[var], &p->var[var + 1], (size_t)(--p->nvars - var) * sizeof *p->var);
}

static void drop_unused_vars(program *p)
{
    for (int i = p->nvars - 1; i >= 0; i--)
        if (!uses_var(p, i))
            drop_var(p, i);
}

/* Redirects the readers of one node to another. */
static void redirect(pgraph *g, int from, int to)
{
    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->node[i].nin; k++)
            if (g->node[i].in[k] == from)
                g->node[i].in[k] = to;
    for (int i = 0; i < g->nsinks; i++)
        if (g->sink[i].node == from)
            g->sink[i].node = to;
}

typedef struct shrinker {
    program *best;
    bool progress;
    int kind; /* of the failure: not to be mistaken for another */
} shrinker;

/* Keeps a changed copy if it still fails. */
static bool offer(shrinker *s, program *p)
{
    drop_unread(p);
    drop_unused_vars(p);
    if (!still_fails(p, s->kind)) {
        program_free(p);
        return false;
    }
    program_free(s->best);
    s->best = p;
    s->progress = true;
    return true;
}

static void try_acts(shrinker *s)
{
    for (int i = s->best->nacts - 1; i >= 0; i--) {
        program *p = program_copy(s->best);
        drop_act(p, i);
        offer(s, p);
    }
    if (s->best->ngraphs == 2) {
        program *p = program_copy(s->best);
        bool used = false;
        for (int i = 0; i < p->nacts; i++)
            used |= p->act[i].kind == ACT_RUN && p->act[i].graph == 1;
        p->ngraphs = 1;
        if (used)
            program_free(p);
        else
            offer(s, p);
    }
}

static void try_sinks(shrinker *s)
{
    for (int g = 0; g < s->best->ngraphs; g++)
        for (int i = s->best->graph[g].nsinks - 1; i >= 0; i--) {
            program *p = program_copy(s->best);
            drop_sink(&p->graph[g], i);
            offer(s, p);
        }
}

/* A node becomes an input of its shape, or its readers read one of its operands. */
static void try_nodes(shrinker *s, int g)
{
    int op_input = op_find("input"), op_use = op_find("use"), op_gradients = op_find("gradients");
    for (int i = s->best->graph[g].nnodes - 1; i > 0; i--) {
        if (i >= s->best->graph[g].nnodes)
            continue;
        const pnode *n = &s->best->graph[g].node[i];
        bool done = false;
        for (int k = 0; k < n->nin && !done; k++) {
            const pnode *x = n->in[k] < 0 ? NULL : &s->best->graph[g].node[n->in[k]];
            if (!x || !tsr_dims_equal(x->shape, n->shape) || x->dtype != n->dtype ||
                x->place != n->place)
                continue;
            program *p = program_copy(s->best);
            redirect(&p->graph[g], i, p->graph[g].node[i].in[k]);
            done = offer(s, p);
            n = &s->best->graph[g].node[i < s->best->graph[g].nnodes ? i : 0];
        }
        if (done || n->op == op_input || n->op == op_use || n->op == op_gradients ||
            n->op == op_find("updated"))
            continue;
        for (int batch = 0; batch < 2 && !done; batch++) {
            program *p = program_copy(s->best);
            pnode *m = &p->graph[g].node[i];
            *m = (pnode){.op = op_input,
                         .tag = m->tag,
                         .shape = m->shape,
                         .dtype = m->dtype,
                         .below = m->below,
                         .place = m->place,
                         .batch = batch,
                         .var = -1};
            if (batch && (p->graph[g].microbatches < 2 || !m->shape.ndim))
                program_free(p);
            else
                done = offer(s, p);
        }
    }
}

/* Without micro-batches, with fewer, and with fewer inputs that are cut. */
static void try_microbatches(shrinker *s)
{
    for (int g = 0; g < s->best->ngraphs; g++) {
        for (int k = 1; k < s->best->graph[g].microbatches; k++) {
            program *p = program_copy(s->best);
            p->graph[g].microbatches = k;
            if (offer(s, p))
                break;
        }
        for (int i = 0; i < s->best->graph[g].nnodes; i++) {
            if (!s->best->graph[g].node[i].batch)
                continue;
            program *p = program_copy(s->best);
            p->graph[g].node[i].batch = 0;
            offer(s, p);
        }
    }
}

static void try_signatures(shrinker *s)
{
    for (int g = 0; g < s->best->ngraphs; g++) {
        for (int i = 0; i < s->best->graph[g].nnodes; i++) {
            program *p = program_copy(s->best);
            pnode *n = &p->graph[g].node[i];
            bool plain = true;
            for (int k = 0; k < n->sbp.ndim; k++) {
                plain &= n->sbp.d[k].kind == TSR_SBP_BROADCAST;
                n->sbp.d[k] = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
            }
            if (plain)
                program_free(p);
            else
                offer(s, p);
        }
        for (int i = 0; i < s->best->graph[g].nsinks; i++) {
            if (!s->best->graph[g].sink[i].sbp.ndim && s->best->graph[g].sink[i].place < 0)
                continue;
            program *p = program_copy(s->best);
            p->graph[g].sink[i].sbp = (tsr_sbp){0};
            p->graph[g].sink[i].place = -1;
            offer(s, p);
        }
    }
    for (int i = 0; i < s->best->nvars; i++) {
        program *p = program_copy(s->best);
        bool plain = p->var[i].sbp.ndim != 0;
        p->var[i].sbp.ndim = (int8_t)p->place_ndim[p->var[i].place];
        for (int k = 0; k < p->var[i].sbp.ndim; k++) {
            plain &= p->var[i].sbp.d[k].kind == TSR_SBP_BROADCAST;
            p->var[i].sbp.d[k] = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
        }
        if (plain)
            program_free(p);
        else
            offer(s, p);
    }
}

static void try_options(shrinker *s)
{
    for (int k = 0; k < 9; k++) {
        program *p = program_copy(s->best);
        pgraph *g = &p->graph[0];
        bool changed = false;
        switch (k) {
        case 0:
            changed = g->memory_limit != 0;
            g->memory_limit = 0;
            break;
        case 1:
            changed = g->no_fusion != TSR_FUSE_ANYTHING;
            g->no_fusion = TSR_FUSE_ANYTHING;
            break;
        case 2:
            changed = g->bucket_mb != 0;
            g->bucket_mb = 0;
            break;
        case 8:
            changed = p->recompute != 0;
            p->recompute = 0;
            break;
        case 7:
            for (int i = 0; i < p->noptimizers; i++) {
                poptimizer *o = &p->optimizer[i];
                changed |= o->scaled || o->clip_norm > 0 || o->clip_value > 0 ||
                           o->loss_scale != 1 || o->accumulate > 1 || o->group >= 0 ||
                           o->frozen >= 0;
                o->clip_norm = o->clip_value = 0;
                o->loss_scale = 1;
                o->accumulate = 1;
                o->scaled = false;
                o->group = o->frozen = -1;
            }
            break;
        case 6:
            changed = g->free_links;
            g->free_links = false;
            break;
        case 3:
            changed = p->noptimizers > 0;
            for (int i = 0; i < g->nsinks && p->noptimizers; i++)
                changed &=
                    g->sink[i].kind != SINK_MINIMIZE || g->sink[i].optimizer != p->noptimizers - 1;
            p->noptimizers -= changed;
            break;
        case 4:
            for (int i = 0; i < p->noptimizers; i++) {
                changed |= p->optimizer[i].schedule.kind || p->optimizer[i].schedule.warmup ||
                           p->optimizer[i].weight_decay != 0;
                p->optimizer[i].schedule = (tsr_schedule){0};
                p->optimizer[i].weight_decay = 0;
            }
            break;
        case 5:
            for (int i = 0; i < p->noptimizers; i++) {
                changed |= p->optimizer[i].state.ndim != 0;
                p->optimizer[i].state = (tsr_sbp){0};
            }
            break;
        }
        if (changed)
            offer(s, p);
        else
            program_free(p);
    }
}

/* All placements become "cpu:[0..n-1]", of fewer ranks. */
static void try_ranks(shrinker *s)
{
    for (int n = 1; n <= s->best->nranks; n++) {
        bool plain = n == s->best->nranks;
        program *p = program_copy(s->best);
        p->nranks = n;
        for (int i = 0; i < p->nplaces; i++) {
            plain &= p->place_ndim[i] == 1 && p->place_dim[i][0] == n;
            p->place_ndim[i] = 1;
            p->place_dim[i][0] = n;
            int used = sprintf(p->place[i], "cpu:[");
            for (int r = 0; r < n; r++) {
                plain &= p->place_rank[i][r] == r;
                p->place_rank[i][r] = r;
                used += sprintf(p->place[i] + used, "%s%d", r ? "," : "", r);
            }
            sprintf(p->place[i] + used, "]");
        }
        for (int g = 0; g < p->ngraphs; g++) {
            for (int i = 0; i < p->graph[g].nnodes; i++)
                p->graph[g].node[i].sbp.ndim = p->graph[g].node[i].sbp.ndim ? 1 : 0;
            for (int i = 0; i < p->graph[g].nsinks; i++)
                p->graph[g].sink[i].sbp.ndim = p->graph[g].sink[i].sbp.ndim ? 1 : 0;
        }
        for (int i = 0; i < p->nvars; i++)
            p->var[i].sbp.ndim = p->var[i].sbp.ndim ? 1 : 0;
        for (int i = 0; i < p->noptimizers; i++)
            p->optimizer[i].state.ndim = p->optimizer[i].state.ndim ? 1 : 0;
        if (plain)
            program_free(p);
        else if (offer(s, p))
            return;
    }
}

program *program_shrink(const program *p)
{
    verdict v;
    try_program(p, &v);
    shrinker s = {.best = program_copy(p), .progress = true, .kind = v.kind};
    for (int round = 0; s.progress && round < 8; round++) {
        s.progress = false;
        try_acts(&s);
        try_sinks(&s);
        for (int g = 0; g < s.best->ngraphs; g++)
            try_nodes(&s, g);
        try_microbatches(&s);
        try_ranks(&s);
        try_options(&s);
        try_signatures(&s);
    }
    return s.best;
}
