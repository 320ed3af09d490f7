/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures that rules of a file give to what a model or a graph computes: `tensors.match`, and
 * `use` of `parameters`.
 */
#ifndef TESSERA_CONFIG_PIN_H
#define TESSERA_CONFIG_PIN_H

#include "src/config/program.h"
#include "src/config/rules/places.h"

/* A tensor that a module gave, or an entry of `graph`. */
typedef struct tsri_given {
    const char *name; /* of the module or entry; "y.0" of one of several results */
    tsr_tensor *tensor;
    const tsri_config_op *entry; /* NULL: it is a module's */
    tsr_tensor **made;           /* the program's place of it; of entries alone */
} tsri_given;

typedef struct tsri_pins {
    const tsri_program *program;
    bool of_graph;
    tsr_status status;
    int n, capacity;
    tsri_given *given;
    tsri_places places; /* from tsri_pins_end on */
} tsri_pins;

/* Begins to listen to what the program's graph is declared with. */
void tsri_pins_begin(tsri_pins *pins, const tsri_program *p);
/* Ends that, and brings tensors into the signatures that are said, from *result to its operands: to
 * be called before the loss is declared. *result is what takes its place. A rule that fits nothing
 * is an error, with near names. */
tsr_status tsri_pins_end(tsri_pins *pins, tsr_tensor **result);
/* Does the same of what the entries of the program's graph give, all of which were declared. */
tsr_status tsri_pins_of_graph(const tsri_program *p);

#endif
