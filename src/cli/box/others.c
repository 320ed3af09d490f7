/* SPDX-License-Identifier: Apache-2.0 */
/* Routes that lost, and why. */
#include "src/cli/box/box.h"

#include <cjson/cJSON.h>
#include <string.h>

static int hand_shakes(const tsri_route *r)
{
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (tsri_box_is_collective(r->step[i].kind))
            n += 1 + r->step[i].two_phase;
    return n;
}

/* Appends "+1 hand-shake" or "-48 B read" to a list, where there is a difference. */
static size_t put_difference(char *buf, size_t at, int64_t more, bool bytes, const char *what)
{
    char amount[CLI_NUMBER_MAX];
    double size = more < 0 ? -(double)more : (double)more;
    if (more == 0)
        return at;
    snprintf(amount, sizeof amount, "%.0f", size);
    return at + (size_t)snprintf(buf + at, BOX_WHY_MAX - at, "%s%c%s %s%s", at ? ", " : "",
                                 more > 0 ? '+' : '-', bytes ? cli_bytes(size, amount) : amount,
                                 what, !bytes && size > 1 ? "s" : "");
}

char *box_why_lost(const box *b, const tsri_route *r, char buf[BOX_WHY_MAX])
{
    const tsri_route *best = &b->route;
    int shakes = hand_shakes(r) - hand_shakes(best);
    buf[0] = 0;
    size_t at = put_difference(buf, 0, shakes, false, "hand-shake");
    at = put_difference(buf, at, shakes ? 0 : r->n - best->n, false, "step");
    at = put_difference(buf, at, r->bytes - best->bytes, true, "read");
    at = put_difference(buf, at, r->peak_bytes - best->peak_bytes, true, "held");
    if (at == 0)
        snprintf(buf, BOX_WHY_MAX, "%s",
                 r->cost_s > best->cost_s
                     ? "as many bytes, over a farther link or copied more often"
                     : "as good; a fixed order decides");
    return buf;
}

/* "all_gather to (B,S(0)), slice" */
static void put_steps(char *buf, size_t size, const tsri_route *r)
{
    char to[TSRI_LAYOUT_TEXT_MAX];
    size_t used = 0;
    for (int i = 0; i < r->n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s%s%s", i ? ", " : "",
                                 tsri_box_kind_name(r->step[i].kind), i + 1 < r->n ? " to " : "",
                                 i + 1 < r->n ? tsri_layout_format(&r->step[i].to, to) : "");
}

void box_print_others(const box *b, const cli_style *style)
{
    enum { INDENT = 13, STEPS = 512 };
    char cost[CLI_NUMBER_MAX], why[BOX_WHY_MAX], line[STEPS + BOX_WHY_MAX];
    if (b->nothers)
        cli_say("%sother ways%s (the best of those that begin otherwise)\n", style->bold,
                style->plain);
    for (int i = 0; i < b->nothers; i++) {
        const tsri_route *r = &b->other[i];
        double more = r->cost_s - b->route.cost_s;
        cli_say("  +%-9s ", more > 0 ? cli_seconds(more, cost) : "0");
        put_steps(line, STEPS, r);
        snprintf(line + strlen(line), BOX_WHY_MAX, ": %s", box_why_lost(b, r, why));
        cli_wrap(line, INDENT, INDENT, cli_columns());
    }
}

cJSON *box_others_json(const box *b)
{
    cJSON *json = cJSON_CreateArray();
    char why[BOX_WHY_MAX];
    for (int i = 0; i < b->nothers; i++) {
        const tsri_route *r = &b->other[i];
        cJSON *one = cJSON_CreateObject(), *steps = cJSON_AddArrayToObject(one, "steps");
        for (int s = 0; s < r->n; s++)
            cJSON_AddItemToArray(steps, box_step_json(b, &r->step[s]));
        cJSON_AddNumberToObject(one, "cost_s", r->cost_s);
        cJSON_AddNumberToObject(one, "bytes_busiest_rank", (double)r->bytes);
        cJSON_AddNumberToObject(one, "peak_bytes", (double)r->peak_bytes);
        cJSON_AddStringToObject(one, "why", box_why_lost(b, r, why));
        cJSON_AddItemToArray(json, one);
    }
    return json;
}
