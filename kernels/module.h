/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the library and the module of a kind of device, such as libtessera_cuda.so,
 * which holds all that names CUDA, cuBLAS, cuDNN and NCCL. A module is loaded when a placement of
 * its kind is first opened: from the file that the variable of the kind's row names
 * (TESSERA_CUDA_MODULE), else beside the library, else from where libraries were to be installed,
 * else by the loader's own search. It is not linked to the library: the functions that keep state
 * come in a table, and pure ones are compiled into both. Both are built from one tree, so the
 * structs of the tables may change with TSRI_MODULE_ABI.
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
     * nccl_id gave on one of them, which all have been given. Collective over them. Both are NULL
     * in a module whose kind's row has no comm_variable. */
    tsr_status (*nccl_id)(unsigned char out_id[128]);
    tsr_status (*nccl_create)(tsri_device *device, const unsigned char id[128], int nranks,
                              const int *ranks, struct tsri_comm **out_comm);
} tsri_module;

/* The module's one entry point. NULL if it can't serve a library of host->abi. */
typedef const tsri_module *tsri_module_entry_fn(const tsri_module_host *host);

/* In a module, by kernels/open/host.c, which is part of each: keeps the library's table. False if
 * it is not one that this module was built for. */
bool tsri_host_set(const tsri_module_host *h);

/* Returns the module of a kind of device whose row of src/target/target.c names one, and loads it
 * first if need be; process-wide, thread-safe. TSR_ERR_UNSUPPORTED with a text that says where it
 * was looked for and what the loader said. */
tsr_status tsri_module_get(tsr_device kind, const tsri_module **out_module);

#endif
