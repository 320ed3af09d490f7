/* SPDX-License-Identifier: Apache-2.0 */
/* How tensors pass through modules. */
#include <stdio.h>

#include "src/core/live.h"
#include "src/graph/stage.h"
#include "src/nn/module.h"

tsr_tensor *tsr_use_at(tsr_module *m, const char *name, tsr_tensor *x, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *failed;
    if (!tsri_check_operands("use", 1, &x, 0, loc, &failed))
        return failed;
    if (tsri_live_check(m, TSRI_LIVE_MODULE, "use") != TSR_OK)
        return tsri_graph_fail_last(x->graph, TSR_ERR_INVALID);
    if (!m || !name)
        return tsri_graph_fail(x->graph, loc, TSR_ERR_INVALID, "use '%s': the %s is NULL",
                               name ? name : "(NULL)", m ? "name" : "module");
    for (tsr_variable *v = m->first_variable; v; v = v->next)
        if (!strcmp(v->name, name))
            return tsri_graph_read(x->graph, v, loc);
    char known[256] = "";
    size_t used = 0;
    for (tsr_variable *v = m->first_variable; v && used < sizeof known; v = v->next)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", v->name);
    return tsri_graph_fail(x->graph, loc, TSR_ERR_INVALID,
                           "use: the module has no variable '%s'; it "
                           "has %s",
                           name, used ? known : "none");
}

tsr_status tsr_module_autocast(tsr_module *m, tsr_dtype dtype)
{
    if (!m)
        return tsri_fail(TSR_ERR_INVALID, "tsr_module_autocast: the module is NULL%s",
                         tsri_error_cause());
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, __func__));
    if (dtype != TSR_DTYPE_NONE && !tsri_is_autocast(dtype))
        return tsri_fail(TSR_ERR_DTYPE,
                         "tsr_module_autocast: autocast to %s; legal are f16, bf16, "
                         "f32 for none, and TSR_DTYPE_NONE",
                         tsr_dtype_name(dtype));
    m->autocast = dtype;
    return TSR_OK;
}

tsr_status tsr_module_recompute(tsr_module *m)
{
    if (!m)
        return tsri_fail(TSR_ERR_INVALID, "tsr_module_recompute: the module is NULL%s",
                         tsri_error_cause());
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, __func__));
    m->recompute = true;
    return TSR_OK;
}

/* A call of tsr_apply or tsr_apply_n. */
typedef struct call {
    tsr_module *m;
    tsri_loc loc;
    tsr_graph *g;
    tsr_tensor *failed; /* what the call gives on an error */
    int nin, nout;
    tsr_tensor *in[TSR_APPLY_MAX], *out[TSR_APPLY_MAX]; /* those that are not given: NULL */
} call;

/* Checks the tensors, and sets c->g. */
static bool check_inputs(call *c)
{
    for (int i = 0; i < c->nin; i++) {
        if (i > 0 && !c->in[i])
            continue;
        tsr_graph *g = tsri_check_operands("apply", 1, &c->in[i], 0, c->loc, &c->failed);
        if (!g) {
            /* A tensor that was freed has failed no graph. */
            if (c->g && !c->failed)
                c->failed = tsri_graph_fail_last(c->g, TSR_ERR_INVALID);
            return false;
        }
        if (c->g && g != c->g) {
            c->failed = tsri_graph_fail(c->g, c->loc, TSR_ERR_INVALID,
                                        "apply: input %d belongs to another graph than input 0", i);
            return false;
        }
        c->g = g;
    }
    return true;
}

static tsr_tensor *refuse_module(const call *c)
{
    tsr_module *m = c->m;
    if (!m)
        return tsri_graph_fail(c->g, c->loc, TSR_ERR_INVALID, "apply: the module is NULL%s",
                               tsri_error_cause());
    if (tsri_live_check(m, TSRI_LIVE_MODULE, "apply") != TSR_OK)
        return tsri_graph_fail_last(c->g, TSR_ERR_INVALID);
    if (m->status != TSR_OK)
        return tsri_graph_fail(c->g, c->loc, m->status, "apply: the module is incomplete: %s",
                               m->error ? m->error : "no memory");
    if (m->world != c->g->world)
        return tsri_graph_fail(c->g, c->loc, TSR_ERR_INVALID,
                               "apply: the module belongs to another world than the graph");
    if (!m->forward_n && (c->nin != 1 || c->nout != 1))
        return tsri_graph_fail(c->g, c->loc, TSR_ERR_INVALID,
                               "apply: %d inputs and %d outputs of a module that has one of each "
                               "(tsr_module_create_n makes modules of several)",
                               c->nin, c->nout);
    return NULL;
}

/* Moves the inputs to the module's stage, or, where no stage says where its ops are, to where its
 * variables live, if that is one placement. */
static bool move_inputs(call *c)
{
    const tsri_stage stage = tsri_scope_stage(&c->m->scope);
    if (stage.number) {
        for (int i = 0; i < c->nin; i++)
            if (c->in[i] && !tsri_stage_gather(stage, 1, &c->in[i], &c->in[i], c->loc)) {
                c->failed = c->in[i];
                return false;
            }
        return tsri_graph_note_stage(c->g, stage);
    }
    /* Ops outside of stages are where their operands are. */
    if (tsri_stage_joins(c->g, c->nin, c->in))
        return true;
    const tsr_placement *home = tsri_module_home(c->m);
    for (int i = 0; i < c->nin && home; i++) {
        if (!c->in[i] || c->in[i]->placement == home)
            continue;
        c->in[i] = tsr_to_global_at(c->in[i], home, TSR_AUTO, c->loc.file, c->loc.line);
        if (!tsr_tensor_ok(c->in[i])) {
            c->failed = c->in[i];
            return false;
        }
    }
    return true;
}

static tsr_tensor *apply_children(tsr_module *m, tsr_tensor *x)
{
    for (tsr_module *c = m->first_child; c; c = c->sibling)
        x = tsr_apply_at(c, x, m->loc.file, m->loc.line);
    return x;
}

static void call_forward(call *c)
{
    tsr_module *m = c->m;
    if (m->forward_n)
        m->forward_n(m, c->nin, c->in, c->nout, c->out, m->arg);
    else
        c->out[0] = m->forward ? m->forward(m, c->in[0], m->arg) : apply_children(m, c->in[0]);
    for (int i = 0; i < c->nout; i++) {
        if (c->out[i])
            continue;
        if (c->g->failure.status == TSR_OK)
            tsri_graph_fail(c->g, c->loc, TSR_ERR_INVALID,
                            m->forward_n ? "apply: the forward function gave no output %d"
                                         : "apply: the forward function returned NULL",
                            i);
        c->out[i] = &c->g->failure.tensor;
    }
}

/* Passes c->in through c->m; returns whether c->out is what the user gets. Else that is c->failed.
 */
static bool pass(call *c)
{
    if (!check_inputs(c) || (c->failed = refuse_module(c)) || !move_inputs(c))
        return false;
    char name[TSRI_NAME_MAX];
    tsri_scope_qualified_name(&c->m->scope, name, sizeof name);
    const tsri_stage outer_stage = c->g->now.stage, stage = tsri_scope_stage(&c->m->scope);
    const char *outer = c->g->now.scope;
    const char *scope = tsri_pool_strdup(&c->g->pool, name);
    if (!scope) {
        c->failed = tsri_graph_fail_last(c->g, TSR_ERR_NO_MEMORY);
        return false;
    }
    tsri_loc outer_loc = c->m->loc;
    c->g->now.scope = scope;
    c->g->now.stage = stage.number ? stage : outer_stage;
    c->m->loc = c->loc;
    if (c->m->recompute)
        tsri_recompute_begin(c->g);
    if (c->m->autocast)
        tsri_autocast_begin(c->g, c->m->autocast);
    call_forward(c);
    if (c->m->recompute)
        tsri_recompute_end(c->g);
    if (c->m->autocast)
        tsri_autocast_end(c->g);
    c->m->loc = outer_loc;
    c->g->now.scope = outer;
    c->g->now.stage = outer_stage;
    if (c->g->now.applied)
        c->g->now.applied(c->g->now.applied_arg, scope, c->nout, c->out);
    return true;
}

tsr_tensor *tsr_apply_at(tsr_module *m, tsr_tensor *x, const char *file, int line)
{
    call c = {.m = m, .loc = {file, line}, .nin = 1, .nout = 1, .in = {x}};
    return pass(&c) ? c.out[0] : c.failed;
}

void tsr_apply_n_at(tsr_module *m, int nin, tsr_tensor *const *in, int nout, tsr_tensor **out,
                    const char *file, int line)
{
    call c = {.m = m, .loc = {file, line}, .nin = nin, .nout = nout};
    if (!out || nout < 1 || nout > TSR_APPLY_MAX) {
        tsri_fail_at(c.loc, TSR_ERR_INVALID, "apply: %d outputs%s; 1 to %d can be had", nout,
                     out ? "" : ", out is NULL", TSR_APPLY_MAX);
        return;
    }
    bool ok = false;
    if (!in || nin < 1 || nin > TSR_APPLY_MAX)
        tsri_fail_at(c.loc, TSR_ERR_INVALID, "apply: %d inputs%s; 1 to %d can be given", nin,
                     in ? "" : ", in is NULL", TSR_APPLY_MAX);
    else {
        memcpy(c.in, in, (size_t)nin * sizeof *in);
        ok = pass(&c);
    }
    for (int i = 0; i < nout; i++)
        out[i] = ok ? c.out[i] : c.failed;
}
