/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/plan/progress.h"
#include "src/core/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* The first words come after this many seconds. */
static const double FIRST_S = 2;

static bool shown; /* a line that is to be cleared */

/* The timer's. */
static const char *volatile working_at;
static double working_since_s;

static size_t put_number(char *to, int v)
{
    char digits[12];
    size_t n = 0, k = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        to[k++] = digits[--n];
    return k;
}

/* Writes with nothing but what a signal's handler may call. */
void cli_progress_show(const char *what, double seconds)
{
    enum { MOST = 200 };
    char line[MOST + 64];
    size_t n = 0, length = strlen(what);
    if (seconds < FIRST_S || !isatty(STDERR_FILENO))
        return;
    line[n++] = '\r';
    length = length < MOST ? length : MOST;
    memcpy(line + n, what, length);
    n += length;
    memcpy(line + n, ": ", 2);
    n += 2;
    n += put_number(line + n, (int)seconds);
    memcpy(line + n, " s\033[K", 5);
    n += 5;
    shown = write(STDERR_FILENO, line, n) >= 0; /* where it fails, the work matters more */
}

void cli_progress_clear(void)
{
    if (shown && write(STDERR_FILENO, "\r\033[K", 4) > 0)
        shown = false;
}

static void on_timer(int signal)
{
    int kept = errno;
    const char *what = working_at;
    (void)signal;
    if (what)
        cli_progress_show(what, tsri_now_s() - working_since_s);
    errno = kept;
}

static void set_timer(int seconds)
{
    const struct itimerval each = {{seconds, 0}, {seconds, 0}};
    setitimer(ITIMER_REAL, &each, NULL);
}

void cli_progress_begin(const char *what)
{
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    working_since_s = tsri_now_s();
    working_at = what;
    sigaction(SIGALRM, &action, NULL);
    set_timer(1);
}

void cli_progress_end(void)
{
    set_timer(0);
    working_at = NULL;
    cli_progress_clear();
}
