/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/cli.h"
#include "src/core/new_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_fail(const char *command)
{
    fflush(stdout);
    fprintf(stderr, "tessera %s: %s\n", command, tsr_last_error());
    return CLI_FAILED;
}

/* The first error of stdout. */
static int stdout_error;

void cli_flush(void)
{
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && !stdout_error)
        stdout_error = errno;
}

int cli_end(int code)
{
    cli_flush();
    if (!ferror(stdout) && !stdout_error)
        return code;
    /* stdio has lost the reason if an earlier write failed: another one has most likely the same.
     */
    if (!stdout_error && write(STDOUT_FILENO, "\n", 1) < 0)
        stdout_error = errno;
    fprintf(stderr, "tessera: stdout: %s\n", strerror(stdout_error ? stdout_error : EIO));
    return code ? code : CLI_FAILED;
}

cli_style cli_style_of(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((no && no[0]) || !isatty(fileno(f)) || (term && !strcmp(term, "dumb")))
        return (cli_style){"", "", "", "", ""};
    return (cli_style){"\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[0m"};
}

static char *scaled(double v, const char *const *units, int n, char buf[CLI_NUMBER_MAX])
{
    int i = 0;
    while (i < n - 1 && fabs(v) >= 999.5) {
        v /= 1000;
        i++;
    }
    int digits = v == floor(v) && i == 0 ? 0 : fabs(v) < 9.995 ? 2 : fabs(v) < 99.95 ? 1 : 0;
    snprintf(buf, CLI_NUMBER_MAX, "%.*f %s", digits, v, units[i]);
    return buf;
}

char *cli_bytes(double bytes, char buf[CLI_NUMBER_MAX])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    return scaled(bytes, units, 7, buf);
}

char *cli_seconds(double s, char buf[CLI_NUMBER_MAX])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(s * 1e9, units, 4, buf);
}

int cli_print_json(struct cJSON *json)
{
    char *text = json ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!text) {
        fprintf(stderr, "tessera: out of memory\n");
        return CLI_FAILED;
    }
    puts(text);
    cli_flush();
    free(text);
    return CLI_OK; /* cli_end tells what could not be printed */
}

tsr_status cli_write_json(struct cJSON *json, const char *path)
{
    tsri_new_file file;
    char *text = json ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
    int rc = tsri_new_file_stream(&file, path);
    if (!rc) {
        fprintf(file.stream, "%s\n", text);
        rc = tsri_new_file_keep(&file, false);
    }
    free(text);
    return rc ? tsr_set_error(TSR_ERR_IO, "%s: %s", path, strerror(-rc)) : TSR_OK;
}
