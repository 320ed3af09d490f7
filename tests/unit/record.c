/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char *const *recorded;
static size_t nrecorded, nlines;
static bool prints;

bool record_start(const char *const *lines, size_t n, int argc, char **argv)
{
    recorded = lines;
    nrecorded = n;
    prints = argc > 1;
    if (prints && !strcmp(argv[1], "--print"))
        puts("/* SPDX-License-Identifier: Apache-2.0 */");
    return prints;
}

void record_line(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    assert_in_range(n, 0, sizeof line - 1);
    if (prints) {
        printf("\"%s\",\n", line);
        return;
    }
    if (nlines >= nrecorded)
        fail_msg("'%s' is not recorded", line);
    assert_string_equal(line, recorded[nlines++]);
}

void record_end(void)
{
    assert_true(prints || nlines == nrecorded);
}

unsigned record_fold(uint64_t hash)
{
    return (unsigned)(hash ^ hash >> 32);
}
