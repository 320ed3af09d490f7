/* SPDX-License-Identifier: Apache-2.0 */
/* Resumed runs: every key of the tables is changed once between the experiment of a checkpoint and
 * the one that goes on, and is reported or refused by its name, by a list that stands here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/inside.h"

/* DESIGN, "A resumed run": "model, graph, dataset, batch_size, accumulate, optimizer.name, dtype
 * are refused by name, all else wins". A key ends at the end, '.' or '['. The sizes of a data set
 * say which one it is. */
static const char *const refused[] = {"dtype",
                                      "model",
                                      "graph",
                                      "loss",
                                      "data.dataset",
                                      "data.batch_size",
                                      "data.shape",
                                      "data.classes",
                                      "data.samples",
                                      "data.context",
                                      "data.vocab",
                                      "data.test_part",
                                      "optimizer.accumulate",
                                      "optimizer.name",
                                      "optimizer.function"};
/* These speak of the first step of the run that was stopped. */
static const char *const kept[] = {"train.init", "train.amp.init_scale",
                                   "optimizer.initial_accumulator_value"};
/* And these of where things are, whatever they are in. */
static const char *const places[] = {".placement", ".sbp", ".file", ".plugin", ".gradient"};

static bool is_in(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(list[i]);
        if (!strncmp(key, list[i], length) && strchr(".[", key[length]))
            return true;
    }
    return false;
}

static bool ends_in_place(const char *key)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const size_t n = strlen(key), length = strlen(places[i]);
        if (n > length && !strcmp(key + n - length, places[i]))
            return true;
    }
    return false;
}

typedef struct fixture {
    tsri_experiment *e;
    int nkeys, nrefused, nkept;
} fixture;

static void fill(char *out, size_t size, const char *form, const char *value)
{
    const char *mark = strstr(form, "%V");
    snprintf(out, size, "%.*s%s%s", (int)(mark - form), form, value, mark + 2);
}

/* Changes a key, which `form` has as "%V", from one value to another. */
static void change(fixture *f, const char *form, const char *key, const char *from, const char *to)
{
    enum { MOST = 1024 };
    char then[MOST], now[MOST];
    tsri_resume_change *changes = NULL;
    tsri_pool pool;
    int n = 0;
    fill(then, sizeof then, form, from);
    fill(now, sizeof now, form, to);
    tsri_pool_init(&pool, NULL);
    const bool wins = ends_in_place(key), is_kept = is_in(key, kept, 3);
    const bool stays = !wins && is_in(key, refused, sizeof refused / sizeof *refused);
    assert_int_equal(tsri_experiment_resume(f->e, "DIR", now, now, &pool, &n, &changes), TSR_OK);
    assert_int_equal(n, 0);
    const tsr_status status = tsri_experiment_resume(f->e, "DIR", now, then, &pool, &n, &changes);
    if (status != (stays ? TSR_ERR_STATE : TSR_OK))
        fail_msg("%s: %s -> %s: %s", key, then, now, status ? tsr_last_error() : "goes on");
    if (stays && (!strstr(tsr_last_error(), key) || !strstr(tsr_last_error(), to) ||
                  !strstr(tsr_last_error(), from) || !strstr(tsr_last_error(), "DIR")))
        fail_msg("%s: %s", key, tsr_last_error());
    if (!stays && (n != 1 || strcmp(changes[0].key, key) || changes[0].is_kept != is_kept ||
                   !strstr(changes[0].was, from) || !strstr(changes[0].now, to)))
        fail_msg("%s: %s -> %s: %d changes, of %s", key, then, now, n, n ? changes[0].key : "none");
    tsri_pool_finish(&pool);
    f->nkeys++;
    f->nrefused += stays;
    f->nkept += is_kept;
}

static void change_section(fixture *f, const tsri_section *s, const char *form, const char *path,
                           int depth);

/* `form` is a mapping of which "%V" is the rest, that begins behind its first keys. */
static void change_field(fixture *f, const tsri_field *field, const char *form, const char *path,
                         int depth)
{
    char inner[512], text[256], key[128];
    const char *from = "3", *to = "5";
    snprintf(key, sizeof key, "%s%s%s", path, path[0] ? "." : "", field->name);
    const bool is_section = field->kind == TSRI_FIELD_SECTION ||
                            field->kind == TSRI_FIELD_SECTIONS || field->kind == TSRI_FIELD_NAMED;
    snprintf(text, sizeof text, "%s: %%V", field->name);
    fill(inner, sizeof inner, form, text);
    if (!is_section) {
        change(f, inner, key, from, to);
        return;
    }
    if (depth == 0)
        return;
    const bool is_list = field->kind == TSRI_FIELD_SECTIONS;
    const char *below = field->kind == TSRI_FIELD_SECTION ? "{%V}"
                        : is_list                         ? "[{%V}]"
                                                          : "{n: {%V}}";
    const char *add = field->kind == TSRI_FIELD_SECTION ? "" : is_list ? "[0]" : ".n";
    snprintf(text, sizeof text, "%s: %s", field->name, below);
    fill(inner, sizeof inner, form, text);
    snprintf(text, sizeof text, "%s%s", key, add);
    change_section(f, field->section, inner, text, depth - 1);
}

static void change_section(fixture *f, const tsri_section *s, const char *form, const char *path,
                           int depth)
{
    char key[128], text[256], inner[512];
    for (int i = 0; i < s->nfields; i++)
        change_field(f, &s->fields[i], form, path, depth);
    if (!s->selector)
        return;
    snprintf(key, sizeof key, "%s.%s", path, s->selector);
    for (int i = 0; i < s->nvariants; i++) {
        snprintf(text, sizeof text, "%s: %%V", s->selector);
        fill(inner, sizeof inner, form, text);
        change(f, inner, key, s->variants[i].name, s->variants[(i + 1) % s->nvariants].name);
        snprintf(text, sizeof text, "%s: %s, %%V", s->selector, s->variants[i].name);
        fill(inner, sizeof inner, form, text);
        for (int j = 0; j < s->variants[i].nfields; j++)
            change_field(f, &s->variants[i].fields[j], inner, path, depth);
    }
}

/* Layers hold layers: they are changed within one other, and its part. */
static void test_every_key(void **state)
{
    fixture *f = *state;
    change_section(f, &tsri_experiment_section, "{%V}", "", 3);
    print_message("%d keys: %d refused, %d kept\n", f->nkeys, f->nrefused, f->nkept);
    assert_true(f->nkeys > 1500 && f->nrefused > 1000 && f->nkept == 3);
}

typedef struct row {
    const char *then, *now, *key, *was, *is; /* key NULL: no change */
} row;

static void test_shapes(void **state)
{
    static const row rows[] = {
        /* A dump of before there was a key has its default. */
        {"{optimizer: {name: sgd}}", "{optimizer: {name: sgd, momentum: 0}}", NULL, "", ""},
        {"{optimizer: {name: adam}}", "{optimizer: {name: adam, eps: 1e-08}}", NULL, "", ""},
        {"{optimizer: {name: sgd}}", "{optimizer: {name: sgd, momentum: 0.5}}",
         "optimizer.momentum", "nothing", "'0.5'"},
        /* Entries that come and go. */
        {"{parameters: [{match: a}]}", "{parameters: [{match: a}, {match: b}]}", "parameters",
         "a list", "a list"},
        {"{train: {eval: {every: 1}}}", "{train: {}}", "train.eval", "a mapping", "nothing"},
        {"{placements: {a: {ranks: [0]}}}", "{placements: {}}", "placements.a", "a mapping",
         "nothing"},
        {"{placements: {}}", "{placements: {a: {ranks: [0]}}}", "placements.a", "nothing",
         "a mapping"},
        /* The order of a mapping says nothing, that of a list does. */
        {"{placements: {a: {ranks: [0, 1]}, b: {}}}", "{placements: {b: {}, a: {ranks: [0, 1]}}}",
         NULL, "", ""},
        {"{placements: {a: {ranks: [0, 1]}}}", "{placements: {a: {ranks: [1, 0]}}}",
         "placements.a.ranks", "a list", "a list"},
        /* Keys that no table knows are of a later version. */
        {"{later: 1, data: {dataset: mnist, later: 2}}", "{data: {dataset: mnist}}", NULL, "", ""},
        /* Names of a stranger's file cannot speak to the terminal. */
        {"{placements: {\"a\\e[2J\": {}}}", "{placements: {}}", "placements.a?[2J", "a mapping",
         "nothing"},
    };
    const fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        tsri_resume_change *c = NULL;
        tsri_pool pool;
        int n = 0;
        tsri_pool_init(&pool, NULL);
        assert_int_equal(tsri_experiment_resume(f->e, "DIR", r->now, r->then, &pool, &n, &c),
                         TSR_OK);
        if (n != (r->key != NULL) || (n && (strcmp(c[0].key, r->key) || strcmp(c[0].was, r->was) ||
                                            strcmp(c[0].now, r->is))))
            fail_msg("%s -> %s: %d changes: %s, %s, %s", r->then, r->now, n, n ? c[0].key : "",
                     n ? c[0].was : "", n ? c[0].now : "");
        tsri_pool_finish(&pool);
    }
}

/* Texts that are no dumps are errors, and no crash; the place of a refused key is the user's. */
static void test_refusals(void **state)
{
    static const char *const broken[] = {"", "{", "- a", "a", "\xff", "{a: &b 1}"};
    const fixture *f = *state;
    tsri_resume_change *c = NULL;
    tsri_pool pool;
    int n = 0;
    tsri_pool_init(&pool, NULL);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        const tsr_status status =
            tsri_experiment_resume(f->e, "DIR", "{train: {steps: 3}}", broken[i], &pool, &n, &c);
        assert_int_equal(status, TSR_ERR_FORMAT);
    }
    assert_int_equal(
        tsri_experiment_resume(f->e, "DIR/step-1", "{model: {name: mlp, args: {hidden: 9}}}",
                               "{model: {name: mlp, args: {hidden: 8}}}", &pool, &n, &c),
        TSR_ERR_STATE);
    assert_string_equal(tsr_last_error(),
                        "f.yaml:3:35: model.args.hidden: found '9', but the run goes on from "
                        "DIR/step-1, which was made with '8'; set it back, or name another "
                        "train.checkpoint.dir");
    tsri_pool_finish(&pool);
}

static int setup(void **state)
{
    static const char text[] = "tessera: 1\nplacements: {d: {ranks: [0]}}\n"
                               "model: {name: mlp, args: {hidden: 9}}\n"
                               "data: {dataset: mnist}\n";
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    return !f || tsri_experiment_parse("f.yaml", text, sizeof text - 1, 0, NULL, &f->e) != TSR_OK;
}

static int teardown(void **state)
{
    fixture *f = *state;
    tsri_experiment_destroy(f->e);
    free(f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
