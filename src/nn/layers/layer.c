/* SPDX-License-Identifier: Apache-2.0 */
#include "src/nn/layers/layer.h"

#include <math.h>
#include <string.h>

#include "src/core/live.h"

tsr_init tsri_layer_weight_init(void)
{
    return (tsr_init){.kind = TSR_INIT_KAIMING_UNIFORM, .a = sqrt(5)};
}

tsr_init tsri_layer_bias_init(double fan_in)
{
    double bound = fan_in > 0 ? 1 / sqrt(fan_in) : 0;
    return (tsr_init){.kind = TSR_INIT_UNIFORM, .a = -bound, .b = bound};
}

/* Returns the first incomplete module in and below m, NULL if all are complete. */
static const tsr_module *find_incomplete(const tsr_module *m)
{
    const tsr_module *found = m->status != TSR_OK ? m : NULL;
    for (const tsr_module *c = m->first_child; c && !found; c = c->sibling)
        found = find_incomplete(c);
    return found;
}

tsr_module *tsri_layer_finish(tsr_module *m)
{
    const tsr_module *incomplete = m ? find_incomplete(m) : NULL;
    if (incomplete) {
        tsri_fail(incomplete->status, "%s", incomplete->error ? incomplete->error : "no memory");
        tsr_module_destroy(m);
        return NULL;
    }
    return m;
}

/* Copies the facts to *out_arg (of none: NULL). */
static bool copy_facts(tsr_world *w, const void *facts, size_t bytes, void **out_arg)
{
    *out_arg = NULL;
    if (tsri_live_check(w, TSRI_LIVE_WORLD, "tsr_module_create") != TSR_OK)
        return false;
    if (!facts)
        return true;
    *out_arg = tsri_mem_alloc(w ? &w->mem : NULL, bytes);
    if (*out_arg)
        memcpy(*out_arg, facts, bytes);
    return *out_arg;
}

tsr_module *tsri_layer_create(tsr_world *w, const tsr_nn_opts *o, tsr_forward_fn *forward,
                              const void *facts, size_t bytes)
{
    void *arg;
    return copy_facts(w, facts, bytes, &arg) ? tsr_module_create(w, o, forward, arg, tsri_mem_free)
                                             : NULL;
}

tsr_module *tsri_layer_create_n(tsr_world *w, const tsr_nn_opts *o, tsr_forward_n_fn *forward,
                                const void *facts, size_t bytes)
{
    void *arg;
    return copy_facts(w, facts, bytes, &arg)
               ? tsr_module_create_n(w, o, forward, arg, tsri_mem_free)
               : NULL;
}

tsr_tensor *tsri_layer_use(tsr_module *m, const char *name, tsr_tensor *x)
{
    return tsri_module_lookup(m, name) ? tsr_use_at(m, name, x, m->loc.file, m->loc.line) : NULL;
}
