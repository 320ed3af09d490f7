/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/foreign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool tsri_take_number(const char **at, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    const char *digits = *at + (**at == '-');
    if (*digits < '0' || *digits > '9')
        return false;
    errno = 0;
    long long v = strtoll(*at, &end, 10);
    if (errno || v < low || v > high)
        return false;
    *out = v;
    *at = end;
    return true;
}

bool tsri_take_int(const char **at, int low, int high, int *out)
{
    int64_t v;
    if (!tsri_take_number(at, low, high, &v))
        return false;
    *out = (int)v;
    return true;
}

bool tsri_take_char(const char **at, char c)
{
    if (**at != c || !c)
        return false;
    ++*at;
    return true;
}

bool tsri_take_error(const char **at, tsr_status *out)
{
    int v;
    if (!tsri_take_int(at, TSR_ERR_INTERNAL, TSR_ERR_NO_MEMORY, &v))
        return false;
    *out = (tsr_status)v;
    return true;
}

/* Bytes of the UTF-8 character that begins with c; 0: none does. */
static size_t utf8_length(unsigned char c)
{
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

char *tsri_make_printable(char *text, bool lines)
{
    unsigned char *p = (unsigned char *)text;
    while (*p) {
        size_t n = utf8_length(*p), have = 1;
        while (have < n && (p[have] & 0xc0) == 0x80)
            have++;
        if (have < n && !p[have]) {
            *p = 0; /* cut off by whoever copied it */
            break;
        }
        bool control = n == 1 && (*p < ' ' || *p == 127) && !(lines && *p == '\n');
        bool control_8 = n == 2 && *p == 0xc2 && p[1] < 0xa0; /* C1 */
        if (control || control_8 || have < n || !n)
            memset(p, '?', have);
        p += have;
    }
    return text;
}
