/* SPDX-License-Identifier: Apache-2.0 */
/* Looking into programs: lines of tsr_print, gradients and states by their parameter, gradients
 * beside differences. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "rank.h"

static void run_on(int ranks, tsr_rank_fn *fn, void *arg)
{
    if (tsr_spawn(ranks, fn, arg) != TSR_OK)
        fail_msg("%d ranks: %s", ranks, tsr_last_error());
}

/* Runs fn on ranks with stdout going to a file; what is there then is malloced. */
static char *printed_by(int ranks, tsr_rank_fn *fn, void *arg)
{
    FILE *file = tmpfile();
    fflush(stdout);
    const int old = dup(STDOUT_FILENO);
    assert_true(file && old >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    const tsr_status status = tsr_spawn(ranks, fn, arg);
    fflush(stdout);
    assert_true(dup2(old, STDOUT_FILENO) >= 0);
    close(old);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s", ranks, tsr_last_error());
    const long n = ftell(file);
    char *text = calloc((size_t)(n < 0 ? 0 : n) + 1, 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)n, file), (size_t)n);
    fclose(file);
    return text;
}

/* --- printing --------------------------------------------------------------------------------- */
static tsr_status prints(tsr_world *w, void *arg)
{
    const tsr_sbp sbp = *(const tsr_sbp *)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3), p, sbp);
    tsr_print(x, "x", 1);
    tsr_print(tsr_log(x), "log", 2);
    tsr_print(tsr_cast(tsr_sum(x, TSR_AXES(0), false), TSR_I64), "sums", 1);
    tsr_print(tsr_narrow(x, 0, 1, 0), "nothing", 3);
    tsr_print(tsr_greater(x, tsr_mul_scalar(x, 2)), "below", 1);
    char label[] = "mean";
    tsr_print(tsr_mean(x, TSR_ALL_AXES, false), label, 1);
    label[0] = 'b'; /* it was copied */
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    tsr_graph_destroy(g);
    for (int run = 0; run < 2; run++) {
        float data[12];
        for (int i = 0; i < 12; i++)
            data[i] = (float)(i + 12 * run - 1);
        TRY(tsr_feed(plan, "x", data, sizeof data));
        TRY(tsr_run(plan));
    }
    return TSR_OK;
}

static void test_prints(void **state)
{
    (void)state;
    static const char want[] =
        "x (4,3) f32, run 1: min -1, max 10, mean 4.5, std 3.4521: -1 0 1 ...\n"
        "log (4,3) f32, run 1: min nan, max nan, mean nan, std nan, 1 NaN: nan -inf 0 ...\n"
        "sums (3) i64, run 1: min 14, max 22, mean 18, std 3.266: 14 18 22\n"
        "nothing (0,3) f32, run 1: empty\n"
        "below (4,3) bool, run 1: min 0, max 1, mean 0.083333, std 0.27639: 1 0 0 ...\n"
        "mean () f32, run 1: min 4.5, max 4.5, mean 4.5, std 0: 4.5\n"
        "x (4,3) f32, run 2: min 11, max 22, mean 16.5, std 3.4521: 11 12 13 ...\n"
        "sums (3) i64, run 2: min 62, max 70, mean 66, std 3.266: 62 66 70\n"
        "below (4,3) bool, run 2: min 0, max 0, mean 0, std 0: 0 0 0 ...\n"
        "mean () f32, run 2: min 16.5, max 16.5, mean 16.5, std 0: 16.5\n";
    tsr_sbp all[] = {TSR_B, TSR_S(0), TSR_S(1), TSR_AUTO};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int n = 1; n <= 3; n++) {
            char *text = printed_by(n, prints, &all[i]), *at;
            while ((at = strstr(text, "-nan"))) /* a NaN's sign is nobody's business */
                memmove(at, at + 1, strlen(at));
            assert_string_equal(text, want);
            free(text);
        }
}

/* --- gradients and states --------------------------------------------------------------------- */
static tsr_status reads(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_AUTO, .dtype = TSR_F64, .seed = 3};
    tsr_module *m = tsr_nn_linear(w, &nn, 3, 2, true);
    tsr_variable *weight = tsr_module_find(m, "weight"), *bias = tsr_module_find(m, "bias");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(4, 3), p, TSR_S(0));
    tsr_tensor *loss = tsr_sum(tsr_apply(m, x), TSR_ALL_AXES, false);
    tsr_optimizer *o = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.1)), *sgd = tsr_sgd(m, NULL);
    tsr_minimize_with(o, 1, &loss, TSR_MINIMIZE_OPTS(.loss_scale = 8, .clip_norm = 0.01));
    tsr_output(g, "dw", tsr_read_gradient(g, weight), p, TSR_B);
    tsr_output(g, "db", tsr_read_gradient(g, bias), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    double data[12], dw[6], db[2], avg[6];
    for (int i = 0; i < 12; i++)
        data[i] = i;
    TRY(tsr_feed(plan, "x", data, sizeof data));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "dw", dw, sizeof dw));
    TRY(tsr_fetch(plan, "db", db, sizeof db));
    double square = 0;
    for (int i = 0; i < 6; i++) {
        CHECK(fabs(dw[i] - (18 + 4 * (i % 3))) < 1e-12); /* before it is clipped */
        square += dw[i] * dw[i];
    }
    CHECK(fabs(db[0] - 4) < 1e-12 && fabs(db[1] - 4) < 1e-12);
    square += 32;
    TRY(tsr_variable_get(tsr_optimizer_state(o, weight, "exp_avg"), avg, sizeof avg));
    const double scale = 0.01 / (sqrt(square) + 1e-6);
    for (int i = 0; i < 6; i++)
        CHECK(fabs(avg[i] - 0.1 * dw[i] * scale) < 1e-12);
    CHECK(tsr_optimizer_state(o, weight, "exp_avg_sq") &&
          tsr_optimizer_state(o, bias, "exp_avg") != tsr_optimizer_state(o, weight, "exp_avg"));
    CHECK(!tsr_optimizer_state(o, weight, "momentum_buffer"));
    CHECK(strstr(tsr_last_error(), "it has: exp_avg, exp_avg_sq"));
    CHECK(!tsr_optimizer_state(sgd, weight, "exp_avg") && strstr(tsr_last_error(), "has: none"));
    tsr_module *other = tsr_nn_linear(w, &nn, 1, 1, false);
    CHECK(!tsr_optimizer_state(o, tsr_module_find(other, "weight"), "exp_avg"));
    CHECK(strstr(tsr_last_error(), "none of the optimizer's 2 parameters"));
    tsr_graph *bare = tsr_graph_create(w, NULL);
    tsr_read_gradient(bare, weight);
    CHECK(tsr_graph_status(bare) == TSR_ERR_STATE);
    CHECK(strstr(tsr_last_error(), "has a gradient of weight"));
    return TSR_OK;
}

static void test_reads(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        run_on(n, reads, NULL);
}

/* --- gradients beside differences ------------------------------------------------------------- */
static tsr_tensor *good(tsr_graph *g, int n, tsr_tensor *const *x, void *arg)
{
    (void)g;
    (void)arg;
    return n == 2 ? tsr_tanh(tsr_add(tsr_mul(x[0], x[0]), x[1])) : NULL;
}

/* The gradient of x[1] x[1] lacks a half. */
static tsr_tensor *half(tsr_graph *g, int n, tsr_tensor *const *x, void *arg)
{
    (void)g;
    (void)n;
    (void)arg;
    return tsr_add(x[0], tsr_mul(x[1], tsr_detach(x[1])));
}

static tsr_tensor *fails(tsr_graph *g, int n, tsr_tensor *const *x, void *arg)
{
    (void)g;
    (void)n;
    (void)arg;
    return tsr_matmul(x[0], x[1]);
}

static tsr_status checks(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_dims dims[] = {TSR_DIMS(4, 3), TSR_DIMS(3)};
    const tsr_sbp sbps[] = {TSR_AUTO, TSR_B, TSR_S(0)};
    double worst = 1;
    for (int i = 0; i < 3; i++) {
        const tsr_check_opts o = *TSR_CHECK_OPTS(.sbp = sbps[i], .seed = (uint64_t)i);
        TRY(tsr_check_gradients(w, good, NULL, 2, dims, &o, &worst));
        CHECK(worst < 1e-8);
        CHECK(tsr_check_gradients(w, half, NULL, 2, dims, &o, &worst) == TSR_ERR_MISMATCH);
        CHECK(strstr(tsr_last_error(), "input 1, element ") && worst > 0.01);
    }
    TRY(tsr_check_gradients(w, half, NULL, 2, dims, TSR_CHECK_OPTS(.atol = 100), NULL));
    CHECK(tsr_check_gradients(w, fails, NULL, 2, dims, NULL, NULL) == TSR_ERR_SHAPE);
    CHECK(tsr_check_gradients(w, good, NULL, 1, dims, NULL, NULL) == TSR_ERR_INVALID);
    CHECK(strstr(tsr_last_error(), "returned no tensor"));
    CHECK(tsr_check_gradients(w, good, NULL, 2, dims, TSR_CHECK_OPTS(.eps = 0), NULL) ==
          TSR_ERR_INVALID);
    return TSR_OK;
}

static void test_checks(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        run_on(n, checks, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prints),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
