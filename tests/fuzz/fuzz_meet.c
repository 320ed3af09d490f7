/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks find those of their machine, in a store whose values are anybody's: the first byte of
 * an input is the rank, and each line behind it the answer to the next question. */
#include "src/comm/store/inside.h"
#include "src/comm/world/meet.h"
#include "src/core/live.h"
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <unistd.h>

enum { RANKS = 3, ARENA_BYTES = 1 << 16 };

typedef struct answers {
    const char *at, *end;
} answers;

/* The next line, `@` at its beginning for this process. */
static size_t take_line(answers *a, char *to, size_t room)
{
    const char *end = memchr(a->at, '\n', (size_t)(a->end - a->at));
    size_t n = (size_t)((end ? end : a->end) - a->at), used = 0;
    if (n && *a->at == '@' && room >= 16) {
        used = (size_t)snprintf(to, room, "%d", (int)getpid());
        a->at++;
        n--;
    }
    n = n < room - used ? n : room - used;
    memcpy(to + used, a->at, n);
    a->at = end ? end + 1 : a->end;
    return used + n;
}

static tsr_status answer(tsr_store *store, tsri_store_call *call)
{
    answers *a = store->self;
    char digit[16];
    switch (call->op) {
    case TSRI_STORE_GET:
    case TSRI_STORE_COMPARE_SET:
        if (a->at == a->end)
            return tsri_fail(TSR_ERR_TIMEOUT, "no answer");
        call->out_bytes = take_line(a, call->dst, (size_t)call->ask.room);
        return TSR_OK;
    case TSRI_STORE_ADD:
        call->number = 2;
        return TSR_OK;
    case TSRI_STORE_CHECK:
        call->there = take_line(a, digit, sizeof digit) && digit[0] == '1';
        return TSR_OK;
    default:
        return TSR_OK;
    }
}

static void check_machine(const tsri_machine *m, int rank)
{
    FUZZ_MUST(m->nranks >= 1 && m->nranks <= RANKS && m->nranks == m->arena.nranks, "%d ranks",
              m->nranks);
    FUZZ_MUST(m->index >= 0 && m->index < m->nranks && m->rank[m->index] == rank, "rank %d at %d",
              rank, m->index);
    for (int i = 0; i < m->nranks; i++)
        FUZZ_MUST(m->rank[i] >= 0 && m->rank[i] < RANKS && (!i || m->rank[i] > m->rank[i - 1]),
                  "rank %d", m->rank[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tsri_store_ops ops = {.call = answer};
    static tsr_store store;
    tsri_machine m;
    if (!size || tsri_live_add(NULL, &store, TSRI_LIVE_STORE) != TSR_OK)
        return 0;
    answers a = {(const char *)data + 1, (const char *)data + size};
    store = (tsr_store){.ops = &ops, .rank = -1, .timeout_s = 1, .self = &a};
    int rank = data[0] % RANKS;
    tsr_status status = tsri_machine_meet(&store, rank, RANKS, ARENA_BYTES, &m);
    FUZZ_MUST_TELL(status);
    FUZZ_MUST(status <= TSR_OK && status >= TSR_ERR_INTERNAL, "status %d", (int)status);
    for (const char *c = tsr_last_error(); status != TSR_OK && *c; c++)
        FUZZ_MUST(!iscntrl((unsigned char)*c) || *c == '\n', "a control character");
    if (status == TSR_OK)
        check_machine(&m, rank);
    tsri_arena_unmap(&m.arena);
    return 0;
}
