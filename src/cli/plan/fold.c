/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/plan/fold.h"

#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"

fold *fold_create(bool none)
{
    fold *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->none = none;
    tsri_pool_init(&f->pool, NULL);
    return f;
}

void fold_destroy(fold *f)
{
    if (f)
        tsri_pool_finish(&f->pool);
    free(f);
}

/* Whether a unit of time follows: what stands before it is a figure's, not a name's. */
static bool is_time(const char *at)
{
    static const char *const units[] = {" ns", " us", " ms", " s"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i]);
        if (!strncmp(at, units[i], n) && (!at[n] || strchr(" ,;:", at[n])))
            return true;
    }
    return false;
}

/* The length of a number at the beginning of `at` that is a part of a name with dots, or all of a
 * text; or of "*", which stands for one; 0: there is none, or it is a figure's, "58.5 us". before:
 * the character in front of it. */
static size_t number_at(const char *at, char before)
{
    size_t n = *at == '*' ? 1 : strspn(at, "0123456789");
    bool begins = before == 0 || before == ' ' || before == '.';
    bool ends = at[n] == 0 || at[n] == '.' || at[n] == ' ' || at[n] == ',' || at[n] == ';';
    bool dotted = before == '.' || at[n] == '.' || (before == 0 && at[n] == 0);
    return n && begins && ends && dotted && !is_time(at + n) ? n : 0;
}

bool fold_merge(char *a, const char *b)
{
    char before = 0, *to = a;
    const char *from = a;
    while (*from && *b) {
        size_t n = number_at(from, before), m = number_at(b, before);
        if (n && m) {
            bool same = n == m && !memcmp(from, b, n);
            if (same)
                memmove(to, from, n);
            else
                *to = '*';
            to += same ? n : 1;
            from += n;
            b += m;
            before = '0';
            continue;
        }
        if (*from != *b)
            return false;
        before = *from;
        *to++ = *from++;
        b++;
    }
    if (*from || *b)
        return false;
    *to = 0;
    return true;
}

/* Whether two texts are the same but for numbers in names. */
static bool are_alike(const char *a, const char *b)
{
    for (char before = 0; *a && *b;) {
        size_t n = number_at(a, before), m = number_at(b, before);
        if (n && m) {
            a += n;
            b += m;
            before = '0';
        } else if (*a != *b) {
            return false;
        } else {
            before = *a++;
            b++;
        }
    }
    return *a == *b;
}

static uint64_t hash_but_numbers(uint64_t h, const char *text)
{
    for (char before = 0; *text;) {
        size_t n = number_at(text, before);
        before = n ? '0' : *text;
        h = tsri_hash(h, n ? "#" : text, 1);
        text += n ? n : 1;
    }
    return h;
}

bool fold_add(fold *f, const char *what, const char *name, bool by_name, const char *text,
              const char *note)
{
    uint64_t h = tsri_hash(TSRI_HASH_INIT, text, strlen(text));
    h = hash_but_numbers(tsri_hash(h, what, strlen(what)), note);
    fold_line **bucket = &f->buckets[(by_name ? hash_but_numbers(h, name) : h) % FOLD_BUCKETS];
    for (fold_line *l = *bucket; l && !f->none; l = l->next) {
        if (strcmp(l->what, what) != 0 || strcmp(l->text, text) != 0 || !are_alike(l->note, note) ||
            (by_name && !are_alike(l->name, name)))
            continue;
        fold_merge(l->note, note);
        bool alike = are_alike(l->name, name);
        if (alike)
            fold_merge(l->name, name);
        l->alike &= alike;
        l->count++;
        return true;
    }
    fold_line *l = tsri_pool_alloc(&f->pool, sizeof *l);
    if (!l || !TSRI_PUSH(&f->pool, f->all, f->n, f->capacity))
        return false;
    *l = (fold_line){.next = *bucket,
                     .what = tsri_pool_strdup(&f->pool, what),
                     .text = tsri_pool_strdup(&f->pool, text),
                     .name = tsri_pool_strdup(&f->pool, name),
                     .note = tsri_pool_strdup(&f->pool, note),
                     .alike = true,
                     .count = 1};
    if (!l->what || !l->text || !l->name || !l->note)
        return false;
    *bucket = l;
    f->all[f->n++] = l;
    return true;
}
