/* SPDX-License-Identifier: Apache-2.0 */
/* Files that experiments are read from, and the variables and includes that they use. */
#ifndef TESSERA_CONFIG_SOURCE_H
#define TESSERA_CONFIG_SOURCE_H

#include "src/config/schema.h"

/* A file whose nodes are part of an experiment's tree. */
struct tsri_source {
    const char *name;   /* what errors call it, and its nodes' `file` */
    const char *folder; /* absolute: the start of the file names in it */
    const char *path;   /* absolute, without links; NULL: it is no file */
    tsri_source *next;
};

/* Makes the source that errors call `name`, and puts it before those of the reader. path: where it
 * is; NULL: the name says that, from the working folder. */
tsr_status tsri_source_add(tsri_reader *r, const char *name, const char *path,
                           tsri_source **out_source);
/* Reads all of a file; the caller frees the data with tsri_mem_free. "-" is standard input. */
tsr_status tsri_source_read(const char *path, char **out_data, size_t *out_size);

/* Reads the files that `include` names, and merges them under the keys of the tree. */
tsr_status tsri_include(tsri_reader *r, tsri_yaml *root);
/* Puts the values of `vars` in the place of ${name}. */
tsr_status tsri_vars(const tsri_reader *r, tsri_yaml *root);

#endif
