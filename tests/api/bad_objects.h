/* SPDX-License-Identifier: Apache-2.0 */
/* The bad objects of test_bad_calls.c, which includes this behind its fixture `f`: gone ones have
 * been destroyed, foreign ones are of another world. */
#ifndef TESSERA_TESTS_API_BAD_OBJECTS_H
#define TESSERA_TESTS_API_BAD_OBJECTS_H

static tsr_world *gone_world(void)
{
    tsr_world *w;
    MUST_OK(tsr_world_create_virtual(2, 0, &w));
    tsr_world_destroy(w);
    return w;
}

static tsr_world *foreign_world(void)
{
    return f.virtual_world;
}

static tsr_graph *gone_graph(void)
{
    tsr_graph *g = tsr_graph_create(f.world, NULL);
    tsr_graph_destroy(g);
    return g;
}

static tsr_graph *failed_graph(void)
{
    tsr_graph *g = tsr_graph_create(f.world, NULL);
    tsr_relu(tsr_input(g, "", TSR_DTYPE_NONE, TSR_SCALAR, NULL, TSR_B));
    return g;
}

static tsr_graph *foreign_graph(void)
{
    return tsr_graph_create(f.virtual_world, NULL);
}

static tsr_tensor *tensor_of(tsr_graph *g, const tsr_placement *p)
{
    return tsr_full(g, TSR_F32, TSR_DIMS(4, 6), p, TSR_B, 1);
}

static tsr_tensor *gone_tensor(void)
{
    tsr_graph *g = tsr_graph_create(f.world, NULL);
    tsr_tensor *x = NULL;
    for (int i = 0; i < 100; i++) /* where no new tensor will soon be */
        x = tensor_of(g, f.placement);
    tsr_graph_destroy(g);
    return x;
}

static tsr_tensor *failed_tensor(void)
{
    return tsr_input(failed_graph(), "", TSR_DTYPE_NONE, TSR_SCALAR, NULL, TSR_B);
}

static tsr_tensor *other_tensor(void)
{
    return tensor_of(tsr_graph_create(f.world, NULL), f.placement);
}

static const tsr_placement *foreign_placement(void)
{
    return tsr_placement_parse(f.virtual_world, "cpu");
}

static tsr_tensor *foreign_tensor(void)
{
    return tensor_of(foreign_graph(), foreign_placement());
}

static const tsr_placement *gone_placement(void)
{
    tsr_world *w;
    MUST_OK(tsr_world_create_virtual(2, 0, &w));
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[1,0]");
    tsr_world_destroy(w);
    return p;
}

static tsr_module *module_on(tsr_world *w, const tsr_placement *p)
{
    return tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 6));
}

static tsr_module *gone_module(void)
{
    tsr_module *m = module_on(f.world, f.placement);
    tsr_module_destroy(m);
    return m;
}

static tsr_module *foreign_module(void)
{
    return module_on(f.virtual_world, foreign_placement());
}

static tsr_variable *gone_variable(void)
{
    tsr_module *m = module_on(f.world, f.placement);
    tsr_variable *v = tsr_module_find(m, "0.weight");
    tsr_module_destroy(m);
    return v;
}

static tsr_variable *foreign_variable(void)
{
    return tsr_module_find(foreign_module(), "0.weight");
}

static tsr_optimizer *gone_optimizer(void)
{
    tsr_optimizer *o = tsr_sgd(f.module, NULL);
    tsr_optimizer_destroy(o);
    return o;
}

static tsr_optimizer *foreign_optimizer(void)
{
    return tsr_sgd(foreign_module(), NULL);
}

static tsr_grad_scaler *gone_grad_scaler(void)
{
    tsr_grad_scaler *s = tsr_grad_scaler_create(f.world, NULL);
    tsr_grad_scaler_destroy(s);
    return s;
}

static tsr_grad_scaler *foreign_grad_scaler(void)
{
    return tsr_grad_scaler_create(f.virtual_world, NULL);
}

static tsr_plan *plan_of(tsr_graph *g, const tsr_placement *p)
{
    tsr_plan *plan;
    tsr_output(g, "y", tensor_of(g, p), NULL, TSR_B);
    MUST_OK(tsr_compile(g, &plan));
    return plan;
}

static tsr_plan *gone_plan(void)
{
    tsr_plan *plan = plan_of(tsr_graph_create(f.world, NULL), f.placement);
    tsr_plan_destroy(plan);
    return plan;
}

static tsr_plan *foreign_plan(void)
{
    return plan_of(foreign_graph(), foreign_placement());
}

static tsr_dataset *gone_dataset(void)
{
    tsr_dataset *d;
    MUST_OK(tsr_synthetic_open(f.world, 1, 8, 8, 4, 8, 1, &d));
    tsr_dataset_destroy(d);
    return d;
}

static tsr_loader *gone_loader(void)
{
    tsr_loader *l;
    MUST_OK(tsr_loader_create(f.world, f.dataset, TSR_LOADER_OPTS(.workers = 0), &l));
    tsr_loader_destroy(l);
    return l;
}

static tsr_sampler *gone_sampler(void)
{
    tsr_sampler *s;
    MUST_OK(tsr_sequential_sampler(f.world, 8, &s));
    tsr_sampler_destroy(s);
    return s;
}

static tsr_batch_sampler *gone_batch_sampler(void)
{
    tsr_batch_sampler *b;
    tsr_sampler *s;
    MUST_OK(tsr_sequential_sampler(f.world, 8, &s));
    MUST_OK(tsr_batch_sampler_create(f.world, s, 2, false, &b));
    tsr_batch_sampler_destroy(b);
    return b;
}

static tsr_safetensors *gone_safetensors(void)
{
    tsr_safetensors *s;
    char path[64];
    open_safetensors(path, &s);
    tsr_safetensors_close(s);
    return s;
}

static tsr_checkpoint *gone_checkpoint(void)
{
    tsr_checkpoint *c;
    MUST_OK(tsr_checkpoint_create(f.world, "checkpoints", NULL, &c));
    tsr_checkpoint_destroy(c);
    return c;
}

static tsr_op *op_on(tsr_world *w)
{
    static int n;
    tsr_op *op;
    char name[24];
    snprintf(name, sizeof name, "op%d", n++);
    MUST_OK(tsr_op_define(
        w, TSR_OP_DEF(.name = name, .inputs = 1, .rule = "... -> ...", .forward = own_same), &op));
    return op;
}

static tsr_op *gone_op(void)
{
    tsr_world *w;
    MUST_OK(tsr_world_create_virtual(2, 0, &w));
    tsr_op *op = op_on(w);
    tsr_world_destroy(w);
    return op;
}

static tsr_op *foreign_op(void)
{
    return op_on(f.virtual_world);
}

static tsr_program *gone_program(void)
{
    tsr_program *p;
    MUST_OK(tsr_program_create(f.world, declare_images, NULL, NULL, &p));
    tsr_program_destroy(p);
    return p;
}

static tsr_generator *gone_generator(void)
{
    tsr_generator *g;
    MUST_OK(tsr_generator_create(f.world, 1, &g));
    tsr_generator_destroy(g);
    return g;
}

static tsr_ddp *gone_ddp(void)
{
    tsr_ddp *d;
    MUST_OK(tsr_ddp_create(module_on(f.world, tsr_local_placement(f.world)), NULL, &d));
    tsr_ddp_destroy(d);
    return d;
}

static tsr_world *short_world(void)
{
    tsr_world *w;
    MUST_OK(tsr_world_create(
        TSR_WORLD_OPTS(.timeout_s = 2, .threads = 1, .arena_bytes = 1 << 22, .log = log_nothing),
        &w));
    return w;
}

static tsr_group *gone_group(void)
{
    tsr_world *w = short_world();
    tsr_group *g = tsr_world_group(w);
    tsr_world_destroy(w);
    return g;
}

static tsr_work *gone_work(void)
{
    tsr_work *w, *copy;
    MUST_OK(tsr_all_reduce_async(f.group, numbers, 4, TSR_F32, TSR_REDUCE_SUM, &w));
    copy = w;
    MUST_OK(tsr_work_wait(&w, 0));
    return copy;
}

static tsr_work **gone_work_handle(void)
{
    static tsr_work *w;
    w = gone_work();
    return &w;
}

static tsr_ddp **gone_ddp_handle(void)
{
    static tsr_ddp *d;
    d = gone_ddp();
    return &d;
}

static tsr_store *gone_store(void)
{
    char url[160];
    tsr_store *s;
    snprintf(url, sizeof url, "file://%s/gone%d?rank=0&world_size=1", f.folder, (int)getpid());
    MUST_OK(tsr_store_open(url, TSR_STORE_OPTS(.timeout_s = 0.2), &s));
    tsr_store_close(s);
    return s;
}

#endif
