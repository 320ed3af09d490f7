/* SPDX-License-Identifier: Apache-2.0 */
/* A tsr_grad_scaler on the host: its numbers, and what follows from what runs have found. */
#include "src/optim/scaler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/foreign.h"
#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/graph/variable.h"
#include "src/optim/optim.h"

/* --- the object ------------------------------------------------------------------------------- */
static void destroy_scaler(void *object)
{
    tsr_grad_scaler *s = object;
    tsri_world_disown(&s->owned);
    for (int i = 0; i < s->nplaces; i++) {
        tsri_variable_destroy(s->places[i].scale);
        tsri_variable_destroy(s->places[i].inverse);
    }
    for (tsri_scaler_flag *f = s->flags, *next; f; f = next) {
        next = f->next;
        if (tsri_live_has(f->optimizer, TSRI_LIVE_OPTIMIZER) && f->optimizer->flag == f)
            f->optimizer->flag = NULL;
        tsri_variable_destroy(f->found);
        tsri_variable_destroy(f->found_so_far);
        tsri_mem_free(f);
    }
    tsri_mem_free(s->places);
    tsri_live_free(s, TSRI_LIVE_GRAD_SCALER);
}

void tsr_grad_scaler_destroy(tsr_grad_scaler *s)
{
    if (!tsri_is_live(s, TSRI_LIVE_GRAD_SCALER, __func__))
        return;
    (void)tsri_scaler_settle(s);
    destroy_scaler(s);
}

/* Checks the numbers of a scaler that works, and rounds the scale. */
static tsr_status check_state(const char *who, tsr_grad_scaler_state *state)
{
    state->scale = (double)(float)state->scale;
    if (!(state->scale > 0 && isfinite(state->scale)))
        return tsri_fail(TSR_ERR_INVALID, "%s: a scale of %g; in f32 it must be finite and above 0",
                         who, state->scale);
    if (!(state->growth_factor > 1 && isfinite(state->growth_factor)))
        return tsri_fail(TSR_ERR_INVALID, "%s: growth_factor is %g; it must be above 1", who,
                         state->growth_factor);
    if (!(state->backoff_factor > 0 && state->backoff_factor < 1))
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: backoff_factor is %g; it must be above 0 and below 1", who,
                         state->backoff_factor);
    if (state->growth_interval < 1 || state->growth_tracker < 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: growth_interval is %" PRId64 " and growth_tracker %" PRId64
                         "; they must be at least 1 and 0",
                         who, state->growth_interval, state->growth_tracker);
    return TSR_OK;
}

tsr_grad_scaler *tsr_grad_scaler_create(tsr_world *world, const tsr_grad_scaler_opts *opts)
{
    tsr_grad_scaler_opts o = *TSR_GRAD_SCALER_OPTS();
    if (!world) {
        tsri_fail(TSR_ERR_INVALID, "tsr_grad_scaler_create: no world (did its creation fail?)");
        return NULL;
    }
    if (tsri_live_check(world, TSRI_LIVE_WORLD, __func__) != TSR_OK ||
        tsri_opts_read(&o, sizeof o, opts, __func__) != TSR_OK)
        return NULL;
    tsr_grad_scaler_state now = {.scale = o.init_scale,
                                 .growth_factor = o.growth_factor,
                                 .backoff_factor = o.backoff_factor,
                                 .growth_interval = o.growth_interval};
    if (o.enabled && check_state(__func__, &now) != TSR_OK)
        return NULL;
    tsr_grad_scaler *s = tsri_live_alloc(&world->mem, sizeof *s, TSRI_LIVE_GRAD_SCALER);
    if (!s)
        return NULL;
    s->world = world;
    s->enabled = o.enabled;
    s->now = now;
    tsri_world_own(world, &s->owned, s, destroy_scaler);
    return s;
}

void tsri_scaler_forget(tsr_grad_scaler *s, const tsr_optimizer *o)
{
    for (tsri_scaler_flag *f = s->flags; f; f = f->next)
        if (f->optimizer == o) {
            f->optimizer = NULL;
            f->waits = false;
        }
}

const char tsri_scaler_gave_up[] = "the gradient scaler's scale has fallen to 0: gradients were "
                                   "not finite at any scale, and every "
                                   "update from now on is left out";

/* --- after a run ------------------------------------------------------------------------------ */
/* As PyTorch's _amp_update_scale_: factors are f64, and the scale is rounded to f32. A scale of 0
 * stays 0, as gradients over it are not finite. */
static void update_scale(tsr_grad_scaler *s, bool found)
{
    tsr_grad_scaler_state *now = &s->now;
    if (found) {
        const bool worked = now->scale > 0;
        now->scale = (double)(float)(now->scale * now->backoff_factor);
        now->growth_tracker = 0;
        if (worked && now->scale == 0)
            tsri_log(s->world, TSR_LOG_WARNING, "%s", tsri_scaler_gave_up);
        return;
    }
    if (++now->growth_tracker < now->growth_interval)
        return;
    const float grown = (float)(now->scale * now->growth_factor);
    now->scale = isfinite(grown) ? (double)grown : now->scale;
    now->growth_tracker = 0;
}

tsr_status tsri_scaler_settle(tsr_grad_scaler *s)
{
    bool any = false, found = false;
    for (tsri_scaler_flag *f = s->flags; f; f = f->next) {
        float value = 0;
        if (!f->waits)
            continue;
        TSRI_TRY(tsri_variable_read(f->found, 0, &value, sizeof value));
        f->waits = false;
        f->optimizer->flag = NULL;
        any = true;
        if (value == 0)
            tsri_optim_count_update(f->optimizer);
        else
            found = true;
    }
    if (any)
        update_scale(s, found);
    return TSR_OK;
}

void tsri_optim_settle(const tsr_optimizer *o)
{
    /* An error of the run is told by the next one. */
    if (o->flag)
        (void)tsri_scaler_settle(o->flag->scaler);
}

/* --- the numbers ------------------------------------------------------------------------------ */
static tsr_status check_call(const tsr_grad_scaler *s, const void *state, const char *who)
{
    TSRI_TRY(tsri_live_check(s, TSRI_LIVE_GRAD_SCALER, who));
    if (s && state)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "%s: the %s is NULL%s", who, s ? "state" : "scaler",
                     s ? "" : tsri_error_cause());
}

tsr_status tsr_grad_scaler_get(tsr_grad_scaler *s, tsr_grad_scaler_state *out_state)
{
    TSRI_TRY(check_call(s, out_state, __func__));
    TSRI_TRY(tsri_scaler_settle(s));
    *out_state = s->now;
    if (!s->enabled)
        out_state->scale = 1;
    return TSR_OK;
}

tsr_status tsr_grad_scaler_set(tsr_grad_scaler *s, const tsr_grad_scaler_state *state)
{
    TSRI_TRY(check_call(s, state, __func__));
    if (!s->enabled)
        return TSR_OK;
    tsr_grad_scaler_state next = *state;
    TSRI_TRY(check_state(__func__, &next));
    TSRI_TRY(tsri_scaler_settle(s));
    s->now = next;
    return TSR_OK;
}

double tsr_grad_scaler_scale(tsr_grad_scaler *s)
{
    tsr_grad_scaler_state now;
    return tsr_grad_scaler_get(s, &now) == TSR_OK ? now.scale : NAN;
}

/* --- as text ---------------------------------------------------------------------------------- */
tsr_status tsri_scaler_put(tsr_grad_scaler *s, FILE *f)
{
    tsr_grad_scaler_state now;
    TSRI_TRY(tsr_grad_scaler_get(s, &now));
    fprintf(f, "grad_scaler\n");
    if (s->enabled)
        fprintf(f,
                "scale %a\ngrowth_factor %a\nbackoff_factor %a\ngrowth_interval %" PRId64
                "\n_growth_tracker %" PRId64 "\n",
                now.scale, now.growth_factor, now.backoff_factor, now.growth_interval,
                now.growth_tracker);
    return TSR_OK;
}

/* Moves *at behind `word`; whether it stands there. */
static bool take_word(const char **at, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool take_real(const char **at, const char *key, double *out)
{
    char *end = NULL;
    if (!take_word(at, key))
        return false;
    *out = strtod(*at, &end);
    const bool took = end != *at;
    *at = end;
    return took && tsri_take_char(at, '\n');
}

static bool take_count(const char **at, const char *key, int64_t *out)
{
    return take_word(at, key) && tsri_take_number(at, 0, INT64_MAX, out) &&
           tsri_take_char(at, '\n');
}

tsr_status tsri_scaler_take(tsr_grad_scaler *s, const char *text, bool keeps_own)
{
    tsr_grad_scaler_state next;
    if (!take_word(&text, "grad_scaler\n"))
        return tsri_fail(TSR_ERR_FORMAT, "it is no gradient scaler");
    if (!s->enabled)
        return TSR_OK;
    if (!*text)
        return tsri_fail(TSR_ERR_STATE,
                         "the scaler that was saved was disabled, and this one is enabled");
    if (!take_real(&text, "scale ", &next.scale) ||
        !take_real(&text, "growth_factor ", &next.growth_factor) ||
        !take_real(&text, "backoff_factor ", &next.backoff_factor) ||
        !take_count(&text, "growth_interval ", &next.growth_interval) ||
        !take_count(&text, "_growth_tracker ", &next.growth_tracker) || *text)
        return tsri_fail(TSR_ERR_FORMAT, "the text of a gradient scaler is malformed");
    if (keeps_own) {
        const double scale = next.scale;
        const int64_t tracker = next.growth_tracker;
        next = s->now;
        next.scale = scale;
        next.growth_tracker = tracker;
    }
    return tsr_grad_scaler_set(s, &next);
}
