/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera plan`. */
#ifndef TESSERA_CLI_PLAN_PLAN_H
#define TESSERA_CLI_PLAN_PLAN_H

#include "src/cli/cli.h"
#include "src/cli/links.h"
#include "src/config/experiment.h"
#include "src/plan/report/report.h"
#include "src/plan/report/stages.h"

struct plan_source;
/* The subject that is shown. */
typedef struct plan_view {
    const char *path;
    const struct plan_source *from; /* how the plan was made, for others to be tried */
    const tsri_report *report;
    const tsri_experiment *experiment;
    const cli_links *links;
    bool has_cluster, verbose;
    const char *limit_is; /* where the memory limit comes from; NULL: there is none */
    size_t refused_limit; /* that no plan keeps: this one was made without it; 0: none is */
    int nfitting;         /* changes that were found to keep the refused limit */
    const struct plan_tried *fitting;
} plan_view;

/* A line that is put together; what does not fit is cut. */
typedef struct plan_text {
    char data[2048];
    size_t used;
} plan_text;
TSR_PRINTF(2, 3) void plan_put(plan_text *t, const char *fmt, ...);
/* Prints a label in a column of `width`; a paragraph wrapped to the right of its label. */
void plan_print_label(int width, const char *label, const cli_style *style);
void plan_print_words(int width, const char *label, const char *words, const cli_style *style);

/* text.c: "4 groups of 2 ranks, NVLink, 1.50 MB, 12.0 us" of a conversion; its time alone where
 * nothing is sent. */
enum { PLAN_CALL_MAX = 160 };
char *plan_call_text(const tsr_plan *plan, const tsri_report_row *row, char buf[PLAN_CALL_MAX]);

/* screen.c, long.c, text.c, json.c, dot.c. Return false or NULL when there is no memory. */
bool plan_print_screen(const plan_view *v);
bool plan_print_long(const plan_view *v);
bool plan_print_full(const plan_view *v);
struct cJSON *plan_make_json(const plan_view *v);
bool plan_write_dot(const plan_view *v, FILE *f);

/* The pace of a plan; 0: it is not known, or means nothing. */
typedef struct plan_pace {
    double samples_per_s, tokens_per_s;
    double mfu; /* the part of the ranks' peak that products and convolutions use */
} plan_pace;
/* make.c: at the experiment's batch and cluster. plan_pace_at: where a step takes step_s, and has
 * so many times the rows that the plan has, and the tokens and operations with them. */
plan_pace plan_pace_of(const tsri_report *r, const tsri_experiment *e);
plan_pace plan_pace_at(const tsri_report *r, const tsri_experiment *e, double step_s, double times);
/* Operations a second that a rank of a cluster has at most for the operations of a plan:
 * each counts by the peak of the dtype that it is computed in. 0: not known. */
double plan_peak_flops(const tsri_cluster *cluster, const tsri_summary *sum);

/* A use of a step's time: "compute", "memory" (a rank's own), "kernel starts", or a link; the name
 * of a link ends with " hand-shakes" where these take more of it than bytes. */
enum { PLAN_SHARE_MAX = TSRI_LINK_NAME_MAX + 16 };
typedef struct plan_share {
    char name[PLAN_SHARE_MAX];
    int use; /* the length of the name without that end */
    double s;
} plan_share;
/* long.c: the uses of a step's time, longest first; returns how many there are. */
int plan_shares(const tsri_report *r, plan_share out[TSRI_SPENT_COUNT]);
/* long.c: prints the stages of a plan and their timetable; nothing without stages. */
void plan_print_stages(const tsr_plan *plan, tsri_stages_shown shown);
/* long.c: what the model is, on which ranks, and how they share the work. */
void plan_print_head(const plan_view *v, const cli_style *style);
/* The parts of a rank's memory that are not empty, largest first; returns how many. */
enum { PLAN_MEMORY_PARTS = 10 };
typedef struct plan_part {
    const char *name;
    double size;
} plan_part;
int plan_memory_parts(const tsri_report_memory *m, plan_part out[PLAN_MEMORY_PARTS]);
/* " over tp (4 ranks)", " over 4 ranks": where the groups of a collective go along, with a blank in
 * front; "" between placements. */
char *plan_along(const tsri_traffic *t, char buf[64]);

/* text.c: how far from the least cost the search for signatures stopped, as far as is known.
 * Returns false where there is nothing to say: they are proven the least. */
bool plan_put_search(plan_text *t, const tsr_plan *plan);
/* uneven.c: rows of the batch and heads of attention that the ranks do not divide. Returns false
 * where there are none. */
bool plan_put_uneven(plan_text *t, const tsr_plan *plan);
/* Where the links' figures come from: "measured 2026-...", "built in", "the file's cluster". */
void plan_links_source(const plan_view *v, char buf[256]);

/* ranks.c */
/* "0-3,8": the ranks of n that `of` has `which` for; what does not fit is left out at a comma. */
char *plan_ranks_like(const int *of, int n, int which, char *buf, size_t size);
/* "0-3,8": the ranks whose memory is that of class m. */
char *plan_ranks_text(const tsri_report *r, int m, char *buf, size_t size);
/* "rank 3", "ranks 0-3,8" in a list of less than `most` bytes, or where it is shorter than all of
 * the list "tp 0-6 of each dp": the ranks whose memory is that of class m. */
void plan_put_ranks(plan_text *t, const tsri_report *r, int m, size_t most);
/* "2 x 4 = 8 cpu ranks", "dp 2 x tp 4 = 8 cuda ranks". */
void plan_put_mesh(plan_text *t, const tsr_placement *p);
/* "cpu:[[0,1],[2,3]]"; of many ranks "cuda ranks 0-127 as dp 16 x tp 8". */
void plan_put_placement(plan_text *t, const tsr_placement *p);

/* layouts.c: another layout of the same model and batch, as it was planned. */
enum { PLAN_TRIED_MOST = 3, PLAN_SETS_TEXT = 240 };
typedef struct plan_tried {
    char name[32];             /* "zero2", "dp 4 x tp 2" */
    char sets[PLAN_SETS_TEXT]; /* "--set strategy=zero2" */
    double step_s;
    uint64_t memory; /* of the neediest rank */
} plan_tried;
/* Plans other layouts for up to two seconds, or eight where a limit was refused. Returns how many
 * of them say something, quickest first: those that are quicker or need less memory, or else the
 * nearest. *out_left: how many there was no time for. */
int plan_try_layouts(const plan_view *v, plan_tried out[PLAN_TRIED_MOST], int *out_left);

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
/* Prints to stderr which changes would make it fit, as far as some seconds of trying tell, the
 * quickest first. Each that is named was compiled within the limit. out: NULL, or gets those that
 * keep the batch and whose figures are known. Returns how many. */
enum { PLAN_FITS_MOST = 8 };
int cli_say_what_fits(const cli_fits *how, plan_tried out[PLAN_FITS_MOST]);

/* html.c: writes a page. beside: NULL, or a list of plans' JSON, to which this one's is added; the
 * page is written when it is the second. */
tsr_status plan_write_html(const plan_view *v, const char *path, struct cJSON *beside);

#endif
