/* SPDX-License-Identifier: Apache-2.0 */
/* The command's own interface: subcommands, and how they talk. */
#ifndef TESSERA_CLI_CLI_H
#define TESSERA_CLI_CLI_H

/* Exit codes beside those of the programs that are run. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_CANT_RUN = 126, CLI_NOT_FOUND = 127 };

/* argv[0] is the subcommand's name. Returns the exit code. */
typedef int cli_command_fn(int argc, char **argv);

cli_command_fn cli_launch;

#endif
