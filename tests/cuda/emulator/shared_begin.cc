/* SPDX-License-Identifier: Apache-2.0 */
/* Linked before the kernels, whose __shared__ arrays are the thread-local memory between this and
 * shared_end.cc's. */
#include "tests/cuda/emulator/emulator.h"

alignas(64) thread_local char tsri_emulated_shared_begin[64];
