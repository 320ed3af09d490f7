/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of an optimizer's numbers, a line each:
 *
 *   optimizer adam
 *   step 120                      updates made
 *   runs 480                      and runs
 *   accumulate 4                  runs of an update
 *   group                         the first has no pattern; below it are its numbers
 *   number lr 0x1.0624dd2f1a9fcp-10
 *   plateau 1 0x1.8p-1 0 2 0      has a best, the best, the rate, reports without improvement,
 * cooldown group *.bias param 120 0 fc.weight         updates while it was not frozen, whether it
 * is, its name
 */
#include "src/optim/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/foreign.h"
#include "src/core/live.h"
#include "src/optim/optim.h"

/* --- tensors ---------------------------------------------------------------------------------- */
bool tsri_optimizer_is_between(const tsr_optimizer *o)
{
    return o->accumulate > 1 && o->runs % o->accumulate != 0;
}

tsr_status tsri_optimizer_visit_states(tsr_optimizer *o, tsri_optim_state_fn *fn, void *arg)
{
    for (int i = 0; i < o->nslots; i++)
        for (int j = 0; j < TSRI_UPDATE_STATES; j++) {
            tsr_variable *v = o->slots[i].state[j];
            TSRI_TRY(v ? fn(v, v->name, arg) : TSR_OK);
        }
    return TSR_OK;
}

tsr_status tsri_optimizer_visit_means(tsr_optimizer *o, tsri_optim_state_fn *fn, void *arg)
{
    for (int i = 0; i < o->nslots; i++) {
        tsr_variable *v = o->slots[i].gradient;
        TSRI_TRY(v ? fn(v, v->name, arg) : TSR_OK);
    }
    return TSR_OK;
}

/* Writes "exp_avg, exp_avg_sq": the states of a parameter. */
static void list_states(const tsri_optim_slot *slot, char *buf, size_t size)
{
    size_t at = 0;
    snprintf(buf, size, "none");
    for (int j = 0; j < TSRI_UPDATE_STATES && at < size; j++)
        if (slot->state[j])
            at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? ", " : "",
                                   strrchr(slot->state[j]->name, '.') + 1);
}

tsr_variable *tsr_optimizer_state(const tsr_optimizer *o, const tsr_variable *param,
                                  const char *name)
{
    char full[TSRI_NAME_MAX], states[200];
    if (!o || !param || !name) {
        tsri_fail(TSR_ERR_INVALID, "tsr_optimizer_state: the %s is NULL%s",
                  !o       ? "optimizer"
                  : !param ? "parameter"
                           : "name",
                  tsri_error_cause());
        return NULL;
    }
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__) ||
        !tsri_is_live(param, TSRI_LIVE_VARIABLE, __func__))
        return NULL;
    const tsri_optim_slot *slot = tsri_optim_find_slot(o, param);
    tsri_variable_qualified_name(param, full, sizeof full);
    if (!slot) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_optimizer_state: %s is none of the optimizer's %d parameters", full,
                  o->nslots);
        return NULL;
    }
    for (int j = 0; j < TSRI_UPDATE_STATES; j++)
        if (slot->state[j] && !strcmp(strrchr(slot->state[j]->name, '.') + 1, name))
            return slot->state[j];
    list_states(slot, states, sizeof states);
    tsri_fail(TSR_ERR_INVALID, "tsr_optimizer_state: %s has no '%.60s' of %s; it has: %s", full,
              name, o->name, states);
    return NULL;
}

bool tsri_optimizer_is_local(const tsr_optimizer *o)
{
    return tsri_scope_is_local(o->slots[0].param->scope);
}

/* --- out -------------------------------------------------------------------------------------- */
static void put_group(const tsr_optimizer *o, const tsri_optim_group *group, FILE *f)
{
    const tsri_plateau *p = &group->plateau;
    fprintf(f, "group%s%s\n", group->pattern ? " " : "", group->pattern ? group->pattern : "");
    for (int i = 0; i < TSRI_NUMBERS; i++)
        if (o->numbers >> i & 1 && !isnan(group->number[i]))
            fprintf(f, "number %s %a\n", tsri_number_name(i), group->number[i]);
    fprintf(f, "plateau %d %a %a %" PRId64 " %" PRId64 "\n", p->has_best, p->best, p->lr, p->bad,
            p->cooldown);
}

void tsri_optimizer_put_numbers(const tsr_optimizer *o, FILE *f)
{
    tsri_optim_settle(o);
    fprintf(f, "optimizer %s\nstep %" PRId64 "\nruns %" PRId64 "\naccumulate %" PRId64 "\n",
            o->name, o->step, o->runs, o->accumulate ? o->accumulate : o->was_accumulate);
    for (int i = 0; i < o->ngroups; i++)
        put_group(o, &o->groups[i], f);
    for (int i = 0; i < o->nslots; i++) {
        const tsri_optim_class *class = &o->classes[o->slots[i].class];
        char name[TSRI_NAME_MAX];
        tsri_variable_qualified_name(o->slots[i].param, name, sizeof name);
        fprintf(f, "param %" PRId64 " %d %s\n", class->step, class->frozen, name);
    }
}

/* --- in --------------------------------------------------------------------------------------- */
/* An optimizer's numbers as they will be: copies, until all of the text has been read. */
typedef struct taking {
    const tsr_optimizer *o;
    int64_t step, runs, accumulate;
    tsri_optim_group *groups;
    tsri_optim_class *classes;
    bool *is_set;            /* of each class */
    tsri_optim_group *group; /* that lines are about; NULL before the first */
    int nparams, ngroups;
    bool keeps_own;       /* numbers of groups stay */
    double lr, common_lr; /* in the text: of the group, and of the first; NAN: it has none */
} taking;

static bool starts(const char **at, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool take_double(const char **at, double *out)
{
    char *end;
    *out = strtod(*at, &end);
    if (end == *at)
        return false;
    *at = end;
    return true;
}

static bool take_count(const char **at, int64_t *out)
{
    return tsri_take_number(at, 0, INT64_MAX, out);
}

static tsr_status take_group(taking *t, const char *pattern)
{
    t->group = NULL;
    for (int i = 0; i < t->o->ngroups && !t->group; i++) {
        const char *own = t->groups[i].pattern;
        if (*pattern ? own && !strcmp(own, pattern) : !own)
            t->group = &t->groups[i];
    }
    t->ngroups++;
    t->lr = NAN;
    return t->group || t->keeps_own
               ? TSR_OK
               : tsri_fail(TSR_ERR_STATE,
                           "it has a group '%s' of parameters, which this optimizer has not; "
                           "make it before",
                           pattern);
}

static tsr_status take_number(taking *t, const char *at)
{
    for (int i = 0; i < TSRI_NUMBERS && t->ngroups; i++) {
        const char *value = at;
        double x;
        if (!(t->keeps_own || t->o->numbers >> i & 1) || !starts(&value, tsri_number_name(i)) ||
            !tsri_take_char(&value, ' '))
            continue;
        if (!take_double(&value, &x) || *value)
            return TSR_ERR_FORMAT;
        TSRI_TRY(tsri_number_check("the checkpoint", (tsri_number)i, x));
        t->lr = i == TSRI_LR ? x : t->lr;
        t->common_lr = i == TSRI_LR && t->ngroups == 1 ? x : t->common_lr;
        if (!t->keeps_own)
            t->group->number[i] = x;
        return TSR_OK;
    }
    return TSR_ERR_FORMAT;
}

/* Whether a group goes on with what its plateau remembers: another rate starts anew. */
static bool keeps_plateau(const taking *t)
{
    const double lr = isnan(t->lr) ? t->common_lr : t->lr;
    return !t->keeps_own ||
           (t->group && tsri_group_schedule(t->o, t->group)->kind == TSR_SCHEDULE_PLATEAU &&
            lr == tsri_optim_number(t->o, t->group, TSRI_LR));
}

static tsr_status take_plateau(const taking *t, const char *at)
{
    int has;
    tsri_plateau p = {0};
    bool legal = t->ngroups && tsri_take_int(&at, 0, 1, &has) && tsri_take_char(&at, ' ') &&
                 take_double(&at, &p.best) && tsri_take_char(&at, ' ') && take_double(&at, &p.lr) &&
                 tsri_take_char(&at, ' ') && take_count(&at, &p.bad) && tsri_take_char(&at, ' ') &&
                 take_count(&at, &p.cooldown) && !*at && p.lr >= 0 && isfinite(p.lr);
    if (!legal)
        return TSR_ERR_FORMAT;
    p.has_best = has;
    if (keeps_plateau(t))
        t->group->plateau = p;
    return TSR_OK;
}

static tsr_status take_param(taking *t, const char *at)
{
    int frozen, i = 0;
    int64_t step;
    if (!take_count(&at, &step) || !tsri_take_char(&at, ' ') ||
        !tsri_take_int(&at, 0, 1, &frozen) || !tsri_take_char(&at, ' '))
        return TSR_ERR_FORMAT;
    for (; i < t->o->nslots; i++) {
        char name[TSRI_NAME_MAX];
        tsri_variable_qualified_name(t->o->slots[i].param, name, sizeof name);
        if (!strcmp(name, at))
            break;
    }
    if (i == t->o->nslots)
        return tsri_fail(TSR_ERR_INVALID, "it has a parameter '%s', which this optimizer has not",
                         at);
    const int class = t->o->slots[i].class;
    if (t->is_set[class] && (t->classes[class].step != step ||
                             (!t->keeps_own && t->classes[class].frozen != (bool)frozen)))
        return tsri_fail(TSR_ERR_STATE,
                         "parameter '%s' was frozen apart from others that share its numbers here; "
                         "freeze it, or make its group, as the run before did",
                         at);
    t->is_set[class] = true;
    t->classes[class].step = step;
    if (!t->keeps_own)
        t->classes[class].frozen = frozen;
    t->nparams++;
    return TSR_OK;
}

static tsr_status take_line(taking *t, int number, const char *at)
{
    if (number == 1)
        return !starts(&at, "optimizer ") ? TSR_ERR_FORMAT
               : !strcmp(at, t->o->name)
                   ? TSR_OK
                   : tsri_fail(TSR_ERR_INVALID, "it is of tsr_%s, this optimizer of tsr_%s", at,
                               t->o->name);
    if (starts(&at, "step "))
        return take_count(&at, &t->step) && !*at ? TSR_OK : TSR_ERR_FORMAT;
    if (starts(&at, "runs "))
        return take_count(&at, &t->runs) && !*at ? TSR_OK : TSR_ERR_FORMAT;
    if (starts(&at, "accumulate "))
        return take_count(&at, &t->accumulate) && !*at ? TSR_OK : TSR_ERR_FORMAT;
    if (starts(&at, "number "))
        return take_number(t, at);
    if (starts(&at, "plateau "))
        return take_plateau(t, at);
    if (starts(&at, "param "))
        return take_param(t, at);
    return starts(&at, "group") && (!*at || *at++ == ' ') ? take_group(t, at) : TSR_ERR_FORMAT;
}

/* Whether what was read is of an optimizer like this one. */
static tsr_status check_taken(const taking *t)
{
    const tsr_optimizer *o = t->o;
    if (t->nparams != o->nslots)
        return tsri_fail(TSR_ERR_INVALID, "it has %d parameters, this optimizer %d", t->nparams,
                         o->nslots);
    if (t->ngroups != o->ngroups && !t->keeps_own)
        return tsri_fail(TSR_ERR_STATE, "it has %d groups of parameters, this optimizer %d",
                         t->ngroups - 1, o->ngroups - 1);
    if (o->accumulate && t->accumulate && t->accumulate != o->accumulate)
        return tsri_fail(TSR_ERR_STATE,
                         "it takes the mean of %" PRId64
                         " runs for an update, this optimizer of %" PRId64,
                         t->accumulate, o->accumulate);
    if (!o->accumulate && t->accumulate > 1 && t->runs % t->accumulate)
        return tsri_fail(TSR_ERR_STATE,
                         "it was saved between two updates, with gradients of %" PRId64
                         " runs; load it when the graph that accumulates is declared",
                         t->runs % t->accumulate);
    return TSR_OK;
}

static tsr_status take_lines(taking *t, char *text)
{
    int number = 1;
    for (char *at = text, *end; *at; at = end, number++) {
        end = strchr(at, '\n');
        if (!end)
            return tsri_fail(TSR_ERR_FORMAT, "its line %d has no end", number);
        *end++ = 0;
        tsr_status status = take_line(t, number, at);
        if (status == TSR_ERR_FORMAT)
            return tsri_fail(status, "its line %d, '%.80s', makes no sense", number,
                             tsri_make_printable(at, false));
        TSRI_TRY(status);
    }
    return check_taken(t);
}

tsr_status tsri_optimizer_take_numbers(tsr_optimizer *o, const char *text, bool keeps_own)
{
    tsri_pool pool;
    tsri_optim_settle(o);
    tsri_pool_init(&pool, &o->world->mem);
    taking t = {
        .o = o,
        .keeps_own = keeps_own,
        .lr = NAN,
        .common_lr = NAN,
        .groups = tsri_pool_dup(&pool, o->groups, (size_t)o->ngroups * sizeof *o->groups),
        .classes = tsri_pool_dup(&pool, o->classes, (size_t)o->nclasses * sizeof *o->classes),
        .is_set = tsri_pool_alloc(&pool, (size_t)o->nclasses),
    };
    char *copy = tsri_pool_strdup(&pool, text);
    tsr_status status =
        t.groups && t.classes && t.is_set && copy ? take_lines(&t, copy) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        memcpy(o->groups, t.groups, (size_t)o->ngroups * sizeof *o->groups);
        memcpy(o->classes, t.classes, (size_t)o->nclasses * sizeof *o->classes);
        o->step = t.step;
        o->runs = t.runs;
        o->was_accumulate = t.accumulate;
    }
    tsri_pool_finish(&pool);
    return status;
}
