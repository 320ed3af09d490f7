/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a run meet, and what tells this run from others. */
#include "src/comm/world/ident.h"
#include "src/comm/store/store.h"
#include "src/core/proc.h"
#include "src/core/status.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_PORT = 15000, NPORTS = 16000 }; /* below those that systems give out by themselves */

/* --- runs ------------------------------------------------------------------------------------- */

static const char *first_of(const char *a, const char *b)
{
    const char *text = tsri_env(a);
    return text ? text : tsri_env(b);
}

void tsri_ident_job(tsri_launcher launcher, tsri_ident *id)
{
    const char *run = first_of("TESSERA_RUN_ID", "TORCHELASTIC_RUN_ID");
    const char *attempt = first_of("TESSERA_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT");
    const char *step = NULL;
    if (launcher == TSRI_BY_OPEN_MPI) {
        run = first_of("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid");
        attempt = NULL;
    } else if (launcher == TSRI_BY_SLURM) {
        run = first_of("SLURM_JOB_ID", "SLURM_JOBID");
        step = tsri_env("SLURM_STEP_ID");
        attempt = tsri_env("SLURM_RESTART_COUNT");
    } else if (launcher == TSRI_BY_PMI) {
        run = attempt = NULL;
    }
    snprintf(id->job, sizeof id->job, "%.80s%s%.16s%s%.16s", run ? run : "", step ? "." : "",
             step ? step : "", attempt ? "/" : "", attempt ? attempt : "");
}

/* --- addresses -------------------------------------------------------------------------------- */

static bool is_true(const char *text)
{
    return text && (!strcasecmp(text, "true") || !strcmp(text, "1"));
}

static void set_tcp(tsri_ident *id, const char *host, int port)
{
    bool is_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(id->url, sizeof id->url, "tcp://%s%.256s%s:%d", is_v6 ? "[" : "", host,
             is_v6 ? "]" : "", port);
}

/* srun on several nodes: its first task is on the first of them. */
static tsr_status by_slurm(tsri_ident *id)
{
    char host[256] = "";
    const char *list = first_of("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    if (list)
        tsri_slurm_first_host(list, host, sizeof host);
    if (!host[0] && tsri_env("SLURM_LAUNCH_NODE_IPADDR"))
        snprintf(host, sizeof host, "%.255s", tsri_env("SLURM_LAUNCH_NODE_IPADDR"));
    const char *job = first_of("SLURM_JOB_ID", "SLURM_JOBID"), *step = tsri_env("SLURM_STEP_ID");
    if (!host[0] || !job)
        return tsri_fail(TSR_ERR_INVALID,
                         "srun has set neither SLURM_STEP_NODELIST nor SLURM_LAUNCH_NODE_IPADDR, "
                         "or no SLURM_JOB_ID: set MASTER_ADDR and MASTER_PORT to where rank 0 of "
                         "%d runs",
                         id->nranks);
    unsigned long n = strtoul(job, NULL, 10) * 101 + strtoul(step ? step : "0", NULL, 10);
    set_tcp(id, host, FIRST_PORT + (int)(n % NPORTS));
    return TSR_OK;
}

/* --- one machine: a file that only this user sees --------------------------------------------- */

/* Whether process `pid` has the variable: is a rank, or has been started by one. */
static bool has_variable(int pid, const char *name)
{
    char path[32], *text = NULL;
    size_t room = 0, length = strlen(name);
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && getdelim(&text, &room, 0, f) > 0)
        found = !strncmp(text, name, length) && text[length] == '=';
    free(text);
    fclose(f);
    return found;
}

/* The process that has started the ranks: the nearest one above that is not a rank itself. */
static void name_starter(const char *by, char *buf, size_t size)
{
    int pid = (int)getpid();
    tsri_proc p = {0};
    for (int i = 0; i < 64 && tsri_proc_read(pid, &p); i++) {
        if (pid != (int)getpid() && !has_variable(pid, by))
            break;
        if (p.parent < 1)
            break;
        pid = p.parent;
    }
    snprintf(buf, size, "%d-%llu", pid, (unsigned long long)p.start);
}

bool tsri_is_private(const char *folder)
{
    struct stat st;
    return folder && folder[0] == '/' && lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

/* `more`: what else tells runs of one starter apart, torchrun's port; 0: nothing, the job's name
 * does. */
static tsr_status by_file(tsri_ident *id, int more)
{
    char name[160], starter[64];
    const char *base = tsri_env("XDG_RUNTIME_DIR");
    if (!tsri_is_private(base) || strlen(base) > 64)
        base = "/tmp";
    snprintf(name, sizeof name, "%.80s", id->job);
    if (!name[0] || more) {
        size_t used = strlen(name);
        name_starter(more ? "RANK" : id->by, starter, sizeof starter);
        snprintf(name + used, sizeof name - used, "%s%s", used ? "-" : "", starter);
        used = strlen(name);
        if (more)
            snprintf(name + used, sizeof name - used, "-%d", more);
    }
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            *p = '-';
    snprintf(id->folder, sizeof id->folder, "%s/tessera-%u-%s", base, (unsigned)geteuid(), name);
    snprintf(id->url, sizeof id->url, "file://%s/store", id->folder);
    return TSR_OK;
}

/* --- the choice ------------------------------------------------------------------------------- */

/* By the variables that say it, if they are set. */
static tsr_status by_master(tsri_launcher launcher, tsri_ident *id, bool *out_found)
{
    const char *addr = tsri_env("MASTER_ADDR");
    bool has_port;
    int port = 0;
    TSRI_TRY(tsri_env_int("MASTER_PORT", 1, 65535, &has_port, &port));
    *out_found = addr && has_port;
    if ((addr != NULL) != has_port)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s is set, but %s is not: together they say where the %d ranks (%s) meet",
                         addr ? "MASTER_ADDR" : "MASTER_PORT", addr ? "MASTER_PORT" : "MASTER_ADDR",
                         id->nranks, launcher == TSRI_BY_RANK ? "WORLD_SIZE" : id->by);
    if (!addr)
        return TSR_OK;
    TSRI_TRY(tsri_store_env_hosted(&id->hosted));
    /* torchrun's own store, which speaks PyTorch's language, is at that port. The next one may be
     * anybody's; on one machine none is needed. */
    if (!id->hosted && is_true(tsri_env("TORCHELASTIC_USE_AGENT_STORE"))) {
        if (launcher == TSRI_BY_RANK && id->local_nranks == id->nranks)
            return by_file(id, port);
        port = port < 65535 ? port + 1 : port - 1;
    }
    set_tcp(id, addr, port);
    return TSR_OK;
}

static tsr_status fail_nowhere(tsri_launcher launcher, const tsri_ident *id)
{
    if (launcher == TSRI_BY_RANK)
        return tsri_fail(TSR_ERR_INVALID,
                         "WORLD_SIZE is %d, but nothing says where the ranks meet: start the "
                         "program with `tessera launch -n %d`, or set MASTER_ADDR and MASTER_PORT, "
                         "or TESSERA_INIT_METHOD",
                         id->nranks, id->nranks);
    const char *how = launcher == TSRI_BY_OPEN_MPI
                          ? "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT"
                          : "MASTER_ADDR=HOST MASTER_PORT=PORT";
    const char *where = id->local_nranks ? "are not all on one machine"
                                         : "may be on several machines (the launcher does not say)";
    return tsri_fail(TSR_ERR_INVALID,
                     "the %d ranks by %s %s, and MASTER_ADDR and MASTER_PORT are not set: export "
                     "the address of rank 0's machine and a free port of it to all (%s)",
                     id->nranks, id->by, where, how);
}

tsr_status tsri_ident_where(tsri_launcher launcher, tsri_ident *id)
{
    bool found;
    if (id->arena && (!id->local_nranks || id->local_nranks == id->nranks)) {
        id->local_nranks = id->nranks;
        id->local_rank = id->local_rank < 0 ? id->rank : id->local_rank;
        return TSR_OK;
    }
    TSRI_TRY(by_master(launcher, id, &found));
    if (found)
        return TSR_OK;
    if (launcher == TSRI_BY_RANK)
        return fail_nowhere(launcher, id);
    if (id->local_nranks == id->nranks)
        return by_file(id, 0);
    if (launcher == TSRI_BY_SLURM)
        return by_slurm(id);
    return fail_nowhere(launcher, id);
}
