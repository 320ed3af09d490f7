/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The derivation over hierarchies against one that follows each coordinate's own pieces, and
 * against wrong ones: what only a wrong one derives, the verifier has to find out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sbp/rule/types.h"
#include "tests/dist/signatures/signatures.h"
#include "tests/sample.h"

typedef enum mistake {
    RIGHT = 0,
    GLOBAL_SIZES, /* each dimension derives at the sizes of the whole */
    FIRST_ONLY,   /* at those of the first coordinate alone: the larger pieces */
    LAST_ONLY,    /* at those of the last: the smaller ones */
    REVERSED,     /* the inner dimension splits first */
} mistake;

enum { MAX_LIST = 4096, MAX_ENTRIES = 64 };

/* A derivation by the book: dimension d takes what is legal at every coordinate of the
 * dimensions before it. */
typedef struct other {
    tsri_pool pool;
    tsri_rule rule; /* its sizes are those of one coordinate */
    const tsri_rule *whole;
    mistake mistake;
    int ndim, dim[TSR_MAX_HIERARCHY];
    tsri_nd_signature now;
    int n;
    tsri_nd_signature *list;
} other;

static const int meshes[][1 + TSR_MAX_HIERARCHY] = {{2, 2, 2},    {2, 2, 3}, {2, 3, 2},
                                                    {3, 2, 2, 2}, {2, 1, 3}, {2, 4, 1}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static int coordinates_before(const other *o, int d)
{
    int n = 1;
    for (int i = 0; i < d; i++)
        n *= o->dim[i];
    return n;
}

/* The sizes at one coordinate of dimensions 0..d-1, row-major. */
static void set_sizes(other *o, int d, int coordinate)
{
    for (int l = 0; l < o->rule.nindices; l++) {
        int64_t size = o->whole->index[l].size, offset;
        int left = coordinate, after = coordinates_before(o, d);
        for (int i = 0; i < d; i++) {
            after /= o->dim[i];
            if (o->now.split[i] >> l & 1)
                tsr_balanced_split(size, o->dim[i], left / after, &offset, &size);
            left %= after;
        }
        o->rule.index[l].size = o->rule.index[l].lesser = size;
    }
}

static bool same_entry(const other *o, const tsri_rule_entry *a, const tsri_rule_entry *b)
{
    return a->split == b->split &&
           !memcmp(a->sig.in, b->sig.in, (size_t)o->rule.nin * sizeof *a->sig.in) &&
           !memcmp(a->sig.out, b->sig.out, (size_t)o->rule.nout * sizeof *a->sig.out);
}

static int common_entries(other *o, int d, tsri_rule_entry *out)
{
    int n = 0, coordinates = coordinates_before(o, d);
    int first = o->mistake == LAST_ONLY ? coordinates - 1 : 0;
    int last = o->mistake == FIRST_ONLY || o->mistake == GLOBAL_SIZES ? 0 : coordinates - 1;
    for (int c = first; c <= last; c++) {
        tsri_rule_entry *more;
        int m, kept = 0;
        set_sizes(o, o->mistake == GLOBAL_SIZES ? 0 : d, c);
        assert_int_equal(tsri_rule_entries(&o->pool, &o->rule, o->dim[d], &m, &more), TSR_OK);
        assert_true(m <= MAX_ENTRIES);
        if (c == first) {
            memcpy(out, more, (size_t)m * sizeof *out);
            n = m;
            continue;
        }
        for (int i = 0; i < n; i++) {
            bool found = false;
            for (int j = 0; j < m && !found; j++)
                found = same_entry(o, &out[i], &more[j]);
            if (found)
                out[kept++] = out[i];
        }
        n = kept;
    }
    return n;
}

static bool mixes(const tsr_sbp *s)
{
    uint32_t found = 0;
    for (int d = 0; d < s->ndim; d++)
        if (s->d[d].kind == TSR_SBP_PARTIAL)
            found |= 1u << s->d[d].arg;
    return (found & (found - 1)) != 0;
}

static void turn_round(int ndim, tsr_sbp *s)
{
    const tsr_sbp was = *s;
    for (int d = 0; d < ndim; d++)
        s->d[d] = was.d[ndim - 1 - d];
}

/* From the order in which dimensions were derived to that of the mesh. */
static void turn_all_round(const other *o, tsri_nd_signature *sig)
{
    for (int i = 0; i < o->rule.nin; i++)
        turn_round(o->ndim, &sig->in[i]);
    for (int i = 0; i < o->rule.nout; i++)
        turn_round(o->ndim, &sig->out[i]);
    for (int d = 0; d < o->ndim; d++)
        sig->split[d] = o->now.split[o->ndim - 1 - d];
}

static void push(other *o)
{
    bool mixed = false;
    for (int i = 0; i < o->rule.nin; i++)
        mixed |= mixes(&o->now.in[i]);
    for (int i = 0; i < o->rule.nout; i++)
        mixed |= mixes(&o->now.out[i]);
    if (mixed)
        return;
    assert_true(o->n < MAX_LIST);
    o->list[o->n] = o->now;
    if (o->mistake == REVERSED)
        turn_all_round(o, &o->list[o->n]);
    o->n++;
}

static void descend(other *o, int d)
{
    tsri_rule_entry entries[MAX_ENTRIES];
    if (d == o->ndim || d == TSR_MAX_HIERARCHY) {
        push(o);
        return;
    }
    int n = common_entries(o, d, entries);
    for (int e = 0; e < n; e++) {
        for (int i = 0; i < o->rule.nin; i++)
            o->now.in[i].d[d] = entries[e].sig.in[i];
        for (int i = 0; i < o->rule.nout; i++)
            o->now.out[i].d[d] = entries[e].sig.out[i];
        o->now.split[d] = entries[e].split;
        descend(o, d + 1);
    }
}

static void derive_other(other *o, const tsri_rule *rule, mistake m, const int *mesh)
{
    *o = (other){.rule = *rule, .whole = rule, .mistake = m, .ndim = mesh[0]};
    for (int d = 0; d < o->ndim; d++)
        o->dim[d] = mesh[1 + (m == REVERSED ? o->ndim - 1 - d : d)];
    for (int i = 0; i < rule->nin; i++)
        o->now.in[i].ndim = (int8_t)o->ndim;
    for (int i = 0; i < rule->nout; i++)
        o->now.out[i].ndim = (int8_t)o->ndim;
    o->list = tsri_pool_alloc(&o->pool, MAX_LIST * sizeof *o->list);
    assert_non_null(o->list);
    descend(o, 0);
}

static void derive_right(const sg_entry *e, const int *mesh, sg_derived *out)
{
    if (!sg_derive(e, &e->text, mesh[0], mesh + 1, out))
        fail_msg("%s: %s", e->name, tsri_op_name(e->v.kind));
}

/* The derivation that follows all coordinates derives the same, in the same order. */
static void test_derivation(void **state)
{
    (void)state;
    int64_t total = 0;
    for (int i = 0; i < sg_nentries * MESHES; i++) {
        const sg_entry *e = &sg_entries[i / MESHES];
        sg_derived d;
        other o;
        if (e->real != TSR_F64)
            continue;
        derive_right(e, meshes[i % MESHES], &d);
        derive_other(&o, d.rule, RIGHT, meshes[i % MESHES]);
        if (o.n != d.derived)
            fail_msg("%s: %s \"%s\" on mesh %d: %d signatures, not %d", e->name,
                     tsri_op_name(e->v.kind), e->text.text, i % MESHES, d.derived, o.n);
        for (int j = 0; j < o.n; j++)
            assert_true(sg_same(e, &o.list[j], &d.sig[j]) &&
                        !memcmp(o.list[j].split, d.sig[j].split, sizeof d.sig[j].split));
        total += o.n;
        tsri_pool_finish(&o.pool);
        sg_derived_finish(&d);
    }
    print_message("%lld signatures, the same by each coordinate's pieces\n", (long long)total);
}

/* What became of the signatures that only a wrong derivation makes, or only the right one. */
typedef struct tally {
    int fresh, caught, survived, missing;
    int empty; /* right all the same, with an index split down to nothing: no use to anyone */
} tally;

static bool splits_to_nothing(const tsri_rule *rule, const tsri_nd_signature *sig, const int *mesh)
{
    bool any = false;
    for (int l = 0; l < rule->nindices; l++) {
        int64_t size = rule->index[l].size, offset;
        for (int d = 0; d < mesh[0]; d++)
            if (sig->split[d] >> l & 1)
                tsr_balanced_split(size, mesh[1 + d], mesh[1 + d] - 1, &offset, &size);
        any |= size == 0;
    }
    return any;
}

static void try_signature(tally *t, const sg_entry *e, const sg_derived *d,
                          const tsri_nd_signature *sig, const int *mesh)
{
    char why[4096], text[512];
    vf_how how = {.ndim = mesh[0]};
    memcpy(how.dim, mesh + 1, sizeof how.dim);
    t->fresh++;
    for (how.seed = 0; how.seed < 3; how.seed++)
        if (!sg_check(e, sig, d, how, why, sizeof why)) {
            t->caught++;
            return;
        }
    if (splits_to_nothing(d->rule, sig, mesh)) {
        t->empty++;
        return;
    }
    t->survived++;
    print_error("survived: %s: %s \"%s\" on %dx%d: %s\n", e->name, tsri_op_name(e->v.kind),
                e->text.text, mesh[1], mesh[2], vf_signature_text(&e->v, sig, text, sizeof text));
}

static void try_mistake(tally *t, const sg_entry *e, mistake m, const int *mesh)
{
    sg_derived right;
    other wrong;
    int common = 0;
    derive_right(e, mesh, &right);
    derive_other(&wrong, right.rule, m, mesh);
    for (int i = 0; i < wrong.n; i++) {
        bool known = sg_contains(e, &right, &wrong.list[i]);
        common += known;
        if (!known && !vf_has_bool_sum(&e->v, &wrong.list[i]))
            try_signature(t, e, &right, &wrong.list[i], mesh);
    }
    t->missing += right.derived - common;
    tsri_pool_finish(&wrong.pool);
    sg_derived_finish(&right);
}

static void test_mutants(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        mistake m;
        int least_caught, least_missing;
    } ways[] = {
        {"sizes of the whole", GLOBAL_SIZES, 50, 50},
        /* All that it adds is right: next to the larger piece, of 1, there is an empty one. */
        {"the first coordinate's pieces", FIRST_ONLY, 0, 0},
        {"the last coordinate's pieces", LAST_ONLY, 5, 0},
        {"dimensions reversed", REVERSED, 50, 50},
    };
    int survived = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        tally t = {0};
        for (int j = 0; j < sg_nentries * MESHES; j += test_sample())
            if (sg_entries[j / MESHES].real == TSR_F64)
                try_mistake(&t, &sg_entries[j / MESHES], ways[i].m, meshes[j % MESHES]);
        print_message("%-30s %5d wrong, %5d caught, %3d of parts without elements, %d survived; "
                      "%d missing\n",
                      ways[i].what, t.fresh, t.caught, t.empty, t.survived, t.missing);
        survived += t.survived;
        assert_true((t.caught >= ways[i].least_caught && t.missing >= ways[i].least_missing) ||
                    test_sample() > 1);
    }
    assert_int_equal(survived, 0);
}

/* A fault of what kernels are told must be found by one signature at least. */
static bool is_found(const sg_entry *e, vf_fault fault)
{
    char why[4096];
    bool found = false;
    for (int m = 0; m < MESHES && !found; m++) {
        vf_how how = {.ndim = meshes[m][0], .fault = fault};
        sg_derived d;
        memcpy(how.dim, meshes[m] + 1, sizeof how.dim);
        derive_right(e, meshes[m], &d);
        for (int i = 0; i < d.n && !found; i++)
            found = !vf_has_bool_sum(&e->v, &d.sig[i]) &&
                    !sg_check(e, &d.sig[i], &d, how, why, sizeof why);
        sg_derived_finish(&d);
    }
    return found;
}

static void test_faults(void **state)
{
    (void)state;
    int tried[2] = {0}, caught[2] = {0};
    for (int i = 0; i < sg_nentries; i++) {
        const sg_entry *e = &sg_entries[i];
        bool offset = strchr(e->text.text, '@') != NULL;
        bool groups = e->v.groups > 0 && e->v.groups % 4 == 0; /* split twice over 2x2 */
        /* P(sum) of bools does not exist, and with it no signature that splits a table of them. */
        bool table = (e->v.kind == TSRI_OP_INDEX_SELECT || e->v.kind == TSRI_OP_GATHER) &&
                     e->v.out_dtype[0] == TSR_BOOL;
        if (e->real != TSR_F64 || !sg_can_tell(e) || table || !(offset || groups))
            continue;
        tried[!offset]++;
        if (is_found(e, offset ? VF_INNER_OFFSET : VF_OUTER_GROUPS))
            caught[!offset]++;
        else
            print_error("survived: %s: %s \"%s\"\n", e->name, tsri_op_name(e->v.kind),
                        e->text.text);
    }
    print_message("offsets in the inner piece: %d tried, %d caught; groups of the outer piece: %d "
                  "tried, %d caught\n",
                  tried[0], caught[0], tried[1], caught[1]);
    assert_true(tried[0] >= 5 && tried[1] >= 4);
    assert_int_equal(caught[0], tried[0]);
    assert_int_equal(caught[1], tried[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derivation),
        cmocka_unit_test(test_mutants),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, sg_setup, sg_teardown);
}
