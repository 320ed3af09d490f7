/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of checkpoints: XXH3, 64 bits (github.com/Cyan4973/xxHash). */
#ifndef TESSERA_TRAIN_CHECKPOINT_CHECKSUM_H
#define TESSERA_TRAIN_CHECKPOINT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t tsri_checksum(const void *data, size_t bytes);

#endif
