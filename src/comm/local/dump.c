/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's record as text: flight.rank<R>.txt. One thing a line, the words of a line in a fixed
 * order:
 *
 *   tessera flight 1                                  the form's version
 *   run 9f86d081884c7d65                              what tells the run from others
 *   rank 1 of 3
 *   world 1                                           how many the process has made; 0: none yet
 *   restart 0                                         of the run, by its launcher
 *   host box
 *   pid 4711
 *   time 1763784228123456789 2025-11-22T04:03:48Z     of the dump; times are ns since 1970
 *   reason TSR_ERR_TIMEOUT: rank 0 did not ...        "-": none
 *   exit signal 9                                     -, "code N", "stopped" by the launcher
 *   calls 5000
 *   group 1 comm=local lane=0 nranks=3 ranks=0,1,2 started=17 completed=16
 *   call 5000 state=failed group=1 world=1 seq=17 shown=0 kind=all_reduce algo=0 op=sum root=-
 *     dtype=f32 shape=4,2 segments=1 bytes=32 hash=00f1.. asked=176.. started=176.. ended=0 waits=2
 *     at="train.c:31" what="grad"                     (one line)
 *   end
 *
 * Calls come in their order; the oldest are gone from the ring. `waits` is the rank that this one
 * slept for last: N while it does (or did when it gave up), ~N when that has come, - for none.
 */
#include "src/comm/flight/flight.h"
#include "src/comm/local/arena.h"
#include "src/comm/comm.h"
#include "src/core/new_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- words ------------------------------------------------------------------------------------ */
static const char *const states[] = {"empty", "scheduled", "started", "completed", "failed"};

const char *tsri_flight_kind_name(int kind)
{
    return kind >= 0 && kind <= TSRI_COLL_SCATTER_ ? tsri_coll_kind_name(kind) : NULL;
}

const char *tsri_flight_state_name(int state)
{
    return state >= 0 && state <= TSRI_FLIGHT_FAILED ? states[state] : NULL;
}

const char *tsri_flight_dtype_name(int dtype)
{
    if (dtype == TSR_DTYPE_NONE)
        return "-";
    return dtype > 0 && dtype < TSR_DTYPE_COUNT_ ? tsr_dtype_name((tsr_dtype)dtype) : NULL;
}

const char *tsri_flight_op_name(int op)
{
    return op >= 0 && op <= TSR_REDUCE_AVG ? tsri_reduce_name(op) : NULL;
}

/* --- reading the ring ------------------------------------------------------------------------- */
/* Whether no writer came between. */
static int copy_once(const tsri_flight_entry *e, tsri_flight_seen *out)
{
    uint64_t word[TSRI_FLIGHT_WORDS];
    uint64_t mark = atomic_load_explicit(&e->mark, memory_order_acquire);
    out->number = tsri_flight_number_of(mark);
    out->state = tsri_flight_state_of(mark);
    out->waits = (int)atomic_load_explicit(&e->waits, memory_order_acquire);
    out->started_ns = atomic_load_explicit(&e->started_ns, memory_order_acquire);
    out->ended_ns = atomic_load_explicit(&e->ended_ns, memory_order_acquire);
    for (int i = 0; i < TSRI_FLIGHT_WORDS; i++)
        word[i] = atomic_load_explicit(&e->word[i], memory_order_acquire);
    memcpy(&out->call, word, sizeof word);
    return out->state != TSRI_FLIGHT_HELD &&
           mark == atomic_load_explicit(&e->mark, memory_order_acquire);
}

int tsri_flight_copy(const tsri_flight *f, int place, tsri_flight_seen *out)
{
    enum { TRIES = 1000 };
    tsri_flight_call *c = &out->call;
    int whole = 0;
    for (int i = 0; i < TRIES && !whole; i++)
        whole = copy_once(&f->entry[place], out);
    c->what[sizeof c->what - 1] = c->file[sizeof c->file - 1] = 0;
    /* The record of a process that was killed may hold anything. */
    return whole && out->number > 0 && (out->number - 1) % TSRI_FLIGHT_CALLS == (uint64_t)place &&
           tsri_flight_state_name(out->state) && tsri_flight_kind_name(c->kind) &&
           tsri_flight_op_name(c->op) && tsri_flight_dtype_name(c->dtype) &&
           c->ndim <= TSR_MAX_NDIM && c->group >= 0 && c->group <= TSRI_FLIGHT_GROUPS;
}

/* --- writing ---------------------------------------------------------------------------------- */
/* In quotes, so that a line stays a line. */
static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void put_line_of(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text, out);
    fputc('\n', out);
}

/* One word: a user's TESSERA_RUN_ID may be anything. */
static void put_word(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text <= ' ' || *text == 0x7f ? '_' : *text, out);
}

static void put_call(FILE *out, const tsri_flight_seen *e)
{
    const tsri_flight_call *c = &e->call;
    char at[64] = "";
    fprintf(out,
            "call %" PRIu64 " state=%s group=%d world=%d seq=%" PRIu64 " shown=%" PRIu64
            " kind=%s algo=%d op=%s",
            e->number, states[e->state], c->group, c->world, c->seq, c->shown,
            tsri_coll_kind_name(c->kind), c->algo,
            tsri_coll_has_op(c->kind) ? tsri_reduce_name(c->op) : "-");
    if (tsri_coll_has_root(c->kind))
        fprintf(out, " root=%d", c->root);
    else
        fputs(" root=-", out);
    fprintf(out, " dtype=%s shape=", tsri_flight_dtype_name(c->dtype));
    for (int i = 0; i < c->ndim; i++)
        fprintf(out, "%s%" PRId64, i ? "," : "", c->shape[i]);
    fprintf(out, "%s segments=%d bytes=%" PRIu64 " hash=%016" PRIx64, c->ndim ? "" : "-", c->nseg,
            c->bytes, c->hash);
    fprintf(out, " asked=%" PRId64 " started=%" PRId64 " ended=%" PRId64, c->asked_ns,
            e->started_ns, e->ended_ns);
    if (e->waits)
        fprintf(out, " waits=%s%d at=", e->waits < 0 ? "~" : "",
                (e->waits < 0 ? -e->waits : e->waits) - 1);
    else
        fputs(" waits=- at=", out);
    if (c->file[0])
        snprintf(at, sizeof at, "%s:%d", c->file, c->line);
    put_quoted(out, at);
    fputs(" what=", out);
    put_quoted(out, c->what);
    fputc('\n', out);
}

static void put_group(FILE *out, const tsri_flight *f, int i)
{
    const tsri_flight_group *g = &f->group[i];
    if (!atomic_load_explicit(&g->ready, memory_order_acquire))
        return;
    fprintf(out, "group %d comm=%.15s lane=%d nranks=%d ranks=", i + 1, g->comm, g->lane,
            g->nranks);
    for (int r = 0; r < g->nranks && r < TSRI_FLIGHT_GROUP_RANKS; r++)
        fprintf(out, "%s%d", r ? "," : "", g->ranks[r]);
    fprintf(out, " started=%" PRIu64 " completed=%" PRIu64 "\n", atomic_load(&g->started),
            atomic_load(&g->completed));
}

static void put_head(FILE *out, const tsri_flight *f, const tsri_flight_about *about)
{
    char host[65] = "?", when[32] = "?";
    struct timespec now;
    struct tm tm;
    int world = atomic_load(&f->world), status = atomic_load(&f->exit_status);
    const char *run = world ? f->run : about->run ? about->run : "?";
    gethostname(host, sizeof host - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &tm))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    fputs("tessera flight 1\nrun ", out);
    put_word(out, run[0] ? run : "?");
    fprintf(out, "\nrank %d of %d\n", world ? atomic_load(&f->rank) : about->rank,
            world ? atomic_load(&f->nranks) : about->nranks);
    fprintf(out, "world %d\nrestart %d\nhost %s\npid %d\ntime %" PRId64 " %s\nreason ", world,
            world ? atomic_load(&f->restart) : about->restart, host, atomic_load(&f->pid),
            (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, when);
    put_line_of(out, about->reason && about->reason[0] ? about->reason : "-");
    switch (atomic_load(&f->exit)) {
    case TSRI_FLIGHT_EXITED:
        fprintf(out, "exit code %d\n", status);
        break;
    case TSRI_FLIGHT_KILLED:
        fprintf(out, "exit signal %d\n", status);
        break;
    case TSRI_FLIGHT_STOPPED:
        fprintf(out, "exit stopped\n");
        break;
    default:
        fprintf(out, "exit -\n");
    }
    fprintf(out, "calls %" PRIu64 "\n", atomic_load(&f->calls));
}

static void put_all(FILE *out, const tsri_flight *f, const tsri_flight_about *about)
{
    /* Another thread may go on recording: what comes now may lack, or name a group that does. */
    uint64_t calls = atomic_load(&f->calls), before = 0;
    int ngroups = atomic_load(&f->ngroups);
    put_head(out, f, about);
    for (int i = 0; i < ngroups && i < TSRI_FLIGHT_GROUPS; i++)
        put_group(out, f, i);
    for (int i = 0; i < TSRI_FLIGHT_CALLS; i++) {
        tsri_flight_seen e;
        if (!tsri_flight_copy(f, (int)((calls + (uint64_t)i) % TSRI_FLIGHT_CALLS), &e) ||
            e.number <= before)
            continue;
        put_call(out, &e);
        before = e.number;
    }
    fputs("end\n", out);
}

static void tell(const tsri_flight_about *about, const char *path, int rc)
{
    char text[4300];
    snprintf(text, sizeof text, "%s: can't be written: %s", path, strerror(-rc));
    about->log(about->log_arg, TSR_LOG_WARNING, text);
}

int tsri_flight_write(const tsri_flight *f, const tsri_flight_about *about, const char *dir)
{
    char path[4200];
    tsri_new_file file;
    int rank = atomic_load(&f->world) ? atomic_load(&f->rank) : about->rank;
    int rc = tsri_make_folders(dir, 0777);
    snprintf(path, sizeof path, "%.4096s/flight.rank%d.txt", dir, rank);
    /* Threads of a rank may write at once: the last one's stays. */
    if (!rc)
        rc = tsri_new_file_stream(&file, path);
    if (!rc) {
        put_all(file.stream, f, about);
        rc = tsri_new_file_keep(&file, false);
    }
    if (rc && about->log)
        tell(about, path, rc);
    return rc;
}

/* --- the launcher's --------------------------------------------------------------------------- */
static off_t flight_at(const tsri_arena_head *head, int rank)
{
    tsri_arena_layout l = tsri_arena_layout_of((int)head->nranks, head->bytes_per_rank);
    return (off_t)(l.flights + (size_t)rank * sizeof(tsri_flight));
}

static int read_head(int fd, tsri_arena_head *out)
{
    ssize_t n = pread(fd, out, sizeof *out, 0);
    if (n < 0)
        return -errno;
    if (n != (ssize_t)sizeof *out || !out->nranks || out->nranks > TSRI_ARENA_MAX_RANKS)
        return -EINVAL;
    return 0;
}

void tsri_flight_note_exit(int fd, int rank, int code, int status, int stopping)
{
    tsri_arena_head head;
    if (read_head(fd, &head) || rank < 0 || (uint64_t)rank >= head.nranks)
        return;
    int32_t how[2] = {stopping             ? TSRI_FLIGHT_STOPPED
                      : code == CLD_EXITED ? TSRI_FLIGHT_EXITED
                                           : TSRI_FLIGHT_KILLED,
                      status};
    _Static_assert(offsetof(tsri_flight, exit_status) == offsetof(tsri_flight, exit) + 4,
                   "side by side");
    /* A failure costs a word of a report. */
    if (pwrite(fd, how, sizeof how, flight_at(&head, rank) + (off_t)offsetof(tsri_flight, exit)) <
        0)
        return;
}

int tsri_flight_dump_ended(const tsri_flight *f, const tsri_flight_about *about, const char *dir)
{
    int world = atomic_load(&f->world);
    if (!dir || !dir[0] || (world && atomic_load(&f->dumped) == world))
        return 0;
    return tsri_flight_write(f, about, dir);
}

static int dump_one(int fd, const tsri_arena_head *head, tsri_flight *f, int rank, const char *dir,
                    const tsri_flight_about *about)
{
    ssize_t n = pread(fd, f, sizeof *f, flight_at(head, rank));
    if (n != (ssize_t)sizeof *f)
        return n < 0 ? -errno : -EIO;
    f->run[sizeof f->run - 1] = 0;
    return tsri_flight_dump_ended(f, about, dir);
}

int tsri_flight_dump_rest(int fd, int first_rank, int world_size, const char *id, int restart,
                          const char *dir, tsr_log_fn *log, void *log_arg)
{
    tsri_arena_head head;
    if (!dir || !dir[0])
        return 0;
    int rc = read_head(fd, &head);
    if (rc)
        return rc;
    tsri_flight *f = aligned_alloc(64, sizeof *f);
    if (!f)
        return -ENOMEM;
    char run[TSRI_FLIGHT_RUN];
    if (id && *id)
        snprintf(run, sizeof run, "%.*s", TSRI_FLIGHT_RUN - 1, id);
    else
        snprintf(run, sizeof run, "%016" PRIx64, head.run);
    for (int r = 0; r < (int)head.nranks; r++) {
        const tsri_flight_about about = {.rank = first_rank + r,
                                         .nranks = world_size,
                                         .run = run,
                                         .restart = restart,
                                         .log = log,
                                         .log_arg = log_arg};
        int one = dump_one(fd, &head, f, r, dir, &about);
        rc = rc ? rc : one;
    }
    free(f);
    return rc;
}
