/* SPDX-License-Identifier: Apache-2.0 */
/* Where variables live and how: tsr_module_place, by patterns of their names; modules of one rank's
 * own. */
#include "src/nn/place.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/live.h"
#include "src/graph/variable.h"
#include "placement/placement.h"

/* --- patterns --------------------------------------------------------------------------------- */
/* Finds the first whole part of a pattern, between dots, that is a range of numbers, as in h.0-5.*;
 * returns where it begins, and sets its length and ends. NULL: there is none. */
static const char *find_range(const char *pattern, size_t *out_length, int *out_first,
                              int *out_last)
{
    static const char digits[] = "0123456789";
    for (const char *at = pattern; at; at = strchr(at, '.')) {
        at += *at == '.';
        const size_t a = strspn(at, digits), b = at[a] == '-' ? strspn(at + a + 1, digits) : 0;
        if (a == 0 || b == 0 || a > 8 || b > 8 || (at[a + 1 + b] && at[a + 1 + b] != '.'))
            continue;
        *out_length = a + 1 + b;
        *out_first = atoi(at);
        *out_last = atoi(at + a + 1);
        return at;
    }
    return NULL;
}

bool tsri_glob(const char *pattern, const char *text)
{
    char one[TSRI_NAME_MAX];
    size_t length;
    int first, last;
    if (fnmatch(pattern, text, FNM_NOESCAPE) == 0)
        return true;
    const char *range = find_range(pattern, &length, &first, &last);
    if (!range || strlen(pattern) >= sizeof one)
        return false;
    /* Only numbers that the text has can fit. */
    for (const char *at = text; at; at = strchr(at, '.')) {
        at += *at == '.';
        const size_t n = strspn(at, "0123456789");
        const bool is_part = n > 0 && n <= 8 && (!at[n] || at[n] == '.');
        if (!is_part || atoi(at) < first || atoi(at) > last)
            continue;
        const int used = snprintf(one, sizeof one, "%.*s%.*s%s", (int)(range - pattern), pattern,
                                  (int)n, at, range + length);
        if (used < (int)sizeof one && tsri_glob(one, text))
            return true;
    }
    return false;
}

/* --- one variable ----------------------------------------------------------------------------- */
tsr_status tsri_variable_check_place(const tsr_variable *v, const tsr_placement *p, tsr_sbp sbp)
{
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    if (v->ready || v->held.ndim)
        return tsri_fail(TSR_ERR_STATE,
                         "variable %s has its value already; place variables before "
                         "they are set, loaded or compiled",
                         name);
    if (v->used)
        return tsri_fail(TSR_ERR_STATE,
                         "variable %s is used already, by a graph or an optimizer; place variables "
                         "before that",
                         name);
    tsr_status status = tsri_sbp_check(p, v->shape, sbp, false);
    return status == TSR_OK ? status : tsri_fail_prefix(status, "variable %s", name);
}

/* --- by pattern ------------------------------------------------------------------------------- */
typedef struct placing {
    const char *pattern;
    const tsr_placement *placement;
    tsr_sbp sbp;
    bool apply; /* else only check */
    int matches;
} placing;

static tsr_status place(tsr_variable *v, const char *name, void *arg)
{
    placing *a = arg;
    if (!tsri_glob(a->pattern, name))
        return TSR_OK;
    a->matches++;
    const tsr_placement *p = a->placement ? a->placement : v->placement;
    if (!a->apply)
        return tsri_variable_check_place(v, p, a->sbp);
    v->placement = p;
    v->sbp = a->sbp;
    return TSR_OK;
}

/* Names that start as the pattern does, up to a few, for the error. */
typedef struct near {
    const char *pattern;
    size_t best; /* longest common start so far */
    char list[256];
    int n;
} near;

static tsr_status find_near(tsr_variable *v, const char *name, void *arg)
{
    (void)v;
    near *a = arg;
    size_t common = 0;
    while (name[common] && name[common] == a->pattern[common])
        common++;
    if (common > a->best) {
        a->best = common;
        a->n = 0;
    }
    if (common < a->best || a->n >= 3)
        return TSR_OK;
    size_t used = a->n ? strlen(a->list) : 0;
    snprintf(a->list + used, sizeof a->list - used, "%s%.70s", a->n++ ? ", " : "", name);
    return TSR_OK;
}

static tsr_status no_match(tsr_module *m, const char *pattern)
{
    near a = {.pattern = pattern};
    TSRI_TRY(tsr_module_visit(m, find_near, &a));
    return tsri_fail(TSR_ERR_INVALID, "tsr_module_place: no variable's name fits '%.200s'; %s%s",
                     pattern, a.n ? "there are, for example, " : "the module has none", a.list);
}

tsr_status tsr_module_place(tsr_module *m, const char *pattern, const tsr_placement *p, tsr_sbp sbp)
{
    if (!m || !pattern)
        return tsri_fail(TSR_ERR_INVALID, "tsr_module_place: the %s is NULL",
                         m ? "pattern" : "module");
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_module_place"));
    TSRI_TRY(tsri_placement_check(m->world, p, "tsr_module_place"));
    placing a = {.pattern = pattern, .placement = p, .sbp = sbp};
    /* All are checked before the first is changed. */
    tsr_status status = tsr_module_visit(m, place, &a);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "tsr_module_place");
    if (!a.matches)
        return no_match(m, pattern);
    a.apply = true;
    return tsr_module_visit(m, place, &a);
}

/* --- a rank's own ----------------------------------------------------------------------------- */

static tsr_status check_local(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return tsri_variable_check_local(v);
}

tsr_status tsr_module_set_local(tsr_module *m)
{
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, __func__));
    tsr_status status = m ? tsr_module_visit(m, check_local, NULL)
                          : tsri_fail(TSR_ERR_INVALID, "the module is NULL");
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "tsr_module_set_local");
    m->scope.local = true;
    return TSR_OK;
}
