/* SPDX-License-Identifier: Apache-2.0 */
/* Thread ranks whose worlds talk through Gloo. Their arenas stay: what plans put there is just
 * memory to Gloo. */
#include "src/comm/gloo/gloo.h"
#include "src/comm/store/store.h"
#include "tests/dist/comm/ranks.h"

#include <stdio.h>

typedef struct body {
    tsr_rank_fn *fn;
    void *arg;
    int port;
} body;

static tsr_status run_body(tsr_world *w, void *arg)
{
    const body *b = arg;
    char url[64];
    tsr_store *store;
    tsri_comm *local = w->comm, *comm;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", b->port);
    TSRI_TRY(tsr_store_open(
        url, TSR_STORE_OPTS(.rank = w->rank, .nranks = w->nranks, .hosted = true), &store));
    tsr_status status = tsri_gloo_create(w, store, "127.0.0.1", &comm);
    if (status == TSR_OK) {
        w->comm = comm;
        status = b->fn(w, b->arg);
        if (status != TSR_OK)
            comm->ops->abort(comm, tsr_last_error());
        tsri_world_destroy_owned(w);
        comm->ops->destroy(comm);
        w->comm = local;
    }
    tsr_store_close(store);
    return status;
}

tsr_status test_ranks(int nranks, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    tsri_store_server *server;
    TSRI_TRY(tsri_store_server_start("127.0.0.1", 0, 0, &server));
    body b = {fn, arg, tsri_store_server_port(server)};
    tsr_status status = tsr_spawn_with(nranks, run_body, &b, opts);
    tsri_store_server_stop(server);
    return status;
}

const char *test_ranks_comm(void)
{
    return "gloo";
}
