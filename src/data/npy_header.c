/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a .npy file: magic, version, and a Python dictionary of three keys. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/core/dims.h"
#include "src/data/npy_header.h"

typedef struct parser {
    const char *name, *start, *at, *end;
    tsri_npy npy;
    bool has_descr, has_order, has_shape;
} parser;

static tsr_status malformed(const parser *p, const char *what)
{
    return tsri_fail(TSR_ERR_FORMAT, "%s: byte %td: %s", p->name, p->at - p->start, what);
}

static bool is_at(parser *p, char c)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t'))
        p->at++;
    return p->at < p->end && *p->at == c;
}

static bool accept(parser *p, char c)
{
    if (!is_at(p, c))
        return false;
    p->at++;
    return true;
}

static bool accept_word(parser *p, const char *word)
{
    size_t n = strlen(word);
    is_at(p, 0);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    return true;
}

/* A quoted text without escapes. */
static tsr_status parse_text(parser *p, const char **out_text, size_t *out_length)
{
    char quote = is_at(p, '"') ? '"' : '\'';
    if (!accept(p, quote))
        return malformed(p, "a quoted text is expected");
    *out_text = p->at;
    while (p->at < p->end && *p->at != quote && *p->at != '\\')
        p->at++;
    *out_length = (size_t)(p->at - *out_text);
    return accept(p, quote) ? TSR_OK : malformed(p, "the text has no end");
}

/* --- the three values ------------------------------------------------------------------------- */
static tsr_status parse_descr(parser *p)
{
    const char *text;
    size_t n;
    if (is_at(p, '['))
        return tsri_fail(TSR_ERR_DTYPE,
                         "%s: elements of several fields; legal are f2, f4, f8, i4, "
                         "i8, u1 and b1",
                         p->name);
    TSRI_TRY(parse_text(p, &text, &n));
    char order = n == 3 ? text[0] : 0;
    for (int i = 1; i < TSR_DTYPE_COUNT_ && order; i++) {
        const tsri_dtype_facts *known = &tsri_dtypes[i];
        const bool is_wider = known->npy[2] != '0' + (int)known->size; /* bf16, written as f32 */
        if (is_wider || memcmp(known->npy + 1, text + 1, 2) != 0 || !strchr("<>|=", order))
            continue;
        p->npy.dtype = (tsr_dtype)i;
        p->npy.swapped = order == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '>' : '<');
        return TSR_OK;
    }
    return tsri_fail(TSR_ERR_DTYPE,
                     "%s: elements of dtype '%.*s'; legal are f2, f4, f8, i4, i8, u1 and b1",
                     p->name, n > 40 ? 40 : (int)n, text);
}

static tsr_status parse_order(parser *p)
{
    p->npy.fortran = accept_word(p, "True");
    return p->npy.fortran || accept_word(p, "False") ? TSR_OK
                                                     : malformed(p, "True or False is expected");
}

static tsr_status parse_size(parser *p, int64_t *out_size)
{
    int64_t v = 0;
    const char *start = p->at;
    for (; p->at < p->end && isdigit((unsigned char)*p->at); p->at++)
        v = v > INT64_MAX / 100 ? v : v * 10 + (*p->at - '0');
    if (p->at == start)
        return malformed(p, "a size is expected");
    if (v > INT64_C(1) << 56)
        return malformed(p, "a size of more than 2^56");
    accept(p, 'L'); /* of Python 2's long numbers */
    *out_size = v;
    return TSR_OK;
}

static tsr_status parse_shape(parser *p)
{
    tsr_dims *d = &p->npy.dims;
    if (!accept(p, '('))
        return malformed(p, "'(' and sizes are expected");
    while (!accept(p, ')')) {
        if (d->ndim == TSR_MAX_NDIM)
            return malformed(p, "more than 8 axes");
        TSRI_TRY(parse_size(p, &d->d[d->ndim++]));
        if (!accept(p, ',') && !is_at(p, ')'))
            return malformed(p, "',' or ')' is expected");
    }
    return TSR_OK;
}

static tsr_status parse_entry(parser *p)
{
    const char *key;
    size_t n;
    TSRI_TRY(parse_text(p, &key, &n));
    if (!accept(p, ':'))
        return malformed(p, "':' is expected");
    const struct {
        const char *key;
        tsr_status (*parse)(parser *p);
        bool *seen;
    } entries[] = {{"descr", parse_descr, &p->has_descr},
                   {"fortran_order", parse_order, &p->has_order},
                   {"shape", parse_shape, &p->has_shape}};
    for (size_t i = 0; i < 3; i++) {
        if (strlen(entries[i].key) != n || memcmp(entries[i].key, key, n) != 0)
            continue;
        if (*entries[i].seen)
            return malformed(p, "a key is there twice");
        *entries[i].seen = true;
        return entries[i].parse(p);
    }
    return malformed(p, "an unknown key; legal are descr, fortran_order and shape");
}

static tsr_status parse_dictionary(parser *p)
{
    if (!accept(p, '{'))
        return malformed(p, "'{' is expected");
    while (!accept(p, '}')) {
        TSRI_TRY(parse_entry(p));
        if (!accept(p, ',') && !is_at(p, '}'))
            return malformed(p, "',' or '}' is expected");
    }
    is_at(p, 0);
    if (p->at < p->end)
        return malformed(p, "nothing may follow the '}'");
    if (!p->has_descr || !p->has_order || !p->has_shape)
        return malformed(p, "descr, fortran_order and shape are needed");
    return TSR_OK;
}

/* --- sizes ------------------------------------------------------------------------------------ */
static tsr_status count_bytes(const parser *p, size_t *out_bytes)
{
    const size_t bytes = tsr_dtype_size(p->npy.dtype);
    if (!tsri_dims_fit(p->npy.dims))
        return tsri_fail(TSR_ERR_FORMAT, "%s: a shape of more than 2^56 elements", p->name);
    *out_bytes = bytes * (size_t)tsr_dims_count(p->npy.dims);
    return TSR_OK;
}

static size_t little(const unsigned char *at, int n)
{
    size_t v = 0;
    while (n-- > 0)
        v = v << 8 | at[n];
    return v;
}

tsr_status tsri_npy_parse_header(const char *name, const void *data, size_t size, uint64_t whole,
                                 tsri_npy *out_npy)
{
    const unsigned char *at = data;
    if (size < 10 || memcmp(at, "\x93NUMPY", 6) != 0)
        return tsri_fail(TSR_ERR_FORMAT, "%s: no .npy file: it doesn't start with \\x93NUMPY",
                         name);
    if (at[6] < 1 || at[6] > 3 || at[7] != 0)
        return tsri_fail(TSR_ERR_FORMAT, "%s: version %d.%d of the format; legal are 1.0 to 3.0",
                         name, at[6], at[7]);
    int width = at[6] == 1 ? 2 : 4;
    if (size < 8 + (size_t)width)
        return tsri_fail(TSR_ERR_FORMAT, "%s: the header is incomplete", name);
    size_t length = little(at + 8, width), offset = 8 + (size_t)width + length;
    if (length > TSRI_NPY_MAX_HEADER)
        return tsri_fail(TSR_ERR_FORMAT, "%s: a header of %zu bytes; at most %d are read", name,
                         length, TSRI_NPY_MAX_HEADER);
    if (offset > size)
        return tsri_fail(TSR_ERR_FORMAT, "%s: the header is incomplete", name);
    parser p = {.name = name, .start = data};
    p.at = p.start + 8 + width;
    p.end = p.start + offset;
    TSRI_TRY(parse_dictionary(&p));
    TSRI_TRY(count_bytes(&p, &p.npy.bytes));
    p.npy.offset = offset;
    if (whole - offset != p.npy.bytes)
        return tsri_fail(TSR_ERR_FORMAT, "%s: %llu bytes of values; its shape and dtype need %zu",
                         name, (unsigned long long)(whole - offset), p.npy.bytes);
    *out_npy = p.npy;
    return TSR_OK;
}
