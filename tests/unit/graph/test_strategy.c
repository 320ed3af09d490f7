/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies of plans that are made by hand in a virtual world. Each row is a program whose
 * strategy is known by construction: what signatures weights are kept in, what they are used in,
 * and what results are brought into. The words of the report are compared as a whole; where no name
 * fits, none may be given.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tessera/tessera.h>
#include "placement/placement.h"
#include "src/nn/module.h"
#include "src/plan/report/report.h"

enum { RANKS = 16, VARIABLES = 64, PLACES = 4, TEXT = 48 };

/*
 * A program is lines, separated by ";". x is the current value; "." for a signature says nothing.
 *
 *   on K                             what follows is on placement K
 *   to SBP                           x in a signature, on the current placement
 *   linear NAME OUT KEPT USED MADE   a weight (OUT, features of x) kept and used in signatures;
 *                                    the result in MADE
 *   conv NAME OUT KEPT USED MADE     1 x 1; OUT 0: depthwise 3 x 3, as many channels as x has
 *   embed NAME ROWS KEPT MADE        rows of 32 features for ids x
 *   tied NAME MADE                   linear by the weight of NAME
 *   norm NAME | rms NAME             over the last axis
 *   relu | save | add                add: x plus what was saved
 *   mean | ce                        over axis 1; the cross entropy with labels of all other axes
 *
 * {N ...} is written N times, with # as the number.
 */
typedef struct hand_made {
    const char *words;
    const char *places; /* separated by blanks */
    const char *shape;  /* of the input; with "i" in front of ids */
    const char *input;  /* its signature */
    const char *program;
    const char *optimizer; /* "adam", "sgd", "momentum"; NULL: no training */
    const char *state;     /* of its states; NULL: as parameters */
    bool whole_gradients;  /* they are brought into B before the update */
    bool no_name;
} hand_made;

#define MLP "linear a 64 B . .; relu; linear b 32 B . ."
static const hand_made cases[] = {
    /* --- data parallel --- */
    {"data parallel x2", "cpu:[0,1]", "8,32", "S(0)", MLP, .optimizer = "adam"},
    {"data parallel x8", "cpu:[0,1,2,3,4,5,6,7]", "64,32", "S(0)", MLP, .optimizer = "momentum"},
    {"data parallel x4", "cpu:[0,1,2,3]", "64,32", "S(0)", MLP, .optimizer = "sgd"},
    {"data parallel x4", "cpu:[0,1,2,3]", "64,32", "S(0)",
     "linear a 64 B B S(0); relu; linear b 32 B B S(0)", .optimizer = NULL},
    {"data parallel x4", "cpu:[0,1,2,3]", "i8,16", "S(0)",
     "embed e 100 B .; norm n; linear a 64 B . S(0)", .optimizer = "adam"},
    {"data parallel x2", "cpu:[0,1]", "8,6,9,9", "S(0)",
     "conv a 12 B . .; conv b 0 B . .; conv c 6 B . .", .optimizer = "momentum"},
    {"data parallel x3", "cpu:[0,1,2]", "8,32", "S(0)", "{5 linear h.#.fc 32 B . .; relu;}",
     .optimizer = "adam"},
    /* --- ZeRO --- */
    {"ZeRO-1 x4", "cpu:[0,1,2,3]", "64,32", "S(0)",
     "linear a 64 B B S(0); relu; linear b 32 B B S(0)", .optimizer = "adam", .state = "S(0)",
     .whole_gradients = true},
    {"ZeRO-1 x2", "cpu:[0,1]", "64,32", "S(0)", "{3 linear h.#.fc 32 B B S(0);}",
     .optimizer = "momentum", .state = "S(0)", .whole_gradients = true},
    {"ZeRO-2 x4", "cpu:[0,1,2,3]", "64,32", "S(0)",
     "linear a 64 B B S(0); relu; linear b 32 B B S(0)", .optimizer = "adam", .state = "S(0)"},
    {"ZeRO-2 x2", "cpu:[0,1]", "64,32", "S(0)", "{3 linear h.#.fc 32 B B S(0);}",
     .optimizer = "momentum", .state = "S(0)"},
    {"ZeRO-3 (FSDP) x4", "cpu:[0,1,2,3]", "64,32", "S(0)",
     "linear a 64 S(0) B S(0); relu; linear b 32 S(0) B S(0)", .optimizer = "adam"},
    {"ZeRO-3 (FSDP) x4", "cpu:[0,1,2,3]", "64,32", "S(0)",
     "linear a 64 S(1) B S(0); relu; linear b 32 S(1) B S(0)", .optimizer = "adam"},
    {"ZeRO-3 (FSDP) x2", "cpu:[0,1]", "i8,16", "S(0)",
     "embed e 100 S(0) S(0); {2 norm h.#.n; linear h.#.fc 32 S(0) B S(0);}", .optimizer = "adam"},
    {"ZeRO-3 (FSDP) x2 in 3 of 4 layers", "cpu:[0,1]", "64,32", "S(0)",
     "{3 linear h.#.fc 32 S(0) B S(0);} linear out 4 B B S(0)", .optimizer = "adam"},
    /* --- Megatron --- */
    {"Megatron pair x2", "cpu:[0,1]", "8,32", "B",
     "linear a 64 S(0) . S(1); relu; linear b 32 S(1) . B", .optimizer = "adam"},
    {"Megatron pairs x2", "cpu:[0,1]", "8,32", "B",
     "linear 0 64 S(0) . S(1); linear 2 32 S(1) . B; linear 4 64 S(0) . S(1); linear 6 32 S(1) . B",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 4 of 4 blocks", "cpu:[0,1]", "4,16,32", "B",
     "{4 save; norm h.#.n; linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B; add;}",
     .optimizer = "adam"},
    {"Megatron pairs x4 in 2 of 5 blocks", "cpu:[0,1,2,3]", "4,16,32", "B",
     "{2 save; linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B; add;}"
     "linear h.7.fc1 64 B . B; linear h.7.fc2 32 B . B; linear h.8.fc1 64 B . B; linear h.9.fc1 32 "
     "B . B",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 2 of 2 blocks, vocabulary-parallel embedding", "cpu:[0,1]", "i4,16", "B",
     "embed wte 128 S(0) B; {2 linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B;} "
     "linear out 10 B . B",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 2 of 2 blocks, vocabulary-parallel embedding and output", "cpu:[0,1]",
     "i4,16", "B",
     "embed wte 128 S(0) B; {2 linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B;} "
     "tied wte S(2)",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 2 of 2 blocks, vocabulary-parallel output", "cpu:[0,1]", "i4,16", "B",
     "embed wte 128 B B; {2 linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B;} "
     "linear out 128 S(0) . S(2)",
     .optimizer = "adam"},
    /* Classes are no words: another size than the embedding's, or no embedding. */
    {"Megatron pairs x2 in 2 of 2 blocks, column-parallel output", "cpu:[0,1]", "i4,16", "B",
     "embed wte 128 B B; {2 linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B;} "
     "linear out 10 S(0) . S(2)",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 2 of 2 blocks, vocabulary-parallel embedding, column-parallel output",
     "cpu:[0,1]", "i4,16", "B",
     "embed wte 128 S(0) B; {2 linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B;} "
     "linear out 10 S(0) . S(2)",
     .optimizer = "adam"},
    {"Megatron pair x2, column-parallel output", "cpu:[0,1]", "8,32", "B",
     "linear a 64 S(0) . S(1); relu; linear b 32 S(1) . B; linear c 10 S(0) . S(1); ce",
     .optimizer = "adam"},
    {"Megatron pair x2, column-parallel output", "cpu:[0,1]", "4,16,32", "B",
     "linear a 64 S(0) . S(2); relu; linear b 32 S(1) . B; linear c 10 S(0) . S(2); mean; ce",
     .optimizer = "adam"},
    /* A label for each position. */
    {"Megatron pair x2, vocabulary-parallel output", "cpu:[0,1]", "4,16,32", "B",
     "linear a 64 S(0) . S(2); relu; linear b 32 S(1) . B; linear c 10 S(0) . S(2); ce",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 3 of 3 blocks, sequence-parallel norms", "cpu:[0,1]", "4,16,32", "S(1)",
     "{3 norm h.#.n; to S(1); to B; linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . "
     "S(1);}",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 2 of 2 blocks, sequence-parallel norms", "cpu:[0,1]", "4,16,32", "S(1)",
     "{2 rms h.#.n; to S(1); to B; linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . "
     "S(1);}",
     .optimizer = "adam"},
    {"Megatron pairs x2 in 2 of 2 blocks, sequence-parallel norms (2 of 3)", "cpu:[0,1]", "4,16,32",
     "S(1)",
     "{2 norm h.#.n; to S(1); to B; linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . "
     "S(1);} to B; norm f",
     .optimizer = "adam"},
    {"Megatron pair x2", "cpu:[0,1]", "4,8,9,9", "B",
     "conv a 32 S(0) . S(1); conv b 0 S(0) . S(1); conv c 8 S(1) . B", .optimizer = "momentum"},
    {"Megatron pair x4", "cpu:[0,1,2,3]", "8,32", "B",
     "linear a 64 S(0) . S(1); relu; linear b 32 S(1) . B", .optimizer = NULL},
    /* --- others of one dimension --- */
    {"sequence parallel x2", "cpu:[0,1]", "4,16,32", "S(1)",
     "norm n; linear a 64 B . S(1); relu; linear b 32 B . S(1)", .optimizer = "adam"},
    {"replicated x2", "cpu:[0,1]", "8,32", "B", "linear a 64 B . B; relu; linear b 32 B . B",
     .optimizer = "adam"},
    {"replicated x4", "cpu:[0,1,2,3]", "i2,16", "B", "embed e 100 B B; norm n; linear b 32 B . B",
     .optimizer = NULL},
    {"one rank", "cpu:[3]", "8,32", "B", MLP, .optimizer = "adam"},
    /* --- several dimensions --- */
    {"axis 0: data parallel x2; axis 1: replicated x2", "cpu:[[0,1],[2,3]]", "8,32", "(S(0),B)",
     "linear a 64 (B,B) . (S(0),B); relu; linear b 32 (B,B) . (S(0),B)", .optimizer = "adam"},
    {"each of 2 axes: data parallel x2", "cpu:[[0,1],[2,3]]", "8,32", "(S(0),S(0))",
     "linear a 64 (B,B) . (S(0),S(0)); relu; linear b 32 (B,B) . (S(0),S(0))", .optimizer = "adam"},
    {"axis 0: data parallel x4; axis 1: Megatron pairs x2 in 2 of 2 blocks",
     "cpu:[[0,1],[2,3],[4,5],[6,7]]", "8,16,32", "(S(0),B)",
     "{2 linear h.#.fc1 64 (B,S(0)) . (S(0),S(2)); relu; linear h.#.fc2 32 (B,S(1)) . (S(0),B);}",
     .optimizer = "adam"},
    {"axis 0: Megatron pairs x2 in 2 of 2 blocks; axis 1: data parallel x2", "cpu:[[0,1],[2,3]]",
     "8,16,32", "(B,S(0))",
     "{2 linear h.#.fc1 64 (S(0),B) . (S(2),S(0)); relu; linear h.#.fc2 32 (S(1),B) . (B,S(0));}",
     .optimizer = "adam"},
    {"axis 0: ZeRO-3 (FSDP) x2; axis 1: Megatron pairs x2 in 2 of 2 blocks", "cpu:[[0,1],[2,3]]",
     "64,16,32", "(S(0),B)",
     "{2 linear h.#.fc1 64 (S(1),S(0)) (B,S(0)) (S(0),S(2)); relu; linear h.#.fc2 32 (S(0),S(1)) "
     "(B,S(1)) (S(0),B);}",
     .optimizer = "adam"},
    {"axis 0: data parallel x2; axis 1: ZeRO-3 (FSDP) x4", "cpu:[[0,1,2,3],[4,5,6,7]]", "64,32",
     "(S(0),S(0))",
     "linear a 64 (B,S(0)) (B,B) (S(0),S(0)); relu; linear b 32 (B,S(0)) (B,B) (S(0),S(0))",
     .optimizer = "adam"},
    {"axis 0: data parallel x2; axis 1: sequence parallel x2; axis 2: Megatron pairs x2 in 2 of 2 "
     "blocks",
     "cpu:[[[0,1],[2,3]],[[4,5],[6,7]]]", "8,16,32", "(S(0),S(1),B)",
     "{2 linear h.#.fc1 64 (B,B,S(0)) . (S(0),S(1),S(2)); relu; linear h.#.fc2 32 (B,B,S(1)) . "
     "(S(0),S(1),B);}",
     .optimizer = "adam"},
    /* --- pipelines --- */
    {"pipeline of 2 stages, each one rank", "cpu:[0] cpu:[1]", "8,32", "B",
     "linear a 64 B . .; on 1; to B; linear b 32 B . .", .optimizer = "adam"},
    {"pipeline of 2 stages, each data parallel x2", "cpu:[0,1] cpu:[2,3]", "8,32", "S(0)",
     "linear a 64 B . S(0); on 1; to S(0); linear b 32 B . S(0)", .optimizer = "adam"},
    {"pipeline of 4 stages, each Megatron pair x2 in 1 of 1 block",
     "cpu:[0,1] cpu:[2,3] cpu:[4,5] cpu:[6,7]", "8,16,32", "B",
     "{4 on #; to B; linear h.#.fc1 64 S(0) . S(2); relu; linear h.#.fc2 32 S(1) . B;}",
     .optimizer = "adam"},
    {"pipeline of 2 stages: stage 0 data parallel x2; stage 1 Megatron pair x2",
     "cpu:[0,1] cpu:[2,3]", "8,32", "S(0)",
     "linear a 32 B . S(0); on 1; to B; linear b 64 S(0) . S(1); linear c 32 S(1) . B",
     .optimizer = "adam"},
    {"pipeline of 2 stages, each axis 0: data parallel x2; axis 1: Megatron pair x2",
     "cpu:[[0,1],[2,3]] cpu:[[4,5],[6,7]]", "8,32", "(S(0),B)",
     "linear a 64 (B,S(0)) . (S(0),S(1)); linear b 32 (B,S(1)) . (S(0),B);"
     "on 1; to (S(0),B); linear c 64 (B,S(0)) . (S(0),S(1)); linear d 32 (B,S(1)) . (S(0),B)",
     .optimizer = "adam"},
    /* --- no name --- */
    {"no common name x2: of 4 layers 2 along the sequence with gathered weights, 1 by output "
     "features, 1 by input features; 1 Megatron pair among them",
     "cpu:[0,1]", "4,16,32", "S(1)",
     "linear a 32 S(0) B S(1); linear b 32 S(0) B S(1); to B; linear h.0.fc1 32 S(0) . S(2); relu; "
     "linear h.0.fc2 32 S(1) . B",
     .optimizer = "adam", .no_name = true},
    {"no common name x2: of 2 layers 1 by rows of the batch, 1 by output features; optimizer "
     "states in parts",
     "cpu:[0,1]", "8,32", "S(0)", "linear a 64 B B S(0); to B; linear b 32 B S(0) S(1)",
     .optimizer = "adam", .state = "S(0)", .no_name = true},
    {"no common name x2: of 2 layers 2 otherwise", "cpu:[0,1]", "8,32", "B",
     "linear a 64 S(0) B B; relu; linear b 32 S(0) B B", .optimizer = "adam", .no_name = true},
    {"no common name x2: of 2 layers 2 by output features", "cpu:[0,1]", "8,32", "B",
     "linear a 64 S(0) . S(1); to B; linear b 32 S(0) . S(1); to B", .optimizer = "adam",
     .no_name = true},
    {"no common name x2: of 2 layers 2 by input features", "cpu:[0,1]", "8,32", "B",
     "to S(1); linear a 64 S(1) S(1) P; to B; relu; to S(1); linear b 32 S(1) S(1) P; to B",
     .optimizer = "adam", .no_name = true},
    {"no common name x2: of 2 layers 1 by rows of the batch, 1 by output features", "cpu:[0,1]",
     "8,32", "S(0)", "linear a 64 B . S(0); to B; linear b 32 S(0) . S(1)", .optimizer = "adam",
     .no_name = true},
    {"no common name x2: of 2 layers 1 by rows of the batch, 1 by rows with gathered weights",
     "cpu:[0,1]", "64,32", "S(0)", "linear a 64 B B S(0); relu; linear b 32 S(0) B S(0)",
     .optimizer = "adam", .no_name = true},
    {"no common name x2: of 1 layer 1 otherwise", "cpu:[0,1]", "i4,16", "B",
     "embed e 100 S(1) S(2); to B", .optimizer = "adam", .no_name = true},
    {"no common name x2: of 1 layer 1 otherwise", "cpu:[0,1]", "4,8,8,8", "S(2)",
     "conv a 8 B . S(2)", .optimizer = "adam", .no_name = true},
    {"no common name x2: of 1 layer 1 by the vocabulary", "cpu:[0,1]", "i4,16", "B",
     "embed e 100 S(0) B", .optimizer = "adam", .no_name = true},
    {"no common name: 2 placements, each data parallel x2", "cpu:[0,1] cpu:[1,2]", "8,32", "S(0)",
     "linear a 64 B . S(0); on 1; to S(0); linear b 32 B . S(0)", .optimizer = "adam",
     .no_name = true},
    {"no common name: 3 placements, each one rank", "cpu:[0] cpu:[1] cpu:[2]", "8,32", "B",
     "save; linear a 32 B . .; on 2; to B; save2; on 1; input; linear b 32 B . .; on 2; to B; "
     "add2; linear c 32 B . .",
     .optimizer = "adam", .no_name = true},
    {"no layers with parameters", "cpu:[0,1]", "8,32", "S(0)", "relu", .no_name = true},
};

/* --- programs --------------------------------------------------------------------------------- */
typedef struct maker {
    tsr_graph *g;
    tsr_module *net;
    const tsr_placement *place[PLACES], *p;
    int nplaces, nvariables;
    tsr_variable *variable[VARIABLES];
    char names[VARIABLES][TEXT];
    tsr_tensor *input, *x, *saved, *saved2;
} maker;

static tsr_sbp read_sbp(const char *text)
{
    tsr_sbp sbp;
    assert_int_equal(tsr_sbp_parse(strcmp(text, ".") != 0 ? text : "auto", &sbp), TSR_OK);
    return sbp;
}

static tsr_tensor *bring(tsr_tensor *x, const tsr_placement *p, const char *sbp)
{
    return strcmp(sbp, ".") != 0 ? tsr_to_global(x, p, read_sbp(sbp)) : x;
}

/* The module of a name with dots, made as far as it is not there. */
static tsr_module *module_of(maker *m, const char *name)
{
    char copy[TEXT];
    tsr_module *at = m->net;
    snprintf(copy, sizeof copy, "%s", name);
    for (char *rest = copy, *part = strtok_r(copy, ".", &rest); part;
         part = strtok_r(NULL, ".", &rest)) {
        tsr_module *child = tsr_module_child(at, part);
        at = child
                 ? child
                 : tsr_module_add(at, part,
                                  tsr_module_create(m->p->world, &(tsr_nn_opts){.placement = m->p},
                                                    NULL, NULL, NULL));
        assert_non_null(at);
    }
    return at;
}

/* The value of a parameter of a module, which is made if it is not there; kept NULL: in B. */
static tsr_tensor *weight(maker *m, const char *name, const char *what, tsr_dims dims,
                          const char *kept)
{
    char full[TEXT];
    snprintf(full, sizeof full, "%.38s.%s", name, what);
    for (int i = 0; i < m->nvariables; i++)
        if (!strcmp(m->names[i], full))
            return tsri_graph_read(m->g, m->variable[i], (tsri_loc){__FILE__, __LINE__});
    assert_true(m->nvariables < VARIABLES);
    tsr_sbp sbp = kept ? read_sbp(kept) : tsri_sbp_b(tsr_placement_ndim(m->p));
    if (tsri_module_add_variable(module_of(m, name), what, m->p, TSR_F32, dims, sbp,
                                 (tsr_init){.kind = TSR_INIT_ONES}, true,
                                 &m->variable[m->nvariables]) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    memcpy(m->names[m->nvariables], full, sizeof full);
    return tsri_graph_read(m->g, m->variable[m->nvariables++], (tsri_loc){__FILE__, __LINE__});
}

/* The mean loss of x[.., classes] with labels that are fed for each of its rows. */
static tsr_tensor *cross_entropy(maker *m, tsr_dims x)
{
    const int64_t last = x.d[x.ndim - 1], rows = tsr_dims_count(x) / last;
    tsr_tensor *label = tsr_input(m->g, "label", TSR_I64, TSR_DIMS(rows), m->p,
                                  tsri_sbp_b(tsr_placement_ndim(m->p)));
    return tsr_cross_entropy(tsr_reshape(m->x, TSR_DIMS(rows, last)), label, TSR_MEAN);
}

static void do_line(maker *m, const char *line)
{
    char op[TEXT] = "", a[TEXT] = "", b[TEXT] = "", c[TEXT] = "", d[TEXT] = "", e[TEXT] = "";
    int n = sscanf(line, "%47s %47s %47s %47s %47s %47s", op, a, b, c, d, e);
    const tsr_dims x = tsr_tensor_dims(m->x);
    const int64_t last = x.d[x.ndim - 1];
    if (n < 1)
        return;
    if (!strcmp(op, "on"))
        m->p = m->place[atoi(a)];
    else if (!strcmp(op, "to"))
        m->x = tsr_to_global(m->x, m->p, read_sbp(a));
    else if (!strcmp(op, "linear"))
        m->x = bring(tsr_linear(m->x,
                                bring(weight(m, a, "weight", TSR_DIMS(atoi(b), last), c), m->p, d),
                                NULL),
                     m->p, e);
    else if (!strcmp(op, "conv") && atoi(b))
        m->x = bring(
            tsr_conv2d(m->x,
                       bring(weight(m, a, "weight", TSR_DIMS(atoi(b), x.d[1], 1, 1), c), m->p, d),
                       NULL, NULL),
            m->p, e);
    else if (!strcmp(op, "conv"))
        m->x = bring(
            tsr_conv2d(m->x, bring(weight(m, a, "weight", TSR_DIMS(x.d[1], 1, 3, 3), c), m->p, d),
                       NULL, TSR_CONV2D_OPTS(.groups = x.d[1])),
            m->p, e);
    else if (!strcmp(op, "embed"))
        m->x = bring(tsr_embedding(weight(m, a, "weight", TSR_DIMS(atoi(b), 32), c), m->x, NULL),
                     m->p, d);
    else if (!strcmp(op, "tied"))
        m->x = bring(tsr_linear(m->x, weight(m, a, "weight", TSR_DIMS(1), NULL), NULL), m->p, b);
    else if (!strcmp(op, "norm"))
        m->x = tsr_layer_norm(m->x, weight(m, a, "weight", TSR_DIMS(last), NULL),
                              weight(m, a, "bias", TSR_DIMS(last), NULL), NULL);
    else if (!strcmp(op, "rms"))
        m->x = tsr_rms_norm(m->x, weight(m, a, "weight", TSR_DIMS(last), NULL), 1e-5);
    else if (!strcmp(op, "relu"))
        m->x = tsr_relu(m->x);
    else if (!strcmp(op, "mean"))
        m->x = tsr_mean(m->x, TSR_AXES(1), false);
    else if (!strcmp(op, "ce"))
        m->x = cross_entropy(m, x);
    else if (!strcmp(op, "save"))
        m->saved = m->x;
    else if (!strcmp(op, "save2"))
        m->saved2 = m->x;
    else if (!strcmp(op, "add"))
        m->x = tsr_add(m->x, m->saved);
    else if (!strcmp(op, "add2"))
        m->x = tsr_add(m->x, m->saved2);
    else if (!strcmp(op, "input"))
        m->x = tsr_to_global(m->input, m->p, TSR_B);
    else
        fail_msg("no line: %s", line);
}

static const char *do_lines(maker *m, const char *text, int number);

static void do_one(maker *m, const char *begin, const char *end, int number)
{
    char line[256];
    size_t n = 0;
    for (; begin < end && n + 16 < sizeof line; begin++)
        if (*begin == '#')
            n += (size_t)snprintf(line + n, 16, "%d", number);
        else
            line[n++] = *begin;
    line[n] = 0;
    do_line(m, line);
}

/* Until the end, or a "}". */
static const char *do_lines(maker *m, const char *text, int number)
{
    for (;;) {
        text += strspn(text, "; ");
        if (!*text || *text == '}')
            return text;
        if (*text == '{') {
            const char *end = text;
            for (int i = 0; i < text[1] - '0'; i++)
                end = do_lines(m, text + 2, i);
            text = end + 1;
            continue;
        }
        const char *end = text + strcspn(text, ";{}");
        do_one(m, text, end, number);
        text = end;
    }
}

static void read_places(maker *m, tsr_world *w, const char *text)
{
    char copy[256], *at = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *one = strtok(at, " "); one; one = strtok(NULL, " ")) {
        m->place[m->nplaces] = tsr_placement_parse(w, one);
        assert_non_null(m->place[m->nplaces++]);
    }
    m->p = m->place[0];
}

static tsr_optimizer *make_optimizer(const maker *m, const hand_made *h)
{
    tsr_sbp state = read_sbp(h->state ? h->state : ".");
    if (!strcmp(h->optimizer, "adam"))
        return tsr_adam(m->net, TSR_ADAM_OPTS(.lr = 0.1, .state = state));
    double momentum = !strcmp(h->optimizer, "momentum") ? 0.9 : 0;
    return tsr_sgd(m->net, TSR_SGD_OPTS(.lr = 0.1, .momentum = momentum, .state = state));
}

static void train(maker *m, const hand_made *h)
{
    tsr_tensor *loss = tsr_mean(m->x, TSR_ALL_AXES, false), *w[VARIABLES], *dw[VARIABLES];
    tsr_output(m->g, "loss", loss, NULL, read_sbp("."));
    if (!h->optimizer)
        return;
    tsr_optimizer *o = make_optimizer(m, h);
    assert_non_null(o);
    if (!h->whole_gradients) {
        tsr_minimize(o, loss);
        return;
    }
    for (int i = 0; i < m->nvariables; i++)
        w[i] = tsri_graph_read(m->g, m->variable[i], (tsri_loc){__FILE__, __LINE__});
    tsr_gradients(loss, m->nvariables, w, dw);
    for (int i = 0; i < m->nvariables; i++)
        dw[i] = tsr_to_global(dw[i], NULL, TSR_B);
    tsr_apply_gradients(o, m->nvariables, m->variable, dw);
}

static void check(const hand_made *h)
{
    tsr_world *w;
    tsr_plan *plan;
    tsri_report *r;
    maker m = {0};
    tsr_dims dims = {0};
    assert_int_equal(tsr_world_create_virtual(RANKS, 0, &w), TSR_OK);
    read_places(&m, w, h->places);
    bool ids = h->shape[0] == 'i';
    for (const char *s = h->shape + ids; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        dims.d[dims.ndim++] = atoi(s);
    m.g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    m.net = tsr_module_create(w, &(tsr_nn_opts){.placement = m.p}, NULL, NULL, NULL);
    m.input = m.x = tsr_input(m.g, "x", ids ? TSR_I64 : TSR_F32, dims, m.p, read_sbp(h->input));
    do_lines(&m, h->program, 0);
    train(&m, h);
    if (tsr_compile(m.g, &plan) != TSR_OK)
        fail_msg("%s: %s: %s", h->words, h->program, tsr_last_error());
    assert_int_equal(tsri_report_create(plan, &r), TSR_OK);
    const tsri_strategy *s = &r->strategy;
    if (strcmp(s->words, h->words) != 0 || s->named == h->no_name)
        fail_msg("\n%s\nis said to be (%s)\n%s\nand is\n%s", h->program,
                 s->named ? "named" : "not named", s->words, h->words);
    tsri_report_destroy(r);
    tsr_plan_destroy(plan);
    tsr_world_destroy(w);
}

static void test_hand_made(void **state)
{
    (void)state;
    int n = (int)(sizeof cases / sizeof *cases), named = 0;
    for (int i = 0; i < n; i++) {
        check(&cases[i]);
        named += !cases[i].no_name;
    }
    assert_true(named >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hand_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
