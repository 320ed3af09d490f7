/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures over hierarchies: a seeded sample of what is derived for every op is run on parts and
 * held against the unsplit op. TESSERA_FULL: all of them. TESSERA_SAMPLE=n: an n-th of the sample.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/dist/signatures/signatures.h"
#include "tests/sample.h"

typedef struct mesh {
    int ndim, dim[TSR_MAX_HIERARCHY];
    int sample; /* signatures per op; TESSERA_FULL: all */
} mesh;

static const mesh meshes[] = {
    {2, {2, 2}, 20}, {2, {2, 3}, 20}, {2, {3, 2}, 20},   {3, {2, 2, 2}, 12},
    {2, {1, 3}, 3},  {2, {4, 1}, 3},  {3, {2, 1, 2}, 3},
};
enum { MESHES = sizeof meshes / sizeof *meshes };

static int64_t runs, nested_runs, derived_total;
static int hits[MESHES][TSRI_OP_COUNT_];

static bool is_all_b(const sg_entry *e, const tsri_nd_signature *sig)
{
    bool all = true;
    for (int i = 0; i < e->v.nin + e->v.nout; i++) {
        const tsr_sbp *s = i < e->v.nin ? &sig->in[i] : &sig->out[i - e->v.nin];
        for (int d = 0; d < s->ndim; d++)
            all &= s->d[d].kind == TSR_SBP_BROADCAST;
    }
    return all;
}

/* Whether two dimensions split or sum the same operand or result. */
static bool is_nested(const sg_entry *e, const tsri_nd_signature *sig)
{
    bool nested = false;
    for (int i = 0; i < e->v.nin + e->v.nout; i++) {
        const tsr_sbp *s = i < e->v.nin ? &sig->in[i] : &sig->out[i - e->v.nin];
        int n = 0;
        for (int d = 0; d < s->ndim; d++)
            n += s->d[d].kind != TSR_SBP_BROADCAST;
        nested |= n > 1;
    }
    return nested;
}

static int run_one(const sg_entry *e, const sg_derived *d, const tsri_nd_signature *sig,
                   const mesh *m, bool nhwc, uint64_t seed)
{
    char why[4096], text[512];
    vf_how how = {.ndim = m->ndim, .nhwc = nhwc, .seed = seed};
    memcpy(how.dim, m->dim, sizeof how.dim);
    runs++;
    nested_runs += is_nested(e, sig);
    hits[m - meshes][e->v.kind] += !is_all_b(e, sig);
    if (sg_check(e, sig, d, how, why, sizeof why))
        return 0;
    print_error("%s: %s %s \"%s\" over %dx%dx%d%s, %s: %s\n", e->name, tsr_dtype_name(e->real),
                tsri_op_name(e->v.kind), e->text.text, m->dim[0], m->dim[1],
                m->ndim > 2 ? m->dim[2] : 1, nhwc ? ", channels last" : "",
                vf_signature_text(&e->v, sig, text, sizeof text), why);
    return 1;
}

/* Signatures of one op on one mesh: returns how many are wrong. */
static int verify(const sg_entry *e, const mesh *m, bool full, uint64_t *rng)
{
    sg_derived d;
    int wrong = 0, left = (m->sample + test_sample() - 1) / test_sample();
    if (!sg_derive(e, &e->text, m->ndim, m->dim, &d))
        fail_msg("%s: %s \"%s\": %s", e->name, tsri_op_name(e->v.kind), e->text.text,
                 tsr_last_error());
    assert_true(is_all_b(e, &d.sig[0]));
    derived_total += d.n;
    bool planes = sg_has_planes(e);
    /* Without replacement: each with the chance that is left. What no rule expresses, always, and
     * so the first that cuts an op of a kind. */
    for (int i = 0; i < d.n; i++) {
        bool extra = i >= d.derived, drawn = (d.derived - i) * vf_random(rng) < left;
        extra |= !hits[m - meshes][e->v.kind] && !is_all_b(e, &d.sig[i]);
        if (vf_has_bool_sum(&e->v, &d.sig[i]))
            continue;
        for (int nhwc = 0; full && nhwc <= planes; nhwc++)
            for (uint64_t seed = 0; seed < 2; seed++)
                wrong += run_one(e, &d, &d.sig[i], m, nhwc, seed);
        if (!full && (drawn || extra)) {
            wrong += run_one(e, &d, &d.sig[i], m, planes && vf_random(rng) < 0.5, 0);
            left -= drawn;
        }
    }
    sg_derived_finish(&d);
    return wrong;
}

static void test_signatures(void **state)
{
    (void)state;
    bool full = getenv("TESSERA_FULL") != NULL;
    uint64_t rng = 11;
    int wrong = 0;
    for (int i = 0; i < MESHES; i++)
        for (int j = 0; j < sg_nentries; j++)
            wrong += verify(&sg_entries[j], &meshes[i], full, &rng);
    print_message("%d ops, %lld of %lld signatures (and orders, addends) run, %lld of them nested, "
                  "%d wrong\n",
                  sg_nentries, (long long)runs, (long long)derived_total, (long long)nested_runs,
                  wrong);
    assert_int_equal(wrong, 0);
    assert_true(nested_runs > 50000 / test_sample());
}

/* Every kind that has a rule was cut somehow, on every mesh, but for that of one rank. */
static void test_coverage(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++)
        for (int kind = 0; kind < TSRI_OP_COUNT_; kind++)
            if (tsri_op_has_rule((tsri_op_kind)kind) && !hits[i][kind] && kind != TSRI_OP_RANK_SUM)
                fail_msg("no signature of %s was run on mesh %d", tsri_op_name((tsri_op_kind)kind),
                         i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, sg_setup, sg_teardown);
}
