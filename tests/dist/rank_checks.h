/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for code that runs as a rank, which returns what failed as its error. */
#ifndef TESSERA_TESTS_DIST_RANK_CHECKS_H
#define TESSERA_TESTS_DIST_RANK_CHECKS_H

#include <string.h>

#include "src/core/status.h"

#define CHECK(cond)                                                                        \
    do {                                                                                   \
        if (!(cond))                                                                       \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %.1500s", __FILE__, \
                             __LINE__, #cond, tsr_last_error());                           \
    } while (0)
#define CHECK_TEXT(part) CHECK(strstr(tsr_last_error(), part))

#endif
