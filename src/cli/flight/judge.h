/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the judge: judge.c finds out, text.c says it. */
#ifndef TESSERA_CLI_FLIGHT_JUDGE_H
#define TESSERA_CLI_FLIGHT_JUDGE_H

#include "src/cli/flight/read.h"

#include <stdio.h>

/* A call of the last world that a rank has come to, or failed to start. */
typedef struct tsri_flight_ref {
    int gang, report;
    const tsri_flight_read_call *call;
} tsri_flight_ref;

/* A rank waits, in a call, for another to come to it, or to finish it. */
typedef struct tsri_flight_wait {
    int from, to; /* a report; a world rank */
    const tsri_flight_read_call *call;
    int gang;
} tsri_flight_wait;

typedef struct tsri_flight_court {
    tsri_flight_report *reports;
    int n, nranks, world;
    int *report_of; /* by rank; -1: none */
    tsri_flight_gang *gangs;
    int ngangs;
    tsri_flight_ref *refs; /* by gang, number in it, report and number of the report */
    int nrefs;
    tsri_flight_wait *waits;
    int nwaits, cwaits;
    bool *waiting; /* by report: it waits for some rank */
    bool *guilty;  /* by rank */
} tsri_flight_court;

/* judge.c */
/* Whether the rank's process has ended. */
bool tsri_flight_has_ended(const tsri_flight_report *r);
/* Whether the rank has come to the call (and its record says so). */
bool tsri_flight_has_come(const tsri_flight_read_call *c);
/* Whether ranks that are at a and b mean the same call. */
bool tsri_flight_same(const tsri_flight_read_call *a, const tsri_flight_read_call *b);
/* How far a member of a gang has come; NULL: the rank is no member, or has no report. */
const tsri_flight_member *tsri_flight_member_of(const tsri_flight_court *c, int gang, int rank);
/* A report's own record of call `seq` of a gang; NULL: it has none, or it is not kept. */
const tsri_flight_read_call *tsri_flight_find(const tsri_flight_court *c, int gang, uint64_t seq,
                                              int report);

/* text.c: each writes a part of the verdict's line. */
/* "rank 1", "ranks 0, 2 and 5"; of many the first 12, and how many more: ranks needs 13 then. */
void tsri_flight_say_ranks(FILE *out, int n, const int *ranks);
/* refs [first, end) are of one call and differ. */
void tsri_flight_say_disagreement(FILE *out, const tsri_flight_court *c, int first, int end);
/* The guilty are those whom others wait for and who wait for nobody. */
void tsri_flight_say_behind(FILE *out, const tsri_flight_court *c);
/* n waits, each for the rank of the next, the last for that of the first. */
void tsri_flight_say_circle(FILE *out, const tsri_flight_court *c, int n,
                            const tsri_flight_wait *const *waits);
/* A rank that failed, for which nobody waited. */
void tsri_flight_say_failure(FILE *out, const tsri_flight_court *c, int report);
void tsri_flight_say_nobody(FILE *out, const tsri_flight_court *c);

#endif
