/* SPDX-License-Identifier: Apache-2.0 */
/* Linked behind the kernels: see shared_begin.cc. */
#include "tests/cuda/emulator/emulator.h"

alignas(64) thread_local char tsri_emulated_shared_end[64];
