/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers. A layer's products with its input are one product over all steps; the steps of
 * a layer and direction are one op, and of a cell this op's only step.
 */
#include <stdio.h>

#include "kernels/recurrent.h"
#include "src/core/opts.h"
#include "src/graph/op.h"
#include "src/nn/layers/layer.h"

typedef struct network {
    tsri_cell cell;
    const char *name;
    int64_t in, hidden;
    bool is_cell; /* one step of one layer, whose variables have no "_l0" behind */
    tsr_rnn_opts o;
} network;

/* How many tensors are the state: h, and c of an LSTM. */
static int states_of(tsri_cell cell)
{
    return cell == TSRI_CELL_LSTM ? 2 : 1;
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
    const int64_t rows = tsri_cell_gates(net->cell) * net->hidden;
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
    if (net.cell == TSRI_CELL_TANH && net.o.relu)
        net.cell = TSRI_CELL_RELU;
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
    return make_network(w, o, (network){TSRI_CELL_LSTM, __func__, in, hidden, .is_cell = false},
                        rnn);
}

tsr_module *tsr_nn_gru(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                       const tsr_rnn_opts *rnn)
{
    return make_network(w, o, (network){TSRI_CELL_GRU, __func__, in, hidden, .is_cell = false},
                        rnn);
}

tsr_module *tsr_nn_rnn(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                       const tsr_rnn_opts *rnn)
{
    return make_network(w, o, (network){TSRI_CELL_TANH, __func__, in, hidden, .is_cell = false},
                        rnn);
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
    return make_cell(w, o, (network){TSRI_CELL_LSTM, __func__, in, hidden, .is_cell = true}, bias);
}

tsr_module *tsr_nn_gru_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                            bool bias)
{
    return make_cell(w, o, (network){TSRI_CELL_GRU, __func__, in, hidden, .is_cell = true}, bias);
}

tsr_module *tsr_nn_rnn_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                            bool bias, bool relu)
{
    network net = {TSRI_CELL_TANH, __func__, in, hidden, .is_cell = true, .o = {.relu = relu}};
    return make_cell(w, o, net, bias);
}

/* --- passing tensors on ----------------------------------------------------------------------- */
static tsr_tensor *use(tsr_module *m, const network *net, const char *what, int layer,
                       int direction, tsr_tensor *x)
{
    char name[NAME_MAX_BYTES];
    write_name(name, net, what, layer, direction);
    return tsri_layer_use(m, name, x);
}

static tsr_tensor *shaped(tsr_module *m, tsr_tensor *x, tsr_dims dims)
{
    return tsri_make_reshape(x, dims, m->loc);
}

/* Passes x (t,n,...) through one direction of a layer, from the states (n,hidden) in `state`, whose
 * place the states of all steps (t,n,hidden) take. Both biases are added to the input's part, but
 * for a GRU, whose n gate multiplies the state's part with its bias. */
static void run_direction(tsr_module *m, const network *net, int layer, int direction,
                          tsr_tensor *x, tsr_tensor **state)
{
    tsri_recurrent r = {.cell = net->cell,
                        .reverse = direction,
                        .w = use(m, net, "weight_hh", layer, direction, x),
                        .h0 = state[0],
                        .c0 = state[1]};
    tsr_tensor *bias = use(m, net, "bias_ih", layer, direction, x);
    tsr_tensor *bias_hh = use(m, net, "bias_hh", layer, direction, x);
    if (net->cell == TSRI_CELL_GRU)
        r.b = bias_hh;
    else if (net->o.bias)
        bias = tsr_add(bias, bias_hh);
    r.x = tsr_linear(x, use(m, net, "weight_ih", layer, direction, x), bias);
    state[0] = tsri_make_recurrent(&r, &state[1], m->loc);
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
    const int ndim = net->is_cell ? 2 : 3, states = states_of(net->cell);
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
 * s (1,n,hidden), where it is not NULL. */
static tsr_tensor *run_layers(tsr_module *m, const network *net, tsr_tensor *x,
                              tsr_tensor *const *first, tsr_tensor **last[2])
{
    const int nd = directions_of(net), states = states_of(net->cell);
    const int64_t t = x->shape.d[0];
    const tsr_dims one = TSR_DIMS(x->shape.d[1], net->hidden);
    for (int layer = 0; layer < net->o.layers; layer++) {
        tsr_tensor *y[2];
        if (layer && net->o.dropout > 0)
            x = tsr_dropout(x, net->o.dropout);
        for (int d = 0; d < nd; d++) {
            const int at = layer * nd + d;
            tsr_tensor *state[2] = {NULL, NULL};
            for (int s = 0; s < states; s++)
                state[s] = first[s] ? shaped(m, tsr_narrow(first[s], 0, at, 1), one)
                                    : first_state(m, NULL, x, one);
            run_direction(m, net, layer, d, x, state);
            y[d] = state[0];
            if (!tsr_tensor_ok(y[d]))
                return y[d];
            for (int s = 0; s < states; s++)
                if (last[s])
                    last[s][at] = tsr_narrow(state[s], 0, d ? 0 : t - 1, 1);
        }
        x = nd == 2 ? tsr_concat(2, y, 2) : y[0];
    }
    return x;
}

/* Makes one step, of a network of one. */
static void cell_forward(tsr_module *m, const network *net, tsr_tensor *const *in, tsr_dims dims,
                         tsr_tensor **out)
{
    tsr_tensor *state[2] = {NULL, NULL};
    const tsr_dims x = in[0]->shape;
    for (int s = 0; s < states_of(net->cell); s++)
        state[s] = first_state(m, in[1 + s], in[0], dims);
    run_direction(m, net, 0, 0, shaped(m, in[0], TSR_DIMS(1, x.d[0], x.d[1])), state);
    for (int s = 0; s < states_of(net->cell); s++)
        out[s] = tsr_tensor_ok(state[s]) ? shaped(m, state[s], dims) : state[s];
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
    for (int i = 0; i <= states_of(net->cell); i++)
        low[i] = tsri_low(&c, in[i]);
    in = low;
    if (net->is_cell) {
        cell_forward(m, net, in, dims, out);
        return;
    }
    const int parts = net->o.layers * directions_of(net), states = states_of(net->cell);
    tsr_graph *g = in[0]->graph;
    tsr_tensor **last[2] = {NULL, NULL};
    for (int s = 0; s < states && 1 + s < nout; s++)
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
    for (int s = 0; s < states && last[s]; s++)
        out[1 + s] = tsr_concat(parts, last[s], 0);
}
