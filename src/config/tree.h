/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML as a tree of nodes that know where they stand: mappings, lists and scalars, and nothing that
 * can grow (no anchors, aliases, tags, merge keys, second documents). Bounded in bytes, nodes and
 * depth, so that no input takes more than its share of memory or time.
 */
#ifndef TESSERA_CONFIG_TREE_H
#define TESSERA_CONFIG_TREE_H

#include "src/core/mem.h"

enum {
    TSRI_YAML_MAX_BYTES = 16 << 20,
    TSRI_YAML_MAX_NODES = 1 << 20,
    TSRI_YAML_MAX_DEPTH = 64, /* lists and mappings within each other */
};

typedef enum tsri_yaml_kind {
    TSRI_YAML_SCALAR,
    TSRI_YAML_LIST,
    TSRI_YAML_MAP,
} tsri_yaml_kind;

typedef struct tsri_yaml tsri_yaml;
struct tsri_yaml {
    tsri_yaml_kind kind;
    bool quoted;              /* scalar: so it is text, whatever it looks like */
    int line, column;         /* from 1 */
    int key_line, key_column; /* of the key before it; 0 in lists */
    int index, n;             /* place within the parent; number of children */
    const char *file;         /* what errors call the source */
    const char *from;         /* the source that says its text, if another: a variable's */
    const char *text;         /* scalar */
    const char *key;          /* within a mapping; else NULL */
    tsri_yaml *parent, *next, *first, *last;
    tsri_yaml **slots; /* of a large mapping: open addressing by key, nslots a power of two */
    uint32_t nslots;
};

/* Parses a document; the tree lives in the pool, `file` must live as long. */
tsr_status tsri_yaml_parse(tsri_pool *pool, const char *file, const void *data, size_t size,
                           tsri_yaml **out_root);
/*
 * Applies "path=value" to a tree: the value, YAML itself, takes the place of what the path names
 * ("graph.y.in[1]"); missing keys are added. `text` is kept and is the `file` of the new nodes.
 */
tsr_status tsri_yaml_set(tsri_pool *pool, tsri_yaml *root, const char *text);

/* The child of a mapping; NULL if there is none, or no mapping. */
tsri_yaml *tsri_yaml_find(const tsri_yaml *map, const char *key);
/* Finds the first `length` bytes of key. */
tsri_yaml *tsri_yaml_find_n(const tsri_yaml *map, const char *key, size_t length);

/* "FILE:LINE:COLUMN: path: text" as the thread's error; returns TSR_ERR_FORMAT. */
tsr_status tsri_yaml_fail(const tsri_yaml *node, const char *fmt, ...) TSR_PRINTF(2, 3);
/* Fails with the place of the node's key. */
tsr_status tsri_yaml_fail_key(const tsri_yaml *node, const char *fmt, ...) TSR_PRINTF(2, 3);

enum { TSRI_YAML_TEXT_MAX = 256 };
/* "graph.y.in[1]" into buf; "" for the root. Returns buf. */
char *tsri_yaml_path(const tsri_yaml *node, char buf[TSRI_YAML_TEXT_MAX]);
/* The kind of a node, for messages: "'text'", "a list", "a mapping". Returns buf. */
char *tsri_yaml_shown(const tsri_yaml *node, char buf[TSRI_YAML_TEXT_MAX]);

/* The version of the library that scans the text. */
const char *tsri_yaml_version(void);

#endif
