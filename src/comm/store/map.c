/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of a store in memory, what an operation does to them, and texts about them. */
#include "src/comm/store/inside.h"
#include "src/core/foreign.h"
#include "src/core/mem.h"
#include "src/core/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_BUCKETS = 64 };

void tsri_store_map_finish(tsri_store_map *map)
{
    for (size_t b = 0; b < map->nbuckets; b++) {
        tsri_store_entry *e = map->bucket[b];
        while (e) {
            tsri_store_entry *next = e->next;
            tsri_mem_free(e->value);
            tsri_mem_free(e);
            e = next;
        }
    }
    tsri_mem_free(map->bucket);
    *map = (tsri_store_map){.max_bytes = map->max_bytes};
}

static tsri_store_entry *find_hashed(const tsri_store_map *map, tsri_bytes key, uint64_t hash)
{
    if (!map->nbuckets)
        return NULL;
    tsri_store_entry *e = map->bucket[hash & (map->nbuckets - 1)];
    while (e && (e->hash != hash || e->key_bytes != key.bytes ||
                 memcmp(e->key, key.data, key.bytes) != 0))
        e = e->next;
    return e;
}

tsri_store_entry *tsri_store_map_find(const tsri_store_map *map, tsri_bytes key)
{
    return find_hashed(map, key, tsri_hash(TSRI_HASH_INIT, key.data, key.bytes));
}

bool tsri_store_map_has(const tsri_store_map *map, tsri_bytes key)
{
    const tsri_store_entry *e = tsri_store_map_find(map, key);
    return e && e->there;
}

/* Room for one more entry. */
static bool grow(tsri_store_map *map)
{
    if (map->entries < map->nbuckets)
        return true;
    size_t n = map->nbuckets ? 2 * map->nbuckets : FIRST_BUCKETS;
    tsri_store_entry **bucket = tsri_mem_alloc(NULL, n * sizeof *bucket);
    if (!bucket)
        return false;
    for (size_t b = 0; b < map->nbuckets; b++) {
        tsri_store_entry *e = map->bucket[b];
        while (e) {
            tsri_store_entry *next = e->next, **to = &bucket[e->hash & (n - 1)];
            e->next = *to;
            *to = e;
            e = next;
        }
    }
    tsri_mem_free(map->bucket);
    map->bucket = bucket;
    map->nbuckets = n;
    return true;
}

/* The bytes of an entry beside its value. */
static size_t entry_bytes(size_t key_bytes)
{
    enum { ALLOCATOR = 32 };
    return sizeof(tsri_store_entry) + key_bytes + ALLOCATOR;
}

static tsr_status check_room(const tsri_store_map *map, size_t less, size_t more)
{
    if (!map->max_bytes || map->bytes - less + more <= map->max_bytes)
        return TSR_OK;
    return tsri_fail(TSR_ERR_NO_MEMORY,
                     "the store is full: %zu bytes of keys and values, and %zu more are wanted: "
                     "legal are %zu: delete what nobody needs",
                     map->bytes - less, more, map->max_bytes);
}

tsri_store_entry *tsri_store_map_make(tsri_store_map *map, tsri_bytes key)
{
    uint64_t hash = tsri_hash(TSRI_HASH_INIT, key.data, key.bytes);
    tsri_store_entry *e = find_hashed(map, key, hash);
    if (e)
        return e;
    if (check_room(map, 0, entry_bytes(key.bytes)) != TSR_OK || !grow(map) ||
        !(e = tsri_mem_alloc(NULL, sizeof *e + key.bytes)))
        return NULL;
    e->hash = hash;
    e->key_bytes = key.bytes;
    memcpy(e->key, key.data, key.bytes);
    tsri_store_entry **to = &map->bucket[hash & (map->nbuckets - 1)];
    e->next = *to;
    *to = e;
    map->entries++;
    map->bytes += entry_bytes(key.bytes);
    return e;
}

tsr_status tsri_store_map_set(tsri_store_map *map, tsri_bytes key, tsri_bytes value)
{
    unsigned char *copy = NULL;
    const tsri_store_entry *was = tsri_store_map_find(map, key);
    TSRI_TRY(
        check_room(map, was ? was->bytes : 0, value.bytes + (was ? 0 : entry_bytes(key.bytes))));
    if (value.bytes && !(copy = tsri_mem_alloc(NULL, value.bytes)))
        return TSR_ERR_NO_MEMORY;
    tsri_store_entry *e = tsri_store_map_make(map, key);
    if (!e) {
        tsri_mem_free(copy);
        return TSR_ERR_NO_MEMORY;
    }
    if (value.bytes)
        memcpy(copy, value.data, value.bytes);
    tsri_mem_free(e->value);
    map->bytes += value.bytes - e->bytes;
    e->value = copy;
    e->bytes = value.bytes;
    map->there += !e->there;
    e->there = true;
    return TSR_OK;
}

void tsri_store_map_tidy(tsri_store_map *map, tsri_store_entry *entry)
{
    if (entry->there || entry->waiters)
        return;
    tsri_store_entry **at = &map->bucket[entry->hash & (map->nbuckets - 1)];
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    map->entries--;
    map->bytes -= entry_bytes(entry->key_bytes) + entry->bytes;
    tsri_mem_free(entry->value);
    tsri_mem_free(entry);
}

void tsri_store_map_delete(tsri_store_map *map, tsri_bytes key)
{
    tsri_store_entry *e = tsri_store_map_find(map, key);
    if (!e || !e->there)
        return;
    e->there = false;
    map->there--;
    tsri_mem_free(e->value);
    e->value = NULL;
    map->bytes -= e->bytes;
    e->bytes = 0;
    tsri_store_map_tidy(map, e);
}

int64_t tsri_store_map_count(const tsri_store_map *map, tsri_bytes prefix)
{
    int64_t n = 0;
    if (!prefix.bytes)
        return map->there;
    for (size_t b = 0; b < map->nbuckets; b++)
        for (const tsri_store_entry *e = map->bucket[b]; e; e = e->next)
            n += e->there && e->key_bytes >= prefix.bytes &&
                 memcmp(e->key, prefix.data, prefix.bytes) == 0;
    return n;
}

/* A counter's text: an optional minus and digits. */
static bool counter_read(tsri_bytes text, int64_t *out)
{
    char copy[24];
    if (!text.bytes || text.bytes >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.bytes);
    copy[text.bytes] = 0;
    const char *digits = copy + (copy[0] == '-');
    if (!*digits || strspn(digits, "0123456789") != text.bytes - (size_t)(digits - copy))
        return false;
    bool minus = copy[0] == '-';
    int64_t value = 0;
    for (const char *p = digits; *p; p++) {
        int digit = minus ? -(*p - '0') : *p - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

static tsr_status decide_add(const tsri_store_entry *e, const tsri_store_ask *ask,
                             tsri_store_answer *out)
{
    char key[80], value[48];
    int64_t was = 0;
    if (e && !counter_read((tsri_bytes){e->value, e->bytes}, &was))
        return tsri_fail(
            TSR_ERR_FORMAT,
            "'%s' is no number but %zu bytes, '%s': legal is decimal text of 64 bits",
            tsri_store_key_text(ask->key, key, sizeof key), e->bytes,
            tsri_store_key_text((tsri_bytes){e->value, e->bytes}, value, sizeof value));
    if (__builtin_add_overflow(was, ask->amount, &out->number))
        return tsri_fail(TSR_ERR_INVALID,
                         "'%s' is %" PRId64 ": adding %" PRId64 " leaves the range of 64 bits",
                         tsri_store_key_text(ask->key, key, sizeof key), was, ask->amount);
    int n = snprintf(out->digits, sizeof out->digits, "%" PRId64, out->number);
    out->result = (tsri_bytes){out->digits, (size_t)n};
    out->changes = true;
    return TSR_OK;
}

static bool equal(tsri_bytes a, tsri_bytes b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

tsr_status tsri_store_decide(const tsri_store_map *map, const tsri_store_ask *ask,
                             tsri_store_answer *out)
{
    const tsri_store_entry *e = tsri_store_map_find(map, ask->key);
    if (e && !e->there)
        e = NULL;
    const tsri_bytes now = e ? (tsri_bytes){e->value, e->bytes} : (tsri_bytes){0};
    *out = (tsri_store_answer){.there = e != NULL, .result = now};
    switch (ask->op) {
    case TSRI_STORE_SET:
        out->changes = true;
        out->result = ask->value;
        return TSR_OK;
    case TSRI_STORE_ADD:
        return decide_add(e, ask, out);
    case TSRI_STORE_COMPARE_SET:
        out->changes = equal(now, ask->expected);
        if (out->changes)
            out->result = ask->value;
        break;
    case TSRI_STORE_DELETE:
        out->changes = out->there;
        return TSR_OK;
    default:
        break;
    }
    if (ask->room != TSRI_STORE_SIZE_ALONE && out->result.bytes > ask->room) {
        out->no_room = true;
        out->changes = false;
    }
    return TSR_OK;
}

tsr_status tsri_store_commit(tsri_store_map *map, const tsri_store_ask *ask,
                             const tsri_store_answer *answer)
{
    if (!answer->changes)
        return TSR_OK;
    if (ask->op != TSRI_STORE_DELETE)
        return tsri_store_map_set(map, ask->key, answer->result);
    tsri_store_map_delete(map, ask->key);
    return TSR_OK;
}

int tsri_store_absent_text(const unsigned char *has, int nranks, char *buf, size_t size)
{
    int absent = 0;
    for (int r = 0; r < nranks; r++)
        absent += !has[r];
    size_t n = (size_t)snprintf(buf, size, absent == 1 ? "rank " : "ranks ");
    const char *comma = "";
    for (int r = 0; r < nranks && n < size; r++) {
        if (has[r])
            continue;
        int last = r;
        while (last + 1 < nranks && !has[last + 1])
            last++;
        if (n + 32 > size) {
            snprintf(buf + n, size - n, ", ...");
            break;
        }
        n += (size_t)(last == r ? snprintf(buf + n, size - n, "%s%d", comma, r)
                                : snprintf(buf + n, size - n,
                                           last == r + 1 ? "%s%d, %d" : "%s%d-%d", comma, r, last));
        comma = ", ";
        r = last;
    }
    return absent;
}

const char *tsri_store_key_text(tsri_bytes key, char *buf, size_t size)
{
    const char *p = key.data;
    const bool is_cut = key.bytes >= size && size > 4;
    const size_t n = is_cut ? size - 4 : key.bytes < size ? key.bytes : size - 1;
    for (size_t i = 0; i < n; i++)
        buf[i] = p[i] ? p[i] : '?';
    buf[n] = 0;
    tsri_make_printable(buf, false);
    if (is_cut)
        strcat(buf, "...");
    return buf;
}

void tsri_store_own_id(char *buf, size_t size)
{
    char host[80];
    if (gethostname(host, sizeof host))
        strcpy(host, "?");
    host[sizeof host - 1] = 0;
    snprintf(buf, size, "process %ld on %s", (long)getpid(), host);
}
