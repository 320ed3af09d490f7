/* SPDX-License-Identifier: Apache-2.0 */
/* The words of the text, by the numbers that they stand for. */
#ifndef TESSERA_PLAN_TEXT_WORDS_H
#define TESSERA_PLAN_TEXT_WORDS_H

#include "src/plan/plan.h"

/* "kernel", "view", ...; by tsri_item_kind. */
extern const char *const tsri_text_items[];
/* The character behind iN in `run`; by tsri_phase. */
extern const char tsri_text_phases[];
enum { TSRI_TEXT_VERSION = 1, TSRI_TEXT_ITEMS = TSRI_ITEM_DEAD + 1 };

/* A flag: its word, and where it is. */
typedef struct tsri_text_flag {
    const char *word;
    size_t offset; /* of a bool */
} tsri_text_flag;
/* The flags of an item's kernel, of its conversion and of a value; the last word is NULL. */
extern const tsri_text_flag tsri_text_kernel[], tsri_text_box[], tsri_text_value[];

/* A number: its word, and where it is. */
typedef enum tsri_text_type {
    TSRI_TEXT_INT = 0,
    TSRI_TEXT_I64,
    TSRI_TEXT_SIZE,
    TSRI_TEXT_F64,
} tsri_text_type;
typedef struct tsri_text_number {
    const char *word;
    size_t offset;
    tsri_text_type type;
    int n;    /* of them in a row */
    int none; /* what is not written, where n is 1 */
} tsri_text_number;
extern const tsri_text_number tsri_text_value_numbers[], tsri_text_kernel_numbers[],
    tsri_text_box_numbers[], tsri_text_item_numbers[];

/* The attributes of an item's op without those that have a name or can't be written: what `raw`
 * says of them. */
tsri_attrs tsri_text_nameless(const tsri_item *it);
/* Whether some of them can't be written. */
bool tsri_text_is_bound(const tsri_item *it);

#endif
