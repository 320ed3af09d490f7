/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/figures.h"

#include <math.h>
#include <stdio.h>

char *tsri_scaled_text(double v, const char *const *units, int n, char buf[TSRI_FIGURE_MAX])
{
    int i = 0;
    while (i < n - 1 && fabs(v) >= 999.5) {
        v /= 1000;
        i++;
    }
    int digits = v == floor(v) && i == 0 ? 0 : fabs(v) < 9.995 ? 2 : fabs(v) < 99.95 ? 1 : 0;
    snprintf(buf, TSRI_FIGURE_MAX, "%.*f %s", digits, v, units[i]);
    return buf;
}

char *tsri_bytes_text(double bytes, char buf[TSRI_FIGURE_MAX])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    return tsri_scaled_text(bytes, units, 7, buf);
}

char *tsri_seconds_text(double s, char buf[TSRI_FIGURE_MAX])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return tsri_scaled_text(s * 1e9, units, 4, buf);
}
