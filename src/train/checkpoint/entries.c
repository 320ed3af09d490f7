/* SPDX-License-Identifier: Apache-2.0 */
#include "src/train/checkpoint/entries.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/core/foreign.h"
#include "src/core/new_file.h"
#include "src/core/retry.h"
#include "src/train/checkpoint/index.h"

/* --- names ------------------------------------------------------------------------------------ */
void tsri_ckpt_step_name(char buf[TSRI_CKPT_ENTRY], int64_t step)
{
    snprintf(buf, TSRI_CKPT_ENTRY, "step-%08" PRId64, step);
}

/* Takes what a name begins with. */
static bool take_text(const char **at, const char *text)
{
    const size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

/* Takes a number that is padded with zeros to `digits` digits, and no further. */
static bool take_padded(const char **at, int digits, int64_t *out)
{
    char again[32];
    const char *p = *at;
    while (*p == '0' && p[1] >= '0' && p[1] <= '9')
        p++;
    if (!tsri_take_number(&p, 0, INT64_MAX, out))
        return false;
    const int n = snprintf(again, sizeof again, "%0*" PRId64, digits, *out);
    if (p - *at != n || strncmp(again, *at, (size_t)n) != 0)
        return false;
    *at = p;
    return true;
}

/* Takes so many hexadecimal digits. */
static bool take_hex(const char **at, size_t digits)
{
    if (strspn(*at, "0123456789abcdef") < digits)
        return false;
    *at += digits;
    return true;
}

bool tsri_ckpt_is_step(const char *name, int64_t *out_step)
{
    return take_text(&name, "step-") && take_padded(&name, 8, out_step) && !*name;
}

bool tsri_ckpt_is_left(const char *name)
{
    int64_t step;
    if (take_text(&name, ".gone-")) {
        take_text(&name, "step-");
        return take_padded(&name, 8, &step) && !*name;
    }
    return take_text(&name, ".step-") && take_padded(&name, 8, &step) && take_text(&name, ".") &&
           take_hex(&name, TSRI_CKPT_ID - 1) && !*name;
}

bool tsri_ckpt_is_mark(const char *name)
{
    return take_text(&name, ".commit-") && take_hex(&name, TSRI_CKPT_ID - 1) && !*name;
}

static bool is_shard(const char *name)
{
    int64_t file, nfiles;
    return take_text(&name, "shard-") && take_padded(&name, 5, &file) && take_text(&name, "-of-") &&
           take_padded(&name, 5, &nfiles) && file < nfiles && !strcmp(name, ".safetensors");
}

/* Whether a file is one that is written for a checkpoint (src/core/new_file.h has temporaries). */
static bool is_own(const char *name)
{
    if (!strcmp(name, "index.json") || is_shard(name))
        return true;
    return take_text(&name, ".tessera-") && take_hex(&name, 16) && take_text(&name, "-") &&
           take_hex(&name, 16) && !*name;
}

/* --- what an entry is ------------------------------------------------------------------------- */
int tsri_ckpt_open_entry(int folder, const char *name)
{
    return TSRI_RETRY(openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool tsri_ckpt_is_link(int folder, const char *name)
{
    struct stat st;
    return !TSRI_RETRY(fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW)) && S_ISLNK(st.st_mode);
}

DIR *tsri_ckpt_names(int fd)
{
    DIR *d = NULL;
    if (fd < 0)
        return NULL;
    do
        d = fdopendir(fd);
    while (!d && errno == EINTR);
    const int error = errno;
    if (!d)
        close(fd);
    errno = error;
    return d;
}

const char *tsri_ckpt_next_name(DIR *d)
{
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e && errno != EINTR)
            return NULL;
        if (e && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            return e->d_name;
    }
}

/* Whether an error says that there is no such entry; any other hides whether there is one. */
static bool is_absent(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP;
}

bool tsri_ckpt_is_checkpoint(int folder, const char *name, bool or_shards)
{
    char index[TSRI_CKPT_ENTRY + sizeof "/index.json"];
    bool is = false;
    snprintf(index, sizeof index, "%s/index.json", name);
    if (!TSRI_RETRY(faccessat(folder, index, F_OK, 0)) || !is_absent(errno))
        return true;
    if (!or_shards)
        return false;
    DIR *d = tsri_ckpt_names(TSRI_RETRY(openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
    if (!d)
        return !is_absent(errno);
    for (const char *file; !is && (file = tsri_ckpt_next_name(d));)
        is = is_shard(file);
    is |= errno != 0;
    closedir(d);
    return is;
}

/* --- removing --------------------------------------------------------------------------------- */
void tsri_ckpt_note(tsri_ckpt_stays *stays, const char *within, const char *name)
{
    const size_t at = strlen(stays->names), room = sizeof stays->names - at;
    const int n = snprintf(stays->names + at, room, "%s'%s%s%.80s'", stays->n++ ? ", " : "", within,
                           *within ? "/" : "", name);
    if (n < 0 || (size_t)n >= room)
        stays->names[at] = 0; /* it is counted */
    tsri_make_printable(stays->names + at, false);
}

/* Removes the files of a checkpoint; all else is noted. Returns whether none of them stays. */
static bool remove_files(DIR *d, const char *shown, tsri_ckpt_stays *stays)
{
    bool removed = true;
    for (const char *name; (name = tsri_ckpt_next_name(d));) {
        const bool is = is_own(name);
        if (is && (!TSRI_RETRY(unlinkat(dirfd(d), name, 0)) || errno == ENOENT))
            continue;
        removed &= !is || errno == EISDIR; /* a folder of that name is none of a save's */
        tsri_ckpt_note(stays, shown, name);
    }
    return removed && !errno;
}

bool tsri_ckpt_remove_entry(int folder, const char *name, const char *shown, tsri_ckpt_stays *stays)
{
    const int fd = tsri_ckpt_open_entry(folder, name), before = stays->n;
    DIR *d = tsri_ckpt_names(fd);
    if (!d && errno == ENOENT)
        return true;
    if (!d) {
        const bool removed =
            tsri_ckpt_is_link(folder, name) && !TSRI_RETRY(unlinkat(folder, name, 0));
        if (!removed)
            tsri_ckpt_note(stays, "", shown);
        return removed;
    }
    TSRI_RETRY(unlinkat(fd, "index.json", 0)); /* from now on it is no checkpoint */
    bool removed = remove_files(d, shown, stays);
    closedir(d);
    if (stays->n == before && TSRI_RETRY(unlinkat(folder, name, AT_REMOVEDIR)) && errno != ENOENT) {
        tsri_ckpt_note(stays, "", shown);
        removed = false;
    }
    return removed;
}

void tsri_ckpt_give_back(int folder, const char *from, const char *to)
{
    const int into = tsri_ckpt_open_entry(folder, to);
    DIR *d = tsri_ckpt_names(tsri_ckpt_open_entry(folder, from));
    for (const char *name; d && into >= 0 && (name = tsri_ckpt_next_name(d));)
        if (!is_own(name))
            TSRI_RETRY(renameat2(dirfd(d), name, into, name, RENAME_NOREPLACE));
    if (d) {
        closedir(d);
        unlinkat(folder, from, AT_REMOVEDIR);
    }
    if (into >= 0)
        close(into);
}
