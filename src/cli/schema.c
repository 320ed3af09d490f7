/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera schema`: what an experiment may say, or what one does say, in full. */
#include "src/cli/cli.h"
#include "src/cli/options.h"
#include "src/config/experiment.h"

typedef struct schema_args {
    cli_list sets;
    bool no_plugins;
} schema_args;

static const cli_option options[] = {
    {"set", 's', CLI_LIST, offsetof(schema_args, sets), "PATH=VALUE",
     "overrides an entry of the file; may be given again", 0, 0, NULL},
    CLI_NO_PLUGINS(offsetof(schema_args, no_plugins)),
};

static const cli_spec spec = {
    .command = "schema",
    .usage = "[FILE.yaml] [OPTIONS]",
    .about =
        "Prints the JSON Schema of experiments; editors use it to complete and check them. If a\n"
        "FILE.yaml is given, prints that file in full instead: included files are merged in,\n"
        "variables have their values, a strategy is written out as rules, and defaults are\n"
        "filled in. See tessera-yaml(5).",
    CLI_OPTIONS(options),
    .min_operands = 0,
    .max_operands = 1,
};

static tsr_status print_file(const char *path, const cli_list *sets)
{
    tsri_experiment *e = NULL;
    TSR_TRY(tsri_experiment_load(path, sets->n, sets->items, &e));
    tsr_status status = tsri_experiment_dump(e, stdout);
    tsri_experiment_destroy(e);
    return status;
}

int cli_schema(int argc, char **argv)
{
    schema_args a = {0};
    int n, code = cli_parse(&spec, argc, argv, &a, &n);
    if (code < 0 && a.sets.n && !n)
        code = cli_bad_usage(&spec, "--set needs a FILE.yaml that it is of");
    cli_forbid_plugins(a.no_plugins);
    if (code < 0) {
        tsr_status status = n ? print_file(argv[1], &a.sets) : tsri_config_json_schema(stdout);
        /* cli_end tells what could not be printed. */
        code = status == TSR_OK || ferror(stdout) ? CLI_OK : cli_fail("schema");
    }
    cli_args_finish(&spec, &a);
    return code;
}
