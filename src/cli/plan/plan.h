/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera plan`. */
#ifndef TESSERA_CLI_PLAN_PLAN_H
#define TESSERA_CLI_PLAN_PLAN_H

#include "src/cli/cli.h"
#include "src/cli/links.h"
#include "src/config/experiment.h"
#include "src/plan/report/report.h"

/* The subject that is shown. */
typedef struct plan_view {
    const char *path;
    const tsri_report *report;
    const cli_links *links;
    bool has_cluster, verbose;
    const char *limit_is; /* where the memory limit comes from; NULL: there is none */
} plan_view;

/* text.c, json.c, dot.c: return false or NULL when there is no memory. */
bool plan_print_text(const plan_view *v);
struct cJSON *plan_make_json(const plan_view *v);
bool plan_write_dot(const plan_view *v, FILE *f);

/* Where the links' figures come from: "measured 2026-...", "built in", "the file's cluster". */
void plan_links_source(const plan_view *v, char buf[256]);
/* "0-3,8": the ranks whose memory is that of class m. */
char *plan_ranks_text(const tsri_report *r, int m, char *buf, size_t size);

/* fits.c: an experiment that its memory limit was refused for, and how to try others. */
typedef struct cli_fits {
    const char *path;
    int nsets;
    const char *const *sets; /* the overrides so far */
    const tsri_experiment *experiment;
    const tsr_compile_opts *opts;
    int ranks;
    bool with_devices; /* on threads that are ranks, kernels' scratch included; else in a virtual
                        * world */
} cli_fits;
/* Prints to stderr which changes would make it fit, as far as a few seconds of trying tell. Each
 * that is named was compiled within the limit. */
void cli_say_what_fits(const cli_fits *how);

#endif
