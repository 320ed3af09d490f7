/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator in front of the C library's: see guard.h. */
#include "tests/guard/guard.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* They make no addresses. FRESH and FREED bytes make large numbers of any type; EDGE bytes make
 * large integers, and floating-point numbers so small (-8577 in f64, -6 in f32) that what is added
 * to them shows. */
enum { FRESH = 0x5a, FREED = 0xdd, EDGE = 0xc0 };
/* Freed blocks that are kept: how many, and bytes of all and of one. */
enum { KEPT = 1024, KEPT_BYTES = 4 << 20, KEPT_BLOCK = 64 << 10 };
enum { MOST_LOOKS = 5 };
static const uintptr_t live_mark = 0x6c6976656c697665, freed_mark = 0x6672656566726565;

/* The C library's own, which have these names for programs that replace malloc. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *p);

#define CALLER __builtin_return_address(0)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static guard_block *live;
static size_t live_bytes;
static guard_block *kept, **kept_end = &kept; /* oldest first */
static size_t nkept, kept_bytes;
static bool forks_alone, left_threads; /* the second: by fork, in the parent */

/* Whether this program is one of the build. Asked before any constructor runs, on one thread. */
static bool armed(void)
{
    static int state = -1;
    if (state < 0) {
        static const char root[] = GUARD_ROOT "/";
        char path[4096];
        ssize_t n = readlink("/proc/self/exe", path, sizeof path);
        state = n > (ssize_t)sizeof root && !memcmp(path, root, sizeof root - 1);
        if (state) {
            mallopt(M_ARENA_MAX, 1); /* [heap] is all of it */
            mallopt(M_PERTURB, 0);   /* done here */
        }
    }
    return state;
}

void guard_say(const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text - 1, format, ap);
    va_end(ap);
    n = n < 0 ? 0 : n > (int)sizeof text - 2 ? (int)sizeof text - 2 : n;
    text[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, text, (size_t)n);
    (void)written;
}

const char *guard_name(const void *code, char *out, size_t bytes)
{
    Dl_info info;
    if (!code || !dladdr(code, &info) || !info.dli_fname) {
        snprintf(out, bytes, "%p", code);
        return out;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(out, bytes, "%s+0x%tx (%s)", slash ? slash + 1 : info.dli_fname,
             (const char *)code - (const char *)info.dli_fbase,
             info.dli_sname ? info.dli_sname : "a static function");
    return out;
}

static uintptr_t mark_of(const guard_block *b, uintptr_t kind)
{
    return kind ^ (uintptr_t)b;
}

static unsigned char *bytes_of(const guard_block *b)
{
    return (unsigned char *)(uintptr_t)(b + 1);
}

static bool all_are(const unsigned char *p, size_t n, unsigned char value)
{
    return n == 0 || (p[0] == value && !memcmp(p, p + 1, n - 1));
}

/* The caller doesn't hold the lock, so that what handles SIGABRT can allocate. */
static void complain(const guard_block *b, const char *what)
{
    char by[256], freed[256];
    guard_say("heap guard: %s: %zu bytes at %p, allocated by %s%s%s", what, b->bytes,
              (const void *)bytes_of(b), guard_name(b->caller, by, sizeof by),
              b->freed_by ? ", freed by " : "",
              b->freed_by ? guard_name(b->freed_by, freed, sizeof freed) : "");
    abort();
}

static const char *damage_of(const guard_block *b)
{
    if (b->mark == mark_of(b, freed_mark))
        return all_are(bytes_of(b), b->bytes, FREED) ? NULL : "a freed block was written to";
    if (!all_are(b->edge, GUARD_EDGE, EDGE))
        return "bytes in front of a block were overwritten";
    if (!all_are(bytes_of(b) + b->bytes, GUARD_EDGE, EDGE))
        return "bytes behind a block were overwritten";
    return NULL;
}

static void check(const guard_block *b)
{
    const char *damage = damage_of(b);
    if (damage)
        complain(b, damage);
}

static void *allocate(size_t alignment, size_t bytes, bool zero, const void *caller)
{
    size_t extra = sizeof(guard_block) + GUARD_EDGE + (alignment > 16 ? alignment : 0);
    if (bytes > PTRDIFF_MAX - extra) {
        errno = ENOMEM;
        return NULL;
    }
    char *base = zero ? __libc_calloc(1, bytes + extra) : __libc_malloc(bytes + extra);
    if (!base)
        return NULL;
    uintptr_t p = (uintptr_t)base + sizeof(guard_block);
    if (alignment > 16)
        p = (p + alignment - 1) & ~(uintptr_t)(alignment - 1);
    guard_block *b = (guard_block *)p - 1;
    *b = (guard_block){.base = base, .bytes = bytes, .caller = caller};
    b->mark = mark_of(b, live_mark);
    memset(b->edge, EDGE, GUARD_EDGE);
    memset(bytes_of(b) + bytes, EDGE, GUARD_EDGE);
    if (!zero)
        memset(bytes_of(b), FRESH, bytes);
    pthread_mutex_lock(&lock);
    b->next = live;
    if (live)
        live->prev = b;
    live = b;
    live_bytes += bytes;
    pthread_mutex_unlock(&lock);
    return bytes_of(b);
}

static guard_block *block_of(const void *p, const void *caller)
{
    guard_block *b = (guard_block *)(uintptr_t)p - 1;
    if (b->mark == mark_of(b, freed_mark))
        complain(b, "a block was freed twice, or used after it was freed");
    if (b->mark != mark_of(b, live_mark)) {
        char by[256];
        guard_say("heap guard: %p, freed by %s, is no block, or bytes in front of it were "
                  "overwritten",
                  p, guard_name(caller, by, sizeof by));
        abort();
    }
    check(b);
    return b;
}

/* Takes from the blocks that are kept one that is too much. The caller holds the lock. */
static guard_block *take_oldest(void)
{
    guard_block *b = kept;
    if (!b || (nkept <= KEPT && kept_bytes <= KEPT_BYTES))
        return NULL;
    kept = b->next;
    if (!kept)
        kept_end = &kept;
    nkept--;
    kept_bytes -= b->bytes;
    return b;
}

static void release(void *p, const void *caller)
{
    guard_block *b = block_of(p, caller), *old;
    bool keep = b->bytes <= KEPT_BLOCK;
    memset(p, FREED, keep ? b->bytes : KEPT_BLOCK);
    pthread_mutex_lock(&lock);
    if (b->next)
        b->next->prev = b->prev;
    *(b->prev ? &b->prev->next : &live) = b->next;
    live_bytes -= b->bytes;
    b->mark = mark_of(b, freed_mark);
    b->freed_by = caller;
    if (keep) {
        b->next = b->prev = NULL;
        *kept_end = b;
        kept_end = &b->next;
        nkept++;
        kept_bytes += b->bytes;
    }
    while ((old = take_oldest())) {
        pthread_mutex_unlock(&lock);
        check(old);
        __libc_free(old->base);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    if (!keep)
        __libc_free(b->base);
}

void *malloc(size_t bytes)
{
    return armed() ? allocate(0, bytes, false, CALLER) : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    size_t all;
    if (!armed() || __builtin_mul_overflow(n, bytes, &all))
        return __libc_calloc(n, bytes);
    return allocate(0, all, true, CALLER);
}

void free(void *p)
{
    int saved = errno;
    if (!armed())
        __libc_free(p);
    else if (p)
        release(p, CALLER);
    errno = saved;
}

/* The block always moves. */
void *realloc(void *p, size_t bytes)
{
    if (!armed())
        return __libc_realloc(p, bytes);
    if (!p)
        return allocate(0, bytes, false, CALLER);
    if (bytes == 0) {
        release(p, CALLER);
        return NULL;
    }
    size_t before = block_of(p, CALLER)->bytes;
    void *moved = allocate(0, bytes, false, CALLER);
    if (moved) {
        memcpy(moved, p, before < bytes ? before : bytes);
        release(p, CALLER);
    }
    return moved;
}

void *memalign(size_t alignment, size_t bytes)
{
    return armed() ? allocate(alignment, bytes, false, CALLER) : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return armed() ? allocate(alignment, bytes, false, CALLER) : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment)
        return EINVAL;
    void *p =
        armed() ? allocate(alignment, bytes, false, CALLER) : __libc_memalign(alignment, bytes);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

size_t malloc_usable_size(void *p)
{
    static size_t (*next)(void *);
    if (armed())
        return p ? block_of(p, CALLER)->bytes : 0;
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "malloc_usable_size");
    return next(p);
}

/* For tests that ask how much is allocated. */
struct mallinfo2 mallinfo2(void)
{
    static struct mallinfo2 (*next)(void);
    if (armed())
        return (struct mallinfo2){.uordblks = live_bytes};
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "mallinfo2");
    return next();
}

/* Whether this process has one thread; its folder of threads has 2 links more than threads. */
static bool is_alone(void)
{
    struct stat threads;
    return !stat("/proc/self/task", &threads) && threads.st_nlink == 3;
}

static void before_fork(void)
{
    bool alone = is_alone();
    pthread_mutex_lock(&lock);
    forks_alone = alone;
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    left_threads |= !forks_alone;
    for (guard_block *b = live; b && left_threads; b = b->next)
        b->is_root = 1; /* perhaps only a thread had it that the child has not */
    pthread_mutex_unlock(&lock);
}

/* A block whose bytes were found damaged; NULL: none. */
static const guard_block *first_damaged(void)
{
    const guard_block *b;
    for (b = live; b && !damage_of(b);)
        b = b->next;
    if (!b)
        for (b = kept; b && !damage_of(b);)
            b = b->next;
    return b;
}

/* Aborts if a block is damaged. */
static void check_all(void)
{
    pthread_mutex_lock(&lock);
    const guard_block *damaged = first_damaged();
    pthread_mutex_unlock(&lock);
    if (damaged)
        check(damaged);
}

/* A block that a thread is just making or freeing may be in its registers alone: what is lost stays
 * lost, and so is looked for again where there are other threads. */
static bool has_leaks(const void *stack)
{
    for (int i = 1;; i++) {
        bool alone = is_alone();
        bool list = alone || i == MOST_LOOKS;
        pthread_mutex_lock(&lock);
        size_t leaks = guard_find_leaks(live, stack, left_threads || !alone, list);
        pthread_mutex_unlock(&lock);
        if (!leaks || list)
            return leaks != 0;
        usleep(20000);
    }
}

typedef int main_function(int argc, char **argv, char **envp);

static main_function *program_main;
static const void *above_main; /* set when main returned: what it left below keeps no block */

static int run_main(int argc, char **argv, char **envp)
{
    int code = program_main(argc, argv, envp);
    above_main = __builtin_frame_address(0);
    return code;
}

int __libc_start_main(main_function *entry, int argc, char **argv, void (*init)(void),
                      void (*finish)(void), void (*unload)(void), void *stack_end);

/* A program's first instructions call this. */
int __libc_start_main(main_function *entry, int argc, char **argv, void (*init)(void),
                      void (*finish)(void), void (*unload)(void), void *stack_end)
{
    int (*next)(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void),
                void *);
    *(void **)&next = dlsym(RTLD_NEXT, "__libc_start_main");
    program_main = entry;
    return next(armed() ? run_main : entry, argc, argv, init, finish, unload, stack_end);
}

static void at_exit(int status, void *arg)
{
    (void)status;
    (void)arg;
    check_all();
    /* Where main's stack is in use is not known to another thread. */
    if (gettid() != getpid() || !has_leaks(above_main ? above_main : __builtin_frame_address(0)))
        return;
    fflush(NULL);
    _exit(GUARD_LEAKS);
}

__attribute__((constructor)) static void start(void)
{
    if (!armed())
        return;
    pthread_atfork(before_fork, after_fork, in_child);
    on_exit(at_exit, NULL);
}
