/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the tables of sections. */
#ifndef TESSERA_CONFIG_SECTION_FIELDS_H
#define TESSERA_CONFIG_SECTION_FIELDS_H

#include "src/config/schema.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define FIELDS(a) .nfields = COUNT(a), .fields = a

/* A field: KIND, struct's type, key, member, default, bounds, doc. */
#define FIELD(kind_, type, key, member, fallback_, low, high, doc_)                \
    {                                                                              \
        .name = key, .kind = TSRI_FIELD_##kind_, .offset = offsetof(type, member), \
        .fallback = fallback_, .min = low, .max = high, .doc = doc_                \
    }
#define WORD(type, key, member, fallback_, words_, doc_)                        \
    {                                                                           \
        .name = key, .kind = TSRI_FIELD_WORD, .offset = offsetof(type, member), \
        .fallback = fallback_, .words = words_, .doc = doc_                     \
    }
#define PLACEMENT(type, doc_)                                                              \
    {                                                                                      \
        .name = "placement", .kind = TSRI_FIELD_NAME, .offset = offsetof(type, placement), \
        .fallback = TSRI_NONE, .legal = "the name of a placement", .doc = doc_             \
    }
#define MOST 0x1p53
#define SBP(type, doc_) FIELD(SBP, type, "sbp", sbp, TSRI_NONE, 0, 0, doc_)

#endif
