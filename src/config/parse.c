/* SPDX-License-Identifier: Apache-2.0 */
/* From libyaml's events to a tree. */
#include "src/config/tree.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "src/config/tree_index.h"

typedef struct builder {
    tsri_pool *pool;
    const char *file, *data;
    size_t size;
    yaml_parser_t parser;
    tsri_yaml *root;
    tsri_yaml *open[TSRI_YAML_MAX_DEPTH]; /* lists and mappings that are not ended */
    int depth, nnodes;
    /* The key that waits for its value. */
    const char *key;
    int key_line, key_column;
} builder;

static tsr_status fail_at(const builder *b, yaml_mark_t mark, const char *what)
{
    return tsri_fail(TSR_ERR_FORMAT, "%s:%zu:%zu: %s", b->file, mark.line + 1, mark.column + 1,
                     what);
}

/* Reader errors know the byte alone. */
static yaml_mark_t mark_of_offset(const builder *b, size_t offset)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < offset && i < b->size; i++) {
        bool is_first_of_char = ((unsigned char)b->data[i] & 0xc0) != 0x80;
        mark.column += is_first_of_char;
        if (b->data[i] == '\n') {
            mark.line++;
            mark.column = 0;
        }
    }
    return mark;
}

static tsr_status syntax_error(const builder *b)
{
    const yaml_parser_t *p = &b->parser;
    char what[TSRI_YAML_TEXT_MAX];
    if (p->error == YAML_MEMORY_ERROR)
        return tsri_fail(TSR_ERR_NO_MEMORY, "%s: no memory to parse it", b->file);
    if (p->error == YAML_READER_ERROR) {
        snprintf(what, sizeof what, "not UTF-8 text: %s", p->problem ? p->problem : "unreadable");
        return fail_at(b, mark_of_offset(b, p->problem_offset), what);
    }
    int n = snprintf(what, sizeof what, "not YAML: %s", p->problem ? p->problem : "malformed");
    if (p->context && n > 0 && (size_t)n < sizeof what)
        n += snprintf(what + n, sizeof what - (size_t)n, " %s of line %zu", p->context,
                      p->context_mark.line + 1);
    /* {a: ${b}} is a mapping within another to YAML. */
    const size_t at = p->problem_mark.index;
    if (at > 0 && at < b->size && !memcmp(b->data + at - 1, "${", 2) && n > 0 &&
        (size_t)n < sizeof what)
        snprintf(what + n, sizeof what - (size_t)n,
                 "; within {} and [] a variable needs quotes, as in \"${batch}\"");
    return fail_at(b, p->problem_mark, what);
}

/* --- nodes ------------------------------------------------------------------------------------ */
static tsr_status add_node(builder *b, tsri_yaml_kind kind, yaml_mark_t mark, tsri_yaml **out_node)
{
    tsri_yaml *parent = b->depth ? b->open[b->depth - 1] : NULL;
    if (++b->nnodes > TSRI_YAML_MAX_NODES)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s:%zu:%zu: more than %d values; keep large arrays in .npy files",
                         b->file, mark.line + 1, mark.column + 1, TSRI_YAML_MAX_NODES);
    tsri_yaml *node = tsri_pool_alloc(b->pool, sizeof *node);
    TSRI_NEED(node);
    *node = (tsri_yaml){.kind = kind,
                        .line = (int)mark.line + 1,
                        .column = (int)mark.column + 1,
                        .file = b->file,
                        .parent = parent};
    if (!parent) {
        b->root = node;
    } else {
        bool has_key = parent->kind == TSRI_YAML_MAP;
        node->key = has_key ? b->key : NULL;
        node->key_line = has_key ? b->key_line : 0;
        node->key_column = has_key ? b->key_column : 0;
        b->key = NULL;
        tsri_yaml_append(parent, node);
    }
    *out_node = node;
    return TSR_OK;
}

static tsr_status open_node(builder *b, tsri_yaml_kind kind, yaml_mark_t mark)
{
    tsri_yaml *node = NULL;
    if (b->depth && b->open[b->depth - 1]->kind == TSRI_YAML_MAP && !b->key)
        return fail_at(b, mark, "a key must be a single word or text, not a list or mapping");
    if (b->depth == TSRI_YAML_MAX_DEPTH) {
        char what[64];
        snprintf(what, sizeof what, "lists and mappings are nested more than %d deep",
                 TSRI_YAML_MAX_DEPTH);
        return fail_at(b, mark, what);
    }
    TSRI_TRY(add_node(b, kind, mark, &node));
    b->open[b->depth++] = node;
    return TSR_OK;
}

static tsr_status add_text(builder *b, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    size_t length = e->data.scalar.length;
    bool quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (memchr(text, 0, length))
        return fail_at(b, e->start_mark, "a text with a NUL byte in it");
    char *copy = tsri_pool_dup(b->pool, text, length + 1);
    TSRI_NEED(copy);
    if (b->depth && b->open[b->depth - 1]->kind == TSRI_YAML_MAP && !b->key) {
        if (!quoted && !strcmp(copy, "<<"))
            return fail_at(b, e->start_mark, "merge keys (<<) are not allowed; write the keys out");
        b->key = copy;
        b->key_line = (int)e->start_mark.line + 1;
        b->key_column = (int)e->start_mark.column + 1;
        return TSR_OK;
    }
    tsri_yaml *node = NULL;
    TSRI_TRY(add_node(b, TSRI_YAML_SCALAR, e->start_mark, &node));
    node->text = copy;
    node->quoted = quoted;
    return TSR_OK;
}

static tsr_status close_node(builder *b)
{
    tsri_yaml *node = b->open[--b->depth];
    return node->kind == TSRI_YAML_MAP ? tsri_yaml_index(b->pool, node) : TSR_OK;
}

/* --- events ----------------------------------------------------------------------------------- */
static tsr_status check_plainness(const builder *b, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (anchor)
        return fail_at(b, e->start_mark, "anchors (&name) are not allowed; write the value out");
    if (tag)
        return fail_at(b, e->start_mark, "tags (!name) are not allowed");
    if (e->type == YAML_ALIAS_EVENT)
        return fail_at(b, e->start_mark, "aliases (*name) are not allowed; write the value out");
    if (e->type == YAML_DOCUMENT_START_EVENT && b->root)
        return fail_at(b, e->start_mark, "a second document; a file holds one");
    if (e->type == YAML_DOCUMENT_START_EVENT &&
        e->data.document_start.tag_directives.start != e->data.document_start.tag_directives.end)
        return fail_at(b, e->start_mark, "tag directives (%TAG) are not allowed");
    return TSR_OK;
}

static tsr_status take_event(builder *b, const yaml_event_t *e)
{
    TSRI_TRY(check_plainness(b, e));
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return add_text(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return open_node(b, TSRI_YAML_LIST, e->start_mark);
    case YAML_MAPPING_START_EVENT:
        return open_node(b, TSRI_YAML_MAP, e->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_node(b);
    default:
        return TSR_OK;
    }
}

static tsr_status take_events(builder *b)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&b->parser, &event))
            return syntax_error(b);
        tsr_status status = take_event(b, &event);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        TSRI_TRY(status);
    }
    return TSR_OK;
}

tsr_status tsri_yaml_parse(tsri_pool *pool, const char *file, const void *data, size_t size,
                           tsri_yaml **out_root)
{
    builder b = {.pool = pool, .file = file, .data = data, .size = size};
    if (size > TSRI_YAML_MAX_BYTES)
        return tsri_fail(TSR_ERR_FORMAT, "%s: more than %d MiB; keep large arrays in .npy files",
                         file, TSRI_YAML_MAX_BYTES >> 20);
    if (!yaml_parser_initialize(&b.parser))
        return tsri_fail(TSR_ERR_NO_MEMORY, "%s: no memory to parse it", file);
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    /* With the encoding given, libyaml would take a byte order mark for the first key's beginning.
     */
    if (size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) {
        b.data += 3;
        b.size -= 3;
    }
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)(b.size ? b.data : ""), b.size);
    tsr_status status = take_events(&b);
    yaml_parser_delete(&b.parser);
    TSRI_TRY(status);
    if (!b.root)
        return tsri_fail(TSR_ERR_FORMAT, "%s:1:1: there is nothing in it", file);
    *out_root = b.root;
    return TSR_OK;
}

const char *tsri_yaml_version(void)
{
    return yaml_get_version_string();
}
