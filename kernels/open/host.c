/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled into every module: the functions of src/core with state (errors, memory, the log), which
 * call the library through its table. */
#include "kernels/module.h"

#include <stdio.h>
#include <string.h>

static const tsri_module_host *host;

bool tsri_host_set(const tsri_module_host *h)
{
    if (!h || h->abi != TSRI_MODULE_ABI || h->size < sizeof *h)
        return false;
    host = h;
    return true;
}

const char *tsr_last_error(void)
{
    return host->get_error();
}

void tsri_error_clear(void)
{
    host->set_error(NULL);
}

const char *tsri_basename(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

tsr_status tsri_fail(tsr_status status, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    host->set_error(text);
    return status;
}

tsr_status tsri_fail_at(tsri_loc loc, tsr_status status, const char *fmt, ...)
{
    char text[4096];
    int n =
        loc.file ? snprintf(text, sizeof text, "%s:%d: ", tsri_basename(loc.file), loc.line) : 0;
    if (n < 0 || (size_t)n >= sizeof text)
        n = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    host->set_error(text);
    return status;
}

tsr_status tsri_fail_prefix(tsr_status status, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text)
        n = 0;
    snprintf(text + n, sizeof text - (size_t)n, ": %.3900s", host->get_error());
    host->set_error(text);
    return status;
}

void *tsri_mem_alloc(tsri_mem *mem, size_t bytes)
{
    return host->mem_alloc(mem, bytes);
}

void *tsri_mem_realloc(tsri_mem *mem, void *p, size_t bytes)
{
    return host->mem_realloc(mem, p, bytes);
}

void tsri_mem_free(void *p)
{
    host->mem_free(p);
}

void tsri_log(const tsr_world *world, tsr_log_level level, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    host->log(world, level, text);
}
