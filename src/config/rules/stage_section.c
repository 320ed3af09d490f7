/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of `stages`. */
#include "src/config/inside.h"
#include "src/config/section_fields.h"

static const tsri_field rule_fields[] = {
    FIELD(
        TEXT, tsri_config_stage_rule, "match", match, TSRI_NEEDED, 0, 0,
        "A pattern of names of parameters and buffers, as in parameters: h.0-5.* fits all that is "
        "in blocks 0 to 5. Of the rules that fit a name the last one counts."),
    FIELD(INT, tsri_config_stage_rule, "stage", stage, TSRI_NEEDED, 0, 32766,
          "The stage: without `virtual` an index on the axis. The first is 0."),
};
const tsri_section tsri_stage_rule_section = {
    .name = "rules", .size = sizeof(tsri_config_stage_rule), FIELDS(rule_fields)};

static const char *const split_words[] = {"auto", NULL};

static const tsri_field stages_fields[] = {
    FIELD(TEXT, tsri_config_stages, "axis", axis, TSRI_NEEDED, 0, 0,
          "The axis of the input's mesh that has the stages: each index on it is one, whose ranks "
          "are the mesh of the other axes."),
    FIELD(INT, tsri_config_stages, "virtual", chunks, "1", 1, 64,
          "Chunks of each index on the axis: of n indices the stages are then 0 to n virtual - 1, "
          "and stage s is on index s mod n. Their micro-batches are interleaved, which makes the "
          "idle time so many times shorter and sends so many times as much between stages."),
    WORD(tsri_config_stages, "split", split, TSRI_NONE, split_words,
         "Instead of rules: auto plans the model on the ranks of one stage, and cuts its modules, "
         "in the order in which the forward pass needs them, so that the longest stage is as "
         "short as it can be within the memory limit. tessera plan --long prints which stage has "
         "which parameters."),
    {.name = "rules",
     .kind = TSRI_FIELD_SECTIONS,
     .offset = offsetof(tsri_config_stages, rules),
     .section = &tsri_stage_rule_section,
     .max = TSRI_CONFIG_MAX_PATTERNS,
     .doc = "Which parameters and buffers are in which stage. Each must be in one, and each stage "
            "must have some."},
};
const tsri_section tsri_stages_section = {
    .name = "stages", .size = sizeof(tsri_config_stages), FIELDS(stages_fields)};
