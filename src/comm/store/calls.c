/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of stores in words, stores that have died, and waiting for their sockets. */
#include "src/comm/store/inside.h"
#include "src/core/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool tsri_store_await_socket(int fd, bool to_send, double until_s)
{
    for (;;) {
        const double left_s = until_s - tsri_now_s();
        struct pollfd p = {.fd = fd, .events = to_send ? POLLOUT : POLLIN};
        if (left_s <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
        int n = poll(&p, 1, left_s > 1000 ? 1000000 : (int)(left_s * 1e3) + 1);
        if (n > 0)
            return true;
        if (n < 0 && errno == ENOMEM)
            usleep(1000); /* the kernel has no room for its tables at this moment (poll(2)) */
        else if (n < 0 && errno != EINTR)
            return false;
    }
}

const char *tsri_store_op_text(tsri_store_op op)
{
    switch (op) {
    case TSRI_STORE_SET:
        return "set";
    case TSRI_STORE_GET:
        return "get";
    case TSRI_STORE_ADD:
        return "add";
    case TSRI_STORE_COMPARE_SET:
        return "compare_set";
    case TSRI_STORE_WAIT:
        return "wait";
    case TSRI_STORE_CHECK:
        return "check";
    case TSRI_STORE_DELETE:
        return "delete";
    default:
        return "count";
    }
}

const char *tsri_store_call_text(const tsri_store_call *call, char *buf, size_t size)
{
    char key[80], more[32] = "";
    if (call->nkeys == 0) {
        snprintf(buf, size, "tsr_store_%s", tsri_store_op_text(call->op));
        return buf;
    }
    const tsri_bytes first = {call->keys[0], strlen(call->keys[0])};
    if (call->nkeys > 1)
        snprintf(more, sizeof more, " and %d more", call->nkeys - 1);
    snprintf(buf, size, "tsr_store_%s of '%s'%s", tsri_store_op_text(call->op),
             tsri_store_key_text(first, key, sizeof key), more);
    return buf;
}

tsr_status tsri_store_say_absent(const tsr_store *store, const tsri_store_call *call, int absent,
                                 int nnamed, const int *named)
{
    char text[900] = "", more[40] = "", key[200];
    size_t n = 0;
    int i = 0;
    for (; i < nnamed && n + sizeof key + 8 < sizeof text; i++) {
        const tsri_bytes bytes = {call->keys[named[i]], strlen(call->keys[named[i]])};
        n += (size_t)snprintf(text + n, sizeof text - n, "%s'%s'", i ? ", " : "",
                              tsri_store_key_text(bytes, key, sizeof key));
    }
    if (absent > i)
        snprintf(more, sizeof more, " and %d more", absent - i);
    return tsri_fail(TSR_ERR_TIMEOUT, "store: %s%s %s not come to %s within %g s", text, more,
                     absent > 1 ? "have" : "has", store->where, call->timeout_s);
}

tsr_status tsri_store_die(tsr_store *store, const char *fmt, ...)
{
    char text[sizeof store->dead];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(store->dead, text, sizeof text);
    return tsri_fail(TSR_ERR_DEAD, "%s", store->dead);
}
