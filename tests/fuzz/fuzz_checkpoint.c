/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices of checkpoints. The first byte says what follows: a whole index, or its text without the
 * line of the checksum, which the target adds. An index that is accepted is in order, each element
 * of its tensors lies in one piece, and written again it gives a text that reads as itself.
 */
#include <inttypes.h>

#include "src/cli/ckpt/ckpt.h"
#include "src/train/checkpoint/checksum.h"
#include "tests/fuzz/fuzz.h"

enum { IS_WHOLE = 1 << 0 };

/* A file has one piece of a tensor at most. */
static void check_files(const tsri_ckpt_tensor *t)
{
    for (int i = 0; i < t->npieces && !t->own; i++)
        for (int j = 0; j < i; j++)
            FUZZ_MUST(t->pieces[i].file != t->pieces[j].file, "'%s': a file twice", t->name);
}

/* Counts in `seen` the elements of a box, one by one. */
static void paint(const tsri_ckpt_tensor *t, const tsri_ckpt_piece *p, unsigned char *seen)
{
    const int64_t n = tsr_dims_count(p->dims);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, scale = 1;
        for (int a = p->dims.ndim - 1; a >= 0; a--) {
            at += (p->offset[a] + rest % p->dims.d[a]) * scale;
            rest /= p->dims.d[a];
            scale *= t->dims.d[a];
        }
        seen[at]++;
    }
}

/* Puts a tensor together as `tessera ckpt merge` does, in memory of just its size: each element
 * comes from one piece. */
static void check_whole(const tsri_ckpt_tensor *t)
{
    const size_t size = tsr_dtype_size(t->dtype), n = (size_t)tsr_dims_count(t->dims);
    unsigned char *seen = calloc(n ? n : 1, 1), *whole = calloc(n ? n : 1, size);
    FUZZ_MUST(seen && whole, "no memory");
    for (int i = 0; i < t->npieces && !(t->own && t->npieces > 1); i++) {
        const tsri_ckpt_piece *p = &t->pieces[i];
        const size_t bytes = (size_t)tsr_dims_count(p->dims) * size;
        char *from = malloc(bytes ? bytes : 1);
        FUZZ_MUST(from, "no memory");
        memset(from, 1, bytes);
        ckpt_place(t, p, from, (char *)whole);
        paint(t, p, seen);
        free(from);
    }
    for (size_t i = 0; i < n && !(t->own && t->npieces > 1); i++)
        FUZZ_MUST(seen[i] == 1 && whole[i * size] == 1, "'%s': element %zu is of %d pieces",
                  t->name, i, seen[i]);
    free(seen);
    free(whole);
}

static void check_tensor(const tsri_ckpt_index *index, const tsri_ckpt_tensor *t)
{
    enum { MOST = 1 << 16 };
    FUZZ_MUST(tsri_ckpt_index_find(index, t->name) == t, "'%s' isn't found", t->name);
    for (int i = 0; i < t->npieces; i++) {
        const tsri_ckpt_piece *p = &t->pieces[i];
        const bool is_bytes = t->own && t->npieces > 1 && t->dtype == TSR_U8 && t->dims.ndim == 1;
        FUZZ_MUST(p->file >= 0 && p->file < index->nfiles, "'%s': file %d", t->name, p->file);
        FUZZ_MUST(p->dims.ndim == t->dims.ndim, "'%s': axes", t->name);
        for (int a = 0; a < p->dims.ndim; a++) {
            FUZZ_MUST(p->offset[a] >= 0 && p->dims.d[a] >= 0, "'%s': axis %d", t->name, a);
            FUZZ_MUST(is_bytes || p->offset[a] + p->dims.d[a] <= t->dims.d[a], "'%s': axis %d",
                      t->name, a);
            FUZZ_MUST(!t->own || p->offset[a] == 0, "'%s': axis %d", t->name, a);
        }
    }
    FUZZ_MUST(!t->own || t->npieces == 1 || t->npieces == index->nranks, "'%s': %d", t->name,
              t->npieces);
    FUZZ_MUST(tsr_dims_count(t->saved) == tsr_dims_count(t->dims), "'%s'", t->name);
    check_files(t);
    if (tsr_dims_count(t->dims) <= MOST)
        check_whole(t);
}

static void try_text(const char *text, size_t bytes)
{
    tsri_ckpt_index index, again;
    char *first, *second;
    size_t nfirst, nsecond;
    tsr_status status = tsri_ckpt_index_parse(NULL, "index.json", text, bytes, &index);
    FUZZ_MUST_TELL(status);
    if (status != TSR_OK)
        return;
    for (int i = 0; i < index.ntensors; i++)
        check_tensor(&index, &index.tensors[i]);
    FUZZ_MUST(tsri_ckpt_index_text(&index, &first, &nfirst) == TSR_OK, "no text");
    FUZZ_MUST(tsri_ckpt_index_parse(NULL, "index.json", first, nfirst, &again) == TSR_OK, "%s",
              first);
    FUZZ_MUST(tsri_ckpt_index_text(&again, &second, &nsecond) == TSR_OK, "no text");
    FUZZ_MUST(nfirst == nsecond && !memcmp(first, second, nfirst), "%s\n%s", first, second);
    free(first);
    free(second);
    tsri_ckpt_index_finish(&index);
    tsri_ckpt_index_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const char *body = (const char *)data + 1;
    if (data[0] & IS_WHOLE) {
        try_text(body, size - 1);
        return 0;
    }
    enum { LINE = 48 };
    char *text = malloc(size - 1 + LINE);
    FUZZ_MUST(text, "no memory");
    memcpy(text, body, size - 1);
    const int n = snprintf(text + size - 1, LINE, "\n\"checksum\":\"%016" PRIx64 "\"}\n",
                           tsri_checksum(body, size - 1));
    try_text(text, size - 1 + (size_t)n);
    free(text);
    return 0;
}
