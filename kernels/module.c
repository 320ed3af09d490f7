/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading the CUDA module. */
#include "kernels/module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* TSRI_LIBDIR: where libraries are installed, with a slash. */
#define FILE_NAME "libtessera_cuda.so"

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

/* What loading came to, for all threads: the module stays loaded while the process lives. */
static struct {
    pthread_once_t once;
    const tsri_module *module;
    char why[1024];
} loaded = {.once = PTHREAD_ONCE_INIT};

/* The file beside the library, or beside the program that the library is linked into. */
static bool beside(char *path, size_t size)
{
    Dl_info info;
    const char *slash;
    if (!dladdr((const void *)&host, &info) || !info.dli_fname ||
        !(slash = strrchr(info.dli_fname, '/')))
        return false;
    int n = snprintf(path, size, "%.*s%s", (int)(slash + 1 - info.dli_fname), info.dli_fname,
                     FILE_NAME);
    return n > 0 && (size_t)n < size;
}

static bool try_load(const char *path)
{
    size_t n = strlen(loaded.why);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        snprintf(loaded.why + n, sizeof loaded.why - n, "%s%s", n ? "; " : "",
                 error ? error : path);
        return false;
    }
    tsri_module_entry_fn *entry;
    *(void **)&entry = dlsym(library, TSRI_MODULE_ENTRY);
    loaded.module = entry ? entry(&host) : NULL;
    if (loaded.module && loaded.module->abi == TSRI_MODULE_ABI)
        return true;
    loaded.module = NULL;
    dlclose(library);
    snprintf(loaded.why + n, sizeof loaded.why - n, "%s%s %s", n ? "; " : "", path,
             entry ? "was built for another version of the library" : "is no module of Tessera");
    return false;
}

static void load(void)
{
    const char *named = getenv("TESSERA_CUDA_MODULE");
    char path[4096];
    if (named && *named)
        try_load(named);
    else if ((!beside(path, sizeof path) || !try_load(path)) && !try_load(TSRI_LIBDIR FILE_NAME))
        try_load(FILE_NAME);
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
