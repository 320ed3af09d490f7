/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier itself: rules, derivations and kernels are broken on purpose, one place at a time,
 * and it has to find each. What it can't find is right in spite of the rule, and listed with the
 * reason.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/dist/signatures/signatures.h"
#include "tests/sample.h"

/* --- the verifier itself ---------------------------------------------------------------------- */

/* What became of the ways to break something. */
typedef struct tally {
    const char *what;
    int tried, caught, barren; /* barren: makes no signature that the right rule does not make */
    int survived, excused;
} tally;

static bool is_whole(tsr_dtype t)
{
    return t != TSR_F32 && t != TSR_F64;
}

static bool is_norm(const sg_entry *e)
{
    return e->v.kind == TSRI_OP_BN_STATS || e->v.kind == TSRI_OP_BN_CENTER ||
           e->v.kind == TSRI_OP_BN_APPLY || e->v.kind == TSRI_OP_BN_BWD_STATS ||
           e->v.kind == TSRI_OP_BN_BWD_APPLY;
}

/* Not what the rule says, and right all the same: the reason, or NULL. */
static const char *excuse(const tally *t, const sg_entry *e)
{
    const tsri_attrs *at = &e->v.attrs;
    if (!strcmp(t->what, "a dropped !")) {
        if (e->v.kind == TSRI_OP_UNARY_GRAD &&
            (at->unary.fn == TSRI_UNARY_EXP || at->unary.fn == TSRI_UNARY_EXP2 ||
             at->unary.fn == TSRI_UNARY_SQUARE))
            return "y dy is linear in y too";
        if (e->v.kind == TSRI_OP_UNARY && at->unary.fn == TSRI_UNARY_CLAMP && at->unary.a == -3e38)
            return "no value is so small, and no sum of them";
        if (e->v.kind == TSRI_OP_CAST && e->v.in_dtype[0] == TSR_I64)
            return "a double, which holds the numbers here, holds no sum that wraps in i64";
        if (e->v.kind == TSRI_OP_CAST && e->v.in_dtype[0] == TSR_BOOL)
            return "there is no P(sum) of bool";
        if (e->v.kind == TSRI_OP_CAST && !is_whole(e->v.in_dtype[0]) &&
            e->v.out_dtype[0] == TSR_F32)
            return "linear but for the rounding of each addend";
        if (e->v.kind == TSRI_OP_CAUSAL_MASK && isinf(at->mask_above.value))
            return "an infinity is its own sum";
        if ((e->v.kind == TSRI_OP_LN_APPLY || e->v.kind == TSRI_OP_LN_PARAM_GRAD) &&
            e->v.in_dtype[0] == TSR_F64)
            return "linear in data that is centred, as f64 is; the rule is the one of f32";
    }
    if (!strcmp(t->what, "an index for .")) {
        if (is_norm(e) && at->bn.parts > 1 && at->bn.batch % at->bn.parts)
            return "kernels know a sample by its global number: any split of the batch would do";
        if (e->v.kind == TSRI_OP_BN_PARAM_GRAD)
            return "an axis of size 1: one part has all of it";
    }
    if (!strcmp(t->what, "B and P swapped") && e->v.kind == TSRI_OP_TOTAL)
        return "only whether the number of the part is 0 counts, and no addend of 1 need be";
    if (!strcmp(t->what, "offsets ignored") &&
        (e->v.kind == TSRI_OP_INDEX_SELECT || e->v.kind == TSRI_OP_GATHER) &&
        e->v.out_dtype[0] == TSR_BOOL)
        return "the split that needs them makes a sum of bools";
    return NULL;
}

/* Signatures that only the broken rule makes: is one of them found out? */
static void try_rule(tally *t, const sg_entry *e, const char *text)
{
    tsri_rule_text broken = e->text;
    char why[4096], sig_text[512] = "";
    int fresh = 0, survivor = 0;
    bool caught = false;
    snprintf(broken.text, sizeof broken.text, "%s", text);
    for (int k = 2; k <= 4 && !caught; k++) {
        sg_derived right, wrong;
        if (!sg_derive(e, &broken, 1, &k, &wrong))
            return; /* no rule of this op at all */
        assert_true(sg_derive(e, &e->text, 1, &k, &right));
        for (int i = 0; i < wrong.n && !caught; i++) {
            if (sg_contains(e, &right, &wrong.sig[i]) || vf_has_bool_sum(&e->v, &wrong.sig[i]))
                continue;
            const vf_how how = {.ndim = 1, .dim = {k}};
            fresh++;
            caught = !sg_check(e, &wrong.sig[i], &wrong, how, why, sizeof why);
            if (!caught && !survivor++)
                vf_signature_text(&e->v, &wrong.sig[i], sig_text, sizeof sig_text);
        }
        sg_derived_finish(&right);
        sg_derived_finish(&wrong);
    }
    t->tried++;
    if (caught) {
        t->caught++;
    } else if (!fresh) {
        t->barren++;
    } else if (excuse(t, e)) {
        t->excused++;
    } else {
        t->survived++;
        print_error("%s survived: %s: %s \"%s\" for \"%s\": %s\n", t->what, e->name,
                    tsri_op_name(e->v.kind), text, e->text.text, sig_text);
    }
}

/* Calls try_rule for each occurrence of `from` before or after the arrow, replaced by `to`. */
static void replace_each(tally *t, const sg_entry *e, const char *from, const char *to,
                         bool results)
{
    const char *text = e->text.text, *arrow = strstr(text, "->");
    for (const char *p = results ? arrow : text; (p = strstr(p, from)) != NULL; p++) {
        char broken[600];
        if (!results && p >= arrow)
            break;
        snprintf(broken, sizeof broken, "%.*s%s%s", (int)(p - text), text, to, p + strlen(from));
        try_rule(t, e, broken);
    }
}

/* Turns the dots of the rule, singly and in pairs, into an index of its own. */
static void index_dots(tally *t, const sg_entry *e)
{
    size_t dot[32];
    int n = 0;
    const char *text = e->text.text;
    for (size_t i = 0; text[i] && n < 32; i++)
        if (text[i] == '.' && text[i + 1] != '.' && (i == 0 || text[i - 1] != '.'))
            dot[n++] = i;
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            char broken[sizeof e->text.text];
            snprintf(broken, sizeof broken, "%s", text);
            broken[dot[i]] = broken[dot[j]] = 'z';
            try_rule(t, e, broken);
        }
}

/* Puts a mark in front of each operand. */
static void mark_operands(tally *t, const sg_entry *e, const char *mark)
{
    const char *text = e->text.text, *arrow = strstr(text, "->");
    bool start = arrow > text;
    for (const char *p = text; p < arrow; p++) {
        char broken[600];
        if (start && *p != ' ') {
            if (*p != '^' && !(*p == '!' && p[1] == '^')) {
                int skip = *p == '!';
                snprintf(broken, sizeof broken, "%.*s%s%s", (int)(p + skip - text), text, mark,
                         p + skip);
                try_rule(t, e, broken);
            }
            start = false;
        }
        start |= *p == ',' || *p == '+' || *p == ':' || *p == ';';
    }
}

typedef void break_fn(tally *t, const sg_entry *e);

static void drop_bangs(tally *t, const sg_entry *e)
{
    replace_each(t, e, "!", "", false);
}

static void plus_to_comma(tally *t, const sg_entry *e)
{
    replace_each(t, e, " + ", ", ", false);
}

static void comma_to_plus(tally *t, const sg_entry *e)
{
    if (!strchr(e->text.text, ':'))
        replace_each(t, e, ", ", " + ", false);
}

static void drop_extrema(tally *t, const sg_entry *e)
{
    replace_each(t, e, "max ", "", true);
    replace_each(t, e, "min ", "", true);
}

static void swap_extrema(tally *t, const sg_entry *e)
{
    replace_each(t, e, "max ", "min ", true);
    replace_each(t, e, "min ", "max ", true);
}

/* Of ops that are not increasing in any operand, whatever the others hold. */
static void claim_monotone(tally *t, const sg_entry *e)
{
    switch (e->v.kind) {
    case TSRI_OP_MATMUL:
    case TSRI_OP_BATCH_MATMUL:
    case TSRI_OP_LINEAR:
    case TSRI_OP_CONV2D:
    case TSRI_OP_BN_STATS:
    case TSRI_OP_ARGMAX:
        mark_operands(t, e, "^");
        break;
    default:
        if (e->v.kind == TSRI_OP_UNARY &&
            (e->v.attrs.unary.fn == TSRI_UNARY_ABS || e->v.attrs.unary.fn == TSRI_UNARY_SQUARE ||
             e->v.attrs.unary.fn == TSRI_UNARY_COS || e->v.attrs.unary.fn == TSRI_UNARY_MISH ||
             e->v.attrs.unary.fn == TSRI_UNARY_SILU || e->v.attrs.unary.fn == TSRI_UNARY_GELU ||
             e->v.attrs.unary.fn == TSRI_UNARY_GELU_TANH))
            mark_operands(t, e, "^");
    }
}

/* The order inside ( ) turned round: pieces would not be contiguous. */
static void turn_groups(tally *t, const sg_entry *e)
{
    static const char *const pair[][2] = {{"(g i)", "(i g)"}, {"(g o)", "(o g)"},
                                          {"(r .)", "(. r)"}, {"(h .)", "(. h)"},
                                          {"(w .)", "(. w)"}, {"(a b)", "(b a)"}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        replace_each(t, e, pair[i][0], pair[i][1], false);
        replace_each(t, e, pair[i][0], pair[i][1], true);
    }
}

/* --- broken derivations and kernels ----------------------------------------------------------- */

static const int three = 3;

/* A signature that must not pass. */
static void try_signature(tally *t, const sg_entry *e, const tsri_nd_signature *sig,
                          const sg_derived *d, vf_how how)
{
    char why[4096], text[512];
    t->tried++;
    for (how.seed = 0; how.seed < 3; how.seed++)
        if (!sg_check(e, sig, d, how, why, sizeof why)) {
            t->caught++;
            return;
        }
    if (excuse(t, e)) {
        t->excused++;
        return;
    }
    t->survived++;
    print_error("%s survived: %s: %s \"%s\" over %d: %s\n", t->what, e->name,
                tsri_op_name(e->v.kind), e->text.text, how.dim[0],
                vf_signature_text(&e->v, sig, text, sizeof text));
}

/* Operands and results that are partial called whole, and the other way round. */
static void swap_b_and_p(tally *t, const sg_entry *e)
{
    const tsr_sbp1 b = {TSR_SBP_BROADCAST, 0}, p = {TSR_SBP_PARTIAL, TSR_REDUCE_SUM};
    sg_derived d;
    assert_true(sg_derive(e, &e->text, 1, &three, &d));
    for (int i = 0; i < d.n; i++)
        for (int j = 0; j < e->v.nin + e->v.nout; j++) {
            tsri_nd_signature sig = d.sig[i];
            tsr_sbp1 *s = j < e->v.nin ? &sig.in[j].d[0] : &sig.out[j - e->v.nin].d[0];
            if (!vf_sbp1_equal(*s, b) && !vf_sbp1_equal(*s, p))
                continue; /* S; and a B is a P(max) and a P(min) */
            *s = vf_sbp1_equal(*s, b) ? p : b;
            if (!sg_contains(e, &d, &sig) && !vf_has_bool_sum(&e->v, &sig))
                try_signature(t, e, &sig, &d, (vf_how){.ndim = 1, .dim = {three}});
        }
    sg_derived_finish(&d);
}

static void sum_for_extremum(tally *t, const sg_entry *e)
{
    sg_derived d;
    assert_true(sg_derive(e, &e->text, 1, &three, &d));
    for (int i = 0; i < d.n; i++) {
        tsri_nd_signature sig = d.sig[i];
        bool changed = false;
        for (int j = 0; j < e->v.nout; j++)
            if (sig.out[j].d[0].kind == TSR_SBP_PARTIAL && sig.out[j].d[0].arg != TSR_REDUCE_SUM) {
                sig.out[j].d[0].arg = TSR_REDUCE_SUM;
                changed = true;
            }
        if (changed && !vf_has_bool_sum(&e->v, &sig))
            try_signature(t, e, &sig, &d, (vf_how){.ndim = 1, .dim = {three}});
    }
    sg_derived_finish(&d);
}

/* Signatures of k parts used for another number of parts: no divisibility. */
static void ignore_divisibility(tally *t, const sg_entry *e)
{
    for (int k = 2; k <= 4; k++)
        for (int other = 2; other <= 4; other++) {
            sg_derived right, wrong;
            assert_true(sg_derive(e, &e->text, 1, &k, &right) &&
                        sg_derive(e, &e->text, 1, &other, &wrong));
            for (int i = 0; i < wrong.n; i++)
                if (!sg_contains(e, &right, &wrong.sig[i]))
                    try_signature(t, e, &wrong.sig[i], &wrong, (vf_how){.ndim = 1, .dim = {k}});
            sg_derived_finish(&right);
            sg_derived_finish(&wrong);
        }
}

/* A fault of the kernel's desc must be found by one signature at least. */
static void try_fault(tally *t, const sg_entry *e, vf_fault fault)
{
    char why[4096];
    bool caught = false;
    t->tried++;
    for (int k = 2; k <= 4 && !caught; k++) {
        sg_derived d;
        assert_true(sg_derive(e, &e->text, 1, &k, &d));
        for (int i = 0; i < d.n && !caught; i++)
            caught = !vf_has_bool_sum(&e->v, &d.sig[i]) &&
                     !sg_check(e, &d.sig[i], &d, (vf_how){.ndim = 1, .dim = {k}, .fault = fault},
                               why, sizeof why);
        sg_derived_finish(&d);
    }
    if (caught) {
        t->caught++;
    } else if (excuse(t, e)) {
        t->excused++;
    } else {
        t->survived++;
        print_error("%s survived: %s: %s \"%s\"\n", t->what, e->name, tsri_op_name(e->v.kind),
                    e->text.text);
    }
}

static void ignore_offsets(tally *t, const sg_entry *e)
{
    /* Virtual batches of different sizes are told apart by their number alone. */
    const tsri_attrs *at = &e->v.attrs;
    bool uneven = (e->v.kind == TSRI_OP_BN_APPLY || e->v.kind == TSRI_OP_BN_CENTER) &&
                  at->bn.parts > 1 && at->bn.batch % at->bn.parts && at->bn.batch > at->bn.parts;
    if (strchr(e->text.text, '@') || uneven)
        try_fault(t, e, VF_NO_OFFSET);
}

static void global_groups(tally *t, const sg_entry *e)
{
    if (e->v.groups > 1 && e->v.groups % 2 == 0)
        try_fault(t, e, VF_GLOBAL_GROUPS);
}

static void local_counts(tally *t, const sg_entry *e)
{
    /* Of the kind that splits what it averages. */
    if (e->v.kind == TSRI_OP_REDUCE && e->v.attrs.reduce.op == TSR_REDUCE_SUM &&
        e->v.attrs.reduce.scale < 1 && e->v.in_dtype[0] == TSR_F64)
        try_fault(t, e, VF_LOCAL_COUNT);
}

static void test_mutants(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        break_fn *fn;
        int least; /* caught */
    } ways[] = {
        {"a dropped !", drop_bangs, 100},
        {"an index for .", index_dots, 100},
        {", for +", plus_to_comma, 20},
        {"+ for ,", comma_to_plus, 50},
        {"a dropped max", drop_extrema, 10},
        {"min for max", swap_extrema, 10},
        {"( ) turned round", turn_groups, 20},
        {"a claimed ^", claim_monotone, 20},
        {"B and P swapped", swap_b_and_p, 500},
        {"P(sum) for P(max)", sum_for_extremum, 10},
        {"no divisibility", ignore_divisibility, 20},
        {"offsets ignored", ignore_offsets, 10},
        {"groups of the whole", global_groups, 5},
        {"means by local counts", local_counts, 5},
    };
    int survived = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        tally t = {.what = ways[i].what};
        for (int j = 0; j < sg_nentries; j += test_sample())
            if (sg_entries[j].real == TSR_F64 && sg_can_tell(&sg_entries[j]))
                ways[i].fn(&t, &sg_entries[j]);
        print_message("%-22s %5d tried, %5d caught, %4d barren, %3d excused, %d survived\n", t.what,
                      t.tried, t.caught, t.barren, t.excused, t.survived);
        survived += t.survived;
        assert_true(t.caught >= ways[i].least || test_sample() > 1);
    }
    assert_int_equal(survived, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutants),
    };
    return cmocka_run_group_tests(tests, sg_setup, sg_teardown);
}
