/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of op_samples.py: programs of a few ops, each run once on thread ranks.
 *
 * A request on stdin is a line "RANKS BYTES BYTES", a YAML text of so many bytes, and values of so
 * many bytes. The text is
 *
 *   placement: "cpu:[0,1]"
 *   training: false
 *   in: {x0: {dtype: f64, shape: [2, 3], sbp: "S(0)"}, g0: ...}   in the order of their values;
 *                                                                 variables have `variable: true`
 *   graph: {r0: {op: conv2d, in: [x0, x1], stride: 2}}            as in an experiment
 *   out: [r0]        the results
 *   sbp: ["P"]       the signature that each result passes through; auto: none
 *   weights: [g0]    for each result, what its gradient is; "-": none
 *   wrt: [x0]        the operands whose gradients are wanted
 *
 * The answer is a line "ok f64:2,3 ..." and the bytes of the results, then of the gradients; or a
 * line "STAGE TEXT" with the library's error: parse, declare, gradient, compile or run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#include "src/config/ops.h"
#include "src/core/world.h"
#include "src/graph/graph.h"
#include "src/nn/module.h"

enum { MOST_TENSORS = 256, MOST_OUT = 64 };

/* A result, as the first rank of the placement has fetched it. */
typedef struct value {
    tsr_dtype dtype;
    tsr_dims dims;
    size_t bytes;
    void *data;
} value;

/* One request, and its answer. */
typedef struct sample {
    char *text, *data;
    size_t text_bytes, data_bytes;
    const char *stage;
    int nout;
    value out[MOST_OUT];
} sample;

/* What a rank has declared of a sample. */
typedef struct program {
    const sample *s;
    tsr_world *world;
    tsri_pool pool;
    tsri_yaml *root;
    const tsr_placement *placement;
    tsr_graph *graph;
    tsr_module *module; /* of the operands that are variables */
    tsr_variable *variable[MOST_TENSORS];
    int n, nin, nout;
    struct {
        const char *name;
        tsr_tensor *tensor;
    } made[MOST_TENSORS];
    tsr_tensor *out[MOST_OUT];
} program;

/* --- declaring -------------------------------------------------------------------------------- */
static void add_tensor(program *p, const char *name, tsr_tensor *x)
{
    if (p->n == MOST_TENSORS)
        exit(3);
    p->made[p->n].name = name;
    p->made[p->n++].tensor = x;
}

static tsr_tensor *find_tensor(const program *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->made[i].name, name))
            return p->made[i].tensor;
    fprintf(stderr, "op_samples_peer: there is no tensor %s\n", name);
    exit(3);
}

static const tsri_yaml *child(const tsri_yaml *map, const char *key)
{
    const tsri_yaml *found = tsri_yaml_find(map, key);
    if (!found) {
        fprintf(stderr, "op_samples_peer: there is no key %s\n", key);
        exit(3);
    }
    return found;
}

static tsr_status declare_inputs(program *p)
{
    for (const tsri_yaml *in = child(p->root, "in")->first; in; in = in->next) {
        tsr_dims dims = {0};
        tsr_sbp sbp;
        for (const tsri_yaml *d = child(in, "shape")->first; d; d = d->next)
            dims.d[dims.ndim++] = strtoll(d->text, NULL, 10);
        TSR_TRY(tsr_sbp_parse(child(in, "sbp")->text, &sbp));
        const tsr_dtype dtype = tsr_dtype_parse(child(in, "dtype")->text);
        if (tsri_yaml_find(in, "variable")) {
            TSR_TRY(tsri_module_add_variable(p->module, in->key, p->placement, dtype, dims, sbp,
                                             (tsr_init){.kind = TSR_INIT_ZEROS}, false,
                                             &p->variable[p->nin]));
            add_tensor(p, in->key,
                       tsri_graph_read(p->graph, p->variable[p->nin], (tsri_loc){"sample", 0}));
        } else {
            add_tensor(p, in->key, tsr_input(p->graph, in->key, dtype, dims, p->placement, sbp));
        }
        p->nin++;
    }
    return tsr_graph_status(p->graph);
}

/* Declares one entry of the graph; a split makes NAME.0, NAME.1 and so on. */
static tsr_status declare_op(program *p, const tsri_yaml *node)
{
    const tsri_reader reader = {.pool = &p->pool, .working = "/"};
    tsri_config_op op = {0};
    tsr_tensor *many[MOST_OUT];
    TSR_TRY(tsri_section_read(&reader, &tsri_op_section, node, node, &op));
    tsri_op_call c = {.graph = p->graph,
                      .op = &op,
                      .name = node->key,
                      .nin = op.in.n,
                      .placement = p->placement,
                      .file = "sample",
                      .line = node->key_line};
    for (int i = 0; i < op.in.n; i++)
        c.in[i] = find_tensor(p, op.in.refs[i].name);
    if (tsri_op_rows[op.head.variant].role != TSRI_ROLE_SPLIT) {
        add_tensor(p, node->key, tsri_op_rows[op.head.variant].declare(&c));
        return tsr_graph_status(p->graph);
    }
    tsr_split_at(c.in[0], op.sizes.n, op.sizes.v, (int)op.axis, many, c.file, c.line);
    for (int i = 0; i < op.sizes.n; i++)
        add_tensor(p, tsri_pool_printf(&p->pool, "%s.%d", node->key, i), many[i]);
    return tsr_graph_status(p->graph);
}

static tsr_status declare_outputs(program *p, tsr_tensor **out_loss)
{
    const tsri_yaml *sbp_text = child(p->root, "sbp")->first;
    const tsri_yaml *weight = child(p->root, "weights")->first;
    *out_loss = NULL;
    for (const tsri_yaml *o = child(p->root, "out")->first; o;
         o = o->next, sbp_text = sbp_text->next, weight = weight->next) {
        tsr_tensor *y = find_tensor(p, o->text);
        tsr_sbp sbp;
        TSR_TRY(tsr_sbp_parse(sbp_text->text, &sbp));
        if (sbp.ndim)
            y = tsr_to_global(y, NULL, sbp);
        p->out[p->nout++] = y;
        if (!strcmp(weight->text, "-"))
            continue;
        tsr_tensor *term = tsr_sum(tsr_mul(y, find_tensor(p, weight->text)), TSR_ALL_AXES, false);
        *out_loss = *out_loss ? tsr_add(*out_loss, term) : term;
    }
    return tsr_graph_status(p->graph);
}

static tsr_status declare_gradients(program *p, tsr_tensor *loss)
{
    tsr_tensor *x[MOST_OUT];
    int n = 0;
    for (const tsri_yaml *w = child(p->root, "wrt")->first; w; w = w->next)
        x[n++] = find_tensor(p, w->text);
    if (n) {
        tsr_gradients(loss, n, x, p->out + p->nout);
        p->nout += n;
    }
    return tsr_graph_status(p->graph);
}

/* --- running ---------------------------------------------------------------------------------- */
static char *output_name(program *p, int i)
{
    return tsri_pool_printf(&p->pool, "output %d", i);
}

static tsr_status feed_inputs(program *p, tsr_plan *plan)
{
    const char *data = p->s->data;
    for (int i = 0; i < p->nin; i++) {
        const tsr_tensor *x = p->made[i].tensor;
        size_t bytes =
            (size_t)tsr_dims_count(tsr_tensor_dims(x)) * tsr_dtype_size(tsr_tensor_dtype(x));
        TSR_TRY(p->variable[i] ? tsr_variable_set(p->variable[i], data, bytes)
                               : tsr_feed(plan, p->made[i].name, data, bytes));
        data += bytes;
    }
    return TSR_OK;
}

static tsr_status fetch_outputs(program *p, tsr_plan *plan, sample *s)
{
    for (int i = 0; i < p->nout; i++) {
        value *v = &s->out[i];
        v->dtype = tsr_tensor_dtype(p->out[i]);
        v->dims = tsr_tensor_dims(p->out[i]);
        v->bytes = (size_t)tsr_dims_count(v->dims) * tsr_dtype_size(v->dtype);
        v->data = malloc(v->bytes + 1);
        s->nout = i + 1;
        TSR_TRY(tsr_fetch(plan, output_name(p, i), v->data, v->bytes));
    }
    return TSR_OK;
}

static tsr_status run_program(program *p, sample *s, bool leads)
{
    const char *unused;
    const char **stage = leads ? &s->stage : &unused;
    tsr_tensor *loss;
    tsr_plan *plan;
    *stage = "parse";
    TSR_TRY(tsri_yaml_parse(&p->pool, "sample", s->text, s->text_bytes, &p->root));
    *stage = "declare";
    p->graph = tsr_graph_create(
        p->world, TSR_GRAPH_OPTS(.training = !strcmp(child(p->root, "training")->text, "true")));
    p->module = tsr_module_create(p->world, NULL, NULL, NULL, NULL);
    p->placement = tsr_placement_parse(p->world, child(p->root, "placement")->text);
    TSR_TRY(declare_inputs(p));
    for (const tsri_yaml *node = child(p->root, "graph")->first; node; node = node->next)
        TSR_TRY(declare_op(p, node));
    TSR_TRY(declare_outputs(p, &loss));
    *stage = "gradient";
    TSR_TRY(declare_gradients(p, loss));
    for (int i = 0; i < p->nout; i++)
        tsr_output(p->graph, output_name(p, i), p->out[i], NULL, TSR_AUTO);
    *stage = "compile";
    TSR_TRY(tsr_compile(p->graph, &plan));
    *stage = "run";
    TSR_TRY(feed_inputs(p, plan));
    TSR_TRY(tsr_run(plan));
    return leads ? fetch_outputs(p, plan, s) : TSR_OK;
}

static tsr_status rank_main(tsr_world *world, void *arg)
{
    program *p = calloc(1, sizeof *p);
    p->s = arg;
    p->world = world;
    tsri_pool_init(&p->pool, &world->mem);
    tsr_status status = run_program(p, arg, tsr_world_rank(world) == 0);
    tsri_pool_finish(&p->pool);
    free(p);
    return status;
}

/* --- requests --------------------------------------------------------------------------------- */
static void answer(sample *s, tsr_status status)
{
    if (status != TSR_OK) {
        char text[1024];
        snprintf(text, sizeof text, "%s", tsr_last_error());
        for (char *c = text; *c; c++)
            *c = *c == '\n' ? ' ' : *c;
        printf("%s %s\n", s->stage, text);
    } else {
        printf("ok");
        for (int i = 0; i < s->nout; i++) {
            const value *v = &s->out[i];
            printf(" %s:", tsr_dtype_name(v->dtype));
            for (int d = 0; d < v->dims.ndim; d++)
                printf("%s%lld", d ? "," : "", (long long)v->dims.d[d]);
        }
        putchar('\n');
        for (int i = 0; i < s->nout; i++)
            fwrite(s->out[i].data, 1, s->out[i].bytes, stdout);
    }
    fflush(stdout);
}

int main(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        sample s = {.stage = "parse"};
        int ranks;
        if (sscanf(line, "%d %zu %zu", &ranks, &s.text_bytes, &s.data_bytes) != 3)
            return 2;
        s.text = malloc(s.text_bytes + 1);
        s.data = malloc(s.data_bytes + 1);
        if (fread(s.text, 1, s.text_bytes, stdin) != s.text_bytes ||
            fread(s.data, 1, s.data_bytes, stdin) != s.data_bytes)
            return 2;
        answer(&s, tsr_spawn(ranks, rank_main, &s));
        for (int i = 0; i < s.nout; i++)
            free(s.out[i].data);
        free(s.text);
        free(s.data);
    }
    return 0;
}
