/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the heap of the programs that tests run, in builds without a sanitizer: a module that the
 * tests' environment preloads. It acts in programs of this build only (not in python, sh,
 * valgrind).
 *
 * Each block has bytes of a known value on both sides, which are compared when the block is freed
 * and at exit; freed blocks are kept for a while to see that nothing writes to them. A program that
 * breaks these rules is told so on stderr and aborted. At exit, blocks that no memory of the
 * process points to are leaks: the program lists them and ends with GUARD_LEAKS. New memory is
 * filled with a value that is neither zero nor small, whatever type it is read as.
 */
#ifndef TESSERA_TESTS_GUARD_GUARD_H
#define TESSERA_TESTS_GUARD_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GUARD_EDGE = 32, GUARD_LEAKS = 88 };

/* Stands right in front of the bytes that the program has; as many edge bytes follow these. */
typedef struct guard_block {
    struct guard_block *next, *prev;
    uintptr_t mark; /* says whether the block is live; made from the address */
    void *base;     /* from the C library */
    size_t bytes;   /* the program's */
    const void *caller, *freed_by;
    uint32_t reached; /* see guard_find_leaks */
    uint32_t is_root; /* never a leak */
    unsigned char edge[GUARD_EDGE];
} guard_block;

/* Writes a line to stderr. */
void guard_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes "object+offset (function)" for an address in code. */
const char *guard_name(const void *code, char *out, size_t bytes);

/* Returns how many blocks, of the list that starts at `live`, nothing points to, and with `list`
 * prints them. Blocks of libraries other than Tessera, its tests, the C library, libyaml, cJSON and
 * zlib are never leaks. `stack`: the deepest frame that counts on this thread's stack.
 * `all_stacks`: other threads may be alive or may have been left behind by fork; else what ended
 * threads left on their stacks keeps no block. */
size_t guard_find_leaks(guard_block *live, const void *stack, bool all_stacks, bool list);

#endif
