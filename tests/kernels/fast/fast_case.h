/* SPDX-License-Identifier: Apache-2.0 */
/* Operands for test_fast.c, and what makes a kernel and runs it on them. */
#ifndef TESSERA_TESTS_KERNELS_FAST_CASE_H
#define TESSERA_TESTS_KERNELS_FAST_CASE_H

#include "kernels/kernels.h"

extern const tsri_kernels tsri_kernels_cpu_fast, tsri_kernels_cpu_onednn, tsri_kernels_cpu_ref;

typedef struct fc_tensor {
    tsri_arg arg;
    int64_t n; /* elements */
    void *data;
} fc_tensor;

/* x[n, c, h, w], channels last, -1..1. */
fc_tensor fc_images(int64_t n, int64_t c, int64_t h, int64_t w);
/* Row-major, the first ndim of the sizes; f32 is -1..1, others are 0. */
fc_tensor fc_rows(tsr_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c, int64_t d);
/* Fills t, of f32 or f64, with numbers of -1..1, of as many digits as its dtype holds. */
void fc_draw(fc_tensor *t);
/* Returns element i of t, which is f32 or f64. */
double fc_at(const fc_tensor *t, int64_t i);
void fc_free(int n, fc_tensor *const *t);
/* Whether impl takes it; results were filled with rubbish before. Aborts on other errors, and
 * if scratch was written beyond its end. Fails the test if a kernel that keeps what it packs of its
 * operands gives other bits. */
bool fc_run(const tsri_kernels *impl, tsri_op_kind op, const tsri_attrs *attrs, int64_t groups,
            int nin, fc_tensor *const *in, int nout, fc_tensor *const *out);
/* Fails the test unless each element is within `tol` of the largest wanted value, or of `most` if
 * that is more. */
void fc_close_within(const char *what, const float *got, const double *want, int64_t n, double tol,
                     double most);
void fc_close_to(const char *what, const float *got, const double *want, int64_t n, double tol);
/* Fails the test unless each element of `got`, of f32 or f64, is within `tol` of the largest wanted
 * value. */
void fc_close(const char *what, const fc_tensor *got, const double *want, double tol);

#endif
