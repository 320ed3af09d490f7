/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/cli.h"

#include <tessera/status.h>

#include <cjson/cJSON.h>
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
    int rc = puts(text);
    free(text);
    return rc < 0 || fflush(stdout) ? CLI_FAILED : CLI_OK;
}
