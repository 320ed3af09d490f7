/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kinds of device: every kind has a row, and the rows agree with what asks them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "placement/cluster.h"
#include "placement/placement.h"
#include "sbp/route/cost_model.h"

static void test_rows(void **state)
{
    (void)state;
    int hosts = 0;
    for (int k = 1; k < TSRI_DEVICES; k++) {
        const tsri_target *t = tsri_target_of((tsr_device)k);
        assert_non_null(t);
        assert_int_equal(t->kind, k);
        assert_string_equal(t->name, tsri_target_names[k - 1]);
        assert_string_equal(tsr_device_name((tsr_device)k), t->name);
        const bool host = tsri_target_can(t->kind, TSRI_CAN_HOST_MEMORY);
        hosts += host;
        /* A kind is the host's, or has streams, a module and a communicator of its own. */
        assert_int_equal(tsri_target_can(t->kind, TSRI_CAN_QUEUE), !host);
        assert_int_equal(!t->module, host);
        assert_int_equal(!t->module_variable, host);
        assert_int_equal(!t->module_entry, host);
        assert_int_equal(!t->comm_variable, host);
        for (int j = 1; j < k; j++)
            assert_string_not_equal(t->name, tsri_target_names[j - 1]);
    }
    assert_int_equal(hosts, 1);
    assert_true(tsri_target_can(TSRI_TARGET_HOST, TSRI_CAN_HOST_MEMORY));
    assert_null(tsri_target_names[TSRI_DEVICES - 1]);
}

static void test_no_kind(void **state)
{
    (void)state;
    static const int none[] = {-1, 0, TSRI_DEVICES, TSRI_DEVICES + 1, 1 << 30};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(tsri_target_of((tsr_device)none[i]));
        assert_false(tsri_target_can((tsr_device)none[i], TSRI_CAN_HOST_MEMORY));
        assert_string_equal(tsr_device_name((tsr_device)none[i]), "?");
    }
    assert_false(tsri_placement_can(NULL, TSRI_CAN_HOST_MEMORY));
}

static void test_models(void **state)
{
    (void)state;
    for (int k = 1; k < TSRI_DEVICES; k++) {
        const tsri_target *t = tsri_target_of((tsr_device)k);
        const tsri_cost_model m = tsri_cost_model_of(t->kind);
        assert_int_equal(m.nlinks, 1);
        assert_int_equal(m.link[0].ranks, 0);
        assert_true(m.link[0].latency_s > 0 && m.link[0].latency_s == t->figures.latency_s);
        assert_true(m.link[0].bytes_per_s > 0 && m.link[0].bytes_per_s == t->figures.bytes_per_s);
        assert_true(m.local_bytes_per_s > 0 && m.flops_per_s > 0 && m.kernel_s > 0);
        assert_string_equal(m.link_name[0], t->figures.link_name);
    }
}

/* Placements in a planning world, where no device is opened and no module is loaded. */
static void test_placements(void **state)
{
    (void)state;
    tsr_world *world;
    assert_int_equal(tsr_world_create_virtual(2, 0, &world), TSR_OK);
    for (int k = 1; k < TSRI_DEVICES; k++) {
        char text[32];
        snprintf(text, sizeof text, "%s:[0,1]", tsri_target_names[k - 1]);
        const tsr_placement *p = tsr_placement_parse(world, text);
        assert_non_null(p);
        assert_int_equal(tsr_placement_device(p), k);
        assert_string_equal(tsr_placement_text(p), text);
        for (int bit = 0; bit < 16; bit++)
            assert_int_equal(tsri_placement_can(p, (tsri_ability)(1 << bit)),
                             tsri_target_of((tsr_device)k)->can >> bit & 1);
    }
    tsr_world_destroy(world);
}

static void test_clusters(void **state)
{
    (void)state;
    tsri_cluster c = {.gpu = 0};
    assert_int_equal(tsri_cluster_device(&c), TSRI_TARGET_HOST);
    for (c.gpu = 1; tsri_gpu_names[c.gpu]; c.gpu++)
        assert_false(tsri_target_can(tsri_cluster_device(&c), TSRI_CAN_HOST_MEMORY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_no_kind),
        cmocka_unit_test(test_models),   cmocka_unit_test(test_placements),
        cmocka_unit_test(test_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
