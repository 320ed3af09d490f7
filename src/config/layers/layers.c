/* SPDX-License-Identifier: Apache-2.0 */
/* The table of layers at work: sections for the reader, and modules. */
#include "src/config/layers/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tessera/layers.h>

#include "src/config/layers/layer_table.h"
#include "src/graph/graph.h"

typedef struct maker {
    tsri_program *p;
    tsr_nn_opts opts;
    const tsri_config_layer *layer;
} maker;

static const char *const bn_words[] = {"global", "local", NULL};

#define W (c->p->world)
#define O (&c->opts)
#define L (*c->layer)
#define A (c->layer->op)

/* --- layers with options ---------------------------------------------------------------------- */
static tsr_hw hw_of(const int64_t pair[2])
{
    return (tsr_hw){(int)pair[0], (int)pair[1]};
}

static tsr_dhw dhw_of(const int64_t triple[3])
{
    return (tsr_dhw){(int)triple[0], (int)triple[1], (int)triple[2]};
}

static tsr_module *make_conv1d(const maker *c)
{
    return tsr_nn_conv1d(W, O, L.in, L.out, (int)A.kernel[0], L.bias,
                         TSR_CONV1D_OPTS(.stride = (int)A.stride[0], .padding = (int)A.padding[0],
                                         .dilation = (int)A.dilation[0], .groups = A.groups));
}

static tsr_module *make_conv2d(const maker *c)
{
    return tsr_nn_conv2d(W, O, L.in, L.out, (int)A.n, L.bias,
                         TSR_CONV2D_OPTS(.stride = hw_of(A.stride), .padding = hw_of(A.padding),
                                         .dilation = hw_of(A.dilation), .groups = A.groups));
}

static tsr_module *make_conv3d(const maker *c)
{
    return tsr_nn_conv3d(W, O, L.in, L.out, dhw_of(A.kernel3), L.bias,
                         TSR_CONV3D_OPTS(.stride = dhw_of(A.stride3), .padding = dhw_of(A.padding3),
                                         .dilation = dhw_of(A.dilation3), .groups = A.groups));
}

static tsr_module *make_conv_transpose1d(const maker *c)
{
    return tsr_nn_conv_transpose1d(
        W, O, L.in, L.out, (int)A.kernel[0], L.bias,
        TSR_CONV_TRANSPOSE1D_OPTS(.stride = (int)A.stride[0], .padding = (int)A.padding[0],
                                  .output_padding = (int)A.output_padding[0],
                                  .dilation = (int)A.dilation[0], .groups = A.groups));
}

static tsr_module *make_conv_transpose2d(const maker *c)
{
    return tsr_nn_conv_transpose2d(
        W, O, L.in, L.out, hw_of(A.kernel), L.bias,
        TSR_CONV_TRANSPOSE2D_OPTS(.stride = hw_of(A.stride), .padding = hw_of(A.padding),
                                  .output_padding = hw_of(A.output_padding),
                                  .dilation = hw_of(A.dilation), .groups = A.groups));
}

static tsr_module *make_conv_transpose3d(const maker *c)
{
    return tsr_nn_conv_transpose3d(
        W, O, L.in, L.out, dhw_of(A.kernel3), L.bias,
        TSR_CONV_TRANSPOSE3D_OPTS(.stride = dhw_of(A.stride3), .padding = dhw_of(A.padding3),
                                  .output_padding = dhw_of(A.output_padding3),
                                  .dilation = dhw_of(A.dilation3), .groups = A.groups));
}

static tsr_module *make_batch_norm(const maker *c)
{
    return tsr_nn_batch_norm(W, O, L.channels,
                             TSR_BATCH_NORM_OPTS(.eps = A.eps, .momentum = A.momentum,
                                                 .stats = (tsr_bn_stats)A.stats,
                                                 .parts = (int)A.parts));
}

typedef tsr_module *recurrent_fn(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                                 const tsr_rnn_opts *rnn);
static tsr_module *make_recurrent(const maker *c, recurrent_fn *make)
{
    return make(W, O, L.in, L.hidden,
                TSR_RNN_OPTS(.layers = (int)L.count, .bias = L.bias, .batch_first = L.batch_first,
                             .bidirectional = L.bidirectional, .dropout = A.p));
}

static tsr_module *make_attention(const maker *c)
{
    return tsr_nn_multihead_attention(
        W, O, L.width, L.heads,
        TSR_MULTIHEAD_ATTENTION_OPTS(.bias = L.bias, .batch_first = L.batch_first,
                                     .causal = A.causal, .dropout = A.p));
}

static tsr_module *make_encoder(const maker *c, bool several)
{
    const tsr_transformer_layer_opts *o =
        TSR_TRANSFORMER_LAYER_OPTS(.inner = L.inner, .dropout = A.p, .eps = A.eps, .gelu = L.gelu,
                                   .batch_first = L.batch_first, .norm_first = L.norm_first,
                                   .causal = A.causal);
    return several
               ? tsr_nn_transformer_encoder(W, O, L.width, L.heads, (int)L.count, L.final_norm, o)
               : tsr_nn_transformer_encoder_layer(W, O, L.width, L.heads, o);
}

/* --- containers ------------------------------------------------------------------------------- */
/* The children that a container applies, in order, by their places in the file. */
typedef struct container {
    tsri_program *p;
    const tsri_yaml **nodes;
    int n;
} container;

/* Passes x through a child. The first layer whose ops are refused is noted. */
static tsr_tensor *apply_layer(const container *c, tsr_module *child, int i, tsr_tensor *x)
{
    const tsri_yaml *node = c->nodes[i];
    tsr_tensor *y = tsr_apply_at(child, x, node->file, node->line);
    if (!tsr_tensor_ok(y) && tsr_tensor_ok(x) && !c->p->inside->refused)
        c->p->inside->refused = node;
    return y;
}

static tsr_tensor *sequential_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const container *c = arg;
    for (int i = 0; i < c->n; i++)
        x = apply_layer(c, tsr_module_child_at(m, i), i, x);
    return x;
}

static tsr_tensor *residual_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const container *c = arg;
    tsr_module *shortcut = tsr_module_child_at(m, c->n);
    const tsri_yaml *node = c->nodes[c->n];
    tsr_tensor *y = sequential_forward(m, x, arg);
    x = shortcut ? tsr_apply_at(shortcut, x, node->file, node->line) : x;
    return tsr_add_at(y, x, node->file, node->line);
}

static tsr_module *make_layers(const maker *c, const tsri_items *layers, tsr_forward_fn *forward,
                               const tsri_yaml *node);

static const tsri_items *items_of(const maker *c)
{
    const tsri_experiment *e = c->p->experiment;
    const tsri_config_part *part = L.part.name ? tsri_experiment_part(e, L.part.name) : NULL;
    return part ? &part->layers : &L.layers;
}

static tsr_module *make_container(const maker *c, tsr_forward_fn *forward)
{
    tsr_module *m = make_layers(c, items_of(c), forward, A.head.node);
    if (!m || !L.shortcut.n)
        return m;
    tsr_module *other = make_layers(c, &L.shortcut, sequential_forward, A.head.node);
    if (other && tsr_module_add(m, "shortcut", other))
        return m;
    tsr_module_destroy(m);
    return NULL;
}

/* --- ops -------------------------------------------------------------------------------------- */
/* An op of one operand as a layer. */
typedef struct op_layer {
    tsri_config_op op;
    const char *file;
    int line;
} op_layer;

static tsr_tensor *op_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const op_layer *l = arg;
    (void)m;
    const tsri_op_call call = {.graph = x->graph,
                               .op = &l->op,
                               .name = "",
                               .in = {x},
                               .nin = 1,
                               .file = l->file,
                               .line = l->line};
    return tsri_op_rows[l->op.head.variant].declare(&call);
}

static tsr_module *make_op(const maker *c, int op)
{
    op_layer *l = tsri_pool_alloc(&c->p->inside->pool, sizeof *l);
    if (!l)
        return NULL;
    l->op = A;
    l->op.head.variant = op;
    /* The variant's keys stand behind those that all ops have, in place of those of all layers. */
    l->op.head.given = A.head.given >> tsri_layer_section.nfields << tsri_op_section.nfields;
    if (!tsri_op_has(&l->op, "dtype"))
        l->op.dtype = c->opts.dtype;
    l->file = A.head.node->file;
    l->line = A.head.node->line;
    return tsr_module_create(W, O, op_forward, l, NULL);
}

/* --- the table -------------------------------------------------------------------------------- */
#define CALL(layer_, call_, doc_, ...)              \
    static tsr_module *row_##layer_(const maker *c) \
    {                                               \
        return call_;                               \
    }
TSRI_LAYER_TABLE(CALL)

#define L_ATTR(key_, kind_, member_, fallback_, low_, high_, doc_) \
    {.name = #key_,                                                \
     .kind = TSRI_FIELD_##kind_,                                   \
     .offset = offsetof(tsri_config_layer, member_),               \
     .fallback = fallback_,                                        \
     .min = low_,                                                  \
     .max = high_,                                                 \
     .doc = doc_},
#define L_WORD(key_, member_, fallback_, words_, doc_) \
    {.name = #key_,                                    \
     .kind = TSRI_FIELD_WORD,                          \
     .offset = offsetof(tsri_config_layer, member_),   \
     .fallback = fallback_,                            \
     .words = words_,                                  \
     .doc = doc_},
#define L_ITEMS(key_, fallback_, doc_)            \
    {.name = #key_,                               \
     .kind = TSRI_FIELD_SECTIONS,                 \
     .offset = offsetof(tsri_config_layer, key_), \
     .fallback = fallback_,                       \
     .section = &tsri_layer_section,              \
     .min = 1,                                    \
     .max = TSRI_CONFIG_MAX_LAYERS,               \
     .doc = doc_},
#define FIELDS(layer_, call_, doc_, ...) \
    static const tsri_field fields_##layer_[] = {__VA_ARGS__{.name = NULL}};
TSRI_LAYER_TABLE(FIELDS)

#define SECTION(layer_, call_, doc_, ...)                               \
    {.name = #layer_,                                                   \
     .doc = doc_,                                                       \
     .size = sizeof(tsri_config_layer),                                 \
     .nfields = (int)(sizeof fields_##layer_ / sizeof(tsri_field)) - 1, \
     .fields = fields_##layer_},
static const tsri_section own_sections[] = {TSRI_LAYER_TABLE(SECTION)};

#define ROW(layer_, call_, doc_, ...) row_##layer_,
static tsr_module *(*const rows[])(const maker *c) = {TSRI_LAYER_TABLE(ROW)};

enum { OWN = sizeof rows / sizeof *rows, MOST = 512 };

/* The layers above, and behind them the ops of one operand. */
static tsri_section sections[MOST];
static int ops[MOST]; /* of a layer, its op; of those above -1 */

static const tsri_field common_fields[] = {
    {.name = "name",
     .kind = TSRI_FIELD_TEXT,
     .offset = offsetof(tsri_config_layer, name),
     .fallback = TSRI_NONE,
     .doc = "Its name, which its parameters' names begin with. Default: its number in the list, "
            "from 0, repeated ones counted each."},
    {.name = "repeat",
     .kind = TSRI_FIELD_INT,
     .offset = offsetof(tsri_config_layer, repeat),
     .fallback = TSRI_NONE,
     .min = 1,
     .max = TSRI_CONFIG_MAX_REPEAT,
     .doc = "So many of it, one behind the other, each with parameters of its own. With a name "
            "they are NAME.0, NAME.1 and so on."},
};
tsri_section tsri_layer_section = {.name = "layer",
                                   .doc = "A layer; its name alone stands for one without keys.",
                                   .size = sizeof(tsri_config_layer),
                                   .nfields = sizeof common_fields / sizeof *common_fields,
                                   .fields = common_fields,
                                   .selector = "layer",
                                   .word_alone = true,
                                   .variants = sections};

static bool is_own(const char *name)
{
    for (int i = 0; i < OWN; i++)
        if (!strcmp(own_sections[i].name, name))
            return true;
    return false;
}

/* Joins both tables, before main. */
__attribute__((constructor)) static void join_tables(void)
{
    int n = 0;
    for (; n < OWN; n++) {
        sections[n] = own_sections[n];
        ops[n] = -1;
    }
    for (int i = 0; i < tsri_nops && n < MOST; i++) {
        const tsri_section *op = &tsri_op_sections[i];
        if (!op->operands || strcmp(op->operands, "x") != 0 || is_own(op->name) ||
            tsri_op_rows[i].role != TSRI_ROLE_COMPUTE)
            continue;
        sections[n] = *op;
        ops[n++] = i;
    }
    tsri_layer_section.nvariants = n;
}

/* --- making ----------------------------------------------------------------------------------- */
static tsr_module *make_one(const maker *c)
{
    int variant = A.head.variant;
    tsri_error_clear();
    tsr_module *m = variant < OWN ? rows[variant](c) : make_op(c, ops[variant]);
    if (!m && !c->p->inside->refused) {
        c->p->inside->refused = A.head.node;
        tsri_program_fail(A.head.node, TSR_ERR_INVALID);
    }
    return m;
}

/* The layer's repetitions as a module of their own. */
static tsr_module *make_repeated(const maker *c)
{
    container *at = tsri_pool_alloc(&c->p->inside->pool, sizeof *at);
    tsr_module *m = at ? tsr_module_create(W, O, sequential_forward, at, NULL) : NULL;
    char name[24];
    if (!m)
        return NULL;
    at->p = c->p;
    at->nodes = tsri_pool_alloc(&c->p->inside->pool, (size_t)L.repeat * sizeof(const tsri_yaml *));
    for (int i = 0; i < (int)L.repeat; i++) {
        snprintf(name, sizeof name, "%d", i);
        tsr_module *one = at->nodes ? make_one(c) : NULL;
        if (!one || !tsr_module_add(m, name, one)) {
            tsr_module_destroy(m);
            return NULL;
        }
        at->nodes[at->n++] = A.head.node;
    }
    return m;
}

static bool add_layer(const maker *c, tsr_module *m, container *at)
{
    bool has_name = tsri_section_has(&tsri_layer_section, c->layer, "name");
    bool has_repeat = tsri_section_has(&tsri_layer_section, c->layer, "repeat");
    int n = has_repeat && !has_name ? (int)L.repeat : 1;
    char number[24];
    for (int i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%d", at->n);
        tsr_module *one = has_repeat && has_name ? make_repeated(c) : make_one(c);
        if (!one || !tsr_module_add(m, has_name ? L.name : number, one))
            return false;
        at->nodes[at->n++] = A.head.node;
    }
    return true;
}

/* How many children a list makes. */
static int count_children(const tsri_items *layers)
{
    const tsri_config_layer *l = layers->items;
    int n = 0;
    for (int i = 0; i < layers->n; i++)
        n += tsri_section_has(&tsri_layer_section, &l[i], "repeat") &&
                     !tsri_section_has(&tsri_layer_section, &l[i], "name")
                 ? (int)l[i].repeat
                 : 1;
    return n;
}

static tsr_module *make_layers(const maker *c, const tsri_items *layers, tsr_forward_fn *forward,
                               const tsri_yaml *node)
{
    tsri_pool *pool = &c->p->inside->pool;
    const tsri_config_layer *l = layers->items;
    container *at = tsri_pool_alloc(pool, sizeof *at);
    const size_t n = (size_t)count_children(layers);
    if (!at || !(at->nodes = tsri_pool_alloc(pool, (n + 1) * sizeof(const tsri_yaml *))))
        return NULL;
    at->p = c->p;
    at->nodes[n] = node;
    tsr_module *m = tsr_module_create(W, O, forward, at, NULL);
    for (int i = 0; i < layers->n && m; i++) {
        const maker each = {c->p, c->opts, &l[i]};
        if (!add_layer(&each, m, at)) {
            tsr_module_destroy(m);
            return NULL;
        }
    }
    return m;
}

tsr_module *tsri_layers_make(tsri_program *p, const tsr_nn_opts *opts)
{
    const maker c = {.p = p, .opts = *opts};
    return make_layers(&c, &p->experiment->model.layers, sequential_forward,
                       p->experiment->model.head.node);
}
