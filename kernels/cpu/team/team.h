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
/* Lets this thread do so many calls without the team, from now on. */
void tsri_team_rest(int calls);

#endif
