/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_plan_times: the steps' clocks, added up by what they do. */
#include <stdlib.h>
#include <string.h>

#include "src/core/live.h"
#include "src/exec/exec.h"

enum { MAX_ROWS = TSRI_OP_COUNT_ + TSRI_COLL_KIND_COUNT_ + 1 };

const char *tsri_step_name(const tsri_step *s)
{
    switch (s->kind) {
    case TSRI_STEP_KERNEL:
        return tsri_op_title(s->item->kernel.op, &s->item->kernel.attrs);
    case TSRI_STEP_LOCAL_BOX:
        return "local boxing";
    case TSRI_STEP_CROSS:
        return "copy between devices";
    default:
        return tsri_coll_kind_name(s->call->coll.kind);
    }
}

static int by_seconds(const void *a, const void *b)
{
    const tsr_plan_time *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? 1 : -1;
    return strcmp(x->what, y->what);
}

int tsr_plan_times(const tsr_plan *plan, int n, tsr_plan_time *out_times)
{
    tsr_plan_time rows[MAX_ROWS];
    int nrows = 0;
    if (!tsri_is_live(plan, TSRI_LIVE_PLAN, __func__))
        return 0;
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        const char *what = tsri_step_name(s);
        int r = 0;
        while (r < nrows && strcmp(rows[r].what, what) != 0)
            r++;
        if (r == nrows)
            rows[nrows++] = (tsr_plan_time){.what = what, .is_comm = s->kind >= TSRI_STEP_START};
        const int times = tsri_item_times(&plan->ir, s->item);
        rows[r].seconds += s->time_s;
        if (s->kind <= TSRI_STEP_START)
            rows[r].steps += times;
        if (s->kind == TSRI_STEP_START)
            rows[r].bytes += s->call->bytes * (uint64_t)times;
    }
    qsort(rows, (size_t)nrows, sizeof *rows, by_seconds);
    if (out_times && n > 0)
        memcpy(out_times, rows, (size_t)(n < nrows ? n : nrows) * sizeof *rows);
    return nrows;
}
