/* SPDX-License-Identifier: Apache-2.0 */
#include "src/rewrite/rewrite.h"

/* The rewrites of a compile, in their order. */
static const struct {
    const char *name; /* for messages */
    tsr_status (*run)(tsr_graph *copy);
} rewrites[] = {
    {"stop", tsri_rewrite_stop},
    {"time", tsri_rewrite_time},
    {"recompute", tsri_rewrite_recompute},
};

tsr_status tsri_rewrite(tsr_graph *copy)
{
    for (size_t i = 0; i < sizeof rewrites / sizeof *rewrites; i++) {
        tsri_graph_promises before;
        TSRI_TRY(tsri_rewrite_promises(copy, &before));
        TSRI_TRY(rewrites[i].run(copy));
        TSRI_TRY(tsri_rewrite_check(copy, rewrites[i].name, &before));
    }
    return TSR_OK;
}
