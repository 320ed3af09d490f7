/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures by the names of a mesh's axes: {dp: S(0), tp: B}, or the text "dp:S(0),tp:B". */
#include <ctype.h>
#include <string.h>

#include "src/config/schema.h"

enum { AXIS_MAX = 104, ENTRY_MAX = 64 };

/* One axis of a signature. */
typedef struct named_entry {
    const tsri_yaml *at;
    char axis[AXIS_MAX], entry[ENTRY_MAX];
} named_entry;

typedef struct named_sbp {
    int n;
    named_entry entries[TSR_MAX_HIERARCHY];
} named_sbp;

bool tsri_sbp_is_named(const tsri_yaml *node)
{
    return node->kind == TSRI_YAML_MAP ||
           (node->kind == TSRI_YAML_SCALAR && strchr(node->text, ':'));
}

/* Copies the text without the blanks around it; false if it is too long. */
static bool copy_trimmed(const char *text, size_t n, char *to, size_t room)
{
    while (n && isspace((unsigned char)*text))
        text++, n--;
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    snprintf(to, room, "%.*s", (int)(n < room ? n : room - 1), text);
    return n < room;
}

static tsr_status add_entry(named_sbp *s, const tsri_yaml *at, const char *axis, size_t naxis,
                            const char *entry, size_t nentry)
{
    tsr_sbp one;
    if (s->n == TSR_MAX_HIERARCHY)
        return tsri_yaml_fail(at, "a signature names at most %d axes", TSR_MAX_HIERARCHY);
    named_entry *e = &s->entries[s->n];
    e->at = at;
    if (!copy_trimmed(axis, naxis, e->axis, sizeof e->axis) || !tsri_is_name(e->axis))
        return tsri_yaml_fail(at,
                              "'%.60s' is no axis's name; legal are up to 100 letters, digits, _ "
                              "and -, with a letter or _ first",
                              e->axis);
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->entries[i].axis, e->axis))
            return tsri_yaml_fail(at, "axis '%s' is there twice", e->axis);
    if (!copy_trimmed(entry, nentry, e->entry, sizeof e->entry) ||
        tsr_sbp_parse(e->entry, &one) != TSR_OK || one.ndim != 1)
        return tsri_yaml_fail(at,
                              "found '%s' for axis '%s'; legal for one axis are S(0), B, P, P(max) "
                              "and P(min)",
                              e->entry, e->axis);
    s->n++;
    return TSR_OK;
}

/* The text form; brackets around it may be there. */
static tsr_status read_text(const tsri_yaml *node, named_sbp *s)
{
    const char *at = node->text, *end = at + strlen(at);
    while (at < end && isspace((unsigned char)*at))
        at++;
    while (end > at && isspace((unsigned char)end[-1]))
        end--;
    if (end - at > 1 && ((*at == '(' && end[-1] == ')') || (*at == '{' && end[-1] == '}')))
        at++, end--;
    while (at < end) {
        const char *comma = at, *colon = memchr(at, ':', (size_t)(end - at));
        for (int depth = 0; comma < end && (depth || *comma != ','); comma++)
            depth += (*comma == '(') - (*comma == ')');
        if (!colon || colon > comma)
            return tsri_yaml_fail(node, "'%.*s' has no axis; legal is AXIS:ENTRY, as in dp:S(0)",
                                  (int)(comma - at > 60 ? 60 : comma - at), at);
        TSRI_TRY(
            add_entry(s, node, at, (size_t)(colon - at), colon + 1, (size_t)(comma - colon - 1)));
        at = comma + 1;
    }
    return TSR_OK;
}

static tsr_status read_named(const tsri_yaml *node, named_sbp *s)
{
    static const tsri_field as_field = {.kind = TSRI_FIELD_SBP};
    *s = (named_sbp){0};
    if (node->kind == TSRI_YAML_SCALAR)
        return read_text(node, s);
    if (!node->n)
        return tsri_yaml_fail(node, "no axis is named; B alone is B on each");
    for (const tsri_yaml *c = node->first; c; c = c->next) {
        if (c->kind != TSRI_YAML_SCALAR)
            return tsri_value_illegal(&as_field, c);
        TSRI_TRY(add_entry(s, c, c->key, strlen(c->key), c->text, strlen(c->text)));
    }
    return TSR_OK;
}

/* The entries of a list of axes, in order, as the numbered form's text. */
static tsr_status to_sbp(const named_sbp *s, int n, const int *dims, const tsri_yaml *node,
                         int ndim, tsr_sbp *out_sbp)
{
    char text[TSR_MAX_HIERARCHY * (ENTRY_MAX + 1) + 3] = "(";
    size_t used = 1;
    for (int d = 0; d < ndim; d++) {
        const char *entry = "B";
        for (int i = 0; i < n; i++)
            entry = dims[i] == d ? s->entries[i].entry : entry;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", d ? "," : "", entry);
    }
    snprintf(text + used, sizeof text - used, ")");
    return tsr_sbp_parse(text, out_sbp) == TSR_OK ? TSR_OK
                                                  : tsri_yaml_fail(node, "%s", tsr_last_error());
}

tsr_status tsri_sbp_check_named(const tsri_yaml *node)
{
    named_sbp s;
    tsr_sbp sbp;
    const int dims[TSR_MAX_HIERARCHY] = {0, 1, 2, 3};
    TSRI_TRY(read_named(node, &s));
    return to_sbp(&s, s.n, dims, node, s.n, &sbp);
}

static tsr_status unknown_axis(const tsri_yaml *node, const named_entry *e, const char *place,
                               int ndim, const char *const *axis)
{
    char list[TSRI_LEGAL_MAX], mean[TSRI_YAML_TEXT_MAX];
    int used = 0;
    for (int d = 0; d < ndim; d++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", d ? ", " : "", axis[d]);
    tsri_did_you_mean(e->axis, ndim, axis, sizeof *axis, mean);
    return (e->at == node ? tsri_yaml_fail : tsri_yaml_fail_key)(
        e->at, "placement %.200s has no axis '%s'; legal are %s%s", place, e->axis, list, mean);
}

tsr_status tsri_sbp_by_axes(const tsri_yaml *node, const char *place, int ndim,
                            const char *const *axis, tsr_sbp_kind rest, tsr_sbp *out_sbp)
{
    named_sbp s;
    unsigned named = 0;
    int dims[TSR_MAX_HIERARCHY];
    TSRI_TRY(read_named(node, &s));
    if (!ndim)
        return tsri_yaml_fail(
            node,
            "placement %.200s has no names for its dimensions: give it a mesh, as "
            "in {mesh: {dp: 16, tp: 8}}, or sign by number, as in \"(S(0),B)\"",
            place);
    for (int i = 0; i < s.n; i++) {
        for (dims[i] = 0; dims[i] < ndim && strcmp(axis[dims[i]], s.entries[i].axis);)
            dims[i]++;
        if (dims[i] == ndim)
            return unknown_axis(node, &s.entries[i], place, ndim, axis);
        named |= 1u << dims[i];
    }
    TSRI_TRY(to_sbp(&s, s.n, dims, node, ndim, out_sbp));
    for (int d = 0; d < ndim; d++)
        if (!(named >> d & 1))
            out_sbp->d[d].kind = (int8_t)rest;
    return TSR_OK;
}

void tsri_sbp_dump_named(const tsri_yaml *node, FILE *out)
{
    named_sbp s;
    char text[TSR_SBP_TEXT_MAX];
    tsr_sbp one;
    if (read_named(node, &s) != TSR_OK)
        return; /* it was read before */
    for (int i = 0; i < s.n; i++) {
        tsr_sbp_parse(s.entries[i].entry, &one);
        fputs(i ? ", " : "{", out);
        tsri_text_dump(s.entries[i].axis, out);
        fprintf(out, ": %s", tsr_sbp_format(one, text));
    }
    fputc('}', out);
}
