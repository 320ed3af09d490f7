/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of dumps. The files may be anyone's, so nothing in them is taken on trust. */
#include "src/cli/flight/read.h"
#include "src/comm/comm.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 4096, MAX_RANKS = 1 << 16, MAX_WORD = 128 };

typedef struct reader {
    const char *name, *at, *end;
    int line_number;
    char line[MAX_LINE], *rest; /* what of the line has not been read */
    tsri_flight_report *r;
    int cgroups, ccalls;
} reader;

static tsr_status fail(const reader *rd, const char *expected)
{
    return tsri_fail(TSR_ERR_FORMAT, "%s:%d: expected %s, found '%.60s'", rd->name, rd->line_number,
                     expected, rd->rest);
}

/* --- lines and words -------------------------------------------------------------------------- */
static tsr_status next_line(reader *rd)
{
    rd->line_number++;
    rd->rest = rd->line;
    rd->line[0] = 0;
    if (rd->at == rd->end)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s:%d: the file ends here, without the line 'end': it was cut off",
                         rd->name, rd->line_number);
    const char *stop = memchr(rd->at, '\n', (size_t)(rd->end - rd->at));
    size_t n = (size_t)((stop ? stop : rd->end) - rd->at);
    bool plain = true;
    for (size_t i = 0; i < n && plain; i++)
        plain = (unsigned char)rd->at[i] >= 0x20 && rd->at[i] != 0x7f;
    if (n >= sizeof rd->line || !plain)
        return tsri_fail(TSR_ERR_FORMAT, "%s:%d: %s: this is no dump of a flight recorder",
                         rd->name, rd->line_number,
                         n >= sizeof rd->line ? "a line of more than 4095 bytes"
                                              : "a control character");
    memcpy(rd->line, rd->at, n);
    rd->line[n] = 0;
    rd->at = stop ? stop + 1 : rd->end;
    return stop ? TSR_OK : fail(rd, "an end of the line");
}

/* Steps over `words`, which must be next. */
static tsr_status expect(reader *rd, const char *words)
{
    size_t n = strlen(words);
    char text[64];
    if (!strncmp(rd->rest, words, n)) {
        rd->rest += n;
        return TSR_OK;
    }
    snprintf(text, sizeof text, "'%s'", words);
    return fail(rd, text);
}

static tsr_status expect_end(reader *rd)
{
    return *rd->rest ? fail(rd, "the end of the line") : TSR_OK;
}

/* The readers of values step over `key` before the value. */
static tsr_status read_number(reader *rd, const char *key, int64_t least, int64_t most,
                              int64_t *out)
{
    char *end, text[80];
    TSRI_TRY(expect(rd, key));
    end = rd->rest;
    errno = 0;
    long long v = 0;
    if ((*rd->rest >= '0' && *rd->rest <= '9') || *rd->rest == '-')
        v = strtoll(rd->rest, &end, 10);
    if (end == rd->rest || errno || v < least || v > most) {
        snprintf(text, sizeof text, "a number from %" PRId64 " to %" PRId64, least, most);
        return fail(rd, text);
    }
    rd->rest = end;
    *out = v;
    return TSR_OK;
}

static tsr_status read_int(reader *rd, const char *key, int64_t least, int64_t most, int *out)
{
    int64_t v = 0;
    TSRI_TRY(read_number(rd, key, least, most, &v));
    *out = (int)v;
    return TSR_OK;
}

static tsr_status read_count(reader *rd, const char *key, uint64_t *out)
{
    int64_t v;
    TSRI_TRY(read_number(rd, key, 0, INT64_MAX, &v));
    *out = (uint64_t)v;
    return TSR_OK;
}

/* Up to a blank. */
static tsr_status read_word(reader *rd, const char *key, char *buf, size_t size)
{
    TSRI_TRY(expect(rd, key));
    size_t n = strcspn(rd->rest, " ");
    if (n == 0 || n >= size)
        return fail(rd, "a word");
    memcpy(buf, rd->rest, n);
    buf[n] = 0;
    rd->rest += n;
    return TSR_OK;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static tsr_status read_quoted(reader *rd, const char *key, char *buf, size_t size)
{
    size_t n = 0;
    TSRI_TRY(expect(rd, key));
    TSRI_TRY(expect(rd, "\""));
    for (; *rd->rest != '"'; rd->rest++) {
        int c = (unsigned char)*rd->rest;
        if (c == '\\' && (rd->rest[1] == '"' || rd->rest[1] == '\\')) {
            c = *++rd->rest;
        } else if (c == '\\') {
            int high = rd->rest[1] == 'x' ? hex_of(rd->rest[2]) : -1;
            int low = high >= 0 ? hex_of(rd->rest[3]) : -1;
            if (low < 0 || high * 16 + low == 0)
                return fail(rd, "\\\", \\\\ or \\xHH");
            c = high * 16 + low;
            rd->rest += 3;
        }
        if (!c || n + 1 >= size)
            return fail(rd, c ? "a shorter text" : "a closing quote");
        buf[n++] = (char)c;
    }
    buf[n] = 0;
    rd->rest++;
    return TSR_OK;
}

/* Which of the table's words is next; they stop at the first NULL. */
static tsr_status read_name(reader *rd, const char *key, const char *(*name_of)(int),
                            const char *what, int *out)
{
    char word[MAX_WORD], *start;
    TSRI_TRY(expect(rd, key));
    start = rd->rest;
    TSRI_TRY(read_word(rd, "", word, sizeof word));
    for (int i = 0; name_of(i); i++) {
        if (!strcmp(name_of(i), word)) {
            *out = i;
            return TSR_OK;
        }
    }
    rd->rest = start;
    return fail(rd, what);
}

static bool skip_dash(reader *rd)
{
    bool dash = rd->rest[0] == '-' && (rd->rest[1] == ' ' || !rd->rest[1]);
    rd->rest += dash;
    return dash;
}

/* --- the head --------------------------------------------------------------------------------- */
static tsr_status read_exit(reader *rd)
{
    tsri_flight_report *r = rd->r;
    TSRI_TRY(expect(rd, "exit "));
    if (skip_dash(rd)) {
        r->exit = TSRI_FLIGHT_RUNNING;
    } else if (!strcmp(rd->rest, "stopped")) {
        rd->rest += strlen(rd->rest);
        r->exit = TSRI_FLIGHT_STOPPED;
    } else {
        bool code = !strncmp(rd->rest, "code ", 5);
        if (!code && strncmp(rd->rest, "signal ", 7))
            return fail(rd, "-, 'stopped', 'code N' or 'signal N'");
        rd->rest += code ? 5 : 7;
        r->exit = code ? TSRI_FLIGHT_EXITED : TSRI_FLIGHT_KILLED;
        TSRI_TRY(read_int(rd, "", 0, 255, &r->exit_status));
    }
    return expect_end(rd);
}

static tsr_status read_reason(reader *rd)
{
    TSRI_TRY(expect(rd, "reason "));
    if (strcmp(rd->rest, "-") && rd->rest[0]) {
        rd->r->reason = strdup(rd->rest);
        TSRI_NEED(rd->r->reason);
    }
    return TSR_OK;
}

static tsr_status read_line_int(reader *rd, const char *words, int64_t least, int64_t most,
                                int *out)
{
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_int(rd, words, least, most, out));
    return expect_end(rd);
}

static tsr_status read_head(reader *rd)
{
    tsri_flight_report *r = rd->r;
    TSRI_TRY(next_line(rd));
    if (strncmp(rd->rest, "tessera flight ", 15))
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s:1: this is no dump of a flight recorder: those begin with 'tessera "
                         "flight 1'",
                         rd->name);
    if (strcmp(rd->rest + 15, "1"))
        return tsri_fail(TSR_ERR_FORMAT, "%s:1: a dump of version %.20s; this program reads 1",
                         rd->name, rd->rest + 15);
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_word(rd, "run ", r->run, sizeof r->run));
    TSRI_TRY(expect_end(rd));
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_int(rd, "rank ", 0, MAX_RANKS - 1, &r->rank));
    TSRI_TRY(read_int(rd, " of ", r->rank + 1, MAX_RANKS, &r->nranks));
    TSRI_TRY(expect_end(rd));
    TSRI_TRY(read_line_int(rd, "world ", 0, INT_MAX, &r->world));
    TSRI_TRY(read_line_int(rd, "restart ", INT_MIN, INT_MAX, &r->restart));
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_word(rd, "host ", r->host, sizeof r->host));
    TSRI_TRY(expect_end(rd));
    TSRI_TRY(read_line_int(rd, "pid ", 0, INT_MAX, &r->pid));
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_number(rd, "time ", 0, INT64_MAX, &r->time_ns));
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_reason(rd));
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_exit(rd));
    TSRI_TRY(next_line(rd));
    TSRI_TRY(read_count(rd, "calls ", &r->calls));
    return expect_end(rd);
}

/* --- groups and calls ------------------------------------------------------------------------- */
/* Room for one more of `size` bytes, cleared. */
static void *grow(void **items, int n, int *capacity, size_t size)
{
    if (n == *capacity) {
        int more = *capacity ? 2 * *capacity : 16;
        void *p = realloc(*items, (size_t)more * size);
        if (!p)
            return NULL;
        *items = p;
        *capacity = more;
    }
    return memset((char *)*items + (size_t)n * size, 0, size);
}

static tsr_status read_ranks(reader *rd, const char *key, tsri_flight_read_group *g)
{
    int capacity = 0;
    TSRI_TRY(expect(rd, key));
    do {
        void *items = g->ranks;
        int *rank = grow(&items, g->listed, &capacity, sizeof *rank);
        g->ranks = items;
        TSRI_NEED(rank);
        TSRI_TRY(read_int(rd, "", 0, rd->r->nranks - 1, rank));
        for (int i = 0; i < g->listed; i++)
            if (g->ranks[i] == *rank)
                return fail(rd, "different ranks");
        g->listed++;
    } while (g->listed < g->nranks && *rd->rest == ',' && rd->rest++);
    return TSR_OK;
}

static tsr_status read_group(reader *rd)
{
    tsri_flight_report *r = rd->r;
    void *items = r->groups;
    tsri_flight_read_group *g = grow(&items, r->ngroups, &rd->cgroups, sizeof *g);
    r->groups = items;
    TSRI_NEED(g);
    r->ngroups++;
    TSRI_TRY(read_int(rd, "group ", 1, INT_MAX, &g->number));
    for (int i = 0; i < r->ngroups - 1; i++)
        if (r->groups[i].number == g->number)
            return fail(rd, "another number of a group");
    TSRI_TRY(read_word(rd, " comm=", g->comm, sizeof g->comm));
    TSRI_TRY(read_int(rd, " lane=", INT_MIN, INT_MAX, &g->lane));
    TSRI_TRY(read_int(rd, " nranks=", 1, r->nranks, &g->nranks));
    TSRI_TRY(read_ranks(rd, " ranks=", g));
    TSRI_TRY(read_count(rd, " started=", &g->started));
    TSRI_TRY(read_count(rd, " completed=", &g->completed));
    return expect_end(rd);
}

static tsr_status read_shape(reader *rd, const char *key, tsri_flight_call *c)
{
    TSRI_TRY(expect(rd, key));
    if (skip_dash(rd))
        return TSR_OK;
    do {
        if (c->ndim == TSR_MAX_NDIM)
            return fail(rd, "at most 8 axes");
        TSRI_TRY(read_number(rd, "", 0, INT64_MAX, &c->shape[c->ndim]));
        c->ndim++;
    } while (*rd->rest == ',' && rd->rest++);
    return TSR_OK;
}

/* "N", "~N" or "-" */
static tsr_status read_waits(reader *rd, const char *key, tsri_flight_read_call *c)
{
    c->waits = -1;
    TSRI_TRY(expect(rd, key));
    if (skip_dash(rd))
        return TSR_OK;
    c->waited = *rd->rest == '~';
    rd->rest += c->waited;
    return read_int(rd, "", 0, rd->r->nranks - 1, &c->waits);
}

static tsr_status read_hash(reader *rd, const char *key, uint64_t *out)
{
    int n = 0, digit;
    TSRI_TRY(expect(rd, key));
    for (*out = 0; n < 16 && (digit = hex_of(*rd->rest)) >= 0; n++, rd->rest++)
        *out = *out << 4 | (uint64_t)digit;
    return n == 16 ? TSR_OK : fail(rd, "16 hexadecimal digits");
}

/* " kind=" and what follows, up to the times. */
static tsr_status read_what(reader *rd, tsri_flight_call *c)
{
    int kind, algo, op = 0, root = 0, dtype;
    TSRI_TRY(read_name(rd, " kind=", tsri_flight_kind_name, "a kind of call", &kind));
    TSRI_TRY(read_int(rd, " algo=", 0, 255, &algo));
    TSRI_TRY(expect(rd, " op="));
    if (!skip_dash(rd))
        TSRI_TRY(read_name(rd, "", tsri_flight_op_name, "an op", &op));
    TSRI_TRY(expect(rd, " root="));
    if (!skip_dash(rd))
        TSRI_TRY(read_int(rd, "", 0, MAX_RANKS, &root));
    TSRI_TRY(read_name(rd, " dtype=", tsri_flight_dtype_name, "a dtype", &dtype));
    TSRI_TRY(read_shape(rd, " shape=", c));
    TSRI_TRY(read_int(rd, " segments=", 0, INT_MAX, &c->nseg));
    TSRI_TRY(read_count(rd, " bytes=", &c->bytes));
    TSRI_TRY(read_hash(rd, " hash=", &c->hash));
    c->kind = (uint8_t)kind;
    c->algo = (uint8_t)algo;
    c->op = (uint8_t)op;
    c->root = root;
    c->dtype = (uint8_t)dtype;
    return TSR_OK;
}

static int index_of_group(const tsri_flight_report *r, int number)
{
    for (int i = 0; i < r->ngroups; i++)
        if (r->groups[i].number == number)
            return i;
    return -1;
}

static tsr_status read_times(reader *rd, tsri_flight_read_call *c)
{
    TSRI_TRY(read_number(rd, " asked=", 0, INT64_MAX, &c->said.asked_ns));
    TSRI_TRY(read_number(rd, " started=", 0, INT64_MAX, &c->started_ns));
    TSRI_TRY(read_number(rd, " ended=", 0, INT64_MAX, &c->ended_ns));
    return read_waits(rd, " waits=", c);
}

static tsr_status read_call(reader *rd)
{
    tsri_flight_report *r = rd->r;
    void *items = r->call;
    tsri_flight_read_call *c = grow(&items, r->ncalls, &rd->ccalls, sizeof *c);
    r->call = items;
    TSRI_NEED(c);
    int state, number;
    TSRI_TRY(read_count(rd, "call ", &c->number));
    if (c->number == 0 || (r->ncalls && r->call[r->ncalls - 1].number >= c->number))
        return fail(rd, "numbers of calls that ascend");
    TSRI_TRY(read_name(rd, " state=", tsri_flight_state_name, "a state", &state));
    c->state = (tsri_flight_state)state;
    TSRI_TRY(read_int(rd, " group=", 0, INT_MAX, &number));
    c->group = index_of_group(r, number);
    TSRI_TRY(read_int(rd, " world=", 0, INT_MAX, &c->said.world));
    TSRI_TRY(read_count(rd, " seq=", &c->said.seq));
    TSRI_TRY(read_count(rd, " shown=", &c->said.shown));
    TSRI_TRY(read_what(rd, &c->said));
    TSRI_TRY(read_times(rd, c));
    TSRI_TRY(read_quoted(rd, " at=", c->at, sizeof c->at));
    TSRI_TRY(read_quoted(rd, " what=", c->said.what, sizeof c->said.what));
    r->ncalls++;
    return expect_end(rd);
}

static tsr_status read_all(reader *rd)
{
    TSRI_TRY(read_head(rd));
    for (;;) {
        TSRI_TRY(next_line(rd));
        if (!strcmp(rd->line, "end"))
            break;
        if (!strncmp(rd->line, "group ", 6))
            TSRI_TRY(read_group(rd));
        else if (!strncmp(rd->line, "call ", 5))
            TSRI_TRY(read_call(rd));
        else
            return fail(rd, "'group', 'call' or 'end'");
    }
    rd->rest = rd->line;
    rd->line_number++;
    return rd->at == rd->end ? TSR_OK
                             : tsri_fail(TSR_ERR_FORMAT, "%s:%d: something follows the line 'end'",
                                         rd->name, rd->line_number);
}

tsr_status tsri_flight_parse(const char *name, const char *text, size_t size,
                             tsri_flight_report *out_report)
{
    tsri_flight_report report = {0};
    reader *rd = malloc(sizeof *rd);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (rd) {
        *rd = (reader){.name = name, .at = text, .end = text + size, .r = &report};
        status = read_all(rd);
    }
    free(rd);
    if (status == TSR_ERR_NO_MEMORY)
        tsri_fail(status, "%s: no memory to read it", name);
    if (status == TSR_OK)
        *out_report = report;
    else
        tsri_flight_report_finish(&report);
    return status;
}

void tsri_flight_report_finish(tsri_flight_report *r)
{
    for (int i = 0; i < r->ngroups; i++)
        free(r->groups[i].ranks);
    free(r->groups);
    free(r->call);
    free(r->reason);
    *r = (tsri_flight_report){0};
}
