/* SPDX-License-Identifier: Apache-2.0 */
/* The work of the busiest rank in each signature of attention, against pairs of a query and a key
 * counted one by one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/world.h"
#include "src/plan/infer/strategies.h"

enum { B = 6, H = 6, S = 144, T = 144, D = 4, E = 12, RANKS = 6 };

/* A rank's part of an axis. */
typedef struct range {
    int64_t at, n;
} range;

/* The part of an axis of `size` that a place of a 2 x 3 mesh has: operand `arg` is split there. */
static range part_of(const tsri_nd_signature *sig, int arg, int axis, int64_t size, int place)
{
    const int dims[] = {2, 3}, at[] = {place / 3, place % 3};
    range r = {0, size};
    for (int d = 0; d < 2; d++)
        if (sig->in[arg].d[d].kind == TSR_SBP_SPLIT && sig->in[arg].d[d].arg == axis) {
            assert_int_equal(r.n % dims[d], 0);
            r.n /= dims[d];
            r.at += at[d] * r.n;
        }
    return r;
}

/* Operations of one place. */
static double count_flops(const tsri_op *op, const tsri_nd_signature *sig, int place)
{
    const bool causal = op->attrs.attention.causal, back = op->kind == TSRI_OP_FLASH_ATTENTION_DX;
    const range b = part_of(sig, 0, 0, B, place), h = part_of(sig, 0, 1, H, place);
    const range s = part_of(sig, 0, 2, S, place), t = part_of(sig, 1, 2, T, place);
    const range e = part_of(sig, 2, 3, E, place);
    double pairs = 0; /* one on the diagonal is hidden by half, as of tokens without a size */
    for (int64_t i = s.at; i < s.at + s.n; i++)
        for (int64_t j = t.at; j < t.at + t.n; j++)
            pairs += !causal || j < i ? 1 : j == i ? 0.5 : 0;
    const double keys = back ? 3 : 1, values = back ? 2 : 1;
    return 2 * (double)(b.n * h.n) * pairs * (keys * D + values * (double)e.n);
}

static int check_op(tsri_strategy_table *table, const tsri_op *op)
{
    tsri_strategies *list;
    tsri_op_work work;
    assert_int_equal(tsri_strategies_of(table, op, &list), TSR_OK);
    assert_int_equal(tsri_op_work_of(table->pool, op, &work), TSR_OK);
    for (int i = 0; i < list->n; i++) {
        double most = 0;
        for (int place = 0; place < RANKS; place++)
            most = fmax(most, count_flops(op, &list->sig[i], place));
        const double found =
            tsri_op_flops(op) * tsri_op_share(op->placement, &work, list->sig[i].split);
        if (fabs(found - most) > 1e-9 * most) {
            char q[TSR_SBP_TEXT_MAX], k[TSR_SBP_TEXT_MAX], v[TSR_SBP_TEXT_MAX];
            fail_msg("%s, q %s, k %s, v %s: %.9g operations, not %.9g", tsri_op_name(op->kind),
                     tsr_sbp_format(list->sig[i].in[0], q), tsr_sbp_format(list->sig[i].in[1], k),
                     tsr_sbp_format(list->sig[i].in[2], v), found, most);
        }
    }
    return list->n;
}

static void check_attention(bool causal)
{
    tsr_world *world;
    assert_int_equal(tsr_world_create_virtual(RANKS, 0, &world), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(world, "cpu:[[0,1,2],[3,4,5]]");
    tsr_graph *g = tsr_graph_create(world, NULL);
    const tsr_sbp any = TSR_AUTO;
    tsr_tensor *q = tsr_input(g, "q", TSR_F32, TSR_DIMS(B, H, S, D), p, any);
    tsr_tensor *k = tsr_input(g, "k", TSR_F32, TSR_DIMS(B, H, T, D), p, any);
    tsr_tensor *v = tsr_input(g, "v", TSR_F32, TSR_DIMS(B, H, T, E), p, any);
    tsr_tensor *y =
        tsr_scaled_dot_product_attention(q, k, v, NULL, TSR_ATTENTION_OPTS(.causal = causal));
    tsr_tensor *of[] = {q, k, v}, *grads[3];
    tsr_gradients(tsr_sum(y, TSR_ALL_AXES, false), 3, of, grads);
    const tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU);
    tsri_pool pool;
    tsri_pool_init(&pool, &world->mem);
    tsri_strategy_table table = {.pool = &pool, .model = &m};
    int ops = 0;
    for (int i = 0; i < g->nops; i++)
        if (tsri_op_def_of(g->ops[i]->kind)->is_attention) {
            assert_true(check_op(&table, g->ops[i]) >= 25);
            ops++;
        }
    assert_int_equal(ops, 2);
    tsri_pool_finish(&pool);
    tsr_world_destroy(world);
}

static void test_full(void **state)
{
    (void)state;
    check_attention(false);
}

static void test_causal(void **state)
{
    (void)state;
    check_attention(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full), cmocka_unit_test(test_causal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
