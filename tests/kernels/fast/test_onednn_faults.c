/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN's calls fail, one after the other: a convolution's kernel is then not made, or its run
 * says so. */
#include "tests/kernels/fast/fast_case.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <oneapi/dnnl/dnnl.h>

static int64_t countdown; /* the n-th call from now fails; 0: none does */
static int executed;

static bool must_fail(void)
{
    return countdown > 0 && --countdown == 0;
}

/* These take the place of the library's own. */
// clang-format off
#define IN_FRONT(name, params, args)                                  \
    dnnl_status_t name params                                         \
    {                                                                 \
        static dnnl_status_t (*next) params;                          \
        if (!next)                                                    \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                \
        executed += !strcmp(#name, "dnnl_primitive_execute");         \
        return must_fail() ? dnnl_runtime_error : next args;          \
    }
IN_FRONT(dnnl_engine_create, (dnnl_engine_t *e, dnnl_engine_kind_t kind, size_t i), (e, kind, i))
IN_FRONT(dnnl_stream_create, (dnnl_stream_t *s, dnnl_engine_t e, unsigned flags), (s, e, flags))
IN_FRONT(dnnl_stream_wait, (dnnl_stream_t s), (s))
IN_FRONT(dnnl_memory_create,
         (dnnl_memory_t *m, const dnnl_memory_desc_t *d, dnnl_engine_t e, void *p),
         (m, d, e, p))
IN_FRONT(dnnl_memory_set_data_handle, (dnnl_memory_t m, void *p), (m, p))
IN_FRONT(dnnl_primitive_create, (dnnl_primitive_t *p, const_dnnl_primitive_desc_t d), (p, d))
IN_FRONT(dnnl_primitive_execute,
         (const_dnnl_primitive_t p, dnnl_stream_t s, int n, const dnnl_exec_arg_t *args),
         (p, s, n, args))
// clang-format on

typedef struct run_case {
    tsri_kernel_desc desc;
    void *in[3], *out[1];
} run_case;

static tsr_status create(const run_case *c, tsri_kernel **out)
{
    return tsri_kernels_cpu_onednn.slot[c->desc.op](NULL, &c->desc, out);
}

static tsr_status run(const run_case *c, const tsri_kernel *k)
{
    void *scratch = aligned_alloc(64, (k->scratch_bytes + 64) / 64 * 64);
    assert_non_null(scratch);
    tsr_status status = k->run(k, c->in, c->out, scratch);
    free(scratch);
    return status;
}

/* Returns how many primitives a run executes; 0 where the kernel declines. */
static int fail_all(const run_case *c)
{
    tsri_kernel *k;
    tsr_status status = create(c, &k);
    if (status == TSR_ERR_UNSUPPORTED)
        return 0;
    assert_int_equal(status, TSR_OK);
    executed = 0;
    assert_int_equal(run(c, k), TSR_OK);
    const int count = executed;
    for (int64_t n = 1;; n++) {
        countdown = n;
        status = run(c, k);
        if (countdown) /* there are fewer than n */
            break;
        assert_int_equal(status, TSR_ERR_INTERNAL);
        assert_non_null(strstr(tsr_last_error(), "oneDNN: dnnl_"));
    }
    countdown = 0;
    assert_int_equal(status, TSR_OK);
    k->destroy(k);
    for (int64_t n = 1;; n++) {
        countdown = n;
        status = create(c, &k);
        if (countdown)
            break;
        assert_int_equal(status, TSR_ERR_INTERNAL);
    }
    countdown = 0;
    assert_int_equal(status, TSR_OK);
    k->destroy(k);
    return count;
}

static void test_convolutions(void **state)
{
    (void)state;
    static const int64_t channels[][2] = {{3, 32}, {32, 48}, {64, 64}};
    int most = 0;
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++) {
        const int64_t ci = channels[i][0], co = channels[i][1];
        const tsri_attrs at = {.conv = {.stride = {1, 1},
                                        .pad = {1, 1},
                                        .dilation = {1, 1},
                                        .kernel = {3, 3},
                                        .groups = 1}};
        fc_tensor x = fc_images(2, ci, 14, 14), y = fc_images(2, co, 14, 14);
        fc_tensor w = fc_rows(TSR_F32, 4, co, ci, 3, 3), b = fc_rows(TSR_F32, 1, co, 0, 0, 0);
        const tsri_kernel_desc d = {.attrs = &at, .groups = 1, .nout = 1};
        run_case forward = {d, {x.data, w.data, b.data}, {y.data}},
                 dx = {d, {y.data, w.data}, {x.data}}, dw = {d, {x.data, y.data}, {w.data}};
        forward.desc.op = TSRI_OP_CONV2D;
        forward.desc.nin = 3;
        forward.desc.in[0] = x.arg;
        forward.desc.in[1] = w.arg;
        forward.desc.in[2] = b.arg;
        forward.desc.out[0] = y.arg;
        dx.desc.op = TSRI_OP_CONV2D_DX;
        dx.desc.nin = dw.desc.nin = 2;
        dx.desc.in[0] = dw.desc.in[1] = y.arg;
        dx.desc.in[1] = dw.desc.out[0] = w.arg;
        dx.desc.out[0] = dw.desc.in[0] = x.arg;
        dw.desc.op = TSRI_OP_CONV2D_DW;
        int f = fail_all(&forward), fx = fail_all(&dx), fw = fail_all(&dw);
        print_message("%d, %d and %d primitives\n", f, fx, fw);
        most = fw > most ? fw : most;
        fc_free(4, (fc_tensor *[]){&x, &y, &w, &b});
    }
    assert_true(most > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convolutions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
