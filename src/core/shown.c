/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/shown.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char tsri_style_text[TSRI_STYLE_COUNT_][8] = {
    [TSRI_STYLE_BOLD] = "\033[1m",   [TSRI_STYLE_DIM] = "\033[2m",   [TSRI_STYLE_RED] = "\033[31m",
    [TSRI_STYLE_GREEN] = "\033[32m", [TSRI_STYLE_PLAIN] = "\033[0m",
};

/* Text so far; `used` counts what does not fit, too. */
typedef struct sink {
    char *buf;
    size_t size, used;
    bool lines; /* ends of lines stay where a blank follows */
} sink;

static void put(sink *s, const char *p, size_t n)
{
    if (s->used < s->size) {
        size_t room = s->size - s->used;
        memcpy(s->buf + s->used, p, n < room ? n : room);
    }
    s->used += n;
}

static void fill(sink *s, int n)
{
    for (; n > 0; n--)
        put(s, " ", 1);
}

/* --- strings ---------------------------------------------------------------------------------- */

/* Decodes the UTF-8 character at p, of which `left` bytes are there. Returns its bytes, 0 if there
 * is none: too long a form, a surrogate, beyond Unicode, or cut. */
static size_t decode(const unsigned char *p, size_t left, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t c = n == 1 ? *p : *p & (0x7f >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    *out = c;
    return c < least[n] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff ? 0 : n;
}

/* Whether p is the begin of a character that the end of the text cuts. */
static bool is_cut(const unsigned char *p, size_t left)
{
    size_t n = *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < left; i++)
        if ((p[i] & 0xc0) != 0x80)
            return false;
    return left < n;
}

/* C1, separators of lines, and what changes the direction of other text or is not seen. */
static bool is_acting(uint32_t c)
{
    return (c >= 0x80 && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

/* Puts the character at p as it is shown. Returns its bytes. */
static size_t put_char(sink *s, const unsigned char *p, size_t left)
{
    char text[16];
    uint32_t c = 0;
    size_t n = decode(p, left, &c);
    if (n == 1 && c == '\n' && s->lines && left > 1 && p[1] == ' ')
        put(s, "\n", 1);
    else if (n == 1 && c == '\t' && s->lines)
        put(s, "\t", 1);
    else if (n == 1 && (c == '\n' || c == '\t' || c == '\r'))
        put(s, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2);
    else if (n == 0 || (n == 1 && (c < ' ' || c == 127)))
        put(s, text, (size_t)snprintf(text, sizeof text, "\\x%02x", *p));
    else if (is_acting(c))
        put(s, text, (size_t)snprintf(text, sizeof text, "\\u%04x", (unsigned)c));
    else
        put(s, (const char *)p, n);
    return n ? n : 1;
}

static bool is_style(const char *text)
{
    for (int i = 0; i < TSRI_STYLE_COUNT_; i++)
        if (text == tsri_style_text[i])
            return true;
    return false;
}

/* At most `most` bytes of the text; of a character that this cuts nothing is shown. */
static void put_escaped(sink *s, const char *text, size_t most)
{
    const size_t n = strnlen(text, most);
    const unsigned char *p = (const unsigned char *)text;
    const bool is_whole =
        n < most; /* nothing behind `most` bytes is looked at: it may not be ours */
    for (size_t at = 0; at < n;) {
        if (!is_whole && is_cut(p + at, n - at))
            break;
        at += put_char(s, p + at, n - at);
    }
}

static void put_string(sink *s, const char *text, int width, int precision)
{
    const size_t most = precision < 0 ? SIZE_MAX / 2 : (size_t)precision;
    if (!text)
        text = "(null)";
    if (is_style(text)) {
        put(s, text, strlen(text));
        return;
    }
    sink count = {.lines = s->lines};
    if (width != 0)
        put_escaped(&count, text, most);
    const int pad = (width < 0 ? -width : width) - (int)count.used;
    fill(s, width > 0 ? pad : 0);
    put_escaped(s, text, most);
    fill(s, width < 0 ? pad : 0);
}

/* --- formats ---------------------------------------------------------------------------------- */

/* One "%...": its flags, and its numbers, which are taken from the arguments where they are "*". */
typedef struct conversion {
    char flags[8];
    int width, precision; /* width < 0: to the left; precision < 0: none */
    char length[3], kind;
} conversion;

typedef struct arguments {
    va_list ap;
} arguments;

static int take_number(const char **at, arguments *a)
{
    int n = 0;
    if (**at == '*') {
        ++*at;
        return va_arg(a->ap, int);
    }
    while (**at >= '0' && **at <= '9')
        n = 10 * n + (*(*at)++ - '0');
    return n;
}

static conversion take_conversion(const char **at, arguments *a)
{
    conversion c = {.precision = -1};
    size_t n = 0;
    for (; **at && strchr("-+ #0", **at); ++*at)
        if (n + 1 < sizeof c.flags)
            c.flags[n++] = **at;
    c.width = take_number(at, a);
    if (strchr(c.flags, '-') && c.width > 0)
        c.width = -c.width;
    if (**at == '.') {
        ++*at;
        c.precision = take_number(at, a);
    }
    for (n = 0; **at && strchr("hlLzjt", **at); ++*at)
        if (n + 1 < sizeof c.length)
            c.length[n++] = **at;
    c.kind = **at;
    *at += c.kind != 0;
    return c;
}

static long long take_signed(const conversion *c, arguments *a)
{
    if (!strcmp(c->length, "ll"))
        return va_arg(a->ap, long long);
    if (c->length[0] == 'l')
        return va_arg(a->ap, long);
    if (c->length[0] == 'j')
        return va_arg(a->ap, intmax_t);
    if (c->length[0] == 'z' || c->length[0] == 't')
        return va_arg(a->ap, ptrdiff_t);
    int v = va_arg(a->ap, int);
    return !strcmp(c->length, "hh") ? (signed char)v : c->length[0] == 'h' ? (short)v : v;
}

static unsigned long long take_unsigned(const conversion *c, arguments *a)
{
    if (!strcmp(c->length, "ll"))
        return va_arg(a->ap, unsigned long long);
    if (c->length[0] == 'l')
        return va_arg(a->ap, unsigned long);
    if (c->length[0] == 'j')
        return va_arg(a->ap, uintmax_t);
    if (c->length[0] == 'z' || c->length[0] == 't')
        return va_arg(a->ap, size_t);
    unsigned v = va_arg(a->ap, unsigned);
    return !strcmp(c->length, "hh") ? (unsigned char)v
           : c->length[0] == 'h'    ? (unsigned short)v
                                    : v;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
/* A number, by snprintf. Texts of more than `most` bytes, of absurd widths, are cut. */
static void put_number(sink *s, const conversion *c, arguments *a)
{
    enum { MOST = 512 };
    char fmt[32], text[MOST], precision[16] = "";
    int n = 0;
    if (c->precision >= 0)
        snprintf(precision, sizeof precision, ".%d", c->precision);
    const bool real = strchr("aAeEfFgG", c->kind), is_signed = c->kind == 'd' || c->kind == 'i';
    snprintf(fmt, sizeof fmt, "%%%s*%s%s%c", c->flags, precision,
             real             ? (c->length[0] == 'L' ? "L" : "")
             : c->kind == 'p' ? ""
                              : "ll",
             c->kind);
    if (real && c->length[0] == 'L')
        n = snprintf(text, sizeof text, fmt, c->width, va_arg(a->ap, long double));
    else if (real)
        n = snprintf(text, sizeof text, fmt, c->width, va_arg(a->ap, double));
    else if (c->kind == 'p')
        n = snprintf(text, sizeof text, fmt, c->width, va_arg(a->ap, void *));
    else if (is_signed)
        n = snprintf(text, sizeof text, fmt, c->width, take_signed(c, a));
    else
        n = snprintf(text, sizeof text, fmt, c->width, take_unsigned(c, a));
    put(s, text, n < 0 ? 0 : n < MOST ? (size_t)n : MOST - 1);
}
#pragma GCC diagnostic pop

static void put_conversion(sink *s, const conversion *c, arguments *a)
{
    char one[2] = "";
    switch (c->kind) {
    case '%':
        put(s, "%", 1);
        break;
    case 's':
        put_string(s, va_arg(a->ap, const char *), c->width, c->precision);
        break;
    case 'c':
        one[0] = (char)va_arg(a->ap, int);
        put_string(s, one, c->width, -1);
        break;
    default:
        put_number(s, c, a);
    }
}

static int show(sink *s, const char *fmt, va_list ap)
{
    arguments a;
    va_copy(a.ap, ap);
    while (*fmt) {
        size_t plain = strcspn(fmt, "%");
        put(s, fmt, plain);
        fmt += plain;
        if (!*fmt)
            break;
        fmt++;
        const conversion c = take_conversion(&fmt, &a);
        put_conversion(s, &c, &a);
    }
    va_end(a.ap);
    if (s->size > 0)
        s->buf[s->used < s->size ? s->used : s->size - 1] = 0;
    return (int)s->used;
}

int tsri_show(char *buf, size_t size, const char *fmt, va_list ap)
{
    sink s = {.buf = buf, .size = size};
    return show(&s, fmt, ap);
}

int tsri_snshow(char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = tsri_show(buf, size, fmt, ap);
    va_end(ap);
    return n;
}

int tsri_show_lines(char *buf, size_t size, const char *fmt, va_list ap)
{
    sink s = {.buf = buf, .size = size, .lines = true};
    return show(&s, fmt, ap);
}

char *tsri_shown(const char *text, char *buf, size_t size)
{
    sink s = {.buf = buf, .size = size};
    put_escaped(&s, text, SIZE_MAX / 2);
    buf[s.used < size ? s.used : size - 1] = 0;
    return buf;
}

int tsri_vfshow(FILE *f, const char *fmt, va_list ap)
{
    char few[512];
    va_list again;
    va_copy(again, ap);
    const int n = tsri_show(few, sizeof few, fmt, ap);
    char *text = (size_t)n < sizeof few ? few : malloc((size_t)n + 1);
    if (!text) /* the begin of it */
        text = few;
    else if (text != few)
        tsri_show(text, (size_t)n + 1, fmt, again);
    va_end(again);
    fwrite(text, 1, text == few ? strlen(few) : (size_t)n, f);
    if (text != few)
        free(text);
    return n;
}

int tsri_fshow(FILE *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = tsri_vfshow(f, fmt, ap);
    va_end(ap);
    return n;
}

void tsri_show_json(FILE *f, const char *json)
{
    size_t left = strlen(json);
    while (left > 0) {
        const unsigned char *p = (const unsigned char *)json;
        uint32_t c = 0;
        size_t n = decode(p, left, &c);
        if (n == 0)
            fputs("\\ufffd", f);
        else if (c == 127 || is_acting(c))
            fprintf(f, "\\u%04x", (unsigned)c);
        else
            fwrite(json, 1, n, f);
        json += n ? n : 1;
        left -= n ? n : 1;
    }
}
