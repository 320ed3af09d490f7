/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's runtime, as far as the module uses it: devices and their memory; streams.cc has the rest.
 * EMULATED_DEVICES devices (1) of EMULATED_BYTES (1 GiB) each. EMULATED_DRIVER: the driver's
 * version (13000). EMULATED_CAPABILITY: theirs ("9.0"; kernels are for it and later ones).
 * EMULATED_PEERS=0: they can't read each other.
 *
 * As on a GPU, the host's code can't touch a device's memory: to read or write it outside of a
 * stream's work is a SIGSEGV. This is by a protection key, where the CPU and the system have them:
 * threads are without the right to it, except those that do work, while they do it. Elsewhere
 * EMULATED_PROTECT=1 takes the memory away from all threads as long as none does work, so that an
 * access passes unseen if another rank's thread is at work in that moment; without it all pass.
 */
#include "tests/cuda/emulator/control.h"
#include "tests/cuda/emulator/runtime.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>

static thread_local cudaError_t last_error = cudaSuccess;

cudaError_t tsri_emulated_fail(cudaError_t e)
{
    last_error = e;
    return e;
}

static cudaError_t fail(cudaError_t e)
{
    return tsri_emulated_fail(e);
}

static thread_local int current_device;

int tsri_emulated_device(void)
{
    return current_device;
}

bool tsri_emulated_is_named(const char *variable, int number)
{
    const char *said = getenv(variable);
    int device, which = 0;
    return said && sscanf(said, "%d:%d", &device, &which) >= 1 && device == current_device &&
           which == number;
}

/* The key that devices' memory is under; -1: there are none here. */
static int device_key(void)
{
    static const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    return key;
}

/* Where there is no key: devices' memory that is mapped, and how many threads do work on it. */
struct protected_memory {
    std::mutex lock;
    std::map<void *, size_t> blocks;
    int workers = 0;

    int rights() const
    {
        return workers ? PROT_READ | PROT_WRITE : PROT_NONE;
    }
    void apply() const
    {
        for (auto &block : blocks)
            if (mprotect(block.first, block.second, rights()) != 0)
                abort();
    }
};
static protected_memory &guarded = *new protected_memory;

static bool protects_by_pages(void)
{
    static const char *said = getenv("EMULATED_PROTECT");
    return said && !strcmp(said, "1") && device_key() < 0;
}

static void count_worker(int change)
{
    std::lock_guard<std::mutex> hold(guarded.lock);
    guarded.workers += change;
    if (guarded.workers == (change > 0 ? 1 : 0))
        guarded.apply();
}

static thread_local int at_work;

tsri_emulated_work::tsri_emulated_work()
{
    if (at_work++ != 0)
        return;
    if (device_key() >= 0)
        pkey_set(device_key(), 0);
    else if (protects_by_pages())
        count_worker(1);
}

tsri_emulated_work::~tsri_emulated_work()
{
    if (--at_work != 0)
        return;
    if (device_key() >= 0)
        pkey_set(device_key(), PKEY_DISABLE_ACCESS);
    else if (protects_by_pages())
        count_worker(-1);
}

/* control.h */
static std::atomic<bool> stalled;
static std::atomic<int> stalled_waits;

cudaError_t tsri_emulated_waits(void)
{
    if (!stalled)
        return cudaSuccess;
    stalled_waits++;
    return fail(cudaErrorLaunchTimeout);
}

__attribute__((visibility("default"))) int tsri_emulated_stall(int on)
{
    stalled = on != 0;
    return stalled_waits.exchange(0);
}

bool tsri_emulated_is_stalled(void)
{
    return stalled;
}

cudaError_t tsri_emulated_enter(void)
{
    static std::atomic<pid_t> owner;
    pid_t none = 0, me = getpid();
    return owner.compare_exchange_strong(none, me) || none == me
               ? cudaSuccess
               : fail(cudaErrorInitializationError);
}

/* Pinned memory, of which copies are asynchronous. */
static std::mutex pinned_lock;
static std::set<std::pair<uintptr_t, size_t>> *pinned = new std::set<std::pair<uintptr_t, size_t>>;

static void note_pinned(const void *p, size_t bytes)
{
    std::lock_guard<std::mutex> hold(pinned_lock);
    pinned->insert({(uintptr_t)p, bytes});
}
static bool forget_pinned(const void *p)
{
    std::lock_guard<std::mutex> hold(pinned_lock);
    auto at = pinned->lower_bound({(uintptr_t)p, 0});
    if (at == pinned->end() || at->first != (uintptr_t)p)
        return false;
    pinned->erase(at);
    return true;
}
bool tsri_emulated_is_pinned(const void *p)
{
    std::lock_guard<std::mutex> hold(pinned_lock);
    auto at = pinned->upper_bound({(uintptr_t)p, SIZE_MAX});
    return at != pinned->begin() && (uintptr_t)p - (--at)->first < at->second;
}

extern "C" {

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t e)
{
    static thread_local char text[64];
    snprintf(text, sizeof text, "emulated error %d", (int)e);
    return text;
}

enum { MAX_DEVICES = 64 };

static int device_count(void)
{
    const char *said = getenv("EMULATED_DEVICES");
    int n = said ? atoi(said) : 1;
    return n < MAX_DEVICES ? n : MAX_DEVICES;
}
static int driver_version(void)
{
    const char *said = getenv("EMULATED_DRIVER");
    return said ? atoi(said) : 13000;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    if (driver_version() < 13000)
        return fail(cudaErrorInsufficientDriver);
    if (tsri_emulated_enter() != cudaSuccess)
        return cudaErrorInitializationError;
    *n = device_count();
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = driver_version();
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int d)
{
    if (tsri_emulated_enter() != cudaSuccess)
        return cudaErrorInitializationError;
    if (d < 0 || d >= device_count())
        return fail(cudaErrorInvalidDevice);
    current_device = d;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *d)
{
    *d = current_device;
    return cudaSuccess;
}

static size_t device_bytes(void)
{
    const char *said = getenv("EMULATED_BYTES");
    return said ? strtoull(said, nullptr, 10) : (size_t)1 << 30;
}
static std::atomic<size_t> taken[MAX_DEVICES];

static void capability(int *major, int *minor)
{
    const char *said = getenv("EMULATED_CAPABILITY");
    *major = 9;
    *minor = 0;
    if (said)
        sscanf(said, "%d.%d", major, minor);
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *)
{
    int major, minor;
    capability(&major, &minor);
    *a = cudaFuncAttributes();
    return major < 9 ? fail(cudaErrorNoKernelImageForDevice) : cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    *p = cudaDeviceProp();
    snprintf(p->name, sizeof p->name, "emulated on a CPU");
    capability(&p->major, &p->minor);
    p->multiProcessorCount = 4;
    p->sharedMemPerBlockOptin = 232448;
    p->l2CacheSize = 1 << 20;
    p->totalGlobalMem = device_bytes();
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    const char *said = getenv("EMULATED_PEERS");
    *can = device != peer && !(said && !strcmp(said, "0"));
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return fail(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int d)
{
    snprintf(id, (size_t)size, "0000:%02x:00.0", d);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    *all = device_bytes();
    *free_bytes = *all > taken[current_device] ? *all - taken[current_device] : 0;
    return cudaSuccess;
}

/* Pages that nobody has touched cost nothing, so arenas may be large. */
struct block_head {
    size_t bytes;
    int fd; /* of a device's memory, which other processes may map; -1: the host's */
    int device;
};
/* All but the head, which is the emulator's own. */
static bool set_apart(void *base, size_t all)
{
    char *memory = (char *)base + 4096;
    if (device_key() >= 0)
        return pkey_mprotect(memory, all - 4096, PROT_READ | PROT_WRITE, device_key()) == 0;
    if (!protects_by_pages())
        return true;
    std::lock_guard<std::mutex> hold(guarded.lock);
    guarded.blocks[memory] = all - 4096;
    return mprotect(memory, all - 4096, guarded.rights()) == 0;
}
/* Before it is unmapped. */
static void forget(void *memory)
{
    std::lock_guard<std::mutex> hold(guarded.lock);
    guarded.blocks.erase(memory);
}
static cudaError_t take(void **p, size_t bytes, int fd = -1)
{
    size_t all = bytes + 4096;
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    if (fd >= 0 && ftruncate(fd, (off_t)all) != 0)
        return fail(cudaErrorMemoryAllocation);
    void *base = mmap(nullptr, all, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED)
        return fail(cudaErrorMemoryAllocation);
    if (fd >= 0 && !set_apart(base, all)) {
        munmap(base, all);
        return fail(cudaErrorMemoryAllocation);
    }
    ((block_head *)base)->fd = fd;
    ((block_head *)base)->bytes = all;
    *p = (char *)base + 4096;
    return cudaSuccess;
}
static void give(void *p)
{
    block_head *head = (block_head *)((char *)p - 4096);
    forget(p);
    if (head->fd >= 0)
        close(head->fd);
    munmap(head, head->bytes);
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t e = tsri_emulated_enter();
    if (e == cudaSuccess)
        e = tsri_emulated_unsafe("cudaMalloc");
    if (e != cudaSuccess)
        return e;
    if (taken[current_device] + bytes > device_bytes())
        return fail(cudaErrorMemoryAllocation);
    int fd = memfd_create("emulated device memory", MFD_CLOEXEC);
    if (fd < 0)
        return fail(cudaErrorMemoryAllocation);
    e = take(p, bytes, fd);
    if (e != cudaSuccess)
        close(fd);
    if (e == cudaSuccess) {
        ((block_head *)((char *)*p - 4096))->device = current_device;
        taken[current_device] += bytes + 4096;
    }
    return e;
}
/* Freeing waits for the device, as CUDA does. */
cudaError_t cudaFree(void *p)
{
    cudaError_t e = tsri_emulated_unsafe("cudaFree");
    if (e != cudaSuccess)
        return e;
    if (p) {
        tsri_emulated_drain(current_device);
        const block_head *head = (const block_head *)((char *)p - 4096);
        taken[head->device] -= head->bytes;
        give(p);
    }
    return cudaSuccess;
}
/* Of the beginning of what cudaMalloc gave. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    *a = cudaPointerAttributes();
    a->type = cudaMemoryTypeDevice;
    a->device = ((const block_head *)((const char *)p - 4096))->device;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    cudaError_t e = tsri_emulated_enter();
    if (e == cudaSuccess)
        e = tsri_emulated_unsafe("cudaMallocHost");
    if (e == cudaSuccess)
        e = take(p, bytes);
    if (e == cudaSuccess)
        note_pinned(*p, bytes);
    return e;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    return cudaMallocHost(p, bytes);
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    cudaError_t e = tsri_emulated_enter();
    if (e == cudaSuccess)
        e = tsri_emulated_unsafe("cudaHostRegister");
    if (e != cudaSuccess)
        return e;
    if (tsri_emulated_is_pinned(p))
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    note_pinned(p, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    tsri_emulated_drain(current_device);
    return forget_pinned(p) ? cudaSuccess : fail(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    *device = host;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
    cudaError_t e = tsri_emulated_unsafe("cudaFreeHost");
    if (e != cudaSuccess || !p)
        return e;
    tsri_emulated_drain(current_device);
    forget_pinned(p);
    give(p);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind)
{
    cudaError_t e = tsri_emulated_unsafe("cudaMemcpy");
    if (e != cudaSuccess)
        return e;
    tsri_emulated_work now;
    memmove(dst, src, bytes);
    return cudaSuccess;
}

/* Between processes: memory is mapped by way of /proc. */
struct ipc_memory {
    int pid, fd;
    size_t bytes;
};
static_assert(sizeof(ipc_memory) <= sizeof(cudaIpcMemHandle_t), "a handle is 64 bytes");

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p)
{
    const block_head *head = (const block_head *)((char *)p - 4096);
    ipc_memory m = {(int)getpid(), head->fd, head->bytes};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &m, sizeof m);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned)
{
    ipc_memory m;
    char path[64];
    memcpy(&m, &handle, sizeof m);
    if (m.pid == (int)getpid())
        return fail(cudaErrorInvalidResourceHandle); /* as CUDA has it */
    snprintf(path, sizeof path, "/proc/%d/fd/%d", m.pid, m.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fail(cudaErrorInvalidResourceHandle);
    void *base = mmap(nullptr, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED)
        return fail(cudaErrorMemoryAllocation);
    if (!set_apart(base, m.bytes)) {
        munmap(base, m.bytes);
        return fail(cudaErrorMemoryAllocation);
    }
    *p = (char *)base + 4096;
    return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void *p)
{
    block_head *head = (block_head *)((char *)p - 4096);
    forget(p);
    munmap(head, head->bytes);
    return cudaSuccess;
}
/* control.h */
__attribute__((visibility("default"))) int tsri_emulated_choose(int device)
{
    int before = current_device;
    current_device = device;
    return before;
}
__attribute__((visibility("default"))) void tsri_emulated_pin(void *p, size_t bytes)
{
    if (bytes)
        cudaHostRegister(p, bytes, 0);
    else
        cudaHostUnregister(p);
}

} // extern "C"
