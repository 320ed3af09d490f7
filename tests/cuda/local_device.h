/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the local communicator on device memory share: ranks with a device, and calls
 * made twice, on the host and on the device, with the same data. */
#ifndef TESSERA_TESTS_LOCAL_DEVICE_H
#define TESSERA_TESTS_LOCAL_DEVICE_H

#include "src/comm/local/device.h"
#include "tests/mirror/deferred_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond))                                                                            \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %s", __FILE__, __LINE__, \
                             #cond, tsr_last_error());                                          \
    } while (0)
#define CHECK_TEXT(part) CHECK(strstr(tsr_last_error(), part))

enum { LD_STREAMS = 3, LD_PENDING = 64, LD_BLOCK = 8 << 20 };

/* Where ranks run: on the deferred device, or on the module's. */
typedef struct ld_setup {
    const char *name;
    bool deferred, shares; /* shares: as processes would */
    int eager;
} ld_setup;

/* What a call on the device must have left in dst, once what is in the stream is done. */
typedef struct ld_pending {
    const void *dst;
    char *expected;
    size_t bytes;
    tsri_stream *stream;
    char what[96];
} ld_pending;

typedef struct ld_rank {
    tsr_world *w;
    tsri_device *d;
    tsri_comm *c; /* on the device, of all ranks */
    tsri_stream *stream[LD_STREAMS];
    char *block, *host; /* on the device, and in the world's region: LD_BLOCK bytes each */
    size_t used;
    uint64_t random; /* differs between ranks */
    uint64_t common; /* does not */
    ld_pending pending[LD_PENDING];
    int npending;
    void *arg;
} ld_rank;

typedef tsr_status ld_body(ld_rank *r);

/* Runs the body on n ranks. What it returns, or the deferred device finds wrong, fails the test. */
void ld_spawn_ok(const ld_setup *setup, int n, ld_body *body, void *arg);
/* The setups that there are here; ends with name NULL. */
const ld_setup *ld_setups(void);

/* The groups of all ranks on the host and on the device. */
tsr_status ld_groups(ld_rank *r, int lane, tsri_group **out_host, tsri_group **out_device);
/* Makes the call, whose segments lack src and dst, on both. gives: for SEND_RECV, whether this rank
 * has a src of segment i; NULL: it has. The device's result is compared in ld_flush; before that
 * src is overwritten behind the release. */
tsr_status ld_both(ld_rank *r, tsri_group *host, tsri_group *device, tsri_coll c,
                   const tsri_segment *seg, const bool *gives);
tsr_status ld_flush(ld_rank *r);

#endif
