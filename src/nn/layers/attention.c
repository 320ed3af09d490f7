/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of several heads, with PyTorch's parameters. */
#include <tessera/functional.h>

#include <math.h>

#include "src/core/opts.h"
#include "src/graph/op.h"
#include "src/nn/layers/layer.h"

typedef struct attention {
    int64_t width, heads;
    tsr_multihead_attention_opts o;
} attention;

enum { QUERY, KEY, VALUE, MASK, KEY_MASK, MOST_INPUTS };

/* --- checks ----------------------------------------------------------------------------------- */
/* The sizes of a call: samples, queries and keys. */
typedef struct sizes {
    int64_t n, s, t;
} sizes;

static bool refuse(tsr_module *m, const tsr_tensor *x, const char *what, const char *wanted)
{
    tsr_graph *g = x->graph;
    tsri_graph_fail(g, m->loc, TSR_ERR_SHAPE, "multihead_attention: %s is %s; it must be %s", what,
                    tsri_dims_text(g, x->shape), wanted);
    return false;
}

static bool check_mask(tsr_module *m, const tsr_tensor *mask, const tsr_tensor *x, const char *what)
{
    if (!mask || mask->dtype == TSR_BOOL || mask->dtype == x->dtype)
        return true;
    tsri_graph_fail(x->graph, m->loc, TSR_ERR_DTYPE,
                    "multihead_attention: %s is %s; it must be bool, or of the queries' dtype",
                    what, tsr_dtype_name(mask->dtype));
    return false;
}

static bool check_inputs(tsr_module *m, const attention *a, tsr_tensor *const *in, sizes *out)
{
    static const char *const names[] = {"query", "key", "value"};
    const int batch = a->o.batch_first ? 0 : 1;
    for (int i = QUERY; i <= VALUE; i++)
        if (in[i]->shape.ndim != 3 || in[i]->shape.d[2] != a->width ||
            in[i]->shape.d[batch] != in[QUERY]->shape.d[batch])
            return refuse(m, in[i], names[i],
                          batch ? "(s,n,width), of one n" : "(n,s,width), of one n");
    const tsr_tensor *mask = in[MASK], *key_mask = in[KEY_MASK];
    const sizes z = {in[QUERY]->shape.d[batch], in[QUERY]->shape.d[1 - batch],
                     in[KEY]->shape.d[1 - batch]};
    *out = z;
    if (in[VALUE]->shape.d[1 - batch] != z.t)
        return refuse(m, in[VALUE], "value", "as long as key");
    if (mask && !tsr_dims_equal(mask->shape, TSR_DIMS(z.s, z.t)) &&
        !tsr_dims_equal(mask->shape, TSR_DIMS(z.n * a->heads, z.s, z.t)))
        return refuse(m, mask, "mask", "(s,t) or (n heads,s,t)");
    if (key_mask && !tsr_dims_equal(key_mask->shape, TSR_DIMS(z.n, z.t)))
        return refuse(m, key_mask, "the mask of keys", "(n,t)");
    return check_mask(m, mask, in[QUERY], "mask") &&
           check_mask(m, key_mask, in[QUERY], "the mask of keys");
}

/* --- masks ------------------------------------------------------------------------------------ */
/* Returns a mask that is added: that of bools is -inf where they are true. */
static tsr_tensor *added(tsr_module *m, tsr_tensor *mask, const tsr_tensor *x)
{
    if (mask->dtype != TSR_BOOL)
        return mask;
    tsr_tensor *zeros = tsri_make_fill(x->graph, mask->shape, x->dtype, x->placement, 0, m->loc);
    return tsr_masked_fill(zeros, mask, -INFINITY);
}

/* Returns one mask of both, which broadcasts to (n,heads,s,t): of bools, true where a key is not
 * seen, or numbers to add. NULL: there is none. */
static tsr_tensor *join_masks(tsr_module *m, const attention *a, tsr_tensor *const *in, sizes z)
{
    tsr_tensor *mask = in[MASK], *keys = in[KEY_MASK];
    if (mask && mask->shape.ndim == 3)
        mask = tsr_reshape(mask, TSR_DIMS(z.n, a->heads, z.s, z.t));
    if (keys)
        keys = tsr_reshape(keys, TSR_DIMS(z.n, 1, 1, z.t));
    if (!mask || !keys)
        return mask ? mask : keys;
    if (mask->dtype == TSR_BOOL && keys->dtype == TSR_BOOL)
        return tsr_logical_or(mask, keys);
    return tsr_add(added(m, mask, in[QUERY]), added(m, keys, in[QUERY]));
}

/* --- passing tensors on ----------------------------------------------------------------------- */
/* Sets out to queries, keys and values: by one product where they are of one tensor. */
static void project(tsr_module *m, const attention *a, tsr_tensor *const *in, tsr_tensor **out)
{
    const int64_t third[3] = {a->width, a->width, a->width};
    tsr_tensor *x = in[QUERY], *weight = tsr_use(m, "in_proj_weight", x);
    tsr_tensor *bias = tsri_layer_use(m, "in_proj_bias", x), *weights[3], *biases[3] = {NULL};
    if (in[KEY] == x && in[VALUE] == x) {
        tsr_split(tsr_linear(x, weight, bias), 3, third, 2, out);
        return;
    }
    tsr_split(weight, 3, third, 0, weights);
    if (bias)
        tsr_split(bias, 3, third, 0, biases);
    for (int i = QUERY; i <= VALUE; i++)
        out[i] = tsr_linear(in[i], weights[i], biases[i]);
}

/* Returns (s,n,width) as (n,heads,s,width/heads). */
static tsr_tensor *split_heads(tsr_module *m, const attention *a, tsr_tensor *x)
{
    const tsr_dims d = tsr_tensor_dims(x);
    x = tsr_reshape(x, TSR_DIMS(d.d[0], d.d[1], a->heads, a->width / a->heads));
    return tsr_permute(x, a->o.batch_first ? TSR_AXES(0, 2, 1, 3) : TSR_AXES(1, 2, 0, 3));
}

/* Returns the weights of keys (n,heads,s,t), which queries that see no key do not have. */
static tsr_tensor *weigh(tsr_module *m, const attention *a, tsr_tensor *q, tsr_tensor *k,
                         tsr_tensor *mask)
{
    const bool hides = mask && mask->dtype == TSR_BOOL;
    tsr_tensor *x = tsr_matmul_t(q, k, false, true);
    x = tsr_mul_scalar(x, 1 / sqrt((double)(a->width / a->heads)));
    if (mask)
        x = hides ? tsr_masked_fill(x, mask, -1e30) : tsr_add(x, mask);
    if (a->o.causal)
        x = tsr_causal_mask(x, 0, -INFINITY);
    x = tsr_softmax(x, 3);
    x = hides ? tsr_masked_fill(x, mask, 0) : x;
    return a->o.dropout > 0 ? tsr_dropout(x, a->o.dropout) : x;
}

static void attention_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout,
                              tsr_tensor **out, void *arg)
{
    const attention *a = arg;
    tsr_tensor *key = in[KEY] ? in[KEY] : in[QUERY];
    tsr_tensor *given[MOST_INPUTS] = {in[QUERY], key, in[VALUE] ? in[VALUE] : key, in[MASK],
                                      in[KEY_MASK]};
    sizes z;
    if (nin > MOST_INPUTS)
        tsri_graph_fail(in[0]->graph, m->loc, TSR_ERR_INVALID,
                        "multihead_attention: %d inputs; there are at most %d", nin, MOST_INPUTS);
    if (nin > MOST_INPUTS || !check_inputs(m, a, given, &z))
        return;
    tsr_tensor *of[3], *mask = join_masks(m, a, given, z), *y;
    project(m, a, given, of);
    for (int i = QUERY; i <= VALUE; i++) {
        if (!tsr_tensor_ok(of[i]))
            return;
        of[i] = split_heads(m, a, of[i]);
    }
    if (nout > 1) {
        tsr_tensor *weights = weigh(m, a, of[QUERY], of[KEY], mask);
        y = tsr_matmul(weights, of[VALUE]);
        out[1] = tsr_mean(weights, TSR_AXES(1), false);
    } else {
        if (mask && mask->dtype == TSR_BOOL)
            mask = tsr_logical_not(mask);
        y = tsr_scaled_dot_product_attention(
            of[QUERY], of[KEY], of[VALUE], mask,
            TSR_ATTENTION_OPTS(.causal = a->o.causal, .dropout = a->o.dropout));
    }
    y = tsr_permute(y, a->o.batch_first ? TSR_AXES(0, 2, 1, 3) : TSR_AXES(2, 0, 1, 3));
    y = tsr_reshape(y, in[QUERY]->shape);
    tsr_module *proj = tsr_module_child(m, "out_proj");
    tsr_tensor *bias = a->o.bias ? tsr_use(proj, "bias", y) : NULL;
    out[0] = tsr_linear(y, tsr_use(proj, "weight", y), bias);
}

tsr_module *tsr_nn_multihead_attention(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                       int64_t heads, const tsr_multihead_attention_opts *opts)
{
    attention a = {width, heads, *TSR_MULTIHEAD_ATTENTION_OPTS()};
    if (tsri_opts_read(&a.o, sizeof a.o, opts, __func__) != TSR_OK)
        return NULL;
    if (width < 1 || width > INT32_MAX || heads < 1 || width % heads ||
        !(a.o.dropout >= 0 && a.o.dropout < 1)) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_nn_multihead_attention: width %lld, heads %lld, dropout %g: heads must "
                  "divide the width, and the dropout be in [0, 1)",
                  (long long)width, (long long)heads, a.o.dropout);
        return NULL;
    }
    tsr_module *m = tsri_layer_create_n(w, o, attention_forward, &a, sizeof a);
    if (!m)
        return NULL;
    const tsr_init zeros = {.kind = TSR_INIT_ZEROS};
    tsr_module_param(m, "in_proj_weight", TSR_DIMS(3 * width, width), TSR_AUTO,
                     (tsr_init){.kind = TSR_INIT_XAVIER_UNIFORM});
    if (a.o.bias)
        tsr_module_param(m, "in_proj_bias", TSR_DIMS(3 * width), TSR_AUTO, zeros);
    tsr_module *proj = tsr_module_add(m, "out_proj", tsr_nn_sequential(w, o));
    if (proj)
        tsr_module_param(proj, "weight", TSR_DIMS(width, width), TSR_AUTO,
                         tsri_layer_weight_init());
    if (proj && a.o.bias)
        tsr_module_param(proj, "bias", TSR_DIMS(width), TSR_AUTO, zeros);
    return tsri_layer_finish(m);
}
