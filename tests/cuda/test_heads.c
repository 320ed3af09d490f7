/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of attention that are cut from (b,s,h d): on a GPU the plan permutes nothing where kernels
 * take (b,h,s,d) as it lies, and the values are those of a CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/convert.h"
#include "src/core/status.h"
#include "src/plan/plan.h"
#include <tessera/tessera.h>

enum { B = 4, S = 9, H = 2, D = 8, COUNT = B * S * H * D, OPERANDS = 3, VALUES = 4 };

/* What is declared, and what came of it. */
typedef struct program {
    const char *name;
    tsr_dtype dtype;
    bool causal, masked;
    bool reads;    /* the permuted queries are an output too */
    bool variable; /* the queries are a parameter */
    int ranks;
    int permutes; /* of the plan on GPUs */
} program;

typedef struct run {
    const program *of;
    const char *where;
    int permutes, copies;
    float value[VALUES][COUNT]; /* y, dq, dk, dv */
} run;

static const program programs[] = {
    {"bf16", TSR_BF16, true, false, false, false, 1, 0},
    {"f16", TSR_F16, false, false, false, false, 1, 0},
    {"two ranks", TSR_BF16, true, false, false, false, 2, 0},
    /* Products compute these: their heads are permuted first. */
    {"f32", TSR_F32, true, false, false, false, 1, 8},
    {"mask", TSR_BF16, true, true, false, false, 1, 8},
    {"another reader", TSR_BF16, true, false, true, false, 1, 1},
    /* What a run begins with must not be shown: an update may overwrite it. */
    {"variable", TSR_BF16, true, false, false, true, 1, 1},
};

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
static const char *const inputs[] = {"q", "k", "v", "c"};
static const char *const outputs[] = {"y", "dq", "dk", "dv"};

/* Element i of operand `which`: numbers that halves have. */
static float element(int which, int i)
{
    return (float)((i * 37 + which * 11) % 65 - 32) / 32;
}

/* (b,s,h d) in f32 to (b,h,s,d). */
static tsr_tensor *heads_of(tsr_tensor *x, tsr_dtype dtype)
{
    return tsr_permute(tsr_reshape(tsr_cast(x, dtype), TSR_DIMS(B, S, H, D)), TSR_AXES(0, 2, 1, 3));
}

/* The queries as a parameter, of the attention's dtype. */
static tsr_variable *parameter(const program *p, const tsr_placement *on, tsr_world *w)
{
    const tsr_nn_opts how = {.placement = on, .sbp = TSR_B, .dtype = p->dtype};
    tsr_module *m = tsr_module_create(w, &how, NULL, NULL, NULL);
    tsr_variable *v =
        tsr_module_param(m, "q", TSR_DIMS(B, S, H, D), TSR_B, (tsr_init){.kind = TSR_INIT_ZEROS});
    float wide[COUNT];
    uint16_t values[COUNT];
    for (int i = 0; i < COUNT; i++)
        wide[i] = element(0, i);
    tsri_convert(values, p->dtype, wide, TSR_F32, COUNT);
    return tsr_variable_set(v, values, sizeof values) == TSR_OK ? v : NULL;
}

static void declare(const program *p, tsr_world *w, tsr_graph *g, const tsr_placement *on)
{
    tsr_tensor *x[VALUES], *in[OPERANDS], *dx[OPERANDS], *mask = NULL;
    for (int i = 0; i < VALUES; i++) {
        const bool reads = i == 0 && p->variable;
        x[i] = reads ? tsr_read(g, parameter(p, on, w))
                     : tsr_input(g, inputs[i], TSR_F32, TSR_DIMS(B, S, H * D), on, TSR_S(0));
        if (i < OPERANDS)
            in[i] = reads ? tsr_permute(x[i], TSR_AXES(0, 2, 1, 3)) : heads_of(x[i], p->dtype);
    }
    if (p->masked)
        mask = tsr_input(g, "mask", TSR_BOOL, TSR_DIMS(S, S), on, TSR_B);
    tsr_autocast(g, p->dtype); /* a function with a mask would cast halves to f32 */
    tsr_tensor *y = tsr_scaled_dot_product_attention(in[0], in[1], in[2], mask,
                                                     TSR_ATTENTION_OPTS(.causal = p->causal));
    tsr_autocast_end(g);
    y = tsr_reshape(tsr_permute(y, TSR_AXES(0, 2, 1, 3)), TSR_DIMS(B, S, H * D));
    y = tsr_cast(y, TSR_F32);
    tsr_gradients(tsr_sum(tsr_mul(y, x[3]), TSR_ALL_AXES, false), OPERANDS, x, dx);
    tsr_output(g, outputs[0], y, on, TSR_B);
    for (int i = 0; i < OPERANDS; i++)
        tsr_output(g, outputs[1 + i], tsr_cast(dx[i], TSR_F32), on, TSR_B);
    if (p->reads)
        tsr_output(g, "heads", in[0], on, TSR_B);
}

static tsr_status feed(const program *p, tsr_plan *plan)
{
    bool mask[S * S];
    float values[COUNT];
    for (int i = p->variable ? 1 : 0; i < VALUES; i++) {
        for (int j = 0; j < COUNT; j++)
            values[j] = element(i, j);
        TSRI_TRY(tsr_feed(plan, inputs[i], values, sizeof values));
    }
    for (int i = 0; i < S * S; i++)
        mask[i] = i % 3 != 1;
    return p->masked ? tsr_feed(plan, "mask", mask, sizeof mask) : TSR_OK;
}

static int count(const tsr_plan *plan, tsri_op_kind op)
{
    int n = 0;
    for (int i = 0; i < plan->ir.nitems; i++)
        n += plan->ir.items[i].kind == TSRI_ITEM_KERNEL && plan->ir.items[i].kernel.op == op;
    return n;
}

static tsr_status run_program(tsr_world *w, void *arg)
{
    run *r = arg;
    const program *p = r->of;
    const tsr_placement *on = tsr_placement_parse(w, r->where);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_plan *plan;
    float value[VALUES][COUNT];
    declare(p, w, g, on);
    TSRI_TRY(tsr_compile(g, &plan));
    /* The second run is captured. */
    for (int i = 0; i < 2; i++) {
        TSRI_TRY(feed(p, plan));
        TSRI_TRY(tsr_run(plan));
        for (int v = 0; v < VALUES; v++)
            TSRI_TRY(tsr_fetch(plan, outputs[v], value[v], sizeof value[v]));
    }
    if (tsr_world_rank(w) == 0) {
        memcpy(r->value, value, sizeof value);
        r->permutes = count(plan, TSRI_OP_PERMUTE);
        r->copies = count(plan, TSRI_OP_COPY);
    }
    return TSR_OK;
}

static void run_on(const program *p, bool cuda, run *r)
{
    *r = (run){.of = p,
               .where = p->ranks > 1 ? cuda ? "cuda:[0,1]" : "cpu:[0,1]"
                        : cuda       ? "cuda:[0]"
                                     : "cpu:[0]"};
    tsr_status status = tsr_spawn_with(p->ranks, run_program, r, &opts);
    if (status != TSR_OK)
        fail_msg("%s on %s: %s", p->name, r->where, tsr_last_error());
}

static void compare(const run *cpu, const run *cuda)
{
    const double of = cpu->of->dtype == TSR_BF16 ? 3e-2 : cpu->of->dtype == TSR_F16 ? 4e-3 : 1e-5;
    for (int v = 0; v < VALUES; v++) {
        double top = 0;
        for (int i = 0; i < COUNT; i++)
            top = fmax(top, fabs(cpu->value[v][i]));
        assert_true(top > 0);
        for (int i = 0; i < COUNT; i++)
            if (!(fabs(cpu->value[v][i] - cuda->value[v][i]) <= of * top))
                fail_msg("%s: %s, element %d is %g, not %g", cpu->of->name, outputs[v], i,
                         cuda->value[v][i], cpu->value[v][i]);
    }
}

static void test_heads(void **state)
{
    (void)state;
    static run cpu, cuda;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const program *p = &programs[i];
        run_on(p, false, &cpu);
        run_on(p, true, &cuda);
        if (cuda.permutes != p->permutes || cuda.copies != 0)
            fail_msg("%s: the plan has %d permutations, not %d, and %d copies", p->name,
                     cuda.permutes, p->permutes, cuda.copies);
        assert_int_equal(cpu.permutes, 8);
        compare(&cpu, &cuda);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
