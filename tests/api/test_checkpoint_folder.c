/* SPDX-License-Identifier: Apache-2.0 */
/* What saving removes from a run's folder, and what it must leave: links, a user's own files, and
 * names that only look like a checkpoint's. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rank.h"

#define ID "0123456789abcdef0123456789abcdef"
static const char shard[] = "shard-00000-of-00001.safetensors";

static char base[64]; /* has "run", the folder, and what links point to */
static char warnings[4096];
static int nwarnings;

static const char *path(const char *name)
{
    static char buf[4][256];
    static int turn;
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof *buf, "%s/%s", base, name);
    return p;
}

static bool there(const char *name)
{
    struct stat st;
    return lstat(path(name), &st) == 0;
}

static bool is_link(const char *name)
{
    struct stat st;
    return lstat(path(name), &st) == 0 && S_ISLNK(st.st_mode);
}

static void make_file(const char *name)
{
    FILE *f = fopen(path(name), "we");
    assert_non_null(f);
    fputs("mine", f);
    fclose(f);
}

static void make_dir(const char *name)
{
    assert_int_equal(mkdir(path(name), 0755), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/tessera_folder_XXXXXX");
    if (!mkdtemp(base))
        return -1;
    make_dir("run");
    make_dir("victim");
    make_file("victim/index.json");
    make_file("victim/notes.txt");
    warnings[0] = 0;
    nwarnings = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command);
}

static void take_log(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    if (level != TSR_LOG_WARNING)
        return;
    nwarnings++;
    strncat(warnings, text, sizeof warnings - strlen(warnings) - 1);
}

/* Saves steps first..last, of which `keep` stay. */
typedef struct saves {
    int first, last, keep;
    bool best, async;
    tsr_status status;
} saves;

static tsr_status save_rank(tsr_world *w, void *arg)
{
    saves *s = arg;
    static char data[8] = "content";
    tsr_checkpoint *c;
    TRY(tsr_checkpoint_create(
        w, path("run"),
        TSR_CHECKPOINT_OPTS(.keep = s->keep, .keep_best = s->best, .async = s->async), &c));
    TRY(tsr_checkpoint_add_bytes(c, "bytes", data, sizeof data));
    for (int i = s->first; i <= s->last && s->status == TSR_OK; i++)
        s->status = tsr_checkpoint_save(c, i, i);
    if (s->status == TSR_OK)
        s->status = tsr_checkpoint_wait(c);
    tsr_checkpoint_destroy(c);
    return TSR_OK;
}

static tsr_status save(saves s)
{
    tsr_status status = tsr_spawn_with(1, save_rank, &s, TSR_WORLD_OPTS(.log = take_log));
    return status == TSR_OK ? s.status : status;
}

static void save_all(int first, int last, int keep)
{
    tsr_status status = save((saves){.first = first, .last = last, .keep = keep});
    if (status != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* What links point to is as it was. */
static void check_victim(void)
{
    assert_true(there("victim/index.json") && there("victim/notes.txt"));
}

/* Moves a checkpoint out of the folder and leaves a link to it. */
static void archive(const char *name)
{
    char from[80], to[80];
    snprintf(from, sizeof from, "run/%s", name);
    snprintf(to, sizeof to, "../archive-%s", name);
    assert_int_equal(rename(path(from), path(to + 3)), 0);
    assert_int_equal(symlink(to, path(from)), 0);
}

static void check_archive(const char *name)
{
    char file[120];
    snprintf(file, sizeof file, "archive-%s/index.json", name);
    assert_true(there(file));
    snprintf(file, sizeof file, "archive-%s/%s", name, shard);
    assert_true(there(file));
}

static void test_pruned_link(void **state)
{
    (void)state;
    save_all(1, 2, 0);
    archive("step-00000001");
    save_all(3, 3, 1);
    check_archive("step-00000001");
    assert_false(there("run/step-00000001") || there("run/step-00000002"));
    assert_true(there("run/step-00000003"));
    assert_int_equal(nwarnings, 0);
}

static void test_link_saved_again(void **state)
{
    (void)state;
    save_all(1, 1, 0);
    archive("step-00000001");
    save_all(1, 1, 0);
    check_archive("step-00000001");
    assert_false(is_link("run/step-00000001"));
    assert_true(there("run/step-00000001/index.json"));
    assert_int_equal(nwarnings, 0);
}

/* Of a folder from elsewhere. */
static void test_hostile_links(void **state)
{
    (void)state;
    static const char *const whole[] = {".gone-00000001", ".gone-step-00000001",
                                        ".step-00000001." ID, ".commit-" ID};
    static const char *const other[] = {".gone-1",          ".gone-x",  ".step-1." ID,
                                        ".step-00000001.x", ".commit-", ".commit-x",
                                        ".step-00000001"};
    char name[80];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "run/%s", whole[i]);
        assert_int_equal(symlink("../victim", path(name)), 0);
    }
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "run/%s", other[i]);
        assert_int_equal(symlink("../victim", path(name)), 0);
    }
    save_all(5, 5, 1);
    check_victim();
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "run/%s", whole[i]);
        assert_false(there(name));
    }
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "run/%s", other[i]);
        assert_true(there(name));
    }
}

/* Links to folders, and folders, inside of checkpoints that go. */
static void test_links_within(void **state)
{
    (void)state;
    save_all(1, 1, 0);
    assert_int_equal(symlink("../../victim", path("run/step-00000001/more")), 0);
    make_dir("run/step-00000001/shard-00003-of-00004.safetensors");
    save_all(2, 2, 1);
    check_victim();
    assert_true(is_link("run/step-00000001/more"));
    assert_true(there("run/step-00000001/shard-00003-of-00004.safetensors"));
    assert_false(there("run/step-00000001/index.json"));
    assert_int_equal(nwarnings, 1);
}

/* A user's folder that has a checkpoint's name. */
static void test_own_folder(void **state)
{
    (void)state;
    make_dir("run/step-00000000");
    make_file("run/step-00000000/notes.txt");
    save_all(1, 3, 1);
    assert_true(there("run/step-00000000/notes.txt"));
    assert_false(there("run/step-00000002"));
    assert_true(there("run/step-00000003"));
    assert_int_equal(nwarnings, 0);
    save_all(0, 0, 0); /* takes the name */
    assert_true(there("run/step-00000000/notes.txt") && there("run/step-00000000/index.json"));
    make_file("run/step-00000004");
    assert_int_equal(save((saves){.first = 4, .last = 4}), TSR_ERR_IO);
    assert_true(there("run/step-00000004"));
}

/* A user's files within a checkpoint: with every way in which it goes. */
static void test_own_files(void **state)
{
    (void)state;
    save_all(1, 3, 0);
    make_file("run/step-00000001/notes.txt");
    make_file("run/step-00000001/\033]0;x");
    make_dir("run/step-00000001/plots");
    make_file("run/step-00000001/plots/a.png");
    make_file("run/step-00000002/shard-0-of-1.safetensors");
    save_all(4, 4, 1);
    assert_true(there("run/step-00000001/notes.txt") && there("run/step-00000001/plots/a.png"));
    assert_true(there("run/step-00000002/shard-0-of-1.safetensors"));
    assert_false(there("run/step-00000001/index.json") || there("run/.gone-00000001"));
    assert_false(there("run/step-00000003"));
    assert_int_equal(nwarnings, 1);
    assert_non_null(strstr(warnings, "'step-00000001/notes.txt'"));
    assert_non_null(strstr(warnings, "'step-00000002/shard-0-of-1.safetensors'"));
    assert_null(strchr(warnings, '\033'));
    save_all(5, 6, 1); /* they are no checkpoints any more */
    assert_int_equal(nwarnings, 1);
    make_file("run/step-00000006/notes.txt");
    save_all(6, 6, 1);
    assert_true(there("run/step-00000006/notes.txt") && there("run/step-00000006/index.json"));
    assert_int_equal(nwarnings, 2);
}

/* What a killed save left goes, but for what it did not write. */
static void test_left(void **state)
{
    (void)state;
    static const char *const left[] = {".step-00000007." ID, ".gone-00000007",
                                       ".gone-step-00000007", ".step-123456789." ID};
    char name[160];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "run/%s", left[i]);
        make_dir(name);
        snprintf(name, sizeof name, "run/%s/%s", left[i], shard);
        make_file(name);
        snprintf(name, sizeof name, "run/%s/.tessera-0123456789abcdef-0123456789abcdef", left[i]);
        make_file(name);
    }
    make_file("run/.commit-" ID);
    make_file("run/.gone-step-00000007/notes.txt");
    save_all(8, 8, 0);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "run/%s", left[i]);
        assert_int_equal(there(name), i == 2);
    }
    assert_false(there("run/.commit-" ID) || there("run/.gone-step-00000007/index.json"));
    assert_true(there("run/.gone-step-00000007/notes.txt"));
    assert_int_equal(nwarnings, 1);
}

/* With .async the thread that writes prunes, and the warning is the rank's. */
static void test_async(void **state)
{
    (void)state;
    save_all(1, 1, 0);
    make_file("run/step-00000001/notes.txt");
    assert_int_equal(save((saves){.first = 2, .last = 3, .keep = 1, .async = true}), TSR_OK);
    assert_true(there("run/step-00000001/notes.txt"));
    assert_false(there("run/step-00000002"));
    assert_int_equal(nwarnings, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pruned_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_link_saved_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hostile_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_links_within, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_own_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_own_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_async, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
