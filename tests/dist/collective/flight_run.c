/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/collective/flight_run.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

const char *tessera;
char folder[64];

/* --- ranks that call -------------------------------------------------------------------------- */
tsr_status group_of(tsr_world *w, int n, const int *ranks, tsri_group **out)
{
    return w->comm->ops->group(w->comm, n, ranks, 0, out);
}

tsr_status all_ranks(tsr_world *w, tsri_group **out)
{
    const int ranks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    return group_of(w, w->nranks, ranks, out);
}

/* One call on n f32 at a fixed place of the arena. */
tsr_status call(tsr_world *w, tsri_group *g, tsri_coll_kind kind, int64_t n, int line)
{
    const tsri_segment s = {.src = w->region.base,
                            .dst = w->region.base + 65536,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(n),
                            .src_axis = -1,
                            .dst_axis = -1};
    const tsri_coll c = {.kind = kind,
                         .root = kind == TSRI_COLL_BROADCAST ? w->nranks - 1 : 0,
                         .nseg = 1,
                         .seg = &s,
                         .what = "grad",
                         .loc = {"a/train.c", line}};
    tsri_ticket t;
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    return w->comm->ops->release(g, &t);
}

tsr_status sum(tsr_world *w, tsri_group *g, int64_t n, int line)
{
    return call(w, g, TSRI_COLL_ALL_REDUCE, n, line);
}

/* --- folders ---------------------------------------------------------------------------------- */
int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tessera-flight-XXXXXX");
    return !mkdtemp(folder) || setenv("TESSERA_FLIGHT_DIR", folder, 1);
}

int close_folder(void **state)
{
    (void)state;
    char path[400];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
    unsetenv("TESSERA_FLIGHT_DIR");
    return rmdir(folder); /* nothing else is left */
}

void read_report(const char *dir, int rank, tsri_flight_report *out)
{
    static char text[4 << 20];
    char path[128];
    snprintf(path, sizeof path, "%s/flight.rank%d.txt", dir, rank);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    if (tsri_flight_parse(path, text, n, out) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(out->rank, rank);
}

/* The first line of `tessera flight` on the folder; *out_code: its exit code. */
const char *first_line(int *out_code)
{
    static char line[4096];
    char command[4400];
    snprintf(command, sizeof command, "'%s' flight '%s' 2>&1", tessera, folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    if (!fgets(line, sizeof line, f))
        line[0] = 0;
    while (fgetc(f) != EOF)
        ;
    int status = pclose(f);
    *out_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return line;
}

void expect_first(const char *start, const char *part)
{
    int code;
    const char *line = first_line(&code);
    if (code != 0 || strncmp(line, start, strlen(start)) || !strstr(line, part))
        fail_msg("expected '%s...%s...', got %d: %s", start, part, code, line);
}
