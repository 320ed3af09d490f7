/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), by the
 * parameter names and layouts of Hugging Face's GPT2Model: weights are (in,out), and attn.c_attn
 * holds the queries', the keys' and the values' columns side by side. The forward pass cuts that
 * weight in three before the products, so that each product can be divided by heads.
 */
#include <tessera/models.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The facts that every module of a network remembers. */
typedef struct settings {
    int64_t width, heads;
    double dropout;
} settings;

typedef struct builder {
    tsr_world *world;
    tsr_nn_opts nn;
    settings s;
    double residual_std; /* of the initial weights that end a residual branch */
    bool failed;         /* the first error is the thread's last; what follows does nothing */
} builder;

static tsr_module *make(builder *b, tsr_forward_fn *forward)
{
    settings *copy = b->failed ? NULL : malloc(sizeof *copy);
    if (!copy && !b->failed)
        tsr_set_error(TSR_ERR_NO_MEMORY, "tsr_gpt: no memory");
    tsr_module *m = NULL;
    if (copy) {
        *copy = b->s;
        m = tsr_module_create(b->world, &b->nn, forward, copy, free); /* takes it, come what may */
    }
    b->failed |= !m;
    return m;
}

static tsr_module *add(builder *b, tsr_module *parent, const char *name, tsr_module *child)
{
    tsr_module *m = b->failed ? NULL : tsr_module_add(parent, name, child);
    b->failed |= !m;
    return m;
}

static void set_role(builder *b, tsr_module *m, const char *name, tsr_role role, int axis)
{
    b->failed = b->failed || tsr_variable_set_role(tsr_module_find(m, name), role, axis) != TSR_OK;
}

static void add_norm(builder *b, tsr_module *parent, const char *name)
{
    if (b->failed)
        return;
    tsr_module *m =
        add(b, parent, name, tsr_nn_layer_norm(b->world, &b->nn, TSR_DIMS(b->s.width), NULL));
    set_role(b, m, "weight", TSR_ROLE_NORM, 0);
}

static void add_param(builder *b, tsr_module *m, const char *name, tsr_dims dims, double std,
                      tsr_role role, int axis)
{
    tsr_init init = {.kind = std > 0 ? TSR_INIT_NORMAL : TSR_INIT_ZEROS, .a = 0, .b = std};
    b->failed = b->failed || !tsr_module_param(m, name, dims, TSR_AUTO, init);
    set_role(b, m, name, role, axis);
}

/* --- embeddings ------------------------------------------------------------------------------- */
static tsr_tensor *tokens_forward(tsr_module *m, tsr_tensor *ids, void *arg)
{
    (void)arg;
    return tsr_embedding(tsr_use(m, "weight", ids), ids, NULL);
}

/* Adds the first rows of "weight" to x (b,s,width). */
static tsr_tensor *positions_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_add(x, tsr_narrow(tsr_use(m, "weight", x), 0, 0, tsr_tensor_dims(x).d[1]));
}

static void add_table(builder *b, tsr_module *net, const char *name, tsr_forward_fn *forward,
                      int64_t rows, tsr_role role)
{
    tsr_module *m = add(b, net, name, make(b, forward));
    add_param(b, m, "weight", TSR_DIMS(rows, b->s.width), 0.02, role, 0);
}

/* --- blocks ----------------------------------------------------------------------------------- */
/* x times weight, plus bias, in one type where autocast has made the product: as addmm's. */
static tsr_tensor *product(tsr_tensor *x, tsr_tensor *weight, tsr_tensor *bias)
{
    tsr_tensor *y = tsr_matmul(x, weight);
    if (tsr_tensor_ok(y) && tsr_tensor_ok(bias) && tsr_tensor_dtype(y) != tsr_tensor_dtype(bias))
        bias = tsr_cast(bias, tsr_tensor_dtype(y));
    return tsr_add(y, bias);
}

static tsr_tensor *product_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return product(x, tsr_use(m, "weight", x), tsr_use(m, "bias", x));
}

/* The product with the packed weight (width,3,width): x (b,s,width) -> (b,s,3 width). */
static tsr_tensor *packed_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const settings *s = arg;
    tsr_tensor *w = tsr_reshape(tsr_use(m, "weight", x), TSR_DIMS(s->width, 3 * s->width));
    return product(x, w, tsr_reshape(tsr_use(m, "bias", x), TSR_DIMS(3 * s->width)));
}

/* Sets q, k and v (b,h,s,d) of x (b,s,width) by the packed weight (width,3,width) of m. */
static void queries_keys_values(tsr_module *m, tsr_tensor *x, const settings *s, tsr_tensor *out[3])
{
    const int64_t w = s->width, ones[3] = {1, 1, 1};
    const tsr_dims d = tsr_tensor_dims(x);
    tsr_tensor *weights[3], *biases[3];
    tsr_split(tsr_use(m, "weight", x), 3, ones, 1, weights);
    tsr_split(tsr_use(m, "bias", x), 3, ones, 0, biases);
    for (int i = 0; i < 3; i++) {
        tsr_tensor *y = product(x, tsr_reshape(weights[i], TSR_DIMS(w, w)),
                                tsr_reshape(biases[i], TSR_DIMS(w)));
        y = tsr_reshape(y, TSR_DIMS(d.d[0], d.d[1], s->heads, s->width / s->heads));
        out[i] = tsr_permute(y, TSR_AXES(0, 2, 1, 3));
    }
}

static tsr_tensor *attention_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const settings *s = arg;
    tsr_tensor *of[3];
    queries_keys_values(tsr_module_child(m, "c_attn"), x, s, of);
    tsr_tensor *y = tsr_scaled_dot_product_attention(
        of[0], of[1], of[2], NULL, TSR_ATTENTION_OPTS(.causal = true, .dropout = s->dropout));
    y = tsr_reshape(tsr_permute(y, TSR_AXES(0, 2, 1, 3)), tsr_tensor_dims(x));
    return tsr_apply(tsr_module_child(m, "c_proj"), y);
}

static tsr_tensor *mlp_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    x = tsr_gelu(tsr_apply(tsr_module_child(m, "c_fc"), x), TSR_GELU_TANH);
    return tsr_apply(tsr_module_child(m, "c_proj"), x);
}

static tsr_tensor *branch(tsr_module *m, const char *norm, const char *name, tsr_tensor *x,
                          double dropout)
{
    tsr_tensor *y = tsr_apply(tsr_module_child(m, norm), x);
    return tsr_add(x, tsr_dropout(tsr_apply(tsr_module_child(m, name), y), dropout));
}

static tsr_tensor *block_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const settings *s = arg;
    x = branch(m, "ln_1", "attn", x, s->dropout);
    return branch(m, "ln_2", "mlp", x, s->dropout);
}

/* Adds a product by a weight (in,out), the first of a pair (COLUMN) or the second (ROW). */
static void add_product(builder *b, tsr_module *parent, const char *name, int64_t in, int64_t out,
                        double std, tsr_role role)
{
    const bool is_first = role == TSR_ROLE_COLUMN;
    tsr_module *m = add(b, parent, name, make(b, product_forward));
    add_param(b, m, "weight", TSR_DIMS(in, out), std, role, is_first ? 1 : 0);
    add_param(b, m, "bias", TSR_DIMS(out), 0, is_first ? role : TSR_ROLE_NONE, 0);
}

/* Adds the weight and bias of queries, keys and values, which an axis of their own tells apart: so
 * a part of the last axis is a part of the heads of each. In files they stand side by side. */
static void add_packed(builder *b, tsr_module *parent, const char *name, int64_t width)
{
    tsr_module *m = add(b, parent, name, make(b, packed_forward));
    add_param(b, m, "weight", TSR_DIMS(width, 3, width), 0.02, TSR_ROLE_HEADS, 2);
    add_param(b, m, "bias", TSR_DIMS(3, width), 0, TSR_ROLE_HEADS, 1);
    b->failed =
        b->failed ||
        tsr_variable_save_as(tsr_module_find(m, "weight"), TSR_DIMS(width, 3 * width)) != TSR_OK ||
        tsr_variable_save_as(tsr_module_find(m, "bias"), TSR_DIMS(3 * width)) != TSR_OK;
}

static void add_block(builder *b, tsr_module *blocks, int number)
{
    const int64_t width = b->s.width;
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    tsr_module *block = add(b, blocks, name, make(b, block_forward));
    add_norm(b, block, "ln_1");
    tsr_module *attn = add(b, block, "attn", make(b, attention_forward));
    add_packed(b, attn, "c_attn", width);
    add_product(b, attn, "c_proj", width, width, b->residual_std, TSR_ROLE_ROW);
    add_norm(b, block, "ln_2");
    tsr_module *mlp = add(b, block, "mlp", make(b, mlp_forward));
    add_product(b, mlp, "c_fc", width, 4 * width, 0.02, TSR_ROLE_COLUMN);
    add_product(b, mlp, "c_proj", 4 * width, width, b->residual_std, TSR_ROLE_ROW);
}

/* --- the model -------------------------------------------------------------------------------- */
static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *ids, void *arg)
{
    const settings *s = arg;
    tsr_module *tokens = tsr_module_child(m, "wte");
    tsr_tensor *x = tsr_apply(tsr_module_child(m, "wpe"), tsr_apply(tokens, ids));
    x = tsr_apply(tsr_module_child(m, "h"), tsr_dropout(x, s->dropout));
    x = tsr_apply(tsr_module_child(m, "ln_f"), x);
    return tsr_linear(x, tsr_use(tokens, "weight", x), NULL);
}

static bool read_options(const tsr_gpt_opts *o, builder *b)
{
    const int64_t most = 1 << 30;
    if (o->vocab < 1 || o->positions < 1 || o->width < 1 || o->width > most || o->heads < 1 ||
        o->width % o->heads || o->layers < 0 || !(o->dropout >= 0 && o->dropout < 1)) {
        tsr_set_error(TSR_ERR_INVALID,
                      "tsr_gpt: vocab %lld, positions %lld, width %lld, heads %lld, layers %d, "
                      "dropout %g: heads must divide the width, the dropout be in [0, 1), vocab, "
                      "positions and width at least 1, and layers not negative",
                      (long long)o->vocab, (long long)o->positions, (long long)o->width,
                      (long long)o->heads, o->layers, o->dropout);
        return false;
    }
    /* Each layer adds two branches to the stream. */
    b->residual_std = 0.02 / sqrt(2.0 * (o->layers > 0 ? o->layers : 1));
    b->s = (settings){.width = o->width, .heads = o->heads, .dropout = o->dropout};
    return true;
}

tsr_module *tsr_gpt(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, const tsr_gpt_opts *opts)
{
    tsr_gpt_opts o = *TSR_GPT_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    builder b = {.world = w, .nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed}};
    if (!read_options(&o, &b))
        return NULL;
    tsr_module *net = make(&b, net_forward);
    add_table(&b, net, "wte", tokens_forward, o.vocab, TSR_ROLE_EMBEDDING);
    add_table(&b, net, "wpe", positions_forward, o.positions, TSR_ROLE_NONE);
    tsr_module *blocks = b.failed ? NULL : add(&b, net, "h", tsr_nn_sequential(w, &b.nn));
    for (int i = 0; i < o.layers; i++)
        add_block(&b, blocks, i);
    add_norm(&b, net, "ln_f");
    if (b.failed) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
