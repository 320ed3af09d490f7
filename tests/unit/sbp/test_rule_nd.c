/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures over hierarchies: exact lists, what holds for every list, and for reshapes every pair
 * of signatures against the elements that the parts hold. TESSERA_FULL: more shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <tessera/placement.h>

#include "sbp/rule/rule.h"

#define CONV "n (g i) . ., (g o) i . . + (g o) -> n (g o) . ."
#define CONV_DX "n (g o) . ., (g o) i . . -> n (g i) . ."
#define LINEAR "... k, n k + n -> ... n"
#define MATMUL "m k, k n -> m n"

typedef struct nd_case {
    const char *rule;
    int nin;
    tsr_dims in[3], out;
    tsri_index_size size[3];
    int ndim, dim[TSR_MAX_HIERARCHY];
    int count;
    const char *want; /* all of them, in order; NULL: only counted */
} nd_case;

#define NO_SIZES  \
    {             \
        {         \
            "", 0 \
        }         \
    }
#define GIO(g, i, o)        \
    {                       \
        {"g", g}, {"i", i}, \
        {                   \
            "o", o          \
        }                   \
    }

static const nd_case cases[] = {
    /* Plain indices: the product of 1-D lists. */
    {"... -> ...",
     1,
     {{1, {5}}},
     {1, {5}},
     NO_SIZES,
     2,
     {2, 2},
     9,
     "BB>BB B0>B0 BP>BP 0B>0B 00>00 0P>0P PB>PB P0>P0 PP>PP"},
    {"a b -> a",
     1,
     {{2, {3, 3}}},
     {1, {3}},
     NO_SIZES,
     2,
     {2, 3},
     16,
     "BB>BB B0>B0 B1>BP BP>BP 0B>0B 00>00 01>0P 0P>0P "
     "1B>PB 10>P0 11>PP 1P>PP PB>PB P0>P0 P1>PP PP>PP"},
    {MATMUL, 2, {{2, {8, 8}}, {2, {8, 8}}}, {2, {8, 8}}, NO_SIZES, 2, {2, 2}, 36, NULL},
    {MATMUL, 2, {{2, {5, 7}}, {2, {7, 3}}}, {2, {5, 3}}, NO_SIZES, 3, {3, 2, 2}, 216, NULL},
    {LINEAR, 3, {{2, {5, 7}}, {2, {4, 7}}, {1, {4}}}, {2, {5, 4}}, NO_SIZES, 2, {2, 2}, 36, NULL},
    {LINEAR,
     3,
     {{3, {2, 5, 7}}, {2, {4, 7}}, {1, {4}}},
     {3, {2, 5, 4}},
     NO_SIZES,
     2,
     {2, 2},
     49,
     NULL},
    /* Dimensions of size 1. */
    {"!... -> ...", 1, {{1, {5}}}, {1, {5}}, NO_SIZES, 2, {1, 3}, 2, "BB>BB B0>B0"},
    {"!... -> ...", 1, {{1, {5}}}, {1, {5}}, NO_SIZES, 2, {4, 1}, 2, "BB>BB 0B>0B"},
    {"!... -> ...", 1, {{1, {5}}}, {1, {5}}, NO_SIZES, 4, {1, 1, 1, 1}, 1, "BBBB>BBBB"},
    {"!... -> ...", 1, {{0, {0}}}, {0, {0}}, NO_SIZES, 2, {2, 2}, 1, "BB>BB"},
    /* One kind of P in a tensor. */
    {"!^a -> max ()",
     1,
     {{1, {5}}},
     {0, {0}},
     NO_SIZES,
     2,
     {2, 2},
     9,
     "BB>BB B0>BM BM>BM 0B>MB 00>MM 0M>MM MB>MB M0>MM MM>MM"},
    {"^a -> a",
     1,
     {{1, {5}}},
     {1, {5}},
     NO_SIZES,
     2,
     {2, 2},
     19,
     "BB>BB B0>B0 BP>BP BM>BM Bm>Bm 0B>0B 00>00 0P>0P 0M>0M 0m>0m "
     "PB>PB P0>P0 PP>PP MB>MB M0>M0 MM>MM mB>mB m0>m0 mm>mm"},
    /* Indices in ( ): (8,4)->(2,4,4), split down to 1, then the next one. */
    {"!(a b) c -> a b c",
     1,
     {{2, {8, 4}}},
     {3, {2, 4, 4}},
     NO_SIZES,
     2,
     {2, 2},
     9,
     "BB>BB B0>B0 B1>B2 0B>0B 00>01 01>02 1B>2B 10>20 11>22"},
    /* Twice only if both divide: 12 over 2, then over 3, but not 8 over 2, then over 3. */
    {"!(a b) -> a b",
     1,
     {{1, {24}}},
     {2, {12, 2}},
     NO_SIZES,
     2,
     {2, 3},
     4,
     "BB>BB B0>B0 0B>0B 00>00"},
    {"!(a b) -> a b", 1, {{1, {16}}}, {2, {8, 2}}, NO_SIZES, 2, {2, 3}, 2, "BB>BB 0B>0B"},
    {"!(a b) -> a b", 1, {{1, {16}}}, {2, {8, 2}}, NO_SIZES, 2, {3, 2}, 2, "BB>BB B0>B0"},
    {"!(a b) -> a b", 1, {{1, {12}}}, {2, {6, 2}}, NO_SIZES, 2, {2, 2}, 3, "BB>BB B0>B0 0B>0B"},
    /* Groups of a convolution, split down to 1, then the channels inside. */
    {CONV_DX,
     2,
     {{4, {1, 4, 3, 3}}, {4, {4, 2, 3, 3}}},
     {4, {1, 4, 3, 3}},
     GIO(2, 2, 2),
     2,
     {2, 2},
     26,
     NULL},
    {CONV,
     3,
     {{4, {1, 1, 3, 3}}, {4, {2, 1, 3, 3}}, {1, {2}}},
     {4, {1, 2, 3, 3}},
     GIO(1, 1, 2),
     2,
     {1, 2},
     6,
     "BB,BB,BB>BB B0,BB,BB>B0 BB,B0,B0>B1 BP,BB,BP>BP BB,BP,BP>BP B1,B1,BP>BP"},
};

static const int meshes[][1 + TSR_MAX_HIERARCHY] = {
    {1, 2}, {1, 3}, {2, 2, 2}, {2, 3, 2}, {2, 1, 3}, {3, 2, 1, 3}, {3, 2, 2, 2}, {4, 2, 2, 3, 2}};
enum { MESHES = sizeof meshes / sizeof *meshes, CASES = sizeof cases / sizeof *cases };

static tsri_rule *bind(tsri_pool *pool, const nd_case *c)
{
    int nsizes = 0;
    tsri_rule *rule;
    while (nsizes < 3 && c->size[nsizes].name[0])
        nsizes++;
    if (tsri_rule_bind(pool, c->rule, c->nin, c->in, 1, &c->out, nsizes, c->size, &rule) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return rule;
}

/* "0B,BB>0B": an axis, B, P, M for P(max), m for P(min). */
static void format(const nd_case *c, const tsri_nd_signature *sig, char *at)
{
    for (int i = 0; i <= c->nin; i++) {
        const tsr_sbp *s = i < c->nin ? &sig->in[i] : &sig->out[0];
        if (i)
            *at++ = i < c->nin ? ',' : '>';
        for (int d = 0; d < s->ndim; d++)
            *at++ = s->d[d].kind == TSR_SBP_SPLIT       ? (char)('0' + s->d[d].arg)
                    : s->d[d].kind == TSR_SBP_BROADCAST ? 'B'
                    : s->d[d].kind == TSR_SBP_PARTIAL   ? "PMm"[s->d[d].arg]
                                                        : '?';
    }
    *at = 0;
}

static void test_lists(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const nd_case *c = &cases[i];
        char all[4096] = "";
        tsri_pool pool = {0};
        tsri_nd_signature *sig;
        int n;
        assert_int_equal(tsri_rule_derive_nd(&pool, bind(&pool, c), c->ndim, c->dim, &n, &sig),
                         TSR_OK);
        for (int j = 0; j < n && c->want; j++) {
            strcat(all, j ? " " : "");
            format(c, &sig[j], all + strlen(all));
        }
        if (c->want)
            assert_string_equal(all, c->want);
        if (n != c->count)
            fail_msg("\"%s\" (case %d): %d signatures, not %d", c->rule, i, n, c->count);
        tsri_pool_finish(&pool);
    }
}

/* What is so in every signature of an op, whatever its rule. */
static void check_tensor(const tsr_sbp *s, const int *mesh, bool first, int index)
{
    uint32_t partials = 0;
    assert_int_equal(s->ndim, mesh[0]);
    for (int d = 0; d < TSR_MAX_HIERARCHY; d++) {
        tsr_sbp1 e = s->d[d];
        if (d >= mesh[0])
            assert_true(e.kind == TSR_SBP_AUTO && e.arg == 0);
        else if (first || mesh[1 + d] == 1)
            assert_true(e.kind == TSR_SBP_BROADCAST && e.arg == 0);
        else
            assert_true(e.kind != TSR_SBP_AUTO);
        if (e.kind == TSR_SBP_PARTIAL)
            partials |= 1u << e.arg;
    }
    if (partials & (partials - 1))
        fail_msg("signature %d mixes kinds of P", index);
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(tsri_nd_signature));
}

static void test_every_list(void **state)
{
    (void)state;
    for (int i = 0; i < CASES * MESHES; i++) {
        const nd_case *c = &cases[i / MESHES];
        const int *mesh = meshes[i % MESHES];
        tsri_pool pool = {0};
        tsri_nd_signature *sig, *again;
        tsri_rule *rule = bind(&pool, c);
        int n, m;
        assert_int_equal(tsri_rule_derive_nd(&pool, rule, mesh[0], mesh + 1, &n, &sig), TSR_OK);
        assert_int_equal(tsri_rule_derive_nd(&pool, rule, mesh[0], mesh + 1, &m, &again), TSR_OK);
        assert_int_equal(n, m);
        assert_memory_equal(sig, again, (size_t)n * sizeof *sig);
        for (int j = 0; j < n; j++)
            for (int t = 0; t <= c->nin; t++)
                check_tensor(t < c->nin ? &sig[j].in[t] : &sig[j].out[0], mesh, j == 0, j);
        for (int j = 0; j < n; j++)
            memset(again[j].split, 0, sizeof again[j].split);
        qsort(again, (size_t)n, sizeof *again, compare);
        for (int j = 1; j < n; j++)
            assert_true(compare(&again[j - 1], &again[j]) != 0);
        tsri_pool_finish(&pool);
    }
}

/* Each allocation fails once: nothing is written, and the caller's pool is as good as before. */
static void test_no_memory(void **state)
{
    (void)state;
    static const int dim[] = {2, 2, 2, 2};
    const nd_case c = {LINEAR,
                       3,
                       {{4, {8, 9, 5, 7}}, {2, {4, 7}}, {1, {4}}},
                       {4, {8, 9, 5, 4}},
                       NO_SIZES,
                       4,
                       {2, 2, 2, 2},
                       4096,
                       NULL};
    int failed = 0;
    for (int64_t nth = 1;; nth++) {
        tsri_mem mem = {0};
        tsri_pool pool = {.mem = &mem};
        tsri_rule *rule = bind(&pool, &c);
        tsri_nd_signature *sig = NULL;
        int n = -1;
        mem.fail_countdown = nth;
        tsr_status status = tsri_rule_derive_nd(&pool, rule, 4, dim, &n, &sig);
        if (status != TSR_OK) {
            assert_int_equal(status, TSR_ERR_NO_MEMORY);
            assert_true(n == -1 && !sig && tsr_last_error()[0]);
            failed++;
            assert_int_equal(tsri_rule_derive_nd(&pool, rule, 4, dim, &n, &sig), TSR_OK);
        }
        assert_int_equal(n, 4096);
        tsri_pool_finish(&pool);
        if (status == TSR_OK)
            break;
    }
    assert_true(failed >= 2); /* that of the walk, and that of the list */
}

static void test_bad_hierarchies(void **state)
{
    (void)state;
    static const int bad[][1 + TSR_MAX_HIERARCHY] = {{0, 2}, {5, 2, 2, 2, 2}, {2, 2, 0}};
    tsri_pool pool = {0};
    tsri_rule *rule = bind(&pool, &cases[0]);
    for (int i = 0; i < 3; i++) {
        tsri_nd_signature *sig = NULL;
        int n = -1;
        assert_int_equal(tsri_rule_derive_nd(&pool, rule, bad[i][0], bad[i] + 1, &n, &sig),
                         TSR_ERR_INTERNAL);
        assert_true(n == -1 && !sig);
    }
    tsri_pool_finish(&pool);
}

/* --- reshapes between axes larger than 1: all pairs of signatures ----------------------------- */

enum { MAX_SHAPES = 64, MAX_COMBOS = 32, MAX_COUNT = 64, MAX_PARTS = 6 };

typedef struct shapes {
    int n;
    tsr_dims dims[MAX_SHAPES];
} shapes;

static void list_shapes(int64_t left, tsr_dims so_far, shapes *out)
{
    if (left == 1 && so_far.ndim) {
        assert_true(out->n < MAX_SHAPES);
        out->dims[out->n++] = so_far;
    }
    for (int64_t f = 2; f <= left && so_far.ndim < 4; f++)
        if (left % f == 0) {
            tsr_dims more = so_far;
            more.d[more.ndim++] = f;
            list_shapes(left / f, more, out);
        }
}

/* A shape under a signature of S and B: the elements of each part, in the part's own order. */
typedef struct held {
    tsr_sbp s;
    int n[MAX_PARTS];
    uint8_t element[MAX_PARTS][MAX_COUNT];
} held;

static void hold(held *h, tsr_dims dims, const int *dim)
{
    for (int p = 0; p < dim[0] * dim[1]; p++) {
        int64_t offset[TSR_MAX_NDIM] = {0}, at[TSR_MAX_NDIM] = {0}, n = 1;
        tsr_dims piece = dims;
        for (int d = 0; d < 2; d++) {
            int64_t more;
            if (h->s.d[d].kind != TSR_SBP_SPLIT)
                continue;
            int axis = h->s.d[d].arg;
            tsr_balanced_split(piece.d[axis], dim[d], d ? p % dim[1] : p / dim[1], &more,
                               &piece.d[axis]);
            offset[axis] += more;
        }
        for (int i = 0; i < dims.ndim; i++)
            n *= piece.d[i];
        h->n[p] = (int)n;
        for (int e = 0; e < n; e++) {
            int64_t from = 0;
            for (int i = 0; i < dims.ndim; i++)
                from = from * dims.d[i] + offset[i] + at[i];
            h->element[p][e] = (uint8_t)from;
            for (int i = dims.ndim - 1; i >= 0 && ++at[i] == piece.d[i]; i--)
                at[i] = 0;
        }
    }
}

static int hold_all(tsr_dims dims, const int *dim, held *out)
{
    int n = 0;
    for (int a = -1; a < dims.ndim; a++)
        for (int b = -1; b < dims.ndim; b++) {
            const tsr_sbp1 all_b = {TSR_SBP_BROADCAST, 0};
            held *h = &out[n++];
            *h = (held){.s = {.ndim = 2}};
            h->s.d[0] = a < 0 ? all_b : (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)a};
            h->s.d[1] = b < 0 ? all_b : (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)b};
            hold(h, dims, dim);
        }
    return n;
}

static bool same_elements(const held *a, const held *b, int parts)
{
    bool same = true;
    for (int p = 0; p < parts && same; p++)
        same = a->n[p] == b->n[p] && !memcmp(a->element[p], b->element[p], (size_t)a->n[p]);
    return same;
}

typedef struct tally {
    int64_t pairs, legal;
} tally;

static void try_reshape(tsr_dims from, tsr_dims to, const int *dim, tally *t)
{
    held *a = calloc(2 * MAX_COMBOS, sizeof *a), *b = a + MAX_COMBOS;
    assert_non_null(a);
    int na = hold_all(from, dim, a), nb = hold_all(to, dim, b), n, nsizes;
    char text[256];
    tsri_index_size sizes[TSRI_RULE_MAX_INDICES];
    tsri_pool pool = {0};
    tsri_rule *rule;
    tsri_nd_signature *sig;
    assert_int_equal(tsri_rule_reshape(from, to, text, sizeof text, sizes, &nsizes), TSR_OK);
    assert_int_equal(tsri_rule_bind(&pool, text, 1, &from, 1, &to, nsizes, sizes, &rule), TSR_OK);
    assert_int_equal(tsri_rule_derive_nd(&pool, rule, 2, dim, &n, &sig), TSR_OK);
    for (int j = 0; j < n; j++)
        for (int d = 0; d < 2; d++)
            if (sig[j].in[0].d[d].kind == TSR_SBP_PARTIAL ||
                sig[j].out[0].d[d].kind == TSR_SBP_PARTIAL)
                assert_memory_equal(&sig[j].in[0].d[d], &sig[j].out[0].d[d], sizeof(tsr_sbp1));
    for (int i = 0; i < na * nb; i++) {
        const held *x = &a[i / nb], *y = &b[i % nb];
        bool derived = false, legal = same_elements(x, y, dim[0] * dim[1]);
        for (int j = 0; j < n && !derived; j++)
            derived = tsr_sbp_equal(sig[j].in[0], x->s) && tsr_sbp_equal(sig[j].out[0], y->s);
        t->pairs++;
        t->legal += legal;
        if (derived != legal) {
            char s[2][TSR_SBP_TEXT_MAX];
            fail_msg("\"%s\" over %dx%d: %s -> %s is %s", text, dim[0], dim[1],
                     tsr_sbp_format(x->s, s[0]), tsr_sbp_format(y->s, s[1]),
                     legal ? "legal and not derived" : "derived and not legal");
        }
    }
    tsri_pool_finish(&pool);
    free(a);
}

static void test_reshapes(void **state)
{
    (void)state;
    static const int dims[][2] = {{2, 2}, {2, 3}, {3, 2}},
                     counts[] = {6, 8, 12, 16, 18, 24, 36, 48, 64};
    int ncounts = getenv("TESSERA_FULL") ? 9 : 6;
    tally t = {0};
    for (int c = 0; c < ncounts; c++) {
        shapes all = {0};
        list_shapes(counts[c], (tsr_dims){0}, &all);
        for (int i = 0; i < all.n * all.n; i++)
            for (int d = 0; d < 3; d++)
                try_reshape(all.dims[i / all.n], all.dims[i % all.n], dims[d], &t);
    }
    print_message("%lld pairs, %lld legal, all derived\n", (long long)t.pairs, (long long)t.legal);
    assert_true(t.legal > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),     cmocka_unit_test(test_every_list),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_bad_hierarchies),
        cmocka_unit_test(test_reshapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
