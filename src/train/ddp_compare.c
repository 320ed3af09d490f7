/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TESSERA_COMPARE under a tsr_ddp. Inputs differ between ranks, so before each synchronised run
 * ranks compare the state that must be equal: the values of all parameters, frozen ones included,
 * and the optimizer settings of the last update. Buffers are not compared, as they may differ until
 * they are broadcast. Nothing is compared while join is on, when ranks without inputs hold older
 * values.
 */
#include "src/core/rng.h"
#include "src/exec/compare.h"
#include "src/optim/optim.h"
#include "src/train/ddp.h"

static const tsr_variable *variable_at(const tsr_ddp *d, int i)
{
    return i < d->nparams ? d->params[i].v : d->sent.frozen[i - d->nparams];
}

static tsr_status hash_variable(const tsr_variable *v, void *buffer, int64_t *out)
{
    if (!v->data)
        return TSR_OK;
    TSRI_TRY(tsri_variable_read(v, 0, buffer, v->bytes));
    *out = (int64_t)tsri_hash(TSRI_HASH_INIT, buffer, v->bytes);
    return TSR_OK;
}

/* Hashes n variables into words[0] to words[n - 1]; words[n] is the hash of the last update's
 * settings. */
static tsr_status hash_all(const tsr_ddp *d, int n, int64_t *words)
{
    size_t most = 1;
    for (int i = 0; i < n; i++)
        most = variable_at(d, i)->bytes > most ? variable_at(d, i)->bytes : most;
    void *buffer = tsri_mem_alloc(&d->world->mem, most);
    TSRI_NEED(buffer);
    tsr_status status = TSR_OK;
    for (int i = 0; i < n && status == TSR_OK; i++)
        status = hash_variable(variable_at(d, i), buffer, &words[i]);
    words[n] = d->compared.settings;
    tsri_mem_free(buffer);
    return status;
}

/* Compares the words of all ranks. The verdict is the same on each of them. */
static tsr_status judge(const tsr_ddp *d, int n, const int64_t *all)
{
    for (int r = 1; r < d->nranks; r++)
        for (int i = n; i >= 0; i--) { /* other settings are why values differ */
            if (all[(int64_t)r * (n + 1) + i] == all[i])
                continue;
            const int a = tsr_group_world_rank(d->group, 0), b = tsr_group_world_rank(d->group, r);
            if (i == n)
                return tsri_fail(TSR_ERR_MISMATCH,
                                 "ddp: ranks %d and %d made their last update with different "
                                 "settings (see tsr_optimizer_set_lr) of the optimizer",
                                 a, b);
            return tsri_fail(TSR_ERR_MISMATCH,
                             "ddp: ranks %d and %d hold different values of parameter %s", a, b,
                             i < d->nparams ? d->params[i].name : variable_at(d, i)->name);
        }
    return TSR_OK;
}

tsr_status tsri_ddp_compare(tsr_ddp *d)
{
    const int n = d->nparams + d->sent.nfrozen;
    const size_t words = (size_t)n + 1;
    if (!d->compared.on || d->joining.on)
        return TSR_OK;
    TSRI_TRY(tsri_ddp_label(d, "ddp compare, run %lld", (long long)d->info.syncs));
    int64_t *mine = tsri_mem_alloc(&d->world->mem, words * sizeof *mine);
    int64_t *all = tsri_mem_alloc(&d->world->mem, words * (size_t)d->nranks * sizeof *all);
    tsr_status status = mine && all ? hash_all(d, n, mine) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_all_gather_into_at(d->group, mine, all, (int64_t)words, TSR_I64, NULL,
                                        d->loc.file, d->loc.line);
    if (status == TSR_OK)
        status = judge(d, n, all);
    tsri_mem_free(mine);
    tsri_mem_free(all);
    return status;
}

tsr_status tsri_ddp_note_settings(tsr_ddp *d, const tsr_optimizer *o)
{
    return d->compared.on
               ? tsri_compare_hash_settings(tsri_optimizer_describe, o, &d->compared.settings)
               : TSR_OK;
}
