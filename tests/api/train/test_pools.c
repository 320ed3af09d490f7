/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ReLU before max pooling, and both gradients, by plain loops: with ReLU where it was declared and
 * behind the pooling, windows with ties, without any positive number and with NaN and infinities,
 * overlapping and apart. Where something else reads ReLU's result, or wants its gradient, it stays.
 */
#include "../rank.h"

enum { N = 3, C = 5, H = 8, WIDTH = 9, IN = N * C * H * WIDTH };

typedef struct windows {
    int kernel, stride, pad;
    bool read;  /* something else reads ReLU's result */
    bool inner; /* the gradient of that result is asked for, and not that of x */
} windows;

typedef struct pooled {
    float x[IN], dy[IN], y[IN], dx[IN];
    int64_t h, w; /* of y */
} pooled;

static int64_t count(int64_t in, const windows *s)
{
    return (in + 2 * s->pad - s->kernel) / s->stride + 1;
}

/* Finds the largest number under a window, or its first NaN; the first of equal ones. */
static int64_t largest(const float *plane, const windows *s, int64_t oh, int64_t ow)
{
    int64_t best = -1;
    for (int64_t h = oh * s->stride - s->pad; h < oh * s->stride - s->pad + s->kernel; h++)
        for (int64_t w = ow * s->stride - s->pad; w < ow * s->stride - s->pad + s->kernel; w++) {
            if (h < 0 || h >= H || w < 0 || w >= WIDTH)
                continue;
            const float v = plane[h * WIDTH + w];
            if (best < 0 || (!isnan(plane[best]) && (isnan(v) || v > plane[best])))
                best = h * WIDTH + w;
        }
    return best;
}

static void loops(const windows *s, pooled *p)
{
    p->h = count(H, s);
    p->w = count(WIDTH, s);
    memset(p->dx, 0, sizeof p->dx);
    for (int64_t plane = 0; plane < (int64_t)N * C; plane++) {
        float r[H * WIDTH];
        const float *x = p->x + plane * H * WIDTH;
        float *dx = p->dx + plane * H * WIDTH;
        for (int i = 0; i < H * WIDTH; i++)
            r[i] = x[i] <= 0 ? 0 : x[i];
        for (int64_t o = 0; o < p->h * p->w; o++) {
            const int64_t at = largest(r, s, o / p->w, o % p->w);
            p->y[plane * p->h * p->w + o] = r[at];
            if (s->inner || r[at] > 0)
                dx[at] += p->dy[plane * p->h * p->w + o];
        }
        for (int i = 0; s->read && i < H * WIDTH; i++)
            dx[i] += x[i] > 0;
    }
}

static bool same(const char *what, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))) {
            fprintf(stderr, "%s[%lld] is %g, not %g\n", what, (long long)i, (double)got[i],
                    (double)want[i]);
            return false;
        }
    return true;
}

static tsr_status check(tsr_world *w, const windows *s, pooled *p, unsigned no_fusion)
{
    static _Thread_local float got[IN];
    const tsr_placement *on = tsr_placement_parse(w, "cpu");
    const int64_t ny = (int64_t)N * C * p->h * p->w;
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, C, H, WIDTH), on, TSR_S(0)), *dx;
    tsr_tensor *dy = tsr_input(g, "dy", TSR_F32, TSR_DIMS(N, C, p->h, p->w), on, TSR_S(0));
    tsr_tensor *r = tsr_relu(x);
    tsr_tensor *y = tsr_max_pool2d(r, TSR_POOL2D_OPTS(.kernel = {s->kernel, s->kernel},
                                                      .stride = {s->stride, s->stride},
                                                      .padding = {s->pad, s->pad}));
    tsr_tensor *loss = tsr_sum(tsr_mul(y, dy), TSR_ALL_AXES, false);
    if (s->read)
        loss = tsr_add(loss, tsr_sum(r, TSR_ALL_AXES, false));
    tsr_gradients(loss, 1, s->inner ? &r : &x, &dx);
    tsr_output(g, "y", y, on, TSR_B);
    tsr_output(g, "dx", dx, on, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.no_fusion = no_fusion), &plan));
    tsr_graph_destroy(g);
    const bool moved = strstr(tsr_plan_explain(plan), "relu goes behind max_pool");
    CHECK(moved == (!s->read && !s->inner && !no_fusion));
    TRY(tsr_world_barrier(w));
    TRY(tsr_feed(plan, "x", p->x, sizeof p->x));
    TRY(tsr_feed(plan, "dy", p->dy, (size_t)ny * sizeof *p->dy));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "y", got, (size_t)ny * sizeof *got));
    CHECK(same("y", got, p->y, ny));
    TRY(tsr_fetch(plan, "dx", got, sizeof got));
    CHECK(same("dx", got, p->dx, IN));
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static tsr_status compare(tsr_world *w, void *arg)
{
    static const float values[] = {-2, -1, -0.0f, 0, 1, 1, 2, NAN, INFINITY, -INFINITY};
    static const float slopes[] = {1, -1, -0.0f, 0.5f, 3, INFINITY, 2};
    static _Thread_local pooled p;
    for (int i = 0; i < IN; i++) {
        const int k = i * 7919 % 10007;
        p.x[i] = values[k % (i < IN / 2 ? 7 : 10)];
        p.dy[i] = slopes[k / 10 % 7];
    }
    loops(arg, &p);
    TRY(check(w, arg, &p, 0));
    return check(w, arg, &p, TSR_FUSE_POOLS);
}

static void test_values(void **state)
{
    (void)state;
    static const windows all[] = {{2, 2, 0, false, false}, {3, 2, 1, false, false},
                                  {3, 3, 0, false, false}, {3, 1, 1, false, false},
                                  {2, 3, 0, false, false}, {2, 2, 0, true, false},
                                  {2, 2, 0, false, true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        on_ranks(compare, (void *)(uintptr_t)&all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
