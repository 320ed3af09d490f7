/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's team of threads. Beside other busy programs threads wait for a core, and for each other,
 * longer than they work. Where calls took longer than this rank's own thread alone would have
 * needed, it does all parts for a while, and tries the team again later. Parts are the same, so
 * results have the same bits.
 */
#ifndef TESSERA_KERNELS_CPU_TEAM_TEAM_H
#define TESSERA_KERNELS_CPU_TEAM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

/* Calls fn for each part, by as many threads as OpenMP gives; returns when all have ended. */
void tsri_team(int parts, void (*fn)(void *arg, int part), void *arg);
/* Calls fn so, always by the team: for parts that run kernels of any kind, which begin teams of
 * their own where they are not inside one. */
void tsri_whole_team(int parts, void (*fn)(void *arg, int part), void *arg);
/* Does so for each of `steps`, in turn; meet: no part begins a step before all have ended the one
 * before. */
void tsri_team_steps(int parts, int64_t steps, bool meet,
                     void (*fn)(void *arg, int part, int64_t step), void *arg);
/* How the team of a thread has done. In all calls of a window: how long they took, and how long the
 * thread would have needed for all parts. */
typedef struct tsri_team_record {
    int alone; /* calls that are still done without the team */
    int next;  /* so many the next time */
    int calls, helped;
    int64_t took, needs;
} tsri_team_record;

/* A call: how long it took, and those threads that had parts: how many, how long all worked, and
 * the one that worked least. */
typedef struct tsri_team_call {
    int64_t took, sum, least;
    int threads;
} tsri_team_call;

/* Returns the calling thread's record. */
tsri_team_record *tsri_team_mine(void);
/* Takes a call into account; at the end of a window, decides. */
void tsri_team_judge(tsri_team_record *r, const tsri_team_call *c);

#endif
