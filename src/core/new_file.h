/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a file so that it exists as a whole or not at all. The bytes go to a temporary beside the
 * final path, under a random name that is no link, and keep renames it. A writer holds a lock on
 * its temporary, so that the next writer of the same path can remove the temporaries of killed
 * processes. A path that exists and is no regular file (a terminal, a pipe, /dev/null) is written
 * directly. Errors are -errno.
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
/* Like tsri_new_file_open, with f->stream to write through. */
int tsri_new_file_stream(tsri_new_file *f, const char *path);
/* Ends the writing: the file has its name, and its bytes are on the disk if `sync`. On an error it
 * is gone, and what had the name before is there as it was. */
int tsri_new_file_keep(tsri_new_file *f, bool sync);
/* Ends the writing and removes what was written. Fine after keep, too. */
void tsri_new_file_drop(tsri_new_file *f);

#endif
