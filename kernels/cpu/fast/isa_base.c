/* SPDX-License-Identifier: Apache-2.0 */
/* The templates for any machine. */
#include "kernels/cpu/fast/isa.h"

#define VEC_ISA 0
#define ISA_TABLE tsri_fast_isa_base
#define ISA_NAME "fast:base"

#include "kernels/cpu/fast/vec.h"

#include "kernels/cpu/fast/bn_t.h"
#include "kernels/cpu/fast/dw_t.h"
#include "kernels/cpu/fast/gemm_t.h"
#include "kernels/cpu/fast/ln_t.h"
#include "kernels/cpu/fast/map_t.h"
#include "kernels/cpu/fast/math_t.h"
#include "kernels/cpu/fast/reduce_t.h"
#include "kernels/cpu/fast/softmax_t.h"
#include "kernels/cpu/fast/walk_t.h"

#include "kernels/cpu/fast/isa_t.h"
