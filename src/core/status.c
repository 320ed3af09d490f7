/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/status.h"
#include "src/core/shown.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The one piece of state outside a world: what a failing call leaves for its own thread. */
static _Thread_local char error_text[4096];
static _Thread_local bool error_is_new; /* since the thread last compiled something */

const char *tsr_status_name(tsr_status status)
{
    switch (status) {
#define NAME(name, number, text) \
    case TSR_##name:             \
        return "TSR_" #name;
        TSR_STATUS_MAP(NAME)
#undef NAME
    }
    return "TSR_ERR_?";
}

const char *tsr_status_text(tsr_status status)
{
    switch (status) {
#define TEXT(name, number, text) \
    case TSR_##name:             \
        return text;
        TSR_STATUS_MAP(TEXT)
#undef TEXT
    }
    return "unknown status";
}

const char *tsr_last_error(void)
{
    return error_text;
}

void tsri_error_clear(void)
{
    error_text[0] = 0;
    error_is_new = false;
}

const char *tsri_error_cause(void)
{
    static _Thread_local char text[sizeof error_text + 2];
    text[0] = 0;
    if (error_is_new && error_text[0])
        snprintf(text, sizeof text, ": %s", error_text);
    return text;
}

void tsri_error_settled(void)
{
    error_is_new = false;
}

const char *tsri_basename(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

/* Formatted aside first: an argument may be the old text. TSR_OK puts an old text back. */
static void write_text(tsr_status status, const char *fmt, va_list ap)
{
    char text[sizeof error_text];
    tsri_show_lines(text, sizeof text, fmt, ap);
    memcpy(error_text, text, sizeof text);
    error_is_new |= status != TSR_OK;
}

tsr_status tsri_fail(tsr_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_text(status, fmt, ap);
    va_end(ap);
    return status;
}

tsr_status tsr_set_error(tsr_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_text(status, fmt, ap);
    va_end(ap);
    return status;
}

tsr_status tsri_fail_at(tsri_loc loc, tsr_status status, const char *fmt, ...)
{
    char text[sizeof error_text];
    int n =
        loc.file ? snprintf(text, sizeof text, "%s:%d: ", tsri_basename(loc.file), loc.line) : 0;
    if (n < 0 || (size_t)n >= sizeof text)
        n = 0;
    va_list ap;
    va_start(ap, fmt);
    tsri_show_lines(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    memcpy(error_text, text, sizeof text);
    error_is_new = true;
    return status;
}

void tsri_fail_drop_prefix(const char *prefix)
{
    const size_t n = strlen(prefix);
    if (strncmp(error_text, prefix, n) == 0 && strncmp(error_text + n, ": ", 2) == 0)
        memmove(error_text, error_text + n + 2, strlen(error_text + n + 2) + 1);
}

tsr_status tsri_fail_prefix(tsr_status status, const char *fmt, ...)
{
    char text[sizeof error_text];
    va_list ap;
    va_start(ap, fmt);
    int n = tsri_show_lines(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text)
        n = 0;
    snprintf(text + n, sizeof text - (size_t)n, ": %.3900s", error_text);
    memcpy(error_text, text, sizeof text);
    return status;
}
