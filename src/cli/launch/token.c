/* SPDX-License-Identifier: Apache-2.0 */
/* The token that ranks and launchers of a run prove to its store. It never stands on a command
 * line, where every user of the machine can read it. */
#include "src/cli/cli.h"
#include "src/cli/launch/launch.h"
#include "src/comm/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANDOM_BYTES = 32, FILE_ROOM = 4096 };

static int fail(const char *path, const char *why)
{
    tsri_fshow(stderr, "tessera launch: --token-file %s: %s\n", path, why);
    return CLI_FAILED;
}

/* Refuses a file that others may read, or may have written. */
static int check_file(const char *path, int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return fail(path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(path, "not a regular file");
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return fail(path, "the file is another user's");
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return fail(path, "others may read or write the file: chmod 600 it");
    return CLI_OK;
}

/* The file's only line. */
static int read_file(const char *path, char text[FILE_ROOM])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail(path, strerror(errno));
    int code = check_file(path, fd);
    size_t used = 0;
    ssize_t n = 1;
    while (code == CLI_OK && n != 0 && used < FILE_ROOM - 1) {
        n = read(fd, text + used, FILE_ROOM - 1 - used);
        if (n < 0 && errno != EINTR)
            code = fail(path, strerror(errno));
        used += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    while (used > 0 && (text[used - 1] == '\n' || text[used - 1] == '\r'))
        used--;
    text[used] = 0;
    return code;
}

static int make_token(char text[FILE_ROOM])
{
    unsigned char bytes[RANDOM_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
        tsri_fshow(stderr, "tessera launch: no random numbers: %s\n", strerror(errno));
        return CLI_FAILED;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return CLI_OK;
}

int launch_take_token(const launch_config *c)
{
    const char *given = getenv("TESSERA_STORE_TOKEN"), *from = "TESSERA_STORE_TOKEN";
    char text[FILE_ROOM] = "";
    int code = CLI_OK;
    if (c->token_file)
        code = read_file(from = c->token_file, text);
    else if (given && *given)
        snprintf(text, sizeof text, "%s", given);
    else if (c->nnodes == 1)
        code = make_token(text);
    else
        return CLI_OK;
    if (code == CLI_OK && tsri_store_check_token(from, text) != TSR_OK) {
        tsri_fshow(stderr, "tessera launch: %s\n", tsr_last_error());
        code = CLI_FAILED;
    }
    if (code == CLI_OK && setenv("TESSERA_STORE_TOKEN", text, 1)) {
        tsri_fshow(stderr, "tessera launch: out of memory\n");
        code = CLI_FAILED;
    }
    return code;
}

void launch_warn_of_no_token(const launch *l)
{
    const char *token = getenv("TESSERA_STORE_TOKEN");
    if (l->nodes && l->node_rank == 0 && (!token || !*token))
        tsri_fshow(
            stderr,
            "tessera launch: there is no TESSERA_STORE_TOKEN: whoever reaches port %d of %s can "
            "read and change this run\n",
            l->config.port, l->config.addr);
}
