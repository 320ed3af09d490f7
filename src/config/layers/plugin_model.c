/* SPDX-License-Identifier: Apache-2.0 */
/* Models that plug-in libraries make. */
#include <dlfcn.h>

#include <tessera/layers.h>
#include <tessera/own_op.h>

#include "src/config/program.h"

tsr_module *tsri_plugin_model(tsri_program *p, const tsr_nn_opts *opts)
{
    const tsri_config_model *model = &p->experiment->model;
    /* The library is loaded as a whole first, so that the model may use its ops. */
    if (tsr_plugin_load(p->world, model->plugin) != TSR_OK)
        return NULL;
    void *library = dlopen(model->plugin, RTLD_NOW | RTLD_LOCAL);
    /* POSIX makes this conversion, which C17 does not have. */
    const union {
        void *symbol;
        tsr_plugin_model_fn *fn;
    } make = {.symbol = library ? dlsym(library, model->function) : NULL};
    if (!make.symbol) {
        tsri_program_fail(tsri_section_node(model, "function"),
                          tsri_fail(TSR_ERR_INVALID, "'%s' has no function '%.100s'", model->plugin,
                                    model->function));
        p->inside->refused = tsri_section_node(model, "function");
        return NULL;
    }
    tsr_module *m = make.fn(p->world, opts);
    if (!m && !tsr_last_error()[0])
        tsri_fail(TSR_ERR_INVALID, "function '%.100s' of '%s' gave no model", model->function,
                  model->plugin);
    return m;
}
