/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of `tensors` and `parameters` for the entries of a graph: which one says what. */
#include "src/config/rules/entries.h"

#include <stdio.h>
#include <string.h>

#include "src/config/ops.h"
#include "src/nn/place.h"

static bool is_parameter(const tsri_config_op *op)
{
    return tsri_op_rows[op->head.variant].role == TSRI_ROLE_PARAMETER;
}

/* Whether the entry is made in its signature, instead of being brought into it. */
static bool is_made_in_it(const tsri_config_op *op)
{
    const tsri_op_role role = tsri_op_rows[op->head.variant].role;
    return role != TSRI_ROLE_COMPUTE && role != TSRI_ROLE_SPLIT;
}

/* A rule, seen alike in both lists. */
typedef struct rule {
    const char *match;
    const tsri_ref *placement; /* NULL: not said */
    const tsr_sbp *sbp;        /* NULL: not said */
    const tsri_yaml *sbp_node;
} rule;

static int nrules(const tsri_experiment *e, const tsri_config_op *op)
{
    return is_parameter(op) ? e->parameters.n : e->tensors.match.n;
}

static rule rule_at(const tsri_experiment *e, const tsri_config_op *op, int i)
{
    const tsri_config_pattern *p = e->parameters.items;
    const tsri_config_pin *t = e->tensors.match.items;
    const bool of_parameters = is_parameter(op);
    const void *base = of_parameters ? (const void *)&p[i] : (const void *)&t[i];
    const tsri_section *s = of_parameters ? &tsri_pattern_section : &tsri_pin_section;
    rule r = {.match = of_parameters ? p[i].match : t[i].match};
    if (tsri_section_has(s, base, "placement"))
        r.placement = of_parameters ? &p[i].placement : &t[i].placement;
    if (tsri_section_has(s, base, "sbp")) {
        r.sbp = of_parameters ? &p[i].sbp : &t[i].sbp;
        r.sbp_node = tsri_section_node(base, "sbp");
    }
    return r;
}

tsr_status tsri_entry_place(const tsri_experiment *e, const tsri_config_op *op,
                            const tsri_config_placement **out_where)
{
    const tsri_ref *said = tsri_op_has(op, "placement") ? &op->placement : NULL;
    for (int i = nrules(e, op) - 1; i >= 0 && !said; i--) {
        const rule r = rule_at(e, op, i);
        if (r.placement && tsri_glob(r.match, op->head.name))
            said = r.placement;
    }
    *out_where = NULL;
    return said ? tsri_check_placement(e, said, out_where) : TSR_OK;
}

tsr_status tsri_entry_sbp(const tsri_experiment *e, tsri_config_op *op)
{
    op->said = tsri_op_has(op, "sbp") ? tsri_section_node(op, "sbp") : NULL;
    for (int i = nrules(e, op) - 1; i >= 0 && !op->said && is_made_in_it(op); i--) {
        const rule r = rule_at(e, op, i);
        if (!r.sbp || !tsri_glob(r.match, op->head.name))
            continue;
        op->said = r.sbp_node;
        op->said_by = r.match;
        op->sbp = *r.sbp;
    }
    return op->said ? tsri_check_sbp(op->said, op->where, &op->sbp) : TSR_OK;
}

/* --- rules that can't be ---------------------------------------------------------------------- */
/* A rule of parameters fits one at least. */
static tsr_status check_fits(const tsri_experiment *e, const tsri_reader *r,
                             const tsri_config_pattern *p)
{
    enum { LISTED = 12 };
    const tsri_config_op *ops = e->graph.items;
    const char **names = tsri_pool_alloc(r->pool, (size_t)e->graph.n * sizeof *names);
    char list[TSRI_LEGAL_MAX] = "", mean[TSRI_YAML_TEXT_MAX];
    int n = 0, used = 0;
    TSRI_NEED(names);
    for (int i = 0; i < e->graph.n; i++) {
        if (!is_parameter(&ops[i]))
            continue;
        if (tsri_glob(p->match, ops[i].head.name))
            return TSR_OK;
        if (n < LISTED)
            used += snprintf(list + used, sizeof list - (size_t)used, "%s%.100s", n ? ", " : "",
                             ops[i].head.name);
        names[n++] = ops[i].head.name;
    }
    return tsri_yaml_fail(tsri_section_node(p, "match"),
                          "no parameter of the graph fits '%.100s'; there are %s%s%s", p->match,
                          n ? list : "none", n > LISTED ? ", ..." : "",
                          tsri_did_you_mean(p->match, n, names, sizeof *names, mean));
}

/* A rule of tensors that says a placement fits an entry, not one of its results alone; a rule that
 * fits nothing at all is told of later. */
static tsr_status check_place(const tsri_experiment *e, const tsri_config_pin *p)
{
    const tsri_config_op *ops = e->graph.items;
    const char *of = NULL;
    char result[TSRI_YAML_TEXT_MAX + 8];
    for (int i = 0; i < e->graph.n; i++) {
        if (!is_parameter(&ops[i]) && tsri_glob(p->match, ops[i].head.name))
            return TSR_OK;
        for (int j = 0; j < tsri_op_results(&ops[i]); j++) {
            snprintf(result, sizeof result, "%s.%d", ops[i].head.name, j);
            of =
                tsri_op_results(&ops[i]) > 1 && tsri_glob(p->match, result) ? ops[i].head.name : of;
        }
    }
    return of ? tsri_yaml_fail(tsri_section_node(p, "placement"),
                               "'%.100s' fits results of '%s', which all live where that does: say "
                               "it of '%s'",
                               p->match, of, of)
              : TSR_OK;
}

tsr_status tsri_entries_check(const tsri_experiment *e, const tsri_reader *r)
{
    const tsri_config_pattern *p = e->parameters.items;
    const tsri_config_pin *pins = e->tensors.match.items;
    for (int i = 0; i < e->tensors.match.n; i++)
        if (tsri_section_has(&tsri_pin_section, &pins[i], "placement"))
            TSRI_TRY(check_place(e, &pins[i]));
    for (int i = 0; i < e->parameters.n; i++) {
        static const char *const of_training[] = {"state", "gradient"};
        TSRI_TRY(check_fits(e, r, &p[i]));
        for (int k = 0; k < 2 && !e->trains; k++)
            if (tsri_section_has(&tsri_pattern_section, &p[i], of_training[k]))
                return tsri_yaml_fail(tsri_section_node(&p[i], of_training[k]),
                                      "'optimizer' is missing: the graph trains nothing");
    }
    return TSR_OK;
}
