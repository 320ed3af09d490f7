/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The literals of the C headers for C++17: shapes, signatures, options. <tessera/tessera.h> includes
 * it, so that a C program which keeps to what both languages have is a C++ program.
 *
 *   tsr_optimizer *o = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
 *
 * Two rules are C++'s own. Fields are given in the order of the struct. And the options live until
 * the end of the full expression: pass them to a call, don't keep the pointer; to keep them, copy:
 * `tsr_sgd_opts o = *TSR_SGD_OPTS(.lr = 0.1);`.
 */
#ifndef TESSERA_TESSERA_HPP
#define TESSERA_TESSERA_HPP

#include <tessera/tessera.h>

/* --- shapes, axes, signatures ----------------------------------------------------------------- */
template <class... A> constexpr tsr_dims tsr_dims_of(A... axes)
{
    static_assert(sizeof...(axes) <= TSR_MAX_NDIM, "a tensor has at most TSR_MAX_NDIM axes");
    return tsr_dims{static_cast<int>(sizeof...(axes)), {static_cast<int64_t>(axes)...}};
}
#define TSR_DIMS(...) tsr_dims_of(__VA_ARGS__)
#define TSR_SCALAR (tsr_dims{0, {}})

template <class... A> constexpr tsr_axes tsr_axes_of(A... axes)
{
    static_assert(sizeof...(axes) <= TSR_MAX_NDIM, "a tensor has at most TSR_MAX_NDIM axes");
    return tsr_axes{static_cast<int>(sizeof...(axes)), {static_cast<int>(axes)...}};
}
#define TSR_AXES(...) tsr_axes_of(__VA_ARGS__)
#define TSR_ALL_AXES (tsr_axes{0, {}})

constexpr tsr_sbp tsr_sbp_of(tsr_sbp_kind kind, int arg)
{
    return tsr_sbp{1, {{static_cast<int8_t>(kind), static_cast<int8_t>(arg)}, {}, {}, {}}};
}
#define TSR_S(axis) tsr_sbp_of(TSR_SBP_SPLIT, (axis))
#define TSR_B tsr_sbp_of(TSR_SBP_BROADCAST, 0)
#define TSR_P tsr_sbp_of(TSR_SBP_PARTIAL, TSR_REDUCE_SUM)
#define TSR_P_MAX tsr_sbp_of(TSR_SBP_PARTIAL, TSR_REDUCE_MAX)
#define TSR_P_MIN tsr_sbp_of(TSR_SBP_PARTIAL, TSR_REDUCE_MIN)
#define TSR_AUTO (tsr_sbp{0, {}})
template <class... S> inline tsr_sbp tsr_sbp_nd_of(S... entries)
{
    const tsr_sbp all[] = {entries...};
    return tsr_sbp_nd(static_cast<int>(sizeof...(entries)), all);
}
#define TSR_ND(...) tsr_sbp_nd_of(__VA_ARGS__)

/* --- options ---------------------------------------------------------------------------------- */
template <class T> constexpr const T *tsr_opts_of(const T &opts)
{
    return &opts;
}
/* Options leave out most of their fields, of which -Wextra would warn at the caller's line: see
 * base.h. C++17 has designated initializers as an extension of compilers. */
#define TSR_MADE_(type, ...) (__extension__ type{__VA_ARGS__})
#ifndef TSR_KEEP_OVERRIDE_WARNINGS
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif

/* --- schedules -------------------------------------------------------------------------------- */
/* What two kinds have different defaults for: 0 is no value that either may have. */
constexpr tsr_schedule tsr_schedule_of(tsr_schedule s)
{
    if ((s.kind == TSR_SCHEDULE_STEP || s.kind == TSR_SCHEDULE_MULTI_STEP) && s.gamma == 0)
        s.gamma = 0.1;
    if (s.kind == TSR_SCHEDULE_LINEAR && s.steps == 0)
        s.steps = 5;
    return s;
}
#define TSR_SCHEDULE_OF(named, ...) \
    tsr_schedule_of(TSR_MADE_(tsr_schedule, .kind = named, __VA_ARGS__))
#undef TSR_STEP_LR
#define TSR_STEP_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_STEP, __VA_ARGS__)
#undef TSR_MULTI_STEP_LR
#define TSR_MULTI_STEP_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_MULTI_STEP, __VA_ARGS__)
#undef TSR_EXPONENTIAL_LR
#define TSR_EXPONENTIAL_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_EXPONENTIAL, __VA_ARGS__)
#undef TSR_LINEAR_LR
#define TSR_LINEAR_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_LINEAR, __VA_ARGS__)
#undef TSR_COSINE_LR
#define TSR_COSINE_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_COSINE, __VA_ARGS__)
#undef TSR_COSINE_RESTARTS_LR
#define TSR_COSINE_RESTARTS_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_COSINE_RESTARTS, __VA_ARGS__)
#undef TSR_ONE_CYCLE_LR
#define TSR_ONE_CYCLE_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_ONE_CYCLE, __VA_ARGS__)
#undef TSR_PLATEAU_LR
#define TSR_PLATEAU_LR(...) TSR_SCHEDULE_OF(TSR_SCHEDULE_PLATEAU, __VA_ARGS__)

#endif
