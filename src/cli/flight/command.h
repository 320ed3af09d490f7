/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera flight`. */
#ifndef TESSERA_CLI_FLIGHT_COMMAND_H
#define TESSERA_CLI_FLIGHT_COMMAND_H

#include "src/cli/flight/read.h"

typedef struct flight_args {
    bool json;
    int64_t rank, last; /* rank -1: those concerned */
} flight_args;

/* A file that is not used, and why. */
typedef struct flight_aside {
    char *name, *why;
    bool broken; /* not just of another run */
} flight_aside;

typedef struct flight_folder {
    tsri_flight_report *reports; /* by rank */
    int n;
    flight_aside *aside;
    int naside;
    tsri_flight_verdict verdict;
} flight_folder;

/* folder.c: reads the dumps of a folder, keeps those of its latest run, and judges them.
 * Errors: TSR_ERR_IO (no folder, or no dump in it), TSR_ERR_FORMAT (none that can be read),
 * TSR_ERR_NO_MEMORY. */
tsr_status flight_folder_read(const char *dir, flight_folder *out_folder);
void flight_folder_finish(flight_folder *f);
/* Whether the verdict names the rank. */
bool flight_is_guilty(const flight_folder *f, int rank);
/* The ranks whose calls are shown: the guilty, then others that have not finished, at most `most`;
 * or just `rank`. Indices of reports; returns their number. */
int flight_folder_concerned(const flight_folder *f, int64_t rank, int most, int *out_reports);

#endif
