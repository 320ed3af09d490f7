/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How libFuzzer changes experiments: half of the time as any bytes, else by words and entries of
 * the format, taken from the tables that parse it. Bytes alone seldom get past the parser, so that
 * targets behind it are compiled with a smaller share of them (FUZZ_BYTES of FUZZ_BYTES + 4).
 */
#include <ctype.h>

#include "src/config/inside.h"
#include "src/config/layers/layers.h"
#include "tests/fuzz/mutate.h"

#ifndef FUZZ_BYTES
#define FUZZ_BYTES 4
#endif
enum { MOST_NAMES = 64, NAME_MOST = 12, ENTRY_MOST = 400 };

static const char *any_number(text *t)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "5",
                                          "6",
                                          "8",
                                          "-1",
                                          "-2",
                                          "7",
                                          "16",
                                          "0.5",
                                          "1e-9",
                                          "1e308",
                                          "-1e30",
                                          "65536",
                                          "2147483647",
                                          "2147483648",
                                          "1048",
                                          "1024",
                                          "65535",
                                          "true",
                                          "281474976710656",
                                          "-8",
                                          "4294967296",
                                          "9007199254740992",
                                          "9223372036854775807"};
    /* Small ones make more that fits. */
    uint32_t n = sizeof numbers / sizeof *numbers;
    return numbers[draw(t, draw(t, 3) ? 8 : n)];
}

static const char *any_sbp(text *t)
{
    static const char *const texts[] = {"S(0)",
                                        "S(1)",
                                        "S(2)",
                                        "B",
                                        "P",
                                        "P(max)",
                                        "P(min)",
                                        "\"(S(0),B)\"",
                                        "[B, S(1)]",
                                        "auto",
                                        "S(7)",
                                        "\"(P,P)\"",
                                        "\"(S(0),S(0))\"",
                                        "{dp: S(0)}",
                                        "{tp: S(1), dp: B}",
                                        "\"dp:S(0),tp:P\""};
    return texts[draw(t, sizeof texts / sizeof *texts)];
}

/* Names in the text: what stands before a colon at the start of a line. */
static int find_names(const text *t, char names[MOST_NAMES][NAME_MOST])
{
    int n = 0;
    for (size_t i = 0; i < t->size && n < MOST_NAMES; i++) {
        if (i && t->at[i - 1] != '\n')
            continue;
        while (i < t->size && t->at[i] == ' ')
            i++;
        size_t start = i;
        while (i < t->size && (isalnum((unsigned char)t->at[i]) || t->at[i] == '_'))
            i++;
        if (i < t->size && t->at[i] == ':' && i > start && i - start < NAME_MOST) {
            memcpy(names[n], t->at + start, i - start);
            names[n++][i - start] = 0;
        }
    }
    return n;
}

static size_t put_list(text *t, char *to, size_t room, uint32_t most)
{
    size_t used = (size_t)snprintf(to, room, "[");
    for (uint32_t i = 0, n = draw(t, most + 1); i < n && used < room; i++)
        used += (size_t)snprintf(to + used, room - used, "%s%s", i ? ", " : "", any_number(t));
    return used < room ? used + (size_t)snprintf(to + used, room - used, "]") : used;
}

static size_t put_value(text *t, const tsri_field *f, char *to, size_t room)
{
    static const char *const dtypes[] = {"f32", "f64", "i64", "i32", "u8", "bool", "f16", "bf16"};
    uint32_t nwords = 0;
    switch (f->kind) {
    case TSRI_FIELD_BOOL:
        return (size_t)snprintf(to, room, "%s", draw(t, 2) ? "true" : "false");
    case TSRI_FIELD_DTYPE:
        return (size_t)snprintf(to, room, "%s", dtypes[draw(t, 8)]);
    case TSRI_FIELD_SBP:
        return (size_t)snprintf(to, room, "%s", any_sbp(t));
    case TSRI_FIELD_RANKS:
        return (size_t)snprintf(to, room, "%s..%s", any_number(t), any_number(t));
    case TSRI_FIELD_MESH:
        return (size_t)snprintf(to, room, "{dp: %s, tp: %s}", any_number(t), any_number(t));
    case TSRI_FIELD_WORD:
        while (f->words[nwords])
            nwords++;
        return (size_t)snprintf(to, room, "%s", f->words[draw(t, nwords)]);
    case TSRI_FIELD_SHAPE:
    case TSRI_FIELD_AXES:
    case TSRI_FIELD_INTS:
        return put_list(t, to, room, 4);
    case TSRI_FIELD_PAIR:
    case TSRI_FIELD_FLOATS:
        return (size_t)snprintf(to, room, "[%s, %s]", any_number(t), any_number(t));
    case TSRI_FIELD_TRIPLE:
        return (size_t)snprintf(to, room, "[%s, %s, %s]", any_number(t), any_number(t),
                                any_number(t));
    case TSRI_FIELD_SECTIONS:
        return (size_t)snprintf(to, room, "[relu]");
    case TSRI_FIELD_WORDS:
        while (f->words[nwords])
            nwords++;
        return (size_t)snprintf(to, room, "[%s, %s]", f->words[draw(t, nwords)],
                                f->words[draw(t, nwords)]);
    case TSRI_FIELD_ANY:
        return draw(t, 2) ? put_list(t, to, room, 4)
                          : (size_t)snprintf(to, room, "[[%s, %s], [%s, %s]]", any_number(t),
                                             any_number(t), any_number(t), any_number(t));
    default:
        return (size_t)snprintf(to, room, "%s", any_number(t));
    }
}

/* Keys of an op or a layer: those that are needed, and some others. */
static size_t put_keys(text *t, const tsri_section *s, char entry[ENTRY_MOST], size_t used)
{
    for (int i = 0; i < s->nfields + 1 && used < ENTRY_MOST; i++) {
        static const tsri_field sbp = {.name = "sbp", .kind = TSRI_FIELD_SBP};
        const tsri_field *f = i < s->nfields ? &s->fields[i] : &sbp;
        if ((f == &sbp && s->size != sizeof(tsri_config_op)) ||
            (f->fallback != TSRI_NEEDED && draw(t, 3)))
            continue;
        used += (size_t)snprintf(entry + used, ENTRY_MOST - used, ", %s: ", f->name);
        if (used < ENTRY_MOST)
            used += put_value(t, f, entry + used, ENTRY_MOST - used);
    }
    return used;
}

/* "  n12: {op: conv2d, in: [x, y], stride: [2, 1]}" of a drawn op, on names of the text. */
static void make_entry(text *t, char entry[ENTRY_MOST])
{
    char names[MOST_NAMES][NAME_MOST];
    int nnames = find_names(t, names), least, most;
    const tsri_section *op = &tsri_op_sections[draw(t, (uint32_t)tsri_nops)];
    size_t used =
        (size_t)snprintf(entry, ENTRY_MOST, "  n%u: {op: %s", (unsigned)draw(t, 100), op->name);
    tsri_op_operands(op, &least, &most);
    most = most > least + 2 ? least + 2 : most;
    int nin = least + (int)draw(t, (uint32_t)(most - least + 1));
    for (int i = 0; i < nin && nnames && used < ENTRY_MOST; i++)
        used += (size_t)snprintf(entry + used, ENTRY_MOST - used, "%s%s", i ? ", " : ", in: [",
                                 names[draw(t, (uint32_t)nnames)]);
    if (nin && nnames && used < ENTRY_MOST)
        used += (size_t)snprintf(entry + used, ENTRY_MOST - used, "]");
    used = put_keys(t, op, entry, used);
    if (used < ENTRY_MOST)
        snprintf(entry + used, ENTRY_MOST - used, "}\n");
}

/* "  - {layer: conv2d, in: 3, out: 4, kernel: 2}" of a drawn layer. */
static void make_layer(text *t, char entry[ENTRY_MOST])
{
    const tsri_section *layer =
        &tsri_layer_section.variants[draw(t, (uint32_t)tsri_layer_section.nvariants)];
    size_t used = (size_t)snprintf(entry, ENTRY_MOST, "  - {layer: %s", layer->name);
    used = put_keys(t, layer, entry, used);
    if (used < ENTRY_MOST && !draw(t, 4))
        used += (size_t)snprintf(entry + used, ENTRY_MOST - used, ", repeat: %s", any_number(t));
    if (used < ENTRY_MOST)
        snprintf(entry + used, ENTRY_MOST - used, "}\n");
}

/* "{name: sgd, lr: 1, momentum: 0.5}" of a drawn variant of a section. */
static size_t put_section(text *t, const tsri_section *s, char entry[ENTRY_MOST], size_t used)
{
    const tsri_section *one = s->nvariants ? &s->variants[draw(t, (uint32_t)s->nvariants)] : s;
    const char *start = s->nvariants ? s->selector : "{";
    used += (size_t)snprintf(entry + used, ENTRY_MOST - used, s->nvariants ? "{%s: %s" : "%s",
                             start, one->name);
    size_t from = used;
    used = used < ENTRY_MOST ? put_keys(t, one, entry, used) : used;
    used = used < ENTRY_MOST && s->nvariants ? put_keys(t, s, entry, used) : used;
    if (!s->nvariants && used > from + 2 && used < ENTRY_MOST)
        memset(entry + from, ' ', 2); /* the first comma */
    return used < ENTRY_MOST ? used + (size_t)snprintf(entry + used, ENTRY_MOST - used, "}") : used;
}

/* A key of the whole, as "optimizer: {name: lion, clip_norm: 1}", in place of what it was. */
static void change_part(text *t)
{
    char entry[ENTRY_MOST];
    const tsri_field *f =
        &tsri_experiment_section.fields[draw(t, (uint32_t)tsri_experiment_section.nfields)];
    size_t used = (size_t)snprintf(entry, ENTRY_MOST, "%s: ", f->name), at = 0, end;
    if (f->kind == TSRI_FIELD_NAMED)
        return;
    used = f->kind == TSRI_FIELD_SECTION ? put_section(t, f->section, entry, used)
                                         : used + put_value(t, f, entry + used, ENTRY_MOST - used);
    if (used + 1 < ENTRY_MOST)
        snprintf(entry + used, ENTRY_MOST - used, "\n");
    size_t key = strlen(f->name) + 1;
    while (at < t->size && (t->size - at < key || strncmp(t->at + at, entry, key) != 0)) {
        while (at < t->size && t->at[at] != '\n')
            at++;
        at += at < t->size;
    }
    for (end = at; end < t->size && (end == at || t->at[end] == ' ' || t->at[end] == '\n');) {
        while (end < t->size && t->at[end] != '\n')
            end++;
        end += end < t->size;
    }
    replace(t, at, end - at, entry);
}

/* "  - {match: '*.0', sbp: S(1), gradient: B}", for tensors and parameters. */
static void make_rule(text *t, char entry[ENTRY_MOST])
{
    static const char *const patterns[] = {"*", "0", "*.weight", "?.bias", "*:linear", "*.[0-2].*"};
    static const char *const keys[] = {"gradient", "use", "state"};
    snprintf(entry, ENTRY_MOST, "  - {match: '%s', sbp: %s, %s: %s}\n",
             patterns[draw(t, sizeof patterns / sizeof *patterns)], any_sbp(t), keys[draw(t, 3)],
             any_sbp(t));
}

static void change_word(text *t)
{
    size_t at, n, from, nfrom;
    char word[64];
    if (!draw_word(t, &at, &n))
        return;
    bool is_number = isdigit((unsigned char)t->at[at]) || t->at[at] == '-';
    if (is_number && draw(t, 4)) {
        replace(t, at, n, any_number(t));
    } else if (draw(t, 3) && draw_word(t, &from, &nfrom) && nfrom < sizeof word) {
        snprintf(word, sizeof word, "%.*s", (int)nfrom, t->at + from);
        replace(t, at, n, word);
    } else {
        replace(t, at, n, tsri_op_sections[draw(t, (uint32_t)tsri_nops)].name);
    }
}

/* The list of words that has the word, among those of a section and of what it is made of. */
static const char *const *find_words(const tsri_section *s, const char *word, int depth)
{
    const char *const *found = NULL;
    for (int i = 0; i < s->nfields && !found; i++) {
        const tsri_field *f = &s->fields[i];
        for (int k = 0; f->words && f->words[k] && !found; k++)
            found = strcmp(f->words[k], word) ? NULL : f->words;
        if (!found && f->section && depth)
            found = find_words(f->section, word, depth - 1);
    }
    for (int i = 0; i < s->nvariants && !found && depth; i++)
        found = find_words(&s->variants[i], word, depth - 1);
    return found;
}

/* A signature or a number becomes another, a word another one of its list. */
static void change_value(text *t)
{
    enum { DEPTH = 4 };
    size_t at, n;
    char word[64];
    uint32_t nwords = 0;
    if (!draw_word(t, &at, &n) || n >= sizeof word)
        return;
    snprintf(word, sizeof word, "%.*s", (int)n, t->at + at);
    const char *const *words = find_words(&tsri_experiment_section, word, DEPTH);
    while (words && words[nwords])
        nwords++;
    if (isdigit((unsigned char)word[0])) {
        replace(t, at, n, any_number(t));
    } else if (nwords) {
        replace(t, at, n, words[draw(t, nwords)]);
    } else if (n == 1 && strchr("SBP", word[0])) {
        const bool is_call = at + 1 < t->size && t->at[at + 1] == '(';
        const char *end = is_call ? memchr(t->at + at, ')', t->size - at) : NULL;
        replace(t, at, end ? (size_t)(end - (t->at + at)) + 1 : 1, any_sbp(t));
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    text t = {.at = (char *)data, .size = size, .most = most, .rng = seed};
    char entry[ENTRY_MOST];
    size_t at, n;
    switch (draw(&t, 8 + 2 * FUZZ_BYTES)) {
    case 0:
        change_word(&t);
        break;
    case 1:
    case 2:
    case 3:
        change_value(&t);
        break;
    case 4:
    case 5:
        change_part(&t);
        break;
    case 6: /* to the end, too, where a graph's entries mostly are */
        (draw(&t, 3) ? make_entry : draw(&t, 2) ? make_layer : make_rule)(&t, entry);
        if (draw(&t, 2) && draw_line(&t, &at, &n))
            replace(&t, at, 0, entry);
        else
            replace(&t, t.size, 0, entry);
        break;
    case 7:
        if (draw_line(&t, &at, &n))
            replace(&t, at, n, "");
        break;
    default:
        return LLVMFuzzerMutate(data, size, most);
    }
    return t.size;
}
