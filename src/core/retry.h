/* SPDX-License-Identifier: Apache-2.0 */
/* File systems of a network, or of a user's process (FUSE), interrupt calls that a local disk never
 * does: mkdir, open, rename, fsync and their kind. */
#ifndef TSRI_CORE_RETRY_H
#define TSRI_CORE_RETRY_H

#include <errno.h>

/* Makes a call that returns -1 with errno again for as long as a signal interrupts it. Not for
 * close, after which the descriptor is gone in any case. */
#define TSRI_RETRY(call)                     \
    __extension__({                          \
        __typeof__(call) rc_;                \
        do                                   \
            rc_ = (call);                    \
        while (rc_ == -1 && errno == EINTR); \
        rc_;                                 \
    })

#endif
