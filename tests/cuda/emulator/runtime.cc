/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's runtime, as far as the module uses it: everything is done when a call returns, in the
 * calling thread, unless the stream is captured. EMULATED_DEVICES devices (1) of
 * EMULATED_BYTES (1 GiB) each. EMULATED_DRIVER: the driver's version (13000). EMULATED_CAPABILITY:
 * theirs ("9.0"; kernels are for it and later ones). EMULATED_PEERS=0: they can't read each other.
 * The device that EMULATED_NO_GRAPH names can't make a graph of what was captured; that of
 * EMULATED_NO_CAPTURE ("device:number") can't capture the launch of this number, from 1, in a
 * stream whose capture others have joined.
 *
 * As on a GPU, the host's code can't touch a device's memory: to read or write it outside of a
 * stream's work is a SIGSEGV. This is by a protection key, where the CPU and the system have them
 * (elsewhere, as under valgrind, such accesses pass unseen): threads are without the right to it,
 * but for those that do work, while they do it.
 */
#include "tests/cuda/emulator/control.h"
#include "tests/cuda/emulator/emulator.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>
#include <vector>

/* Work that was recorded. Streams that wait for an event of a captured one join it. */
struct capture {
    std::vector<std::function<void()>> work;
    std::vector<struct CUstream_st *> joined;
    bool invalid = false;
    int launches = 0; /* in its own stream, since others have joined */
};
struct CUstream_st {
    std::shared_ptr<capture> into;
    bool origin = false;
};
struct CUevent_st {
    std::weak_ptr<capture> into; /* a graph's end is not put off by it */
    double at = 0;
};
struct CUgraph_st {
    std::shared_ptr<capture> work;
};
struct CUgraphExec_st {
    std::shared_ptr<capture> work;
};

static thread_local cudaError_t last_error = cudaSuccess;

static cudaError_t fail(cudaError_t e)
{
    last_error = e;
    return e;
}

static thread_local int current_device;

/* Whether a variable names the current device, and a number after it. */
static bool is_named(const char *variable, int number = 0)
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

static thread_local int at_work;

tsri_emulated_work::tsri_emulated_work()
{
    if (at_work++ == 0 && device_key() >= 0)
        pkey_set(device_key(), 0);
}

tsri_emulated_work::~tsri_emulated_work()
{
    if (--at_work == 0 && device_key() >= 0)
        pkey_set(device_key(), PKEY_DISABLE_ACCESS);
}

/* control.h */
static std::atomic<bool> stalled;
static std::atomic<int> stalled_waits;

/* The result of a call that waits for what was enqueued. */
static cudaError_t waits(void)
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

bool tsri_emulated_captures(cudaStream_t stream)
{
    return stream && stream->into;
}

void tsri_emulated_enqueue(cudaStream_t stream, std::function<void()> work)
{
    if (stream && stream->into) {
        stream->into->work.push_back(std::move(work));
    } else {
        tsri_emulated_work now;
        work();
    }
}

void tsri_emulated_submit(const char *name, dim3 grid, dim3 block, cudaStream_t stream,
                          std::function<void()> body)
{
    unsigned threads = block.x * block.y * block.z;
    if (stream && stream->into && stream->origin && !stream->into->joined.empty() &&
        is_named("EMULATED_NO_CAPTURE", ++stream->into->launches)) {
        stream->into->invalid = true;
        fail(cudaErrorStreamCaptureUnsupported);
        return;
    }
    if (threads == 0 || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        fail(cudaErrorInvalidConfiguration);
        return;
    }
    tsri_emulated_enqueue(stream, [=]() { tsri_emulated_run(name, grid, block, body); });
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
    return device_key() < 0 || pkey_mprotect((char *)base + 4096, all - 4096,
                                             PROT_READ | PROT_WRITE, device_key()) == 0;
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
    if (head->fd >= 0)
        close(head->fd);
    munmap(head, head->bytes);
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    if (taken[current_device] + bytes > device_bytes())
        return fail(cudaErrorMemoryAllocation);
    int fd = memfd_create("emulated device memory", MFD_CLOEXEC);
    if (fd < 0)
        return fail(cudaErrorMemoryAllocation);
    cudaError_t e = take(p, bytes, fd);
    if (e != cudaSuccess)
        close(fd);
    if (e == cudaSuccess) {
        ((block_head *)((char *)*p - 4096))->device = current_device;
        taken[current_device] += bytes + 4096;
    }
    return e;
}
cudaError_t cudaFree(void *p)
{
    if (p) {
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
    return take(p, bytes);
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    return take(p, bytes);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    *device = host;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
    if (p)
        give(p);
    return cudaSuccess;
}

/* What comes back goes to memory that is not pinned: the call returns when it is there. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t e = kind == cudaMemcpyDeviceToHost ? waits() : cudaSuccess;
    if (e != cudaSuccess)
        return e;
    tsri_emulated_enqueue(stream, [=]() { memmove(dst, src, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind)
{
    tsri_emulated_work now;
    memmove(dst, src, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    tsri_emulated_enqueue(stream, [=]() { memset(dst, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new CUstream_st;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return s && s->into ? fail(cudaErrorStreamCaptureUnsupported) : waits();
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (s && s->into)
        return fail(cudaErrorStreamCaptureUnsupported);
    return stalled ? fail(cudaErrorNotReady) : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    struct timespec t;
    e->into = s ? s->into : nullptr;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->at = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    std::shared_ptr<capture> into = e->into.lock();
    if (!into)
        return cudaSuccess;
    if (s->into && s->into != into)
        return fail(cudaErrorStreamCaptureMerge);
    if (!s->into)
        into->joined.push_back(s);
    s->into = into;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    if (e->into.lock())
        return fail(cudaErrorCapturedEvent);
    return e->at > 0 ? waits() : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    if (e->into.lock())
        return fail(cudaErrorCapturedEvent);
    return stalled && e->at > 0 ? fail(cudaErrorNotReady) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)((to->at - from->at) * 1e3);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
    if (s->into)
        return fail(cudaErrorIllegalState);
    s->into = std::make_shared<capture>();
    s->origin = true;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    *status = s && s->into ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    if (!s->into || !s->origin)
        return fail(cudaErrorIllegalState);
    std::shared_ptr<capture> ended = s->into;
    for (CUstream_st *joined : ended->joined)
        joined->into = nullptr;
    s->into = nullptr;
    s->origin = false;
    *graph = ended->invalid ? nullptr : new CUgraph_st{ended};
    return ended->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    if (is_named("EMULATED_NO_GRAPH"))
        return fail(cudaErrorNotSupported);
    *exec = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    auto work = exec->work;
    tsri_emulated_enqueue(stream, [=]() {
        for (auto &w : work->work)
            w();
    });
    return cudaSuccess;
}

/* Between processes: memory is mapped by way of /proc; events need nothing, since all that one
 * stands for is done when it is recorded. */
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
    munmap(head, head->bytes);
    return cudaSuccess;
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t)
{
    memset(handle, 0, sizeof *handle);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t)
{
    return cudaEventCreateWithFlags(e, cudaEventDisableTiming);
}

} // extern "C"
