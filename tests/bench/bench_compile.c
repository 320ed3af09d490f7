/* SPDX-License-Identifier: Apache-2.0 */
/* Times tsr_compile of a training graph on a virtual world: signatures, boxing, schedule and memory
 * plan, without kernels. usage: bench_compile [MESH [REPEATS [ROWS [MIB [LAYERS [WIDTH]]]]]], MESH
 * being "8" or "512x8"; MobileNetV2, or with LAYERS a causal transformer of that many (width 1024,
 * 16 heads, sequences of 512, 32,000 words), or with WIDTH too a perceptron of LAYERS layers of
 * WIDTH units, with biases. Data are split over the first dimension, parameters inferred where
 * there are several or memory is limited (MIB). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <tessera/tessera.h>

typedef struct mesh {
    int ndim, dim[TSR_MAX_HIERARCHY], nranks;
} mesh;

static bool read_mesh(const char *text, mesh *m)
{
    *m = (mesh){.nranks = 1};
    for (char *end; m->ndim < TSR_MAX_HIERARCHY; text = end + 1) {
        m->dim[m->ndim] = (int)strtol(text, &end, 10);
        if (m->dim[m->ndim] < 1)
            return false;
        m->nranks *= m->dim[m->ndim++];
        if (*end != 'x')
            return *end == 0;
    }
    return false;
}

static tsr_tensor *declare_mobilenet(tsr_graph *g, tsr_world *w, const tsr_placement *p,
                                     tsr_sbp params, tsr_sbp split, int64_t rows,
                                     tsr_module **out_net)
{
    *out_net = tsr_mobilenet_v2(w, p, params, TSR_MOBILENET_V2_OPTS(.num_classes = 10));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 3, 32, 32), p, split);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, split);
    return tsr_cross_entropy(tsr_apply(*out_net, x), y, TSR_MEAN);
}

static tsr_tensor *declare_transformer(tsr_graph *g, tsr_world *w, const tsr_placement *p,
                                       tsr_sbp params, tsr_sbp split, int64_t rows, int layers,
                                       tsr_module **out_net)
{
    const int64_t length = 512, words = 32000;
    *out_net =
        tsr_transformer(w, p, params,
                        TSR_TRANSFORMER_OPTS(.vocab = words, .positions = length, .width = 1024,
                                             .heads = 16, .layers = layers, .causal = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_I64, TSR_DIMS(rows, length), p, split);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows * length), p, split);
    tsr_tensor *logits = tsr_reshape(tsr_apply(*out_net, x), TSR_DIMS(rows * length, words));
    return tsr_cross_entropy(logits, y, TSR_MEAN);
}

/* Layers without activations, so that each has as few ops as there can be. */
static tsr_tensor *declare_perceptron(tsr_graph *g, tsr_world *w, const tsr_placement *p,
                                      tsr_sbp params, tsr_sbp split, int64_t rows, int layers,
                                      int64_t width, tsr_module **out_net)
{
    const tsr_nn_opts nn = {.placement = p, .sbp = params};
    char name[16];
    *out_net = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, width), p, split);
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "%d", i);
        tsr_module *layer = tsr_nn_linear(w, &nn, width, width, true);
        if (!tsr_module_add(*out_net, name, layer))
            return NULL;
        x = tsr_apply(layer, x);
    }
    return tsr_mean(tsr_mul(x, x), TSR_ALL_AXES, false);
}

typedef struct model {
    int layers;    /* 0: MobileNetV2 */
    int64_t width; /* 0: a transformer */
} model;

static tsr_status compile_once(const mesh *m, int64_t rows, double mib, const model *what,
                               tsr_plan_info *info)
{
    tsr_world *w;
    tsr_plan *plan;
    tsr_status status = tsr_world_create_virtual(m->nranks, 0, &w);
    int *ranks = malloc((size_t)m->nranks * sizeof *ranks);
    if (status != TSR_OK || !ranks)
        return status;
    for (int i = 0; i < m->nranks; i++)
        ranks[i] = i;
    const tsr_placement *p = tsr_placement_create(w, TSR_DEVICE_CPU, m->ndim, m->dim, ranks);
    free(ranks);
    tsr_sbp rows_split = {.ndim = (int8_t)m->ndim, .d = {{TSR_SBP_SPLIT, 0}}};
    for (int d = 1; d < m->ndim; d++)
        rows_split.d[d].kind = TSR_SBP_BROADCAST;
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_sbp params = m->ndim == 1 && mib == 0 ? TSR_B : TSR_AUTO;
    tsr_module *net;
    tsr_tensor *loss =
        what->width
            ? declare_perceptron(g, w, p, params, rows_split, rows, what->layers, what->width, &net)
        : what->layers ? declare_transformer(g, w, p, params, rows_split, rows, what->layers, &net)
                       : declare_mobilenet(g, w, p, params, rows_split, rows, &net);
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_AUTO);
    status = tsr_compile_with(g, TSR_COMPILE_OPTS(.memory_limit = (size_t)(mib * 1048576)), &plan);
    if (status == TSR_OK)
        status = tsr_plan_get_info(plan, info);
    if (status == TSR_OK && getenv("EXPLAIN"))
        puts(tsr_plan_explain(plan));
    tsr_world_destroy(w);
    return status;
}

int main(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : "8";
    int repeats = argc > 2 ? atoi(argv[2]) : 5;
    int64_t rows = argc > 3 ? atoll(argv[3]) : 64;
    double mib = argc > 4 ? atof(argv[4]) : 0;
    const model what = {.layers = argc > 5 ? atoi(argv[5]) : 0,
                        .width = argc > 6 ? atoll(argv[6]) : 0};
    mesh m;
    if (!read_mesh(text, &m)) {
        fprintf(stderr, "usage: bench_compile [MESH [REPEATS [ROWS [MIB [LAYERS [WIDTH]]]]]]\n");
        return 2;
    }
    for (int i = 0; i < repeats; i++) {
        tsr_plan_info info = {.size = sizeof info};
        struct rusage used;
        if (compile_once(&m, rows, mib, &what, &info) != TSR_OK) {
            fprintf(stderr, "bench_compile: %s\n", tsr_last_error());
            return 1;
        }
        getrusage(RUSAGE_SELF, &used);
        printf("%s ranks: %d ops, compiled in %.1f ms (signatures %.1f ms, %s), %d collectives, "
               "%.3f ms a step (bound %.3f), %.1f MiB a rank planned; %ld MiB used\n",
               text, info.ops, 1e3 * info.compile_s, 1e3 * info.infer_s,
               info.exact ? "exact" : "bounded", info.collectives, 1e3 * info.cost_s,
               1e3 * info.bound_s,
               (double)(info.activation_bytes + info.variable_bytes + info.port_bytes) / 1048576,
               used.ru_maxrss / 1024);
    }
    return 0;
}
