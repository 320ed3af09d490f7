/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that no launcher of ours has started: by mpirun, torchrun, variables like srun's, and
 * by an address alone. Argument: launch_child.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static char *child;
static char folder[64]; /* for files of this test, and what ranks take for the user's own */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- running ---------------------------------------------------------------------------------- */

enum { MOST = 8, PATIENCE_S = 60 };

/* Processes under way; their output comes in `text`, mixed. */
typedef struct run {
    pid_t pid[MOST];
    int n, code[MOST]; /* 1000 + the signal */
    int from, to;
    char text[1 << 16];
    double seconds;
} run;

static run it;

static void begin(void)
{
    int fds[2];
    memset(&it, 0, sizeof it);
    assert_int_equal(pipe(fds), 0);
    it.from = fds[0];
    it.to = fds[1];
    fcntl(it.from, F_SETFD, FD_CLOEXEC);
    it.seconds = now_s();
}

/* Starts a shell with the script, in which $0 is the child. env: "NAME=value ...", with spaces. */
static void start(const char *env, const char *script)
{
    char words[1024];
    snprintf(words, sizeof words, "%s", env);
    pid_t pid = fork();
    if (pid == 0) {
        for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
            char *equals = strchr(w, '=');
            *equals = 0;
            setenv(w, equals + 1, 1);
        }
        dup2(it.to, 1);
        dup2(it.to, 2);
        close(it.to);
        setpgid(0, 0);
        execl("/bin/sh", "sh", "-c", script, child, (char *)NULL);
        _exit(99);
    }
    assert_true(pid > 0 && it.n < MOST);
    it.pid[it.n++] = pid;
}

static void end(void)
{
    size_t used = 0;
    close(it.to);
    for (ssize_t n = 1; n > 0;) {
        struct pollfd p = {.fd = it.from, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_S * 1000) != 1) {
            for (int i = 0; i < it.n; i++)
                kill(-it.pid[i], SIGKILL);
            fail_msg("no end after %d s; so far: %s", PATIENCE_S, it.text);
        }
        n = read(it.from, it.text + used, sizeof it.text - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    }
    close(it.from);
    for (int i = 0; i < it.n; i++) {
        int status;
        waitpid(it.pid[i], &status, 0);
        it.code[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    it.seconds = now_s() - it.seconds;
}

static int count(const char *part)
{
    int n = 0;
    for (const char *p = it.text; (p = strstr(p, part)); p++)
        n++;
    return n;
}

static void expect(int code, const char *part)
{
    for (int i = 0; i < it.n; i++)
        if (code >= 0 && it.code[i] != code)
            fail_msg("process %d: expected code %d, got %d; output: %s", i, code, it.code[i],
                     it.text);
    if (!strstr(it.text, part))
        fail_msg("expected '%s' in: %s", part, it.text);
}

/* Each of n ranks has said so, over shared memory alone. */
static void expect_ranks(int n)
{
    char line[64];
    expect(0, "ok");
    for (int r = 0; r < n; r++) {
        snprintf(line, sizeof line, "rank %d of %d, local %d, comm local\n", r, n, r);
        if (count(line) != 1)
            fail_msg("expected one '%s' in: %s", line, it.text);
    }
}

static void expect_nothing_left(void)
{
    char pattern[96];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    if (glob(pattern, 0, NULL, &g) == 0)
        fail_msg("%s is left", g.gl_pathv[0]);
    globfree(&g);
}

/* Below those that the system gives out by itself, also to who only connects. */
static int free_port(void)
{
    static int tried;
    for (int i = 0; i < 1000; i++) {
        int port = 20000 + ((int)getpid() * 7 + tried++) % 10000;
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        bool ok = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
        close(fd);
        if (ok)
            return port;
    }
    fail_msg("no free port");
    return 0;
}

static bool has_program(const char *script)
{
    int status = system(script);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* --- launchers -------------------------------------------------------------------------------- */

static void test_mpirun(void **state)
{
    (void)state;
    if (!has_program("command -v mpirun >/dev/null 2>&1")) {
        print_message("no mpirun here (Debian: openmpi-bin)\n");
        skip();
    }
    for (int n = 1; n <= 5; n++) {
        char script[128];
        snprintf(script, sizeof script,
                 "mpirun --allow-run-as-root --oversubscribe -n %d \"$0\" meet", n);
        begin();
        start("", script);
        end();
        expect_ranks(n);
        expect_nothing_left();
    }
    /* A shell between, and an address. */
    char script[256];
    snprintf(script, sizeof script,
             "mpirun --allow-run-as-root --oversubscribe -x MASTER_ADDR=127.0.0.1 -x "
             "MASTER_PORT=%d -n 2 sh -c '\"$0\" meet; exit $?' \"$0\"",
             free_port());
    begin();
    start("", script);
    end();
    expect_ranks(2);
    begin();
    start("", "mpirun --allow-run-as-root --oversubscribe -n 3 \"$0\" killed");
    end();
    expect(-1, "TSR_ERR_DEAD after a moment: rank 2 died");
}

/* Debian's torchrun can't pass output on unchanged (Python 3.11); it can copy it. */
static void start_torchrun(int n, const char *args, const char *program)
{
    char script[512];
    snprintf(script, sizeof script,
             "/usr/bin/torchrun --no_python -r 1 -t 1 --log_dir %s/logs --nproc_per_node %d %s %s; "
             "code=$?; rm -rf %s/logs; exit $code",
             folder, n, args, program, folder);
    start("", script);
}

static void test_torchrun(void **state)
{
    char args[128];
    (void)state;
    if (!has_program("/usr/bin/python3 -c 'import torch.distributed' >/dev/null 2>&1 && "
                     "test -x /usr/bin/torchrun")) {
        print_message("no torchrun here (Debian: python3-torch)\n");
        skip();
    }
    begin();
    start_torchrun(2, "--standalone", "\"$0\" meet");
    end();
    expect_ranks(2);
    /* Its own store is at the port that it names; and the second attempt must not meet what is left
     * of the first. */
    snprintf(args, sizeof args, "--max_restarts 1 --master_addr 127.0.0.1 --master_port %d",
             free_port());
    begin();
    start_torchrun(3, args,
                   "sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 || exec \"$0\" killed; exec "
                   "\"$0\" meet' \"$0\"");
    end();
    expect_ranks(3);
    expect(0, "rank 2 died");
    expect_nothing_left();
}

static void start_slurm(int rank, int n, const char *mode)
{
    char env[512], script[64];
    snprintf(env, sizeof env,
             "SLURM_JOB_ID=%d SLURM_STEP_ID=0 SLURM_PROCID=%d SLURM_NTASKS=%d SLURM_LOCALID=%d "
             "SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=%d SLURM_STEP_NODELIST=node7",
             (int)getpid(), rank, n, rank, n);
    snprintf(script, sizeof script, "exec \"$0\" %s", mode);
    start(env, script);
}

static void test_srun(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        begin();
        for (int r = n - 1; r >= 0; r--)
            start_slurm(r, n, "meet");
        end();
        expect_ranks(n);
        expect_nothing_left();
    }
    begin(); /* sbatch's script: not one of 4 */
    start("SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=4", "exec \"$0\" meet");
    end();
    expect_ranks(1);
}

/* --- addresses -------------------------------------------------------------------------------- */

static void start_at(const char *url, int rank, int n, const char *more, const char *mode)
{
    char env[512], script[64];
    snprintf(env, sizeof env,
             "TESSERA_INIT_METHOD=%s?rank=%d&world_size=%d TESSERA_TIMEOUT_S=20 %s", url, rank, n,
             more);
    snprintf(script, sizeof script, "exec \"$0\" %s", mode);
    start(env, script);
}

static void tcp_url(char url[64])
{
    snprintf(url, 64, "tcp://127.0.0.1:%d", free_port());
}

static void file_url(char url[128])
{
    snprintf(url, 128, "file://%s/a_file", folder);
}

static void test_addresses(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        char tcp[64], file[128];
        begin();
        tcp_url(tcp);
        for (int r = 0; r < n; r++)
            start_at(tcp, r, n, "", "meet");
        end();
        expect_ranks(n);
        begin();
        file_url(file);
        for (int r = n - 1; r >= 0; r--)
            start_at(file, r, n, "", "meet");
        end();
        expect_ranks(n);
        expect_nothing_left();
    }
    /* By variables, whatever started the processes. */
    char env[256];
    begin();
    int port = free_port();
    for (int r = 0; r < 2; r++) {
        snprintf(env, sizeof env, "RANK=%d WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=%d", r,
                 port);
        start(env, "exec \"$0\" meet");
    }
    end();
    expect_ranks(2);
}

/* Ranks share the GPUs that they see with those of their machine that see the same. */
static void test_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *more[4];
        int alike[4];
    } runs[] = {
        {{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=2",
          "CUDA_VISIBLE_DEVICES=3"},
         {1, 1, 1, 1}},
        {{"CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=2", "CUDA_VISIBLE_DEVICES=0,1",
          "CUDA_VISIBLE_DEVICES=0,1"},
         {3, 1, 3, 3}},
        {{"", "", "", ""}, {4, 4, 4, 4}},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char url[128], line[64];
        file_url(url);
        begin();
        for (int r = 0; r < 4; r++)
            start_at(url, r, 4, runs[i].more[r], "gpus");
        end();
        for (int r = 0; r < 4; r++) {
            snprintf(line, sizeof line, "rank %d has its GPUs with %d\n", r, runs[i].alike[r]);
            expect(0, line);
        }
    }
}

/* Ranks 0 and 1 see each other's processes, rank 2 and they do not: two machines. */
static void start_apart(const char *url, const char *mode)
{
    char env[256], script[128];
    for (int r = 0; r < 2; r++)
        start_at(url, r, 3, "", mode);
    snprintf(env, sizeof env, "TESSERA_INIT_METHOD=%s?rank=2&world_size=3 TESSERA_TIMEOUT_S=20",
             url);
    snprintf(script, sizeof script, "exec unshare -pf sh -c '\"$0\" %s; exit $?' \"$0\"", mode);
    start(env, script);
}

static void test_machines(void **state)
{
    char tcp[64], file[128];
    (void)state;
    if (!getenv("TESSERA_GLOO_MODULE") || !has_program("unshare -pf true 2>/dev/null")) {
        print_message("no Gloo here, or no namespaces of processes (root alone may make them)\n");
        skip();
    }
    tcp_url(tcp);
    file_url(file);
    begin();
    start_apart(tcp, "collectives");
    end();
    expect(0, "rank 2 of 3 ok");
    assert_int_equal(count(" of 3 ok\n"), 3);
    for (int i = 0; i < 2; i++) {
        begin();
        start_apart(i ? tcp : file, "worlds");
        end();
        expect(0, "rank 0 of 3, local 0, comm hosts\n");
        expect(0, "rank 1 of 3, local 1, comm hosts\n");
        expect(0, "rank 2 of 3, local 0, comm hosts\n");
    }
    begin();
    start_apart(tcp, "killed");
    end();
    expect(-1, "rank 0: TSR_ERR_DEAD after a moment: rank 2 died");
    expect(-1, "rank 1: TSR_ERR_DEAD after a moment: rank 2 died");
    expect_nothing_left();
}

/* Nobody watches these: they find by themselves that one is gone. */
static void test_killed(void **state)
{
    char url[128];
    (void)state;
    file_url(url);
    begin();
    for (int r = 0; r < 3; r++)
        start_at(url, r, 3, "", "killed");
    end();
    assert_int_equal(it.code[2], 1000 + SIGKILL);
    expect(-1, "rank 0: TSR_ERR_DEAD after a moment: rank 2 died");
    expect(-1, "rank 1: TSR_ERR_DEAD after a moment: rank 2 died");
    expect_nothing_left();
}

static void test_absent(void **state)
{
    char tcp[64], file[128];
    (void)state;
    tcp_url(tcp);
    begin();
    start_at(tcp, 0, 3, "TESSERA_TIMEOUT_S=1.5", "meet");
    start_at(tcp, 2, 3, "TESSERA_TIMEOUT_S=1.5", "meet");
    end();
    assert_int_equal(it.code[0], 1);
    assert_int_equal(it.code[1], 1);
    expect(1, "rank 1");
    assert_true(it.seconds < 20);
    file_url(file);
    begin();
    start_at(file, 1, 2, "TESSERA_TIMEOUT_S=0.7", "meet");
    end();
    expect(1, "rank 0");
    assert_true(it.seconds < 20);
    unlink(file + strlen("file://"));
}

static void test_wrong(void **state)
{
    char url[64];
    (void)state;
    begin();
    start("RANK=0 WORLD_SIZE=2", "exec \"$0\" meet");
    end();
    expect(1, "tessera launch -n 2");
    begin();
    start("TESSERA_INIT_METHOD=gopher://x", "exec \"$0\" meet");
    end();
    expect(1, "TESSERA_INIT_METHOD");
    begin();
    tcp_url(url);
    start_at(url, 0, 2, "TESSERA_ARENA_BYTES=lots", "meet");
    start_at(url, 1, 2, "TESSERA_ARENA_BYTES=lots", "meet");
    end();
    expect(1, "TESSERA_ARENA_BYTES is 'lots'");
    expect(1, "rank 0: rank 0: TESSERA"); /* who did not make it knows from who could not */
    assert_true(it.seconds < 19);
    begin();
    tcp_url(url);
    for (int i = 0; i < 2; i++)
        start_at(url, 0, 2, "TESSERA_TIMEOUT_S=2", "meet");
    end();
    assert_true(it.code[0] == 1 && it.code[1] == 1);
}

/* A folder that somebody else can look into is not used. */
static void test_folder(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/tessera-%u-%d.0", folder, (unsigned)geteuid(), (int)getpid());
    assert_int_equal(mkdir(path, 0755), 0);
    begin();
    for (int r = 0; r < 2; r++)
        start_slurm(r, 2, "meet");
    end();
    expect(1, "is not this user's alone");
    assert_int_equal(count("is not this user's alone"), 2);
    assert_int_equal(rmdir(path), 0); /* nor has it been removed */
}

int main(int argc, char **argv)
{
    static const char *const theirs[] = {"RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "TESSERA_ARENA",
                                         "TESSERA_INIT_METHOD",
                                         "SLURM_STEP_ID",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "TORCHELASTIC_USE_AGENT_STORE",
                                         "TESSERA_STORE_HOSTED"};
    if (argc != 2) {
        fprintf(stderr, "usage: %s LAUNCH_CHILD\n", argv[0]);
        return 2;
    }
    child = argv[1];
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        unsetenv(theirs[i]);
    snprintf(folder, sizeof folder, "/tmp/tessera-meet-XXXXXX");
    if (!mkdtemp(folder))
        return 2;
    setenv("XDG_RUNTIME_DIR", folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpirun),   cmocka_unit_test(test_torchrun),
        cmocka_unit_test(test_srun),     cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_machines), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_absent),   cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_folder),   cmocka_unit_test(test_gpus),
    };
    int failed = cmocka_run_group_tests_name("meet", tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
