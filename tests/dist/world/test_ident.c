/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is, from the variables of many launchers: a table of environments, what is expected
 * written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "src/comm/world/ident.h"

enum { MOST_VARS = 16 };

typedef struct good {
    const char *env[MOST_VARS]; /* "NAME=value", up to NULL */
    const char *method;         /* init_method */
    int rank, nranks, local_rank, local_nranks;
    const char *by, *url;
    bool hosted, arena;
    const char *job;
} good;

typedef struct bad {
    const char *env[MOST_VARS];
    const char *method;
    const char *says[4]; /* all of these, up to NULL */
} bad;

static char path_text[256]; /* PATH is kept */

static void set_env(const char *const *env)
{
    clearenv();
    setenv("PATH", path_text, 1);
    for (int i = 0; i < MOST_VARS && env[i]; i++) {
        char name[64];
        const char *equals = strchr(env[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - env[i]), env[i]);
        setenv(name, equals + 1, 1);
    }
}

#define TORCHRUN(rank, n, local, nlocal)                                                \
    "RANK=" #rank, "WORLD_SIZE=" #n, "LOCAL_RANK=" #local, "LOCAL_WORLD_SIZE=" #nlocal, \
        "MASTER_ADDR=node-a", "MASTER_PORT=29500"
#define OMPI(rank, n, local, nlocal)                                                 \
    "OMPI_COMM_WORLD_RANK=" #rank, "OMPI_COMM_WORLD_SIZE=" #n,                       \
        "OMPI_COMM_WORLD_LOCAL_RANK=" #local, "OMPI_COMM_WORLD_LOCAL_SIZE=" #nlocal, \
        "PMIX_NAMESPACE=944898049"
#define SLURM(rank, n, local)                                                                \
    "SLURM_PROCID=" #rank, "SLURM_NTASKS=" #n, "SLURM_LOCALID=" #local, "SLURM_JOB_ID=1234", \
        "SLURM_STEP_ID=2"

static const good goods[] = {
    /* nobody */
    {{NULL}, NULL, 0, 1, -1, 0, NULL, "", 0, 0, ""},
    {{"RANK=", "WORLD_SIZE="}, NULL, 0, 1, -1, 0, NULL, "", 0, 0, ""},
    {{"RANK=0", "WORLD_SIZE=1"}, NULL, 0, 1, -1, 0, "RANK", "", 0, 0, ""},
    /* tessera launch: on one node, on several */
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "TESSERA_ARENA=1:3:4096",
      "MASTER_ADDR=127.0.0.1", "TESSERA_RUN_ID=blue", "TESSERA_RESTART_COUNT=0"},
     NULL,
     1,
     2,
     1,
     2,
     "RANK",
     "",
     0,
     1,
     "blue/0"},
    {{"RANK=1", "WORLD_SIZE=2", "TESSERA_ARENA=1:3:4096"}, NULL, 1, 2, 1, 2, "RANK", "", 0, 1, ""},
    {{TORCHRUN(5, 6, 2, 3), "TESSERA_ARENA=1:3:4096", "TESSERA_STORE_HOSTED=1",
      "TESSERA_RUN_ID=blue", "TORCHELASTIC_RUN_ID=green", "TESSERA_RESTART_COUNT=4",
      "TORCHELASTIC_USE_AGENT_STORE=False"},
     NULL,
     5,
     6,
     2,
     3,
     "RANK",
     "tcp://node-a:29500",
     1,
     1,
     "blue/4"},
    /* torchrun: with its own store at that port, and without */
    {{TORCHRUN(3, 4, 1, 2), "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=2",
      "TORCHELASTIC_USE_AGENT_STORE=True", "GROUP_WORLD_SIZE=2"},
     NULL,
     3,
     4,
     1,
     2,
     "RANK",
     "tcp://node-a:29501",
     0,
     0,
     "none/2"},
    {{TORCHRUN(3, 4, 3, 4), "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=2",
      "TORCHELASTIC_USE_AGENT_STORE=True", "GROUP_WORLD_SIZE=1"},
     NULL,
     3,
     4,
     3,
     4,
     "RANK",
     "file:///tmp/tessera-%u-none-2-%p-29500/store",
     0,
     0,
     "none/2"},
    {{TORCHRUN(0, 4, 0, 4), "TORCHELASTIC_USE_AGENT_STORE=False", "GROUP_WORLD_SIZE=1"},
     NULL,
     0,
     4,
     0,
     4,
     "RANK",
     "tcp://node-a:29500",
     0,
     0,
     ""},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fd00::2", "MASTER_PORT=65535",
      "TORCHELASTIC_USE_AGENT_STORE=True"},
     NULL,
     0,
     2,
     -1,
     0,
     "RANK",
     "tcp://[fd00::2]:65534",
     0,
     0,
     ""},
    /* By hand, where only LOCAL_RANK is said. */
    {{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=2000"},
     NULL,
     1,
     4,
     1,
     0,
     "RANK",
     "tcp://10.0.0.1:2000",
     0,
     0,
     ""},
    /* Open MPI: one machine, several with an address; one launcher a node */
    {{OMPI(2, 3, 2, 3)},
     NULL,
     2,
     3,
     2,
     3,
     "OMPI_COMM_WORLD_RANK",
     "file:///tmp/tessera-%u-944898049/store",
     0,
     0,
     "944898049"},
    {{OMPI(0, 1, 0, 1)}, NULL, 0, 1, 0, 1, "OMPI_COMM_WORLD_RANK", "", 0, 0, "944898049"},
    {{OMPI(2, 3, 0, 1), "MASTER_ADDR=a", "MASTER_PORT=77"},
     NULL,
     2,
     3,
     0,
     1,
     "OMPI_COMM_WORLD_RANK",
     "tcp://a:77",
     0,
     0,
     "944898049"},
    {{OMPI(1, 2, 0, 1), TORCHRUN(7, 8, 3, 4)},
     NULL,
     7,
     8,
     3,
     4,
     "RANK",
     "tcp://node-a:29500",
     0,
     0,
     ""},
    /* MPICH and Intel MPI */
    {{"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "MASTER_ADDR=a",
      "MASTER_PORT=77"},
     NULL,
     3,
     4,
     1,
     2,
     "PMI_RANK",
     "tcp://a:77",
     0,
     0,
     ""},
    /* srun: one node; several; with PMI's variables; mpiexec's own, which srun has started */
    {{SLURM(1, 2, 1), "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2"},
     NULL,
     1,
     2,
     1,
     2,
     "SLURM_PROCID",
     "file:///tmp/tessera-%u-1234.2/store",
     0,
     0,
     "1234.2"},
    {{SLURM(5, 7, 1), "SLURM_NODEID=2", "SLURM_STEP_TASKS_PER_NODE=2(x2),3",
      "SLURM_STEP_NODELIST=gpu[007-009,12],x3", "SLURM_RESTART_COUNT=1"},
     NULL,
     5,
     7,
     1,
     3,
     "SLURM_PROCID",
     "tcp://gpu007:27636",
     0,
     0,
     "1234.2/1"},
    {{SLURM(0, 2, 0), "SLURM_NODEID=0", "SLURM_TASKS_PER_NODE=1(x2)",
      "SLURM_JOB_NODELIST=alone,b[1-2]", "PMI_RANK=0", "PMI_SIZE=2"},
     NULL,
     0,
     2,
     0,
     1,
     "SLURM_PROCID",
     "tcp://alone:27636",
     0,
     0,
     "1234.2"},
    {{SLURM(0, 2, 0), "SLURM_NODEID=0", "SLURM_TASKS_PER_NODE=1(x2)",
      "SLURM_LAUNCH_NODE_IPADDR=10.1.2.3"},
     NULL,
     0,
     2,
     0,
     1,
     "SLURM_PROCID",
     "tcp://10.1.2.3:27636",
     0,
     0,
     "1234.2"},
    {{SLURM(0, 2, 0), "PMI_RANK=3", "PMI_SIZE=8", "MPI_LOCALRANKID=3", "MPI_LOCALNRANKS=4",
      "MASTER_ADDR=a", "MASTER_PORT=77"},
     NULL,
     3,
     8,
     3,
     4,
     "PMI_RANK",
     "tcp://a:77",
     0,
     0,
     ""},
    /* sbatch's script, salloc's shell: no tasks */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=1234"},
     NULL,
     0,
     1,
     -1,
     0,
     NULL,
     "",
     0,
     0,
     ""},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=1234", "SLURM_STEP_ID=4294967290"},
     NULL,
     0,
     1,
     -1,
     0,
     NULL,
     "",
     0,
     0,
     ""},
    /* addresses */
    {{NULL}, "tcp://h:1?rank=1&world_size=3", 1, 3, -1, 0, "init_method", "tcp://h:1", 0, 0, ""},
    {{NULL},
     "tcp://[::1]:1?world_size=3&rank=0",
     0,
     3,
     -1,
     0,
     "init_method",
     "tcp://[::1]:1",
     0,
     0,
     ""},
    {{"TESSERA_INIT_METHOD=file:///x/y?rank=0&world_size=2"},
     NULL,
     0,
     2,
     -1,
     0,
     "TESSERA_INIT_METHOD",
     "file:///x/y",
     0,
     0,
     ""},
    {{"TESSERA_INIT_METHOD=nonsense"},
     "tcp://h:1?rank=1&world_size=3",
     1,
     3,
     -1,
     0,
     "init_method",
     "tcp://h:1",
     0,
     0,
     ""},
    {{"RANK=7"},
     "tcp://h:1?rank=1&world_size=3",
     1,
     3,
     -1,
     0,
     "init_method",
     "tcp://h:1",
     0,
     0,
     ""},
    /* What the address leaves open, the launcher says; its machine's numbers only if it means us.
     */
    {{OMPI(2, 3, 1, 2)}, "file:///x", 2, 3, 1, 2, "init_method", "file:///x", 0, 0, "944898049"},
    {{TORCHRUN(1, 2, 1, 2), "TESSERA_ARENA=1:3:4096"},
     "tcp://h:1",
     1,
     2,
     1,
     2,
     "init_method",
     "tcp://h:1",
     0,
     0,
     ""},
    {{TORCHRUN(1, 2, 1, 2)},
     "tcp://h:1?rank=3&world_size=4",
     3,
     4,
     -1,
     0,
     "init_method",
     "tcp://h:1",
     0,
     0,
     ""},
    {{OMPI(1, 2, 1, 2), TORCHRUN(3, 4, 1, 2)},
     "env://",
     3,
     4,
     1,
     2,
     "init_method",
     "tcp://node-a:29500",
     0,
     0,
     ""},
    {{TORCHRUN(1, 2, 1, 2), "TESSERA_ARENA=1:3:4096"},
     "env://",
     1,
     2,
     1,
     2,
     "init_method",
     "",
     0,
     1,
     ""},
    {{"MASTER_ADDR=a", "MASTER_PORT=5"},
     "env://?rank=1&world_size=2",
     1,
     2,
     -1,
     0,
     "init_method",
     "tcp://a:5",
     0,
     0,
     ""},
};

static const bad bads[] = {
    {{"RANK=1"}, NULL, {"RANK is set, but WORLD_SIZE is not", "`tessera launch`"}},
    {{"WORLD_SIZE=4"}, NULL, {"WORLD_SIZE is set, but RANK is not"}},
    {{"RANK=one", "WORLD_SIZE=4"}, NULL, {"RANK is 'one'", "whole number"}},
    {{"RANK=1 ", "WORLD_SIZE=4"}, NULL, {"RANK is '1 '"}},
    {{"RANK=-1", "WORLD_SIZE=4"}, NULL, {"RANK is '-1'"}},
    {{"RANK=0", "WORLD_SIZE=0"}, NULL, {"WORLD_SIZE is '0'", "from 1"}},
    {{"RANK=0", "WORLD_SIZE=99999999999"}, NULL, {"WORLD_SIZE is '99999999999'"}},
    {{"RANK=4", "WORLD_SIZE=4"}, NULL, {"RANK is 4, but WORLD_SIZE is 4"}},
    {{"RANK=0", "WORLD_SIZE=4"},
     NULL,
     {"tessera launch -n 4", "MASTER_ADDR", "TESSERA_INIT_METHOD"}},
    {{"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=a"}, NULL, {"MASTER_ADDR is set, but MASTER_PORT"}},
    {{"RANK=0", "WORLD_SIZE=4", "MASTER_PORT=1"}, NULL, {"MASTER_PORT is set, but MASTER_ADDR"}},
    {{"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=65536"},
     NULL,
     {"MASTER_PORT is '65536'"}},
    {{TORCHRUN(0, 2, 0, 2), "TESSERA_STORE_HOSTED=yes"},
     NULL,
     {"TESSERA_STORE_HOSTED is 'yes'", "legal are 0 and 1"}},
    {{TORCHRUN(0, 4, 2, 2)}, NULL, {"LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2"}},
    {{TORCHRUN(0, 4, 0, 5)}, NULL, {"LOCAL_WORLD_SIZE is 5, but WORLD_SIZE is only 4"}},
    {{TORCHRUN(0, 3, 0, 2), "GROUP_WORLD_SIZE=1"},
     NULL,
     {"WORLD_SIZE is 3, but LOCAL_WORLD_SIZE is 2 and GROUP_WORLD_SIZE is 1"}},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"},
     NULL,
     {"LOCAL_WORLD_SIZE is set, but LOCAL_RANK is not"}},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=x"}, NULL, {"LOCAL_RANK is 'x'"}},
    {{"OMPI_COMM_WORLD_RANK=1"}, NULL, {"OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE"}},
    {{OMPI(1, 4, 1, 2)}, NULL, {"not all on one machine", "mpirun -x MASTER_ADDR", "MASTER_PORT"}},
    {{"PMI_SIZE=2"}, NULL, {"PMI_SIZE is set, but PMI_RANK is not", "mpiexec"}},
    {{"PMI_RANK=0", "PMI_SIZE=2"}, NULL, {"may be on several machines", "MASTER_ADDR"}},
    {{SLURM(0, 2, 0), "SLURM_NODEID=0", "SLURM_TASKS_PER_NODE=1(x2)"},
     NULL,
     {"SLURM_STEP_NODELIST", "MASTER_ADDR"}},
    {{"SLURM_STEP_ID=0", "SLURM_PROCID=3"}, NULL, {"SLURM_PROCID is set, but SLURM_NTASKS is not"}},
    {{NULL}, "tcp://h:1", {"init_method is 'tcp://h:1'", "world_size", "RANK"}},
    {{NULL}, "tcp://h:1?rank=1", {"world_size"}},
    {{"RANK=3"}, "tcp://h:1?rank=1", {"RANK is set, but WORLD_SIZE is not"}},
    {{NULL}, "tcp://h:1?rank=2&world_size=2", {"rank 2 of 2"}},
    {{NULL}, "tcp://h:1?rank=x&world_size=2", {"rank="}},
    {{NULL}, "tcp://h:1?rank=1&world_size=0", {"world_size="}},
    {{NULL}, "tcp://h:1?size=2", {"only rank= and world_size="}},
    {{NULL}, "mpi://", {"mpi://", "legal are env://"}},
    {{"TESSERA_INIT_METHOD=http://x"}, NULL, {"TESSERA_INIT_METHOD is 'http://x'"}},
    {{NULL}, "env://", {"env://", "RANK"}},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"}, "env://", {"env://", "RANK"}},
};

static void check_text(int i, const char *what, const char *got, const char *wanted)
{
    if ((got == NULL) != (wanted == NULL) || (got && strcmp(got, wanted)))
        fail_msg("case %d: %s is '%s', expected '%s'", i, what, got ? got : "NULL",
                 wanted ? wanted : "NULL");
}

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        const good *g = &goods[i];
        tsri_ident id;
        char url[600];
        set_env(g->env);
        if (tsri_ident_read(g->method, &id) != TSR_OK)
            fail_msg("case %d: %s", (int)i, tsr_last_error());
        if (id.rank != g->rank || id.nranks != g->nranks || id.local_rank != g->local_rank ||
            id.local_nranks != g->local_nranks || id.hosted != g->hosted ||
            (id.arena != NULL) != g->arena)
            fail_msg("case %d: rank %d of %d, local %d of %d, hosted %d, arena %s", (int)i, id.rank,
                     id.nranks, id.local_rank, id.local_nranks, id.hosted, id.arena);
        /* "%u": this user; "%p": the process that has started this one, and when. */
        char known[600], got[600];
        const char *user = strstr(g->url, "%u"), *starter = strstr(g->url, "%p");
        snprintf(url, sizeof url, "%s", g->url);
        snprintf(got, sizeof got, "%s", id.url);
        if (user)
            snprintf(url, sizeof url, "%.*s%u%s", (int)(user - g->url), g->url, (unsigned)geteuid(),
                     user + 2);
        if (starter) {
            char *at = strstr(url, "%p"), *end = strrchr(id.url, '-');
            snprintf(known, sizeof known, "%.*s%d-", (int)(at - url), url, (int)getppid());
            if (strncmp(id.url, known, strlen(known)) != 0 || !end)
                fail_msg("case %d: url is '%s', expected '%s...'", (int)i, id.url, known);
            snprintf(got, sizeof got, "%s%s", known, end);
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s", at + 2);
            snprintf(url, sizeof url, "%s", known);
        }
        check_text((int)i, "by", id.by, g->by);
        check_text((int)i, "url", got, url);
        check_text((int)i, "job", id.job, g->job);
        assert_true((id.folder[0] != 0) == (user != NULL));
    }
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        tsri_ident id = {.rank = 77};
        set_env(bads[i].env);
        if (tsri_ident_read(bads[i].method, &id) != TSR_ERR_INVALID)
            fail_msg("case %d: rank %d of %d at '%s'", (int)i, id.rank, id.nranks, id.url);
        assert_int_equal(id.rank, 77);
        for (int k = 0; k < 4 && bads[i].says[k]; k++)
            if (!strstr(tsr_last_error(), bads[i].says[k]))
                fail_msg("case %d: expected '%s' in: %s", (int)i, bads[i].says[k],
                         tsr_last_error());
    }
}

/* The folder that only this user sees is preferred, if that is what it is. */
static void test_runtime_folder(void **state)
{
    const char *const env[MOST_VARS] = {OMPI(0, 2, 0, 2)};
    char folder[] = "/tmp/tessera-test-XXXXXX", wanted[128];
    tsri_ident id;
    (void)state;
    assert_non_null(mkdtemp(folder));
    set_env(env);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(tsri_ident_read(NULL, &id), TSR_OK);
    snprintf(wanted, sizeof wanted, "%s/tessera-%u-944898049", folder, (unsigned)geteuid());
    assert_string_equal(id.folder, wanted);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(tsri_ident_read(NULL, &id), TSR_OK);
    assert_true(!strncmp(id.folder, "/tmp/tessera-", 13) && strncmp(id.folder, folder, 20) != 0);
    setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1);
    assert_int_equal(tsri_ident_read(NULL, &id), TSR_OK);
    assert_true(!strncmp(id.folder, "/tmp/tessera-", 13));
    rmdir(folder);
}

/* Without the name of a run the ranks have the process that started them in common, also if
 * there is a shell between. TEST_METHOD: what the program gives as init_method. */
static void say_folder(int fd)
{
    tsri_ident id;
    if (tsri_ident_read(getenv("TEST_METHOD"), &id) != TSR_OK)
        _exit(1);
    if (write(fd, id.folder, sizeof id.folder) != (ssize_t)sizeof id.folder)
        _exit(2);
    _exit(0);
}

static char *self;

/* Of a rank by that variable. */
static void read_folder(char folder[256], const char *by, const char *rank, bool shell)
{
    int fds[2], status;
    assert_int_equal(pipe(fds), 0);
    char *const by_shell[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"\"$0\" --folder; exit $?"},
                              self, NULL};
    char *const plain[] = {self, (char[]){"--folder"}, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        setenv(by, rank, 1);
        dup2(fds[1], 1);
        execv(shell ? "/bin/sh" : self, shell ? by_shell : plain);
        _exit(9);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], folder, 256), 256);
    close(fds[0]);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

static void check_starter(const char *const *env, const char *by)
{
    char a[256], b[256], start[64];
    set_env(env);
    read_folder(a, by, "0", false);
    read_folder(b, by, "1", true);
    assert_string_equal(a, b);
    snprintf(start, sizeof start, "/tmp/tessera-%u-%d-", (unsigned)geteuid(), (int)getpid());
    assert_true(!strncmp(a, start, strlen(start)));
}

static void test_starter(void **state)
{
#define BY_TORCHRUN TORCHRUN(0, 2, 0, 2), "TORCHELASTIC_USE_AGENT_STORE=True"
    const char *const mpiexec[MOST_VARS] = {"PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"};
    const char *const torchrun[MOST_VARS] = {BY_TORCHRUN};
    const char *const method[MOST_VARS] = {BY_TORCHRUN, "TEST_METHOD=env://"};
    (void)state;
    check_starter(mpiexec, "PMI_RANK");
    check_starter(torchrun, "RANK");
    check_starter(method, "RANK");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--folder"))
        say_folder(1);
    self = realpath(argv[0], NULL);
    snprintf(path_text, sizeof path_text, "%.255s", getenv("PATH") ? getenv("PATH") : "/bin");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_runtime_folder),
        cmocka_unit_test(test_starter),
    };
    int failed = cmocka_run_group_tests_name("ident", tests, NULL, NULL);
    free(self);
    return failed;
}
