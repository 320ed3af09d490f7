/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the environment. */
#include "src/comm/world/ident.h"

#include "src/core/status.h"

#include <errno.h>
#include <stdlib.h>

bool tsri_read_number(const char *text, int least, int most, int *out_value)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < least || v > most)
        return false;
    *out_value = (int)v;
    return true;
}

const char *tsri_env(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

tsr_status tsri_env_int(const char *name, int least, int most, bool *out_set, int *out_value)
{
    const char *text = tsri_env(name);
    *out_set = text != NULL;
    if (text && !tsri_read_number(text, least, most, out_value))
        return tsri_fail(TSR_ERR_INVALID,
                         "the variable %s is '%.100s': expected a whole number from %d to %d", name,
                         text, least, most);
    return TSR_OK;
}
