/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that srun sets. */
#include "src/comm/world/ident.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps that are no srun of the user's (sbatch's script, salloc's shell) have numbers from here. */
static const unsigned long first_special_step = 0xfffffff0;

bool tsri_slurm_is_step(void)
{
    const char *step = tsri_env("SLURM_STEP_ID");
    char *end;
    if (!step)
        return false;
    unsigned long id = strtoul(step, &end, 10);
    return !*end && id < first_special_step;
}

/* The i-th number of a list like "4(x2),3": 4, 4, 3; 0 if there is none. */
static int nth_of(const char *list, int i)
{
    for (const char *p = list; *p;) {
        char *end;
        long value = strtol(p, &end, 10), times = 1;
        if (end == p || value < 1 || value > 1 << 20)
            return 0;
        if (end[0] == '(' && end[1] == 'x')
            times = strtol(end + 2, &end, 10);
        if (times < 1)
            return 0;
        if (i < times)
            return (int)value;
        i -= (int)times;
        end += *end == ')';
        if (*end && *end != ',')
            return 0;
        p = end + (*end == ',');
    }
    return 0;
}

int tsri_slurm_local_nranks(void)
{
    const char *list = tsri_env("SLURM_STEP_TASKS_PER_NODE"), *node = tsri_env("SLURM_NODEID");
    if (!list)
        list = tsri_env("SLURM_TASKS_PER_NODE");
    return list && node ? nth_of(list, atoi(node)) : 0;
}

void tsri_slurm_first_host(const char *list, char *buf, size_t size)
{
    size_t name = strcspn(list, ",["), used = 0;
    if (name < size)
        used = (size_t)snprintf(buf, size, "%.*s", (int)name, list);
    buf[used] = 0;
    const char *p = list + name;
    if (*p != '[' || !used)
        return;
    /* The first number as it is written, up to what follows it; and what is behind the brackets. */
    size_t digits = 0;
    for (p++; isdigit((unsigned char)p[digits]); digits++)
        ;
    const char *close = strchr(p, ']');
    if (!digits || !close || !strchr("-,]", p[digits])) {
        buf[0] = 0;
        return;
    }
    size_t tail = strcspn(close + 1, ",[");
    if (used + digits + tail < size && close[1 + tail] != '[')
        snprintf(buf + used, size - used, "%.*s%.*s", (int)digits, p, (int)tail, close + 1);
    else
        buf[0] = 0;
}
