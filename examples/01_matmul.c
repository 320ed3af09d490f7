/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product of matrices on two ranks: the rows of x are split, w is on both. Each rank prints its
 * own part, rank 0 the plan as well.
 *
 * usage: 01_matmul, or tessera launch -n 2 -- 01_matmul
 *
 *   rank 1: y is S(0), my part 2 x 2: 21 21 30 30
 *   rank 0: y is S(0), my part 2 x 2: 3 3 12 12
 *   y[3][1] = 30
 *   plan: 3 ops, 5 steps, 1 collectives; ... and the rest of what tsr_plan_explain says
 */
#include <stdio.h>

#include <tessera/tessera.h>

enum { M = 4, K = 3, N = 2 };

static tsr_status rank(tsr_world *world, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(world, "cpu:[0,1]");
    tsr_graph *g = tsr_graph_create(world, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(M, K), p, TSR_S(0));
    tsr_tensor *w = tsr_full(g, TSR_F32, TSR_DIMS(K, N), p, TSR_B, 1.0);
    tsr_tensor *y = tsr_matmul(x, w);
    tsr_to_local(g, "part", y);          /* each rank's part, as it comes */
    tsr_output(g, "whole", y, p, TSR_B); /* all of it, on both ranks */
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan)); /* errors of all the lines above surface here */

    float values[M * K], part[M * N], whole[M * N];
    for (int i = 0; i < M * K; i++)
        values[i] = (float)i;
    TSR_TRY(tsr_feed(plan, "x", values, sizeof values)); /* the whole; a rank keeps its part */
    TSR_TRY(tsr_run(plan));
    TSR_TRY(tsr_fetch(plan, "whole", whole, sizeof whole));

    tsr_dims d;
    char sbp[TSR_SBP_TEXT_MAX] = "?", text[128];
    for (int i = 0; i < tsr_plan_nports(plan); i++)
        if (tsr_plan_port(plan, i).name[0] == 'p')
            tsr_sbp_format(tsr_plan_port(plan, i).sbp, sbp);
    TSR_TRY(tsr_fetch_shard(plan, "part", NULL, 0, &d)); /* its shape */
    TSR_TRY(tsr_fetch_shard(plan, "part", part, (size_t)tsr_dims_count(d) * sizeof *part, &d));
    int n = snprintf(text, sizeof text, "rank %d: y is %s, my part %d x %d:", tsr_world_rank(world),
                     sbp, (int)d.d[0], (int)d.d[1]);
    for (int i = 0; i < tsr_dims_count(d); i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %g", part[i]);
    printf("%s\n", text);
    if (tsr_world_rank(world) == 0)
        printf("y[3][1] = %g\n%s", whole[M * N - 1], tsr_plan_explain(plan));
    return TSR_OK;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (tsr_start_ranks(2, rank, NULL) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
