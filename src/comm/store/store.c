/* SPDX-License-Identifier: Apache-2.0 */
/* Stores as the public interface has them: options, checks, and calls handed to the kind of store.
 */
#include "src/comm/store/inside.h"
#include "src/core/clock.h"
#include "src/core/live.h"
#include "src/core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double default_timeout_s = 60, max_timeout_s = 1e9;

static tsr_status check_timeout(double timeout_s)
{
    if (timeout_s > 0 && timeout_s <= max_timeout_s) /* no NaN */
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "store: a timeout of %g s: legal are up to %g, above 0",
                     timeout_s, max_timeout_s);
}

static tsr_status resolve_opts(const tsr_store_opts *opts, tsr_store_opts *out)
{
    tsr_store_opts o = {0};
    if (opts) {
        if (opts->size < sizeof opts->size)
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_store_opts.size is %zu: make options with TSR_STORE_OPTS(...)",
                             opts->size);
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    }
    if (o.timeout_s == 0)
        o.timeout_s = default_timeout_s;
    *out = o;
    return check_timeout(o.timeout_s);
}

static tsr_status open_store(const char *url, const tsr_store_opts *opts, const char *prefix,
                             bool meet, tsr_store **out_store)
{
    tsr_store_opts o;
    tsri_store_place place;
    if (!out_store)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_open: no place for the store");
    TSRI_TRY(resolve_opts(opts, &o));
    TSRI_TRY(tsri_store_place_resolve(url, &o, meet, &place));
    tsr_store *store = tsri_live_alloc(NULL, sizeof *store, TSRI_LIVE_STORE);
    TSRI_NEED(store);
    store->rank = meet ? place.rank : -1;
    store->nranks = meet ? place.nranks : 0;
    store->timeout_s = o.timeout_s;
    tsri_store_place_text(&place, store->where, sizeof store->where);
    const tsri_store_joining joining = {
        .place = &place, .meet = meet, .start_s = tsri_now_s(), .prefix = prefix ? prefix : ""};
    tsr_status status = tsri_store_prefix(store, joining.prefix);
    if (status == TSR_OK)
        status = place.kind == TSRI_STORE_TCP ? tsri_store_tcp_open(store, &joining)
                                              : tsri_store_file_open(store, &joining);
    if (status != TSR_OK) {
        char text[2048]; /* leaving may fail too */
        snprintf(text, sizeof text, "%s", tsr_last_error());
        if (store->ops)
            store->ops->close(store);
        tsri_live_free(store, TSRI_LIVE_STORE);
        return tsri_fail(status, "%s", text);
    }
    store->base = strlen(store->prefix);
    *out_store = store;
    return TSR_OK;
}

tsr_status tsr_store_open(const char *url, const tsr_store_opts *opts, tsr_store **out_store)
{
    return open_store(url, opts, "", true, out_store);
}

tsr_status tsri_store_open_under(const char *url, const tsr_store_opts *opts, const char *prefix,
                                 tsr_store **out_store)
{
    return open_store(url, opts, prefix, true, out_store);
}

tsr_status tsri_store_connect(const char *url, const tsr_store_opts *opts, tsr_store **out_store)
{
    return open_store(url, opts, "", false, out_store);
}

void tsr_store_close(tsr_store *store)
{
    if (!tsri_is_live(store, TSRI_LIVE_STORE, __func__))
        return;
    store->ops->close(store);
    tsri_live_free(store, TSRI_LIVE_STORE);
}

int tsr_store_rank(const tsr_store *store)
{
    return tsri_is_live(store, TSRI_LIVE_STORE, __func__) ? store->rank : -1;
}

int tsr_store_size(const tsr_store *store)
{
    return tsri_is_live(store, TSRI_LIVE_STORE, __func__) ? store->nranks : 0;
}

tsr_status tsr_store_set_timeout(tsr_store *store, double timeout_s)
{
    TSRI_TRY(tsri_live_check(store, TSRI_LIVE_STORE, __func__));
    if (!store)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_set_timeout: no store");
    TSRI_TRY(check_timeout(timeout_s));
    store->timeout_s = timeout_s;
    return TSR_OK;
}

tsr_status tsri_store_prefix(tsr_store *store, const char *prefix)
{
    const size_t bytes = prefix ? strlen(prefix) : 0;
    if (!store)
        return tsri_fail(TSR_ERR_INVALID, "store: no store to set a prefix of");
    if (bytes && store->base + bytes > TSRI_STORE_MAX_PREFIX)
        return tsri_fail(TSR_ERR_INVALID, "store: a prefix of %zu bytes: legal are up to %d",
                         store->base + bytes, TSRI_STORE_MAX_PREFIX);
    memcpy(store->prefix + store->base, prefix ? prefix : "", bytes + 1);
    return TSR_OK;
}

void tsri_store_address(const tsr_store *store, char *buf, size_t size)
{
    if (size == 0)
        return;
    buf[0] = 0;
    if (store && store->ops->address)
        store->ops->address(store, buf, size);
}

/* --- calls ------------------------------------------------------------------------------------ */

static tsr_status check_value(const char *name, const char *which, tsri_bytes value)
{
    if (!value.data && value.bytes)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_%s: %s is NULL, of %zu bytes", name, which,
                         value.bytes);
    if (value.bytes > TSRI_STORE_MAX_VALUE)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_%s: %s of %zu bytes: legal are up to %d", name,
                         which, value.bytes, TSRI_STORE_MAX_VALUE);
    return TSR_OK;
}

static tsr_status check_keys(const char *name, int nkeys, const char *const *keys)
{
    if (nkeys < 0 || nkeys > TSRI_STORE_MAX_KEYS || (nkeys && !keys))
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_%s: %d keys%s: legal are up to %d", name,
                         nkeys, keys ? "" : " at NULL", TSRI_STORE_MAX_KEYS);
    for (int i = 0; i < nkeys; i++) {
        const size_t bytes = keys[i] ? strlen(keys[i]) : 0;
        if (bytes == 0 || bytes > TSRI_STORE_MAX_KEY)
            return tsri_fail(TSR_ERR_INVALID, "tsr_store_%s: a key of %zu bytes: legal are 1 to %d",
                             name, bytes, TSRI_STORE_MAX_KEY);
    }
    return TSR_OK;
}

/* Checks what all calls have, and does it. */
static tsr_status do_call(tsr_store *store, tsri_store_call *call)
{
    const char *name = tsri_store_op_text(call->op);
    if (!store)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_%s: no store", name);
    char call_name[32];
    snprintf(call_name, sizeof call_name, "tsr_store_%s", name);
    TSRI_TRY(tsri_live_check(store, TSRI_LIVE_STORE, call_name));
    TSRI_TRY(check_keys(name, call->nkeys, call->keys));
    TSRI_TRY(check_value(name, "the value", call->ask.value));
    TSRI_TRY(check_value(name, "what is expected", call->ask.expected));
    if (store->dead[0])
        return tsri_fail(TSR_ERR_DEAD, "%s", store->dead);
    call->ask.op = call->op;
    if (call->timeout_s == 0)
        call->timeout_s = store->timeout_s;
    return store->ops->call(store, call);
}

/* A call whose result goes to `value`; NULL: its size alone is wanted. */
static tsr_status do_get(tsr_store *store, tsri_store_call *call, void *value, size_t room,
                         size_t *out_bytes)
{
    if (!value && room)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_%s: room for %zu bytes at NULL",
                         tsri_store_op_text(call->op), room);
    call->dst = value;
    call->ask.room = value ? room : TSRI_STORE_SIZE_ALONE;
    TSRI_TRY(do_call(store, call));
    if (out_bytes)
        *out_bytes = call->out_bytes;
    if (value && call->out_bytes > room) {
        char what[160];
        return tsri_fail(TSR_ERR_INVALID, "%s: it has %zu bytes, and there is room for %zu",
                         tsri_store_call_text(call, what, sizeof what), call->out_bytes, room);
    }
    return TSR_OK;
}

tsr_status tsr_store_set(tsr_store *store, const char *key, const void *value, size_t bytes)
{
    tsri_store_call call = {
        .op = TSRI_STORE_SET, .nkeys = 1, .keys = &key, .ask.value = {value, bytes}};
    return do_call(store, &call);
}

tsr_status tsr_store_get(tsr_store *store, const char *key, void *value, size_t room,
                         size_t *out_bytes)
{
    tsri_store_call call = {.op = TSRI_STORE_GET, .nkeys = 1, .keys = &key};
    return do_get(store, &call, value, room, out_bytes);
}

tsr_status tsr_store_add(tsr_store *store, const char *key, int64_t amount, int64_t *out_value)
{
    tsri_store_call call = {.op = TSRI_STORE_ADD, .nkeys = 1, .keys = &key, .ask.amount = amount};
    TSRI_TRY(do_call(store, &call));
    if (out_value)
        *out_value = call.number;
    return TSR_OK;
}

tsr_status tsr_store_compare_set(tsr_store *store, const char *key, const void *expected,
                                 size_t expected_bytes, const void *desired, size_t desired_bytes,
                                 void *value, size_t room, size_t *out_bytes)
{
    tsri_store_call call = {.op = TSRI_STORE_COMPARE_SET,
                            .nkeys = 1,
                            .keys = &key,
                            .ask.expected = {expected, expected_bytes},
                            .ask.value = {desired, desired_bytes}};
    return do_get(store, &call, value, room, out_bytes);
}

tsr_status tsr_store_wait(tsr_store *store, int nkeys, const char *const *keys, double timeout_s)
{
    tsri_store_call call = {
        .op = TSRI_STORE_WAIT, .nkeys = nkeys, .keys = keys, .timeout_s = timeout_s};
    if (timeout_s != 0)
        TSRI_TRY(check_timeout(timeout_s));
    return do_call(store, &call);
}

tsr_status tsr_store_check(tsr_store *store, int nkeys, const char *const *keys, bool *out_there)
{
    tsri_store_call call = {.op = TSRI_STORE_CHECK, .nkeys = nkeys, .keys = keys};
    if (!out_there)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_check: no place for the answer");
    TSRI_TRY(do_call(store, &call));
    *out_there = call.there;
    return TSR_OK;
}

tsr_status tsr_store_delete(tsr_store *store, const char *key, bool *out_was_there)
{
    tsri_store_call call = {.op = TSRI_STORE_DELETE, .nkeys = 1, .keys = &key};
    TSRI_TRY(do_call(store, &call));
    if (out_was_there)
        *out_was_there = call.there;
    return TSR_OK;
}

tsr_status tsr_store_count(tsr_store *store, int64_t *out_keys)
{
    tsri_store_call call = {.op = TSRI_STORE_COUNT};
    if (!out_keys)
        return tsri_fail(TSR_ERR_INVALID, "tsr_store_count: no place for the number");
    TSRI_TRY(do_call(store, &call));
    *out_keys = call.number;
    return TSR_OK;
}
