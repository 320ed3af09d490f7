/* SPDX-License-Identifier: Apache-2.0 */
/* Call records: what ranks tell each other about a call before any data moves. */
#include "src/comm/local/local.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static uint64_t hash_segment(uint64_t h, const tsri_coll *coll, const tsri_segment *s)
{
    h = mix(h, (uint64_t)s->dtype << 40 ^ (uint64_t)s->shape.ndim << 32);
    if (coll->kind != TSRI_COLL_SEND_RECV)
        h = mix(h, (uint64_t)(uint8_t)s->src_axis << 8 ^ (uint64_t)(uint8_t)s->dst_axis);
    for (int i = 0; i < s->shape.ndim; i++)
        h = mix(h, (uint64_t)s->shape.d[i]);
    return h;
}

/* text: followed by zeros to its end, a whole number of words. */
static uint64_t hash_text(uint64_t h, const char *text, size_t size)
{
    uint64_t word;
    for (size_t i = 0; i < size && text[i]; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        h = mix(h, word);
    }
    return h;
}

static void copy_text(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

static bool has_root(int kind)
{
    return kind == TSRI_COLL_BROADCAST || kind == TSRI_COLL_REDUCE || kind == TSRI_COLL_GATHER_ ||
           kind == TSRI_COLL_SCATTER_;
}

static bool has_op(int kind)
{
    return kind == TSRI_COLL_ALL_REDUCE || kind == TSRI_COLL_REDUCE_SCATTER ||
           kind == TSRI_COLL_REDUCE || kind == TSRI_COLL_SEND_RECV;
}

void tsri_call_fill(tsri_call *call, const tsri_coll *coll, int first, int nseg)
{
    bool reduces = has_op(coll->kind);
    call->kind = (int32_t)coll->kind;
    bool has_algo = coll->kind == TSRI_COLL_ALL_REDUCE || coll->kind == TSRI_COLL_REDUCE;
    call->algo = has_algo ? (int32_t)coll->algo : 0;
    call->op = reduces ? (int32_t)coll->op : 0;
    call->root = has_root(coll->kind) ? coll->root : 0;
    call->nseg = nseg;
    call->line = coll->loc.line;
    call->bytes = 0;
    call->number = coll->number;
    uint64_t h = mix(0, (uint64_t)first);
    for (int i = first; i < first + nseg; i++) {
        const tsri_segment *s = &coll->seg[i];
        call->bytes += (uint64_t)tsr_dims_count(s->shape) * tsr_dtype_size(s->dtype);
        h = hash_segment(h, coll, s);
    }
    memset(call->what, 0, sizeof call->what);
    copy_text(call->what, sizeof call->what, coll->what ? coll->what : "");
    call->hash = hash_text(h, call->what, sizeof call->what);
    copy_text(call->file, sizeof call->file, coll->loc.file ? tsri_basename(coll->loc.file) : "");
    call->dtype = 0;
    call->ndim = 0;
    if (nseg > 0) {
        call->dtype = (int32_t)coll->seg[first].dtype;
        call->ndim = coll->seg[first].shape.ndim;
        memcpy(call->shape, coll->seg[first].shape.d, sizeof call->shape);
    }
}

tsri_seg_place *tsri_call_places(tsri_member *m, tsri_call *call)
{
    return call->nseg <= TSRI_CALL_INLINE ? call->place : m->spill[call->seq % TSRI_CALL_RING];
}

uint64_t tsri_call_record(tsri_local_group *g, const tsri_coll *coll, const tsri_call *call,
                          uint64_t seq)
{
    tsri_flight *flight = g->local->pub.world->flight;
    tsri_local_prepared *p = coll->prepared;
    uint64_t count = tsri_seq_count(seq), number;
    if (p)
        number =
            tsri_flight_begin_described(flight, g->pub.flight, count, &p->flight, coll->flight);
    else
        number = tsri_flight_begin(flight, g->pub.flight, count, call->kind, coll, call->bytes,
                                   call->hash);
    g->flight[seq % TSRI_CALL_RING] = number;
    return number;
}

tsr_status tsri_call_enter(tsri_local_group *g, tsri_call *call, tsri_call **out_record)
{
    call->seq = g->started + 1;
    if (tsri_seq_count(call->seq) > TSRI_CALL_RING)
        TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_DONE, call->seq - TSRI_CALL_RING, call));
    g->started = call->seq;
    g->gives &= ~(UINT64_C(1) << call->seq % TSRI_CALL_RING);
    *out_record = tsri_call_of(g->mine, call->seq);
    memcpy(*out_record, call, offsetof(tsri_call, place));
    memcpy((*out_record)->shape, call->shape, sizeof *call - offsetof(tsri_call, shape));
    return TSR_OK;
}

bool tsri_call_agrees(const tsri_call *a, const tsri_call *b)
{
    return a->kind == b->kind && a->algo == b->algo && a->op == b->op && a->root == b->root &&
           a->nseg == b->nseg && a->bytes == b->bytes && a->hash == b->hash;
}

/* "all_reduce #17 'grad' (model.c:31): two-phase, sum, 3 segments, 1024 bytes, first f32 [2,128]"
 */
static void full_text(const tsri_call *c, const int *ranks, char *buf, size_t size)
{
    static const char *const ops[] = {"sum", "max", "min", "product", "avg"};
    FILE *f = fmemopen(buf, size, "w");
    buf[0] = 0;
    if (!f)
        return;
    char name[192];
    fprintf(f, "%s: ", tsri_call_text(c, name, sizeof name));
    if (c->kind == TSRI_COLL_ALL_REDUCE && !c->number)
        fprintf(f, "%s, ", c->algo == TSRI_ALGO_TWO_PHASE ? "two-phase" : "one-shot");
    if (has_op(c->kind))
        fprintf(f, "%s, ", ops[c->op]);
    if (has_root(c->kind))
        fprintf(f, "root %d, ", ranks[c->root]);
    fprintf(f, "%llu bytes", (unsigned long long)c->bytes);
    if (c->nseg > 0) {
        if (c->number)
            fprintf(f, ", %s [", tsr_dtype_name((tsr_dtype)c->dtype));
        else
            fprintf(f, " in %d segment%s, first %s [", (int)c->nseg, c->nseg == 1 ? "" : "s",
                    tsr_dtype_name((tsr_dtype)c->dtype));
        for (int i = 0; i < c->ndim; i++)
            fprintf(f, "%s%lld", i ? "," : "", (long long)c->shape[i]);
        fputc(']', f);
    }
    fclose(f);
}

tsr_status tsri_call_differ(const int *ranks, int index_a, const tsri_call *a, int index_b,
                            const tsri_call *b)
{
    char text_a[512], text_b[512];
    full_text(a, ranks, text_a, sizeof text_a);
    full_text(b, ranks, text_b, sizeof text_b);
    bool same_text = !strcmp(text_a, text_b);
    return tsri_fail(TSR_ERR_MISMATCH, "ranks disagree: rank %d is at %s; rank %d is at %s%s",
                     ranks[index_a], text_a, ranks[index_b], text_b,
                     same_text ? " (dtypes, shapes or axes of later segments, or the axis of the "
                                 "first, differ)"
                               : "");
}

/* Between my record of call `seq` and member i's. */
static tsr_status fail_mismatch(const tsri_local_group *g, uint64_t seq, int i)
{
    /* Lower index first: all ranks of a pair print the same text. */
    int a = i < g->pub.index ? i : g->pub.index, b = i < g->pub.index ? g->pub.index : i;
    return tsri_call_differ(g->pub.ranks, a, tsri_call_of(&g->members[a], seq), b,
                            tsri_call_of(&g->members[b], seq));
}

tsr_status tsri_call_meet(tsri_local_group *g, uint64_t seq)
{
    const tsri_call *mine = tsri_call_of(g->mine, seq);
    int differs = -1;
    bool sends = false;
    TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_PUBLISHED, seq, mine));
    for (int i = g->pub.nranks - 1; i >= 0; i--) {
        const tsri_call *theirs = tsri_call_of(&g->members[i], seq);
        differs = tsri_call_agrees(mine, theirs) ? differs : i;
        sends |= theirs->kind == TSRI_COLL_SEND_RECV;
    }
    if (differs < 0)
        return TSR_OK;
    tsr_status status = fail_mismatch(g, seq, differs);
    /* A member at a SEND_RECV may not have looked at my record. */
    if (sends)
        status = tsri_call_fault(g, seq, tsr_last_error());
    /* Else everybody sees some difference, so nobody will read: the channel can go on. */
    tsri_local_advance(g->mine, TSRI_WAIT_PHASE1, seq);
    tsri_call_done(g, seq);
    return status;
}

/* --- without waiting for everybody ------------------------------------------------------------ */

tsr_status tsri_call_fault(tsri_local_group *g, uint64_t seq, const char *text)
{
    return tsri_call_end(g, seq, TSR_ERR_MISMATCH, text);
}

tsr_status tsri_call_end(tsri_local_group *g, uint64_t seq, tsr_status status, const char *text)
{
    tsri_fault *f = &g->channel->fault;
    uint64_t writing = (seq >> TSRI_SEQ_BITS << 2) + 1, there = atomic_load(&f->state), first;
    while (there < writing && !atomic_compare_exchange_weak(&f->state, &there, writing))
        ;
    if (there < writing) {
        atomic_store(&f->seq, seq);
        atomic_store(&f->status, (int32_t)status);
        copy_text(f->text, sizeof f->text, text);
        atomic_store(&f->state, writing + 1);
    }
    /* Before I am done, whoever waits for that must find it. The bound is for a writer killed. */
    for (int i = 0; i < 1000000 && atomic_load(&f->state) == writing; i++)
        sched_yield();
    first = atomic_load(&f->seq);
    while (first > seq && !atomic_compare_exchange_weak(&f->seq, &first, seq))
        ;
    return tsri_fail(status, "%s", text);
}

tsr_status tsri_call_meet_early(tsri_local_group *g, uint64_t seq)
{
    const tsri_call *mine = tsri_call_of(g->mine, seq);
    /* Members that are here come first: one that never comes must not hide that two others
     * disagree. */
    for (int late = 0; late < 2; late++) {
        for (int i = 0; i < g->pub.nranks; i++) {
            if (i == g->pub.index || (!late && !tsri_local_reached(g, i, TSRI_WAIT_PUBLISHED, seq)))
                continue;
            TSRI_TRY(tsri_local_await(g, i, TSRI_WAIT_PUBLISHED, seq, mine));
            if (!tsri_call_agrees(mine, tsri_call_of(&g->members[i], seq))) {
                fail_mismatch(g, seq, i);
                return tsri_call_fault(g, seq, tsr_last_error());
            }
        }
    }
    return TSR_OK;
}

tsr_status tsri_call_meet_one(tsri_local_group *g, uint64_t seq, int index)
{
    const tsri_call *mine = tsri_call_of(g->mine, seq);
    TSRI_TRY(tsri_local_await(g, index, TSRI_WAIT_PUBLISHED, seq, mine));
    if (tsri_call_agrees(mine, tsri_call_of(&g->members[index], seq)))
        return TSR_OK;
    fail_mismatch(g, seq, index);
    return tsri_call_fault(g, seq, tsr_last_error());
}

void tsri_call_compare(tsri_local_group *g, uint64_t seq)
{
    for (int i = 0; i < g->pub.nranks; i++)
        if (i != g->pub.index && tsri_local_reached(g, i, TSRI_WAIT_PUBLISHED, seq) &&
            tsri_call_meet_one(g, seq, i) != TSR_OK)
            return;
}

void tsri_call_done(tsri_local_group *g, uint64_t seq)
{
    uint64_t before = g->done;
    if (seq > g->done)
        g->done = seq;
    while (g->done < g->started && g->gives >> (g->done + 1) % TSRI_CALL_RING & 1)
        tsri_call_compare(g, ++g->done);
    if (g->done != before)
        tsri_local_advance(g->mine, TSRI_WAIT_DONE, g->done);
}
