/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of fibers. */
#include "tests/cuda/emulator/emulator.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

thread_local const tsri_emulated_place *tsri_emulated_now;

namespace {

enum { STACK = 64 * 1024, MAX_THREADS = 1024, LANES = 32, SPOILED_BLOCKS = 4 };
enum state { READY, AT_BLOCK, AT_WARP, DONE };

#if defined(__x86_64__)
/* What a call must keep lies on the fiber's own stack; only the stack pointer is exchanged. */
extern "C" void tsri_emulated_switch(void **save, void *load);
asm(R"(
.text
.local tsri_emulated_switch
tsri_emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#else
#error "the emulator switches stacks by hand: x86-64 alone so far"
#endif

struct fiber {
    tsri_emulated_place place;
    void *sp;
    char *stack;
    int state;
    unsigned mask; /* AT_WARP: of the collective */
    uint64_t value, result[LANES];
};

/* Of one thread of the host: a block at a time. */
struct engine {
    std::vector<fiber> fibers;
    fiber *now = nullptr;
    void *host_sp = nullptr;
    const std::function<void()> *body = nullptr;
    const char *name = "";
    int n = 0;

    ~engine()
    {
        for (fiber &f : fibers)
            munmap(f.stack, STACK);
    }
};
thread_local engine the;

void leave()
{
    fiber *f = the.now;
    tsri_emulated_switch(&f->sp, the.host_sp);
}

void fiber_main()
{
    (*the.body)();
    the.now->state = DONE;
    leave();
    abort();
}

void prepare(fiber &f)
{
    /* Six registers, the entry, and a return address that nobody uses: aligned as at a call. */
    void **top = (void **)(f.stack + STACK) - 1;
    *top = nullptr;
    *--top = (void *)fiber_main;
    top -= 6;
    for (int i = 0; i < 6; i++)
        top[i] = nullptr;
    f.sp = top;
    f.state = READY;
}

void resume(fiber &f)
{
    the.now = &f;
    tsri_emulated_now = &f.place;
    tsri_emulated_switch(&the.host_sp, f.sp);
    tsri_emulated_now = nullptr;
}

[[noreturn]] void stuck()
{
    int at_block = 0, at_warp = 0, done = 0;
    for (int i = 0; i < the.n; i++) {
        at_block += the.fibers[i].state == AT_BLOCK;
        at_warp += the.fibers[i].state == AT_WARP;
        done += the.fibers[i].state == DONE;
    }
    fprintf(
        stderr,
        "emulator: kernel %s is stuck in block %u: %d threads wait at __syncthreads, %d in a warp "
        "collective, %d have returned\n",
        the.name, the.fibers[0].place.block.x, at_block, at_warp, done);
    abort();
}

bool is_harsh()
{
    static const char *said = getenv("EMULATED_HARSH");
    return said && !strcmp(said, "1");
}

/* What is not a number, nor an index. All kernels' arrays, so the first blocks of a launch alone.
 */
void spoil_shared(int block)
{
    /* The compiler is not to know of which array: library calls may check its size. */
    char *volatile begin = tsri_emulated_shared_begin;
    char *from = begin + sizeof tsri_emulated_shared_begin;
    if (from > tsri_emulated_shared_end) {
        fprintf(stderr, "emulator: shared_begin.cc and shared_end.cc do not enclose the kernels\n");
        abort();
    }
    if (block < SPOILED_BLOCKS)
        memset(from, 0xff, (size_t)(tsri_emulated_shared_end - from));
}

void run_block()
{
    int done = 0;
    bool backwards = is_harsh();
    while (done < the.n) {
        int ran = 0, at_block = 0;
        done = 0;
        for (int k = 0; k < the.n; k++) {
            fiber &f = the.fibers[backwards ? the.n - 1 - k : k];
            if (f.state == READY) {
                resume(f);
                ran++;
            }
            at_block += f.state == AT_BLOCK;
            done += f.state == DONE;
        }
        /* Threads that have returned do not hold up a barrier. */
        if (at_block && at_block + done == the.n) {
            for (int i = 0; i < the.n; i++)
                if (the.fibers[i].state == AT_BLOCK)
                    the.fibers[i].state = READY;
        } else if (!ran && done < the.n) {
            stuck();
        }
    }
}

} // namespace

int tsri_emulated_lane(void)
{
    return (int)(the.now - the.fibers.data()) % LANES;
}

void tsri_emulated_sync_block(void)
{
    the.now->state = AT_BLOCK;
    leave();
}

uint64_t tsri_emulated_exchange(unsigned mask, uint64_t value, int from, uint64_t *all)
{
    fiber *me = the.now;
    int lane = tsri_emulated_lane();
    fiber *warp = me - lane;
    int lanes = the.n - (int)(warp - the.fibers.data());
    lanes = lanes < LANES ? lanes : LANES;
    if (lanes < LANES)
        mask &= (1u << lanes) - 1; /* a block whose size is no multiple of 32 */
    me->value = value;
    me->mask = mask;
    me->state = AT_WARP;
    bool complete = mask >> lane & 1;
    for (int i = 0; i < lanes && complete; i++)
        if (mask >> i & 1)
            complete = warp[i].state == AT_WARP && warp[i].mask == mask;
    if (complete) {
        for (int i = 0; i < lanes; i++)
            if (mask >> i & 1)
                for (int j = 0; j < lanes; j++)
                    warp[i].result[j] = warp[j].value;
        for (int i = 0; i < lanes; i++)
            if (mask >> i & 1)
                warp[i].state = READY;
    } else {
        leave();
    }
    for (int i = 0; all && i < LANES; i++)
        all[i] = i < lanes ? me->result[i] : 0;
    return from >= 0 && from < lanes && (mask >> from & 1) ? me->result[from] : value;
}

void tsri_emulated_run(const char *name, dim3 grid, dim3 block, const std::function<void()> &body)
{
    int n = (int)(block.x * block.y * block.z), blocks = 0;
    the.name = name;
    the.n = n;
    the.body = &body;
    while ((int)the.fibers.size() < n) {
        fiber f = {};
        f.stack = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f.stack == MAP_FAILED)
            abort();
        the.fibers.push_back(f);
    }
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                for (int i = 0; i < n; i++) {
                    fiber &f = the.fibers[i];
                    unsigned u = (unsigned)i;
                    f.place = {{u % block.x, u / block.x % block.y, u / block.x / block.y},
                               {x, y, z},
                               block,
                               grid};
                    prepare(f);
                }
                if (is_harsh())
                    spoil_shared(blocks++);
                run_block();
            }
}
