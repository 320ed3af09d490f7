/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of tsr_ddp share: thread ranks, and errors by their texts. */
#ifndef TESSERA_TESTS_API_DDP_RANK_H
#define TESSERA_TESTS_API_DDP_RANK_H

#include "../rank.h"

#include <stdlib.h>

/* The tests run once more on other kinds of device: see tests/cuda/on_device.h. */
#define ON_DEVICE (getenv("TESSERA_TEST_DEVICE") != NULL)
#define DEVICE_NAME (ON_DEVICE ? getenv("TESSERA_TEST_DEVICE") : "cpu")

static const tsr_world_opts ddp_opts = {
    .size = sizeof(tsr_world_opts), .arena_bytes = 256 << 20, .timeout_s = 20, .threads = 1};

static inline void expect_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &ddp_opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

/* The call fails, and its text has the part. */
#define FAILS(expr, wanted, part)                                             \
    do {                                                                      \
        tsr_status fails_ = (expr);                                           \
        if (fails_ != (wanted) || !strstr(tsr_last_error(), part)) {          \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #expr, \
                    tsr_status_name(fails_), tsr_last_error());               \
            return TSR_ERR_INTERNAL;                                          \
        }                                                                     \
    } while (0)

#endif
