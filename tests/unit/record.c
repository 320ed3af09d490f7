/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const *recorded;
static size_t nrecorded, nlines;
static bool prints, anew;

bool record_start(const char *const *lines, size_t n, int argc, char **argv)
{
    recorded = lines;
    nrecorded = n;
    prints = argc > 1;
    anew = prints && !strcmp(argv[1], "--print");
    if (anew)
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

char *record_read(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s can't be read", path);
    fseek(f, 0, SEEK_END);
    const long bytes = ftell(f);
    rewind(f);
    char *text = calloc(1, (size_t)bytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)bytes, f), bytes);
    fclose(f);
    return text;
}

void record_same(const char *path, const char *is, const char *was)
{
    int line = 1;
    size_t start = 0, i = 0;
    for (; is[i] && is[i] == was[i]; i++)
        if (is[i] == '\n') {
            line++;
            start = i + 1;
        }
    if (is[i] || was[i])
        fail_msg("%s: line %d of the text is '%.*s', not '%.*s'", path, line,
                 (int)strcspn(is + start, "\n"), is + start, (int)strcspn(was + start, "\n"),
                 was + start);
}

void record_text(const char *path, const char *text)
{
    if (anew) {
        FILE *f = fopen(path, "w");
        if (!f || fputs(text, f) < 0 || fclose(f) != 0)
            fail_msg("%s can't be written", path);
    } else if (!prints) {
        char *was = record_read(path);
        record_same(path, text, was);
        free(was);
    }
}

void record_end(void)
{
    assert_true(prints || nlines == nrecorded);
}

unsigned record_fold(uint64_t hash)
{
    return (unsigned)(hash ^ hash >> 32);
}
