/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/options.h"
#include "src/cli/cli.h"
#include "src/core/near.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_ = 40, HELP_COLUMN = 22, HELP_COLUMN_MAX = 36, NO_ANSWER = -1 };

static const cli_option help_option = {"help", 'h', CLI_FLAG, 0, NULL, "this text", 0, 0, NULL};

/* --- near names ------------------------------------------------------------------------------- */
const char *cli_nearest(const char *text, int n, const void *names, size_t stride)
{
    int length = (int)strlen(text), best = length < 5 ? 2 : length < 9 ? 3 : 4;
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        const char *name;
        memcpy(&name, (const char *)names + (size_t)i * stride, sizeof name);
        int d = name ? tsri_edit_distance(text, name, best) : best;
        /* The beginning of one name is likely meant to be it. */
        if (name && length >= 2 && !strncmp(text, name, (size_t)length))
            d = 0;
        if (d < best) {
            best = d;
            nearest = name;
        }
    }
    return nearest;
}

/* --- saying ----------------------------------------------------------------------------------- */
int cli_bad_usage(const cli_spec *spec, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tsri_fshow(stderr, "tessera %s: ", spec->command);
    tsri_vfshow(stderr, fmt, ap);
    tsri_fshow(stderr, "\nusage: tessera %s %s\nTry `tessera %s --help`.\n", spec->command,
               spec->usage, spec->command);
    va_end(ap);
    return CLI_USAGE;
}

/* "-n, --ranks N", and behind it the options that share its line. Returns how many there are. */
static int left_side(const cli_option *o, int n, char *buf, size_t size)
{
    int i = 0;
    size_t used = 0;
    do {
        char letter[8] = "", name[48] = "";
        if (o[i].letter)
            snprintf(letter, sizeof letter, "-%c%s", o[i].letter, o[i].name ? ", " : "");
        if (o[i].name)
            snprintf(name, sizeof name, "--%s", o[i].name);
        used += (size_t)snprintf(buf + used, size - used, "%s%s%s%s%s", i ? ", " : "", letter, name,
                                 o[i].value ? " " : "", o[i].value ? o[i].value : "");
        i++;
    } while (i < n && !o[i].help && used < size);
    return i;
}

static int print_option(const cli_option *o, int n, int column)
{
    char left[96];
    int shared = left_side(o, n, left, sizeof left);
    const char *second = strchr(o->help, '\n');
    int first = second ? (int)(second - o->help) : (int)strlen(o->help);
    cli_say("  %-*s  %.*s\n", column, left, first, o->help);
    if (second)
        cli_say("  %-*s  %s\n", column, "", second + 1);
    return shared;
}

static int print_help(const cli_spec *spec)
{
    cli_say("usage: tessera %s %s\n\n", spec->command, spec->usage);
    cli_put_shown(stdout, spec->about);
    cli_say("\n\n");
    int column = HELP_COLUMN;
    for (int i = 0; i < spec->noptions;) {
        char left[96];
        i += left_side(&spec->options[i], spec->noptions - i, left, sizeof left);
        int width = (int)strlen(left);
        column = width > column && width <= HELP_COLUMN_MAX ? width : column;
    }
    for (int i = 0; i < spec->noptions;)
        i += print_option(&spec->options[i], spec->noptions - i, column);
    print_option(&help_option, 1, column);
    return CLI_OK;
}

static int no_option(const cli_spec *spec, const char *given)
{
    const char *names[33] = {help_option.name};
    char bare[NAME_MAX_ + 1];
    int n = 1;
    for (int i = 0; i < spec->noptions && n < 33; i++)
        names[n++] = spec->options[i].name;
    const char *from = given + strspn(given, "-");
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(from, "="), from);
    const char *near = cli_nearest(bare, n, names, sizeof *names);
    return cli_bad_usage(spec, "there is no option %.*s%s%s%s", (int)strcspn(given, "="), given,
                         near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

/* --- values ----------------------------------------------------------------------------------- */
static bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < min || v > max)
        return false;
    *out = v;
    return true;
}

static bool is_seconds(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    return end != text && !*end && v > 0 && v < 1e9;
}

/* K, M, G, T are powers of 1000; Ki, Mi, Gi, Ti of 1024; a B may follow. */
static bool parse_bytes(const char *text, int64_t *out)
{
    char *end;
    double v = strtod(text, &end), unit = 1;
    const char *prefixes = "KMGT", *p = *end ? strchr(prefixes, *end) : NULL;
    if (end == text)
        return false;
    if (p) {
        end++;
        bool binary = *end == 'i';
        end += binary;
        for (const char *q = prefixes; q <= p; q++)
            unit *= binary ? 1024 : 1000;
    }
    end += *end == 'B';
    if (*end || !(v >= 0) || v * unit > 0x1p62)
        return false;
    *out = (int64_t)llround(v * unit);
    return true;
}

static bool add_to_list(cli_list *list, const char *text)
{
    const char **items = realloc(list->items, (size_t)(list->n + 1) * sizeof *items);
    if (!items)
        return false;
    list->items = items;
    items[list->n++] = text;
    return true;
}

/* `given` is the option as the user wrote it. */
static int set_value(const cli_spec *spec, const cli_option *o, const char *given, const char *text,
                     void *args)
{
    char *at = (char *)args + o->offset;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)at = true;
        return NO_ANSWER;
    case CLI_TEXT:
        *(const char **)at = text;
        return NO_ANSWER;
    case CLI_SECONDS:
        if (!is_seconds(text))
            return cli_bad_usage(spec, "%s needs seconds, above 0, not %s", given, text);
        *(const char **)at = text;
        return NO_ANSWER;
    case CLI_INT:
        if (!parse_int(text, o->min, o->max, (int64_t *)at)) {
            if (o->max == INT64_MAX)
                return cli_bad_usage(spec, "%s needs %s, %lld or more, not %s", given, o->what,
                                     (long long)o->min, text);
            return cli_bad_usage(spec, "%s needs %s, %lld to %lld, not %s", given, o->what,
                                 (long long)o->min, (long long)o->max, text);
        }
        return NO_ANSWER;
    case CLI_BYTES:
        if (!parse_bytes(text, (int64_t *)at))
            return cli_bad_usage(spec, "%s needs bytes, like 512M or 1.5GiB, not %s", given, text);
        return NO_ANSWER;
    case CLI_LIST:
        if (add_to_list((cli_list *)at, text))
            return NO_ANSWER;
        tsri_fshow(stderr, "tessera %s: out of memory\n", spec->command);
        return CLI_FAILED;
    }
    return NO_ANSWER;
}

/* --master_port is --master-port: torchrun's users write either. */
static bool same_name(const char *name, const char *given, size_t length)
{
    if (strlen(name) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (given[i] == '_' ? '-' : given[i]))
            return false;
    return true;
}

static const cli_option *find_long(const cli_spec *spec, const char *name, size_t length)
{
    for (int i = -1; i < spec->noptions; i++) {
        const cli_option *o = i < 0 ? &help_option : &spec->options[i];
        if (o->name && same_name(o->name, name, length))
            return o;
    }
    return NULL;
}

static const cli_option *find_letter(const cli_spec *spec, char letter)
{
    for (int i = -1; i < spec->noptions; i++) {
        const cli_option *o = i < 0 ? &help_option : &spec->options[i];
        if (o->letter && o->letter == letter)
            return o;
    }
    return NULL;
}

/* One option at argv[*i], with its value. */
static int parse_option(const cli_spec *spec, int argc, char **argv, int *i, void *args)
{
    char *given = argv[*i];
    bool is_long = given[1] == '-';
    char *value = is_long ? strchr(given, '=') : given[2] ? given + 2 : NULL;
    const cli_option *o =
        is_long
            ? find_long(spec, given + 2, value ? (size_t)(value - given - 2) : strlen(given + 2))
            : find_letter(spec, given[1]);
    if (!o)
        return no_option(spec, given);
    if (is_long && value)
        *value++ = 0;
    if (o == &help_option)
        return print_help(spec);
    if (o->kind == CLI_FLAG && value)
        return cli_bad_usage(spec, is_long ? "%s takes no value" : "there is no option %s", given);
    if (o->kind != CLI_FLAG && !value) {
        if (*i + 1 >= argc)
            return cli_bad_usage(spec, "a value is missing after %s", given);
        value = argv[++*i];
    }
    char letter[3] = {'-', o->letter, 0};
    return set_value(spec, o, is_long ? given : letter, value, args);
}

int cli_parse(const cli_spec *spec, int argc, char **argv, void *args, int *out_noperands)
{
    int n = 0;
    bool all_operands = false;
    for (int i = 1; i < argc; i++) {
        bool is_option = !all_operands && argv[i][0] == '-' && argv[i][1];
        if (is_option && !strcmp(argv[i], "--")) {
            all_operands = true;
        } else if (is_option) {
            int code = parse_option(spec, argc, argv, &i, args);
            if (code != NO_ANSWER)
                return code;
        } else {
            argv[1 + n++] = argv[i];
            all_operands |= spec->is_wrapper;
        }
    }
    argv[1 + n] = NULL;
    if (n < spec->min_operands)
        return cli_bad_usage(spec, "%s", spec->missing);
    if (n > spec->max_operands && !spec->is_wrapper)
        return cli_bad_usage(spec, "there is no use for '%s'", argv[1 + spec->max_operands]);
    *out_noperands = n;
    return NO_ANSWER;
}

void cli_args_finish(const cli_spec *spec, void *args)
{
    for (int i = 0; i < spec->noptions; i++)
        if (spec->options[i].kind == CLI_LIST) {
            cli_list *list = (cli_list *)((char *)args + spec->options[i].offset);
            free(list->items);
            *list = (cli_list){0};
        }
}

void cli_forbid_plugins(bool forbidden)
{
    if (forbidden)
        setenv("TESSERA_NO_PLUGINS", "1", 1);
}
