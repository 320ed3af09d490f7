/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a file:// store: what one rank writes there and another reads, and by what a rank is
 * seen to live. */
#include "src/comm/store/log.h"
#include "src/core/clock.h"
#include "tests/unit/files.h"

#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 6 };

static tsri_bytes text_of(const char *text)
{
    return (tsri_bytes){text, strlen(text)};
}

static void open_log(tsri_log *log, const char *path, tsri_log_state expected)
{
    tsri_log_state state;
    tsri_log_init(log, path);
    assert_int_equal(tsri_log_lock(log, true, tsri_now_s() + 10, &state), TSR_OK);
    assert_int_equal(state, expected);
}

/* Reads what is new. */
static void look(tsri_log *log)
{
    tsri_log_state state;
    assert_int_equal(tsri_log_lock(log, false, tsri_now_s() + 10, &state), TSR_OK);
    assert_int_equal(state, TSRI_LOG_RUN);
    tsri_log_unlock(log);
    assert_true(tsri_log_is_quiet(log));
}

/* --- who lives -------------------------------------------------------------------------------- */

static pid_t dead_pid(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

/* A member by what it says of itself, in turn rank 0 and another one. Its lock is held by this
 * process, as by a child that it has left. */
typedef struct claim {
    const char *name;
    bool is_gone;      /* no process has the number */
    int start;         /* -1: unknown; 1: another process had the number then */
    int boot, space;   /* likewise: another machine, another namespace of processes */
    bool blind;        /* the one who looks does not know its own machine */
    bool blind_space;  /* or its namespace */
    bool holds, lives; /* its lock; what is expected */
} claim;

static const claim claims[] = {
    {.name = "lives", .holds = true, .lives = true},
    {.name = "lives, but its lock is gone"},
    {.name = "is gone", .is_gone = true, .holds = true},
    {.name = "is gone, and its lock", .is_gone = true},
    {.name = "its number is another process's", .start = 1, .holds = true},
    {.name = "its start is unknown", .start = -1, .is_gone = true, .holds = true, .lives = true},
    {.name = "of another machine", .boot = 1, .is_gone = true, .holds = true, .lives = true},
    {.name = "of an unknown machine", .boot = -1, .is_gone = true, .holds = true, .lives = true},
    {.name = "of another namespace", .space = 1, .is_gone = true, .holds = true, .lives = true},
    {.name = "of an unknown one", .space = -1, .is_gone = true, .holds = true, .lives = true},
    {.name = "of another namespace, and gone", .space = 1, .is_gone = true},
    {.name = "neither knows its machine",
     .boot = -1,
     .is_gone = true,
     .blind = true,
     .holds = true,
     .lives = true},
    {.name = "neither knows its namespace",
     .space = -1,
     .is_gone = true,
     .blind_space = true,
     .holds = true,
     .lives = true},
};

static void change(uint64_t *field, int how)
{
    *field = how < 0 ? 0 : *field + (uint64_t)how;
}

static void expect_process(const tsri_log_process *p, const tsri_log_process *expected)
{
    assert_int_equal(p->pid, expected->pid);
    assert_int_equal(p->start, expected->start);
    assert_int_equal(p->boot, expected->boot);
    assert_int_equal(p->pid_space, expected->pid_space);
    assert_string_equal(p->id, expected->id);
}

static void judge(const claim *k, int rank, pid_t gone)
{
    const char *path = test_path("claims");
    tsri_log first, other, viewer;
    open_log(&first, path, TSRI_LOG_EMPTY);
    other = first;
    tsri_log *teller = rank ? &other : &first;
    if (rank) {
        assert_int_equal(tsri_log_begin(&first, RANKS), TSR_OK);
        tsri_log_unlock(&first);
        open_log(&other, path, TSRI_LOG_RUN);
    }
    if (k->is_gone)
        teller->self.pid = (uint64_t)gone;
    change(&teller->self.start, k->start);
    change(&teller->self.boot, k->boot);
    change(&teller->self.pid_space, k->space);
    if (rank)
        assert_int_equal(tsri_log_join(&other, rank), TSR_OK);
    else
        assert_int_equal(tsri_log_begin(&first, RANKS), TSR_OK);
    tsri_log_unlock(teller);
    tsri_log_init(&viewer, path);
    if (k->blind)
        viewer.self.boot = 0;
    if (k->blind_space)
        viewer.self.pid_space = 0;
    look(&viewer);
    expect_process(&viewer.member[rank].process, &teller->self);
    expect_process(&teller->member[rank].process, &teller->self);
    if (!k->holds)
        tsri_log_finish(teller);
    for (int r = 0; r < RANKS; r++) {
        const bool expected = r == rank ? k->lives : r == 0 && rank > 0;
        if (tsri_log_is_alive(&viewer, r) != expected)
            fail_msg("%s, as rank %d: rank %d %s", k->name, rank, r,
                     expected ? "is not seen to live" : "is seen to live");
    }
    assert_int_equal(tsri_log_find_alive(&viewer, rank ? 0 : -1), k->lives ? rank : -1);
    assert_int_equal(tsri_log_find_alive(&viewer, rank), rank ? 0 : -1);
    assert_int_equal(viewer.nranks, RANKS);
    tsri_log_remove(&viewer);
    tsri_log_finish(&viewer);
    if (rank || k->holds)
        tsri_log_finish(&first);
    if (rank && k->holds)
        tsri_log_finish(&other);
}

static void test_alive(void **state)
{
    (void)state;
    const pid_t gone = dead_pid();
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        judge(&claims[i], 0, gone);
        judge(&claims[i], 1, gone);
        judge(&claims[i], RANKS - 1, gone);
    }
}

/* A rank that leaves is not there, whoever holds its lock; and comes again. */
static void test_leaves(void **state)
{
    (void)state;
    const char *path = test_path("leaves");
    tsri_log a, b;
    tsri_log_state now;
    open_log(&a, path, TSRI_LOG_EMPTY);
    assert_int_equal(tsri_log_begin(&a, 3), TSR_OK);
    tsri_log_unlock(&a);
    open_log(&b, path, TSRI_LOG_RUN);
    assert_int_equal(tsri_log_join(&b, 2), TSR_OK);
    tsri_log_unlock(&b);
    assert_false(tsri_log_is_quiet(&a));
    look(&a);
    assert_true(tsri_log_is_alive(&a, 2));
    look(&b);
    assert_int_equal(tsri_log_lock(&b, false, tsri_now_s() + 10, &now), TSR_OK);
    assert_int_equal(tsri_log_append_leave(&b, 2), TSR_OK);
    assert_false(tsri_log_is_alive(&b, 2));
    tsri_log_unlock(&b);
    look(&a);
    assert_true(a.member[2].joined && a.member[2].left && !a.member[1].joined && !a.went);
    assert_false(tsri_log_is_alive(&a, 2));
    look(&b);
    assert_int_equal(tsri_log_lock(&b, false, tsri_now_s() + 10, &now), TSR_OK);
    assert_int_equal(tsri_log_join(&b, 2), TSR_OK);
    assert_int_equal(tsri_log_append(&b, TSRI_LOG_GO, (tsri_bytes){0}, (tsri_bytes){0}), TSR_OK);
    tsri_log_unlock(&b);
    look(&a);
    assert_true(a.member[2].joined && !a.member[2].left && a.went);
    /* The next generation knows nothing of it, and its ranks hold other locks. */
    const uint64_t nonce = a.nonce, number = a.number;
    assert_int_equal(tsri_log_lock(&a, false, tsri_now_s() + 10, &now), TSR_OK);
    assert_int_equal(tsri_log_begin(&a, 4), TSR_OK);
    tsri_log_unlock(&a);
    look(&b);
    assert_true(b.nonce == a.nonce && a.nonce != nonce && a.nonce);
    assert_true(b.number == number + 1 && a.number == number + 1);
    assert_true(b.nranks == 4 && !b.member[2].joined && !b.went);
    assert_false(tsri_log_is_alive(&b, 2));
    assert_true(tsri_log_is_alive(&b, 0));
    assert_int_equal(tsri_log_lock(&b, false, tsri_now_s() + 10, &now), TSR_OK);
    assert_int_equal(tsri_log_join(&b, 1), TSR_OK);
    tsri_log_unlock(&b);
    look(&a);
    assert_true(tsri_log_is_alive(&a, 1) && !tsri_log_is_alive(&a, 2));
    tsri_log_finish(&a);
    tsri_log_finish(&b);
}

/* --- what is written is read ------------------------------------------------------------------ */

static void expect_kept(const tsri_log *log, const char *key, size_t bytes, int seed)
{
    const tsri_store_entry *e = tsri_store_map_find(&log->map, text_of(key));
    if (!e || !e->there || e->bytes != bytes)
        fail_msg("'%s' has %zu bytes, and not %zu", key, e && e->there ? e->bytes : 0, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (e->value[i] != (unsigned char)(i * 7 + (size_t)seed))
            fail_msg("byte %zu of '%s' differs", i, key);
}

/* Records that end before, at and behind the end of what is read at once, by a reader of each and
 * by one of all. */
static void test_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,     1,     100,   65300,  65440,  65510, 65511, 65512, 65513,
                                   65535, 65536, 65537, 131000, 200000, 3,     70000, 2};
    enum { MOST = 200000, SIZES = sizeof sizes / sizeof *sizes };
    const char *path = test_path("sizes");
    tsri_log writer, reader, late;
    unsigned char *value = malloc(MOST);
    char key[16];
    open_log(&writer, path, TSRI_LOG_EMPTY);
    assert_int_equal(tsri_log_begin(&writer, 1), TSR_OK);
    tsri_log_unlock(&writer);
    open_log(&reader, path, TSRI_LOG_RUN);
    tsri_log_unlock(&reader);
    for (int i = 0; i < SIZES; i++) {
        tsri_log_state now;
        for (size_t b = 0; b < MOST; b++)
            value[b] = (unsigned char)(b * 7 + (size_t)i);
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(tsri_log_lock(&writer, false, tsri_now_s() + 10, &now), TSR_OK);
        assert_int_equal(
            tsri_log_append(&writer, TSRI_LOG_SET, text_of(key), (tsri_bytes){value, sizes[i]}),
            TSR_OK);
        tsri_log_unlock(&writer);
        assert_true(tsri_log_is_quiet(&writer));
        assert_false(tsri_log_is_quiet(&reader));
        look(&reader);
        expect_kept(&reader, key, sizes[i], i);
    }
    open_log(&late, path, TSRI_LOG_RUN);
    assert_int_equal(tsri_log_append(&late, TSRI_LOG_DELETE, text_of("k1"), (tsri_bytes){0}),
                     TSR_OK);
    tsri_log_unlock(&late);
    look(&reader);
    assert_int_equal(reader.map.there, SIZES - 1);
    assert_int_equal(late.map.there, SIZES - 1);
    assert_false(tsri_store_map_has(&reader.map, text_of("k1")));
    for (int i = 0; i < SIZES; i++) {
        snprintf(key, sizeof key, "k%d", i);
        if (i != 1)
            expect_kept(&late, key, sizes[i], i);
    }
    free(value);
    tsri_log_finish(&writer);
    tsri_log_finish(&reader);
    tsri_log_finish(&late);
}

/* Sets "a", of 3 bytes, and "b" in a new file, which is then read back whole. */
static unsigned char *write_two(const char *name, size_t *bytes)
{
    tsri_log log;
    open_log(&log, test_path(name), TSRI_LOG_EMPTY);
    assert_int_equal(tsri_log_begin(&log, 2), TSR_OK);
    assert_int_equal(tsri_log_append(&log, TSRI_LOG_SET, text_of("a"), text_of("123")), TSR_OK);
    assert_int_equal(tsri_log_append(&log, TSRI_LOG_SET, text_of("b"), text_of("")), TSR_OK);
    tsri_log_unlock(&log);
    tsri_log_finish(&log);
    return read_file(name, bytes);
}

/* A record in which any byte differs, or is missing, ends what is read; a head likewise means that
 * there is no run. A file that does not begin with the log's magic is refused: it is another's. */
static void test_any_byte(void **state)
{
    (void)state;
    enum { HEAD = 256, FIRST = 24 + 1 + 3, SECOND = 24 + 1 };
    size_t bytes;
    unsigned char *data = write_two("bytes", &bytes);
    assert_int_equal(bytes, HEAD + FIRST + SECOND);
    for (size_t at = 0; at < 2 * bytes; at++) {
        const bool cut = at >= bytes;
        const size_t place = cut ? at - bytes : at;
        tsri_log log;
        tsri_log_state now;
        data[place] ^= cut ? 0 : 0x10;
        write_file("bytes", data, cut ? place : bytes);
        data[place] ^= cut ? 0 : 0x10;
        tsri_log_init(&log, test_path("bytes"));
        tsr_status status = tsri_log_lock(&log, false, tsri_now_s() + 10, &now);
        assert_int_equal(status, place < 16 && !cut ? TSR_ERR_FORMAT : TSR_OK);
        if (status == TSR_OK && now != (place < HEAD ? TSRI_LOG_EMPTY : TSRI_LOG_RUN))
            fail_msg("byte %zu %s: state %d", place, cut ? "missing" : "different", (int)now);
        const int whole = place >= HEAD + FIRST;
        assert_int_equal(log.map.there, whole);
        assert_int_equal(log.at, place < HEAD ? 0 : (size_t)HEAD + (whole ? FIRST : 0));
        tsri_log_unlock(&log);
        tsri_log_finish(&log);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_alive, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_leaves, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_sizes, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_any_byte, make_test_dir, remove_test_dir),
    };
    return cmocka_run_group_tests_name("store_log", tests, NULL, NULL);
}
