/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps of the flight recorder, read again (read.c; src/comm/local/dump.c has the form), and the
 * question who is behind (judge.c). `tessera flight` is the face of both.
 */
#ifndef TESSERA_CLI_FLIGHT_READ_H
#define TESSERA_CLI_FLIGHT_READ_H

#include "src/core/status.h"
#include "src/comm/flight/flight.h"

#include <stdbool.h>

/* --- a file ----------------------------------------------------------------------------------- */
typedef struct tsri_flight_read_group {
    int number, lane, nranks, listed; /* listed: of ranks[], at most nranks */
    int *ranks;
    uint64_t started, completed;
    char comm[16];
    int gang; /* of the judge: the same on all ranks */
} tsri_flight_read_group;

typedef struct tsri_flight_read_call {
    uint64_t number;
    tsri_flight_state state;
    int group; /* index of report.groups; -1: not known */
    int waits; /* a world rank; -1: none */
    bool waited;
    int64_t started_ns, ended_ns;
    char at[64]; /* "train.c:31", or "" */
    tsri_flight_call said;
} tsri_flight_read_call;

typedef struct tsri_flight_report {
    char run[TSRI_FLIGHT_RUN], host[65], *reason; /* reason NULL: none */
    int rank, nranks, world, restart, pid;
    int64_t time_ns;
    tsri_flight_exit exit;
    int exit_status;
    uint64_t calls;
    int ngroups, ncalls;
    tsri_flight_read_group *groups;
    tsri_flight_read_call *call; /* by number */
} tsri_flight_report;

/* text: `size` bytes of the file `name`. Errors: TSR_ERR_FORMAT "name:line: ...",
 * TSR_ERR_NO_MEMORY.
 */
tsr_status tsri_flight_parse(const char *name, const char *text, size_t size,
                             tsri_flight_report *out_report);
void tsri_flight_report_finish(tsri_flight_report *report);

/* --- all of them ------------------------------------------------------------------------------ */
typedef enum tsri_flight_fault {
    TSRI_FLIGHT_NOBODY = 0, /* no rank is behind */
    TSRI_FLIGHT_DISAGREE,   /* two ranks came to different calls */
    TSRI_FLIGHT_DIED,       /* others waited for a rank whose process ended */
    TSRI_FLIGHT_BEHIND,     /* others waited for a rank that did not come, or did not finish */
    TSRI_FLIGHT_CIRCLE,     /* ranks wait for each other */
    TSRI_FLIGHT_GAVE_UP,    /* nobody waited for it, but it failed */
} tsri_flight_fault;

/* A member of a group. */
typedef struct tsri_flight_member {
    int rank, report;                  /* index of reports; -1: there is none */
    uint64_t started, completed;       /* call numbers; 0: none */
    const tsri_flight_read_call *last; /* the last that it has come to; NULL: none, or not kept */
} tsri_flight_member;

/* A group, as all its members see it. */
typedef struct tsri_flight_gang {
    const tsri_flight_read_group *of; /* in some report */
    tsri_flight_member *members;      /* as listed */
    bool stuck;                       /* some member has not completed what another has come to */
} tsri_flight_gang;

typedef struct tsri_flight_verdict {
    tsri_flight_fault fault;
    char *text; /* one line */
    int nguilty, *guilty;
    int nmissing, *missing; /* ranks without a report */
    int ngangs;
    tsri_flight_gang *gangs;
} tsri_flight_verdict;

/* Replaces control characters. */
char *tsri_flight_plain(char *text);
/* Judges reports of one run (borrowed; their `gang`s are set), at most one of a rank. Errors:
 * TSR_ERR_NO_MEMORY. */
tsr_status tsri_flight_judge(tsri_flight_report *reports, int n, tsri_flight_verdict *out_verdict);
void tsri_flight_verdict_finish(tsri_flight_verdict *verdict);

/* Both without control characters, whatever a program calls its calls.
 * "all_reduce #17 'grad' (train.c:31)"; with_group: "... of group [0,1,2] ..." */
char *tsri_flight_call_text(const tsri_flight_report *r, const tsri_flight_read_call *c,
                            bool with_group, char *buf, size_t size);
/* "[0,1,2]", and "lane 1 of local.3" where that says more than lane 0 of "local". */
char *tsri_flight_group_text(const tsri_flight_read_group *g, char *buf, size_t size);

#endif
