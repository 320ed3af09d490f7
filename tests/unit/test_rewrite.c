/* SPDX-License-Identifier: Apache-2.0 */
/* The tools of rewrites, and the check behind them: it finds what rewrites could break. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/rewrite/rewrite.h"

#include <string.h>

typedef struct program {
    tsr_world *w;
    tsr_graph *g, *copy;
    tsri_graph_promises before;
} program;

enum { ROWS = 4, WIDE = 6 };

/* y = tanh(to_global(2 x)) with a weight that is updated by its loss. `dead`: an op without
 * consumers alone reads the loss's total, and the output is its variance. */
static program declare_with(bool dead)
{
    program p;
    assert_int_equal(tsr_world_create_virtual(2, 0, &p.w), TSR_OK);
    const tsr_placement *all = tsr_placement_parse(p.w, "cpu:[0,1]");
    const tsr_nn_opts nn = {.placement = all, .dtype = TSR_F64, .seed = 1};
    tsr_module *m = tsr_module_create(p.w, &nn, NULL, NULL, NULL);
    tsr_module_param(m, "w", TSR_DIMS(WIDE, WIDE), TSR_B, (tsr_init){.kind = TSR_INIT_UNIFORM});
    p.g = tsr_graph_create(p.w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(p.g, "x", TSR_F64, TSR_DIMS(ROWS, WIDE), all, TSR_S(0));
    tsr_tensor *twice = tsr_to_global(tsr_add(x, x), all, TSR_B);
    tsr_tensor *y = tsr_tanh(tsr_linear(twice, tsr_use(m, "w", x), NULL));
    tsr_tensor *loss = dead ? tsr_sum(y, TSR_ALL_AXES, false) : tsr_mean(y, TSR_ALL_AXES, false);
    tsr_minimize(tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1)), loss);
    if (dead) {
        tsr_tensor *late = tsr_exp(tsr_max(y, TSR_AXES(0, 1), false));
        tsr_output(p.g, "late", late, NULL, TSR_B);
        tsr_greater(loss, late);
    }
    tsr_output(p.g, "loss", dead ? tsr_variance(loss, TSR_ALL_AXES, true, 0.5) : loss, NULL, TSR_B);
    tsr_output(p.g, "y", y, NULL, TSR_B);
    assert_int_equal(tsr_graph_status(p.g), TSR_OK);
    assert_int_equal(tsri_graph_copy(p.g, &p.copy), TSR_OK);
    assert_int_equal(tsri_rewrite_promises(p.copy, &p.before), TSR_OK);
    return p;
}

static program declare(void)
{
    return declare_with(false);
}

static void end(program *p)
{
    tsri_graph_copy_free(p->copy);
    tsr_world_destroy(p->w);
}

/* The first op of a kind. */
static tsri_op *op_of(const program *p, tsri_op_kind kind)
{
    for (int i = 0; i < p->copy->nops; i++)
        if (p->copy->ops[i]->kind == kind)
            return p->copy->ops[i];
    fail_msg("no such op");
    return NULL;
}

static void expect(program *p, const char *words)
{
    assert_int_equal(tsri_rewrite_check(p->copy, "planted", &p->before), TSR_ERR_INTERNAL);
    if (!strstr(tsr_last_error(), words) || !strstr(tsr_last_error(), "planted"))
        fail_msg("'%s' is not in '%s'", words, tsr_last_error());
    end(p);
}

static void test_check(void **state)
{
    (void)state;
    program p = declare();
    assert_int_equal(tsri_rewrite_check(p.copy, "none", &p.before), TSR_OK);
    assert_int_equal(tsri_rewrite(p.copy), TSR_OK);
    end(&p);

    p = declare();
    p.copy->ops[2]->id = 1;
    expect(&p, "op 2 ");
    p = declare();
    tsri_op *op = op_of(&p, TSRI_OP_UNARY);
    op->in[0] = op->out[0];
    expect(&p, "that no op before it makes");
    p = declare();
    op = op_of(&p, TSRI_OP_UNARY);
    op->in[0] = p.g->tensors[op->in[0]->id];
    expect(&p, "a tensor of another graph");
    p = declare();
    op = op_of(&p, TSRI_OP_UNARY);
    op->out[0] = op->in[0];
    expect(&p, "that is another op's");
    p = declare();
    p.copy->ports[0].tensor = p.g->ports[0].tensor;
    expect(&p, "no op makes the port x");
    p = declare();
    p.copy->nports--;
    expect(&p, "lost an input or an output");
    static const tsri_op_kind said[] = {TSRI_OP_TO_GLOBAL, TSRI_OP_INPUT};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        p = declare();
        op_of(&p, said[i])->sbp.ndim = 0;
        expect(&p, "lost a signature that the user gave");
    }
    /* An op that nothing reads any longer has lost its signature too. */
    p = declare();
    op = op_of(&p, TSRI_OP_TO_GLOBAL);
    assert_int_equal(tsri_rewrite_replace(p.copy, op->out[0], op->in[0]), TSR_OK);
    expect(&p, "lost a signature that the user gave");
    p = declare();
    for (int i = 0; i < p.copy->ntensors; i++)
        p.copy->tensors[i]->writes = NULL;
    expect(&p, "lost an update");
    p = declare();
    for (int i = 0; i < p.copy->ntensors; i++)
        p.copy->tensors[i]->is_loss = false;
    expect(&p, "lost a loss");
}

/* All readers change but those before the tensor that takes the other's place; outputs stay. */
static void test_replace(void **state)
{
    (void)state;
    program p = declare();
    tsri_op *tanh = op_of(&p, TSRI_OP_UNARY), *linear = tanh->in[0]->op;
    tsr_tensor *y = tanh->out[0], *before = linear->out[0];
    int read = 0, reads = 0;
    for (int i = tanh->id + 1; i < p.copy->nops; i++)
        for (int j = 0; j < p.copy->ops[i]->nin; j++) {
            read += p.copy->ops[i]->in[j] == y;
            reads += p.copy->ops[i]->in[j] == before;
        }
    assert_true(read > 0);
    assert_int_equal(tsri_rewrite_replace(p.copy, y, before), TSR_OK);
    for (int i = 0; i < p.copy->nops; i++)
        for (int j = 0; j < p.copy->ops[i]->nin; j++) {
            assert_ptr_not_equal(p.copy->ops[i]->in[j], y);
            reads -= i > tanh->id && p.copy->ops[i]->in[j] == before;
        }
    assert_int_equal(reads, -read);
    assert_ptr_equal(p.copy->ports[p.copy->nports - 1].tensor, y);
    assert_int_equal(tsri_rewrite_check(p.copy, "replace", &p.before), TSR_OK);
    assert_int_equal(tsri_rewrite_replace(p.copy, linear->in[1], before), TSR_ERR_INTERNAL);
    assert_non_null(strstr(tsr_last_error(), "another shape, dtype or placement"));
    end(&p);
}

/* --- parts in time ---------------------------------------------------------------------------- */
static int count(const program *p, tsri_op_kind kind, tsri_turn turn)
{
    int n = 0;
    for (int i = 0; i < p->copy->nops; i++)
        n += p->copy->ops[i]->kind == kind && p->copy->ops[i]->turn == turn;
    return n;
}

/* A step in two parts: turns follow each other, rows are halves, sums are totals, and what the
 * whole has alone stays whole. */
static void test_parts(void **state)
{
    (void)state;
    program p = declare();
    tsri_graph_copy_free(p.copy);
    for (int i = 0; i < p.g->nops; i++)
        p.g->ops[i]->batch_axis = p.g->ops[i]->kind == TSRI_OP_INPUT;
    assert_int_equal(tsri_graph_copy(p.g, &p.copy), TSR_OK);
    p.copy->step.parts = 2;
    assert_int_equal(tsri_rewrite(p.copy), TSR_OK);
    for (int i = 1; i < p.copy->nops; i++)
        assert_true(p.copy->ops[i]->turn >= p.copy->ops[i - 1]->turn);
    const tsri_op *part = op_of(&p, TSRI_OP_PART), *total = op_of(&p, TSRI_OP_TOTAL);
    assert_int_equal(part->out[0]->shape.d[0], ROWS / 2);
    assert_int_equal(part->in[0]->shape.d[0], ROWS);
    assert_int_equal(part->attrs.part.blocks, 2); /* S(0) over two ranks */
    assert_int_equal(total->attrs.total.op, TSR_REDUCE_SUM);
    assert_int_equal(count(&p, TSRI_OP_TOTAL, TSRI_TURN_PARTS), 2); /* the loss, the gradient */
    assert_int_equal(count(&p, TSRI_OP_WHOLE, TSRI_TURN_PARTS), 1); /* y */
    assert_int_equal(count(&p, TSRI_OP_PART, TSRI_TURN_PARTS), 1);
    assert_int_equal(count(&p, TSRI_OP_SGD, TSRI_TURN_TAIL), 1);
    assert_int_equal(count(&p, TSRI_OP_LINEAR_DW, TSRI_TURN_PARTS), 1);
    /* The outputs have the shapes that were declared. */
    for (int i = 0; i < p.copy->nports; i++)
        assert_true(tsr_dims_equal(p.copy->ports[i].tensor->shape, p.g->ports[i].tensor->shape));
    end(&p);
}

/* No total is made for a dead op alone: it would be the loss's, which the parts have. */
static void test_dead_reader(void **state)
{
    (void)state;
    program p = declare_with(true);
    tsri_graph_copy_free(p.copy);
    for (int i = 0; i < p.g->nops; i++)
        p.g->ops[i]->batch_axis = p.g->ops[i]->kind == TSRI_OP_INPUT;
    assert_int_equal(tsri_graph_copy(p.g, &p.copy), TSR_OK);
    p.copy->step.parts = 2;
    assert_int_equal(tsri_rewrite(p.copy), TSR_OK);
    /* `late`, the variance and the gradient have a total each; the loss has none. */
    assert_int_equal(count(&p, TSRI_OP_TOTAL, TSRI_TURN_PARTS), 3);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_check), cmocka_unit_test(test_replace),
                                       cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_dead_reader)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
