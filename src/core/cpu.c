/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/cpu.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

tsri_cpu_isa tsri_cpu_best(void)
{
#ifdef TSRI_CPU_X86
    const char *limit = getenv("TESSERA_CPU_ISA");
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (limit && !strcmp(limit, "base"))
        return TSRI_CPU_BASE;
    if (avx512 && !(limit && !strcmp(limit, "avx2")))
        return TSRI_CPU_AVX512;
    return avx2 ? TSRI_CPU_AVX2 : TSRI_CPU_BASE;
#else
    return TSRI_CPU_BASE;
#endif
}
