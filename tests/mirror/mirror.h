/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror: a kind of device that is neither a CPU nor CUDA's, and computes what a CPU does.
 *
 *   target.c           its row, in a table that takes the place of the library's in test programs
 *   module.c           the module, which the loader opens: libtessera_mirror.so
 *   kernels.c          the CPU's reference, queued
 *   deferred_device.c  memory, streams and events
 *
 * The module reads MIRROR_EAGER (the chance, in percent, of work that nobody waits for; 0),
 * MIRROR_SEED (1), MIRROR_BYTES (of each rank's device; 4 MiB), and MIRROR_FAULT, a fault that it
 * has: "wait" (streams do not wait for events) or "sync" (the host does not wait for streams).
 * MIRROR_FAULT=row gives the row an ability that the device does not have: host memory.
 */
#ifndef TESSERA_TESTS_MIRROR_H
#define TESSERA_TESTS_MIRROR_H

#include "src/target/target.h"

/* The place that the library's table leaves free. */
#define MIRROR ((tsr_device)(TSRI_DEVICES - 1))

#endif
