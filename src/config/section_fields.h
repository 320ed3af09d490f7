/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the tables of sections. */
#ifndef TESSERA_CONFIG_SECTION_FIELDS_H
#define TESSERA_CONFIG_SECTION_FIELDS_H

#include "src/config/schema.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define FIELDS(a) .nfields = COUNT(a), .fields = a

/* A field: KIND, struct's type, key, member, default, bounds, doc; further members by name. */
#define FIELD(kind_, type, key, member, fallback_, low, high, ...)                 \
    {                                                                              \
        .name = key, .kind = TSRI_FIELD_##kind_, .offset = offsetof(type, member), \
        .fallback = fallback_, .min = low, .max = high, .doc = __VA_ARGS__         \
    }
#define WORD(type, key, member, fallback_, words_, ...)                         \
    {                                                                           \
        .name = key, .kind = TSRI_FIELD_WORD, .offset = offsetof(type, member), \
        .fallback = fallback_, .words = words_, .doc = __VA_ARGS__              \
    }
#define PLACEMENT(type, doc_)                                                              \
    {                                                                                      \
        .name = "placement", .kind = TSRI_FIELD_NAME, .offset = offsetof(type, placement), \
        .fallback = TSRI_NONE, .legal = "the name of a placement", .doc = doc_             \
    }
#define REFUSED .on_resume = TSRI_RESUME_REFUSED
#define KEPT .on_resume = TSRI_RESUME_KEPT
#define WINS .on_resume = TSRI_RESUME_WINS
#define MOST 0x1p53
#define SBP(type, doc_) FIELD(SBP, type, "sbp", sbp, TSRI_NONE, 0, 0, doc_)

#endif
