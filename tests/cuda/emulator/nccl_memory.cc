/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's memory and its registration with communicators. As with NCCL, only memory of ncclMemAlloc
 * can be registered. The program ends, with a text, where a communicator is destroyed before its
 * memory is deregistered, or memory is freed before.
 */
#include "tests/cuda/emulator/nccl_memory.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace {
struct piece {
    ncclComm_t comm;
    const char *at;
    size_t bytes;
};
std::mutex lock;
std::map<const char *, size_t> &allocated = *new std::map<const char *, size_t>;
std::map<void *, piece> &registered = *new std::map<void *, piece>;
size_t handles;

[[noreturn]] void fail(const char *text)
{
    fprintf(stderr, "emulator: %s\n", text);
    abort();
}
} // namespace

bool tsri_emulated_is_registered(ncclComm_t comm, const void *p, size_t bytes)
{
    std::lock_guard<std::mutex> hold(lock);
    const char *at = (const char *)p;
    for (auto &r : registered)
        if (r.second.comm == comm && at >= r.second.at &&
            at + bytes <= r.second.at + r.second.bytes)
            return true;
    return !p || !bytes;
}

void tsri_emulated_deregister_all(ncclComm_t comm, bool aborted)
{
    std::lock_guard<std::mutex> hold(lock);
    for (auto r = registered.begin(); r != registered.end();) {
        if (r->second.comm == comm && !aborted)
            fail("a communicator is destroyed before its memory is deregistered");
        r = r->second.comm == comm ? registered.erase(r) : std::next(r);
    }
}

extern "C" {

ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
    if (cudaMalloc(p, bytes) != cudaSuccess)
        return ncclUnhandledCudaError;
    std::lock_guard<std::mutex> hold(lock);
    allocated[(const char *)*p] = bytes;
    return ncclSuccess;
}
ncclResult_t ncclMemFree(void *p)
{
    {
        std::lock_guard<std::mutex> hold(lock);
        auto a = allocated.find((const char *)p);
        if (a == allocated.end())
            return ncclInvalidArgument;
        for (auto &r : registered)
            if (r.second.at >= a->first && r.second.at < a->first + a->second)
                fail("memory is freed before it is deregistered");
        allocated.erase(a);
    }
    return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t bytes, void **handle)
{
    std::lock_guard<std::mutex> hold(lock);
    auto a = allocated.upper_bound((const char *)p);
    if (a == allocated.begin())
        return ncclInvalidUsage;
    --a;
    if ((const char *)p + bytes > a->first + a->second)
        return ncclInvalidUsage;
    *handle = (void *)++handles;
    registered[*handle] = {comm, (const char *)p, bytes};
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    std::lock_guard<std::mutex> hold(lock);
    auto r = registered.find(handle);
    if (r == registered.end() || r->second.comm != comm)
        return ncclInvalidArgument;
    registered.erase(r);
    return ncclSuccess;
}

} // extern "C"
