/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/signatures/signatures.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/rng.h"
#include "tests/dist/signatures/signature_cases.h"

enum { MAX_OPS = 8192 };

static sc_graph graphs[128];
sg_entry *sg_entries;
int sg_nentries;
static tsri_pool memory; /* of the entries and all values */

/* --- the programs' values --------------------------------------------------------------------- */

static double fill_value(sc_fill fill, tsr_dtype dtype, uint64_t *rng)
{
    double u = vf_random(rng);
    if (dtype == TSR_BOOL)
        return u < 0.5;
    switch (fill) {
    case SC_POSITIVE:
        return 0.1 + 2 * u;
    case SC_INSIDE:
        return 1.8 * u - 0.9;
    case SC_ABOVE:
        return 1.1 + 2 * u;
    case SC_FEW:
    case SC_LABEL:
        return floor(4 * u);
    case SC_ONE:
        return 1;
    case SC_WHOLE:
        return (floor(9 * u) + 1) * (vf_random(rng) < 0.5 ? -1 : 1);
    default:
        return 14 * u - 4;
    }
}

/* Values of what the program reads: inputs, variables, the optimizer's numbers. */
static void fill_source(const sc_graph *s, const tsri_op *op, double *v, uint64_t *rng)
{
    const tsr_tensor *t = op->out[0];
    int64_t n = tsr_dims_count(t->shape);
    bool input = op->kind == TSRI_OP_INPUT;
    bool is_step = input && strcmp(op->name, TSRI_STEP_INPUT) == 0;
    bool hyper = op->kind == TSRI_OP_VARIABLE && strstr(op->variable->name, "hyper");
    sc_fill fill = input && !is_step ? s->fill[atoi(op->name + 1)] : SC_POSITIVE;
    for (int64_t i = 0; i < n; i++)
        v[i] = is_step ? 3
               : hyper ? (i == TSRI_HYPER_SKIP ? 0
                          : i == TSRI_HYPER_LR ? 0.1
                                               : 0.5)
                       : fill_value(fill, t->dtype, rng);
}

static bool is_known(const sg_entry *e)
{
    for (int i = 0; i < sg_nentries; i++) {
        const sg_entry *o = &sg_entries[i];
        bool same = o->op->kind == e->op->kind && !strcmp(o->text.text, e->text.text) &&
                    !memcmp(&o->op->attrs, &e->op->attrs, sizeof e->op->attrs) &&
                    o->v.nin == e->v.nin && o->v.nout == e->v.nout;
        for (int j = 0; j < e->v.nin && same; j++)
            same = tsr_dims_equal(o->v.in_dims[j], e->v.in_dims[j]) &&
                   o->v.in_dtype[j] == e->v.in_dtype[j];
        for (int j = 0; j < e->v.nout && same; j++)
            same = tsr_dims_equal(o->v.out_dims[j], e->v.out_dims[j]) &&
                   o->v.out_dtype[j] == e->v.out_dtype[j];
        if (same)
            return true;
    }
    return false;
}

/* Sets the initial value of the result of an op that keeps parts of it. */
static void fill_held(vf_op *v, uint64_t *rng)
{
    const int64_t n = tsr_dims_count(v->in_dims[v->nin]);
    const bool real = v->in_dtype[v->nin] == TSR_F32 || v->in_dtype[v->nin] == TSR_F64;
    double *p = tsri_pool_alloc(&memory, (size_t)(n + 1) * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = fill_value(real ? SC_SPREAD : SC_FEW, v->in_dtype[v->nin], rng);
    v->in[v->nin] = p;
}

/* Runs a whole program unsplit, op by op, and keeps each op that is new. */
static void run_program(const sc_case *c, sc_graph *s)
{
    char why[4096];
    uint64_t rng = 5;
    double **value = tsri_pool_alloc(&memory, (size_t)s->g->ntensors * sizeof *value);
    if (tsr_graph_status(s->g) != TSR_OK)
        fail_msg("%s: %s", c->name, tsr_last_error());
    for (int i = 0; i < s->g->nops; i++) {
        const tsri_op *op = s->g->ops[i];
        for (int j = 0; j < op->nout; j++)
            value[op->out[j]->id] = tsri_pool_alloc(
                &memory, (size_t)(tsr_dims_count(op->out[j]->shape) + 1) * sizeof(double));
        if (op->kind == TSRI_OP_INPUT || op->kind == TSRI_OP_VARIABLE) {
            fill_source(s, op, value[op->out[0]->id], &rng);
            continue;
        }
        assert_true(tsri_op_has_rule(op->kind));
        sg_entry e = {.name = c->name, .real = s->real, .op = op, .v = vf_from(op)};
        for (int j = 0; j < op->nin; j++)
            e.v.in[j] = value[op->in[j]->id];
        for (int j = 0; j < op->nout; j++)
            e.v.out[j] = value[op->out[j]->id];
        if (e.v.held)
            fill_held(&e.v, &rng);
        if (!vf_run_whole(&e.v, why, sizeof why))
            fail_msg("%s: %s, unsplit: %s", c->name, tsri_op_name(op->kind), why);
        if (tsri_op_write_rule(op, &e.text) != TSR_OK)
            fail_msg("%s: %s: %s", c->name, tsri_op_name(op->kind), tsr_last_error());
        assert_true(sg_nentries < MAX_OPS);
        if (!is_known(&e))
            sg_entries[sg_nentries++] = e;
    }
}

int sg_setup(void **state)
{
    (void)state;
    sg_entries = tsri_pool_alloc(&memory, MAX_OPS * sizeof *sg_entries);
    for (int i = 0; i < 2 * sc_cases_count; i++) {
        const sc_case *c = &sc_cases[i / 2];
        sc_graph *s = &graphs[i];
        s->real = i % 2 ? TSR_F32 : TSR_F64;
        if (tsr_world_create_virtual(1, 0, &s->world) != TSR_OK)
            return -1;
        s->p = tsr_placement_parse(s->world, "cpu:[0]");
        s->g = tsr_graph_create(s->world, TSR_GRAPH_OPTS(.training = c->training, .seed = 9));
        c->declare(s);
        run_program(c, s);
    }
    return 0;
}

int sg_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * sc_cases_count; i++)
        tsr_world_destroy(graphs[i].world);
    tsri_pool_finish(&memory);
    return 0;
}

/* --- signatures ------------------------------------------------------------------------------- */

/* What no rule expresses, over dimension d: the others are B. */
static tsri_nd_signature extra_signature(const sg_entry *e, const tsri_rule_text *text, int ndim,
                                         int over)
{
    tsri_nd_signature sig = {0};
    for (int i = 0; i < e->v.nin + e->v.nout; i++) {
        bool in = i < e->v.nin;
        int j = in ? i : i - e->v.nin;
        tsr_sbp *s = in ? &sig.in[j] : &sig.out[j];
        s->ndim = (int8_t)ndim;
        for (int d = 0; d < ndim; d++)
            s->d[d] = d != over ? (tsr_sbp1){TSR_SBP_BROADCAST, 0}
                      : in      ? text->extra_in[j]
                                : text->extra_out[j];
    }
    return sig;
}

bool sg_derive(const sg_entry *e, const tsri_rule_text *text, int ndim, const int *dim,
               sg_derived *out)
{
    tsri_nd_signature *sig;
    *out = (sg_derived){0};
    if (tsri_rule_bind(&out->pool, text->text, e->v.nin, e->v.in_dims, e->v.nout, e->v.out_dims,
                       text->nsizes, text->sizes, &out->rule) != TSR_OK ||
        tsri_rule_derive_nd(&out->pool, out->rule, ndim, dim, &out->n, &sig) != TSR_OK) {
        tsri_pool_finish(&out->pool);
        return false;
    }
    out->derived = out->n;
    out->groups_index = tsri_rule_find_index(out->rule, "g");
    out->sig = tsri_pool_alloc(&out->pool, (size_t)(out->n + ndim) * sizeof *sig);
    memcpy(out->sig, sig, (size_t)out->n * sizeof *sig);
    for (int d = 0; d < ndim; d++)
        if (text->extra_parts == dim[d] && dim[d] > 1)
            out->sig[out->n++] = extra_signature(e, text, ndim, d);
    return true;
}

void sg_derived_finish(sg_derived *d)
{
    tsri_pool_finish(&d->pool);
}

bool sg_same(const sg_entry *e, const tsri_nd_signature *a, const tsri_nd_signature *b)
{
    return !memcmp(a->in, b->in, (size_t)e->v.nin * sizeof *a->in) &&
           !memcmp(a->out, b->out, (size_t)e->v.nout * sizeof *a->out);
}

bool sg_contains(const sg_entry *e, const sg_derived *d, const tsri_nd_signature *sig)
{
    for (int i = 0; i < d->n; i++)
        if (sg_same(e, &d->sig[i], sig))
            return true;
    return false;
}

bool sg_check(const sg_entry *e, const tsri_nd_signature *sig, const sg_derived *d, vf_how how,
              char *why, size_t size)
{
    for (int i = 0; i < how.ndim && d->groups_index >= 0; i++)
        how.split_groups |= (sig->split[i] >> d->groups_index & 1) << i;
    how.seed += tsri_hash(TSRI_HASH_INIT, sig, sizeof *sig);
    return vf_check(&e->v, sig, &how, why, size);
}

bool sg_has_planes(const sg_entry *e)
{
    bool any = false;
    for (int i = 0; i < e->v.nin; i++)
        any |= e->v.in_dims[i].ndim == 4;
    for (int i = 0; i < e->v.nout; i++)
        any |= e->v.out_dims[i].ndim == 4;
    return any && tsri_op_def_of(e->v.kind)->layout != TSRI_LAYOUT_ROW;
}

static bool has_value(tsr_dims dims, const double *v)
{
    for (int64_t i = 0; i < tsr_dims_count(dims); i++)
        if (v[i] != 0 && isfinite(v[i]))
            return true;
    return false;
}

bool sg_can_tell(const sg_entry *e)
{
    int64_t most = 0;
    for (int i = 0; i < e->v.nin + e->v.nout; i++) {
        bool in = i < e->v.nin;
        int j = in ? i : i - e->v.nin;
        tsr_dims dims = in ? e->v.in_dims[j] : e->v.out_dims[j];
        if (!has_value(dims, in ? e->v.in[j] : e->v.out[j]))
            return false;
        most = tsr_dims_count(dims) > most ? tsr_dims_count(dims) : most;
    }
    return most > 1;
}
