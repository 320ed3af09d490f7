/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared arena of the ranks of one machine: what lies where in it. One anonymous file (memfd),
 * sparse, mapped by every rank:
 *
 *   head | a slot per rank | channels | member blocks | a flight recorder per rank |
 *   a region per rank
 *
 * A channel takes a member block for each of its ranks, from a common stock: groups of few ranks,
 * of which n-D meshes make many, cost little.
 *
 * The launcher makes the file and hands it down, as "pid:fd:bytes_per_rank" in TESSERA_ARENA; this
 * header and arena_fd.c are all that it shares with the library. Nothing here needs a destructor:
 * when the last rank is gone, so is the memory.
 */
#ifndef TESSERA_COMM_LOCAL_ARENA_H
#define TESSERA_COMM_LOCAL_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "src/comm/call.h"

enum {
    TSRI_ARENA_MAX_RANKS = 256,
    TSRI_ARENA_CHANNELS = 8192,
    TSRI_ARENA_BLOCKS = 256, /* member blocks per rank: groups that a rank is in, on average */
    TSRI_CALL_MAX_SEG = 512, /* segments of a record; longer calls take several */
    TSRI_DEVICE_EVENTS = 4 * TSRI_CALL_RING, /* of a member; see device.h */
    TSRI_LINE = 64,                          /* of the cache */
    TSRI_SMALL_BYTES = 4096,                 /* of a small task, at most */
    TSRI_SMALL_SLOTS = 2,
};

typedef enum tsri_rank_state {
    TSRI_RANK_ABSENT = 0,
    TSRI_RANK_HERE,
    TSRI_RANK_LEFT,   /* destroyed its world, or its function returned */
    TSRI_RANK_EXITED, /* its process ended: written by the launcher */
} tsri_rank_state;

typedef struct tsri_arena_head {
    uint64_t magic; /* also of the layout: see arena_fd.c */
    uint64_t nranks, bytes_per_rank;
    uint64_t run;            /* any number, another in each arena */
    _Atomic uint32_t blocks; /* that channels have taken, or asked for in vain */
    _Alignas(TSRI_LINE) _Atomic uint32_t abort_state; /* 0, 1 while it is written, 2 */
    int32_t abort_rank;
    char abort_text[1024];
} tsri_arena_head;

/* The process that holds a rank's place (pid 0: a thread rank), or has held it, and its state. */
static inline uint64_t tsri_rank_holder(tsri_rank_state state, int pid)
{
    return (uint64_t)(uint32_t)pid << 32 | (uint64_t)state;
}

static inline tsri_rank_state tsri_rank_state_of(uint64_t holder)
{
    return (tsri_rank_state)(holder & UINT32_MAX);
}

static inline int tsri_rank_pid_of(uint64_t holder)
{
    return (int)(holder >> 32);
}

typedef struct tsri_rank_slot {
    _Alignas(TSRI_LINE) _Atomic uint64_t holder; /* tsri_rank_holder: one word, as it is claimed */
    _Atomic int32_t worlds;                      /* that it has made so far, in this arena */
    _Atomic uint64_t sees;                       /* which GPUs: see local.c */
    _Alignas(TSRI_LINE) unsigned char exchange[2][TSRI_EXCHANGE_MAX];
} tsri_rank_slot;

_Static_assert(sizeof(tsri_call_entry) % TSRI_LINE == 0, "the records of a ring begin at lines");

/* Where peers of a group on device memory find a rank's region and events: addresses for ranks that
 * are threads, else what the device's driver hands from process to process (tsri_share). */
typedef struct tsri_device_place {
    uint64_t base, bytes, events;
    unsigned char region[64], event[TSRI_DEVICE_EVENTS][64];
} tsri_device_place;

/* The part of a rank in a small task (see small.c): up to 48 bytes go in one line with what tells
 * that they are there, and that all are at one task. */
typedef struct tsri_small {
    _Alignas(TSRI_LINE) _Atomic uint64_t seq; /* written last */
    uint64_t print;                           /* tsri_call_print */
    char few[TSRI_LINE - 2 * sizeof(uint64_t)], many[TSRI_SMALL_BYTES];
} tsri_small;

/* A rank's part of a channel, written by that rank alone (but for `waiters`). The counters are
 * numbers of calls, from 1. */
typedef struct tsri_member {
    _Alignas(TSRI_LINE) _Atomic uint64_t published;
    _Alignas(TSRI_LINE) _Atomic uint64_t phase1;
    _Alignas(TSRI_LINE) _Atomic uint64_t done;
    /* The call in which it writes into peers' memory, from before it looks for a fault; 0: none. */
    _Alignas(TSRI_LINE) _Atomic uint64_t writing;
    _Alignas(TSRI_LINE) _Atomic uint32_t wake; /* futex word; changes when a counter does */
    _Atomic uint32_t waiters;
    tsri_small small[TSRI_SMALL_SLOTS]; /* by the task's number */
    _Alignas(TSRI_LINE) tsri_call_entry ring[TSRI_CALL_RING];
    tsri_seg_place spill[TSRI_CALL_RING][TSRI_CALL_MAX_SEG];
    tsri_device_place device; /* before the first call is published */
} tsri_member;

typedef enum tsri_channel_state {
    TSRI_CHANNEL_NEW = 0, /* its first rank is about to write the rest */
    TSRI_CHANNEL_READY,
    TSRI_CHANNEL_FULL, /* no member blocks were left for it */
} tsri_channel_state;

/* A disagreement, or whatever else, that ends a group: see tsri_call_check_fault. */
typedef struct tsri_fault {
    _Atomic uint64_t state; /* the world's number << 2 | 1 while it is written, 2 */
    _Atomic uint64_t seq;
    _Atomic int32_t status; /* tsr_status */
    char text[1536];
} tsri_fault;

typedef struct tsri_channel {
    _Alignas(TSRI_LINE) _Atomic uint64_t key; /* 0: free */
    _Atomic uint32_t ready;                   /* tsri_channel_state */
    int32_t lane, nranks;
    uint32_t first_block; /* of nranks, in the members' order */
    int32_t ranks[TSRI_ARENA_MAX_RANKS];
    _Alignas(TSRI_LINE) tsri_fault fault;
} tsri_channel;

/* Offsets in the file. */
typedef struct tsri_arena_layout {
    size_t slots, channels, members, flights, regions, bytes_per_rank, total;
} tsri_arena_layout;

/* bytes_per_rank is rounded up to whole pages. */
tsri_arena_layout tsri_arena_layout_of(int nranks, size_t bytes_per_rank);

/*
 * Makes the file for nranks ranks. *bytes_per_rank: the wish, or 0 for the variable
 * TESSERA_ARENA_BYTES or else twice the machine's memory over the ranks, which is halved while it
 * can't be mapped; on return what it became. Returns a close-on-exec descriptor, or -errno. The
 * size that was tried last is in *bytes_per_rank then.
 */
int tsri_arena_create_fd(int nranks, size_t *bytes_per_rank);
/* Whether fd is a file that tsri_arena_create_fd made with these numbers. */
int tsri_arena_check_fd(int fd, int nranks, size_t bytes_per_rank);
/* Notes that the process of a rank has ended. For the launcher, which sees it first. */
void tsri_arena_mark_exited(int fd, int rank);

#endif
