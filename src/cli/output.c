/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/cli.h"
#include "src/core/figures.h"
#include "src/core/new_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int cli_fail(const char *command)
{
    fflush(stdout);
    tsri_fshow(stderr, "tessera %s: ", command);
    cli_put_shown(stderr, tsr_last_error());
    fputs("\n", stderr);
    return CLI_FAILED;
}

void cli_put_shown(FILE *f, const char *text)
{
    fputs(text, f);
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
    tsri_fshow(stderr, "tessera: stdout: %s\n", strerror(stdout_error ? stdout_error : EIO));
    return code ? code : CLI_FAILED;
}

cli_style cli_style_of(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((no && no[0]) || !isatty(fileno(f)) || (term && !strcmp(term, "dumb")))
        return (cli_style){"", "", "", "", ""};
    return (cli_style){
        tsri_style_text[TSRI_STYLE_BOLD],  tsri_style_text[TSRI_STYLE_DIM],
        tsri_style_text[TSRI_STYLE_RED],   tsri_style_text[TSRI_STYLE_GREEN],
        tsri_style_text[TSRI_STYLE_PLAIN],
    };
}

char *cli_bytes(double bytes, char buf[CLI_NUMBER_MAX])
{
    return tsri_bytes_text(bytes, buf);
}

char *cli_seconds(double s, char buf[CLI_NUMBER_MAX])
{
    return tsri_seconds_text(s, buf);
}

char *cli_flops(double flops, char buf[CLI_NUMBER_MAX])
{
    static const char *const units[] = {"FLOP",  "KFLOP", "MFLOP", "GFLOP",
                                        "TFLOP", "PFLOP", "EFLOP"};
    return tsri_scaled_text(flops, units, 7, buf);
}

char *cli_count(double n, char buf[CLI_NUMBER_MAX])
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    tsri_scaled_text(n, units, 5, buf);
    size_t end = strlen(buf);
    if (end && buf[end - 1] == ' ')
        buf[end - 1] = 0;
    return buf;
}

/* The value of a variable of the environment, else `of_terminal` where stdout is one, else usual.
 */
static int size_of(const char *variable, int of_terminal, int usual)
{
    const char *said = getenv(variable);
    int n = said ? atoi(said) : 0;
    n = n > 0 ? n : of_terminal;
    return n > 0 ? n : usual;
}

static struct winsize terminal_size(void)
{
    struct winsize size = {0};
    if (isatty(STDOUT_FILENO))
        ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    return size;
}

int cli_columns_or(int usual)
{
    enum { LEAST = 40 };
    int n = size_of("COLUMNS", terminal_size().ws_col, usual);
    return n < LEAST ? LEAST : n;
}

int cli_columns(void)
{
    return cli_columns_or(100);
}

int cli_lines(void)
{
    return size_of("LINES", terminal_size().ws_row, 40);
}

/* The length of a word; a number and its unit are one. */
static int word_length(const char *text)
{
    size_t n = strcspn(text, " ");
    const char *unit = text[n] ? text + n + 1 : "";
    size_t more = strcspn(unit, " ");
    bool number = text[0] && strchr("+-0123456789", text[0]);
    return (int)(number && more && more <= 4 && unit[0] != '+' ? n + 1 + more : n);
}

void cli_wrap(const char *text, int used, int indent, int columns)
{
    for (bool first = true;; first = false) {
        text += strspn(text, " ");
        int n = word_length(text), room = columns - used - !first;
        if (!n)
            break;
        if (n > room && used > indent) {
            cli_say("\n%*s", indent, "");
            used = indent;
            first = true;
            room = columns - used;
        }
        n = n > room && room > 0 ? room : n;
        cli_say("%s%.*s", first ? "" : " ", n, text);
        used += n + !first;
        text += n;
    }
    putchar('\n');
}

/* Whether a spreadsheet would take the text for a formula, as it takes all that begins in this way
 * and is no number. */
static bool is_formula(const char *text)
{
    char *end;
    if (!*text || !strchr("=+-@\t\r", *text))
        return false;
    strtod(text, &end);
    return end == text || *end;
}

void cli_put_cell(FILE *f, const char *text)
{
    const bool formula = is_formula(text);
    if (!formula && !strpbrk(text, ",\"\n\r")) {
        fputs(text, f);
        return;
    }
    fputs(formula ? "\"'" : "\"", f);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', f);
        putc(*text, f);
    }
    putc('"', f);
}

int cli_print_json(struct cJSON *json)
{
    char *text = json ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!text) {
        tsri_fshow(stderr, "tessera: out of memory\n");
        return CLI_FAILED;
    }
    tsri_show_json(stdout, text);
    putchar('\n');
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
        tsri_show_json(file.stream, text);
        fputs("\n", file.stream);
        rc = tsri_new_file_keep(&file, false);
    }
    free(text);
    return rc ? tsr_set_error(TSR_ERR_IO, "%s: %s", path, strerror(-rc)) : TSR_OK;
}
