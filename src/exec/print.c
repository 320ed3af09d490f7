/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of tsr_print, behind a run. */
#include "src/core/shown.h"
#include "src/exec/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STATISTICS = 5 }; /* least, largest, mean, deviation, NaNs: see src/graph/ops/print.c */

/* The line, of n numbers. A line that nobody can read is not the run's failure. */
static void write_line(const tsr_plan *plan, const tsri_print *print, const double *v, int64_t n)
{
    char shape[TSRI_DIMS_TEXT_MAX], nans[40] = "", elements[TSRI_PRINT_ELEMENTS * 16] = "";
    size_t at = 0;
    for (int64_t i = STATISTICS; i < n; i++)
        at += (size_t)snprintf(elements + at, sizeof elements - at, " %.5g", v[i]);
    if (v[4] > 0)
        snprintf(nans, sizeof nans, ", %.0f NaN", v[4]);
    tsri_fshow(stdout, "%s (%s) %s, run %" PRId64 ": ", print->label,
               tsri_dims_format(print->dims, shape), tsr_dtype_name(print->dtype), plan->info.runs);
    if (n == STATISTICS)
        tsri_fshow(stdout, "empty\n");
    else
        tsri_fshow(stdout, "min %.5g, max %.5g, mean %.5g, std %.5g%s:%s%s\n", v[0], v[1], v[2],
                   v[3], nans, elements,
                   n - STATISTICS < tsr_dims_count(print->dims) ? " ..." : "");
    fflush(stdout);
}

static tsr_status print_one(tsr_plan *plan, const tsri_print *print)
{
    double v[STATISTICS + TSRI_PRINT_ELEMENTS];
    const tsri_ir_port *port = NULL;
    for (int i = 0; i < plan->ir.nports && !port; i++)
        if (plan->ir.ports[i].is_output && !strcmp(plan->ir.ports[i].info.name, print->port))
            port = &plan->ir.ports[i];
    if (!port || tsr_placement_rank(port->info.placement, 0) != plan->ir.world->rank)
        return TSR_OK;
    const int64_t n = port->info.dims.d[0];
    TSRI_TRY(tsr_fetch(plan, print->port, v, (size_t)n * sizeof *v));
    write_line(plan, print, v, n);
    return TSR_OK;
}

tsr_status tsri_plan_print(tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nprints; i++)
        if ((plan->info.runs - 1) % plan->ir.prints[i].every == 0)
            TSRI_TRY(print_one(plan, &plan->ir.prints[i]));
    return TSR_OK;
}
