/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading the modules of kinds of device. */
#include "kernels/module.h"
#include "src/core/library.h"

#include <pthread.h>

static void set_error(const char *text)
{
    if (text)
        tsri_fail(TSR_OK, "%s", text);
    else
        tsri_error_clear();
}

static void host_log(const tsr_world *world, tsr_log_level level, const char *text)
{
    tsri_log(world, level, "%s", text);
}

static const tsri_module_host host = {
    .size = sizeof host,
    .abi = TSRI_MODULE_ABI,
    .set_error = set_error,
    .get_error = tsr_last_error,
    .mem_alloc = tsri_mem_alloc,
    .mem_realloc = tsri_mem_realloc,
    .mem_free = tsri_mem_free,
    .log = host_log,
};

/* The result of loading, for all threads: modules stay loaded while the process lives. */
static struct {
    bool tried;
    const tsri_module *module;
    char why[1024];
} loaded[TSRI_DEVICES];                                  /* by tsr_device */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `loaded` and `taken` */
static const tsri_module *taken;                         /* the one that is being loaded */

static bool take(void *entry)
{
    tsri_module_entry_fn *fn;
    *(void **)&fn = entry;
    const tsri_module *module = fn(&host);
    if (!module || module->abi != TSRI_MODULE_ABI)
        return false;
    taken = module;
    return true;
}

static void load(const tsri_target *target)
{
    const tsri_library library = {target->module, target->module_variable, target->module_entry,
                                  take};
    taken = NULL;
    tsri_library_load(&library, loaded[target->kind].why, sizeof loaded[target->kind].why);
    loaded[target->kind].module = taken;
    loaded[target->kind].tried = true;
}

tsr_status tsri_module_get(tsr_device kind, const tsri_module **out_module)
{
    const tsri_target *target = tsri_target_of(kind);
    pthread_mutex_lock(&lock);
    if (!loaded[kind].tried)
        load(target);
    pthread_mutex_unlock(&lock);
    if (!loaded[kind].module)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "the module for %s placements could not be loaded: %s. It is built where "
                         "%s are found, and is looked for beside the library or where %s says; use "
                         "%s:[...] without it",
                         target->name, loaded[kind].why, target->module_needs,
                         target->module_variable, tsri_target_of(TSRI_TARGET_HOST)->name);
    *out_module = loaded[kind].module;
    return TSR_OK;
}

tsr_status tsri_device_open_module(tsr_world *world, tsr_device kind, tsri_device **out_device)
{
    const tsri_module *module = NULL;
    TSRI_TRY(tsri_module_get(kind, &module));
    return module->device_open(world, out_device);
}
