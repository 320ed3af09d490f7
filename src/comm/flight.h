/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: each rank's last calls, in the arena, so that they can be read when the rank
 * is gone. Always on. Written by the communicators; a rank's two threads may write at once. Shared
 * with the launcher, which dumps what a dead rank has left: flight_dump.c needs no library.
 */
#ifndef TESSERA_COMM_FLIGHT_H
#define TESSERA_COMM_FLIGHT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { TSRI_FLIGHT_CALLS = 2000 };

typedef enum tsri_flight_state {
    TSRI_FLIGHT_EMPTY = 0,
    TSRI_FLIGHT_SCHEDULED, /* asked for, behind others of its group */
    TSRI_FLIGHT_STARTED,   /* this rank has come to it */
    TSRI_FLIGHT_COMPLETED,
    TSRI_FLIGHT_FAILED,
} tsri_flight_state;

typedef struct tsri_flight_entry {
    _Atomic uint64_t number; /* of this rank's calls, from 1; 0 while it is written */
    _Atomic int32_t state;
    int32_t kind, op, root, dtype, line;
    uint64_t seq;           /* in its group */
    uint64_t group;         /* a hash of the list of ranks and the lane */
    int32_t nranks, ranks[8]; /* the group's first ones */
    uint64_t count, bytes;
    int64_t asked_ns, started_ns, ended_ns; /* CLOCK_REALTIME, 0: not yet */
    char what[64], file[48];
} tsri_flight_entry;

typedef struct tsri_flight {
    _Atomic uint64_t calls;
    tsri_flight_entry entry[TSRI_FLIGHT_CALLS];
} tsri_flight;

#endif
