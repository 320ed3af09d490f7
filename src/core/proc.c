/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool tsri_proc_read(long long pid, tsri_proc *out)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    errno = n ? EINVAL : ESRCH;
    /* The name, in parentheses, may hold anything. */
    const char *p = strrchr(text, ')');
    return p && sscanf(p,
                       ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                       "%*d %*d %" SCNu64,
                       &out->state, &out->parent, &out->start) == 3;
}

void tsri_boot_id(char *buf, size_t size)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(buf, (int)size, f))
        buf[0] = 0;
    if (f)
        fclose(f);
    buf[strcspn(buf, "\n")] = 0;
}
