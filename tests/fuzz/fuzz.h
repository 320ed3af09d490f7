/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz targets: one file each, with the entry point that libFuzzer calls. An input is bad news if
 * it crashes, hangs, exhausts memory, trips a sanitizer, or breaks a property (FUZZ_MUST). Each
 * target links with libFuzzer (meson option `fuzz`, scripts/fuzz), or with replay.c, which runs the
 * inputs of tests/fuzz/corpus/TARGET: those are the regression tests.
 */
#ifndef TESSERA_TESTS_FUZZ_H
#define TESSERA_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/status.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A target may have a mutator of its own, which replay.c runs, too. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

#define FUZZ_MUST(condition, ...)                                           \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fprintf(stderr, "\nlast error: %s\n", tsr_last_error());        \
            abort();                                                        \
        }                                                                   \
    } while (0)

/* An error leaves a text, success of what must succeed leaves none of its own. */
#define FUZZ_MUST_TELL(status)                                                 \
    FUZZ_MUST((status) == TSR_OK || (tsr_last_error() && tsr_last_error()[0]), \
              "status %d without a text", (int)(status))

#endif
