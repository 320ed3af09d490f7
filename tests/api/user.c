/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program, for install.sh: trains one step on two ranks; "version" prints the headers'. */
#include <stdio.h>

#include <tessera/tessera.h>

static tsr_status step(tsr_world *world, void *arg)
{
    static const float x[4][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {1, 0, 1}};
    static const int64_t y[4] = {0, 1, 1, 0};
    const tsr_placement *p = tsr_placement_parse(world, "cpu");
    tsr_module *net = tsr_mlp(world, p, TSR_B, TSR_MLP_OPTS(.inputs = 3, .outputs = 2));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.01));
    tsr_graph *g = tsr_graph_create(world, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *in = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3), p, TSR_S(0));
    tsr_tensor *labels = tsr_input(g, "y", TSR_I64, TSR_DIMS(4), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, in), labels, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    TSR_TRY(tsr_feed(plan, "x", x, sizeof x));
    TSR_TRY(tsr_feed(plan, "y", y, sizeof y));
    TSR_TRY(tsr_run(plan));
    return tsr_world_rank(world) == 0 ? tsr_fetch_scalar(plan, "loss", (double *)arg) : TSR_OK;
}

int main(int argc, char **argv)
{
    double loss = -1;
    (void)argv;
    if (argc > 1) {
        puts(TSR_VERSION_STRING);
        return 0;
    }
    if (tsr_spawn(2, step, &loss) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return loss > 0 ? 0 : 1;
}
