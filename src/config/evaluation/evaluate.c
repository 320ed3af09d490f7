/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of the model or graph that a program trains: the loss and, where there are classes,
 * how often the label is the likeliest one, or one of the five likeliest, over the rows of a part.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tessera/functional.h>

#include "src/config/program.h"
#include "src/core/dims.h"

enum { TOP = 5 };

/* A place in the file. */
typedef struct place {
    const char *file;
    int line;
} place;

static place place_of(const tsri_yaml *node)
{
    return (place){node->file, node->key_line ? node->key_line : node->line};
}

/* How many of a tensor of bools are true: in f32 exact up to 2^24 of a batch. */
static tsr_tensor *count(tsr_tensor *yes, place at)
{
    tsr_tensor *ones = tsr_cast_at(yes, TSR_F32, at.file, at.line);
    return tsr_sum_at(ones, TSR_ALL_AXES, false, at.file, at.line);
}

/* Which labels, (rows, 1), count: all but one value. */
static tsr_tensor *declare_counted(tsr_tensor *label, int64_t ignored, place at)
{
    const tsr_placement *where = tsr_tensor_placement(label);
    tsr_tensor *value =
        tsr_constant_at(tsr_tensor_graph(label), TSR_I64, TSR_DIMS(1, 1), &ignored, where,
                        tsri_sbp_b(tsr_placement_ndim(where)), at.file, at.line);
    return tsr_not_equal_at(label, value, at.file, at.line);
}

/* How many labels, (rows, 1), are one of the `k` likeliest classes. counted: those that may be;
 * NULL: all. */
static tsr_tensor *declare_top(tsr_tensor *logits, tsr_tensor *label, tsr_tensor *counted,
                               int64_t k, place at)
{
    tsr_tensor *ids;
    tsr_topk_at(logits, k, 1, true, &ids, at.file, at.line);
    tsr_tensor *right = tsr_equal_at(ids, label, at.file, at.line);
    return count(counted ? tsr_logical_and_at(right, counted, at.file, at.line) : right, at);
}

/* Checks that what holds a graph's scores can be that of classes. */
static tsr_status check_scores(const tsri_program *p, const tsri_forward *f)
{
    const tsri_config_eval *eval = &p->experiment->train.eval;
    const tsr_dims x = tsr_tensor_dims(f->logits), y = tsr_tensor_dims(f->labels);
    char scores[TSRI_DIMS_TEXT_MAX], labels[TSRI_DIMS_TEXT_MAX];
    const tsri_yaml *node = eval->scores.node;
    if (x.ndim == 2 && x.d[1] > 0 && tsr_dims_count(y) == x.d[0])
        return TSR_OK;
    return tsri_program_fail(
        node ? node : tsri_section_node(&p->experiment->train, "eval"),
        tsri_fail(TSR_ERR_SHAPE,
                  "scores '%.60s' are (%s), labels '%.60s' (%s); legal are (rows, classes), and a "
                  "label for each row",
                  eval->score_name, tsri_dims_format(x, scores), eval->label_name,
                  tsri_dims_format(y, labels)));
}

static tsr_status declare_classes(const tsri_program *p, tsri_forward *f, place at,
                                  tsr_tensor *out[3])
{
    const tsri_config_eval *eval = &p->experiment->train.eval;
    TSRI_TRY(check_scores(p, f));
    const int64_t classes = tsr_tensor_dims(f->logits).d[1], k = classes < TOP ? classes : TOP;
    const tsr_placement *where = tsr_tensor_placement(f->logits);
    tsr_tensor *label = f->labels;
    if (tsr_tensor_placement(label) != where)
        label = tsr_to_global_at(label, where, TSR_AUTO, at.file, at.line);
    label = tsr_reshape_at(label, TSR_DIMS(-1, 1), at.file, at.line);
    tsr_tensor *counted = eval->has_ignored ? declare_counted(label, eval->ignored, at) : NULL;
    out[0] = declare_top(f->logits, label, counted, 1, at);
    out[1] = declare_top(f->logits, label, counted, k, at);
    out[2] = counted ? count(counted, at) : NULL;
    return TSR_OK;
}

/* Declares the forward pass, and what is read of a batch. */
static tsr_status declare_outputs(tsri_program *p, tsr_graph *g, int64_t rows)
{
    static const char *const names[] = {"loss", "right", "right5", "counted"};
    const tsri_experiment *e = p->experiment;
    const tsri_yaml *node = tsri_section_node(&e->train, "eval");
    const place at = place_of(node);
    tsr_tensor *outputs[4] = {NULL};
    tsri_forward f;
    if (tsri_config_autocast(e))
        tsr_autocast_at(g, tsri_config_autocast(e), at.file, at.line);
    TSRI_TRY(tsri_section_has(&tsri_experiment_section, e, "model")
                 ? tsri_program_forward(p, g, rows, &f)
                 : tsri_program_forward_graph(p, g, rows, &f));
    outputs[0] = f.loss;
    if (f.logits)
        TSRI_TRY(declare_classes(p, &f, at, outputs + 1));
    for (int i = 0; i < 4; i++) {
        const tsr_placement *where = tsr_tensor_placement(f.loss);
        if (outputs[i])
            tsr_output_at(g, names[i], outputs[i], where, tsri_sbp_b(tsr_placement_ndim(where)),
                          at.file, at.line);
    }
    p->inside->row_labels = f.labels ? tsr_dims_count(tsr_tensor_dims(f.labels)) / rows : 0;
    return tsri_program_fail(node, tsr_graph_status(g));
}

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    (void)training;
    tsr_status status = declare_outputs(arg, g, rows);
    if (status == TSR_OK || status == TSR_ERR_NO_MEMORY)
        return status;
    char text[1600];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    return tsri_fail(status, "%s (in train.eval, of a batch of %lld rows)", text, (long long)rows);
}

tsr_status tsri_program_try_eval(tsri_program *p)
{
    tsr_graph *g = tsr_graph_create(p->world, TSR_GRAPH_OPTS());
    TSRI_NEED(g);
    const tsr_status status = declare(g, p->rows, false, p);
    tsr_graph_destroy(g);
    return status;
}

/* --- running ---------------------------------------------------------------------------------- */
static bool has_input(const tsr_plan *plan, const char *name)
{
    for (int i = 0; i < tsr_plan_nports(plan); i++) {
        const tsr_port port = tsr_plan_port(plan, i);
        if (port.is_input && !strcmp(port.name, name))
            return true;
    }
    return false;
}

/* Gives a plan that is new the values of its constants, which stay. */
static tsr_status feed_constants(tsri_program *p, tsr_plan *plan)
{
    tsri_program_inside *in = p->inside;
    if (plan == in->eval_plans[0] || plan == in->eval_plans[1])
        return TSR_OK;
    for (int i = 0; i < in->nfeeds; i++)
        if (!in->feeds[i].variable && has_input(plan, in->feeds[i].name))
            TSRI_TRY(tsri_program_feed_value(p, plan, &in->feeds[i]));
    in->eval_plans[in->eval_plans[0] != NULL] = plan;
    return TSR_OK;
}

tsr_status tsri_program_open_eval(tsri_program *p, const tsr_compile_opts *opts)
{
    tsri_program_inside *in = p->inside;
    tsr_compile_opts whole = *opts;
    whole.microbatches = 1; /* the last batch of an epoch may have any number of rows */
    TSRI_TRY(tsri_program_open_test(p));
    TSRI_TRY(tsr_program_create(p->world, declare, p,
                                TSR_PROGRAM_OPTS(.seed = (uint64_t)p->experiment->train.seed,
                                                 .plans = 2, .compile = &whole),
                                &in->evaluator));
    /* Full batches, and the last one: what can't be evaluated is told before training. */
    const int64_t count = in->test.rows.count, full = p->experiment->data.batch_size;
    const int64_t rows[2] = {count < full ? 0 : full, count % full};
    for (int i = 0; i < 2; i++) {
        tsr_plan *plan;
        if (rows[i])
            TSRI_TRY(tsr_program_plan(in->evaluator, rows[i], false, &plan));
    }
    return TSR_OK;
}

tsr_status tsri_program_eval_begin(tsri_program *p, tsri_evaluation *out)
{
    *out = (tsri_evaluation){.has_classes = p->inside->row_labels > 0};
    memset(p->inside->eval_sum, 0, sizeof p->inside->eval_sum);
    return tsr_loader_set_epoch(p->inside->test.loader, 0);
}

/* Whether this rank can fetch the loss, and what else is read. */
static bool has_loss(const tsri_program *p)
{
    const int rank = tsr_world_rank(p->world);
    for (int i = 0; i < p->nfetches; i++)
        if (p->fetches[i].is_loss)
            return tsr_placement_find(p->fetches[i].placement, rank) >= 0;
    return false;
}

/* Fetches what is read of a batch: loss, right, right5, counted, as far as they are there. */
static tsr_status fetch(const tsri_program *p, tsr_plan *plan, double out[4])
{
    static const char *const names[] = {"right", "right5", "counted"};
    const bool ignores = p->experiment->train.eval.has_ignored;
    const int n = !p->inside->row_labels ? 0 : ignores ? 3 : 2;
    TSRI_TRY(tsr_fetch_scalar(plan, "loss", &out[0]));
    for (int i = 0; i < n; i++)
        TSRI_TRY(tsr_fetch_scalar(plan, names[i], &out[i + 1]));
    return TSR_OK;
}

tsr_status tsri_program_eval_next(tsri_program *p, tsri_evaluation *io)
{
    tsri_program_inside *in = p->inside;
    const bool adds = p->experiment->train.eval.adds_losses;
    double *sum = in->eval_sum;
    tsr_plan *plan;
    int64_t rows;
    TSRI_TRY(tsr_program_feed(in->evaluator, in->test.loader, false, &plan, &rows));
    TSRI_TRY(feed_constants(p, plan));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_wait(plan));
    double got[4] = {NAN, NAN, NAN, (double)(rows * (in->row_labels ? in->row_labels : 1))};
    if (has_loss(p))
        TSRI_TRY(fetch(p, plan, got));
    io->rows += rows;
    /* A batch of which nothing counts has no mean. */
    if (got[3] > 0 || adds)
        sum[0] += got[0] * (adds ? 1 : got[3]);
    for (int i = 1; i < 4; i++)
        sum[i] += got[i];
    io->loss = adds ? sum[0] : sum[0] / sum[3];
    io->accuracy = sum[1] / sum[3];
    io->top5 = sum[2] / sum[3];
    return TSR_OK;
}
