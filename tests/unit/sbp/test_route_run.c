/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes do what they say: conversions between drawn signatures, meshes and sizes are run on data.
 * TESSERA_FULL: every pair of signatures with every pair of sizes on two axes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/unit/sbp/route_run.h"

#include <stdio.h>
#include <stdlib.h>

static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8};
enum { NSIZES = 7, NMODELS = 4 };

/* One link; two and three levels of machines; links that take no time to start. */
static tsri_cost_model model(int which)
{
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU);
    if (which == 1 || which == 3) {
        m.nlinks = 2;
        m.link[0] = (tsri_link){2, which == 1 ? 1e-6 : 0, 1e9};
        m.link[1] = (tsri_link){0, which == 1 ? 1e-5 : 0, 1e8};
    }
    if (which == 2) {
        /* Bytes matter here, even of tensors of few elements. */
        m = (tsri_cost_model){.nlinks = 3, .local_bytes_per_s = 1e8, .kernel_s = 1e-8};
        m.link[0] = (tsri_link){2, 1e-8, 1e7};
        m.link[1] = (tsri_link){4, 2e-8, 5e6};
        m.link[2] = (tsri_link){0, 3e-8, 1e6};
    }
    return m;
}

/* Steps that ran, by kind, and some of their forms. */
static int kinds_run[TSRI_BOX_SEND_RECV + 1], two_phase_run, across_run, partial_across_run,
    fused_run;

static void count_steps(const tsri_route *route)
{
    for (int i = 0; i < route->n; i++) {
        const tsri_route_step *s = &route->step[i];
        bool from_p = false, to_p = false;
        for (int d = 0; d < TSR_MAX_HIERARCHY; d++) {
            from_p = from_p || s->from.sbp.d[d].kind == TSR_SBP_PARTIAL;
            to_p = to_p || s->to.sbp.d[d].kind == TSR_SBP_PARTIAL;
        }
        kinds_run[s->kind]++;
        two_phase_run += s->two_phase;
        across_run += s->crosses;
        partial_across_run += s->crosses && from_p && to_p;
        fused_run += !s->crosses && s->dims & (s->dims - 1);
    }
}

static void run(const tsri_cost_model *m, const tsri_route_query *q, uint64_t seed)
{
    tsri_route route;
    char why[RR_WHY] = "", from[TSRI_LAYOUT_TEXT_MAX], to[TSRI_LAYOUT_TEXT_MAX];
    tsr_status status = tsri_route_find(m, q, &route);
    bool ok = status == TSR_OK && rr_run(q, &route, seed, why);
    if (ok)
        count_steps(&route);
    double sum = 0;
    int64_t bytes = 0;
    for (int i = 0; status == TSR_OK && i < route.n; i++) {
        sum += route.step[i].cost_s;
        bytes += route.step[i].bytes;
    }
    if (ok && (sum < route.cost_s * (1 - 1e-9) || sum > route.cost_s * (1 + 1e-9) ||
               bytes != route.bytes || route.bound_s > route.cost_s)) {
        ok = false;
        snprintf(why, sizeof why, "sums: cost %g of %g, bound %g", sum, route.cost_s,
                 route.bound_s);
    }
    if (ok)
        return;
    printf("%s -> %s, shape (", tsri_layout_format(&q->from.layout, from),
           tsri_layout_format(&q->to.layout, to));
    for (int a = 0; a < q->shape.ndim; a++)
        printf("%s%lld", a ? "," : "", (long long)q->shape.d[a]);
    printf("), meshes %dx%dx%d and %dx%dx%d: %s\n", q->from.mesh.dim[0], q->from.mesh.dim[1],
           q->from.mesh.dim[2], q->to.mesh.dim[0], q->to.mesh.dim[1], q->to.mesh.dim[2],
           status == TSR_OK ? why : tsr_last_error());
    for (int i = 0; status == TSR_OK && i < route.n; i++)
        printf("  %s dims %x%s: %s -> %s\n", tsri_box_kind_name(route.step[i].kind),
               route.step[i].dims, route.step[i].crosses ? " across" : "",
               tsri_layout_format(&route.step[i].from, from),
               tsri_layout_format(&route.step[i].to, to));
    fail();
}

static tsr_dims random_shape(uint64_t *state, int least)
{
    tsr_dims shape = {.ndim = least + rr_below(state, 4 - least)};
    for (int a = 0; a < shape.ndim; a++)
        shape.d[a] = sizes[rr_below(state, NSIZES)];
    return shape;
}

static tsri_layout random_layout(uint64_t *state, const tsri_mesh *m, int axes)
{
    tsr_sbp sbp;
    int kinds = 3; /* B, P, P(max) */
    while (!rr_signature(m->ndim, axes, kinds, rr_below(state, rr_signatures(m->ndim, axes, kinds)),
                         &sbp))
        ;
    return tsri_layout_of(m, sbp);
}

static void test_one_mesh(void **unused)
{
    (void)unused;
    static const int dims[][3] = {{4}, {2, 2}, {2, 3}, {2, 2, 2}, {3}, {3, 1, 2}},
                     ndims[] = {1, 2, 2, 3, 1, 3};
    static const int mixed[] = {5, 2, 7, 0, 3, 6, 1, 4};
    uint64_t state = 1;
    for (int i = 0; i < 14000; i++) {
        int which = rr_below(&state, 6);
        tsri_route_query q = {.element = 4};
        tsri_cost_model m = model(rr_below(&state, NMODELS));
        q.shape = random_shape(&state, 0);
        q.from.mesh = q.to.mesh =
            rr_mesh(ndims[which], dims[which], rr_below(&state, 2) ? mixed : NULL);
        q.from.layout = random_layout(&state, &q.from.mesh, q.shape.ndim);
        q.to.layout = random_layout(&state, &q.from.mesh, q.shape.ndim);
        run(&m, &q, (uint64_t)i);
    }
}

static void test_across(void **unused)
{
    (void)unused;
    /* Equal ranks in other hierarchies and orders, disjoint ones, overlapping and contained. */
    static const struct {
        int ndim, dim[3], rank[8];
    } meshes[] = {
        {1, {4}, {0, 1, 2, 3}},
        {1, {4}, {3, 1, 0, 2}},
        {2, {2, 2}, {0, 1, 2, 3}},
        {2, {2, 2}, {2, 0, 3, 1}},
        {1, {1}, {1}},
        {1, {1}, {7}},
        {1, {2}, {2, 3}},
        {1, {3}, {3, 4, 5}},
        {2, {2, 3}, {0, 1, 2, 3, 4, 5}},
        {2, {3, 2}, {8, 7, 6, 5, 4, 3}},
        {1, {4}, {4, 5, 6, 7}},
        {3, {2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}},
        {1, {8}, {7, 6, 5, 4, 3, 2, 1, 0}},
    };
    enum { NMESHES = sizeof meshes / sizeof *meshes };
    uint64_t state = 2;
    for (int i = 0; i < 6000; i++) {
        int a = rr_below(&state, NMESHES), b = rr_below(&state, NMESHES);
        tsri_route_query q = {.element = 8};
        tsri_cost_model m = model(rr_below(&state, NMODELS));
        q.shape = random_shape(&state, 0);
        q.from.mesh = rr_mesh(meshes[a].ndim, meshes[a].dim, meshes[a].rank);
        q.to.mesh = rr_mesh(meshes[b].ndim, meshes[b].dim, meshes[b].rank);
        q.from.layout = random_layout(&state, &q.from.mesh, q.shape.ndim);
        q.to.layout = random_layout(&state, &q.to.mesh, q.shape.ndim);
        run(&m, &q, (uint64_t)i);
    }
}

/* Every pair of signatures with every pair of sizes, or every 16th. */
static void test_all_pairs(void **unused)
{
    (void)unused;
    static const int dims[][3] = {{4}, {2, 2}, {2, 3}, {2, 2, 2}}, ndims[] = {1, 2, 2, 3};
    bool full = getenv("TESSERA_FULL") != NULL;
    int64_t count = 0;
    for (int w = 0; w < 4; w++) {
        int n = rr_signatures(ndims[w], 2, 3);
        for (int i = 0; i < n * n * NSIZES * NSIZES; i++) {
            int x = i % n, y = i / n % n, s = i / n / n;
            tsr_sbp from, to;
            if (!rr_signature(ndims[w], 2, 3, x, &from) || !rr_signature(ndims[w], 2, 3, y, &to) ||
                (!full && (i * 7 + w) % (w == 3 ? 199 : 16) != 0))
                continue;
            tsri_cost_model m = model((int)(count++ % NMODELS));
            tsri_route_query q = {.element = 4,
                                  .shape = TSR_DIMS(sizes[s % NSIZES], sizes[s / NSIZES])};
            q.from.mesh = q.to.mesh = rr_mesh(ndims[w], dims[w], NULL);
            q.from.layout = tsri_layout_of(&q.from.mesh, from);
            q.to.layout = tsri_layout_of(&q.from.mesh, to);
            run(&m, &q, (uint64_t)i);
        }
    }
    print_message("%lld conversions\n", (long long)count);
}

/* The conversions above met every kind of step. */
static void test_coverage(void **unused)
{
    (void)unused;
    for (int k = 0; k <= TSRI_BOX_SEND_RECV; k++)
        print_message("%s: %d\n", tsri_box_kind_name((tsri_box_kind)k), kinds_run[k]);
    print_message("two-phase %d, fused %d, across %d, of them P to P %d\n", two_phase_run,
                  fused_run, across_run, partial_across_run);
    for (int k = 0; k <= TSRI_BOX_SEND_RECV; k++)
        assert_true(kinds_run[k] > 50);
    assert_true(two_phase_run > 50 && fused_run > 50 && across_run > 50);
    assert_true(partial_across_run > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_mesh),
        cmocka_unit_test(test_across),
        cmocka_unit_test(test_all_pairs),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
