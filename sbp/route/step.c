/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/step.h"

const char *tsri_box_kind_name(tsri_box_kind kind)
{
    static const char *const names[] = {"relabel",        "slice",      "fill",
                                        "keep",           "all_reduce", "all_gather",
                                        "reduce_scatter", "all_to_all", "send_recv"};
    return names[kind];
}

bool tsri_box_is_collective(tsri_box_kind kind)
{
    return kind >= TSRI_BOX_ALL_REDUCE;
}
