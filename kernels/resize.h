/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places in the operand that an element of a resized axis is made from, by the sizes of the
 * axis before and after. A file that includes this one first defines RESIZE_FN, which stands before
 * the type of a function.
 */
#include "src/core/op_list.h"

/* Element i is (1 - part) of element `low` and part of element `high`; all of it, where these are
 * one. */
typedef struct tsri_resize_source {
    int64_t low, high;
    double part;
} tsri_resize_source;

RESIZE_FN tsri_resize_source tsri_resize_source_of(int64_t i, int64_t in, int64_t out, int how)
{
    tsri_resize_source s = {i, i, 0};
    if (in == out)
        return s;
    if (how == TSRI_RESIZE_NEAREST) {
        s.low = s.high = in / out * i + in % out * i / out;
        return s;
    }
    double x = ((double)i + 0.5) * (double)in / (double)out - 0.5;
    if (how == TSRI_RESIZE_CORNERS)
        x = out > 1 ? (double)i * (double)(in - 1) / (double)(out - 1) : 0;
    x = x < 0 ? 0 : x;
    s.low = (int64_t)x;
    s.part = x - (double)s.low;
    if (s.low + 1 < in && s.part > 0)
        s.high = s.low + 1;
    else
        s.high = s.low;
    return s;
}

/* Returns how much of element `at` before is in what has this source. */
RESIZE_FN double tsri_resize_weight(tsri_resize_source s, int64_t at)
{
    if (s.low == s.high)
        return s.low == at;
    return (s.low == at ? 1 - s.part : 0) + (s.high == at ? s.part : 0);
}

/* Returns the first element behind whose source does not end before element `at`. */
RESIZE_FN int64_t tsri_resize_first(int64_t at, int64_t in, int64_t out, int how)
{
    int64_t low = 0, end = out;
    while (low < end) {
        const int64_t middle = low + (end - low) / 2;
        if (tsri_resize_source_of(middle, in, out, how).high < at)
            low = middle + 1;
        else
            end = middle;
    }
    return low;
}
