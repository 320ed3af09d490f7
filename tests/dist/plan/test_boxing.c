/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxing through whole plans: every conversion of every kind of tensor on 1 to 8 ranks, its values
 * against a plain oracle, and what was communicated against what the plan says. TESSERA_FULL: all
 * shapes, not a sample.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "tests/dist/comm/comm_in_use.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/recorder.h"
#include "tests/sample.h"

#define CHECK(cond)                                                                       \
    do {                                                                                  \
        if (!(cond))                                                                      \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %.900s", __FILE__, \
                             __LINE__, #cond, tsr_last_error());                          \
    } while (0)

enum { MAX_RANKS = 8, MAX_AXES = 3, MAX_CODES = MAX_AXES + 4, NDTYPES = 4, MAX_COUNT = 512 };

static const tsr_dtype dtypes[NDTYPES] = {TSR_F32, TSR_F64, TSR_I64, TSR_U8};
static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

/* Numbers in [0, n), the same on every rank. */
static int draw(uint64_t *state, int n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((*state >> 33) % (uint64_t)n);
}

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

/* --- the recorder ----------------------------------------------------------------------------- */

/* One run of a plan under watch: what was asked of the communicator, and what it read, is what the
 * plan says. */
static tsr_status run_watched(tsr_plan *plan)
{
    tsri_comm *recorder = *comm_in_use(plan->ir.world);
    tsri_comm_stats before, after;
    uint64_t planned[TSRI_COLL_KIND_COUNT_] = {0}, all = 0;
    int count, at = 0;
    recorder_clear(recorder);
    recorder->ops->stats(recorder, &before);
    TSRI_TRY(tsr_run(plan));
    recorder->ops->stats(recorder, &after);
    const recorded_call *r = recorder_calls(recorder, &count);
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kind != TSRI_STEP_START)
            continue;
        CHECK(at < count);
        CHECK(r[at].kind == s->call->coll.kind && r[at].op == s->call->coll.op);
        CHECK(r[at].nranks == tsr_placement_nranks(s->item->placement));
        CHECK(r[at].bytes == s->call->bytes);
        planned[r[at].kind] += s->call->bytes;
        all += s->call->bytes;
        at++;
    }
    CHECK(at == count);
    CHECK(at == plan->info.collectives && all == plan->info.comm_bytes);
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++)
        CHECK(after.bytes_read[k] - before.bytes_read[k] == planned[k]);
    return TSR_OK;
}

typedef tsr_status program_fn(tsr_world *w, void *arg);

/* Runs a program with a recorder around the communicator that it uses. */
static tsr_status with_recorder(tsr_world *w, program_fn *program, void *arg)
{
    TSRI_TRY(connect_ranks(w));
    tsri_comm **slot = comm_in_use(w), *inner = *slot, *recorder;
    TSRI_TRY(recorder_create(inner, &recorder));
    *slot = recorder;
    tsr_status status = program(w, arg);
    *slot = inner;
    recorder->ops->destroy(recorder);
    return status;
}

/* --- all conversions of one shape ------------------------------------------------------------- */

typedef struct boxing {
    tsr_dims dims;
    int nranks, ncodes;
    bool local; /* the value enters by from_local and leaves by to_local */
    uint64_t seed;
    double value[MAX_COUNT];
    double part[MAX_CODES][MAX_RANKS][MAX_COUNT]; /* of the input in each signature */
    double result[NDTYPES][MAX_CODES][MAX_CODES][MAX_RANKS][MAX_COUNT];
} boxing;

static tsr_sbp sbp_of(const boxing *b, int code)
{
    const tsr_sbp rest[4] = {TSR_B, TSR_P, TSR_P_MAX, TSR_P_MIN};
    return code < b->dims.ndim ? TSR_S(code) : rest[code - b->dims.ndim];
}

/* The elements of the whole that a rank holds, in order. */
static int list_elements(const boxing *b, tsr_sbp s, int rank, int *out)
{
    int n = 0, count = (int)tsr_dims_count(b->dims);
    for (int e = 0; e < count; e++) {
        int64_t at = e, offset = 0, length = 1, here = 0;
        for (int i = b->dims.ndim - 1; i >= 0; at /= b->dims.d[i], i--)
            if (s.d[0].kind == TSR_SBP_SPLIT && s.d[0].arg == i) {
                here = at % b->dims.d[i];
                tsr_balanced_split(b->dims.d[i], b->nranks, rank, &offset, &length);
            }
        if (here >= offset && here < offset + length)
            out[n++] = e;
    }
    return n;
}

/* Values that fit u8, and their parts: addends, smaller or larger values, or the shard. */
static void make_parts(boxing *b)
{
    int count = (int)tsr_dims_count(b->dims), k = b->nranks, list[MAX_COUNT];
    uint64_t rng = b->seed;
    for (int e = 0; e < count; e++)
        b->value[e] = 100 + draw(&rng, 100);
    for (int code = 0; code < b->ncodes; code++) {
        tsr_sbp s = sbp_of(b, code);
        bool partial = s.d[0].kind == TSR_SBP_PARTIAL;
        for (int r = 0; r < k && !partial; r++) {
            int n = list_elements(b, s, r, list);
            for (int i = 0; i < n; i++)
                b->part[code][r][i] = b->value[list[i]];
        }
        for (int e = 0; e < count && partial; e++) {
            int owner = draw(&rng, k);
            double rest = b->value[e];
            for (int r = 0; r < k; r++) {
                int d = draw(&rng, 12);
                b->part[code][r][e] = s.d[0].arg == TSR_REDUCE_SUM   ? d
                                      : s.d[0].arg == TSR_REDUCE_MAX ? b->value[e] - d
                                                                     : b->value[e] + d;
                rest -= r == owner ? 0 : d;
            }
            b->part[code][owner][e] = s.d[0].arg == TSR_REDUCE_SUM ? rest : b->value[e];
        }
    }
    /* With from_local in B only the first rank's value counts. */
    for (int r = 1; r < k && b->local; r++)
        for (int e = 0; e < count; e++)
            b->part[b->dims.ndim][r][e] = draw(&rng, 200);
}

static void store(tsr_dtype t, void *p, int i, double v)
{
    if (t == TSR_F32)
        ((float *)p)[i] = (float)v;
    else if (t == TSR_F64)
        ((double *)p)[i] = v;
    else if (t == TSR_I64)
        ((int64_t *)p)[i] = (int64_t)v;
    else
        ((uint8_t *)p)[i] = (uint8_t)v;
}

static double load(tsr_dtype t, const void *p, int i)
{
    return t == TSR_F32   ? (double)((const float *)p)[i]
           : t == TSR_F64 ? ((const double *)p)[i]
           : t == TSR_I64 ? (double)((const int64_t *)p)[i]
                          : (double)((const uint8_t *)p)[i];
}

static void declare(const boxing *b, tsr_graph *g, const tsr_placement *p)
{
    char name[48];
    for (int t = 0; t < NDTYPES; t++)
        for (int from = 0; from < b->ncodes; from++) {
            tsr_sbp s = sbp_of(b, from);
            snprintf(name, sizeof name, "in.%d.%d", t, from);
            tsr_tensor *x = b->local ? tsr_from_local(g, name, dtypes[t], b->dims, p, s)
                                     : tsr_input(g, name, dtypes[t], b->dims, p, s);
            for (int to = 0; to < b->ncodes; to++) {
                snprintf(name, sizeof name, "out.%d.%d.%d", t, from, to);
                if (b->local)
                    tsr_to_local(g, name, tsr_to_global(x, p, sbp_of(b, to)));
                else
                    tsr_output(g, name, x, p, sbp_of(b, to));
            }
        }
}

/* Feeds this rank's parts, and keeps its results where all ranks' are. */
static tsr_status feed_all(const boxing *b, tsr_plan *plan, int rank)
{
    char name[48], data[MAX_COUNT * 8];
    int list[MAX_COUNT];
    for (int t = 0; t < NDTYPES; t++)
        for (int from = 0; from < b->ncodes; from++) {
            int n = list_elements(b, sbp_of(b, from), rank, list);
            for (int i = 0; i < n; i++)
                store(dtypes[t], data, i, b->part[from][rank][i]);
            snprintf(name, sizeof name, "in.%d.%d", t, from);
            TSRI_TRY(tsr_feed_shard(plan, name, data, (size_t)n * tsr_dtype_size(dtypes[t])));
        }
    return TSR_OK;
}

static tsr_status fetch_all(boxing *b, tsr_plan *plan, int rank)
{
    char name[48], data[MAX_COUNT * 8];
    int list[MAX_COUNT];
    for (int t = 0; t < NDTYPES; t++)
        for (int from = 0; from < b->ncodes; from++)
            for (int to = 0; to < b->ncodes; to++) {
                tsr_dims dims, want = b->dims;
                int64_t offset;
                tsr_sbp s = sbp_of(b, to);
                int n = list_elements(b, s, rank, list);
                snprintf(name, sizeof name, "out.%d.%d.%d", t, from, to);
                TSRI_TRY(tsr_fetch_shard(plan, name, data, (size_t)n * tsr_dtype_size(dtypes[t]),
                                         &dims));
                if (s.d[0].kind == TSR_SBP_SPLIT)
                    tsr_balanced_split(want.d[s.d[0].arg], b->nranks, rank, &offset,
                                       &want.d[s.d[0].arg]);
                CHECK(tsr_dims_equal(dims, want));
                for (int i = 0; i < n; i++)
                    b->result[t][from][to][rank][i] = load(dtypes[t], data, i);
            }
    return TSR_OK;
}

static tsr_status check_one(const boxing *b, int t, int from, int to)
{
    char text[2][TSR_SBP_TEXT_MAX];
    tsr_sbp s = sbp_of(b, to);
    int list[MAX_COUNT];
    const char *what = "";
    bool ok = true;
    for (int r = 0; r < b->nranks && s.d[0].kind != TSR_SBP_PARTIAL; r++) {
        int n = list_elements(b, s, r, list);
        for (int i = 0; i < n; i++)
            ok &= b->result[t][from][to][r][i] == b->value[list[i]];
        what = "a shard";
    }
    for (int e = 0; e < tsr_dims_count(b->dims) && s.d[0].kind == TSR_SBP_PARTIAL; e++) {
        double v = b->result[t][from][to][0][e];
        for (int r = 1; r < b->nranks; r++) {
            double x = b->result[t][from][to][r][e];
            v = s.d[0].arg == TSR_REDUCE_SUM   ? v + x
                : s.d[0].arg == TSR_REDUCE_MAX ? fmax(v, x)
                                               : fmin(v, x);
        }
        ok &= v == b->value[e];
        what = "the reduction";
    }
    if (ok)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INTERNAL, "%s %s -> %s on %d ranks%s: %s is wrong",
                     tsr_dtype_name(dtypes[t]), tsr_sbp_format(sbp_of(b, from), text[0]),
                     tsr_sbp_format(s, text[1]), b->nranks, b->local ? ", from local" : "", what);
}

static tsr_status boxing_program(tsr_world *w, void *arg)
{
    boxing *b = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_plan *plan;
    int rank = tsr_world_rank(w);
    declare(b, g, p);
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(feed_all(b, plan, rank));
    TSRI_TRY(run_watched(plan));
    TSRI_TRY(run_watched(plan)); /* inputs stay, and buffers are not left spoilt */
    TSRI_TRY(fetch_all(b, plan, rank));
    TSRI_TRY(tsr_world_barrier(w));
    for (int t = 0; t < NDTYPES && rank == 0; t++)
        for (int from = 0; from < b->ncodes; from++)
            for (int to = 0; to < b->ncodes; to++)
                TSRI_TRY(check_one(b, t, from, to));
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    return TSR_OK;
}

static const int sizes[] = {0, 1, 2, 3, 5, 7, 8};
enum { NSIZES = sizeof sizes / sizeof *sizes };

static tsr_status shape_program(tsr_world *w, void *arg)
{
    return with_recorder(w, boxing_program, arg);
}

/* One set of rank threads per shape keeps the ranks' memory small and the failure's text short. */
static void test_conversions(void **state)
{
    (void)state;
    bool full = getenv("TESSERA_FULL") != NULL;
    boxing *b = test_calloc(1, sizeof *b);
    int done = 0;
    for (int n = 1; n <= MAX_RANKS; n++)
        for (int ndim = 0, id = 0; ndim <= MAX_AXES; ndim++) {
            int all = ndim == 0 ? 1 : ndim == 1 ? NSIZES : ndim == 2 ? 49 : 343;
            for (int i = 0; i < all; i++, id++) {
                uint64_t pick = (uint64_t)(n * 1000 + id);
                draw(&pick, 2);
                if (!full && ndim > 1 && draw(&pick, (ndim == 2 ? 5 : 30) * test_sample()))
                    continue;
                b->dims.ndim = ndim;
                for (int j = 0, rest = i; j < ndim; j++, rest /= NSIZES)
                    b->dims.d[j] = sizes[rest % NSIZES];
                b->nranks = n;
                b->ncodes = ndim + 4;
                b->local = id % 2;
                b->seed = (uint64_t)(n * 7919 + id);
                make_parts(b);
                spawn_ok(n, shape_program, b);
                done += NDTYPES * b->ncodes * b->ncodes;
            }
        }
    print_message("%d conversions\n", done);
    assert_true(done > 30000 / test_sample());
    test_free(b);
}

/* --- channels last ---------------------------------------------------------------------------- */

enum { OUT = 4 * 6 * 6 };

typedef struct net {
    int step; /* which signatures stand between the convolutions */
    double loss[MAX_RANKS];
    float out[MAX_RANKS][5 * OUT], dw[MAX_RANKS][8 * 3 * 9];
    int channels_last[MAX_RANKS];
} net;

static tsr_tensor *weight(tsr_graph *g, const char *name, tsr_dims dims, const tsr_placement *p)
{
    return tsr_uniform(g, name, TSR_F32, dims, p, TSR_B, -0.5, 0.5);
}

/* Three convolutions with a signature forced in front of each of the later ones. */
static tsr_status net_program(tsr_world *w, void *arg)
{
    net *n = arg;
    const tsr_sbp between[][2] = {{TSR_S(1), TSR_B},    {TSR_B, TSR_S(0)},    {TSR_S(0), TSR_S(1)},
                                  {TSR_S(2), TSR_S(3)}, {TSR_S(1), TSR_S(2)}, {TSR_P, TSR_S(3)},
                                  {TSR_S(3), TSR_P_MAX}};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 3));
    tsr_plan *plan;
    int rank = tsr_world_rank(w);
    tsr_tensor *x = tsr_uniform(g, "x", TSR_F32, TSR_DIMS(5, 3, 6, 6), p, TSR_S(0), -1, 1);
    tsr_tensor *w1 = weight(g, "w1", TSR_DIMS(8, 3, 3, 3), p), *dw;
    tsr_tensor *w2 = weight(g, "w2", TSR_DIMS(8, 1, 3, 3), p);
    tsr_tensor *w3 = weight(g, "w3", TSR_DIMS(4, 8, 1, 1), p);
    const tsr_conv2d_opts *pad = TSR_CONV2D_OPTS(.padding = {1, 1});
    tsr_tensor *y = tsr_relu(tsr_conv2d(x, w1, NULL, pad));
    y = tsr_to_global(y, p, between[n->step][0]);
    y = tsr_relu(tsr_conv2d(y, w2, NULL, TSR_CONV2D_OPTS(.padding = {1, 1}, .groups = 8)));
    y = tsr_to_global(y, p, between[n->step][1]);
    y = tsr_conv2d(y, w3, NULL, NULL);
    tsr_tensor *loss = tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false);
    tsr_gradients(loss, 1, &w1, &dw);
    tsr_output(g, "y", y, p, TSR_B);
    tsr_output(g, "dw", dw, p, TSR_B);
    tsr_output(g, "loss", loss, p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    n->channels_last[rank] = 0;
    for (int i = 0; i < plan->ir.nitems; i++)
        if (plan->ir.items[i].kind == TSRI_ITEM_COLLECTIVE ||
            plan->ir.items[i].kind == TSRI_ITEM_LOCAL_BOX)
            n->channels_last[rank] += plan->ir.values[plan->ir.items[i].in[0]].nhwc;
    TSRI_TRY(run_watched(plan));
    TSRI_TRY(tsr_fetch_scalar(plan, "loss", &n->loss[rank]));
    TSRI_TRY(tsr_fetch(plan, "y", n->out[rank], sizeof n->out[rank]));
    TSRI_TRY(tsr_fetch(plan, "dw", n->dw[rank], sizeof n->dw[rank]));
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static tsr_status net_body(tsr_world *w, void *arg)
{
    return with_recorder(w, net_program, arg);
}

static void check_close(const float *a, const float *b, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 2e-5))
            fail_msg("%s[%d]: %.9g, not %.9g", what, i, (double)a[i], (double)b[i]);
}

static void test_channels_last(void **state)
{
    (void)state;
    net *one = test_calloc(1, sizeof *one), *many = test_calloc(1, sizeof *many);
    int boxed = 0;
    spawn_ok(1, net_body, one);
    for (many->step = 0; many->step < 7; many->step++)
        for (int n = 2; n <= 5; n++) {
            spawn_ok(n, net_body, many);
            for (int r = 0; r < n; r++) {
                assert_true(fabs(many->loss[r] - one->loss[0]) < 1e-5);
                check_close(many->out[r], one->out[0], 5 * OUT, "y");
                check_close(many->dw[r], one->dw[0], 8 * 3 * 9, "dw");
                boxed += many->channels_last[r];
            }
        }
    /* Some of those conversions were of channels-last values, or this test shows nothing. */
    assert_true(boxed > 0);
    print_message("%d conversions of channels-last values\n", boxed);
    test_free(one);
    test_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_channels_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
