/* SPDX-License-Identifier: Apache-2.0 */
/* From a file to its plan and its figures. */
#include "src/cli/plan/ask.h"

#include <string.h>

tsr_status plan_open(const plan_source *from, plan_made *m)
{
    const tsri_program_opts opts = {.no_data = true, .compile = &m->opts};
    *m = (plan_made){.from = from};
    TSRI_TRY(
        tsri_experiment_load_for(from->path, from->ranks, from->nsets, from->sets, &m->experiment));
    int ranks = from->ranks ? from->ranks : tsri_experiment_nranks(m->experiment);
    TSRI_TRY(tsr_world_create_virtual(ranks, 0, &m->world));
    m->opts = *TSR_COMPILE_OPTS(.alternatives = from->alternatives);
    tsri_experiment_fill(m->experiment, &m->opts);
    if (from->memory_limit)
        m->opts.memory_limit = from->memory_limit;
    cli_links_find(tsri_experiment_device(m->experiment), &m->links);
    cli_links_fill(&m->links, tsri_experiment_cluster(m->experiment), &m->opts);
    return tsri_program_build(m->experiment, m->world, &opts, &m->program);
}

static void drop_plan(plan_made *m)
{
    tsri_report_destroy(m->report);
    if (m->plan)
        tsr_plan_destroy(m->plan);
    m->report = NULL;
    m->plan = NULL;
}

tsr_status plan_compile(plan_made *m)
{
    drop_plan(m);
    TSRI_TRY(tsr_compile_with(m->program->graph, &m->opts, &m->plan));
    return tsri_report_create(m->plan, &m->report);
}

tsr_status plan_make(const plan_source *from, plan_made *m)
{
    TSRI_TRY(plan_open(from, m));
    return plan_compile(m);
}

void plan_drop(plan_made *m)
{
    drop_plan(m);
    tsri_program_destroy(m->program);
    tsr_world_destroy(m->world);
    tsri_experiment_destroy(m->experiment);
    *m = (plan_made){0};
}

bool plan_lacks_memory(tsr_status status, const tsr_compile_opts *opts)
{
    return (status == TSR_ERR_NO_MEMORY && !opts->memory_limit) ||
           (status != TSR_OK && strstr(tsr_last_error(), "no memory") != NULL);
}

int plan_failed(tsr_status status)
{
    if (status == TSR_ERR_NO_MEMORY && !strstr(tsr_last_error(), "memory"))
        tsr_set_error(status, "out of memory");
    return cli_fail("plan");
}

double plan_peak_flops(const tsri_cluster *cluster, const tsri_summary *sum)
{
    tsri_cluster_figures f = {0};
    double seconds = 0;
    if (!cluster)
        return 0;
    tsri_cluster whole = *cluster;
    whole.efficiency = 1;
    tsri_cluster_apply(&whole, &f);
    for (int d = 0; d < TSR_DTYPE_COUNT_; d++) {
        const double peak = f.flops_of_dtype[d] > 0 ? f.flops_of_dtype[d] : f.flops_per_s;
        if (sum->flops_in[d] > 0 && peak > 0)
            seconds += sum->flops_in[d] / peak;
    }
    return seconds > 0 ? sum->flops / seconds : 0;
}

plan_pace plan_pace_at(const tsri_report *r, const tsri_experiment *e, double step_s, double times)
{
    const tsri_summary *s = &r->summary;
    const int64_t batch = tsri_experiment_batch_size(e);
    const double peak = plan_peak_flops(tsri_experiment_cluster(e), s);
    if (step_s <= 0)
        return (plan_pace){0};
    return (plan_pace){.samples_per_s =
                           (batch ? (double)batch : (double)s->samples * times) / step_s,
                       .tokens_per_s = (double)s->tokens * times / step_s,
                       .mfu = peak > 0 ? s->flops * times / (step_s * s->nranks * peak) : 0};
}

plan_pace plan_pace_of(const tsri_report *r, const tsri_experiment *e)
{
    return plan_pace_at(r, e, r->step_s, 1);
}

plan_figures plan_figures_of(const tsri_report *r)
{
    plan_figures f = {.step_s = r->step_s, .compute_s = r->compute_s, .bytes = r->bytes};
    for (int i = 0; i < r->nrows; i++)
        if (r->rows[i].link >= 0) {
            f.link_s[r->rows[i].link] += r->rows[i].cost_s;
            f.link_bytes[r->rows[i].link] += r->rows[i].bytes;
        }
    f.memory = r->nmemory ? r->memory[0].total : 0;
    return f;
}
