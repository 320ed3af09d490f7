/* SPDX-License-Identifier: Apache-2.0 */
/* A program with one of the faults that the guard finds, for guard.py. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Through these the compiler can't see what becomes of a block. */
static void *(*volatile take)(size_t) = malloc;
static void (*volatile give)(void *) = free;
static char *(*volatile copy)(const char *) = strdup;
static void **volatile kept;

static void *on_thread(void *arg)
{
    void *volatile held[64]; /* some are still on its stack when it has ended */
    held[0] = take(300);
    for (int i = 1; i < 64; i++)
        held[i] = held[0];
    return arg;
}

static void *asleep(void *arg)
{
    char *volatile held = take(400);
    *held = 1;
    write(*(int *)arg, "", 1);
    pause();
    return (void *)(size_t)*held;
}

static void keep_some(void)
{
    void **last = NULL;
    for (size_t i = 0; i < 64; i++) {
        void **block = take(sizeof *block + i * 7919 % 4000);
        *block = last;
        last = block;
    }
    kept = take(3 * sizeof *kept);
    kept[0] = (char *)take(100) + 50;
    kept[1] = copy("text");
    kept[2] = last;
}

/* A block that only the stack of another thread has. */
static void leave_thread(void)
{
    pthread_t thread;
    int ends[2];
    char c;
    if (pipe(ends) || pthread_create(&thread, NULL, asleep, &ends[1]) || read(ends[0], &c, 1) != 1)
        exit(1);
}

static int leak_in_fork(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        take(64);
        exit(0);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static char *overwrite(size_t bytes, long at)
{
    char *p = take(bytes);
    p[at] = 0;
    return p;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    keep_some();
    if (!strcmp(what, "keep"))
        kept[0] = realloc((char *)kept[0] - 50, 5000);
    else if (!strcmp(what, "thread-alive"))
        leave_thread();
    else if (!strcmp(what, "leak"))
        take(200);
    else if (!strcmp(what, "leak-list"))
        kept = NULL;
    else if (!strcmp(what, "leak-text"))
        copy("a text of 26 characters...");
    else if (!strcmp(what, "leak-thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, on_thread, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(what, "leak-fork"))
        return leak_in_fork();
    else if (!strcmp(what, "behind"))
        give(overwrite(77, 77));
    else if (!strcmp(what, "behind-kept"))
        kept[1] = overwrite(77, 80);
    else if (!strcmp(what, "in-front"))
        give(overwrite(77, -1));
    else if (!strcmp(what, "freed")) {
        char *p = take(77);
        give(p);
        p[76] = 0;
    } else if (!strcmp(what, "twice")) {
        char *p = take(77);
        give(p);
        give(p);
    } else if (!strcmp(what, "inner"))
        give((char *)take(777) + 200);
    else if (!strcmp(what, "fresh")) {
        unsigned char *p = take(1000);
        for (int i = 0; i < 1000; i++)
            if (p[i] == 0 || p[i] == 0xff)
                return 1;
        give(p);
    } else
        return 1;
    return 0;
}
