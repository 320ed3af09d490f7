/* SPDX-License-Identifier: Apache-2.0 */
/* Every case with one operand or result of a dtype that the kernel was not written for: all
 * implementations decline, so that bytes are never taken for what they are not. */
#include "cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* Where a kernel takes any dtype, or leaves the choice to the graph: a bit per operand, and one per
 * result. */
static const struct {
    tsri_op_kind op;
    unsigned in, out;
} any[] = {
    {TSRI_OP_ADAM, 0, 6},
    {TSRI_OP_SGD, 0, 2},
    {TSRI_OP_RMSPROP, 0, 14},
    {TSRI_OP_ADAGRAD, 0, 2},
    {TSRI_OP_LION, 0, 2},
    {TSRI_OP_ARANGE, 0, 1},
    {TSRI_OP_ARGMAX, 1, 0},
    {TSRI_OP_ARGSCAN, 1, 0},
    {TSRI_OP_ARGSORT, 1, 0},
    {TSRI_OP_BINARY, 0, 1},
    {TSRI_OP_BN_ACT, 12, 0},
    {TSRI_OP_BN_ACT_BWD_APPLY, 12, 0},
    {TSRI_OP_BN_ACT_BWD_STATS, 12, 0},
    {TSRI_OP_BN_APPLY, 12, 0},
    {TSRI_OP_BN_BWD_APPLY, 4, 0},
    {TSRI_OP_BN_FOLD, 0, 3},
    {TSRI_OP_BN_RUNNING, 0, 3},
    {TSRI_OP_CAST, 1, 1},
    {TSRI_OP_CE, 0, 7},
    {TSRI_OP_CE_DX, 12, 0},
    {TSRI_OP_CE_FINISH, 0, 7},
    {TSRI_OP_CE_TERMS, 4, 0},
    {TSRI_OP_CONSTANT, 0, 1},
    {TSRI_OP_CUMSUM, 1, 0},
    {TSRI_OP_FILL, 0, 1},
    {TSRI_OP_LN_PARAM_GRAD, 0, 2},
    {TSRI_OP_ONE_HOT, 0, 1},
    {TSRI_OP_PROD, 1, 0},
    {TSRI_OP_REDUCE, 1, 1},
    {TSRI_OP_SOFTMAX_MAX, 1, 1},
};

static bool takes_any(const kernel_case *c, int at)
{
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        if (any[i].op == c->op)
            return (at < c->nin ? any[i].in >> at : any[i].out >> (at - c->nin)) & 1;
    return false;
}

/* f16 beside f32 is what "via32" is for; random numbers are drawn in every float dtype, and totals
 * of f16 are f32. */
static bool takes_f16(const kernel_case *c, const tsri_kernels *impl)
{
    return c->op == TSRI_OP_RANDOM || c->op == TSRI_OP_TOTAL || !strcmp(impl->name, "via32");
}

static int refuse(const kernel_case *c, const tsri_kernels *impl, tsr_dtype dtype)
{
    static const tsr_dtype others[] = {TSR_I64, TSR_I32, TSR_U8, TSR_BOOL, TSR_F16};
    int n = 0;
    const int held = kc_holds(c) ? c->nin - 1 : -1; /* is no operand */
    for (int at = 0; at < c->nin + c->nout; at++)
        for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
            tsri_kernel_desc d = kc_desc(c, dtype, KC_ROW);
            tsri_arg *arg = at < c->nin ? &d.in[at] : &d.out[at - c->nin];
            tsri_kernel *k;
            if (arg->dtype == others[o] || at == held || takes_any(c, at) ||
                (others[o] == TSR_F16 && takes_f16(c, impl)))
                continue;
            arg->dtype = others[o];
            if (impl->slot[c->op](NULL, &d, &k) != TSR_ERR_UNSUPPORTED)
                fail_msg("%s, %s: takes %s as its argument %d", c->name, impl->name,
                         tsr_dtype_name(others[o]), at);
            n++;
        }
    return n;
}

static void test_dtypes(void **state)
{
    (void)state;
    int refused = 0;
    for (int i = 0; i < kernel_cases_count; i++)
        for (const tsri_kernels *const *impl = tsri_kernels_cpu(); *impl; impl++)
            for (int wide = 0; (*impl)->slot[kernel_cases[i].op] && wide < 2; wide++)
                refused += refuse(&kernel_cases[i], *impl, wide ? TSR_F64 : TSR_F32);
    print_message("%d times declined\n", refused);
    assert_true(refused > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
