/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes with named axes: how they scale, signatures by name, dumps, and programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/placement.h"
#include "src/config/program.h"
#include "src/graph/graph.h"
#include "tests/unit/config/config_files.h"

/* The first placement of a text that is read for n ranks, as "4x2: 0..7", or the error. */
static const char *scaled(const char *text, int n, char buf[512])
{
    tsri_experiment *e;
    if (tsri_experiment_parse_with(NULL, "f", text, strlen(text), n, 0, NULL, &e) != TSR_OK) {
        snprintf(buf, 512, "%s", tsr_last_error());
        return buf;
    }
    const tsri_ranks *r = &((const tsri_config_placement *)e->placements.items)->ranks;
    int used = 0;
    for (int d = 0; d < r->ndim; d++)
        used += snprintf(buf + used, 512 - (size_t)used, "%s%d", d ? "x" : "", r->dim[d]);
    bool counts = true;
    for (int i = 0; i < r->n; i++)
        counts &= r->ranks[i] == r->ranks[0] + i;
    snprintf(buf + used, 512 - (size_t)used, ": %d%s%d", r->ranks[0], counts ? ".." : "?",
             r->ranks[r->n - 1]);
    tsri_experiment_destroy(e);
    return buf;
}

static void test_scaling(void **state)
{
    (void)state;
#define REST "\nmodel: {name: mlp}\ndata: {dataset: synthetic, shape: [4], classes: 3}\n"
    static const struct {
        const char *text;
        int n;
        const char *is;
    } rows[] = {
        {"tessera: 1\nmesh: {dp: 4, tp: 2}" REST, 0, "4x2: 0..7"},
        {"tessera: 1\nmesh: {dp: 4, tp: 2}" REST, 16, "8x2: 0..15"},
        {"tessera: 1\nmesh: {dp: 4, tp: 2}" REST, 2, "1x2: 0..1"},
        {"tessera: 1\nmesh: {dp: 4, tp: ~}" REST, 32, "4x8: 0..31"},
        {"tessera: 1\nmesh: {dp: 512, tp: 8}" REST, 0, "512x8: 0..4095"},
        {"tessera: 1\nmesh: {a: 2, b: 2, c: ~, d: 2}" REST, 24, "2x2x3x2: 0..23"},
        {"tessera: 1\nplacements: {p: {mesh: {dp: 2, tp: 2}, ranks: 4..7}}" REST, 8, "2x2: 4..7"},
        {"tessera: 1\nplacements: {p: {mesh: {dp: ~, tp: 2}, ranks: 4..9}}" REST, 0, "3x2: 4..9"},
        {"tessera: 1\nplacements: {p: {mesh: {a: 2, b: 2}, ranks: [[0, 1], [3, 2]]}}" REST, 0,
         "2x2: 0?2"},
        {"tessera: 1\nplacements: {p: {ranks: 0..127}}" REST, 0, "128: 0..127"},
        {"tessera: 1\nplacements: {p: {ranks: [[0..7], [8..15]]}}" REST, 0, "2x8: 0..15"},
        {"tessera: 1\nplacements: {p: {ranks: [0..3, 4, 5..6]}}" REST, 64, "7: 0..6"},
        {"tessera: 1\nmesh: {dp: 4, tp: 8}" REST, 12,
         "f:2:7: mesh: 12 ranks, the number asked for, are no multiple of 8, the size of the axes "
         "beside 'dp', which takes the rest; the nearest legal is 8 or 16"},
        {"tessera: 1\nmesh: {dp: 4, tp: 8}" REST, 4,
         "f:2:7: mesh: 4 ranks, the number asked for, are no multiple of 8, the size of the axes "
         "beside 'dp', which takes the rest; the nearest legal is 8"},
        {"tessera: 1\nmesh: {dp: 4, tp: 8}" REST, 1 << 20, "f:2:7: mesh: more than 65536 ranks"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char buf[512];
        assert_string_equal(scaled(rows[i].text, rows[i].n, buf), rows[i].is);
    }
}

/* By name and by number: the same signatures. */
static void test_named_signatures(void **state)
{
    (void)state;
    static const struct {
        const char *said, *is;
    } rows[] = {
        {"{dp: S(0), tp: B}", "(S(0),B)"},
        {"{tp: S(1)}", "(B,S(1))"},
        {"{tp: B, dp: S(0)}", "(S(0),B)"},
        {"{dp: P, tp: P}", "(P,P)"},
        {"'dp:S(0),tp:S(1)'", "(S(0),S(1))"},
        {"'( tp : P(max) )'", "(B,P(max))"},
        {"'{dp: S( 2 )}'", "(S(2),B)"},
        {"\"(S(0),B)\"", "(S(0),B)"},
        {"[S(0), B]", "(S(0),B)"},
        {"B", "(B,B)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1000], sbp[TSR_SBP_TEXT_MAX], set[200];
        const char *sets[] = {set};
        tsri_experiment *e;
        snprintf(text, sizeof text, "%stensors: {input: {sbp: %s}}\n", MESH, rows[i].said);
        e = parse_ok(text);
        assert_string_equal(tsr_sbp_format(e->tensors.input.sbp, sbp), rows[i].is);
        assert_string_equal(e->tensors.input.placement.name, "mesh");
        tsri_experiment_destroy(e);
        snprintf(set, sizeof set, "tensors.input.sbp=%s", rows[i].said);
        assert_int_equal(tsri_experiment_parse("f", MESH, strlen(MESH), 1, sets, &e), TSR_OK);
        assert_string_equal(tsr_sbp_format(e->tensors.input.sbp, sbp), rows[i].is);
        tsri_experiment_destroy(e);
    }
    tsri_experiment *e;
    const char *plain[] = {"tensors.input.sbp=dp:S(0),tp:B"};
    assert_int_equal(tsri_experiment_parse("f", MESH, strlen(MESH), 1, plain, &e), TSR_OK);
    assert_int_equal(e->tensors.input.sbp.ndim, 2);
    tsri_experiment_destroy(e);
}

/* A mesh comes back as one, signatures by names too; 4,096 ranks take a line. */
static void test_mesh_dumps(void **state)
{
    (void)state;
    assert_round_trip(MESH "device: cuda\ntensors: {input: {sbp: {dp: S(0)}}, logits: {sbp: "
                           "'tp:P'}}\nparameters: [{match: '*', sbp: {tp: S(0)}}]\n"
                           "optimizer: {name: sgd, state: {sbp: {dp: S(0)}}}\n");
    assert_round_trip(TRAIN "parameters: [{match: '*', placement: grid, sbp: [S(0), B]}]\n");
    tsri_experiment *e = parse_ok("tessera: 1\n"
                                  "placements:\n"
                                  "  a: {mesh: {'true': 2, y: 2}}\n"
                                  "  b: {ranks: [[0..2], [5, 3, 4], [6, 7, 8], [9..11]]}\n"
                                  "  c: {ranks: 0..4095}\n"
                                  "graph:\n"
                                  "  x: {op: constant, fill: 1, shape: [2, 2], sbp: 'y:S(1)'}\n");
    char *text = dump(e);
    assert_non_null(strstr(text, "  a: {device: cpu, mesh: {\"true\": 2, y: 2}}\n"
                                 "  b: {device: cpu, ranks: [[0, 1, 2], [5, 3, 4], [6, 7, 8], [9, "
                                 "10, 11]]}\n"
                                 "  c: {device: cpu, ranks: [0..4095]}\n"));
    assert_non_null(strstr(text, "placement: a, sbp: {y: S(1)}"));
    assert_round_trip(text);
    free(text);
    tsri_experiment_destroy(e);
}

/* What a file with a cluster asks for: GPUs, and a limit that is their memory. */
static void test_clusters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool cuda;
        int64_t limit;
        bool is_gpu;
    } rows[] = {
        {"", false, 0, false},
        {"cluster: {gpu: h100-sxm, nodes: 16, gpus_per_node: 8}\n", true, 80000000000, true},
        {"cluster: h200:2x8\n", true, 141000000000, true},
        {"cluster: b200\n", true, 180000000000, true},
        {"cluster: l40s\ndevice: cpu\n", false, 48000000000, true},
        {"cluster: l40s\nmemory_limit: 1 GB\n", true, 1000000000, false},
        {"cluster: {gpu: l40s, memory: 40 GB}\n", true, 40000000000, true},
        {"cluster: {memory: 2 GB}\n", false, 2000000000, true},
        {"cluster: {gpu: cpu, ranks_per_node: 4, network: 10g}\n", false, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1000];
        snprintf(text, sizeof text, "%s%s", MESH, rows[i].text);
        tsri_experiment *e = parse_ok(text);
        tsr_compile_opts opts = *TSR_COMPILE_OPTS();
        tsri_experiment_fill(e, &opts);
        assert_int_equal(tsri_experiment_device(e) == TSR_DEVICE_CUDA, rows[i].cuda);
        assert_int_equal(opts.memory_limit, rows[i].limit);
        assert_int_equal(tsri_experiment_limit_is_gpu(e), rows[i].is_gpu);
        assert_int_equal(tsri_experiment_cluster(e) != NULL, rows[i].text[0] != 0);
        tsri_experiment_destroy(e);
        assert_round_trip(text);
    }
    const char *sets[] = {"cluster.network=25g", "cluster=l40s:2x4", "cluster.network=10g"};
    for (int i = 0; i < 2; i++) {
        char text[500];
        tsri_experiment *e;
        snprintf(text, sizeof text, "%scluster: h200:2x4\n", MESH);
        if (tsri_experiment_parse("f", text, strlen(text), i ? 3 : 1, sets, &e) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        const tsri_cluster *c = tsri_experiment_cluster(e);
        assert_string_equal(tsri_gpu_names[c->gpu], i ? "l40s" : "h200");
        assert_string_equal(tsri_network_names[c->network], i ? "10g" : "25g");
        assert_true(c->nodes == 2 && c->gpus_per_node == 4);
        tsri_experiment_destroy(e);
    }
    tsri_pool pool;
    tsri_pool_init(&pool, NULL);
    tsri_cluster in_short, in_full;
    assert_int_equal(tsri_cluster_parse(&pool, "--cluster", "h100-sxm:16x4", 64, &in_short),
                     TSR_OK);
    assert_int_equal(tsri_cluster_parse(&pool, "--cluster",
                                        "{gpu: h100-sxm, nodes: 16, gpus_per_node: 4}", 64,
                                        &in_full),
                     TSR_OK);
    assert_string_equal(tsri_gpu_names[in_short.gpu], "h100-sxm");
    assert_int_equal(in_short.nodes, 16);
    assert_int_equal(in_short.gpus_per_node, 4);
    assert_memory_equal(&in_short, &in_full, sizeof in_full);
    assert_int_equal(tsri_cluster_parse(&pool, "--cluster", "h100-sxm:1x8", 16, &in_short),
                     TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(),
                        "--cluster:1:1: nodes: 1 node of 8 has 8 ranks; 16 are needed");
    assert_int_equal(tsri_cluster_parse(&pool, "--cluster", "h10-sxm", 16, &in_short),
                     TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), "did you mean 'h100-sxm'?"));
    tsri_pool_finish(&pool);
}

/* A short text does not make a large memory. */
static void test_many_ranks(void **state)
{
    (void)state;
    char *text = malloc(1 << 16);
    assert_non_null(text);
    int n = sprintf(text, "tessera: 1\nplacements:\n");
    for (int i = 0; i < 17; i++)
        n += sprintf(text + n, i % 2 ? "  p%d: {ranks: 0..65535}\n" : "  p%d: {mesh: {x: 65536}}\n",
                     i);
    tsri_experiment *e;
    assert_int_equal(parse(text, &e), TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(), "f.yaml:19:15: placements.p16.mesh: more than 1048576 "
                                          "ranks in all placements");
    free(text);
}

/* A program in a virtual world; its error is that of the step which failed. */
static tsr_status build(const char *text, int nranks, tsri_program **out_program,
                        tsri_experiment **out_experiment, tsr_world **out_world)
{
    *out_experiment = parse_ok(text);
    assert_int_equal(tsr_world_create_virtual(nranks, 0, out_world), TSR_OK);
    return tsri_program_build(*out_experiment, *out_world, NULL, out_program);
}

/* By names and by numbers the same program; texts can ask for the names. */
static void test_named_axes(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tessera: 1\nmesh: {dp: 2, tp: 2}\nmodel: {name: mlp}\n"
        "data: {dataset: synthetic, shape: [1, 4, 4], classes: 4, batch_size: 8}\n"
        "tensors: {input: {sbp: {dp: S(0)}}, logits: {sbp: {dp: S(0), tp: S(1)}}}\n"
        "parameters: [{match: '*', sbp: 'tp:S(0)'}]\n"
        "optimizer: {name: sgd, momentum: 0.9, state: {sbp: {tp: S(0), dp: S(0)}}}\n",
        "tessera: 1\nplacements: {d: {ranks: [[0, 1], [2, 3]]}}\nmodel: {name: mlp}\n"
        "data: {dataset: synthetic, shape: [1, 4, 4], classes: 4, batch_size: 8}\n"
        "tensors: {input: {sbp: '(S(0),B)'}, logits: {sbp: '(S(0),S(1))'}}\n"
        "parameters: [{match: '*', sbp: '(B,S(0))'}]\n"
        "optimizer: {name: sgd, momentum: 0.9, state: {sbp: '(S(0),S(0))'}}\n"};
    char *explained[2];
    for (int i = 0; i < 2; i++) {
        tsri_program *p;
        tsri_experiment *e;
        tsr_world *w;
        tsr_plan *plan;
        if (build(texts[i], 4, &p, &e, &w) != TSR_OK || tsr_compile(p->graph, &plan) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        explained[i] = strdup(tsr_plan_explain(plan));
        const tsr_placement *at = tsr_placement_parse(w, "cpu:[[0,1],[2,3]]");
        if (i)
            assert_null(tsri_placement_axis(at, 0));
        else
            assert_string_equal(tsri_placement_axis(at, 1), "tp");
        tsri_program_destroy(p);
        tsr_world_destroy(w);
        tsri_experiment_destroy(e);
    }
    assert_non_null(strstr(explained[0], "(S(0),S(1))"));
    /* But for how long compiling took. */
    assert_string_equal(strchr(explained[0], '\n'), strchr(explained[1], '\n'));
    free(explained[0]);
    free(explained[1]);
    /* A pattern may reach variables on placements that have no such axis. */
    tsri_program *p;
    tsri_experiment *e;
    tsr_world *w;
    assert_int_equal(build("tessera: 1\nplacements: {a: {ranks: 0..3}, m: {mesh: {x: 4}, ranks: "
                           "[3, 2, 1, 0]}}\nmodel: {name: mlp}\n"
                           "data: {dataset: synthetic, shape: [1, 4, 4], classes: 4}\n"
                           "parameters: [{match: '*', sbp: {x: S(0)}}]\n",
                           4, &p, &e, &w),
                     TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(),
                           "f.yaml:5:32: parameters[0].sbp: placement cpu:[0,1,2,3] has no names "
                           "for its dimensions: give it a mesh"));
    tsr_world_destroy(w);
    tsri_experiment_destroy(e);
}

static tsr_status note_rank(tsr_variable *v, const char *name, void *arg)
{
    int *rank = arg; /* by layer */
    rank[atoi(name) / 2] = tsr_placement_rank(v->placement, 0);
    return TSR_OK;
}

/* Stages that planning finds: without a limit, within one, in chunks, and more than there are
 * modules. */
static void test_split(void **state)
{
    (void)state;
    static const struct {
        const char *more, *stages;
        int rank[4];
    } cases[] = {
        {"", "", {0, 0, 2, 2}},
        {"memory_limit: 100 KB\n", "", {0, 0, 2, 2}},
        {"memory_limit: 10 KB\n", "", {0, 0, 2, 2}}, /* none fits: the leanest */
        {"", ", virtual: 2", {0, 2, 0, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsri_experiment *e;
        tsr_world *w;
        tsri_program *p;
        char text[700];
        int rank[4];
        snprintf(
            text, sizeof text,
            "tessera: 1\nmesh: {pp: 2, dp: 2}\n%s"
            "model: {name: mlp, args: {hidden: 32, layers: 4}}\n"
            "data: {dataset: synthetic, shape: [32], classes: 32, samples: 64, batch_size: 16}\n"
            "optimizer: {name: adam}\nschedule: {microbatches: 4}\n"
            "stages: {axis: pp, split: auto%s}\n",
            cases[i].more, cases[i].stages);
        if (build(text, 4, &p, &e, &w) != TSR_OK)
            fail_msg("%s: %s", text, tsr_last_error());
        assert_int_equal(tsr_module_visit(p->module, note_rank, rank), TSR_OK);
        for (int k = 0; k < 4; k++)
            if (rank[k] != cases[i].rank[k])
                fail_msg("case %zu: layer %d is on rank %d, not %d", i, k, rank[k],
                         cases[i].rank[k]);
        tsri_program_destroy(p);
        tsr_world_destroy(w);
        tsri_experiment_destroy(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaling),    cmocka_unit_test(test_named_signatures),
        cmocka_unit_test(test_mesh_dumps), cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_named_axes), cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
