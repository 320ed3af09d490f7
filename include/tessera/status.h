/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, and the text of the last error of the calling thread. */
#ifndef TESSERA_STATUS_H
#define TESSERA_STATUS_H

#include <tessera/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, what kind of error). Numbers are ABI: appended only. */
#define TSR_STATUS_MAP(X)                            \
    X(OK, 0, "success")                              \
    X(END, 1, "end of the data")                     \
    X(ERR_NO_MEMORY, -1, "out of memory")            \
    X(ERR_INVALID, -2, "invalid argument")           \
    X(ERR_STATE, -3, "call not valid in this state") \
    X(ERR_UNSUPPORTED, -4, "not supported")          \
    X(ERR_SHAPE, -5, "shapes do not fit")            \
    X(ERR_DTYPE, -6, "dtype does not fit")           \
    X(ERR_SBP, -7, "illegal signature")              \
    X(ERR_PLACEMENT, -8, "placement does not fit")   \
    X(ERR_IO, -9, "input/output failed")             \
    X(ERR_FORMAT, -10, "malformed file or text")     \
    X(ERR_MISMATCH, -11, "ranks disagree")           \
    X(ERR_TIMEOUT, -12, "timed out")                 \
    X(ERR_REMOTE, -13, "another rank failed")        \
    X(ERR_DEAD, -14, "another rank died")            \
    X(ERR_BACKEND, -15, "a library below failed")    \
    X(ERR_INTERNAL, -16, "internal error")           \
    X(ERR_NAN, -17, "a loss is not finite")

typedef enum tsr_status {
#define TSR_STATUS_ENUM(name, number, text) TSR_##name = number,
    TSR_STATUS_MAP(TSR_STATUS_ENUM)
#undef TSR_STATUS_ENUM
} tsr_status;

/* Returns the name of a status: "TSR_ERR_SHAPE" and the like. Static storage. */
TSR_API const char *tsr_status_name(tsr_status status);
/* Returns the kind of error that a status stands for, in words. Static storage. */
TSR_API const char *tsr_status_text(tsr_status status);

/*
 * Returns the text of the last error that a call of this thread met: what failed, what was found,
 * what would be legal, and the user's file:line where there is one. "" if none. Valid until the
 * next failing call of this thread. Not collective.
 */
TSR_API const char *tsr_last_error(void);

/* Returns from the caller, a function that gives a tsr_status, where a call gives another one than
 * TSR_OK (TSR_END, too). */
#define TSR_TRY(call)                       \
    do {                                    \
        const tsr_status tsr_try_ = (call); \
        if (tsr_try_ != TSR_OK)             \
            return tsr_try_;                \
    } while (0)

/*
 * Makes a text the calling thread's last error and returns `status`: for modules and programs that
 * report errors of their own in the library's way.
 */
TSR_API tsr_status tsr_set_error(tsr_status status, const char *fmt, ...) TSR_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
