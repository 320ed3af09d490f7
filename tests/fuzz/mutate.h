/* SPDX-License-Identifier: Apache-2.0 */
/* The changes that mutators of texts are made of. */
#ifndef TESSERA_TESTS_FUZZ_MUTATE_H
#define TESSERA_TESTS_FUZZ_MUTATE_H

#include <ctype.h>

#include "tests/fuzz/fuzz.h"

typedef struct text {
    char *at;
    size_t size, most;
    uint64_t rng;
} text;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint32_t draw(text *t, uint32_t below)
{
    uint64_t z = t->rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

static inline void replace(text *t, size_t at, size_t n, const char *with)
{
    size_t more = strlen(with);
    if (t->size - n + more > t->most)
        return;
    memmove(t->at + at + more, t->at + at + n, t->size - at - n);
    memcpy(t->at + at, with, more);
    t->size += more - n;
}

/* The line at or behind a drawn place; false if there is none. */
static inline bool draw_line(text *t, size_t *out_at, size_t *out_n)
{
    size_t at = t->size ? draw(t, (uint32_t)t->size) : 0;
    while (at && t->at[at - 1] != '\n')
        at--;
    size_t end = at;
    while (end < t->size && t->at[end] != '\n')
        end++;
    *out_at = at;
    *out_n = end - at + (end < t->size);
    return *out_n > 0;
}

static inline bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

/* A drawn word or number of the text. */
static inline bool draw_word(text *t, size_t *out_at, size_t *out_n)
{
    size_t at = t->size ? draw(t, (uint32_t)t->size) : 0, end;
    while (at < t->size && !is_word(t->at[at]))
        at++;
    while (at && is_word(t->at[at - 1]))
        at--;
    for (end = at; end < t->size && is_word(t->at[end]);)
        end++;
    *out_at = at;
    *out_n = end - at;
    return end > at;
}

#endif
