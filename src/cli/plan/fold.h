/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that say the same but for names, as the blocks of a network do, become one with their
 * number: "h.*.fc1 x24". */
#ifndef TESSERA_CLI_PLAN_FOLD_H
#define TESSERA_CLI_PLAN_FOLD_H

#include "src/core/mem.h"

enum { FOLD_BUCKETS = 4096 };

typedef struct fold_line {
    struct fold_line *next; /* of its hash */
    const char *what, *text;
    char *name, *note; /* with "*" for numbers in which the folded lines differ */
    bool alike;        /* all names are the same but for numbers */
    int count;
} fold_line;

typedef struct fold {
    tsri_pool pool;
    bool none; /* nothing is folded */
    fold_line *buckets[FOLD_BUCKETS];
    fold_line **all;
    int n, capacity;
} fold;

/* Returns NULL when there is no memory. */
fold *fold_create(bool none);
/* Adds a line, or counts it. Names in `note` are compared but for their numbers, as in
 * "linear h.3.fc1 reads B"; `what` and `text` as they are. by_name: so is `name`; else lines are
 * one whatever they are named. Returns false when there is no memory. */
bool fold_add(fold *f, const char *what, const char *name, bool by_name, const char *text,
              const char *note);
/* f may be NULL. */
void fold_destroy(fold *f);

/* "h.*.fc1" of "h.3.fc1" and "h.12.fc1", in a; false if they differ in more than numbers. */
bool fold_merge(char *a, const char *b);

#endif
