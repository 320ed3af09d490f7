/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transformer of pre-norm blocks. Queries, keys and values are linear layers of their own, and
 * heads come by reshaping, so that tensor parallelism is but the signatures of weights: q, k, v and
 * fc1 by rows, proj and fc2 by columns.
 */
#include <tessera/models.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The facts that every module of a network remembers. */
typedef struct settings {
    int64_t width, heads;
    bool has_head, tied, causal;
    double dropout;
    tsr_gelu_form gelu;
} settings;

typedef struct builder {
    tsr_world *world;
    tsr_nn_opts nn;
    settings s;
    int64_t hidden;
    bool failed; /* the first error is the thread's last; what follows does nothing */
} builder;

static tsr_module *make(builder *b, tsr_forward_fn *forward)
{
    settings *copy = b->failed ? NULL : malloc(sizeof *copy);
    if (!copy && !b->failed)
        tsr_set_error(TSR_ERR_NO_MEMORY, "tsr_transformer: no memory");
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

/* Adds a linear layer with a bias, the first of a pair (COLUMN) or the second (ROW). */
static void add_linear(builder *b, tsr_module *parent, const char *name, int64_t in, int64_t out,
                       tsr_role role)
{
    if (b->failed)
        return;
    tsr_module *m = add(b, parent, name, tsr_nn_linear(b->world, &b->nn, in, out, true));
    set_role(b, m, "weight", role, role == TSR_ROLE_COLUMN ? 0 : 1);
    if (role == TSR_ROLE_COLUMN)
        set_role(b, m, "bias", role, 0);
}

static void add_norm(builder *b, tsr_module *parent, const char *name, tsr_role role)
{
    if (b->failed)
        return;
    tsr_module *m =
        add(b, parent, name, tsr_nn_layer_norm(b->world, &b->nn, TSR_DIMS(b->s.width), NULL));
    set_role(b, m, "weight", role, 0);
}

/* --- embeddings ------------------------------------------------------------------------------- */
static tsr_tensor *embedding_forward(tsr_module *m, tsr_tensor *ids, void *arg)
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
    tsr_init init = {.kind = TSR_INIT_NORMAL, .a = 0, .b = 0.02};
    b->failed |=
        b->failed || !tsr_module_param(m, "weight", TSR_DIMS(rows, b->s.width), TSR_AUTO, init);
    set_role(b, m, "weight", role, 0);
}

/* --- blocks ----------------------------------------------------------------------------------- */
/* (b,s,(h d)) -> (b,h,s,d) */
static tsr_tensor *split_heads(tsr_tensor *x, int64_t heads)
{
    tsr_dims d = tsr_tensor_dims(x);
    return tsr_permute(tsr_reshape(x, TSR_DIMS(d.d[0], d.d[1], heads, d.d[2] / heads)),
                       TSR_AXES(0, 2, 1, 3));
}

static tsr_tensor *attention_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const settings *s = arg;
    static const char *const names[3] = {"q", "k", "v"};
    tsr_tensor *of[3];
    for (int i = 0; i < 3; i++)
        of[i] = split_heads(tsr_apply(tsr_module_child(m, names[i]), x), s->heads);
    tsr_tensor *y = tsr_attention(of[0], of[1], of[2],
                                  TSR_ATTENTION_OPTS(.causal = s->causal, .dropout = s->dropout));
    y = tsr_reshape(tsr_permute(y, TSR_AXES(0, 2, 1, 3)), tsr_tensor_dims(x));
    return tsr_apply(tsr_module_child(m, "proj"), y);
}

static tsr_tensor *mlp_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const settings *s = arg;
    x = tsr_gelu(tsr_apply(tsr_module_child(m, "fc1"), x), s->gelu);
    return tsr_apply(tsr_module_child(m, "fc2"), x);
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
    x = branch(m, "norm1", "attn", x, s->dropout);
    return branch(m, "norm2", "mlp", x, s->dropout);
}

static void add_block(builder *b, tsr_module *blocks, int number)
{
    static const char *const names[] = {"q", "k", "v", "proj"};
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    tsr_module *block = add(b, blocks, name, make(b, block_forward));
    add_norm(b, block, "norm1", TSR_ROLE_NORM);
    tsr_module *attn = add(b, block, "attn", make(b, attention_forward));
    for (int i = 0; i < 4; i++)
        add_linear(b, attn, names[i], b->s.width, b->s.width,
                   i < 3 ? TSR_ROLE_COLUMN : TSR_ROLE_ROW);
    add_norm(b, block, "norm2", TSR_ROLE_NORM);
    tsr_module *mlp = add(b, block, "mlp", make(b, mlp_forward));
    add_linear(b, mlp, "fc1", b->s.width, b->hidden, TSR_ROLE_COLUMN);
    add_linear(b, mlp, "fc2", b->hidden, b->s.width, TSR_ROLE_ROW);
}

/* --- the model -------------------------------------------------------------------------------- */
static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const settings *s = arg;
    tsr_module *embedding = tsr_module_child(m, "tok_emb");
    tsr_module *positions = tsr_module_child(m, "pos_emb");
    if (embedding)
        x = tsr_apply(embedding, x);
    if (positions)
        x = tsr_apply(positions, x);
    x = tsr_apply(tsr_module_child(m, "blocks"), tsr_dropout(x, s->dropout));
    x = tsr_apply(tsr_module_child(m, "norm"), x);
    if (s->tied)
        return tsr_linear(x, tsr_use(embedding, "weight", x), NULL);
    return s->has_head ? tsr_apply(tsr_module_child(m, "head"), x) : x;
}

static bool read_options(const tsr_transformer_opts *o, builder *b)
{
    double ratio = o->mlp_ratio;
    int64_t width = o->width, heads = o->heads;
    if (o->vocab < 0 || o->positions < 0 || width < 1 || heads < 1 || width % heads ||
        o->layers < 0 || !(ratio > 0 && ratio * (double)width < 1e9) || o->classes < 0 ||
        !(o->dropout >= 0 && o->dropout < 1)) {
        tsr_set_error(TSR_ERR_INVALID,
                      "tsr_transformer: vocab %lld, positions %lld, width %lld, heads %lld, layers "
                      "%d, mlp_ratio %g, classes %lld, dropout %g: heads must divide the width, "
                      "the ratio be above 0, the dropout in [0, 1), and no count negative",
                      (long long)o->vocab, (long long)o->positions, (long long)width,
                      (long long)heads, o->layers, ratio, (long long)o->classes, o->dropout);
        return false;
    }
    if (o->tied && (!o->vocab || (o->classes && o->classes != o->vocab))) {
        tsr_set_error(TSR_ERR_INVALID,
                      "tsr_transformer: a tied head has the embedding's %lld classes; found "
                      "classes = %lld",
                      (long long)o->vocab, (long long)o->classes);
        return false;
    }
    b->hidden = (int64_t)(ratio * (double)width);
    b->s = (settings){.width = width,
                      .heads = heads,
                      .has_head = o->classes || o->vocab,
                      .tied = o->tied,
                      .causal = o->causal,
                      .dropout = o->dropout,
                      .gelu = o->gelu};
    return true;
}

tsr_module *tsr_transformer(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                            const tsr_transformer_opts *opts)
{
    tsr_transformer_opts o = *TSR_TRANSFORMER_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    builder b = {.world = w, .nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed}};
    if (!read_options(&o, &b))
        return NULL;
    tsr_module *net = make(&b, net_forward);
    if (o.vocab)
        add_table(&b, net, "tok_emb", embedding_forward, o.vocab, TSR_ROLE_EMBEDDING);
    if (o.positions)
        add_table(&b, net, "pos_emb", positions_forward, o.positions, TSR_ROLE_NONE);
    tsr_module *blocks = b.failed ? NULL : add(&b, net, "blocks", tsr_nn_sequential(w, &b.nn));
    for (int i = 0; i < o.layers; i++)
        add_block(&b, blocks, i);
    add_norm(&b, net, "norm", TSR_ROLE_NONE);
    if (b.s.has_head && !b.s.tied && !b.failed)
        add(&b, net, "head",
            tsr_nn_linear(w, &b.nn, b.s.width, o.classes ? o.classes : o.vocab, false));
    if (b.failed) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
