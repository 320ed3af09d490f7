/* SPDX-License-Identifier: Apache-2.0 */
/* Pricing a plan anew against plans of other sizes and links, and holding a tensor to a signature
 * against the choices that inference makes by itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/world.h"
#include "src/exec/exec.h"
#include "src/plan/infer/strategies.h"
#include "src/plan/price/price.h"
#include "src/plan/report/report.h"

enum { RANKS = 13 };

typedef struct program {
    tsr_world *world;
    tsr_module *net;
    tsr_optimizer *optimizer;
    tsr_graph *graph;
} program;

/* Two stages on different ranks, of which rank 12 has none; shapes that nothing divides. */
static void declare_stages(program *p, int64_t rows)
{
    const tsr_placement *a = tsr_placement_parse(p->world, "cpu:[[0,1,2],[3,4,5]]");
    const tsr_placement *b = tsr_placement_parse(p->world, "cpu:[7,6,8,9,10,11]");
    const tsr_sbp split = {2, {{TSR_SBP_SPLIT, 0}, {TSR_SBP_BROADCAST, 0}}};
    const tsr_sbp same = {2, {{TSR_SBP_BROADCAST, 0}, {TSR_SBP_BROADCAST, 0}}};
    p->graph = tsr_graph_create(p->world, TSR_GRAPH_OPTS(.training = true));
    p->net = tsr_mlp(p->world, a, same, TSR_MLP_OPTS(.inputs = 23, .hidden = 17, .outputs = 5));
    p->optimizer = tsr_adam(p->net, TSR_ADAM_OPTS(.lr = 0.01));
    tsr_tensor *x = tsr_input(p->graph, "x", TSR_F32, TSR_DIMS(rows, 23), a, split);
    tsr_tensor *y = tsr_input(p->graph, "y", TSR_I64, TSR_DIMS(rows), b, TSR_S(0));
    tsr_tensor *logits = tsr_to_global(tsr_apply(p->net, x), b, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_minimize(p->optimizer, loss);
    tsr_output(p->graph, "loss", loss, NULL, TSR_B);
}

static tsr_plan *compile(const program *p, const tsr_compile_opts *opts)
{
    tsr_plan *plan = NULL;
    if (tsr_compile_with(p->graph, opts, &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return plan;
}

/* The figures of a plan that a price has: the time, and the most memory of a rank without gaps. */
static void expect_price(tsr_plan *plan, const tsri_price *price)
{
    tsri_report *r;
    uint64_t most = 0;
    assert_int_equal(tsri_report_create(plan, &r), TSR_OK);
    for (int i = 0; i < r->nmemory; i++) {
        uint64_t bytes = r->memory[i].total - r->memory[i].other;
        most = bytes > most ? bytes : most;
    }
    assert_true(fabs(price->step_s - r->step_s) <= 1e-9 * r->step_s);
    assert_true(fabs(price->compute_s - r->compute_s) <= 1e-9 * r->step_s);
    assert_int_equal(price->memory, most);
    tsri_report_destroy(r);
}

static bool same_signatures(const tsr_plan *a, const tsr_plan *b)
{
    bool same = a->ir.nvalues == b->ir.nvalues && a->ir.nitems == b->ir.nitems;
    for (int i = 0; i < a->ir.nvalues && same; i++)
        same = tsri_layout_equal(&a->ir.values[i].layout, &b->ir.values[i].layout);
    return same;
}

static void test_sizes_and_links(void **state)
{
    (void)state;
    const int64_t rows[] = {31, 48, 77, 64, 121, 30};
    enum { SIZES = sizeof rows / sizeof *rows };
    static const double seconds[] = {3e-6, 3.1e-6, 50e-6};
    program p[SIZES] = {0};
    tsri_price_sizes sizes = {0};
    int ranks[RANKS], compared = 0;
    for (int i = 0; i < SIZES; i++) {
        assert_int_equal(tsr_world_create_virtual(RANKS, 0, &p[i].world), TSR_OK);
        declare_stages(&p[i], rows[i]);
    }
    for (int k = 0; k < 3; k++) {
        sizes.size[k] = rows[k];
        sizes.graph[k] = p[k].graph;
    }
    for (int i = 0; i < RANKS; i++)
        ranks[i] = i;
    tsr_plan *base = compile(&p[0], TSR_COMPILE_OPTS(.alternatives = true));
    tsri_pricer *pricer;
    tsri_price price;
    if (tsri_pricer_create(base, &sizes, RANKS, ranks, &pricer) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    for (int i = 0; i < SIZES; i++) {
        assert_int_equal(tsri_pricer_check(pricer, p[i].graph, rows[i]), TSR_OK);
        assert_int_equal(tsri_pricer_check(pricer, p[i].graph, rows[i] + 1), TSR_ERR_UNSUPPORTED);
        for (int l = 0; l < 3; l++) {
            tsr_compile_opts opts = *TSR_COMPILE_OPTS(.nlinks = 1);
            opts.link[0] = (tsr_link){.latency_s = seconds[l], .bytes_per_s = 7e9};
            const tsri_cost_model m = tsri_plan_cost_model(&opts, TSR_DEVICE_CPU);
            tsr_plan *plan = compile(&p[i], &opts);
            assert_int_equal(tsri_pricer_price(pricer, &m, rows[i], &price), TSR_OK);
            if (same_signatures(plan, base)) {
                expect_price(plan, &price);
                compared++;
            } else {
                assert_true(plan->info.step_s <= price.step_s * 1.02);
            }
            tsr_plan_destroy(plan);
        }
    }
    assert_true(compared >= 6);
    tsri_pricer_destroy(pricer);
    for (int i = 0; i < SIZES; i++)
        tsr_world_destroy(p[i].world);
}

/* Lengths that are no line, and ops that come and go, are told. */
static void test_other_programs(void **state)
{
    (void)state;
    tsr_world *w;
    tsri_pricer *pricer;
    assert_int_equal(tsr_world_create_virtual(4, 0, &w), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0,1,2,3]");
    const int64_t lengths[2][3] = {{8, 16, 32}, {8, 16, 31}};
    for (int odd = 0; odd < 3; odd++) {
        tsri_price_sizes sizes = {.size = {1, 2, 4}};
        tsr_graph *g[3];
        for (int k = 0; k < 3; k++) {
            sizes.graph[k] = g[k] = tsr_graph_create(w, NULL);
            tsr_tensor *x =
                tsr_input(g[k], "x", TSR_F32, TSR_DIMS(lengths[odd == 1][k]), p, TSR_S(0));
            x = tsr_relu(x);
            tsr_output(g[k], "y", odd == 2 && k == 2 ? tsr_relu(x) : x, p, TSR_B);
        }
        tsr_plan *plan;
        assert_int_equal(tsr_compile_with(g[0], TSR_COMPILE_OPTS(.alternatives = true), &plan),
                         TSR_OK);
        tsr_status status = tsri_pricer_create(plan, &sizes, 1, &(int){0}, &pricer);
        assert_int_equal(status, odd ? TSR_ERR_UNSUPPORTED : TSR_OK);
        if (odd)
            assert_string_equal(tsr_last_error(),
                                odd == 2 ? "the program has other ops at size 4"
                                         : "input x: a result's shape depends on the size in "
                                           "another way than a line");
        else
            tsri_pricer_destroy(pricer);
        tsr_plan_destroy(plan);
    }
    tsr_world_destroy(w);
}

static void test_no_memory(void **state)
{
    (void)state;
    program p = {0};
    tsri_pricer *pricer = NULL;
    int n = 0;
    assert_int_equal(tsr_world_create_virtual(RANKS, 0, &p.world), TSR_OK);
    declare_stages(&p, 31);
    tsr_plan *plan = compile(&p, TSR_COMPILE_OPTS(.alternatives = true));
    const tsri_price_sizes sizes = {.size = {31}, .graph = {p.graph}};
    for (;; n++) {
        p.world->mem.fail_countdown = n + 1;
        tsr_status status = tsri_pricer_create(plan, &sizes, 1, &(int){0}, &pricer);
        bool reached = p.world->mem.fail_countdown == 0;
        p.world->mem.fail_countdown = 0;
        if (!reached)
            break;
        assert_int_equal(status, TSR_ERR_NO_MEMORY);
    }
    assert_true(n > 3);
    tsri_pricer_destroy(pricer);
    tsri_pricer_destroy(NULL);
    tsr_world_destroy(p.world);
}

/* --- pins ------------------------------------------------------------------------------------- */
static void declare_free(program *p)
{
    const tsr_placement *a = tsr_placement_parse(p->world, "cpu:[0,1,2,3]");
    p->graph = tsr_graph_create(p->world, TSR_GRAPH_OPTS(.training = true));
    p->net = tsr_mlp(p->world, a, TSR_AUTO, TSR_MLP_OPTS(.inputs = 64, .hidden = 96, .outputs = 8));
    p->optimizer = tsr_sgd(p->net, TSR_SGD_OPTS(.lr = 0.01));
    tsr_tensor *x = tsr_input(p->graph, "x", TSR_F32, TSR_DIMS(256, 64), a, TSR_AUTO);
    tsr_tensor *y = tsr_input(p->graph, "y", TSR_I64, TSR_DIMS(256), a, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(p->net, x), y, TSR_MEAN);
    tsr_minimize(p->optimizer, loss);
    tsr_output(p->graph, "loss", loss, NULL, TSR_B);
}

/* The time that inference chooses signatures at, with a tensor held to one; INFINITY: nothing is
 * legal. The program is declared anew, as a compile fixes its variables. */
static double pinned_cost(int tensor, tsr_sbp sbp, tsr_sbp *out_made)
{
    program p = {0};
    tsr_plan *plan;
    double cost = INFINITY;
    assert_int_equal(tsr_world_create_virtual(4, 0, &p.world), TSR_OK);
    declare_free(&p);
    if (tensor >= 0)
        p.graph->pin = (tsri_pin){p.graph->tensors[tensor], sbp};
    if (tsr_compile_with(p.graph, NULL, &plan) == TSR_OK) {
        cost = plan->info.cost_s;
        for (int i = plan->ir.nvalues; i-- > 0;)
            if (plan->ir.values[i].tensor == tensor)
                *out_made = plan->ir.values[i].layout.sbp; /* the first is what its op makes */
    }
    tsr_world_destroy(p.world);
    return cost;
}

/* Held to each of its legal signatures, a tensor costs no less than left free, and in one of them
 * just as much; and no more than inference says of it with all other ops as they are. */
static void test_pins(void **state)
{
    (void)state;
    program p = {0};
    tsri_pool pool;
    tsr_sbp made = {0}, none = {0};
    int tensors = 0, compared = 0;
    const double base = pinned_cost(-1, none, &made);
    assert_int_equal(tsr_world_create_virtual(4, 0, &p.world), TSR_OK);
    declare_free(&p);
    tsri_pool_init(&pool, &p.world->mem);
    const tsri_cost_model m = tsri_plan_cost_model(TSR_COMPILE_OPTS(), TSR_DEVICE_CPU);
    tsr_plan *plan = compile(&p, TSR_COMPILE_OPTS(.alternatives = true));
    for (int i = 0; i < p.graph->ntensors; i++) {
        const tsr_tensor *t = p.graph->tensors[i];
        const tsri_value *v = NULL;
        tsr_sbp *legal;
        int n;
        for (int k = plan->ir.nvalues; k-- > 0;)
            v = plan->ir.values[k].tensor == i ? &plan->ir.values[k] : v;
        if (!v || !v->alternatives || t->op->nout > 1 || t->writes)
            continue;
        assert_int_equal(tsri_legal_signatures(&m, t, &pool, &n, &legal), TSR_OK);
        double least = INFINITY;
        for (int s = 0; s < n; s++) {
            double cost = pinned_cost(i, legal[s], &made);
            least = fmin(least, cost);
            assert_true(cost >= base * (1 - 1e-6));
            if (cost < INFINITY)
                assert_true(tsr_sbp_equal(made, legal[s]));
            for (int a = 0; a < v->alternatives->n; a++)
                if (tsr_sbp_equal(v->alternatives->sig[a]->out[t->out], legal[s])) {
                    assert_true(cost <= (base + v->alternatives->more_s[a]) * (1 + 1e-6));
                    compared++;
                }
        }
        assert_true(fabs(least - base) <= 1e-6 * base);
        tensors++;
    }
    assert_true(tensors > 15 && compared > 20);
    tsri_pool_finish(&pool);
    tsr_world_destroy(p.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_and_links),
        cmocka_unit_test(test_other_programs),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_pins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
