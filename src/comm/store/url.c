/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of stores: tcp://, file:// and env://, and what options and environment add to them. */
#include "src/comm/store/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMS                                                    \
    "legal are env://, tcp://host:port?rank=R&world_size=W and " \
    "file:///path?rank=R&world_size=W"

bool tsri_store_number(const char *text, size_t bytes, long low, long high, long *out)
{
    long value = 0;
    if (bytes == 0 || bytes > 9)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = 10 * value + (text[i] - '0');
    }
    if (value < low || value > high)
        return false;
    *out = value;
    return true;
}

static tsr_status check_rank(const char *of, long rank, long nranks)
{
    if (rank >= 0 && nranks > 0 && rank >= nranks)
        return tsri_fail(TSR_ERR_INVALID, "store: %.200s: rank %ld of %ld: legal are 0 to %ld", of,
                         rank, nranks, nranks - 1);
    return TSR_OK;
}

/* "rank=0&world_size=4", without the question mark. */
static tsr_status read_query(const char *url, const char *query, tsri_store_place *out)
{
    if (!*query)
        return tsri_fail(TSR_ERR_INVALID,
                         "store: %.200s: nothing behind '?': legal are rank= and "
                         "world_size=",
                         url);
    for (const char *p = query; p;) {
        const char *end = strchr(p, '&'), *equals = strchr(p, '=');
        size_t bytes = end ? (size_t)(end - p) : strlen(p);
        if (!equals || equals > p + bytes)
            equals = p + bytes;
        size_t key = (size_t)(equals - p), value = key < bytes ? bytes - key - 1 : 0;
        bool is_rank = key == 4 && memcmp(p, "rank", 4) == 0;
        if (!is_rank && !(key == 10 && memcmp(p, "world_size", 10) == 0))
            return tsri_fail(TSR_ERR_INVALID,
                             "store: %.200s: '%.*s' is not known: legal are rank= and "
                             "world_size=",
                             url, (int)key, p);
        if (is_rank ? out->rank >= 0 : out->nranks > 0)
            return tsri_fail(TSR_ERR_INVALID, "store: %.200s: '%.*s' is there twice", url, (int)key,
                             p);
        long number = 0, low = is_rank ? 0 : 1;
        long high = is_rank ? TSRI_STORE_MAX_RANKS - 1 : TSRI_STORE_MAX_RANKS;
        if (!tsri_store_number(equals + 1, value, low, high, &number))
            return tsri_fail(TSR_ERR_INVALID, "store: %.200s: %.*s is '%.*s': legal are %ld to %ld",
                             url, (int)key, p, (int)value, equals + 1, low, high);
        *(is_rank ? &out->rank : &out->nranks) = (int)number;
        p = end ? end + 1 : NULL;
    }
    return check_rank(url, out->rank, out->nranks);
}

static bool is_host_char(char c, bool in_brackets)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || (in_brackets && (c == ':' || c == '%'));
}

/* `of`: what the host is part of, for messages. */
static tsr_status read_host(const char *of, const char *host, size_t bytes, bool in_brackets,
                            tsri_store_place *out)
{
    if (bytes == 0 || bytes >= sizeof out->host)
        return tsri_fail(TSR_ERR_INVALID, "store: %.200s: a host of %zu bytes: legal are 1 to %zu",
                         of, bytes, sizeof out->host - 1);
    for (size_t i = 0; i < bytes; i++)
        if (!is_host_char(host[i], in_brackets))
            return tsri_fail(TSR_ERR_INVALID, "store: %.200s: '%c' in the host%s", of, host[i],
                             host[i] == ':' ? ": an IPv6 address stands in brackets, [::1]:29500"
                                            : ": legal are letters, digits, '.', '-' and '_'");
    memcpy(out->host, host, bytes);
    out->host[bytes] = 0;
    return TSR_OK;
}

static tsr_status read_port(const char *of, const char *port, size_t bytes, tsri_store_place *out)
{
    long number;
    if (!tsri_store_number(port, bytes, 1, 65535, &number))
        return tsri_fail(TSR_ERR_INVALID, "store: %.200s: port '%.*s': legal are 1 to 65535", of,
                         (int)bytes, port);
    out->port = (int)number;
    return TSR_OK;
}

/* rest: "host:port", `bytes` of it. */
static tsr_status read_tcp(const char *url, const char *rest, size_t bytes, tsri_store_place *out)
{
    const char *end = rest + bytes, *host = rest, *host_end, *colon;
    bool in_brackets = bytes > 0 && *rest == '[';
    out->kind = TSRI_STORE_TCP;
    if (in_brackets) {
        host++;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (!host_end)
            return tsri_fail(TSR_ERR_INVALID, "store: %.200s: '[' without ']'", url);
        colon = host_end + 1;
    } else {
        colon = host_end = memrchr(rest, ':', bytes);
    }
    if (!colon || colon >= end || *colon != ':')
        return tsri_fail(TSR_ERR_INVALID, "store: %.200s: no port: legal is tcp://host:port", url);
    TSRI_TRY(read_host(url, host, (size_t)(host_end - host), in_brackets, out));
    return read_port(url, colon + 1, (size_t)(end - colon - 1), out);
}

static tsr_status read_file(const char *url, const char *rest, size_t bytes, tsri_store_place *out)
{
    out->kind = TSRI_STORE_FILE;
    if (bytes == 0 || *rest != '/')
        return tsri_fail(TSR_ERR_INVALID,
                         "store: %.200s: legal is an absolute path behind three "
                         "slashes, file:///shared/path",
                         url);
    if (rest[bytes - 1] == '/')
        return tsri_fail(TSR_ERR_INVALID, "store: %.200s: a folder: legal is the path of a file",
                         url);
    if (bytes >= sizeof out->path)
        return tsri_fail(TSR_ERR_INVALID, "store: a path of %zu bytes: legal are up to %zu", bytes,
                         sizeof out->path - 1);
    memcpy(out->path, rest, bytes);
    out->path[bytes] = 0;
    return TSR_OK;
}

/* The variable's number, if it is set; *out is left alone else. */
static tsr_status env_number(const char *name, long low, long high, int *out)
{
    const char *text = getenv(name);
    long number;
    if (!text || !*text)
        return TSR_OK;
    if (!tsri_store_number(text, strlen(text), low, high, &number))
        return tsri_fail(TSR_ERR_INVALID, "store: env://: %s is '%.40s': legal are %ld to %ld",
                         name, text, low, high);
    *out = (int)number;
    return TSR_OK;
}

tsr_status tsri_store_env_hosted(bool *out_hosted)
{
    const char *text = getenv("TESSERA_STORE_HOSTED");
    if (text && strcmp(text, "") != 0 && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "store: TESSERA_STORE_HOSTED is '%.40s': legal are 0 and 1", text);
    *out_hosted = text && *text == '1';
    return TSR_OK;
}

static tsr_status read_env(tsri_store_place *out)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    out->kind = TSRI_STORE_TCP;
    out->from_env = true;
    if (out->rank < 0)
        TSRI_TRY(env_number("RANK", 0, TSRI_STORE_MAX_RANKS - 1, &out->rank));
    if (out->nranks == 0)
        TSRI_TRY(env_number("WORLD_SIZE", 1, TSRI_STORE_MAX_RANKS, &out->nranks));
    if (!host || !*host || !port || !*port)
        return tsri_fail(TSR_ERR_INVALID,
                         "store: env://: %s is not set: it reads RANK, WORLD_SIZE, "
                         "MASTER_ADDR and MASTER_PORT",
                         !host || !*host ? "MASTER_ADDR" : "MASTER_PORT");
    TSRI_TRY(tsri_store_env_hosted(&out->hosted));
    size_t bytes = strlen(host);
    if (*host == '[' && host[bytes - 1] == ']')
        host++, bytes -= 2;
    TSRI_TRY(read_host("env://: MASTER_ADDR", host, bytes, true, out));
    return read_port("env://: MASTER_PORT", port, strlen(port), out);
}

tsr_status tsri_store_place_read(const char *url, tsri_store_place *out)
{
    tsri_store_place place = {.rank = -1};
    if (!url)
        return tsri_fail(TSR_ERR_INVALID, "store: no address: " FORMS);
    if (strlen(url) >= sizeof place.path)
        return tsri_fail(TSR_ERR_INVALID, "store: an address of %zu bytes: legal are up to %zu",
                         strlen(url), sizeof place.path - 1);
    for (const char *p = url; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            return tsri_fail(TSR_ERR_INVALID,
                             "store: byte %d of the address is a control character",
                             (int)(p - url));
    const char *query = strchr(url, '?');
    size_t scheme = strcspn(url, ":"), bytes = query ? (size_t)(query - url) : strlen(url);
    if (strncmp(url + scheme, "://", 3) != 0 || scheme + 3 > bytes)
        return tsri_fail(TSR_ERR_INVALID, "store: '%.200s' is no address: " FORMS, url);
    const char *rest = url + scheme + 3;
    bytes -= scheme + 3;
    if (query)
        TSRI_TRY(read_query(url, query + 1, &place));
    if (scheme == 3 && memcmp(url, "tcp", 3) == 0) {
        TSRI_TRY(read_tcp(url, rest, bytes, &place));
    } else if (scheme == 4 && memcmp(url, "file", 4) == 0) {
        TSRI_TRY(read_file(url, rest, bytes, &place));
    } else if (scheme == 3 && memcmp(url, "env", 3) == 0) {
        if (bytes > 0)
            return tsri_fail(TSR_ERR_INVALID, "store: %.200s: nothing stands behind env://", url);
        TSRI_TRY(read_env(&place));
    } else {
        return tsri_fail(TSR_ERR_INVALID, "store: %.200s: '%.*s' is not known: " FORMS, url,
                         (int)(scheme < 40 ? scheme : 40), url);
    }
    *out = place;
    return TSR_OK;
}

/* Rank and size of the options into the place; env:// gives way, an address must agree. */
static tsr_status take_ranks(const char *url, const tsr_store_opts *opts, tsri_store_place *place)
{
    if (opts->nranks == 0)
        return TSR_OK;
    if (opts->nranks < 0 || opts->nranks > TSRI_STORE_MAX_RANKS || opts->rank < 0 ||
        opts->rank >= opts->nranks)
        return tsri_fail(
            TSR_ERR_INVALID,
            "store: %.200s: options with rank %d of %d: legal are 1 to %d ranks, counted "
            "from 0",
            url, opts->rank, opts->nranks, TSRI_STORE_MAX_RANKS);
    if (!place->from_env && ((place->rank >= 0 && place->rank != opts->rank) ||
                             (place->nranks > 0 && place->nranks != opts->nranks)))
        return tsri_fail(
            TSR_ERR_INVALID,
            "store: %.200s: the address says otherwise than the options, rank %d of %d: "
            "either alone would do",
            url, opts->rank, opts->nranks);
    place->rank = opts->rank;
    place->nranks = opts->nranks;
    return TSR_OK;
}

tsr_status tsri_store_place_resolve(const char *url, const tsr_store_opts *opts, bool ranks,
                                    tsri_store_place *out)
{
    TSRI_TRY(tsri_store_place_read(url, out));
    TSRI_TRY(take_ranks(url, opts, out));
    out->hosted = out->hosted || opts->hosted;
    if (!ranks)
        return TSR_OK;
    if (out->rank < 0 || out->nranks == 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "store: %.200s: neither the %s nor the options say %s: legal is %s", url,
                         out->from_env ? "environment" : "address",
                         out->rank < 0 ? "the rank" : "how many ranks there are",
                         out->from_env ? "RANK=0 WORLD_SIZE=4" : "?rank=0&world_size=4");
    return check_rank(url, out->rank, out->nranks);
}

void tsri_store_place_text(const tsri_store_place *place, char *buf, size_t size)
{
    const char *open = strchr(place->host, ':') ? "[" : "", *close = *open ? "]" : "";
    if (place->kind == TSRI_STORE_FILE)
        snprintf(buf, size, "file://%s", place->path);
    else
        snprintf(buf, size, "tcp://%s%s%s:%d", open, place->host, close, place->port);
}
