/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_DATA_NPY_HEADER_H
#define TESSERA_DATA_NPY_HEADER_H

#include "src/data/npy.h"

enum {
    TSRI_NPY_MAX_HEADER = 65536, /* NumPy itself refuses more than 10000 */
    TSRI_NPY_MAX_START = TSRI_NPY_MAX_HEADER + 12,
    TSRI_NPY_HEADER_MAX = 512, /* of what is written */
};

/* The header in the first `size` bytes of a file of `whole` bytes. */
tsr_status tsri_npy_parse_header(const char *name, const void *data, size_t size, uint64_t whole,
                                 tsri_npy *out_npy);

#endif
