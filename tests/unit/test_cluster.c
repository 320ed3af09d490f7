/* SPDX-License-Identifier: Apache-2.0 */
/* Presets and the figures that they make, against sums by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "placement/cluster.h"
#include "sbp/route/cost_model.h"

static int index_of(const char *const *names, const char *name)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name))
        i++;
    assert_non_null(names[i]);
    return i;
}

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.17g, not %.17g", found, expected);
}

/* A machine of round figures, for what a cluster does not say. */
static tsri_cluster_figures figures(const tsri_cluster *c)
{
    tsri_cluster_figures f = {.link = {{.latency_s = 1e-3, .bytes_per_s = 1e9}},
                              .local_bytes_per_s = 2e9,
                              .kernel_s = 3e-3};
    tsri_cluster_apply(c, &f);
    return f;
}

/* What each link is called: by what is known of it. */
static void test_link_names(void **state)
{
    (void)state;
    enum { LINKS = 3 };
    const int h200 = index_of(tsri_gpu_names, "h200"), l40s = index_of(tsri_gpu_names, "l40s");
    const int pcie = index_of(tsri_link_names, "pcie5"), net = index_of(tsri_network_names, "25g");
    const struct {
        tsri_cluster c;
        const char *name[LINKS];
    } rows[] = {
        {{.gpu = 0}, {"machine"}},
        {{.latency_us = 2}, {NULL}},
        {{.link_name = "bus", .latency_us = 2}, {"bus"}},
        {{.ranks_per_node = 2}, {"machine", "network"}},
        {{.ranks_per_node = 2, .node_latency_us = 9}, {"machine", NULL}},
        {{.ranks_per_node = 2, .node_bandwidth_gb_s = 1, .network = net}, {"machine", "network"}},
        {{.gpu = h200}, {"NVLink", "network"}},
        {{.gpu = h200, .bandwidth_gb_s = 100}, {"NVLink", "network"}},
        {{.gpu = h200, .link = pcie}, {"PCIe", "network"}},
        {{.gpu = l40s, .network = net}, {"PCIe", "network"}},
        {{.gpu = h200, .nodes_per_rack = 4},
         {"NVLink", "network in racks", "network between racks"}},
        {{.gpu = h200, .nodes_per_rack = 4, .rack_link_name = "spine"},
         {"NVLink", "network in racks", "spine"}},
        {{.gpu = h200, .nodes_per_rack = 4, .node_link_name = "rails"}, {"NVLink", "rails", NULL}},
        {{.ranks_per_node = 2, .node_latency_us = 9, .nodes_per_rack = 4}, {"machine", NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsri_cluster_figures f = {.link = {{.latency_s = 1, .bytes_per_s = 1, .name = "machine"}}};
        tsri_cluster_apply(&rows[i].c, &f);
        assert_int_equal(f.nlinks, rows[i].c.nodes_per_rack                        ? 3
                                   : rows[i].c.gpu || rows[i].c.ranks_per_node > 0 ? 2
                                                                                   : 1);
        for (int l = 0; l < f.nlinks; l++)
            if (rows[i].name[l] ? !f.link[l].name || strcmp(f.link[l].name, rows[i].name[l])
                                : f.link[l].name != NULL)
                fail_msg("row %zu, link %d: %s, not %s", i, l,
                         f.link[l].name ? f.link[l].name : "none",
                         rows[i].name[l] ? rows[i].name[l] : "none");
    }
}

static void test_names(void **state)
{
    (void)state;
    int n = 0;
    for (; tsri_gpu_names[n]; n++)
        assert_string_equal(tsri_gpu_names[n], tsri_gpu_specs[n].name);
    assert_null(tsri_gpu_specs[n].name);
    for (n = 0; tsri_link_names[n]; n++)
        assert_string_equal(tsri_link_names[n], tsri_link_specs[n].name);
    assert_null(tsri_link_specs[n].name);
    for (n = 0; tsri_network_names[n]; n++)
        assert_string_equal(tsri_network_names[n], tsri_network_specs[n].name);
    assert_null(tsri_network_specs[n].name);
    /* What must hold of any GPU: lower precision is no slower, and there is a link. */
    for (int g = 1; tsri_gpu_specs[g].name; g++) {
        const tsri_gpu_spec *s = &tsri_gpu_specs[g];
        assert_true(s->f64 > 0 && s->f64 <= s->f32 && s->f32 < s->tf32 && s->tf32 < s->f16);
        assert_true(s->attention > 0.3 && s->attention < s->products && s->products < 0.9);
        assert_true(s->memory_gb >= 40 && s->memory_gb_s > 800 && s->link > 0);
        assert_int_equal(s->network > 0, !strstr(s->name, "pcie") && strcmp(s->name, "l40s") != 0);
    }
}

static void test_h100(void **state)
{
    (void)state;
    tsri_cluster c = {.gpu = index_of(tsri_gpu_names, "h100-sxm"), .nodes = 16, .gpus_per_node = 8};
    tsri_cluster_figures f = figures(&c);
    assert_int_equal(f.nlinks, 2);
    assert_int_equal(f.link[0].ranks, 8);
    assert_int_equal(f.link[1].ranks, 0);
    assert_near(f.link[0].bytes_per_s, 18 * 20.6e9);
    assert_near(f.link[0].latency_s, 6.6e-6 + 7 * 0.6e-6);
    assert_near(f.link[1].bytes_per_s, 4 * 12e9); /* a port of 400 Gb/s each */
    assert_near(f.link[1].latency_s, 6.6e-6 + 7 * 2.7e-6);
    assert_near(f.local_bytes_per_s, 3350e9 * 0.9);
    const double part = 0.803;
    assert_near(f.flops_of_dtype[TSR_BF16], 989.5e12 * part);
    assert_near(f.flops_of_dtype[TSR_F16], 989.5e12 * part);
    assert_near(f.flops_of_dtype[TSR_F32], 67e12 * part);
    assert_near(f.flops_of_dtype[TSR_F64], 67e12 * part);
    assert_near(f.flops_per_s, 67e12 * part);
    assert_near(f.attention_share, 0.374 / 0.803);
    assert_near(f.product_share[7], 1);
    for (int i = 1; i < TSRI_CLUSTER_SIZES; i++)
        assert_true(f.product_share[i] >= f.product_share[i - 1]);
    assert_near(f.kernel_s, 2e-6);
    assert_int_equal(tsri_cluster_memory(&c), INT64_C(80000000000));
    c.tflops_bf16 = 100; /* a figure of one's own is of all sizes */
    assert_true(figures(&c).product_share[7] == 0);
    c.tflops_bf16 = 0;
    c.tf32 = true;
    c.efficiency = 0.5;
    f = figures(&c);
    assert_near(f.flops_of_dtype[TSR_F32], 494.5e12 * 0.5);
    assert_near(f.flops_of_dtype[TSR_BF16], 989.5e12 * 0.5);
    assert_near(f.attention_share, 0.374 / 0.803);
}

static void test_networks(void **state)
{
    (void)state;
    /* Cards without a network of their own: a port for all of a node. */
    tsri_cluster c = {.gpu = index_of(tsri_gpu_names, "l40s"),
                      .network = index_of(tsri_network_names, "25g"),
                      .gpus_per_node = 4};
    tsri_cluster_figures f = figures(&c);
    assert_near(f.link[0].bytes_per_s, 24e9);
    assert_near(f.link[1].bytes_per_s, 12e9 * 25 / 100 / 4);
    c.network_ports = 2;
    assert_near(figures(&c).link[1].bytes_per_s, 12e9 * 25 / 100 / 2);
    /* Another network than the DGX's still has a port for each GPU. */
    c = (tsri_cluster){.gpu = index_of(tsri_gpu_names, "a100-80-sxm"),
                       .network = index_of(tsri_network_names, "100g"),
                       .link = index_of(tsri_link_names, "pcie4")};
    f = figures(&c);
    assert_int_equal(f.link[0].ranks, 8);
    assert_near(f.link[0].bytes_per_s, 24e9);
    assert_near(f.link[1].bytes_per_s, 12e9);
    /* Racks of 4 nodes, of whose ports a third leaves. */
    c.nodes_per_rack = 4;
    c.rack_oversubscription = 3;
    f = figures(&c);
    assert_int_equal(f.nlinks, 3);
    assert_int_equal(f.link[1].ranks, 32);
    assert_int_equal(f.link[2].ranks, 0);
    assert_near(f.link[2].bytes_per_s, 4e9);
    assert_near(f.link[2].latency_s, f.link[1].latency_s);
    c.rack_bandwidth_gb_s = 7;
    c.rack_latency_us = 70;
    f = figures(&c);
    assert_near(f.link[2].bytes_per_s, 7e9);
    assert_near(f.link[2].latency_s, 70e-6);
    assert_true(tsri_cluster_has_network(&c));
    /* Processors of this machine's kind, two ranks a node behind a port of 10 Gb/s. */
    c = (tsri_cluster){.network = index_of(tsri_network_names, "10g"), .ranks_per_node = 2};
    f = figures(&c);
    assert_int_equal(f.nlinks, 2);
    assert_near(f.link[0].bytes_per_s, 1e9);
    assert_near(f.link[1].bytes_per_s, 1.2e9 / 2);
    assert_near(f.link[1].latency_s, 25.5e-6);
    assert_near(f.kernel_s, 3e-3);
    c = (tsri_cluster){.gpu = index_of(tsri_gpu_names, "h100-pcie")};
    assert_false(tsri_cluster_has_network(&c));
    c.node_bandwidth_gb_s = 1;
    assert_true(tsri_cluster_has_network(&c));
}

/* Figures alone, as they were before there were presets; they override a preset too. */
static void test_figures(void **state)
{
    (void)state;
    tsri_cluster c = {0};
    tsri_cluster_figures f = figures(&c);
    assert_int_equal(f.nlinks, 1);
    assert_int_equal(f.link[0].ranks, 0);
    assert_near(f.link[0].bytes_per_s, 1e9);
    assert_near(f.local_bytes_per_s, 2e9);
    assert_near(f.kernel_s, 3e-3);
    assert_true(f.flops_per_s == 0 && f.flops_of_dtype[TSR_F32] == 0 && f.attention_share == 0);
    assert_int_equal(tsri_cluster_memory(&c), 0);
    c = (tsri_cluster){.ranks_per_node = 2,
                       .latency_us = 2,
                       .bandwidth_gb_s = 10,
                       .node_latency_us = 50,
                       .tflops = 5,
                       .memory_gb_s = 100,
                       .kernel_us = 4,
                       .memory = 12345};
    for (int preset = 0; preset < 2; preset++) {
        c.gpu = preset ? index_of(tsri_gpu_names, "b200") : 0;
        f = figures(&c);
        assert_int_equal(f.nlinks, 2);
        assert_int_equal(f.link[0].ranks, 2);
        assert_near(f.link[0].latency_s, 2e-6);
        assert_near(f.link[0].bytes_per_s, 10e9);
        assert_near(f.link[1].latency_s, 50e-6);
        assert_near(f.link[1].bytes_per_s, preset ? 48e9 : 10e9);
        assert_near(f.flops_per_s, 5e12);
        assert_true(f.flops_of_dtype[TSR_BF16] == 0);
        assert_near(f.local_bytes_per_s, 100e9);
        assert_near(f.kernel_s, 4e-6);
        assert_int_equal(tsri_cluster_memory(&c), 12345);
    }
    c.tflops_bf16 = 9;
    f = figures(&c);
    assert_near(f.flops_of_dtype[TSR_BF16], 9e12);
    assert_true(f.flops_of_dtype[TSR_F32] == 0);
}

static void test_cost_model(void **state)
{
    (void)state;
    tsri_cost_model m = {.flops_per_s = 2, .dtype_flops_per_s = {[TSR_BF16] = 8}};
    assert_true(tsri_flops_of(&m, TSR_BF16) == 8);
    assert_true(tsri_flops_of(&m, TSR_F32) == 2);
    assert_true(tsri_flops_of(&m, TSR_DTYPE_NONE) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),   cmocka_unit_test(test_link_names),
        cmocka_unit_test(test_h100),    cmocka_unit_test(test_networks),
        cmocka_unit_test(test_figures), cmocka_unit_test(test_cost_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
