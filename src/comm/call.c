/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/call.h"

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

void tsri_call_fill(tsri_call_entry *call, const tsri_coll *coll, int first, int nseg)
{
    bool reduces = tsri_coll_has_op(coll->kind);
    call->kind = (int32_t)coll->kind;
    bool has_algo = coll->kind == TSRI_COLL_ALL_REDUCE || coll->kind == TSRI_COLL_REDUCE;
    call->algo = has_algo ? (int32_t)coll->algo : 0;
    call->op = reduces ? (int32_t)coll->op : 0;
    call->root = tsri_coll_has_root(coll->kind) ? coll->root : 0;
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

char *tsri_call_text(const tsri_call_entry *call, char *buf, size_t size)
{
    const unsigned long long number = call->number ? call->number : tsri_seq_count(call->seq);
    int n = snprintf(buf, size, "%s", tsri_coll_kind_name(call->kind));
    if (number && n > 0 && (size_t)n < size) /* 0: it is prepared, and not made yet */
        n += snprintf(buf + n, size - (size_t)n, " #%llu", number);
    if (call->what[0] && n > 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, " '%s'", call->what);
    if (call->file[0] && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, " (%s:%d)", call->file, (int)call->line);
    return buf;
}

bool tsri_call_agrees(const tsri_call_entry *a, const tsri_call_entry *b)
{
    return a->kind == b->kind && a->algo == b->algo && a->op == b->op && a->root == b->root &&
           a->nseg == b->nseg && a->bytes == b->bytes && a->hash == b->hash;
}

uint64_t tsri_call_print(const tsri_call_entry *c)
{
    uint64_t h = mix(c->hash, c->bytes);
    h = mix(h, (uint64_t)(uint32_t)c->kind << 32 | (uint32_t)c->nseg);
    h = mix(h, (uint64_t)(uint32_t)c->op << 32 | (uint32_t)c->root);
    return mix(h, (uint64_t)(uint32_t)c->algo);
}

/* "all_reduce #17 'grad' (model.c:31): two-phase, sum, 3 segments, 1024 bytes, first f32 [2,128]"
 */
static void full_text(const tsri_call_entry *c, const int *ranks, char *buf, size_t size)
{
    FILE *f = fmemopen(buf, size, "w");
    buf[0] = 0;
    if (!f)
        return;
    char name[192];
    fprintf(f, "%s: ", tsri_call_text(c, name, sizeof name));
    if (c->kind == TSRI_COLL_ALL_REDUCE && !c->number)
        fprintf(f, "%s, ", c->algo == TSRI_ALGO_TWO_PHASE ? "two-phase" : "one-shot");
    if (tsri_coll_has_op(c->kind))
        fprintf(f, "%s, ", tsri_reduce_name(c->op));
    if (tsri_coll_has_root(c->kind))
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

tsr_status tsri_call_differ(const int *ranks, int index_a, const tsri_call_entry *a, int index_b,
                            const tsri_call_entry *b)
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
