/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of kinds of device and their abilities. It is static, so that planning in virtual
 * worlds needs neither a device nor a module. Code outside this folder queries abilities and never
 * compares kinds (tests/lint/devices.py). A further kind is a row here, a value of tsr_device and a
 * module: docs/extending/device.md.
 */
#ifndef TESSERA_TARGET_TARGET_H
#define TESSERA_TARGET_TARGET_H

#include <tessera/placement.h>

#include <stdbool.h>

/* The size of arrays by tsr_device, and where loops over kinds end. Kinds begin at 1. The last
 * place has no row: tests put a kind of their own there (tests/mirror/target.c). */
enum { TSRI_DEVICES = TSR_DEVICE_CUDA + 2 };

/* The kind of the process's own processor, which every rank has. Values that cross between two
 * other kinds pass through its memory. To test a kind, call tsri_target_can. */
#define TSRI_TARGET_HOST TSR_DEVICE_CPU

typedef enum tsri_ability {
    /* Buffers are host memory: the host reads and writes them in place, results are there when a
     * call returns, and ranks talk through the world's own communicator. */
    TSRI_CAN_HOST_MEMORY = 1 << 0,
    /* Work is queued in streams, and a call returns before it is done. Devices of several ranks are
     * connected by a communicator of their own: src/comm/world/device_comm.c. */
    TSRI_CAN_QUEUE = 1 << 1,
    /* Kernels of many ops work on a few rows at a time, so that a chain of ops can pass over a
     * tensor once, while its rows are in a cache. */
    TSRI_CAN_ROW_KERNELS = 1 << 2,
    /* A launch has a cost that counts. One launch does many small items of one kind: planning puts
     * them off until they are together, and lowering joins them. */
    TSRI_CAN_JOIN_LAUNCHES = 1 << 3,
    /* A collective may write its results from its start on, so that their memory is taken then. */
    TSRI_CAN_WRITE_EARLY = 1 << 4,
    /* Gathering and reducing go in rings, as NCCL's do (tsri_cost_model.rings). */
    TSRI_CAN_RINGS = 1 << 5,
    /* One kernel computes a layer norm with its statistics, and one all its gradients. */
    TSRI_CAN_WHOLE_LAYER_NORM = 1 << 6,
    /* Kernels of ops with `by_head` take and give operands that lie head by head. */
    TSRI_CAN_LIE_BY_HEAD = 1 << 7,
    /* Matrix products come from a library that may ask for a workspace, which plans reserve. */
    TSRI_CAN_USE_WORKSPACE = 1 << 8,
} tsri_ability;

/* The figures of the default cost model, as in tsri_cost_model (sbp/route/cost_model.h). */
typedef struct tsri_target_figures {
    double latency_s, bytes_per_s; /* of the one link that joins all ranks */
    double local_bytes_per_s, flops_per_s, kernel_s;
    const char *link_name;
} tsri_target_figures;

typedef struct tsri_target {
    tsr_device kind;
    const char *name; /* in placements: "cpu" */
    unsigned can;     /* tsri_ability, or-ed */
    tsri_target_figures figures;
    /* How it is opened: by the module of this file, or of the one that the variable names, through
     * this symbol (kernels/module.h). NULL: by the library itself. */
    const char *module, *module_variable, *module_entry;
    const char *module_needs; /* packages that the module's build requires, for messages */
    /* How ranks' devices are connected: the variable that chooses between NCCL and the local
     * communicator. NULL: by the local one, or as CPUs are by the world's. */
    const char *comm_variable;
} tsri_target;

/* Names of all kinds, indexed by tsr_device - 1; the last entry is NULL. */
extern const char *const tsri_target_names[TSRI_DEVICES];

/* Returns a kind's row of the table; NULL if there is no such kind. */
const tsri_target *tsri_target_of(tsr_device kind);

/* Returns whether a kind has an ability; false if there is no such kind. */
bool tsri_target_can(tsr_device kind, tsri_ability ability);

#endif
