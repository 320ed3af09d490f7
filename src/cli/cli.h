/* SPDX-License-Identifier: Apache-2.0 */
/* The command's own interface: subcommands, and how they talk. */
#ifndef TESSERA_CLI_CLI_H
#define TESSERA_CLI_CLI_H

#include <tessera/status.h>

#include <stdbool.h>
#include <stdio.h>

#include "src/core/figures.h"
#include "src/core/shown.h"

/* Exit codes beside those of the programs that are run. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_CANT_RUN = 126, CLI_NOT_FOUND = 127 };

/* argv[0] is the subcommand's name. Returns the exit code. */
typedef int cli_command_fn(int argc, char **argv);

cli_command_fn cli_box, cli_ckpt, cli_flight, cli_info, cli_launch, cli_plan, cli_run, cli_schema,
    cli_trace;

/*
 * How often a thread of an OpenMP team looks for work before it sleeps: about 0.1 ms. libgomp's own
 * 300,000 keep a core for several ms behind each kernel, which on a busy machine is the core that
 * the thread it waits for needs. It reads the variable GOMP_SPINCOUNT when it is loaded.
 */
#define CLI_SPINS "5000"
/* Whether the user has said nothing of it. */
bool cli_spins_freely(void);

/* --- output.c: how the commands talk ---------------------------------------------------------- */
/* Every line is printed by cli_say, or by tsri_fshow where the stream is not stdout: the arguments
 * of a format may hold others' text. (tests/lint/foreign.py finds output that bypasses them.) */
#define cli_say(...) tsri_fshow(stdout, __VA_ARGS__)
/* Prints a text of several lines as it is: one of ours, or the last error, which is shown already.
 */
void cli_put_shown(FILE *f, const char *text);
/* Prints the library's last error as it is, on stderr. Returns CLI_FAILED. */
int cli_fail(const char *command);

/* Escape sequences, or "" where `f` is no terminal or NO_COLOR is set. */
typedef struct cli_style {
    const char *bold, *dim, *red, *green, *plain;
} cli_style;
cli_style cli_style_of(FILE *f);

/* Sends what was printed on its way, and notes an error for cli_end. */
void cli_flush(void);
/* Flushes stdout at the end of a command. An error of stdout is told, and turns the exit code of
 * success into 1. */
int cli_end(int code);

enum { CLI_NUMBER_MAX = TSRI_FIGURE_MAX };
/* "1.50 MB", "12 B"; "3.20 ms", "450 ns"; "8.00 GB/s". Powers of 1000. */
char *cli_bytes(double bytes, char buf[CLI_NUMBER_MAX]);
char *cli_seconds(double s, char buf[CLI_NUMBER_MAX]);

/* "80.0 GFLOP", "1.50 PFLOP"; "1.20 M", "7.00 B" of things that are counted, "512" below 1000. */
char *cli_flops(double flops, char buf[CLI_NUMBER_MAX]);
char *cli_count(double n, char buf[CLI_NUMBER_MAX]);

/* Returns how many columns a line may have: COLUMNS, else the terminal's that stdout is, else
 * `usual`; cli_columns: 100. */
int cli_columns_or(int usual);
int cli_columns(void);
/* Returns how many lines a screen has: LINES, else the terminal's that stdout is, else 40. */
int cli_lines(void);
/* Prints `text` in lines of at most `columns`, broken at blanks: the first line stands behind what
 * `used` columns hold already, the others behind `indent` blanks. Ends the last line. */
void cli_wrap(const char *text, int used, int indent, int columns);

/* Prints a cell of CSV. A quotation mark before it makes a text of what a spreadsheet would take
 * for a formula. */
void cli_put_cell(FILE *f, const char *text);

/* Prints a JSON value on stdout with a line end, and frees it. NULL is out of memory. Returns the
 * exit code. */
struct cJSON;
int cli_print_json(struct cJSON *json);
/* Writes a JSON value into a file, which appears as a whole, and frees it; NULL as above. */
tsr_status cli_write_json(struct cJSON *json, const char *path);

#endif
