/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/page/page.h"

#include "src/core/new_file.h"
#include "src/core/status.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Longer data are compressed: those of large plans say much the same again and again. */
enum { PLAIN_MOST = 1 << 17 };

static const char head[] =
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n";

/* Text of the document, in which no sign is markup. */
static void put_text(FILE *f, const char *text)
{
    for (; *text; text++)
        if (strchr("<>&\"'", *text))
            fprintf(f, "&#%d;", *text);
        else
            fputc(*text, f);
}

/* JSON in which no sign can end the element that it stands in: '<' is only in texts. */
static void put_plain(FILE *f, const char *json)
{
    fputs("<script type=\"application/json\" id=\"data\">", f);
    for (; *json; json++)
        if (*json == '<')
            fputs("\\u003c", f);
        else
            fputc(*json, f);
    fputs("</script>\n", f);
}

static void put_base64(FILE *f, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned word = bytes[i] * 65536u;
        word += (i + 1 < n ? bytes[i + 1] * 256u : 0) + (i + 2 < n ? bytes[i + 2] : 0);
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63], digits[word >> 6 & 63],
                        digits[word & 63]};
        if (i + 2 >= n)
            four[3] = '=';
        if (i + 1 >= n)
            four[2] = '=';
        fwrite(four, 1, 4, f);
    }
}

static bool put_compressed(FILE *f, const char *json)
{
    uLong size = (uLong)strlen(json), most = compressBound(size);
    unsigned char *bytes = malloc(most);
    bool ok = bytes && compress2(bytes, &most, (const Bytef *)json, size, 9) == Z_OK;
    if (ok) {
        fputs("<script type=\"text/plain\" id=\"data\">", f);
        put_base64(f, bytes, most);
        fputs("</script>\n", f);
    }
    free(bytes);
    return ok;
}

static bool put_page(FILE *f, const char *kind, const char *title, const char *json)
{
    fprintf(f, "<!doctype html>\n<html lang=\"en\">\n<head>\n%s<title>", head);
    put_text(f, title);
    fputs("</title>\n<style>\n", f);
    fwrite(page_style, 1, page_style_size, f);
    fprintf(
        f,
        "</style>\n</head>\n<body data-kind=\"%s\">\n<p id=\"wait\" role=\"status\">Reading the "
        "data; this page needs JavaScript.</p>\n",
        kind);
    bool ok = true;
    if (strlen(json) <= PLAIN_MOST)
        put_plain(f, json);
    else
        ok = put_compressed(f, json);
    fputs("<script>\n", f);
    fwrite(page_script, 1, page_script_size, f);
    fputs("</script>\n</body>\n</html>\n", f);
    return ok;
}

tsr_status page_write(const char *path, const char *kind, const char *title, struct cJSON *json)
{
    char *text = json ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
    tsri_new_file file;
    int rc = tsri_new_file_stream(&file, path);
    if (!rc && !put_page(file.stream, kind, title, text)) {
        rc = -ENOMEM;
        tsri_new_file_drop(&file);
    } else if (!rc) {
        rc = tsri_new_file_keep(&file, false);
    }
    free(text);
    return rc ? tsr_set_error(TSR_ERR_IO, "%s: %s", path, strerror(-rc)) : TSR_OK;
}
