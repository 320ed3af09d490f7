/* SPDX-License-Identifier: Apache-2.0 */
/* Gloo's communicator: when its module is loaded, where it listens, and what is left of it. */
#include "tests/dist/plan/entries.h"
#include "tests/dist/comm/gloo_processes.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* The entries of a folder, the fewest of many looks: the watcher of the store has a descriptor more
 * now and then. */
static int least_entries(const char *path)
{
    int least = count_entries(path);
    for (int i = 0; i < 50; i++) {
        int n = count_entries(path);
        least = n < least ? n : least;
        usleep(1000);
    }
    return least;
}

/* Listening sockets of this process: how many, and whether one is not on 127.0.0.1. Descriptors are
 * read by name alone: Gloo's own threads open and close theirs meanwhile. */
static int count_ports(bool *out_elsewhere)
{
    char line[512], path[64], link[64], wanted[64];
    int n = 0;
    *out_elsewhere = false;
    FILE *f = fopen("/proc/self/net/tcp", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned address, port, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &address, &port, &state,
                   &inode) != 4 ||
            state != 10)
            continue;
        snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
        for (int fd = 3; fd < 1024; fd++) {
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            ssize_t len = readlink(path, link, sizeof link - 1);
            link[len > 0 ? len : 0] = 0;
            if (strcmp(link, wanted))
                continue;
            n++;
            *out_elsewhere |= address != 0x0100007f;
        }
    }
    if (f)
        fclose(f);
    return n;
}

/* Fewer than `count` are no leak: something that was there at first was about to end. */
static bool settles(const char *path, int count)
{
    for (int i = 0; i < 20000 && count_entries(path) > count; i++)
        usleep(1000);
    return count_entries(path) <= count;
}

/* A second communicator on the store of the first comes and goes: no thread, descriptor or port of
 * it is left, and while it waits for its peers it listens on its address alone. */
static tsr_status leak_body(tsr_world *w, shared *s)
{
    (void)s;
    tsri_comm *first = w->comm, *twin;
    tsri_group *g;
    tsri_ticket t;
    tsri_coll c = {.kind = TSRI_COLL_BARRIER};
    bool elsewhere;
    int threads = count_entries("/proc/self/task"), fds = least_entries("/proc/self/fd");
    for (int round = 0; round < 3; round++) {
        TSRI_TRY(first->ops->twin(first, &twin));
        for (int lane = 0; lane < 3; lane++) {
            TSRI_TRY(twin->ops->group(twin, w->nranks, (const int[]){0, 1, 2}, lane, &g));
            TSRI_TRY(gloo_call(g, &c));
        }
        CHECK(count_entries("/proc/self/task") > threads && count_entries("/proc/self/fd") > fds);
        TSRI_TRY(twin->ops->group(twin, w->nranks, (const int[]){2, 1, 0}, 0, &g));
        if (w->rank == 0) {
            TSRI_TRY(twin->ops->start(g, &c, &t));
            int ports = 0;
            for (int i = 0; i < 20000 && ports == 0; i++) {
                ports = count_ports(&elsewhere);
                usleep(1000);
            }
            CHECK(ports > 0 && !elsewhere);
            atomic_store(&s->flag[round], 1);
            TSRI_TRY(twin->ops->finish(g, &t));
            TSRI_TRY(twin->ops->release(g, &t));
        } else {
            TSRI_TRY(gloo_await(&s->flag[round], 1));
            TSRI_TRY(gloo_call(g, &c));
        }
        twin->ops->destroy(twin);
        CHECK(settles("/proc/self/task", threads));
        CHECK(settles("/proc/self/fd", fds));
        CHECK(count_ports(&elsewhere) == 0);
    }
    return TSR_OK;
}

static void test_leaks(void **state)
{
    (void)state;
    gloo_processes_ok(3, leak_body);
}

static bool is_mapped(const char *name)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        found |= strstr(line, name) != NULL;
    if (f)
        fclose(f);
    return found;
}

static tsr_status loaded_body(tsr_world *w, shared *s)
{
    (void)w;
    (void)s;
    CHECK(is_mapped("libtessera_gloo.so"));
    return TSR_OK;
}

static void test_not_loaded(void **state)
{
    (void)state;
    assert_false(is_mapped("libgloo")); /* this process has made no communicator */
    gloo_processes_ok(1, loaded_body);
    char named[4096];
    snprintf(named, sizeof named, "%s", getenv("TESSERA_GLOO_MODULE"));
    setenv("TESSERA_GLOO_MODULE", "/nowhere/libtessera_gloo.so", 1);
    const gloo_run run = {.nranks = 1, .timeout_s = 60, .killed = -1, .missing = -1};
    shared *s = gloo_processes(&run, loaded_body);
    setenv("TESSERA_GLOO_MODULE", named, 1);
    assert_int_equal(s->status[0], TSR_ERR_UNSUPPORTED);
    assert_non_null(strstr(s->text[0], "/nowhere/libtessera_gloo.so"));
    assert_non_null(strstr(s->text[0], "libgloo-dev"));
    gloo_processes_free(s);
}

/* A group of more ranks than a call can be planned for. Nobody is asked: it needs no peers. */
static tsr_status large_body(tsr_world *w, shared *s)
{
    enum { LARGE = 300 };
    int ranks[LARGE], nranks = w->nranks;
    float src = 1, dst = 2;
    const tsri_segment seg = {.src = &src,
                              .dst = &dst,
                              .dtype = TSR_F32,
                              .shape = TSR_DIMS(1),
                              .src_axis = -1,
                              .dst_axis = -1};
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &seg, .what = "grad"};
    tsri_group *g;
    tsri_ticket t;
    (void)s;
    for (int i = 0; i < LARGE; i++)
        ranks[i] = i;
    w->nranks = LARGE;
    tsr_status status = w->comm->ops->group(w->comm, LARGE, ranks, 0, &g);
    w->nranks = nranks;
    TSRI_TRY(status);
    CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_UNSUPPORTED);
    CHECK_TEXT("all_reduce 'grad' of a group of 300 ranks: over Gloo a group of at most 256");
    CHECK(w->comm->ops->prepare(g, &c) == TSR_ERR_UNSUPPORTED);
    return TSR_OK;
}

static void test_large(void **state)
{
    (void)state;
    gloo_processes_ok(1, large_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_loaded),
        cmocka_unit_test(test_leaks),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests_name("gloo_leaks", tests, NULL, NULL);
}
