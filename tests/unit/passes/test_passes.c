/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs single passes on programs in text form (src/ir/text/text.h). A case is a file: comments
 * (#), the line "pass NAME OPTIONS", the program before the pass, the line "=>", and the program
 * after it. `test_passes --print FILE` prints the case with the current result; with
 * TESSERA_PASS_TEXTS=DIR any program writes such texts.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/text_stream.h"
#include "src/exec/exec.h"
#include "src/ir/text/text.h"
#include "src/plan/pass/pass.h"
#include "tests/unit/record.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    tsri_pass pass;
    tsr_status (*run)(tsri_ir *ir);
} passes[] = {
    {TSRI_PASS_FUSE, tsri_plan_fuse},         {TSRI_PASS_RESHARD, tsri_plan_reshard},
    {TSRI_PASS_LAYOUT, tsri_plan_layout},     {TSRI_PASS_CHAIN, tsri_plan_chain},
    {TSRI_PASS_DEFER, tsri_plan_defer},       {TSRI_PASS_ORDER, tsri_plan_order},
    {TSRI_PASS_UPDATE, tsri_plan_update},     {TSRI_PASS_STAGES, tsri_plan_stages},
    {TSRI_PASS_SCHEDULE, tsri_plan_schedule},
};
enum { PASSES = sizeof passes / sizeof *passes };

typedef struct pass_case {
    char *text; /* all of the file */
    int pass;
    tsr_compile_opts opts;
    char *before, *after;
} pass_case;

static void read_options(char *words, tsr_compile_opts *opts)
{
    char *rest;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (!strncmp(word, "bucket_mb=", 10))
            opts->bucket_mb = atof(word + 10);
        else if (!strncmp(word, "no_fusion=", 10))
            opts->no_fusion = (unsigned)atoi(word + 10);
        else if (!strcmp(word, "reshard_after_forward"))
            opts->reshard_after_forward = true;
        else
            fail_msg("no option is called '%s'", word);
    }
}

static void read_case(const char *path, pass_case *c)
{
    char name[32], *line;
    int length;
    *c = (pass_case){.text = record_read(path), .opts = *TSR_COMPILE_OPTS()};
    for (line = c->text; *line == '#'; line = strchr(line, '\n') + 1)
        ;
    assert_int_equal(sscanf(line, "pass %31s%n", name, &length), 1);
    char *options = line + length, *end = strchr(options, '\n');
    *end = 0;
    read_options(options, &c->opts);
    while (c->pass < PASSES && strcmp(tsri_pass_name(passes[c->pass].pass), name) != 0)
        c->pass++;
    if (c->pass == PASSES)
        fail_msg("%s: no pass is called '%s'", path, name);
    c->before = end + 1;
    c->after = strstr(c->before, "=>\n");
    assert_non_null(c->after);
    *c->after = 0;
    c->after += 3;
}

/* Returns the program's text after the pass; the caller frees it. */
static char *run_case(const char *path, const pass_case *c)
{
    int ranks, rank;
    tsr_world *w;
    if (sscanf(c->before, "plan 1 ranks %d rank %d", &ranks, &rank) != 2)
        fail_msg("%s: the first line of a program is expected", path);
    assert_int_equal(tsr_world_create_virtual(ranks, rank, &w), TSR_OK);
    const bool on_gpus = strstr(c->before, " cuda:") != NULL;
    tsri_ir ir;
    tsri_ir_init(&ir, w);
    ir.opts = c->opts;
    ir.model = tsri_plan_cost_model(&c->opts, on_gpus ? TSR_DEVICE_CUDA : TSR_DEVICE_CPU);
    if (tsri_text_read(&ir, c->before, NULL) != TSR_OK || passes[c->pass].run(&ir) != TSR_OK ||
        tsri_plan_check(&ir, passes[c->pass].pass) != TSR_OK)
        fail_msg("%s: %s", path, tsr_last_error());
    tsri_text_stream t;
    assert_true(tsri_text_open(&t, NULL));
    assert_int_equal(tsri_text_write(&ir, true, t.stream), TSR_OK);
    char *text = tsri_text_close(&t, NULL);
    assert_non_null(text);
    tsri_ir_finish(&ir);
    tsr_world_destroy(w);
    return text;
}

static void check_case(const char *path, bool *seen)
{
    pass_case c;
    read_case(path, &c);
    char *text = run_case(path, &c);
    record_same(path, text, c.after);
    seen[c.pass] = true;
    free(text);
    free(c.text);
}

static void print_case(const char *path)
{
    pass_case c;
    read_case(path, &c);
    char *text = run_case(path, &c), *all = record_read(path);
    printf("%.*s%s", (int)(strstr(all, "=>\n") + 3 - all), all, text);
    free(text);
    free(all);
    free(c.text);
}

static void test_cases(void **state)
{
    (void)state;
    bool seen[PASSES] = {false};
    char path[1024];
    DIR *folder = opendir(PASS_CASES);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        if (!strstr(e->d_name, ".txt"))
            continue;
        snprintf(path, sizeof path, "%s/%s", PASS_CASES, e->d_name);
        check_case(path, seen);
    }
    closedir(folder);
    for (int i = 0; i < PASSES; i++)
        if (!seen[i])
            fail_msg("the pass '%s' has no case", tsri_pass_name(passes[i].pass));
}

/* Errors of a text name the line. */
static void test_wrong_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"plan 2 ranks 1 rank 0\n", "line 1: 'plan' and the number of this format"},
        {"plan 1 ranks 2 rank 0\n", "line 1: the world's number of ranks"},
        {"plan 1 ranks 1 rank 0\nv0 f32 (2) B p0 |\n", "line 2: a placement"},
        {"plan 1 ranks 1 rank 0\np0 cpu:[1]\n", "rank 1"},
        {"plan 1 ranks 1 rank 0\np0 cpu:[0]\nv0 f31 (2) B p0 |\n", "line 3: a dtype"},
        {"plan 1 ranks 1 rank 0\np0 cpu:[0]\nv1 f32 (2) B p0 |\n", "line 3: the next value"},
        {"plan 1 ranks 1 rank 0\np0 cpu:[0]\nv0 f32 (2) S(x) p0 |\n", "line 3: signature"},
        {"plan 1 ranks 1 rank 0\np0 cpu:[0]\nv0 f32 (2) (B,B) p0 |\n", "line 3: layout '(B,B)'"},
        {"plan 1 ranks 1 rank 0\np0 cpu:[0]\nv0 f32 (2) B p0 over v4 |\n", "others lie over"},
        {"plan 1 ranks 1 rank 0\ni0 kernel fly: ->|\n", "line 2: an op"},
        {"plan 1 ranks 1 rank 0\ni0 kernel unary: v0 -> |\n", "line 2: a value"},
        {"plan 1 ranks 1 rank 0\ni0 kernel constant: -> |\n", "line 2: a plan to take"},
        {"plan 1 ranks 1 rank 0\nrun i0\n", "line 2: an item"},
        {"plan 1 ranks 1 rank 0 parts 2\nstages 2 1 1\n", "line 2: a number of stages"},
        {"plan 1 ranks 1 rank 0\nstop\n", "line 2: a placement, a value"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tsr_world *w;
        assert_int_equal(tsr_world_create_virtual(1, 0, &w), TSR_OK);
        tsri_ir ir;
        tsri_ir_init(&ir, w);
        assert_int_not_equal(tsri_text_read(&ir, wrong[i].text, NULL), TSR_OK);
        if (!strstr(tsr_last_error(), wrong[i].says))
            fail_msg("'%s' says '%s', not '%s'", wrong[i].text, tsr_last_error(), wrong[i].says);
        tsri_ir_finish(&ir);
        tsr_world_destroy(w);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--print")) {
        print_case(argv[2]);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_wrong_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
