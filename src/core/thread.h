/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own, beside the program's. */
#ifndef TESSERA_CORE_THREAD_H
#define TESSERA_CORE_THREAD_H

#include <pthread.h>

/* Makes a condition whose timed waits go by the clock of tsri_now_s. */
void tsri_cond_init(pthread_cond_t *cond);

/*
 * Starts a thread that takes no signals, as those are the program's: it runs body(arg). The signals
 * of a thread's own faults (SIGSEGV and the like) stay open, as they can land nowhere else:
 * blocked, they would end the program past its handlers. name: up to 15 characters, for debuggers.
 * Returns 0 or pthread_create's error. The caller joins the thread.
 */
int tsri_thread_start(pthread_t *out_thread, const char *name, void *(*body)(void *arg), void *arg);

#endif
