/* SPDX-License-Identifier: Apache-2.0 */
/* The ops that connect the turns of a step with micro-batches. Only the rewrite src/rewrite/time.c
 * declares them. */
#include <stdio.h>

#include "src/graph/op.h"

/* Writes the axes of the whole, or of a part: the cut axis is (x . x1) or (x x1). */
static void write_axes(char *buf, const tsri_op *op, bool whole)
{
    char *p = buf;
    for (int i = 0; i < op->in[0]->shape.ndim; i++)
        p += i == op->attrs.part.axis
                 ? sprintf(p, "(%c %s%c1) ", tsri_letters[i], whole ? ". " : "", tsri_letters[i])
                 : sprintf(p, "%c ", tsri_letters[i]);
    p[-1] = 0; /* there is an axis */
}

static tsr_status rule_of_rows(const tsri_op *op, tsri_rule_text *out)
{
    const bool takes = op->kind == TSRI_OP_PART;
    char whole[TSRI_AXES_TEXT], part[TSRI_AXES_TEXT];
    const int64_t rows = (takes ? op->out : op->in)[0]->shape.d[op->attrs.part.axis];
    const char c = tsri_letters[op->attrs.part.axis];
    write_axes(whole, op, true);
    write_axes(part, op, false);
    TSRI_TRY(tsri_write_rule(out, "^%s, !() -> %s", takes ? whole : part, takes ? part : whole));
    tsri_add_size(out, (const char[]){c, 0}, op->attrs.part.blocks);
    tsri_add_size(out, (const char[]){c, '1', 0}, rows / op->attrs.part.blocks);
    return TSR_OK;
}

static const tsri_attr_field part_attrs[] = {
    TSRI_ATTR_FIELD(part.axis, I32, "axis"), TSRI_ATTR_FIELD(part.parts, I32, "parts"),
    TSRI_ATTR_FIELD(part.blocks, I64, "blocks"), TSRI_ATTR_END};

const tsri_op_def tsri_def_part = {.rule = rule_of_rows, .attrs = part_attrs, .is_exact = true};
const tsri_op_def tsri_def_whole = {
    .rule = rule_of_rows, .attrs = part_attrs, .collects = true, .is_exact = true};

/* Sums take partial sums. Extremes take no partial ones: a largest value of smallest ones is not
 * the smallest of largest ones, and ^ lets both pass. */
static const char *rule_total(const tsri_op *op)
{
    return op->attrs.total.op == TSR_REDUCE_SUM ? "..., !() -> ..." : "!..., !() -> ...";
}

static const tsri_attr_field total_attrs[] = {TSRI_ATTR_FIELD(total.op, I32, "op"), TSRI_ATTR_END};

const tsri_op_def tsri_def_total = {
    .rule_of = rule_total, .attrs = total_attrs, .layout = TSRI_LAYOUT_ANY, .collects = true};
