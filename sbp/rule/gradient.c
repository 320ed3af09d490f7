/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of a gradient, from that of the op. */
#include <stdio.h>
#include <string.h>

#include "sbp/rule/types.h"

typedef struct writer {
    const tsri_rule *rule;
    char *buf;
    size_t size, at;
} writer;

static void put(writer *w, const char *text)
{
    const size_t n = strlen(text);
    if (w->at + n < w->size)
        memcpy(w->buf + w->at, text, n + 1);
    w->at += n;
}

/* The name of an index in a text: those of '...' have none that could stand in one. */
static void name_index(const tsri_rule *rule, int index, char out[TSRI_RULE_NAME_MAX + 1])
{
    const char *name = rule->index[index].name;
    if (name[0] == '~')
        snprintf(out, TSRI_RULE_NAME_MAX + 1, "z9000%c", name[1]);
    else
        snprintf(out, TSRI_RULE_NAME_MAX + 1, "%.*s", TSRI_RULE_NAME_MAX, name);
}

static void put_axes(writer *w, const tsri_rule_arg *arg)
{
    for (int a = 0; a < arg->naxes; a++) {
        const int first = arg->axis[a], end = arg->axis[a + 1];
        bool all_one = true;
        for (int i = first; i < end; i++)
            all_one &= w->rule->items[i] == TSRI_ITEM_ONE;
        if (all_one) {
            put(w, "1 ");
            continue;
        }
        put(w, end - first > 1 ? "(" : "");
        for (int i = first; i < end; i++) {
            char name[TSRI_RULE_NAME_MAX + 1] = ".";
            const int item = w->rule->items[i];
            if (item == TSRI_ITEM_ONE)
                continue; /* of size 1, beside others */
            if (item >= 0)
                name_index(w->rule, item, name);
            put(w, name);
            put(w, " ");
        }
        put(w, end - first > 1 ? ") " : "");
    }
    if (!arg->naxes)
        put(w, "() ");
}

tsr_status tsri_rule_gradient(const tsri_rule *rule, uint32_t want, bool results, char *buf,
                              size_t buf_size, tsri_index_size *out_sizes, int *out_nsizes)
{
    const tsri_subrule *r = &rule->rules[0];
    bool plain = rule->nrules == 1;
    for (int i = 0; i < r->nout; i++)
        plain &= r->out[i].reduce == TSRI_REDUCE_DEFAULT;
    if (!plain)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "rule \"%.300s\": the rule of its gradient can't be derived", rule->text);
    writer w = {rule, buf, buf_size, 0};
    for (int i = 0; i < rule->nin; i++) {
        put(&w, i ? ", !" : "!");
        put_axes(&w, &r->in[i]);
    }
    for (int i = 0; i < r->nout && results; i++) {
        put(&w, ", !");
        put_axes(&w, &r->out[i]);
    }
    for (int i = 0; i < r->nout; i++) {
        put(&w, i ? "+ " : ": ");
        put_axes(&w, &r->out[i]);
    }
    put(&w, "->");
    bool any = false;
    for (int i = 0; i < rule->nin; i++) {
        if (!(want >> i & 1))
            continue;
        put(&w, any ? ", " : " ");
        put_axes(&w, &r->in[i]);
        any = true;
    }
    *out_nsizes = rule->nindices;
    for (int i = 0; i < rule->nindices; i++) {
        char name[TSRI_RULE_NAME_MAX + 1];
        name_index(rule, i, name);
        out_sizes[i].size = rule->index[i].size;
        snprintf(out_sizes[i].name, TSRI_RULE_NAME_MAX, "%.*s", TSRI_RULE_NAME_MAX - 1, name);
    }
    return w.at < buf_size ? TSR_OK
                           : tsri_fail(TSR_ERR_INTERNAL,
                                       "the gradient of rule \"%.300s\" is too "
                                       "long",
                                       rule->text);
}
