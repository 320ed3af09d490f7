/* SPDX-License-Identifier: Apache-2.0 */
/* A NULL, as failed calls return it, passes through every public call: an error or nothing, never a
 * crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <tessera/tessera.h>

static void test_destroyers(void **state)
{
    (void)state;
    tsr_world_destroy(NULL);
    tsr_plan_destroy(NULL);
    tsr_graph_destroy(NULL);
    tsr_module_destroy(NULL);
    tsr_optimizer_destroy(NULL);
    tsr_loader_destroy(NULL);
    tsr_dataset_destroy(NULL);
    tsr_generator_destroy(NULL);
    tsr_generator_seed(NULL, 1);
    tsr_sampler_destroy(NULL);
    tsr_batch_sampler_destroy(NULL);
    tsr_loader_destroy(NULL);
    tsr_world_abort(NULL, NULL);
    tsr_optimizer_set_lr(NULL, 1);
}

static void test_getters(void **state)
{
    (void)state;
    int64_t offset, length;
    assert_int_equal(tsr_world_rank(NULL), -1);
    assert_int_equal(tsr_world_size(NULL), 0);
    assert_int_equal(tsr_placement_nranks(NULL), 0);
    assert_int_equal(tsr_placement_ndim(NULL), 0);
    assert_int_equal(tsr_placement_dim(NULL, 0), 0);
    assert_int_equal(tsr_placement_rank(NULL, 0), -1);
    assert_int_equal(tsr_placement_find(NULL, 0), -1);
    assert_string_equal(tsr_placement_text(NULL), "(no placement)");
    assert_int_equal(tsr_placement_device(NULL), 0);
    assert_int_equal(tsr_variable_dims(NULL).ndim, 0);
    assert_int_equal(tsr_optimizer_steps(NULL), 0);
    assert_int_equal(tsr_dataset_count(NULL), 0);
    assert_null(tsr_dataset_images(NULL));
    assert_int_equal(tsr_loader_batches(NULL), 0);
    assert_int_equal(tsr_loader_peek_rows(NULL), 0);
    assert_int_equal(tsr_plan_nports(NULL), 0);
    assert_int_equal(tsr_plan_times(NULL, 0, NULL), 0);
    assert_int_equal(tsr_module_count(NULL), 0);
    assert_null(tsr_module_find(NULL, "x"));
    assert_false(tsr_tensor_ok(NULL));
    tsr_balanced_split(5, 0, 0, &offset, &length);
    assert_int_equal(offset, 0);
    assert_int_equal(length, 5);
}

static void test_data(void **state)
{
    (void)state;
    assert_int_equal(tsr_generator_initial_seed(NULL), 0);
    assert_int_equal(tsr_generator_word(NULL), 0);
    assert_int_equal(tsr_generator_word64(NULL), 0);
    assert_int_equal(tsr_generator_random(NULL), 0);
    assert_int_equal(tsr_sampler_count(NULL), 0);
    assert_int_equal(tsr_sampler_epoch(NULL), 0);
    assert_int_equal(tsr_sampler_position(NULL), 0);
    assert_int_equal(tsr_batch_sampler_count(NULL), 0);
    assert_int_equal(tsr_batch_sampler_position(NULL), 0);
    assert_int_equal(tsr_loader_batches(NULL), 0);
    assert_int_equal(tsr_loader_epoch(NULL), 0);
    assert_int_equal(tsr_loader_position(NULL), 0);
    assert_false(tsr_worker_is_stopping(NULL));
    assert_null(tsr_batch_array(NULL, 0, 8));
    assert_true(tsr_generator_create(NULL, 0, NULL) < 0);
    assert_true(tsr_generator_randperm(NULL, 1, NULL) < 0);
    assert_true(tsr_generator_rand(NULL, TSR_F32, 1, NULL) < 0);
    assert_true(tsr_generator_randn(NULL, TSR_F32, 1, NULL) < 0);
    assert_true(tsr_generator_randint(NULL, 0, 1, 1, NULL) < 0);
    assert_true(tsr_generator_bernoulli(NULL, 0.5, 1, NULL) < 0);
    assert_true(tsr_generator_get_state(NULL, NULL) < 0);
    assert_true(tsr_generator_set_state(NULL, NULL) < 0);
    assert_true(tsr_sequential_sampler(NULL, 1, NULL) < 0);
    assert_true(tsr_random_sampler(NULL, 1, NULL, NULL) < 0);
    assert_true(tsr_subset_random_sampler(NULL, NULL, 1, NULL, NULL) < 0);
    assert_true(tsr_weighted_random_sampler(NULL, NULL, 1, NULL, NULL) < 0);
    assert_true(tsr_distributed_sampler(NULL, 1, NULL, NULL) < 0);
    assert_true(tsr_custom_sampler(NULL, NULL, NULL) < 0);
    assert_true(tsr_sampler_next(NULL, NULL) < 0);
    assert_true(tsr_sampler_reset(NULL) < 0);
    assert_true(tsr_sampler_set_epoch(NULL, 0) < 0);
    assert_true(tsr_sampler_set_position(NULL, 0) < 0);
    assert_true(tsr_sampler_get_state(NULL, NULL) < 0);
    assert_true(tsr_sampler_set_state(NULL, NULL) < 0);
    assert_true(tsr_batch_sampler_create(NULL, NULL, 1, false, NULL) < 0);
    assert_true(tsr_custom_batch_sampler(NULL, NULL, NULL) < 0);
    assert_true(tsr_batch_sampler_next(NULL, NULL, NULL) < 0);
    assert_true(tsr_batch_sampler_reset(NULL) < 0);
    assert_true(tsr_batch_sampler_set_epoch(NULL, 0) < 0);
    assert_true(tsr_batch_sampler_set_position(NULL, 0) < 0);
    assert_true(tsr_batch_sampler_get_state(NULL, NULL) < 0);
    assert_true(tsr_batch_sampler_set_state(NULL, NULL) < 0);
    assert_true(tsr_map_loader_create(NULL, NULL, NULL, NULL) < 0);
    assert_true(tsr_loader_next(NULL, NULL) < 0);
    assert_true(tsr_loader_reset(NULL) < 0);
    assert_true(tsr_loader_set_epoch(NULL, 0) < 0);
    assert_true(tsr_loader_get_state(NULL, NULL) < 0);
    assert_true(tsr_loader_set_state(NULL, NULL) < 0);
}

static void test_calls(void **state)
{
    (void)state;
    double d = 0;
    tsr_plan *plan = NULL;
    tsr_plan_info info = {.size = sizeof info};
    assert_true(tsr_run(NULL) < 0);
    assert_non_null(strstr(tsr_last_error(), "tsr_compile"));
    assert_true(tsr_feed(NULL, "x", &d, sizeof d) < 0);
    assert_true(tsr_fetch(NULL, "x", &d, sizeof d) < 0);
    assert_true(tsr_fetch_scalar(NULL, "x", &d) < 0);
    assert_true(tsr_plan_get_info(NULL, &info) < 0);
    assert_true(tsr_compile(NULL, &plan) < 0);
    assert_true(tsr_eval(NULL, &d, sizeof d) < 0);
    assert_true(tsr_load(NULL, "x", NULL) < 0);
    assert_true(tsr_save(NULL, "x") < 0);
    assert_true(tsr_loader_feed(NULL, NULL) < 0);
    assert_true(tsr_variable_get(NULL, &d, sizeof d) < 0);
    assert_true(tsr_world_barrier(NULL) < 0);
    assert_true(tsr_spawn(1, NULL, NULL) < 0);
}

static void test_building(void **state)
{
    (void)state;
    tsr_tensor *x = NULL;
    assert_null(tsr_graph_create(NULL, NULL));
    assert_non_null(strstr(tsr_last_error(), "no world"));
    assert_null(tsr_placement_parse(NULL, "cpu"));
    assert_null(tsr_mlp(NULL, NULL, TSR_B, NULL));
    assert_null(tsr_mobilenet_v2(NULL, NULL, TSR_B, NULL));
    assert_null(tsr_sgd(NULL, NULL));
    assert_null(tsr_relu(NULL));
    assert_null(tsr_add(NULL, NULL));
    assert_null(tsr_apply(NULL, NULL));
    assert_null(tsr_where(NULL, NULL, NULL));
    assert_null(tsr_embedding(NULL, NULL, NULL));
    assert_null(tsr_index_select(NULL, 0, NULL));
    assert_null(tsr_one_hot(NULL, 3, TSR_F32));
    assert_null(tsr_concat(1, &x, 0));
    assert_null(tsr_stack(1, &x, 0));
    assert_null(tsr_slice(NULL, TSR_SCALAR, TSR_SCALAR, TSR_SCALAR));
    assert_null(tsr_narrow(NULL, 0, 0, 1));
    assert_null(tsr_pad(NULL, TSR_SCALAR, TSR_SCALAR, 0));
    assert_null(tsr_triu(NULL, 0));
    assert_null(tsr_cumsum(NULL, 0));
    assert_null(tsr_std(NULL, TSR_ALL_AXES, false, 1));
    assert_null(tsr_arange(NULL, TSR_F32, 3, 0, 1, NULL, TSR_B));
    assert_null(tsr_constant(NULL, TSR_F32, TSR_SCALAR, NULL, NULL, TSR_B));
    tsr_split(NULL, 1, (const int64_t[]){1}, 0, &x);
    tsr_gradients(NULL, 1, &x, &x);
    tsr_output(NULL, "x", NULL, NULL, TSR_B);
    tsr_minimize(NULL, NULL);
    tsr_ddp_backward(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroyers), cmocka_unit_test(test_getters),
        cmocka_unit_test(test_data),       cmocka_unit_test(test_calls),
        cmocka_unit_test(test_building),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
