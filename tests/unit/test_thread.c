/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own: which signals they take. */
#include "src/core/thread.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static bool is_fault(int sig)
{
    return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP ||
           sig == SIGSYS;
}

typedef struct seen {
    sigset_t blocked;
    char name[16];
    pthread_barrier_t named; /* the thread lives until its name has been read */
} seen;

static void *look(void *arg)
{
    seen *s = arg;
    pthread_sigmask(SIG_SETMASK, NULL, &s->blocked);
    pthread_barrier_wait(&s->named);
    return NULL;
}

static void test_signals(void **state)
{
    (void)state;
    sigset_t mine, before, after;
    pthread_t thread;
    seen s = {.name = ""};
    assert_int_equal(pthread_barrier_init(&s.named, NULL, 2), 0);
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR2);
    sigaddset(&mine, SIGFPE);
    pthread_sigmask(SIG_SETMASK, &mine, &before);
    assert_int_equal(tsri_thread_start(&thread, "tsr-test", look, &s), 0);
    pthread_getname_np(thread, s.name, sizeof s.name);
    pthread_barrier_wait(&s.named);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&s.named);
    pthread_sigmask(SIG_SETMASK, &before, &after);
    assert_string_equal(s.name, "tsr-test");
    for (int sig = 1; sig < SIGRTMAX; sig++) {
        if (sigismember(&mine, sig) < 0 || sig == SIGKILL || sig == SIGSTOP ||
            (sig > SIGSYS && sig < SIGRTMIN))
            continue;
        if (sigismember(&s.blocked, sig) != !is_fault(sig))
            fail_msg("signal %d (%s) is %s in the thread", sig, strsignal(sig),
                     is_fault(sig) ? "blocked" : "open");
        assert_int_equal(sigismember(&after, sig), sigismember(&mine, sig));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals)};
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
