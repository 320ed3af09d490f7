/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions and averages in plain C, and which loops are used. */
#define REDUCE_TABLE tsri_reduce_base
#include "src/comm/move/reduce_t.h"

#include <stdatomic.h>

tsri_reduce_fn *tsri_reduce_with(tsri_cpu_isa isa, tsr_dtype dtype, tsr_reduce_op op)
{
#ifdef TSRI_CPU_X86
    if (isa == TSRI_CPU_AVX512)
        return tsri_reduce_avx512[dtype][op];
    if (isa == TSRI_CPU_AVX2)
        return tsri_reduce_avx2[dtype][op];
#endif
    return tsri_reduce_base[dtype][op];
}

tsri_reduce_fn *tsri_reduce_of(tsr_dtype dtype, tsr_reduce_op op)
{
    static _Atomic int best = -1;
    int isa = atomic_load_explicit(&best, memory_order_relaxed);
    if (isa < 0) {
        isa = (int)tsri_cpu_best();
        atomic_store_explicit(&best, isa, memory_order_relaxed);
    }
    return tsri_reduce_with((tsri_cpu_isa)isa, dtype, op);
}

#define SCALE(T)                               \
    do {                                       \
        const T part_ = (T)1 / (T)nranks;      \
        for (int64_t i_ = 0; i_ < count; i_++) \
            ((T *)data)[i_] *= part_;          \
    } while (0)

void tsri_scale_by_ranks(tsr_dtype dtype, int nranks, int64_t count, void *data)
{
    uint16_t *h = data;
    const float part = 1 / (float)nranks;
    if (dtype == TSR_F32)
        SCALE(float);
    else if (dtype == TSR_F64)
        SCALE(double);
    else if (dtype == TSR_F16)
        for (int64_t i = 0; i < count; i++)
            h[i] = narrow_f16(widen_f16(h[i]) * part);
    else if (dtype == TSR_BF16)
        for (int64_t i = 0; i < count; i++)
            h[i] = narrow_bf16(widen_bf16(h[i]) * part);
}
