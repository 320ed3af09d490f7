/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC against the examples of FIPS 180-4 and RFC 4231. */
#include "src/core/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect_hex(const unsigned char *bytes, const char *hex)
{
    char text[2 * TSRI_SHA256_BYTES + 1];
    for (int i = 0; i < TSRI_SHA256_BYTES; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", bytes[i]);
    assert_string_equal(text, hex);
}

/* In pieces of `step` bytes. */
static void expect_hash(const char *data, size_t bytes, size_t step, const char *hex)
{
    unsigned char out[TSRI_SHA256_BYTES];
    tsri_sha256 h;
    tsri_sha256_init(&h);
    for (size_t at = 0; at < bytes; at += step)
        tsri_sha256_add(&h, data + at, bytes - at < step ? bytes - at : step);
    tsri_sha256_finish(&h, out);
    expect_hex(out, hex);
}

static void test_hash(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
         "m"
         "nopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step < 130; step++)
            expect_hash(cases[i].text, strlen(cases[i].text), step, cases[i].hex);
    enum { MILLION = 1000000 };
    char *a = malloc(MILLION);
    assert_non_null(a);
    memset(a, 'a', MILLION);
    expect_hash(a, MILLION, 4097,
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(a);
}

/* RFC 4231, 4.2 to 4.8 (the fifth is of a cut code). */
static void test_hmac(void **state)
{
    (void)state;
    unsigned char same_key[131], counted_key[25], out[TSRI_SHA256_BYTES];
    char dd[50], cd[50];
    memset(same_key, 0xaa, sizeof same_key);
    memset(dd, 0xdd, sizeof dd);
    memset(cd, 0xcd, sizeof cd);
    for (size_t i = 0; i < sizeof counted_key; i++)
        counted_key[i] = (unsigned char)(i + 1);
    static const char hash_first[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    static const char both_large[] =
        "This is a test using a larger than block-size key and a larger than block-size data. The "
        "key needs to be hashed before being used by the HMAC algorithm.";
    const struct {
        const void *key;
        size_t key_bytes;
        const char *data;
        size_t bytes;
        const char *hex;
    } cases[] = {
        {"\v\v\v\v\v\v\v\v\v\v\v\v\v\v\v\v\v\v\v\v", 20, "Hi There", 8,
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 4, "what do ya want for nothing?", 28,
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {same_key, 20, dd, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {counted_key, 25, cd, 50,
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {same_key, 131, hash_first, sizeof hash_first - 1,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {same_key, 131, both_large, sizeof both_large - 1,
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsri_hmac h;
        tsri_hmac_init(&h, cases[i].key, cases[i].key_bytes);
        tsri_hmac_add(&h, cases[i].data, 3);
        tsri_hmac_add(&h, cases[i].data + 3, cases[i].bytes - 3);
        tsri_hmac_finish(&h, out);
        expect_hex(out, cases[i].hex);
    }
}

static void test_same(void **state)
{
    (void)state;
    unsigned char a[TSRI_SHA256_BYTES] = {0}, b[TSRI_SHA256_BYTES] = {0};
    assert_true(tsri_hmac_is_same(a, b));
    for (int bit = 0; bit < 8 * TSRI_SHA256_BYTES; bit++) {
        b[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(tsri_hmac_is_same(a, b));
        b[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hash), cmocka_unit_test(test_hmac),
                                       cmocka_unit_test(test_same)};
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
