/* SPDX-License-Identifier: Apache-2.0 */
/* The ops' formulas on row-major doubles, one loop per index, nothing clever. */
#include "cases.h"

#include "src/core/rng.h"
#include "tests/unary_cases.h"

#include <tessera/sbp.h>
#include <math.h>
#include <string.h>

static int64_t at4(const int64_t *d, int64_t a, int64_t b, int64_t c, int64_t e)
{
    return ((a * d[1] + b) * d[2] + c) * d[3] + e;
}

static void conv(const kernel_case *k, double *const *in, double *y)
{
    const int64_t *x = k->in[0].dims.d, *w = k->in[1].dims.d, *o = k->out[0].dims.d;
    int64_t og = w[0] / k->groups;
    for (int64_t n = 0; n < o[0]; n++)
        for (int64_t c = 0; c < o[1]; c++)
            for (int64_t p = 0; p < o[2]; p++)
                for (int64_t q = 0; q < o[3]; q++) {
                    double s = k->nin > 2 ? in[2][c] : 0;
                    for (int64_t i = 0; i < w[1]; i++)
                        for (int64_t r = 0; r < w[2]; r++)
                            for (int64_t t = 0; t < w[3]; t++) {
                                int64_t h = p * k->attrs.conv.stride[0] +
                                            r * k->attrs.conv.dilation[0] - k->attrs.conv.pad[0];
                                int64_t v = q * k->attrs.conv.stride[1] +
                                            t * k->attrs.conv.dilation[1] - k->attrs.conv.pad[1];
                                if (h >= 0 && h < x[2] && v >= 0 && v < x[3])
                                    s += in[0][at4(x, n, c / og * w[1] + i, h, v)] *
                                         in[1][at4(w, c, i, r, t)];
                            }
                    y[at4(o, n, c, p, q)] = s;
                }
}

static void matmul(const kernel_case *k, double *const *in, double *y)
{
    int64_t m = k->out[0].dims.d[0], n = k->out[0].dims.d[1];
    int64_t depth = k->in[0].dims.d[!k->attrs.matmul.ta];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = 0;
            for (int64_t l = 0; l < depth; l++)
                s += in[0][k->attrs.matmul.ta ? l * m + i : i * depth + l] *
                     in[1][k->attrs.matmul.tb ? j * depth + l : l * n + j];
            y[i * n + j] = s;
        }
}

static void linear(const kernel_case *k, double *const *in, double *y)
{
    int64_t n = k->in[1].dims.d[0], depth = k->in[1].dims.d[1];
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++) {
        double s = k->nin > 2 ? in[2][i % n] : 0;
        for (int64_t l = 0; l < depth; l++)
            s += in[0][i / n * depth + l] * in[1][i % n * depth + l];
        y[i] = s;
    }
}

static void pool(const kernel_case *k, double *const *in, double *const *out)
{
    const int64_t *x = k->in[0].dims.d, *o = k->out[0].dims.d;
    const int64_t *all_x = k->in[0].gshape[0] ? k->in[0].gshape : x;
    bool adaptive = k->op == TSRI_OP_ADAPTIVE_POOL;
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++) {
        int64_t plane = i / (o[2] * o[3]), pos[2] = {i / o[3] % o[2], i % o[3]}, b[2], e[2];
        for (int j = 0; j < 2; j++) {
            double step = (double)all_x[2 + j] / (double)o[2 + j];
            b[j] = adaptive ? (int64_t)floor((double)pos[j] * step + 1e-9)
                            : pos[j] * k->attrs.pool.stride[j] - k->attrs.pool.pad[j];
            e[j] = adaptive ? (int64_t)ceil((double)(pos[j] + 1) * step - 1e-9)
                            : b[j] + k->attrs.pool.kernel[j];
        }
        const int64_t whole = (e[0] - b[0]) * (e[1] - b[1]);
        for (int j = 0; j < 2; j++) { /* what of the window is in this shard */
            b[j] -= k->in[0].offset[2 + j];
            e[j] -= k->in[0].offset[2 + j];
        }
        double sum = 0, best = -INFINITY;
        int64_t where = -1, inside = 0;
        for (int64_t h = b[0]; h < e[0]; h++)
            for (int64_t w = b[1]; w < e[1]; w++) {
                if (h < 0 || w < 0 || h >= x[2] || w >= x[3])
                    continue;
                double v = in[0][(plane * x[2] + h) * x[3] + w];
                sum += v;
                inside++;
                if (v > best) {
                    best = v;
                    where = h * x[3] + w;
                }
            }
        if (k->op == TSRI_OP_MAX_POOL) {
            out[0][i] = best;
            if (k->nout > 1)
                out[1][i] = (double)where;
        } else {
            out[0][i] =
                sum / (double)(adaptive || k->attrs.pool.count_include_pad ? whole : inside);
        }
    }
}

/* The virtual batch of sample n: parts are balanced, earlier ones take one more. */
static int64_t part_of(const tsri_attrs *at, int64_t n, double *count)
{
    int64_t end = 0;
    for (int64_t r = 0; r < at->bn.parts; r++) {
        int64_t size = at->bn.batch / at->bn.parts + (r < at->bn.batch % at->bn.parts);
        end += size;
        *count = (double)(size * at->bn.spatial);
        if (n < end)
            return r;
    }
    return -1;
}

static void norm(const kernel_case *k, double *const *in, double *y)
{
    const tsr_dims *x = &k->in[0].dims;
    int64_t c = x->d[1], s = x->ndim == 4 ? x->d[2] * x->d[3] : 1;
    double count = 0;
    if (k->op == TSRI_OP_BN_STATS)
        memset(y, 0, (size_t)kc_count(&k->out[0]) * sizeof *y);
    for (int64_t i = 0; i < kc_count(&k->in[0]); i++) {
        int64_t ch = i / s % c, r = part_of(&k->attrs, k->in[0].offset[0] + i / s / c, &count);
        r -= (k->op == TSRI_OP_BN_STATS ? &k->out[0] : &k->in[1])->offset[0];
        if (k->op == TSRI_OP_BN_STATS) {
            y[r * 2 * c + ch] += in[0][i];
            y[r * 2 * c + c + ch] += in[0][i] * in[0][i];
            continue;
        }
        if (k->op == TSRI_OP_BN_CENTER) {
            y[i] = in[0][i] - in[1][r * 2 * c + ch] / (k->nin == 3 ? in[2][0] : count);
            continue;
        }
        double mean = in[1][r * 2 * c + ch] / count;
        double var = in[1][r * 2 * c + c + ch] / count - mean * mean;
        double z = (in[0][i] - mean) / sqrt(var + k->attrs.bn.eps) * in[2][ch] + in[3][ch];
        if (k->op == TSRI_OP_BN_ACT)
            z = fmin(fmax(z, 0), k->attrs.bn.act == TSRI_ACT_RELU6 ? 6 : INFINITY);
        y[i] = z;
    }
}

static void running(const kernel_case *k, double *const *in, double *const *out)
{
    int64_t c = k->in[0].dims.d[2], rows = k->in[1].dims.ndim == 2 ? k->in[1].dims.d[0] : 1;
    for (int64_t i = 0; i < rows * c; i++) {
        int64_t r = i / c;
        double n = (double)((k->attrs.bn.batch / k->attrs.bn.parts +
                             (r < k->attrs.bn.batch % k->attrs.bn.parts)) *
                            k->attrs.bn.spatial);
        const double *centre = NULL;
        for (int j = 3; j < k->nin; j++)
            if (k->in[j].dims.ndim == 0)
                n = in[j][0];
            else
                centre = in[j];
        double mean = in[0][r * 2 * c + i % c] / n;
        double var = in[0][r * 2 * c + c + i % c] / n - mean * mean;
        out[0][i] = 0.9 * in[1][i] + 0.1 * (mean + (centre ? centre[r * 2 * c + i % c] / n : 0));
        out[1][i] = 0.9 * in[2][i] + 0.1 * var * (n > 1 ? n / (n - 1) : 1);
    }
}

static void softmax(const kernel_case *k, const double *x, double *y)
{
    const tsr_dims *d = &k->in[0].dims;
    int64_t inner = 1, n = d->d[k->attrs.softmax.axis];
    for (int i = k->attrs.softmax.axis + 1; i < d->ndim; i++)
        inner *= d->d[i];
    for (int64_t i = 0; i < kc_count(&k->in[0]); i++) {
        double sum = 0;
        int64_t base = i / (n * inner) * n * inner + i % inner;
        for (int64_t j = 0; j < n; j++)
            sum += exp(x[base + j * inner]);
        y[i] = k->attrs.softmax.log ? log(exp(x[i]) / sum) : exp(x[i]) / sum;
    }
}

static void cross_entropy(const kernel_case *k, double *const *in, double *const *out)
{
    int64_t c = k->in[0].dims.d[1];
    double s = k->attrs.ce.smoothing;
    for (int64_t i = 0; i < k->in[0].dims.d[0]; i++) {
        const double *x = in[0] + i * c;
        int64_t label = (int64_t)in[1][i];
        double sum = 0, loss = 0, most = x[0];
        for (int64_t j = 0; j < c; j++) {
            sum += exp(x[j]);
            most = x[j] > most ? x[j] : most;
        }
        for (int64_t j = 0; j < c; j++) /* -sum of target * log p */
            loss -= ((j == label ? 1 - s : 0) + s / (double)c) * log(exp(x[j]) / sum);
        bool out_of_count = k->attrs.ce.has_ignore && label == k->attrs.ce.ignore_index;
        out[0][i] = out_of_count ? 0 : loss;
        out[1][i] = out_of_count ? 0 : 1;
        out[2][2 * i] = most;
        out[2][2 * i + 1] = log(sum / exp(most));
    }
}

/* The result that element i of the operand goes to. */
static int64_t result_of(const kernel_case *k, int64_t i)
{
    const tsr_dims *d = &k->in[0].dims;
    int64_t to = 0, step = 1;
    for (int a = d->ndim - 1; a >= 0; a--) {
        if (!(k->attrs.reduce.axes >> a & 1)) {
            to += i % d->d[a] * step;
            step *= d->d[a];
        }
        i /= d->d[a];
    }
    return to;
}

static void prod(const kernel_case *k, const double *x, double *y)
{
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++)
        y[i] = 1;
    for (int64_t i = 0; i < kc_count(&k->in[0]); i++)
        y[result_of(k, i)] *= x[i];
}

/* Each factor's gradient from all others anew. */
static void prod_dx(const kernel_case *k, const double *x, const double *dy, double *dx)
{
    const int64_t n = kc_count(&k->in[0]);
    for (int64_t i = 0; i < n; i++) {
        const int64_t to = result_of(k, i);
        dx[i] = dy[to];
        for (int64_t j = 0; j < n; j++)
            if (j != i && result_of(k, j) == to)
                dx[i] *= x[j];
    }
}

static void reduce(const kernel_case *k, const double *x, double *y)
{
    int op = k->attrs.reduce.op;
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++)
        y[i] = op == TSR_REDUCE_SUM || op == TSRI_REDUCE_FAULT ? 0
               : op == TSR_REDUCE_MAX                          ? -INFINITY
                                                               : INFINITY;
    for (int64_t i = 0; i < kc_count(&k->in[0]); i++) {
        const int64_t to = result_of(k, i);
        y[to] = op == TSR_REDUCE_SUM      ? y[to] + x[i] * k->attrs.reduce.scale
                : op == TSRI_REDUCE_FAULT ? (isfinite(x[i]) ? y[to] : INFINITY)
                : op == TSR_REDUCE_MAX    ? fmax(y[to], x[i])
                                          : fmin(y[to], x[i]);
    }
}

static void argmax(const kernel_case *k, const double *x, double *y)
{
    const tsr_dims *d = &k->in[0].dims;
    int64_t inner = 1, n = d->d[k->attrs.softmax.axis];
    for (int i = k->attrs.softmax.axis + 1; i < d->ndim; i++)
        inner *= d->d[i];
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++) {
        int64_t base = i / inner * n * inner + i % inner, best = n - 1;
        for (int64_t j = n - 1; j >= 0; j--)
            if (x[base + j * inner] >= x[base + best * inner])
                best = j;
        y[i] = (double)best;
    }
}

static double unary(const tsri_attrs *at, double x)
{
    const double p = at->unary.a, q = at->unary.b;
    (void)q;
    switch ((tsri_unary_fn)at->unary.fn) {
#define VALUE(T, FN, name, arity, p_, q_, from, value, slope) \
    case TSRI_UNARY_##FN:                                     \
        return value;
        UNARY_CASES(VALUE, )
#undef VALUE
    case TSRI_UNARY_POW:
        return exp(p * log(x));
    case TSRI_UNARY_ADD:
        return x + p;
    case TSRI_UNARY_GELU:
        return x * (1 + erf(x / sqrt(2))) / 2;
    case TSRI_UNARY_GELU_TANH:
        return x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3)))) / 2;
    default:
        return p / x;
    }
}

static double binary(int fn, double a, double b)
{
    switch ((tsri_binary_fn)fn) {
    case TSRI_BINARY_ADD:
        return a + b;
    case TSRI_BINARY_SUB:
        return a - b;
    case TSRI_BINARY_MUL:
        return a * b;
    case TSRI_BINARY_DIV:
        return a / b;
    case TSRI_BINARY_POW:
        return exp(b * log(a));
    case TSRI_BINARY_NOT_EQUAL:
        return a != b;
    case TSRI_BINARY_LESS:
        return a < b;
    case TSRI_BINARY_LESS_EQUAL:
        return a <= b;
    case TSRI_BINARY_GREATER:
        return a > b;
    case TSRI_BINARY_GREATER_EQUAL:
        return a >= b;
    case TSRI_BINARY_STEP:
        return 0.5 * ((a > b) + (a >= b));
    case TSRI_BINARY_MAXIMUM:
        return fmax(a, b);
    case TSRI_BINARY_MINIMUM:
        return fmin(a, b);
    case TSRI_BINARY_PRELU:
        return fmax(a, 0) + b * fmin(a, 0);
    case TSRI_BINARY_ATAN2:
        return b > 0 ? atan(a / b) : b < 0 ? atan(a / b) + (a < 0 ? -acos(-1) : acos(-1)) : 0;
    case TSRI_BINARY_FMOD:
        return a - b * trunc(a / b);
    case TSRI_BINARY_REMAINDER:
        return a - b * floor(a / b);
    case TSRI_BINARY_FLOOR_DIVIDE:
        return floor(a / b);
    case TSRI_BINARY_BITWISE_AND:
        return (double)((long long)a & (long long)b);
    case TSRI_BINARY_BITWISE_OR:
        return (double)((long long)a | (long long)b);
    case TSRI_BINARY_BITWISE_XOR:
        return (double)((long long)a ^ (long long)b);
    case TSRI_BINARY_LEFT_SHIFT:
        return b < 0 ? 0 : ldexp(a, (int)b);
    case TSRI_BINARY_RIGHT_SHIFT:
        return b < 0 ? -(double)(a < 0) : floor(ldexp(a, -(int)b));
    default:
        return a == b;
    }
}

/* The index in `from` of element i of `to`, broadcasting from the right. */
static int64_t from_broadcast(const tsr_dims *to, const tsr_dims *from, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int a = 0; a < to->ndim; a++) {
        int64_t c = i % to->d[to->ndim - 1 - a];
        i /= to->d[to->ndim - 1 - a];
        if (a >= from->ndim)
            break;
        int64_t size = from->d[from->ndim - 1 - a];
        at += (size == 1 ? 0 : c) * step;
        step *= size;
    }
    return at;
}

static void permute(const kernel_case *k, const double *x, double *y)
{
    const tsr_dims *f = &k->in[0].dims, *t = &k->out[0].dims;
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++) {
        int64_t c[4] = {0}, rest = i, at = 0;
        for (int a = t->ndim - 1; a >= 0; a--) {
            c[k->attrs.permute.perm[a]] = rest % t->d[a];
            rest /= t->d[a];
        }
        for (int a = 0; a < f->ndim; a++)
            at = at * f->d[a] + c[a];
        y[i] = x[at];
    }
}

static double random_value(const kernel_case *k, double *const *in, int64_t i)
{
    const tsri_attrs *at = &k->attrs;
    uint64_t n = (uint64_t)i, key = at->random.key, step = k->nin ? (uint64_t)in[0][0] : 0;
    return at->random.dist == TSRI_RANDOM_UNIFORM
               ? at->random.a + (at->random.b - at->random.a) * tsri_rng_uniform(key, step, n)
               : at->random.a + at->random.b * tsri_rng_normal(key, step, n);
}

/* The index in the whole tensor of element i of part m, a shard: axis by axis. */
static int64_t index_in_whole(const kernel_case *k, int64_t m, int64_t i)
{
    const kc_arg *a = &k->out[0];
    const int64_t *all = a->gshape[0] ? a->gshape : a->dims.d, parts = k->attrs.dropout.parts;
    int64_t index = 0, step = 1;
    for (int j = a->dims.ndim - 1; j >= 0; j--) {
        int64_t row = i % a->dims.d[j] + a->offset[j], rows = all[j];
        if (j == k->attrs.dropout.axis) {
            const int64_t n = rows / k->attrs.dropout.blocks;
            row = row / n * parts * n + m * n + row % n;
            rows *= parts;
        }
        index += row * step;
        step *= rows;
        i /= a->dims.d[j];
    }
    return index;
}

static double dropout_value(const kernel_case *k, double *const *in, int64_t i)
{
    const tsri_attrs *at = &k->attrs;
    const int64_t index = k->nin == 3 ? index_in_whole(k, (int64_t)in[2][0], i) : i;
    bool kept =
        tsri_rng_uniform(at->dropout.key, (uint64_t)in[1][0], (uint64_t)index) >= at->dropout.p;
    return kept ? in[0][i] / (1 - at->dropout.p) : 0;
}

/* One element's update, as the algorithm boxes of torch.optim have it and Lion's paper; s: the
 * states, NULL where there is none. */
static double updated(tsri_op_kind op, const double *h, double p, double *const *s, int64_t i,
                      double g)
{
    const double lr = h[TSRI_HYPER_LR], k1 = h[TSRI_HYPER_KEEP1], t1 = h[TSRI_HYPER_TAKE1];
    const double k2 = h[TSRI_HYPER_KEEP2], t2 = h[TSRI_HYPER_TAKE2], eps = h[TSRI_HYPER_EPS];
    g = g * h[TSRI_HYPER_SCALE] + h[TSRI_HYPER_DECAY] * p;
    p *= h[TSRI_HYPER_SHRINK];
    if (op == TSRI_OP_SGD) {
        if (!s[0])
            return p - lr * g;
        double b = s[0][i] = k1 * s[0][i] + t1 * g;
        return p - lr * (h[TSRI_HYPER_LOOK] != 0 ? g + h[TSRI_HYPER_LOOK] * b : b);
    }
    if (op == TSRI_OP_ADAM) {
        double m = s[0][i] = (1 - t1) * s[0][i] + t1 * g, v = s[1][i] = k2 * s[1][i] + t2 * g * g;
        return p - lr * m / (h[TSRI_HYPER_ROOT] * sqrt(v) + eps);
    }
    if (op == TSRI_OP_RMSPROP) {
        double v = s[0][i] = k2 * s[0][i] + t2 * g * g;
        double mean = s[2] ? (s[2][i] = (1 - t2) * s[2][i] + t2 * g) : 0;
        double move = g / (sqrt(v - mean * mean) + eps);
        if (s[1])
            move = s[1][i] = k1 * s[1][i] + move;
        return p - lr * move;
    }
    if (op == TSRI_OP_ADAGRAD) {
        double sum = s[0][i] = s[0][i] + g * g;
        return p - lr * g / (sqrt(sum) + eps);
    }
    double c = k1 * s[0][i] + t1 * g;
    s[0][i] = (1 - t2) * s[0][i] + t2 * g;
    return p - lr * ((c > 0) - (c < 0));
}

static void update(const kernel_case *k, double *const *in, double *const *out)
{
    const double *h = in[k->nin - 1];
    double *s[TSRI_UPDATE_STATES] = {0};
    const int64_t n = kc_count(&k->in[0]);
    for (int j = 0, at = 1; j < TSRI_UPDATE_STATES; j++)
        if (k->attrs.update.has >> j & 1)
            s[j] = out[at++];
    for (int o = 0; o < k->nout; o++)
        memcpy(out[o], in[o], (size_t)n * sizeof **out);
    for (int64_t i = 0; i < n && h[TSRI_HYPER_SKIP] == 0; i++)
        out[0][i] = updated(k->op, h, in[0][i], s, i, in[k->nin - 2][i]);
}

static void params(const kernel_case *k, double *const *in, double *const *out)
{
    int64_t c = k->out[0].dims.d[0];
    for (int64_t i = 0; i < c; i++) {
        if (k->op == TSRI_OP_BN_FOLD) {
            out[0][i] = in[0][i] / sqrt(in[3][i] + k->attrs.bn.eps);
            out[1][i] = in[1][i] - in[2][i] * in[0][i] / sqrt(in[3][i] + k->attrs.bn.eps);
            continue;
        }
        out[0][i] = out[1][i] = 0;
        for (int64_t r = 0; r < k->in[0].dims.d[0]; r++) {
            out[0][i] += in[0][(r * 2 + 1) * c + i];
            out[1][i] += in[0][r * 2 * c + i];
        }
    }
}

/* Ops whose result i depends on elements that broadcast to i alone. */
static bool elementwise(const kernel_case *k, double *const *in, double *y)
{
    const tsr_dims *d = &k->out[0].dims;
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++) {
        int64_t c = d->ndim > 1 ? i / (d->ndim == 4 ? d->d[2] * d->d[3] : 1) % d->d[1] : 0;
        switch (k->op) {
        case TSRI_OP_UNARY:
            y[i] = unary(&k->attrs, in[0][i]);
            break;
        case TSRI_OP_SCALE:
            y[i] = in[0][i] * k->attrs.scale.a;
            break;
        case TSRI_OP_BINARY:
            y[i] = binary(k->attrs.binary.fn, in[0][from_broadcast(d, &k->in[0].dims, i)],
                          in[1][from_broadcast(d, &k->in[1].dims, i)]);
            break;
        case TSRI_OP_WHERE:
            y[i] = in[0][from_broadcast(d, &k->in[0].dims, i)] != 0
                       ? in[1][from_broadcast(d, &k->in[1].dims, i)]
                       : in[2][from_broadcast(d, &k->in[2].dims, i)];
            break;
        case TSRI_OP_MASK:
            y[i] = in[0][from_broadcast(d, &k->in[0].dims, i)] == k->attrs.mask.keep ? in[1][i] : 0;
            break;
        case TSRI_OP_ADD_N:
            for (int o = 0; o < k->nin; o++)
                y[i] = (o ? y[i] : 0) + in[o][i];
            break;
        case TSRI_OP_CAST:
            y[i] = k->out[0].dtype == TSR_BOOL  ? in[0][i] != 0
                   : k->out[0].dtype == TSR_F16 ? kc_round(TSR_F16, in[0][i])
                   : k->out[0].dtype            ? trunc(in[0][i])
                                                : in[0][i];
            break;
        case TSRI_OP_EXPAND:
            y[i] = in[0][from_broadcast(d, &k->in[0].dims, i)];
            break;
        case TSRI_OP_SCALE_SHIFT:
            y[i] = in[0][i] * in[1][c] + in[2][c];
            break;
        case TSRI_OP_DROPOUT:
            y[i] = dropout_value(k, in, i);
            break;
        case TSRI_OP_RANDOM:
            y[i] = random_value(k, in, i);
            break;
        case TSRI_OP_FILL:
            y[i] = k->attrs.fill.value;
            break;
        case TSRI_OP_RESHAPE:
        case TSRI_OP_COPY:
        case TSRI_OP_ASSIGN:
            y[i] = in[0][i];
            break;
        default:
            return false;
        }
    }
    return true;
}

bool kc_oracle(const kernel_case *k, double *const *in, double *const *out)
{
    switch (k->op) {
    case TSRI_OP_CONV2D:
        return conv(k, in, out[0]), true;
    case TSRI_OP_MATMUL:
        return matmul(k, in, out[0]), true;
    case TSRI_OP_LINEAR:
        return linear(k, in, out[0]), true;
    case TSRI_OP_MAX_POOL:
    case TSRI_OP_AVG_POOL:
    case TSRI_OP_ADAPTIVE_POOL:
        return pool(k, in, out), true;
    case TSRI_OP_BN_STATS:
    case TSRI_OP_BN_CENTER:
    case TSRI_OP_BN_APPLY:
    case TSRI_OP_BN_ACT:
        return norm(k, in, out[0]), true;
    case TSRI_OP_BN_RUNNING:
        return running(k, in, out), true;
    case TSRI_OP_BN_PARAM_GRAD:
    case TSRI_OP_BN_FOLD:
        return params(k, in, out), true;
    case TSRI_OP_SOFTMAX:
        return softmax(k, in[0], out[0]), true;
    case TSRI_OP_CE:
        return cross_entropy(k, in, out), true;
    case TSRI_OP_REDUCE:
    case TSRI_OP_SOFTMAX_MAX:
        return reduce(k, in[0], out[0]), true;
    case TSRI_OP_PROD:
        return prod(k, in[0], out[0]), true;
    case TSRI_OP_PROD_DX:
        return prod_dx(k, in[0], in[1], out[0]), true;
    case TSRI_OP_ARGMAX:
        return argmax(k, in[0], out[0]), true;
    case TSRI_OP_PERMUTE:
        return permute(k, in[0], out[0]), true;
    case TSRI_OP_SGD:
    case TSRI_OP_ADAM:
    case TSRI_OP_RMSPROP:
    case TSRI_OP_ADAGRAD:
    case TSRI_OP_LION:
        return update(k, in, out), true;
    default:
        return kc_oracle_nn(k, in, out) || elementwise(k, in, out[0]) ||
               kc_oracle_index(k, in, out);
    }
}
