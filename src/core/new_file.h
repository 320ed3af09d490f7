/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is there as a whole or not at all: it is written beside the one that it becomes,
 * under a name that nobody can guess and that is no link. What processes that were killed have left
 * of a file is removed when it is written again: a writer holds a lock on its temporary, which ends
 * with it. A path that is there and is no regular file (a terminal, a pipe, /dev/null) is written
 * itself. Errors are -errno.
 */
#ifndef TSRI_CORE_NEW_FILE_H
#define TSRI_CORE_NEW_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct tsri_new_file {
    int fd;       /* -1: none */
    FILE *stream; /* of the descriptor; NULL: the descriptor itself is written to */
    char path[PATH_MAX], temporary[PATH_MAX]; /* temporary "": the path itself is written */
} tsri_new_file;

/* 0, or -errno, with nothing to end. */
int tsri_new_file_open(tsri_new_file *f, const char *path);
/* The same, to be written through f->stream. */
int tsri_new_file_stream(tsri_new_file *f, const char *path);
/* Ends the writing: the file has its name, and its bytes are on the disk if `sync`. On an error it
 * is gone, and what had the name before is there as it was. */
int tsri_new_file_keep(tsri_new_file *f, bool sync);
/* Ends the writing and removes what was written. Fine after keep, too. */
void tsri_new_file_drop(tsri_new_file *f);

#endif
