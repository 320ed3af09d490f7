/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the library and the module of a kind of device, such as libtessera_cuda.so,
 * which holds all that names CUDA, cuBLAS, cuDNN and NCCL. A module is loaded when a placement of
 * its kind is first opened: from the file named by the environment variable of the kind's row
 * (TESSERA_CUDA_MODULE), else from the library's folder, else from the configured library folder,
 * else by the loader's search path. A module does not link to the library: it calls functions with
 * state through a table, and stateless functions are compiled into both. Both are built from one
 * tree, so the structs of the tables may change with TSRI_MODULE_ABI.
 */
#ifndef TESSERA_KERNELS_MODULE_H
#define TESSERA_KERNELS_MODULE_H

#include <stdarg.h>

#include "kernels/device.h"

#define TSRI_MODULE_ABI 5

struct tsri_comm;

/* The library's services to a module: the functions of src/core that keep state. */
typedef struct tsri_module_host {
    size_t size;
    uint32_t abi;
    void (*set_error)(const char *text); /* the calling thread's error text; NULL clears it */
    const char *(*get_error)(void);
    void *(*mem_alloc)(tsri_mem *mem, size_t bytes);
    void *(*mem_realloc)(tsri_mem *mem, void *p, size_t bytes);
    void (*mem_free)(void *p);
    void (*log)(const tsr_world *world, tsr_log_level level, const char *text);
} tsri_module_host;

/* One device, as `tessera info` shows it. */
typedef struct tsri_module_gpu {
    char name[128], id[64];
    int major, minor, processors;
    size_t bytes, bytes_free; /* free is 0 where it was not asked for */
} tsri_module_gpu;

typedef struct tsri_module {
    size_t size;
    uint32_t abi;
    const char *versions; /* "CUDA 13.0, cuBLAS 13.1, cuDNN 9.19, NCCL 2.28.9" */
    /* Up to `most` devices; *out_n is how many there are. TSR_ERR_UNSUPPORTED, with what was found,
     * where there is no driver or no device. */
    tsr_status (*gpus)(int most, tsri_module_gpu *out_gpus, int *out_n);
    tsr_status (*device_open)(tsr_world *world, tsri_device **out_device);
    /* NCCL between the devices of `ranks` (of the world, ascending), of which this is one. id: what
     * the result of nccl_id on one of these ranks, distributed to all. Collective over them. Both
     * are NULL in modules of kinds without a comm_variable. */
    tsr_status (*nccl_id)(unsigned char out_id[128]);
    tsr_status (*nccl_create)(tsri_device *device, const unsigned char id[128], int nranks,
                              const int *ranks, struct tsri_comm **out_comm);
} tsri_module;

/* The module's one entry point. NULL if it can't serve a library of host->abi. */
typedef const tsri_module *tsri_module_entry_fn(const tsri_module_host *host);

/* Called once by a module's entry point (kernels/open/host.c, compiled into every module): stores
 * the library's table. Returns false if the table has another ABI number. */
bool tsri_host_set(const tsri_module_host *h);

/* Returns the module of a kind of device whose row of src/target/target.c names one, and loads it
 * first if needed. Process-wide, thread-safe. TSR_ERR_UNSUPPORTED lists the searched places and the
 * loader's error. */
tsr_status tsri_module_get(tsr_device kind, const tsri_module **out_module);

#endif
