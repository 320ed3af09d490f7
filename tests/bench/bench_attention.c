/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times forward and backward of attention on one rank, f32, and prints the milliseconds of each run
 * and the bytes of its tensors and scratch. attention.py runs it beside PyTorch.
 * usage: bench_attention composed|flash BATCH HEADS LENGTH FEATURES CAUSAL RUNS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tessera/tessera.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static tsr_status measure(tsr_world *w, void *arg)
{
    char **argv = arg;
    const tsr_dims dims = TSR_DIMS(atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), atoll(argv[5]));
    const size_t bytes = (size_t)tsr_dims_count(dims) * sizeof(float);
    const tsr_attention_opts *opts = TSR_ATTENTION_OPTS(.causal = atoi(argv[6]));
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    static const char *const names[4] = {"q", "k", "v", "dy"};
    static const char *const results[4] = {"dq", "dk", "dv", "y"};
    tsr_tensor *in[4], *out[4];
    for (int i = 0; i < 4; i++)
        in[i] = tsr_input(g, names[i], TSR_F32, dims, p, TSR_B);
    out[3] = !strcmp(argv[1], "flash")
                 ? tsr_scaled_dot_product_attention(in[0], in[1], in[2], NULL, opts)
                 : tsr_attention(in[0], in[1], in[2], opts);
    tsr_gradients(tsr_sum(tsr_mul(out[3], in[3]), TSR_ALL_AXES, false), 3, in, out);
    for (int i = 0; i < 4; i++)
        tsr_output(g, results[i], out[i], p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    float *data = malloc(bytes);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < bytes / sizeof *data; k++)
            data[k] = (float)((k * 2654435761U + (size_t)i * 97) % 2001) / 1000 - 1;
        TSR_TRY(tsr_feed(plan, names[i], data, bytes));
    }
    free(data);
    tsr_plan_info info = {.size = sizeof info};
    TSR_TRY(tsr_plan_get_info(plan, &info));
    printf("{\"bytes\": %lld, \"tensor\": %zu, \"ms\": [",
           (long long)(info.activation_bytes + info.port_bytes), bytes);
    for (int i = -1; i < atoi(argv[7]); i++) {
        const double start = now_ms();
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_wait(plan));
        if (i >= 0)
            printf("%s%.2f", i ? ", " : "", now_ms() - start);
    }
    puts("]}");
    return TSR_OK;
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: %s composed|flash BATCH HEADS LENGTH FEATURES CAUSAL RUNS\n",
                argv[0]);
        return 2;
    }
    if (tsr_spawn(1, measure, argv) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
