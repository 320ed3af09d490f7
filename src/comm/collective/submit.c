/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks of host memory and of devices: which way each goes, and how it is waited for. */
#include "src/comm/collective/side.h"
#include "src/core/live.h"

tsr_status tsri_work_submit(tsr_group *g, const tsri_task *task, tsr_work **out_work)
{
    tsri_device *device;
    TSRI_TRY(tsri_group_check(g));
    TSRI_TRY(tsri_task_device(g, task, &device));
    return device ? tsri_side_submit(g, device, task, out_work)
                  : tsri_work_submit_host(g, task, out_work);
}

/* Ends a handle whose task is done: what a recv for a device has brought goes there. */
static tsr_status take(tsr_work *w)
{
    tsri_device *d = w->device;
    tsr_group *g = w->group;
    tsr_status status = w->status;
    if (status == TSR_OK && w->staged_for)
        status = d->ops->copy_in(d, w->staged_for, w->staged,
                                 (size_t)w->task.count * tsr_dtype_size(w->task.dtype), d->stream);
    tsri_work_free(w);
    return status != TSR_OK && tsri_group_is_over(g) ? tsri_group_fail_over(g) : status;
}

tsr_status tsr_work_wait(tsr_work **work, double timeout_s)
{
    if (!work || !*work)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_work_wait: no handle (it is NULL; was it waited for already?)");
    if (!(timeout_s >= 0))
        return tsri_fail(TSR_ERR_INVALID, "tsr_work_wait: a timeout of %g s; expected 0 or more",
                         timeout_s);
    TSRI_TRY(tsri_live_check(*work, TSRI_LIVE_WORK, __func__));
    tsr_work *w = *work;
    tsr_group *g = w->group;
    if (w->task.side) {
        tsr_status ended = tsri_side_wait(w, timeout_s);
        if (ended != TSR_ERR_TIMEOUT || tsri_group_is_over(g))
            *work = NULL;
        return ended;
    }
    TSRI_TRY(tsri_work_wait_host(w, timeout_s));
    *work = NULL;
    return take(w);
}

bool tsr_work_test(tsr_work *work)
{
    if (!tsri_is_live(work, TSRI_LIVE_WORK, __func__))
        return true;
    return work->task.side ? tsri_side_test(work)
                           : atomic_load_explicit(&work->done, memory_order_acquire);
}
