/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text for people, with text of others in it (names, paths, values of files): formats as printf
 * does, but each string that is inserted is shown with escapes in place of all that a terminal acts
 * on, or that looks like other text:
 *
 *   ends of lines, tabs, carriage returns                            \n \t \r
 *   other control characters, bytes that are no UTF-8                \x1b
 *   C1 controls, separators of lines, marks that change the direction  \u202e
 *
 * The format itself is ours, and stays as it is. Errors, logs and the command's output all go this
 * way.
 */
#ifndef TSRI_CORE_SHOWN_H
#define TSRI_CORE_SHOWN_H

#include <tessera/base.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Sequences that set a terminal's style: a string that is one of these very arrays is inserted as
 * it is. */
typedef enum tsri_style {
    TSRI_STYLE_BOLD = 0,
    TSRI_STYLE_DIM,
    TSRI_STYLE_RED,
    TSRI_STYLE_GREEN,
    TSRI_STYLE_PLAIN,
    TSRI_STYLE_COUNT_
} tsri_style;
extern const char tsri_style_text[TSRI_STYLE_COUNT_][8];

/* As vsnprintf. %n and positions are not known. */
int tsri_show(char *buf, size_t size, const char *fmt, va_list ap);
int tsri_snshow(char *buf, size_t size, const char *fmt, ...) TSR_PRINTF(3, 4);
/* Likewise, but an inserted string keeps tabs, and ends of lines that a blank follows: messages
 * that are inserted into others may have several lines, of which only the first begins at the left.
 */
int tsri_show_lines(char *buf, size_t size, const char *fmt, va_list ap);
/* As fprintf and vfprintf, shown as by tsri_show. */
int tsri_fshow(FILE *f, const char *fmt, ...) TSR_PRINTF(2, 3);
int tsri_vfshow(FILE *f, const char *fmt, va_list ap);
/* Prints a JSON text: what a terminal acts on stands there as \u007f, what is no UTF-8 as \ufffd.
 */
void tsri_show_json(FILE *f, const char *json);
/* One string, as it is shown. Returns buf. */
char *tsri_shown(const char *text, char *buf, size_t size);

#endif
