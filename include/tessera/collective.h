/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives for per-rank buffers, as torch.distributed has them: every rank of a group calls the
 * same operation on a buffer of its own. (Programs over global tensors need none of these: their
 * plans communicate.)
 *
 * Each has a blocking form and one with `_async`, which gives a work handle. The operations of a
 * group are done in the order in which they were called: waiting for one implies those before it.
 * (A send alone overtakes others: waiting for it implies the sends before it.) Two groups do not
 * wait for each other. An asynchronous operation proceeds by itself, whatever the caller does
 * meanwhile; its buffers stay untouched until it was waited for. src and dst may be the same
 * buffer, but must not overlap otherwise. Buffers are host memory, anywhere (those of tsr_alloc,
 * which peers can read, save a copy), or all in the memory of this rank's GPU: of tsr_alloc_on, or
 * what a hook or tsr_ddp_gradient gives. Pointers are recognised; where a count is 0, they tell
 * where the call belongs all the same.
 *
 * On GPUs, as in PyTorch:
 *  - A call is queued after the work that plans have queued on the GPU, and returns. Later plans
 *    and tsr_copy run after it: in the blocking form at once, else from tsr_work_wait on. The host
 *    waits for peers at most, never for the GPU. With a timeout of its own, tsr_work_wait waits
 *    until the work is done.
 *  - Calls on GPUs are ordered among each other, and calls on host memory are, but the two kinds
 *    are not ordered with each other. A barrier counts as a call on host memory, and so does a send
 *    or recv of GPU memory, which is copied through host memory.
 *  - The next call or tsr_sync reports errors of pending work, and timeouts.
 *  - Where each rank has a GPU of its own, NCCL does the work: it chooses the order of sums, and
 *    rounds sums of f16 and bf16 on the way.
 *
 * All are collective over the group (send and recv: over the two). Where ranks disagree - another
 * operation, size, dtype, op or root; a rank that does not come in time, has left or died - every
 * rank concerned gets an error that names the ranks, the calls' numbers and both places:
 * TSR_ERR_MISMATCH at once, TSR_ERR_TIMEOUT after the world's timeout, TSR_ERR_DEAD and
 * TSR_ERR_REMOTE when it is seen. After an error the group is over. Other errors of all:
 * TSR_ERR_INVALID, TSR_ERR_NO_MEMORY (nothing was sent).
 */
#ifndef TESSERA_COLLECTIVE_H
#define TESSERA_COLLECTIVE_H

#include <tessera/graph.h>
#include <tessera/sbp.h>
#include <tessera/world.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A list of ranks. Belongs to its world. */
typedef struct tsr_group tsr_group;
/* An operation under way. */
typedef struct tsr_work tsr_work;

/* Returns the group of all ranks. NULL on error (tsr_last_error). Not collective. */
TSR_API tsr_group *tsr_world_group(tsr_world *world);
/* Makes a group of these world ranks, of which this rank must be one, in this order. Equal lists
 * give the same group. Not collective: ranks that are not in it need not call (unlike new_group).
 * */
TSR_API tsr_status tsr_group_create(tsr_world *world, int nranks, const int *ranks,
                                    tsr_group **out_group);
/* Returns the number of ranks of a group. */
TSR_API int tsr_group_size(const tsr_group *group);
/* Returns this rank's place in the list. */
TSR_API int tsr_group_rank(const tsr_group *group);
/* Returns the world rank at a place; -1 if there is none. */
TSR_API int tsr_group_world_rank(const tsr_group *group, int index);

/* Sets a label for this rank's next operations on the group ("ddp run 7, bucket 2"), for messages;
 * ranks whose labels differ disagree. Up to 63 bytes; "" or NULL: none. Not collective. */
TSR_API tsr_status tsr_group_set_label(tsr_group *group, const char *label);

/* Takes memory in this rank's part of the arena, aligned to 64 bytes; not cleared. Not collective.
 * Freed with the world at the latest. */
TSR_API tsr_status tsr_alloc(tsr_world *world, size_t bytes, void **out_ptr);
/* Takes zeroed memory on this rank's device of a kind, aligned to 64 bytes; on a CPU, tsr_alloc's.
 * Not collective. Freed with the world at the latest. Errors: TSR_ERR_UNSUPPORTED without such a
 * device, TSR_ERR_NO_MEMORY, TSR_ERR_INVALID. */
TSR_API tsr_status tsr_alloc_on(tsr_world *world, tsr_device device, size_t bytes, void **out_ptr);
/* Gives back memory of tsr_alloc or tsr_alloc_on, which no work under way uses. NULL is fine. Not
 * collective. */
TSR_API void tsr_free(tsr_world *world, void *ptr);
/* Copies bytes between host memory and this rank's GPU, or within one of them, after the work that
 * is queued on the GPU. On return src may be reused, and dst is complete if it is host memory. Not
 * collective. Errors: TSR_ERR_INVALID, and errors of the queued work. */
TSR_API tsr_status tsr_copy(tsr_world *world, void *dst, const void *src, size_t bytes);
/* Waits for all work that plans and calls of groups have queued on this rank's GPU, and returns its
 * first error. Returns at once without a GPU. Not collective, but it waits for the peers of pending
 * calls. */
TSR_API tsr_status tsr_sync(tsr_world *world);

/*
 * Returns when the operation is done, frees the handle and sets *work to NULL. timeout_s 0: the
 * world's timeout counts, from when the operation was next in its group; else TSR_ERR_TIMEOUT after
 * that long, with the handle alive: it may be waited for again.
 */
TSR_API tsr_status tsr_work_wait(tsr_work **work, double timeout_s);
/* Returns whether an operation is done (or has failed, which tsr_work_wait tells). Never waits. */
TSR_API bool tsr_work_test(tsr_work *work);

/*
 * The operations. count: elements; ops: TSR_REDUCE_SUM, _AVG (each value times 1/n in the dtype,
 * then the sum; floats alone), _PRODUCT, _MIN, _MAX; f16 and bf16 are reduced in f32. root, to and
 * from: world ranks. Reductions run over the ranks in the group's order: all get the same bits, the
 * same in each run.
 */
/* Reduces data, count elements on each rank, in place: all ranks get the result. */
TSR_API tsr_status tsr_all_reduce_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype,
                                     tsr_reduce_op op, tsr_work **out_work, const char *file,
                                     int line);
/* Gives all ranks the count elements that root has in data. */
TSR_API tsr_status tsr_broadcast_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype,
                                    int root, tsr_work **out_work, const char *file, int line);
/* Reduces data in place at the root; other ranks' data stays as it is. */
TSR_API tsr_status tsr_reduce_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype,
                                 tsr_reduce_op op, int root, tsr_work **out_work, const char *file,
                                 int line);
/* Gathers what all ranks have. src: count elements; dst: n buffers of count elements, in the
 * group's order. This rank's own may be src. */
TSR_API tsr_status tsr_all_gather_at(tsr_group *g, const void *src, void *const *dst, int64_t count,
                                     tsr_dtype dtype, tsr_work **out_work, const char *file,
                                     int line);
/* Gathers what all ranks have into one buffer. dst: (n, count), in the group's order. */
TSR_API tsr_status tsr_all_gather_into_at(tsr_group *g, const void *src, void *dst, int64_t count,
                                          tsr_dtype dtype, tsr_work **out_work, const char *file,
                                          int line);
/* Reduces n parts, of which each rank gets its own. src: (n, count); dst: count elements. */
TSR_API tsr_status tsr_reduce_scatter_at(tsr_group *g, const void *src, void *dst, int64_t count,
                                         tsr_dtype dtype, tsr_reduce_op op, tsr_work **out_work,
                                         const char *file, int line);
/* Sends each rank a part, and receives one from each. src: one after the other, src_counts[i]
 * elements for place i; dst: dst_counts[i] from place i. */
TSR_API tsr_status tsr_all_to_all_at(tsr_group *g, const void *src, const int64_t *src_counts,
                                     void *dst, const int64_t *dst_counts, tsr_dtype dtype,
                                     tsr_work **out_work, const char *file, int line);
/* Gathers what all ranks have at the root: PyTorch's gather. dst: (n, count) at the root; elsewhere
 * not used. */
TSR_API tsr_status tsr_gather_to_at(tsr_group *g, const void *src, void *dst, int64_t count,
                                    tsr_dtype dtype, int root, tsr_work **out_work,
                                    const char *file, int line);
/* Sends each rank a part of what the root has: PyTorch's scatter. src: (n, count) at the root;
 * elsewhere not used. */
TSR_API tsr_status tsr_scatter_from_at(tsr_group *g, const void *src, void *dst, int64_t count,
                                       tsr_dtype dtype, int root, tsr_work **out_work,
                                       const char *file, int line);
/* Sends count elements to a rank. The n-th send to a rank with a tag meets the n-th recv from it
 * with that tag. Up to 64 sends may be ahead of their recvs. tag: 0 to 65535. */
TSR_API tsr_status tsr_send_at(tsr_group *g, const void *data, int64_t count, tsr_dtype dtype,
                               int to, int tag, tsr_work **out_work, const char *file, int line);
/* Receives count elements from a rank, which sends them with tsr_send and the same tag. */
TSR_API tsr_status tsr_recv_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype, int from,
                               int tag, tsr_work **out_work, const char *file, int line);
/* Returns when every rank of the group has called it. */
TSR_API tsr_status tsr_barrier_at(tsr_group *g, tsr_work **out_work, const char *file, int line);

#define tsr_all_reduce(g, data, count, dtype, op) \
    tsr_all_reduce_at((g), (data), (count), (dtype), (op), NULL, TSR_HERE)
#define tsr_all_reduce_async(g, data, count, dtype, op, out_work) \
    tsr_all_reduce_at((g), (data), (count), (dtype), (op), (out_work), TSR_HERE)
#define tsr_broadcast(g, data, count, dtype, root) \
    tsr_broadcast_at((g), (data), (count), (dtype), (root), NULL, TSR_HERE)
#define tsr_broadcast_async(g, data, count, dtype, root, out_work) \
    tsr_broadcast_at((g), (data), (count), (dtype), (root), (out_work), TSR_HERE)
#define tsr_reduce(g, data, count, dtype, op, root) \
    tsr_reduce_at((g), (data), (count), (dtype), (op), (root), NULL, TSR_HERE)
#define tsr_reduce_async(g, data, count, dtype, op, root, out_work) \
    tsr_reduce_at((g), (data), (count), (dtype), (op), (root), (out_work), TSR_HERE)
#define tsr_all_gather(g, src, dst, count, dtype) \
    tsr_all_gather_at((g), (src), (dst), (count), (dtype), NULL, TSR_HERE)
#define tsr_all_gather_async(g, src, dst, count, dtype, out_work) \
    tsr_all_gather_at((g), (src), (dst), (count), (dtype), (out_work), TSR_HERE)
#define tsr_all_gather_into(g, src, dst, count, dtype) \
    tsr_all_gather_into_at((g), (src), (dst), (count), (dtype), NULL, TSR_HERE)
#define tsr_all_gather_into_async(g, src, dst, count, dtype, out_work) \
    tsr_all_gather_into_at((g), (src), (dst), (count), (dtype), (out_work), TSR_HERE)
#define tsr_reduce_scatter(g, src, dst, count, dtype, op) \
    tsr_reduce_scatter_at((g), (src), (dst), (count), (dtype), (op), NULL, TSR_HERE)
#define tsr_reduce_scatter_async(g, src, dst, count, dtype, op, out_work) \
    tsr_reduce_scatter_at((g), (src), (dst), (count), (dtype), (op), (out_work), TSR_HERE)
#define tsr_all_to_all(g, src, src_counts, dst, dst_counts, dtype) \
    tsr_all_to_all_at((g), (src), (src_counts), (dst), (dst_counts), (dtype), NULL, TSR_HERE)
#define tsr_all_to_all_async(g, src, src_counts, dst, dst_counts, dtype, out_work) \
    tsr_all_to_all_at((g), (src), (src_counts), (dst), (dst_counts), (dtype), (out_work), TSR_HERE)
#define tsr_gather_to(g, src, dst, count, dtype, root) \
    tsr_gather_to_at((g), (src), (dst), (count), (dtype), (root), NULL, TSR_HERE)
#define tsr_gather_to_async(g, src, dst, count, dtype, root, out_work) \
    tsr_gather_to_at((g), (src), (dst), (count), (dtype), (root), (out_work), TSR_HERE)
#define tsr_scatter_from(g, src, dst, count, dtype, root) \
    tsr_scatter_from_at((g), (src), (dst), (count), (dtype), (root), NULL, TSR_HERE)
#define tsr_scatter_from_async(g, src, dst, count, dtype, root, out_work) \
    tsr_scatter_from_at((g), (src), (dst), (count), (dtype), (root), (out_work), TSR_HERE)
#define tsr_send(g, data, count, dtype, to, tag) \
    tsr_send_at((g), (data), (count), (dtype), (to), (tag), NULL, TSR_HERE)
#define tsr_send_async(g, data, count, dtype, to, tag, out_work) \
    tsr_send_at((g), (data), (count), (dtype), (to), (tag), (out_work), TSR_HERE)
#define tsr_recv(g, data, count, dtype, from, tag) \
    tsr_recv_at((g), (data), (count), (dtype), (from), (tag), NULL, TSR_HERE)
#define tsr_recv_async(g, data, count, dtype, from, tag, out_work) \
    tsr_recv_at((g), (data), (count), (dtype), (from), (tag), (out_work), TSR_HERE)
#define tsr_group_barrier(g) tsr_barrier_at((g), NULL, TSR_HERE)
#define tsr_group_barrier_async(g, out_work) tsr_barrier_at((g), (out_work), TSR_HERE)

/*
 * Writes what the flight recorder knows: this rank's last 2000 calls, as text, into the file
 * flight.rank<R>.txt of the folder `dir`, which is made if it is missing; `tessera flight dir`
 * reads the files of all ranks. dir NULL: the variable TESSERA_FLIGHT_DIR, which also has a rank
 * write that file by itself when one of its calls fails because of another rank. Any thread of the
 * rank may call it, also after an error. Not collective. Errors: TSR_ERR_INVALID (no folder is
 * said), TSR_ERR_STATE (a virtual world), TSR_ERR_IO.
 */
TSR_API tsr_status tsr_flight_dump(tsr_world *world, const char *dir);

#ifdef __cplusplus
}
#endif
#endif
