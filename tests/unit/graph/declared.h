/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of declarations share: results' types, errors' texts, derived signatures. The includer
 * has a graph `g`, which `start` makes anew. */
#ifndef TESSERA_TESTS_UNIT_DECLARED_H
#define TESSERA_TESTS_UNIT_DECLARED_H

#include <tessera/ops.h>
#include <tessera/world.h>

#include "src/graph/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define D(...) TSR_DIMS(__VA_ARGS__)

static tsr_world *world;
static const tsr_placement *place;
static tsr_graph *g;
static int inputs;

static void start(bool training)
{
    tsr_graph_destroy(g);
    g = tsr_graph_create(world, TSR_GRAPH_OPTS(.training = training, .seed = 7));
    assert_non_null(g);
    inputs = 0;
}

static tsr_tensor *make(tsr_dtype dtype, tsr_dims dims)
{
    char name[16];
    snprintf(name, sizeof name, "x%d", inputs++);
    return tsr_input(g, name, dtype, dims, place, TSR_B);
}

static tsr_tensor *f32(tsr_dims dims)
{
    return make(TSR_F32, dims);
}

static int setup(void **state)
{
    (void)state;
    if (tsr_world_create_virtual(4, 0, &world) != TSR_OK)
        return -1;
    place = tsr_placement_parse(world, "cpu:[0,1,2,3]");
    return place ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tsr_world_destroy(world);
    return 0;
}

static void is(tsr_tensor *x, tsr_dtype dtype, tsr_dims dims)
{
    if (!tsr_tensor_ok(x)) {
        tsr_graph_status(g);
        print_error("%s\n", tsr_last_error());
    }
    assert_true(tsr_tensor_ok(x));
    assert_int_equal(x->dtype, dtype);
    if (!tsr_dims_equal(x->shape, dims))
        print_error("found %s, not %s\n", tsri_dims_text(g, x->shape), tsri_dims_text(g, dims));
    assert_true(tsr_dims_equal(x->shape, dims));
}

/* Asserts that an op which had nothing to do returned a tensor of its own that shows x. */
static inline void shows(tsr_tensor *y, const tsr_tensor *x)
{
    is(y, x->dtype, x->shape);
    assert_ptr_not_equal(y, x);
    assert_int_equal(y->op->kind, TSRI_OP_RESHAPE);
    assert_ptr_equal(y->op->in[0], x);
}

/* The graph failed with this status, in the words of `expr`'s line. */
static inline void failed(tsr_tensor *x, tsr_status status, const char *text)
{
    assert_false(tsr_tensor_ok(x));
    assert_int_equal(tsr_graph_status(g), status);
    const char *error = tsr_last_error();
    if (!strstr(error, text))
        print_error("error: %s\nlacks: %s\n", error, text);
    assert_non_null(strstr(error, text));
    assert_non_null(strstr(error, "test_ops_"));
}
#define FAILS(status, text, expr)         \
    do {                                  \
        start(true);                      \
        failed((expr), (status), (text)); \
    } while (0)

static void sbp1_text(char *buf, tsr_sbp1 s)
{
    static const char *const p[] = {"P", "Pmax", "Pmin"};
    if (s.kind == TSR_SBP_SPLIT)
        sprintf(buf, "S%d", s.arg);
    else
        strcpy(buf, s.kind == TSR_SBP_BROADCAST ? "B" : s.kind == TSR_SBP_PARTIAL ? p[s.arg] : "?");
}

static void signature_text(char *buf, const tsri_op *op, const tsri_signature *s)
{
    buf[0] = 0;
    for (int i = 0; i < op->nin; i++) {
        strcat(buf, i ? "," : "");
        sbp1_text(buf + strlen(buf), s->in[i]);
    }
    strcat(buf, "->");
    for (int i = 0; i < op->nout; i++) {
        strcat(buf, i ? "," : "");
        sbp1_text(buf + strlen(buf), s->out[i]);
    }
}

static tsri_op *last_of(tsri_op_kind kind)
{
    for (int i = g->nops; i-- > 0;)
        if (g->ops[i]->kind == kind)
            return g->ops[i];
    fail_msg("no %s in the graph: %s", tsri_op_name(kind), g->failure.text ? g->failure.text : "");
    return NULL;
}

static void signatures_are(const tsri_op *op, int k, const char *expected)
{
    tsri_rule_text t;
    tsr_dims in[TSRI_RULE_MAX_ARGS], out[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < op->nin; i++)
        in[i] = op->in[i]->shape;
    for (int i = 0; i < op->nout; i++)
        out[i] = op->out[i]->shape;
    assert_int_equal(tsri_op_write_rule(op, &t), TSR_OK);
    tsri_rule *rule;
    tsri_signature *sig;
    int n, count = 0;
    tsr_status status =
        tsri_rule_bind(&g->pool, t.text, op->nin, in, op->nout, out, t.nsizes, t.sizes, &rule);
    if (status != TSR_OK)
        print_error("%s: %s\n", t.text, tsr_last_error());
    assert_int_equal(status, TSR_OK);
    assert_int_equal(tsri_rule_derive(&g->pool, rule, k, &n, &sig), TSR_OK);
    char found[4096] = "; ", one[160], key[160];
    for (int i = 1; i < n; i++) {
        signature_text(one, op, &sig[i]);
        strcat(strcat(found, one), "; ");
    }
    for (const char *p = expected; *p; count++) {
        size_t len = strcspn(p, ";");
        snprintf(key, sizeof key, "; %.*s; ", (int)len, p);
        if (!strstr(found, key))
            fail_msg("%s '%s' over %d: lacks %.*s; has %s", tsri_op_name(op->kind), t.text, k,
                     (int)len, p, found);
        p += len;
        p += strspn(p, "; ");
    }
    if (count != n - 1)
        fail_msg("%s '%s' over %d: has more than %s: %s", tsri_op_name(op->kind), t.text, k,
                 expected, found);
}

/* Over 2 and over 3 parts, all-B aside. */
static inline void derives(tsri_op_kind kind, const char *over2, const char *over3)
{
    tsri_op *op = last_of(kind);
    signatures_are(op, 2, over2);
    signatures_are(op, 3, over3 ? over3 : over2);
}

#endif
