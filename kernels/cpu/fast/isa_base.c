/* SPDX-License-Identifier: Apache-2.0 */
/* The templates for any machine. */
#include "kernels/cpu/fast/isa.h"

#define VEC_ISA 0
#define ISA_TABLE tsri_fast_isa_base
#define ISA_NAME "fast:base"

#include "kernels/cpu/fast/isa_t.h"
