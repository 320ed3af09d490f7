/* SPDX-License-Identifier: Apache-2.0 */
/* The labels of a tsr_ddp's collectives; the user's own label comes back afterwards. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/train/ddp.h"

tsr_status tsri_ddp_label(tsr_ddp *d, const char *fmt, ...)
{
    char text[64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tsr_group_set_label(d->group, text);
}

tsri_ddp_kept tsri_ddp_keep_label(const tsr_ddp *d)
{
    tsri_ddp_kept kept;
    memcpy(kept.label, d->group->label, sizeof kept.label);
    return kept;
}

void tsri_ddp_put_back(tsr_ddp *d, const tsri_ddp_kept *kept)
{
    memcpy(d->group->label, kept->label, sizeof kept->label);
}
