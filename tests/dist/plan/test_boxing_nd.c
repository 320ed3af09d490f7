/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between any placements and signatures on real ranks: what every rank holds in the end
 * against the definition, and the bytes that the plan tells against those that the communicator
 * read. Many conversions a program, drawn by a seed; TESSERA_FULL draws 40 times as many programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/comm/comm.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"

enum { MAX_RANKS = 8, CONVERSIONS = 48, MAX_ELEMENTS = 8 * 8 * 8 };

/* A placement, for making the text of and for the definition. */
typedef struct mesh {
    int ndim, dim[TSR_MAX_HIERARCHY], nranks, rank[MAX_RANKS];
} mesh;

typedef struct conversion {
    mesh from, to;
    tsr_sbp a, b;
    tsr_dims shape;
    uint64_t seed;
} conversion;

typedef struct program {
    int nranks;
    conversion list[CONVERSIONS];
    double held[CONVERSIONS][MAX_RANKS][MAX_ELEMENTS]; /* what each rank has in the end */
} program;

/* --- drawing ---------------------------------------------------------------------------------- */
static uint64_t state;

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int draw(int n)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    return (int)((mix(state) >> 11) % (uint64_t)n);
}

static mesh draw_mesh(int world, int shape)
{
    static const int shapes[][5] = {/* ndim, dims */
                                    {1, 4},    {2, 2, 2}, {2, 2, 3},      {3, 2, 2, 2},
                                    {1, 1},    {1, 2},    {1, 3},         {2, 3, 2},
                                    {2, 1, 4}, {1, 8},    {4, 2, 1, 2, 2}};
    mesh m = {.nranks = 1};
    m.ndim = shapes[shape][0];
    for (int d = 0; d < m.ndim; d++)
        m.nranks *= m.dim[d] = shapes[shape][d + 1];
    int all[MAX_RANKS];
    for (int i = 0; i < world; i++)
        all[i] = i;
    bool shuffled = draw(3) == 0;
    int first = shuffled ? 0 : draw(world - m.nranks + 1);
    for (int i = 0; i < m.nranks; i++) {
        int j = shuffled ? i + draw(world - i) : i + first;
        int r = all[j];
        if (shuffled) {
            all[j] = all[i];
            all[i] = r;
        }
        m.rank[i] = r;
    }
    return m;
}

static tsr_sbp draw_sbp(const mesh *m, int ndim)
{
    tsr_sbp s = {.ndim = (int8_t)m->ndim};
    int reduction = draw(6) == 0 ? TSR_REDUCE_MAX : TSR_REDUCE_SUM;
    for (int d = 0; d < m->ndim; d++) {
        int what = draw(ndim + 2);
        s.d[d] = what == 0   ? (tsr_sbp1){TSR_SBP_BROADCAST, 0}
                 : what == 1 ? (tsr_sbp1){TSR_SBP_PARTIAL, (int8_t)reduction}
                             : (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)(what - 2)};
    }
    return s;
}

static void draw_program(program *p, uint64_t seed)
{
    static const int sizes[] = {0, 1, 2, 3, 5, 7, 8};
    state = seed;
    p->nranks = MAX_RANKS;
    for (int i = 0; i < CONVERSIONS; i++) {
        conversion *c = &p->list[i];
        int shape = draw(11);
        c->shape = (tsr_dims){.ndim = draw(4)};
        for (int j = 0; j < c->shape.ndim; j++)
            c->shape.d[j] = sizes[draw(7)];
        c->from = draw_mesh(p->nranks, draw(2) ? draw(4) : shape);
        c->to = draw(2) ? c->from : draw_mesh(p->nranks, draw(11));
        c->a = draw_sbp(&c->from, c->shape.ndim);
        c->b = draw_sbp(&c->to, c->shape.ndim);
        c->seed = mix(seed + (uint64_t)i);
    }
}

/* --- the definition --------------------------------------------------------------------------- */
/* The box of the rank at `at`: outer dimensions first, each one splitting what it is given. */
static void part_of(const mesh *m, tsr_sbp s, tsr_dims shape, int at, int64_t *begin, int64_t *size)
{
    int inner = m->nranks;
    for (int i = 0; i < shape.ndim; i++) {
        begin[i] = 0;
        size[i] = shape.d[i];
    }
    for (int d = 0; d < m->ndim; d++) {
        inner /= m->dim[d];
        int k = m->dim[d], c = at / inner % k;
        if (s.d[d].kind != TSR_SBP_SPLIT)
            continue;
        int axis = s.d[d].arg;
        int64_t n = size[axis], less = n / k, more = n % k;
        begin[axis] += c * less + (c < more ? c : more);
        size[axis] = less + (c < more);
    }
}

/* The number of the addend that the rank at `at` holds, and how many there are. */
static int addend_of(const mesh *m, tsr_sbp s, int at, int *out_n)
{
    int inner = m->nranks, number = 0;
    *out_n = 1;
    for (int d = 0; d < m->ndim; d++) {
        inner /= m->dim[d];
        if (s.d[d].kind == TSR_SBP_PARTIAL) {
            number = number * m->dim[d] + at / inner % m->dim[d];
            *out_n *= m->dim[d];
        }
    }
    return number;
}

static bool is_max(tsr_sbp s)
{
    for (int d = 0; d < s.ndim; d++)
        if (s.d[d].kind == TSR_SBP_PARTIAL)
            return s.d[d].arg == TSR_REDUCE_MAX;
    return false;
}

/* Whole numbers of both signs: sums are exact. */
static double element(const conversion *c, int addend, int64_t at)
{
    return (double)(mix(c->seed + (uint64_t)(addend * 100003 + at)) % 2001) - 1000;
}

static double whole(const conversion *c, int64_t at)
{
    int n;
    addend_of(&c->from, c->a, 0, &n);
    double v = element(c, 0, at);
    for (int i = 1; i < n; i++) {
        double e = element(c, i, at);
        v = is_max(c->a) ? (e > v ? e : v) : v + e;
    }
    return v;
}

/* Goes through the elements of a part: their global numbers. Returns how many. */
static int64_t numbers(tsr_dims shape, const int64_t *begin, const int64_t *size, int64_t *out)
{
    int64_t at[TSR_MAX_NDIM] = {0}, n = 1;
    for (int i = 0; i < shape.ndim; i++)
        n *= size[i];
    for (int64_t e = 0; e < n; e++) {
        int64_t number = 0;
        for (int i = 0; i < shape.ndim; i++)
            number = number * shape.d[i] + begin[i] + at[i];
        out[e] = number;
        for (int i = shape.ndim - 1; i >= 0 && ++at[i] == size[i]; i--)
            at[i] = 0;
    }
    return n;
}

static int find(const mesh *m, int rank)
{
    for (int i = 0; i < m->nranks; i++)
        if (m->rank[i] == rank)
            return i;
    return -1;
}

/* Whether a rank is the first of its broadcast groups: from_local takes its value. */
static bool is_first(const mesh *m, tsr_sbp s, int at)
{
    int inner = m->nranks;
    for (int d = 0; d < m->ndim; d++) {
        inner /= m->dim[d];
        if (s.d[d].kind == TSR_SBP_BROADCAST && at / inner % m->dim[d])
            return false;
    }
    return true;
}

/* --- the program ------------------------------------------------------------------------------ */
static tsr_status feed(tsr_plan *plan, const program *p, int rank)
{
    for (int i = 0; i < CONVERSIONS; i++) {
        const conversion *c = &p->list[i];
        int at = find(&c->from, rank), n;
        if (at < 0)
            continue;
        char name[16];
        double data[MAX_ELEMENTS];
        int64_t begin[TSR_MAX_NDIM], size[TSR_MAX_NDIM], number[MAX_ELEMENTS];
        part_of(&c->from, c->a, c->shape, at, begin, size);
        int64_t count = numbers(c->shape, begin, size, number);
        int addend = addend_of(&c->from, c->a, at, &n);
        for (int64_t e = 0; e < count; e++)
            data[e] = is_first(&c->from, c->a, at) ? element(c, addend, number[e]) : 0.5;
        snprintf(name, sizeof name, "x%d", i);
        TSRI_TRY(tsr_feed_shard(plan, name, data, (size_t)count * sizeof *data));
    }
    return TSR_OK;
}

static uint64_t bytes_read(const tsr_world *w)
{
    tsri_comm_stats stats;
    uint64_t sum = 0;
    tsri_plan_stats(w, &stats);
    for (int i = 0; i < TSRI_COLL_KIND_COUNT_; i++)
        sum += stats.bytes_read[i];
    return sum;
}

static const tsr_placement *placement_of(tsr_world *w, const mesh *m)
{
    return tsr_placement_create(w, TSR_DEVICE_CPU, m->ndim, m->dim, m->rank);
}

static tsr_status convert(tsr_world *w, void *arg)
{
    program *p = arg;
    int rank = tsr_world_rank(w);
    tsr_graph *g = tsr_graph_create(w, NULL);
    char name[16];
    for (int i = 0; i < CONVERSIONS; i++) {
        const conversion *c = &p->list[i];
        snprintf(name, sizeof name, "x%d", i);
        tsr_tensor *x = tsr_from_local(g, name, TSR_F64, c->shape, placement_of(w, &c->from), c->a);
        name[0] = 'y';
        tsr_to_local(g, name, tsr_to_global(x, placement_of(w, &c->to), c->b));
    }
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    tsr_plan_info info = {.size = sizeof info};
    TSRI_TRY(tsr_plan_get_info(plan, &info));
    TSRI_TRY(feed(plan, p, rank));
    for (int run = 0; run < 2; run++) {
        uint64_t before = bytes_read(w);
        TSRI_TRY(tsr_run(plan));
        CHECK(bytes_read(w) - before == info.comm_bytes);
    }
    for (int i = 0; i < CONVERSIONS; i++) {
        const conversion *c = &p->list[i];
        int at = find(&c->to, rank);
        if (at < 0)
            continue;
        int64_t begin[TSR_MAX_NDIM], size[TSR_MAX_NDIM];
        tsr_dims dims;
        snprintf(name, sizeof name, "y%d", i);
        part_of(&c->to, c->b, c->shape, at, begin, size);
        int64_t n = 1;
        for (int j = 0; j < c->shape.ndim; j++)
            n *= size[j];
        TSRI_TRY(tsr_fetch_shard(plan, name, p->held[i][rank], (size_t)n * sizeof(double), &dims));
        CHECK(dims.ndim == c->shape.ndim);
        CHECK(!memcmp(dims.d, size, (size_t)dims.ndim * sizeof *size));
    }
    return TSR_OK;
}

static void describe(const conversion *c, char *buf, size_t size)
{
    char a[TSR_SBP_TEXT_MAX], b[TSR_SBP_TEXT_MAX], dims[64] = "";
    for (int i = 0; i < c->shape.ndim; i++)
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%lld,",
                 (long long)c->shape.d[i]);
    snprintf(buf, size, "(%s) %s on %d-D mesh of %d from rank %d -> %s on %d-D mesh of %d from %d",
             dims, tsr_sbp_format(c->a, a), c->from.ndim, c->from.nranks, c->from.rank[0],
             tsr_sbp_format(c->b, b), c->to.ndim, c->to.nranks, c->to.rank[0]);
}

/* Holds what the ranks have against the definition. */
static int64_t check(const program *p)
{
    static double sum[MAX_ELEMENTS];
    int64_t checked = 0;
    for (int i = 0; i < CONVERSIONS; i++) {
        const conversion *c = &p->list[i];
        for (int r = 0; r < c->to.nranks; r++) {
            int64_t begin[TSR_MAX_NDIM], size[TSR_MAX_NDIM], number[MAX_ELEMENTS];
            int n, addend = addend_of(&c->to, c->b, r, &n);
            if (addend)
                continue; /* with the first of its group */
            part_of(&c->to, c->b, c->shape, r, begin, size);
            int64_t count = numbers(c->shape, begin, size, number);
            memcpy(sum, p->held[i][c->to.rank[r]], (size_t)count * sizeof *sum);
            /* The other addends: ranks with the same part and the same coordinates otherwise. */
            for (int q = 0; q < c->to.nranks; q++) {
                int inner = c->to.nranks;
                bool same = q != r;
                for (int d = 0; d < c->to.ndim; d++) {
                    inner /= c->to.dim[d];
                    same &= c->b.d[d].kind == TSR_SBP_PARTIAL ||
                            q / inner % c->to.dim[d] == r / inner % c->to.dim[d];
                }
                for (int64_t e = 0; e < count && same; e++) {
                    double v = p->held[i][c->to.rank[q]][e];
                    sum[e] = is_max(c->b) ? (v > sum[e] ? v : sum[e]) : sum[e] + v;
                }
            }
            for (int64_t e = 0; e < count; e++, checked++)
                if (sum[e] != whole(c, number[e])) {
                    char text[512];
                    describe(c, text, sizeof text);
                    fail_msg("conversion %d: %s: element %lld of rank %d is %g, not %g", i, text,
                             (long long)number[e], c->to.rank[r], sum[e], whole(c, number[e]));
                }
        }
    }
    return checked;
}

static void test_conversions(void **unused)
{
    (void)unused;
    static program p;
    int programs = getenv("TESSERA_FULL") ? 2000 : 50;
    int64_t checked = 0;
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
    for (int i = 0; i < programs; i++) {
        draw_program(&p, (uint64_t)i + 1);
        if (tsr_spawn_with(p.nranks, convert, &p, &opts) != TSR_OK)
            fail_msg("program %d: %s", i, tsr_last_error());
        checked += check(&p);
    }
    print_message("%d conversions, %lld elements\n", programs * CONVERSIONS, (long long)checked);
    assert_true(checked > programs * CONVERSIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conversions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
