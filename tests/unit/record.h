/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_RECORD_H
#define TESTS_UNIT_RECORD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A program that compares lines with recorded ones, in their order. Its first word `--print` makes
 * it print them instead, as the file that records them; any other word prints them too, among what
 * the program itself then says.
 */

/* Tells what was recorded, and how the program was called. Returns whether lines are printed. */
bool record_start(const char *const *lines, size_t n, int argc, char **argv);
/* Compares the next line of at most 511 characters with the recorded one, or prints it. */
void record_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Fails with the first line of `is` that differs from `was`, the text recorded in `path`. */
void record_same(const char *path, const char *is, const char *was);
/* Compares a text with the whole of a file; where lines are recorded anew (`--print`), writes it.
 */
void record_text(const char *path, const char *text);
/* Returns the contents of a text file; the caller frees them. */
char *record_read(const char *path);
/* Asserts that no recorded line is left. */
void record_end(void);
/* A hash (tsri_hash) in eight digits. */
unsigned record_fold(uint64_t hash);
#endif
