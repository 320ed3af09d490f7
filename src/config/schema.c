/* SPDX-License-Identifier: Apache-2.0 */
/* Sections: mappings whose keys a table knows. */
#include "src/config/schema.h"

#include <string.h>

static const tsri_section *variant_of(const tsri_section *s, const void *base)
{
    return s->selector ? &s->variants[((const tsri_head *)base)->variant] : NULL;
}

static bool is_legal_here(const tsri_field *f, const tsri_section *variant)
{
    return f->kind != TSRI_FIELD_IN || !variant || variant->operands;
}

/* The field of a key and its number (those of the variant follow the section's). */
static const tsri_field *find_field(const tsri_section *s, const tsri_section *variant,
                                    const char *key, int *out_number)
{
    for (int i = 0; i < s->nfields; i++)
        if (!strcmp(s->fields[i].name, key) && is_legal_here(&s->fields[i], variant)) {
            *out_number = i;
            return &s->fields[i];
        }
    for (int i = 0; variant && i < variant->nfields; i++)
        if (!strcmp(variant->fields[i].name, key)) {
            *out_number = s->nfields + i;
            return &variant->fields[i];
        }
    return NULL;
}

/* The legal keys, as an array for looking up near ones; returns how many. */
enum { MAX_KEYS = 64 };
static int legal_keys(const tsri_section *s, const tsri_section *variant, const char **keys)
{
    int n = 0;
    if (s->selector)
        keys[n++] = s->selector;
    for (int i = 0; i < s->nfields && n < MAX_KEYS; i++)
        if (is_legal_here(&s->fields[i], variant))
            keys[n++] = s->fields[i].name;
    for (int i = 0; variant && i < variant->nfields && n < MAX_KEYS; i++)
        keys[n++] = variant->fields[i].name;
    return n;
}

static const char *list_text(int n, const char *const *words, char buf[TSRI_LEGAL_MAX])
{
    enum { MOST_LISTED = 60 };
    size_t used = 0;
    buf[0] = 0;
    if (n > MOST_LISTED) {
        snprintf(buf, TSRI_LEGAL_MAX, "the %d that tessera-yaml(5) lists", n);
        return buf;
    }
    for (int i = 0; i < n && used < TSRI_LEGAL_MAX; i++)
        used +=
            (size_t)snprintf(buf + used, TSRI_LEGAL_MAX - used, "%s%s", i ? ", " : "", words[i]);
    return buf;
}

static tsr_status unknown_key(const tsri_section *s, const tsri_section *variant,
                              const tsri_yaml *node)
{
    const char *keys[MAX_KEYS] = {NULL};
    char list[TSRI_LEGAL_MAX], mean[TSRI_YAML_TEXT_MAX];
    int n = legal_keys(s, variant, keys);
    /* "sbp: (S(0),B)" in a flow mapping is two keys to YAML. */
    size_t length = strlen(node->key);
    bool is_torn =
        node->kind == TSRI_YAML_SCALAR && !node->text[0] && length && node->key[length - 1] == ')';
    return tsri_yaml_fail_key(node, "unknown key; legal are %s%s%s", list_text(n, keys, list),
                              tsri_did_you_mean(node->key, n, keys, sizeof *keys, mean),
                              is_torn ? "; texts with commas need quotes, as in \"(S(0),B)\"" : "");
}

static tsr_status not_a_mapping(const tsri_section *s, const tsri_yaml *node)
{
    const char *keys[MAX_KEYS] = {NULL};
    char list[TSRI_LEGAL_MAX], shown[TSRI_YAML_TEXT_MAX];
    int n = legal_keys(s, NULL, keys);
    return tsri_yaml_fail(node, "found %s; legal is a mapping with the keys %s",
                          tsri_yaml_shown(node, shown), list_text(n, keys, list));
}

/* --- variants --------------------------------------------------------------------------------- */
static tsr_status select_variant(const tsri_section *s, const tsri_yaml *node,
                                 const tsri_yaml *where, tsri_head *head)
{
    enum { MOST = 512 };
    const char *words[MOST];
    char list[TSRI_LEGAL_MAX], mean[TSRI_YAML_TEXT_MAX], shown[TSRI_YAML_TEXT_MAX];
    const tsri_yaml *word = tsri_yaml_find(node, s->selector);
    int n = 0;
    for (; n < s->nvariants && n < MOST; n++) {
        words[n] = s->variants[n].name;
        if (word && word->kind == TSRI_YAML_SCALAR && !strcmp(word->text, words[n])) {
            head->variant = n;
            return TSR_OK;
        }
    }
    for (int i = 0; i < s->nvariants && !word; i++)
        if (s->variants[i].implied_by && tsri_yaml_find(node, s->variants[i].implied_by)) {
            head->variant = i;
            return TSR_OK;
        }
    if (!word)
        return tsri_yaml_fail_key(where, "'%s' is missing; legal are %s", s->selector,
                                  list_text(n, words, list));
    mean[0] = 0;
    if (word->kind == TSRI_YAML_SCALAR)
        tsri_did_you_mean(word->text, n, words, sizeof *words, mean);
    return tsri_yaml_fail(word, "found %s; legal are %s%s", tsri_yaml_shown(word, shown),
                          list_text(n, words, list), mean);
}

/* --- fields ----------------------------------------------------------------------------------- */
static tsr_status read_items(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                             tsri_items *out)
{
    bool named = f->kind == TSRI_FIELD_NAMED;
    char shown[TSRI_YAML_TEXT_MAX], legal[TSRI_LEGAL_MAX];
    if (node->kind != (named ? TSRI_YAML_MAP : TSRI_YAML_LIST))
        return tsri_yaml_fail(node, "found %s; legal is %s", tsri_yaml_shown(node, shown),
                              tsri_field_legal(f, legal));
    if (f->max > 0 && node->n > (int)f->max)
        return tsri_yaml_fail(node, "%d entries; at most %d are possible", node->n, (int)f->max);
    if (node->n < (int)f->min)
        return tsri_yaml_fail(node, "%d entries; at least %d is needed", node->n, (int)f->min);
    out->n = node->n;
    out->items = tsri_pool_alloc(r->pool, (size_t)node->n * f->section->size);
    TSRI_NEED(out->items);
    char *item = out->items;
    for (const tsri_yaml *c = node->first; c; c = c->next, item += f->section->size) {
        if (named && !tsri_is_name(c->key))
            return tsri_yaml_fail_key(c, "not a name; legal are up to 100 letters, digits, _ and "
                                         "-, with a letter or _ first");
        TSRI_TRY(tsri_section_read(r, f->section, c, c, item));
        ((tsri_head *)(void *)item)->name = c->key;
    }
    return TSR_OK;
}

static tsr_status read_field(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                             void *at)
{
    switch (f->kind) {
    case TSRI_FIELD_SECTION:
        return tsri_section_read(r, f->section, node, node, at);
    case TSRI_FIELD_SECTIONS:
    case TSRI_FIELD_NAMED:
        return read_items(r, f, node, at);
    default:
        return tsri_value_read(r, f, node, at);
    }
}

/* Defaults are scalars, or "{}" of a section. */
static tsr_status read_default(const tsri_reader *r, const tsri_field *f, const tsri_yaml *where,
                               void *at)
{
    if (f->kind == TSRI_FIELD_SECTION)
        return tsri_section_read(r, f->section, NULL, where, at);
    const tsri_yaml node = {
        .kind = TSRI_YAML_SCALAR, .file = "(default)", .text = f->fallback, .key = f->name};
    return tsri_value_read(r, f, &node, at);
}

static tsr_status read_fields(const tsri_reader *r, const tsri_section *s,
                              const tsri_section *variant, int first, const tsri_yaml *where,
                              void *out)
{
    tsri_head *head = out;
    char legal[TSRI_LEGAL_MAX];
    for (int i = 0; i < s->nfields; i++) {
        const tsri_field *f = &s->fields[i];
        const tsri_yaml *node = tsri_yaml_find(head->node, f->name);
        void *at = (char *)out + f->offset;
        if (!is_legal_here(f, variant))
            continue;
        if (!node && f->fallback == TSRI_NEEDED)
            return tsri_yaml_fail_key(where, "'%s' is missing; legal is %s", f->name,
                                      tsri_field_legal(f, legal));
        if (!node && f->fallback == TSRI_NONE)
            continue;
        TSRI_TRY(node ? read_field(r, f, node, at) : read_default(r, f, where, at));
        head->given |= UINT64_C(1) << (first + i);
    }
    return TSR_OK;
}

/* Makes the mapping that a list, or a word, stands for. */
static tsr_status wrap_node(const tsri_reader *r, const char *key, const tsri_yaml *node,
                            const tsri_yaml **out_map)
{
    tsri_yaml *map = tsri_pool_dup(r->pool, node, sizeof *node);
    tsri_yaml *child = tsri_pool_dup(r->pool, node, sizeof *node);
    TSRI_NEED(map && child);
    map->kind = TSRI_YAML_MAP;
    map->first = map->last = child;
    map->n = 1;
    child->key = key;
    child->next = NULL;
    child->index = 0;
    child->parent = map;
    *out_map = map;
    return TSR_OK;
}

tsr_status tsri_section_read(const tsri_reader *r, const tsri_section *s, const tsri_yaml *node,
                             const tsri_yaml *where, void *out)
{
    tsri_head *head = out;
    const tsri_section *variant = NULL;
    if (node && s->list_as && node->kind == TSRI_YAML_LIST)
        TSRI_TRY(wrap_node(r, s->list_as, node, &node));
    else if (node && s->word_alone && tsri_value_is_text(node))
        TSRI_TRY(wrap_node(r, s->selector, node, &node));
    head->node = node;
    if (node && node->kind != TSRI_YAML_MAP)
        return not_a_mapping(s, node);
    if (s->selector) {
        if (node)
            TSRI_TRY(select_variant(s, node, where, head));
        variant = &s->variants[head->variant];
    }
    for (const tsri_yaml *c = node ? node->first : NULL; c; c = c->next) {
        int number;
        bool selects = s->selector && !strcmp(c->key, s->selector);
        if (!selects && !find_field(s, variant, c->key, &number))
            return unknown_key(s, variant, c);
    }
    TSRI_TRY(read_fields(r, s, variant, 0, where, out));
    return variant ? read_fields(r, variant, NULL, s->nfields, where, out) : TSR_OK;
}

const tsri_field *tsri_section_field(const tsri_section *s, const char *key)
{
    for (int i = 0; s && i < s->nfields; i++)
        if (!strcmp(s->fields[i].name, key))
            return &s->fields[i];
    return NULL;
}

bool tsri_section_has(const tsri_section *s, const void *base, const char *field)
{
    int number;
    return find_field(s, variant_of(s, base), field, &number) &&
           (((const tsri_head *)base)->given >> number & 1);
}

void tsri_section_give(const tsri_section *s, void *base, const char *field)
{
    int number;
    if (find_field(s, variant_of(s, base), field, &number))
        ((tsri_head *)base)->given |= UINT64_C(1) << number;
}

void tsri_section_drop(const tsri_section *s, void *base, const char *field)
{
    int number;
    if (find_field(s, variant_of(s, base), field, &number))
        ((tsri_head *)base)->given &= ~(UINT64_C(1) << number);
}

const tsri_yaml *tsri_section_node(const void *base, const char *field)
{
    const tsri_head *head = base;
    const tsri_yaml *node = tsri_yaml_find(head->node, field);
    return node ? node : head->node;
}

/* --- a run that goes on ----------------------------------------------------------------------- */
tsri_on_resume tsri_field_on_resume(const tsri_field *f, tsri_on_resume above)
{
    const bool is_place = f->kind == TSRI_FIELD_PATH || f->kind == TSRI_FIELD_SBP;
    return f->on_resume ? f->on_resume : is_place ? TSRI_RESUME_WINS : above;
}

tsri_on_resume tsri_selector_on_resume(const tsri_section *s, tsri_on_resume above)
{
    return s->on_resume ? s->on_resume : above;
}

/* --- dumping ---------------------------------------------------------------------------------- */
static void dump_items(const tsri_field *f, const tsri_items *items, int indent, FILE *out)
{
    const char *item = items->items;
    for (int i = 0; i < items->n; i++, item += f->section->size) {
        const tsri_head *head = (const void *)item;
        if (f->kind == TSRI_FIELD_NAMED)
            fprintf(out, "%*s%s: ", indent, "", head->name);
        else
            fprintf(out, "%*s- ", indent, "");
        tsri_section_dump(f->section, item, 0, true, out);
        fputc('\n', out);
    }
}

static void dump_flow_items(const tsri_field *f, const tsri_items *items, FILE *out)
{
    const bool named = f->kind == TSRI_FIELD_NAMED;
    const char *item = items->items;
    fputc(named ? '{' : '[', out);
    for (int i = 0; i < items->n; i++, item += f->section->size) {
        fputs(i ? ", " : "", out);
        if (named)
            fprintf(out, "%s: ", ((const tsri_head *)(const void *)item)->name);
        tsri_section_dump(f->section, item, 0, true, out);
    }
    fputc(named ? '}' : ']', out);
}

/* A signature by axes' names stays one. */
static void dump_value(const tsri_field *f, const void *base, FILE *out)
{
    const tsri_yaml *node = tsri_yaml_find(((const tsri_head *)base)->node, f->name);
    if (f->kind == TSRI_FIELD_SBP && node && tsri_sbp_is_named(node))
        tsri_sbp_dump_named(node, out);
    else
        tsri_value_dump(f, (const char *)base + f->offset, out);
}

static void dump_block_field(const tsri_field *f, const void *base, int indent, FILE *out)
{
    const void *at = (const char *)base + f->offset;
    const tsri_items *items = at;
    fprintf(out, "%*s%s:", indent, "", f->name);
    if (f->kind == TSRI_FIELD_SECTION && indent == 0) {
        fputc('\n', out);
        tsri_section_dump(f->section, at, indent + 2, false, out);
    } else if (f->kind == TSRI_FIELD_SECTION) {
        fputc(' ', out);
        tsri_section_dump(f->section, at, 0, true, out);
        fputc('\n', out);
    } else if (f->kind == TSRI_FIELD_NAMED || f->kind == TSRI_FIELD_SECTIONS) {
        fputs(items->n ? "\n" : f->kind == TSRI_FIELD_NAMED ? " {}\n" : " []\n", out);
        dump_items(f, items, indent + 2, out);
    } else {
        fputc(' ', out);
        dump_value(f, base, out);
        fputc('\n', out);
    }
}

static void dump_fields(const tsri_section *s, const void *base, int first, int indent, bool flow,
                        bool *any, FILE *out)
{
    for (int i = 0; i < s->nfields; i++) {
        const tsri_field *f = &s->fields[i];
        const void *at = (const char *)base + f->offset;
        if (!(((const tsri_head *)base)->given >> (first + i) & 1))
            continue;
        if (!flow) {
            dump_block_field(f, base, indent, out);
        } else {
            fprintf(out, "%s%s: ", *any ? ", " : "", f->name);
            if (f->kind == TSRI_FIELD_SECTION)
                tsri_section_dump(f->section, at, 0, true, out);
            else if (f->kind == TSRI_FIELD_SECTIONS || f->kind == TSRI_FIELD_NAMED)
                dump_flow_items(f, at, out);
            else
                dump_value(f, base, out);
        }
        *any = true;
    }
}

void tsri_section_dump(const tsri_section *s, const void *base, int indent, bool flow, FILE *f)
{
    const tsri_section *variant = variant_of(s, base);
    bool any = variant != NULL;
    if (flow)
        fputc('{', f);
    if (variant)
        fprintf(f, "%*s%s: %s%s", flow ? 0 : indent, "", s->selector, variant->name,
                flow ? "" : "\n");
    /* The variant's own fields are nearer to what was selected. */
    if (variant && flow)
        dump_fields(variant, base, s->nfields, indent, flow, &any, f);
    dump_fields(s, base, 0, indent, flow, &any, f);
    if (variant && !flow)
        dump_fields(variant, base, s->nfields, indent, flow, &any, f);
    if (flow)
        fputc('}', f);
    else if (!any)
        fprintf(f, "%*s{}\n", indent, "");
}
