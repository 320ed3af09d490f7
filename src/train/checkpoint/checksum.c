/* SPDX-License-Identifier: Apache-2.0 */
#include "src/train/checkpoint/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t tsri_checksum(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
