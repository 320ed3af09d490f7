/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the library's modules: shared objects that hold what names a large foreign library, and
 * are loaded on first need. */
#ifndef TESSERA_CORE_LIBRARY_H
#define TESSERA_CORE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tsri_library {
    const char *file;     /* "libtessera_cuda.so" */
    const char *variable; /* of the environment: a path that is then the only one tried */
    /* Whether `entry`, the symbol `name` of what was loaded, serves this library. */
    const char *name;
    bool (*accept)(void *entry);
} tsri_library;

/*
 * Loads the module from the file that the variable names, else from beside this library (or the
 * program that it is linked into), else from where libraries were to be installed, else by the
 * loader's own search. It stays loaded while the process lives. On failure `why` says what was
 * tried and what is wrong with it.
 */
bool tsri_library_load(const tsri_library *library, char *why, size_t size);

#endif
