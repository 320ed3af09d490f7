/* SPDX-License-Identifier: Apache-2.0 */
#include <tessera/placement.h>

void tsr_balanced_split(int64_t n, int parts, int part, int64_t *out_offset, int64_t *out_length)
{
    parts = parts < 1 ? 1 : parts;
    int64_t each = n / parts, more = n % parts;
    if (out_offset)
        *out_offset = part * each + (part < more ? part : more);
    if (out_length)
        *out_length = each + (part < more);
}
