/* SPDX-License-Identifier: Apache-2.0 */
/* Options that a caller gives, which may be of an older, shorter struct, or of a newer one. */
#ifndef TSRI_CORE_OPTS_H
#define TSRI_CORE_OPTS_H

#include <string.h>

#include "src/core/status.h"

/* Copies options (NULL: none) over the defaults at dst. Options begin with their `size`, and 0 is
 * TSR_ERR_INVALID, in the words of the public call `who`; so is an option without a name, which
 * lies behind the size (tsr_by_name). */
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
    tsr_by_name unnamed = NULL;
    if (given >= sizeof given + sizeof unnamed)
        memcpy(&unnamed, (const char *)opts + sizeof given, sizeof unnamed);
    if (unnamed)
        return tsri_fail(TSR_ERR_INVALID, "%s: an option has no name; write it as .name = value",
                         who);
    memcpy(dst, opts, given < bytes ? given : bytes);
    memcpy(dst, &bytes, sizeof bytes);
    return TSR_OK;
}

#endif
