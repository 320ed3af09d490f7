/* SPDX-License-Identifier: Apache-2.0 */
/* The result as a page for a browser. */
#include "src/cli/page/page.h"
#include "src/cli/run/run.h"

#include <string.h>

tsr_status run_write_page(const run_rank *r)
{
    const char *slash = strrchr(r->job->path, '/');
    if (!r->job->html)
        return TSR_OK;
    return page_write(r->job->html, "run", slash ? slash + 1 : r->job->path, run_make_result(r));
}
