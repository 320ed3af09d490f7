/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of several ranks on one stream: each goes out whole, behind the number of its rank. */
#include "src/cli/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line longer than this goes out in pieces. */
enum { LONGEST = 1 << 20, CHUNK = 1 << 16 };

static void write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return; /* our own output is gone: nobody to tell */
        p += w;
        n -= (size_t)w;
    }
}

static void append(launch_stream *s, const char *p, size_t n)
{
    if (s->used + n + 1 > s->capacity) {
        size_t more = 2 * (s->used + n + 1);
        char *line = realloc(s->line, more);
        if (!line) {
            /* No memory for a whole line: what there is goes out as it is. */
            write_all(s->to, s->line, s->used);
            write_all(s->to, p, n);
            s->used = 0;
            return;
        }
        s->line = line;
        s->capacity = more;
    }
    memcpy(s->line + s->used, p, n);
    s->used += n;
}

static void end_line(launch_stream *s)
{
    append(s, "\n", 1);
    write_all(s->to, s->line, s->used);
    s->used = 0;
}

static void take(launch_stream *s, const char *p, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(p, '\n', n);
        size_t part = newline ? (size_t)(newline - p) : n;
        if (s->used == 0) {
            char tag[16];
            append(s, tag, (size_t)snprintf(tag, sizeof tag, "[%d] ", s->rank));
        }
        append(s, p, part);
        if (newline || s->used > LONGEST)
            end_line(s);
        p += part + (newline != NULL);
        n -= part + (newline != NULL);
    }
}

void launch_stream_pump(launch_stream *s)
{
    char chunk[CHUNK];
    while (s->from >= 0) {
        ssize_t n = read(s->from, chunk, sizeof chunk);
        if (n > 0) {
            take(s, chunk, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        launch_stream_finish(s);
    }
}

void launch_stream_finish(launch_stream *s)
{
    if (s->from >= 0)
        close(s->from);
    s->from = -1;
    if (s->used > 0)
        end_line(s);
    free(s->line);
    s->line = NULL;
    s->capacity = 0;
}
