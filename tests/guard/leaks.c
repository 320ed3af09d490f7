/* SPDX-License-Identifier: Apache-2.0 */
/* Finds blocks that no memory of the process points to: see guard.h. */
#include "tests/guard/guard.h"

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SHOWN = 10, MOST_CODE = 64 };

/* Blocks by address; those that are reached and still to be read are on a stack of as many. */
typedef struct search {
    guard_block **blocks, **unread;
    size_t n, nunread;
} search;

/* The code whose blocks can be leaks. */
static struct {
    uintptr_t from, to;
} code[MOST_CODE];
static int ncode;

static int note_code(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char *const others[] = {"/libc.so.", "/libyaml-", "/libcjson.so", "/libz.so"};
    const char *name = info->dlpi_name;
    (void)size;
    (void)arg;
    bool known = !*name || !strncmp(name, GUARD_ROOT "/", sizeof GUARD_ROOT);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        known |= strstr(name, others[i]) != NULL;
    for (int i = 0; known && i < info->dlpi_phnum && ncode < MOST_CODE; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X))
            continue;
        code[ncode].from = info->dlpi_addr + h->p_vaddr;
        code[ncode++].to = info->dlpi_addr + h->p_vaddr + h->p_memsz;
    }
    return 0;
}

static bool can_leak(const guard_block *b)
{
    for (int i = 0; i < ncode && !b->is_root; i++)
        if ((uintptr_t)b->caller >= code[i].from && (uintptr_t)b->caller < code[i].to)
            return true;
    return false;
}

/* Moves blocks[i] down a heap whose greatest address is its root. */
static void sift(guard_block **blocks, size_t i, size_t n)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && blocks[child + 1] > blocks[child])
            child++;
        if (blocks[i] >= blocks[child])
            return;
        guard_block *b = blocks[i];
        blocks[i] = blocks[child];
        blocks[child] = b;
    }
}

/* Sorts by address. The C library's qsort would allocate. */
static void sort(guard_block **blocks, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(blocks, i, n);
    while (n-- > 1) {
        guard_block *b = blocks[0];
        blocks[0] = blocks[n];
        blocks[n] = b;
        sift(blocks, 0, n);
    }
}

/* The number of blocks that start at or before an address. */
static size_t blocks_before(const search *s, uintptr_t at)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)(s->blocks[middle] + 1) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uintptr_t end_of(const guard_block *b)
{
    return (uintptr_t)(b + 1) + (b->bytes ? b->bytes : 1);
}

static void reach(search *s, guard_block *b)
{
    if (!b->reached)
        s->unread[s->nunread++] = b;
    b->reached = 1;
}

/* Reaches the blocks that words in [from, to) point to, at their start or into them. */
static void read_words(search *s, uintptr_t from, uintptr_t to)
{
    if (!s->n)
        return;
    const uintptr_t low = (uintptr_t)(s->blocks[0] + 1), high = end_of(s->blocks[s->n - 1]);
    for (from = (from + 7) & ~(uintptr_t)7; from + 8 <= to; from += 8) {
        const uintptr_t word = *(const uintptr_t *)from;
        if (word < low || word >= high)
            continue;
        size_t i = blocks_before(s, word);
        if (i && word < end_of(s->blocks[i - 1]))
            reach(s, s->blocks[i - 1]);
    }
}

/* Reads a part of memory, but for the blocks in it. */
static void read_around_blocks(search *s, uintptr_t from, uintptr_t to)
{
    size_t i = blocks_before(s, from);
    if (i && end_of(s->blocks[i - 1]) > from)
        from = end_of(s->blocks[i - 1]);
    for (; i < s->n && (uintptr_t)s->blocks[i] < to; i++) {
        read_words(s, from, (uintptr_t)s->blocks[i]);
        from = end_of(s->blocks[i]);
    }
    if (from < to)
        read_words(s, from, to);
}

/* Reads those pages of a mapping that have memory. */
static void read_mapping(search *s, uintptr_t from, uintptr_t to)
{
    enum { PAGES = 1024 };
    unsigned char has_memory[PAGES];
    while (from < to) {
        uintptr_t start = from & ~(uintptr_t)(PAGE - 1);
        size_t pages = (to - start + PAGE - 1) / PAGE;
        pages = pages < PAGES ? pages : PAGES;
        bool known = !mincore((void *)start, pages * PAGE, has_memory);
        for (size_t i = 0; i < pages; i++) {
            uintptr_t end = start + (i + 1) * PAGE;
            if (!known || has_memory[i] & 1)
                read_around_blocks(s, from, end < to ? end : to);
            from = end;
        }
    }
}

/* The size of a thread's stack, without the page in front of it that nobody may touch. */
static size_t stack_bytes(void)
{
    size_t bytes = 0, barrier = 0;
    pthread_attr_t attr;
    if (!pthread_getattr_default_np(&attr) && !pthread_attr_getstacksize(&attr, &bytes) &&
        !pthread_attr_getguardsize(&attr, &barrier))
        pthread_attr_destroy(&attr);
    return bytes - barrier;
}

/* Reads what the process can write and is no heap: variables of all objects, stacks, threads'
 * variables and other private mappings. The system joins a thread's stack and what lies above it.
 */
static void read_process(search *s, char *maps, uintptr_t stack, bool all_stacks)
{
    const size_t most = stack_bytes();
    uintptr_t barrier = 0;
    for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
        char *end;
        uintptr_t from = strtoul(line, &end, 16);
        uintptr_t to = strtoul(end + 1, &end, 16);
        const char *access = end + 1;
        bool is_named = strchr(line, '/') || strchr(line, '[');
        bool is_thread_stack = from == barrier && !is_named;
        if (!strncmp(access, "---p", 4) && !is_named)
            barrier = to;
        if (strncmp(access, "rw-p", 4) || strstr(line, "[heap]"))
            continue;
        if (stack >= from && stack < to)
            from = stack;
        else if (is_thread_stack && !all_stacks)
            from = most < to - from ? from + most : to;
        read_mapping(s, from, to);
    }
}

/* Memory of the system's own, so that the search changes nothing that it reads. */
static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Returns /proc/self/maps as a string, or NULL. */
static char *read_maps(void)
{
    const size_t most = 8 << 20;
    size_t n = 0;
    char *text = map(most);
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 || !text ? -1 : 1;
    while (got > 0 && n < most) {
        got = read(fd, text + n, most - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    return got == 0 ? text : NULL;
}

static size_t count_leaks(const search *s, bool list)
{
    size_t leaks = 0, bytes = 0;
    char name[256];
    for (size_t i = 0; i < s->n; i++) {
        const guard_block *b = s->blocks[i];
        if (b->reached)
            continue;
        bytes += b->bytes;
        if (leaks++ < SHOWN && list)
            guard_say("heap guard: leaked %zu bytes, allocated by %s", b->bytes,
                      guard_name(b->caller, name, sizeof name));
    }
    if (leaks && list)
        guard_say("heap guard: %zu blocks of %zu bytes were leaked", leaks, bytes);
    return leaks;
}

size_t guard_find_leaks(guard_block *live, const void *stack, bool all_stacks, bool list)
{
    search s = {0};
    size_t n = 0;
    if (!live) /* valgrind has taken malloc's place */
        return 0;
    ncode = 0;
    dl_iterate_phdr(note_code, NULL);
    char *maps = read_maps();
    for (const guard_block *b = live; b; b = b->next)
        n++;
    s.blocks = map(n * sizeof *s.blocks);
    s.unread = map(n * sizeof *s.unread);
    if (!maps || !s.blocks || !s.unread)
        return 0;
    for (guard_block *b = live; b; b = b->next) {
        b->reached = 0;
        s.blocks[s.n++] = b;
    }
    sort(s.blocks, s.n);
    for (size_t i = 0; i < s.n; i++)
        if (!can_leak(s.blocks[i]))
            reach(&s, s.blocks[i]);
    read_process(&s, maps, (uintptr_t)stack, all_stacks);
    while (s.nunread) {
        const guard_block *b = s.unread[--s.nunread];
        read_words(&s, (uintptr_t)(b + 1), (uintptr_t)(b + 1) + b->bytes);
    }
    return count_leaks(&s, list);
}
