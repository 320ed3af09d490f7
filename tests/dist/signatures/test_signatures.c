/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier of signatures: every signature that is derived for every op is run on parts and held
 * against the unsplit op. TESSERA_FULL: with more addends, and more parts. TESSERA_SAMPLE=n: every
 * n-th, and the first few of each kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/dist/signatures/signatures.h"
#include "tests/sample.h"

enum { MAX_PARTS = 13 };

/* One more than the largest axis. */
static int beyond(const sg_entry *e)
{
    int64_t most = 1;
    for (int i = 0; i < e->v.nin; i++)
        for (int j = 0; j < e->v.in_dims[i].ndim; j++)
            most = e->v.in_dims[i].d[j] > most ? e->v.in_dims[i].d[j] : most;
    for (int i = 0; i < e->v.nout; i++)
        for (int j = 0; j < e->v.out_dims[i].ndim; j++)
            most = e->v.out_dims[i].d[j] > most ? e->v.out_dims[i].d[j] : most;
    return most + 1 < MAX_PARTS ? (int)most + 1 : MAX_PARTS;
}

static bool full; /* more seeds and numbers of parts */
static int runs, drawn, split_runs[TSRI_OP_COUNT_];

/* The derivation for hierarchies gives, over one dimension, what the one for k parts gives. */
static void compare_derivations(const sg_entry *e, int k, sg_derived *d)
{
    tsri_signature *one;
    int n;
    assert_int_equal(tsri_rule_derive(&d->pool, d->rule, k, &n, &one), TSR_OK);
    assert_int_equal(n, d->derived);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < e->v.nin; j++)
            assert_true(vf_sbp1_equal(one[i].in[j], d->sig[i].in[j].d[0]));
        for (int j = 0; j < e->v.nout; j++)
            assert_true(vf_sbp1_equal(one[i].out[j], d->sig[i].out[j].d[0]));
        if (one[i].index >= 0)
            assert_true(d->sig[i].split[0] >> one[i].index & 1);
        else
            assert_int_equal(d->sig[i].split[0], 0);
    }
}

/* Every signature of one op over k parts, row-major and channels last. Counts what is wrong. */
static int verify(const sg_entry *e, int k)
{
    char why[4096], text[512];
    sg_derived d;
    int wrong = 0;
    if (!sg_derive(e, &e->text, 1, &k, &d))
        fail_msg("%s: %s \"%s\": %s", e->name, tsri_op_name(e->v.kind), e->text.text,
                 tsr_last_error());
    compare_derivations(e, k, &d);
    for (int i = 0; i < d.n; i++)
        for (int nhwc = 0; nhwc <= sg_has_planes(e); nhwc++)
            for (uint64_t seed = 0; seed < (full ? 10 : 2); seed++) {
                if (vf_has_bool_sum(&e->v, &d.sig[i]))
                    continue;
                if (split_runs[e->v.kind] > 3 && ++drawn % test_sample())
                    continue;
                const vf_how how = {.ndim = 1, .dim = {k}, .nhwc = nhwc, .seed = seed};
                runs++;
                split_runs[e->v.kind] += i > 0;
                if (sg_check(e, &d.sig[i], &d, how, why, sizeof why))
                    continue;
                wrong++;
                print_error("%s: %s %s \"%s\" over %d%s, %s: %s\n", e->name,
                            tsr_dtype_name(e->real), tsri_op_name(e->v.kind), e->text.text, k,
                            nhwc ? ", channels last" : "",
                            vf_signature_text(&e->v, &d.sig[i], text, sizeof text), why);
            }
    sg_derived_finish(&d);
    return wrong;
}

static void test_signatures(void **state)
{
    (void)state;
    int wrong = 0;
    full = getenv("TESSERA_FULL") != NULL;
    for (int i = 0; i < sg_nentries; i++) {
        const sg_entry *e = &sg_entries[i];
        for (int k = 1; k <= (full ? 8 : 4); k++)
            wrong += verify(e, k);
        if (beyond(e) > 4)
            wrong += verify(e, beyond(e));
    }
    print_message("%d ops, %d signatures run, %d wrong\n", sg_nentries, runs, wrong);
    assert_int_equal(wrong, 0);
    assert_true(runs > 10000 / test_sample());
}

/* Every kind that has a rule was split somehow, but for that of one rank. */
static void test_coverage(void **state)
{
    (void)state;
    for (int kind = 0; kind < TSRI_OP_COUNT_; kind++)
        if (tsri_op_has_rule((tsri_op_kind)kind) && !split_runs[kind] && kind != TSRI_OP_RANK_SUM)
            fail_msg("no signature of %s was run", tsri_op_name((tsri_op_kind)kind));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, sg_setup, sg_teardown);
}
