/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of ops: a rule, shapes and the exact list of signatures that must follow. */
#include "sbp/rule/rule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_TEXT = 4096 };

/* in, out: shapes as "8,5 7"; "()" is a scalar. want: the signatures besides all-B, any order. */
typedef struct rule_case {
    const char *rule, *in, *out;
    const char *sizes; /* "g=4 i=2" */
    int k;
    const char *want;
} rule_case;

#define CONV "n (g i) . ., (g o) i . . + (g o) -> n (g o) . ."
#define CONV_DX "n (g o) . ., (g o) i . . -> n (g i) . ."
#define CONV_DW "n (g i) . ., n (g o) . . -> (g o) i . ."
#define PATCH "n i (h .) (w .), o i . . -> n o h w"
#define LN_BWD \
    "!... ., !... ., ., ... . -> ... .; !... ., !... ., _, ... . -> .; _, _, _, ... . -> ."
#define GQA "!b (g r) s@ ., !b g . ., b g . e -> b (g r) s@ e"

static const rule_case cases[] = {
    /* Elementwise. */
    {"... -> ...", "8,5", "8,5", "", 2, "S0->S0; S1->S1; P->P"},
    {"... -> ...", "()", "()", "", 2, "P->P"},
    {"!... -> ...", "8,5", "8,5", "", 3, "S0->S0; S1->S1"},
    {"!..., ... -> ...", "5,7 5,7", "5,7", "", 2, "S0,S0->S0; S1,S1->S1; B,P->P"},
    {"... + ... -> ...", "5,7 5,7", "5,7", "", 2, "S0,S0->S0; S1,S1->S1; P,P->P"},
    {"... + ... -> ...", "5,7 7", "5,7", "", 2, "S0,B->S0; S1,S0->S1; P,P->P"},
    {"... + ... -> ...", "2,3,4 4", "2,3,4", "", 2, "S0,B->S0; S1,B->S1; S2,S0->S2; P,P->P"},
    {"... + ... -> ...", "5,1 1,7", "5,7", "", 2, "S0,B->S0; B,S1->S1; P,P->P"},
    {"... + ... -> ...", "1 0", "0", "", 2, "B,S0->S0; P,P->P"},
    {"... + ... -> ...", "1,3 1,3", "1,3", "", 2, "S0,S0->S0; S1,S1->S1; P,P->P"},
    {"..., ... -> ...", "5 5", "5", "", 2, "S0,S0->S0; P,B->P; B,P->P"},
    {"..., !... -> ...", "5 ()", "5", "", 2, "S0,B->S0; P,B->P"},
    {"!..., !... -> ...", "5 5", "5", "", 2, "S0,S0->S0"},
    {"a b c, a b c -> c", "2,3,4 2,3,4", "4", "", 2,
     "S0,S0->P; S1,S1->P; S2,S2->S0; P,B->P; B,P->P"},
    {"!... : ... + ... -> ...", "5 5 5", "5", "", 2, "S0,S0,S0->S0; B,P,P->P"},
    {"... j : ... j + ... 1 -> ... j", "3,5 3,5 3,1", "3,5", "", 2,
     "S0,S0,S0->S0; S1,S1,B->S1; P,B,B->P; B,P,P->P"},
    /* Sizes that follow from an axis of one element: all its indices are 1. */
    {"(a b) -> (a b)", "1", "1", "", 2, "S0->S0; P->P"},
    {"(a b) c -> c (a b)", "1,4", "4,1", "", 2, "S0->S1; S1->S0; P->P"},
    /* Reductions. */
    {"a b c -> a c", "5,3,4", "5,4", "", 2, "S0->S0; S1->P; S2->S1; P->P"},
    {"a b c -> a 1 c", "5,3,4", "5,1,4", "", 2, "S0->S0; S1->P; S2->S2; P->P"},
    {"!^a b c -> max a c", "5,3,4", "5,4", "", 2, "S0->S0; S1->Pmax; S2->S1; Pmax->Pmax"},
    {"!^a b -> min ()", "5,3", "()", "", 2, "S0->Pmin; S1->Pmin; Pmin->Pmin"},
    {"!a b c, !a c, !a c, a c -> a b c", "5,3,4 5,4 5,4 5,4", "5,3,4", "", 2,
     "S0,S0,S0,S0->S0; S1,B,B,B->S1; S2,S1,S1,S1->S2; B,B,B,P->P"},
    {"!a b c -> a c", "5,3,4", "5,4", "", 2, "S0->S0; S1->P; S2->S1"},
    {"a c -> a b c", "5,4", "5,3,4", "", 2, "S0->S0; S1->S2; B->S1; P->P"},
    {"!a . c -> a c", "5,3,4", "5,4", "", 2, "S0->S0; S2->S1"},
    {"!a b@ c, !a c -> min a c", "5,3,4 5,4", "5,4", "", 2, "S0,S0->S0; S1,B->Pmin; S2,S1->S1"},
    {"!... -> ()", "5,3", "()", "", 2, "S0->P; S1->P"},
    /* Matmul. */
    {"m k, k n -> m n", "5,7 7,3", "5,3", "", 2, "S0,B->S0; B,S1->S1; S1,S0->P; P,B->P; B,P->P"},
    {"k m, n k -> m n", "7,5 3,7", "5,3", "", 4, "S1,B->S0; B,S0->S1; S0,S1->P; P,B->P; B,P->P"},
    {"b m k, b k n -> b m n", "2,5,7 2,7,3", "2,5,3", "", 2,
     "S0,S0->S0; S1,B->S1; B,S2->S2; S2,S1->P; P,B->P; B,P->P"},
    {"b m k, b k n -> b m n", "2,5,7 1,7,3", "2,5,3", "", 2,
     "S0,B->S0; S1,B->S1; B,S2->S2; S2,S1->P; P,B->P; B,P->P"},
    {"... k, n k + n -> ... n", "4,5,7 3,7 3", "4,5,3", "", 2,
     "S0,B,B->S0; S1,B,B->S1; B,S0,S0->S2; S2,S1,P->P; P,B,P->P; B,P,P->P"},
    {"... k, n k + n -> ... n", "7 3,7 3", "3", "", 2,
     "B,S0,S0->S0; S0,S1,P->P; P,B,P->P; B,P,P->P"},
    {"... n -> n", "4,5,7", "7", "", 2, "S0->P; S1->P; S2->S0; P->P"},
    {"... k, ... n -> n k; _, ... n -> n", "4,5 4,7", "7,5 7", "", 2,
     "S0,S0->P,P; B,S1->S0,S0; S1,B->S1,B; B,P->P,P; P,B->P,B"},
    {"m k, k n + m j, j n -> m n", "2,3 3,4 2,5 5,4", "2,4", "", 2,
     "S0,B,S0,B->S0; B,S1,B,S1->S1; P,B,P,B->P; P,B,B,P->P; P,B,S1,S0->P; B,P,P,B->P; "
     "B,P,B,P->P; B,P,S1,S0->P; S1,S0,P,B->P; S1,S0,B,P->P; S1,S0,S1,S0->P"},
    {"m k, k n + m k -> m", "2,3 3,4 2,3", "2", "", 2,
     "S0,B,S0->S0; S1,S0,S1->P; P,B,P->P; B,P,P->P; B,S1,P->P"},
    /* Convolution: dense, depthwise, grouped. */
    {CONV, "8,3,9,9 6,3,3,3 6", "8,6,9,9", "g=1", 2,
     "S0,B,B->S0; B,S0,S0->S1; S1,S1,P->P; P,B,P->P; B,P,P->P"},
    {CONV, "8,3,9,9 6,3,3,3 6", "8,6,9,9", "g=1", 4,
     "S0,B,B->S0; B,S0,S0->S1; S1,S1,P->P; P,B,P->P; B,P,P->P"},
    {CONV, "8,8,9,9 8,1,3,3 8", "8,8,9,9", "g=8", 3,
     "S0,B,B->S0; S1,S0,S0->S1; P,B,P->P; B,P,P->P"},
    {CONV, "8,8,9,9 12,2,3,3 12", "8,12,9,9", "g=4", 2,
     "S0,B,B->S0; S1,S0,S0->S1; P,B,P->P; B,P,P->P"},
    {CONV, "8,8,9,9 12,2,3,3 12", "8,12,9,9", "g=4", 3, "S0,B,B->S0; P,B,P->P; B,P,P->P"},
    {CONV, "8,4,9,9 8,1,3,3 8", "8,8,9,9", "g=4", 3, "S0,B,B->S0; P,B,P->P; B,P,P->P"},
    {CONV_DX, "8,6,9,9 6,3,3,3", "8,3,9,9", "g=1", 2,
     "S0,B->S0; B,S1->S1; S1,S0->P; P,B->P; B,P->P"},
    {CONV_DX, "8,8,9,9 8,1,3,3", "8,8,9,9", "g=8", 3, "S0,B->S0; S1,S0->S1; P,B->P; B,P->P"},
    {CONV_DW, "8,3,9,9 8,6,9,9", "6,3,3,3", "g=1", 2,
     "S0,S0->P; B,S1->S0; S1,B->S1; P,B->P; B,P->P"},
    {CONV_DW, "8,8,9,9 8,8,9,9", "8,1,3,3", "g=8", 3, "S0,S0->P; S1,S1->S0; P,B->P; B,P->P"},
    {PATCH, "2,3,16,24 5,3,4,4", "2,5,4,6", "", 2,
     "S0,B->S0; B,S0->S1; S1,S1->P; S2,B->S2; S3,B->S3; P,B->P; B,P->P"},
    {PATCH, "2,3,16,24 5,3,4,4", "2,5,4,6", "", 3,
     "S0,B->S0; B,S0->S1; S1,S1->P; S3,B->S3; P,B->P; B,P->P"},
    {PATCH, "2,3,5,7 5,3,1,1", "2,5,5,7", "", 3,
     "S0,B->S0; B,S0->S1; S1,S1->P; S2,B->S2; S3,B->S3; P,B->P; B,P->P"},
    /* Pooling. */
    {"!^n c . . -> max n c . .", "2,3,8,8", "2,3,4,4", "", 2, "S0->S0; S1->S1; Pmax->Pmax"},
    {"!n c . ., n c . . -> n c . .", "2,3,4,4 2,3,4,4", "2,3,8,8", "", 2,
     "S0,S0->S0; S1,S1->S1; B,P->P"},
    {"n c . . -> n c . .", "2,3,8,8", "2,3,4,4", "", 2, "S0->S0; S1->S1; P->P"},
    {"n c h w -> n c 1 1", "2,3,8,8", "2,3,1,1", "", 2, "S0->S0; S1->S1; S2->P; S3->P; P->P"},
    {"n c 1 1 -> n c h w", "2,3,1,1", "2,3,8,8", "", 2, "S0->S0; S1->S1; B->S2; B->S3; P->P"},
    /* Normalisation. */
    {"!n c h w -> . c", "4,3,5,5", "2,3", "", 2, "S0->P; S1->S1; S2->P; S3->P"},
    {"!n c h w, !. c : c + c -> n c h w", "4,3,5,5 2,3 3 3", "4,3,5,5", "", 2,
     "S0,B,B,B->S0; S1,S1,S0,S0->S1; S2,B,B,B->S2; S3,B,B,B->S3; B,B,P,P->P"},
    {"!n c h w, !. c, n c h w -> . c", "4,3,5,5 2,3 4,3,5,5", "2,3", "", 2,
     "S0,B,S0->P; S1,S1,S1->S1; S2,B,S2->P; S3,B,S3->P; B,B,P->P"},
    {"!n c h w, !. c, c : n c h w + . c -> n c h w", "4,3,5,5 2,3 3 4,3,5,5 2,3", "4,3,5,5", "", 2,
     "S0,B,B,S0,B->S0; S1,S1,S0,S1,S1->S1; S2,B,B,S2,B->S2; S3,B,B,S3,B->S3; B,B,P,B,B->P; "
     "B,B,B,P,P->P"},
    {"!. c . . : c + c -> . c . .", "4,3,5,5 3 3", "4,3,5,5", "", 2, "S1,S0,S0->S1; B,P,P->P"},
    {"n c h w, c + c -> n c h w", "4,3,5,5 3 3", "4,3,5,5", "", 2,
     "S0,B,B->S0; S1,S0,S0->S1; S2,B,B->S2; S3,B,B->S3; P,B,P->P; B,P,P->P"},
    {"!(r .) c h w -> r . c", "8,3,2,2", "4,2,3", "r=4", 2, "S0->S0; S1->S2; S2->P; S3->P"},
    {"!(r .) c h w -> r . c", "8,3,2,2", "4,2,3", "r=4", 3, "S1->S2; S2->P; S3->P"},
    {"!... . : . + . -> ... .", "4,5,6 6 6", "4,5,6", "", 2, "S0,B,B->S0; S1,B,B->S1; B,P,P->P"},
    {"!... f, !... ., ... f -> f", "4,6 4,2 4,6", "6", "", 2, "S0,S0,S0->P; S1,B,S1->S0; B,B,P->P"},
    {LN_BWD, "4,6 4,2 6 4,6", "4,6 6 6", "", 2,
     "S0,S0,B,S0->S0,P,P; B,B,B,P->P,P,P; B,B,P,B->P,B,B"},
    {"!... . -> ... .", "4,6", "4,6", "", 2, "S0->S0"},
    {"!^... j -> max ... 1", "4,6", "4,1", "", 2, "S0->S0; S1->Pmax; Pmax->Pmax"},
    {"... j, ... j -> ... 1", "4,6 4,6", "4,1", "", 2, "S0,S0->S0; S1,S1->P; P,B->P; B,P->P"},
    /* Losses. */
    {"!n ., !n -> n", "4,6 4", "4", "", 2, "S0,S0->S0"},
    {"!n ., !n -> ()", "4,6 4", "()", "", 2, "S0,S0->P"},
    {"!n ., !n -> (), ()", "4,6 4", "() ()", "", 2, "S0,S0->P,P"},
    {"!n c@, !n, !n, () -> n c@", "4,6 4 4 ()", "4,6", "", 2,
     "S0,S0,S0,B->S0; S1,B,B,B->S1; B,B,B,P->P"},
    {"!n c@, !n, !n -> n .", "4,6 4 4", "4,2", "", 2, "S0,S0,S0->S0; S1,B,B->P"},
    {"() : ... + ... -> ...", "() 4,6 4,6", "4,6", "", 2,
     "B,S0,S0->S0; B,S1,S1->S1; P,B,B->P; B,P,P->P"},
    /* Movement, indexing, random. */
    {"^a b c -> c a b", "2,3,4", "4,2,3", "", 2,
     "S0->S1; S1->S2; S2->S0; P->P; Pmax->Pmax; Pmin->Pmin"},
    {"^b s (h d) -> b s h d", "2,3,8", "2,3,4,2", "", 2,
     "S0->S0; S1->S1; S2->S2; P->P; Pmax->Pmax; Pmin->Pmin"},
    {"a . + a . -> a .", "5,2 5,3", "5,5", "", 2, "S0,S0->S0; P,P->P"},
    {"^a . -> a .", "5,4", "5,2", "", 2, "S0->S0; P->P; Pmax->Pmax; Pmin->Pmin"},
    {"!^a . -> a .", "5,2", "5,4", "", 2, "S0->S0; Pmax->Pmax; Pmin->Pmin"},
    {"v@ d, !i j -> i j d", "11,4 2,3", "2,3,4", "", 2,
     "B,S0->S0; B,S1->S1; S1,B->S2; S0,B->P; P,B->P"},
    {"!i j, i j d -> v@ d", "2,3 2,3,4", "11,4", "", 2,
     "S0,S0->P; S1,S1->P; B,S2->S1; B,B->S0; B,P->P"},
    {"a v@, !a j -> a j", "5,7 5,3", "5,3", "", 2, "S0,S0->S0; B,S1->S1; S1,B->P; P,B->P"},
    {"!a j, a j -> a v@", "5,3 5,3", "5,7", "", 2, "S0,S0->S0; S1,S1->P; B,B->S1; B,P->P"},
    {"!n -> n c@", "5", "5,7", "", 2, "S0->S0; B->S1"},
    {"a@ b@ -> a@ b@", "5,7", "5,7", "", 2, "S0->S0; S1->S1; P->P"},
    {"-> a@ b@", "", "5,7", "", 2, "->S0; ->S1"},
    {"-> ...", "", "5,7", "", 2, "->S0; ->S1"},
    {"-> ()", "", "()", "", 2, ""},
    {"v@ a + u@ a -> . a", "3,4 2,4", "5,4", "", 2,
     "S1,S1->S1; P,P->P; S0,P->P; P,S0->P; S0,S0->P"},
    /* Attention, optimizers. */
    {"b h s d, b h t d -> b h s t", "2,3,5,4 2,3,7,4", "2,3,5,7", "", 2,
     "S0,S0->S0; S1,S1->S1; S2,B->S2; B,S2->S3; S3,S3->P; P,B->P; B,P->P"},
    {"!b h s@ ., !b h . ., b h . e -> b h s@ e", "2,3,5,4 2,3,5,4 2,3,5,4", "2,3,5,4", "", 2,
     "S0,S0,S0->S0; S1,S1,S1->S1; S2,B,B->S2; B,B,S3->S3; B,B,P->P"},
    {GQA, "2,8,5,4 2,4,5,4 2,4,5,4", "2,8,5,4", "", 2,
     "S0,S0,S0->S0; S1,S1,S1->S1; S2,B,B->S2; B,B,S3->S3; B,B,P->P"},
    {GQA, "2,8,5,4 2,4,5,4 2,4,5,4", "2,8,5,4", "", 3,
     "S0,S0,S0->S0; S2,B,B->S2; B,B,S3->S3; B,B,P->P"},
    {GQA, "2,8,5,4 2,1,5,4 2,1,5,4", "2,8,5,4", "", 3,
     "S0,S0,S0->S0; S1,B,B->S1; S2,B,B->S2; B,B,S3->S3; B,B,P->P"},
    {"... + ... + ... -> ...; _ + ... + ... -> ...", "5 5 5", "5 5", "", 2,
     "S0,S0,S0->S0,S0; P,P,P->P,P"},
    {"!..., !..., !..., !... -> ..., ..., ...", "5,3 5,3 5,3 5,3", "5,3 5,3 5,3", "", 2,
     "S0,S0,S0,S0->S0,S0,S0; S1,S1,S1,S1->S1,S1,S1"},
    {"..., !() -> ...", "5 ()", "5", "", 2, "S0,B->S0; P,B->P"},
    {"!... -> min ()", "5", "()", "", 2, "S0->Pmin"},
    /* Corners: an index that some outputs lack, and an addend that lacks it as well. */
    {"a b -> a, b", "2,3", "2 3", "", 2, "S0->S0,P; S1->P,S0; P->P,P"},
    {"a b + a -> a b, a", "2,3 2", "2,3 2", "", 2, "S0,S0->S0,S0; P,P->P,P"},
    {"a b -> a, max b", "2,3", "2 3", "", 2, "S0->S0,Pmax; S1->P,S0"},
    {"a b + a -> max a", "2,3 2", "2", "", 2, "S0,S0->S0"},
    {"a : b + c -> b c", "4 2 3", "2,3", "", 2,
     "S0,B,B->P; P,B,B->P; B,P,P->P; B,S0,B->S0; B,B,S0->S1"},
    {"_, a -> a", "9 4", "4", "", 2, "B,S0->S0; B,P->P"},
    {"-> a, ()", "", "4 ()", "", 2, ""},
    {"(. .) -> (. .)", "8", "8", "", 2, "P->P"},
    {"(a .) -> a", "4", "4", "", 3, "S0->S0; P->P"},
    {"(a .) -> a", "0", "0", "", 2, "S0->S0; P->P"},
};

static int parse_shapes(const char *text, tsr_dims *dims)
{
    int n = 0;
    while (*text) {
        tsr_dims *d = &dims[n++];
        *d = (tsr_dims){0};
        if (!strncmp(text, "()", 2)) {
            text += 2;
        } else {
            for (;; text++) {
                char *end;
                d->d[d->ndim++] = strtoll(text, &end, 10);
                text = end;
                if (*text != ',')
                    break;
            }
        }
        text += *text == ' ';
    }
    return n;
}

static int parse_sizes(const char *text, tsri_index_size *sizes)
{
    int n = 0, used;
    long long size;
    while (sscanf(text, " %7[a-z0-9]=%lld%n", sizes[n].name, &size, &used) == 2) {
        sizes[n++].size = size;
        text += used;
    }
    return n;
}

static size_t put(char *buf, int n, const tsr_sbp1 *d)
{
    static const char *const partial[] = {"P", "Pmax", "Pmin"};
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (i)
            buf[at++] = ',';
        if (d[i].kind == TSR_SBP_SPLIT)
            at += (size_t)sprintf(buf + at, "S%d", d[i].arg);
        else if (d[i].kind == TSR_SBP_PARTIAL)
            at += (size_t)sprintf(buf + at, "%s", partial[(int)d[i].arg]);
        else
            at += (size_t)sprintf(buf + at, d[i].kind == TSR_SBP_BROADCAST ? "B" : "?");
    }
    buf[at] = 0;
    return at;
}

static void describe(const tsri_signature *sig, int nin, int nout, char *buf)
{
    size_t at = put(buf, nin, sig->in);
    at += (size_t)sprintf(buf + at, "->");
    put(buf + at, nout, sig->out);
}

/* "S0->S0" stands in "S0->S0; S1->P". */
static bool listed(const char *list, const char *item)
{
    size_t n = strlen(item);
    for (const char *at = strstr(list, item); at; at = strstr(at + 1, item))
        if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ';'))
            return true;
    return false;
}

static int count_items(const char *list)
{
    int n = *list != 0;
    for (; *list; list++)
        n += *list == ';';
    return n;
}

static tsr_status bind(tsri_pool *pool, const rule_case *c, int *nin, int *nout, tsri_rule **rule)
{
    tsr_dims in[16], out[16];
    tsri_index_size sizes[16] = {0};
    *nin = parse_shapes(c->in, in);
    *nout = parse_shapes(c->out, out);
    int nsizes = parse_sizes(c->sizes, sizes);
    return tsri_rule_bind(pool, c->rule, *nin, in, *nout, out, nsizes, sizes, rule);
}

/* The derived list as text, without all-B, which must be first. */
static void check_case(const rule_case *c)
{
    tsri_pool pool = {0};
    tsri_rule *rule;
    tsri_signature *sig;
    int nin, nout, n;
    char got[MAX_TEXT] = "", one[256];
    if (bind(&pool, c, &nin, &nout, &rule) != TSR_OK)
        fail_msg("%s: %s", c->rule, tsr_last_error());
    assert_int_equal(tsri_rule_derive(&pool, rule, c->k, &n, &sig), TSR_OK);
    for (int i = 0; i < n; i++) {
        describe(&sig[i], nin, nout, one);
        if (i == 0) {
            assert_int_equal(sig[i].index, -1);
            assert_null(strpbrk(one, "SP?"));
            continue;
        }
        if (listed(got, one))
            fail_msg("%s: %s is there twice", c->rule, one);
        strcat(got, i > 1 ? "; " : "");
        strcat(got, one);
        if (!listed(c->want, one))
            fail_msg("%s, k = %d: unexpected %s", c->rule, c->k, one);
    }
    if (n - 1 != count_items(c->want))
        fail_msg("%s, k = %d:\n  got  %s\n  want %s", c->rule, c->k, got, c->want);
    assert_int_equal(tsri_rule_derive(&pool, rule, 1, &n, &sig), TSR_OK);
    assert_int_equal(n, 1);
    tsri_pool_finish(&pool);
}

static void test_catalogue(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i]);
}

typedef struct bad_case {
    const char *rule, *in, *out, *sizes;
    tsr_status status;
    const char *says; /* part of the message */
} bad_case;

static const bad_case bad_cases[] = {
    {"", "", "", "", TSR_ERR_INTERNAL, "column 1"},
    {"a", "4", "4", "", TSR_ERR_INTERNAL, "column 2"},
    {"a -", "4", "4", "", TSR_ERR_INTERNAL, "column 3"},
    {"a -> a -> a", "4", "4", "", TSR_ERR_INTERNAL, "column 8"},
    {"a ->", "4", "4", "", TSR_ERR_INTERNAL, "an axis is expected"},
    {"a -> a;", "4", "4", "", TSR_ERR_INTERNAL, "column 8"},
    {"a -> a; a -> a", "4", "4", "", TSR_ERR_INTERNAL, "an output too many"},
    {"a -> a; -> a", "4", "4 4", "", TSR_ERR_INTERNAL, "0 operands; the op has 1"},
    {"a -> a, a", "4", "4", "", TSR_ERR_INTERNAL, "an output too many"},
    {"a -> a", "4", "4 4", "", TSR_ERR_INTERNAL, "1 output; the op has 2"},
    {"a, a -> a", "4", "4", "", TSR_ERR_INTERNAL, "an operand too many"},
    {"-> a", "4", "4", "", TSR_ERR_INTERNAL, "0 operands"},
    {"!..., ... -> ...", "5", "5", "", TSR_ERR_INTERNAL, "an operand too many"},
    {"a a -> a", "4,4", "4", "", TSR_ERR_INTERNAL, "index a is twice"},
    {"(a a) -> a", "16", "4", "", TSR_ERR_INTERNAL, "index a is twice"},
    {"a -> a a", "4", "4,4", "", TSR_ERR_INTERNAL, "index a is twice"},
    {"ab -> a", "4", "4", "", TSR_ERR_INTERNAL, "one letter"},
    {"a1234567 -> a", "4", "4", "", TSR_ERR_INTERNAL, "one letter"},
    {"a .. -> a", "4,4", "4", "", TSR_ERR_INTERNAL, "2 dots"},
    {".... -> a", "4", "4", "", TSR_ERR_INTERNAL, "4 dots"},
    {"... ... -> a", "4", "4", "", TSR_ERR_INTERNAL, "second '...'"},
    {"(...) -> a", "4", "4", "", TSR_ERR_INTERNAL, "inside ( )"},
    {"(1 a) -> a", "4", "4", "", TSR_ERR_INTERNAL, "inside ( )"},
    {"(a (b) -> a", "4", "4", "", TSR_ERR_INTERNAL, "inside ( )"},
    {"(a -> a", "4", "4", "", TSR_ERR_INTERNAL, "inside ( )"},
    {"(a", "4", "4", "", TSR_ERR_INTERNAL, "inside ( )"},
    {"(a@ b) -> a b", "4", "2,2", "", TSR_ERR_INTERNAL, "inside ( )"},
    {"a) -> a", "4", "4", "", TSR_ERR_INTERNAL, "column 2"},
    {"() a -> a", "4", "4", "", TSR_ERR_INTERNAL, "scalar"},
    {"a () -> a", "4", "4", "", TSR_ERR_INTERNAL, "scalar"},
    {"... () -> a", "4", "4", "", TSR_ERR_INTERNAL, "scalar"},
    {"() ... -> a", "4", "4", "", TSR_ERR_INTERNAL, "scalar"},
    {"^!a -> a", "4", "4", "", TSR_ERR_INTERNAL, "column 2"},
    {"a -> !a", "4", "4", "", TSR_ERR_INTERNAL, "column 6"},
    {"a -> ^a", "4", "()", "", TSR_ERR_INTERNAL, "column 6"},
    {"a -> sum a", "4", "4", "", TSR_ERR_INTERNAL, "one letter"},
    {"a -> _", "4", "()", "", TSR_ERR_INTERNAL, "column 6"},
    {"_ a -> a", "4", "4", "", TSR_ERR_INTERNAL, "column 3"},
    {"!_ -> a", "()", "4", "", TSR_ERR_INTERNAL, "column 2"},
    {"a : a : a -> a", "4 4 4", "4", "", TSR_ERR_INTERNAL, "common factors"},
    {"a + a : a -> a", "4 4 4", "4", "", TSR_ERR_INTERNAL, "common factors"},
    {"a $ -> a", "4", "4", "", TSR_ERR_INTERNAL, "column 3"},
    {"2 -> a", "4", "4", "", TSR_ERR_INTERNAL, "column 1"},
    {"1a -> a", "1", "1", "", TSR_ERR_INTERNAL, "only 1"},
    {"a -> a\xff", "4", "4", "", TSR_ERR_INTERNAL, "column 7"},
    {"a b c d e f g h i -> a", "4", "4", "", TSR_ERR_INTERNAL, "more than 8 axes"},
    {"(a b c d e f g h i j k l m n o p q r s t u v w x y z a0 a1 a2 a3 a4 a5 a6) -> a", "4", "4",
     "", TSR_ERR_INTERNAL, "more than 32 indices"},
    {"a b -> a", "4", "4", "", TSR_ERR_SHAPE, "2 axes in the rule, its shape has 1"},
    {"... a b -> a", "4", "4", "", TSR_ERR_SHAPE, "2 axes in the rule, its shape has 1"},
    {"m k, k n -> m n", "5,7 8,3", "5,3", "", TSR_ERR_SHAPE, "index k has size 7"},
    {"a -> a", "4", "5", "", TSR_ERR_SHAPE, "index a has size 4"},
    {"a + a -> a", "4 1", "1", "", TSR_ERR_SHAPE, "axis 0 of output 0 has size 1"},
    {"1 -> a", "2", "2", "", TSR_ERR_SHAPE, "must be 1"},
    {"a -> a 1", "2", "2,3", "", TSR_ERR_SHAPE, "must be 1"},
    {"(a b) -> a b", "7", "2,3", "", TSR_ERR_SHAPE, "must be 6"},
    {"(g i) -> i", "7", "3", "g=2", TSR_ERR_SHAPE, "a multiple of 2"},
    {"(g .) -> g", "7", "3", "", TSR_ERR_SHAPE, "a multiple of 3"},
    {"(g i) -> .", "6", "3", "", TSR_ERR_INTERNAL, "given"},
    {"(g .) -> .", "6", "3", "", TSR_ERR_INTERNAL, "index g"},
    {"a -> a", "-4", "-4", "", TSR_ERR_SHAPE, "size -4"},
    {"a -> a", "4", "4", "a=5", TSR_ERR_SHAPE, "index a has size 5"},
};

static void test_bad_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const bad_case *b = &bad_cases[i];
        rule_case c = {b->rule, b->in, b->out, b->sizes, 2, ""};
        tsri_pool pool = {0};
        tsri_rule *rule = NULL;
        int nin, nout;
        tsri_error_clear();
        tsr_status status = bind(&pool, &c, &nin, &nout, &rule);
        if (status != b->status || !strstr(tsr_last_error(), b->says))
            fail_msg("\"%s\": status %d, \"%s\"", b->rule, status, tsr_last_error());
        assert_null(rule);
        tsri_pool_finish(&pool);
    }
}

/* Every prefix, and every change of one character, of every rule of the table ends well. */
static void test_damaged_rules(void **state)
{
    (void)state;
    static const char chars[] = "am1.()!^:;,+->_@ 9\x80";
    int bound = 0, refused = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t length = strlen(cases[i].rule);
        for (size_t at = 0; at < length; at++)
            for (size_t c = 0; c < sizeof chars; c++) {
                char text[256];
                tsri_pool pool = {0};
                tsri_rule *rule;
                tsri_signature *sig;
                int nin, nout, n;
                rule_case damaged = cases[i];
                strcpy(text, cases[i].rule);
                text[at] = chars[c];
                damaged.rule = text;
                tsri_error_clear();
                if (bind(&pool, &damaged, &nin, &nout, &rule) == TSR_OK) {
                    assert_int_equal(tsri_rule_derive(&pool, rule, 2, &n, &sig), TSR_OK);
                    bound++;
                } else {
                    assert_true(tsr_last_error()[0]);
                    refused++;
                }
                tsri_pool_finish(&pool);
            }
    }
    assert_true(bound > 1000 && refused > 10000);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    rule_case c = {LN_BWD, "4,6 4,2 6 4,6", "4,6 6 6", "", 2, ""};
    tsri_mem mem = {.fail_countdown = 1};
    tsri_pool pool = {.mem = &mem};
    tsri_rule *rule = NULL;
    int nin, nout;
    assert_int_equal(bind(&pool, &c, &nin, &nout, &rule), TSR_ERR_NO_MEMORY);
    assert_null(rule);
    tsri_pool_finish(&pool);
}

static void test_indices(void **state)
{
    (void)state;
    rule_case c = {"... (g i), n g i -> ... n", "4,5,6 7,2,3", "4,5,7", "", 5, ""};
    tsri_pool pool = {0};
    tsri_rule *rule;
    tsri_signature *sig;
    int nin, nout, n;
    assert_int_equal(bind(&pool, &c, &nin, &nout, &rule), TSR_OK);
    static const struct {
        const char *name;
        int size;
    } want[] = {{"g", 2}, {"i", 3}, {"n", 7}, {"~0", 5}, {"~1", 4}};
    assert_int_equal(tsri_rule_nindices(rule), 5);
    for (int i = 0; i < 5; i++) {
        int index = tsri_rule_find_index(rule, want[i].name);
        assert_true(index >= 0);
        assert_string_equal(tsri_rule_index_name(rule, index), want[i].name);
        assert_int_equal(tsri_rule_index_size(rule, index), want[i].size);
    }
    assert_int_equal(tsri_rule_find_index(rule, "k"), -1);
    assert_int_equal(tsri_rule_find_index(rule, "~2"), -1);
    /* A split signature names the index that it splits. */
    assert_int_equal(tsri_rule_derive(&pool, rule, 5, &n, &sig), TSR_OK);
    int seen = 0;
    for (int i = 0; i < n; i++) {
        char text[256];
        describe(&sig[i], nin, nout, text);
        const char *name = !strcmp(text, "S0,B->S0")   ? "~1"
                           : !strcmp(text, "S1,B->S1") ? "~0"
                           : !strcmp(text, "B,S0->S2") ? "n"
                                                       : NULL;
        assert_int_equal(sig[i].index, name ? tsri_rule_find_index(rule, name) : -1);
        seen += name != NULL;
    }
    assert_int_equal(seen, 3);
    assert_int_equal(tsri_rule_derive(&pool, rule, 0, &n, &sig), TSR_ERR_INTERNAL);
    tsri_pool_finish(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalogue),     cmocka_unit_test(test_bad_rules),
        cmocka_unit_test(test_damaged_rules), cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
