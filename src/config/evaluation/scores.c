/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluation of a graph: how losses of batches are put together, and which value holds the
 * scores of the classes. */
#include <string.h>

#include "src/config/ops.h"

static tsri_op_role role_of(const tsri_config_op *op)
{
    return tsri_op_rows[op->head.variant].role;
}

/* Whether the op compares scores of classes with labels: cross_entropy and its kind. */
static bool is_classifier(const tsri_config_op *op)
{
    const char *operands = tsri_op_sections[op->head.variant].operands;
    const char *second = operands ? strchr(operands, ' ') : NULL;
    return second && !strncmp(second, " labels", 7);
}

static bool has_key(const tsri_config_op *op, const char *key)
{
    return tsri_section_field(&tsri_op_sections[op->head.variant], key) && tsri_op_has(op, key);
}

/* The only classifier that the loss is made of; that which takes `scores`, if that is said. NULL:
 * there is none, or several. */
static const tsri_config_op *find_classifier(const tsri_experiment *e, const bool *marked,
                                             const char *scores)
{
    const tsri_config_op *ops = e->graph.items, *found = NULL;
    int n = 0;
    for (int i = 0; i < e->graph.n; i++) {
        if (!marked[i] || !is_classifier(&ops[i]) ||
            (scores && strcmp(ops[i].in.refs[0].name, scores) != 0))
            continue;
        found = &ops[i];
        n++;
    }
    return n == 1 ? found : NULL;
}

/* The entry that reads the labels of the data; NULL: none does. */
static const char *find_labels(const tsri_experiment *e)
{
    const tsri_config_op *ops = e->graph.items;
    for (int i = 0; i < e->graph.n; i++)
        if (role_of(&ops[i]) == TSRI_ROLE_INPUT && ops[i].field == TSRI_INPUT_Y)
            return ops[i].head.name;
    return NULL;
}

/* Whether the loss is a sum over rows, so that batches' losses are added. */
static bool is_sum(const tsri_experiment *e)
{
    int result;
    const tsri_config_op *loss = tsri_experiment_result(e, e->loss.name, &result);
    const char *name = tsri_op_sections[loss->head.variant].name;
    return !strcmp(name, "sum") || (has_key(loss, "reduction") && loss->reduction == TSR_SUM);
}

tsr_status tsri_check_eval(tsri_experiment *e, const tsri_reader *r)
{
    tsri_config_eval *eval = &e->train.eval;
    const tsri_yaml *node = tsri_section_node(&e->train, "eval");
    if (!tsri_section_has(&tsri_train_section, &e->train, "eval"))
        return TSR_OK;
    if (!tsri_section_has(&tsri_experiment_section, e, "data"))
        return tsri_yaml_fail_key(node, "'data' is missing: what is evaluated on");
    bool *marked = tsri_pool_alloc(r->pool, (size_t)e->graph.n * sizeof *marked);
    TSRI_NEED(marked);
    tsri_graph_mark(e, e->loss.name, marked);
    eval->adds_losses = is_sum(e);
    if (eval->scores.name)
        TSRI_TRY(tsri_check_entry(e, &eval->scores));
    const tsri_config_op *by = find_classifier(e, marked, eval->scores.name);
    eval->score_name = eval->scores.name;
    if (by) {
        eval->score_name = by->in.refs[0].name;
        eval->label_name = by->in.refs[1].name;
        eval->has_ignored = has_key(by, "ignore_index");
        eval->ignored = by->ignore_index;
    } else if (eval->score_name && !(eval->label_name = find_labels(e))) {
        return tsri_yaml_fail(eval->scores.node, "graph has no entry {op: input, field: y}: the "
                                                 "labels that scores are compared with");
    }
    return TSR_OK;
}
