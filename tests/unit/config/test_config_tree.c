/* SPDX-License-Identifier: Apache-2.0 */
/* YAML as a tree: what is refused, with its exact text; hostile inputs; overrides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/tree.h"
#include "src/core/near.h"
#include "tests/sample.h"

static tsr_status parse(const char *text, size_t size)
{
    tsri_pool pool = {0};
    tsri_yaml *root;
    tsr_status status = tsri_yaml_parse(&pool, "f.yaml", text, size, &root);
    tsri_pool_finish(&pool);
    return status;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "f.yaml:1:1: there is nothing in it"},
        {"# only this\n", "f.yaml:1:1: there is nothing in it"},
        {"a: &x 1\n", "f.yaml:1:4: anchors (&name) are not allowed; write the value out"},
        {"a: 1\nb: *a\n", "f.yaml:2:4: aliases (*name) are not allowed; write the value out"},
        {"b: &x [1]\n", "f.yaml:1:4: anchors (&name) are not allowed; write the value out"},
        {"b: &x {c: 1}\n", "f.yaml:1:4: anchors (&name) are not allowed; write the value out"},
        {"&k a: 1\n", "f.yaml:1:1: anchors (&name) are not allowed; write the value out"},
        {"a: !!str 1\n", "f.yaml:1:4: tags (!name) are not allowed"},
        {"a: !x [1]\n", "f.yaml:1:4: tags (!name) are not allowed"},
        {"a: !x {}\n", "f.yaml:1:4: tags (!name) are not allowed"},
        {"a: ! 1\n", "f.yaml:1:4: tags (!name) are not allowed"},
        {"%TAG ! tag:x,2000:\n---\na: 1\n", "f.yaml:1:1: tag directives (%TAG) are not allowed"},
        {"a:\n  <<: {b: 1}\n", "f.yaml:2:3: merge keys (<<) are not allowed; write the keys out"},
        {"a: 1\n---\nb: 1\n", "f.yaml:2:1: a second document; a file holds one"},
        {"a: 1\n...\n---\n", "f.yaml:3:1: a second document; a file holds one"},
        {"a: 1\nb: 2\na: 3\n", "f.yaml:3:1: a: this key is there twice, first in line 1"},
        {"x: {a: 1, 'a': 2}\n", "f.yaml:1:11: x.a: this key is there twice, first in line 1"},
        {"? [a]\n: 1\n", "f.yaml:1:3: a key must be a single word or text, not a list or mapping"},
        {"? {a: b}\n: 1\n",
         "f.yaml:1:3: a key must be a single word or text, not a list or mapping"},
        {"a: \"x\\0y\"\n", "f.yaml:1:4: a text with a NUL byte in it"},
        {"a: [1, 2\nb: 3\n",
         "f.yaml:2:2: not YAML: did not find expected ',' or ']' while parsing a flow sequence "
         "of line 1"},
        {"a: \"x\n", "f.yaml:2:1: not YAML: found unexpected end of stream while scanning a "
                     "quoted scalar of line 1"},
        {"a:\n\t- 1\n", "f.yaml:2:1: not YAML: found character that cannot start any token while "
                        "scanning for the next token of line 2"},
        {"a: b: c\n", "f.yaml:1:5: not YAML: mapping values are not allowed in this context"},
        {"a: {b: c\n", "f.yaml:2:1: not YAML: did not find expected ',' or '}' while parsing a "
                       "flow mapping of line 1"},
        {"%YAML 3.0\n---\na\n", "f.yaml:1:1: not YAML: found incompatible YAML document"},
        {"ok: 1\n\xc3\xa4: \xff\n", "f.yaml:2:4: not UTF-8 text: invalid leading UTF-8 octet"},
        {"a: \xe4\xb8\n", "f.yaml:1:5: not UTF-8 text: invalid trailing UTF-8 octet"},
        {"a: \xc0\x80\n", "f.yaml:1:4: not UTF-8 text: invalid length of a UTF-8 sequence"},
        {"a: \xed\xa0\x80\n", "f.yaml:1:4: not UTF-8 text: invalid Unicode character"},
        {"a: \x01\n", "f.yaml:1:4: not UTF-8 text: control characters are not allowed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (parse(rows[i].text, strlen(rows[i].text)) == TSR_OK)
            fail_msg("%s is accepted", rows[i].text);
        if (strcmp(tsr_last_error(), rows[i].error))
            fail_msg("\n%s\nis told as   %s\ninstead of %s", rows[i].text, tsr_last_error(),
                     rows[i].error);
    }
    /* UTF-16 is no UTF-8. */
    assert_int_equal(parse("\xff\xfe"
                           "a\0:\0 \0"
                           "1\0",
                           10),
                     TSR_ERR_FORMAT);
}

static void test_accepted(void **state)
{
    (void)state;
    tsri_pool pool = {0};
    tsri_yaml *root;
    const char *text = "%YAML 1.2\n---\n# a comment\na: 'x'\nb:\n  - 1\n  - {c: \"d\", e: }\n...\n";
    assert_int_equal(tsri_yaml_parse(&pool, "f", text, strlen(text), &root), TSR_OK);
    const tsri_yaml *b = tsri_yaml_find(root, "b"), *map = b->last, *e = tsri_yaml_find(map, "e");
    char buf[TSRI_YAML_TEXT_MAX];
    assert_string_equal(tsri_yaml_path(e, buf), "b[1].e");
    assert_string_equal(tsri_yaml_shown(e, buf), "nothing");
    assert_string_equal(tsri_yaml_shown(tsri_yaml_find(map, "c"), buf), "\"d\"");
    assert_string_equal(tsri_yaml_shown(map, buf), "a mapping");
    assert_int_equal(map->line, 7);
    assert_int_equal(map->column, 5);
    assert_int_equal(e->key_column, 14);
    assert_true(tsri_yaml_find(root, "a")->quoted);
    assert_null(tsri_yaml_find(root, "c"));
    assert_null(tsri_yaml_find(b, "c"));
    tsri_pool_finish(&pool);
}

/* --- hostile inputs --------------------------------------------------------------------------- */
/* `unit` again and again. */
static char *repeat(const char *unit, size_t times, size_t *out_size)
{
    size_t n = strlen(unit);
    char *text = malloc(n * times + 1);
    assert_non_null(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * n, unit, n);
    text[n * times] = 0;
    *out_size = n * times;
    return text;
}

static void assert_repeated(const char *unit, size_t times, const char *error)
{
    size_t size;
    char *text = repeat(unit, times, &size);
    tsr_status status = parse(text, size);
    free(text);
    if (error && (status == TSR_OK || strcmp(tsr_last_error(), error)))
        fail_msg("%s: %s", unit, tsr_last_error());
    if (!error && status != TSR_OK)
        fail_msg("%s: %s", unit, tsr_last_error());
}

static void test_deep(void **state)
{
    (void)state;
    if (test_small_inputs())
        skip();
    static const char deep[] = "lists and mappings are nested more than 64 deep";
    char text[200];
    snprintf(text, sizeof text, "f.yaml:1:65: %s", deep);
    assert_repeated("[", 8 << 20, text);
    snprintf(text, sizeof text, "f.yaml:1:257: %s", deep);
    assert_repeated("{a: ", 4 << 20, text);
    snprintf(text, sizeof text, "f.yaml:1:129: %s", deep);
    assert_repeated("- ", 4 << 20, text);
    assert_repeated("? ", 4 << 20,
                    "f.yaml:1:3: a key must be a single word or text, not a list or mapping");
}

static void test_deepest(void **state)
{
    (void)state;
    char ok[129];
    memset(ok, '[', 64);
    memset(ok + 64, ']', 64);
    assert_int_equal(parse(ok, 128), TSR_OK);
}

static void test_large(void **state)
{
    (void)state;
    if (test_small_inputs())
        skip();
    size_t size;
    assert_repeated("x", (16 << 20) + 1,
                    "f.yaml: more than 16 MiB; keep large arrays in .npy files");
    assert_repeated("x", 16 << 20, NULL); /* one long word */
    assert_repeated("- a\n", 1 << 20,
                    "f.yaml:1048576:3: more than 1048576 values; keep large "
                    "arrays in .npy files");
    assert_repeated("# comment\n", 1 << 20, "f.yaml:1:1: there is nothing in it");
    assert_repeated("\n", 16 << 20, "f.yaml:1:1: there is nothing in it");
    /* A million different keys, and one of them again. */
    char *text = malloc(16 << 20);
    assert_non_null(text);
    size = 0;
    for (int i = 0; i < 1000000; i++)
        size += (size_t)sprintf(text + size, "k%d: 1\n", i);
    assert_int_equal(parse(text, size), TSR_OK);
    size += (size_t)sprintf(text + size, "k77: 1\n");
    assert_int_equal(parse(text, size), TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(),
                        "f.yaml:1000001:1: k77: this key is there twice, first in line 78");
    free(text);
}

static void test_long_keys(void **state)
{
    (void)state;
    /* Cut in messages, at a whole character. */
    size_t size;
    char *text = malloc(1 << 21);
    assert_non_null(text);
    char *key = repeat("\xc3\xa4", 300, &size);
    size = (size_t)sprintf(text, "? %s\n: 1\n? %s\n: 2\n", key, key);
    assert_int_equal(parse(text, size), TSR_ERR_FORMAT);
    char want[200];
    snprintf(want, sizeof want, "f.yaml:3:3: %.40s...: this key is there twice, first in line 1",
             key);
    assert_string_equal(tsr_last_error(), want);
    free(key);
    key = repeat("k", 1 << 20, &size);
    size = (size_t)sprintf(text, "? %s\n: 1\n", key);
    assert_int_equal(parse(text, size), TSR_OK);
    free(key);
    free(text);
}

/* Each byte of a file changed to each of some others: parsed or told. */
static void test_damaged(void **state)
{
    (void)state;
    static const char text[] = "tessera: 1\na: {b: [1, \"x\\n\", 'y'], c: !t &d *e}\n- |\n  z\n";
    static const char others[] = "\0\t\n !\"#&'*,-:>?@[]`{|}%\x80\xc3\xff";
    char copy[sizeof text];
    int told = 0;
    for (size_t at = 0; at + 1 < sizeof text; at++)
        for (size_t c = 0; c < sizeof others; c++) {
            memcpy(copy, text, sizeof text);
            copy[at] = others[c];
            told += parse(copy, sizeof text - 1) != TSR_OK;
            told += parse(copy, at) != TSR_OK;
        }
    assert_true(told > 1000);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] =
        "a: [1, 2]\nb: {c: d}\nm: {a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, "
        "h: 1, i: 1, j: 1, k: 1, l: 1, m: 1}\n";
    int64_t n = 1;
    for (;; n++) {
        tsri_mem mem = {.fail_countdown = n};
        tsri_pool pool;
        tsri_yaml *root;
        tsri_pool_init(&pool, &mem);
        tsr_status status = tsri_yaml_parse(&pool, "f", text, sizeof text - 1, &root);
        if (status == TSR_OK)
            status = tsri_yaml_set(&pool, root, "m.n=[1]");
        tsri_pool_finish(&pool);
        if (status == TSR_OK)
            break;
        assert_int_equal(status, TSR_ERR_NO_MEMORY);
    }
    assert_true(n > 1);
}

/* --- overrides -------------------------------------------------------------------------------- */
static void test_set(void **state)
{
    (void)state;
    static const struct {
        const char *set, *error;
    } rows[] = {
        {"a=1", NULL},
        {"b[0]=x", NULL},
        {"b[2]=x", NULL},
        {"c.d.e=[1, {f: 2}]", NULL},
        {"new.list[0].key=1", NULL},
        {"a=\"\"", NULL},
        {"", "--set : column 1: a key is expected, as in train.steps=5"},
        {"a", "--set a: column 2: '=' and a value are expected, as in train.steps=5"},
        {"a.=1", "--set a.=1: column 3: a key is expected, as in train.steps=5"},
        {".a=1", "--set .a=1: column 1: a key is expected, as in train.steps=5"},
        {"a.b=1", "--set a.b=1: column 3: what stands before it has no keys"},
        {"b.c=1", "--set b.c=1: column 3: what stands before it has no keys"},
        {"a[0]=1", "--set a[0]=1: column 3: what stands before it is no list"},
        {"b[x]=1", "--set b[x]=1: column 3: a number and ']' are expected, as in in[1]"},
        {"b[1=1", "--set b[1=1: column 3: a number and ']' are expected, as in in[1]"},
        {"b[-1]=1", "--set b[-1]=1: column 3: a number and ']' are expected, as in in[1]"},
        {"b[9]=1", "--set b[9]=1: column 3: the list has 2 entries; [2] would add one"},
        {"b[99999999999999999999]=1",
         "--set b[99999999999999999999]=1: column 3: the list has 2 entries; [2] would add one"},
        {"b[0]x=1", "--set b[0]x=1: column 5: '=' and a value are expected, as in train.steps=5"},
        {"a=", "--set a=: column 3: a value is expected after '='; \"\" is an empty text"},
        {"a=[1", "--set a=[1:2:1: not YAML: did not find expected ',' or ']' while parsing a flow "
                 "sequence of line 1"},
        {"a=&x 1", "--set a=&x 1:1:1: anchors (&name) are not allowed; write the value out"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const char text[] = "a: 0\nb: [1, 2]\nc: {d: }\n";
        tsri_pool pool = {0};
        tsri_yaml *root;
        assert_int_equal(tsri_yaml_parse(&pool, "f", text, sizeof text - 1, &root), TSR_OK);
        tsr_status status = tsri_yaml_set(&pool, root, rows[i].set);
        if (!rows[i].error && status != TSR_OK)
            fail_msg("%s: %s", rows[i].set, tsr_last_error());
        if (rows[i].error && (status == TSR_OK || strcmp(tsr_last_error(), rows[i].error)))
            fail_msg("%s: %s", rows[i].set, tsr_last_error());
        tsri_pool_finish(&pool);
    }
}

static void test_set_values(void **state)
{
    (void)state;
    static const char text[] = "a: 0\nb: [1, 2]\n";
    tsri_pool pool = {0};
    tsri_yaml *root;
    char buf[TSRI_YAML_TEXT_MAX];
    assert_int_equal(tsri_yaml_parse(&pool, "f", text, sizeof text - 1, &root), TSR_OK);
    assert_int_equal(tsri_yaml_set(&pool, root, "b[1]={k: [x, y]}"), TSR_OK);
    assert_int_equal(tsri_yaml_set(&pool, root, "b[1].k[0]=z"), TSR_OK);
    const tsri_yaml *k = tsri_yaml_find(tsri_yaml_find(root, "b")->last, "k");
    assert_string_equal(k->first->text, "z");
    assert_string_equal(k->last->text, "y");
    assert_string_equal(tsri_yaml_path(k->last, buf), "b[1].k[1]");
    tsri_yaml_fail(k->last, "no");
    assert_string_equal(tsr_last_error(), "--set b[1]={k: [x, y]}:1:14: b[1].k[1]: no");
    /* Of many keys the new one is found too, once. */
    for (int i = 0; i < 30; i++) {
        char set[32];
        snprintf(set, sizeof set, "m.k%d=%d", i, i);
        assert_int_equal(tsri_yaml_set(&pool, root, tsri_pool_strdup(&pool, set)), TSR_OK);
    }
    assert_int_equal(tsri_yaml_set(&pool, root, "m.k7=x"), TSR_OK);
    assert_int_equal(tsri_yaml_find(root, "m")->n, 30);
    assert_string_equal(tsri_yaml_find(tsri_yaml_find(root, "m"), "k7")->text, "x");
    tsri_pool_finish(&pool);
}

/* Values as messages show them: at most 60 bytes. */
static void test_shown(void **state)
{
    (void)state;
    static const char sixty[] = "123456789 123456789 123456789 123456789 123456789 123456789 ";
    char buf[TSRI_YAML_TEXT_MAX], text[100], want[100];
    for (int quoted = 0; quoted < 2; quoted++)
        for (int n = 59; n <= 63; n++) {
            const tsri_yaml node = {.kind = TSRI_YAML_SCALAR, .text = text, .quoted = quoted};
            char mark = quoted ? '"' : '\'';
            snprintf(text, sizeof text, "%.*s%.*s", n, sixty, n > 60 ? n - 60 : 0, "abc");
            snprintf(want, sizeof want, "%c%.60s%s%c", mark, text, n > 60 ? "..." : "", mark);
            assert_string_equal(tsri_yaml_shown(&node, buf), want);
        }
    const tsri_yaml control = {.kind = TSRI_YAML_SCALAR, .text = "a\x1f\x20\x7e\x7f\tb"};
    assert_string_equal(tsri_yaml_shown(&control, buf), "'a? ~??b'");
    assert_string_equal(tsri_yaml_shown(NULL, buf), "nothing");
    assert_string_equal(tsri_yaml_shown(&(tsri_yaml){.kind = TSRI_YAML_LIST}, buf), "a list");
}

static void test_distance(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int limit, want;
    } rows[] = {{"", "", 3, 0},
                {"abc", "", 3, 3},
                {"steps", "stesp", 3, 1},
                {"ab", "ba", 3, 1},
                {"stepz", "steps", 3, 1},
                {"kitten", "sitting", 3, 3},
                {"kitten", "sitting", 2, 3},
                {"abcd", "wxyz", 3, 4},
                {"ca", "abc", 3, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tsri_edit_distance(rows[i].a, rows[i].b, rows[i].limit), rows[i].want);
        assert_int_equal(tsri_edit_distance(rows[i].b, rows[i].a, rows[i].limit), rows[i].want);
    }
    char a[70];
    memset(a, 'x', sizeof a - 1);
    a[69] = 0;
    assert_int_equal(tsri_edit_distance(a, a, 3), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_deep),     cmocka_unit_test(test_deepest),
        cmocka_unit_test(test_large),    cmocka_unit_test(test_long_keys),
        cmocka_unit_test(test_damaged),  cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_set),      cmocka_unit_test(test_set_values),
        cmocka_unit_test(test_distance), cmocka_unit_test(test_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
