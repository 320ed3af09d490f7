/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two halves of CUDA's runtime: runtime.cc has devices and memory, streams.cc has
 * streams, events and graphs. */
#ifndef TESSERA_TESTS_CUDA_RUNTIME_H
#define TESSERA_TESTS_CUDA_RUNTIME_H

#include "tests/cuda/emulator/emulator.h"

/* --- runtime.cc ------------------------------------------------------------------------------- */
/* Keeps the error for cudaGetLastError, and returns it. */
cudaError_t tsri_emulated_fail(cudaError_t e);
/* Whether a variable names the current device, and a number after it. */
bool tsri_emulated_is_named(const char *variable, int number = 0);
int tsri_emulated_device(void); /* the calling thread's current device */
/* The result of a call that waits for work: an error while the test stalls it. */
cudaError_t tsri_emulated_waits(void);
bool tsri_emulated_is_stalled(void);
/* An error in a process that was forked after its parent had called CUDA. */
cudaError_t tsri_emulated_enter(void);
bool tsri_emulated_is_pinned(const void *p);

/* --- streams.cc ------------------------------------------------------------------------------- */
/* A call that no capture may contain: it fails, and ends the captures of the calling thread. */
cudaError_t tsri_emulated_unsafe(const char *call);
/* Does all work of a device's streams. */
void tsri_emulated_drain(int device);

#endif
