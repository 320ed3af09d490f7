/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a placement: device [':' list], list = '[' (ranks | list) (',' ...)* ']',
 * ranks = rank ['..' rank]. */
#include "placement/placement.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"

typedef struct parser {
    tsr_world *world;
    const char *text, *at;
    int ndim; /* 0 until the first rank tells how deep the lists go */
    int dim[TSR_MAX_HIERARCHY];
    int nranks;
    int *ranks; /* room for all ranks of the world */
    bool *seen;
} parser;

/* Fails with a text that begins with the place `at` of the parser's text. */
#define FAIL(p, at, status, ...)                                                         \
    tsri_fail_prefix(tsri_fail(status, __VA_ARGS__), "placement \"%.200s\": column %td", \
                     (p)->text, (at) - (p)->text + 1)

static char next(parser *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
    return *p->at;
}

/* The text at the cursor, for messages. */
static const char *found(const parser *p, char buf[8])
{
    unsigned char c = (unsigned char)*p->at;
    if (!c)
        return "the end of the text";
    snprintf(buf, 8, c > ' ' && c < 127 ? "'%c'" : "\\x%02x", c);
    return buf;
}

/* Lists the names of all kinds of device: "cpu or cuda". Cut off where buf ends. */
static const char *list_devices(char buf[64])
{
    size_t n = 0;
    for (int i = 0; tsri_target_names[i] && n < 64; i++)
        n += (size_t)snprintf(buf + n, 64 - n, "%s%s",
                              !i                         ? ""
                              : tsri_target_names[i + 1] ? ", "
                                                         : " or ",
                              tsri_target_names[i]);
    return buf;
}

static tsr_status parse_device(parser *p, tsr_device *out_device)
{
    char buf[8], names[64];
    next(p);
    const char *start = p->at;
    while (isalnum((unsigned char)*p->at) || *p->at == '_')
        p->at++;
    size_t n = (size_t)(p->at - start);
    for (int i = 0; tsri_target_names[i]; i++)
        if (strlen(tsri_target_names[i]) == n && !memcmp(start, tsri_target_names[i], n)) {
            *out_device = (tsr_device)(i + 1);
            return TSR_OK;
        }
    if (!n)
        return FAIL(p, start, TSR_ERR_FORMAT,
                    "found %s; a placement starts with its device, as in \"cpu:[0,1]\"",
                    found(p, buf));
    return FAIL(p, start, TSR_ERR_FORMAT, "there is no device '%.*s'; use %s", n > 40 ? 40 : (int)n,
                start, list_devices(names));
}

/* The number at the cursor, which is a rank of the world. */
static tsr_status parse_number(parser *p, int *out_rank)
{
    const char *start = p->at;
    int rank = 0;
    for (; isdigit((unsigned char)*p->at); p->at++) {
        int digit = *p->at - '0';
        rank = rank > (INT_MAX - digit) / 10 ? INT_MAX : rank * 10 + digit;
    }
    int width = p->at - start > 40 ? 40 : (int)(p->at - start);
    if (rank >= p->world->nranks)
        return FAIL(p, start, TSR_ERR_PLACEMENT,
                    "rank %.*s is outside the world, whose ranks are 0 to %d", width, start,
                    p->world->nranks - 1);
    *out_rank = rank;
    return TSR_OK;
}

/* A rank, or a range such as 0..7, at the cursor; adds how many ranks it is. */
static tsr_status parse_ranks(parser *p, int depth, int *count)
{
    char buf[8];
    const char *start = p->at;
    int first, last;
    if (p->ndim && depth != p->ndim)
        return FAIL(p, start, TSR_ERR_FORMAT,
                    "a rank stands where a list is expected: the lists are nested unevenly");
    p->ndim = depth;
    TSRI_TRY(parse_number(p, &first));
    last = first;
    if (p->at[0] == '.' && p->at[1] == '.') {
        p->at += 2;
        if (!isdigit((unsigned char)*p->at))
            return FAIL(p, p->at, TSR_ERR_FORMAT,
                        "found %s; the last rank of a range is expected, as in 0..7",
                        found(p, buf));
        TSRI_TRY(parse_number(p, &last));
    }
    if (last < first)
        return FAIL(p, start, TSR_ERR_FORMAT, "a range goes up, as in %d..%d", last, first);
    for (int rank = first; rank <= last; rank++) {
        if (p->seen[rank])
            return FAIL(p, start, TSR_ERR_PLACEMENT,
                        "rank %d is there twice; a rank holds one shard", rank);
        p->seen[rank] = true;
        p->ranks[p->nranks++] = rank;
    }
    *count += last - first + 1;
    return TSR_OK;
}

/* The list at the cursor, the depth-th around its ranks. */
static tsr_status parse_list(parser *p, int depth)
{
    char buf[8];
    const char *start = p->at++;
    int count = 0;
    if (depth > TSR_MAX_HIERARCHY)
        return FAIL(p, start, TSR_ERR_FORMAT, "more than %d dimensions", TSR_MAX_HIERARCHY);
    if (p->ndim && depth > p->ndim)
        return FAIL(p, start, TSR_ERR_FORMAT,
                    "a list stands where a rank is expected: the lists are nested unevenly");
    for (char c = ','; c == ',';) {
        c = next(p);
        if (c == '[') {
            TSRI_TRY(parse_list(p, depth + 1));
            count++;
        } else if (isdigit((unsigned char)c)) {
            TSRI_TRY(parse_ranks(p, depth, &count));
        } else {
            return FAIL(p, p->at, TSR_ERR_FORMAT, "found %s; a rank or '[' is expected",
                        found(p, buf));
        }
        c = next(p);
        if (c != ',' && c != ']')
            return FAIL(p, p->at, TSR_ERR_FORMAT, "found %s; ',' or ']' is expected",
                        found(p, buf));
        p->at++;
    }
    if (p->dim[depth - 1] && p->dim[depth - 1] != count)
        return FAIL(
            p, start, TSR_ERR_FORMAT,
            "this list has %d entries, the one before it has %d; a hierarchy is a full grid", count,
            p->dim[depth - 1]);
    p->dim[depth - 1] = count;
    return TSR_OK;
}

static tsr_status parse(parser *p, const tsr_placement **out_placement)
{
    char buf[8];
    tsr_device device = TSRI_TARGET_HOST;
    TSRI_TRY(parse_device(p, &device));
    if (next(p) == ':') {
        p->at++;
        if (next(p) != '[')
            return FAIL(p, p->at, TSR_ERR_FORMAT,
                        "found %s; a list of ranks is expected, as in \"cpu:[0,1]\"",
                        found(p, buf));
        TSRI_TRY(parse_list(p, 1));
    } else {
        p->ndim = 1;
        p->dim[0] = p->world->nranks;
        for (int i = 0; i < p->world->nranks; i++)
            p->ranks[i] = i;
    }
    if (next(p))
        return FAIL(p, p->at, TSR_ERR_FORMAT, "found %s after the end of the placement",
                    found(p, buf));
    return tsri_placement_intern(p->world, device, p->ndim, p->dim, p->ranks, out_placement);
}

tsr_status tsri_placement_parse(tsr_world *world, const char *text, const tsr_placement **out)
{
    parser p = {.world = world, .text = text, .at = text};
    p.ranks = tsri_mem_alloc(&world->mem, (size_t)world->nranks * sizeof *p.ranks);
    p.seen = tsri_mem_alloc(&world->mem, (size_t)world->nranks * sizeof *p.seen);
    const tsr_status status = p.ranks && p.seen ? parse(&p, out) : TSR_ERR_NO_MEMORY;
    tsri_mem_free(p.ranks);
    tsri_mem_free(p.seen);
    return status;
}

const tsr_placement *tsr_placement_parse(tsr_world *world, const char *text)
{
    const tsr_placement *placement = NULL;
    if (!world || !text) {
        tsri_fail(TSR_ERR_INVALID, "placement: the %s is NULL", world ? "text" : "world");
        return NULL;
    }
    if (tsri_live_check(world, TSRI_LIVE_WORLD, "placement") != TSR_OK)
        return NULL;
    return tsri_placement_parse(world, text, &placement) == TSR_OK ? placement : NULL;
}
