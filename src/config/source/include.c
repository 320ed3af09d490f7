/* SPDX-License-Identifier: Apache-2.0 */
/* Includes: other files' keys under those of a file. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "src/config/inside.h"
#include "src/config/source/source.h"
#include "src/config/tree_index.h"

enum { MOST_DEEP = 8, MOST_FILES = 64, MOST_SEEN = 256 };

typedef struct includer {
    tsri_reader *reader;
    int nfiles;
    size_t bytes; /* of all files that were included */
} includer;

/* A file whose includes are being read, and the one that includes it. */
typedef struct level {
    const tsri_source *source;
    const struct level *up;
    int depth;
} level;

/* --- merging ---------------------------------------------------------------------------------- */
/* The contents that a mapping of the tree has: a section's keys, or names of sections. */
typedef struct contents {
    const tsri_section *section; /* NULL: the tables don't know it */
    bool named;
} contents;

static const tsri_section *selected(const tsri_section *s, const tsri_yaml *over,
                                    const tsri_yaml *base)
{
    const tsri_yaml *word = tsri_yaml_find(over, s->selector);
    word = word ? word : tsri_yaml_find(base, s->selector);
    for (int i = 0; word && word->kind == TSRI_YAML_SCALAR && i < s->nvariants; i++)
        if (!strcmp(s->variants[i].name, word->text))
            return &s->variants[i];
    return NULL;
}

static contents contents_below(contents c, const tsri_yaml *over, const tsri_yaml *base,
                               const char *key)
{
    if (c.named || !c.section)
        return (contents){c.named ? c.section : NULL, false};
    const tsri_field *f = tsri_section_field(c.section, key);
    if (!f && c.section->selector)
        f = tsri_section_field(selected(c.section, over, base), key);
    if (!f || (f->kind != TSRI_FIELD_SECTION && f->kind != TSRI_FIELD_NAMED))
        return (contents){NULL, false};
    return (contents){f->section, f->kind == TSRI_FIELD_NAMED};
}

/* Whether both select a variant, and not the same: then their keys don't go together. */
static bool differ_in_kind(contents c, const tsri_yaml *over, const tsri_yaml *base)
{
    if (c.named || !c.section || !c.section->selector)
        return false;
    const tsri_yaml *a = tsri_yaml_find(over, c.section->selector);
    const tsri_yaml *b = tsri_yaml_find(base, c.section->selector);
    return a && b && a->kind == TSRI_YAML_SCALAR && b->kind == TSRI_YAML_SCALAR &&
           strcmp(a->text, b->text) != 0;
}

/* Puts base's keys under over's: in base's order, then those that only `over` has. */
static tsr_status merge(tsri_pool *pool, contents c, tsri_yaml *over, const tsri_yaml *base)
{
    const size_t most = (size_t)over->n + (size_t)base->n;
    tsri_yaml **children = tsri_pool_alloc(pool, most * sizeof(tsri_yaml *));
    int n = 0;
    TSRI_NEED(children);
    for (tsri_yaml *b = base->first; b; b = b->next) {
        tsri_yaml *o = tsri_yaml_find(over, b->key);
        const contents below = contents_below(c, over, base, b->key);
        if (o && o->kind == TSRI_YAML_MAP && b->kind == TSRI_YAML_MAP &&
            !differ_in_kind(below, o, b))
            TSRI_TRY(merge(pool, below, o, b));
        children[n++] = o ? o : b;
    }
    for (tsri_yaml *o = over->first; o; o = o->next)
        if (!tsri_yaml_find(base, o->key))
            children[n++] = o;
    return tsri_yaml_refill(pool, over, n, children);
}

/* --- files ------------------------------------------------------------------------------------ */
/* "; did you mean 'base.yaml'?" if the folder has a file of nearly that name. */
static const char *near_file(const char *path, char mean[TSRI_YAML_TEXT_MAX])
{
    const char *slash = strrchr(path, '/');
    char folder[4096], names[MOST_SEEN][TSRI_YAML_TEXT_MAX];
    const char *seen[MOST_SEEN];
    int n = 0;
    mean[0] = 0;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 0, path);
    DIR *d = opendir(folder);
    if (!d)
        return mean;
    for (const struct dirent *e; n < MOST_SEEN && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(names[n], sizeof names[n], "%s", e->d_name);
        seen[n] = names[n];
        n++;
    }
    closedir(d);
    return tsri_did_you_mean(slash + 1, n, seen, sizeof *seen, mean);
}

/* Returns the name of an included file in errors: that of the including one, with its folder. */
static const char *shown_name(tsri_pool *pool, const tsri_yaml *node)
{
    const char *slash = strrchr(node->file, '/');
    if (node->text[0] == '/' || !slash || !strncmp(node->file, "--set ", 6))
        return node->text;
    return tsri_pool_printf(pool, "%.*s/%s", (int)(slash - node->file), node->file, node->text);
}

static tsr_status check_name(const tsri_yaml *node)
{
    char shown[TSRI_YAML_TEXT_MAX];
    if (!tsri_value_is_text(node) || !node->text[0])
        return tsri_yaml_fail(node, "found %s; legal is a file name, or a list of them",
                              tsri_yaml_shown(node, shown));
    if (strstr(node->text, "${"))
        return tsri_yaml_fail(node, "variables can't be used here: files are included before "
                                    "their values are known");
    return TSR_OK;
}

/* Refuses a file that is no part of an experiment, without a word of what it says: an experiment
 * may be a stranger's, and may name any file. A key that is nearly one of experiments is named. */
static tsr_status check_form(const tsri_yaml *root)
{
    const tsri_section *all = &tsri_experiment_section;
    char mean[TSRI_YAML_TEXT_MAX];
    if (root->kind != TSRI_YAML_MAP)
        return tsri_yaml_fail(root, "it is no mapping with keys of experiments");
    for (const tsri_yaml *c = root->first; c; c = c->next) {
        if (tsri_section_field(all, c->key) ||
            tsri_did_you_mean(c->key, all->nfields, &all->fields->name, sizeof *all->fields,
                              mean)[0])
            continue;
        return tsri_fail(TSR_ERR_FORMAT,
                         "%.300s:%d:%d: a key that no experiment has: the file is "
                         "no part of one",
                         c->file, c->key_line, c->key_column);
    }
    return TSR_OK;
}

/* Says where a file can't be parsed, and not by which of its keys. */
static tsr_status parse_file(includer *in, const tsri_source *source, const void *data, size_t size,
                             tsri_yaml **out_root)
{
    int line, column;
    char text[512];
    const size_t n = strlen(source->name);
    const tsr_status status = tsri_yaml_parse(in->reader->pool, source->name, data, size, out_root);
    snprintf(text, sizeof text, "%s", tsr_last_error());
    if (status != TSR_ERR_FORMAT || !strstr(text, "this key is there twice") ||
        strncmp(text, source->name, n) != 0 || sscanf(text + n, ":%d:%d:", &line, &column) != 2)
        return status;
    return tsri_fail(status, "%s:%d:%d: this key is there twice", source->name, line, column);
}

/* Reads a file that a node names, as a tree whose nodes are the file's own. */
static tsr_status read_file(includer *in, const tsri_yaml *node, const tsri_source *source,
                            tsri_yaml **out_root)
{
    char *data = NULL;
    size_t size = 0;
    tsr_status status = tsri_source_read(source->path, &data, &size);
    if (status != TSR_OK)
        return status == TSR_ERR_NO_MEMORY ? status : tsri_yaml_fail(node, "%s", tsr_last_error());
    in->bytes += size;
    status = in->bytes > TSRI_YAML_MAX_BYTES
                 ? tsri_yaml_fail(node, "the files that are included have more than %d MiB",
                                  TSRI_YAML_MAX_BYTES >> 20)
                 : parse_file(in, source, data, size, out_root);
    tsri_mem_free(data);
    return status == TSR_OK ? check_form(*out_root) : status;
}

/* Finds the file that a node names. */
static tsr_status find_file(includer *in, const tsri_yaml *node, tsri_source **out_source)
{
    struct stat st;
    char mean[TSRI_YAML_TEXT_MAX];
    const char *path = tsri_value_path(in->reader, node);
    const char *name = shown_name(in->reader->pool, node);
    TSRI_NEED(path && name);
    if (stat(path, &st) != 0)
        return tsri_yaml_fail(node, "there is no file '%.100s'%s", node->text,
                              near_file(path, mean));
    if (!S_ISREG(st.st_mode))
        return tsri_yaml_fail(node, "'%.100s' is no file, but a folder or device", node->text);
    return tsri_source_add(in->reader, name, path, out_source);
}

static tsr_status check_level(const includer *in, const tsri_yaml *node, const tsri_source *source,
                              const level *up)
{
    for (const level *l = up; l; l = l->up)
        if (l->source->path && source->path && !strcmp(l->source->path, source->path))
            return tsri_yaml_fail(node, "'%.100s' includes itself%s%.100s", node->text,
                                  l == up ? "" : ", by way of ", l == up ? "" : up->source->name);
    if (up->depth == MOST_DEEP)
        return tsri_yaml_fail(node, "includes are nested more than %d deep", MOST_DEEP);
    if (in->nfiles == MOST_FILES)
        return tsri_yaml_fail(node, "more than %d files are included", MOST_FILES);
    return TSR_OK;
}

static tsr_status include_into(includer *in, tsri_yaml *root, const level *here);

static tsr_status include_file(includer *in, const tsri_yaml *node, const level *up,
                               tsri_yaml **out_root)
{
    tsri_source *source;
    TSRI_TRY(check_name(node));
    TSRI_TRY(find_file(in, node, &source));
    TSRI_TRY(check_level(in, node, source, up));
    in->nfiles++;
    TSRI_TRY(read_file(in, node, source, out_root));
    return include_into(in, *out_root, &(level){source, up, up->depth + 1});
}

static tsr_status include_into(includer *in, tsri_yaml *root, const level *here)
{
    tsri_pool *pool = in->reader->pool;
    const contents all = {&tsri_experiment_section, false};
    tsri_yaml *names, *base = NULL, *more = NULL;
    TSRI_TRY(tsri_yaml_take(pool, root, "include", &names));
    if (!names)
        return TSR_OK;
    /* A later file of a list is over those before it. */
    bool is_list = names->kind == TSRI_YAML_LIST;
    for (const tsri_yaml *c = is_list ? names->first : names; c; c = is_list ? c->next : NULL) {
        TSRI_TRY(include_file(in, c, here, &more));
        if (base)
            TSRI_TRY(merge(pool, all, more, base));
        base = more;
    }
    return base ? merge(pool, all, root, base) : TSR_OK;
}

tsr_status tsri_include(tsri_reader *r, tsri_yaml *root)
{
    includer in = {.reader = r};
    const level main = {.source = r->sources};
    return root->kind == TSRI_YAML_MAP ? include_into(&in, root, &main) : TSR_OK;
}
