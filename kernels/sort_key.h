/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys whose order as whole numbers is that of what is sorted: NaN is the largest, and both zeros
 * are one. A file that includes this one defines first SORT_FN, which stands before the type of a
 * function, and includes <string.h>.
 */

SORT_FN uint64_t sort_key_f64(double v)
{
    uint64_t bits;
    const double same = v == 0 ? 0 : v;
    memcpy(&bits, &same, sizeof bits);
    return v != v ? UINT64_MAX : bits >> 63 ? ~bits : bits | 1ULL << 63;
}

/* Returns the key of an f32, which has half the bytes. */
SORT_FN uint64_t sort_key_f32(float v)
{
    uint32_t bits;
    const float same = v == 0 ? 0 : v;
    memcpy(&bits, &same, sizeof bits);
    return v != v ? UINT32_MAX : bits >> 31 ? (uint32_t)~bits : bits | 1U << 31;
}

SORT_FN uint64_t sort_key_whole(int64_t v)
{
    return (uint64_t)v ^ 1ULL << 63;
}
