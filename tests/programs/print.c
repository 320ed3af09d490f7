/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a program as C. An op's call comes from its text (program.h), in which
 *   $k   operand k          #k  i[k]            %k  f[k]
 *   @k   dims[k]            @s  the shape       @n  its first axis         ^A  axes
 *   ^D   the dtype          ^P  the placement   ^S  the signature          ^N  an input's name
 *   ^M   the module         ^V  its variable    ^L  all operands as a list
 */
#include "print.h"
#include "oracle.h"

#include <math.h>
#include <string.h>

static void put_number(FILE *out, double v)
{
    if (isnan(v))
        fputs("NAN", out);
    else if (isinf(v))
        fputs(v > 0 ? "INFINITY" : "-INFINITY", out);
    else
        fprintf(out, "%.17g", v);
}

static void put_dims(FILE *out, tsr_dims d)
{
    if (!d.ndim) {
        fputs("TSR_SCALAR", out);
        return;
    }
    for (int i = 0; i < d.ndim; i++)
        if (d.d[i] == INT64_MAX)
            fprintf(out, "%sINT64_MAX", i ? ", " : "TSR_DIMS(");
        else
            fprintf(out, "%s%lld", i ? ", " : "TSR_DIMS(", (long long)d.d[i]);
    fputc(')', out);
}

static void put_axes(FILE *out, tsr_axes a)
{
    if (!a.n) {
        fputs("TSR_ALL_AXES", out);
        return;
    }
    for (int i = 0; i < a.n; i++)
        fprintf(out, "%s%d", i ? ", " : "TSR_AXES(", a.axis[i]);
    fputc(')', out);
}

static const char *dtype_text(tsr_dtype d)
{
    return d == TSR_F64   ? "TSR_F64"
           : d == TSR_F32 ? "TSR_F32"
           : d == TSR_I64 ? "TSR_I64"
           : d == TSR_I32 ? "TSR_I32"
           : d == TSR_U8  ? "TSR_U8"
                          : "TSR_BOOL";
}

static void put_sbp(FILE *out, tsr_sbp s)
{
    char text[TSR_SBP_TEXT_MAX];
    if (s.ndim == 0)
        fputs("TSR_AUTO", out);
    else
        fprintf(out, "sbp(\"%s\")", tsr_sbp_format(s, text));
}

static void put_operand(FILE *out, int node)
{
    if (node < 0)
        fputs("NULL", out);
    else
        fprintf(out, "t%d", node);
}

static void put_letter(FILE *out, const program *p, const pnode *n, char letter)
{
    switch (letter) {
    case 'A':
        put_axes(out, n->axes);
        break;
    case 'D':
        fputs(dtype_text(n->dtype), out);
        break;
    case 'P':
        fprintf(out, "p%d", n->place);
        break;
    case 'S':
        put_sbp(out, n->sbp);
        break;
    case 'N':
        fprintf(out, "x%d", n->tag);
        break;
    case 'M':
        fprintf(out, "m%d", p->var[n->var].module);
        break;
    case 'V':
        fprintf(out, "\"%s\"", p->var[n->var].last);
        break;
    case 'L':
        fprintf(out, "%d, (tsr_tensor *[]){", n->nin);
        for (int i = 0; i < n->nin; i++)
            fprintf(out, "%st%d", i ? ", " : "", n->in[i]);
        fputc('}', out);
        break;
    }
}

static void put_call(FILE *out, const program *p, const pnode *n, const char *text)
{
    for (; *text; text++) {
        int k = text[1] - '0';
        switch (*text) {
        case '$':
            put_operand(out, n->in[k]);
            text++;
            break;
        case '#':
            fprintf(out, "%lld", (long long)n->i[k]);
            text++;
            break;
        case '%':
            put_number(out, n->f[k]);
            text++;
            break;
        case '@':
            if (text[1] == 'n')
                fprintf(out, "%lld", (long long)n->shape.d[0]);
            else
                put_dims(out, text[1] == 's' ? n->shape : n->dims[k]);
            text++;
            break;
        case '^':
            put_letter(out, p, n, *++text);
            break;
        default:
            fputc(*text, out);
        }
    }
}

static const char *ctype(tsr_dtype d)
{
    return d == TSR_F64   ? "double"
           : d == TSR_F32 ? "float"
           : d == TSR_I64 ? "int64_t"
           : d == TSR_I32 ? "int32_t"
           : d == TSR_U8  ? "uint8_t"
                          : "bool";
}

static void put_data(FILE *out, tsr_dtype dtype, int64_t n, const double *v)
{
    fprintf(out, "(%s[]){", ctype(dtype));
    for (int64_t i = 0; i < n; i++) {
        fputs(i ? ", " : "", out);
        put_number(out, v[i]);
    }
    fputs(n ? "}" : "0}", out);
}

static void put_node(FILE *out, const program *p, const pgraph *g, int at)
{
    const pnode *n = &g->node[at];
    const char *name = op_at(n->op)->name, *text = op_at(n->op)->text;
    double data[400];
    if (!strcmp(name, "gradients")) {
        fprintf(out, "    tsr_tensor *d%d[%d];\n    tsr_gradients(t%d, %d, ((tsr_tensor *[]){", at,
                n->nin - 1, n->in[0], n->nin - 1);
        for (int i = 1; i < n->nin; i++)
            fprintf(out, "%st%d", i > 1 ? ", " : "", n->in[i]);
        fprintf(out, "}), d%d);\n    tsr_tensor *t%d = d%d[0];\n", at, at, at);
        return;
    }
    if (!strcmp(name, "split")) {
        fprintf(out, "    tsr_tensor *d%d[%d];\n    tsr_split(t%d, %d, ((int64_t[]){", at,
                (int)n->i[1], n->in[0], (int)n->i[1]);
        for (int i = 0; i < n->i[1]; i++)
            fprintf(out, "%s%lld", i ? ", " : "", (long long)n->i[3 + i]);
        fprintf(out, "}), %d, d%d);\n    tsr_tensor *t%d = d%d[%d];\n", (int)n->i[0], at, at, at,
                (int)n->i[2]);
        return;
    }
    fprintf(out, "    tsr_tensor *t%d = ", at);
    if (!strcmp(name, "other_gradient")) {
        fprintf(out, "d%d[%d]", n->in[0], (int)n->i[0]);
    } else if (!strcmp(name, "random")) {
        put_call(out, p, n,
                 n->i[0] ? "tsr_normal(g, \"^N\", ^D, @s, ^P, ^S, %0, %1)"
                         : "tsr_uniform(g, \"^N\", ^D, @s, ^P, ^S, %0, %1)");
    } else if (!strcmp(name, "input") && n->batch) {
        put_call(out, p, n, "tsr_input_with(g, \"^N\", ^D, @s, ^P, ^S, ");
        fprintf(out, "TSR_INPUT_OPTS(.batch_axis = %d))", n->batch - 1);
    } else if (!strcmp(name, "constant")) {
        for (int64_t i = 0; i < count_of(n->shape); i++)
            data[i] = input_number(n, g->seed, i);
        put_call(out, p, n, "tsr_constant(g, ^D, @s, ");
        put_data(out, n->dtype, count_of(n->shape), data);
        put_call(out, p, n, ", ^P, ^S)");
    } else {
        put_call(out, p, n, text);
    }
    fputs(";\n", out);
}

static void put_optimizer(FILE *out, const program *p, int at)
{
    const poptimizer *o = &p->optimizer[at];
    static const char *const names[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lion"};
    static const char *const opts[] = {"SGD", "ADAM", "ADAM", "RMSPROP", "ADAGRAD", "LION"};
    fprintf(out, "    tsr_optimizer *o%d = tsr_%s(", at, names[o->kind]);
    fprintf(out, o->module < 0 ? "root" : "m%d", o->module);
    fprintf(out, ", TSR_%s_OPTS(.lr = %g, .weight_decay = %g", opts[o->kind], o->lr,
            o->weight_decay);
    if (o->kind == OPT_SGD)
        fprintf(out, ", .momentum = %g, .dampening = %g, .nesterov = %d", o->momentum, o->dampening,
                o->nesterov);
    if (o->kind == OPT_RMSPROP)
        fprintf(out, ", .momentum = %g, .centered = %d, .alpha = %g", o->momentum, o->centered,
                o->alpha);
    if (o->kind == OPT_ADAGRAD)
        fprintf(out, ", .lr_decay = %g, .initial_accumulator_value = %g, .eps = %g", o->lr_decay,
                o->start, o->eps);
    const tsr_schedule *s = &o->schedule;
    if (s->kind || s->warmup)
        fprintf(out,
                ", .schedule = {.kind = %d, .warmup = %d, .step_size = %d, .gamma = %g, .steps = "
                "%d, .min_lr = %g}",
                (int)s->kind, (int)s->warmup, (int)s->step_size, s->gamma, (int)s->steps,
                s->min_lr);
    fputs(", .state = ", out);
    put_sbp(out, o->state);
    fputs("));\n", out);
    if (oracle_owns_in(p, at, o->group))
        fprintf(
            out,
            "    CHECK(tsr_optimizer_param_group(o%d, \"m%d.*\", TSR_PARAM_GROUP_OPTS(.lr = %g, "
            ".weight_decay = %g)));\n",
            at, o->group, o->group_lr, o->group_decay);
    if (oracle_owns_in(p, at, o->frozen))
        fprintf(out, "    CHECK(tsr_optimizer_freeze(o%d, \"m%d.*\", true));\n", at, o->frozen);
}

static bool uses_place(const program *p, int place)
{
    bool used = place == 0;
    for (int i = 0; i < p->nvars; i++)
        used |= p->var[i].place == place;
    for (int g = 0; g < p->ngraphs; g++) {
        for (int i = 0; i < p->graph[g].nnodes; i++)
            used |= p->graph[g].node[i].place == place;
        for (int i = 0; i < p->graph[g].nsinks; i++)
            used |= p->graph[g].sink[i].place == place;
    }
    return used;
}

static bool uses_optimizer(const program *p, int optimizer)
{
    bool used = false;
    for (int g = 0; g < p->ngraphs; g++)
        for (int i = 0; i < p->graph[g].nsinks; i++)
            used |= p->graph[g].sink[i].kind == SINK_MINIMIZE &&
                    p->graph[g].sink[i].optimizer == optimizer;
    for (int i = 0; i < p->nacts; i++)
        used |= p->act[i].kind == ACT_SET_LR && p->act[i].optimizer == optimizer;
    return used;
}

static bool uses_module(const program *p, int module)
{
    bool used = false;
    for (int i = 0; i < p->nvars; i++)
        used |= p->var[i].module == module;
    for (int i = 0; i < p->noptimizers; i++)
        used |= p->optimizer[i].module == module && uses_optimizer(p, i);
    return used;
}

static void put_modules(FILE *out, const program *p)
{
    for (int i = 0; i < p->nplaces; i++)
        if (uses_place(p, i))
            fprintf(out, "    const tsr_placement *p%d = tsr_placement_parse(w, \"%s\");\n", i,
                    p->place[i]);
    fprintf(out,
            "    tsr_module *root = tsr_module_create(w, &(tsr_nn_opts){.placement = p0, .seed = "
            "%d}, NULL, NULL, NULL);\n",
            (int)p->module_seed);
    for (int i = 0; i < p->nmodules; i++)
        if (uses_module(p, i))
            fprintf(
                out,
                "    tsr_module *m%d = tsr_module_add(root, \"m%d\", tsr_module_create(w, "
                "&(tsr_nn_opts){.placement = p0, .dtype = %s, .seed = %d}, NULL, NULL, NULL));\n",
                i, i, dtype_text(p->module_dtype[i]), (int)p->module_seed);
    for (int i = 0; i < p->nvars; i++) {
        const pvar *v = &p->var[i];
        fprintf(out, "    tsr_module_%s(m%d, \"%s\", ", v->trainable ? "param" : "buffer",
                v->module, v->last);
        put_dims(out, v->dims);
        fputs(", ", out);
        put_sbp(out, v->place ? (tsr_sbp){0} : v->sbp);
        fprintf(out, ", (tsr_init){.kind = %s, .a = -1, .b = 1});\n",
                v->trainable ? "TSR_INIT_UNIFORM" : "TSR_INIT_ONES");
        if (v->place) {
            fprintf(out, "    tsr_module_place(root, \"%s\", p%d, ", v->name, v->place);
            put_sbp(out, v->sbp);
            fputs(");\n", out);
        }
    }
    if (p->init_scale > 0)
        fprintf(out,
                "    tsr_grad_scaler *scaler = tsr_grad_scaler_create(w, "
                "TSR_GRAD_SCALER_OPTS(.init_scale = %g, .growth_interval = %d));\n"
                "    (void)scaler;\n",
                p->init_scale, (int)p->growth_interval);
    for (int i = 0; i < p->noptimizers; i++)
        if (uses_optimizer(p, i))
            put_optimizer(out, p, i);
    for (int i = 0; i < p->nvars; i++) {
        const pvar *v = &p->var[i];
        if (v->drawn)
            continue;
        fprintf(out, "    CHECK(tsr_variable_set(tsr_module_find(root, \"%s\"), ", v->name);
        put_data(out, v->dtype, count_of(v->dims), v->data);
        fprintf(out, ", %d));\n", (int)(count_of(v->dims) * (int64_t)tsr_dtype_size(v->dtype)));
    }
}

static void put_minimize(FILE *out, const pgraph *g, const poptimizer *o, const sink *s)
{
    char suffix[16] = "";
    if (o->scaled)
        snprintf(suffix, sizeof suffix, "f%d", s->optimizer);
    if (o->scaled)
        fprintf(out,
                "    tsr_tensor *t%df%d = tsr_mul(t%d, tsr_input(g, \"factor%d\", "
                "%s, TSR_SCALAR, tsr_tensor_placement(t%d), TSR_AUTO));\n",
                s->node, s->optimizer, s->node, s->optimizer,
                g->node[s->node].dtype == TSR_F64 ? "TSR_F64" : "TSR_F32", s->node);
    if (o->scaled || o->clip_norm > 0 || o->clip_value > 0 || o->loss_scale != 1 ||
        o->accumulate > 1)
        fprintf(
            out,
            "    tsr_minimize_with(o%d, 1, &t%d%s, TSR_MINIMIZE_OPTS(.clip_norm = %g, .norm_type "
            "= %s, .clip_value = %g, .loss_scale = %g, .accumulate = %d%s));\n",
            s->optimizer, s->node, suffix, o->clip_norm,
            isinf(o->norm_type) ? "INFINITY"
            : o->norm_type == 1 ? "1"
            : o->norm_type == 2 ? "2"
                                : "3",
            o->clip_value, o->loss_scale, (int)o->accumulate,
            o->scaled ? ", .scaler = scaler" : "");
    else
        fprintf(out, "    tsr_minimize(o%d, t%d);\n", s->optimizer, s->node);
}

static void put_sinks(FILE *out, const program *p, const pgraph *g, int after)
{
    for (int i = 0; i < g->nsinks; i++) {
        const sink *s = &g->sink[i];
        if (s->after != after)
            continue;
        if (s->kind == SINK_MINIMIZE) {
            put_minimize(out, g, &p->optimizer[s->optimizer], s);
        } else if (s->kind == SINK_ASSIGN) {
            fprintf(out, "    tsr_assign(tsr_module_find(root, \"%s\"), tsr_cast(t%d, %s));\n",
                    p->var[s->var].name, s->node,
                    p->var[s->var].dtype == TSR_F64 ? "TSR_F64" : "TSR_F32");
        } else if (s->kind == SINK_LOCAL) {
            fprintf(out, "    tsr_to_local(g, \"y%d\", t%d);\n", i, s->node);
        } else {
            fprintf(out, "    tsr_output(g, \"y%d\", t%d, ", i, s->node);
            fprintf(out, s->place < 0 ? "NULL, " : "p%d, ", s->place);
            put_sbp(out, s->sbp);
            fputs(");\n", out);
        }
    }
}

static void put_graph(FILE *out, const program *p, int at)
{
    const pgraph *g = &p->graph[at];
    fprintf(out,
            "    tsr_plan *plan%d;\n    {\n    tsr_graph *g = tsr_graph_create(w, "
            "TSR_GRAPH_OPTS(.training = %d, .seed = %llu%s));\n",
            at, g->training, (unsigned long long)g->seed,
            p->autocast ? ", .autocast = TSR_BF16" : "");
    for (int i = 0; i < g->nnodes; i++) {
        if (p->recompute && i % p->recompute == 0)
            fprintf(out, "%s    tsr_recompute(g);\n", i ? "    tsr_recompute_end(g);\n" : "");
        put_node(out, p, g, i);
        put_sinks(out, p, g, i);
    }
    fprintf(out,
            "    CHECK(tsr_compile_with(g, TSR_COMPILE_OPTS(.bucket_mb = %g, .no_fusion = %u, "
            ".memory_limit = %d",
            g->bucket_mb, g->no_fusion, (int)g->memory_limit);
    if (g->microbatches > 1)
        fprintf(out, ", .microbatches = %d%s", g->microbatches,
                p->gpipe ? ", .pipeline = TSR_PIPELINE_GPIPE" : "");
    fprintf(out, "%s), &plan%d));\n    }\n",
            g->free_links ? ", .nlinks = 1, .link = {{0, 1e-12, 1e15}}, .flops_per_s = 1e3" : "",
            at);
}

static void put_run(FILE *out, const program *p, const act *a)
{
    const pgraph *g = &p->graph[a->graph];
    double data[400];
    for (int i = 0; i < g->nnodes; i++) {
        const pnode *n = &g->node[i];
        const char *name = op_at(n->op)->name;
        if (strcmp(name, "input") && strcmp(name, "from_local"))
            continue;
        for (int64_t k = 0; k < count_of(n->shape); k++)
            data[k] = input_number(n, a->seed, k);
        bool local = !strcmp(name, "from_local");
        fprintf(out,
                local ? "    /* the shard, the first rank's value, or an addend of: */\n    "
                        "CHECK(tsr_feed(plan%d, \"x%d\", "
                      : "    CHECK(tsr_feed(plan%d, \"x%d\", ",
                a->graph, n->tag);
        put_data(out, n->dtype, count_of(n->shape), data);
        fprintf(out, ", %d));\n", (int)(count_of(n->shape) * (int64_t)tsr_dtype_size(n->dtype)));
    }
    for (int i = 0; i < g->nsinks; i++) {
        const sink *s = &g->sink[i];
        if (s->kind == SINK_MINIMIZE && p->optimizer[s->optimizer].scaled)
            fprintf(out, "    CHECK(tsr_feed(plan%d, \"factor%d\", (%s[]){%s}, %d));\n", a->graph,
                    s->optimizer, g->node[s->node].dtype == TSR_F64 ? "double" : "float",
                    a->overflow >> s->optimizer & 1 ? "INFINITY" : "1",
                    g->node[s->node].dtype == TSR_F64 ? 8 : 4);
    }
    fprintf(out, "    CHECK(tsr_run(plan%d));\n", a->graph);
    for (int i = 0; i < g->nsinks; i++)
        if (g->sink[i].kind <= SINK_LOCAL)
            fprintf(out, "    show(plan%d, \"y%d\");\n", a->graph, i);
    for (int i = 0; i < p->nvars; i++)
        fprintf(out, "    show_variable(root, \"%s\");\n", p->var[i].name);
}

static const char head[] =
    "#include <math.h>\n#include <stdio.h>\n#include <string.h>\n#include <tessera/tessera.h>\n\n"
    "#define CHECK(call) do { tsr_status s_ = (call); if (s_ != TSR_OK) { printf(\"line %d: "
    "%s\\n\", __LINE__, tsr_last_error()); return s_; } } while (0)\n\n"
    "static tsr_sbp sbp(const char *text)\n{\n    tsr_sbp s = {0};\n    tsr_sbp_parse(text, &s);\n "
    "   return s;\n}\n\n"
    "static int rank;\n#pragma omp threadprivate(rank)\n\n"
    "static void show_numbers(const char *name, tsr_dtype dtype, tsr_dims dims, const void "
    "*data)\n{\n    char text[4000];\n    int n = sprintf(text, \"rank %d %s:\", rank, name);\n"
    "    for (int64_t i = 0; i < tsr_dims_count(dims); i++)\n        n += sprintf(text + n, \" "
    "%.17g\", dtype == TSR_F64 ? ((const double *)data)[i] : dtype == TSR_F32 ? ((const float "
    "*)data)[i] : dtype == TSR_I64 ? (double)((const int64_t *)data)[i] : dtype == TSR_I32 "
    "? ((const int32_t *)data)[i] : ((const uint8_t *)data)[i]);\n    puts(text);\n}\n\n"
    "static void show(tsr_plan *plan, const char *name)\n{\n    double data[400];\n    for (int i "
    "= 0; i < tsr_plan_nports(plan); i++) {\n        tsr_port p = tsr_plan_port(plan, i);\n        "
    "if (p.is_input || strcmp(p.name, name) || tsr_placement_find(p.placement, rank) < 0)\n        "
    "    continue;\n"
    "        tsr_fetch_shard(plan, name, data, (size_t)tsr_dims_count(p.shard) * "
    "tsr_dtype_size(p.dtype), NULL);\n        show_numbers(name, p.dtype, p.shard, data);\n    "
    "}\n}\n\n"
    "static void show_variable(tsr_module *m, const char *name)\n{\n    double data[400];\n    "
    "tsr_variable *v = tsr_module_find(m, name);\n    tsr_dims d = tsr_variable_dims(v);\n"
    "    if (tsr_variable_get(v, data, (size_t)tsr_dims_count(d) * "
    "tsr_dtype_size(tsr_variable_dtype(v))) == TSR_OK && rank == 0)\n        show_numbers(name, "
    "tsr_variable_dtype(v), d, data);\n}\n\n";

void program_print(const program *p, FILE *out)
{
    bool made[MAX_GRAPHS] = {0};
    fputs(head, out);
    fputs("static tsr_status body(tsr_world *w, void *arg)\n{\n    (void)arg;\n    rank = "
          "tsr_world_rank(w);\n",
          out);
    put_modules(out, p);
    for (int i = 0; i < p->nacts; i++) {
        const act *a = &p->act[i];
        double data[400];
        switch (a->kind) {
        case ACT_RUN:
            if (!made[a->graph])
                put_graph(out, p, a->graph);
            made[a->graph] = true;
            put_run(out, p, a);
            break;
        case ACT_SET:
            for (int64_t k = 0; k < count_of(p->var[a->var].dims); k++)
                data[k] = (floor(rnd_number(a->seed, k) * 1800) + 200) / 1024;
            fprintf(out, "    CHECK(tsr_variable_set(tsr_module_find(root, \"%s\"), ",
                    p->var[a->var].name);
            put_data(out, p->var[a->var].dtype, count_of(p->var[a->var].dims), data);
            fprintf(out, ", %d));\n",
                    (int)(count_of(p->var[a->var].dims) *
                          (int64_t)tsr_dtype_size(p->var[a->var].dtype)));
            break;
        case ACT_SET_LR:
            fprintf(out, "    tsr_optimizer_set_lr(o%d, %g);\n", a->optimizer, a->lr);
            break;
        case ACT_SAVE_LOAD:
            fputs("    CHECK(tsr_save(root, \"/tmp/saved.safetensors\"));\n", out);
            break;
        }
    }
    fprintf(out,
            "    return TSR_OK;\n}\n\nint main(void)\n{\n    tsr_status s = tsr_spawn(%d, body, "
            "NULL);\n    if (s != TSR_OK)\n        printf(\"%%s\\n\", tsr_last_error());\n    "
            "return s != TSR_OK;\n}\n",
            p->nranks);
}
