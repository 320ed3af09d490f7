/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers' updates of operands with any strides and float dtypes. */
#include "kernels/cuda/code/optim.cuh"

enum { THREADS = 256 };

typedef struct dtypes {
    tsr_dtype p, state[TSRI_UPDATE_STATES], g;
} dtypes;

typedef struct optimizer {
    tsri_cuda_kernel kernel;
    tsri_cuda_walk walk; /* p, g, states */
    dtypes of;
} optimizer;

template <int OP, typename A>
static __global__ void update_kernel(tsri_cuda_walk w, tsri_update u, dtypes of)
{
    enum { STATES = tsri_update_rule<OP, A>::STATES };
    __shared__ tsri_update_rule<OP, A> rule;
    if (threadIdx.x == 0)
        rule.prepare(u);
    __syncthreads();
    for (int64_t i = tsri_first(); i < w.count && !rule.skips; i += tsri_step()) {
        int64_t at[2 + TSRI_UPDATE_STATES];
        tsri_walk_at<2 + TSRI_UPDATE_STATES>(w, i, at);
        A p = tsri_load_any<A>(of.p, u.p, at[0]), state[STATES] = {};
        for (int s = 0; s < STATES; s++)
            if (u.has >> s & 1)
                state[s] = tsri_load_any<A>(of.state[s], u.state[s], at[2 + s]);
        rule.update(p, state, u.has, tsri_load_any<A>(of.g, u.g, at[1]));
        tsri_store_any<A>(of.p, u.p, at[0], p);
        for (int s = 0; s < STATES; s++)
            if (u.has >> s & 1)
                tsri_store_any<A>(of.state[s], u.state[s], at[2 + s], state[s]);
    }
}

template <typename A> static void launch(const optimizer *v, const tsri_update &u)
{
    const unsigned blocks = tsri_blocks(v->walk.count, THREADS);
    const cudaStream_t stream = v->kernel.stream;
    switch (v->kernel.desc.op) {
#define CASE(KIND, ...)                                                                      \
    case TSRI_OP_##KIND:                                                                     \
        TSRI_LAUNCH((update_kernel<TSRI_OP_##KIND, A>), blocks, THREADS, stream, v->walk, u, \
                    v->of);                                                                  \
        break;
        TSRI_UPDATE_LIST(CASE)
#undef CASE
    default:
        break;
    }
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
    v->of.p = d->in[0].dtype;
    v->of.g = d->in[d->nin - 2].dtype;
    tsri_cuda_walk_init(&v->walk, d->out[0].ndim, d->out[0].shape);
    tsri_cuda_walk_push(&v->walk, d->in[0].stride);
    tsri_cuda_walk_push(&v->walk, d->in[d->nin - 2].stride);
    for (int s = 0, o = 1; s < TSRI_UPDATE_STATES; s++) {
        const tsri_arg *state = &d->in[d->attrs->update.has >> s & 1 ? o++ : 0]; /* or any */
        v->of.state[s] = state->dtype;
        tsri_cuda_walk_push(&v->walk, state->stride);
    }
    tsri_cuda_walk_finish(&v->walk);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

#define SLOT(KIND, name, ...)                                                                 \
    tsr_status tsri_plain_##name(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out) \
    {                                                                                         \
        return create(mem, d, out);                                                           \
    }
TSRI_UPDATE_LIST(SLOT)
