/* SPDX-License-Identifier: Apache-2.0 */
/* Values as YAML, such that reading them gives the same values. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/schema.h"

/* Whether a text may stand without quotes, in lists and mappings too. */
static bool is_safe_plain(const char *text)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-./()+";
    const tsri_yaml node = {.kind = TSRI_YAML_SCALAR, .text = text};
    return strspn(text, safe) == strlen(text) && tsri_value_is_text(&node) && text[0] != '-' &&
           text[0] != '.';
}

static void dump_quoted(const char *text, FILE *out)
{
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '$' && p[1] == '{')
            fputs("$$", out);
        else if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p == '\n')
            fputs("\\n", out);
        else if (*p == '\t')
            fputs("\\t", out);
        else if (*p < ' ' || *p == 127)
            fprintf(out, "\\x%02x", *p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}

void tsri_text_dump(const char *text, FILE *out)
{
    if (is_safe_plain(text))
        fputs(text, out);
    else
        dump_quoted(text, out);
}

static void dump_float(double v, FILE *out)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    fputs(text, out);
}

void tsri_yaml_dump(const tsri_yaml *node, FILE *out)
{
    if (node->kind == TSRI_YAML_SCALAR) {
        const tsri_yaml plain = {.kind = TSRI_YAML_SCALAR, .text = node->text};
        if (node->quoted || tsri_value_is_text(&plain))
            node->quoted ? dump_quoted(node->text, out) : tsri_text_dump(node->text, out);
        else
            fputs(node->text[0] ? node->text : "~", out);
        return;
    }
    fputc('[', out);
    for (const tsri_yaml *c = node->first; c; c = c->next) {
        fputs(c->index ? ", " : "", out);
        tsri_yaml_dump(c, out);
    }
    fputc(']', out);
}

static void dump_refs(const tsri_refs *refs, FILE *out)
{
    fputc('[', out);
    for (int i = 0; i < refs->n; i++) {
        fputs(i ? ", " : "", out);
        tsri_text_dump(refs->refs[i].name, out);
    }
    fputc(']', out);
}

static void dump_ints(int n, const int64_t *v, FILE *out)
{
    fputc('[', out);
    for (int i = 0; i < n; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", v[i]);
    fputc(']', out);
}

static void dump_words(const tsri_field *f, const tsri_words *w, FILE *out)
{
    for (int i = 0; i < w->n; i++)
        fprintf(out, "%s%s", i ? ", " : "[", f->words[w->words[i]]);
    fputc(']', out);
}

static void dump_axes(const tsr_axes *axes, FILE *out)
{
    int64_t v[TSR_MAX_NDIM];
    for (int i = 0; i < axes->n; i++)
        v[i] = axes->axis[i];
    dump_ints(axes->n, v, out);
}

static void dump_sbp(tsr_sbp sbp, FILE *out)
{
    char text[TSR_SBP_TEXT_MAX];
    tsr_sbp_format(sbp, text);
    if (sbp.ndim > 1)
        fprintf(out, "\"%s\"", text);
    else
        fputs(text, out);
}

void tsri_value_dump(const tsri_field *f, const void *at, FILE *out)
{
    const double *two = at;
    switch (f->kind) {
    case TSRI_FIELD_BOOL:
        fputs(*(const bool *)at ? "true" : "false", out);
        break;
    case TSRI_FIELD_INT:
    case TSRI_FIELD_BYTES:
        fprintf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case TSRI_FIELD_SEED:
        fprintf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case TSRI_FIELD_FLOAT:
        dump_float(*two, out);
        break;
    case TSRI_FIELD_WORD:
        fputs(f->words[*(const int *)at], out);
        break;
    case TSRI_FIELD_WORDS:
        dump_words(f, at, out);
        break;
    case TSRI_FIELD_DTYPE:
        fputs(tsr_dtype_name(*(const tsr_dtype *)at), out);
        break;
    case TSRI_FIELD_SBP:
        dump_sbp(*(const tsr_sbp *)at, out);
        break;
    case TSRI_FIELD_TEXT:
    case TSRI_FIELD_PATH:
        tsri_text_dump(*(const char *const *)at, out);
        break;
    case TSRI_FIELD_NAME:
        tsri_text_dump(((const tsri_ref *)at)->name, out);
        break;
    case TSRI_FIELD_NAMES:
    case TSRI_FIELD_IN:
        dump_refs(at, out);
        break;
    case TSRI_FIELD_SHAPE:
    case TSRI_FIELD_DIMS:
        dump_ints(((const tsr_dims *)at)->ndim, ((const tsr_dims *)at)->d, out);
        break;
    case TSRI_FIELD_AXES:
        dump_axes(at, out);
        break;
    case TSRI_FIELD_PAIR:
        dump_ints(2, at, out);
        break;
    case TSRI_FIELD_TRIPLE:
        dump_ints(3, at, out);
        break;
    case TSRI_FIELD_INTS:
        dump_ints(((const tsri_ints *)at)->n, ((const tsri_ints *)at)->v, out);
        break;
    case TSRI_FIELD_FLOATS:
        fputc('[', out);
        dump_float(two[0], out);
        fputs(", ", out);
        dump_float(two[1], out);
        fputc(']', out);
        break;
    case TSRI_FIELD_RANKS:
        tsri_ranks_dump(at, out);
        break;
    case TSRI_FIELD_MESH:
        tsri_mesh_dump(at, out);
        break;
    case TSRI_FIELD_ANY:
        tsri_yaml_dump(*(const tsri_yaml *const *)at, out);
        break;
    case TSRI_FIELD_SECTION:
    case TSRI_FIELD_SECTIONS:
    case TSRI_FIELD_NAMED:
        break; /* not values: the sections' own part */
    }
}
