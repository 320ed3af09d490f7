/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of a program's own that define ops. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/own_op.h>

#include "src/core/live.h"

tsr_status tsr_plugin_load(tsr_world *world, const char *path)
{
    if (!world || !path)
        return tsri_fail(TSR_ERR_INVALID, "tsr_plugin_load: the %s is NULL%s",
                         world ? "path" : "world", world ? "" : tsri_error_cause());
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    const char *forbidden = getenv("TESSERA_NO_PLUGINS");
    if (forbidden && strcmp(forbidden, "") != 0 && strcmp(forbidden, "0") != 0)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_plugin_load: '%.300s' is a library whose code would run, and "
                         "--no-plugins or TESSERA_NO_PLUGINS forbids that",
                         path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        return tsri_fail(TSR_ERR_IO, "tsr_plugin_load: %s", error ? error : path);
    }
    /* POSIX makes this conversion, which C17 does not have. */
    union {
        void *symbol;
        tsr_plugin_begin_fn *fn;
    } begin = {.symbol = dlsym(library, "tsr_plugin_begin")};
    if (!begin.symbol) {
        dlclose(library);
        return tsri_fail(TSR_ERR_INVALID, "tsr_plugin_load: '%s' has no function tsr_plugin_begin",
                         path);
    }
    /* The library stays loaded: the world's ops are functions of it. */
    void *theirs = dlsym(RTLD_DEFAULT, "tsr_op_define");
    theirs = theirs ? theirs : dlsym(library, "tsr_op_define");
    const union {
        tsr_status (*fn)(tsr_world *, const tsr_op_def *, tsr_op **);
        void *symbol;
    } ours = {.fn = tsr_op_define};
    if (theirs && theirs != ours.symbol)
        return tsri_fail(
            TSR_ERR_INVALID,
            "tsr_plugin_load: '%s' calls another copy of Tessera than this program: link "
            "the program with the shared library, or export the static one (-rdynamic)",
            path);
    const tsr_status status = begin.fn(world);
    return status == TSR_OK ? TSR_OK : tsri_fail_prefix(status, "plug-in '%s'", path);
}
