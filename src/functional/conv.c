/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions along one and three axes, and transposed ones. All are a convolution of images in
 * the end, or along one and two axes transposed the gradient of one. */
#include "src/functional/inside.h"

/* How a window moves along n axes, which follow the batch and the channels. */
typedef struct conv {
    int n;
    int stride[3], padding[3], output_padding[3], dilation[3];
    int64_t groups;
    bool transposed;
} conv;

enum { MOST_TAPS = 4096 };

static const char *const x_text[4] = {"", "(n,c,l)", "(n,c,h,w)", "(n,c,d,h,w)"};
static const char *const k_text[4] = {"", "k", "kh,kw", "kd,kh,kw"};

static bool want_each(const tsri_ctx *c, const conv *v, const char *what, const int *in, int least)
{
    for (int i = 0; i < v->n; i++)
        if (in[i] < least)
            return tsri_op_refuse(c, TSR_ERR_INVALID,
                                  "%s is %d along axis %d; it must be at least %d", what, in[i],
                                  2 + i, least);
    return true;
}

static bool want_conv_options(const tsri_ctx *c, const conv *v)
{
    if (!want_each(c, v, "stride", v->stride, 1) || !want_each(c, v, "padding", v->padding, 0) ||
        !want_each(c, v, "output_padding", v->output_padding, 0) ||
        !want_each(c, v, "dilation", v->dilation, 1))
        return false;
    for (int i = 0; i < v->n; i++)
        if (v->output_padding[i] && v->output_padding[i] >= v->stride[i] &&
            v->output_padding[i] >= v->dilation[i])
            return tsri_op_refuse(c, TSR_ERR_INVALID,
                                  "output_padding is %d along axis %d; it must be below the stride "
                                  "(%d) or the dilation (%d)",
                                  v->output_padding[i], 2 + i, v->stride[i], v->dilation[i]);
    if (v->groups < 1)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "groups is %lld; it must be at least 1",
                              (long long)v->groups);
    return true;
}

/* Checks the number of axes, the dtypes and the channels, and sets *out to the result's channels.
 */
static bool want_conv_operands(const tsri_ctx *c, const conv *v, tsr_tensor *const in[3],
                               int64_t *out)
{
    const tsr_tensor *x = in[0], *w = in[1];
    const int64_t g = v->groups;
    if (x->shape.ndim != 2 + v->n || w->shape.ndim != 2 + v->n)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "x %s, weight %s; legal are x %s, weight (%s,%s)",
                              tsri_op_dims(c, x), tsri_op_dims(c, w), x_text[v->n],
                              v->transposed ? "c,o/groups" : "o,c/groups", k_text[v->n]);
    if (!tsri_want_same_dtype(c, 3, in) || !tsri_want_float(c, x))
        return false;
    const int64_t channels = x->shape.d[1], first = w->shape.d[0], second = w->shape.d[1];
    const bool fits = v->transposed ? first == channels : first % g == 0 && second == channels / g;
    if (channels % g || !fits ||
        __builtin_mul_overflow(v->transposed ? second : first, v->transposed ? g : 1, out))
        return tsri_op_refuse(c, TSR_ERR_SHAPE,
                              "x %s, weight %s: with %lld group%s the weight must be (%s,%s), and "
                              "the groups divide both channels",
                              tsri_op_dims(c, x), tsri_op_dims(c, w), (long long)g,
                              g == 1 ? "" : "s", v->transposed ? "c,o/groups" : "o,c/groups",
                              k_text[v->n]);
    return !in[2] || tsri_want_vector(c, "bias", in[2], *out);
}

/* Checks the windows against x, and sets *out to the result's shape. */
static bool want_windows(const tsri_ctx *c, const conv *v, const tsr_tensor *x, const tsr_tensor *w,
                         int64_t channels, tsr_dims *out)
{
    *out = x->shape;
    out->d[1] = channels;
    for (int i = 0; i < v->n; i++) {
        const int64_t k = w->shape.d[2 + i], n = x->shape.d[2 + i];
        if (k < 1 || k > MOST_TAPS || n < 1 || n > INT32_MAX)
            return tsri_op_refuse(c, TSR_ERR_SHAPE,
                                  "x %s, weight %s: axis %d must be 1 to %d long in x, 1 to %d in "
                                  "the weight",
                                  tsri_op_dims(c, x), tsri_op_dims(c, w), 2 + i, INT32_MAX,
                                  MOST_TAPS);
        const int64_t window = v->dilation[i] * (k - 1) + 1, around = 2 * (int64_t)v->padding[i];
        if (!v->transposed && n + around < window)
            return tsri_op_refuse(
                c, TSR_ERR_SHAPE,
                "x %s: the window of %lld (kernel with dilation) is larger than the %lld elements "
                "of axis %d with padding; pad more",
                tsri_op_dims(c, x), (long long)window, (long long)(n + around), 2 + i);
        out->d[2 + i] = v->transposed
                            ? (n - 1) * v->stride[i] - around + window + v->output_padding[i]
                            : (n + around - window) / v->stride[i] + 1;
        if (out->d[2 + i] < 1)
            return tsri_op_refuse(c, TSR_ERR_SHAPE,
                                  "x %s: axis %d of the result would have %lld elements; pad less",
                                  tsri_op_dims(c, x), 2 + i, (long long)out->d[2 + i]);
    }
    if (tsri_dims_fit(*out))
        return true;
    return tsri_op_refuse(c, TSR_ERR_SHAPE,
                          "x %s: the result would have more than 2^56 elements; stride and padding "
                          "are too large",
                          tsri_op_dims(c, x));
}

/* --- along one and three axes ----------------------------------------------------------------- */

/* Returns the planes of x (n,c,d,h,w) that windows read, as images (n d',c kd,h,w): behind each
 * channel of a plane come those of the planes that its window reaches. */
static tsr_tensor *planes_of(const tsri_ctx *c, tsr_tensor *x, int64_t taps, int64_t depth,
                             const conv *v)
{
    const char *file = c->loc.file;
    const int line = c->loc.line, pad = v->padding[0], stride = v->stride[0];
    const int64_t *d = x->shape.d;
    const tsr_dims around = TSR_DIMS(0, 0, pad, 0, 0);
    tsr_tensor *deep = pad ? tsr_pad(x, around, around, 0) : x, *at[MOST_TAPS];
    for (int64_t i = 0; i < taps; i++) {
        const int64_t from = i * v->dilation[0], to = from + (depth - 1) * stride + 1;
        at[i] = tsr_slice(deep, TSR_DIMS(0, 0, from, 0, 0), TSR_DIMS(d[0], d[1], to, d[3], d[4]),
                          TSR_DIMS(1, 1, stride, 1, 1));
    }
    tsr_tensor *y = tsr_permute(tsr_stack((int)taps, at, 2), TSR_AXES(0, 3, 1, 2, 4, 5));
    return tsri_shaped(y, TSR_DIMS(d[0] * depth, d[1] * taps, d[3], d[4]), file, line);
}

/* Returns the convolution of operands that fit, which has the shape `dims`. */
static tsr_tensor *convolved(const tsri_ctx *c, tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                             const conv *v, tsr_dims dims)
{
    const char *file = c->loc.file;
    const int line = c->loc.line, last = v->n - 1;
    if (x->failed || w->failed)
        return x->failed ? x : w;
    const int64_t *d = x->shape.d, *k = w->shape.d, *y = dims.d;
    tsr_conv2d_opts o = *TSR_CONV2D_OPTS(.groups = v->groups);
    o.stride.w = v->stride[last];
    o.padding.w = v->padding[last];
    o.dilation.w = v->dilation[last];
    if (v->n == 1) {
        x = tsri_shaped(x, TSR_DIMS(d[0], d[1], 1, d[2]), file, line);
        w = tsri_shaped(w, TSR_DIMS(k[0], k[1], 1, k[2]), file, line);
        return tsri_shaped(tsr_conv2d(x, w, b, &o), dims, file, line);
    }
    o.stride.h = v->stride[last - 1];
    o.padding.h = v->padding[last - 1];
    o.dilation.h = v->dilation[last - 1];
    /* The gradients of planes are added up: in f32. */
    x = tsr_cast(tsri_unrounded(x, c->loc), x->dtype);
    x = planes_of(c, x, k[2], y[2], v);
    w = tsri_shaped(w, TSR_DIMS(k[0], k[1] * k[2], k[3], k[4]), file, line);
    tsr_tensor *flat = tsr_conv2d(x, w, b, &o);
    flat = tsri_shaped(flat, TSR_DIMS(y[0], y[2], y[1], y[3], y[4]), file, line);
    return tsr_permute(flat, TSR_AXES(0, 2, 1, 3, 4));
}

/* --- transposed, along one and two axes ------------------------------------------------------- */

/* A transposed convolution of images: the gradient of a convolution with respect to its data, where
 * x is the gradient of the convolution's result. */
typedef struct backward {
    tsri_attrs attrs;
    tsr_dims x, w, y;            /* as images */
    tsr_dims front, end, behind; /* [front, end) of y, followed by `behind` zeros, is the result */
    bool cuts, pads;             /* whether that is only a part of y; whether there are zeros */
} backward;

/* Sets axis `to` of the images from axis i of the function's operands; the function's result has
 * the shape `dims`.
 *
 * The convolution's result must have x's size. An output_padding of at least a stride would make it
 * longer: then y has every element that a window reaches, and the padding is sliced off. A single
 * element of x has one window, so its stride is free: it is set longer than output_padding, and to
 * the window's length if that is enough, so that each element of y has one tap. */
static void set_axis(backward *r, int to, const conv *v, int i, const tsr_tensor *x,
                     const tsr_tensor *w, tsr_dims dims)
{
    const int64_t n = x->shape.d[2 + i], k = w->shape.d[2 + i], want = dims.d[2 + i];
    const int64_t beyond = v->output_padding[i];
    int64_t stride = v->stride[i];
    if (n == 1)
        stride = v->dilation[i] == 1 && k > beyond ? k : beyond + 1;
    const bool fits = beyond < stride;
    const int64_t all = fits ? want : (n - 1) * stride + v->dilation[i] * (k - 1) + 1;
    const int64_t front = fits ? 0 : v->padding[i], end = front + want < all ? front + want : all;
    r->attrs.conv.stride[to] = (int32_t)stride;
    r->attrs.conv.pad[to] = fits ? v->padding[i] : 0;
    r->attrs.conv.dilation[to] = v->dilation[i];
    r->attrs.conv.kernel[to] = (int32_t)k;
    r->x.d[2 + to] = n;
    r->w.d[2 + to] = k;
    r->y.d[2 + to] = all;
    r->front.d[2 + to] = front;
    r->end.d[2 + to] = end;
    r->behind.d[2 + to] = front + want - end;
    r->cuts |= end - front < all;
    r->pads |= front + want > end;
}

/* Returns the transposed convolution of operands that fit, which has the shape `dims`. */
static tsr_tensor *transposed(const tsri_ctx *c, tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                              const conv *v, tsr_dims dims)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    const tsr_dims none = TSR_DIMS(0, 0, 0, 0);
    backward r = {.attrs.conv = {.stride = {1}, .dilation = {1}, .kernel = {1}},
                  .x = TSR_DIMS(x->shape.d[0], x->shape.d[1], 1, 1),
                  .w = TSR_DIMS(w->shape.d[0], w->shape.d[1], 1, 1),
                  .y = TSR_DIMS(dims.d[0], dims.d[1], 1, 1),
                  .front = none,
                  .end = TSR_DIMS(dims.d[0], dims.d[1], 1, 1),
                  .behind = none};
    r.attrs.conv.groups = v->groups;
    for (int i = 0; i < v->n; i++)
        set_axis(&r, 2 - v->n + i, v, i, x, w, dims);
    if (!tsri_dims_fit(r.y))
        return tsri_op_fail(c, TSR_ERR_SHAPE,
                            "x %s, weight %s: dilation or output_padding is too large",
                            tsri_op_dims(c, x), tsri_op_dims(c, w));
    tsr_tensor *in[2] = {tsri_shaped(x, r.x, file, line), tsri_shaped(w, r.w, file, line)};
    if (in[0]->failed || in[1]->failed)
        return in[0]->failed ? in[0] : in[1];
    tsr_tensor *y =
        tsri_graph_add1(c->g, TSRI_OP_CONV2D_DX, &r.attrs, 2, in, r.y, x->dtype, c->loc);
    if (r.cuts)
        y = tsr_slice(y, r.front, r.end, TSR_SCALAR);
    if (r.pads)
        y = tsr_pad(y, none, r.behind, 0);
    if (b)
        y = tsr_add(y, tsri_shaped(b, TSR_DIMS(1, dims.d[1], 1, 1), file, line));
    return tsri_shaped(y, dims, file, line);
}

/* --- transposed, along three axes ------------------------------------------------------------- */

/*
 * Along an axis, element i stride + phase of the result is a convolution of x with those elements
 * of the turned window that are `phase` + multiples of the stride. So one convolution has all
 * phases as channels, the result is the phases in turn, and what padding takes off is cut off. This
 * is how an axis is computed: the stride (1: one phase, dilated windows as they are), the taps of a
 * phase, how far its window reaches, zeros around x, and what is cut off in front of and behind the
 * result.
 */
typedef struct phases {
    int64_t stride[3], taps[3], reach[3], around[3], front[3], behind[3];
    int64_t all; /* the number of phases of all axes together */
} phases;

/* Works out the phases of operands that fit. */
static bool want_phases(const tsri_ctx *c, const conv *v, const tsr_tensor *x, const tsr_tensor *w,
                        tsr_dims dims, phases *out)
{
    phases f = {.all = 1};
    tsr_dims wide = dims, weight = w->shape;
    bool fits = true;
    for (int i = 0; i < v->n && fits; i++) {
        const int64_t n = x->shape.d[2 + i], k = w->shape.d[2 + i], pad = v->padding[i];
        const int64_t s = n > 1 ? v->stride[i] : 1, window = v->dilation[i] * (k - 1) + 1;
        f.stride[i] = s;
        f.taps[i] = s > 1 ? (window + s - 1) / s : k;
        f.reach[i] = s > 1 ? f.taps[i] - 1 : window - 1;
        /* Where output_padding goes beyond the last window, there are more zeros around. */
        const int64_t beyond = window + v->output_padding[i] - pad - (f.reach[i] + 1) * s;
        const int64_t extra = beyond > 0 ? (beyond + s - 1) / s : 0;
        f.around[i] = f.reach[i] + extra;
        fits = f.around[i] <= INT32_MAX;
        if (!fits)
            break;
        const int64_t total = (n + 2 * f.around[i] - f.reach[i]) * s;
        f.front[i] = extra * s + pad;
        f.behind[i] = total - f.front[i] - dims.d[2 + i];
        /* Zeros that only give what is cut off at both ends are left out. */
        int64_t less = (f.front[i] < f.behind[i] ? f.front[i] : f.behind[i]) / s;
        less = less < f.around[i] ? less : f.around[i];
        f.around[i] -= less;
        f.front[i] -= less * s;
        f.behind[i] -= less * s;
        wide.d[2 + i] = total;
        weight.d[2 + i] = f.taps[i] * s;
        fits = tsri_dims_fit(wide) && tsri_dims_fit(weight);
        f.all *= s;
    }
    *out = f;
    if (fits)
        return true;
    return tsri_op_refuse(c, TSR_ERR_SHAPE,
                          "x %s, weight %s: stride, dilation or output_padding is too large",
                          tsri_op_dims(c, x), tsri_op_dims(c, w));
}

/* Returns the weight with dilation - 1 zeros behind each element of its windows, and each window as
 * long as all taps of all phases; along axes with one phase as it is. */
static tsr_tensor *filled_up(const tsri_ctx *c, tsr_tensor *w, const conv *v, const phases *f)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    tsr_dims apart = {.ndim = 2, .d = {w->shape.d[0], w->shape.d[1]}}, none = {0}, zeros = {0};
    tsr_dims wide = w->shape, more = {.ndim = 2 + v->n}, ends = w->shape;
    bool grows = false, pads = false, cuts = false;
    for (int i = 0; i < v->n; i++) {
        const int64_t k = w->shape.d[2 + i], each = f->stride[i] > 1 ? v->dilation[i] : 1;
        const int64_t want = f->stride[i] > 1 ? f->taps[i] * f->stride[i] : k;
        apart.d[apart.ndim++] = k;
        if (each > 1) {
            zeros.d[apart.ndim] = each - 1;
            apart.d[apart.ndim++] = 1;
        }
        wide.d[2 + i] = k * each;
        more.d[2 + i] = want > k * each ? want - k * each : 0;
        ends.d[2 + i] = want;
        grows |= each > 1;
        pads |= want > k * each;
        cuts |= want < k * each;
    }
    zeros.ndim = none.ndim = apart.ndim;
    const tsr_dims front = {.ndim = more.ndim};
    if (grows)
        w = tsri_shaped(tsr_pad(tsri_shaped(w, apart, file, line), none, zeros, 0), wide, file,
                        line);
    if (pads)
        w = tsr_pad(w, front, more, 0);
    return cuts ? tsr_slice(w, front, ends, TSR_SCALAR) : w;
}

/* Returns the weight (c,o/groups,...) of a transposed convolution as that of a convolution whose
 * channels are the phases of each channel, (o phases,c/groups,taps...): turned round along its
 * taps, and transposed in each group. */
static tsr_tensor *turned(const tsri_ctx *c, tsr_tensor *w, const conv *v, const phases *f)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    const int64_t in = w->shape.d[0], out = w->shape.d[1], g = v->groups;
    tsr_dims apart = {.ndim = 2, .d = {in, out}};
    tsr_dims dims = {.ndim = 2 + v->n, .d = {g * out * f->all, in / g}};
    tsr_axes taps = {.n = v->n}, order = {.n = 2, .axis = {0, 1}};
    int64_t window = 1;
    for (int i = 0; i < v->n; i++) {
        taps.axis[i] = apart.ndim;
        apart.d[apart.ndim++] = dims.d[2 + i] = f->taps[i];
        window *= f->taps[i];
        if (f->stride[i] > 1) {
            order.axis[order.n++] = apart.ndim;
            apart.d[apart.ndim++] = f->stride[i];
        }
    }
    for (int i = 0; i < v->n; i++)
        order.axis[order.n++] = taps.axis[i];
    tsr_tensor *y = tsri_shaped(filled_up(c, w, v, f), apart, file, line);
    y = tsr_permute(tsr_flip(y, taps), order);
    y = tsri_shaped(y, TSR_DIMS(g, in / g, out * f->all, window), file, line);
    return tsri_shaped(tsr_permute(y, TSR_AXES(0, 2, 1, 3)), dims, file, line);
}

/* Returns y (n,o phases,...) as (n,o,...) with the phases in turn along each axis. */
static tsr_tensor *interleaved(const tsri_ctx *c, tsr_tensor *y, const conv *v, const phases *f,
                               int64_t channels)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    if (y->failed || f->all == 1)
        return y;
    tsr_dims apart = {.ndim = 2, .d = {y->shape.d[0], channels}}, dims = y->shape;
    tsr_axes order = {.n = 2, .axis = {0, 1}};
    int phase[3];
    dims.d[1] = channels;
    for (int i = 0; i < v->n; i++) {
        phase[i] = apart.ndim;
        if (f->stride[i] > 1)
            apart.d[apart.ndim++] = f->stride[i];
        dims.d[2 + i] *= f->stride[i];
    }
    int at = apart.ndim;
    for (int i = 0; i < v->n; i++) {
        apart.d[apart.ndim++] = y->shape.d[2 + i];
        order.axis[order.n++] = at++;
        if (f->stride[i] > 1)
            order.axis[order.n++] = phase[i];
    }
    return tsri_shaped(tsr_permute(tsri_shaped(y, apart, file, line), order), dims, file, line);
}

static tsr_tensor *transposed_volume(const tsri_ctx *c, tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                                     const conv *v, tsr_dims dims)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    phases f;
    if (!want_phases(c, v, x, w, dims, &f))
        return c->failed;
    conv plain = *v;
    tsr_dims flat = dims, starts = {.ndim = dims.ndim}, ends = dims;
    bool cuts = false;
    flat.d[1] = dims.d[1] * f.all;
    for (int i = 0; i < v->n; i++) {
        plain.stride[i] = 1;
        plain.padding[i] = (int)f.around[i];
        plain.dilation[i] = f.stride[i] > 1 ? 1 : v->dilation[i];
        flat.d[2 + i] = x->shape.d[2 + i] + 2 * f.around[i] - f.reach[i];
        starts.d[2 + i] = f.front[i];
        ends.d[2 + i] = f.front[i] + dims.d[2 + i];
        cuts |= f.front[i] || f.behind[i];
    }
    if (b && f.all > 1)
        b = tsr_repeat_interleave(b, 0, f.all);
    tsr_tensor *y = convolved(c, x, turned(c, w, v, &f), b, &plain, flat);
    y = interleaved(c, y, v, &f, dims.d[1]);
    return cuts ? tsr_slice(y, starts, ends, TSR_SCALAR) : y;
}

/* --- the calls -------------------------------------------------------------------------------- */

static tsr_tensor *declare_conv(const tsri_ctx *c, tsr_tensor *const in[3], const conv *v)
{
    int64_t channels = 0;
    tsr_dims dims;
    if (!want_conv_options(c, v) || !want_conv_operands(c, v, in, &channels) ||
        !want_windows(c, v, in[0], in[1], channels, &dims))
        return c->failed;
    return (!v->transposed ? convolved
            : v->n < 3     ? transposed
                           : transposed_volume)(c, tsri_low(c, in[0]), tsri_low(c, in[1]),
                                            tsri_low(c, in[2]), v, dims);
}

#define ONE(x) \
    {          \
        x      \
    }
#define TWO(x)       \
    {                \
        (x).h, (x).w \
    }
#define THREE(x)            \
    {                       \
        (x).d, (x).h, (x).w \
    }

/* A call by its name, its options, how many axes it has and EACH of an option along them; the rest
 * is what transposed ones have besides. */
#define CONV_CALL(name, OPTS, n_, EACH, ...)                                               \
    tsr_tensor *tsr_##name##_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,               \
                                const tsr_##name##_opts *opts, const char *file, int line) \
    {                                                                                      \
        tsr_tensor *in[3] = {x, w, b};                                                     \
        tsr_##name##_opts o = *OPTS();                                                     \
        TSRI_FUNCTION(c);                                                                  \
        if (!tsri_function_begin(&c, #name, 3, in, 1u << 2, (tsri_loc){file, line}) ||     \
            !tsri_want_options(&c, &o, sizeof o, opts))                                    \
            return c.failed;                                                               \
        const conv v = {.n = n_,                                                           \
                        .stride = EACH(o.stride),                                          \
                        .padding = EACH(o.padding),                                        \
                        .dilation = EACH(o.dilation),                                      \
                        .groups = o.groups,                                                \
                        __VA_ARGS__};                                                      \
        return declare_conv(&c, in, &v);                                                   \
    }
#define TURNED(EACH) .transposed = true, .output_padding = EACH(o.output_padding)

CONV_CALL(conv1d, TSR_CONV1D_OPTS, 1, ONE, )
CONV_CALL(conv3d, TSR_CONV3D_OPTS, 3, THREE, )
CONV_CALL(conv_transpose1d, TSR_CONV_TRANSPOSE1D_OPTS, 1, ONE, TURNED(ONE))
CONV_CALL(conv_transpose2d, TSR_CONV_TRANSPOSE2D_OPTS, 2, TWO, TURNED(TWO))
CONV_CALL(conv_transpose3d, TSR_CONV_TRANSPOSE3D_OPTS, 3, THREE, TURNED(THREE))
