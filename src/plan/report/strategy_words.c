/* SPDX-License-Identifier: Apache-2.0 */
/* The words for a recognised strategy. */
#include "src/plan/report/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/placement.h"
#include "src/plan/report/strategy_inside.h"

/* --- blocks ----------------------------------------------------------------------------------- */
/* A block of a network: the name up to its first number, "h.3" of "h.3.mlp.c_fc.weight". Layers
 * that are numbered themselves, as in "2.weight", have none. */
typedef struct block {
    const char *name;
    int length, stem; /* stem: without the number */
    bool paired;
} block;

/* Returns false where a name has no block. */
static bool block_of(const char *name, block *out)
{
    int begin = 0;
    for (int i = 0;; i++) {
        if (name[i] != '.' && name[i])
            continue;
        char *end;
        strtol(name + begin, &end, 10);
        bool number = end == name + i && i > begin;
        const char *rest = strchr(name + i + (name[i] == '.'), '.');
        if (number && begin > 0 && rest) {
            *out = (block){name, i, begin, false};
            return true;
        }
        if (!name[i])
            return false;
        begin = i + 1;
    }
}

static int by_name(const void *a, const void *b)
{
    const block *x = a, *y = b;
    int n = x->length < y->length ? x->length : y->length, order = strncmp(x->name, y->name, n);
    return order ? order : x->length - y->length;
}

/* Counts the blocks that have pairs, and those of the same stem. */
static tsr_status count_blocks(tsri_strategist *s, const tsri_stage_strategy *stage,
                               tsri_axis_strategy *axis)
{
    int n = 0, blocks = 0;
    block *all = tsri_pool_alloc(&s->scratch, (size_t)(s->nlayers + 1) * sizeof *all);
    TSRI_NEED(all);
    for (int i = 0; i < s->nlayers; i++) {
        const tsri_layer *l = &s->layers[i];
        const char *name = s->plan->ir.values[l->variable].name;
        if (s->plan->ir.items[l->item].placement == stage->placement && name &&
            block_of(name, &all[n]))
            all[n++].paired = l->paired;
    }
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int i = 0; i < n; i++) {
        if (blocks == 0 || by_name(&all[blocks - 1], &all[i]) != 0)
            all[blocks++] = all[i];
        else
            all[blocks - 1].paired |= all[i].paired;
    }
    for (int i = 0; i < blocks; i++) {
        bool kin = false;
        for (int j = 0; j < blocks && !kin; j++)
            kin = all[j].paired && all[i].stem == all[j].stem &&
                  !strncmp(all[i].name, all[j].name, (size_t)all[i].stem);
        axis->blocks += all[i].paired;
        axis->of_blocks += kin;
    }
    return TSR_OK;
}

/* --- one dimension ---------------------------------------------------------------------------- */
char *tsri_axis_name(const tsr_placement *p, int dim, char buf[24])
{
    const char *said = tsri_placement_axis(p, dim);
    if (said)
        snprintf(buf, 24, "%.20s", said);
    else
        snprintf(buf, 24, "axis %d", dim);
    return buf;
}

static const char *const names[] = {
    [TSRI_STRATEGY_NONE] = "no common name",    [TSRI_STRATEGY_REPLICATED] = "replicated",
    [TSRI_STRATEGY_DATA] = "data parallel",     [TSRI_STRATEGY_ZERO1] = "ZeRO-1",
    [TSRI_STRATEGY_ZERO2] = "ZeRO-2",           [TSRI_STRATEGY_ZERO3] = "ZeRO-3 (FSDP)",
    [TSRI_STRATEGY_MEGATRON] = "Megatron pair", [TSRI_STRATEGY_SEQUENCE] = "sequence parallel",
};

static const char *const layers_do[] = {
    [TSRI_LAYER_OTHER] = "otherwise",
    [TSRI_LAYER_REPLICATED] = "replicated",
    [TSRI_LAYER_DATA] = "by rows of the batch",
    [TSRI_LAYER_GATHERED] = "by rows with gathered weights",
    [TSRI_LAYER_SEQUENCE] = "along the sequence",
    [TSRI_LAYER_SEQUENCE_GATHERED] = "along the sequence with gathered weights",
    [TSRI_LAYER_COLUMN] = "by output features",
    [TSRI_LAYER_ROW] = "by input features",
    [TSRI_LAYER_GROUP] = "by channels",
    [TSRI_LAYER_VOCABULARY] = "by the vocabulary",
};

const char *tsri_layer_words(tsri_layer_kind kind)
{
    return layers_do[kind];
}

/* The kinds that layers are of, those of most layers first; returns how many. */
static int rank_kinds(const tsri_axis_strategy *axis, tsri_layer_kind out[TSRI_LAYER_KINDS])
{
    int n = 0;
    for (int k = 0; k < TSRI_LAYER_KINDS; k++) {
        if (!axis->layers[k])
            continue;
        int at = n++;
        for (; at > 0 && axis->layers[k] > axis->layers[out[at - 1]]; at--)
            out[at] = out[at - 1];
        out[at] = (tsri_layer_kind)k;
    }
    return n;
}

/* Appends "40 by rows of the batch, 13 by input features". of_all: "40 of 53 layers ...". */
static const char *add_counts(tsri_strategist *s, const tsri_axis_strategy *axis, bool of_all,
                              const char *text)
{
    tsri_layer_kind kinds[TSRI_LAYER_KINDS];
    char all[32] = "";
    const int n = rank_kinds(axis, kinds);
    if (of_all)
        snprintf(all, sizeof all, " of %d layer%s", axis->nlayers, axis->nlayers == 1 ? "" : "s");
    for (int i = 0; i < n && text; i++)
        text = tsri_pool_printf(s->pool, "%s%s%d%s %s", text, i ? ", " : "", axis->layers[kinds[i]],
                                i ? "" : all, layers_do[kinds[i]]);
    return text;
}

/* "no common name x4: of 53 layers 40 by rows of the batch, 13 by input features". */
static const char *say_layers(tsri_strategist *s, const tsri_axis_strategy *axis)
{
    const char *text = tsri_pool_printf(s->pool, "no common name x%d: of %d layer%s ", axis->size,
                                        axis->nlayers, axis->nlayers == 1 ? "" : "s");
    text = add_counts(s, axis, false, text);
    if (text && axis->pairs)
        text = tsri_pool_printf(s->pool, "%s; %d Megatron pair%s among them", text, axis->pairs,
                                axis->pairs == 1 ? "" : "s");
    if (text && axis->states)
        text = tsri_pool_printf(s->pool, "%s; optimizer states in parts", text);
    return text;
}

/* "Megatron pairs x8 in 24 of 24 blocks, sequence-parallel norms, vocabulary-parallel embedding" */
static const char *say_pairs(tsri_strategist *s, const tsri_axis_strategy *axis)
{
    char where[64] = "", norms[64] = "", others[48] = "", what[96] = "";
    if (axis->of_blocks)
        snprintf(where, sizeof where, " in %d of %d block%s", axis->blocks, axis->of_blocks,
                 axis->of_blocks == 1 ? "" : "s");
    if (axis->norms && axis->norms < axis->of_norms)
        snprintf(norms, sizeof norms, ", sequence-parallel norms (%d of %d)", axis->norms,
                 axis->of_norms);
    else if (axis->norms)
        snprintf(norms, sizeof norms, ", sequence-parallel norms");
    if (axis->embedding || axis->output_words)
        snprintf(what, sizeof what, ", vocabulary-parallel %s%s%s",
                 axis->embedding ? "embedding" : "",
                 axis->embedding && axis->output_words ? " and " : "",
                 axis->output_words ? "output" : "");
    if (axis->output && !axis->output_words)
        snprintf(what + strlen(what), sizeof what - strlen(what), ", column-parallel output");
    if (axis->others)
        snprintf(others, sizeof others, ", %d layer%s otherwise", axis->others,
                 axis->others == 1 ? "" : "s");
    return tsri_pool_printf(s->pool, "%s%s x%d%s%s%s%s", names[TSRI_STRATEGY_MEGATRON],
                            axis->pairs > 1 ? "s" : "", axis->size, where, norms, what, others);
}

/* "ZeRO-3 (FSDP) x4 in 23 of 24 layers", "data parallel x2". */
static const char *say_name(tsri_strategist *s, const tsri_axis_strategy *axis)
{
    int gathered = axis->layers[TSRI_LAYER_GATHERED];
    const char *text = tsri_pool_printf(s->pool, "%s x%d", names[axis->kind], axis->size);
    if (text && axis->kind == TSRI_STRATEGY_ZERO3 && gathered < axis->nlayers)
        text = tsri_pool_printf(s->pool, "%s in %d of %d layers", text, gathered, axis->nlayers);
    return text;
}

tsr_status tsri_strategy_say_axis(tsri_strategist *s, const tsri_stage_strategy *stage,
                                  tsri_axis_strategy *axis)
{
    if (axis->kind == TSRI_STRATEGY_MEGATRON)
        TSRI_TRY(count_blocks(s, stage, axis));
    axis->words = axis->kind == TSRI_STRATEGY_MEGATRON ? say_pairs(s, axis)
                  : axis->kind == TSRI_STRATEGY_NONE   ? say_layers(s, axis)
                                                       : say_name(s, axis);
    return axis->words ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* --- the whole -------------------------------------------------------------------------------- */
/* "dp: data parallel x16; tp: Megatron pairs x8 in 24 of 24 blocks". */
static tsr_status say_stage(tsri_strategist *s, tsri_stage_strategy *stage)
{
    char name[24];
    const char *text = stage->naxes ? "" : "one rank";
    bool alike = stage->naxes > 1;
    for (int d = 1; d < stage->naxes; d++)
        alike &= !strcmp(stage->axis[d].words, stage->axis[0].words);
    if (alike)
        text = tsri_pool_printf(s->pool, "each of %d axes: ", stage->naxes);
    for (int d = 0; d < (alike ? 1 : stage->naxes) && text; d++) {
        bool named = stage->naxes > 1 && !alike;
        tsri_axis_name(stage->placement, stage->axis[d].dim, name);
        text = tsri_pool_printf(s->pool, "%s%s%s%s%s", text, d ? "; " : "", named ? name : "",
                                named ? ": " : "", stage->axis[d].words);
    }
    stage->words = text;
    return text ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* --- in plain words --------------------------------------------------------------------------- */
static const struct {
    const char *does, *name;
} plain[] = {
    [TSRI_STRATEGY_NONE] = {NULL, "mixed"}, /* what layers do is said by mixed_words */
    [TSRI_STRATEGY_REPLICATED] = {"every rank computes the same", "replicated"},
    [TSRI_STRATEGY_DATA] = {"batch split, parameters whole", "data parallel"},
    [TSRI_STRATEGY_ZERO1] = {"batch and optimizer states split", "ZeRO-1"},
    [TSRI_STRATEGY_ZERO2] = {"batch, optimizer states and gradients split", "ZeRO-2"},
    [TSRI_STRATEGY_ZERO3] = {"parameters split, gathered layer by layer", "ZeRO-3"},
    [TSRI_STRATEGY_MEGATRON] = {"layers split in pairs", "tensor parallel"},
    [TSRI_STRATEGY_SEQUENCE] = {"positions split", "sequence parallel"},
};

int tsri_layer_name_length(const tsri_layer_way *l)
{
    const char *dot = strrchr(l->name, '.');
    return dot ? (int)(dot - l->name) : (int)strlen(l->name);
}

/* "conv1 to layer2.1.conv2 by rows of the batch, fc by input features": each run of layers that do
 * the same. Returns NULL where there are too many, or no memory. */
static const char *say_runs(tsri_strategist *s, const tsri_stage_strategy *stage, int axis)
{
    enum { MOST_RUNS = 4 };
    const char *text = "";
    for (int first = 0, runs = 0, end; first < stage->nlayers && text; first = end) {
        const tsri_layer_way *a = &stage->layers[first];
        for (end = first + 1; end < stage->nlayers; end++)
            if (stage->layers[end].kind[axis] != a->kind[axis])
                break;
        if (++runs > MOST_RUNS)
            return NULL;
        const tsri_layer_way *b = &stage->layers[end - 1];
        text = tsri_pool_printf(s->pool, "%s%s%.*s%s%.*s %s", text, first ? ", " : "",
                                tsri_layer_name_length(a), a->name, a == b ? "" : " to ",
                                a == b ? 0 : tsri_layer_name_length(b), b->name,
                                layers_do[a->kind[axis]]);
    }
    return text;
}

/* A layer's name with "*" for its numbers, "h.*.attn.c_attn", which layers of equal blocks share.
 */
static const char *stem_of(tsri_strategist *s, const tsri_layer_way *l)
{
    const int length = tsri_layer_name_length(l);
    char *stem = tsri_pool_alloc(&s->scratch, (size_t)length + 1);
    int n = 0;
    for (int i = 0; stem && i < length; i++) {
        const bool begins = i == 0 || l->name[i - 1] == '.';
        const int digits = begins ? (int)strspn(l->name + i, "0123456789") : 0;
        const bool is_number = digits && (i + digits == length || l->name[i + digits] == '.');
        stem[n++] = is_number ? '*' : l->name[i];
        i += is_number ? digits - 1 : 0;
    }
    return stem;
}

/* "h.*.fc1, h.*.fc2 by output features; wte otherwise": stems by what their layers do. Returns NULL
 * where layers of one stem differ, where there are too many stems, or no memory. */
static const char *say_stems(tsri_strategist *s, const tsri_stage_strategy *stage, int axis)
{
    enum { MOST_STEMS = 8 };
    tsri_layer_kind kinds[TSRI_LAYER_KINDS];
    const int nkinds = rank_kinds(&stage->axis[axis], kinds), n = stage->nlayers;
    const char **stem = tsri_pool_alloc(&s->scratch, (size_t)n * sizeof *stem), *text = "";
    for (int i = 0; i < n && stem; i++)
        if (!(stem[i] = stem_of(s, &stage->layers[i])))
            return NULL;
    int listed = 0;
    for (int k = 0; k < nkinds && stem && text; k++) {
        bool first = true;
        for (int i = 0; i < n && text; i++) {
            bool known = stage->layers[i].kind[axis] != kinds[k];
            for (int j = 0; j < n && !known; j++) {
                const bool same = !strcmp(stem[i], stem[j]);
                if (same && stage->layers[j].kind[axis] != kinds[k])
                    return NULL;
                known = same && j < i;
            }
            if (known)
                continue;
            if (++listed > MOST_STEMS)
                return NULL;
            text = tsri_pool_printf(s->pool, "%s%s%s", text,
                                    !first ? ", "
                                    : k    ? "; "
                                           : "",
                                    stem[i]);
            first = false;
        }
        text = text ? tsri_pool_printf(s->pool, "%s %s", text, layers_do[kinds[k]]) : NULL;
    }
    return stem ? text : NULL;
}

/* Returns what the layers of an axis do, one by one as far as few words tell it, else how many do
 * what. */
static const char *mixed_words(tsri_strategist *s, const tsri_stage_strategy *stage, int axis)
{
    const char *text = say_runs(s, stage, axis);
    if (!text)
        text = say_stems(s, stage, axis);
    if (text)
        return text;
    text = add_counts(s, &stage->axis[axis], true, "");
    return text ? tsri_pool_printf(s->pool, "%s (--full lists them)", text) : NULL;
}

static const char *plain_words(tsri_strategist *s, const tsri_stage_strategy *stage, int axis)
{
    const char *does = plain[stage->axis[axis].kind].does;
    return does ? does : mixed_words(s, stage, axis);
}

/* "ZeRO-1 x4, tensor parallel x2: batch and optimizer states split over dp; layers split in pairs
 * over tp"; "data parallel x2 over each of 2 axes: batch split, parameters whole". */
static const char *lay_axes_out(tsri_strategist *s, const tsri_stage_strategy *stage, bool alike)
{
    const char *names_text = "", *does = "";
    char name[24];
    for (int d = 0; d < (alike ? 1 : stage->naxes) && names_text && does; d++) {
        const tsri_axis_strategy *axis = &stage->axis[d];
        const char *one = plain_words(s, stage, d);
        if (!one)
            return NULL;
        names_text = tsri_pool_printf(s->pool, "%s%s%s x%d", names_text, d ? ", " : "",
                                      plain[axis->kind].name, axis->size);
        if (alike && names_text)
            return tsri_pool_printf(s->pool, "%s over each of %d axes: %s", names_text,
                                    stage->naxes, one);
        does = tsri_pool_printf(s->pool, "%s%s%s over %s", does, d ? "; " : "", one,
                                tsri_axis_name(stage->placement, axis->dim, name));
    }
    return names_text && does ? tsri_pool_printf(s->pool, "%s: %s", names_text, does) : NULL;
}

static const char *lay_axis_out(tsri_strategist *s, const tsri_axis_strategy *axis,
                                const char *does)
{
    const char *name = plain[axis->kind].name;
    return s->made->nstages > 1 ? tsri_pool_printf(s->pool, "%s x%d: %s", name, axis->size, does)
                                : tsri_pool_printf(s->pool, "%s (%s)", does, name);
}

/* "parameters split, gathered layer by layer (ZeRO-3)" of one axis, or in a stage "ZeRO-3 x4:
 * parameters split, gathered layer by layer". */
static tsr_status lay_stage_out(tsri_strategist *s, tsri_stage_strategy *stage)
{
    bool alike = stage->naxes > 1;
    for (int d = 1; d < stage->naxes; d++)
        alike &= !strcmp(stage->axis[d].words, stage->axis[0].words);
    const char *one = stage->naxes == 1 ? plain_words(s, stage, 0) : NULL;
    stage->layout = stage->naxes == 0  ? stage->words
                    : stage->naxes > 1 ? lay_axes_out(s, stage, alike)
                    : one              ? lay_axis_out(s, &stage->axis[0], one)
                                       : NULL;
    return stage->layout ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* --- stages ----------------------------------------------------------------------------------- */
static const char *words_of(const tsri_strategy *made, int stage, bool layout)
{
    return layout ? made->stages[stage].layout : made->stages[stage].words;
}

/* Returns the number of stages from the first one on that have the same words. */
static int count_alike(const tsri_strategy *made, int first, bool layout)
{
    int end = first + 1;
    while (end < made->nstages &&
           !strcmp(words_of(made, end, layout), words_of(made, first, layout)))
        end++;
    return end - first;
}

/* Appends the words of each run of equal stages: "stages 0 to 2 data parallel x2; stage 3 one
 * rank". Stages of a pipeline are numbered as the timetable numbers them. */
static const char *add_stages(tsri_strategist *s, bool layout, const char *text)
{
    const tsri_strategy *made = s->made;
    const char *what = made->pipeline ? "stage" : "placement";
    for (int i = 0, n; i < made->nstages && text; i += n) {
        char last[24] = "";
        const int number = made->pipeline ? i : i + 1;
        n = count_alike(made, i, layout);
        if (n > 1)
            snprintf(last, sizeof last, " to %d", number + n - 1);
        text = tsri_pool_printf(s->pool, "%s%s %s%s %d%s %s", text, i ? ";" : ":", what,
                                n > 1 ? "s" : "", number, last, words_of(made, i, layout));
    }
    return text;
}

/* "pipeline of 2 stages, each data parallel x2", or the words of one after the other. */
static const char *say_stages(tsri_strategist *s, bool layout)
{
    const tsri_strategy *made = s->made;
    const char *text = tsri_pool_printf(
        s->pool, made->pipeline ? "pipeline of %d stages" : "no common name: %d placements",
        made->nstages);
    if (!text || count_alike(made, 0, layout) < made->nstages)
        return text ? add_stages(s, layout, text) : NULL;
    return tsri_pool_printf(s->pool, "%s, each %s", text, words_of(made, 0, layout));
}

tsr_status tsri_strategy_say(tsri_strategist *s)
{
    tsri_strategy *made = s->made;
    made->named = made->nstages == 1 || made->pipeline;
    for (int i = 0; i < made->nstages; i++) {
        TSRI_TRY(say_stage(s, &made->stages[i]));
        TSRI_TRY(lay_stage_out(s, &made->stages[i]));
        for (int d = 0; d < made->stages[i].naxes; d++)
            made->named &= made->stages[i].axis[d].kind != TSRI_STRATEGY_NONE;
    }
    made->words = made->nstages == 0   ? "no layers with parameters"
                  : made->nstages == 1 ? made->stages[0].words
                                       : say_stages(s, false);
    made->layout = made->nstages == 0   ? made->words
                   : made->nstages == 1 ? made->stages[0].layout
                                        : say_stages(s, true);
    return made->words && made->layout ? TSR_OK : TSR_ERR_NO_MEMORY;
}
