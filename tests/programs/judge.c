/* SPDX-License-Identifier: Apache-2.0 */
/* Compares all that the ranks read with what the oracle says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execute.h"
#include "oracle.h"
#include "src/optim/optim.h"

/* Errors that the tape bounds are of the oracle's own order of operations; the library's may be
 * another, of more operations. A wrong program is off by far more than these factors. */
#define SLACK_F64 2000.0
#define SLACK_F32 40.0
#define SLACK_BF16 1.5

typedef struct bench {
    const program *p;
    const run_log *log;
    const run_log *one; /* NULL, or a run by whose values the log is judged, on one rank */
    verdict *out;
    int next; /* item */
} bench;

static void fault(bench *b, const char *what, int rank, int64_t i, double found, double right,
                  double e)
{
    if (b->out->failed)
        return;
    b->out->failed = true;
    snprintf(b->out->text, sizeof b->out->text,
             "%s[%lld] on rank %d of %d: %.17g, right is %.17g (error bound %.2g)", what,
             (long long)i, rank, b->p->nranks, found, right, e);
}

/* One number. */
static void compare(bench *b, const char *what, int rank, int64_t i, double found, double right,
                    double e, double u)
{
    /* By class the sign of a zero counts where nothing was rounded to it. */
    const bool by_sign = b->one && right == 0 && e == 0;
    if (b->one) {
        /* Where the library is finite and the tape is not, its bound is of another formula. */
        e = isfinite(b->one->rank[0].items[b->next].v[i]) && !isfinite(right) ? INFINITY : e;
        right = b->one->rank[0].items[b->next].v[i];
    }
    double slack = u == U_BF16 ? SLACK_BF16 : u == U_F32 ? SLACK_F32 : SLACK_F64;
    double least = u >= U_F32 ? 1e-36 : 1e-290, most = u == U_BF16 ? 0.3 : 0.02;
    double allowed = slack * e + least;
    if (!isfinite(e) || (isfinite(right) && allowed > most * (1 + fabs(right)))) {
        b->out->skipped++;
        return;
    }
    b->out->compared++;
    const bool wrong_zero = by_sign && found == 0 && right == 0 && signbit(found) != signbit(right);
    if (isnan(right)       ? isnan(found)
        : !isfinite(right) ? found == right
                           : fabs(found - right) <= allowed * (b->one ? 2 : 1) && !wrong_zero)
        return;
    fault(b, what, rank, i, found, right, e);
}

static void compare_all(bench *b, const char *what, int rank, const item *it, const double *v,
                        const double *e, int64_t n, double u)
{
    if (it->n != n) {
        fault(b, what, rank, -1, (double)it->n, (double)n, 0);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        compare(b, what, rank, i, it->v[i], v[i], e[i], u);
}

/* Adds a rank's addends to the whole, where it has the group's first place along B. */
static void add_partial(const item *it, int rank, tsr_dims dims, double *sum, double *size, int op)
{
    int64_t first[TSR_MAX_NDIM];
    tsr_dims part;
    if (!it->here || !shard_of(dims, it, rank, first, &part))
        return;
    int place = 0;
    while (it->ranks[place] != rank)
        place++;
    for (int k = it->ndim - 1; k >= 0; k--) {
        if (it->sbp.d[k].kind == TSR_SBP_BROADCAST && place % it->dim[k])
            return;
        place /= it->dim[k];
    }
    for (int64_t i = 0; i < it->n; i++) {
        int64_t rest = i, index = 0, stride = 1;
        for (int k = part.ndim - 1; k >= 0; k--) {
            index += (first[k] + rest % part.d[k]) * stride;
            rest /= part.d[k];
            stride *= dims.d[k];
        }
        double x = it->v[i];
        size[index] += fabs(x);
        sum[index] = op == TSR_REDUCE_SUM            ? sum[index] + x
                     : isnan(x) || isnan(sum[index]) ? NAN
                     : op == TSR_REDUCE_MAX          ? fmax(sum[index], x)
                                                     : fmin(sum[index], x);
    }
}

static void compare_partial(bench *b, const char *what, const pnode *n, const tape_value *v, int op)
{
    double sum[400], size[400] = {0};
    for (int64_t i = 0; i < v->n; i++)
        sum[i] = op == TSR_REDUCE_SUM ? -0.0 : op == TSR_REDUCE_MAX ? -INFINITY : INFINITY;
    for (int r = 0; r < b->p->nranks; r++)
        add_partial(&b->log->rank[r].items[b->next], r, n->shape, sum, size, op);
    for (int64_t i = 0; i < v->n && op == TSR_REDUCE_SUM; i++)
        if (n->dtype == TSR_I32 || n->dtype == TSR_U8) {
            const uint64_t bits = (uint64_t)(int64_t)sum[i];
            sum[i] = n->dtype == TSR_I32 ? (double)(int32_t)(uint32_t)bits : (double)(uint8_t)bits;
        }
    for (int64_t i = 0; i < v->n; i++)
        if (isfinite(size[i]) || !isfinite(v->v[i]))
            compare(b, what, 0, i, sum[i], v->v[i], v->e[i] + 4 * v->u * size[i], v->u);
        else
            b->out->skipped++;
}

static void compare_output(bench *b, int graph, int sink_at, const walk *w)
{
    const sink *s = &b->p->graph[graph].sink[sink_at];
    const pnode *n = &b->p->graph[graph].node[s->node];
    const tape_value *v = tape_at(w->t, w->value[s->node]);
    const item *any = &b->log->rank[0].items[b->next];
    char what[64];
    snprintf(what, sizeof what, "output y%d = t%d (%s)", sink_at, s->node, op_at(n->op)->name);
    int partial = -1;
    for (int k = 0; k < any->ndim; k++)
        if (any->sbp.d[k].kind == TSR_SBP_PARTIAL)
            partial = any->sbp.d[k].arg;
    for (int r = 0; r < b->p->nranks && partial < 0; r++) {
        const item *it = &b->log->rank[r].items[b->next];
        int64_t first[TSR_MAX_NDIM];
        tsr_dims part;
        if (!it->here)
            continue;
        if (!shard_of(n->shape, it, r, first, &part) || !tsr_dims_equal(part, it->dims)) {
            fault(b, what, r, -1, (double)it->n, (double)v->n, 0);
            continue;
        }
        for (int64_t i = 0; i < it->n; i++) {
            int64_t rest = i, index = 0, stride = 1;
            for (int k = part.ndim - 1; k >= 0; k--) {
                index += (first[k] + rest % part.d[k]) * stride;
                rest /= part.d[k];
                stride *= n->shape.d[k];
            }
            compare(b, what, r, index, it->v[i], v->v[index], v->e[index], v->u);
        }
    }
    if (partial >= 0)
        compare_partial(b, what, n, v, partial);
    b->next++;
}

/* How far two runs' values are from each other: infinitely, where they are of two bit classes. */
static double apart(double a, double b)
{
    if (!isfinite(a) || !isfinite(b))
        return a == b || (isnan(a) && isnan(b)) ? 0 : INFINITY;
    return a == b && signbit(a) != signbit(b) ? SIGN_OF_ZERO : fabs(a - b) * 2;
}

/* Compares a whole value, and goes on from what the library has: errors do not grow over runs. */
static void compare_held(bench *b, const char *what, held *h, double u)
{
    const item *first = NULL, *right = b->one ? &b->one->rank[0].items[b->next] : NULL;
    for (int r = 0; r < b->p->nranks; r++) {
        const item *it = &b->log->rank[r].items[b->next];
        if (!it->here)
            continue;
        compare_all(b, what, r, it, h->v, h->e, h->n, u);
        first = first ? first : it;
    }
    b->next++;
    for (int64_t i = 0; i < h->n && first && !b->out->failed; i++) {
        h->v[i] = right ? right->v[i] : first->v[i];
        h->e[i] = right ? apart(first->v[i], h->v[i]) : 0;
    }
}

static void compare_variables(bench *b, oracle *o, const char *when)
{
    char what[96];
    for (int i = 0; i < b->p->nvars; i++) {
        snprintf(what, sizeof what, "variable %s %s", b->p->var[i].name, when);
        compare_held(b, what, &o->var[i], unit_of(b->p->var[i].dtype));
    }
}

/* Slots are in the order of the module's variables: depth first, modules in their order. */
static void compare_states(bench *b, oracle *o)
{
    const program *p = b->p;
    for (int k = 0; k < p->noptimizers; k++)
        for (int m = 0; m < p->nmodules; m++)
            for (int i = 0; i < p->nvars; i++) {
                if (p->var[i].module != m || !oracle_owns(p, k, i))
                    continue;
                for (int s = 0; s < oracle_states(&p->optimizer[k]); s++) {
                    char what[96];
                    snprintf(what, sizeof what, "state %d of %s in optimizer %d", s, p->var[i].name,
                             k);
                    compare_held(b, what, &o->state[k][i][s], unit_of(p->var[i].dtype));
                }
            }
}

static void judge_acts(bench *b)
{
    const program *p = b->p;
    oracle o;
    oracle_start(&o, p);
    for (int i = 0; i < p->nacts && !b->out->failed; i++) {
        const act *a = &p->act[i];
        char when[32];
        switch (a->kind) {
        case ACT_RUN:
            oracle_run(&o, a);
            for (int s = 0; s < p->graph[a->graph].nsinks; s++)
                if (p->graph[a->graph].sink[s].kind <= SINK_LOCAL)
                    compare_output(b, a->graph, s, &o.w);
            snprintf(when, sizeof when, "after act %d", i);
            compare_variables(b, &o, when);
            compare_states(b, &o);
            break;
        case ACT_SET:
            oracle_set(&o, a);
            break;
        case ACT_SET_LR:
            o.lr[a->optimizer] = a->lr;
            break;
        case ACT_SAVE_LOAD:
            compare_variables(b, &o, "saved and loaded");
            compare_variables(b, &o, "of a checkpoint, loaded elsewhere");
            compare_variables(b, &o, "of a checkpoint, loaded again");
            compare_states(b, &o);
            break;
        }
    }
    oracle_finish(&o);
}

static bool judge_status(const program *p, const run_log *log, verdict *out)
{
    for (int r = 0; r < p->nranks; r++) {
        const rank_log *m = &log->rank[r];
        if (m->status == TSR_OK || m->status == TSR_ERR_REMOTE)
            continue;
        out->failed = true;
        out->kind = (int)m->status;
        out->refused =
            m->refused && (m->status == TSR_ERR_SBP || m->status == TSR_ERR_UNSUPPORTED ||
                           m->status == TSR_ERR_NO_MEMORY);
        snprintf(out->text, sizeof out->text, "rank %d of %d: %s: %s: %s", r, p->nranks, m->where,
                 tsr_status_name(m->status), m->text);
        return false;
    }
    return true;
}

void judge(const program *p, const run_log *log, verdict *out)
{
    bench b = {.p = p, .log = log, .out = out};
    *out = (verdict){0};
    if (judge_status(p, log, out))
        judge_acts(&b);
}

/* Judges a program of special values by its own run on one rank: on its ranks, and with the kernels
 * of reference on one. */
static void judge_special(const program *p, const run_log *log, verdict *out)
{
    program *alone = program_alone(p);
    run_log one, ref;
    execute(alone, &one);
    setenv("TESSERA_KERNELS", "ref", 1);
    execute(alone, &ref);
    unsetenv("TESSERA_KERNELS");
    *out = (verdict){0};
    const bool ran = judge_status(alone, &one, out) && judge_status(alone, &ref, out) &&
                     judge_status(p, log, out);
    bench many = {.p = p, .log = log, .one = &one, .out = out};
    bench by_ref = {.p = alone, .log = &ref, .one = &one, .out = out};
    if (ran)
        judge_acts(&many);
    if (ran && !out->failed) {
        judge_acts(&by_ref);
        if (out->failed)
            memmove(out->text + 8, out->text, sizeof out->text - 8),
                memcpy(out->text, "by ref: ", 8);
    }
    run_log_free(&one);
    run_log_free(&ref);
    program_free(alone);
}

void run_and_judge(const program *p, run_log *log, verdict *out)
{
    execute(p, log);
    (p->special ? judge_special : judge)(p, log, out);
}

bool execute_asks_less(rank_log *m, tsr_status status, tsr_compile_opts *opts)
{
    if (status == TSR_ERR_NO_MEMORY && opts->memory_limit) {
        m->rejected_limits++;
        opts->memory_limit = 0;
        return true;
    }
    if (opts->microbatches == 1 || !strstr(tsr_last_error(), "micro-batches") ||
        (status != TSR_ERR_UNSUPPORTED && status != TSR_ERR_SHAPE))
        return false;
    m->parts_by_size += status == TSR_ERR_SHAPE;
    m->parts_by_op += status == TSR_ERR_UNSUPPORTED;
    snprintf(m->parts_text, sizeof m->parts_text, "%s", tsr_last_error());
    opts->microbatches = 1;
    return true;
}
