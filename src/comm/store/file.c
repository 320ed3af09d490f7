/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in a file that all ranks see. Rank 0 begins a generation, and so throws away whatever an
 * earlier run has left; the others join a generation whose rank 0 lives and which has not begun
 * without them. A waiting rank looks at the file again and again: other machines' writes wake
 * nobody.
 */
#include "src/comm/store/log.h"
#include "src/core/clock.h"
#include "src/core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double first_pause_s = 1e-3, last_pause_s = 20e-3;
static const double leave_s = 5; /* at most, for the lock, when leaving */
enum {
    LOOK_EVERY = 10, /* pauses: then the lock is taken though nothing seems to be new */
};

typedef struct file_store {
    tsri_log log;
    char path[PATH_MAX];
    uint64_t nonce; /* of the generation that this rank has joined; 0: none */
    /* for the message, if it is waited for in vain */
    char why[3 * TSRI_STORE_ID_SIZE];
} file_store;

static void sleep_some(double *pause_s, double until_s)
{
    tsri_sleep_s(fmax(fmin(*pause_s, until_s - tsri_now_s()), 1e-4));
    *pause_s = fmin(1.5 * *pause_s, last_pause_s);
}

static const char *id_of(const tsri_log *log, int rank)
{
    return log->member[rank].process.id;
}

/* --- joining ---------------------------------------------------------------------------------- */

static tsr_status say_missing(const tsr_store *store, const file_store *f)
{
    const tsri_log *log = &f->log;
    char ranks[512];
    if (!f->nonce || f->nonce != log->nonce)
        return tsri_fail(TSR_ERR_TIMEOUT, "store: rank 0 of %d has not come to %s within %g s: %s",
                         store->nranks, store->where, store->timeout_s, f->why);
    unsigned char *has = tsri_mem_alloc(NULL, (size_t)log->nranks);
    TSRI_NEED(has);
    /* A rank that came and gave up did not keep us waiting, unless there is no other. */
    for (int r = 0; r < log->nranks; r++)
        has[r] = r == store->rank || log->member[r].left || tsri_log_is_alive(log, r);
    int absent = tsri_store_absent_text(has, log->nranks, ranks, sizeof ranks);
    for (int r = 0; r < log->nranks && absent == 0; r++)
        has[r] = r == store->rank || !log->member[r].left;
    if (absent == 0)
        absent = tsri_store_absent_text(has, log->nranks, ranks, sizeof ranks);
    tsri_mem_free(has);
    return tsri_fail(TSR_ERR_TIMEOUT, "store: %s of %d %s not come to %s within %g s%s", ranks,
                     log->nranks, absent == 1 ? "has" : "have", store->where, store->timeout_s,
                     f->why);
}

/* A generation is there, and rank 0 has come for a new one. *out_wait: not yet. */
static tsr_status may_begin(const tsr_store *store, file_store *f, bool *out_wait)
{
    const tsri_log *log = &f->log;
    if (tsri_log_is_alive(log, 0) && !log->went)
        return tsri_fail(TSR_ERR_INVALID, "store: rank 0 has joined %s already: %s", store->where,
                         id_of(log, 0));
    if (tsri_log_is_alive(log, 0))
        return tsri_fail(
            TSR_ERR_STATE,
            "store: %s is in use by another run, whose rank 0 is %s: it has to end, or "
            "this one needs another path",
            store->where, id_of(log, 0));
    /* A run that ends, and not one whose rank 0 has died: who lives then is to be told so. */
    const int other = log->went && log->member[0].left ? tsri_log_find_alive(log, 0) : -1;
    *out_wait = other >= 0;
    if (other >= 0)
        snprintf(f->why, sizeof f->why, "rank %d (%s)", other, id_of(log, other));
    return TSR_OK;
}

/* Rank 0: a new generation. */
static tsr_status begin(tsr_store *store, double until_s)
{
    file_store *f = store->self;
    double pause_s = first_pause_s;
    for (;;) {
        tsri_log_state state;
        bool wait = false;
        TSRI_TRY(tsri_log_lock(&f->log, true, until_s, &state));
        tsr_status status = state == TSRI_LOG_RUN ? may_begin(store, f, &wait) : TSR_OK;
        if (status == TSR_OK && !wait) {
            status = tsri_log_begin(&f->log, store->nranks);
            f->nonce = status == TSR_OK ? f->log.nonce : 0;
            f->why[0] = 0;
        }
        tsri_log_unlock(&f->log);
        if (status != TSR_OK || !wait)
            return status;
        if (tsri_now_s() >= until_s)
            return tsri_fail(TSR_ERR_STATE,
                             "store: %s is in use by another run, of which %s has not left within "
                             "%g s: it has to end, or this one needs another path",
                             store->where, f->why, store->timeout_s);
        sleep_some(&pause_s, until_s);
    }
}

static void say_gone(file_store *f, int rank)
{
    snprintf(f->why, sizeof f->why, "; rank %d (%s) came and has gone again", rank,
             id_of(&f->log, rank));
}

/* Rank 0, with the lock: whether all have joined and live; then it says so. */
static tsr_status look_for_all(file_store *f, bool *out_done)
{
    tsri_log *log = &f->log;
    f->why[0] = 0;
    for (int r = 1; r < log->nranks; r++)
        if (!log->member[r].joined)
            return TSR_OK;
    for (int r = 1; r < log->nranks; r++)
        if (!tsri_log_is_alive(log, r)) {
            say_gone(f, r);
            return TSR_OK;
        }
    TSRI_TRY(tsri_log_append(log, TSRI_LOG_GO, (tsri_bytes){0}, (tsri_bytes){0}));
    *out_done = true;
    return TSR_OK;
}

/* Another rank, with the lock: may it join this generation, or what is it waiting for? */
static tsr_status try_join(tsr_store *store, file_store *f, bool *out_done)
{
    tsri_log *log = &f->log;
    const bool mine = f->nonce == log->nonce, leads = tsri_log_is_alive(log, 0);
    if (mine && (log->went || leads)) {
        *out_done = log->went;
        return TSR_OK;
    }
    if (mine) {
        say_gone(f, 0);
        return TSR_OK;
    }
    if (!leads) {
        snprintf(f->why, sizeof f->why, "what is there was left by an earlier run, of %s",
                 id_of(log, 0));
        return TSR_OK;
    }
    if (store->rank < log->nranks && tsri_log_is_alive(log, store->rank))
        return tsri_fail(TSR_ERR_INVALID, "store: rank %d has joined %s already: %s", store->rank,
                         store->where, id_of(log, store->rank));
    if (log->went) {
        snprintf(f->why, sizeof f->why, "another run, whose rank 0 is %s, still uses the file",
                 id_of(log, 0));
        return TSR_OK;
    }
    if (log->nranks != store->nranks)
        return tsri_fail(TSR_ERR_MISMATCH,
                         "store: %s: this is rank %d of %d, but rank 0 (%s) says that there are %d "
                         "ranks",
                         store->where, store->rank, store->nranks, id_of(log, 0), log->nranks);
    TSRI_TRY(tsri_log_join(log, store->rank));
    f->nonce = log->nonce;
    f->why[0] = 0;
    return TSR_OK;
}

/* One that only connects: any generation whose rank 0 lives will do. */
static void try_attach(file_store *f, bool *out_done)
{
    *out_done = tsri_log_is_alive(&f->log, 0);
    f->nonce = *out_done ? f->log.nonce : 0;
    snprintf(f->why, sizeof f->why, "what is there was left by an earlier run, of %s",
             id_of(&f->log, 0));
}

/* Until all have joined. */
static tsr_status meet(tsr_store *store, double until_s)
{
    file_store *f = store->self;
    double pause_s = first_pause_s;
    for (;;) {
        tsri_log_state state;
        bool done = false;
        TSRI_TRY(tsri_log_lock(&f->log, false, until_s, &state));
        tsr_status status = TSR_OK;
        if (state != TSRI_LOG_RUN)
            snprintf(f->why, sizeof f->why,
                     state == TSRI_LOG_NONE ? "there is no such file yet" : "the file is empty");
        else if (store->rank < 0)
            try_attach(f, &done);
        else if (store->rank > 0)
            status = try_join(store, f, &done);
        else if (f->nonce == f->log.nonce)
            status = look_for_all(f, &done);
        if (store->rank == 0 && (state != TSRI_LOG_RUN || f->nonce != f->log.nonce))
            status = tsri_store_die(store, "store: %s was replaced or removed while the ranks met",
                                    store->where);
        if (status == TSR_OK && !done && tsri_now_s() >= until_s)
            status = say_missing(store, f);
        tsri_log_unlock(&f->log);
        if (status != TSR_OK || done)
            return status;
        sleep_some(&pause_s, until_s);
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The lock, and what the file says, if it is still our run's and whom we joined lives. */
static tsr_status lock_run(tsr_store *store, double until_s, const char *what)
{
    file_store *f = store->self;
    tsri_log_state state;
    tsr_status status = tsri_log_lock(&f->log, false, until_s, &state);
    if (status != TSR_OK)
        return status == TSR_ERR_FORMAT
                   ? tsri_store_die(store, "store: %s was overwritten by something else, at %s",
                                    store->where, what)
                   : tsri_fail_prefix(status, "%s", what);
    const tsri_log *log = &f->log;
    if (state != TSRI_LOG_RUN)
        status = tsri_store_die(store, "store: %s was %s, at %s", store->where,
                                state == TSRI_LOG_NONE ? "removed" : "overwritten", what);
    else if (log->nonce != f->nonce)
        status = tsri_store_die(store,
                                "store: %s was taken over by another run, whose rank 0 is %s, "
                                "at %s",
                                store->where, id_of(log, 0), what);
    else if (store->rank != 0 && !log->member[0].left && !tsri_log_is_alive(log, 0))
        status = tsri_store_die(store, "store: rank 0 of %s (%s) is gone, at %s", store->where,
                                id_of(log, 0), what);
    if (status != TSR_OK)
        tsri_log_unlock(&f->log);
    return status;
}

/* prefix + key, in full. */
static tsri_bytes full_key(const tsr_store *store, const char *key, char *buf)
{
    const size_t a = strlen(store->prefix), b = strlen(key);
    memcpy(buf, store->prefix, a);
    memcpy(buf + a, key, b);
    return (tsri_bytes){buf, a + b};
}

/* How many keys of the call are absent; the first of them are in named[]. */
static int count_absent(const tsr_store *store, const tsri_store_call *call,
                        int named[TSRI_STORE_NAMED])
{
    const file_store *f = store->self;
    char key[TSRI_STORE_MAX_FULL_KEY];
    int absent = 0;
    for (int i = 0; i < call->nkeys; i++) {
        if (tsri_store_map_has(&f->log.map, full_key(store, call->keys[i], key)))
            continue;
        if (absent < TSRI_STORE_NAMED)
            named[absent] = i;
        absent++;
    }
    return absent;
}

/* With the lock: an operation on one key. */
static tsr_status do_key(tsr_store *store, tsri_store_call *call)
{
    file_store *f = store->self;
    tsri_store_ask ask = call->ask;
    tsri_store_answer answer;
    char key[TSRI_STORE_MAX_FULL_KEY];
    ask.key = full_key(store, call->keys[0], key);
    tsr_status status = tsri_store_decide(&f->log.map, &ask, &answer);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "store: %s", store->where);
    call->there = answer.there;
    call->number = answer.number;
    call->out_bytes = answer.result.bytes;
    if (ask.room != TSRI_STORE_SIZE_ALONE && !answer.no_room && call->dst && answer.result.bytes)
        memcpy(call->dst, answer.result.data, answer.result.bytes);
    if (!answer.changes)
        return TSR_OK;
    const bool is_delete = ask.op == TSRI_STORE_DELETE;
    return tsri_log_append(&f->log, is_delete ? TSRI_LOG_DELETE : TSRI_LOG_SET, ask.key,
                           is_delete ? (tsri_bytes){0} : answer.result);
}

static tsr_status do_call(tsr_store *store, tsri_store_call *call)
{
    const file_store *f = store->self;
    int named[TSRI_STORE_NAMED];
    switch (call->op) {
    case TSRI_STORE_WAIT:
        return TSR_OK;
    case TSRI_STORE_CHECK:
        call->there = count_absent(store, call, named) == 0;
        return TSR_OK;
    case TSRI_STORE_COUNT:
        call->number =
            tsri_store_map_count(&f->log.map, (tsri_bytes){store->prefix, strlen(store->prefix)});
        return TSR_OK;
    default:
        return do_key(store, call);
    }
}

static tsr_status file_call(tsr_store *store, tsri_store_call *call)
{
    file_store *f = store->self;
    const bool waits = call->op == TSRI_STORE_GET || call->op == TSRI_STORE_WAIT;
    const double until_s = tsri_now_s() + call->timeout_s;
    double pause_s = first_pause_s;
    char what[160];
    int named[TSRI_STORE_NAMED];
    tsri_store_call_text(call, what, sizeof what);
    for (;;) {
        TSRI_TRY(lock_run(store, until_s, what));
        const int absent = waits ? count_absent(store, call, named) : 0;
        const bool ready = absent == 0;
        tsr_status status = ready ? do_call(store, call) : TSR_OK;
        tsri_log_unlock(&f->log);
        if (ready || status != TSR_OK)
            return status;
        if (tsri_now_s() >= until_s)
            return tsri_store_say_absent(
                store, call, absent, absent < TSRI_STORE_NAMED ? absent : TSRI_STORE_NAMED, named);
        for (int i = 0; i < LOOK_EVERY && tsri_now_s() < until_s; i++) {
            sleep_some(&pause_s, until_s);
            if (!tsri_log_is_quiet(&f->log))
                break;
        }
    }
}

/* The last one that lives removes the file. */
static void leave(tsr_store *store)
{
    file_store *f = store->self;
    tsri_log_state state;
    const double until_s = tsri_now_s() + fmin(store->timeout_s, leave_s);
    if (tsri_log_lock(&f->log, false, until_s, &state) != TSR_OK)
        return;
    if (state == TSRI_LOG_RUN && f->log.nonce == f->nonce &&
        tsri_log_append_leave(&f->log, store->rank) == TSR_OK &&
        tsri_log_find_alive(&f->log, store->rank) < 0)
        tsri_log_remove(&f->log);
    tsri_log_unlock(&f->log);
}

static void file_close(tsr_store *store)
{
    file_store *f = store->self;
    if (!f)
        return;
    if (f->nonce && store->rank >= 0)
        leave(store);
    tsri_log_finish(&f->log);
    tsri_mem_free(f);
    store->self = NULL;
}

static const tsri_store_ops file_ops = {
    .call = file_call,
    .close = file_close,
};

tsr_status tsri_store_file_open(tsr_store *store, const tsri_store_joining *joining)
{
    const double until_s = joining->start_s + store->timeout_s;
    file_store *f = tsri_mem_alloc(NULL, sizeof *f);
    TSRI_NEED(f);
    memcpy(f->path, joining->place->path, sizeof f->path);
    tsri_log_init(&f->log, f->path);
    store->self = f;
    store->ops = &file_ops;
    if (store->rank == 0)
        TSRI_TRY(begin(store, until_s));
    return meet(store, until_s);
}
