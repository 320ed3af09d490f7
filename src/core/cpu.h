/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors that loops are compiled for, several times over. */
#ifndef TESSERA_CORE_CPU_H
#define TESSERA_CORE_CPU_H

#if defined(__x86_64__) && defined(__GNUC__)
#define TSRI_CPU_X86 1
#endif

typedef enum tsri_cpu_isa {
    TSRI_CPU_BASE = 0, /* what the compiler takes for granted */
    TSRI_CPU_AVX2,     /* and FMA */
    TSRI_CPU_AVX512,   /* F, DQ, BW and VL */
} tsri_cpu_isa;

/* Returns the best of this machine, or TESSERA_CPU_ISA (avx512, avx2, base) if that is less. */
tsri_cpu_isa tsri_cpu_best(void);

#endif
