/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/world/ident.h"
#include "src/core/status.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536 };

/* --- launchers -------------------------------------------------------------------------------- */

/* How a launcher names a rank's numbers. NULL: it does not say. */
typedef struct names {
    tsri_launcher launcher;
    const char *rank, *nranks, *local_rank, *local_nranks;
    const char *sets; /* who sets both, for messages */
} names;

static const names all_names[] = {
    {TSRI_BY_RANK, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "`tessera launch` and torchrun set"},
    {TSRI_BY_OPEN_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun sets"},
    {TSRI_BY_PMI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpiexec sets"},
    {TSRI_BY_SLURM, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "srun sets"},
};
enum { NNAMES = sizeof all_names / sizeof *all_names };

static tsr_status read_local(const names *n, tsri_ident *id)
{
    bool has_rank, has_size = false;
    TSRI_TRY(tsri_env_int(n->local_rank, 0, INT_MAX, &has_rank, &id->local_rank));
    if (n->local_nranks)
        TSRI_TRY(tsri_env_int(n->local_nranks, 1, INT_MAX, &has_size, &id->local_nranks));
    if (has_size && !has_rank)
        return tsri_fail(TSR_ERR_INVALID, "%s is set, but %s is not: %s both", n->local_nranks,
                         n->local_rank, n->sets);
    if (has_size && id->local_rank >= id->local_nranks)
        return tsri_fail(TSR_ERR_INVALID, "%s is %d, but %s is %d", n->local_rank, id->local_rank,
                         n->local_nranks, id->local_nranks);
    if (has_size && id->local_nranks > id->nranks)
        return tsri_fail(TSR_ERR_INVALID, "%s is %d, but %s is only %d", n->local_nranks,
                         id->local_nranks, n->nranks, id->nranks);
    bool has_groups = false;
    int groups = 0;
    if (n->launcher == TSRI_BY_RANK)
        TSRI_TRY(tsri_env_int("GROUP_WORLD_SIZE", 1, INT_MAX, &has_groups, &groups));
    if (has_size && has_groups && groups == 1 && id->local_nranks != id->nranks)
        return tsri_fail(TSR_ERR_INVALID, "%s is %d, but %s is %d and GROUP_WORLD_SIZE is 1",
                         n->nranks, id->nranks, n->local_nranks, id->local_nranks);
    if (has_rank && id->local_rank >= id->nranks)
        return tsri_fail(TSR_ERR_INVALID, "%s is %d, but %s is only %d", n->local_rank,
                         id->local_rank, n->nranks, id->nranks);
    return TSR_OK;
}

/* Whether the launcher has set its variables, and what they say. */
static tsr_status read_names(const names *n, tsri_ident *id, bool *out_found)
{
    bool has_rank, has_size;
    *out_found = false;
    if (n->launcher == TSRI_BY_SLURM && !tsri_slurm_is_step())
        return TSR_OK;
    TSRI_TRY(tsri_env_int(n->rank, 0, INT_MAX, &has_rank, &id->rank));
    TSRI_TRY(tsri_env_int(n->nranks, 1, MOST_RANKS, &has_size, &id->nranks));
    if (has_size != has_rank)
        return tsri_fail(TSR_ERR_INVALID, "%s is set, but %s is not: %s both",
                         has_size ? n->nranks : n->rank, has_size ? n->rank : n->nranks, n->sets);
    if (!has_rank)
        return TSR_OK;
    if (id->rank >= id->nranks)
        return tsri_fail(TSR_ERR_INVALID, "%s is %d, but %s is %d", n->rank, id->rank, n->nranks,
                         id->nranks);
    TSRI_TRY(read_local(n, id));
    if (n->launcher == TSRI_BY_SLURM)
        id->local_nranks = tsri_slurm_local_nranks();
    id->by = n->rank;
    *out_found = true;
    return TSR_OK;
}

/* srun sets PMI's variables too, for MPI's sake; its own say more. They may also be of the step
 * that mpiexec has started its own processes with: then the numbers differ. */
static bool is_same_in_slurm(const tsri_ident *pmi)
{
    tsri_ident slurm = *pmi;
    bool found;
    tsr_status status = read_names(&all_names[NNAMES - 1], &slurm, &found);
    if (status != TSR_OK)
        tsri_error_clear();
    return status == TSR_OK && found && slurm.rank == pmi->rank && slurm.nranks == pmi->nranks;
}

/* The innermost launcher: mpirun or srun may start one launcher a node, which sets RANK. */
static tsr_status read_launcher(bool rank_alone, tsri_ident *id, tsri_launcher *out)
{
    const tsri_ident nobody = {.nranks = 1, .local_rank = -1};
    *out = TSRI_BY_NOBODY;
    for (int i = 0; i < (rank_alone ? 1 : NNAMES); i++) {
        bool found;
        *id = nobody;
        TSRI_TRY(read_names(&all_names[i], id, &found));
        if (!found || (all_names[i].launcher == TSRI_BY_PMI && is_same_in_slurm(id)))
            continue;
        *out = all_names[i].launcher;
        if (*out == TSRI_BY_RANK)
            id->arena = tsri_env("TESSERA_ARENA");
        return TSR_OK;
    }
    *id = nobody;
    id->arena = tsri_env("TESSERA_ARENA");
    return TSR_OK;
}

/* --- addresses -------------------------------------------------------------------------------- */

/* The part of an address behind its question mark. */
typedef struct query {
    int rank, nranks; /* -1: not said */
} query;

static tsr_status fail_method(const char *by, const char *url, const char *what)
{
    return tsri_fail(
        TSR_ERR_INVALID,
        "%s is '%.200s': %s; legal are env://, tcp://host:port?rank=R&world_size=W and "
        "file:///path?rank=R&world_size=W",
        by, url, what);
}

static tsr_status read_query(const char *by, const char *url, const char *text, query *out)
{
    *out = (query){-1, -1};
    while (text && *text) {
        char word[64];
        size_t n = strcspn(text, "&");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), text);
        bool is_rank = !strncmp(word, "rank=", 5), is_size = !strncmp(word, "world_size=", 11);
        if (!is_rank && !is_size)
            return fail_method(by, url, "behind '?' only rank= and world_size= are known");
        if (is_rank && !tsri_read_number(word + 5, 0, INT_MAX, &out->rank))
            return fail_method(by, url, "rank= is no number of a rank");
        if (is_size && !tsri_read_number(word + 11, 1, MOST_RANKS, &out->nranks))
            return fail_method(by, url, "world_size= is no number of ranks");
        text += n + (text[n] == '&');
    }
    return TSR_OK;
}

/* Rank and size: what the address says, and for what it leaves open the launcher. */
static tsr_status merge(const char *by, const char *url, const query *q, tsri_launcher *launcher,
                        tsri_ident *id)
{
    bool says_all = q->rank >= 0 && q->nranks >= 0;
    if (!says_all && *launcher == TSRI_BY_NOBODY)
        return fail_method(by, url,
                           "rank and world_size are neither there nor in RANK and "
                           "WORLD_SIZE or what else a launcher sets");
    int rank = q->rank >= 0 ? q->rank : id->rank, nranks = q->nranks >= 0 ? q->nranks : id->nranks;
    if (rank >= nranks)
        return tsri_fail(TSR_ERR_INVALID, "%s is '%.200s': rank %d of %d ranks", by, url, rank,
                         nranks);
    if (rank != id->rank || nranks != id->nranks || *launcher == TSRI_BY_NOBODY) {
        /* A launcher's variables are about other ranks. */
        *id = (tsri_ident){.rank = rank, .nranks = nranks, .local_rank = -1};
        *launcher = TSRI_BY_NOBODY;
    }
    id->by = by;
    return TSR_OK;
}

static tsr_status read_method(const char *by, const char *url, tsri_ident *out)
{
    const char *mark = strchr(url, '?');
    size_t n = mark ? (size_t)(mark - url) : strlen(url);
    bool is_env = n == 6 && !strncmp(url, "env://", 6);
    tsri_launcher launcher;
    query q;
    if (!is_env && strncmp(url, "tcp://", 6) != 0 && strncmp(url, "file://", 7) != 0)
        return fail_method(by, url, "that is no address");
    if (n >= sizeof out->url)
        return fail_method(by, url, "that is too long");
    TSRI_TRY(read_query(by, url, mark ? mark + 1 : NULL, &q));
    /* If the address says all, variables that make no sense are nobody's business. */
    tsr_status status = read_launcher(is_env, out, &launcher);
    if (status != TSR_OK && q.rank >= 0 && q.nranks >= 0) {
        tsri_error_clear();
        launcher = TSRI_BY_NOBODY;
    } else if (status != TSR_OK) {
        return status;
    }
    TSRI_TRY(merge(by, url, &q, &launcher, out));
    tsri_ident_job(launcher, out);
    if (is_env)
        return out->nranks > 1 ? tsri_ident_where(TSRI_BY_RANK, out) : TSR_OK;
    out->arena = NULL; /* the ranks are those that meet there */
    snprintf(out->url, sizeof out->url, "%.*s", (int)n, url);
    return TSR_OK;
}

tsr_status tsri_ident_read(const char *init_method, tsri_ident *out)
{
    tsri_launcher launcher;
    tsri_ident id;
    if (init_method && *init_method) {
        TSRI_TRY(read_method("init_method", init_method, &id));
    } else if (tsri_env("TESSERA_INIT_METHOD")) {
        TSRI_TRY(read_method("TESSERA_INIT_METHOD", tsri_env("TESSERA_INIT_METHOD"), &id));
    } else {
        TSRI_TRY(read_launcher(false, &id, &launcher));
        tsri_ident_job(launcher, &id);
        if (id.nranks > 1)
            TSRI_TRY(tsri_ident_where(launcher, &id));
    }
    *out = id;
    return TSR_OK;
}
