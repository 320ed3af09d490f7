/* SPDX-License-Identifier: Apache-2.0 */
/* Words on stderr while a command works: a line that is written over, on a terminal alone. */
#ifndef TESSERA_CLI_PLAN_PROGRESS_H
#define TESSERA_CLI_PLAN_PROGRESS_H

/* Shows what is done, for how many seconds so far; to be called often. Nothing in the first two. */
void cli_progress_show(const char *what, double seconds);
/* Removes the line. */
void cli_progress_clear(void);

/* Shows `what`, which must live on, each second until cli_progress_end, by a timer's signal. */
void cli_progress_begin(const char *what);
void cli_progress_end(void);

#endif
