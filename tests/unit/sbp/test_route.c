/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes on one mesh are the cheapest: held against all steps by definition, and against the ways
 * that OneFlow and DTensor take. TESSERA_FULL: all pairs on 2x2x2 and 2x2x2x2, not a sample.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/unit/sbp/route_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One link; two levels of machines (of two ranks: on 2x3 they do not follow the mesh); three; links
 * without latency; bytes alone; two and three levels with rings. */
enum { NMODELS = 7 };
static tsri_cost_model model(int which)
{
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU);
    if (which == 1 || which == 3 || which == 5) {
        m.nlinks = 2;
        m.link[0] = (tsri_link){2, which != 3 ? 1e-6 : 0, 1e9};
        m.link[1] = (tsri_link){0, which != 3 ? 1e-5 : 0, 1e8};
    }
    if (which == 2 || which == 6) {
        m = (tsri_cost_model){.nlinks = 3, .local_bytes_per_s = 1e8, .kernel_s = 1e-8};
        m.link[0] = (tsri_link){2, 1e-8, 1e7};
        m.link[1] = (tsri_link){4, 2e-8, 5e6};
        m.link[2] = (tsri_link){0, 3e-8, 1e6};
    }
    if (which == 4) {
        m = (tsri_cost_model){.nlinks = 1, .local_bytes_per_s = INFINITY};
        m.link[0] = (tsri_link){0, 0, 1e9};
    }
    m.rings = which > 4;
    return m;
}

static const int permuted[] = {5, 2, 7, 0, 3, 6, 1, 4};

static const char *say(const tsri_route_query *q)
{
    static char text[200];
    char from[TSRI_LAYOUT_TEXT_MAX], to[TSRI_LAYOUT_TEXT_MAX];
    int n = snprintf(text, sizeof text, "%s -> %s of (", tsri_layout_format(&q->from.layout, from),
                     tsri_layout_format(&q->to.layout, to));
    for (int a = 0; a < q->shape.ndim && n < 150; a++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %lld", (long long)q->shape.d[a]);
    snprintf(text + n, sizeof text - (size_t)n, " ) on %dx%dx%dx%d", q->from.mesh.dim[0],
             q->from.mesh.dim[1], q->from.mesh.dim[2], q->from.mesh.dim[3]);
    return text;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static tsri_route find(const tsri_cost_model *m, const tsri_route_query *q)
{
    tsri_route r;
    if (tsri_route_find(m, q, &r) != TSR_OK)
        fail_msg("%s: %s", say(q), tsr_last_error());
    return r;
}

static tsri_route_query query(const rs_world *w, tsr_sbp from, tsr_sbp to)
{
    tsri_route_query q = {.shape = w->shape, .element = (size_t)w->element};
    q.from.mesh = q.to.mesh = w->mesh;
    q.from.layout = tsri_layout_of(&w->mesh, from);
    q.to.layout = tsri_layout_of(&w->mesh, to);
    q.most_bytes = w->most_bytes;
    return q;
}

/* Every step of a route is priced as the definition says. is_best: the last one is the cheaper of
 * the two that lead to the destination. */
static void check_steps(const rs_world *w, const tsri_route_query *q, const tsri_route *r,
                        bool is_best)
{
    for (int i = 0; i < r->n; i++) {
        const tsri_route_step *s = &r->step[i];
        int x = rs_find(w, &s->from), y = rs_find(w, &s->to);
        double one = INFINITY, straight = INFINITY;
        int64_t bytes, straight_bytes;
        assert_true(x >= 0 && y >= 0);
        if (!rs_step(w, x, y, &one, &bytes))
            one = INFINITY;
        if (i == r->n - 1 && rs_direct(w, x, y, &straight, &straight_bytes) &&
            (is_best ? straight < one : s->kind == TSRI_BOX_SEND_RECV || one == INFINITY)) {
            one = straight;
            bytes = straight_bytes;
        }
        if (!near(one, s->cost_s) || bytes != s->bytes)
            fail_msg("%s: step %d is %g, %lld bytes; it should be %g, %lld", say(q), i, s->cost_s,
                     (long long)s->bytes, one, (long long)bytes);
    }
}

/* What of a destination the ways to it depend on: its kind of P, and the short axes that it splits.
 */
static int way_key(const rs_world *w, const tsri_layout *l)
{
    int key = 0;
    for (int d = 0; d < w->mesh.ndim; d++)
        key = l->sbp.d[d].kind == TSR_SBP_PARTIAL ? 1 + l->sbp.d[d].arg : key;
    return 16 * key + (int)rs_short_axes(w, l);
}

/* Every pair of signatures (or each `stride`-th) on one mesh against the best of all ways. */
static int64_t check_all(const tsri_cost_model *m, const tsri_mesh *mesh, tsr_dims shape,
                         int64_t element, int64_t most_bytes, int kinds, int stride)
{
    rs_world w;
    int64_t count = 0, impossible = 0;
    int n = rr_signatures(mesh->ndim, shape.ndim, kinds);
    rs_init(&w, m, mesh, shape, element, kinds, most_bytes);
    double *costs[64] = {0};
    for (int i = 0; i < n; i += stride) {
        tsr_sbp from, to;
        if (!rr_signature(mesh->ndim, shape.ndim, kinds, i, &from))
            continue;
        for (int k = 0; k < 64; k++) {
            free(costs[k]);
            costs[k] = NULL;
        }
        for (int j = 0; j < n; j++) {
            if (!rr_signature(mesh->ndim, shape.ndim, kinds, j, &to))
                continue;
            tsri_route_query q = query(&w, from, to);
            double **cost = &costs[way_key(&w, &q.to.layout)];
            if (!*cost) {
                *cost = malloc((size_t)w.n * sizeof **cost);
                rs_costs(&w, &q.from.layout, &q.to.layout, *cost);
            }
            double best = rs_best(&w, *cost, rs_find(&w, &q.to.layout));
            tsri_route r;
            if (best == INFINITY) {
                assert_int_equal(tsri_route_find(m, &q, &r), TSR_ERR_SBP);
                impossible++;
                continue;
            }
            r = find(m, &q);
            if (!near(r.cost_s, best))
                fail_msg("%s: %g s; the best way takes %g", say(&q), r.cost_s, best);
            if (r.bound_s > r.cost_s)
                fail_msg("%s: bound %.17g cost %.17g n %d", say(&q), r.bound_s, r.cost_s, r.n);
            assert_true(most_bytes == 0 || r.n == 0 || r.peak_bytes <= most_bytes);
            check_steps(&w, &q, &r, true);
            count++;
        }
    }
    assert_true(most_bytes == 0 || impossible > 0);
    for (int k = 0; k < 64; k++)
        free(costs[k]);
    rs_finish(&w);
    return count;
}

static void test_best(void **unused)
{
    (void)unused;
    static const struct {
        int ndim, dim[3];
    } meshes[] = {{1, {4}}, {2, {2, 2}}, {2, {2, 3}}, {3, {2, 2, 2}}};
    const tsr_dims shapes[] = {TSR_DIMS(7, 8), TSR_DIMS(1000, 301), TSR_DIMS(2, 1), TSR_DIMS(0, 5),
                               TSR_DIMS(4096, 4096)};
    bool full = getenv("TESSERA_FULL") != NULL;
    int64_t count = 0;
    for (int i = 0; i < 4; i++)
        for (int s = 0; s < 5; s++)
            for (int k = 0; k < NMODELS; k++) {
                tsri_cost_model m = model(k);
                tsri_mesh mesh = rr_mesh(meshes[i].ndim, meshes[i].dim, s == 1 ? permuted : NULL);
                count += check_all(&m, &mesh, shapes[s], 4, 0, 3, i == 3 && !full ? 13 : 1);
            }
    print_message("%lld pairs\n", (long long)count);
}

static void test_best_more_axes(void **unused)
{
    (void)unused;
    static const int two[] = {2, 3}, three[] = {2, 2, 2}, four[] = {2, 2, 2, 2};
    tsri_cost_model one = model(0), levels = model(1);
    tsri_mesh m2 = rr_mesh(2, two, NULL), m3 = rr_mesh(3, three, NULL), m4 = rr_mesh(4, four, NULL);
    bool full = getenv("TESSERA_FULL") != NULL;
    int64_t count = check_all(&levels, &m2, TSR_DIMS(24, 5, 8, 3), 2, 0, 2, 1);
    count += check_all(&one, &m2, TSR_DIMS(240, 50, 8), 2, 0, 2, 1);
    count += check_all(&levels, &m3, TSR_DIMS(24, 5, 8), 2, 0, 2, full ? 1 : 5);
    count += check_all(&levels, &m4, TSR_DIMS(24), 4, 0, 2, 1);
    count += check_all(&one, &m4, TSR_DIMS(9, 24), 4, 0, 2, full ? 1 : 23);
    count += check_all(&levels, &m4, TSR_DIMS(9, 24), 4, 0, 2, full ? 1 : 29);
    print_message("%lld pairs\n", (long long)count);
}

/* Whether a route passes a layout behind its first step. */
static bool passes(const tsri_route *r, const tsri_layout *l)
{
    for (int i = 0; i < r->n; i++)
        if (tsri_layout_equal(&r->step[i].to, l))
            return true;
    return false;
}

static bool has_partial(const tsri_layout *l)
{
    for (int d = 0; d < l->sbp.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_PARTIAL)
            return true;
    return false;
}

/* Whether the search for a way looks at a layout: at P only where an end has it. */
static bool is_looked_at(const tsri_route_query *q, const tsri_layout *l)
{
    return !has_partial(l) || has_partial(&q->from.layout) || has_partial(&q->to.layout);
}

/* The least cost of a way that begins with a step to another layout than the best way's. */
static double best_other(const rs_world *w, const tsri_cost_model *m, const tsri_route_query *q,
                         const tsri_route *best)
{
    int from = rs_find(w, &q->from.layout);
    double least = INFINITY, step;
    for (int y = 0; y < w->n; y++) {
        int64_t bytes;
        tsri_route_query rest = *q;
        rest.from.layout = w->at[y].layout;
        if (tsri_layout_equal(&w->at[y].layout, &best->step[0].to) ||
            !is_looked_at(q, &w->at[y].layout) || !rs_step(w, from, y, &step, &bytes))
            continue;
        tsri_route r = find(m, &rest);
        if (!passes(&r, &q->from.layout))
            least = fmin(least, step + r.cost_s);
    }
    return least;
}

enum { OTHERS = 4 };

/* Each runner-up is whole, rightly priced, not cheaper than the best way, and begun otherwise. */
static void check_others(const rs_world *w, const tsri_route_query *q, const tsri_route *best,
                         const tsri_route *other, int n)
{
    for (int j = 0; j < n; j++) {
        const tsri_route *r = &other[j];
        check_steps(w, q, r, false);
        assert_true(tsri_layout_equal(&r->step[0].from, &q->from.layout));
        assert_true(tsri_layout_equal(&r->step[r->n - 1].to, &q->to.layout));
        assert_true(r->cost_s >= best->cost_s * (1 - 1e-9));
        assert_true(j == 0 || r->cost_s >= other[j - 1].cost_s);
        for (int l = -1; l < j; l++) {
            const tsri_route *s = l < 0 ? best : &other[l];
            assert_true(s->step[0].kind != r->step[0].kind ||
                        !tsri_layout_equal(&s->step[0].to, &r->step[0].to));
        }
    }
}

/* The first runner-up is no dearer than any way that begins with another layout. */
static void test_others(void **unused)
{
    (void)unused;
    static const int dims[] = {2, 3};
    int64_t count = 0;
    for (int k = 0; k < 3 * 2; k++) {
        tsri_cost_model m = model(k % 3);
        tsri_mesh mesh = rr_mesh(2, dims, NULL);
        rs_world w;
        rs_init(&w, &m, &mesh, k < 3 ? TSR_DIMS(7, 8) : TSR_DIMS(1000, 301), 4, 2, 0);
        int n = rr_signatures(2, 2, 2);
        for (int i = 0; i < n * n; i++) {
            tsr_sbp from, to;
            tsri_route other[OTHERS];
            if (!rr_signature(2, 2, 2, i / n, &from) || !rr_signature(2, 2, 2, i % n, &to))
                continue;
            tsri_route_query q = query(&w, from, to);
            tsri_route best = find(&m, &q);
            int nother = tsri_route_others(&m, &q, &best, OTHERS, other);
            assert_true(best.n > 0 || nother == 0);
            double least = best.n ? best_other(&w, &m, &q, &best) : INFINITY;
            if (least < INFINITY && (nother == 0 || other[0].cost_s > least * (1 + 1e-9)))
                fail_msg("%s: there is another way of %g s", say(&q), least);
            check_others(&w, &q, &best, other, nother);
            count += nother;
        }
        rs_finish(&w);
    }
    print_message("%lld other ways\n", (long long)count);
    assert_true(count > 1000);
}

/* Under a limit the best of the ways that keep it, and an error where there is none. */
static void test_limit(void **unused)
{
    (void)unused;
    static const int two[] = {2, 2}, three[] = {2, 2, 2};
    tsri_mesh m2 = rr_mesh(2, two, NULL), m3 = rr_mesh(3, three, NULL);
    int64_t count = 0;
    for (int k = 0; k < 3; k++) {
        tsri_cost_model m = model(k);
        for (int64_t most = 60; most <= 900; most = most * 3 / 2)
            count += check_all(&m, &m2, TSR_DIMS(16, 8), 4, most, 3, 1);
        count += check_all(&m, &m3, TSR_DIMS(16, 8), 4, 300, 2, 3);
    }
    print_message("%lld pairs\n", (long long)count);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A way of another planner: layouts one after the other, a step of the table between any two. */
typedef struct way {
    const rs_world *w;
    tsr_sbp now;
    double cost;
    int64_t bytes;
    bool legal;
} way;

/* Changes one dimension's entry; signatures in between are left to right, as theirs are. */
static void change(way *y, int d, tsr_sbp1 entry)
{
    tsr_sbp next = y->now;
    double cost = 0;
    int64_t bytes = 0;
    next.d[d] = entry;
    tsri_layout from = tsri_layout_of(&y->w->mesh, y->now), to = tsri_layout_of(&y->w->mesh, next);
    if (y->legal && !tsri_layout_equal(&from, &to)) {
        int a = rs_find(y->w, &from), b = rs_find(y->w, &to);
        y->legal = a >= 0 && b >= 0 && rs_step(y->w, a, b, &cost, &bytes);
    }
    y->cost += cost;
    y->bytes += bytes;
    y->now = next;
}

static const tsr_sbp1 broadcast = {TSR_SBP_BROADCAST, 0};

static bool same1(tsr_sbp1 a, tsr_sbp1 b)
{
    return a.kind == b.kind && a.arg == b.arg;
}

/* P to another P goes by way of B. */
static void forward(way *y, int d, tsr_sbp1 to)
{
    if (to.kind == TSR_SBP_PARTIAL && y->now.d[d].kind == TSR_SBP_PARTIAL &&
        !same1(to, y->now.d[d]))
        change(y, d, broadcast);
    if (!same1(to, y->now.d[d]))
        change(y, d, to);
}

/* OneFlow: the dimensions in some order, each by its one-dimensional way; the best legal order.
 * Else from the last dimension back to the first that differs to B, then forward. */
static way oneflow(const rs_world *w, tsr_sbp from, tsr_sbp to)
{
    int ndim = w->mesh.ndim, orders = 1, first = 0;
    way best = {.cost = INFINITY};
    for (int i = 2; i <= ndim; i++)
        orders *= i;
    for (int o = 0; o < orders; o++) {
        way y = {.w = w, .now = from, .legal = true};
        unsigned left = (1u << ndim) - 1;
        for (int i = ndim, code = o; i > 0; code /= i--) {
            int nth = code % i, d = 0;
            for (; !(left >> d & 1) || nth > 0; d++)
                nth -= left >> d & 1;
            left &= ~(1u << d);
            forward(&y, d, to.d[d]);
        }
        if (y.legal && y.cost < best.cost)
            best = y;
    }
    if (best.legal)
        return best;
    while (first < ndim && same1(from.d[first], to.d[first]))
        first++;
    way y = {.w = w, .now = from, .legal = true};
    for (int d = ndim - 1; d >= first; d--)
        change(&y, d, broadcast);
    for (int d = first; d < ndim; d++)
        forward(&y, d, to.d[d]);
    assert_true(y.legal);
    return y;
}

/* DTensor's greedy planner: from the last dimension gather every split that is not nested as in the
 * destination, then from the first bring each dimension to its entry. */
static way dtensor(const rs_world *w, tsr_sbp from, tsr_sbp to)
{
    int ndim = w->mesh.ndim;
    way y = {.w = w, .now = from, .legal = true};
    for (int d = ndim - 1; d >= 0; d--) {
        bool aligned = same1(y.now.d[d], to.d[d]);
        for (int e = 0; e < d; e++)
            aligned = aligned && same1(y.now.d[e], y.now.d[d]) == same1(to.d[e], to.d[d]);
        /* A signature can't have two kinds of P. */
        bool other = false;
        for (int e = 0; e < ndim && y.now.d[d].kind == TSR_SBP_PARTIAL; e++)
            other = other || (to.d[e].kind == TSR_SBP_PARTIAL && !same1(to.d[e], y.now.d[d]));
        if (other || (y.now.d[d].kind == TSR_SBP_SPLIT && !aligned && ndim > 1))
            change(&y, d, broadcast);
    }
    for (int d = 0; d < ndim; d++)
        forward(&y, d, to.d[d]);
    assert_true(y.legal);
    return y;
}

typedef struct tally {
    double *ratio;
    int n;
} tally;

static void report(const char *name, tally *t)
{
    double sum = 0;
    int over = 0;
    qsort(t->ratio, (size_t)t->n, sizeof *t->ratio, compare);
    for (int i = 0; i < t->n; i++) {
        sum += log(t->ratio[i]);
        over += t->ratio[i] > 2;
    }
    print_message("%s: %d pairs, geometric mean %.2f, p90 %.2f, most %.2f, over 2: %.0f %%\n", name,
                  t->n, exp(sum / t->n), t->ratio[t->n * 9 / 10], t->ratio[t->n - 1],
                  100.0 * over / t->n);
}

/* All pairs against both; without latency and local work, also in bytes. */
static void check_against(const tsri_cost_model *m, const tsri_mesh *mesh, tsr_dims shape,
                          int kinds, bool bytes_alone, tally *flow, tally *tensor)
{
    rs_world w;
    int n = rr_signatures(mesh->ndim, shape.ndim, kinds);
    rs_init(&w, m, mesh, shape, 4, kinds, 0);
    for (int i = 0; i < n * n; i++) {
        tsr_sbp from, to;
        if (!rr_signature(mesh->ndim, shape.ndim, kinds, i % n, &from) ||
            !rr_signature(mesh->ndim, shape.ndim, kinds, i / n, &to) || i % n == i / n)
            continue;
        tsri_route_query q = query(&w, from, to);
        tsri_route r = find(m, &q);
        way a = oneflow(&w, from, to), b = dtensor(&w, from, to);
        if (r.cost_s > a.cost * (1 + 1e-9) || r.cost_s > b.cost * (1 + 1e-9))
            fail_msg("%s: %g s; OneFlow's way %g, DTensor's %g", say(&q), r.cost_s, a.cost, b.cost);
        if (bytes_alone && (r.bytes > a.bytes || r.bytes > b.bytes))
            fail_msg("%s: %lld bytes; OneFlow's way %lld, DTensor's %lld", say(&q),
                     (long long)r.bytes, (long long)a.bytes, (long long)b.bytes);
        if (r.bytes > 0 && flow) {
            flow->ratio[flow->n++] = a.cost / r.cost_s;
            tensor->ratio[tensor->n++] = b.cost / r.cost_s;
        }
    }
    rs_finish(&w);
}

static void test_never_worse(void **unused)
{
    (void)unused;
    static const int dims[][3] = {{4}, {2, 2}, {2, 3}, {4, 8}, {2, 2, 2}},
                     ndims[] = {1, 2, 2, 2, 3};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < NMODELS; k++) {
            tsri_cost_model m = model(k);
            tsri_mesh mesh = rr_mesh(ndims[i], dims[i], NULL);
            check_against(&m, &mesh, TSR_DIMS(64, 48), 3, k == 4, NULL, NULL);
            check_against(&m, &mesh, TSR_DIMS(7, 300), 2, k == 4, NULL, NULL);
        }
    /* Four machines of eight, 64 MiB: the setting that the ways were compared in before. */
    tsri_cost_model cluster = {.nlinks = 2,
                               .link = {{8, 10e-6, 320e9}, {0, 20e-6, 50e9}},
                               .local_bytes_per_s = 2e12,
                               .flops_per_s = 1e14,
                               .kernel_s = 3e-6};
    static const int nodes[] = {4, 8};
    tsri_mesh mesh = rr_mesh(2, nodes, NULL);
    tally flow = {malloc(1000 * sizeof(double)), 0}, tensor = {malloc(1000 * sizeof(double)), 0};
    check_against(&cluster, &mesh, TSR_DIMS(256, 256, 256), 2, false, &flow, &tensor);
    report("OneFlow's way over ours", &flow);
    report("DTensor's way over ours", &tensor);
    free(flow.ratio);
    free(tensor.ratio);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best),        cmocka_unit_test(test_best_more_axes),
        cmocka_unit_test(test_others),      cmocka_unit_test(test_limit),
        cmocka_unit_test(test_never_worse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
