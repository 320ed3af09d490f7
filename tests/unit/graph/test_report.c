/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of plans: memory of classes of ranks against that of each rank by itself, sums, traces of
 * runs, and what happens without memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/world.h"
#include "src/exec/trace.h"
#include "src/plan/pass/pass.h"
#include "src/plan/report/report.h"

enum { RANKS = 13 };

/* Two stages on different ranks, of which rank 12 has none; shapes that nothing divides. */
static tsr_plan *train(tsr_world *w, tsr_module **net, tsr_optimizer **opt)
{
    const tsr_placement *a = tsr_placement_parse(w, "cpu:[[0,1,2],[3,4,5]]");
    const tsr_placement *b = tsr_placement_parse(w, "cpu:[7,6,8,9,10,11]");
    const tsr_sbp rows = {2, {{TSR_SBP_SPLIT, 0}, {TSR_SBP_BROADCAST, 0}}};
    const tsr_sbp same = {2, {{TSR_SBP_BROADCAST, 0}, {TSR_SBP_BROADCAST, 0}}};
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    *net = tsr_mlp(w, a, same, TSR_MLP_OPTS(.inputs = 23, .hidden = 17, .outputs = 5));
    *opt = tsr_adam(*net, TSR_ADAM_OPTS(.lr = 0.01));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(31, 23), a, rows);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(31), b, TSR_S(0));
    tsr_tensor *logits = tsr_to_global(tsr_apply(*net, x), b, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_minimize(*opt, loss);
    tsr_output(g, "loss", loss, NULL, TSR_B);
    tsr_plan *plan = NULL;
    if (tsr_compile_with(g, TSR_COMPILE_OPTS(.alternatives = true), &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    tsr_graph_destroy(g);
    return plan;
}

static tsr_world *imagine(int rank)
{
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(RANKS, rank, &w), TSR_OK);
    return w;
}

static void test_memory(void **state)
{
    (void)state;
    tsr_world *w = imagine(4);
    tsr_module *net;
    tsr_optimizer *opt;
    tsr_plan *plan = train(w, &net, &opt);
    tsri_report *r;
    assert_int_equal(tsri_report_create(plan, &r), TSR_OK);
    int seen = 0;
    for (int i = 0; i < r->nmemory; i++)
        seen += r->memory[i].nranks;
    assert_int_equal(seen, RANKS);
    assert_int_equal(r->nclasses, r->nmemory);
    assert_true(r->nmemory > 3 && r->nmemory < RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        size_t variables, ports, values;
        const tsri_report_memory *m = &r->memory[r->memory_of[rank]];
        assert_int_equal(tsri_plan_rank_bytes(&plan->ir, rank, &variables, &ports, &values),
                         TSR_OK);
        assert_true(m->exact);
        assert_int_equal(m->parameters + m->buffers + m->optimizer, variables);
        assert_int_equal(m->ports, ports);
        assert_int_equal(m->gradients + m->activations + m->communication + m->other, values);
        assert_int_equal(m->total, variables + ports + values);
    }
    const uint64_t floats = 23 * 17 + 17 + 17 * 5 + 5;
    const tsri_report_memory *first = &r->memory[r->memory_of[0]];
    assert_int_equal(first->parameters, 4 * floats);
    assert_true(first->optimizer >= 8 * floats && first->gradients > 0);
    assert_int_equal(r->memory[r->memory_of[12]].total, 0);
    tsri_report_destroy(r);
    tsr_world_destroy(w);
}

static void test_sums(void **state)
{
    (void)state;
    tsr_world *w = imagine(0);
    tsr_module *net;
    tsr_optimizer *opt;
    tsr_plan *plan = train(w, &net, &opt);
    tsri_report *r;
    assert_int_equal(tsri_report_create(plan, &r), TSR_OK);
    double spent = 0, cost = 0;
    uint64_t bytes = 0, totals = 0;
    int crossing = 0, alternatives = 0, unary = 0;
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        double parts = 0;
        for (int s = 0; s < TSRI_SPENT_COUNT; s++)
            parts += row->spent_s[s];
        assert_true(parts <= row->cost_s * (1 + 1e-9) && parts >= row->cost_s * (1 - 1e-9));
        for (int s = 0; s < TSRI_SPENT_COUNT; s++)
            assert_true(row->spent_s[s] <= row->spent_s[row->most]);
        if (row->item && row->item->kind == TSRI_ITEM_KERNEL &&
            row->item->kernel.op == TSRI_OP_UNARY) { /* one operation an element */
            assert_true(row->spent_s[TSRI_SPENT_FLOPS] == 0);
            assert_true(row->spent_s[TSRI_SPENT_MEMORY] > 0);
            unary++;
        }
        cost += row->cost_s;
        bytes += row->bytes;
        crossing += row->kind == TSRI_REPORT_BOX && row->item->box.step.crosses;
        if (row->kind == TSRI_REPORT_BOX && row->item->box.step.crosses)
            assert_int_equal(row->group_size, 12);
        alternatives += row->kind == TSRI_REPORT_OP && row->alternatives && row->alternatives->n;
    }
    for (int i = 0; i < r->ntotals; i++)
        totals += r->totals[i].bytes;
    for (int s = 0; s < TSRI_SPENT_COUNT; s++)
        spent += r->spent_s[s];
    assert_true(crossing >= 2 && alternatives > 5 && unary > 0);
    assert_int_equal(bytes, r->bytes);
    assert_int_equal(totals, r->bytes);
    assert_true(cost > 0 && spent >= cost * (1 - 1e-9) && spent <= cost * (1 + 1e-9));
    assert_true(r->step_s >= cost * (1 - 1e-9) && r->step_s <= cost * (1 + 1e-9));
    tsri_report_destroy(r);
    const char *text = tsr_plan_explain(plan);
    assert_non_null(text);
    assert_non_null(strstr(text, " legal; "));
    tsr_world_destroy(w);
}

/* ZeRO-1 on four ranks that can't split rows evenly. */
static tsri_report *report_on(tsr_world *w)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0,1,2,3]");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 6, .hidden = 9, .outputs = 5));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(8, 6), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(8), p, TSR_S(0));
    tsr_minimize(tsr_adam(net, TSR_ADAM_OPTS(.state = TSR_S(0))),
                 tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN));
    tsr_plan *plan;
    tsri_report *r;
    if (tsr_compile(g, &plan) != TSR_OK || tsri_report_create(plan, &r) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return r;
}

/* A report says what the busiest rank reads, of a bucket too, whatever rank makes the plan: of the
 * new values of n rows, a rank with n / 4 of them reads the others. */
static void test_busiest(void **state)
{
    (void)state;
    const uint64_t busiest = 4 * (7 * 6 + 7 + 4 * 9 + 4); /* of 9 rows of 6, 9, 5 of 9, and 5 */
    for (int rank = 0; rank < 4; rank++) {
        tsr_world *w = imagine(rank);
        tsri_report *r = report_on(w);
        uint64_t gathered = 0;
        for (int i = 0; i < r->nrows; i++)
            if (r->rows[i].kind == TSRI_REPORT_BOX && r->rows[i].item->nin > 1 &&
                !strcmp(r->rows[i].what, "all_gather"))
                gathered += r->rows[i].bytes;
        assert_int_equal(gathered, busiest);
        tsri_report_destroy(r);
        tsr_world_destroy(w);
    }
}

/* Values of ranks themselves, in B: each rank but the first reads the whole. */
static void test_broadcast(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        tsr_world *w = imagine(rank);
        const tsr_placement *p = tsr_placement_parse(w, "cpu:[1,0]");
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_output(g, "y", tsr_from_local(g, "x", TSR_F32, TSR_DIMS(5, 3), p, TSR_B), p, TSR_B);
        tsr_plan *plan;
        tsri_report *r;
        assert_int_equal(tsr_compile(g, &plan), TSR_OK);
        assert_int_equal(tsri_report_create(plan, &r), TSR_OK);
        assert_int_equal(r->ntotals, 1);
        assert_string_equal(r->totals[0].what, "broadcast");
        assert_int_equal(r->bytes, 5 * 3 * 4);
        tsri_report_destroy(r);
        tsr_world_destroy(w);
    }
}

/* The summary against sums of the rows, and sizes that are counted by hand. */
static void test_summary(void **state)
{
    (void)state;
    tsr_world *w = imagine(0);
    tsr_module *net;
    tsr_optimizer *opt;
    tsr_plan *plan = train(w, &net, &opt);
    tsri_report *r;
    assert_int_equal(tsri_report_create(plan, &r), TSR_OK);
    const tsri_summary *s = &r->summary;
    uint64_t bytes = 0, updates = 0;
    double cost = 0;
    int calls = 0, rows = 0;
    for (int i = 0; i < s->ntraffic; i++) {
        const tsri_traffic *t = &s->traffic[i];
        bytes += t->bytes;
        cost += t->cost_s;
        calls += t->calls;
        assert_true(i == 0 || t->cost_s <= s->traffic[i - 1].cost_s);
        assert_true((t->kind == TSRI_TRAFFIC_STAGES) == (t->from != t->to));
        updates += t->kind == TSRI_TRAFFIC_UPDATES;
    }
    for (int i = 0; i < r->nrows; i++)
        rows += r->rows[i].link >= 0;
    assert_int_equal(bytes, r->bytes);
    assert_int_equal(calls, rows);
    assert_int_equal(updates, 0);
    assert_true(cost <= r->comm_s * (1 + 1e-9) && cost >= r->comm_s * (1 - 1e-9));
    assert_int_equal(s->parameters, 23 * 17 + 17 + 17 * 5 + 5);
    assert_int_equal(s->tensors, 4);
    assert_int_equal(s->samples, 31);
    assert_int_equal(s->tokens, 0);
    assert_int_equal(s->nranks, 12);
    /* Two layers, each a product forward and one for its weight; the second one for its input too.
     */
    assert_true(s->flops == 2.0 * 31 * (2 * 23 * 17 + 3 * 17 * 5));
    assert_true(s->alike >= 1 && s->alike_s >= 0 && s->alike_s <= r->compute_s);
    tsri_report_destroy(r);
    tsr_world_destroy(w);
}

/* A conversion of even parts is one collective of its name, not copies from rank to rank. */
static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        tsr_sbp1 from, to;
        tsri_coll_kind kind;
    } cases[] = {
        {{TSR_SBP_SPLIT, 0}, {TSR_SBP_BROADCAST, 0}, TSRI_COLL_ALL_GATHER},
        {{TSR_SBP_SPLIT, 1}, {TSR_SBP_BROADCAST, 0}, TSRI_COLL_ALL_GATHER},
        {{TSR_SBP_SPLIT, 0}, {TSR_SBP_SPLIT, 1}, TSRI_COLL_ALL_TO_ALL},
        {{TSR_SBP_PARTIAL, TSR_REDUCE_SUM}, {TSR_SBP_SPLIT, 0}, TSRI_COLL_REDUCE_SCATTER},
        {{TSR_SBP_PARTIAL, TSR_REDUCE_SUM}, {TSR_SBP_BROADCAST, 0}, TSRI_COLL_ALL_REDUCE},
    };
    tsr_world *w = imagine(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int both = 0; both < 2; both++) { /* a line of ranks; the second dimension of a grid */
            const tsr_placement *p =
                tsr_placement_parse(w, both ? "cpu:[[0,1],[2,3]]" : "cpu:[0,1,2,3]");
            tsr_sbp from = {1, {cases[i].from}}, to = {1, {cases[i].to}};
            if (both) {
                from = (tsr_sbp){2, {{TSR_SBP_SPLIT, 2}, cases[i].from}};
                to = (tsr_sbp){2, {{TSR_SBP_SPLIT, 2}, cases[i].to}};
            }
            tsr_graph *g = tsr_graph_create(w, NULL);
            tsr_tensor *x = tsr_from_local(g, "x", TSR_F32, TSR_DIMS(8, 12, 6), p, from);
            tsr_output(g, "y", x, p, to);
            tsr_plan *plan;
            if (tsr_compile(g, &plan) != TSR_OK)
                fail_msg("%s", tsr_last_error());
            int calls = 0;
            for (int s = 0; s < plan->nsteps; s++)
                if (plan->steps[s].kind == TSRI_STEP_START) {
                    if (plan->steps[s].call->coll.kind != cases[i].kind)
                        fail_msg("case %d, %d: kind %d", (int)i, both,
                                 (int)plan->steps[s].call->coll.kind);
                    calls++;
                }
            assert_int_equal(calls, 1);
        }
    tsr_world_destroy(w);
}

/* Every kernel's scratch fits into the plan's, which lies behind all values. */
/* Ops on CPUs are priced by the CPU's figures, also if an output of the program is on GPUs. */
static void test_output_elsewhere(void **state)
{
    (void)state;
    static const char *const places[] = {"cpu:[0]", "cuda:[0]", "cuda:[1]"};
    double product_s[3] = {0};
    for (int i = 0; i < 3; i++) {
        tsr_world *w;
        tsr_plan *plan;
        assert_int_equal(tsr_world_create_virtual(2, 0, &w), TSR_OK);
        const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(256, 256), p, TSR_B);
        tsr_output(g, "y", tsr_matmul(x, x), tsr_placement_parse(w, places[i]), TSR_B);
        assert_int_equal(tsr_compile(g, &plan), TSR_OK);
        for (int k = 0; k < plan->ir.nitems; k++)
            if (plan->ir.items[k].kind == TSRI_ITEM_KERNEL && plan->ir.items[k].kernel.flops > 0)
                product_s[i] = plan->ir.items[k].cost_s;
        tsr_world_destroy(w);
    }
    assert_true(product_s[0] > 1e-4); /* 34 million operations at the CPU's rate */
    assert_true(product_s[1] == product_s[0] && product_s[2] == product_s[0]);
}

static void test_scratch(void **state)
{
    (void)state;
    tsr_world *w;
    tsr_plan *plan;
    assert_int_equal(tsr_world_create(TSR_WORLD_OPTS(.threads = 1), &w), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 3, 9, 9), p, TSR_B);
    tsr_tensor *k = tsr_input(g, "k", TSR_F32, TSR_DIMS(5, 3, 3, 3), p, TSR_B);
    tsr_output(g, "y", tsr_relu(tsr_conv2d(x, k, NULL, TSR_CONV2D_OPTS(.padding = {1, 1}))), p,
               TSR_B);
    if (tsr_compile(g, &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    const tsri_part *part = &plan->part[TSR_DEVICE_CPU];
    size_t most = 0;
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kernel && plan->steps[i].kernel->scratch_bytes > most)
            most = plan->steps[i].kernel->scratch_bytes;
    assert_true(most > 0);
    assert_int_equal(part->scratch_bytes, most);
    assert_true(part->scratch_offset > 0 && part->arena_bytes >= part->scratch_offset + most);
    tsr_plan_info info = {.size = sizeof info};
    assert_int_equal(tsr_plan_get_info(plan, &info), TSR_OK);
    assert_int_equal(info.scratch_bytes, most);
    tsr_world_destroy(w);
}

static void test_no_memory(void **state)
{
    (void)state;
    tsr_world *w = imagine(0);
    tsr_module *net;
    tsr_optimizer *opt;
    tsr_plan *plan = train(w, &net, &opt);
    tsri_report *r = NULL;
    int n = 0;
    for (;; n++) {
        w->mem.fail_countdown = n + 1;
        tsr_status status = tsri_report_create(plan, &r);
        bool reached = w->mem.fail_countdown == 0;
        w->mem.fail_countdown = 0;
        if (!reached)
            break;
        assert_int_equal(status, TSR_ERR_NO_MEMORY);
    }
    assert_true(n > 3);
    tsri_report_destroy(r);
    tsri_report_destroy(NULL);
    tsr_world_destroy(w);
}

static tsr_status trace(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(64, 64), p, TSR_S(0), 1.0);
    tsr_output(g, "y", tsr_matmul(x, x), p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_run(plan));
    assert_int_equal(tsri_trace_count(plan), 0); /* nobody asked */
    TSRI_TRY(tsri_trace_enable(plan));
    assert_int_equal(tsri_trace_count(plan), 0); /* no run since */
    tsr_plan_info info = {.size = sizeof info}, after = info;
    TSRI_TRY(tsr_plan_get_info(plan, &info));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_plan_get_info(plan, &after));
    int n = tsri_trace_count(plan), matmuls = 0, calls = 0;
    assert_int_equal(n, info.steps);
    double all = 0, comm = 0, last = 0;
    for (int i = 0; i < n; i++) {
        tsri_trace_span s = tsri_trace_get(plan, i);
        assert_true(s.start_s >= last && s.end_s >= s.start_s);
        last = s.end_s;
        all += s.end_s - s.start_s;
        comm += s.step->kind >= TSRI_STEP_START ? s.end_s - s.start_s : 0;
        matmuls += !strcmp(s.what, "matmul");
        calls += s.step->kind == TSRI_STEP_START;
    }
    assert_int_equal(matmuls, 1);
    assert_int_equal(calls, info.collectives);
    double run = after.run_s - info.run_s, talked = after.comm_s - info.comm_s;
    assert_true(all > run - 1e-6 && all < run + 1e-6);
    assert_true(comm > talked - 1e-6 && comm < talked + 1e-6);
    return TSR_OK;
}

static void test_trace(void **state)
{
    (void)state;
    if (tsr_spawn(3, trace, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* Tensor parallelism on four ranks, whose conversions of activations each part makes. */
static tsr_plan *plan_in_parts(tsr_world *w, int parts)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0,1,2,3]");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 6, .hidden = 64, .outputs = 4));
    tsr_module_place(net, "0.*", NULL, TSR_S(0));
    tsr_module_place(net, "2.weight", NULL, TSR_S(1));
    const tsr_input_opts *opts = TSR_INPUT_OPTS(.batch_axis = 0);
    tsr_tensor *x = tsr_input_with(g, "x", TSR_F32, TSR_DIMS(32, 6), p, TSR_B, opts);
    tsr_tensor *y = tsr_input_with(g, "y", TSR_I64, TSR_DIMS(32), p, TSR_B, opts);
    tsr_minimize(tsr_sgd(net, NULL), tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN));
    tsr_plan *plan;
    if (tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = parts), &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return plan;
}

/* Reports and explain count the calls and bytes of all parts, as tsr_plan_get_info does, and the
 * work of the whole batch. */
static void test_parts(void **state)
{
    (void)state;
    double flops[2];
    for (int k = 0; k < 2; k++) {
        const int parts = k ? 4 : 1;
        tsr_world *w = imagine(0);
        tsr_plan *plan = plan_in_parts(w, parts);
        tsr_plan_info info = {.size = sizeof info};
        tsri_report *r;
        assert_int_equal(tsr_plan_get_info(plan, &info), TSR_OK);
        assert_int_equal(tsri_report_create(plan, &r), TSR_OK);
        int calls = 0, repeated = 0, told_calls = 0;
        unsigned long long told_bytes = 0;
        double spent = 0;
        for (int i = 0; i < r->ntotals; i++)
            calls += r->totals[i].calls;
        for (int i = 0; i < r->nrows; i++) {
            for (int s = 0; s < TSRI_SPENT_COUNT; s++)
                spent += r->rows[i].spent_s[s];
            repeated += r->rows[i].link >= 0 && r->rows[i].times == 4 ? 4 : 0;
        }
        const char *text = tsr_plan_explain(plan), *at = strstr(text, "per run:\n");
        for (int n; at && (at = strchr(at, '\n')) != NULL; at++) {
            unsigned long long bytes;
            if (sscanf(at + 1, " %*s %d calls %llu bytes read", &n, &bytes) == 2) {
                told_calls += n;
                told_bytes += bytes;
            }
        }
        assert_true(info.collectives > 0 && info.comm_bytes > 0);
        assert_int_equal(calls, info.collectives);
        assert_int_equal(told_calls, info.collectives);
        assert_int_equal(told_bytes, info.comm_bytes);
        assert_int_equal(r->bytes, info.comm_bytes);
        assert_true(spent >= r->step_s * (1 - 1e-9) && spent <= r->step_s * (1 + 1e-9));
        assert_int_equal(repeated > 0, k);
        assert_int_equal(strstr(text, "  4 times") != NULL, k);
        assert_int_equal(strstr(text, "of these calls are in the micro-batches") != NULL, k);
        flops[k] = r->summary.flops;
        tsri_report_destroy(r);
        tsr_world_destroy(w);
    }
    assert_true(flops[0] > 0 && flops[1] == flops[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_elsewhere),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_busiest),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
