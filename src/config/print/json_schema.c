/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON Schema of experiments, from the tables that parse them. */
#include "src/config/print/json_schema.h"

#include <errno.h>
#include <string.h>

#include "src/config/inside.h"

enum { MOST_SECTIONS = 1024, NAME_MOST = 100 };

/* The sections, each once, with a name by the keys that lead to it. */
typedef struct entry {
    const tsri_section *section;
    const tsri_section *of; /* of a variant: the section that it belongs to */
    char name[NAME_MOST];
} entry;

typedef struct writer {
    tsri_json json;
    int n;
    entry entries[MOST_SECTIONS];
    /* A file that includes others needs no key. */
    bool is_part;
} writer;

static bool is_section(const tsri_field *f)
{
    return f->kind == TSRI_FIELD_SECTION || f->kind == TSRI_FIELD_SECTIONS ||
           f->kind == TSRI_FIELD_NAMED;
}

/* Whether a list, or a word, may stand for the mapping. */
static bool is_short(const tsri_section *s)
{
    return s->list_as || s->word_alone;
}

/* --- finding sections ------------------------------------------------------------------------- */
static const entry *find(const writer *w, const tsri_section *s)
{
    for (int i = 0; i < w->n; i++)
        if (w->entries[i].section == s)
            return &w->entries[i];
    return NULL;
}

static void collect(writer *w, const tsri_section *s, const tsri_section *of, const char *name);

static void collect_below(writer *w, const tsri_section *s, const char *name)
{
    char below[NAME_MOST];
    for (int i = 0; i < s->nfields; i++) {
        if (!is_section(&s->fields[i]))
            continue;
        snprintf(below, sizeof below, "%.48s%s%.48s", name, name[0] ? "." : "", s->fields[i].name);
        collect(w, s->fields[i].section, NULL, below);
    }
}

static void collect(writer *w, const tsri_section *s, const tsri_section *of, const char *name)
{
    char below[NAME_MOST];
    if (find(w, s) || w->n == MOST_SECTIONS)
        return;
    entry *e = &w->entries[w->n++];
    *e = (entry){.section = s, .of = of};
    snprintf(e->name, sizeof e->name, "%s", name[0] ? name : s->name);
    collect_below(w, s, name);
    for (int i = 0; i < s->nvariants; i++) {
        snprintf(below, sizeof below, "%.48s.%.48s", name, s->variants[i].name);
        collect(w, &s->variants[i], s, below);
    }
}

/* --- writing ---------------------------------------------------------------------------------- */
static void put_ref(writer *w, const char *key, const tsri_section *s)
{
    char ref[NAME_MOST + 30];
    const entry *e = find(w, s);
    snprintf(ref, sizeof ref, "#/$defs/%s%s", w->is_part ? "part." : "", e ? e->name : "variable");
    tsri_json_open(&w->json, key, '{');
    tsri_json_text(&w->json, "$ref", ref);
    tsri_json_close(&w->json, '}');
}

/* A list of sections. */
static void put_list(writer *w, const tsri_field *f)
{
    tsri_json_text(&w->json, "type", "array");
    put_ref(w, "items", f->section);
    if (!w->is_part && f->min > 0)
        tsri_json_number(&w->json, "minItems", f->min);
}

/* Writes a key as that of another entry: of the section that a variant is of, or, in a file that
 * includes others, of the whole. */
static void put_same(writer *w, const tsri_field *f, const entry *as, bool is_part)
{
    char ref[2 * NAME_MOST + 40];
    snprintf(ref, sizeof ref, "#/$defs/%s%s%s/properties/%s", is_part ? "part." : "", as->name,
             is_short(as->section) ? "/anyOf/1" : "", f->name);
    tsri_json_open(&w->json, f->name, '{');
    tsri_json_text(&w->json, "$ref", ref);
    tsri_json_close(&w->json, '}');
}

/* Writes a key of an entry. */
static void put_field(writer *w, const tsri_field *f, const entry *of)
{
    tsri_json *j = &w->json;
    if (w->is_part && !is_section(f)) {
        put_same(w, f, of, false);
        return;
    }
    tsri_json_open(j, f->name, '{');
    if (!is_section(f)) {
        tsri_json_value(j, f);
        tsri_json_close(j, '}');
        return;
    }
    tsri_json_text(j, "description", f->doc);
    if (f->kind == TSRI_FIELD_SECTION) {
        tsri_json_open(j, "allOf", '[');
        put_ref(w, NULL, f->section);
        tsri_json_close(j, ']');
    } else if (f->kind == TSRI_FIELD_SECTIONS) {
        put_list(w, f);
    } else {
        tsri_json_text(j, "type", "object");
        tsri_json_raw(j, "propertyNames", "{\"pattern\": \"^[A-Za-z_][A-Za-z0-9_-]{0,99}$\"}");
        put_ref(w, "additionalProperties", f->section);
        if (!w->is_part && f->min > 0)
            tsri_json_number(j, "minProperties", f->min);
    }
    tsri_json_close(j, '}');
}

/* Whether a key that all variants have is one of this variant. */
static bool is_legal_in(const tsri_field *f, const tsri_section *variant)
{
    return f->kind != TSRI_FIELD_IN || variant->operands;
}

static void put_needed(writer *w, const tsri_section *s, const tsri_section *variant)
{
    for (int i = 0; s && i < s->nfields; i++)
        if (s->fields[i].fallback == TSRI_NEEDED &&
            (!variant || is_legal_in(&s->fields[i], variant)))
            tsri_json_text(&w->json, NULL, s->fields[i].name);
}

/* The keys of a section that has no variants, or of a variant with those of its section. */
static void put_closed(writer *w, const entry *e)
{
    tsri_json *j = &w->json;
    tsri_json_open(j, "properties", '{');
    if (e->of) {
        tsri_json_open(j, e->of->selector, '{');
        tsri_json_text(j, "const", e->section->name);
        tsri_json_close(j, '}');
    }
    for (int i = 0; i < e->section->nfields; i++)
        put_field(w, &e->section->fields[i], e);
    for (int i = 0; e->of && i < e->of->nfields; i++)
        if (is_legal_in(&e->of->fields[i], e->section))
            put_same(w, &e->of->fields[i], find(w, e->of), w->is_part);
    tsri_json_close(j, '}');
    if (!w->is_part) {
        tsri_json_open(j, "required", '[');
        put_needed(w, e->section, NULL);
        put_needed(w, e->of, e->section);
        tsri_json_close(j, ']');
    }
    tsri_json_raw(j, "additionalProperties", "false");
}

/* The words of a selector. */
static void put_words(tsri_json *j, const tsri_section *s)
{
    tsri_json_open(j, "enum", '[');
    for (int i = 0; i < s->nvariants; i++)
        tsri_json_text(j, NULL, s->variants[i].name);
    tsri_json_close(j, ']');
}

static void put_required(tsri_json *j, const char *key)
{
    tsri_json_open(j, "required", '[');
    tsri_json_text(j, NULL, key);
    tsri_json_close(j, ']');
}

/* The keys one of which a section needs: its selector, or one that stands for it. */
static void put_selecting(writer *w, const tsri_section *s)
{
    tsri_json *j = &w->json;
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    put_required(j, s->selector);
    tsri_json_close(j, '}');
    for (int i = 0; i < s->nvariants; i++) {
        if (!s->variants[i].implied_by)
            continue;
        tsri_json_open(j, NULL, '{');
        put_required(j, s->variants[i].implied_by);
        tsri_json_close(j, '}');
    }
    tsri_json_close(j, ']');
}

/* A variant that a key selects where the selector is missing. */
static void put_implied(writer *w, const tsri_section *s, const tsri_section *variant)
{
    tsri_json *j = &w->json;
    tsri_json_open(j, NULL, '{');
    tsri_json_open(j, "if", '{');
    put_required(j, variant->implied_by);
    tsri_json_open(j, "not", '{');
    put_required(j, s->selector);
    tsri_json_close(j, '}');
    tsri_json_close(j, '}');
    put_ref(w, "then", variant);
    tsri_json_close(j, '}');
}

/* The selector of a section, and for each of its words the keys that go with it. */
static void put_variants(writer *w, const entry *e)
{
    tsri_json *j = &w->json;
    const tsri_section *s = e->section;
    tsri_json_open(j, "properties", '{');
    tsri_json_open(j, s->selector, '{');
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    put_words(j, s);
    tsri_json_close(j, '}');
    tsri_json_raw(j, NULL, "{\"$ref\": \"#/$defs/variable\"}");
    tsri_json_close(j, ']');
    tsri_json_close(j, '}');
    for (int i = 0; i < s->nfields; i++)
        put_field(w, &s->fields[i], e);
    tsri_json_close(j, '}');
    if (!w->is_part)
        put_selecting(w, s);
    tsri_json_open(j, "allOf", '[');
    for (int i = 0; i < s->nvariants; i++) {
        if (s->variants[i].implied_by)
            put_implied(w, s, &s->variants[i]);
        tsri_json_open(j, NULL, '{');
        tsri_json_open(j, "if", '{');
        tsri_json_open(j, "properties", '{');
        tsri_json_open(j, s->selector, '{');
        tsri_json_text(j, "const", s->variants[i].name);
        tsri_json_close(j, '}');
        tsri_json_close(j, '}');
        tsri_json_open(j, "required", '[');
        tsri_json_text(j, NULL, s->selector);
        tsri_json_close(j, ']');
        tsri_json_close(j, '}');
        put_ref(w, "then", &s->variants[i]);
        tsri_json_close(j, '}');
    }
    tsri_json_close(j, ']');
}

/* Opens the choice between a mapping and the list, or the word, that stands for it. */
static void put_short(writer *w, const tsri_section *s)
{
    tsri_json *j = &w->json;
    const tsri_field *list = s->list_as ? tsri_section_field(s, s->list_as) : NULL;
    tsri_json_open(j, "anyOf", '[');
    tsri_json_open(j, NULL, '{');
    if (list) {
        put_list(w, list);
    } else {
        put_words(j, s);
    }
    tsri_json_close(j, '}');
    tsri_json_open(j, NULL, '{');
}

static void put_sections(writer *w, bool is_part)
{
    tsri_json *j = &w->json;
    char name[NAME_MOST + 10];
    w->is_part = is_part;
    for (int i = 0; i < w->n; i++) {
        const entry *e = &w->entries[i];
        snprintf(name, sizeof name, "%s%s", is_part ? "part." : "", e->name);
        tsri_json_open(j, name, '{');
        if (is_short(e->section))
            put_short(w, e->section);
        tsri_json_text(j, "type", "object");
        if (e->section->doc)
            tsri_json_text(j, "description", e->section->doc);
        if (e->section->selector)
            put_variants(w, e);
        else
            put_closed(w, e);
        tsri_json_close(j, '}');
        if (is_short(e->section)) {
            tsri_json_close(j, ']');
            tsri_json_close(j, '}');
        }
    }
}

tsr_status tsri_config_json_schema(FILE *out)
{
    writer *w = out ? tsri_mem_alloc(NULL, sizeof *w) : NULL;
    if (!w)
        return out ? TSR_ERR_NO_MEMORY
                   : tsri_fail(TSR_ERR_INVALID, "tsri_config_json_schema: the file is NULL");
    w->json.out = out;
    tsri_json *j = &w->json;
    collect(w, &tsri_experiment_section, NULL, "");
    tsri_json_open(j, NULL, '{');
    tsri_json_text(j, "$schema", "https://json-schema.org/draft/2020-12/schema");
    tsri_json_text(j, "title", "Tessera experiment");
    tsri_json_text(
        j, "description",
        "What to compute, on which ranks, and how each tensor is laid out over them; see "
        "tessera-yaml(5).");
    tsri_json_raw(j, "if", "{\"required\": [\"include\"]}");
    w->is_part = true;
    put_ref(w, "then", &tsri_experiment_section);
    w->is_part = false;
    put_ref(w, "else", &tsri_experiment_section);
    tsri_json_open(j, "$defs", '{');
    tsri_json_open(j, "variable", '{');
    tsri_json_text(j, "description", "A text with variables, as in ${batch}.");
    tsri_json_text(j, "type", "string");
    tsri_json_text(j, "pattern", "\\$\\{");
    tsri_json_close(j, '}');
    put_sections(w, false);
    put_sections(w, true);
    tsri_json_close(j, '}');
    tsri_json_close(j, '}');
    fputc('\n', out);
    tsri_mem_free(w);
    return ferror(out) ? tsri_fail(TSR_ERR_IO, "can't write the schema: %s", strerror(errno))
                       : TSR_OK;
}
