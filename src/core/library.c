/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* TSRI_LIBDIR: where libraries are installed, with a slash. */

typedef struct search {
    const tsri_library *library;
    char *why;
    size_t size;
} search;

/* The file beside the library, or beside the program that the library is linked into. */
static bool beside(const char *file, char *path, size_t size)
{
    static const char here;
    Dl_info info;
    const char *slash;
    if (!dladdr(&here, &info) || !info.dli_fname || !(slash = strrchr(info.dli_fname, '/')))
        return false;
    int n = snprintf(path, size, "%.*s%s", (int)(slash + 1 - info.dli_fname), info.dli_fname, file);
    return n > 0 && (size_t)n < size;
}

static bool try_load(const search *s, const char *path)
{
    size_t n = strlen(s->why);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        snprintf(s->why + n, s->size - n, "%s%s", n ? "; " : "", error ? error : path);
        return false;
    }
    void *entry = dlsym(library, s->library->name);
    if (entry && s->library->accept(entry))
        return true;
    dlclose(library);
    snprintf(s->why + n, s->size - n, "%s%s %s", n ? "; " : "", path,
             entry ? "was built for another version of the library" : "is no module of Tessera");
    return false;
}

bool tsri_library_load(const tsri_library *library, char *why, size_t size)
{
    const search s = {library, why, size};
    const char *named = getenv(library->variable);
    char path[4096], installed[4096];
    why[0] = 0;
    if (named && *named)
        return try_load(&s, named);
    snprintf(installed, sizeof installed, "%s%s", TSRI_LIBDIR, library->file);
    return (beside(library->file, path, sizeof path) && try_load(&s, path)) ||
           try_load(&s, installed) || try_load(&s, library->file);
}
