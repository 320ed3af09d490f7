/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/task.h"

int tsri_task_coll_kind(tsri_task_kind kind)
{
    static const int kinds[TSRI_TASK_KIND_COUNT_] = {
        [TSRI_TASK_ALL_REDUCE] = TSRI_COLL_ALL_REDUCE,
        [TSRI_TASK_BROADCAST] = TSRI_COLL_BROADCAST,
        [TSRI_TASK_REDUCE] = TSRI_COLL_REDUCE,
        [TSRI_TASK_ALL_GATHER] = TSRI_COLL_ALL_GATHER,
        [TSRI_TASK_REDUCE_SCATTER] = TSRI_COLL_REDUCE_SCATTER,
        [TSRI_TASK_ALL_TO_ALL] = TSRI_COLL_ALL_TO_ALL,
        [TSRI_TASK_GATHER] = TSRI_COLL_GATHER_,
        [TSRI_TASK_SCATTER] = TSRI_COLL_SCATTER_,
        [TSRI_TASK_BARRIER] = TSRI_COLL_BARRIER,
        [TSRI_TASK_SEND] = TSRI_COLL_SEND_RECV,
        [TSRI_TASK_RECV] = TSRI_COLL_SEND_RECV,
    };
    return kinds[kind];
}

const char *tsri_task_name(tsri_task_kind kind)
{
    return kind == TSRI_TASK_SEND   ? "send"
           : kind == TSRI_TASK_RECV ? "recv"
                                    : tsri_coll_kind_name(tsri_task_coll_kind(kind));
}

static int64_t sum_of(const int64_t *counts, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

int64_t tsri_task_src_count(int nranks, int index, const tsri_task *task)
{
    switch (task->kind) {
    case TSRI_TASK_BROADCAST:
        return task->root == index ? task->count : 0;
    case TSRI_TASK_SCATTER:
        return task->root == index ? task->count * nranks : 0;
    case TSRI_TASK_REDUCE_SCATTER:
        return task->count * nranks;
    case TSRI_TASK_ALL_TO_ALL:
        return sum_of(task->src_counts, nranks);
    case TSRI_TASK_BARRIER:
    case TSRI_TASK_RECV:
        return 0;
    default:
        return task->count;
    }
}

tsr_status tsri_all_to_all_check(int nranks, const int *ranks, const tsri_task *task,
                                 const int64_t *counts)
{
    int n = nranks;
    int64_t row = (int64_t)2 * n;
    for (int from = 0; from < n; from++) {
        for (int to = 0; to < n; to++) {
            int64_t sends = counts[row * from + to], expects = counts[row * to + n + from];
            if (sends != expects)
                return tsri_fail_at(task->loc, TSR_ERR_MISMATCH,
                                    "ranks disagree: in all_to_all #%llu, rank %d sends %lld "
                                    "elements to rank %d, which expects %lld from it",
                                    (unsigned long long)task->number, ranks[from], (long long)sends,
                                    ranks[to], (long long)expects);
        }
    }
    return TSR_OK;
}
