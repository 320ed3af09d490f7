/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code on a CPU, for tests where there is no GPU. A launch runs block after block in one
 * thread of the host; the threads of a block are fibers that switch at barriers and warp
 * collectives. A barrier or a collective that some of its threads never reach ends the program with
 * the kernel's name. Device code keeps to the list in kernels/cuda/device_code.cuh; runtime.cc and
 * streams.cc have CUDA's runtime.
 *
 * Between two barriers the threads of a block run one after the other, from the first to the last.
 * EMULATED_HARSH=1: from the last to the first, so that who relies on the other order without a
 * barrier fails; and what a block left in shared memory is gone before the next.
 */
#ifndef TESSERA_TESTS_CUDA_EMULATOR_H
#define TESSERA_TESTS_CUDA_EMULATOR_H

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

/* Where the running fiber is. */
struct tsri_emulated_place {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
};
extern thread_local const tsri_emulated_place *tsri_emulated_now;

/* All __shared__ memory of the calling thread of the host: shared_begin.cc, shared_end.cc. */
extern thread_local char tsri_emulated_shared_begin[64], tsri_emulated_shared_end[64];

void tsri_emulated_sync_block(void);
/* Posts a value for the lanes of `mask`, waits for all of them, and gives lane `from`'s. Lanes that
 * are not in the mask have the caller's own. `all`: where to put the values of all 32, or NULL. */
uint64_t tsri_emulated_exchange(unsigned mask, uint64_t value, int from, uint64_t *all);
int tsri_emulated_lane(void);

/* streams.cc: puts the launch into the stream, or into the graph that the stream is captured for.
 */
void tsri_emulated_submit(const char *name, dim3 grid, dim3 block, cudaStream_t stream,
                          std::function<void()> body);
/* streams.cc: the same with any work; whether the stream is captured; whose it is. */
void tsri_emulated_enqueue(cudaStream_t stream, std::function<void()> work);
bool tsri_emulated_captures(cudaStream_t stream);
int tsri_emulated_device_of(cudaStream_t stream);
/* streams.cc: work that waits for other ranks. `make` is called once for each execution (of a
 * graph's work, at each replay); the function that it returns is called in the stream's turn until
 * that function returns true. */
typedef std::function<bool()> tsri_emulated_poll;
void tsri_emulated_enqueue_poll(cudaStream_t stream, std::function<tsri_emulated_poll()> make);
/* streams.cc: does some stream's next work. False if none can go on. */
bool tsri_emulated_progress(void);
/* runtime.cc: as long as one lives, the calling thread may touch devices' memory. What is enqueued
 * or submitted has it already. */
struct tsri_emulated_work {
    tsri_emulated_work();
    ~tsri_emulated_work();
    tsri_emulated_work(const tsri_emulated_work &) = delete;
    tsri_emulated_work &operator=(const tsri_emulated_work &) = delete;
};
/* launch.cc: runs body once per thread of the grid. */
void tsri_emulated_run(const char *name, dim3 grid, dim3 block, const std::function<void()> &body);

template <typename... P, typename... A>
void tsri_emulated_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                          cudaStream_t stream, A &&...args)
{
    std::tuple<std::decay_t<P>...> values(static_cast<std::decay_t<P>>(args)...);
    tsri_emulated_submit(name, grid, block, stream,
                         [kernel, values]() { std::apply(kernel, values); });
}

#define threadIdx (tsri_emulated_now->thread)
#define blockIdx (tsri_emulated_now->block)
#define blockDim (tsri_emulated_now->block_dim)
#define gridDim (tsri_emulated_now->grid_dim)
#define warpSize 32

#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#undef __restrict__
#define __restrict__ __restrict

static inline void __syncthreads(void)
{
    tsri_emulated_sync_block();
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    tsri_emulated_exchange(mask, 0, 0, nullptr);
}

template <typename T> static inline T tsri_emulated_shuffle(unsigned mask, T v, int from)
{
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof bits, "a shuffle moves at most 8 bytes");
    std::memcpy(&bits, &v, sizeof v);
    bits = tsri_emulated_exchange(mask, bits, from, nullptr);
    std::memcpy(&v, &bits, sizeof v);
    return v;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32)
{
    int lane = tsri_emulated_lane();
    return tsri_emulated_shuffle(mask, v, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32)
{
    int lane = tsri_emulated_lane(), from = lane ^ x;
    return tsri_emulated_shuffle(mask, v,
                                 (from & ~(width - 1)) <= (lane & ~(width - 1)) ? from : lane);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T v, int d, int width = 32)
{
    int lane = tsri_emulated_lane();
    return tsri_emulated_shuffle(mask, v, (lane & (width - 1)) + d < width ? lane + d : lane);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T v, int d, int width = 32)
{
    int lane = tsri_emulated_lane();
    return tsri_emulated_shuffle(mask, v, (lane & (width - 1)) >= d ? lane - d : lane);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    uint64_t all[32];
    tsri_emulated_exchange(mask, predicate != 0, 0, all);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (unsigned)((mask >> i & 1) && all[i]) << i;
    return bits;
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

/* Ranks are threads of one process, and share a device. */
template <typename T> static inline T atomicAdd(T *p, T v)
{
    static_assert(std::is_integral<T>::value, "no float atomics: results must repeat");
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicCAS(T *p, T expected, T v)
{
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <typename T> static inline T atomicExch(T *p, T v)
{
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicMax(T *p, T v)
{
    T there = *p;
    while (there < v && atomicCAS(p, there, v) != there)
        there = *p;
    return there;
}
template <typename T> static inline T atomicMin(T *p, T v)
{
    T there = *p;
    while (there > v && atomicCAS(p, there, v) != there)
        there = *p;
    return there;
}
static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline void __stwb(T *p, T v)
{
    *p = v;
}
#define __expf expf
#define __logf logf
/* Never fused: this is built with -ffp-contract=off. */
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float normcdff(float x)
{
    return 0.5f * erfcf(-x * 0.70710678f);
}
static inline double normcdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

#endif
