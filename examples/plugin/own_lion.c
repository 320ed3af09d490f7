/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in: Lion (Chen et al. 2023), as ops on a parameter, its gradient and one state. */
#include <tessera/tessera.h>

/* Returns keep x + (1 - keep) y. */
static tsr_tensor *blend(tsr_tensor *x, tsr_tensor *y, tsr_tensor *keep)
{
    return tsr_add(tsr_mul(x, keep), tsr_mul(y, tsr_add_scalar(tsr_neg(keep), 1)));
}

static void lion(tsr_update *u)
{
    tsr_tensor *beta1 = u->number[0], *beta2 = u->number[1], *decay = u->number[2];
    tsr_tensor *direction = tsr_sign(blend(u->state[0], u->grad, beta1));
    tsr_tensor *kept = tsr_mul(u->param, tsr_add_scalar(tsr_neg(tsr_mul(u->lr, decay)), 1));
    u->new_param = tsr_sub(kept, tsr_mul(direction, u->lr));
    u->new_state[0] = blend(u->state[0], u->grad, beta2);
}

TSR_API tsr_plugin_begin_fn tsr_plugin_begin;

tsr_status tsr_plugin_begin(tsr_world *world)
{
    return tsr_optimizer_define(world, TSR_OPTIMIZER_DEF(.name = "own_lion", .update = lion,
                                                         .states = {"exp_avg"},
                                                         .numbers = {{"beta1", 0.9, 0, 1},
                                                                     {"beta2", 0.99, 0, 1},
                                                                     {"weight_decay", 0, 0, 1e9}}));
}
