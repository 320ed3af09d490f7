/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chrome's trace events (Trace Event Format, Google, 2016): a process per rank, with a row for
 * computing and one for communication; collectives under way meanwhile are asynchronous events.
 * Ranks may be processes: each writes its own part, and rank 0 puts them together.
 */
#include "src/cli/run/run.h"
#include "src/core/new_file.h"
#include "src/exec/trace.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MAX_ = 4096, COMPUTE = 0, COMMUNICATION = 1 };

static tsr_status part_path(const run_rank *r, int rank, char *path)
{
    int n = snprintf(path, PATH_MAX_, "%s/.trace.%d", r->job->out, rank);
    return n > 0 && n < PATH_MAX_
               ? TSR_OK
               : tsr_set_error(TSR_ERR_IO, "%.100s...: the name is too long", r->job->out);
}

/* A name has no quotes, as those of a file are letters, digits, _ and -. */
static void put_name(FILE *f, const tsri_trace_span *s, const char *suffix)
{
    const char *name = s->step->item->name;
    bool named = name && name[0];
    fprintf(f, "\"name\":\"%s%s%s%s\"", s->what, named ? " " : "", named ? name : "", suffix);
}

static const char *suffix_of(const tsri_step *s)
{
    return s->kind == TSRI_STEP_FINISH    ? " (wait)"
           : s->kind == TSRI_STEP_RELEASE ? " (release)"
                                          : "";
}

static void put_span(FILE *f, int rank, const tsri_trace_span *s, double start_s)
{
    const tsri_step *step = s->step;
    bool comm = step->kind >= TSRI_STEP_START;
    fputs(",\n{", f);
    put_name(f, s, suffix_of(step));
    fprintf(f, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\"", rank,
            comm ? COMMUNICATION : COMPUTE, (s->start_s - start_s) * 1e6,
            (s->end_s - s->start_s) * 1e6, comm ? "communication" : "compute");
    char part[32] = "";
    if (s->part >= 0)
        snprintf(part, sizeof part, ",\"micro-batch\":%d", s->part);
    if (step->kind == TSRI_STEP_START)
        fprintf(f, ",\"args\":{\"bytes\":%llu%s}", (unsigned long long)step->call->bytes, part);
    else if (step->kind == TSRI_STEP_KERNEL && step->item->kernel.impl)
        fprintf(f, ",\"args\":{\"kernel\":\"%s\"%s}", step->item->kernel.impl, part);
    else if (part[0])
        fprintf(f, ",\"args\":{%s}", part + 1);
    fputc('}', f);
}

/* From its start to its end: what the critical path need not wait for. */
static void put_flight(FILE *f, int rank, const tsri_trace_span *s, int id, double start_s)
{
    bool begins = s->step->kind == TSRI_STEP_START;
    fputs(",\n{", f);
    put_name(f, s, "");
    fprintf(f, ",\"ph\":\"%s\",\"id\":%d,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"cat\":\"under way\"}",
            begins ? "b" : "e", id, rank, COMMUNICATION,
            ((begins ? s->start_s : s->end_s) - start_s) * 1e6);
}

static void put_rank(FILE *f, const run_rank *r, double start_s)
{
    static const char *const rows[] = {"compute", "communication"};
    int rank = tsr_world_rank(r->world);
    fprintf(f,
            "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
            rank ? ",\n" : "", rank, rank);
    for (int i = 0; i < 2; i++)
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
                "\"name\":\"%s\"}}",
                rank, i, rows[i]);
    for (int i = 0; i < tsri_trace_count(r->plan); i++) {
        tsri_trace_span s = tsri_trace_get(r->plan, i);
        put_span(f, rank, &s, start_s);
        /* Items number calls: the start and the end of one have the same. */
        if (s.step->kind == TSRI_STEP_START || s.step->kind == TSRI_STEP_FINISH)
            put_flight(f, rank, &s, (int)(s.step->item - r->plan->ir.items), start_s);
    }
}

/* Removes a rank's part, after it was copied; to NULL: only removes it. */
static bool append(FILE *to, const char *path)
{
    char data[65536];
    FILE *f = to ? fopen(path, "re") : NULL;
    size_t n = 0;
    while (f && (n = fread(data, 1, sizeof data, f)) > 0)
        fwrite(data, 1, n, to);
    bool ok = f && !ferror(f);
    if (f)
        fclose(f);
    unlink(path);
    return ok;
}

static tsr_status join(const run_rank *r)
{
    char path[PATH_MAX_], part[PATH_MAX_];
    int n = snprintf(path, sizeof path, "%s/trace.json", r->job->out);
    tsri_new_file file = {.fd = -1};
    int rc = n > 0 && n < PATH_MAX_ ? tsri_new_file_stream(&file, path) : -ENAMETOOLONG;
    bool ok = true;
    if (!rc)
        fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file.stream);
    for (int i = 0; i < tsr_world_size(r->world); i++)
        ok &= part_path(r, i, part) == TSR_OK && append(rc ? NULL : file.stream, part);
    if (!rc) {
        fputs("\n]}\n", file.stream);
        rc = ok ? tsri_new_file_keep(&file, false) : -EIO;
    }
    tsri_new_file_drop(&file);
    return rc ? tsr_set_error(TSR_ERR_IO, "%s: %s", path, strerror(-rc)) : TSR_OK;
}

/* One that an earlier run or somebody else has left there is removed. */
static tsr_status write_part(const run_rank *r, const char *path, double start_s)
{
    tsri_new_file file;
    unlink(path);
    int rc = tsri_new_file_stream(&file, path);
    if (!rc) {
        put_rank(file.stream, r, start_s);
        rc = tsri_new_file_keep(&file, false);
    }
    return rc ? tsr_set_error(TSR_ERR_IO, "%s: %s", path, strerror(-rc)) : TSR_OK;
}

tsr_status run_write_trace(const run_rank *r)
{
    char path[PATH_MAX_];
    double start_s = 0;
    for (int i = 0; i < tsr_world_size(r->world); i++) {
        double t = r->all[i].trace_start_s;
        start_s = t > 0 && (start_s == 0 || t < start_s) ? t : start_s;
    }
    TSRI_TRY(part_path(r, tsr_world_rank(r->world), path));
    tsr_status status = write_part(r, path, start_s);
    if (status == TSR_OK)
        status = tsr_world_barrier(r->world);
    if (status != TSR_OK) {
        unlink(path);
        return status;
    }
    return tsr_world_rank(r->world) == 0 ? join(r) : TSR_OK;
}
