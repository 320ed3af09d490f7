/* SPDX-License-Identifier: Apache-2.0 */
#include "src/config/own.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsri_own_numbers(const tsri_yaml *map, const char *what, int most,
                            const tsr_op_option *list, double *out)
{
    int n = 0;
    for (; n < most && list[n].name; n++)
        out[n] = list[n].value;
    if (map && map->kind != TSRI_YAML_MAP)
        return tsri_yaml_fail(map, "a mapping of names to numbers is needed, as in {beta: 2}");
    for (const tsri_yaml *o = map ? map->first : NULL; o; o = o->next) {
        char *end = NULL;
        int i = 0;
        while (i < n && strcmp(list[i].name, o->key) != 0)
            i++;
        if (i == n)
            return tsri_yaml_fail_key(o, "%s has no number '%s'", what, o->key);
        if (o->kind == TSRI_YAML_SCALAR && !o->quoted)
            out[i] = strtod(o->text, &end);
        if (!end || end == o->text || *end)
            return tsri_yaml_fail(o, "a number is needed");
    }
    return TSR_OK;
}
