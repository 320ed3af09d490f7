/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices of checkpoints. The first byte says what follows: a whole index, or its text without the
 * line of the checksum, which the target adds. What is accepted is in order, its pieces make up its
 * tensors, and written again it gives a text that reads as itself.
 */
#include <inttypes.h>

#include "src/train/checkpoint/checksum.h"
#include "src/train/checkpoint/index.h"
#include "tests/fuzz/fuzz.h"

enum { IS_WHOLE = 1 << 0 };

static void check_tensor(const tsri_ckpt_index *index, const tsri_ckpt_tensor *t)
{
    int64_t n = 0;
    FUZZ_MUST(tsri_ckpt_index_find(index, t->name) == t, "'%s' isn't found", t->name);
    for (int i = 0; i < t->npieces; i++) {
        const tsri_ckpt_piece *p = &t->pieces[i];
        FUZZ_MUST(p->file >= 0 && p->file < index->nfiles, "'%s': file %d", t->name, p->file);
        FUZZ_MUST(p->dims.ndim == t->dims.ndim, "'%s': axes", t->name);
        for (int a = 0; a < p->dims.ndim && !t->own; a++)
            FUZZ_MUST(p->offset[a] >= 0 && p->offset[a] + p->dims.d[a] <= t->dims.d[a],
                      "'%s': axis %d", t->name, a);
        n += tsr_dims_count(p->dims);
    }
    FUZZ_MUST(t->own || n == tsr_dims_count(t->dims), "'%s': %" PRId64 " elements", t->name, n);
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
