/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures that rules of a file give to what a model computes: `tensors.match`, and `use` of
 * `parameters`.
 */
#ifndef TESSERA_CONFIG_PIN_H
#define TESSERA_CONFIG_PIN_H

#include "src/config/program.h"

/* A tensor that a module gave. */
typedef struct tsri_given {
    const char *name; /* of the module */
    tsr_tensor *tensor;
} tsri_given;

typedef struct tsri_pins {
    const tsri_program *program;
    tsr_status status;
    int n, capacity;
    tsri_given *given;
} tsri_pins;

/* Begins to listen to what the program's graph is declared with. */
void tsri_pins_begin(tsri_pins *pins, const tsri_program *p);
/* Ends that, and brings tensors into the signatures that are said, from *result to its operands: to
 * be called before the loss is declared. *result is what takes its place. A rule that fits nothing
 * is an error, with near names. */
tsr_status tsri_pins_end(tsri_pins *pins, tsr_tensor **result);

#endif
