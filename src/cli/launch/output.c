/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' output: to our own streams, whole lines behind the number of their rank or bytes as
 * they are; to files; and its last lines to the report of a failure. */
#include "src/cli/launch/launch.h"
#include "src/core/shown.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A turn of a stream brings at most CHUNK lines, each with its tag, and a line that had begun: that
 * fits the queue beside BUSY, unless the line is a long one, for which the queue grows. A line
 * longer than LONGEST goes out in pieces. */
enum { CHUNK = 1 << 14, LONGEST = 1 << 28, QUEUE = 1 << 19, BUSY = 1 << 17, TAIL = 1 << 14 };
/* A pipe that poll calls writable takes so much without waiting (PIPE_BUF). */
enum { PIECE = 4096 };

/* --- the console ------------------------------------------------------------------------------ */

/* A pipe or terminal once more, as a description of its own, whose writes don't wait: the one that
 * we have is others' too, the ranks' among them, who do not expect that. -1: it is something else,
 * or can't be opened. (The master of a terminal would be another one.) */
static int open_again(int fd)
{
    struct stat st;
    char path[32];
    if (fstat(fd, &st) || (!S_ISFIFO(st.st_mode) && !isatty(fd)) ||
        (S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 2)))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

int launch_console_open(launch_console console[2])
{
    for (int i = 0; i < 2; i++) {
        int given = i ? STDERR_FILENO : STDOUT_FILENO, own = open_again(given);
        console[i] =
            (launch_console){.fd = own < 0 ? given : own, .is_own = own >= 0, .capacity = QUEUE};
        console[i].queue = malloc(QUEUE);
        if (!console[i].queue)
            return ENOMEM;
    }
    return 0;
}

void launch_console_close(launch_console console[2])
{
    for (int i = 0; i < 2; i++) {
        free(console[i].queue);
        console[i].queue = NULL;
        if (console[i].is_own)
            close(console[i].fd);
    }
}

bool launch_console_has_room(const launch_console *c)
{
    return c->used <= BUSY;
}

void launch_console_flush(launch_console *c, int wait_ms)
{
    int64_t end = launch_now_ms() + wait_ms;
    while (c->used > 0 && !c->is_broken) {
        struct pollfd p = {.fd = c->fd, .events = POLLOUT};
        int64_t left = wait_ms < 0 ? -1 : end - launch_now_ms();
        int ready = poll(&p, 1, wait_ms >= 0 && left < 0 ? 0 : (int)left);
        if (ready == 0)
            break;
        size_t n = c->used < PIECE ? c->used : PIECE;
        ssize_t w = ready < 0 ? -1 : write(c->fd, c->queue + c->from, n);
        if (w >= 0) {
            c->from += (size_t)w;
            c->used -= (size_t)w;
        } else if (errno != EINTR && errno != EAGAIN) {
            c->is_broken = true;
            c->error = errno == EPIPE ? 0 : errno;
        } else if (errno == EAGAIN && wait_ms >= 0 && launch_now_ms() >= end) {
            break;
        } else if (errno == EAGAIN) { /* somebody else was quicker */
            usleep(1000);
        }
    }
    if (c->is_broken)
        c->used = 0;
    if (c->used > 0)
        return;
    c->from = 0;
    char *less = c->capacity > QUEUE ? realloc(c->queue, QUEUE) : NULL;
    if (less) {
        c->queue = less;
        c->capacity = QUEUE;
    }
}

/* Makes room for n bytes behind those of the queue, or for as many as there is memory for. */
static void make_room(launch_console *c, size_t n)
{
    if (c->from + c->used + n <= c->capacity)
        return;
    memmove(c->queue, c->queue + c->from, c->used);
    c->from = 0;
    char *more = c->used + n > c->capacity ? realloc(c->queue, c->used + n) : NULL;
    if (more) {
        c->queue = more;
        c->capacity = c->used + n;
    }
}

void launch_console_put(launch_console *c, const char *p, size_t n)
{
    while (n > 0 && !c->is_broken) {
        make_room(c, n);
        size_t room = c->capacity - c->from - c->used, part = n < room ? n : room;
        memcpy(c->queue + c->from + c->used, p, part);
        c->used += part;
        p += part;
        n -= part;
        if (n > 0)
            launch_console_flush(c, -1);
    }
}

void launch_console_print(launch_console *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = tsri_show_lines(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = malloc((size_t)n + 1);
    va_start(ap, fmt);
    if (text)
        launch_console_put(c, text, (size_t)tsri_show_lines(text, (size_t)n + 1, fmt, ap));
    va_end(ap);
    free(text);
}

/* --- the tail --------------------------------------------------------------------------------- */

static void keep_tail(launch_stream *s, const char *p, size_t n)
{
    if (!s->tail && !(s->tail = malloc(2 * TAIL)))
        return;
    if (n > TAIL) {
        p += n - TAIL;
        n = TAIL;
    }
    if (s->tail_used + n > 2 * TAIL) {
        memmove(s->tail, s->tail + s->tail_used - TAIL, TAIL);
        s->tail_used = TAIL;
    }
    memcpy(s->tail + s->tail_used, p, n);
    s->tail_used += n;
}

/* Reads the end of a file that the rank itself has written. */
static size_t read_tail(const char *path, char *buf)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    ssize_t n = size < 0 ? 0 : pread(fd, buf, TAIL, size > TAIL ? size - TAIL : 0);
    if (fd >= 0)
        close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* Where the last lines begin: at most LAUNCH_TAIL_LINES, and none that was cut. */
static size_t first_line(const char *text, size_t n)
{
    size_t at = n > 0 && text[n - 1] == '\n' ? n - 1 : n;
    int lines = 0;
    while (at > 0) {
        if (text[at - 1] == '\n' && ++lines == LAUNCH_TAIL_LINES)
            return at;
        at--;
    }
    const char *cut = n >= TAIL ? memchr(text, '\n', n) : NULL;
    return cut && cut + 1 < text + n ? (size_t)(cut - text) + 1 : 0;
}

/* Where those of them begin that `size` bytes hold, with what is put around each: the last ones;
 * of a line that alone is too long, its end. */
static size_t first_that_fits(const char *text, size_t at, size_t n, size_t size)
{
    for (;;) {
        size_t need = 1; /* "  | ", "\n" */
        for (size_t i = at; i < n; i++)
            need += 1 + (i == at || text[i - 1] == '\n' ? 4 : 0);
        need += n > at && text[n - 1] != '\n';
        if (need <= size)
            return at;
        const char *newline = memchr(text + at, '\n', n - at);
        if (!newline || newline + 1 == text + n)
            return n - (size - 6);
        at = (size_t)(newline - text) + 1;
    }
}

void launch_stream_last_lines(const launch_stream *s, char *buf, size_t size)
{
    char *own = NULL;
    const char *text = s->tail;
    size_t n = s->tail_used, out = 0;
    buf[0] = 0;
    if (!text && s->path[0] && (text = own = malloc(TAIL)))
        n = read_tail(s->path, own);
    size_t at = text ? first_that_fits(text, first_line(text, n), n, size) : 0;
    while (text && at < n) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t length = newline ? (size_t)(newline - text) - at : n - at;
        out += (size_t)snprintf(buf + out, size - out, "  | ");
        for (size_t i = 0; i < length; i++) /* texts with a 0 in them would end here */
            buf[out++] = text[at + i] ? text[at + i] : ' ';
        buf[out++] = '\n';
        buf[out] = 0;
        at += length + 1;
    }
    free(own);
}

/* --- streams ---------------------------------------------------------------------------------- */

static void write_log(launch_stream *s, const char *p, size_t n)
{
    while (n > 0 && s->log >= 0) {
        ssize_t w = write(s->log, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0) { /* no room on the disk, most likely: the console still has it */
            s->log_error = errno;
            close(s->log);
            s->log = -1;
            return;
        }
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
            launch_console_put(s->console, s->line, s->used);
            launch_console_put(s->console, p, n);
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
    launch_console_put(s->console, s->line, s->used);
    s->used = 0;
    if (s->capacity > QUEUE) { /* the next line is not as long, most likely */
        free(s->line);
        s->line = NULL;
        s->capacity = 0;
    }
}

static void take_lines(launch_stream *s, const char *p, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(p, '\n', n);
        size_t part = newline ? (size_t)(newline - p) : n;
        if (s->used == 0) {
            char tag[16];
            append(s, tag, (size_t)snprintf(tag, sizeof tag, "[%d] ", s->tag));
        }
        append(s, p, part);
        if (newline || s->used > LONGEST)
            end_line(s);
        p += part + (newline != NULL);
        n -= part + (newline != NULL);
    }
}

static void take(launch_stream *s, const char *p, size_t n)
{
    keep_tail(s, p, n);
    write_log(s, p, n);
    if (!s->console)
        return;
    if (s->tag >= 0)
        take_lines(s, p, n);
    else
        launch_console_put(s->console, p, n);
}

static void close_from(launch_stream *s)
{
    if (s->from >= 0)
        close(s->from);
    s->from = -1;
}

/* Returns false when there is nothing (more) to read now. */
static bool pump(launch_stream *s)
{
    char chunk[CHUNK];
    if (s->from < 0)
        return false;
    /* The console's reader is gone, and nobody else reads: the rank is to know it as it would
     * without us between. */
    if (s->console && s->console->is_broken && s->log < 0) {
        close_from(s);
        return false;
    }
    ssize_t n = read(s->from, chunk, sizeof chunk);
    if (n > 0) {
        take(s, chunk, (size_t)n);
        return true;
    }
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return errno == EINTR;
    close_from(s); /* its end; EIO on a terminal that all have closed */
    return false;
}

void launch_stream_pump(launch_stream *s)
{
    pump(s);
}

/* Whatever was written before now is in the pipe: more than that comes from somebody who goes on.
 */
enum { PIPE_CHUNKS = 64 };

void launch_stream_drain(launch_stream *s)
{
    for (int i = 0; i < PIPE_CHUNKS; i++) {
        if (s->console && !launch_console_has_room(s->console)) {
            launch_console_flush(s->console, 0);
            if (!launch_console_has_room(s->console))
                return;
        }
        if (!pump(s))
            return;
    }
}

void launch_stream_finish(launch_stream *s, int patience_ms)
{
    for (int i = 0; i < PIPE_CHUNKS; i++) {
        if (s->console && !launch_console_has_room(s->console)) {
            launch_console_flush(s->console, patience_ms);
            if (!launch_console_has_room(s->console))
                break;
        }
        if (!pump(s))
            break;
    }
    close_from(s);
    if (s->used > 0 && launch_console_has_room(s->console))
        end_line(s);
    if (s->log >= 0 && close(s->log))
        s->log_error = errno;
    s->log = -1;
}

void launch_stream_free(launch_stream *s)
{
    close_from(s);
    if (s->log >= 0)
        close(s->log);
    free(s->line);
    free(s->tail);
    *s = (launch_stream){.from = -1, .log = -1};
}
