/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's kernels as those of a device: a run is queued, and done later on the memory behind the
 * device's addresses. They have no pieces, sinks or updates, so nothing works on them by rows. */
#include "tests/mirror/deferred_device.h"
#include "tests/mirror/module.h"

#include <pthread.h>
#include <string.h>

extern const tsri_kernels tsri_kernels_cpu_via32, tsri_kernels_cpu_ref;

typedef struct mirror_kernel {
    tsri_kernel base;
    tsri_kernel *cpu;
    tsri_stream *stream;
    int nin, nout;
    size_t in_bytes[TSRI_KERNEL_MAX_ARGS], out_bytes[TSRI_KERNEL_MAX_ARGS];
} mirror_kernel;

/* One run, from when it is queued until it is done. */
typedef struct launch {
    const mirror_kernel *kernel;
    void *in[TSRI_KERNEL_MAX_ARGS], *out[TSRI_KERNEL_MAX_ARGS], *scratch;
} launch;

/* Puts the memory of a buffer in place of its address. False if it is in no device. */
static bool reach(void **p, size_t bytes)
{
    if (*p)
        *p = deferred_reach(*p, bytes);
    return *p;
}

static tsr_status do_launch(void *arg)
{
    launch *l = arg;
    const mirror_kernel *k = l->kernel;
    bool there = true;
    for (int i = 0; i < k->nin; i++)
        there &= !l->in[i] || reach(&l->in[i], k->in_bytes[i]);
    for (int i = 0; i < k->nout; i++)
        there &= !l->out[i] || reach(&l->out[i], k->out_bytes[i]);
    there &= !l->scratch || reach(&l->scratch, k->base.scratch_bytes);
    tsr_status status = there ? k->cpu->run(k->cpu, l->in, l->out, l->scratch) : TSR_OK;
    tsri_mem_free(l);
    return status;
}

static tsr_status run(const tsri_kernel *kernel, void *const *in, void *const *out, void *scratch)
{
    const mirror_kernel *k = (const mirror_kernel *)kernel;
    launch *l = tsri_mem_alloc(NULL, sizeof *l);
    TSRI_NEED(l);
    l->kernel = k;
    l->scratch = k->base.scratch_bytes ? scratch : NULL;
    if (k->nin)
        memcpy(l->in, in, (size_t)k->nin * sizeof *in);
    if (k->nout)
        memcpy(l->out, out, (size_t)k->nout * sizeof *out);
    deferred_call(k->stream, kernel, do_launch, l);
    return TSR_OK;
}

static void destroy(tsri_kernel *kernel)
{
    mirror_kernel *k = (mirror_kernel *)kernel;
    deferred_forget(k->stream, kernel);
    k->cpu->destroy(k->cpu);
    tsri_mem_free(k);
}

static size_t arg_bytes(const tsri_arg *a)
{
    return (size_t)tsri_arg_count(a) * tsr_dtype_size(a->dtype);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    static const tsri_kernels *const list[] = {&tsri_kernels_cpu_via32, &tsri_kernels_cpu_ref,
                                               NULL};
    tsri_kernel_desc on_cpu = *desc;
    on_cpu.stream = NULL;
    on_cpu.threads = 1;
    mirror_kernel *k = tsri_mem_alloc(mem, sizeof *k);
    TSRI_NEED(k);
    tsr_status status = tsri_kernel_create(mem, list, &on_cpu, &k->cpu);
    if (status != TSR_OK) {
        tsri_mem_free(k);
        return status;
    }
    k->base = (tsri_kernel){
        .run = run, .destroy = destroy, .scratch_bytes = k->cpu->scratch_bytes, .impl = "mirror"};
    k->stream = desc->stream;
    k->nin = desc->nin;
    k->nout = desc->nout;
    for (int i = 0; i < k->nin; i++)
        k->in_bytes[i] = arg_bytes(&desc->in[i]);
    for (int i = 0; i < k->nout; i++)
        k->out_bytes[i] = arg_bytes(&desc->out[i]);
    *out_kernel = &k->base;
    return TSR_OK;
}

static tsri_kernels implementation = {.size = sizeof implementation, .name = "mirror"};

/* The same function for each op that the reference has. */
static void fill_slots(void)
{
    for (int op = 0; op < TSRI_OP_COUNT_; op++)
        implementation.slot[op] = tsri_kernels_cpu_ref.slot[op] ? create : NULL;
}

const tsri_kernels *const *mirror_kernels(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const tsri_kernels *const list[] = {&implementation, NULL};
    pthread_once(&once, fill_slots);
    return list;
}
