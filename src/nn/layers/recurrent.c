/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers, unrolled over time. A layer's products with its input are one product over all
 * steps; each step then adds its product with the state.
 */
#include <stdio.h>

#include "src/core/opts.h"
#include "src/graph/op.h"
#include "src/nn/layers/layer.h"

typedef enum cell_kind { CELL_RNN, CELL_LSTM, CELL_GRU } cell_kind;

typedef struct network {
    cell_kind kind;
    const char *name;
    int64_t in, hidden;
    bool is_cell; /* one step of one layer, whose variables have no "_l0" behind */
    tsr_rnn_opts o;
} network;

static int gates_of(cell_kind kind)
{
    return kind == CELL_LSTM ? 4 : kind == CELL_GRU ? 3 : 1;
}

/* How many tensors are the state: h, and c of an LSTM. */
static int states_of(cell_kind kind)
{
    return kind == CELL_LSTM ? 2 : 1;
}

static int directions_of(const network *net)
{
    return net->o.bidirectional ? 2 : 1;
}

enum { NAME_MAX_BYTES = 48 };

/* Writes the name of a variable of a layer and a direction: "weight_ih_l0_reverse". */
static void write_name(char text[NAME_MAX_BYTES], const network *net, const char *what, int layer,
                       int direction)
{
    if (net->is_cell)
        snprintf(text, NAME_MAX_BYTES, "%s", what);
    else
        snprintf(text, NAME_MAX_BYTES, "%s_l%d%s", what, layer, direction ? "_reverse" : "");
}

/* --- making ----------------------------------------------------------------------------------- */
static void add_variables(tsr_module *m, const network *net, int layer, int direction)
{
    const int64_t in = layer ? net->hidden * directions_of(net) : net->in;
    const int64_t rows = gates_of(net->kind) * net->hidden;
    const struct {
        const char *name;
        tsr_dims dims;
    } variables[] = {{"weight_ih", TSR_DIMS(rows, in)},
                     {"weight_hh", TSR_DIMS(rows, net->hidden)},
                     {"bias_ih", TSR_DIMS(rows)},
                     {"bias_hh", TSR_DIMS(rows)}};
    for (int i = 0; i < (net->o.bias ? 4 : 2); i++) {
        char name[NAME_MAX_BYTES];
        write_name(name, net, variables[i].name, layer, direction);
        tsr_module_param(m, name, variables[i].dims, TSR_AUTO,
                         tsri_layer_bias_init((double)net->hidden));
    }
}

static void network_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout,
                            tsr_tensor **out, void *arg);

static tsr_module *make(tsr_world *w, const tsr_nn_opts *o, network net)
{
    const int64_t most = INT32_MAX;
    if (net.in < 1 || net.hidden < 1 || net.in > most || net.hidden > most || net.o.layers < 1 ||
        net.o.layers > 1000 || !(net.o.dropout >= 0 && net.o.dropout < 1)) {
        tsri_fail(TSR_ERR_INVALID,
                  "%s: in = %lld, hidden = %lld, layers = %d, dropout = %g: sizes are at least 1, "
                  "layers 1 to 1000, and dropout is in [0, 1)",
                  net.name, (long long)net.in, (long long)net.hidden, net.o.layers, net.o.dropout);
        return NULL;
    }
    tsr_module *m = tsri_layer_create_n(w, o, network_forward, &net, sizeof net);
    for (int layer = 0; m && layer < net.o.layers; layer++)
        for (int d = 0; d < directions_of(&net); d++)
            add_variables(m, &net, layer, d);
    return tsri_layer_finish(m);
}

static tsr_module *make_network(tsr_world *w, const tsr_nn_opts *o, network net,
                                const tsr_rnn_opts *rnn)
{
    net.o = *TSR_RNN_OPTS();
    return tsri_opts_read(&net.o, sizeof net.o, rnn, net.name) == TSR_OK ? make(w, o, net) : NULL;
}

tsr_module *tsr_nn_lstm(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                        const tsr_rnn_opts *rnn)
{
    return make_network(w, o, (network){CELL_LSTM, __func__, in, hidden, .is_cell = false}, rnn);
}

tsr_module *tsr_nn_gru(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                       const tsr_rnn_opts *rnn)
{
    return make_network(w, o, (network){CELL_GRU, __func__, in, hidden, .is_cell = false}, rnn);
}

tsr_module *tsr_nn_rnn(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                       const tsr_rnn_opts *rnn)
{
    return make_network(w, o, (network){CELL_RNN, __func__, in, hidden, .is_cell = false}, rnn);
}

static tsr_module *make_cell(tsr_world *w, const tsr_nn_opts *o, network net, bool bias)
{
    net.is_cell = true;
    net.o.layers = 1;
    net.o.bias = bias;
    return make(w, o, net);
}

tsr_module *tsr_nn_lstm_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                             bool bias)
{
    return make_cell(w, o, (network){CELL_LSTM, __func__, in, hidden, .is_cell = true}, bias);
}

tsr_module *tsr_nn_gru_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                            bool bias)
{
    return make_cell(w, o, (network){CELL_GRU, __func__, in, hidden, .is_cell = true}, bias);
}

tsr_module *tsr_nn_rnn_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                            bool bias, bool relu)
{
    network net = {CELL_RNN, __func__, in, hidden, .is_cell = true, .o = {.relu = relu}};
    return make_cell(w, o, net, bias);
}

/* --- steps ------------------------------------------------------------------------------------ */
/* A step needs the weights of its layer and direction, NULL biases where there are none. */
typedef struct weights {
    tsr_tensor *ih, *hh, *bias_ih, *bias_hh;
} weights;

static tsr_tensor *use(tsr_module *m, const network *net, const char *what, int layer,
                       int direction, tsr_tensor *x)
{
    char name[NAME_MAX_BYTES];
    write_name(name, net, what, layer, direction);
    return tsri_layer_use(m, name, x);
}

/* Reads the weights. Both biases are added to the input's part, but for a GRU, whose n gate
 * multiplies the state's part with its bias. */
static weights read_weights(tsr_module *m, const network *net, int layer, int direction,
                            tsr_tensor *x)
{
    weights v = {.ih = use(m, net, "weight_ih", layer, direction, x),
                 .hh = use(m, net, "weight_hh", layer, direction, x),
                 .bias_ih = use(m, net, "bias_ih", layer, direction, x),
                 .bias_hh = use(m, net, "bias_hh", layer, direction, x)};
    if (net->kind != CELL_GRU && net->o.bias) {
        v.bias_ih = tsr_add(v.bias_ih, v.bias_hh);
        v.bias_hh = NULL;
    }
    return v;
}

static void split_gates(tsr_module *m, const network *net, tsr_tensor *x, tsr_tensor **out)
{
    const int64_t h = net->hidden;
    tsr_split(x, gates_of(net->kind), ((const int64_t[]){h, h, h, h}), 1, out);
}

/* Replaces the state, whose first tensor is h (n,hidden), by that of the next step. x (n,gates
 * hidden) is the input's part. */
static void step(tsr_module *m, const network *net, const weights *v, tsr_tensor *x,
                 tsr_tensor **state)
{
    tsr_tensor *h = state[0], *of[4], *from_h[4];
    tsr_tensor *hidden = tsr_linear(h, v->hh, v->bias_hh);
    if (net->kind == CELL_RNN) {
        x = tsr_add(x, hidden);
        state[0] = net->o.relu ? tsr_relu(x) : tsr_tanh(x);
        return;
    }
    if (net->kind == CELL_LSTM) {
        split_gates(m, net, tsr_add(x, hidden), of);
        tsr_tensor *kept = tsr_mul(tsr_sigmoid(of[1]), state[1]);
        state[1] = tsr_add(kept, tsr_mul(tsr_sigmoid(of[0]), tsr_tanh(of[2])));
        state[0] = tsr_mul(tsr_sigmoid(of[3]), tsr_tanh(state[1]));
        return;
    }
    split_gates(m, net, x, of);
    split_gates(m, net, hidden, from_h);
    tsr_tensor *r = tsr_sigmoid(tsr_add(of[0], from_h[0]));
    tsr_tensor *z = tsr_sigmoid(tsr_add(of[1], from_h[1]));
    tsr_tensor *n = tsr_tanh(tsr_add(of[2], tsr_mul(r, from_h[2])));
    state[0] = tsr_add(n, tsr_mul(z, tsr_sub(h, n)));
}

/* --- passing tensors on ----------------------------------------------------------------------- */
static tsr_tensor *shaped(tsr_module *m, tsr_tensor *x, tsr_dims dims)
{
    return tsri_make_reshape(x, dims, m->loc);
}

/* Passes x (t,n,...) through one direction of a layer: returns (t,n,hidden), and leaves the last
 * state in `state`. */
static tsr_tensor *run_direction(tsr_module *m, const network *net, int layer, int direction,
                                 tsr_tensor *x, tsr_tensor **state)
{
    const weights v = read_weights(m, net, layer, direction, x);
    x = tsr_linear(x, v.ih, v.bias_ih);
    if (!tsr_tensor_ok(x))
        return x;
    const int nsteps = (int)x->shape.d[0];
    const tsr_dims one = TSR_DIMS(x->shape.d[1], x->shape.d[2]);
    int64_t *sizes = tsri_pool_alloc(&x->graph->pool, (size_t)nsteps * sizeof *sizes);
    tsr_tensor **parts = tsri_pool_alloc(&x->graph->pool, (size_t)nsteps * sizeof(tsr_tensor *));
    if (!sizes || !parts)
        return tsri_graph_fail_last(x->graph, TSR_ERR_NO_MEMORY);
    for (int i = 0; i < nsteps; i++)
        sizes[i] = 1;
    tsr_split(x, nsteps, sizes, 0, parts);
    for (int i = 0; i < nsteps; i++) {
        const int at = direction ? nsteps - 1 - i : i;
        if (!tsr_tensor_ok(parts[at]))
            return parts[at];
        step(m, net, &v, shaped(m, parts[at], one), state);
        parts[at] = state[0];
    }
    return tsr_stack(nsteps, parts, 0);
}

/* Returns a state of the shape that dims say: what the user gave, or zeros. */
static tsr_tensor *first_state(tsr_module *m, tsr_tensor *given, const tsr_tensor *x, tsr_dims dims)
{
    return given ? given : tsri_make_fill(x->graph, dims, x->dtype, x->placement, 0, m->loc);
}

static bool check_shapes(tsr_module *m, const network *net, int nin, tsr_tensor *const *in,
                         tsr_dims *out_state)
{
    const tsr_tensor *x = in[0];
    tsr_graph *g = x->graph;
    const int ndim = net->is_cell ? 2 : 3, states = states_of(net->kind);
    bool fits = x->shape.ndim == ndim && x->shape.d[ndim - 1] == net->in;
    const int64_t steps = !fits || net->is_cell ? 1 : x->shape.d[net->o.batch_first];
    if (!fits || steps < 1 || steps > INT32_MAX) {
        tsri_graph_fail(g, m->loc, TSR_ERR_SHAPE, "%s: x is %s; it must be (%s,%lld)%s", net->name,
                        tsri_dims_text(g, x->shape),
                        net->is_cell         ? "n"
                        : net->o.batch_first ? "n,t"
                                             : "t,n",
                        (long long)net->in, net->is_cell ? "" : " with t of at least 1");
        return false;
    }
    if (nin > 1 + states) {
        tsri_graph_fail(g, m->loc, TSR_ERR_INVALID, "%s: %d inputs; there are x and %s", net->name,
                        nin, states == 2 ? "h and c" : "h");
        return false;
    }
    const int64_t n = x->shape.d[net->is_cell || net->o.batch_first ? 0 : 1];
    *out_state = net->is_cell ? TSR_DIMS(n, net->hidden)
                              : TSR_DIMS(net->o.layers * directions_of(net), n, net->hidden);
    for (int i = 1; i <= states; i++) {
        if (!in[i] || tsr_dims_equal(in[i]->shape, *out_state))
            continue;
        tsri_graph_fail(g, m->loc, TSR_ERR_SHAPE, "%s: %s is %s; it must be %s", net->name,
                        i == 1 ? "h0" : "c0", tsri_dims_text(g, in[i]->shape),
                        tsri_dims_text(g, *out_state));
        return false;
    }
    return true;
}

/* Passes x (t,n,in) through all layers; last[s] gets what each layer and direction leaves of state
 * s. */
static tsr_tensor *run_layers(tsr_module *m, const network *net, tsr_tensor *x,
                              tsr_tensor *const *first, tsr_tensor **last[2])
{
    const int nd = directions_of(net), states = states_of(net->kind);
    const tsr_dims one = TSR_DIMS(x->shape.d[1], net->hidden);
    for (int layer = 0; layer < net->o.layers; layer++) {
        tsr_tensor *y[2];
        if (layer && net->o.dropout > 0)
            x = tsr_dropout(x, net->o.dropout);
        for (int d = 0; d < nd; d++) {
            const int at = layer * nd + d;
            tsr_tensor *state[2];
            for (int s = 0; s < states; s++)
                state[s] = first[s] ? shaped(m, tsr_narrow(first[s], 0, at, 1), one)
                                    : first_state(m, NULL, x, one);
            y[d] = run_direction(m, net, layer, d, x, state);
            if (!tsr_tensor_ok(y[d]))
                return y[d];
            for (int s = 0; s < states; s++)
                last[s][at] = state[s];
        }
        x = nd == 2 ? tsr_concat(2, y, 2) : y[0];
    }
    return x;
}

static void cell_forward(tsr_module *m, const network *net, tsr_tensor *const *in, tsr_dims dims,
                         tsr_tensor **out)
{
    const weights v = read_weights(m, net, 0, 0, in[0]);
    for (int s = 0; s < states_of(net->kind); s++)
        out[s] = first_state(m, in[1 + s], in[0], dims);
    step(m, net, &v, tsr_linear(in[0], v.ih, v.bias_ih), out);
}

static void network_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout,
                            tsr_tensor **out, void *arg)
{
    const network *net = arg;
    tsr_dims dims;
    if (!check_shapes(m, net, nin, in, &dims))
        return;
    const tsri_ctx c = {.g = in[0]->graph, .loc = m->loc, .op = net->name};
    tsr_tensor *low[3] = {NULL};
    for (int i = 0; i <= states_of(net->kind); i++)
        low[i] = tsri_low(&c, in[i]);
    in = low;
    if (net->is_cell) {
        cell_forward(m, net, in, dims, out);
        return;
    }
    const int parts = net->o.layers * directions_of(net), states = states_of(net->kind);
    tsr_graph *g = in[0]->graph;
    tsr_tensor **last[2] = {NULL, NULL};
    for (int s = 0; s < states; s++)
        if (!(last[s] = tsri_pool_alloc(&g->pool, (size_t)parts * sizeof(tsr_tensor *)))) {
            tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
            return;
        }
    const bool turned = net->o.batch_first;
    tsr_tensor *x = turned ? tsr_transpose(in[0], 0, 1) : in[0];
    tsr_tensor *y = tsr_tensor_ok(x) ? run_layers(m, net, x, in + 1, last) : x;
    if (!tsr_tensor_ok(y))
        return;
    out[0] = turned ? tsr_transpose(y, 0, 1) : y;
    for (int s = 0; s < states && 1 + s < nout; s++)
        out[1 + s] = tsr_stack(parts, last[s], 0);
}
