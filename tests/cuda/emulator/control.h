/* SPDX-License-Identifier: Apache-2.0 */
/* What tests make the emulator do: found in the emulated module by dlsym. */
#ifndef TESSERA_TESTS_CUDA_CONTROL_H
#define TESSERA_TESTS_CUDA_CONTROL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* on: from now on, no stream and no event that was recorded is ever done, for whoever asks, though
 * all work is. Calls that would wait for it fail instead, and are counted. Returns how many have
 * been since the last call. */
int tsri_emulated_stall(int on);
typedef int tsri_emulated_stall_fn(int on);

/* Another order of work, as EMULATED_SEED gives it, in threads that have not used the emulator yet.
 */
void tsri_emulated_reseed(unsigned seed);
typedef void tsri_emulated_reseed_fn(unsigned seed);

/* As a host program does it: the calling thread's device is this one from now on. Returns the one
 * before. */
int tsri_emulated_choose(int device);
typedef int tsri_emulated_choose_fn(int device);

/* Memory of the host becomes pinned, as by cudaHostRegister; bytes 0: it is no more. */
void tsri_emulated_pin(void *p, size_t bytes);
typedef void tsri_emulated_pin_fn(void *p, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
