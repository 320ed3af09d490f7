/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of reductions by instructions; reduce_t.h has them. All give the same bits. */
#ifndef TESSERA_COMM_MOVE_REDUCE_H
#define TESSERA_COMM_MOVE_REDUCE_H

#include "src/comm/move/move.h"

typedef tsri_reduce_fn *const tsri_reduce_table[TSR_DTYPE_COUNT_][5];

extern const tsri_reduce_table tsri_reduce_base;
#ifdef TSRI_CPU_X86
extern const tsri_reduce_table tsri_reduce_avx2, tsri_reduce_avx512;
#endif

#endif
