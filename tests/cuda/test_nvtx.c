/* SPDX-License-Identifier: Apache-2.0 */
/* A tool that is attached sees a range for each kernel that is launched, by the op's name. Without
 * a tool there is nothing to see: that is every other test. */
#include "tests/cuda/nvtx_tool.h"
#include <tessera/tessera.h>

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int count_of(const struct nvtx_log *log, const char *name)
{
    int n = 0;
    for (int i = 0; i < log->pushed && i < NVTX_LOG_MOST; i++)
        n += !strcmp(log->name[i], name);
    return n;
}

static void test_ranges(void **state)
{
    (void)state;
    tsr_world *w;
    float data[12] = {1, 2, 3};
    assert_int_equal(tsr_world_create(NULL, &w), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(3, 4), p, TSR_B);
    tsr_tensor *y = tsr_matmul(x, tsr_transpose(x, 0, 1));
    tsr_output(g, "y", tsr_softmax(y, 1), p, TSR_B);
    tsr_plan *plan;
    if (tsr_compile(g, &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(tsr_feed(plan, "x", data, sizeof data), TSR_OK);
    assert_int_equal(tsr_run(plan), TSR_OK);
    float out[9];
    assert_int_equal(tsr_fetch(plan, "y", out, sizeof out), TSR_OK);

    void *tool = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(tool);
    const struct nvtx_log *(*log_of)(void);
    *(void **)&log_of = dlsym(tool, "nvtx_tool_log");
    assert_non_null(log_of);
    const struct nvtx_log *log = log_of();
    assert_int_equal(log->depth, 0);
    assert_true(count_of(log, "matmul") >= 1);
    assert_true(count_of(log, "softmax") >= 1);
    tsr_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
