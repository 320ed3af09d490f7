/* SPDX-License-Identifier: Apache-2.0 */
/* Times pricing a plan anew, by its internal call: MobileNetV2's training step for RANKS ranks in
 * data parallelism, at another batch or other links each time. usage: bench_whatif [RANKS
 * [EVALUATIONS]] */
#include <stdio.h>
#include <stdlib.h>

#include <tessera/tessera.h>
#include "src/core/clock.h"
#include "src/plan/price/price.h"

typedef struct program {
    tsr_graph *graph;
    tsr_module *net;
    tsr_optimizer *optimizer;
} program;

static void declare(tsr_world *w, const tsr_placement *p, int64_t rows, program *out)
{
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_module *net = tsr_mobilenet_v2(w, p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = 10));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 3, 32, 32), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    *out = (program){g, net, opt};
}

/* Seconds that all evaluations take; of one size throughout, or of another each time. */
static double evaluate(tsri_pricer *pricer, const tsri_cost_model *model, int n, bool sizes)
{
    tsri_cost_model m = *model;
    double least = 1e9, started_at = tsri_now_s();
    for (int i = 0; i < n; i++) {
        tsri_price price;
        m.link[0].bytes_per_s = model->link[0].bytes_per_s * (1 + i * 1e-3);
        if (tsri_pricer_price(pricer, &m, sizes ? 64 + i % 1000 : 64, &price) != TSR_OK)
            return -1;
        least = price.step_s < least ? price.step_s : least;
    }
    double seconds = tsri_now_s() - started_at;
    printf("%7d evaluations, %-16s %8.3f s, %8.0f a second; the quickest step %.3g ms\n", n,
           sizes ? "links and sizes:" : "links alone:", seconds, n / seconds, least * 1e3);
    return seconds;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 8, n = argc > 2 ? atoi(argv[2]) : 10000;
    tsri_price_sizes sizes = {.size = {64, 96, 160}};
    tsr_world *w;
    tsr_plan *plan;
    tsri_pricer *pricer;
    program programs[3];
    if (ranks < 1 || n < 1 || tsr_world_create_virtual(ranks, 0, &w) != TSR_OK)
        return 2;
    int *all = malloc((size_t)ranks * sizeof *all);
    for (int i = 0; all && i < ranks; i++)
        all[i] = i;
    const tsr_placement *p = all ? tsr_placement_create(w, TSR_DEVICE_CPU, 1, &ranks, all) : NULL;
    free(all);
    for (int k = 0; k < 3 && p; k++) {
        declare(w, p, sizes.size[k], &programs[k]);
        sizes.graph[k] = programs[k].graph;
    }
    double t0 = tsri_now_s();
    if (!p || tsr_compile_with(programs[0].graph, TSR_COMPILE_OPTS(.alternatives = true), &plan) !=
                  TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    double t1 = tsri_now_s();
    if (tsri_pricer_create(plan, &sizes, 1, &(int){0}, &pricer) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    printf("compiled in %.1f ms, taken apart in %.1f ms\n", (t1 - t0) * 1e3,
           (tsri_now_s() - t1) * 1e3);
    bool ok = evaluate(pricer, &plan->ir.model, n, false) > 0 &&
              evaluate(pricer, &plan->ir.model, n, true) > 0;
    tsri_pricer_destroy(pricer);
    tsr_world_destroy(w);
    return ok ? 0 : 1;
}
