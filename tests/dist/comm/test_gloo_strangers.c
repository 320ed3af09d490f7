/* SPDX-License-Identifier: Apache-2.0 */
/* Gloo's ports, while members connect: whoever comes without what the store passes on gets no
 * connection, and neither ends the process nor keeps a member out. */
#include "src/comm/gloo/api.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { MEMBERS = 2, STRANGERS = 300, BYTES = 1000 };

typedef struct member {
    pthread_t thread;
    int index;
    tsri_gloo_device *device;
    tsri_gloo_mesh *mesh;
    char address[TSRI_GLOO_ADDRESS_BYTES], its[TSRI_GLOO_ADDRESS_BYTES];
    size_t bytes, its_bytes;
    tsri_gloo_result result;
    tsri_gloo_error err;
} member;

static const tsri_gloo_api *api;
static member members[MEMBERS];
static int fds[STRANGERS];
static atomic_bool over;

/* What a stranger says first: of each kind in turn. */
static size_t strange_words(int i, unsigned char words[96])
{
    const uint64_t send_unbound[6] = {48, 1, 4, 0, 0, 0};
    memset(words, i, 96);
    switch (i % 5) {
    case 0: /* nothing */
        return 0;
    case 1: /* too little */
        return 7;
    case 2: /* something else */
        return 32;
    case 3: /* too much */
        return 96;
    default: /* a message of Gloo's, to a buffer that is not there */
        memcpy(words, send_unbound, sizeof send_unbound);
        return sizeof send_unbound;
    }
}

/* Connects to the port of member 1, which listens, and has that first in its address. */
static int come_as_stranger(int i, bool stays)
{
    const struct linger at_once = {.l_onoff = 1};
    struct sockaddr_in at;
    unsigned char words[96];
    memcpy(&at, members[1].address, sizeof at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) {
        size_t n = strange_words(i, words);
        if (n && send(fd, words, n, MSG_NOSIGNAL) < 0)
            stays = false;
        if (stays)
            return fd;
    }
    close(fd);
    return -1;
}

static void *keep_coming(void *arg)
{
    (void)arg;
    for (int i = 0; !atomic_load(&over); i++)
        come_as_stranger(i, false);
    return NULL;
}

static void *connect_member(void *arg)
{
    member *m = arg;
    m->result = api->mesh_connect(m->mesh, 1 - m->index, m->its, m->its_bytes, &m->err);
    return NULL;
}

static int make_members(void **state)
{
    (void)state;
    atomic_store(&over, false);
    for (int i = 0; i < MEMBERS; i++) {
        member *m = &members[i];
        *m = (member){.index = i};
        assert_int_equal(api->device_open("127.0.0.1", &m->device, &m->err), TSRI_GLOO_OK);
        assert_int_equal(api->mesh_open(m->device, MEMBERS, i, 30, &m->mesh, &m->err),
                         TSRI_GLOO_OK);
        m->bytes = api->mesh_address(m->mesh, 1 - i, m->address);
    }
    for (int i = 0; i < MEMBERS; i++) {
        memcpy(members[i].its, members[1 - i].address, members[1 - i].bytes);
        members[i].its_bytes = members[1 - i].bytes;
    }
    return 0;
}

static int drop_members(void **state)
{
    (void)state;
    for (int i = 0; i < MEMBERS; i++) {
        api->mesh_close(members[i].mesh);
        api->device_close(members[i].device);
    }
    return 0;
}

static void start(member *m)
{
    assert_int_equal(pthread_create(&m->thread, NULL, connect_member, m), 0);
}

static void expect_result(member *m, tsri_gloo_result wanted, const char *part)
{
    pthread_join(m->thread, NULL);
    if (m->result != wanted || (part && !strstr(m->err.text, part)))
        fail_msg("member %d: %d, '%s'", m->index, (int)m->result, m->err.text);
}

/* Bytes that member `from` sends come to the other, as they are. */
static void pass_bytes(int from)
{
    char given[BYTES], taken[BYTES] = {0};
    memset(given, 'a' + from, sizeof given);
    tsri_gloo_post *post[MEMBERS] = {NULL};
    uint64_t moved = 0;
    int at;
    for (int i = 0; i < MEMBERS; i++) {
        member *m = &members[i];
        const tsri_gloo_piece piece = {
            .data = i == from ? given : taken, .bytes = BYTES, .peer = 1 - i, .send = i == from};
        assert_int_equal(api->mesh_make(m->mesh, 1, &piece, &post[i], &m->err), TSRI_GLOO_OK);
        assert_int_equal(api->mesh_post(m->mesh, 4, post[i], &at, &m->err), TSRI_GLOO_OK);
    }
    for (int i = 0; i < MEMBERS; i++) {
        member *m = &members[i];
        assert_int_equal(api->mesh_wait(m->mesh, post[i], 0, 1, &at, &moved, &m->err),
                         TSRI_GLOO_OK);
        api->mesh_drop(m->mesh, post[i]);
    }
    assert_memory_equal(given, taken, BYTES);
}

/* They were there first, and stay; more of them come and go while the members connect. */
static void test_strangers(void **state)
{
    (void)state;
    pthread_t coming;
    for (int i = 0; i < STRANGERS; i++)
        fds[i] = come_as_stranger(i, i % 3 > 0);
    assert_int_equal(pthread_create(&coming, NULL, keep_coming, NULL), 0);
    start(&members[0]);
    usleep(20000);
    start(&members[1]);
    expect_result(&members[0], TSRI_GLOO_OK, NULL);
    expect_result(&members[1], TSRI_GLOO_OK, NULL);
    atomic_store(&over, true);
    pthread_join(coming, NULL);
    pass_bytes(0);
    pass_bytes(1);
    for (int i = 0; i < STRANGERS; i++) {
        char byte;
        if (fds[i] < 0)
            continue;
        assert_true(recv(fds[i], &byte, 1, 0) <= 0); /* nothing was said to it */
        close(fds[i]);
    }
}

/* One bit of the secret is another: the last byte of the address. */
static void test_wrong_secret(void **state)
{
    (void)state;
    members[0].its[members[0].its_bytes - 1] ^= 1;
    start(&members[1]);
    start(&members[0]);
    usleep(100000);
    for (int i = 0; i < MEMBERS; i++) /* they would try for long */
        api->mesh_interrupt(members[i].mesh);
    expect_result(&members[0], TSRI_GLOO_LOST, "closed");
    expect_result(&members[1], TSRI_GLOO_LOST, "closed");
}

/* What the store has for an address may be anybody's. */
static void test_bad_addresses(void **state)
{
    (void)state;
    const size_t bytes = members[0].its_bytes;
    static const size_t wrong[] = {0, 1, 16, TSRI_GLOO_ADDRESS_BYTES};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        members[0].its_bytes = wrong[i];
        start(&members[0]);
        expect_result(&members[0], TSRI_GLOO_FAILED, "something else than a peer's address");
    }
    members[0].its_bytes = bytes;
    memset(members[0].its, 0, 2);
    start(&members[0]);
    expect_result(&members[0], TSRI_GLOO_FAILED, "of another family");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_strangers, make_members, drop_members),
        cmocka_unit_test_setup_teardown(test_wrong_secret, make_members, drop_members),
        cmocka_unit_test_setup_teardown(test_bad_addresses, make_members, drop_members),
    };
    void *module = dlopen(getenv("TESSERA_GLOO_MODULE"), RTLD_NOW);
    tsri_gloo_entry_fn *entry;
    *(void **)&entry = module ? dlsym(module, TSRI_GLOO_ENTRY) : NULL;
    if (!entry) {
        fprintf(stderr, "TESSERA_GLOO_MODULE: %s\n", dlerror());
        return 1;
    }
    api = entry();
    return cmocka_run_group_tests_name("gloo_strangers", tests, NULL, NULL);
}
