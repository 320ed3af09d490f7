/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of communication between the ranks of a world on the machine that it runs on. */
#ifndef TESSERA_COMM_WORLD_MEASURE_H
#define TESSERA_COMM_WORLD_MEASURE_H

#include "src/core/world.h"

/*
 * latency_s:         of a call that moves next to nothing and that all ranks wait for
 * bytes_per_s:       that one rank reads from a peer while all others do as well
 * local_bytes_per_s: read plus written in a copy within a rank's own memory, likewise
 *
 * Each is the best of some attempts by the slowest rank, the same on all ranks. In a world of one,
 * bytes_per_s is that of a copy. Takes about 0.1 s, longer where ranks share cores, and up to 16
 * MiB of the rank's arena meanwhile. Collective over the world. Errors: TSR_ERR_STATE (a virtual
 * world), TSR_ERR_NO_MEMORY (a rank has less than 128 KiB of its arena free), those of
 * communication.
 */
tsr_status tsri_comm_measure(tsr_world *world, double *out_latency_s, double *out_bytes_per_s,
                             double *out_local_bytes_per_s);

#endif
