/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that is priced at other points of a sweep: at other figures of the cluster, another batch.
 */
#include "src/cli/plan/ask.h"
#include "src/exec/exec.h"
#include "src/plan/price/price.h"
#include "src/rewrite/rewrite.h"

#include <stdlib.h>
#include <string.h>

static const char batch_key[] = "data.batch_size";

/* Figures of a cluster that prices alone depend on; others may say which ranks there are. */
static const char *const link_keys[] = {"cluster.ranks_per_node",
                                        "cluster.latency_us",
                                        "cluster.bandwidth_gb_s",
                                        "cluster.node_latency_us",
                                        "cluster.node_bandwidth_gb_s",
                                        "cluster.memory_gb_s",
                                        "cluster.tflops",
                                        "cluster.kernel_us"};

bool sweep_reprices(const char *key)
{
    bool any = !strcmp(key, batch_key);
    for (size_t i = 0; i < sizeof link_keys / sizeof *link_keys; i++)
        any |= !strcmp(key, link_keys[i]);
    return any;
}

/* Opens the base at another batch. */
static tsr_status open_at(const sweep_pricer *p, int64_t batch, plan_made *m)
{
    char set[64];
    plan_source from = p->from;
    const char **sets = malloc(((size_t)from.nsets + 1) * sizeof *sets);
    if (!sets)
        return TSR_ERR_NO_MEMORY;
    snprintf(set, sizeof set, "%s=%lld", batch_key, (long long)batch);
    if (from.nsets)
        memcpy(sets, from.sets, (size_t)from.nsets * sizeof *sets);
    sets[from.nsets++] = set;
    from.sets = sets;
    tsr_status status = plan_open(&from, m);
    m->from = NULL; /* it goes before what was made of it */
    free(sets);
    return status;
}

/* The batches that are asked for, and others that may do for learning; returns how many. */
static int list_batches(const sweep_grid *g, int64_t base, int64_t *out, int most)
{
    int n = 0;
    for (int i = 0; i < g->naxes; i++)
        for (int j = 0; j < g->axes[i].n && n + 4 < most; j++)
            if (!strcmp(g->axes[i].key, batch_key))
                out[n++] = strtoll(g->axes[i].values[j], NULL, 10);
    if (!n)
        return 0;
    const int64_t others[] = {base / 2, base / 2 + 1, base + 1, base + 2};
    for (int i = 0; i < 4; i++)
        out[n++] = others[i];
    return n;
}

/* Makes the copy of a program's graph that a compile works on, in one part: pricers refuse plans of
 * several. */
static tsr_status copy_graph(const sweep_pricer *p, const plan_made *m, tsr_graph **out_copy)
{
    tsr_compile_opts opts = p->base.opts;
    opts.microbatches = 1;
    return tsri_compile_copy(m->program->graph, &opts, out_copy);
}

/* Opens the program at two other batches, if any is swept: small ones may leave ops out. */
static tsr_status learn_batches(const sweep_pricer *p, const sweep_grid *g, tsri_price_sizes *sizes,
                                plan_made *other, tsr_graph *graph[3])
{
    enum { MOST = 64 };
    int64_t batches[MOST], base = tsri_experiment_batch_size(p->base.experiment);
    int n = base ? list_batches(g, base, batches, MOST) : 0, learned = 0;
    sizes->size[0] = base;
    TSRI_TRY(copy_graph(p, &p->base, &graph[0]));
    sizes->graph[0] = graph[0];
    for (int i = 0; i < n && learned < 2; i++) {
        bool is_new = batches[i] > 1 && batches[i] != base && batches[i] != sizes->size[1];
        if (!is_new)
            continue;
        plan_drop(&other[learned]);
        if (open_at(p, batches[i], &other[learned]) != TSR_OK)
            continue;
        sizes->size[1 + learned] = batches[i];
        TSRI_TRY(copy_graph(p, &other[learned], &graph[1 + learned]));
        sizes->graph[1 + learned] = graph[1 + learned];
        learned++;
    }
    if (n && learned < 2)
        return tsr_set_error(TSR_ERR_UNSUPPORTED, "there are no two other batches that the program "
                                                  "can be declared with");
    return TSR_OK;
}

tsr_status sweep_pricer_plan(const plan_source *from, sweep_pricer *p)
{
    *p = (sweep_pricer){.from = *from};
    return plan_make(&p->from, &p->base);
}

tsr_status sweep_pricer_learn(sweep_pricer *p, const sweep_grid *g)
{
    plan_made other[2] = {0};
    tsr_graph *graph[3] = {NULL};
    tsri_price_sizes sizes = {0};
    const tsri_report *r = p->base.report;
    int *ranks = calloc((size_t)r->nmemory, sizeof *ranks);
    for (int i = 0; ranks && i < r->nmemory; i++)
        ranks[i] = r->memory[i].rank;
    tsr_status status = ranks ? learn_batches(p, g, &sizes, other, graph) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsri_pricer_create(p->base.plan, &sizes, r->nmemory, ranks, &p->pricer);
    free(ranks);
    for (int k = 0; k < 3; k++)
        tsri_graph_copy_free(graph[k]);
    plan_drop(&other[0]);
    plan_drop(&other[1]);
    return status;
}

void sweep_pricer_finish(sweep_pricer *p)
{
    tsri_pricer_destroy(p->pricer);
    free(p->checked);
    plan_drop(&p->base);
    *p = (sweep_pricer){0};
}

/* Checks, once for each batch that is swept, that the program is there what the pricer thinks. */
static tsr_status check_batch(sweep_pricer *p, const tsri_experiment *e)
{
    int64_t batch = tsri_experiment_batch_size(e);
    if (batch == tsri_experiment_batch_size(p->base.experiment))
        return TSR_OK;
    for (int i = 0; i < p->nchecked; i++)
        if (p->checked[i].batch == batch)
            return p->checked[i].failure[0]
                       ? tsr_set_error(TSR_ERR_UNSUPPORTED, "%s", p->checked[i].failure)
                       : TSR_OK;
    checked_batch *grown = realloc(p->checked, ((size_t)p->nchecked + 1) * sizeof *grown);
    if (!grown)
        return TSR_ERR_NO_MEMORY;
    p->checked = grown;
    plan_made m;
    tsr_graph *copy = NULL;
    tsr_status status = open_at(p, batch, &m);
    if (status == TSR_OK)
        status = copy_graph(p, &m, &copy);
    if (status == TSR_OK)
        status = tsri_pricer_check(p->pricer, copy, batch);
    tsri_graph_copy_free(copy);
    checked_batch *x = &p->checked[p->nchecked++];
    *x = (checked_batch){.batch = batch};
    if (status != TSR_OK)
        snprintf(x->failure, sizeof x->failure, "%s", tsr_last_error());
    plan_drop(&m);
    return status;
}

tsr_status sweep_pricer_price(sweep_pricer *p, const tsri_experiment *e, double spare,
                              sweep_point *out_point)
{
    tsr_compile_opts opts = *TSR_COMPILE_OPTS();
    char needs[CLI_NUMBER_MAX], limit[CLI_NUMBER_MAX];
    TSRI_TRY(check_batch(p, e));
    tsri_experiment_fill(e, &opts);
    opts.memory_limit = p->from.memory_limit ? p->from.memory_limit : opts.memory_limit;
    cli_links_fill(&p->base.links, tsri_experiment_cluster(e), &opts);
    const tsri_cost_model model = tsri_plan_cost_model(&opts, tsri_experiment_device(e));
    const int64_t base = tsri_experiment_batch_size(p->base.experiment);
    const double times = base ? (double)tsri_experiment_batch_size(e) / (double)base : 1;
    tsri_price price = {0};
    TSRI_TRY(tsri_pricer_price(p->pricer, &model, tsri_experiment_batch_size(e), &price));
    if (opts.memory_limit && (double)price.memory * (1 + spare) > (double)opts.memory_limit)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "this plan needs %s a rank; memory_limit is %s",
                             cli_bytes((double)price.memory, needs),
                             cli_bytes((double)opts.memory_limit, limit));
    *out_point = (sweep_point){.step_s = price.step_s,
                               .compute_s = price.compute_s,
                               .comm_s = price.comm_s,
                               .pace = plan_pace_at(p->base.report, e, price.step_s, times),
                               .memory = price.memory,
                               .bytes = price.bytes,
                               .by = -1};
    return TSR_OK;
}
