/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures, and their text form: entry | '(' entry (',' entry)* ')' | "auto". */
#include "sbp/rule/sbp.h"
#include "src/core/dims.h"
#include "src/core/status.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LEGAL "S(0), B, P, P(max), P(min), or several as in (S(0),B)"

static const char *const reduce_names[] = {
    [TSR_REDUCE_SUM] = "sum", [TSR_REDUCE_MAX] = "max", [TSR_REDUCE_MIN] = "min"};

bool tsr_sbp_equal(tsr_sbp a, tsr_sbp b)
{
    return a.ndim == b.ndim && a.ndim >= 0 && a.ndim <= TSR_MAX_HIERARCHY &&
           !memcmp(a.d, b.d, (size_t)a.ndim * sizeof *a.d);
}

tsr_sbp tsr_sbp_nd(int n, const tsr_sbp *entries)
{
    tsr_sbp nd = {.ndim = (int8_t)n};
    bool legal = n >= 1 && n <= TSR_MAX_HIERARCHY && entries;
    for (int i = 0; i < n && legal; i++) {
        legal = entries[i].ndim == 1;
        nd.d[i] = entries[i].d[0];
    }
    return legal ? nd : (tsr_sbp){.ndim = -1};
}

static const tsr_sbp1 sbp_b = {TSR_SBP_BROADCAST, 0};

tsr_sbp tsri_sbp_b(int ndim)
{
    return tsri_sbp_extend(TSR_B, ndim);
}

tsr_sbp tsri_sbp_extend(tsr_sbp sbp, int ndim)
{
    if (sbp.ndim == 1 && sbp.d[0].kind == TSR_SBP_BROADCAST)
        for (; sbp.ndim < ndim; sbp.ndim++)
            sbp.d[sbp.ndim] = sbp_b;
    return sbp;
}

tsr_sbp tsri_sbp_for_axes(tsr_sbp sbp, int naxes)
{
    for (int d = 0; d < sbp.ndim && d < TSR_MAX_HIERARCHY; d++)
        if (sbp.d[d].kind == TSR_SBP_SPLIT && sbp.d[d].arg >= naxes)
            sbp.d[d] = sbp_b;
    return sbp;
}

tsr_sbp tsri_sbp_without(tsr_sbp sbp, int dim)
{
    if (sbp.ndim == 1)
        sbp.d[0] = sbp_b;
    if (sbp.ndim < 2)
        return sbp;
    for (int d = dim; d + 1 < sbp.ndim; d++)
        sbp.d[d] = sbp.d[d + 1];
    sbp.d[--sbp.ndim] = (tsr_sbp1){0, 0};
    return sbp;
}

tsr_sbp tsri_sbp_canonical(const tsr_placement *p, tsr_sbp sbp)
{
    for (int d = 0; d < sbp.ndim && d < TSR_MAX_HIERARCHY; d++)
        if (tsr_placement_dim(p, d) == 1)
            sbp.d[d] = sbp_b;
    return sbp;
}

unsigned tsri_sbp_dims(const tsr_placement *p, tsr_sbp sbp, tsr_sbp_kind kind)
{
    unsigned dims = 0;
    for (int d = 0; d < sbp.ndim; d++)
        if (sbp.d[d].kind == (int8_t)kind && tsr_placement_dim(p, d) > 1)
            dims |= 1u << d;
    return dims;
}

static tsr_status check_partial(tsr_sbp sbp, tsr_sbp1 s, int *reduction)
{
    char text[TSR_SBP_TEXT_MAX];
    if (s.arg < TSR_REDUCE_SUM || s.arg > TSR_REDUCE_MIN)
        return tsri_fail(TSR_ERR_SBP, "P of reduction %d; legal are P(sum), P(max) and P(min)",
                         s.arg);
    if (*reduction >= 0 && *reduction != s.arg)
        return tsri_fail(
            TSR_ERR_SBP,
            "%s mixes kinds of P, whose order would matter; one signature has one kind",
            tsr_sbp_format(sbp, text));
    *reduction = s.arg;
    return TSR_OK;
}

tsr_status tsri_sbp_check(const tsr_placement *p, tsr_dims shape, tsr_sbp sbp, bool is_computed)
{
    char text[TSR_SBP_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    int ndim = tsr_placement_ndim(p), reduction = -1;
    if (sbp.ndim && sbp.ndim != ndim)
        return tsri_fail(TSR_ERR_SBP,
                         "signature %s has %d entr%s, but placement %s has %d dimension%s",
                         tsr_sbp_format(sbp, text), sbp.ndim, sbp.ndim == 1 ? "y" : "ies",
                         tsr_placement_text(p), ndim, ndim == 1 ? "" : "s");
    for (int i = 0; i < sbp.ndim; i++) {
        const tsr_sbp1 s = sbp.d[i];
        const bool is_split = s.kind == TSR_SBP_SPLIT && s.arg >= 0 && s.arg < shape.ndim;
        if (s.kind == TSR_SBP_PARTIAL && is_computed)
            TSRI_TRY(check_partial(sbp, s, &reduction));
        else if (s.kind == TSR_SBP_AUTO || s.kind > TSR_SBP_PARTIAL)
            return tsri_fail(TSR_ERR_SBP, "not a signature: %s", tsr_sbp_format(sbp, text));
        else if (s.kind != TSR_SBP_BROADCAST && !is_split)
            return tsri_fail(TSR_ERR_SBP, "signature %s for shape (%s); legal are B%s%s%s",
                             tsr_sbp_format(sbp, text), tsri_dims_format(shape, dims),
                             is_computed ? ", P" : "",
                             shape.ndim ? " and S(i) with i below its number of axes" : "",
                             is_computed ? "" : " (P is for values that are computed)");
    }
    return TSR_OK;
}

typedef struct parser {
    const char *text, *at;
    int partial; /* the reduction of the partial entries so far; -1: there is none */
} parser;

/* Fails with a text that begins with the place `at` of the parser's text. */
#define FAIL(p, at, ...)                                                                         \
    tsri_fail_prefix(tsri_fail(TSR_ERR_FORMAT, __VA_ARGS__), "signature \"%.100s\": column %td", \
                     (p)->text, (at) - (p)->text + 1)

static char next(parser *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
    return *p->at;
}

static bool accept(parser *p, char c)
{
    if (next(p) != c)
        return false;
    p->at++;
    return true;
}

/* Whether a whole word (of letters) stands at the cursor; then passes it. */
static bool accept_word(parser *p, const char *word)
{
    size_t n = strlen(word);
    next(p);
    if (strncasecmp(p->at, word, n) != 0 || isalnum((unsigned char)p->at[n]))
        return false;
    p->at += n;
    return true;
}

static tsr_status parse_split(parser *p, tsr_sbp1 *out)
{
    int axis = 0;
    if (!accept(p, '('))
        return FAIL(p, p->at, "a split names its axis, as in S(0)");
    next(p);
    const char *start = p->at;
    for (; isdigit((unsigned char)*p->at); p->at++)
        axis = axis >= TSR_MAX_NDIM ? axis : axis * 10 + (*p->at - '0');
    if (p->at == start || axis >= TSR_MAX_NDIM)
        return FAIL(p, start, "the axis of a split is a number from 0 to %d", TSR_MAX_NDIM - 1);
    if (!accept(p, ')'))
        return FAIL(p, p->at, "')' is expected after the axis");
    *out = (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)axis};
    return TSR_OK;
}

static tsr_status parse_partial(parser *p, const char *start, tsr_sbp1 *out)
{
    int op = TSR_REDUCE_SUM;
    if (accept(p, '(')) {
        while (op <= TSR_REDUCE_MIN && !accept_word(p, reduce_names[op]))
            op++;
        if (op > TSR_REDUCE_MIN)
            return FAIL(p, p->at, "the reduction of a partial is sum, max or min");
        if (!accept(p, ')'))
            return FAIL(p, p->at, "')' is expected after the reduction");
    }
    if (p->partial >= 0 && p->partial != op)
        return FAIL(p, start, "P(%s) beside P(%s); a signature has partials of one kind only",
                    reduce_names[op], reduce_names[p->partial]);
    p->partial = op;
    *out = (tsr_sbp1){TSR_SBP_PARTIAL, (int8_t)op};
    return TSR_OK;
}

static tsr_status parse_entry(parser *p, tsr_sbp1 *out)
{
    next(p);
    const char *start = p->at;
    if (accept_word(p, "S"))
        return parse_split(p, out);
    if (accept_word(p, "P"))
        return parse_partial(p, start, out);
    if (!accept_word(p, "B"))
        return FAIL(p, start, "expected " LEGAL);
    *out = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
    return TSR_OK;
}

tsr_status tsr_sbp_parse(const char *text, tsr_sbp *out_sbp)
{
    if (!text || !out_sbp)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sbp_parse: the %s is NULL",
                         text ? "result's place" : "text");
    tsr_sbp sbp = {0};
    parser p = {.text = text, .at = text, .partial = -1};
    if (accept(&p, '(')) {
        do {
            if (sbp.ndim == TSR_MAX_HIERARCHY)
                return FAIL(&p, p.at, "more than %d entries", TSR_MAX_HIERARCHY);
            TSRI_TRY(parse_entry(&p, &sbp.d[sbp.ndim]));
            sbp.ndim++;
        } while (accept(&p, ','));
        if (!accept(&p, ')'))
            return FAIL(&p, p.at, "',' or ')' is expected after an entry");
    } else if (!accept_word(&p, "auto")) {
        TSRI_TRY(parse_entry(&p, &sbp.d[0]));
        sbp.ndim = 1;
    }
    if (next(&p))
        return FAIL(&p, p.at, "nothing may follow the signature; legal are " LEGAL);
    *out_sbp = sbp;
    return TSR_OK;
}

static int format_entry(tsr_sbp1 d, char *buf, size_t size)
{
    switch ((tsr_sbp_kind)d.kind) {
    case TSR_SBP_SPLIT:
        return snprintf(buf, size, "S(%d)", d.arg);
    case TSR_SBP_BROADCAST:
        return snprintf(buf, size, "B");
    case TSR_SBP_PARTIAL:
        if (d.arg == TSR_REDUCE_MAX || d.arg == TSR_REDUCE_MIN)
            return snprintf(buf, size, "P(%s)", reduce_names[d.arg]);
        if (d.arg != TSR_REDUCE_SUM)
            return snprintf(buf, size, "P(?)");
        return snprintf(buf, size, "P");
    case TSR_SBP_AUTO:
        return snprintf(buf, size, "auto");
    }
    return snprintf(buf, size, "?");
}

char *tsr_sbp_format(tsr_sbp sbp, char buf[TSR_SBP_TEXT_MAX])
{
    if (!buf)
        return NULL;
    if (sbp.ndim <= 0) {
        snprintf(buf, TSR_SBP_TEXT_MAX, "auto");
        return buf;
    }
    int n = sbp.ndim < TSR_MAX_HIERARCHY ? sbp.ndim : TSR_MAX_HIERARCHY, at = 0;
    if (n > 1)
        buf[at++] = '(';
    for (int i = 0; i < n; i++) {
        if (i)
            buf[at++] = ',';
        at += format_entry(sbp.d[i], buf + at, (size_t)(TSR_SBP_TEXT_MAX - at));
    }
    if (n > 1)
        buf[at++] = ')';
    buf[at] = 0;
    return buf;
}
