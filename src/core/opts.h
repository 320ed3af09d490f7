/* SPDX-License-Identifier: Apache-2.0 */
/* Options that a caller gives, which may be of an older, shorter struct, or of a newer one. */
#ifndef TSRI_CORE_OPTS_H
#define TSRI_CORE_OPTS_H

#include <string.h>

#include "src/core/status.h"

/* Copies options (NULL: none) over the defaults at dst. Options begin with their `size`; 0 is
 * TSR_ERR_INVALID, in the words of the public call `who`. */
static inline tsr_status tsri_opts_read(void *dst, size_t bytes, const void *opts, const char *who)
{
    size_t given;
    if (!opts)
        return TSR_OK;
    memcpy(&given, opts, sizeof given);
    if (given < sizeof given)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: a struct's size is %zu; make it with its macro, or set its size", who,
                         given);
    memcpy(dst, opts, given < bytes ? given : bytes);
    memcpy(dst, &bytes, sizeof bytes);
    return TSR_OK;
}

#endif
