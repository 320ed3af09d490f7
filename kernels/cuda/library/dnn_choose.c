/* SPDX-License-Identifier: Apache-2.0 */
/* Engines for a graph; see dnn.h. */
#include "kernels/cuda/library/dnn.h"

/* Proposals looked at per list. */
enum { PROPOSALS = 64 };

#define BIT(n) (1u << (n))

/* Notes that an engine of a dtype must not have: its results would not be those of the dtype. */
static unsigned forbidden(const tsri_dnn_policy *policy, tsr_dtype dtype)
{
    unsigned notes = BIT(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) |
                     BIT(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) |
                     BIT(CUDNN_NUMERICAL_NOTE_FFT) | BIT(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) |
                     BIT(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
    if (policy->deterministic)
        notes |= BIT(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    if (dtype == TSR_F32 && !policy->tf32)
        notes |= BIT(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    return notes;
}

static tsr_status get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t room, int64_t *out_n, void *out)
{
    TSRI_DNN(cudnnBackendGetAttribute(d, name, type, room, out_n, out));
    return TSR_OK;
}

static tsr_status read_engine(cudnnBackendDescriptor_t engine, tsri_dnn_plan *p)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n;
    TSRI_TRY(
        get(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
    TSRI_TRY(get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &p->engine));
    TSRI_TRY(get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes));
    for (int64_t i = 0; i < n; i++)
        p->notes |= BIT(notes[i]);
    TSRI_TRY(get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n, behaviour));
    for (int64_t i = 0; i < n; i++)
        p->behaviour |= BIT(behaviour[i]);
    return TSR_OK;
}

static tsr_status read_notes(tsri_dnn_plan *p)
{
    cudnnBackendDescriptor_t engine;
    TSRI_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    tsr_status status = read_engine(engine, p);
    cudnnBackendDestroyDescriptor(engine);
    return status;
}

static tsr_status make_plan(const tsri_dnn_target *target, tsri_dnn_plan *p)
{
    int64_t n, bytes;
    TSRI_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan));
    TSRI_TRY(tsri_dnn_set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->config));
    if (target->handle)
        TSRI_TRY(tsri_dnn_set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                              &target->handle));
    else
        TSRI_TRY(tsri_dnn_set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->description));
    TSRI_DNN(cudnnBackendFinalize(p->plan));
    TSRI_TRY(
        get(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes));
    p->workspace = (size_t)bytes;
    return TSR_OK;
}

void tsri_dnn_plan_finish(tsri_dnn_plan *p)
{
    if (p->plan)
        cudnnBackendDestroyDescriptor(p->plan);
    if (p->config)
        cudnnBackendDestroyDescriptor(p->config);
    *p = (tsri_dnn_plan){.plan = NULL};
}

/* One list of proposals, and what was taken so far. */
typedef struct search {
    const tsri_dnn_target *target;
    const tsri_dnn_policy *policy;
    unsigned forbidden;
    int most, n;
    tsri_dnn_plan *plans;
} search;

/* A proposal that cuDNN can't make a plan of is passed over: the next one may do. */
static void consider(search *s, cudnnBackendDescriptor_t config)
{
    tsri_dnn_plan p = {.config = config};
    if (s->n < s->most && read_notes(&p) == TSR_OK && !(p.notes & s->forbidden) &&
        make_plan(s->target, &p) == TSR_OK && p.workspace <= s->policy->workspace_cap)
        s->plans[s->n++] = p;
    else
        tsri_dnn_plan_finish(&p);
}

static tsr_status propose(search *s, cudnnBackendDescriptor_t heuristics,
                          cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t configs[PROPOSALS];
    int64_t n = 0;
    int made = 0;
    TSRI_TRY(tsri_dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    TSRI_TRY(tsri_dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (!s->target->handle)
        TSRI_TRY(tsri_dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &s->target->description));
    TSRI_DNN(cudnnBackendFinalize(heuristics));
    while (made < PROPOSALS && cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                                            &configs[made]) == CUDNN_STATUS_SUCCESS)
        made++;
    tsr_status status = get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &n, configs);
    n = status == TSR_OK ? n < made ? n : made : 0;
    for (int i = 0; i < made; i++) {
        if (i < n)
            consider(s, configs[i]);
        else
            cudnnBackendDestroyDescriptor(configs[i]);
    }
    return status;
}

tsr_status tsri_dnn_choose(const tsri_dnn_target *target, const tsri_dnn_policy *policy,
                           const tsri_dnn_graph *graph, tsr_dtype dtype, int most,
                           tsri_dnn_plan *out_plans, int *out_n)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    search s = {target, policy, forbidden(policy, dtype), most, 0, out_plans};
    for (int i = 0; i < 2 && s.n == 0; i++) {
        cudnnBackendDescriptor_t heuristics;
        TSRI_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
        propose(&s, heuristics, graph->part[graph->nparts - 1], modes[i]);
        cudnnBackendDestroyDescriptor(heuristics);
    }
    *out_n = s.n;
    if (s.n == 0)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "cuDNN has no engine for this shape");
    tsri_error_clear();
    return TSR_OK;
}
