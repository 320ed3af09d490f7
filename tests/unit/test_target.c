/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of kinds of device and of dtypes: each has a row, and the rows agree with their
 * readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "placement/cluster.h"
#include "placement/placement.h"
#include "sbp/route/cost_model.h"
#include "src/target/dtype.h"

static void test_rows(void **state)
{
    (void)state;
    int hosts = 0;
    for (int k = 1; tsri_target_of((tsr_device)k); k++) {
        const tsri_target *t = tsri_target_of((tsr_device)k);
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
    static const int none[] = {-1, 0, TSRI_DEVICES - 1, TSRI_DEVICES, 1 << 30};
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
    for (int k = 1; tsri_target_of((tsr_device)k); k++) {
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
    for (int k = 1; tsri_target_of((tsr_device)k); k++) {
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

/* --- dtypes ----------------------------------------------------------------------------------- */
static void test_dtypes(void **state)
{
    (void)state;
    for (int d = 1; d < TSR_DTYPE_COUNT_; d++) {
        const tsri_dtype_facts *f = tsri_dtype_of((tsr_dtype)d);
        assert_string_equal(tsr_dtype_name((tsr_dtype)d), f->name);
        assert_int_equal(tsr_dtype_size((tsr_dtype)d), f->size);
        assert_int_equal(tsr_dtype_parse(f->name), d);
        /* .npy's last character is the bytes of an element. */
        assert_int_equal(f->npy[2] - '0', d == TSR_BF16 ? 4 : f->size);
        assert_int_equal(f->npy[1], f->is_float     ? 'f'
                                    : d == TSR_U8   ? 'u'
                                    : d == TSR_BOOL ? 'b'
                                                    : 'i');
        for (int e = 1; e < d; e++)
            assert_string_not_equal(f->safetensors, tsri_dtypes[e].safetensors);
    }
    assert_int_equal(tsri_dtype_of(TSR_DTYPE_COUNT_)->size, 0);
    assert_int_equal(tsri_dtype_of((tsr_dtype)-1)->size, 0);
    assert_string_equal(tsri_dtype_of(TSR_DTYPE_NONE)->name, "?");
}

/* The largest value is all ones but the exponent's last bit, which IEEE 754 leaves to infinity. */
static void test_floats(void **state)
{
    (void)state;
    int floats = 0, halves = 0, autocast = 0;
    for (int d = 0; d <= TSR_DTYPE_COUNT_; d++) {
        const tsri_dtype_facts *f = tsri_dtype_of((tsr_dtype)d);
        floats += tsri_is_float((tsr_dtype)d);
        halves += tsri_is_half((tsr_dtype)d);
        autocast += tsri_is_autocast((tsr_dtype)d);
        if (!f->is_float) {
            assert_int_equal(f->exponent + f->fraction, 0);
            continue;
        }
        assert_int_equal(1 + f->exponent + f->fraction, 8 * f->size);
        const int bias = (1 << (f->exponent - 1)) - 1;
        assert_true(f->max == ldexp(2 - ldexp(1, -f->fraction), bias));
    }
    assert_int_equal(floats, 4);
    assert_int_equal(halves, 2);
    assert_int_equal(autocast, 3);
    assert_true(tsri_is_half(TSR_F16) && tsri_is_half(TSR_BF16) && tsri_is_autocast(TSR_F32));
    assert_false(tsri_is_autocast(TSR_F64) || tsri_is_float(TSR_I64));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_no_kind),
        cmocka_unit_test(test_models),   cmocka_unit_test(test_placements),
        cmocka_unit_test(test_clusters), cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
