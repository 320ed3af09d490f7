/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target on stored inputs. usage: TARGET FILE-OR-FOLDER... */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static char current[4096]; /* what a crash names */

static int fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", path, what, strerror(errno));
    return -1;
}

static int replay_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return fail(path, "can't be opened");
    /* Of just its size, so that sanitizers see a read behind its end. */
    uint8_t *data = malloc(size ? size : 1);
    bool ok = data && fread(data, 1, size, f) == size;
    fclose(f);
    if (ok) {
        snprintf(current, sizeof current, "%s", path);
        LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    return ok ? 1 : fail(path, "can't be read");
}

/* The number of inputs replayed; -1 if one can't be read. */
static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return fail(path, "can't be read");
    if (!S_ISDIR(st.st_mode))
        return replay_file(path, (size_t)st.st_size);
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), count = 0;
    if (n < 0)
        return fail(path, "can't be read");
    for (int i = 0; i < n; i++) {
        char child[4096];
        snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && count >= 0) {
            int more = replay(child);
            count = more < 0 ? -1 : count + more;
        }
        free(entries[i]);
    }
    free(entries);
    return count;
}

static void tell_current(int signal)
{
    fprintf(stderr, "signal %d at input %s\n", signal, current);
    _Exit(1);
}

int main(int argc, char **argv)
{
    int total = 0;
    signal(SIGABRT, tell_current);
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0)
            return 1;
        total += count;
    }
    printf("%d inputs\n", total);
    /* A test that replays nothing tests nothing. */
    return total > 0 ? 0 : 1;
}
