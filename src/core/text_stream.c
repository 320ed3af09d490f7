/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/text_stream.h"

#include <string.h>

enum { FIRST = 1024 };

/* Appends, with room for a NUL behind. */
static ssize_t append(void *cookie, const char *data, size_t bytes)
{
    tsri_text_stream *t = cookie;
    size_t more = t->capacity ? t->capacity : FIRST;
    while (more - t->bytes <= bytes && more <= SIZE_MAX / 2)
        more *= 2;
    if (more > t->capacity && !t->failed) {
        char *text = tsri_mem_realloc(t->mem, t->text, more);
        t->failed = !text;
        t->text = text ? text : t->text;
        t->capacity = text ? more : t->capacity;
    }
    if (t->failed)
        return 0;
    memcpy(t->text + t->bytes, data, bytes);
    t->bytes += bytes;
    return (ssize_t)bytes;
}

bool tsri_text_open(tsri_text_stream *t, tsri_mem *mem)
{
    *t = (tsri_text_stream){.mem = mem};
    t->stream = fopencookie(t, "w", (cookie_io_functions_t){.write = append});
    if (!t->stream)
        tsri_fail(TSR_ERR_NO_MEMORY, "no memory for a stream");
    return t->stream;
}

char *tsri_text_close(tsri_text_stream *t, size_t *out_bytes)
{
    const bool wrong = ferror(t->stream) != 0;
    if (fclose(t->stream) || wrong)
        t->failed = true;
    if (!t->text && !t->failed)
        append(t, "", 0); /* an empty text, too, is one */
    if (t->failed) {
        tsri_mem_free(t->text);
        *t = (tsri_text_stream){0};
        tsri_fail(TSR_ERR_NO_MEMORY, "no memory for a text");
        return NULL;
    }
    t->text[t->bytes] = 0;
    if (out_bytes)
        *out_bytes = t->bytes;
    return t->text;
}
