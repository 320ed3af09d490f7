/* SPDX-License-Identifier: Apache-2.0 */
/* The networks of bench_cuda_step, which gpu_peer.py has once more in PyTorch. */
#ifndef TESSERA_TESTS_BENCH_BENCH_CUDA_NETS_H
#define TESSERA_TESTS_BENCH_BENCH_CUDA_NETS_H

#include <tessera/tessera.h>

typedef struct bench_net {
    const char *name;
    int64_t batch[2];
    int nbatches;
    int steps;             /* of a round, by default */
    bool words;            /* rows are ids, and each has a label */
    int64_t size, classes; /* an image's side, or a row's length; outputs, or the vocabulary */
    double width;          /* of the network: a multiplier, or channels */
    int layers;
} bench_net;

/* Sets *out to the network of that name; tiny: one that shows that the program works. False if
 * there is none. */
bool bench_net_find(const char *name, bool tiny, bench_net *out);
/* Returns the network with parameters in B on p; NULL with an error text. */
tsr_module *bench_net_make(const bench_net *n, tsr_world *w, const tsr_placement *p,
                           tsr_dtype dtype);
/* AdamW for words, SGD with momentum for images. */
tsr_optimizer *bench_net_optimizer(const bench_net *n, tsr_module *net);

#endif
