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
#include <sys/types.h>

/* Bytes of a temporary's name, its final NUL included. */
#define TSRI_NEW_FILE_NAME sizeof ".tessera-0123456789abcdef-0123456789abcdef"

typedef struct tsri_new_file {
    int fd;       /* -1: none */
    int error;    /* errno of the first write of the stream that failed */
    FILE *stream; /* of the descriptor; NULL: the descriptor itself is written to */
    char path[PATH_MAX], temporary[PATH_MAX]; /* temporary "": the path itself is written */
} tsri_new_file;

/* Makes a folder and those above it, as mkdir -p. Returns 0, or -errno of the first one that is
 * missing and can't be made. */
int tsri_make_folders(const char *path, mode_t mode);

/* Syncs a folder's entries, so that a new name survives a crash. Returns 0 also where the file
 * system can't do that; -errno where it tried and failed. */
int tsri_sync_folder(int fd);

/* 0, or -errno, with nothing to end. */
int tsri_new_file_open(tsri_new_file *f, const char *path);
/* Like tsri_new_file_open, with f->stream to write through. *f must stay where it is. */
int tsri_new_file_stream(tsri_new_file *f, const char *path);
/* Ends the writing: the file has its name, and its bytes are on the disk if `sync`. On an error,
 * also one of an earlier write to the stream, it is gone, and what had the name before is there as
 * it was. */
int tsri_new_file_keep(tsri_new_file *f, bool sync);
/* Ends the writing and removes what was written. Fine after keep, too. */
void tsri_new_file_drop(tsri_new_file *f);

#endif
