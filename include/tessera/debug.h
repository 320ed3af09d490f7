/* SPDX-License-Identifier: Apache-2.0 */
/* Looking into graphs: printing tensors as they are computed, and holding gradients against finite
 * differences. (A NaN's origin: tsr_compile_opts.on_nan; gradients and states: optim.h.) */
#ifndef TESSERA_DEBUG_H
#define TESSERA_DEBUG_H

#include <tessera/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Declares that runs print x: the first rank of its placement writes a line to stdout when a run
 * has ended, in the first run and then in each every-th (at least 1), as
 *
 *   hidden (8,10) f32, run 12: min -1.3, max 2, mean 0.02, std 0.9: 0.1 -0.4 0.7 0 1.1 ...
 *
 * with up to 8 elements from its beginning and, where there are any, the number of NaNs. These are
 * computed with the rest of the step, whatever x's signature, and no gradient flows through them.
 * label: copied. Sticky errors.
 */
TSR_API void tsr_print_at(tsr_tensor *x, const char *label, int64_t every, const char *file,
                          int line);
#define tsr_print(...) tsr_print_at(__VA_ARGS__, TSR_HERE)

/* Declares y, floating point, from n inputs in its graph; NULL, or a failed tensor: it can't. All
 * ranks declare alike. */
typedef tsr_tensor *tsr_check_fn(tsr_graph *g, int n, tsr_tensor *const *x, void *arg);

typedef struct tsr_check_opts {
    size_t size;
    tsr_by_name by_name;
    const tsr_placement *placement;        /* of the inputs; NULL: all ranks' CPUs */
    tsr_sbp sbp;                           /* of the inputs; AUTO (the default): as inferred */
    double low TSR_IS(-1), high TSR_IS(1); /* inputs are uniform there; default -1 and 1 */
    uint64_t seed;
    double eps TSR_IS(1e-6);                     /* of the differences; default 1e-6 */
    double atol TSR_IS(1e-5), rtol TSR_IS(1e-3); /* default 1e-5 and 1e-3 */
} tsr_check_opts;
#define TSR_CHECK_OPTS(...)                                                                        \
    TSR_OPTIONS(tsr_check_opts, (.low = -1, .high = 1, .eps = 1e-6, .atol = 1e-5, .rtol = 1e-3, ), \
                __VA_ARGS__)

/*
 * Holds the gradients of a function against central differences, in f64, as torch.autograd's
 * gradcheck: with random weights w, those of sum(w y) for each element of each of n inputs (up to
 * 64) of the shapes `dims`. TSR_ERR_MISMATCH names the worst element where |analytic - numeric| >
 * atol + rtol |numeric|. *out_worst (may be NULL): the largest |analytic - numeric|. Runs y 2 times
 * for each element. Collective over all ranks. Errors: TSR_ERR_INVALID, what declaring and
 * compiling say.
 */
TSR_API tsr_status tsr_check_gradients(tsr_world *world, tsr_check_fn *declare, void *arg, int n,
                                       const tsr_dims *dims, const tsr_check_opts *opts,
                                       double *out_worst);

#ifdef __cplusplus
}
#endif
#endif
