/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy and its parts of operands with any strides. */
#include "kernels/cuda/code/ce.cuh"

enum { THREADS = 128 };

typedef struct cross_entropy {
    tsri_cuda_kernel kernel;
    tsri_cuda_walk rows, classes;
} cross_entropy;

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const cross_entropy *v = (const cross_entropy *)k;
    TSRI_FLOATS(k->desc.in[0].dtype, tsri_ce_dispatch<T>(k, in, out, [&](const auto &op) {
                    tsri_launch_plain(op, v->rows, v->classes, k->stream);
                }));
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ce_takes(d))
        return tsri_cuda_decline(d);
    cross_entropy *v = (cross_entropy *)tsri_cuda_make(mem, d, run, "plain", sizeof *v);
    TSRI_NEED(v);
    const tsri_arg *operands[TSRI_WALK_OPS];
    int full, n = tsri_ce_operands(d, operands, &full);
    tsri_axis_walks(n, full, operands, 1, &v->rows, &v->classes);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

#define SLOT(op)                                                                                   \
    tsr_status tsri_plain_##op(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel) \
    {                                                                                              \
        return create(mem, d, out_kernel);                                                         \
    }
SLOT(ce)
SLOT(ce_terms)
SLOT(ce_dx)

/* --- what follows from the terms -------------------------------------------------------------- */
typedef struct finish_args {
    int64_t n;
    const double *terms;
    int64_t terms_row, terms_step;
    const int64_t *label; /* NULL: every row counts */
    int64_t label_step, ignore, m_step, to_step[3], lse_step;
    tsri_column m, to[3]; /* loss, weight, lse */
    double smoothing, classes;
} finish_args;

static __global__ void finish_kernel(finish_args a)
{
    for (int64_t i = tsri_first(); i < a.n; i += tsri_step()) {
        const double *row = a.terms + i * a.terms_row;
        const double log_sum = log(row[0]), s = a.smoothing;
        const double m = tsri_load_any<double>(a.m.dtype, a.m.p, i * a.m_step);
        const bool counts = !a.label || a.label[i * a.label_step] != a.ignore;
        double loss = (1 - s) * (log_sum - row[a.terms_step]);
        if (s > 0)
            loss += s * (log_sum - row[2 * a.terms_step] / a.classes);
        const double result[3] = {counts ? loss : 0, counts ? 1.0 : 0.0, m};
        for (int o = 0; o < 3; o++)
            tsri_store_any<double>(a.to[o].dtype, a.to[o].p, i * a.to_step[o], result[o]);
        tsri_store_any<double>(a.to[2].dtype, a.to[2].p, i * a.to_step[2] + a.lse_step, log_sum);
    }
}

static tsr_status run_finish(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    (void)scratch;
    const tsri_kernel_desc *d = &k->desc;
    const tsri_arg *terms = &d->in[0];
    finish_args a = {};
    a.n = terms->shape[0];
    a.terms = (const double *)in[0];
    a.terms_row = terms->stride[0];
    a.terms_step = terms->stride[1];
    a.m = tsri_column_of(&d->in[1], in[1]);
    a.m_step = d->in[1].stride[0];
    if (d->nin > 2 && k->attrs.ce.has_ignore) {
        a.label = (const int64_t *)in[2];
        a.label_step = d->in[2].stride[0];
        a.ignore = k->attrs.ce.ignore_index;
    }
    for (int o = 0; o < 3; o++) {
        a.to[o] = tsri_column_of(&d->out[o], out[o]);
        a.to_step[o] = d->out[o].stride[0];
    }
    a.lse_step = d->out[2].stride[1];
    a.smoothing = k->attrs.ce.smoothing;
    a.classes = (double)k->attrs.ce.classes;
    if (a.n > 0)
        TSRI_LAUNCH((finish_kernel), tsri_blocks(a.n, THREADS), THREADS, k->stream, a);
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_ce_finish(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    bool takes = d->in[0].dtype == TSR_F64 && tsri_cuda_is_float(d->in[1].dtype) &&
                 (d->nin < 3 || d->in[2].dtype == TSR_I64);
    for (int o = 0; o < d->nout; o++)
        takes = takes && tsri_cuda_is_float(d->out[o].dtype);
    return takes ? tsri_cuda_create(mem, d, run_finish, "plain", out_kernel) : tsri_cuda_decline(d);
}
