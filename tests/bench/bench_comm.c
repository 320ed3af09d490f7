/* SPDX-License-Identifier: Apache-2.0 */
/* What communication between thread ranks costs here. usage: bench_comm [RANKS...] */
#include "src/comm/measure.h"

#include <stdio.h>
#include <stdlib.h>

static tsr_status body(tsr_world *w, void *arg)
{
    (void)arg;
    double latency_s, peers, local;
    TSRI_TRY(tsri_comm_measure(w, &latency_s, &peers, &local));
    if (w->rank == 0)
        printf("%5d %12.2f %12.2f %12.2f\n", w->nranks, 1e6 * latency_s, 1e-9 * peers,
               1e-9 * local);
    return TSR_OK;
}

int main(int argc, char **argv)
{
    static const int usual[] = {1, 2, 4, 8};
    const tsr_world_opts o = {.size = sizeof o, .arena_bytes = 64 << 20, .threads = 1};
    int n = argc > 1 ? argc - 1 : (int)(sizeof usual / sizeof *usual);
    printf("ranks   latency/us    peers GB/s    local GB/s\n");
    for (int i = 0; i < n; i++) {
        tsr_status status = tsr_spawn_with(argc > 1 ? atoi(argv[i + 1]) : usual[i], body, NULL, &o);
        if (status != TSR_OK) {
            fprintf(stderr, "%s\n", tsr_last_error());
            return 1;
        }
    }
    return 0;
}
