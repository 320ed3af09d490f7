/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that others wrote, such as a store's values: whoever can connect may have set them, so that
 * numbers are taken within bounds alone, and nothing is shown that a terminal acts on. */
#ifndef TSRI_CORE_FOREIGN_H
#define TSRI_CORE_FOREIGN_H

#include "src/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes a decimal number from `low` to `high` at *at, with no blank or plus before it, and moves
 * *at behind it. Without one returns false, and *at stays. */
bool tsri_take_number(const char **at, int64_t low, int64_t high, int64_t *out);
/* Takes an int in the same way. */
bool tsri_take_int(const char **at, int low, int high, int *out);
/* Takes the character c at *at. */
bool tsri_take_char(const char **at, char c);
/* Takes a number that is an error's. */
bool tsri_take_error(const char **at, tsr_status *out);
/* Makes control characters question marks, and cuts a last UTF-8 character short of bytes; ends of
 * lines stay if `lines`. Returns text. */
char *tsri_make_printable(char *text, bool lines);

#endif
