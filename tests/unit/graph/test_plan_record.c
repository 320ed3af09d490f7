/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of programs in a virtual world against recorded lines: what tsr_plan_explain says, the
 * program's text (src/ir/text/text.h), what else ops could have done, the report, and how many
 * allocations compiling took. Some programs are recorded as a whole, in the folder plans. The other
 * suites prove that plans are right; a fault in a price, a tie, a merge or a figure gives another
 * plan that is right too, and only a difference to what was planned before shows it. After a change
 * of the planner that is meant, `plan_record --print > tests/unit/graph/plan_record.inc` records
 * anew, the texts too, and `plan_record --texts` of both versions shows in full what differs.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/rng.h"
#include "src/core/text_stream.h"
#include "src/core/world.h"
#include "src/ir/text/text.h"
#include "src/plan/agree.h"
#include "src/plan/report/report.h"
#include "tests/unit/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const recorded[] = {
#include "tests/unit/graph/plan_record.inc"
};

enum { MANY = 1 << 30 };
static bool texts;

/* --- text ------------------------------------------------------------------------------------- */
static struct {
    char *data;
    size_t size, capacity;
} text;

static void add_text(const char *more, size_t n)
{
    if (text.size + n + 1 > text.capacity) {
        text.capacity = 2 * (text.capacity + n + 1);
        text.data = realloc(text.data, text.capacity);
        assert_non_null(text.data);
    }
    memcpy(text.data + text.size, more, n + 1);
    text.size += n;
}

static void add(const char *fmt, ...)
{
    char more[16384];
    va_list ap;
    va_start(ap, fmt);
    size_t n = (size_t)vsnprintf(more, sizeof more, fmt, ap);
    va_end(ap);
    assert_true(n < sizeof more);
    add_text(more, n);
}

/* The hash of what was added since the last call. */
static unsigned end_section(const char *name)
{
    uint64_t h = tsri_hash(TSRI_HASH_INIT, text.data, text.size);
    if (texts)
        printf("--- %s\n%.*s\n", name, (int)text.size, text.data ? text.data : "");
    text.size = 0;
    return record_fold(h);
}

/* --- a plan as text --------------------------------------------------------------------------- */
/* Programs whose whole text is recorded in a file: together they use all passes. */
static const char *const whole[] = {"data parallel", "updates", "auto on a grid", "two stages",
                                    "convolutions",  "pair",    "from gpus"};

/* Adds the program's text after all passes, without line numbers, which every edit of this file
 * would change. */
static void add_program(const char *name, int rank, const tsr_plan *plan)
{
    tsri_text_stream t;
    char path[512];
    assert_true(tsri_text_open(&t, NULL));
    assert_int_equal(tsri_text_write(&plan->ir, false, t.stream), TSR_OK);
    char *program = tsri_text_close(&t, NULL);
    assert_non_null(program);
    for (size_t i = 0; i < sizeof whole / sizeof *whole && !rank; i++)
        if (!strcmp(name, whole[i])) {
            snprintf(path, sizeof path, "%s/%s.txt", PLAN_TEXTS, name);
            for (char *c = strrchr(path, '/'); *c; c++)
                *c = *c == ' ' ? '-' : *c;
            record_text(path, program);
        }
    add_text(program, strlen(program));
    free(program);
}

static void add_report(tsr_plan *plan)
{
    tsri_report *r;
    char buf[TSRI_WHY_MAX];
    if (tsri_report_create(plan, &r) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        add("%d %s %s value %d said %d cost %.9g most %s, %d groups of %d link %d bytes %llu: %s\n",
            row->kind, row->what, row->name, row->value, row->said, row->cost_s,
            tsri_spent_name(NULL, row->most, buf), row->groups, row->group_size, row->link,
            (unsigned long long)row->bytes, row->item ? tsri_report_why(row, buf) : "");
        const tsri_alternatives *a = row->alternatives;
        for (int j = 0; a && j < a->n; j++)
            add("  %.9g", a->more_s[j]);
        for (int s = 0; s < TSRI_SPENT_COUNT; s++)
            add(" %.9g", row->spent_s[s]);
        add("\n");
    }
    for (int i = 0; i < r->ntotals; i++)
        add("%s %d calls %llu bytes %.9g s\n", r->totals[i].what, r->totals[i].calls,
            (unsigned long long)r->totals[i].bytes, r->totals[i].cost_s);
    for (int i = 0; i < r->nmemory; i++) {
        const tsri_report_memory *m = &r->memory[i];
        add("%d ranks from %d: %llu %llu %llu %llu, %llu %llu %llu %llu, %llu%s\n", m->nranks,
            m->rank, (unsigned long long)m->parameters, (unsigned long long)m->buffers,
            (unsigned long long)m->optimizer, (unsigned long long)m->ports,
            (unsigned long long)m->gradients, (unsigned long long)m->activations,
            (unsigned long long)m->communication, (unsigned long long)m->other,
            (unsigned long long)m->total, m->exact ? " exact" : "");
    }
    for (int i = 0; i < plan->ir.world->nranks; i++)
        add("%d ", r->memory_of[i]);
    add("%d classes, most %d, %.9g %.9g %.9g s, %llu bytes", r->nclasses, r->most, r->compute_s,
        r->comm_s, r->step_s, (unsigned long long)r->bytes);
    tsri_report_destroy(r);
}

/* Adds the parts of a program that ranks compare, without the places in files and without hashes,
 * which hold the numbers of ops in the list of ops. */
static void add_parts(tsr_graph *g, const tsr_compile_opts *opts)
{
    const tsri_program_view view = {g, opts};
    char part[TSRI_PART_TEXT];
    for (int kind = 0; kind < TSRI_PART_KINDS; kind++)
        for (int i = 0; i < tsri_part_count(&view, (tsri_part_kind)kind); i++) {
            tsri_part_text(&view, (tsri_part_kind)kind, i, part);
            add("%d.%d\n", kind, i);
            for (char *line = strtok(part, "\n"), *next; line; line = next) {
                next = strtok(NULL, "\n");
                if (line != part && !strstr(line, "as a hash"))
                    add("%s\n", line);
            }
        }
}

/* --- programs --------------------------------------------------------------------------------- */
typedef struct program program;
struct program {
    const char *name;
    void (*declare)(tsr_graph *g, const tsr_placement *p, const tsr_placement *q);
    int nranks;
    const char *p, *q;     /* placements; q may be NULL */
    tsr_compile_opts opts; /* bucket_mb 0: the usual size, -1: none */
};

static tsr_tensor *labels(tsr_graph *g, int64_t n, const tsr_placement *p)
{
    return tsr_input(g, "y", TSR_I64, TSR_DIMS(n), p, TSR_AUTO);
}

static void train(tsr_graph *g, tsr_optimizer *o, tsr_tensor *loss, const tsr_placement *p)
{
    tsr_minimize(o, loss);
    const tsr_sbp same = {2, {{TSR_SBP_BROADCAST, 0}, {TSR_SBP_BROADCAST, 0}}};
    tsr_output(g, "loss", loss, p, tsr_placement_ndim(p) == 2 ? same : TSR_B);
}

/* Data parallelism: gradients in buckets. */
static void declare_data_parallel(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    (void)q;
    tsr_module *net = tsr_mlp(g->world, p, TSR_B,
                              TSR_MLP_OPTS(.inputs = 23, .hidden = 64, .outputs = 5, .layers = 6));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(30, 23), p, TSR_S(0));
    train(g, tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9)),
          tsr_cross_entropy(tsr_apply(net, x), labels(g, 30, p), TSR_MEAN), p);
}

static void declare_auto(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    (void)q;
    tsr_module *net =
        tsr_mlp(g->world, p, TSR_AUTO,
                TSR_MLP_OPTS(.inputs = 300, .hidden = 700, .outputs = 50, .layers = 3));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(64, 300), p, TSR_AUTO);
    train(g, tsr_adam(net, NULL), tsr_cross_entropy(tsr_apply(net, x), labels(g, 64, p), TSR_MEAN),
          p);
}

static void declare_stages(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    tsr_module *first =
        tsr_mlp(g->world, p, TSR_AUTO, TSR_MLP_OPTS(.inputs = 24, .hidden = 48, .outputs = 32));
    tsr_module *second =
        tsr_mlp(g->world, q, TSR_AUTO, TSR_MLP_OPTS(.inputs = 32, .hidden = 40, .outputs = 7));
    tsr_optimizer *a = tsr_adam(first, NULL), *b = tsr_sgd(second, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(24, 24), p, TSR_AUTO);
    tsr_tensor *h = tsr_relu(tsr_apply(first, x));
    tsr_tensor *y = tsr_apply(second, tsr_to_global(h, q, TSR_AUTO));
    tsr_tensor *loss = tsr_cross_entropy(y, labels(g, 24, q), TSR_MEAN);
    tsr_minimize(a, loss);
    train(g, b, loss, q);
    tsr_output(g, "h", h, NULL, TSR_AUTO);
}

static void declare_transformer(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    (void)q;
    tsr_module *net = tsr_transformer(
        g->world, p, TSR_AUTO,
        TSR_TRANSFORMER_OPTS(.vocab = 96, .positions = 16, .width = 32, .heads = 4, .layers = 1,
                             .tied = true, .causal = true, .dropout = 0.1));
    tsr_tensor *ids = tsr_input(g, "ids", TSR_I64, TSR_DIMS(12, 16), p, TSR_AUTO);
    tsr_tensor *logits = tsr_reshape(tsr_apply(net, ids), TSR_DIMS(12 * 16, 96));
    train(g, tsr_adamw(net, NULL), tsr_cross_entropy(logits, labels(g, 12 * 16, p), TSR_MEAN), p);
}

static void declare_convnet(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    (void)q;
    tsr_module *net =
        tsr_convnet(g->world, p, TSR_AUTO, TSR_CONVNET_OPTS(.height = 16, .width = 12));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(18, 1, 16, 12), p, TSR_AUTO);
    train(g, tsr_sgd(net, TSR_SGD_OPTS(.momentum = 0.9)),
          tsr_cross_entropy(tsr_apply(net, x), labels(g, 18, p), TSR_MEAN), p);
}

static void declare_local_statistics(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    (void)q;
    tsr_module *net = tsr_convnet(g->world, p, TSR_B,
                                  TSR_CONVNET_OPTS(.height = 8, .width = 8, .bn = TSR_BN_LOCAL));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(14, 1, 8, 8), p, TSR_S(0));
    train(g, tsr_adam(net, TSR_ADAM_OPTS(.state = TSR_S(0))),
          tsr_cross_entropy(tsr_apply(net, x), labels(g, 14, p), TSR_SUM), p);
}

/* Several readers of one value, moves, joins and outputs in several signatures. */
static void declare_shared(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    tsr_tensor *x = tsr_from_local(g, "x", TSR_F32, TSR_DIMS(14, 18), p, TSR_P);
    tsr_tensor *w = tsr_input(g, "w", TSR_F32, TSR_DIMS(18, 18), p, TSR_S(1));
    tsr_tensor *parts[] = {tsr_exp(x), tsr_relu(x), tsr_matmul(x, w)};
    tsr_tensor *all = tsr_concat(3, parts, 0);
    tsr_tensor *cut = tsr_slice(all, TSR_DIMS(3, 0), TSR_DIMS(30, 18), TSR_DIMS(2, 1));
    tsr_output(g, "all", tsr_cumsum(all, 1), p, TSR_S(0));
    tsr_output(g, "cut", tsr_softmax(cut, 1), p, TSR_AUTO);
    tsr_output(g, "most", tsr_max(cut, TSR_AXES(0), false), q, TSR_B);
    tsr_output(g, "where", tsr_argmax(all, 1), q, TSR_S(0));
    tsr_output(g, "whole", x, p, TSR_S(1));
    tsr_tensor *twice = tsr_neg(w);
    tsr_output(g, "here", twice, p, TSR_B);
    tsr_output(g, "there", twice, q, TSR_S(0));
    tsr_output(g, "sum", tsr_sum(twice, TSR_AXES(0), false), q, TSR_AUTO);
    tsr_output(g, "away", tsr_to_global(tsr_abs(w), q, TSR_S(1)), q, TSR_B);
    tsr_output(g, "back", tsr_to_global(tsr_to_global(parts[0], q, TSR_P), p, TSR_S(1)), p, TSR_B);
    tsr_output(g, "norm", tsr_norm(tsr_transpose(all, 0, 1), 2, TSR_AXES(0), true), p, TSR_AUTO);
}

/* Ops of very many signatures, of which inference takes the cheapest; uses that sum gradients. */
static void declare_cube(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    (void)q;
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_AUTO, .seed = 1};
    tsr_module *m = tsr_module_create(g->world, &nn, NULL, NULL, NULL);
    tsr_module_param(m, "w", TSR_DIMS(16, 24), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_optimizer *o = tsr_sgd(m, TSR_SGD_OPTS(.momentum = 0.5));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(8, 12, 16, 24), p, TSR_AUTO);
    tsr_tensor *w = tsr_use(m, "w", x), *h = tsr_mul(x, w);
    tsr_tensor *a = tsr_matmul(tsr_exp(h), tsr_transpose(h, 2, 3));
    tsr_tensor *b = tsr_matmul(tsr_tanh(a), h);
    tsr_tensor *y = tsr_mul_scalar(tsr_add(tsr_add(b, h), tsr_mul(h, w)), 0.5);
    tsr_tensor *loss = tsr_mean(tsr_layer_norm(y, NULL, NULL, NULL), TSR_ALL_AXES, false);
    tsr_tensor *cast = tsr_cast(tsr_sum(y, TSR_AXES(1), false), TSR_F64);
    tsr_minimize(o, tsr_add(loss, tsr_sum(w, TSR_ALL_AXES, false)));
    tsr_output(g, "cast", cast, p, TSR_AUTO);
}

/* Two nets that train each other, over ranks that overlap. */
static void declare_pair(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    tsr_module *a =
        tsr_mlp(g->world, p, TSR_B, TSR_MLP_OPTS(.inputs = 9, .hidden = 33, .outputs = 14));
    tsr_module *b =
        tsr_mlp(g->world, q, TSR_AUTO, TSR_MLP_OPTS(.inputs = 14, .hidden = 21, .outputs = 1));
    tsr_optimizer *oa = tsr_adam(a, TSR_ADAM_OPTS(.state = TSR_S(0)));
    tsr_optimizer *ob = tsr_sgd(b, TSR_SGD_OPTS(.momentum = 0.5));
    tsr_tensor *made =
        tsr_apply(a, tsr_normal(g, "n", TSR_F32, TSR_DIMS(11, 9), p, TSR_S(0), 0, 1));
    tsr_tensor *real = tsr_input(g, "real", TSR_F32, TSR_DIMS(11, 14), q, TSR_S(0));
    tsr_tensor *judged = tsr_apply(b, tsr_to_global(made, q, TSR_AUTO));
    tsr_tensor *lb = tsr_mean(tsr_sub(judged, tsr_apply(b, real)), TSR_ALL_AXES, false);
    tsr_minimize(ob, lb);
    tsr_minimize(oa, tsr_mean(tsr_neg(tsr_sigmoid(judged)), TSR_ALL_AXES, false));
    tsr_output(g, "made", made, q, TSR_S(1));
    tsr_output(g, "lb", lb, NULL, TSR_AUTO);
}

/* More kinds of ranks than a report tells apart. */
static void declare_classes(tsr_graph *g, const tsr_placement *p, const tsr_placement *q)
{
    (void)q;
    for (int r = 0; r < tsr_placement_nranks(p); r++) {
        char name[32];
        snprintf(name, sizeof name, "cpu:[%d]", r);
        const tsr_placement *own = tsr_placement_parse(g->world, name);
        tsr_tensor *x = tsr_uniform(g, name, TSR_F32, TSR_DIMS(37 * r % 71, 70), own, TSR_B, 0, 1);
        tsr_output(g, name, tsr_exp(tsr_neg(x)), own, TSR_B);
    }
}

#define MACHINES(n, ...) .nlinks = 2, .link = {{n, 2e-6, 10e9}, {0, 30e-6, 1e9}}, __VA_ARGS__
static const program programs[] = {
    {"data parallel", declare_data_parallel, 4, "cpu:[0,1,2,3]", NULL, {.bucket_mb = 0.03}},
    {"one bucket", declare_data_parallel, 4, "cpu:[0,1,2,3]", NULL, {.alternatives = true}},
    {"no buckets", declare_data_parallel, 3, "cpu:[0,1,2]", NULL, {.bucket_mb = -1}},
    {"updates",
     declare_data_parallel,
     4,
     "cpu:[0,1,2,3]",
     NULL,
     {.infer_updates = true, .bucket_mb = 0.05}},
    {"machines",
     declare_data_parallel,
     6,
     "cpu:[0,1,2,3,4,5]",
     NULL,
     {MACHINES(2, .alternatives = true)}},
    {"one rank", declare_auto, 1, "cpu:[0]", NULL, {.alternatives = true}},
    {"auto", declare_auto, 4, "cpu:[0,1,2,3]", NULL, {.alternatives = true}},
    {"auto on machines",
     declare_auto,
     6,
     "cpu:[0,1,2,3,4,5]",
     NULL,
     {MACHINES(3, .flops_per_s = 1e10, .local_bytes_per_s = 1e9, .kernel_s = 1e-5)}},
    {"auto on a grid",
     declare_auto,
     6,
     "cpu:[[0,1,2],[3,4,5]]",
     NULL,
     {MACHINES(3, .alternatives = true)}},
    {"limit",
     declare_auto,
     4,
     "cpu:[0,1,2,3]",
     NULL,
     {.memory_limit = 2650000, .alternatives = true}},
    {"no fit", declare_auto, 4, "cpu:[0,1,2,3]", NULL, {.memory_limit = 2200000}},
    {"tight transformer",
     declare_transformer,
     4,
     "cpu:[0,1,2,3]",
     NULL,
     {.memory_limit = 300000, .alternatives = true}},
    {"tight convolutions", declare_convnet, 4, "cpu:[0,1,2,3]", NULL, {.memory_limit = 310000}},
    {"tight stages", declare_stages, 7, "cpu:[0,1,2]", "cpu:[3,4,2,6]", {.memory_limit = 36000}},
    {"two stages", declare_stages, 7, "cpu:[0,1,2]", "cpu:[3,4,2,6]", {.alternatives = true}},
    {"stages on grids",
     declare_stages,
     8,
     "cpu:[[0,1],[2,3]]",
     "cpu:[[4,5],[6,7]]",
     {MACHINES(4, .kernel_s = 0)}},
    {"transformer", declare_transformer, 4, "cpu:[0,1,2,3]", NULL, {.alternatives = true}},
    {"transformer on a grid", declare_transformer, 4, "cpu:[[0,1],[2,3]]", NULL, {0}},
    {"convolutions", declare_convnet, 3, "cpu:[0,1,2]", NULL, {.alternatives = true}},
    {"convolutions unfused", declare_convnet, 4, "cpu:[0,1,2,3]", NULL, {.no_fusion = true}},
    {"convolutions on gpus", declare_convnet, 4, "cuda:[0,1,2,3]", NULL, {.alternatives = true}},
    {"local statistics", declare_local_statistics, 2, "cpu:[0,1]", NULL, {0}},
    {"local statistics on gpus", declare_local_statistics, 2, "cuda:[0,1]", NULL, {0}},
    {"from gpus", declare_stages, 5, "cuda:[0,1,2]", "cpu:[3,4,2]", {0}},
    {"classes", declare_classes, 70, "cpu", NULL, {0}},
    {"cube", declare_cube, 8, "cpu:[[[0,1],[2,3]],[[4,5],[6,7]]]", NULL, {.alternatives = true}},
    {"cube of machines",
     declare_cube,
     8,
     "cpu:[[[0,1]],[[2,3]],[[4,5]],[[6,7]]]",
     NULL,
     {MACHINES(2, .memory_limit = 1 << 20)}},
    {"pair", declare_pair, 5, "cpu:[0,1,2]", "cpu:[2,3,4]", {.bucket_mb = 0.001}},
    {"pair on one rank", declare_pair, 2, "cpu:[1]", "cpu:[0,1]", {.alternatives = true}},
    {"pair on devices",
     declare_pair,
     4,
     "cuda:[0,1]",
     "cuda:[1,3,2]",
     {MACHINES(2, .infer_updates = true)}},
    {"shared", declare_shared, 4, "cpu:[0,1,2]", "cpu:[3,1]", {.alternatives = true}},
    {"shared, other devices", declare_shared, 5, "cuda:[0,1,2,3]", "cpu:[3,1,4]", {0}},
};

static void record(const program *d, int rank)
{
    tsr_world *w;
    tsr_plan *plan;
    assert_int_equal(tsr_world_create_virtual(d->nranks, rank, &w), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(w, d->p);
    const tsr_placement *q = d->q ? tsr_placement_parse(w, d->q) : NULL;
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 3));
    d->declare(g, p, q);
    tsr_compile_opts opts = d->opts;
    opts.size = sizeof opts;
    opts.kernel_s = TSR_NOT_GIVEN;
    if (opts.bucket_mb <= 0)
        opts.bucket_mb = d->opts.bucket_mb < 0 ? 0 : 4;
    if (texts)
        printf("=== %s, rank %d\n", d->name, rank);
    add_parts(g, &opts);
    unsigned declared = end_section("declared");
    w->mem.fail_countdown = MANY;
    tsr_status status = tsr_compile_with(g, &opts, &plan);
    int allocations = (int)(MANY - w->mem.fail_countdown);
    w->mem.fail_countdown = 0;
    if (status != TSR_OK) {
        record_line("%s, rank %d: %.*s", d->name, rank, (int)strcspn(tsr_last_error(), "\n"),
                    tsr_last_error());
        assert_int_equal(status, TSR_ERR_NO_MEMORY); /* of its limit */
        goto done;
    }
    tsr_plan_info info = {.size = sizeof info};
    assert_int_equal(tsr_plan_get_info(plan, &info), TSR_OK);
    const char *explained = tsr_plan_explain(plan);
    assert_non_null(explained);
    add_text(explained, strlen(explained));
    unsigned explain = end_section("explain");
    add_program(d->name, rank, plan);
    unsigned planned = end_section("plan");
    add_report(plan);
    unsigned report = end_section("report");
    record_line(
        "%s, rank %d: %d ops, %d steps, %d collectives, %.9g s, chosen at %.9g s of %.9g, %zu %zu "
        "%zu bytes, declared %08x, explain %08x, plan %08x, report %08x, %d "
        "allocations",
        d->name, rank, info.ops, info.steps, info.collectives, info.step_s, info.cost_s,
        info.bound_s, info.activation_bytes, info.variable_bytes, info.port_bytes, declared,
        explain, planned, report, allocations);
done:
    tsr_graph_destroy(g);
    tsr_world_destroy(w);
}

static void test_plans(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (int rank = 0; rank < programs[i].nranks; rank += 1 + programs[i].nranks / 2)
            record(&programs[i], rank);
    record_end();
    free(text.data);
}

int main(int argc, char **argv)
{
    setenv("TESSERA_CHECK", "1", 1); /* or the allocations would not be the same */
    texts = argc > 1 && !strcmp(argv[1], "--texts");
    if (record_start(recorded, sizeof recorded / sizeof *recorded, argc, argv)) {
        test_plans(NULL);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
