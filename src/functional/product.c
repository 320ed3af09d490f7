/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products, all of them as matrix products. */
#include "src/functional/inside.h"

#include <string.h>

tsr_tensor *tsr_dot_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line)
{
    return tsr_tensordot(x, y, TSR_AXES(0), TSR_AXES(0));
}

tsr_tensor *tsr_outer_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line)
{
    tsr_tensor *in[2] = {x, y};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "outer", 2, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&c, 2, in))
        return c.failed;
    if (x->shape.ndim != 1 || y->shape.ndim != 1)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "%s and %s; both must be vectors",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, y));
    return tsr_mul(tsr_unsqueeze(x, 1), y);
}

tsr_tensor *tsr_baddbmm_at(tsr_tensor *c, tsr_tensor *a, tsr_tensor *b, double beta, double alpha,
                           const char *file, int line)
{
    tsr_tensor *in[3] = {c, a, b};
    TSRI_FUNCTION(x);
    if (!tsri_function_begin(&x, "baddbmm", 3, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&x, 3, in) || !tsri_want_float(&x, c) ||
        !tsri_want_number(&x, "beta", beta) || !tsri_want_number(&x, "alpha", alpha))
        return x.failed;
    tsr_tensor *product = tsr_mul_scalar(tsr_matmul(a, b), alpha);
    return beta == 0 ? product : tsr_add(tsr_mul_scalar(tsri_low(&x, c), beta), product);
}

/* An operand and the letter of each of its axes. */
typedef struct term {
    tsr_tensor *x;
    int ndim;
    char letter[TSR_MAX_NDIM + 1];
} term;

static int place_of(const term *t, char letter)
{
    const char *at = memchr(t->letter, letter, (size_t)t->ndim);
    return at ? (int)(at - t->letter) : -1;
}

/* Puts the axes of t into the order of `letters`, all of which it has. */
static term ordered(term t, const char *letters, const char *file, int line)
{
    tsr_axes order = {.n = t.ndim};
    bool same = true;
    for (int i = 0; i < t.ndim; i++) {
        order.axis[i] = place_of(&t, letters[i]);
        same = same && order.axis[i] == i;
    }
    if (!same)
        t.x = tsr_permute(t.x, order);
    memcpy(t.letter, letters, (size_t)t.ndim);
    return t;
}

/* Sums t over the letters that `kept` has not. */
static term summed(term t, const char *kept, const char *file, int line)
{
    tsr_axes axes = {0};
    term y = {.x = t.x};
    for (int i = 0; i < t.ndim; i++)
        if (strchr(kept, t.letter[i]))
            y.letter[y.ndim++] = t.letter[i];
        else
            axes.axis[axes.n++] = i;
    if (axes.n)
        y.x = tsr_sum(t.x, axes, false);
    return y;
}

/* Four kinds of letters of a product: of both and of the result; summed over; of one alone. */
typedef struct kinds {
    char both[2 * TSR_MAX_NDIM + 1], sum[2 * TSR_MAX_NDIM + 1];
    char a[2 * TSR_MAX_NDIM + 1], b[2 * TSR_MAX_NDIM + 1];
} kinds;

static void put(char *list, char letter)
{
    const size_t n = strlen(list);
    list[n] = letter;
    list[n + 1] = 0;
}

static int64_t size_over(const term *t, const char *letters)
{
    int64_t n = 1;
    for (; *letters; letters++)
        n *= t->x->shape.d[place_of(t, *letters)];
    return n;
}

/* Returns the product of a and b with the letters that `kept` has: as one matrix product of
 * batches, (both, a, sum) x (both, sum, b). */
static term product(const tsri_ctx *c, term a, term b, const char *kept)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    char text[4 * TSR_MAX_NDIM + 2];
    kinds k = {0};
    term y = {0};
    tsr_dims dims = {0};
    for (int i = 0; i < a.ndim; i++) {
        const bool shared = place_of(&b, a.letter[i]) >= 0;
        put(!shared ? k.a : strchr(kept, a.letter[i]) ? k.both : k.sum, a.letter[i]);
    }
    for (int i = 0; i < b.ndim; i++)
        if (place_of(&a, b.letter[i]) < 0)
            put(k.b, b.letter[i]);
    y.ndim = (int)(strlen(k.both) + strlen(k.a) + strlen(k.b));
    if (y.ndim > TSR_MAX_NDIM) {
        y.x = tsri_op_fail(c, TSR_ERR_SHAPE, "a product has %d axes; at most %d are possible",
                           y.ndim, TSR_MAX_NDIM);
        return y;
    }
    strcat(strcat(strcpy(text, k.both), k.a), k.b);
    memcpy(y.letter, text, (size_t)y.ndim);
    for (int i = 0; i < y.ndim; i++) {
        const term *of = place_of(&a, y.letter[i]) >= 0 ? &a : &b;
        dims.d[dims.ndim++] = of->x->shape.d[place_of(of, y.letter[i])];
    }
    const int64_t batch = size_over(&a, k.both), m = size_over(&a, k.a);
    const int64_t n = size_over(&b, k.b), inner = size_over(&a, k.sum);
    strcat(strcat(strcpy(text, k.both), k.a), k.sum);
    a = ordered(a, text, file, line);
    strcat(strcat(strcpy(text, k.both), k.sum), k.b);
    b = ordered(b, text, file, line);
    a.x = tsri_shaped(a.x, TSR_DIMS(batch, m, inner), file, line);
    b.x = tsri_shaped(b.x, TSR_DIMS(batch, inner, n), file, line);
    y.x = tsri_shaped(tsr_matmul(a.x, b.x), dims, file, line);
    return y;
}

tsr_tensor *tsr_tensordot_at(tsr_tensor *a, tsr_tensor *b, tsr_axes a_axes, tsr_axes b_axes,
                             const char *file, int line)
{
    tsr_tensor *in[2] = {a, b};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "tensordot", 2, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&c, 2, in) || !tsri_want_float(&c, a))
        return c.failed;
    if (a_axes.n != b_axes.n || a_axes.n < 0 || a_axes.n > TSR_MAX_NDIM)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "%d axes of one and %d of the other", a_axes.n,
                            b_axes.n);
    term ta = {.x = a, .ndim = a->shape.ndim}, tb = {.x = b, .ndim = b->shape.ndim};
    for (int i = 0; i < TSR_MAX_NDIM; i++) {
        ta.letter[i] = (char)('a' + i);
        tb.letter[i] = (char)('A' + i);
    }
    for (int i = 0; i < a_axes.n; i++) {
        int at = a_axes.axis[i], bt = b_axes.axis[i];
        if (!tsri_want_axis(&c, a, &at) || !tsri_want_axis(&c, b, &bt))
            return c.failed;
        if (a->shape.d[at] != b->shape.d[bt] || tb.letter[bt] >= 'a')
            return tsri_op_fail(&c, TSR_ERR_SHAPE,
                                "axis %d of %s and axis %d of %s; they must be of one size, and no "
                                "axis twice",
                                at, tsri_op_dims(&c, a), bt, tsri_op_dims(&c, b));
        for (int j = 0; j < i; j++)
            if (ta.letter[at] == tb.letter[(b_axes.axis[j] + b->shape.ndim) % b->shape.ndim])
                return tsri_op_fail(&c, TSR_ERR_INVALID, "axis %d stands twice", at);
        tb.letter[bt] = ta.letter[at];
    }
    char kept[2 * TSR_MAX_NDIM + 1] = "";
    for (int i = 0; i < ta.ndim; i++)
        if (place_of(&tb, ta.letter[i]) < 0)
            put(kept, ta.letter[i]);
    for (int i = 0; i < tb.ndim; i++)
        if (tb.letter[i] < 'a')
            put(kept, tb.letter[i]);
    if (a->dtype != b->dtype) { /* autocast joins them, and leaves the product to them */
        ta.x = tsri_full(&c, a);
        tb.x = tsri_full(&c, b);
    }
    tsri_autocast_begin(c.g, TSR_F32);
    tsr_tensor *y = product(&c, ta, tb, kept).x;
    tsri_autocast_end(c.g);
    return y;
}

/* --- einsum ----------------------------------------------------------------------------------- */

enum { MOST_TERMS = 16, LETTERS = 52 };

static bool is_letter(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

/* Reads the letters of n operands and of the result, where it stands; out_result has room for all
 * letters. Spaces count nothing. */
static bool read_equation(const tsri_ctx *c, const char *p, int n, tsr_tensor *const *x,
                          term *out_terms, char *out_result)
{
    int count[128] = {0}, o = 0;
    for (int i = 0; i < n; i++)
        out_terms[i] = (term){.x = x[i]};
    for (; *p && *p != '-'; p++) {
        term *t = &out_terms[o];
        if (*p == ' ')
            continue;
        if (*p == ',' && o + 1 < n) {
            o++;
            continue;
        }
        if (!is_letter(*p) || t->ndim == TSR_MAX_NDIM || place_of(t, *p) >= 0)
            return tsri_op_refuse(c, TSR_ERR_INVALID,
                                  "'%c' in operand %d; legal are %d operands of different letters",
                                  *p, o, n);
        t->letter[t->ndim++] = *p;
        count[(unsigned char)*p]++;
    }
    int length = 0;
    if (*p)
        for (p++; *p; p++) {
            if (*p == ' ' || (*p == '>' && p[-1] == '-'))
                continue;
            if (!is_letter(*p) || !count[(unsigned char)*p] ||
                memchr(out_result, *p, (size_t)length))
                return tsri_op_refuse(
                    c, TSR_ERR_INVALID,
                    "'%c' in the result; legal are letters of operands, each once", *p);
            out_result[length++] = *p;
        }
    else
        for (int l = 'A'; l <= 'z'; l++)
            if (count[l] == 1)
                out_result[length++] = (char)l;
    out_result[length] = 0;
    if (o + 1 != n)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "letters of %d operands; there are %d", o + 1, n);
    return length <= TSR_MAX_NDIM ||
           tsri_op_refuse(c, TSR_ERR_SHAPE, "the result has %d axes; at most %d are possible",
                          length, TSR_MAX_NDIM);
}

/* Checks that each operand has as many axes as letters, and that a letter is of one size. */
static bool want_sizes(const tsri_ctx *c, int n, const term *t)
{
    int64_t size[128];
    memset(size, -1, sizeof size);
    for (int i = 0; i < n; i++) {
        if (t[i].ndim != t[i].x->shape.ndim)
            return tsri_op_refuse(c, TSR_ERR_SHAPE, "operand %d is %s and has %d letters", i,
                                  tsri_op_dims(c, t[i].x), t[i].ndim);
        for (int a = 0; a < t[i].ndim; a++) {
            int64_t *s = &size[(unsigned char)t[i].letter[a]];
            if (*s >= 0 && *s != t[i].x->shape.d[a])
                return tsri_op_refuse(c, TSR_ERR_SHAPE, "'%c' is %lld in operand %d, %lld before",
                                      t[i].letter[a], (long long)t[i].x->shape.d[a], i,
                                      (long long)*s);
            *s = t[i].x->shape.d[a];
        }
    }
    return true;
}

tsr_tensor *tsr_einsum_at(const char *equation, int n, tsr_tensor *const *x, const char *file,
                          int line)
{
    TSRI_FUNCTION(c);
    term t[MOST_TERMS];
    char result[LETTERS + 1] = "", kept[LETTERS + 1];
    if (!tsri_want_some("einsum", n, x, (tsri_loc){file, line}))
        return NULL;
    if (n > MOST_TERMS) {
        tsri_fail_at((tsri_loc){file, line}, TSR_ERR_INVALID,
                     "einsum: of %d tensors; at most %d are possible", n, MOST_TERMS);
        return NULL;
    }
    if (!tsri_function_begin(&c, "einsum", n, x, 0, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&c, n, x) || !tsri_want_float(&c, x[0]))
        return c.failed;
    if (!equation)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "the equation is NULL");
    if (!read_equation(&c, equation, n, x, t, result) || !want_sizes(&c, n, t))
        return c.failed;
    /* From the left: what neither a later operand nor the result has is summed over at once. */
    term y = t[0];
    for (int i = 0; i < n && !y.x->failed; i++) {
        strcpy(kept, result);
        for (int j = i + 1; j < n; j++)
            for (int a = 0; a < t[j].ndim; a++)
                if (!strchr(kept, t[j].letter[a]))
                    put(kept, t[j].letter[a]);
        if (i == 0) {
            y = summed(y, kept, file, line);
            continue;
        }
        char both[2 * LETTERS + 1];
        strcpy(both, kept);
        for (int a = 0; a < y.ndim; a++)
            put(both, y.letter[a]);
        term b = summed(t[i], both, file, line);
        if (b.x->failed)
            return b.x;
        y = product(&c, y, b, kept);
    }
    if (y.x->failed)
        return y.x;
    return tsri_as_result(ordered(y, result, file, line).x, x[0], c.loc);
}
