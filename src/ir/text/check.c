/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "src/core/text_stream.h"
#include "src/ir/text/text.h"

static tsr_status write_text(const tsri_ir *ir, char **out)
{
    tsri_text_stream t;
    TSRI_NEED(tsri_text_open(&t, NULL));
    const tsr_status status = tsri_text_write(ir, true, t.stream);
    *out = tsri_text_close(&t, NULL);
    return *out ? status : TSR_ERR_NO_MEMORY;
}

/* A file that can't be written is no error, since the texts only serve developers of passes. */
tsr_status tsri_text_of_pass(const tsri_ir *ir, int number, const char *pass)
{
    const char *folder = getenv("TESSERA_PASS_TEXTS");
    char path[512], *text = NULL;
    if (!folder || !folder[0])
        return TSR_OK;
    snprintf(path, sizeof path, "%s/rank%d-%d-%s.txt", folder, ir->world->rank, number, pass);
    const tsr_status status = write_text(ir, &text);
    FILE *f = status == TSR_OK ? fopen(path, "w") : NULL;
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    free(text);
    return status;
}

/* Returns the error that quotes the first different line of two texts. */
static tsr_status differ(const char *was, const char *is)
{
    while (*was && *was == *is && strcspn(was, "\n") == strcspn(is, "\n") &&
           !strncmp(was, is, strcspn(was, "\n") + 1)) {
        const size_t n = strcspn(was, "\n") + 1;
        was += n;
        is += n;
    }
    return tsri_fail(TSR_ERR_INTERNAL, "a plan's text reads back otherwise: '%.*s' as '%.*s'",
                     (int)strcspn(was, "\n"), was, (int)strcspn(is, "\n"), is);
}

tsr_status tsri_text_check(tsri_ir *ir)
{
    char *was = NULL, *is = NULL;
    if (!tsri_checks())
        return TSR_OK;
    tsr_status status = write_text(ir, &was);
    if (status == TSR_OK)
        status = tsri_text_read(ir, was, ir);
    if (status == TSR_OK)
        status = write_text(ir, &is);
    if (status == TSR_OK && strcmp(was, is) != 0)
        status = differ(was, is);
    free(was);
    free(is);
    return status;
}
