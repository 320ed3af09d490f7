/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All routes between small meshes against recorded lines: their number, what they cost, move and
 * need, their steps, and for each rank its group and bytes. The other suites prove that routes do
 * what they say and that none is cheaper; this notices another choice among equals, and other
 * figures. `route_record --print > tests/unit/sbp/route_record.inc` records anew after a change
 * that is meant.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sbp/route/joint.h"
#include "src/core/rng.h"
#include "tests/unit/record.h"
#include "tests/unit/sbp/route_run.h"

#include <stdio.h>
#include <string.h>

static const char *const recorded[] = {
#include "tests/unit/sbp/route_record.inc"
};

typedef struct summary {
    int found, refused, steps;
    double cost_s;
    int64_t bytes, peak;
    uint64_t hash;
} summary;

static void mix(summary *s, int64_t x)
{
    s->hash = tsri_hash(s->hash, &x, sizeof x);
}

/* Nine digits: sums may be taken in another order. */
static void mix_seconds(summary *s, double x)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%.9g", x);
    for (int i = 0; i < n; i++)
        mix(s, text[i]);
}

static void add_step(summary *s, const tsri_route_query *q, const tsri_route_step *step)
{
    int group[32];
    mix(s, step->kind);
    mix(s, step->dims);
    mix(s, step->op);
    mix(s, step->two_phase);
    mix(s, step->crosses);
    mix(s, step->bytes);
    mix_seconds(s, step->cost_s);
    for (int rank = 0; rank < 12; rank++) {
        int n = tsri_step_group(q, step, rank, group);
        int64_t bytes = tsri_step_bytes(q, step, rank);
        s->bytes += bytes;
        mix(s, bytes);
        for (int i = 0; i < n; i++)
            mix(s, group[i]);
    }
}

static void add_route(summary *s, const tsri_cost_model *m, const tsri_route_query *q)
{
    tsri_route r;
    if (tsri_route_find(m, q, &r) != TSR_OK) {
        s->refused++;
        for (const char *c = tsr_last_error(); *c; c++)
            mix(s, *c);
        return;
    }
    s->found++;
    s->steps += r.n;
    s->cost_s += r.cost_s;
    s->peak += r.peak_bytes;
    mix(s, r.n);
    mix(s, r.peak_bytes);
    mix_seconds(s, r.cost_s);
    mix_seconds(s, r.bound_s);
    for (int i = 0; i < r.n; i++)
        add_step(s, q, &r.step[i]);
}

/* Every conversion of a tensor of `shape` with its first axes in B, P and P(max), or split. */
static void record(const char *name, const tsri_cost_model *m, const tsri_mesh *a,
                   const tsri_mesh *b, tsr_dims shape, int kinds, int64_t most_bytes)
{
    summary s = {.hash = TSRI_HASH_INIT};
    for (int i = 0; i < rr_signatures(a->ndim, shape.ndim, kinds); i++)
        for (int j = 0; j < rr_signatures(b->ndim, shape.ndim, kinds); j++) {
            tsr_sbp from, to;
            if (!rr_signature(a->ndim, shape.ndim, kinds, i, &from) ||
                !rr_signature(b->ndim, shape.ndim, kinds, j, &to))
                continue;
            tsri_route_query q = {.shape = shape,
                                  .element = 4,
                                  .from.mesh = *a,
                                  .to.mesh = *b,
                                  .most_bytes = most_bytes};
            q.from.layout = tsri_layout_of(a, from);
            q.to.layout = tsri_layout_of(b, to);
            add_route(&s, m, &q);
            tsri_joint joint = {0};
            bool two = false;
            if (a == b && !most_bytes)
                joint = tsri_route_join(m, &q, &(tsri_route){0});
            if (joint.joins) {
                mix_seconds(&s, joint.alone_s);
                mix_seconds(&s, tsri_joint_price(&joint, 1, 0.5, &two));
                mix(&s, two);
            }
        }
    record_line(
        "%s: %d routes of %d steps, %d refused, %.9g s, %lld bytes moved, %lld needed, %08x", name,
        s.found, s.steps, s.refused, s.cost_s, (long long)s.bytes, (long long)s.peak,
        record_fold(s.hash));
}

static void test_routes(void **state)
{
    (void)state;
    static const int three[] = {3}, four[] = {4}, grid[] = {2, 2}, wide[] = {2, 3}, one[] = {1},
                     cube[] = {2, 1, 2}, away[] = {4, 5, 6, 7, 8, 9}, turned[] = {3, 1, 0, 2, 5, 4};
    const struct {
        const char *name;
        tsri_mesh mesh;
    } meshes[] = {
        {"4", rr_mesh(1, four, NULL)},        {"3 away", rr_mesh(1, three, away)},
        {"1", rr_mesh(1, one, NULL)},         {"2x2", rr_mesh(2, grid, NULL)},
        {"2x2 away", rr_mesh(2, grid, away)}, {"2x3 turned", rr_mesh(2, wide, turned)},
        {"2x1x2", rr_mesh(3, cube, NULL)},
    };
    enum { NMESHES = sizeof meshes / sizeof *meshes };
    tsri_cost_model models[2] = {tsri_cost_model_of(TSR_DEVICE_CPU),
                                 tsri_cost_model_of(TSR_DEVICE_CUDA)};
    models[1].nlinks = 2;
    models[1].link[0] = (tsri_link){2, 1e-6, 1e9};
    models[1].link[1] = (tsri_link){0, 1e-5, 1e8};
    char name[64];
    for (int i = 0; i < NMESHES; i++)
        for (int j = 0; j < NMESHES; j++)
            for (int k = 0; k < 4; k++) {
                bool large = meshes[i].mesh.ndim + meshes[j].mesh.ndim > 4;
                snprintf(name, sizeof name, "%s to %s, %d", meshes[i].name, meshes[j].name, k);
                record(name, &models[k % 2], &meshes[i].mesh, &meshes[j].mesh,
                       k == 3 ? TSR_DIMS(12, 24)
                       : k    ? TSR_DIMS(5, 700)
                              : TSR_DIMS(8, 12),
                       large ? 1 : 2, k == 3 ? 700 : 0);
            }
    record_end();
}

int main(int argc, char **argv)
{
    if (record_start(recorded, sizeof recorded / sizeof *recorded, argc, argv)) {
        test_routes(NULL);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_routes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
