/* SPDX-License-Identifier: Apache-2.0 */
/* Routes between meshes, named examples, costs of many conversions, errors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sbp/route/route.h"
#include "tests/unit/sbp/route_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int away[] = {4, 5, 6, 7};
enum { MIB = 1 << 20 };

static tsri_mesh line(int n, const int *rank)
{
    return rr_mesh(1, &n, rank);
}

static tsri_mesh grid(int n, int m, const int *rank)
{
    const int dim[] = {n, m};
    return rr_mesh(2, dim, rank);
}

static tsri_route_query query(tsr_dims shape, tsri_mesh a, const char *from, tsri_mesh b,
                              const char *to)
{
    tsri_route_query q = {.shape = shape, .element = 4, .from.mesh = a, .to.mesh = b};
    tsr_sbp s;
    assert_int_equal(tsr_sbp_parse(from, &s), TSR_OK);
    q.from.layout = tsri_layout_of(&a, s);
    assert_int_equal(tsr_sbp_parse(to, &s), TSR_OK);
    q.to.layout = tsri_layout_of(&b, s);
    return q;
}

/* The route of a tensor of 1 MiB on one machine. */
static tsri_route find(const tsri_route_query *q)
{
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU);
    tsri_route r;
    char why[RR_WHY] = "";
    assert_int_equal(tsri_route_find(&m, q, &r), TSR_OK);
    if (q->shape.d[0] <= 512 && !rr_run(q, &r, 5, why))
        fail_msg("%s", why);
    return r;
}

static int64_t all_bytes(const tsri_route_query *q, const tsri_route *r)
{
    int64_t sum = 0;
    for (int i = 0; i < r->n; i++)
        for (int rank = 0; rank < 64; rank++)
            sum += tsri_step_bytes(q, &r->step[i], rank);
    return sum;
}

/* A route of one step on a mesh or across, of so many bytes over all ranks; local ones may follow.
 */
static void check_one(tsri_mesh a, const char *from, tsri_mesh b, const char *to,
                      tsri_box_kind kind, int64_t bytes)
{
    tsri_route_query q = query(TSR_DIMS(64, 4096), a, from, b, to);
    tsri_route r = find(&q);
    assert_int_equal(r.step[0].kind, kind);
    for (int i = 1; i < r.n; i++)
        assert_false(tsri_box_is_collective(r.step[i].kind));
    assert_int_equal(all_bytes(&q, &r), bytes);
}

static void test_examples(void **unused)
{
    (void)unused;
    static const int third[] = {2}, ninth[] = {9};
    tsri_mesh four = line(4, NULL), other = line(4, away), square = grid(2, 2, NULL);
    tsri_mesh inside = line(1, third), outside = line(1, ninth), two = line(2, NULL);
    /* On one mesh. */
    check_one(four, "P", four, "B", TSRI_BOX_ALL_REDUCE, 6 * MIB);
    check_one(four, "S(1)", four, "B", TSRI_BOX_ALL_GATHER, 3 * MIB);
    check_one(four, "P", four, "S(1)", TSRI_BOX_REDUCE_SCATTER, 3 * MIB);
    check_one(four, "S(0)", four, "S(1)", TSRI_BOX_ALL_TO_ALL, 3 * MIB / 4);
    check_one(four, "B", four, "S(1)", TSRI_BOX_SLICE, 0);
    check_one(four, "B", four, "P(max)", TSRI_BOX_RELABEL, 0);
    check_one(square, "(P,P)", square, "B", TSRI_BOX_ALL_REDUCE, 6 * MIB);
    check_one(square, "(P,B)", square, "(S(0),S(0))", TSRI_BOX_SEND_RECV, MIB);
    check_one(square, "(B,S(0))", square, "(S(0),S(0))", TSRI_BOX_SEND_RECV, MIB / 2);
    check_one(square, "(S(0),B)", square, "(B,S(0))", TSRI_BOX_SEND_RECV, MIB);
    /* Gathers to one rank, nothing for the others; it is one of them, or not. */
    check_one(four, "S(0)", inside, "B", TSRI_BOX_SEND_RECV, 3 * MIB / 4);
    check_one(four, "S(1)", outside, "B", TSRI_BOX_SEND_RECV, MIB);
    check_one(four, "B", inside, "B", TSRI_BOX_SEND_RECV, 0);
    check_one(inside, "B", four, "B", TSRI_BOX_SEND_RECV, 3 * MIB);
    check_one(inside, "B", four, "S(0)", TSRI_BOX_SEND_RECV, 3 * MIB / 4);
    /* Scattered, then each among zeros. */
    check_one(inside, "B", four, "P", TSRI_BOX_SEND_RECV, 3 * MIB / 4);
    /* Elsewhere: every rank gets its part once, every addend goes once. */
    check_one(four, "B", other, "B", TSRI_BOX_SEND_RECV, 4 * MIB);
    check_one(four, "S(0)", other, "S(1)", TSRI_BOX_SEND_RECV, MIB);
    check_one(four, "P", other, "P", TSRI_BOX_SEND_RECV, 4 * MIB);
    check_one(four, "S(0)", other, "P", TSRI_BOX_SEND_RECV, MIB);
    /* A larger mesh that holds the smaller takes what it lacks. */
    check_one(two, "B", four, "B", TSRI_BOX_SEND_RECV, 2 * MIB);
    check_one(two, "P", four, "P", TSRI_BOX_SEND_RECV, 0);
}

/* P -> B elsewhere: shares are reduced once and gathered, not n * m tensors sent; and P -> one rank
 * reads every addend once, spread over the ranks that have them. */
static void test_reduce_elsewhere(void **unused)
{
    (void)unused;
    static const int ninth[] = {9};
    tsri_mesh four = line(4, NULL), other = line(4, away), one = line(1, ninth);
    tsri_route_query q = query(TSR_DIMS(64, 4096), four, "P", other, "B");
    tsri_route r = find(&q);
    assert_int_equal(all_bytes(&q, &r), 7 * MIB);
    assert_int_equal(r.bytes, 7 * MIB / 4);
    q = query(TSR_DIMS(64, 4096), four, "P", one, "B");
    r = find(&q);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.step[0].kind, TSRI_BOX_REDUCE_SCATTER);
    assert_int_equal(all_bytes(&q, &r), 4 * MIB);
    assert_int_equal(r.bytes, 7 * MIB / 4);
}

/* Readers of copies take turns, addends keep their number. */
static void test_who_reads(void **unused)
{
    (void)unused;
    static const char *const kinds[] = {"B", "P"};
    for (int k = 0; k < 2; k++) {
        tsri_route_query q =
            query(TSR_DIMS(8, 8), line(4, NULL), kinds[k], line(4, away), kinds[k]);
        tsri_route r = find(&q);
        for (int i = 0; i < 4; i++) {
            tsri_pool pool = {0};
            tsri_piece *pieces;
            bool fill;
            int n;
            assert_int_equal(tsri_step_pieces(&pool, &q, &r.step[0], 4 + i, &n, &pieces, &fill),
                             TSR_OK);
            assert_int_equal(n, 1);
            assert_int_equal(pieces[0].nsrc, 1);
            assert_int_equal(pieces[0].src[0], i);
            assert_false(fill);
            tsri_pool_finish(&pool);
        }
    }
}

/* The same parts on the same ranks in another hierarchy: no bytes, a kernel's start. */
static void test_other_hierarchy(void **unused)
{
    (void)unused;
    static const struct {
        const char *from, *to;
    } same[] = {{"S(0)", "(S(0),S(0))"}, {"B", "(B,B)"}, {"P", "(P,P)"}, {"S(1)", "(S(1),S(1))"}};
    double kernel_s = tsri_cost_model_of(TSR_DEVICE_CPU).kernel_s;
    for (int i = 0; i < 4; i++) {
        tsri_route_query q =
            query(TSR_DIMS(7, 9), line(4, NULL), same[i].from, grid(2, 2, NULL), same[i].to);
        tsri_route r = find(&q);
        assert_int_equal(r.n, 1);
        assert_int_equal(r.bytes, 0);
        assert_true(r.cost_s == kernel_s);
    }
}

/* On four machines of eight, a sum is scattered inside, reduced between and gathered inside. */
static void test_two_levels(void **unused)
{
    (void)unused;
    static const tsri_box_kind kinds[] = {TSRI_BOX_REDUCE_SCATTER, TSRI_BOX_ALL_REDUCE,
                                          TSRI_BOX_ALL_GATHER};
    static const int dims[] = {2, 1, 2};
    tsri_cost_model m = {.nlinks = 2,
                         .link = {{8, 10e-6, 320e9}, {0, 20e-6, 50e9}},
                         .local_bytes_per_s = 2e12,
                         .kernel_s = 3e-6};
    tsri_route_query q =
        query(TSR_DIMS(4096, 4096), grid(4, 8, NULL), "(P,P)", grid(4, 8, NULL), "(B,B)");
    tsri_route r;
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_OK);
    assert_int_equal(r.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r.step[i].kind, kinds[i]);
        assert_int_equal(r.step[i].dims, dims[i]);
    }
}

/* One dimension, even sizes, one link: the cost in closed form, from the definition of the steps.
 */
static double one_dimension(const tsri_cost_model *m, tsr_sbp1 from, tsr_sbp1 to, double bytes)
{
    const double n = 4, whole = bytes / m->local_bytes_per_s;
    const double talk = m->link[0].latency_s, read = bytes / m->link[0].bytes_per_s;
    if (from.kind == to.kind && from.arg == to.arg)
        return 0;
    if (from.kind == TSR_SBP_BROADCAST)
        return m->kernel_s + (to.kind == TSR_SBP_SPLIT ? 2 * whole / n : whole);
    if (from.kind == TSR_SBP_PARTIAL && to.kind == TSR_SBP_BROADCAST)
        return whole + fmin(talk + read * (n - 1), 2 * talk + 2 * read * (n - 1) / n);
    if (from.kind == TSR_SBP_PARTIAL)
        return talk + read * (n - 1) / n + whole / n;
    if (to.kind == TSR_SBP_PARTIAL)
        return m->kernel_s + whole;
    return to.kind == TSR_SBP_BROADCAST ? talk + read * (n - 1) / n + whole
                                        : talk + read * (n - 1) / (n * n) + whole / n;
}

static void test_one_dimension(void **unused)
{
    (void)unused;
    static const char *const sigs[] = {"S(0)", "S(1)", "B", "P"};
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU);
    for (int rows = 8; rows <= 8192; rows *= 32)
        for (int i = 0; i < 16; i++) {
            tsri_route_query q =
                query(TSR_DIMS(rows, 64), line(4, NULL), sigs[i % 4], line(4, NULL), sigs[i / 4]);
            tsri_route r = find(&q);
            double want =
                one_dimension(&m, q.from.layout.sbp.d[0], q.to.layout.sbp.d[0], rows * 64.0 * 4);
            assert_true(fabs(r.cost_s - want) <= 1e-12 * want);
        }
}

/* Bytes that the busiest rank reads from layout x to y, where no addend goes to an addend. */
static double crossing_bytes(const rs_world *a, int x, const rs_world *b, int y)
{
    const tsri_layout *lx = &a->at[x].layout, *ly = &b->at[y].layout;
    double most = 0;
    for (int j = 0; j < b->mesh.nranks; j++) {
        int64_t begin[TSR_MAX_NDIM], length[TSR_MAX_NDIM], bx[TSR_MAX_NDIM], nx[TSR_MAX_NDIM];
        double need = 1, own = 1;
        int left = j, i = 0;
        rr_part(b->shape, &b->mesh, ly, j, begin, length);
        for (int axis = 0; axis < b->shape.ndim; axis++)
            need *= (double)length[axis];
        for (int d = 0; d < a->mesh.ndim; d++)
            need *= lx->sbp.d[d].kind == TSR_SBP_PARTIAL ? a->mesh.dim[d] : 1;
        for (int d = b->mesh.ndim - 1; d >= 0; left /= b->mesh.dim[d--])
            if (ly->sbp.d[d].kind == TSR_SBP_PARTIAL && left % b->mesh.dim[d] > 0)
                need = own = 0;
        while (i < a->mesh.nranks && tsri_mesh_rank(&a->mesh, i) != tsri_mesh_rank(&b->mesh, j))
            i++;
        if (i < a->mesh.nranks) {
            rr_part(a->shape, &a->mesh, lx, i, bx, nx);
            for (int axis = 0; axis < b->shape.ndim; axis++) {
                int64_t low = bx[axis] > begin[axis] ? bx[axis] : begin[axis];
                int64_t p = bx[axis] + nx[axis], q = begin[axis] + length[axis];
                own *= (double)((p < q ? p : q) > low ? (p < q ? p : q) - low : 0);
            }
            need -= own;
        }
        most = fmax(most, need);
    }
    return most * (double)b->element;
}

static bool same_parts(const rs_world *a, int x, const rs_world *b, int y)
{
    for (int j = 0; j < b->mesh.nranks; j++)
        for (int i = 0; i < a->mesh.nranks; i++) {
            int64_t p[2][TSR_MAX_NDIM] = {{0}}, q[2][TSR_MAX_NDIM] = {{0}};
            if (tsri_mesh_rank(&a->mesh, i) != tsri_mesh_rank(&b->mesh, j))
                continue;
            rr_part(a->shape, &a->mesh, &a->at[x].layout, i, p[0], p[1]);
            rr_part(b->shape, &b->mesh, &b->at[y].layout, j, q[0], q[1]);
            if (memcmp(p, q, sizeof p) != 0)
                return false;
        }
    return true;
}

static bool has_partial(const tsri_layout *l)
{
    for (int d = 0; d < l->sbp.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_PARTIAL)
            return true;
    return false;
}

/* Between meshes over one link: the best of all ways to all layouts of the source, a crossing, and
 * all ways on from there. P is at one end at most. */
static void check_crossings(const tsri_cost_model *m, const tsri_mesh *a, const tsri_mesh *b,
                            tsr_dims shape)
{
    rs_world wa, wb;
    rs_init(&wa, m, a, shape, 4, 2, 0);
    rs_init(&wb, m, b, shape, 4, 2, 0);
    double *cross = malloc((size_t)(wa.n * wb.n) * sizeof *cross);
    double *ahead = malloc((size_t)wa.n * sizeof *ahead);
    double *after = malloc((size_t)wb.n * sizeof *after);
    for (int x = 0; x < wa.n; x++)
        for (int y = 0; y < wb.n; y++) {
            double bytes = crossing_bytes(&wa, x, &wb, y), part = (double)wb.at[y].most * 4;
            double *c = &cross[x * wb.n + y];
            *c = m->kernel_s + 2 * part / m->local_bytes_per_s;
            if (bytes > 0)
                *c = m->link[0].latency_s + bytes / m->link[0].bytes_per_s +
                     part / m->local_bytes_per_s;
            else if (same_parts(&wa, x, &wb, y))
                *c = m->kernel_s;
        }
    for (int t = 0; t < wb.n; t++) {
        const tsri_layout *to = &wb.at[t].layout;
        if (!tsri_layout_in_order(to))
            continue;
        for (int y = 0; y < wb.n; y++) {
            double *cost = malloc((size_t)wb.n * sizeof *cost);
            bool off = has_partial(&wb.at[y].layout) && !has_partial(to);
            rs_costs(&wb, &wb.at[y].layout, to, cost);
            after[y] = off ? INFINITY : rs_best(&wb, cost, t);
            free(cost);
        }
        for (int f = 0; f < wa.n; f++) {
            const tsri_layout *from = &wa.at[f].layout;
            if (!tsri_layout_in_order(from) || (has_partial(from) && has_partial(to)))
                continue;
            rs_costs(&wa, from, from, ahead);
            double best = INFINITY;
            for (int x = 0; x < wa.n; x++)
                for (int y = 0; y < wb.n; y++)
                    best = fmin(best, ahead[x] + cross[x * wb.n + y] + after[y]);
            tsri_route_query q = {shape, 4, {*a, *from}, {*b, *to}, 0};
            tsri_route r;
            char p[TSRI_LAYOUT_TEXT_MAX], s[TSRI_LAYOUT_TEXT_MAX];
            assert_int_equal(tsri_route_find(m, &q, &r), TSR_OK);
            if (fabs(r.cost_s - best) > 1e-9 * best || r.bound_s > r.cost_s)
                fail_msg("%s -> %s: %g; the best way takes %g", tsri_layout_format(from, p),
                         tsri_layout_format(to, s), r.cost_s, best);
        }
    }
    free(cross);
    free(ahead);
    free(after);
    rs_finish(&wa);
    rs_finish(&wb);
}

static void test_best_crossing(void **unused)
{
    (void)unused;
    static const int swapped[] = {2, 0, 3, 1}, some[] = {3, 4, 5}, apart[] = {6, 7, 8, 9};
    tsri_mesh four = line(4, NULL), square = grid(2, 2, swapped), three = line(3, some),
              elsewhere = grid(2, 2, apart);
    const tsri_mesh *meshes[] = {&four, &square, &three, &elsewhere};
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU), slow = m;
    slow.link[0] = (tsri_link){0, 1e-6, 1e7};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            if (i == j)
                continue;
            check_crossings(&m, meshes[i], meshes[j], TSR_DIMS(300, 500));
            check_crossings(&slow, meshes[i], meshes[j], TSR_DIMS(7, 10));
        }
}

/* Many costs at once are those of one by one. */
static void check_costs(const tsri_cost_model *m, const tsri_mesh *a, const tsri_mesh *b,
                        tsr_dims shape, int kinds)
{
    tsr_sbp from[256], to[256];
    int nfrom = 0, nto = 0;
    float *cost = malloc(sizeof(float) * 256 * 256);
    for (int i = 0; i < rr_signatures(a->ndim, shape.ndim, kinds); i++)
        nfrom += rr_signature(a->ndim, shape.ndim, kinds, i, &from[nfrom]);
    for (int i = 0; i < rr_signatures(b->ndim, shape.ndim, kinds); i++)
        nto += rr_signature(b->ndim, shape.ndim, kinds, i, &to[nto]);
    to[nto++] = to[0]; /* one may come twice */
    assert_int_equal(tsri_route_costs(m, NULL, shape, 4, a, nfrom, from, b, nto, to, cost), TSR_OK);
    for (int i = 0; i < nfrom * nto; i++) {
        tsri_route_query q = {.shape = shape, .element = 4, .from.mesh = *a, .to.mesh = *b};
        tsri_route r;
        q.from.layout = tsri_layout_of(a, from[i / nto]);
        q.to.layout = tsri_layout_of(b, to[i % nto]);
        assert_int_equal(tsri_route_find(m, &q, &r), TSR_OK);
        assert_true(fabs((double)cost[i] - r.cost_s) <= 1e-6 * r.cost_s);
    }
    free(cost);
}

static void test_costs(void **unused)
{
    (void)unused;
    static const int three[] = {2, 2, 2};
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU), two = m;
    two.nlinks = 2;
    two.link[0] = (tsri_link){2, 1e-6, 1e9};
    two.link[1] = (tsri_link){0, 1e-5, 1e8};
    tsri_mesh four = line(4, NULL), square = grid(2, 3, NULL), cube = rr_mesh(3, three, NULL),
              other = grid(2, 2, away);
    for (int k = 0; k < 2; k++) {
        check_costs(k ? &two : &m, &four, &four, TSR_DIMS(30, 40), 3);
        check_costs(k ? &two : &m, &square, &square, TSR_DIMS(30, 400, 7, 20), 2);
        check_costs(k ? &two : &m, &square, &square, TSR_DIMS(3, 40), 3);
        check_costs(k ? &two : &m, &cube, &cube, TSR_DIMS(30, 40), 2);
        check_costs(k ? &two : &m, &four, &square, TSR_DIMS(300, 40), 3);
        check_costs(k ? &two : &m, &square, &other, TSR_DIMS(300, 40), 2);
    }
}

/* Every allocation of it may fail. */
static void test_costs_no_memory(void **unused)
{
    (void)unused;
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU);
    tsri_mesh square = grid(2, 2, NULL), other = line(3, away);
    tsr_sbp sigs[16], flat[] = {TSR_S(0), TSR_B};
    float cost[256];
    for (int i = 0; i < 16; i++)
        (void)rr_signature(2, 2, 2, i, &sigs[i]);
    for (int across = 0; across < 2; across++) {
        int64_t n = 0;
        tsr_status status = TSR_ERR_NO_MEMORY;
        while (status != TSR_OK) {
            tsri_mem mem = {.fail_countdown = ++n};
            status = tsri_route_costs(&m, &mem, TSR_DIMS(8, 8), 4, &square, 16, sigs,
                                      across ? &other : &square, across ? 2 : 16,
                                      across ? flat : sigs, cost);
            assert_true(status == TSR_OK || status == TSR_ERR_NO_MEMORY);
        }
        assert_true(n > 5);
    }
}

static void test_errors(void **unused)
{
    (void)unused;
    tsri_cost_model m = tsri_cost_model_of(TSR_DEVICE_CPU);
    tsri_mesh square = grid(2, 2, NULL), four = line(4, NULL);
    tsri_route_query q = query(TSR_DIMS(8, 8), square, "(P,B)", square, "(S(0),B)");
    tsri_route r = {.n = 77};
    q.from.layout.sbp.d[1] = (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_MAX};
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_ERR_UNSUPPORTED);
    assert_non_null(strstr(tsr_last_error(), "(P,P(max))"));
    q.from.layout.sbp.d[1] = (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_AVG};
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_ERR_SBP);
    assert_non_null(strstr(tsr_last_error(), "reduction 4"));
    q = query(TSR_DIMS(8, 8), four, "B", four, "S(2)");
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_ERR_SBP);
    assert_non_null(strstr(tsr_last_error(), "axis 2"));
    /* The leanest way: scatter to a quarter, 5/4 of 256 bytes; then the rest. */
    q = query(TSR_DIMS(8, 8), four, "P", four, "S(0)");
    q.most_bytes = 319;
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_ERR_SBP);
    assert_non_null(strstr(tsr_last_error(), "needs 320"));
    assert_int_equal(r.n, 77);
    q.most_bytes = 320;
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_OK);
    assert_int_equal(r.peak_bytes, 320);
    /* Between meshes as well: shared ranks hold both parts. */
    q = query(TSR_DIMS(8, 8), four, "S(0)", square, "(B,B)");
    q.most_bytes = 300;
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_ERR_SBP);
    assert_non_null(strstr(tsr_last_error(), "needs 320"));
    q.most_bytes = 320;
    assert_int_equal(tsri_route_find(&m, &q, &r), TSR_OK);
    assert_true(r.peak_bytes <= 320);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),        cmocka_unit_test(test_reduce_elsewhere),
        cmocka_unit_test(test_who_reads),       cmocka_unit_test(test_other_hierarchy),
        cmocka_unit_test(test_two_levels),      cmocka_unit_test(test_one_dimension),
        cmocka_unit_test(test_best_crossing),   cmocka_unit_test(test_costs),
        cmocka_unit_test(test_costs_no_memory), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
