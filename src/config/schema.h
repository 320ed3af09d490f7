/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of experiments, as tables: one per section. They drive parsing, errors, defaults,
 * the dump and the manual page. A section is a mapping with known keys; its values go into a struct
 * at the fields' offsets.
 */
#ifndef TESSERA_CONFIG_SCHEMA_H
#define TESSERA_CONFIG_SCHEMA_H

#include <stdio.h>

#include <tessera/ops.h>
#include "src/config/tree.h"

typedef enum tsri_field_kind {
    TSRI_FIELD_BOOL,     /* bool */
    TSRI_FIELD_INT,      /* int64_t, min..max, which are whole and of at most 2^62 */
    TSRI_FIELD_SEED,     /* uint64_t: any */
    TSRI_FIELD_FLOAT,    /* double, min..max */
    TSRI_FIELD_BYTES,    /* int64_t: a number, or "512 MiB" */
    TSRI_FIELD_WORD,     /* int: the index in words */
    TSRI_FIELD_WORDS,    /* tsri_words: one of words, a list, or a mapping from axes' names */
    TSRI_FIELD_DTYPE,    /* tsr_dtype */
    TSRI_FIELD_SBP,      /* tsr_sbp; ndim TSRI_SBP_NAMED: by axes' names, which the node holds */
    TSRI_FIELD_TEXT,     /* const char * */
    TSRI_FIELD_PATH,     /* const char *: a file name, as the working folder sees it */
    TSRI_FIELD_NAME,     /* tsri_ref: the name of something else in the file */
    TSRI_FIELD_NAMES,    /* tsri_refs: one name, or a list */
    TSRI_FIELD_IN,       /* tsri_refs: as NAMES; only where the section has operands */
    TSRI_FIELD_SHAPE,    /* tsr_dims: sizes; min is that of the smallest */
    TSRI_FIELD_DIMS,     /* tsr_dims: a whole number for each axis */
    TSRI_FIELD_AXES,     /* tsr_axes: a list of axes, or one; [] is all */
    TSRI_FIELD_PAIR,     /* int64_t[2]: (h, w), or one number for both */
    TSRI_FIELD_TRIPLE,   /* int64_t[3]: (d, h, w), or one number for all */
    TSRI_FIELD_INTS,     /* tsri_ints: a list of whole numbers */
    TSRI_FIELD_FLOATS,   /* double[2]: two numbers, or true for the usual ones, min and max */
    TSRI_FIELD_RANKS,    /* tsri_ranks: numbers in up to TSR_MAX_HIERARCHY levels of lists */
    TSRI_FIELD_MESH,     /* tsri_mesh_axes: a mapping from axes' names to sizes */
    TSRI_FIELD_ANY,      /* const tsri_yaml *: checked later */
    TSRI_FIELD_SECTION,  /* the section's struct */
    TSRI_FIELD_SECTIONS, /* tsri_items: a list of sections */
    TSRI_FIELD_NAMED,    /* tsri_items: a mapping from names to sections */
} tsri_field_kind;

/* The fate of another value of a key in a run that goes on from a checkpoint. */
typedef enum tsri_on_resume {
    TSRI_RESUME_AS_SECTION, /* as the key whose section it is in; at the top it wins */
    TSRI_RESUME_WINS,       /* the run goes on with the new value */
    TSRI_RESUME_REFUSED,
    TSRI_RESUME_KEPT, /* it speaks of the beginning: what the checkpoint has stays, with a warning
                       */
} tsri_on_resume;

typedef struct tsri_section tsri_section;

typedef struct tsri_field {
    const char *name;
    tsri_field_kind kind;
    size_t offset;
    const char *fallback; /* the default as YAML; TSRI_NEEDED; TSRI_NONE: absent means not said */
    double min, max;      /* of numbers; equal: no bounds */
    const char *const *words; /* of WORD, with a NULL behind the last */
    const tsri_section *section;
    const char *legal; /* FLOATS, ANY, NAME: what it is, for errors and the manual */
    const char *doc;
    const char *json; /* ANY: its JSON Schema; NULL: anything */
    tsri_on_resume on_resume;
} tsri_field;

extern const char tsri_field_needed[];
#define TSRI_NEEDED tsri_field_needed
#define TSRI_NONE NULL

struct tsri_section {
    const char *name; /* of a variant: the word that selects it */
    const char *doc;
    size_t size; /* of its struct */
    int nfields;
    const tsri_field *fields;
    /* A field whose word adds the fields of a variant, into the same struct. NULL: none. */
    const char *selector;
    tsri_on_resume on_resume; /* of the selector */
    int nvariants;
    const tsri_section *variants;
    const char *operands; /* of an op: "x y?"; NULL: it has none */
    const char *list_as;  /* a list stands for a mapping that has it under this key; or NULL */
    bool word_alone;      /* a word stands for a mapping whose selector it is */
    /* The key that selects this variant where the selector is missing; NULL: none does. */
    const char *implied_by;
};

/* The beginning of each section's struct. */
typedef struct tsri_head {
    const tsri_yaml *node; /* the mapping; NULL: it was not given */
    const char *name;      /* of a NAMED item */
    uint64_t given;        /* by field of the section, then of the variant: said, or a default */
    int variant;
} tsri_head;

typedef struct tsri_ref {
    const char *name;
    const tsri_yaml *node;
} tsri_ref;
typedef struct tsri_refs {
    int n;
    tsri_ref *refs;
} tsri_refs;
typedef struct tsri_ints {
    int n;
    int64_t *v;
} tsri_ints;
typedef struct tsri_words {
    int n, words[TSR_MAX_HIERARCHY]; /* indices */
    const tsri_yaml *by_axis;        /* the mapping whose children they are, in order; or NULL */
} tsri_words;
typedef struct tsri_ranks {
    int ndim, n;
    int dim[TSR_MAX_HIERARCHY];
    int *ranks;
} tsri_ranks;
/* The axes of a mesh, outermost first. */
typedef struct tsri_mesh_axes {
    int ndim;
    const char *name[TSR_MAX_HIERARCHY];
    int size[TSR_MAX_HIERARCHY]; /* 0: left open, `~` in the file */
} tsri_mesh_axes;
typedef struct tsri_items {
    int n;
    void *items; /* structs of section->size bytes */
} tsri_items;

enum {
    TSRI_MAX_RANK = 65535,
    TSRI_MAX_RANKS_LISTED = 1 << 20, /* in all placements of a file */
    TSRI_LEGAL_MAX = 1400
};

typedef struct tsri_source tsri_source;
typedef struct tsri_reader {
    tsri_pool *pool;
    tsri_source *sources; /* the files: nodes of others are overrides */
    const char *working;  /* absolute: the start of file names in overrides */
    int64_t *ranks_left;  /* how many more ranks the file's lists may hold together; NULL: any */
} tsri_reader;

/* Reads a mapping (NULL: an absent one, all defaults) into the section's zeroed struct. */
tsr_status tsri_section_read(const tsri_reader *r, const tsri_section *s, const tsri_yaml *node,
                             const tsri_yaml *where, void *out);
/* The field of a key, not of a variant; s may be NULL, as is the result where there is none. */
const tsri_field *tsri_section_field(const tsri_section *s, const char *key);
/* Whether a field (of the section or its variant) has a value. */
bool tsri_section_has(const tsri_section *s, const void *base, const char *field);
/* Says that it has one now: a default that was worked out. */
void tsri_section_give(const tsri_section *s, void *base, const char *field);
/* Says that it has none any more: its work is done. */
void tsri_section_drop(const tsri_section *s, void *base, const char *field);
/* Where a field's value stands in the file: its node, or the section's. */
const tsri_yaml *tsri_section_node(const void *base, const char *field);

/* Writes a section's struct: as a block whose lines start with `indent` blanks, or as "{...}". */
void tsri_section_dump(const tsri_section *s, const void *base, int indent, bool flow, FILE *f);

/* The fate of another value of a field; `above` is that of the section that it is in. File names
 * and signatures win unless the field says otherwise: they say where something is, not what it is.
 */
tsri_on_resume tsri_field_on_resume(const tsri_field *f, tsri_on_resume above);
/* And of a section's selector. */
tsri_on_resume tsri_selector_on_resume(const tsri_section *s, tsri_on_resume above);

/* --- single values: src/config/values.c ------------------------------------------------------- */
tsr_status tsri_value_read(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                           void *at);
tsr_status tsri_value_float(const tsri_yaml *node, double *out_value);
tsr_status tsri_value_int(const tsri_yaml *node, int64_t *out_value);
/* Whether a whole number is within the bounds of a field: exact, where a double would round. */
bool tsri_field_has(const tsri_field *f, int64_t value);
tsr_status tsri_value_sbp(const tsri_yaml *node, tsr_sbp *out_sbp);
/* The folder that the file names in a node start from. */
const char *tsri_value_folder(const tsri_reader *r, const tsri_yaml *node);
/* A file name as an absolute one; NULL when there is no memory. */
const char *tsri_value_path(const tsri_reader *r, const tsri_yaml *node);
/* Fails with what was found, what is legal for the field, and the nearest legal word. */
tsr_status tsri_value_illegal(const tsri_field *f, const tsri_yaml *node);
/* Whether a scalar is a text, not a number, truth value or nothing. */
bool tsri_value_is_text(const tsri_yaml *node);
/* A name, as those of tensors and placements: letters, digits, _ and -, a letter or _ first. */
bool tsri_is_name(const char *text);
/* "; did you mean 'x'?" if one of n names is near, else "". The names are those at `names + i *
 * stride`, each a const char *. */
const char *tsri_did_you_mean(const char *text, int n, const void *names, size_t stride,
                              char buf[TSRI_YAML_TEXT_MAX]);
/* The text of what is legal for a field: "a whole number from 1 to 64". */
char *tsri_field_legal(const tsri_field *f, char buf[TSRI_LEGAL_MAX]);
void tsri_value_dump(const tsri_field *f, const void *at, FILE *out);

/* --- meshes and ranks: src/config/mesh.c ------------------------------------------------------ */
tsr_status tsri_ranks_read(const tsri_reader *r, const tsri_field *f, const tsri_yaml *node,
                           tsri_ranks *at);
tsr_status tsri_mesh_read(const tsri_field *f, const tsri_yaml *node, tsri_mesh_axes *at);
void tsri_ranks_dump(const tsri_ranks *r, FILE *out);
void tsri_mesh_dump(const tsri_mesh_axes *m, FILE *out);
/* Takes n ranks from those that the file may still have. */
tsr_status tsri_ranks_take(const tsri_reader *r, const tsri_yaml *node, int64_t n);

/* --- signatures by axes' names, "{dp: S(0), tp: B}": src/config/named.c ----------------------- */
enum { TSRI_SBP_NAMED = -1 };
/* Whether a node is such a signature: a mapping, or a text with a colon, "dp:S(0),tp:B". */
bool tsri_sbp_is_named(const tsri_yaml *node);
/* Checks all of it but whether the axes are there. */
tsr_status tsri_sbp_check_named(const tsri_yaml *node);
/* Makes the signature on a placement whose dimensions have these names; entries of axes that the
 * node does not name are `rest`. `place` is what errors call the placement. ndim 0: its dimensions
 * have no names. */
tsr_status tsri_sbp_by_axes(const tsri_yaml *node, const char *place, int ndim,
                            const char *const *axis, tsr_sbp_kind rest, tsr_sbp *out_sbp);
void tsri_sbp_dump_named(const tsri_yaml *node, FILE *out);

/* --- dumping values: src/config/print/dump.c -------------------------------------------------- */
void tsri_text_dump(const char *text, FILE *out);
/* Writes a value of TSRI_FIELD_ANY: numbers or texts, in lists. */
void tsri_yaml_dump(const tsri_yaml *node, FILE *out);

#endif
