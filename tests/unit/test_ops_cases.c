/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations at the edges of what is legal: the dtype and shape of each result, or the whole text
 * of its refusal. `ops_cases --print` writes the table with what is found. */
#include "declared.h"

#include <math.h>

#define POOL(...) TSR_POOL2D_OPTS(__VA_ARGS__)
#define CONV(...) TSR_CONV2D_OPTS(__VA_ARGS__)
#define EMBED(...) TSR_EMBEDDING_OPTS(.has_padding_idx = true, __VA_ARGS__)
#define NINE ((tsr_dims){9, {1, 1, 1, 1, 1, 1, 1, 1}})
#define GRID_SBP ((tsr_sbp){2, {{TSR_SBP_SPLIT, 0}, {TSR_SBP_BROADCAST, 0}}})
#define MIXED ((tsr_sbp){2, {{TSR_SBP_PARTIAL, TSR_REDUCE_SUM}, {TSR_SBP_PARTIAL, TSR_REDUCE_MAX}}})
#define REDUCTION(r) ((tsr_sbp){1, {{TSR_SBP_PARTIAL, (r)}}})
#define norm2(...) \
    tsr_batch_norm(f32(D(8, 6)), f32(D(6)), f32(D(6)), NULL, NULL, TSR_BATCH_NORM_OPTS(__VA_ARGS__))
#define entropy(logits, labels, ...) \
    tsr_cross_entropy_with(f32(logits), make(TSR_I64, labels), TSR_CROSS_ENTROPY_OPTS(__VA_ARGS__))

static const tsr_placement *grid;
static bool printing;

/* Statistics are read, not written. */
static tsr_tensor *infer_norm(tsr_dims mean, tsr_dims var)
{
    start(false);
    return tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), f32(mean), f32(var), NULL);
}

/* The last of n parts, of which the first is one larger than the others. */
static tsr_tensor *split_of(tsr_dims dims, int n, int axis)
{
    tsr_tensor *parts[8] = {NULL};
    int64_t sizes[8] = {0};
    int64_t whole = axis < dims.ndim ? dims.d[axis < 0 ? axis + dims.ndim : axis] : 0;
    for (int i = 0; i < n; i++)
        sizes[i] = whole / n + (i < whole % n);
    tsr_split_axis(f32(dims), n, sizes, axis, parts);
    return parts[n - 1];
}

static tsr_tensor *output_of(const char *name, tsr_tensor *x, const tsr_placement *p, tsr_sbp sbp)
{
    tsr_output(g, name, x, p, sbp);
    return x;
}

/* What came of a declaration, behind the place in the test. */
static void describe(const tsr_tensor *x, char *buf, size_t size)
{
    if (x && tsr_graph_status(g) == TSR_OK) {
        snprintf(buf, size, "%s %s", tsr_dtype_name(x->dtype), tsri_dims_text(g, x->shape));
        return;
    }
    tsr_graph_status(g);
    const char *error = tsr_last_error();
    const char *place_end =
        strstr(error, ".c:") || strstr(error, ".h:") ? strchr(error, ' ') : NULL;
    snprintf(buf, size, "%s", place_end ? place_end + 1 : error);
}

static void check(const char *expr, const char *expected, const tsr_tensor *x)
{
    char found[512];
    describe(x, found, sizeof found);
    if (printing)
        printf("X(%s,\n  \"%s\")\n", expr, found);
    else if (strcmp(found, expected) != 0)
        fail_msg("%s\nfound:    %s\nexpected: %s", expr, found, expected);
}

static void test_cases(void **state)
{
    (void)state;
#define X(expr, expected)        \
    start(true);                 \
    tsri_fail(TSR_OK, "%s", ""); \
    check(#expr, expected, (expr));
#include "tests/unit/ops_cases.h"
#undef X
}

static int setup_all(void **state)
{
    if (setup(state))
        return -1;
    grid = tsr_placement_parse(world, "cpu:[[0,1],[2,3]]");
    return grid ? 0 : -1;
}

int main(int argc, char **argv)
{
    printing = argc > 1 && !strcmp(argv[1], "--print");
    if (printing) {
        puts("/* SPDX-License-Identifier: Apache-2.0 */\n/* clang-format off */");
        setup_all(NULL);
        test_cases(NULL);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, setup_all, teardown);
}
