/* SPDX-License-Identifier: Apache-2.0 */
#include "src/config/rules/roles.h"

#include <ctype.h>
#include <string.h>

#include "src/nn/module.h"
#include "src/nn/place.h"

/* The object of a rule: a parameter, a module's result, or queries, keys and values that a module
 * permutes. */
typedef enum subject { PARAMETER, RESULT, PERMUTED, SUBJECTS } subject;

/* A parameter or a module of the model. has_rule false: no rule may match it. */
typedef struct entry {
    const char *name;
    bool has_rule;
    tsri_pair_rule rule;
} entry;

/* Rules of entries whose names differ by their numbers, or in one character. */
typedef struct pattern {
    const char *text;
    int at;          /* index of the character that differs, or -1 */
    char others[32]; /* alternatives to text[at] */
    tsri_pair_rule rule;
    bool is_added;
} pattern;

typedef struct reader {
    tsri_pool *pool;
    tsri_pair_rules *out;
    entry *entries[SUBJECTS];
    int n[SUBJECTS], capacity[SUBJECTS];
} reader;

/* --- roles ------------------------------------------------------------------------------------ */
/* Returns the first role among a module's own parameters. */
static tsr_role module_role(const tsr_module *m)
{
    const tsr_variable *v = m->first_variable;
    while (v && v->role.kind == TSR_ROLE_NONE)
        v = v->next;
    return v ? v->role.kind : TSR_ROLE_NONE;
}

static bool has_child_of(const tsr_module *m, tsr_role role)
{
    const tsr_module *c = m->first_child;
    while (c && module_role(c) != role)
        c = c->sibling;
    return c;
}

static tsr_status find_positions(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    tsri_pair_rules *out = arg;
    out->pairs |= v->role.kind == TSR_ROLE_COLUMN || v->role.kind == TSR_ROLE_ROW ||
                  v->role.kind == TSR_ROLE_HEADS;
    out->positions |= v->role.kind == TSR_ROLE_EMBEDDING || v->role.kind == TSR_ROLE_HEADS ||
                      v->role.kind == TSR_ROLE_NORM;
    return TSR_OK;
}

/* Sets the rule of a module's result; returns whether it needs one. Axes of tensors are (rows,
 * positions, features), or (rows, features). */
static bool result_rule(const reader *r, const tsr_module *m, tsri_pair_rule *out)
{
    const tsr_role role = module_role(m);
    const bool positions = r->out->positions, is_below_root = !tsri_module_parent(m)->scope.parent;
    const int features = positions ? 2 : 1;
    const bool ends_pair = role == TSR_ROLE_ROW && (!positions || is_below_root);
    const bool is_branch = positions && has_child_of(m, TSR_ROLE_ROW);
    *out =
        (tsri_pair_rule){.megatron = TSRI_PAIR_WHOLE, .sequence = positions ? 1 : TSRI_PAIR_WHOLE};
    if (role == TSR_ROLE_COLUMN)
        *out = (tsri_pair_rule){.megatron = features, .sequence = features};
    else if (role == TSR_ROLE_NORM)
        out->use = TSRI_PAIR_USED_WHOLE;
    else if (role == TSR_ROLE_EMBEDDING || ends_pair || is_branch)
        out->use = positions ? TSRI_PAIR_MADE_WHOLE : TSRI_PAIR_CUT;
    else
        return false;
    return true;
}

static tsr_status add_entry(reader *r, subject of, const char *name, bool has_rule,
                            tsri_pair_rule rule)
{
    TSRI_NEED(name);
    if (has_rule && strpbrk(name, "*?["))
        return tsri_fail(TSR_ERR_INVALID,
                         "'%s' has a role, so its name may have no '*', '?' and '[', which are "
                         "patterns in rules",
                         name);
    TSRI_NEED(TSRI_PUSH(r->pool, r->entries[of], r->n[of], r->capacity[of]));
    r->entries[of][r->n[of]++] = (entry){name, has_rule, rule};
    return TSR_OK;
}

/* Adds the entries of a module and of all below it; a branch comes after its layers. */
static tsr_status read_module(reader *r, tsr_module *m, const char *name)
{
    const bool is_root = !name[0];
    tsri_pair_rule rule;
    for (const tsr_variable *v = m->first_variable; v; v = v->next) {
        rule = (tsri_pair_rule){NULL, tsri_variable_saved_dims(v).ndim, v->role.axis, v->role.axis,
                                TSRI_PAIR_CUT};
        TSRI_TRY(add_entry(r, PARAMETER,
                           tsri_pool_printf(r->pool, "%s%s%s", name, is_root ? "" : ".", v->name),
                           v->role.kind != TSR_ROLE_NONE && v->role.kind != TSR_ROLE_NORM, rule));
    }
    for (tsr_module *c = m->first_child; c; c = c->sibling) {
        const char *below =
            tsri_pool_printf(r->pool, "%s%s%s", name, is_root ? "" : ".", c->scope.name);
        TSRI_NEED(below);
        TSRI_TRY(read_module(r, c, below));
    }
    if (is_root)
        return TSR_OK;
    rule = (tsri_pair_rule){.megatron = 1, .sequence = 1}; /* (rows, heads, ...) */
    TSRI_TRY(add_entry(r, PERMUTED, name, has_child_of(m, TSR_ROLE_HEADS), rule));
    const bool has_rule = result_rule(r, m, &rule);
    return add_entry(r, RESULT, name, has_rule, rule);
}

/* --- patterns --------------------------------------------------------------------------------- */
static bool same_rule(const tsri_pair_rule *a, const tsri_pair_rule *b)
{
    return a->naxes == b->naxes && a->megatron == b->megatron && a->sequence == b->sequence &&
           a->use == b->use;
}

/* Returns the name with "*" for each number except a leading one, which counts layers of several
 * kinds. */
static char *star_numbers(tsri_pool *pool, const char *name)
{
    char *text = tsri_pool_strdup(pool, name);
    int n = 0;
    for (int i = 0; text && name[i]; i++) {
        const int digits = i && name[i - 1] == '.' ? (int)strspn(name + i, "0123456789") : 0;
        const bool is_number = digits && (!name[i + digits] || name[i + digits] == '.');
        text[n++] = is_number ? '*' : name[i];
        i += is_number ? digits - 1 : 0;
    }
    if (text)
        text[n] = 0;
    return text;
}

/* Returns whether all entries that a text matches have a rule. */
static bool matches_only(const reader *r, subject of, const char *text, const tsri_pair_rule *rule)
{
    for (int i = 0; i < r->n[of]; i++) {
        const entry *e = &r->entries[of][i];
        if (!(e->has_rule && same_rule(&e->rule, rule)) && tsri_glob(text, e->name))
            return false;
    }
    return true;
}

/* Returns the index of the only different character of two texts; -1 if there are none or several,
 * or if the character belongs to a number between dots. */
static int difference(const char *a, const char *b)
{
    const size_t n = strlen(a);
    int at = -1;
    if (n != strlen(b))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) {
            if (at >= 0 || !isalnum((unsigned char)a[i]) || !isalnum((unsigned char)b[i]))
                return -1;
            at = (int)i;
        }
    if (at < 0)
        return -1;
    int first = at, last = at;
    while (first && isdigit((unsigned char)a[first - 1]))
        first--;
    while (isdigit((unsigned char)a[last + 1]))
        last++;
    const bool is_number = isdigit((unsigned char)a[at]) && (!first || a[first - 1] == '.') &&
                           (!a[last + 1] || a[last + 1] == '.');
    return is_number ? -1 : at;
}

/* Puts a text into a pattern that it differs from in one character; false if there is none. */
static bool join(pattern *patterns, int n, const char *text, const tsri_pair_rule *rule)
{
    for (int i = 0; i < n; i++) {
        pattern *p = &patterns[i];
        const int at = same_rule(&p->rule, rule) ? difference(p->text, text) : -1;
        const size_t used = strlen(p->others);
        if (at < 0 || (p->at >= 0 && p->at != at) || used + 1 == sizeof p->others)
            continue;
        p->at = at;
        if (!strchr(p->others, text[at]))
            p->others[used] = text[at];
        return true;
    }
    return false;
}

static bool is_known(const pattern *patterns, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        const pattern *p = &patterns[i];
        if (!strcmp(p->text, text) ||
            (p->at >= 0 && difference(p->text, text) == p->at && strchr(p->others, text[p->at])))
            return true;
    }
    return false;
}

static tsr_status find_patterns(const reader *r, subject of, pattern **out_patterns, int *out_n)
{
    pattern *patterns = tsri_pool_alloc(r->pool, (size_t)(r->n[of] + 1) * sizeof *patterns);
    int n = 0;
    TSRI_NEED(patterns);
    for (int i = 0; i < r->n[of]; i++) {
        const entry *e = &r->entries[of][i];
        if (!e->has_rule)
            continue;
        const char *text = star_numbers(r->pool, e->name);
        TSRI_NEED(text);
        if (is_known(patterns, n, text))
            continue;
        if (strchr(text, '*') && !matches_only(r, of, text, &e->rule))
            text = e->name;
        if (!join(patterns, n, text, &e->rule))
            patterns[n++] = (pattern){.text = text, .at = -1, .rule = e->rule};
    }
    *out_patterns = patterns;
    *out_n = n;
    return TSR_OK;
}

/* --- rules ------------------------------------------------------------------------------------ */
static tsr_status add_rule(const reader *r, const pattern *p, const char *suffix)
{
    tsri_pair_rule *rule = &r->out->rules[r->out->n++];
    *rule = p->rule;
    rule->match = p->at < 0
                      ? tsri_pool_printf(r->pool, "%s%s", p->text, suffix)
                      : tsri_pool_printf(r->pool, "%.*s[%c%s]%s%s", p->at, p->text, p->text[p->at],
                                         p->others, p->text + p->at + 1, suffix);
    return rule->match ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Adds the rules of the three tensors that a module permutes, where it is `text` (NULL: any). */
static tsr_status add_permuted(const reader *r, pattern *permuted, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        pattern *p = &permuted[i];
        if (p->is_added || (text && strcmp(p->text, text) != 0))
            continue;
        p->is_added = true;
        TSRI_TRY(add_rule(r, p, ":permute"));
        TSRI_TRY(add_rule(r, p, ":permute.[12]"));
    }
    return TSR_OK;
}

/* Adds the rules of tensors: those of one module first, then those of numbered ones. */
static tsr_status add_tensors(const reader *r, pattern *const *patterns, const int *n)
{
    for (int numbered = 0; numbered < 2; numbered++)
        for (int i = 0; i < n[RESULT]; i++) {
            const pattern *p = &patterns[RESULT][i];
            if ((strchr(p->text, '*') != NULL) != numbered)
                continue;
            TSRI_TRY(add_permuted(r, patterns[PERMUTED], n[PERMUTED], p->text));
            TSRI_TRY(add_rule(r, p, ""));
        }
    return add_permuted(r, patterns[PERMUTED], n[PERMUTED], NULL);
}

tsr_status tsri_pair_rules_read(tsr_module *model, tsri_pool *pool, tsri_pair_rules *out)
{
    reader r = {.pool = pool, .out = out};
    pattern *patterns[SUBJECTS];
    int n[SUBJECTS];
    *out = (tsri_pair_rules){0};
    TSRI_TRY(tsr_module_visit(model, find_positions, out));
    TSRI_TRY(read_module(&r, model, ""));
    for (int of = 0; of < SUBJECTS; of++)
        TSRI_TRY(find_patterns(&r, (subject)of, &patterns[of], &n[of]));
    out->rules = tsri_pool_alloc(pool, (size_t)(n[PARAMETER] + n[RESULT] + 2 * n[PERMUTED] + 1) *
                                           sizeof *out->rules);
    TSRI_NEED(out->rules);
    for (int i = 0; i < n[PARAMETER]; i++)
        TSRI_TRY(add_rule(&r, &patterns[PARAMETER][i], ""));
    return add_tensors(&r, patterns, n);
}
