/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of reductions for AVX-512. */
#include "src/comm/move/reduce.h"

#ifdef TSRI_CPU_X86
#include <string.h>

/* After the system's headers: only what follows may use these instructions. */
#ifdef __clang__
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif

#define REDUCE_TABLE tsri_reduce_avx512
#include "src/comm/move/reduce_t.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
