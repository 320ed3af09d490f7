/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as text, piece by piece, and the schemas of single values. */
#ifndef TESSERA_CONFIG_JSON_SCHEMA_H
#define TESSERA_CONFIG_JSON_SCHEMA_H

#include "src/config/schema.h"

typedef struct tsri_json {
    FILE *out;
    int depth;
    bool any; /* the list or object that is open has something in it */
} tsri_json;

/* Each begins with the key (NULL: in a list). */
void tsri_json_open(tsri_json *j, const char *key, char bracket);
void tsri_json_close(tsri_json *j, char bracket);
void tsri_json_text(tsri_json *j, const char *key, const char *text);
void tsri_json_number(tsri_json *j, const char *key, double v);
/* Writes text that is JSON already. */
void tsri_json_raw(tsri_json *j, const char *key, const char *json);

/* Writes the keywords of a value of a field, but of sections, into the open object. */
void tsri_json_value(tsri_json *j, const tsri_field *f);

#endif
