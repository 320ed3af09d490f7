/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: one table per command drives parsing, errors and --help. */
#ifndef TESSERA_CLI_OPTIONS_H
#define TESSERA_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_kind {
    CLI_FLAG = 0, /* bool */
    CLI_TEXT,     /* const char * */
    CLI_INT,      /* int64_t, min to max */
    CLI_SECONDS,  /* const char *, checked to be a number above 0 */
    CLI_BYTES,    /* int64_t: "512M", "1.5GiB", "4096" */
    CLI_LIST,     /* cli_list: may be given again */
} cli_kind;

typedef struct cli_list {
    int n;
    const char **items;
} cli_list;

typedef struct cli_option {
    const char *name; /* without dashes; NULL: only the letter */
    char letter;      /* 0: none */
    cli_kind kind;
    size_t offset;     /* of the value in the command's struct */
    const char *value; /* "N", "DIR": what stands for the value in --help */
    const char *help;  /* one line; a second one behind '\n'; NULL: on the line of the one before */
    int64_t min, max;  /* of CLI_INT */
    const char *what;  /* of CLI_INT: "a number of ranks" */
} cli_option;

typedef struct cli_spec {
    const char *command; /* "box" */
    const char *usage;   /* what follows "tessera box ", at most 80 columns in all */
    const char *about;   /* lines of --help between usage and options */
    const cli_option *options;
    int noptions;
    int min_operands, max_operands;
    const char *missing; /* what to say when operands lack: "no FILE to run" */
    bool is_wrapper;     /* all from the first operand on is another program's */
} cli_spec;

#define CLI_OPTIONS(table) .options = (table), .noptions = (int)(sizeof(table) / sizeof *(table))

/*
 * Parses argv[1..argc-1] into *args, where the options' offsets point, and moves the operands to
 * the front of argv, behind argv[0]. Returns -1 to go on, with their number in *out_noperands, else
 * the exit code: 0 after --help, 2 after a wrong command line, which has been told on stderr.
 */
int cli_parse(const cli_spec *spec, int argc, char **argv, void *args, int *out_noperands);
/* Gives back what CLI_LIST options hold. */
void cli_args_finish(const cli_spec *spec, void *args);

/* The option of commands that build an experiment; `at` is the offset of its bool. */
#define CLI_NO_PLUGINS(at)                                                                       \
    {                                                                                            \
        "no-plugins", 0, CLI_FLAG, at, NULL, "refuses files that would run a library's code", 0, \
            0, NULL                                                                              \
    }
/* Forbids plug-ins in this process and those that it starts, before it has threads. */
void cli_forbid_plugins(bool forbidden);

/* Says what is wrong with the command line, and how it should look. Returns CLI_USAGE. */
int cli_bad_usage(const cli_spec *spec, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The name that `text` was probably meant to be; NULL if none is near. names: n pointers to text,
 * `stride` bytes apart; NULL ones are passed over. */
const char *cli_nearest(const char *text, int n, const void *names, size_t stride);

#endif
