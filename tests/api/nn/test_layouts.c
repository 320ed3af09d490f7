/* SPDX-License-Identifier: Apache-2.0 */
/* Images that a program has channels last, (n,h,w,c), and permutes to (n,c,h,w) for convolutions:
 * they are where convolutions want them, so that nothing is moved; values are those of plain loops,
 * and a permuted variable is a copy of what it was. */
#include "../rank.h"

enum { N = 6, H = 5, W = 4, C = 3, OUT = 6, IMAGES = N * H * W * C, RESULTS = N * H * W * OUT };

static const float *images(void)
{
    static float x[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        x[i] = (float)(i * 7 % 23) / 8 - 1;
    return x;
}

static float weight(int o, int c, int k)
{
    return (float)((o * 5 + c * 3 + k) % 11) / 4 - 1;
}

/* Computes a convolution of 3 x 3 taps that keeps the images' size, (n,h,w,c) -> (n,h,w,o). */
static void convolve(const float *x, double *y)
{
    for (int i = 0; i < RESULTS; i++) {
        const int o = i % OUT, w = i / OUT % W, h = i / OUT / W % H, n = i / OUT / W / H;
        y[i] = 0;
        for (int k = 0; k < 9; k++)
            for (int c = 0; c < C; c++) {
                const int from_h = h + k / 3 - 1, from_w = w + k % 3 - 1;
                if (from_h >= 0 && from_h < H && from_w >= 0 && from_w < W)
                    y[i] += (double)x[((n * H + from_h) * W + from_w) * C + c] *
                            (double)weight(o, c, k);
            }
    }
}

static tsr_tensor *declare(tsr_graph *g, const tsr_placement *p, tsr_sbp sbp)
{
    float w[OUT * C * 9];
    for (int i = 0; i < OUT * C * 9; i++)
        w[i] = weight(i / (C * 9), i / 9 % C, i % 9);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, H, W, C), p, sbp);
    tsr_tensor *planes = tsr_permute(x, TSR_AXES(0, 3, 1, 2));
    tsr_tensor *kernel = tsr_constant(g, TSR_F32, TSR_DIMS(OUT, C, 3, 3), w, p, TSR_B);
    tsr_output(g, "planes", planes, p, TSR_B);
    return tsr_conv2d(planes, kernel, NULL, TSR_CONV2D_OPTS(.padding = {1, 1}));
}

static tsr_status check(tsr_plan *plan)
{
    static const char *const names[] = {"last", "first"};
    const float *x = images();
    float planes[IMAGES], got[RESULTS];
    double want[RESULTS];
    TRY(tsr_feed(plan, "x", x, sizeof(float) * IMAGES));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "planes", planes, sizeof planes));
    for (int i = 0; i < IMAGES; i++)
        CHECK(planes[((i / (H * W * C) * C + i % C) * H + i / (W * C) % H) * W + i / C % W] ==
              x[i]);
    convolve(x, want);
    for (int name = 0; name < 2; name++) {
        TRY(tsr_fetch(plan, names[name], got, sizeof got));
        for (int i = 0; i < RESULTS; i++) {
            const int n = i / (H * W * OUT), h = i / (W * OUT) % H, w = i / OUT % W, o = i % OUT;
            const int at = name ? ((n * OUT + o) * H + h) * W + w : i;
            CHECK(near_to((double)got[at], want[i], 1e-5));
        }
    }
    return TSR_OK;
}

static tsr_status convolve_on_ranks(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    for (int axis = 0; axis < 4; axis++) {
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_plan *plan;
        tsr_tensor *y = declare(g, p, TSR_S(axis));
        tsr_output(g, "first", y, p, TSR_B);
        tsr_output(g, "last", tsr_permute(y, TSR_AXES(0, 2, 3, 1)), p, TSR_B);
        TRY(tsr_compile(g, &plan));
        tsr_graph_destroy(g);
        TRY(check(plan));
        tsr_plan_destroy(plan);
    }
    return TSR_OK;
}

static void test_values(void **state)
{
    (void)state;
    on_ranks(convolve_on_ranks, NULL);
}

static tsr_status move_nothing(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_plan *plan;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, H, W, C), p, TSR_B);
    tsr_tensor *kernel = tsr_input(g, "w", TSR_F32, TSR_DIMS(OUT, C, 3, 3), p, TSR_B);
    tsr_tensor *y = tsr_conv2d(tsr_permute(x, TSR_AXES(0, 3, 1, 2)), kernel, NULL,
                               TSR_CONV2D_OPTS(.padding = {1, 1}));
    tsr_output(g, "y", tsr_permute(y, TSR_AXES(0, 2, 3, 1)), p, TSR_B);
    TRY(tsr_compile(g, &plan));
    tsr_graph_destroy(g);
    const char *text = tsr_plan_explain(plan);
    CHECK(strstr(text, "conv2d") && !strstr(text, "permute") && !strstr(text, "copy"));
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static void test_nothing_is_moved(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(1, move_nothing, NULL), TSR_OK);
}

/* One variable is (n,h,w,c) and gets another value in each run, by which time its permuted form has
 * to be what it was; another is given the permuted images. */
static tsr_status permute_variables(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts o = {.placement = p, .sbp = TSR_B, .dtype = TSR_F32};
    tsr_module *m = tsr_module_create(w, &o, NULL, NULL, NULL);
    const tsr_init ones = {.kind = TSR_INIT_ONES};
    tsr_module_buffer(m, "last", TSR_DIMS(N, H, W, C), TSR_B, ones);
    tsr_module_buffer(m, "first", TSR_DIMS(N, C, H, W), TSR_B, ones);
    tsr_variable *last = tsr_module_find(m, "last"), *first = tsr_module_find(m, "first");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_plan *plan;
    tsr_tensor *was = tsr_permute(tsr_read(g, last), TSR_AXES(0, 3, 1, 2));
    tsr_tensor *y = declare(g, p, TSR_S(0));
    tsr_assign(last, tsr_input(g, "new", TSR_F32, TSR_DIMS(N, H, W, C), p, TSR_B));
    tsr_assign(first, tsr_permute(tsr_input(g, "turned", TSR_F32, TSR_DIMS(N, H, W, C), p, TSR_B),
                                  TSR_AXES(0, 3, 1, 2)));
    tsr_output(g, "was", was, p, TSR_B);
    tsr_output(g, "first", y, p, TSR_B);
    tsr_output(g, "last", tsr_permute(y, TSR_AXES(0, 2, 3, 1)), p, TSR_B);
    TRY(tsr_compile(g, &plan));
    tsr_graph_destroy(g);
    float fed[IMAGES], got[IMAGES];
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < IMAGES; i++)
            fed[i] = (float)(i + run * IMAGES);
        TRY(tsr_feed(plan, "new", fed, sizeof fed));
        TRY(tsr_feed(plan, "turned", fed, sizeof fed));
        TRY(check(plan));
        TRY(tsr_fetch(plan, "was", got, sizeof got));
        for (int i = 0; i < IMAGES; i++) {
            const int at = ((i / (H * W * C) * C + i % C) * H + i / (W * C) % H) * W + i / C % W;
            CHECK(got[at] == (run ? (float)(i + (run - 1) * IMAGES) : 1));
        }
        TRY(tsr_variable_get(last, got, sizeof got));
        CHECK(!memcmp(got, fed, sizeof got));
        TRY(tsr_variable_get(first, got, sizeof got));
        for (int i = 0; i < IMAGES; i++)
            CHECK(got[((i / (H * W * C) * C + i % C) * H + i / (W * C) % H) * W + i / C % W] ==
                  fed[i]);
    }
    tsr_plan_destroy(plan);
    tsr_module_destroy(m);
    return TSR_OK;
}

static void test_variables(void **state)
{
    (void)state;
    on_ranks(permute_variables, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_nothing_is_moved),
        cmocka_unit_test(test_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
