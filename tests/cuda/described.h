/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU that is only described, for tests that ask the true cuDNN for plans and run none. */
#ifndef TESSERA_TESTS_CUDA_DESCRIBED_H
#define TESSERA_TESTS_CUDA_DESCRIBED_H

#include "kernels/cuda/library/dnn.h"

#include <stdio.h>

/* Makes the descriptor of the device in the file DESCRIPTION. False: tsr_last_error says why. */
static inline bool describe_device(tsri_dnn_target *target)
{
    static char text[4096];
    FILE *f = fopen(DESCRIPTION, "r");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (f)
        fclose(f);
    return n > 0 &&
           tsri_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                                       &target->description),
                          "a described device") == TSR_OK &&
           tsri_dnn_set(target->description, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                        CUDNN_TYPE_CHAR, (int64_t)n, text) == TSR_OK &&
           tsri_dnn_check(cudnnBackendFinalize(target->description), DESCRIPTION) == TSR_OK;
}

#endif
