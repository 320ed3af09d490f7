/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers' updates of operands with any strides and float dtypes. */
#include "kernels/cuda/code/optim.cuh"

enum { THREADS = 256 };

typedef struct dtypes {
    tsr_dtype p, state[2], g;
} dtypes;

typedef struct optimizer {
    tsri_cuda_kernel kernel;
    tsri_cuda_walk walk; /* p, states, g */
    dtypes of;
} optimizer;

template <typename Rule, typename A, int STATES>
static __global__ void update_kernel(tsri_cuda_walk w, tsri_update u, dtypes of)
{
    __shared__ Rule rule;
    if (threadIdx.x == 0)
        rule.prepare(u);
    __syncthreads();
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2 + STATES];
        tsri_walk_at<2 + STATES>(w, i, at);
        A p = tsri_load_any<A>(of.p, u.p, at[0]), state[STATES + 1] = {};
        for (int s = 0; s < STATES; s++)
            state[s] = tsri_load_any<A>(of.state[s], u.state[s], at[1 + s]);
        rule.update(p, state, tsri_load_any<A>(of.g, u.g, at[1 + STATES]));
        tsri_store_any<A>(of.p, u.p, at[0], p);
        for (int s = 0; s < STATES; s++)
            tsri_store_any<A>(of.state[s], u.state[s], at[1 + s], state[s]);
    }
}

template <typename A> static void launch(const optimizer *v, const tsri_update &u)
{
    const unsigned blocks = tsri_blocks(v->walk.count, THREADS);
    const cudaStream_t stream = v->kernel.stream;
    if (v->kernel.desc.op == TSRI_OP_ADAM)
        TSRI_LAUNCH((update_kernel<tsri_adam_rule<A>, A, 2>), blocks, THREADS, stream, v->walk, u,
                    v->of);
    else if (u.nstates)
        TSRI_LAUNCH((update_kernel<tsri_sgd_rule<A>, A, 1>), blocks, THREADS, stream, v->walk, u,
                    v->of);
    else
        TSRI_LAUNCH((update_kernel<tsri_sgd_rule<A>, A, 0>), blocks, THREADS, stream, v->walk, u,
                    v->of);
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const optimizer *v = (const optimizer *)k;
    const tsri_update u = tsri_update_of(&k->desc, in, out);
    if (u.count > 0 && v->of.p == TSR_F64)
        launch<double>(v, u);
    else if (u.count > 0)
        launch<float>(v, u);
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_optim_takes(d))
        return tsri_cuda_decline(d);
    optimizer *v = (optimizer *)tsri_cuda_make(mem, d, run, "plain", sizeof *v);
    TSRI_NEED(v);
    tsri_cuda_walk_init(&v->walk, d->out[0].ndim, d->out[0].shape);
    for (int i = 0; i < d->nin - 1; i++)
        tsri_cuda_walk_push(&v->walk, d->in[i].stride);
    tsri_cuda_walk_finish(&v->walk);
    v->of.p = d->in[0].dtype;
    for (int s = 0; s < d->nout - 1; s++)
        v->of.state[s] = d->in[1 + s].dtype;
    v->of.g = d->in[d->nin - 2].dtype;
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

tsr_status tsri_plain_sgd(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}

tsr_status tsri_plain_adam(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}
