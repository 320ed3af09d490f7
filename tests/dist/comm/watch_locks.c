/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into a test: a mutex that is unlocked while nobody holds it ends the program. Without
 * the lock there is a race, which a test loses too rarely. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ThreadSanitizer has its own, and sees this itself; other C libraries say no owner. */
#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)
int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    int (*unlock)(pthread_mutex_t *) = next;
    if (!unlock) {
        *(void **)&unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
        next = unlock;
    }
    /* In a forked process, what was held before has an owner of its parent. */
    if (mutex->__data.__owner == 0) {
        fprintf(stderr, "a mutex is unlocked that nobody holds\n");
        abort();
    }
    return unlock(mutex);
}
#else
typedef int no_locks_are_watched;
#endif
