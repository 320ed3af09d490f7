/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of the model that a program trains: the loss and how often the label is the likeliest
 * class, or one of the five likeliest, over the rows of the test part. */
#include <math.h>
#include <string.h>

#include <tessera/functional.h>

#include "src/config/program.h"

enum { TOP = 5 };

/* How many labels are one of the `k` likeliest classes: in f32 exact up to 2^24 of a batch. */
static tsr_tensor *declare_top(const tsri_forward *f, int64_t k, const char *file, int line)
{
    tsr_tensor *ids;
    tsr_topk_at(f->logits, k, 1, true, &ids, file, line);
    tsr_tensor *label = tsr_unsqueeze_at(f->labels, 1, file, line);
    tsr_tensor *right = tsr_cast_at(tsr_equal_at(ids, label, file, line), TSR_F32, file, line);
    return tsr_sum_at(right, TSR_ALL_AXES, false, file, line);
}

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    const tsri_program *p = arg;
    const tsri_yaml *node = tsri_section_node(&p->experiment->train, "eval");
    const int line = node->key_line ? node->key_line : node->line;
    tsri_forward f;
    (void)training;
    if (tsri_config_autocast(p->experiment))
        tsr_autocast_at(g, tsri_config_autocast(p->experiment), node->file, line);
    TSRI_TRY(tsri_program_forward(p, g, rows, &f));
    const int64_t classes = tsr_tensor_dims(f.logits).d[1], k = classes < TOP ? classes : TOP;
    tsr_tensor *outputs[] = {f.loss, declare_top(&f, 1, node->file, line),
                             declare_top(&f, k, node->file, line)};
    static const char *const names[] = {"loss", "right", "right5"};
    for (int i = 0; i < 3; i++) {
        const tsr_placement *where = tsr_tensor_placement(f.loss);
        tsr_output_at(g, names[i], outputs[i], where, tsri_sbp_b(tsr_placement_ndim(where)),
                      node->file, line);
    }
    p->inside->row_labels = tsr_tensor_dims(f.labels).d[0] / rows;
    return tsri_program_fail(node, tsr_graph_status(g));
}

tsr_status tsri_program_open_eval(tsri_program *p, const tsr_compile_opts *opts)
{
    tsri_program_inside *in = p->inside;
    tsr_plan *plan;
    int64_t rows;
    TSRI_TRY(tsri_program_open_test(p));
    TSRI_TRY(tsr_program_create(
        p->world, declare, p,
        TSR_PROGRAM_OPTS(.seed = (uint64_t)p->experiment->train.seed, .plans = 2, .compile = opts),
        &in->evaluator));
    rows = tsr_loader_peek_rows(in->test.loader);
    return rows > 0 ? tsr_program_plan(in->evaluator, rows, false, &plan) : TSR_OK;
}

tsr_status tsri_program_eval_begin(tsri_program *p, tsri_evaluation *out)
{
    *out = (tsri_evaluation){0};
    memset(p->inside->eval_sum, 0, sizeof p->inside->eval_sum);
    return tsr_loader_set_epoch(p->inside->test.loader, 0);
}

tsr_status tsri_program_eval_next(tsri_program *p, tsri_evaluation *io)
{
    tsri_program_inside *in = p->inside;
    double loss = NAN, right = NAN, right5 = NAN, *sum = in->eval_sum;
    tsr_plan *plan;
    int64_t rows;
    TSRI_TRY(tsr_program_feed(in->evaluator, in->test.loader, false, &plan, &rows));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_wait(plan));
    if (tsr_placement_find(p->fetches[0].placement, tsr_world_rank(p->world)) >= 0) {
        TSRI_TRY(tsr_fetch_scalar(plan, "loss", &loss));
        TSRI_TRY(tsr_fetch_scalar(plan, "right", &right));
        TSRI_TRY(tsr_fetch_scalar(plan, "right5", &right5));
    }
    io->rows += rows;
    const double n = (double)io->rows, labels = n * (double)in->row_labels;
    sum[0] += loss * (double)rows;
    sum[1] += right;
    sum[2] += right5;
    io->loss = sum[0] / n;
    io->accuracy = sum[1] / labels;
    io->top5 = sum[2] / labels;
    return TSR_OK;
}
