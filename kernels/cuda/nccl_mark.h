/* SPDX-License-Identifier: Apache-2.0 */
/* Marks that the device sets before and after a call of NCCL's, for the watchdog of the
 * communicator (src/comm/nccl/watch.h): kernels of a stream, so they are set by replays of captured
 * graphs too. */
#ifndef TESSERA_KERNELS_CUDA_NCCL_MARK_H
#define TESSERA_KERNELS_CUDA_NCCL_MARK_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/core/status.h"

struct CUstream_st;

/* In host memory that the device sees, one per lane. */
typedef struct tsri_nccl_mark {
    unsigned long long call;        /* which one begun last: a name of tsri_watch_name */
    unsigned long long begun, done; /* how many of the lane's calls are */
} tsri_nccl_mark;

/* Puts a mark into the stream. count: in device memory, of the lane: 0 before its first call. */
tsr_status tsri_cuda_mark(tsri_nccl_mark *mark, unsigned long long *count, unsigned long long call,
                          bool begin, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
