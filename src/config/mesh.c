/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in lists and ranges, and meshes whose axes have names. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/schema.h"

tsr_status tsri_ranks_take(const tsri_reader *r, const tsri_yaml *node, int64_t n)
{
    if (n > TSRI_MAX_RANK + 1)
        return tsri_yaml_fail(node, "more than %d ranks", TSRI_MAX_RANK + 1);
    if (!r->ranks_left)
        return TSR_OK;
    *r->ranks_left -= n;
    return *r->ranks_left >= 0 ? TSR_OK
                               : tsri_yaml_fail(node, "more than %d ranks in all placements",
                                                TSRI_MAX_RANKS_LISTED);
}

/* --- ranks ------------------------------------------------------------------------------------ */
typedef struct rank_reader {
    tsri_ranks *out;
    uint8_t seen[(TSRI_MAX_RANK + 1) / 8];
} rank_reader;

/* Whether a scalar looks like a range, "0..7"; it may be a wrong one. */
static bool is_range(const tsri_yaml *node)
{
    return node->kind == TSRI_YAML_SCALAR && strstr(node->text, "..");
}

static bool parse_bound(const char *text, size_t n, int64_t *out)
{
    char digits[8];
    if (!n || n >= sizeof digits || strspn(text, "0123456789") < n)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)n, text);
    *out = atoll(digits);
    return true;
}

/* The first and last rank of a scalar: a number, or a range. */
static tsr_status read_bounds(const tsri_yaml *node, int64_t bound[2])
{
    char shown[TSRI_YAML_TEXT_MAX];
    if (!is_range(node)) {
        TSRI_TRY(tsri_value_int(node, &bound[0]));
        bound[1] = bound[0];
        if (bound[0] < 0 || bound[0] > TSRI_MAX_RANK)
            return tsri_yaml_fail(node, "found %lld; legal are ranks from 0 to %d",
                                  (long long)bound[0], TSRI_MAX_RANK);
        return TSR_OK;
    }
    const char *dots = strstr(node->text, "..");
    if (node->quoted || !parse_bound(node->text, (size_t)(dots - node->text), &bound[0]) ||
        !parse_bound(dots + 2, strlen(dots + 2), &bound[1]))
        return tsri_yaml_fail(node, "found %s; a range is FIRST..LAST, as in 0..7",
                              tsri_yaml_shown(node, shown));
    for (int i = 0; i < 2; i++)
        if (bound[i] > TSRI_MAX_RANK)
            return tsri_yaml_fail(node, "found %s; legal are ranks from 0 to %d",
                                  tsri_yaml_shown(node, shown), TSRI_MAX_RANK);
    if (bound[1] < bound[0])
        return tsri_yaml_fail(node, "found %s; a range goes up: %" PRId64 "..%" PRId64,
                              tsri_yaml_shown(node, shown), bound[1], bound[0]);
    return TSR_OK;
}

/* How many ranks a node of the innermost level is: those of a list's ranges, or of a range. A
 * scalar that is neither counts as one: reading it tells. */
static int64_t count_ranks(const tsri_yaml *node)
{
    int64_t n = 0, bound[2];
    if (node->kind != TSRI_YAML_LIST)
        return read_bounds(node, bound) == TSR_OK ? bound[1] - bound[0] + 1 : 1;
    for (const tsri_yaml *c = node->first; c; c = c->next)
        n += is_range(c) ? count_ranks(c) : 1;
    return n;
}

static tsr_status add_ranks(rank_reader *r, const tsri_yaml *node)
{
    int64_t bound[2];
    if (node->kind != TSRI_YAML_SCALAR)
        return tsri_yaml_fail(node, "a list stands where a rank is expected: the lists are nested "
                                    "unevenly");
    TSRI_TRY(read_bounds(node, bound));
    for (int64_t v = bound[0]; v <= bound[1]; v++) {
        if (r->seen[v / 8] >> (v % 8) & 1)
            return tsri_yaml_fail(node, "rank %d is there twice; a rank holds one shard", (int)v);
        r->seen[v / 8] |= (uint8_t)(1 << (v % 8));
        r->out->ranks[r->out->n++] = (int)v;
    }
    return TSR_OK;
}

static tsr_status add_list(rank_reader *r, const tsri_yaml *node, int depth)
{
    const bool is_last = depth + 1 == r->out->ndim;
    if (node->kind != TSRI_YAML_LIST)
        return tsri_yaml_fail(node, "a rank stands where a list is expected: the lists are nested "
                                    "unevenly");
    int64_t n = is_last ? count_ranks(node) : node->n;
    if (n != r->out->dim[depth])
        return tsri_yaml_fail(node,
                              "this list is %d long, the first one %d; a hierarchy is a "
                              "full grid",
                              (int)n, r->out->dim[depth]);
    for (const tsri_yaml *c = node->first; c; c = c->next)
        TSRI_TRY(is_last ? add_ranks(r, c) : add_list(r, c, depth + 1));
    return TSR_OK;
}

/* The dimensions that the first entries of all levels tell. */
static tsr_status find_dims(const tsri_yaml *node, tsri_ranks *at, int64_t *out_n)
{
    int64_t n = 1;
    for (const tsri_yaml *c = node; c && c->kind == TSRI_YAML_LIST; c = c->first) {
        bool is_last = c->first && c->first->kind != TSRI_YAML_LIST;
        if (at->ndim == TSR_MAX_HIERARCHY || !c->n)
            return tsri_yaml_fail(c,
                                  c->n ? "more than %d levels of lists"
                                       : "an empty list; at "
                                         "least one rank is needed in each of up to %d levels",
                                  TSR_MAX_HIERARCHY);
        int64_t size = is_last ? count_ranks(c) : c->n;
        if (size > TSRI_MAX_RANK + 1)
            size = TSRI_MAX_RANK + 2;
        at->dim[at->ndim++] = (int)size;
        n = n * size <= TSRI_MAX_RANK + 1 ? n * size : TSRI_MAX_RANK + 2;
    }
    *out_n = n;
    return TSR_OK;
}

tsr_status tsri_ranks_read(const tsri_reader *reader, const tsri_field *f, const tsri_yaml *node,
                           tsri_ranks *at)
{
    int64_t n = 0;
    rank_reader r = {.out = at};
    if (node->kind != TSRI_YAML_LIST && !is_range(node))
        return tsri_value_illegal(f, node);
    if (node->kind == TSRI_YAML_LIST)
        TSRI_TRY(find_dims(node, at, &n));
    else
        n = at->dim[at->ndim++] = (int)count_ranks(node);
    TSRI_TRY(tsri_ranks_take(reader, node, n));
    at->ranks = tsri_pool_alloc(reader->pool, (size_t)n * sizeof *at->ranks);
    TSRI_NEED(at->ranks);
    return node->kind == TSRI_YAML_LIST ? add_list(&r, node, 0) : add_ranks(&r, node);
}

/* Writes ranks at..at+n-1 of the innermost level; runs of more than 3 as ranges. */
static void dump_row(const int *ranks, int n, FILE *out)
{
    for (int i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && ranks[i + run] == ranks[i] + run;)
            run++;
        run = run > 3 ? run : 1;
        fprintf(out, "%s%d", i ? ", " : "", ranks[i]);
        if (run > 1)
            fprintf(out, "..%d", ranks[i] + run - 1);
    }
}

static int dump_level(const tsri_ranks *r, int depth, int at, FILE *out)
{
    const bool is_last = depth + 1 >= r->ndim || depth + 1 == TSR_MAX_HIERARCHY;
    fputc('[', out);
    for (int i = 0; !is_last && i < r->dim[depth]; i++) {
        fputs(i ? ", " : "", out);
        at = dump_level(r, depth + 1, at, out);
    }
    if (is_last) {
        dump_row(r->ranks + at, r->dim[depth], out);
        at += r->dim[depth];
    }
    fputc(']', out);
    return at;
}

void tsri_ranks_dump(const tsri_ranks *r, FILE *out)
{
    dump_level(r, 0, 0, out);
}

/* --- meshes ----------------------------------------------------------------------------------- */
static bool is_open(const tsri_yaml *node)
{
    return node->kind == TSRI_YAML_SCALAR && !node->quoted &&
           (!node->text[0] || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

static tsr_status read_axis(const tsri_yaml *node, tsri_mesh_axes *at)
{
    static const tsri_field size = {
        .kind = TSRI_FIELD_INT,
        .legal = "a whole number from 1 to 65536, or ~ for what the number of ranks leaves"};
    int64_t v = 0;
    if (node->index == TSR_MAX_HIERARCHY)
        return tsri_yaml_fail_key(node, "a fifth axis; a mesh has at most %d", TSR_MAX_HIERARCHY);
    if (!tsri_is_name(node->key))
        return tsri_yaml_fail_key(node, "not a name; legal are up to 100 letters, digits, _ and "
                                        "-, with a letter or _ first");
    if (!is_open(node)) {
        const char *text = node->kind == TSRI_YAML_SCALAR && !node->quoted ? node->text : "x";
        if (!isdigit((unsigned char)*text) || text[strspn(text, "0123456789")] ||
            tsri_value_int(node, &v) != TSR_OK || v < 1 || v > TSRI_MAX_RANK + 1)
            return tsri_value_illegal(&size, node);
    }
    at->name[at->ndim] = node->key;
    at->size[at->ndim++] = (int)v;
    return TSR_OK;
}

tsr_status tsri_mesh_read(const tsri_field *f, const tsri_yaml *node, tsri_mesh_axes *at)
{
    int64_t n = 1;
    const char *open = NULL;
    if (node->kind != TSRI_YAML_MAP)
        return tsri_value_illegal(f, node);
    if (!node->n)
        return tsri_yaml_fail(node, "no axes; legal are up to %d, as in {dp: 16, tp: 8}",
                              TSR_MAX_HIERARCHY);
    for (const tsri_yaml *c = node->first; c; c = c->next) {
        TSRI_TRY(read_axis(c, at));
        int size = at->size[c->index];
        if (!size && open)
            return tsri_yaml_fail(c, "no size, as '%s' before it: one axis at most is left open",
                                  open);
        open = size ? open : c->key;
        n *= size ? size : 1;
        if (n > TSRI_MAX_RANK + 1)
            return tsri_yaml_fail(node, "more than %d ranks", TSRI_MAX_RANK + 1);
    }
    return TSR_OK;
}

void tsri_mesh_dump(const tsri_mesh_axes *m, FILE *out)
{
    for (int d = 0; d < m->ndim; d++) {
        fputs(d ? ", " : "{", out);
        tsri_text_dump(m->name[d], out);
        fprintf(out, ": %d", m->size[d]);
    }
    fputc('}', out);
}
