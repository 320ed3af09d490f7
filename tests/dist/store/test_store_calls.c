/* SPDX-License-Identifier: Apache-2.0 */
/* A store whose system calls are interrupted, move a part of what they are asked to, or fail: what
 * ranks read is what was written. Runs under tests/faulty_calls.c. */
#include "tests/dist/store/store_ranks.h"

#include <unistd.h>

enum { RANKS = 3, ROUNDS = 40, LARGE = 70000 };

/* A value that its writer and its round decide. */
static size_t make_value(int rank, int round, char *out)
{
    size_t bytes = round % 8 == 7 ? LARGE : (size_t)(round * 37 % 300);
    for (size_t i = 0; i < bytes; i++)
        out[i] = (char)((int)(i * 31) + rank * 7 + round);
    return bytes;
}

static tsr_status talk(tsr_store *store, int rank, void *arg)
{
    static char values[RANKS][2][LARGE];
    char *mine = values[rank][0], *theirs = values[rank][1], key[32], now[16];
    int64_t sum;
    size_t bytes;
    (void)arg;
    for (int round = 0; round < ROUNDS; round++) {
        int from = (rank + 1) % RANKS;
        size_t n = make_value(rank, round, mine);
        snprintf(key, sizeof key, "value/%d/%d", rank, round);
        TSRI_TRY(tsr_store_set(store, key, mine, n));
        snprintf(key, sizeof key, "value/%d/%d", from, round);
        const char *awaited = key;
        TSRI_TRY(tsr_store_wait(store, 1, &awaited, 0));
        TSRI_TRY(tsr_store_get(store, key, theirs, LARGE, &bytes));
        CHECK(bytes == make_value(from, round, mine) && !memcmp(mine, theirs, bytes));
        /* Not done twice where it was interrupted. */
        TSRI_TRY(tsr_store_add(store, "sum", 1, &sum));
        CHECK(sum > round && sum <= (int64_t)RANKS * ROUNDS);
        snprintf(key, sizeof key, "first/%d", round);
        TSRI_TRY(tsr_store_compare_set(store, key, "", 0, "x", 1, now, sizeof now, &bytes));
    }
    TSRI_TRY(tsr_store_add(store, "done", 1, &sum));
    while (sum < RANKS)
        TSRI_TRY(tsr_store_add(store, "done", 0, &sum));
    TSRI_TRY(tsr_store_add(store, "sum", 0, &sum));
    CHECK(sum == (int64_t)RANKS * ROUNDS);
    return TSR_OK;
}

static void run_at(const char *url)
{
    crew c;
    crew_make(&c, url, RANKS, talk);
    crew_start_all(&c);
    crew_finish(&c);
    crew_free(&c);
}

static void test_served(void **state)
{
    char url[64];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(url, sizeof url, "tcp://127.0.0.1:%d", free_port());
        run_at(url);
    }
}

static void test_file(void **state)
{
    char folder[] = "/tmp/tessera-calls-XXXXXX", url[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(url, sizeof url, "file://%s/store", folder);
    run_at(url);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_served),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
