/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every signature that random rules yield, against the unsplit op: the inputs are cut as it says,
 * the op is evaluated per part as a plain sum over all its indices, the parts are put together. The
 * evaluation knows nothing of derivation; it fails if the pieces that a signature cuts are not the
 * pieces that balanced splits of the indices give.
 */
#include "sbp/rule/rule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <tessera/placement.h>

enum { MAX_INDEX = 5, MAX_OPERANDS = 4, MAX_AXES = 4, MAX_ELEMENTS = 4096, MAX_PARTS = 4 };
enum { FACTOR = -1, UNUSED = -2 };

typedef struct axis {
    int n, index[2]; /* n == 0: a written '1' */
    bool one;        /* an axis of global size 1 although its index is larger */
} axis;

typedef struct arg {
    int naxes;
    axis axis[MAX_AXES];
    bool nonlinear, monotone;
    int group[2]; /* per rule: the addend, FACTOR or UNUSED */
    int reduce;   /* of outputs: a tsr_reduce_op */
    int rule;     /* of outputs */
} arg;

typedef struct op {
    int nindices, nin, nout, nrules;
    int64_t size[MAX_INDEX];
    arg in[MAX_OPERANDS], out[2];
} op;

typedef struct value {
    tsr_dims dims;
    double data[MAX_ELEMENTS];
} value;

/* --- random numbers --------------------------------------------------------------------------- */

static uint64_t rng_state;

static int pick(int n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((rng_state >> 33) % (uint64_t)n);
}

static bool chance(int percent)
{
    return pick(100) < percent;
}

static double real(void)
{
    return (pick(2000001) - 1000000) * 2e-6;
}

/* --- the dense meaning of a rule -------------------------------------------------------------- */

static int64_t axis_size(const axis *a, const int64_t *size)
{
    int64_t n = 1;
    for (int i = 0; i < a->n && !a->one; i++)
        n *= size[a->index[i]];
    return n;
}

static tsr_dims shape_of(const arg *a, const int64_t *size)
{
    tsr_dims dims = {.ndim = a->naxes};
    for (int i = 0; i < a->naxes; i++)
        dims.d[i] = axis_size(&a->axis[i], size);
    return dims;
}

static int64_t offset_of(const arg *a, const int64_t *size, const int64_t *at)
{
    int64_t offset = 0;
    for (int i = 0; i < a->naxes; i++) {
        const axis *x = &a->axis[i];
        int64_t pos = 0;
        for (int j = 0; j < x->n && !x->one; j++)
            pos = pos * size[x->index[j]] + at[x->index[j]];
        offset = offset * axis_size(x, size) + pos;
    }
    return offset;
}

static unsigned indices_of(const arg *a)
{
    unsigned held = 0;
    for (int i = 0; i < a->naxes; i++)
        for (int j = 0; j < a->axis[i].n && !a->axis[i].one; j++)
            held |= 1u << a->axis[i].index[j];
    return held;
}

static double apply(const arg *a, double x)
{
    if (a->monotone)
        return a->nonlinear ? x * x * x + 1 : x;
    return a->nonlinear ? x * x + 1 : x;
}

static double identity(int reduce)
{
    return reduce == TSR_REDUCE_SUM ? 0 : reduce == TSR_REDUCE_MAX ? -INFINITY : INFINITY;
}

static double combine(int reduce, double a, double b)
{
    return reduce == TSR_REDUCE_SUM ? a + b : reduce == TSR_REDUCE_MAX ? fmax(a, b) : fmin(a, b);
}

/* Adds one addend, a product, into an output: over all indices of both. */
static void add_product(const op *o, const arg *out, int group, const int64_t *size,
                        const value *in, value *res)
{
    int64_t at[MAX_INDEX] = {0};
    unsigned held = indices_of(out);
    for (int i = 0; i < o->nin; i++)
        if (o->in[i].group[out->rule] == group || o->in[i].group[out->rule] == FACTOR)
            held |= indices_of(&o->in[i]);
    for (int l = 0; l < o->nindices; l++)
        if ((held >> l & 1) && size[l] == 0)
            return;
    for (;;) {
        double term = 1;
        for (int i = 0; i < o->nin; i++)
            if (o->in[i].group[out->rule] == group || o->in[i].group[out->rule] == FACTOR)
                term *= apply(&o->in[i], in[i].data[offset_of(&o->in[i], size, at)]);
        double *to = &res->data[offset_of(out, size, at)];
        *to = combine(out->reduce, *to, term);
        int l = 0;
        for (; l < o->nindices; l++) {
            if (!(held >> l & 1))
                continue;
            if (++at[l] < size[l])
                break;
            at[l] = 0;
        }
        if (l == o->nindices)
            return;
    }
}

static void evaluate(const op *o, const arg *out, const int64_t *size, const value *in, value *res)
{
    res->dims = shape_of(out, size);
    for (int64_t i = 0; i < tsr_dims_count(res->dims); i++)
        res->data[i] = identity(out->reduce);
    for (int group = 0; group < MAX_OPERANDS; group++)
        for (int i = 0; i < o->nin; i++)
            if (o->in[i].group[out->rule] == group) {
                add_product(o, out, group, size, in, res);
                break;
            }
}

/* --- cutting and putting together ------------------------------------------------------------- */

static void cut(const value *v, int ax, int k, int part, value *res)
{
    int64_t first, length, outer = 1, inner = 1;
    tsr_balanced_split(v->dims.d[ax], k, part, &first, &length);
    for (int i = 0; i < ax; i++)
        outer *= v->dims.d[i];
    for (int i = ax + 1; i < v->dims.ndim; i++)
        inner *= v->dims.d[i];
    res->dims = v->dims;
    res->dims.d[ax] = length;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < length * inner; j++)
            res->data[i * length * inner + j] = v->data[(i * v->dims.d[ax] + first) * inner + j];
}

/* The parts of an operand. Addends are independent and of both signs. */
static void scatter(const value *v, tsr_sbp1 d, int k, value *parts)
{
    int64_t n = tsr_dims_count(v->dims);
    for (int part = 0; part < k; part++) {
        parts[part] = *v;
        if (d.kind == TSR_SBP_SPLIT)
            cut(v, d.arg, k, part, &parts[part]);
    }
    for (int64_t i = 0; i < n && d.kind == TSR_SBP_PARTIAL; i++) {
        int exact = pick(k);
        double rest = v->data[i];
        for (int part = 0; part < k; part++)
            if (part != exact) {
                double x = real();
                parts[part].data[i] = d.arg == TSR_REDUCE_SUM   ? x
                                      : d.arg == TSR_REDUCE_MAX ? v->data[i] - fabs(x)
                                                                : v->data[i] + fabs(x);
                rest -= x;
            }
        parts[exact].data[i] = d.arg == TSR_REDUCE_SUM ? rest : v->data[i];
    }
}

static bool same(const value *a, const value *b)
{
    if (!tsr_dims_equal(a->dims, b->dims))
        return false;
    for (int64_t i = 0; i < tsr_dims_count(a->dims); i++) {
        double x = a->data[i], y = b->data[i];
        if (x != y && !(fabs(x - y) <= 1e-9 * (1 + fabs(y))))
            return false;
    }
    return true;
}

/* Whether the parts of an output make the unsplit one. */
static bool gathers(const value *parts, tsr_sbp1 d, int k, const value *whole)
{
    static value one;
    if (d.kind == TSR_SBP_PARTIAL) {
        one = parts[0];
        for (int part = 1; part < k; part++) {
            if (!tsr_dims_equal(parts[part].dims, one.dims))
                return false;
            for (int64_t i = 0; i < tsr_dims_count(one.dims); i++)
                one.data[i] = combine(d.arg, one.data[i], parts[part].data[i]);
        }
        return same(&one, whole);
    }
    for (int part = 0; part < k; part++) {
        one = *whole;
        if (d.kind == TSR_SBP_SPLIT)
            cut(whole, d.arg, k, part, &one);
        if (!same(&parts[part], &one))
            return false;
    }
    return true;
}

/* Narrows the index that a split of this axis cuts: the outermost that is not of size 1. Among
 * indices of size 1 all is the same, and the signature's word is taken. */
static bool narrow(const op *o, const arg *a, tsr_sbp1 d, int named, int k, int part, int64_t *size)
{
    if (d.kind != TSR_SBP_SPLIT)
        return true;
    if (d.arg >= a->naxes || !a->axis[d.arg].n || a->axis[d.arg].one)
        return false;
    const axis *x = &a->axis[d.arg];
    int i = 0;
    while (i < x->n - 1 && o->size[x->index[i]] == 1 && x->index[i] != named)
        i++;
    if (i < x->n - 1 && o->size[x->index[i]] == 1 && axis_size(x, o->size) != 1)
        i++;
    int64_t first;
    tsr_balanced_split(o->size[x->index[i]], k, part, &first, &size[x->index[i]]);
    return true;
}

static bool is_sound(const op *o, const tsri_rule *rule, const value *in, const value *whole,
                     const tsri_signature *sig, int k)
{
    int named = sig->index < 0 ? -1 : tsri_rule_index_name(rule, sig->index)[0] - 'a';
    static value parts[MAX_OPERANDS][MAX_PARTS], local[MAX_OPERANDS], out[2][MAX_PARTS];
    for (int i = 0; i < o->nin; i++) {
        if (sig->in[i].kind == TSR_SBP_SPLIT && sig->in[i].arg >= o->in[i].naxes)
            return false;
        scatter(&in[i], sig->in[i], k, parts[i]);
    }
    for (int part = 0; part < k; part++) {
        int64_t size[MAX_INDEX];
        memcpy(size, o->size, sizeof size);
        for (int i = 0; i < o->nin; i++)
            if (!narrow(o, &o->in[i], sig->in[i], named, k, part, size))
                return false;
        for (int i = 0; i < o->nout; i++)
            if (!narrow(o, &o->out[i], sig->out[i], named, k, part, size))
                return false;
        for (int i = 0; i < o->nin; i++) {
            local[i] = parts[i][part];
            bool used = o->in[i].group[0] != UNUSED || o->in[i].group[o->nrules - 1] != UNUSED;
            if (used && !tsr_dims_equal(local[i].dims, shape_of(&o->in[i], size)))
                return false;
        }
        for (int i = 0; i < o->nout; i++)
            evaluate(o, &o->out[i], size, local, &out[i][part]);
    }
    for (int i = 0; i < o->nout; i++)
        if (!gathers(out[i], sig->out[i], k, &whole[i]))
            return false;
    return true;
}

/* --- random rules ----------------------------------------------------------------------------- */

/* Random axes over distinct indices; for outputs without broadcast axes. */
static void make_axes(const op *o, arg *a, bool is_output)
{
    unsigned left = (1u << o->nindices) - 1;
    int want = pick(MAX_AXES + 1);
    while (a->naxes < want && left) {
        axis *x = &a->axis[a->naxes++];
        if (chance(8))
            continue; /* a written '1' */
        for (int n = chance(25) ? 2 : 1; x->n < n && left;) {
            int index = pick(o->nindices);
            if (left >> index & 1)
                x->index[x->n++] = index;
            left &= ~(1u << index);
        }
        x->one = !is_output && axis_size(x, o->size) != 1 && chance(8);
    }
}

static void make_rule(op *o, int r)
{
    int group = 0, nfactors = o->nin > 1 && chance(25) ? 1 : 0;
    for (int i = 0; i < o->nin; i++) {
        bool unused = o->nrules > 1 && chance(20);
        if (i > nfactors && chance(40))
            group++;
        o->in[i].group[r] = unused ? UNUSED : i < nfactors ? FACTOR : group;
    }
}

/* The number of addends that a rule really has. */
static int addends(const op *o, int r)
{
    unsigned seen = 0;
    for (int i = 0; i < o->nin; i++)
        if (o->in[i].group[r] >= 0)
            seen |= 1u << o->in[i].group[r];
    return __builtin_popcount(seen);
}

static bool make_op(op *o)
{
    static const int64_t sizes[] = {1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 0};
    *o = (op){.nindices = 1 + pick(MAX_INDEX), .nin = 1 + pick(MAX_OPERANDS), .nout = 1 + pick(2)};
    int64_t total = 1;
    for (int l = 0; l < o->nindices; l++) {
        o->size[l] = sizes[pick(sizeof sizes / sizeof *sizes - (chance(90) ? 1 : 0))];
        total *= o->size[l] ? o->size[l] : 1;
    }
    if (total > 1500)
        return false;
    o->nrules = o->nout == 2 && chance(60) ? 2 : 1;
    for (int r = 0; r < o->nrules; r++)
        make_rule(o, r);
    for (int i = 0; i < o->nin; i++) {
        make_axes(o, &o->in[i], false);
        o->in[i].nonlinear = chance(25);
    }
    for (int i = 0; i < o->nout; i++) {
        arg *out = &o->out[i];
        make_axes(o, out, true);
        out->rule = o->nrules == 2 ? i : 0;
        if (addends(o, out->rule) == 0)
            return false;
        if (addends(o, out->rule) == 1 && chance(25))
            out->reduce = 1 + pick(2);
    }
    /* x and x^3 commute with max and min; products do not. */
    o->in[0].monotone = o->nin == 1 && chance(60);
    return true;
}

static size_t put_axes(const arg *a, char *text)
{
    size_t at = 0;
    if (!a->naxes)
        return (size_t)sprintf(text, "()");
    for (int i = 0; i < a->naxes; i++) {
        const axis *x = &a->axis[i];
        if (!x->n)
            at += (size_t)sprintf(text + at, "1 ");
        else if (x->n == 1)
            at += (size_t)sprintf(text + at, "%c ", 'a' + x->index[0]);
        else
            at += (size_t)sprintf(text + at, "(%c %c) ", 'a' + x->index[0], 'a' + x->index[1]);
    }
    return at;
}

/* with_marks: write '!'; without, the rule claims too much. */
static void put_rule(const op *o, bool with_marks, char *text)
{
    static const char *const reduce[] = {"", "max ", "min "};
    size_t at = 0;
    for (int r = 0; r < o->nrules; r++) {
        int last = 0;
        for (int i = 0; i < o->nin; i++) {
            const arg *a = &o->in[i];
            /* An unused operand goes with its neighbour. */
            int group = a->group[r] == UNUSED ? last : a->group[r];
            if (i)
                at += (size_t)sprintf(text + at, group == last    ? ", "
                                                 : last == FACTOR ? " : "
                                                                  : " + ");
            else if (a->group[r] == UNUSED)
                for (int j = o->nin - 1; j > 0; j--)
                    group = a->group[r] == UNUSED && o->in[j].group[r] != UNUSED ? o->in[j].group[r]
                                                                                 : group;
            last = group;
            if (a->group[r] == UNUSED) {
                at += (size_t)sprintf(text + at, "_");
                continue;
            }
            at += (size_t)sprintf(text + at, "%s%s", a->nonlinear && with_marks ? "!" : "",
                                  a->monotone ? "^" : "");
            at += put_axes(a, text + at);
        }
        at += (size_t)sprintf(text + at, "->");
        for (int i = 0, n = 0; i < o->nout; i++)
            if (o->out[i].rule == r) {
                at += (size_t)sprintf(text + at, n++ ? ", %s" : " %s", reduce[o->out[i].reduce]);
                at += put_axes(&o->out[i], text + at);
            }
        at += (size_t)sprintf(text + at, r + 1 < o->nrules ? "; " : "");
    }
}

static int derive(tsri_pool *pool, const op *o, const char *text, int k, tsri_rule **rule,
                  tsri_signature **sig)
{
    tsr_dims in[MAX_OPERANDS], out[2];
    tsri_index_size sizes[MAX_INDEX] = {0};
    int n;
    for (int i = 0; i < o->nin; i++)
        in[i] = shape_of(&o->in[i], o->size);
    for (int i = 0; i < o->nout; i++)
        out[i] = shape_of(&o->out[i], o->size);
    for (int l = 0; l < o->nindices; l++)
        sizes[l] = (tsri_index_size){.name = {(char)('a' + l)}, .size = o->size[l]};
    if (tsri_rule_bind(pool, text, o->nin, in, o->nout, out, o->nindices, sizes, rule) != TSR_OK)
        fail_msg("%s: %s", text, tsr_last_error());
    assert_int_equal(tsri_rule_derive(pool, *rule, k, &n, sig), TSR_OK);
    return n;
}

/* Fills the operands and evaluates the unsplit op. */
static void prepare(const op *o, value *in, value *whole)
{
    for (int i = 0; i < o->nin; i++) {
        in[i].dims = shape_of(&o->in[i], o->size);
        for (int64_t j = 0; j < tsr_dims_count(in[i].dims); j++)
            in[i].data[j] = real();
    }
    for (int i = 0; i < o->nout; i++)
        evaluate(o, &o->out[i], o->size, in, &whole[i]);
}

typedef struct counts {
    int all, split, grouped, sums, extrema, joined, several;
} counts;

static void tally(const op *o, const tsri_signature *sig, counts *c)
{
    bool sum = false, extremum = false, grouped = false;
    int kinds = 0;
    for (int i = 0; i < o->nin; i++) {
        sum |= sig->in[i].kind == TSR_SBP_PARTIAL && sig->in[i].arg == TSR_REDUCE_SUM;
        extremum |= sig->in[i].kind == TSR_SBP_PARTIAL && sig->in[i].arg != TSR_REDUCE_SUM;
        grouped |= sig->in[i].kind == TSR_SBP_SPLIT && o->in[i].axis[sig->in[i].arg].n > 1;
    }
    for (int i = 0; i < o->nin; i++)
        kinds |= 1 << sig->in[i].kind;
    c->all++;
    c->split += sig->index >= 0;
    c->grouped += grouped;
    c->sums += sum;
    c->extrema += extremum;
    c->joined += o->nrules > 1 && sig->index >= 0;
    c->several += (kinds >> TSR_SBP_SPLIT & 1) && (kinds >> TSR_SBP_PARTIAL & 1);
}

static void wrong_signature(const op *o, const char *text, const tsri_signature *sig, int k)
{
    char buf[TSR_SBP_TEXT_MAX];
    print_message("\"%s\", k = %d, sizes from a:", text, k);
    for (int l = 0; l < o->nindices; l++)
        print_message(" %d", (int)o->size[l]);
    for (int i = 0; i < o->nin + o->nout; i++) {
        tsr_sbp sbp = {1, {i < o->nin ? sig->in[i] : sig->out[i - o->nin]}};
        print_message("%s %s", i == o->nin ? " ->" : ",", tsr_sbp_format(sbp, buf));
    }
    fail_msg(": this signature is wrong");
}

static void test_random_rules(void **state)
{
    (void)state;
    static value in[MAX_OPERANDS], whole[2];
    counts c = {0};
    rng_state = 20261121;
    for (int made = 0; made < 1500;) {
        op o;
        char text[512];
        if (!make_op(&o))
            continue;
        made++;
        put_rule(&o, true, text);
        prepare(&o, in, whole);
        for (int k = 1; k <= MAX_PARTS; k++) {
            tsri_pool pool = {0};
            tsri_rule *rule;
            tsri_signature *sig;
            int n = derive(&pool, &o, text, k, &rule, &sig);
            for (int i = 0; i < n; i++) {
                if (!is_sound(&o, rule, in, whole, &sig[i], k))
                    wrong_signature(&o, text, &sig[i], k);
                tally(&o, &sig[i], &c);
            }
            tsri_pool_finish(&pool);
        }
    }
    print_message("%d signatures: %d split, %d of them in ( ), %d P(sum), %d P(max) or P(min), %d "
                  "joined, %d with S and P\n",
                  c.all, c.split, c.grouped, c.sums, c.extrema, c.joined, c.several);
    assert_true(c.split > 3000 && c.grouped > 300 && c.sums > 2000 && c.extrema > 200);
    assert_true(c.joined > 500 && c.several > 200);
}

/* The check itself can fail: each '!' that is left out lets signatures through that it catches. */
static void test_forgotten_marks(void **state)
{
    (void)state;
    static value in[MAX_OPERANDS], whole[2];
    int more = 0;
    rng_state = 7;
    while (more < 150) {
        op o;
        char text[512], wrong[512];
        if (!make_op(&o))
            continue;
        for (int l = 0; l < o.nindices; l++)
            o.size[l] += o.size[l] == 0;
        put_rule(&o, true, text);
        put_rule(&o, false, wrong);
        prepare(&o, in, whole);
        tsri_pool pool = {0};
        tsri_rule *rule;
        tsri_signature *sig, *bad;
        int n = derive(&pool, &o, text, 3, &rule, &sig);
        int nbad = derive(&pool, &o, wrong, 3, &rule, &bad);
        for (int i = 0; i < nbad; i++) {
            bool is_new = true;
            for (int j = 0; j < n; j++)
                is_new &= memcmp(bad[i].in, sig[j].in, sizeof sig->in) != 0 ||
                          memcmp(bad[i].out, sig[j].out, sizeof sig->out) != 0;
            if (!is_new)
                continue;
            more++;
            if (is_sound(&o, rule, in, whole, &bad[i], 3))
                fail_msg("\"%s\" for \"%s\": a wrong signature passes", wrong, text);
        }
        tsri_pool_finish(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rules),
        cmocka_unit_test(test_forgotten_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
