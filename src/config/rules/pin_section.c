/* SPDX-License-Identifier: Apache-2.0 */
/* The table of `tensors.match`. */
#include "src/config/inside.h"

#define PIN(kind_, key_, fallback_, doc_)                                                     \
    {                                                                                         \
        .name = #key_, .kind = TSRI_FIELD_##kind_, .offset = offsetof(tsri_config_pin, key_), \
        .fallback = fallback_, .doc = doc_                                                    \
    }
static const tsri_field pin_fields[] = {
    PIN(TEXT, match, TSRI_NEEDED,
        "A pattern, as in parameters, of names of modules, as in blocks.0.attn; or, with a colon, "
        "of ops in them, as in blocks.*.attn:softmax. The word after the colon is the plan's name "
        "of "
        "the op; the second such op of a module is :softmax.1, the third :softmax.2. In a graph "
        "the "
        "names are those of its entries other than parameters; y.1 is the second result of y."),
    {.name = "placement",
     .kind = TSRI_FIELD_NAME,
     .offset = offsetof(tsri_config_pin, placement),
     .fallback = TSRI_NONE,
     .legal = "the name of a placement",
     .doc = "For graphs alone: where the entry is made."},
    PIN(SBP, sbp, TSRI_NEEDED,
        "The signature of what the module, the op or the entry gives. B alone is B in each "
        "dimension. An entry of a graph that has its own sbp keeps that."),
    PIN(SBP, use, TSRI_NONE,
        "That into which it is brought then, for those that use it. Default: what is cheapest."),
    PIN(SBP, gradient, TSRI_NONE,
        "That into which its gradient is brought. Default: what is cheapest."),
    PIN(SBP, gradient_use, TSRI_NONE,
        "That into which the gradient is brought then, for what makes the tensor. Default: what is "
        "cheapest."),
};
const tsri_section tsri_pin_section = {.name = "match",
                                       .size = sizeof(tsri_config_pin),
                                       .nfields = sizeof pin_fields / sizeof *pin_fields,
                                       .fields = pin_fields};
