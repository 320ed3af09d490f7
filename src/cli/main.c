/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/cli.h"
#include "src/cli/options.h"

#include <tessera/base.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name, *summary;
    cli_command_fn *run;
} commands[] = {
    {"box", "how a tensor gets from one signature to another, and who holds what", cli_box},
    {"plan", "what an experiment would do on any number of ranks, and why", cli_plan},
    {"run", "train an experiment's model, or compute its graph", cli_run},
    {"schema", "what an experiment may say, for editors; or what one says, in full", cli_schema},
    {"trace", "where the time of a traced step went", cli_trace},
    {"ckpt", "what checkpoints have in them, and whether it is whole", cli_ckpt},
    {"info", "this machine, this build, and what links cost here", cli_info},
    {"flight", "which rank held up a failed run, by its recorded calls", cli_flight},
    {"launch", "run a program as several ranks on this machine", cli_launch},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *f)
{
    tsri_fshow(f, "usage: tessera COMMAND [ARGS...]\n"
                  "       tessera --version | --help\n"
                  "\n"
                  "commands:\n");
    for (int i = 0; i < COMMANDS; i++)
        tsri_fshow(f, "  %-8s %s\n", commands[i].name, commands[i].summary);
    tsri_fshow(f, "\n`tessera COMMAND --help` tells more; see also tessera(1).\n");
}

bool cli_spins_freely(void)
{
    return !getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY");
}

/* Starts this program once more, with the variable that OpenMP has read by now. Where that fails
 * nothing is lost. */
static void bound_spinning(char **argv)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    cpu_set_t set;
    const bool alone = threads ? !strcmp(threads, "1")
                               : sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < 2;
    if (!alone && cli_spins_freely() && !setenv("GOMP_SPINCOUNT", CLI_SPINS, 0))
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--version")) {
        cli_say("tessera %s\n", TSR_VERSION_STRING);
        return cli_end(CLI_OK);
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
        return cli_end(CLI_OK);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name)) {
            if (commands[i].run == cli_run) /* which computes with a team */
                bound_spinning(argv);
            return cli_end(commands[i].run(argc - 1, argv + 1));
        }
    const char *near = cli_nearest(name, COMMANDS, &commands[0].name, sizeof commands[0]);
    tsri_fshow(stderr, "tessera: there is no command '%s'%s%s%s\nTry `tessera --help`.\n", name,
               near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return CLI_USAGE;
}
