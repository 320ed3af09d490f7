/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of this process, from the variables of a launcher: `tessera launch`, torchrun,
 * mpirun (Open MPI, MPICH), srun; and where its run meets. */
#ifndef TESSERA_COMM_WORLD_IDENT_H
#define TESSERA_COMM_WORLD_IDENT_H

#include <tessera/status.h>

typedef struct tsri_ident {
    int rank, nranks;
    int local_rank, local_nranks; /* among this machine's; -1 and 0: not said */
    const char *by;               /* the variable that gave the rank, for messages; NULL: none */
    const char *arena;            /* the launcher's shared memory, of local_nranks; NULL: none */
    char url[512];                /* of the store, without rank and size; "": none is needed */
    char folder[256]; /* this run's own, which url lies in: to be made, and removed; "": none */
    bool hosted;      /* the launcher serves it */
    char job[128];    /* what tells this run, and this attempt at it, from others */
} tsri_ident;

/*
 * init_method NULL or "": TESSERA_INIT_METHOD, else by the launcher. One rank if nothing says more.
 * Touches no file. Errors: TSR_ERR_INVALID naming the variables.
 */
tsr_status tsri_ident_read(const char *init_method, tsri_ident *out);

/* --- the parts: ident_where.c, ident_slurm.c -------------------------------------------------- */

typedef enum tsri_launcher {
    TSRI_BY_NOBODY = 0,
    TSRI_BY_RANK, /* RANK and WORLD_SIZE: `tessera launch`, torchrun, or by hand */
    TSRI_BY_OPEN_MPI,
    TSRI_BY_PMI,
    TSRI_BY_SLURM,
} tsri_launcher;

/* env.c. Whether text is a whole number in [least, most]. */
bool tsri_read_number(const char *text, int least, int most, int *out_value);
/* The variable's text; NULL if it is not set, or empty. */
const char *tsri_env(const char *name);
/* TSR_ERR_INVALID unless the variable is a whole number in [least, most], or is not set. */
tsr_status tsri_env_int(const char *name, int least, int most, bool *out_set, int *out_value);

/* Fills url, folder and hosted of a run of several ranks, whose numbers are known. */
tsr_status tsri_ident_where(tsri_launcher launcher, tsri_ident *id);
/* Fills job. */
void tsri_ident_job(tsri_launcher launcher, tsri_ident *id);

/* Whether it is a folder that this user has, and nobody else can look into. */
bool tsri_is_private(const char *folder);

/* Whether this process is a task of an srun (sbatch, salloc's shell and the like are none). */
bool tsri_slurm_is_step(void);
/* Tasks on this node; 0: not said. */
int tsri_slurm_local_nranks(void);
/* The first name of a list like "node[03-12,20],other"; "" if it makes no sense. */
void tsri_slurm_first_host(const char *list, char *buf, size_t size);

#endif
