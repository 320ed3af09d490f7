/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the text's words, used by the writer and the reader. */
#ifndef TESSERA_IR_TEXT_WORDS_H
#define TESSERA_IR_TEXT_WORDS_H

#include "src/ir/ir.h"

/* Words of kinds of item ("kernel", "view", ...), indexed by tsri_item_kind. */
extern const char *const tsri_text_items[];
/* The words of an item's turn, indexed by tsri_turn; the first is left out. */
extern const char *const tsri_text_turns[];
/* Characters that follow iN in `run`, indexed by tsri_phase. */
extern const char tsri_text_phases[];
/* Characters that follow these, indexed by tsri_entry_side. */
extern const char tsri_text_sides[];
enum { TSRI_TEXT_VERSION = 1, TSRI_TEXT_ITEMS = TSRI_ITEM_DEAD + 1 };

/* The word of a flag and the offset of its bool. */
typedef struct tsri_text_flag {
    const char *word;
    size_t offset;
} tsri_text_flag;
/* The flags of an item's kernel, of its conversion and of a value; the last word is NULL. */
extern const tsri_text_flag tsri_text_kernel[], tsri_text_box[], tsri_text_value[];

/* The word of a number, or of an array of n numbers, and its offset. */
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
    int n;
    int none; /* the value that is left out; with n > 1 it is 0 */
} tsri_text_number;
extern const tsri_text_number tsri_text_value_numbers[], tsri_text_kernel_numbers[],
    tsri_text_box_numbers[], tsri_text_item_numbers[];

/* Returns an op's attributes with named fields and pointers set to 0: the words that `raw` writes.
 */
tsri_attrs tsri_text_nameless(const tsri_item *it);
/* Returns whether an op's attributes include a pointer (constants and own ops). */
bool tsri_text_is_bound(const tsri_item *it);

#endif
