/* SPDX-License-Identifier: Apache-2.0 */
#include "src/train/checkpoint/job.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/core/thread.h"

static tsr_status write_files(tsri_ckpt_job *job)
{
    char path[PATH_MAX], name[TSRI_CKPT_FILE_NAME];
    if (job->rank == 0)
        TSRI_TRY(tsri_ckpt_index_write(&job->index, job->making));
    if (job->rank >= job->nfiles)
        return TSR_OK;
    tsri_ckpt_file_name(name, job->rank, job->nfiles);
    if (snprintf(path, sizeof path, "%s/%s", job->making, name) >= (int)sizeof path)
        return tsri_fail(TSR_ERR_IO, "%.200s...: the path is too long", job->making);
    TSRI_TRY(tsri_ckpt_shard_write(&job->mem, path, job->index.id, job->nsources, job->sources));
    return tsri_ckpt_commit(job->folder, job->index.step, job->index.id, job->nfiles, false,
                            &job->keep, &job->stays);
}

static void *run_job(void *arg)
{
    tsri_ckpt_job *job = arg;
    if (job->is_thread) /* it has time until the next save; the ranks' threads have not */
        setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    job->status = write_files(job);
    if (job->status != TSR_OK)
        snprintf(job->text, sizeof job->text, "%s", tsr_last_error());
    return NULL;
}

void tsri_ckpt_warn(const tsr_checkpoint *c, const tsri_ckpt_stays *stays)
{
    if (stays->n)
        tsri_log(c->world, TSR_LOG_WARNING,
                 "%s: %d of the entries are of no checkpoint, or can't be removed, and stay: %s",
                 c->folder, stays->n, stays->names);
}

void tsri_ckpt_job_free(tsri_ckpt_job *job)
{
    tsri_ckpt_index_finish(&job->index);
    tsri_pool_finish(&job->pool);
    tsri_mem_free(job);
}

tsr_status tsri_ckpt_join(tsr_checkpoint *c)
{
    tsri_ckpt_job *job = c->job;
    if (!job)
        return TSR_OK;
    c->job = NULL;
    if (job->is_thread)
        pthread_join(job->thread, NULL);
    tsri_ckpt_warn(c, &job->stays);
    const tsr_status status =
        job->status == TSR_OK ? TSR_OK : tsri_fail(job->status, "%s", job->text);
    tsri_ckpt_job_free(job);
    return status;
}

void tsri_ckpt_job_start(tsr_checkpoint *c)
{
    tsri_ckpt_job *job = c->job;
    job->is_thread = c->opts.async;
    if (job->is_thread && tsri_thread_start(&job->thread, "checkpoint", run_job, job) == 0)
        return;
    job->is_thread = false;
    run_job(job);
}
