/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/comm/ranks.h"

tsr_status test_ranks(int nranks, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    return tsr_spawn_with(nranks, fn, arg, opts);
}

const char *test_ranks_comm(void)
{
    return "local";
}
