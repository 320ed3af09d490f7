/* SPDX-License-Identifier: Apache-2.0 */
/* The templates for AVX-512. */
#include "kernels/cpu/fast/isa.h"

#ifdef TSRI_FAST_X86
#include <immintrin.h>

/* After the system's headers: only what follows may use these instructions. */
#ifdef __clang__
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif

#define VEC_ISA 512
#define ISA_TABLE tsri_fast_isa_avx512
#define ISA_NAME "fast:avx512"

#include "kernels/cpu/fast/isa_t.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
