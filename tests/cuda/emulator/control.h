/* SPDX-License-Identifier: Apache-2.0 */
/* What tests make the emulator do: found in the emulated module by dlsym. */
#ifndef TESSERA_TESTS_CUDA_CONTROL_H
#define TESSERA_TESTS_CUDA_CONTROL_H

#ifdef __cplusplus
extern "C" {
#endif

/* on: from now on, no stream and no event that was recorded is ever done, for whoever asks, though
 * all work is. Calls that would wait for it fail instead, and are counted. Returns how many have
 * been since the last call. */
int tsri_emulated_stall(int on);
typedef int tsri_emulated_stall_fn(int on);

#ifdef __cplusplus
}
#endif
#endif
