/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading the CUDA module. */
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

/* The result of loading, for all threads: the module stays loaded while the process lives. */
static struct {
    pthread_once_t once;
    const tsri_module *module;
    char why[1024];
} loaded = {.once = PTHREAD_ONCE_INIT};

static bool take(void *entry)
{
    tsri_module_entry_fn *fn;
    *(void **)&fn = entry;
    const tsri_module *module = fn(&host);
    if (!module || module->abi != TSRI_MODULE_ABI)
        return false;
    loaded.module = module;
    return true;
}

static void load(void)
{
    static const tsri_library library = {"libtessera_cuda.so", "TESSERA_CUDA_MODULE",
                                         TSRI_MODULE_ENTRY, take};
    tsri_library_load(&library, loaded.why, sizeof loaded.why);
}

tsr_status tsri_module_get(const tsri_module **out_module)
{
    pthread_once(&loaded.once, load);
    if (!loaded.module)
        return tsri_fail(
            TSR_ERR_UNSUPPORTED,
            "the module for cuda placements could not be loaded: %s. It is built where "
            "nvcc, cuBLAS, cuDNN and NCCL are found, and is looked for beside the "
            "library or where TESSERA_CUDA_MODULE says; use cpu:[...] without it",
            loaded.why);
    *out_module = loaded.module;
    return TSR_OK;
}

tsr_status tsri_device_open_cuda(tsr_world *world, tsri_device **out_device)
{
    const tsri_module *module = NULL;
    TSRI_TRY(tsri_module_get(&module));
    return module->device_open(world, out_device);
}
