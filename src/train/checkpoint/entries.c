/* SPDX-License-Identifier: Apache-2.0 */
#include "src/train/checkpoint/entries.h"

#include <dirent.h>
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

/* The names in a folder, whose descriptor it takes; NULL with errno. */
static DIR *names_of(int fd)
{
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0)
        close(fd);
    return d;
}

static const char *next_name(DIR *d)
{
    const struct dirent *e;
    do
        e = readdir(d);
    while (e && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")));
    return e ? e->d_name : NULL;
}

bool tsri_ckpt_is_checkpoint(int folder, const char *name, bool or_shards)
{
    char index[TSRI_CKPT_ENTRY + sizeof "/index.json"];
    bool is = false;
    snprintf(index, sizeof index, "%s/index.json", name);
    if (!TSRI_RETRY(faccessat(folder, index, F_OK, 0)))
        return true;
    DIR *d = or_shards
                 ? names_of(TSRI_RETRY(openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)))
                 : NULL;
    for (const char *file; d && !is && (file = next_name(d));)
        is = is_shard(file);
    if (d)
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

/* Removes the files of a checkpoint; all else is noted. */
static void remove_files(DIR *d, const char *shown, tsri_ckpt_stays *stays)
{
    for (const char *name; (name = next_name(d));)
        if (!is_own(name) || (TSRI_RETRY(unlinkat(dirfd(d), name, 0)) && errno != ENOENT))
            tsri_ckpt_note(stays, shown, name);
}

void tsri_ckpt_remove_entry(int folder, const char *name, const char *shown, tsri_ckpt_stays *stays)
{
    const int fd = tsri_ckpt_open_entry(folder, name);
    const int before = stays->n;
    DIR *d = names_of(fd);
    if (!d && errno == ENOENT)
        return;
    if (!d) {
        if (!tsri_ckpt_is_link(folder, name) || TSRI_RETRY(unlinkat(folder, name, 0)))
            tsri_ckpt_note(stays, "", shown);
        return;
    }
    TSRI_RETRY(unlinkat(fd, "index.json", 0)); /* from now on it is no checkpoint */
    remove_files(d, shown, stays);
    closedir(d);
    if (stays->n == before && TSRI_RETRY(unlinkat(folder, name, AT_REMOVEDIR)) && errno != ENOENT)
        tsri_ckpt_note(stays, "", shown);
}

void tsri_ckpt_give_back(int folder, const char *from, const char *to)
{
    const int into = tsri_ckpt_open_entry(folder, to);
    DIR *d = names_of(tsri_ckpt_open_entry(folder, from));
    for (const char *name; d && into >= 0 && (name = next_name(d));)
        TSRI_RETRY(renameat2(dirfd(d), name, into, name, RENAME_NOREPLACE));
    if (d) {
        closedir(d);
        unlinkat(folder, from, AT_REMOVEDIR);
    }
    if (into >= 0)
        close(into);
}
