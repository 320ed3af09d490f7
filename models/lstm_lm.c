/* SPDX-License-Identifier: Apache-2.0 */
/* A language model of an LSTM (Zaremba et al., "Recurrent Neural Network Regularization", 2014). */
#include <tessera/models.h>

#include <stdlib.h>
#include <string.h>

static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const double *dropout = arg;
    x = tsr_dropout(tsr_apply(tsr_module_child(m, "embedding"), x), *dropout);
    x = tsr_dropout(tsr_apply(tsr_module_child(m, "lstm"), x), *dropout);
    return tsr_apply(tsr_module_child(m, "head"), x);
}

static bool check_options(const tsr_lstm_lm_opts *o)
{
    const int64_t most = 1 << 30;
    if (o->vocab >= 1 && o->width >= 1 && o->width <= most && o->hidden >= 1 && o->hidden <= most &&
        o->layers >= 1 && o->dropout >= 0 && o->dropout < 1)
        return true;
    tsr_set_error(TSR_ERR_INVALID,
                  "tsr_lstm_lm: vocab %lld, width %lld, hidden %lld, layers %d, dropout %g: each "
                  "must be at least 1, and the dropout in [0, 1)",
                  (long long)o->vocab, (long long)o->width, (long long)o->hidden, o->layers,
                  o->dropout);
    return false;
}

tsr_module *tsr_lstm_lm(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                        const tsr_lstm_lm_opts *opts)
{
    tsr_lstm_lm_opts o = *TSR_LSTM_LM_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (!check_options(&o))
        return NULL;
    double *dropout = malloc(sizeof *dropout);
    if (!dropout) {
        tsr_set_error(TSR_ERR_NO_MEMORY, "tsr_lstm_lm: no memory");
        return NULL;
    }
    *dropout = o.dropout;
    tsr_nn_opts nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed};
    const tsr_rnn_opts *rnn =
        TSR_RNN_OPTS(.layers = o.layers, .batch_first = true, .dropout = o.dropout);
    tsr_module *net = tsr_module_create(w, &nn, net_forward, dropout, free); /* takes dropout */
    bool ok = net &&
              tsr_module_add(net, "embedding", tsr_nn_embedding(w, &nn, o.vocab, o.width, NULL)) &&
              tsr_module_add(net, "lstm", tsr_nn_lstm(w, &nn, o.width, o.hidden, rnn)) &&
              tsr_module_add(net, "head", tsr_nn_linear(w, &nn, o.hidden, o.vocab, true));
    if (!ok) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
