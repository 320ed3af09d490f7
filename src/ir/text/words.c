/* SPDX-License-Identifier: Apache-2.0 */
#include "src/ir/text/words.h"

#include <string.h>

#include "src/core/attrs_text.h"

const char *const tsri_text_items[] = {"kernel",     "view",   "relabel", "local_box",
                                       "collective", "output", "dead"};
const char *const tsri_text_turns[] = {"head", "parts", "tail"};
const char tsri_text_phases[] = {0, '<', '>', '.'};
const char tsri_text_sides[] = {0, '-', '+'};

#define KERNEL(word, field)                     \
    {                                           \
        word, offsetof(tsri_item, kernel.field) \
    }
#define BOX(word, field)                     \
    {                                        \
        word, offsetof(tsri_item, box.field) \
    }
#define VALUE(word, field)                \
    {                                     \
        word, offsetof(tsri_value, field) \
    }
const tsri_text_flag tsri_text_kernel[] = {
    KERNEL("updates", updates), KERNEL("recomputes", recomputes), KERNEL("moved", is_moved), {0}};
const tsri_text_flag tsri_text_box[] = {BOX("crosses", step.crosses),
                                        BOX("on_dst", step.on_dst),
                                        BOX("two_phase", step.two_phase),
                                        BOX("broadcast", broadcast),
                                        BOX("bucket", is_bucket),
                                        BOX("joins", joint.joins),
                                        {0}};
const tsri_text_flag tsri_text_value[] = {VALUE("source", source),
                                          VALUE("fixed", fixed),
                                          VALUE("nhwc", nhwc),
                                          VALUE("by_head", by_head),
                                          VALUE("loss", is_loss),
                                          VALUE("said", said),
                                          {0}};

const tsri_text_number tsri_text_value_numbers[] = {
    {"tensor", offsetof(tsri_value, tensor), TSRI_TEXT_INT, 1, -1},
    {"first", offsetof(tsri_value, first), TSRI_TEXT_INT, 1, -1},
    {"last", offsetof(tsri_value, last), TSRI_TEXT_INT, 1, -1},
    {"slots", offsetof(tsri_value, slots), TSRI_TEXT_INT, 1, 0},
    {"at", offsetof(tsri_value, arena_offset), TSRI_TEXT_SIZE, 1, 0},
    {0}};
const tsri_text_number tsri_text_kernel_numbers[] = {
    {"chain", offsetof(tsri_item, kernel.chain), TSRI_TEXT_INT, 1, 0},
    {"again", offsetof(tsri_item, kernel.again), TSRI_TEXT_INT, 1, 0},
    {"op", offsetof(tsri_item, kernel.id), TSRI_TEXT_INT, 1, 0},
    {"groups", offsetof(tsri_item, kernel.groups), TSRI_TEXT_I64, 1, 0},
    {"flops", offsetof(tsri_item, kernel.flops), TSRI_TEXT_F64, 1, 0},
    {0}};
const tsri_text_number tsri_text_box_numbers[] = {
    {"price", offsetof(tsri_item, box.step.cost_s), TSRI_TEXT_F64, 1, 0},
    {"bytes", offsetof(tsri_item, box.step.bytes), TSRI_TEXT_I64, 1, 0},
    {"number", offsetof(tsri_item, box.part.number), TSRI_TEXT_INT, 1, 0},
    {"share", offsetof(tsri_item, box.part.share), TSRI_TEXT_F64, 1, 0},
    {"part_of", offsetof(tsri_item, box.part_of), TSRI_TEXT_INT, 1, 0},
    {"received_in", offsetof(tsri_item, box.received_in), TSRI_TEXT_INT, 1, 0},
    {"alone", offsetof(tsri_item, box.joint.alone_s), TSRI_TEXT_F64, 1, 0},
    {"shake", offsetof(tsri_item, box.joint.shake_s), TSRI_TEXT_F64, 1, 0},
    {"rest", offsetof(tsri_item, box.joint.rest_s), TSRI_TEXT_F64, 2, 0},
    {"reads", offsetof(tsri_item, box.joint.bytes), TSRI_TEXT_F64, 2, 0},
    {0}};
const tsri_text_number tsri_text_item_numbers[] = {
    {"place", offsetof(tsri_item, place), TSRI_TEXT_INT, 1, 0},
    {"segment", offsetof(tsri_item, segment), TSRI_TEXT_INT, 1, 0},
    {"cost", offsetof(tsri_item, cost_s), TSRI_TEXT_F64, 1, 0},
    {0}};

bool tsri_text_is_bound(const tsri_item *it)
{
    return (it->kind == TSRI_ITEM_KERNEL || it->kind == TSRI_ITEM_VIEW) &&
           (it->kernel.op == TSRI_OP_CONSTANT || it->kernel.op == TSRI_OP_OWN ||
            it->kernel.op == TSRI_OP_OWN_BACKWARD);
}

tsri_attrs tsri_text_nameless(const tsri_item *it)
{
    tsri_attrs attrs = it->kernel.attrs;
    const tsri_attr_field *a = tsri_op_def_of(it->kernel.op)->attrs;
    for (; a && a->name; a++)
        memset((char *)&attrs + a->offset, 0, (size_t)a->n * tsri_attr_bytes(a->type));
    if (it->kernel.op == TSRI_OP_CONSTANT)
        attrs.constant.data = NULL;
    else if (tsri_text_is_bound(it))
        attrs.own.op = NULL;
    return attrs;
}
