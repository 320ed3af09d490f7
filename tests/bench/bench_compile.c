/* SPDX-License-Identifier: Apache-2.0 */
/* Times tsr_compile of MobileNetV2's training graph on a virtual world: signatures, boxing,
 * schedule and memory plan, without kernels. usage: bench_compile [RANKS [REPEATS]] */
#include <stdio.h>
#include <stdlib.h>

#include <tessera/tessera.h>

static tsr_status compile_once(int ranks, tsr_plan_info *info)
{
    tsr_world *w;
    tsr_plan *plan;
    tsr_status status = tsr_world_create_virtual(ranks, 0, &w);
    if (status != TSR_OK)
        return status;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = tsr_mobilenet_v2(w, p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = 10));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(64, 3, 32, 32), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(64), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    status = tsr_compile(g, &plan);
    if (status == TSR_OK)
        status = tsr_plan_get_info(plan, info);
    if (status == TSR_OK && getenv("EXPLAIN"))
        puts(tsr_plan_explain(plan));
    tsr_world_destroy(w);
    return status;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 8, repeats = argc > 2 ? atoi(argv[2]) : 5;
    for (int i = 0; i < repeats; i++) {
        tsr_plan_info info = {.size = sizeof info};
        if (compile_once(ranks, &info) != TSR_OK) {
            fprintf(stderr, "bench_compile: %s\n", tsr_last_error());
            return 1;
        }
        printf("%d ranks: %d ops, compiled in %.1f ms (signatures %.1f ms, %s), %d collectives\n",
               ranks, info.ops, 1e3 * info.compile_s, 1e3 * info.infer_s,
               info.exact ? "exact" : "bounded", info.collectives);
    }
    return 0;
}
