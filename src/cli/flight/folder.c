/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of dumps. */
#include "src/cli/flight/command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 64 << 20 };

static bool is_dump(const char *name)
{
    static const char start[] = "flight.rank";
    if (strncmp(name, start, sizeof start - 1))
        return false;
    size_t n = strspn(name + sizeof start - 1, "0123456789");
    return n > 0 && !strcmp(name + sizeof start - 1 + n, ".txt");
}

static int is_dump_entry(const struct dirent *e)
{
    return is_dump(e->d_name);
}

static tsr_status no_memory(void)
{
    return tsri_fail(TSR_ERR_NO_MEMORY, "no memory to read the dumps");
}

static tsr_status put_aside(flight_folder *f, const char *name, bool broken, const char *why)
{
    flight_aside *more = realloc(f->aside, (size_t)(f->naside + 1) * sizeof *more);
    if (!more)
        return no_memory();
    f->aside = more;
    f->aside[f->naside] =
        (flight_aside){.name = strdup(name), .why = strdup(why), .broken = broken};
    f->naside++;
    return f->aside[f->naside - 1].name && f->aside[f->naside - 1].why ? TSR_OK : no_memory();
}

/* *out_text: to be freed. Returns 0 or an errno. */
static int load(const char *path, char **out_text, size_t *out_size)
{
    struct stat st;
    /* Without O_NONBLOCK a FIFO would be waited for. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    int rc = file ? 0 : errno;
    if (!file) {
        if (fd >= 0)
            close(fd);
        return rc;
    }
    rc = fstat(fd, &st) ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
    if (!rc && st.st_size > MOST_BYTES)
        rc = EFBIG;
    size_t size = rc ? 0 : (size_t)st.st_size;
    char *text = rc ? NULL : malloc(size + 1);
    if (!rc && !text)
        rc = ENOMEM;
    if (!rc && fread(text, 1, size, file) != size)
        rc = EIO;
    fclose(file);
    if (rc) {
        free(text);
        return rc;
    }
    *out_text = text;
    *out_size = size;
    return 0;
}

static tsr_status read_one(flight_folder *f, const char *dir, const char *name)
{
    char path[4400], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%.4000s/%.255s", dir, name);
    int rc = load(path, &text, &size);
    if (rc)
        return put_aside(f, name, true, strerror(rc));
    tsri_flight_report report;
    tsr_status status = tsri_flight_parse(name, text, size, &report);
    free(text);
    if (status == TSR_ERR_FORMAT)
        return put_aside(f, name, true, tsr_last_error());
    TSRI_TRY(status);
    f->reports[f->n++] = report;
    return TSR_OK;
}

/* --- runs ------------------------------------------------------------------------------------- */
static bool same_run(const tsri_flight_report *a, const tsri_flight_report *b)
{
    return !strcmp(a->run, b->run) && a->restart == b->restart;
}

/* Keeps the dumps of the run whose dump is the latest, and puts the others aside. */
static tsr_status keep_latest(flight_folder *f)
{
    tsri_flight_report latest = f->reports[0];
    int kept = 0, n = f->n;
    for (int i = 1; i < n; i++)
        if (f->reports[i].time_ns > latest.time_ns)
            latest = f->reports[i];
    tsr_status status = TSR_OK;
    for (int i = 0; i < n; i++) {
        tsri_flight_report *r = &f->reports[i];
        bool twice = kept > 0 && f->reports[kept - 1].rank == r->rank, same = same_run(r, &latest);
        char name[64], why[320];
        if (same && !twice) {
            f->reports[kept++] = *r;
            continue;
        }
        snprintf(name, sizeof name, "flight.rank%d.txt", r->rank);
        if (same)
            snprintf(why, sizeof why, "a second file of rank %d", r->rank);
        else
            snprintf(why, sizeof why,
                     "of another run (%s, restart %d; the latest is %s, restart %d)", r->run,
                     r->restart, latest.run, latest.restart);
        if (status == TSR_OK)
            status = put_aside(f, name, false, why);
        tsri_flight_report_finish(r);
    }
    f->n = kept;
    return status;
}

static int by_rank(const void *a, const void *b)
{
    const tsri_flight_report *p = a, *q = b;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

static tsr_status read_all(flight_folder *f, const char *dir, struct dirent **names, int n)
{
    f->reports = calloc((size_t)n + 1, sizeof *f->reports);
    if (!f->reports)
        return no_memory();
    for (int i = 0; i < n; i++)
        TSRI_TRY(read_one(f, dir, names[i]->d_name));
    if (f->n == 0)
        return n == 0 ? tsri_fail(TSR_ERR_IO,
                                  "'%s' has no dumps of the flight recorder (flight.rank<R>.txt): "
                                  "run with TESSERA_FLIGHT_DIR set to it",
                                  dir)
                      : tsri_fail(TSR_ERR_FORMAT, "no dump in '%s' can be read; %s", dir,
                                  f->aside[0].why);
    qsort(f->reports, (size_t)f->n, sizeof *f->reports, by_rank);
    TSRI_TRY(keep_latest(f));
    return tsri_flight_judge(f->reports, f->n, &f->verdict);
}

tsr_status flight_folder_read(const char *dir, flight_folder *out_folder)
{
    struct dirent **names;
    flight_folder f = {0};
    int n = scandir(dir, &names, is_dump_entry, alphasort);
    if (n < 0)
        return tsri_fail(TSR_ERR_IO, "can't read the folder '%s': %s", dir, strerror(errno));
    tsr_status status = read_all(&f, dir, names, n);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    if (status == TSR_OK)
        *out_folder = f;
    else
        flight_folder_finish(&f);
    return status;
}

void flight_folder_finish(flight_folder *f)
{
    for (int i = 0; i < f->n; i++)
        tsri_flight_report_finish(&f->reports[i]);
    free(f->reports);
    for (int i = 0; i < f->naside; i++) {
        free(f->aside[i].name);
        free(f->aside[i].why);
    }
    free(f->aside);
    tsri_flight_verdict_finish(&f->verdict);
    *f = (flight_folder){0};
}

/* --- who is shown ----------------------------------------------------------------------------- */
bool flight_is_guilty(const flight_folder *f, int rank)
{
    for (int i = 0; i < f->verdict.nguilty; i++)
        if (f->verdict.guilty[i] == rank)
            return true;
    return false;
}

/* Whether a call is on record that the rank has not finished. */
static bool is_unfinished(const tsri_flight_report *r)
{
    for (int i = 0; i < r->ncalls; i++)
        if (r->call[i].said.world == r->world &&
            (r->call[i].state == TSRI_FLIGHT_STARTED || r->call[i].state == TSRI_FLIGHT_SCHEDULED ||
             r->call[i].state == TSRI_FLIGHT_FAILED))
            return true;
    return false;
}

int flight_folder_concerned(const flight_folder *f, int64_t rank, int most, int *out_reports)
{
    int n = 0;
    for (int guilty = 1; guilty >= 0; guilty--) {
        for (int i = 0; i < f->n && n < most; i++) {
            const tsri_flight_report *r = &f->reports[i];
            if (flight_is_guilty(f, r->rank) != guilty)
                continue;
            if (rank >= 0 ? r->rank == rank : guilty || is_unfinished(r))
                out_reports[n++] = i;
        }
    }
    return n;
}
