/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of this machine, and its start, as the kernel tells of them. */
#ifndef TESSERA_CORE_PROC_H
#define TESSERA_CORE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tsri_proc {
    char state; /* 'R', 'S', 'Z' ... */
    int parent;
    uint64_t start; /* clock ticks since boot */
} tsri_proc;

/* Reads /proc/PID/stat. False, and errno, if it can't; ESRCH: the process ends just now. */
bool tsri_proc_read(long long pid, tsri_proc *out);
/* The text that tells this start of the machine from all others; "" if there is none. */
void tsri_boot_id(char *buf, size_t size);

#endif
