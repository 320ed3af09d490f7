/* SPDX-License-Identifier: Apache-2.0 */
/* A plan, or two beside each other, as a page for a browser. */
#include "src/cli/page/page.h"
#include "src/cli/plan/plan.h"
#include "src/core/status.h"

#include <cjson/cJSON.h>
#include <string.h>

tsr_status plan_write_html(const plan_view *v, const char *path, cJSON *beside)
{
    const char *slash = strrchr(v->path, '/'), *name = slash ? slash + 1 : v->path;
    cJSON *json = plan_make_json(v);
    if (!beside)
        return page_write(path, "plan", name, json);
    TSRI_NEED(json && cJSON_AddItemToArray(beside, json));
    if (cJSON_GetArraySize(beside) < 2)
        return TSR_OK;
    cJSON *both = cJSON_CreateObject();
    cJSON_AddItemToObject(both, "plans", cJSON_Duplicate(beside, true));
    return page_write(path, "compare", name, both);
}
