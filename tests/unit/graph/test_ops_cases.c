/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations at the edges of what is legal: the dtype and shape of each result, or the whole text
 * of its refusal; and the rules of all ops that these and their gradients take, as text and as the
 * signatures that follow. `ops_cases --print` and `--print-rules` write the tables anew: read what
 * has changed. */
#include "declared.h"

#include <math.h>
#include <stdlib.h>

#define POOL(...) TSR_POOL2D_OPTS(__VA_ARGS__)
#define CONV(...) TSR_CONV2D_OPTS(__VA_ARGS__)
#define EMBED(...) TSR_EMBEDDING_OPTS(.has_padding_idx = true, __VA_ARGS__)
#define NINE ((tsr_dims){9, {1, 1, 1, 1, 1, 1, 1, 1}})
#define GRID_SBP ((tsr_sbp){2, {{TSR_SBP_SPLIT, 0}, {TSR_SBP_BROADCAST, 0}}})
#define MIXED ((tsr_sbp){2, {{TSR_SBP_PARTIAL, TSR_REDUCE_SUM}, {TSR_SBP_PARTIAL, TSR_REDUCE_MAX}}})
#define REDUCTION(r) ((tsr_sbp){1, {{TSR_SBP_PARTIAL, (r)}}})
#define norm2(...) \
    tsr_batch_norm(f32(D(8, 6)), f32(D(6)), f32(D(6)), NULL, NULL, TSR_BATCH_NORM_OPTS(__VA_ARGS__))
#define entropy(logits, labels, ...) \
    tsr_cross_entropy_with(f32(logits), make(TSR_I64, labels), TSR_CROSS_ENTROPY_OPTS(__VA_ARGS__))

#define local_norm(dims, r)                                                         \
    tsr_batch_norm(f32(dims), f32(D((dims).d[1])), f32(D((dims).d[1])), NULL, NULL, \
                   TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = (r)))

static const tsr_placement *grid;
static bool printing;

/* Statistics are read, not written. */
static tsr_tensor *infer_norm(tsr_dims mean, tsr_dims var)
{
    start(false);
    return tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), f32(mean), f32(var), NULL);
}

/* The last of n parts, of which the first is one larger than the others. */
static tsr_tensor *split_of(tsr_dims dims, int n, int axis)
{
    tsr_tensor *parts[8] = {NULL};
    int64_t sizes[8] = {0};
    int64_t whole = axis < dims.ndim ? dims.d[axis < 0 ? axis + dims.ndim : axis] : 0;
    for (int i = 0; i < n; i++)
        sizes[i] = whole / n + (i < whole % n);
    tsr_split(f32(dims), n, sizes, axis, parts);
    return parts[n - 1];
}

static tsr_tensor *output_of(const char *name, tsr_tensor *x, const tsr_placement *p, tsr_sbp sbp)
{
    tsr_output(g, name, x, p, sbp);
    return x;
}

/* A declaration's result or error, without the place in the test. */
static void describe(const tsr_tensor *x, char *buf, size_t size)
{
    if (x && tsr_graph_status(g) == TSR_OK) {
        snprintf(buf, size, "%s %s", tsr_dtype_name(x->dtype), tsri_dims_text(g, x->shape));
        return;
    }
    tsr_graph_status(g);
    const char *error = tsr_last_error();
    const char *place_end = strstr(error, ".c:") || strstr(error, ".inc:") || strstr(error, ".h:")
                                ? strchr(error, ' ')
                                : NULL;
    snprintf(buf, size, "%s", place_end ? place_end + 1 : error);
}

static void check(const char *expr, const char *expected, const tsr_tensor *x)
{
    char found[512];
    describe(x, found, sizeof found);
    if (printing)
        printf("X(%s,\n  \"%s\")\n", expr, found);
    else if (strcmp(found, expected) != 0)
        fail_msg("%s\nfound:    %s\nexpected: %s", expr, found, expected);
}

static void test_cases(void **state)
{
    (void)state;
#define X(expr, expected)        \
    start(true);                 \
    tsri_fail(TSR_OK, "%s", ""); \
    check(#expr, expected, (expr));
#include "tests/unit/graph/ops_cases.inc"
#undef X
}

/* --- rules ------------------------------------------------------------------------------------ */
static const char *const recorded_rules[] = {
#include "tests/unit/graph/ops_rules.inc"
};
static char *rules[1000];
static int nrules;

static void append(char *buf, size_t size, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf + used, size - used, fmt, ap);
    va_end(ap);
}

/* The signatures that the rule leaves over k parts, all-B aside. */
static void add_signatures(const tsri_op *op, const tsri_rule_text *t, int k, char *buf,
                           size_t size)
{
    tsr_dims in[TSRI_RULE_MAX_ARGS], out[TSRI_RULE_MAX_ARGS];
    tsri_rule *rule;
    tsri_signature *sig;
    int n;
    for (int i = 0; i < op->nin; i++)
        in[i] = op->in[i]->shape;
    for (int i = 0; i < op->nout; i++)
        out[i] = op->out[i]->shape;
    assert_int_equal(
        tsri_rule_bind(&g->pool, t->text, op->nin, in, op->nout, out, t->nsizes, t->sizes, &rule),
        TSR_OK);
    assert_int_equal(tsri_rule_derive(&g->pool, rule, k, &n, &sig), TSR_OK);
    append(buf, size, "; over %d:", k);
    for (int i = 1; i < n; i++) {
        char one[160];
        signature_text(one, op, &sig[i]);
        append(buf, size, " %s", one);
    }
}

static void add_rule(const tsri_op *op)
{
    char line[2048] = "";
    tsri_rule_text t = {0};
    if (!tsri_op_has_rule(op->kind))
        return;
    assert_int_equal(tsri_op_write_rule(op, &t), TSR_OK);
    append(line, sizeof line, "%s: %s", tsri_op_name(op->kind), t.text);
    for (int i = 0; i < t.nsizes; i++)
        append(line, sizeof line, ", %s is %lld", t.sizes[i].name, (long long)t.sizes[i].size);
    add_signatures(op, &t, 2, line, sizeof line);
    add_signatures(op, &t, 3, line, sizeof line);
    if (t.extra_parts) {
        tsri_signature extra = {0};
        char one[160];
        memcpy(extra.in, t.extra_in, sizeof t.extra_in);
        memcpy(extra.out, t.extra_out, sizeof t.extra_out);
        signature_text(one, op, &extra);
        append(line, sizeof line, "; over %d also %s", t.extra_parts, one);
    }
    for (int i = 0; i < nrules; i++)
        if (!strcmp(rules[i], line))
            return;
    assert_true(nrules < (int)(sizeof rules / sizeof *rules));
    rules[nrules++] = strdup(line);
}

/* The rules of an op, and of all that its gradients take. */
static void add_rules(tsr_tensor *x)
{
    tsr_tensor *in[16], *d[16];
    int n = 0;
    if (!x || x->failed || tsr_graph_status(g) != TSR_OK)
        return;
    for (int i = 0; i < g->nops; i++)
        if (g->ops[i]->kind == TSRI_OP_INPUT && g->ops[i]->out[0]->dtype == TSR_F32 && n < 16)
            in[n++] = g->ops[i]->out[0];
    if (n && x->dtype == TSR_F32)
        tsr_gradients(x, n, in, d);
    for (int i = 0; i < g->nops; i++)
        add_rule(g->ops[i]);
}

static void test_rules(void **state)
{
    (void)state;
#define X(expr, expected) \
    start(true);          \
    add_rules((expr));
#include "tests/unit/graph/ops_cases.inc"
#undef X
    for (int i = 0; i < nrules; i++) {
        if (printing)
            printf("\"%s\",\n", rules[i]);
        else if (i < (int)(sizeof recorded_rules / sizeof *recorded_rules))
            assert_string_equal(rules[i], recorded_rules[i]);
        free(rules[i]);
    }
    assert_true(printing || nrules == (int)(sizeof recorded_rules / sizeof *recorded_rules));
}

static int setup_all(void **state)
{
    if (setup(state))
        return -1;
    grid = tsr_placement_parse(world, "cpu:[[0,1],[2,3]]");
    return grid ? 0 : -1;
}

int main(int argc, char **argv)
{
    printing = argc > 1; /* "--print" or "--print-rules" */
    if (printing) {
        puts("/* SPDX-License-Identifier: Apache-2.0 */");
        setup_all(NULL);
        (!strcmp(argv[1], "--print") ? test_cases : test_rules)(NULL);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_rules)};
    return cmocka_run_group_tests(tests, setup_all, teardown);
}
