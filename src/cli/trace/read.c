/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/trace/trace.h"
#include "src/core/status.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20, MAX_BYTES = 1 << 30 };

/* --- the file --------------------------------------------------------------------------------- */
static tsr_status read_all(const char *path, char **out_text)
{
    FILE *f = strcmp(path, "-") != 0 ? fopen(path, "re") : stdin;
    size_t n = 0, room = 0;
    char *text = NULL;
    int rc = f ? 0 : errno;
    while (!rc && !feof(f) && n < MAX_BYTES) {
        if (n + 65536 > room) {
            room = 2 * room + 131072;
            char *more = realloc(text, room);
            rc = more ? 0 : ENOMEM;
            text = more ? more : text;
        }
        if (!rc) {
            n += fread(text + n, 1, 65536 - 1, f);
            rc = ferror(f) ? errno : 0;
        }
    }
    if (f && f != stdin)
        fclose(f);
    if (rc || n >= MAX_BYTES) {
        free(text);
        return tsr_set_error(TSR_ERR_IO, "%s: %s", path,
                             rc ? strerror(rc) : "more than 1 GiB are not read");
    }
    text[n] = 0;
    *out_text = text;
    return TSR_OK;
}

/* --- events ----------------------------------------------------------------------------------- */
static tsr_status bad_event(const char *path, int i, const char *what)
{
    return tsr_set_error(TSR_ERR_FORMAT, "%s: traceEvents[%d]: %s", path, i, what);
}

/* A number of an event within limits; NaN where there is none. */
static double number_of(const cJSON *event, const char *key, double least, double most)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsNumber(v) && v->valuedouble >= least && v->valuedouble <= most ? v->valuedouble
                                                                                  : (double)NAN;
}

static const char *text_of(const cJSON *event, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, key));
    return text ? text : "";
}

/* Splits "all_reduce 2.weight (wait)" into op, name and kind. */
static tsr_status name_span(trace *t, const char *words, bool communicates, trace_span *s)
{
    static const struct {
        const char *suffix;
        trace_kind kind;
    } ends[] = {{" (wait)", TRACE_WAIT}, {" (release)", TRACE_RELEASE}};
    char *op = tsri_pool_strdup(&t->pool, words);
    TSRI_NEED(op);
    size_t n = strlen(op);
    if (communicates)
        s->kind = TRACE_START;
    for (int i = 0; communicates && i < 2; i++) {
        size_t k = strlen(ends[i].suffix);
        if (n > k && !strcmp(op + n - k, ends[i].suffix)) {
            s->kind = ends[i].kind;
            op[n - k] = 0;
        }
    }
    char *space = strchr(op, ' ');
    s->op = op;
    s->name = space ? space + 1 : "";
    if (space)
        *space = 0;
    return TSR_OK;
}

static tsr_status add_span(trace *t, const trace_span *s)
{
    TSRI_NEED(TSRI_PUSH(&t->pool, t->span, t->n, t->capacity));
    t->span[t->n++] = *s;
    t->nranks = s->rank + 1 > t->nranks ? s->rank + 1 : t->nranks;
    return TSR_OK;
}

/* Ends the flight of that rank and number which began last; the two are pairs. */
static tsr_status end_flight(trace *t, const char *path, int i, const trace_span *s)
{
    for (int k = t->n - 1; k >= 0; k--) {
        trace_span *f = &t->span[k];
        if (f->kind != TRACE_UNDER_WAY || f->rank != s->rank || f->id != s->id || !isnan(f->end))
            continue;
        if (s->start < f->start)
            return bad_event(path, i, "it ends before it begins");
        f->end = s->start;
        return TSR_OK;
    }
    return bad_event(path, i, "it ends and has not begun");
}

static tsr_status read_event(trace *t, const char *path, int i, const cJSON *event)
{
    const char *phase = text_of(event, "ph"), *category = text_of(event, "cat");
    bool complete = !strcmp(phase, "X"), begins = !strcmp(phase, "b"), ends = !strcmp(phase, "e");
    if (!cJSON_IsObject(event))
        return bad_event(path, i, "it is no object");
    if (!complete && !((begins || ends) && !strcmp(category, "under way")))
        return TSR_OK;
    double rank = number_of(event, "pid", 0, MAX_RANKS - 1);
    double at = number_of(event, "ts", -1e18, 1e18), lasts = number_of(event, "dur", 0, 1e18);
    double id = number_of(event, "id", 0, 0x7fffffff);
    if (isnan(rank) || rank != floor(rank))
        return bad_event(path, i, "pid is no rank");
    if (isnan(at) || (complete && isnan(lasts)))
        return bad_event(path, i, isnan(at) ? "ts is no time" : "dur is no time");
    if (!complete && isnan(id))
        return bad_event(path, i, "id is no number");
    trace_span s = {.kind = complete ? TRACE_COMPUTE : TRACE_UNDER_WAY,
                    .rank = (int)rank,
                    .id = complete ? 0 : (int)id,
                    .start = at,
                    .end = complete ? at + lasts : (double)NAN};
    if (ends)
        return end_flight(t, path, i, &s);
    TSRI_TRY(
        name_span(t, text_of(event, "name"), complete && !strcmp(category, "communication"), &s));
    double bytes = number_of(cJSON_GetObjectItemCaseSensitive(event, "args"), "bytes", 0, 1e18);
    s.bytes = isnan(bytes) ? 0 : bytes;
    return add_span(t, &s);
}

static tsr_status read_events(trace *t, const char *path, const cJSON *json)
{
    const cJSON *events =
        cJSON_IsArray(json) ? json : cJSON_GetObjectItemCaseSensitive(json, "traceEvents");
    const cJSON *event;
    int i = 0;
    if (!cJSON_IsArray(events))
        return tsr_set_error(TSR_ERR_FORMAT, "%s: it has no traceEvents", path);
    cJSON_ArrayForEach(event, events) TSRI_TRY(read_event(t, path, i++, event));
    for (int k = 0; k < t->n; k++)
        if (isnan(t->span[k].end))
            return tsr_set_error(TSR_ERR_FORMAT, "%s: %s %s of rank %d begins and does not end",
                                 path, t->span[k].op, t->span[k].name, t->span[k].rank);
    return t->n ? TSR_OK : tsr_set_error(TSR_ERR_FORMAT, "%s: it has no events", path);
}

tsr_status trace_read(const char *path, trace *out)
{
    char *text = NULL;
    *out = (trace){0};
    tsri_pool_init(&out->pool, NULL);
    TSRI_TRY(read_all(path, &text));
    cJSON *json = cJSON_Parse(text);
    tsr_status status = json ? read_events(out, path, json)
                             : tsr_set_error(TSR_ERR_FORMAT, "%s: it is no JSON", path);
    cJSON_Delete(json);
    free(text);
    return status;
}

void trace_finish(trace *t)
{
    tsri_pool_finish(&t->pool);
}
