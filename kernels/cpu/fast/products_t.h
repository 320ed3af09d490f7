/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of matrix products, of f32 and of f64. Included once per instruction set; see vec.h. */
#include "kernels/cpu/fast/transpose_t.h"

/* Rows of a product's tile of 1, 2, 3 vectors: what the registers hold. */
#if VEC_ISA == 512
enum { ROWS1 = 8, ROWS2 = 8, ROWS3 = 8 };
#else
enum { ROWS1 = 8, ROWS2 = 6, ROWS3 = 4 };
#endif
/* Vectors that are summed before they join a sum in f64: no lane has many terms. */
enum { DOTS_BLOCK = 128, DOTS_COLUMNS = 4 };

#include "kernels/cpu/fast/of_f32.h"

#include "kernels/cpu/fast/dots_t.h"
#include "kernels/cpu/fast/gemm_t.h"
#include "kernels/cpu/fast/of_none.h"

#include "kernels/cpu/fast/of_f64.h"

#include "kernels/cpu/fast/dots_t.h"
#include "kernels/cpu/fast/gemm_t.h"
#include "kernels/cpu/fast/of_none.h"
