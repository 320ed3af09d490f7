/* SPDX-License-Identifier: Apache-2.0 */
/* From scalars and lists to values. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/config/source/source.h"
#include "src/core/dims.h"
#include "src/core/near.h"

const char tsri_field_needed[] = "(needed)";

/* --- what a scalar looks like ----------------------------------------------------------------- */
static bool is_null(const char *text)
{
    return !text[0] || !strcmp(text, "~") || !strcasecmp(text, "null");
}

static bool parse_bool(const char *text, bool *out_value)
{
    *out_value = !strcasecmp(text, "true");
    return *out_value || !strcasecmp(text, "false");
}

static bool is_number_like(const char *text)
{
    const char *p = text + (*text == '+' || *text == '-');
    if (*p == '.' && (!strcasecmp(p, ".inf") || !strcasecmp(p, ".nan")))
        return true;
    p += *p == '.';
    if (!isdigit((unsigned char)*p))
        return false;
    char *end;
    strtod(text, &end);
    return !*end;
}

bool tsri_value_is_text(const tsri_yaml *node)
{
    bool value;
    return node->kind == TSRI_YAML_SCALAR &&
           (node->quoted ||
            !(is_null(node->text) || parse_bool(node->text, &value) || is_number_like(node->text)));
}

bool tsri_is_name(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_')
        return false;
    size_t n = 0;
    for (; text[n]; n++)
        if (!isalnum((unsigned char)text[n]) && text[n] != '_' && text[n] != '-')
            return false;
    return n <= 100;
}

const char *tsri_did_you_mean(const char *text, int n, const void *names, size_t stride,
                              char buf[TSRI_YAML_TEXT_MAX])
{
    size_t length = strlen(text);
    int limit = length < 2 ? 0 : length < 5 ? 1 : length < 9 ? 2 : 3, best = limit + 1;
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        const char *name;
        memcpy(&name, (const char *)names + (size_t)i * stride, sizeof name);
        /* "h100" of "h100-sxm" */
        bool begins = name && !strncasecmp(text, name, length) && name[length] == '-';
        int d = !name                               ? limit + 1
                : begins || !strcasecmp(text, name) ? 0
                                                    : tsri_edit_distance(text, name, limit);
        if (d < best) {
            best = d;
            nearest = name;
        }
    }
    buf[0] = 0;
    if (nearest)
        snprintf(buf, TSRI_YAML_TEXT_MAX, "; did you mean '%.100s'?", nearest);
    return buf;
}

/* --- what is legal ---------------------------------------------------------------------------- */
static size_t put(char *buf, size_t used, const char *text)
{
    int n = used < TSRI_LEGAL_MAX ? snprintf(buf + used, TSRI_LEGAL_MAX - used, "%s", text) : 0;
    return used + (size_t)(n > 0 ? n : 0);
}

static void put_words(char *buf, const char *const *words)
{
    size_t used = 0;
    for (int i = 0; words[i]; i++) {
        used = put(buf, used, !i ? "" : words[i + 1] ? ", " : " or ");
        used = put(buf, used, words[i]);
    }
}

static const char *const dtype_words[] = {"f32", "f16", "bf16", "f64", "i64",
                                          "i32", "u8",  "bool", NULL};

static void put_number(char *buf, const tsri_field *f, const char *what)
{
    if (f->min >= f->max)
        snprintf(buf, TSRI_LEGAL_MAX, "%s", what);
    else if (isinf(f->max))
        snprintf(buf, TSRI_LEGAL_MAX, "%s of at least %.12g", what, f->min);
    else if (f->kind == TSRI_FIELD_FLOAT)
        snprintf(buf, TSRI_LEGAL_MAX, "%s from %.12g to %.12g", what, f->min, f->max);
    else
        snprintf(buf, TSRI_LEGAL_MAX, "%s from %" PRId64 " to %" PRId64, what, (int64_t)f->min,
                 (int64_t)f->max);
}

char *tsri_field_legal(const tsri_field *f, char buf[TSRI_LEGAL_MAX])
{
    static const char *const texts[] = {
        [TSRI_FIELD_BOOL] = "true or false",
        [TSRI_FIELD_SEED] = "a whole number from 0 to 18446744073709551615",
        [TSRI_FIELD_BYTES] = "a number of bytes from 1 to 2^62 - 1, as in 1048576 or \"512 MiB\"",
        [TSRI_FIELD_SBP] =
            "a signature, as in S(0), B, P, auto, \"(S(0),B)\", [S(0), B] or {dp: S(0)}",
        [TSRI_FIELD_TEXT] = "a text (numbers in quotes)",
        [TSRI_FIELD_PATH] = "a file name",
        [TSRI_FIELD_NAME] = "a name",
        [TSRI_FIELD_NAMES] = "a name, or a list of names",
        [TSRI_FIELD_IN] = "a name, or a list of names",
        [TSRI_FIELD_DIMS] = "a list of up to 8 whole numbers, one for each axis",
        [TSRI_FIELD_AXES] = "an axis, or a list of axes",
        [TSRI_FIELD_RANKS] = "a list of ranks from 0 to 65535, in up to 4 levels, as in "
                             "[[0, 1], [2, 3]], or a range, as in 0..7",
        [TSRI_FIELD_MESH] = "a mapping from the names of up to 4 axes to their sizes, as in "
                            "{dp: 16, tp: 8}",
        [TSRI_FIELD_SECTIONS] = "a list of mappings",
        [TSRI_FIELD_NAMED] = "a mapping from names",
        [TSRI_FIELD_ANY] = "numbers, in lists of lists",
        [TSRI_FIELD_FLOATS] = "two numbers, as in [0, 1], or true for these",
    };
    if (f->legal) {
        snprintf(buf, TSRI_LEGAL_MAX, "%s", f->legal);
        return buf;
    }
    switch (f->kind) {
    case TSRI_FIELD_INT:
        put_number(buf, f, "a whole number");
        break;
    case TSRI_FIELD_INTS:
        put_number(buf, f, "a list of whole numbers");
        break;
    case TSRI_FIELD_FLOAT:
        put_number(buf, f, "a number");
        break;
    case TSRI_FIELD_WORD:
        put_words(buf, f->words);
        break;
    case TSRI_FIELD_WORDS:
        put_words(buf, f->words);
        put(buf, strlen(buf), ", or a list, one for each dimension, or by axes' names");
        break;
    case TSRI_FIELD_DTYPE:
        put_words(buf, dtype_words);
        break;
    case TSRI_FIELD_SHAPE:
        snprintf(buf, TSRI_LEGAL_MAX, "a list of up to %d sizes, each from %.0f to 2^48",
                 f->max > 0 ? (int)f->max : TSR_MAX_NDIM, f->min);
        break;
    case TSRI_FIELD_PAIR:
        snprintf(buf, TSRI_LEGAL_MAX, "a whole number from %.0f to %d, or two: [height, width]",
                 f->min, INT32_MAX);
        break;
    case TSRI_FIELD_TRIPLE:
        snprintf(buf, TSRI_LEGAL_MAX,
                 "a whole number from %.0f to %d, or three: [depth, height, width]", f->min,
                 INT32_MAX);
        break;
    case TSRI_FIELD_SECTION:
        snprintf(buf, TSRI_LEGAL_MAX, "a mapping");
        break;
    default:
        snprintf(buf, TSRI_LEGAL_MAX, "%s", texts[f->kind]);
    }
    return buf;
}

tsr_status tsri_value_illegal(const tsri_field *f, const tsri_yaml *node)
{
    char shown[TSRI_YAML_TEXT_MAX], legal[TSRI_LEGAL_MAX], mean[TSRI_YAML_TEXT_MAX] = "";
    const char *const *words = f->kind == TSRI_FIELD_DTYPE ? dtype_words : f->words;
    int n = 0;
    while (words && words[n])
        n++;
    if (n && node->kind == TSRI_YAML_SCALAR)
        tsri_did_you_mean(node->text, n, words, sizeof *words, mean);
    return tsri_yaml_fail(node, "found %s; legal is %s%s", tsri_yaml_shown(node, shown),
                          tsri_field_legal(f, legal), mean);
}

/* --- numbers ---------------------------------------------------------------------------------- */
static bool is_plain(const tsri_yaml *node)
{
    return node->kind == TSRI_YAML_SCALAR && !node->quoted;
}

/* Whether a node is a whole number, of any size. */
static bool is_whole(const tsri_yaml *node)
{
    const char *p = is_plain(node) ? node->text + (*node->text == '-' || *node->text == '+') : "";
    const size_t n = strspn(p, "0123456789");
    return n && !p[n];
}

tsr_status tsri_value_int(const tsri_yaml *node, int64_t *out_value)
{
    char shown[TSRI_YAML_TEXT_MAX];
    if (!is_whole(node))
        return tsri_yaml_fail(node, "found %s; legal is a whole number",
                              tsri_yaml_shown(node, shown));
    errno = 0;
    long long v = strtoll(node->text, NULL, 10);
    if (errno == ERANGE)
        return tsri_yaml_fail(node,
                              "found %s; legal is a whole number from %" PRId64 " to %" PRId64,
                              tsri_yaml_shown(node, shown), INT64_MIN, INT64_MAX);
    *out_value = v;
    return TSR_OK;
}

bool tsri_field_has(const tsri_field *f, int64_t value)
{
    return f->min >= f->max || (value >= (int64_t)f->min && value <= (int64_t)f->max);
}

/* Reads a whole number, which any text of digits is: one that is too large for 64 bits is out of
 * the field's bounds, too. */
static tsr_status read_int(const tsri_field *f, const tsri_yaml *node, int64_t *at)
{
    if (!is_plain(node) || !is_number_like(node->text))
        return tsri_value_illegal(f, node);
    if (is_whole(node) && f->min < f->max && tsri_value_int(node, at) != TSR_OK)
        return tsri_value_illegal(f, node);
    TSRI_TRY(tsri_value_int(node, at));
    return tsri_field_has(f, *at) ? TSR_OK : tsri_value_illegal(f, node);
}

static tsr_status read_seed(const tsri_field *f, const tsri_yaml *node, uint64_t *at)
{
    if (!is_whole(node) || node->text[0] == '-')
        return tsri_value_illegal(f, node);
    errno = 0;
    *at = strtoull(node->text, NULL, 10);
    return errno == ERANGE ? tsri_value_illegal(f, node) : TSR_OK;
}

tsr_status tsri_value_float(const tsri_yaml *node, double *out_value)
{
    char shown[TSRI_YAML_TEXT_MAX];
    tsri_yaml_shown(node, shown);
    if (!is_plain(node) || !is_number_like(node->text) || strpbrk(node->text, "xXpP"))
        return tsri_yaml_fail(node, "found %s; legal is a number", shown);
    const char *dot = strpbrk(node->text, "iInN");
    if (dot)
        return tsri_yaml_fail(node, "%s is not finite", shown);
    double v = strtod(node->text, NULL);
    if (!isfinite(v))
        return tsri_yaml_fail(node, "%s is out of range; the largest is 1.8e308", shown);
    *out_value = v;
    return TSR_OK;
}

static tsr_status read_float(const tsri_field *f, const tsri_yaml *node, double *at)
{
    if (!is_plain(node) || !is_number_like(node->text))
        return tsri_value_illegal(f, node);
    TSRI_TRY(tsri_value_float(node, at));
    return f->min < f->max && !(*at >= f->min && *at <= f->max) ? tsri_value_illegal(f, node)
                                                                : TSR_OK;
}

static tsr_status read_bytes(const tsri_field *f, const tsri_yaml *node, int64_t *at)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KiB", 1 << 10},
                 {"MiB", 1 << 20},
                 {"GiB", 1 << 30},
                 {"TiB", INT64_C(1) << 40},
                 {"KB", 1000},
                 {"kB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", INT64_C(1000000000000)}};
    if (node->kind != TSRI_YAML_SCALAR || !isdigit((unsigned char)node->text[0]) ||
        strpbrk(node->text, "xXpP"))
        return tsri_value_illegal(f, node);
    char *end;
    const double v = strtod(node->text, &end);
    /* A whole number is exact, where a double would round it. */
    const bool is_exact = (size_t)(end - node->text) == strspn(node->text, "0123456789");
    const int64_t whole = is_exact ? strtoll(node->text, NULL, 10) : 0;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].name))
            continue;
        const double bytes = v * (double)units[i].bytes;
        const bool fits = is_exact ? whole <= INT64_MAX / units[i].bytes : bytes < 0x1p62;
        const int64_t n = !fits ? -1 : is_exact ? whole * units[i].bytes : (int64_t)bytes;
        if (n < 1 || n >= INT64_C(1) << 62)
            return tsri_value_illegal(f, node);
        *at = n;
        return TSR_OK;
    }
    return tsri_value_illegal(f, node);
}

/* --- words ------------------------------------------------------------------------------------ */
static tsr_status read_word(const tsri_field *f, const tsri_yaml *node, int *at)
{
    for (int i = 0; node->kind == TSRI_YAML_SCALAR && f->words[i]; i++)
        if (!strcmp(node->text, f->words[i])) {
            *at = i;
            return TSR_OK;
        }
    return tsri_value_illegal(f, node);
}

static tsr_status read_words(const tsri_field *f, const tsri_yaml *node, tsri_words *at)
{
    bool is_many = node->kind != TSRI_YAML_SCALAR;
    if (is_many && !node->n)
        return tsri_value_illegal(f, node);
    *at = (tsri_words){.by_axis = node->kind == TSRI_YAML_MAP ? node : NULL};
    for (const tsri_yaml *c = is_many ? node->first : node; c; c = is_many ? c->next : NULL) {
        if (at->n == TSR_MAX_HIERARCHY)
            return tsri_yaml_fail(c, "more than %d words", TSR_MAX_HIERARCHY);
        TSRI_TRY(read_word(f, c, &at->words[at->n++]));
    }
    return TSR_OK;
}

static tsr_status read_dtype(const tsri_field *f, const tsri_yaml *node, tsr_dtype *at)
{
    tsr_dtype d = node->kind == TSRI_YAML_SCALAR ? tsr_dtype_parse(node->text) : TSR_DTYPE_NONE;
    *at = d;
    return d == TSR_DTYPE_NONE ? tsri_value_illegal(f, node) : TSR_OK;
}

tsr_status tsri_value_sbp(const tsri_yaml *node, tsr_sbp *out_sbp)
{
    static const tsri_field as_field = {.kind = TSRI_FIELD_SBP};
    char text[512] = "(";
    size_t used = 1;
    const char *whole = text;
    if (tsri_sbp_is_named(node)) {
        *out_sbp = (tsr_sbp){.ndim = TSRI_SBP_NAMED};
        return tsri_sbp_check_named(node);
    }
    if (node->kind == TSRI_YAML_SCALAR) {
        whole = node->text;
    } else if (node->kind == TSRI_YAML_LIST) {
        for (const tsri_yaml *c = node->first; c; c = c->next) {
            if (c->kind != TSRI_YAML_SCALAR || strlen(c->text) > 60)
                return tsri_value_illegal(&as_field, c);
            if (c->index == TSR_MAX_HIERARCHY)
                return tsri_yaml_fail(c,
                                      "a signature has at most %d entries, one for each "
                                      "dimension of its placement",
                                      TSR_MAX_HIERARCHY);
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", c->index ? "," : "",
                                     c->text);
        }
        snprintf(text + used, sizeof text - used, ")");
    } else {
        return tsri_value_illegal(&as_field, node);
    }
    tsr_status status = tsr_sbp_parse(whole, out_sbp);
    return status == TSR_OK ? status : tsri_yaml_fail(node, "%s", tsr_last_error());
}

/* --- names and texts -------------------------------------------------------------------------- */
const char *tsri_value_folder(const tsri_reader *r, const tsri_yaml *node)
{
    const char *file = node->from ? node->from : node->file;
    const tsri_source *s = r->sources;
    while (s && s->name != file)
        s = s->next;
    return s ? s->folder : r->working;
}

const char *tsri_value_path(const tsri_reader *r, const tsri_yaml *node)
{
    if (node->text[0] == '/')
        return node->text;
    const char *folder = tsri_value_folder(r, node);
    return tsri_pool_printf(r->pool, "%s/%s", strcmp(folder, "/") ? folder : "", node->text);
}

static tsr_status read_text(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                            const char **at)
{
    if (!tsri_value_is_text(node) || !node->text[0])
        return tsri_value_illegal(f, node);
    *at = f->kind == TSRI_FIELD_PATH ? tsri_value_path(r, node) : node->text;
    return *at ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status read_ref(const tsri_field *f, const tsri_yaml *node, tsri_ref *at)
{
    if (node->kind != TSRI_YAML_SCALAR || !node->text[0])
        return tsri_value_illegal(f, node);
    *at = (tsri_ref){node->text, node};
    return TSR_OK;
}

static tsr_status read_refs(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                            tsri_refs *at)
{
    bool is_list = node->kind == TSRI_YAML_LIST;
    if (!is_list && (node->kind != TSRI_YAML_SCALAR || !node->text[0]))
        return tsri_value_illegal(f, node);
    at->n = is_list ? node->n : 1;
    at->refs = tsri_pool_alloc(r->pool, (size_t)at->n * sizeof *at->refs);
    TSRI_NEED(at->refs);
    if (!is_list)
        return read_ref(f, node, at->refs);
    int i = 0;
    for (const tsri_yaml *c = node->first; c; c = c->next)
        TSRI_TRY(read_ref(f, c, &at->refs[i++]));
    return TSR_OK;
}

/* --- lists of numbers ------------------------------------------------------------------------- */
static tsr_status read_shape(const tsri_field *f, const tsri_yaml *node, tsr_dims *at)
{
    int most = f->max > 0 ? (int)f->max : TSR_MAX_NDIM;
    if (node->kind != TSRI_YAML_LIST || node->n > most)
        return tsri_value_illegal(f, node);
    tsr_dims known = {.ndim = node->n}; /* without a -1 */
    *at = known;
    for (const tsri_yaml *c = node->first; c; c = c->next) {
        int64_t v;
        TSRI_TRY(tsri_value_int(c, &v));
        if (v < (int64_t)f->min || v > INT64_C(1) << 48)
            return tsri_yaml_fail(c, "found %lld; legal are sizes from %d to 2^48", (long long)v,
                                  (int)f->min);
        at->d[c->index] = v;
        known.d[c->index] = v < 0 ? 1 : v;
    }
    return tsri_dims_fit(known) ? TSR_OK
                                : tsri_yaml_fail(node, "a shape of more than 2^56 elements");
}

static tsr_status read_dims(const tsri_field *f, const tsri_yaml *node, tsr_dims *at)
{
    if (node->kind != TSRI_YAML_LIST || node->n > TSR_MAX_NDIM)
        return tsri_value_illegal(f, node);
    *at = (tsr_dims){.ndim = node->n};
    for (const tsri_yaml *c = node->first; c; c = c->next)
        TSRI_TRY(tsri_value_int(c, &at->d[c->index]));
    return TSR_OK;
}

static tsr_status read_axis(const tsri_yaml *node, int *at)
{
    int64_t v;
    TSRI_TRY(tsri_value_int(node, &v));
    if (v < -TSR_MAX_NDIM || v >= TSR_MAX_NDIM)
        return tsri_yaml_fail(node,
                              "found %lld; legal are axes from %d to %d (negative: from the "
                              "end)",
                              (long long)v, -TSR_MAX_NDIM, TSR_MAX_NDIM - 1);
    *at = (int)v;
    return TSR_OK;
}

static tsr_status read_axes(const tsri_field *f, const tsri_yaml *node, tsr_axes *at)
{
    *at = (tsr_axes){0};
    if (node->kind == TSRI_YAML_SCALAR) {
        at->n = 1;
        return read_axis(node, &at->axis[0]);
    }
    if (node->kind != TSRI_YAML_LIST || node->n > TSR_MAX_NDIM)
        return tsri_value_illegal(f, node);
    at->n = node->n;
    for (const tsri_yaml *c = node->first; c; c = c->next)
        TSRI_TRY(read_axis(c, &at->axis[c->index]));
    return TSR_OK;
}

/* Reads n numbers, or one for all of them. */
static tsr_status read_each(const tsri_field *f, const tsri_yaml *node, int n, int64_t *at)
{
    if (node->kind != TSRI_YAML_SCALAR && (node->kind != TSRI_YAML_LIST || node->n != n))
        return tsri_value_illegal(f, node);
    const tsri_yaml *item = node->kind == TSRI_YAML_LIST ? node->first : node;
    for (int i = 0; i < n; i++) {
        TSRI_TRY(tsri_value_int(item, &at[i]));
        if (at[i] < (int64_t)f->min || at[i] > INT32_MAX)
            return tsri_value_illegal(f, item);
        if (node->kind == TSRI_YAML_LIST)
            item = item->next;
    }
    return TSR_OK;
}

static tsr_status read_ints(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                            tsri_ints *at)
{
    if (node->kind != TSRI_YAML_LIST)
        return tsri_value_illegal(f, node);
    at->n = node->n;
    at->v = tsri_pool_alloc(r->pool, (size_t)node->n * sizeof *at->v);
    TSRI_NEED(at->v);
    for (const tsri_yaml *c = node->first; c; c = c->next)
        if (tsri_value_int(c, &at->v[c->index]) != TSR_OK || !tsri_field_has(f, at->v[c->index]))
            return tsri_value_illegal(f, c);
    return TSR_OK;
}

static tsr_status read_floats(const tsri_field *f, const tsri_yaml *node, double at[2])
{
    bool yes;
    at[0] = f->min;
    at[1] = f->max;
    if (is_plain(node) && parse_bool(node->text, &yes) && yes)
        return TSR_OK;
    if (node->kind != TSRI_YAML_LIST || node->n != 2)
        return tsri_value_illegal(f, node);
    TSRI_TRY(tsri_value_float(node->first, &at[0]));
    return tsri_value_float(node->last, &at[1]);
}

tsr_status tsri_value_read(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                           void *at)
{
    switch (f->kind) {
    case TSRI_FIELD_BOOL:
        return is_plain(node) && parse_bool(node->text, at) ? TSR_OK : tsri_value_illegal(f, node);
    case TSRI_FIELD_INT:
        return read_int(f, node, at);
    case TSRI_FIELD_SEED:
        return read_seed(f, node, at);
    case TSRI_FIELD_FLOAT:
        return read_float(f, node, at);
    case TSRI_FIELD_BYTES:
        return read_bytes(f, node, at);
    case TSRI_FIELD_WORD:
        return read_word(f, node, at);
    case TSRI_FIELD_WORDS:
        return read_words(f, node, at);
    case TSRI_FIELD_DTYPE:
        return read_dtype(f, node, at);
    case TSRI_FIELD_SBP:
        return tsri_value_sbp(node, at);
    case TSRI_FIELD_TEXT:
    case TSRI_FIELD_PATH:
        return read_text(r, f, node, at);
    case TSRI_FIELD_NAME:
        return read_ref(f, node, at);
    case TSRI_FIELD_NAMES:
    case TSRI_FIELD_IN:
        return read_refs(r, f, node, at);
    case TSRI_FIELD_SHAPE:
        return read_shape(f, node, at);
    case TSRI_FIELD_DIMS:
        return read_dims(f, node, at);
    case TSRI_FIELD_AXES:
        return read_axes(f, node, at);
    case TSRI_FIELD_PAIR:
        return read_each(f, node, 2, at);
    case TSRI_FIELD_TRIPLE:
        return read_each(f, node, 3, at);
    case TSRI_FIELD_INTS:
        return read_ints(r, f, node, at);
    case TSRI_FIELD_FLOATS:
        return read_floats(f, node, at);
    case TSRI_FIELD_RANKS:
        return tsri_ranks_read(r, f, node, at);
    case TSRI_FIELD_MESH:
        return tsri_mesh_read(f, node, at);
    default:
        *(const tsri_yaml **)at = node;
        return TSR_OK;
    }
}
