/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/pass/chainer.h"

int tsri_chainer_find(const tsri_chainer *c, int item)
{
    for (int i = 0; i < c->nmembers; i++)
        if (c->member[i] == item)
            return i;
    return -1;
}

bool tsri_chainer_is_small(const tsri_chainer *c)
{
    int n = 0;
    for (int i = 0; i < c->nmembers; i++)
        n += c->ir->items[c->member[i]].nin + c->ir->items[c->member[i]].nout;
    return n <= TSRI_CHAIN_VALUES;
}

void tsri_chainer_finish(tsri_chainer *c)
{
    c->nchains++;
    for (int i = 0; i < c->nmembers; i++) {
        c->chain[c->member[i]] = c->nchains;
        c->position[c->member[i]] = c->at;
    }
}
