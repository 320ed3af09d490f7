/* SPDX-License-Identifier: Apache-2.0 */
/* A stream that writes to memory. open_memstream's does not serve where memory may run out: what
 * did not fit while it was written is missing without an error, and its fclose reports success
 * where its last allocation has failed, with a text of NULL. */
#ifndef TSRI_CORE_TEXT_STREAM_H
#define TSRI_CORE_TEXT_STREAM_H

#include <stdio.h>

#include "src/core/mem.h"

typedef struct tsri_text_stream {
    FILE *stream;
    tsri_mem *mem; /* may be NULL */
    char *text;    /* as far as it was flushed; no NUL ends it yet */
    size_t bytes, capacity;
    bool failed; /* a part is missing */
} tsri_text_stream;

/* Opens t->stream; *t must stay where it is until it is closed. False: there is no memory. */
bool tsri_text_open(tsri_text_stream *t, tsri_mem *mem);
/* Closes the stream. Returns the whole text, ended by a NUL that *out_bytes (may be NULL) does not
 * count, which the caller frees by free; NULL, with the error's text set, where memory ran out at
 * any time. */
char *tsri_text_close(tsri_text_stream *t, size_t *out_bytes);

#endif
