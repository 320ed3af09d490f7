/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schemas of single values, by the kinds of fields. */
#include "src/config/print/json_schema.h"

#include <math.h>
#include <string.h>

/* --- text ------------------------------------------------------------------------------------- */
static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < ' ')
            fprintf(out, "\\u%04x", *p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}

static void begin(tsri_json *j, const char *key)
{
    fprintf(j->out, "%s%*s", j->any ? ",\n" : j->depth ? "\n" : "", j->depth, "");
    j->any = true;
    if (key) {
        put_quoted(j->out, key);
        fputs(": ", j->out);
    }
}

void tsri_json_open(tsri_json *j, const char *key, char bracket)
{
    begin(j, key);
    fputc(bracket, j->out);
    j->depth++;
    j->any = false;
}

void tsri_json_close(tsri_json *j, char bracket)
{
    j->depth--;
    if (j->any)
        fprintf(j->out, "\n%*s", j->depth, "");
    fputc(bracket, j->out);
    j->any = true;
}

void tsri_json_text(tsri_json *j, const char *key, const char *text)
{
    begin(j, key);
    put_quoted(j->out, text);
}

void tsri_json_number(tsri_json *j, const char *key, double v)
{
    begin(j, key);
    if (v == floor(v) && fabs(v) < 0x1p63)
        fprintf(j->out, "%lld", (long long)v);
    else
        fprintf(j->out, "%.17g", v);
}

void tsri_json_raw(tsri_json *j, const char *key, const char *json)
{
    begin(j, key);
    fputs(json, j->out);
}

/* --- numbers ---------------------------------------------------------------------------------- */
static void put_bounds(tsri_json *j, const tsri_field *f)
{
    if (f->kind == TSRI_FIELD_SEED) {
        tsri_json_raw(j, "minimum", "0");
        tsri_json_raw(j, "maximum", "18446744073709551615");
    }
    if (f->min >= f->max)
        return;
    tsri_json_number(j, "minimum", f->min);
    if (!isinf(f->max))
        tsri_json_number(j, "maximum", f->max);
}

#define VARIABLE "{\"$ref\": \"#/$defs/variable\"}"

/* Opens, and closes, a value that may also be a variable. */
static void open_value(tsri_json *j, const char *key)
{
    tsri_json_open(j, key, '{');
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
}

static void close_value(tsri_json *j)
{
    tsri_json_close(j, '}');
    tsri_json_raw(j, NULL, VARIABLE);
    tsri_json_close(j, ']');
    tsri_json_close(j, '}');
}

/* A list of numbers, of `least` to `most` items; most 0: any number. */
static void put_list(tsri_json *j, const char *type, double low, double high, int least, int most)
{
    tsri_json_text(j, "type", "array");
    open_value(j, "items");
    tsri_json_text(j, "type", type);
    if (low < high) {
        tsri_json_number(j, "minimum", low);
        tsri_json_number(j, "maximum", high);
    }
    close_value(j);
    if (least)
        tsri_json_number(j, "minItems", least);
    if (most)
        tsri_json_number(j, "maxItems", most);
}

/* One whole number for all, or a list of n. */
static void put_each(tsri_json *j, const tsri_field *f, int n)
{
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "type", "integer");
    tsri_json_number(j, "minimum", f->min);
    tsri_json_close(j, '}');
    tsri_json_open(j, NULL, '{');
    put_list(j, "integer", f->min, 0x7fffffff, n, n);
    tsri_json_close(j, '}');
    tsri_json_close(j, ']');
}

/* Lists within each other, of ranks and of ranges of them. */
#define RANGE "{\"type\": \"string\", \"pattern\": \"^[0-9]+\\\\.\\\\.[0-9]+$\"}"
static void put_rank_list(tsri_json *j, int levels)
{
    tsri_json_text(j, "type", "array");
    tsri_json_number(j, "minItems", 1);
    open_value(j, "items");
    tsri_json_text(j, "type", "integer");
    tsri_json_number(j, "minimum", 0);
    tsri_json_number(j, "maximum", TSRI_MAX_RANK);
    if (levels > 1) {
        tsri_json_close(j, '}');
        tsri_json_open(j, NULL, '{');
        put_rank_list(j, levels - 1);
    }
    tsri_json_close(j, '}');
    tsri_json_raw(j, NULL, RANGE);
    tsri_json_raw(j, NULL, VARIABLE);
    tsri_json_close(j, ']');
    tsri_json_close(j, '}');
}

static void put_ranks(tsri_json *j)
{
    tsri_json_open(j, "anyOf", '[');
    tsri_json_raw(j, NULL, RANGE);
    tsri_json_open(j, NULL, '{');
    put_rank_list(j, TSR_MAX_HIERARCHY);
    tsri_json_close(j, '}');
    tsri_json_close(j, ']');
}

/* The sizes of a mesh's axes, by their names; one may be empty, for the command line to say. */
static void put_mesh(tsri_json *j)
{
    tsri_json_text(j, "type", "object");
    tsri_json_number(j, "minProperties", 1);
    tsri_json_number(j, "maxProperties", TSR_MAX_HIERARCHY);
    open_value(j, "additionalProperties");
    tsri_json_raw(j, "type", "[\"integer\", \"null\"]");
    tsri_json_number(j, "minimum", 1);
    tsri_json_number(j, "maximum", TSRI_MAX_RANK + 1);
    close_value(j);
}

/* --- texts ------------------------------------------------------------------------------------ */
static void put_words(tsri_json *j, const char *const *words)
{
    tsri_json_open(j, "enum", '[');
    for (int i = 0; words[i]; i++)
        tsri_json_text(j, NULL, words[i]);
    tsri_json_close(j, ']');
}

/* One word, or a list of some. */
static void put_some_words(tsri_json *j, const char *const *words)
{
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    put_words(j, words);
    tsri_json_close(j, '}');
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "type", "array");
    open_value(j, "items");
    put_words(j, words);
    close_value(j);
    tsri_json_number(j, "minItems", 1);
    tsri_json_number(j, "maxItems", TSR_MAX_HIERARCHY);
    tsri_json_close(j, '}');
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "type", "object");
    open_value(j, "additionalProperties");
    put_words(j, words);
    close_value(j);
    tsri_json_number(j, "minProperties", 1);
    tsri_json_close(j, '}');
    tsri_json_close(j, ']');
}

static void put_dtypes(tsri_json *j)
{
    tsri_json_open(j, "enum", '[');
    for (int d = 1; tsr_dtype_size((tsr_dtype)d); d++)
        tsri_json_text(j, NULL, tsr_dtype_name((tsr_dtype)d));
    tsri_json_close(j, ']');
}

#define ENTRY "(S *\\( *[0-7] *\\)|B|P( *\\( *(sum|max|min) *\\))?)"
static void put_sbp(tsri_json *j)
{
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "type", "string");
    tsri_json_text(j, "pattern", "^ *(auto|" ENTRY "|\\( *" ENTRY "( *, *" ENTRY "){0,3} *\\)) *$");
    tsri_json_close(j, '}');
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "type", "array");
    tsri_json_open(j, "items", '{');
    tsri_json_text(j, "pattern", "^ *" ENTRY " *$");
    tsri_json_close(j, '}');
    tsri_json_number(j, "minItems", 1);
    tsri_json_number(j, "maxItems", TSR_MAX_HIERARCHY);
    tsri_json_close(j, '}');
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "type", "object");
    tsri_json_number(j, "minProperties", 1);
    tsri_json_open(j, "additionalProperties", '{');
    tsri_json_text(j, "pattern", "^ *" ENTRY " *$");
    tsri_json_close(j, '}');
    tsri_json_close(j, '}');
    tsri_json_close(j, ']');
}

static void put_names(tsri_json *j)
{
    tsri_json_raw(j, "type", "[\"string\", \"array\"]");
    tsri_json_raw(j, "items", "{\"type\": \"string\"}");
    tsri_json_number(j, "minLength", 1);
}

static void put_bytes(tsri_json *j)
{
    tsri_json_raw(j, "type", "[\"number\", \"string\"]");
    tsri_json_number(j, "minimum", 1);
    tsri_json_text(j, "pattern", "^[0-9][0-9.eE+-]* *([KMGT]iB|[kKMGT]?B)?$");
}

static void put_axes(tsri_json *j)
{
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "type", "integer");
    tsri_json_number(j, "minimum", -TSR_MAX_NDIM);
    tsri_json_number(j, "maximum", TSR_MAX_NDIM - 1);
    tsri_json_close(j, '}');
    tsri_json_open(j, NULL, '{');
    put_list(j, "integer", -TSR_MAX_NDIM, TSR_MAX_NDIM - 1, 0, TSR_MAX_NDIM);
    tsri_json_close(j, '}');
    tsri_json_close(j, ']');
}

static void put_floats(tsri_json *j)
{
    tsri_json_open(j, "anyOf", '[');
    tsri_json_raw(j, NULL, "{\"const\": true}");
    tsri_json_open(j, NULL, '{');
    put_list(j, "number", 0, 0, 2, 2);
    tsri_json_close(j, '}');
    tsri_json_close(j, ']');
}

static void put_any(tsri_json *j, const tsri_field *f)
{
    if (f->json) {
        tsri_json_open(j, "allOf", '[');
        tsri_json_raw(j, NULL, f->json);
        tsri_json_close(j, ']');
    }
}

/* --- by kind ---------------------------------------------------------------------------------- */
static void put_kind(tsri_json *j, const tsri_field *f)
{
    switch (f->kind) {
    case TSRI_FIELD_BOOL:
        tsri_json_text(j, "type", "boolean");
        break;
    case TSRI_FIELD_INT:
    case TSRI_FIELD_SEED:
    case TSRI_FIELD_FLOAT:
        tsri_json_text(j, "type", f->kind == TSRI_FIELD_FLOAT ? "number" : "integer");
        put_bounds(j, f);
        break;
    case TSRI_FIELD_BYTES:
        put_bytes(j);
        break;
    case TSRI_FIELD_WORD:
        put_words(j, f->words);
        break;
    case TSRI_FIELD_WORDS:
        put_some_words(j, f->words);
        break;
    case TSRI_FIELD_DTYPE:
        put_dtypes(j);
        break;
    case TSRI_FIELD_SBP:
        put_sbp(j);
        break;
    case TSRI_FIELD_TEXT:
    case TSRI_FIELD_PATH:
    case TSRI_FIELD_NAME:
        tsri_json_text(j, "type", "string");
        tsri_json_number(j, "minLength", 1);
        break;
    case TSRI_FIELD_NAMES:
    case TSRI_FIELD_IN:
        put_names(j);
        break;
    case TSRI_FIELD_SHAPE:
        put_list(j, "integer", f->min, 0x1p48, 0, f->max > 0 ? (int)f->max : TSR_MAX_NDIM);
        break;
    case TSRI_FIELD_DIMS:
        put_list(j, "integer", 0, 0, 0, TSR_MAX_NDIM);
        break;
    case TSRI_FIELD_AXES:
        put_axes(j);
        break;
    case TSRI_FIELD_PAIR:
        put_each(j, f, 2);
        break;
    case TSRI_FIELD_TRIPLE:
        put_each(j, f, 3);
        break;
    case TSRI_FIELD_INTS:
        put_list(j, "integer", 0, 0, 0, 0);
        break;
    case TSRI_FIELD_FLOATS:
        put_floats(j);
        break;
    case TSRI_FIELD_MESH:
        put_mesh(j);
        break;
    case TSRI_FIELD_RANKS:
        put_ranks(j);
        break;
    default:
        put_any(j, f);
    }
}

static void put_default(tsri_json *j, const tsri_field *f)
{
    const char *d = f->fallback;
    if (d == TSRI_NEEDED || d == TSRI_NONE)
        return;
    bool is_plain = f->kind == TSRI_FIELD_BOOL || f->kind == TSRI_FIELD_INT ||
                    f->kind == TSRI_FIELD_SEED || f->kind == TSRI_FIELD_FLOAT ||
                    f->kind == TSRI_FIELD_PAIR || f->kind == TSRI_FIELD_TRIPLE;
    (is_plain ? tsri_json_raw : tsri_json_text)(j, "default", d);
}

void tsri_json_value(tsri_json *j, const tsri_field *f)
{
    char legal[TSRI_LEGAL_MAX], text[TSRI_LEGAL_MAX + 1200];
    snprintf(text, sizeof text, "%s%sLegal is %s.", f->doc, f->doc[0] ? "\n\n" : "",
             tsri_field_legal(f, legal));
    tsri_json_text(j, "description", text);
    put_default(j, f);
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    put_kind(j, f);
    tsri_json_close(j, '}');
    tsri_json_raw(j, NULL, VARIABLE);
    tsri_json_close(j, ']');
}
