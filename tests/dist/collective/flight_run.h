/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that call, the dumps that they leave in a folder, and what the command says of it. */
#ifndef TESTS_DIST_FLIGHT_RUN_H
#define TESTS_DIST_FLIGHT_RUN_H

#include "src/comm/comm.h"
#include "src/cli/flight/read.h"

extern const char *tessera; /* the command */
extern char folder[64];     /* TESSERA_FLIGHT_DIR, between the two below */

/* Of a test in cmocka. close fails if anything but dumps, or a hidden file, is left. */
int open_folder(void **state);
int close_folder(void **state);
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, open_folder, close_folder)

tsr_status group_of(tsr_world *w, int n, const int *ranks, tsri_group **out);
tsr_status all_ranks(tsr_world *w, tsri_group **out);
/* One call on n f32 at a fixed place of the arena; `what` is "grad", in "a/train.c". */
tsr_status call(tsr_world *w, tsri_group *g, tsri_coll_kind kind, int64_t n, int line);
tsr_status sum(tsr_world *w, tsri_group *g, int64_t n, int line);

/* The dump of a rank, which the test fails without. */
void read_report(const char *dir, int rank, tsri_flight_report *out);
/* The first line of `tessera flight` on the folder; *out_code: its exit code. */
const char *first_line(int *out_code);
/* Fails the test unless it starts so, and has that in it. */
void expect_first(const char *start, const char *part);

/* The name of a run, as long as a launcher's may be. */
#define LONGEST_RUN "a-run-whose-name-has-64-characters-as-the-launcher-allows-it.001"

#endif
