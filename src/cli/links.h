/* SPDX-License-Identifier: Apache-2.0 */
/* The speeds of this machine's links: measured by `tessera info --measure`, kept in the user's
 * cache folder, and used by `plan` and `box`. */
#ifndef TESSERA_CLI_LINKS_H
#define TESSERA_CLI_LINKS_H

#include "sbp/route/cost_model.h"
#include "src/config/experiment.h"

#include <tessera/plan.h>

typedef struct cli_links {
    bool measured;    /* else built in */
    char why[200];    /* why not: "" where there is no file */
    int ranks;        /* that were measured together */
    const char *name; /* of the link: "shared memory" */
    double latency_s, bytes_per_s, local_bytes_per_s;
    double flops_per_s, f64_flops_per_s, kernel_s; /* of a rank; built in: 0, 0, below 0 */
    double core_share; /* of the time in which it was measured, a rank had a core */
    char when[32];     /* "2026-11-21T20:00:00Z" */
} cli_links;

/* "$XDG_CACHE_HOME/tessera/links.json", or under ~/.cache. False if there is no such folder. */
bool cli_links_path(char *buf, size_t size);
/* The measured figures of this machine, else the built-in ones. Figures of GPUs are built in. */
void cli_links_find(tsr_device kind, cli_links *out_links);
/* Measures what a rank computes on one core of this machine, while others do as well: products of
 * f32 and f64, and what starting a kernel takes. Not collective. */
tsr_status cli_measure_compute(tsr_world *world, cli_links *out_links);
/* Measures with `ranks` thread ranks, several times, and keeps the figures. Other programs that
 * take the cores, figures that differ from time to time, or that no machine has: an error, and what
 * was kept before stays; force: the best figures are kept all the same. */
tsr_status cli_links_measure(int ranks, bool force, cli_links *out_links);
/* The facts that tell machines apart: the processor's model and the number of its cores. */
void cli_machine(char *buf, size_t size);

/* Sets the links of compile options: those of the cluster (NULL: none), the rest by `links`. */
void cli_links_fill(const cli_links *links, const tsri_cluster *cluster, tsr_compile_opts *opts);
enum { CLI_SOURCE_MAX = 80 };
/* Where a limit of memory comes from: "as said", or "the memory of h100-sxm (cluster.gpu)"; NULL
 * without a limit. */
const char *cli_limit_source(const tsri_experiment *e, size_t limit, char buf[CLI_SOURCE_MAX]);
/* Tells on stderr, after a limit was refused, that it is the memory of the cluster's GPU, if so. */
void cli_say_limit_source(const tsri_experiment *e, size_t limit);
/* The cost model that a compile with these options, of a program on such devices, works with. */
tsri_cost_model cli_links_model(const tsr_compile_opts *opts, tsr_device kind);

#endif
