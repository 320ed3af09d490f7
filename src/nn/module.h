/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a module: a node of a tree that owns variables and children. */
#ifndef TESSERA_NN_MODULE_H
#define TESSERA_NN_MODULE_H

#include <string.h>

#include "src/graph/graph.h"

struct tsr_module {
    tsri_scope scope; /* first: whose parent is the parent's */
    tsri_owned owned; /* of a root; a child belongs to its parent */
    tsr_world *world;
    tsr_module *first_child, *last_child, *sibling; /* in order of creation */
    uint32_t nchildren, nslots;
    tsr_module **children; /* [nchildren], with room up to the next power of two */
    tsr_module **slots;    /* of many children, by name; nslots is a power of two, or 0 */
    tsr_variable *first_variable, *last_variable;
    tsr_nn_opts opts;
    tsr_forward_fn *forward;     /* at most one of the two: a container has neither */
    tsr_forward_n_fn *forward_n; /* of several inputs and outputs */
    void *arg;
    void (*free_arg)(void *);
    tsr_dtype autocast; /* its forward is a region of it; NONE: of nothing of its own */
    bool recompute;     /* its applications are regions of tsr_recompute */
    tsri_loc
        loc; /* of the user's call of tsr_apply that is under way: layers report errors there */
    /* A child or variable that could not be made: the module is incomplete and can't be applied. */
    tsr_status status;
    char *error;
};

/* Returns the module that a scope belongs to, such as a variable's. */
static inline tsr_module *tsri_scope_module(const tsri_scope *s)
{
    return (tsr_module *)(uintptr_t)s;
}

/* NULL: a root. */
static inline tsr_module *tsri_module_parent(const tsr_module *m)
{
    return (tsr_module *)m->scope.parent;
}

/* Adds a variable that need not live where the module does, nor be of its dtype. sbp is taken as it
 * is. */
tsr_status tsri_module_add_variable(tsr_module *m, const char *name, const tsr_placement *placement,
                                    tsr_dtype dtype, tsr_dims dims, tsr_sbp sbp, tsr_init init,
                                    bool trainable, tsr_variable **out_variable);
/* tsr_module_child and tsr_module_find, but without an error where there is none. */
tsr_module *tsri_module_child(const tsr_module *m, const char *name);
tsr_variable *tsri_module_lookup(tsr_module *m, const char *qualified_name);
/* The placement that all variables in and below a module share; NULL if there are none, or
 * several. */
const tsr_placement *tsri_module_home(const tsr_module *m);
/* Marks a module as incomplete, with the thread's last error; the first one stays. */
void tsri_module_break(tsr_module *m, tsr_status status);

#endif
