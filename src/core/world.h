/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a world: who this rank is, its allocator and log, its part of the arena, and the
 * list of what it owns. Made by src/comm (which knows how ranks find each other). */
#ifndef TESSERA_CORE_WORLD_H
#define TESSERA_CORE_WORLD_H

#include <tessera/world.h>
#include "src/core/mem.h"
#include "src/target/target.h"

struct tsri_comm;
struct tsri_flight;

/* Something that goes with the world. Newest first, so dependants go before what they use. */
typedef struct tsri_owned {
    struct tsri_owned *next, **link;
    void (*destroy)(void *object);
    void *object;
    /* Called when another object is about to go; NULL: nothing refers to such. */
    void (*lose)(void *object, const void *gone);
} tsri_owned;

/* This rank's part of the shared arena: [base, base + size). Plans share the bottom (they do not
 * run at the same time), what persists is taken from the top. */
typedef struct tsri_region {
    char *base;
    size_t size;
    size_t plan_bytes;       /* largest plan so far, from the bottom */
    size_t top;              /* offset of the lowest persistent byte */
    struct tsri_hole *holes; /* between persistent blocks; see src/core/region.c */
    int nholes, choles, nblocks;
    const char *raise; /* for messages: what gives a rank more; NULL: the arena's options */
} tsri_region;

struct tsr_world {
    int rank, nranks, local_rank;
    int nalike; /* ranks of this machine that see the same GPUs as this one, with it */
    bool is_virtual;
    bool is_thread; /* one of several ranks of its process */
    int threads;
    uint64_t writes; /* number of writes to variables so far: see tsri_variable_wrote */
    double timeout_s;
    tsr_log_fn *log;
    void *log_arg;
    tsri_mem mem;
    tsri_region region;
    struct tsri_comm *comm; /* of host memory; NULL in a virtual world */
    void *collectives;      /* src/comm/collective/group.c's; NULL until they are used */
    struct tsri_flight
        *flight; /* of its calls: src/comm/flight/flight.h; NULL in a virtual world */
    void *connections[TSRI_DEVICES]; /* by tsr_device, between devices:
                                        src/plan/lower/lower_groups.c */
    tsri_owned *owned;
    struct tsr_op *own_ops;                    /* the latest definition: src/core/own_op.h */
    struct tsri_own_optimizer *own_optimizers; /* likewise: src/optim/own.h */
    bool ends;                                 /* all that it owns is being destroyed */
    void *devices[TSRI_DEVICES]; /* by tsr_device: struct tsri_device, NULL while not open */
    void *placements;            /* the list that placement/ interns into */
    uint64_t next_id; /* for names of unnamed things; the same on every rank of an SPMD program */
};

/* Logs through the world's callback. world may be NULL (dropped). */
void tsri_log(const tsr_world *world, tsr_log_level level, const char *fmt, ...) TSR_PRINTF(3, 4);

/* Registers an object; `entry` is embedded in it. */
void tsri_world_own(tsr_world *world, tsri_owned *entry, void *object, void (*destroy)(void *));
/* Registers an object behind all that is owned already: it goes last, objects made before may use
 * it. */
void tsri_world_own_last(tsr_world *world, tsri_owned *entry, void *object,
                         void (*destroy)(void *));
/* Registers an object just before another that is owned: objects made before may use it, and it
 * that other.
 */
void tsri_world_own_before(tsri_owned *other, tsri_owned *entry, void *object,
                           void (*destroy)(void *));
/* Takes it off the list again: called by the object's own destroyer. Fine if never registered. */
void tsri_world_disown(tsri_owned *entry);
/* Tells all that the world owns that an object is about to go; the last error stays what it was. */
void tsri_world_tell_gone(tsr_world *world, const void *gone);
/* Destroys everything owned. */
void tsri_world_destroy_owned(tsr_world *world);

/* Whether [p, p + bytes) lies in a region. */
static inline bool tsri_region_has(const tsri_region *r, const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p, base = (uintptr_t)r->base;
    return at >= base && at - base <= r->size && bytes <= r->size - (at - base);
}
/* Takes `bytes` of persistent memory, aligned to 64 bytes, from the top of the region, in which
 * peers can read it. Its contents are undefined. Errors: TSR_ERR_NO_MEMORY naming both sizes and
 * the option that raises them. */
tsr_status tsri_region_alloc(tsri_region *region, size_t bytes, void **out_ptr);
void tsri_region_free(tsri_region *region, void *ptr, size_t bytes);
/* Makes sure that the bottom `bytes` of the region may be used by plans. */
tsr_status tsri_region_reserve_plan(tsri_region *region, size_t bytes);
/* Frees the book-keeping; the memory itself is the owner's. */
void tsri_region_finish(tsri_region *region);

#endif
