/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a module: a node of a tree that owns variables and children. */
#ifndef TESSERA_NN_MODULE_H
#define TESSERA_NN_MODULE_H

#include <string.h>

#include "src/graph/graph.h"

/* Longest qualified name of a variable or module, with its end. */
enum { TSRI_NAME_MAX = 512 };

struct tsr_module {
    tsri_owned owned; /* of a root; a child belongs to its parent */
    tsr_world *world;
    tsr_module *parent;
    tsr_module *first_child, *last_child, *sibling; /* in order of creation */
    tsr_variable *first_variable, *last_variable;
    char *name; /* within the parent, "" for a root */
    tsr_nn_opts opts;
    tsr_forward_fn *forward;
    void *arg;
    void (*free_arg)(void *);
    tsri_loc
        loc; /* of the user's call of tsr_apply that is under way: layers report errors there */
    /* A child or variable that could not be made: the module is incomplete and can't be applied. */
    tsr_status status;
    char *error;
    bool local; /* this rank's own, with all below it */
};

/* Whether a module, or one that it is in, is this rank's own. */
bool tsri_module_is_local(const tsr_module *m);
/* For a variable of such a module: whether it lives on this rank alone. */
tsr_status tsri_variable_check_local(const tsr_variable *v);

/* Adds a variable that need not live where the module does, nor be of its dtype. sbp is taken as it
 * is. */
tsr_status tsri_module_add_variable(tsr_module *m, const char *name, const tsr_placement *placement,
                                    tsr_dtype dtype, tsr_dims dims, tsr_sbp sbp, tsr_init init,
                                    bool trainable, tsr_variable **out_variable);
/* tsr_module_find, but without an error where there is none. */
tsr_variable *tsri_module_lookup(tsr_module *m, const char *qualified_name);
/* "features.0.0" into buf; "" for a root. */
void tsri_module_qualified_name(const tsr_module *m, char *buf, size_t size);
/* Marks a module as incomplete, with the thread's last error; the first one stays. */
void tsri_module_break(tsr_module *m, tsr_status status);

/* Options of any version into this one's: what the caller's struct has not, is zero. */
#endif
