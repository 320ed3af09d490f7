/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaling of losses for gradients of f16, with PyTorch's algorithm (torch.cuda.amp.GradScaler).
 *
 *   tsr_grad_scaler *scaler = tsr_grad_scaler_create(w, NULL);
 *   tsr_minimize_with(optimizer, 1, &loss, TSR_MINIMIZE_OPTS(.scaler = scaler, .clip_norm = 1));
 *
 * The loss is multiplied by the scale and gradients are divided by it. Where an element of an
 * optimizer's gradients is infinite or NaN, its update of that run is left out: parameters, states,
 * steps and schedules stay. Other optimizers of the run are not concerned. Once all optimizers of a
 * run have updated, the scale shrinks where one of them was left out, and grows when that has not
 * happened for some runs. Runs between two updates of an accumulation leave the scale as it is.
 *
 * Whether gradients are finite is a P(max) value where they are split, and B on all ranks of the
 * world: so all ranks leave out the same updates.
 */
#ifndef TESSERA_GRAD_SCALER_H
#define TESSERA_GRAD_SCALER_H

#include <tessera/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_grad_scaler_opts {
    size_t size;
    tsr_by_name by_name;
    double init_scale TSR_IS(65536);      /* finite, above 0; default 65536; rounded to f32 */
    double growth_factor TSR_IS(2);       /* above 1; default 2 */
    double backoff_factor TSR_IS(0.5);    /* above 0 and below 1; default 0.5 */
    int64_t growth_interval TSR_IS(2000); /* updates in a row without an inf before it grows; at
                                             least 1; default 2000 */
    bool enabled TSR_IS(true);            /* false: losses and gradients stay as they are */
} tsr_grad_scaler_opts;
#define TSR_GRAD_SCALER_OPTS(...)                                                \
    TSR_OPTIONS(tsr_grad_scaler_opts,                                            \
                (.init_scale = 65536, .growth_factor = 2, .backoff_factor = 0.5, \
                 .growth_interval = 2000, .enabled = true, ),                    \
                __VA_ARGS__)

/* Makes a scaler, which belongs to its world. opts may be NULL. NULL on error (tsr_last_error). Not
 * collective, but all ranks must make the same. */
TSR_API tsr_grad_scaler *tsr_grad_scaler_create(tsr_world *world, const tsr_grad_scaler_opts *opts);
/* Frees a scaler. Graphs that use it can't be compiled any more. NULL is fine. */
TSR_API void tsr_grad_scaler_destroy(tsr_grad_scaler *scaler);

/* The numbers of a scaler, as PyTorch's state_dict has them. */
typedef struct tsr_grad_scaler_state {
    double scale, growth_factor, backoff_factor;
    int64_t growth_interval, growth_tracker; /* tracker: updates in a row without an inf */
} tsr_grad_scaler_state;
/* Reads the numbers, after the last run; of a disabled scaler the scale is 1. Waits for the run.
 * Not collective. Errors: TSR_ERR_INVALID; those of the last run. */
TSR_API tsr_status tsr_grad_scaler_get(tsr_grad_scaler *scaler, tsr_grad_scaler_state *out_state);
/* Sets the numbers, for the runs that follow; recompiles nothing. A disabled scaler stays as it is.
 * All ranks must set the same. Not collective. TSR_ERR_INVALID naming the number that can't be. */
TSR_API tsr_status tsr_grad_scaler_set(tsr_grad_scaler *scaler, const tsr_grad_scaler_state *state);
/* Returns the scale, after the last run; 1 where the scaler is disabled. A scale that has fallen to
 * 0 stays 0, and a warning in the world's log says that all updates are left out. */
TSR_API double tsr_grad_scaler_scale(tsr_grad_scaler *scaler);

/*
 * The parts of tsr_minimize_opts.scaler, for programs that differentiate by themselves
 * (tsr_gradients, tsr_ddp_backward). Returns x, such as a loss, multiplied by the scale that it has
 * when a run begins: f32 for a 16-bit x, else of x's dtype. Sticky errors.
 */
TSR_API tsr_tensor *tsr_scale_loss_at(tsr_grad_scaler *scaler, tsr_tensor *x, const char *file,
                                      int line);
#define tsr_scale_loss(...) tsr_scale_loss_at(__VA_ARGS__, TSR_HERE)
/*
 * Puts gradients divided by the scale in the place of the n grads (NULL ones are left out), to be
 * clipped and the like. The tsr_apply_gradients of this optimizer that follows in the graph is left
 * out in runs where one of them is not finite. Sticky errors: TSR_ERR_STATE where that is said of
 * the optimizer already; TSR_ERR_DTYPE for gradients of 16 bits.
 */
TSR_API void tsr_unscale_at(tsr_grad_scaler *scaler, tsr_optimizer *optimizer, int n,
                            tsr_tensor **grads, const char *file, int line);
#define tsr_unscale(...) tsr_unscale_at(__VA_ARGS__, TSR_HERE)

#ifdef __cplusplus
}
#endif
#endif
