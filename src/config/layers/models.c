/* SPDX-License-Identifier: Apache-2.0 */
/* The models that an experiment can name, and how they are made. */
#include <stdio.h>
#include <string.h>

#include <tessera/models.h>

#include "src/config/layers/layers.h"
#include "src/core/world.h"

typedef struct model_call {
    tsr_world *world;
    const tsr_placement *placement;
    const tsri_config_args *args;
    tsr_dtype dtype;
    int64_t columns; /* of an image */
    int64_t length;  /* of a row of text */
    uint64_t seed;
} model_call;

static tsr_module *make_mobilenet_v2(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_mobilenet_v2(
        c->world, c->placement, TSR_B,
        TSR_MOBILENET_V2_OPTS(.num_classes = a->num_classes, .width = a->width,
                              .dropout = a->dropout, .variant = (tsr_mobilenet_variant)a->variant,
                              .activation = (tsr_activation)a->activation,
                              .bn = (tsr_bn_stats)a->bn, .bn_parts = (int)a->bn_parts,
                              .dtype = c->dtype, .seed = c->seed));
}

static tsr_module *make_convnet(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_convnet(c->world, c->placement, TSR_B,
                       TSR_CONVNET_OPTS(.num_classes = a->num_classes, .channels = a->channels,
                                        .height = a->height, .width = a->columns,
                                        .bn = (tsr_bn_stats)a->bn, .bn_parts = (int)a->bn_parts,
                                        .dtype = c->dtype, .seed = c->seed));
}

static tsr_module *make_mlp(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_mlp(c->world, c->placement, TSR_B,
                   TSR_MLP_OPTS(.inputs = a->inputs, .hidden = a->hidden, .outputs = a->outputs,
                                .layers = (int)a->layers, .dtype = c->dtype, .seed = c->seed));
}

static tsr_module *make_transformer(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_transformer(c->world, c->placement, TSR_B,
                           TSR_TRANSFORMER_OPTS(.width = c->columns, .heads = a->heads,
                                                .layers = (int)a->layers, .mlp_ratio = a->mlp_ratio,
                                                .classes = a->num_classes, .causal = a->causal,
                                                .dropout = a->dropout, .dtype = c->dtype,
                                                .seed = c->seed));
}

static tsr_module *make_resnet18(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_resnet18(c->world, c->placement, TSR_B,
                        TSR_RESNET18_OPTS(.num_classes = a->num_classes, .width = a->features,
                                          .variant = (tsr_resnet_variant)a->variant,
                                          .bn = (tsr_bn_stats)a->bn, .bn_parts = (int)a->bn_parts,
                                          .dtype = c->dtype, .seed = c->seed));
}

static tsr_module *make_lenet(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_lenet(c->world, c->placement, TSR_B,
                     TSR_LENET_OPTS(.num_classes = a->num_classes, .channels = a->channels,
                                    .height = a->height, .width = a->columns, .dtype = c->dtype,
                                    .seed = c->seed));
}

static tsr_module *make_gpt(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_gpt(c->world, c->placement, TSR_B,
                   TSR_GPT_OPTS(.vocab = a->vocab, .positions = c->length, .width = a->features,
                                .heads = a->heads, .layers = (int)a->layers, .dropout = a->dropout,
                                .dtype = c->dtype, .seed = c->seed));
}

static tsr_module *make_lstm_lm(const model_call *c)
{
    const tsri_config_args *a = c->args;
    return tsr_lstm_lm(c->world, c->placement, TSR_B,
                       TSR_LSTM_LM_OPTS(.vocab = c->args->vocab, .width = a->features,
                                        .hidden = a->hidden, .layers = (int)a->layers,
                                        .dropout = a->dropout, .dtype = c->dtype, .seed = c->seed));
}

/* By TSRI_MODEL_.... */
static tsr_module *(*const models[])(const model_call *c) = {
    make_mobilenet_v2, make_convnet, make_mlp, make_transformer,
    make_resnet18,     make_lenet,   make_gpt, make_lstm_lm};

bool tsri_reads_text(const tsri_experiment *e)
{
    return e->model.head.variant == TSRI_MODEL_GPT || e->model.head.variant == TSRI_MODEL_LSTM_LM;
}

tsr_status tsri_model_fail(const tsri_program *p, const tsri_yaml *node, tsr_status status)
{
    const tsri_config_model *m = &p->experiment->model;
    char source[80], text[1600];
    if (status == TSR_OK)
        return status;
    const size_t n = (size_t)snprintf(source, sizeof source,
                                      "%s.c:", tsri_model_section.variants[m->head.variant].name);
    snprintf(text, sizeof text, "%s", tsr_last_error());
    if (!strncmp(text, source, n)) {
        const char *rest = text + n + strspn(text + n, "0123456789");
        tsri_fail(status, "%s", !strncmp(rest, ": ", 2) ? rest + 2 : text);
    }
    return tsri_program_fail(node ? node : m->head.node, status);
}

tsr_status tsri_model_make(tsri_program *p, const tsr_placement *placement)
{
    const tsri_experiment *e = p->experiment;
    const tsri_data_sizes s = tsri_config_data_sizes(&e->data);
    const int model = e->model.head.variant;
    const model_call c = {.world = p->world,
                          .placement = placement,
                          .columns = s.width,
                          .length = tsr_dims_count(s.row),
                          .args = &e->model.args,
                          .dtype = e->dtype,
                          .seed = e->train.seed};
    const tsr_nn_opts opts = {
        .placement = placement, .sbp = TSR_B, .dtype = c.dtype, .seed = c.seed};
    p->module = model == TSRI_MODEL_LAYERS   ? tsri_layers_make(p, &opts)
                : model == TSRI_MODEL_PLUGIN ? tsri_plugin_model(p, &opts)
                                             : models[model](&c);
    if (p->module)
        return TSR_OK;
    return p->inside->refused ? TSR_ERR_INVALID : tsri_model_fail(p, NULL, TSR_ERR_INVALID);
}

tsr_status tsri_model_visit(const tsri_experiment *e, tsri_model_fn *fn, void *arg)
{
    tsri_program_inside inside = {0};
    tsri_program p = {.experiment = e, .inside = &inside};
    TSRI_TRY(tsr_world_create_virtual(1, 0, &p.world));
    tsri_pool_init(&inside.pool, &p.world->mem);
    tsr_status status = tsri_model_make(&p, tsr_placement_parse(p.world, "cpu"));
    if (status == TSR_OK)
        status = fn(p.module, arg);
    tsri_pool_finish(&inside.pool);
    tsr_world_destroy(p.world);
    return status;
}
