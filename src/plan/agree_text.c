/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/agree.h"

#include <stdio.h>
#include <string.h>

#include "src/core/attrs_text.h"
#include "src/core/rng.h"

int tsri_part_count(const tsri_program_view *p, tsri_part_kind kind)
{
    const int counts[] = {1, p->g->nhooks, p->g->nops, p->g->nports};
    return counts[kind];
}

/* --- hashes of ops ---------------------------------------------------------------------------- */
static uint64_t hash_text(uint64_t h, const char *text)
{
    return tsri_hash(h, text, strlen(text) + 1);
}

static tsri_attrs comparable_attrs(const tsri_op *op)
{
    tsri_attrs attrs = op->attrs;
    if (op->kind == TSRI_OP_CONSTANT)
        attrs.constant.data = NULL; /* an address; its hash says what is there */
    if (op->kind == TSRI_OP_OWN || op->kind == TSRI_OP_OWN_BACKWARD)
        attrs.own.op = NULL;
    return attrs;
}

static bool is_drawn(const tsr_variable *v)
{
    return v->init.kind >= TSR_INIT_UNIFORM;
}

/* Hashes what gives a variable its first value, field by field: the struct has padding. */
static uint64_t hash_variable(uint64_t h, const tsr_variable *v)
{
    const int32_t what[4] = {(int32_t)v->dtype, v->trainable, (int32_t)v->init.kind,
                             v->init.fan_out};
    const int64_t zero_row = v->zero_row - 1;
    const double of[2] = {v->init.a, v->init.b};
    const uint64_t seed = is_drawn(v) ? v->seed : 0;
    h = tsri_hash(h, &v->sbp, sizeof v->sbp);
    h = tsri_hash(h, what, sizeof what);
    h = tsri_hash(h, &zero_row, sizeof zero_row);
    h = tsri_hash(h, of, sizeof of);
    return tsri_hash(h, &seed, sizeof seed);
}

static uint64_t hash_op(const tsri_op *op)
{
    uint64_t h = TSRI_HASH_INIT;
    int32_t head[6] = {op->kind, op->nin, op->nout, op->from_local, op->region, op->batch_axis};
    h = tsri_hash(h, head, sizeof head);
    const tsri_attrs attrs = comparable_attrs(op);
    h = tsri_hash(h, &attrs, sizeof attrs);
    h = tsri_hash(h, &op->sbp, sizeof op->sbp);
    h = hash_text(h, op->name);
    h = hash_text(h, tsr_placement_text(op->placement));
    for (int i = 0; i < op->nin; i++)
        h = tsri_hash(h, &op->in[i]->id, sizeof op->in[i]->id);
    for (int i = 0; i < op->nout; i++) {
        const tsr_tensor *t = op->out[i];
        int32_t type[3] = {t->dtype, t->shape.ndim, t->writes != NULL};
        h = tsri_hash(h, type, sizeof type);
        h = tsri_hash(h, t->shape.d, (uint64_t)t->shape.ndim * sizeof t->shape.d[0]);
    }
    return op->variable ? hash_variable(h, op->variable) : h;
}

uint64_t tsri_part_hash(const tsri_program_view *p, tsri_part_kind kind, int i)
{
    char text[TSRI_PART_TEXT];
    if (i >= tsri_part_count(p, kind))
        return 0;
    if (kind == TSRI_PART_OPS)
        return hash_op(p->g->ops[i]);
    tsri_part_text(p, kind, i, text);
    const char *lines = strchr(text, '\n'); /* where it stands does not count */
    return hash_text(TSRI_HASH_INIT, lines ? lines : "");
}

/* --- texts ------------------------------------------------------------------------------------ */
static void put_sbp(FILE *f, const char *name, tsr_sbp sbp)
{
    char text[TSR_SBP_TEXT_MAX];
    fprintf(f, "%s: %s\n", name, sbp.ndim ? tsr_sbp_format(sbp, text) : "inferred");
}

static void put_settings(FILE *f, const tsri_program_view *p)
{
    const tsr_compile_opts *o = p->opts;
    fprintf(f, "\nthe graph's training: %d\n", p->g->training);
    fprintf(f, "the graph's seed: %llu\n", (unsigned long long)p->g->seed);
    tsri_put_number(f, "bucket_mb", o->bucket_mb);
    fprintf(f, "no_fusion: %u\n", o->no_fusion);
    fprintf(f, "memory_limit: %zu\n", o->memory_limit);
    fprintf(f, "infer_updates: %d\n", o->infer_updates);
    fprintf(f, "reshard_after_forward: %d\n", o->reshard_after_forward);
    fprintf(f, "on_nan: %d\n", o->on_nan);
    tsri_put_number(f, "search_s", o->search_s);
    fprintf(f, "microbatches: %d\n", o->microbatches > 1 ? o->microbatches : 1);
    if (o->microbatches > 1)
        fprintf(f, "pipeline: %d\n", o->pipeline);
    tsri_put_number(f, "local_bytes_per_s", o->local_bytes_per_s);
    tsri_put_number(f, "flops_per_s", o->flops_per_s);
    tsri_put_number(f, "kernel_s", o->kernel_s);
    tsri_put_number(f, "attention_share", o->attention_share);
    for (size_t i = 0; i < sizeof o->product_share / sizeof *o->product_share; i++) {
        char name[48];
        snprintf(name, sizeof name, "product_share[%zu]", i);
        tsri_put_number(f, name, o->product_share[i]);
    }
    for (int d = TSR_DTYPE_F32; d < TSR_DTYPE_COUNT_; d++) {
        char name[48];
        snprintf(name, sizeof name, "flops_per_s of %s", tsr_dtype_name((tsr_dtype)d));
        tsri_put_number(f, name, o->dtype_flops_per_s[d]);
    }
    fprintf(f, "nlinks: %d\n", o->nlinks);
    for (int i = 0; i < o->nlinks && i < 3; i++)
        fprintf(f, "link[%d]: ranks %d, latency_s %.17g, bytes_per_s %.17g\n", i, o->link[i].ranks,
                o->link[i].latency_s, o->link[i].bytes_per_s);
}

static void put_variable(FILE *f, const tsr_variable *v)
{
    static const char *const kinds[] = {"zeros",          "ones",           "constant",
                                        "uniform",        "normal",         "kaiming_uniform",
                                        "kaiming_normal", "xavier_uniform", "xavier_normal"};
    fprintf(f, "dtype of the variable: %s\n", tsr_dtype_name(v->dtype));
    put_sbp(f, "signature of the variable", v->sbp);
    fprintf(f, "trainable: %d\n", v->trainable);
    fprintf(f, "initial values: %s\n", kinds[v->init.kind]);
    tsri_put_number(f, "a of the initial values", v->init.a);
    tsri_put_number(f, "b of the initial values", v->init.b);
    fprintf(f, "fan_out of the initial values: %d\n", v->init.fan_out);
    if (v->zero_row)
        fprintf(f, "row of zeros: %lld\n", (long long)v->zero_row - 1);
    if (is_drawn(v))
        fprintf(f, "seed of the initial values: %llu\n", (unsigned long long)v->seed);
}

/* "model.c:12: conv2d features.0(in (4,3), (8,3)) -> f32 (4,8) cpu:[0,1]" */
static void put_op_heading(FILE *f, const tsri_op *op)
{
    fprintf(f, "%s:%d: %s %s(", tsri_basename(op->loc.file), op->loc.line,
            tsri_op_title(op->kind, &op->attrs), op->name);
    char dims[TSRI_DIMS_TEXT_MAX];
    for (int j = 0; j < op->nin && j < 8; j++)
        fprintf(f, "%s(%s)", j ? ", " : "", tsri_dims_format(op->in[j]->shape, dims));
    fputs(op->nin > 8 ? ", ...) ->" : ") ->", f);
    for (int j = 0; j < op->nout && j < 4; j++)
        fprintf(f, "%s%s (%s)", j ? ", " : " ", tsr_dtype_name(op->out[j]->dtype),
                tsri_dims_format(op->out[j]->shape, dims));
    fprintf(f, " %s\n", tsr_placement_text(op->placement));
}

static void put_op(FILE *f, const tsri_op *op)
{
    put_op_heading(f, op);
    fprintf(f, "op: %s\n", tsri_op_title(op->kind, &op->attrs));
    fprintf(f, "name: %s\n", op->name);
    fprintf(f, "placement: %s\n", tsr_placement_text(op->placement));
    put_sbp(f, "signature", op->sbp);
    tsri_attrs_put(f, tsri_op_def_of(op->kind)->attrs, &op->attrs);
    char dims[TSRI_DIMS_TEXT_MAX];
    fprintf(f, "results: %d\n", op->nout);
    for (int j = 0; j < op->nout && j < 16; j++) {
        fprintf(f, "dtype of result %d: %s\n", j, tsr_dtype_name(op->out[j]->dtype));
        fprintf(f, "shape of result %d: (%s)\n", j, tsri_dims_format(op->out[j]->shape, dims));
    }
    if (op->variable)
        put_variable(f, op->variable);
    if (op->kind == TSRI_OP_INPUT)
        fprintf(f, "fed as local values: %d\nbatch axis: %d\n", op->from_local, op->batch_axis - 1);
    fprintf(f, "region of recomputation: %d\n", op->region);
    fprintf(f, "operands: %d\n", op->nin);
    for (int j = 0; j < op->nin && j < 32; j++)
        fprintf(f, "operand %d: result %d of op %d\n", j, op->in[j]->out, op->in[j]->op->id);
    /* Attributes that have no name above. */
    const tsri_attrs attrs = comparable_attrs(op);
    fprintf(f, "attributes, as a hash: 0x%llx\n",
            (unsigned long long)tsri_hash(TSRI_HASH_INIT, &attrs, sizeof attrs));
    fprintf(f, "all of it, as a hash: 0x%llx\n", (unsigned long long)hash_op(op));
}

static void put_port(FILE *f, const tsri_graph_port *port)
{
    const char *what = port->is_input ? "input" : "output";
    fprintf(f, "%s:%d: %s '%s'\n", tsri_basename(port->loc.file), port->loc.line, what, port->name);
    fprintf(f, "kind: %s\n", what);
    fprintf(f, "name: %s\n", port->name);
    fprintf(f, "tensor: result %d of op %d\n", port->tensor->out, port->tensor->op->id);
    fprintf(f, "placement: %s\n", tsr_placement_text(port->placement));
    put_sbp(f, "signature", port->sbp);
    fprintf(f, "fetched as local values: %d\n", port->is_local);
}

void tsri_part_text(const tsri_program_view *p, tsri_part_kind kind, int i,
                    char buf[TSRI_PART_TEXT])
{
    static const char *const names[] = {"settings", "optimizers", "ops", "inputs or outputs"};
    buf[0] = 0;
    if (i >= tsri_part_count(p, kind)) {
        snprintf(buf, TSRI_PART_TEXT, "has no more %s\n", names[kind]);
        return;
    }
    FILE *f = fmemopen(buf, TSRI_PART_TEXT, "w");
    if (!f)
        return;
    switch (kind) {
    case TSRI_PART_SETTINGS:
        put_settings(f, p);
        break;
    case TSRI_PART_OPS:
        put_op(f, p->g->ops[i]);
        break;
    case TSRI_PART_HOOKS:
        p->g->hooks[i].describe(p->g->hooks[i].arg, f);
        break;
    default:
        put_port(f, &p->g->ports[i]);
    }
    fclose(f);
    buf[TSRI_PART_TEXT - 1] = 0;
}
