/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what is derived over hierarchies is all that is legal: every combination of S(i), B and
 * P(sum) of operands and results, per dimension, is run. TESSERA_FULL: for every op that has not
 * too many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/dist/signatures/signatures.h"

enum { SEEDS = 3 };

static const int meshes[][2] = {{2, 2}, {3, 2}};

/* All signatures of one tensor over two dimensions: number n of them. */
static int choices(const tsr_dims *dims)
{
    return (dims->ndim + 2) * (dims->ndim + 2);
}

static tsr_sbp1 choice1(const tsr_dims *dims, int n)
{
    return n < dims->ndim    ? (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)n}
           : n == dims->ndim ? (tsr_sbp1){TSR_SBP_BROADCAST, 0}
                             : (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_SUM};
}

static tsr_sbp choice(const tsr_dims *dims, int n)
{
    int per = dims->ndim + 2;
    return (tsr_sbp){2, {choice1(dims, n / per), choice1(dims, n % per)}};
}

static const tsr_dims *dims_of(const sg_entry *e, int i)
{
    return i < e->v.nin ? &e->v.in_dims[i] : &e->v.out_dims[i - e->v.nin];
}

static int64_t combinations(const sg_entry *e)
{
    int64_t n = 1;
    for (int i = 0; i < e->v.nin + e->v.nout && n < INT32_MAX; i++)
        n *= choices(dims_of(e, i));
    return n;
}

static tsri_nd_signature combination(const sg_entry *e, int64_t n)
{
    tsri_nd_signature sig = {0};
    for (int i = 0; i < e->v.nin + e->v.nout; i++) {
        const tsr_dims *dims = dims_of(e, i);
        *(i < e->v.nin ? &sig.in[i] : &sig.out[i - e->v.nin]) =
            choice(dims, (int)(n % choices(dims)));
        n /= choices(dims);
    }
    return sig;
}

/* Right for all seeds, with the convolution's groups split by some of the dimensions. */
static bool is_legal(const sg_entry *e, const tsri_nd_signature *sig, const int *mesh)
{
    char why[4096];
    bool legal = false;
    for (uint32_t groups = 0; groups < (e->v.groups > 0 ? 4 : 1) && !legal; groups++) {
        vf_how how = {.ndim = 2, .dim = {mesh[0], mesh[1]}, .split_groups = groups};
        legal = true;
        for (how.seed = 0; how.seed < SEEDS && legal; how.seed++)
            legal = vf_check(&e->v, sig, &how, why, sizeof why);
    }
    return legal;
}

/* Of P(sum) only. */
static bool is_searched(const sg_entry *e, const tsri_nd_signature *sig)
{
    bool searched = !vf_has_bool_sum(&e->v, sig);
    for (int i = 0; i < e->v.nin + e->v.nout; i++)
        for (int d = 0; d < 2; d++) {
            tsr_sbp1 s = (i < e->v.nin ? &sig->in[i] : &sig->out[i - e->v.nin])->d[d];
            searched &= s.kind != TSR_SBP_PARTIAL || s.arg == TSR_REDUCE_SUM;
        }
    return searched;
}

/* Whether some part has no element of a tensor that has one. */
static bool has_empty_part(const sg_entry *e, const tsri_nd_signature *sig, const int *mesh)
{
    bool empty = false;
    for (int i = 0; i < e->v.nin + e->v.nout; i++) {
        tsr_dims dims = *dims_of(e, i);
        const tsr_sbp *s = i < e->v.nin ? &sig->in[i] : &sig->out[i - e->v.nin];
        int64_t offset;
        for (int d = 0; d < 2; d++)
            if (s->d[d].kind == TSR_SBP_SPLIT)
                tsr_balanced_split(dims.d[s->d[d].arg], mesh[d], mesh[d] - 1, &offset,
                                   &dims.d[s->d[d].arg]);
        empty |= tsr_dims_count(dims) == 0;
    }
    return empty;
}

typedef struct tally {
    int64_t tried;
    int derived, missed, empty;
} tally;

static void search(const sg_entry *e, const int *mesh, bool print, tally *t)
{
    char text[512];
    sg_derived d;
    if (!sg_derive(e, &e->text, 2, mesh, &d))
        fail_msg("%s: %s", e->name, tsri_op_name(e->v.kind));
    int searched = 0, found = 0;
    for (int i = 0; i < d.n; i++)
        searched += is_searched(e, &d.sig[i]);
    for (int64_t n = 0; n < combinations(e); n++) {
        const tsri_nd_signature sig = combination(e, n);
        t->tried++;
        if (!is_searched(e, &sig) || !is_legal(e, &sig, mesh))
            continue;
        bool derived = sg_contains(e, &d, &sig), empty = has_empty_part(e, &sig, mesh);
        found += derived;
        t->missed += !derived && !empty;
        t->empty += !derived && empty;
        if (!derived && !empty && print)
            print_message("%s \"%s\" over %dx%d: legal and not derived: %s\n",
                          tsri_op_name(e->v.kind), e->text.text, mesh[0], mesh[1],
                          vf_signature_text(&e->v, &sig, text, sizeof text));
    }
    t->derived += found;
    if (found != searched)
        fail_msg("%s \"%s\" over %dx%d: %d signatures derived, %d of them legal",
                 tsri_op_name(e->v.kind), e->text.text, mesh[0], mesh[1], searched, found);
    sg_derived_finish(&d);
}

/* The op of a kind with these shapes of its operands, of f64. */
typedef struct pick {
    tsri_op_kind kind;
    tsr_dims in[3], out;
    int derived[2]; /* on either mesh, as counted by hand; 0: not */
} pick;

static const pick picks[] = {
    {TSRI_OP_MATMUL, {{2, {5, 7}}, {2, {7, 4}}}, {2, {5, 4}}, {36, 36}},
    {TSRI_OP_LINEAR, {{2, {5, 7}}, {2, {4, 7}}, {1, {4}}}, {2, {5, 4}}, {36, 36}},
    {TSRI_OP_LINEAR, {{2, {5, 7}}, {2, {4, 7}}}, {2, {5, 4}}, {36, 36}},
    {TSRI_OP_LINEAR, {{3, {2, 3, 5}}, {2, {7, 5}}}, {3, {2, 3, 7}}, {49, 49}},
    {TSRI_OP_LINEAR_DX, {{2, {5, 4}}, {2, {4, 7}}}, {2, {5, 7}}, {36, 36}},
    {TSRI_OP_LINEAR_DW, {{2, {5, 7}}, {2, {5, 4}}}, {2, {4, 7}}, {36, 36}},
    {TSRI_OP_BINARY, {{3, {5, 7, 2}}, {2, {7, 1}}}, {3, {5, 7, 2}}, {0, 0}},
    {TSRI_OP_BINARY, {{2, {5, 7}}, {2, {5, 7}}}, {2, {5, 7}}, {0, 0}},
    {TSRI_OP_BINARY, {{1, {7}}, {2, {5, 7}}}, {2, {5, 7}}, {0, 0}},
    {TSRI_OP_REDUCE, {{3, {5, 4, 7}}}, {2, {5, 7}}, {0, 0}},
    {TSRI_OP_REDUCE, {{3, {5, 4, 7}}}, {1, {4}}, {0, 0}},
    {TSRI_OP_REDUCE, {{3, {5, 4, 7}}}, {3, {5, 1, 7}}, {0, 0}},
    {TSRI_OP_EXPAND, {{1, {4}}}, {3, {5, 7, 4}}, {0, 0}},
    {TSRI_OP_PERMUTE, {{3, {5, 4, 3}}}, {3, {3, 5, 4}}, {0, 0}},
    {TSRI_OP_INDEX_SELECT, {{2, {5, 4}}, {1, {7}}}, {2, {7, 4}}, {25, 25}},
    {TSRI_OP_INDEX_SELECT, {{2, {7, 3}}, {2, {4, 5}}}, {3, {4, 5, 3}}, {36, 36}},
    {TSRI_OP_RESHAPE, {{2, {8, 4}}}, {3, {2, 4, 4}}, {0, 0}},
    {TSRI_OP_RESHAPE, {{3, {2, 4, 4}}}, {2, {8, 4}}, {0, 0}},
    {TSRI_OP_RESHAPE, {{2, {6, 4}}}, {2, {4, 6}}, {0, 0}},
    {TSRI_OP_RESHAPE, {{4, {5, 6, 2, 2}}}, {2, {5, 24}}, {0, 0}},
    {TSRI_OP_RESHAPE, {{2, {5, 24}}}, {1, {120}}, {0, 0}},
    {TSRI_OP_RESHAPE, {{1, {12}}}, {3, {2, 3, 2}}, {0, 0}},
};

static bool is_constant(tsr_dims dims, const double *v)
{
    bool same = tsr_dims_count(dims) > 1;
    for (int64_t i = 1; i < tsr_dims_count(dims) && same; i++)
        same = v[i] == v[0];
    return same;
}

/* Whether chance makes nothing right: elements differ, and are not the few whole numbers of
 * extrema, sums of whose many zeros would be zero too. */
static bool can_tell(const sg_entry *e)
{
    bool constant = false;
    for (int i = 0; i < e->v.nin; i++)
        constant |= is_constant(e->v.in_dims[i], e->v.in[i]);
    for (int i = 0; i < e->v.nout; i++)
        constant |= is_constant(e->v.out_dims[i], e->v.out[i]);
    return sg_can_tell(e) && !constant &&
           !(e->v.kind == TSRI_OP_REDUCE && e->v.attrs.reduce.op != TSR_REDUCE_SUM);
}

static bool matches(const sg_entry *e, const pick *p)
{
    bool same = e->v.kind == p->kind && e->real == TSR_F64 && e->v.in_dtype[0] == TSR_F64 &&
                tsr_dims_equal(e->v.out_dims[0], p->out) && can_tell(e);
    for (int i = 0; i < 3 && same; i++)
        same = i < e->v.nin ? tsr_dims_equal(e->v.in_dims[i], p->in[i]) : p->in[i].ndim == 0;
    return same;
}

/* For these, nothing legal is missed, but for splits that leave parts without elements. */
static void test_all_legal(void **state)
{
    (void)state;
    tally t = {0};
    for (size_t i = 0; i < sizeof picks / sizeof *picks; i++) {
        int matched = 0;
        for (int j = 0; j < sg_nentries; j++)
            for (int m = 0; m < 2 && matches(&sg_entries[j], &picks[i]); m++) {
                int before = t.derived;
                search(&sg_entries[j], meshes[m], true, &t);
                matched++;
                if (picks[i].derived[m])
                    assert_int_equal(t.derived - before, picks[i].derived[m]);
            }
        if (!matched)
            fail_msg("no case for entry %d", (int)i);
    }
    print_message("%lld combinations, %d legal and derived, %d legal and not derived; %d more of "
                  "parts without elements\n",
                  (long long)t.tried, t.derived, t.missed, t.empty);
    assert_int_equal(t.missed, 0);
}

/* Every op: lists what is legal and not derived. */
static void test_every_op(void **state)
{
    (void)state;
    enum { MOST = 500000 };
    int left_out = 0;
    tally t = {0};
    if (!getenv("TESSERA_FULL")) {
        print_message("every op: with TESSERA_FULL only\n");
        skip();
    }
    for (int i = 0; i < sg_nentries; i++) {
        if (sg_entries[i].real != TSR_F64 || !can_tell(&sg_entries[i]))
            continue;
        if (combinations(&sg_entries[i]) > MOST)
            left_out++;
        for (int m = 0; m < 2 && combinations(&sg_entries[i]) <= MOST; m++)
            search(&sg_entries[i], meshes[m], true, &t);
    }
    print_message("%lld combinations, %d legal and derived, %d legal and not derived; %d more of "
                  "parts without elements; %d ops left out\n",
                  (long long)t.tried, t.derived, t.missed, t.empty, left_out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_legal),
        cmocka_unit_test(test_every_op),
    };
    return cmocka_run_group_tests(tests, sg_setup, sg_teardown);
}
