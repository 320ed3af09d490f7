/* SPDX-License-Identifier: Apache-2.0 */
/* How the library fails: the function that decides an error writes its text once, the others
 * pass the status on. */
#ifndef TESSERA_CORE_STATUS_H
#define TESSERA_CORE_STATUS_H

#include <tessera/status.h>

/* Where in the user's program a call stands. file may be NULL: unknown. */
typedef struct tsri_loc {
    const char *file;
    int line;
} tsri_loc;

/* Writes the thread's error text and returns `status`. */
tsr_status tsri_fail(tsr_status status, const char *fmt, ...) TSR_PRINTF(2, 3);
/* Writes the text behind "file:line: ". */
tsr_status tsri_fail_at(tsri_loc loc, tsr_status status, const char *fmt, ...) TSR_PRINTF(3, 4);
/* Puts "fmt: " before the text that is there; returns `status`. For adding who asked. */
tsr_status tsri_fail_prefix(tsr_status status, const char *fmt, ...) TSR_PRINTF(2, 3);
/* Takes "prefix: " from the front of the calling thread's error text, if it is there. */
void tsri_fail_drop_prefix(const char *prefix);
void tsri_error_clear(void);
/* ": " and the thread's last error, for an argument that is NULL, probably because that failed; ""
 * where there is none, or where the program has gone on since (tsri_error_settled). Valid until the
 * next call of this function. */
const char *tsri_error_cause(void);
/* A program has been compiled: errors before that are not what later ones come from. */
void tsri_error_settled(void);
/* The last path component of a file name, for messages. */
const char *tsri_basename(const char *path);

#define TSRI_TRY(expr)                    \
    do {                                  \
        tsr_status tsri_status_ = (expr); \
        if (tsri_status_ != TSR_OK)       \
            return tsri_status_;          \
    } while (0)

/* Returns TSR_ERR_NO_MEMORY where `made`, which an allocation gave, is NULL or false. */
#define TSRI_NEED(made)               \
    do {                              \
        if (!(made))                  \
            return TSR_ERR_NO_MEMORY; \
    } while (0)

/* For functions that unwind: keeps the status in `status` and jumps. */
#define TSRI_GOTO(expr, label) \
    do {                       \
        status = (expr);       \
        if (status != TSR_OK)  \
            goto label;        \
    } while (0)

#endif
