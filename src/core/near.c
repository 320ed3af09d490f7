/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/near.h"

#include <string.h>

static int lesser(int a, int b)
{
    return a < b ? a : b;
}

int tsri_edit_distance(const char *a, const char *b, int limit)
{
    enum { MOST = 64 };
    size_t na = strlen(a), nb = strlen(b);
    if (na >= MOST || nb >= MOST)
        return limit + 1;
    int rows[3][MOST + 1];
    int *two = rows[0], *one = rows[1], *now = rows[2];
    for (size_t j = 0; j <= nb; j++)
        now[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *spare = two;
        two = one;
        one = now;
        now = spare;
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = one[j - 1] + (a[i - 1] != b[j - 1]);
            best = lesser(best, 1 + lesser(one[j], now[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = lesser(best, 1 + two[j - 2]);
            now[j] = best;
        }
    }
    return now[nb] > limit ? limit + 1 : now[nb];
}
