/* SPDX-License-Identifier: Apache-2.0 */
/* Files: where they are, and reading one whole. */
#include "src/config/source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- folders ---------------------------------------------------------------------------------- */
/* The folder of a file as an absolute path, so that what is made of it holds anywhere. */
static tsr_status folder_of(tsri_pool *pool, const char *name, const char **out_folder)
{
    char folder[PATH_MAX], full[PATH_MAX];
    const char *slash = strrchr(name, '/');
    int n = slash ? (int)(slash - name) : 0;
    if (snprintf(folder, sizeof folder, "%.*s", n, name) >= (int)sizeof folder)
        return tsri_fail(TSR_ERR_IO, "%.100s...: the file name is too long", name);
    const char *path = slash == name ? "/" : n ? folder : ".";
    if (!realpath(path, full))
        snprintf(full, sizeof full, "%s", path);
    *out_folder = tsri_pool_strdup(pool, full);
    return *out_folder ? TSR_OK : TSR_ERR_NO_MEMORY;
}

tsr_status tsri_source_add(tsri_reader *r, const char *name, const char *path,
                           tsri_source **out_source)
{
    char full[PATH_MAX], real[PATH_MAX];
    const char *at = path ? path : name, *slash = strrchr(at, '/');
    tsri_source *s = tsri_pool_alloc(r->pool, sizeof *s);
    TSRI_NEED(s);
    s->name = tsri_pool_strdup(r->pool, name);
    TSRI_NEED(s->name);
    TSRI_TRY(folder_of(r->pool, at, &s->folder));
    int n = snprintf(full, sizeof full, "%s/%s", s->folder, slash ? slash + 1 : at);
    if (n < (int)sizeof full && realpath(full, real)) {
        s->path = tsri_pool_strdup(r->pool, real);
        TSRI_NEED(s->path);
    }
    if (!r->working)
        TSRI_TRY(folder_of(r->pool, "x", &r->working));
    s->next = r->sources;
    r->sources = s;
    *out_source = s;
    return TSR_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */
/* All of a file, in one piece of memory that the caller frees. */
static tsr_status read_all(const char *path, FILE *f, char **out_data, size_t *out_size)
{
    size_t size = 0, room = 0;
    char *data = NULL;
    /* One byte more than a file may have is enough: the parser tells. */
    for (size_t n = 1; n > 0 && size <= TSRI_YAML_MAX_BYTES; size += n) {
        if (size == room) {
            room = room ? 2 * room : 65536;
            char *more = tsri_mem_realloc(NULL, data, room);
            if (!more) {
                tsri_mem_free(data);
                return TSR_ERR_NO_MEMORY;
            }
            data = more;
        }
        n = fread(data + size, 1, room - size, f);
    }
    if (ferror(f)) {
        tsri_mem_free(data);
        return tsri_fail(TSR_ERR_IO, "%s: can't be read: %s", path, strerror(errno));
    }
    *out_data = data;
    *out_size = size;
    return TSR_OK;
}

/* Opens without waiting for the writer of a FIFO, who may never come. A pipe of the process itself,
 * such as a shell's <(...), has its writer already. */
static tsr_status open_file(const char *path, FILE **out_file)
{
    char link[64], target[8] = "";
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st)) {
        tsr_status status = tsri_fail(TSR_ERR_IO, "%s: can't be opened: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (S_ISFIFO(st.st_mode) &&
        (readlink(link, target, sizeof target - 1) < 5 || strncmp(target, "pipe:", 5))) {
        close(fd);
        return tsri_fail(TSR_ERR_IO,
                         "%s: is a FIFO, which may never have a writer: give a file, or - to read "
                         "standard input",
                         path);
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    if ((*out_file = fdopen(fd, "r")))
        return TSR_OK;
    close(fd);
    return tsri_fail(TSR_ERR_NO_MEMORY, "%s: can't be opened: no memory", path);
}

tsr_status tsri_source_read(const char *path, char **out_data, size_t *out_size)
{
    bool is_stdin = !strcmp(path, "-");
    FILE *f = stdin;
    if (!is_stdin)
        TSRI_TRY(open_file(path, &f));
    tsr_status status = read_all(path, f, out_data, out_size);
    if (!is_stdin)
        fclose(f);
    return status;
}
