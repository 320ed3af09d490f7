/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA module's device: its arena, and what its memory is aligned to. */
#include "kernels/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A world of one rank; goes by tsr_world_destroy, with its device. */
static tsri_device *open_one(tsr_world **out_world)
{
    tsri_device *d;
    assert_int_equal(tsr_world_create(NULL, out_world), TSR_OK);
    if (tsri_device_get(*out_world, TSR_DEVICE_CUDA, &d) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return d;
}

/* --- the arena -------------------------------------------------------------------------------- */

/* Whatever the variable says, buffers are aligned. */
static void test_arena_aligned(void **state)
{
    (void)state;
    static const char *const said[] = {"200000001", "199999999", "100000032", "65536"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        tsr_world *w;
        void *p[4], *plan;
        assert_int_equal(setenv("TESSERA_CUDA_ARENA_BYTES", said[i], 1), 0);
        tsri_device *d = open_one(&w);
        assert_true(d->region->size <= strtoull(said[i], NULL, 10));
        assert_true(d->region->size + 65536 > strtoull(said[i], NULL, 10));
        for (int k = 0; k < 4; k++) {
            assert_int_equal(d->ops->buffer_alloc(d, 1000 + (size_t)k, &p[k]), TSR_OK);
            assert_int_equal((uintptr_t)p[k] % 64, 0);
        }
        assert_int_equal(d->ops->plan_block(d, 1000, &plan), TSR_OK);
        assert_int_equal((uintptr_t)plan % 64, 0);
        for (int k = 0; k < 4; k++)
            d->ops->buffer_free(d, p[k], 1000 + (size_t)k);
        tsr_world_destroy(w);
    }
    unsetenv("TESSERA_CUDA_ARENA_BYTES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_aligned),    cmocka_unit_test(test_arena_share),
        cmocka_unit_test(test_waits_poll),       cmocka_unit_test(test_dead_peer),
    };
    tsr_world *w;
    tsri_device *d;
    if (tsr_world_create(NULL, &w) != TSR_OK)
        return 1;
    tsr_status status = tsri_device_get(w, TSR_DEVICE_CUDA, &d);
    if (status != TSR_OK)
        printf("skipped: %s\n", tsr_last_error());
    tsr_world_destroy(w);
    return status != TSR_OK ? 77 : cmocka_run_group_tests_name("cuda_device", tests, NULL, NULL);
}
