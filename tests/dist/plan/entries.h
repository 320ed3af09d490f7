/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DIST_ENTRIES_H
#define TESTS_DIST_ENTRIES_H
#include <dirent.h>

/* The number of entries of a folder, `.` and `..` included; 0 if it cannot be read. */
static inline int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* The number of descriptors that this process has, and three: `.`, `..`, and the folder's own. */
static inline int count_fds(void)
{
    return count_entries("/proc/self/fd");
}
#endif
