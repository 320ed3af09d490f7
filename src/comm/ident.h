/* SPDX-License-Identifier: Apache-2.0 */
/* Who this process is, from what a launcher has set: `tessera launch`, torchrun, mpirun (Open MPI,
 * MPICH), srun; and where its run meets. */
#ifndef TESSERA_COMM_IDENT_H
#define TESSERA_COMM_IDENT_H

#include <tessera/status.h>

typedef struct tsri_ident {
    int rank, nranks;
    int local_rank, local_nranks; /* 0 of 0: not said */
    const char *by;               /* the variable that gave the rank, for messages; NULL: none */
    char url[512];                /* of the store, without rank and size; "": none is needed */
    bool hosted;                  /* the launcher serves it */
    char job[128];                /* what tells this run, and this attempt at it, from others */
} tsri_ident;

/* init_method NULL: TESSERA_INIT_METHOD, else by the launcher. Errors: TSR_ERR_INVALID naming the
 * variables. */
tsr_status tsri_ident_read(const char *init_method, tsri_ident *out);

#endif
