/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3): 36 products for the 16 pixels of a
 * tile instead of 144. Tiles are brought to points, multiplied there with the weights' points (a
 * product of matrices for each), and brought back; backward-data is forward with weights that are
 * turned. Tiles go in blocks that stay in cache. dw sums products of both images' points over all
 * tiles, for all points at once or for two rows of them at a time.
 *
 * An infinity or a NaN in a pixel or weight becomes NaN in all of the points that read it, and so
 * in whole tiles of the result: more elements than depend on it. TESSERA_CPU_WINOGRAD=0 does
 * without.
 */
#include "kernels/cpu/fast/fast.h"

#include <stdlib.h>
#include <string.h>

enum {
    TILE = 4,
    POINTS = 36,
    PAIR_POINTS = 12,        /* of two rows */
    BLOCK_BYTES = 448 << 10, /* of a block of tiles' points: half of a second-level cache; */
    FEW_TILES = 24,          /* but not fewer than are worth reading the weights' for, */
    FEW_TERMS = 48,          /* or dw's sums, */
    MANY_TILES = 128,        /* and not more */
    GROUP_BYTES = 8 << 20,   /* of weights' points: in a third-level cache */
    SUM_BYTES = 800 << 10,   /* of dw's points: beyond, rows of them go by twos */
    K_MOST = 192,            /* terms that are summed before they join others */
    LONG_TILES = 1 << 13,    /* dw: the same of tiles */
};

typedef struct winograd {
    tsri_fast base;
    bool dx, bias;
    bool keeps;            /* runs get the points of all weights as their last operand */
    int64_t k, n;          /* channels of the image that is read and of the result; dw: ci, co */
    int64_t kp, np;        /* these in whole vectors, n of a group's */
    int64_t in[2], out[2]; /* dw: of x and dy */
    int64_t tiles[2], ntiles, block;
    int64_t pad[2];
    int64_t group;            /* columns of the result that weights are transformed for at a time */
    bool pairs;               /* dw: rows of points by twos */
    int64_t v_pitch, m_pitch; /* of a point of a block; m: of the product, or dy */
    int64_t sum_pitch;        /* dw: of a point of sums[n][kp] */
    size_t shared_bytes, part_bytes;
} winograd;

static int64_t whole(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The points of a block of tiles, [point][tile][channels]: those of a point begin on another line
 * of the cache than its neighbours'. */
static int64_t point_pitch(int64_t tiles, int64_t channels)
{
    return whole(tiles * channels, 32) + 16;
}

static int64_t widest(const winograd *k)
{
    return k->kp > k->np ? k->kp : k->np;
}

static size_t floats(int64_t n)
{
    return tsri_fast_align((size_t)n * sizeof(float));
}

/* A part's place in the scratch, behind what all parts share: the group's weights as points
 * u[point][panel][k][columns of the panel], or taps[n][9][kp] of dw. */
typedef struct room {
    float *zeros, *v, *m;
    float *more; /* taps[9][np] of weights, or sums[point][n][kp] of dw */
} room;

static room room_of(const winograd *k, void *scratch, int part)
{
    const int64_t points = k->pairs ? PAIR_POINTS : POINTS;
    char *at = (char *)scratch + k->shared_bytes + (size_t)part * k->part_bytes;
    room r = {.zeros = tsri_fast_take(&at, floats(widest(k)))};
    r.v = tsri_fast_take(&at, floats(points * k->v_pitch));
    r.m = tsri_fast_take(&at, floats(points * k->m_pitch));
    r.more = (float *)(void *)at;
    return r;
}

typedef struct job {
    const winograd *k;
    void *const *in, *const *out;
    char *scratch;
    float *u;             /* the group's weights as points */
    int64_t first, count; /* the group's columns; of dw: each part's tiles */
    tsri_wino_rows rows;
    bool add, last;
} job;

/* A tile's place: its image, and its first pixel. */
typedef struct place {
    int64_t image, at[2];
} place;

static place place_of(const winograd *k, int64_t tile)
{
    const int64_t plane = k->tiles[0] * k->tiles[1];
    return (place){tile / plane,
                   {tile % plane / k->tiles[1] * TILE, tile % plane % k->tiles[1] * TILE}};
}

/* Lists the `side` x `side` pixels from (h, w) on: `zeros` outside the image. */
static void list_pixels(const float *image, const int64_t size[2], int64_t channels, int64_t h,
                        int64_t w, int side, const float *zeros, const float **list)
{
    for (int i = 0; i < side; i++) {
        const bool inside = h + i >= 0 && h + i < size[0];
        for (int j = 0; j < side; j++)
            *list++ = inside && w + j >= 0 && w + j < size[1]
                          ? image + ((h + i) * size[1] + w + j) * channels
                          : zeros;
    }
}

/* Points of tiles [t0, t1) of the image that is read. */
static void image_points(const winograd *k, const float *x, int64_t t0, int64_t t1,
                         tsri_wino_rows rows, const room *r)
{
    const float *list[POINTS];
    for (int64_t t = t0; t < t1; t++) {
        const place p = place_of(k, t);
        list_pixels(x + p.image * k->in[0] * k->in[1] * k->k, k->in, k->k, p.at[0] - k->pad[0],
                    p.at[1] - k->pad[1], 6, r->zeros, list);
        k->base.isa->wino_image(list, k->k, r->v + (t - t0) * k->kp, k->v_pitch, rows);
    }
}

/* --- forward and backward-data ---------------------------------------------------------------- */
static void weights_part(void *arg, int part)
{
    const job *j = arg;
    const winograd *k = j->k;
    const int64_t w = k->base.isa->width, width = whole(j->count, w),
                  pitch = point_pitch(k->k, width);
    const int64_t end = tsri_fast_cut(k->k, k->base.threads, part + 1, 1);
    float *taps = room_of(k, j->scratch, part).more;
    memset(taps, 0, (size_t)(9 * width) * sizeof *taps);
    for (int64_t i = tsri_fast_cut(k->k, k->base.threads, part, 1); i < end; i++) {
        const float *from =
            (const float *)j->in[1] + 9 * (k->dx ? i * k->n + j->first : j->first * k->k + i);
        k->base.isa->f32.transpose(from, k->dx ? 9 : 9 * k->k, taps, width, 9, j->count);
        for (int64_t v = 0, nv; v < width / w; v += nv) {
            nv = tsri_fast_panel(width / w - v);
            k->base.isa->wino_weights(taps + (k->dx ? 8 * width : 0) + v * w,
                                      k->dx ? -width : width, nv * w,
                                      j->u + v * w * k->k + i * nv * w, pitch);
        }
    }
}

static void multiply(const job *j, int64_t tiles, const room *r)
{
    const winograd *k = j->k;
    const int64_t w = k->base.isa->width, width = whole(j->count, w);
    const int64_t sums = (k->k + K_MOST - 1) / K_MOST, terms = (k->k + sums - 1) / sums;
    const float *u = j->u;
    tsri_fast_tile t = {.ar = k->kp, .ak = 1, .ldc = width, .rows = tiles, .packed = true};
    for (int point = 0; point < POINTS; point++, u += point_pitch(k->k, width))
        for (int64_t v = 0, nv; v < width / w; v += nv) {
            nv = tsri_fast_panel(width / w - v);
            t.bk = t.cols = nv * w;
            for (int64_t at = 0; at < k->k; at += terms) {
                t.k = tsri_fast_least(terms, k->k - at);
                t.add = at > 0;
                t.a = r->v + point * k->v_pitch + at;
                t.b = u + v * w * k->k + at * t.bk;
                t.c = r->m + point * k->m_pitch + v * w;
                k->base.isa->f32.tile[nv](&t);
            }
        }
}

static void store(const job *j, int64_t t0, int64_t t1, const room *r)
{
    const winograd *k = j->k;
    const int64_t width = whole(j->count, k->base.isa->width);
    const float *bias = k->bias ? (const float *)j->in[2] + j->first : NULL;
    for (int64_t t = t0; t < t1; t++) {
        const place p = place_of(k, t);
        float *y = (float *)j->out[0] + p.image * k->out[0] * k->out[1] * k->n + j->first;
        float *list[TILE * TILE];
        for (int i = 0; i < TILE * TILE; i++) {
            const int64_t h = p.at[0] + i / TILE, w = p.at[1] + i % TILE;
            list[i] = h < k->out[0] && w < k->out[1] ? y + (h * k->out[1] + w) * k->n : NULL;
        }
        k->base.isa->wino_pixels(r->m + (t - t0) * width, k->m_pitch, j->count, bias, list);
        const int64_t columns = tsri_fast_least(TILE, k->out[1] - p.at[1]);
        for (int64_t h = p.at[0]; h < p.at[0] + TILE && h < k->out[0]; h++)
            tsri_fast_end_rows(&k->base, j->in, j->out[0],
                               (p.image * k->out[0] + h) * k->out[1] + p.at[1], columns, j->first,
                               j->first + j->count);
    }
}

static void tiles_part(void *arg, int part)
{
    const job *j = arg;
    const winograd *k = j->k;
    const room r = room_of(k, j->scratch, part);
    const int64_t end = tsri_fast_cut(k->ntiles, k->base.threads, part + 1, 8);
    memset(r.zeros, 0, (size_t)widest(k) * sizeof(float));
    for (int64_t t = tsri_fast_cut(k->ntiles, k->base.threads, part, 8); t < end; t += k->block) {
        const int64_t t1 = tsri_fast_least(t + k->block, end);
        image_points(k, j->in[0], t, t1, TSRI_WINO_ALL, &r);
        multiply(j, t1 - t, &r);
        store(j, t, t1, &r);
    }
}

/* Floats of a group's weights as points. */
static int64_t group_floats(const winograd *k)
{
    return (int64_t)(floats(POINTS * point_pitch(k->k, k->np)) / sizeof(float));
}

static tsr_status winograd_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                               void *scratch)
{
    const winograd *k = (const winograd *)kernel;
    job j = {.k = k, .in = in, .out = out, .scratch = scratch};
    j.u = k->keeps ? in[k->bias ? 3 : 2] : scratch;
    for (; j.first < k->n; j.first += k->group) {
        j.count = tsri_fast_least(k->group, k->n - j.first);
        if (!k->keeps)
            tsri_team(k->base.threads, weights_part, &j);
        tsri_team(k->base.threads, tiles_part, &j);
        j.u += k->keeps ? group_floats(k) : 0;
    }
    return TSR_OK;
}

static tsr_status keep_weights(const tsri_kernel *kernel, void *const *in, void *kept,
                               void *scratch)
{
    const winograd *k = (const winograd *)kernel;
    job j = {.k = k, .in = in, .scratch = scratch, .u = kept};
    for (; j.first < k->n; j.first += k->group, j.u += group_floats(k)) {
        j.count = tsri_fast_least(k->group, k->n - j.first);
        tsri_team(k->base.threads, weights_part, &j);
    }
    return TSR_OK;
}

/* --- backward-weights ------------------------------------------------------------------------- */
static void slope_points(const winograd *k, const float *dy, int64_t t0, int64_t t1,
                         tsri_wino_rows rows, const room *r)
{
    const float *list[TILE * TILE];
    for (int64_t t = t0; t < t1; t++) {
        const place p = place_of(k, t);
        list_pixels(dy + p.image * k->out[0] * k->out[1] * k->n, k->out, k->n, p.at[0], p.at[1],
                    TILE, r->zeros, list);
        k->base.isa->wino_slopes(list, k->n, r->m + (t - t0) * k->np, k->m_pitch, rows);
    }
}

/* sums[point][n][kp] (+)= over a block of tiles. */
static void add_products(const winograd *k, int points, int64_t tiles, bool add, const room *r)
{
    const int64_t w = k->base.isa->width;
    tsri_fast_tile t = {.ar = 1,
                        .ak = k->np,
                        .bk = k->kp,
                        .ldc = k->kp,
                        .rows = k->n,
                        .k = tiles,
                        .packed = true,
                        .add = add};
    for (int point = 0; point < points; point++)
        for (int64_t v = 0, nv; v < k->kp / w; v += nv) {
            nv = tsri_fast_panel(k->kp / w - v);
            t.cols = nv * w;
            t.a = r->m + point * k->m_pitch;
            t.b = r->v + point * k->v_pitch + v * w;
            t.c = r->more + point * k->sum_pitch + v * w;
            k->base.isa->f32.tile[nv](&t);
        }
}

static void sums_part(void *arg, int part)
{
    const job *j = arg;
    const winograd *k = j->k;
    const room r = room_of(k, j->scratch, part);
    const int points = k->pairs ? PAIR_POINTS : POINTS;
    const int64_t begin = tsri_fast_cut(k->ntiles, k->base.threads, part, 8) + j->first;
    const int64_t end =
        tsri_fast_least(tsri_fast_cut(k->ntiles, k->base.threads, part + 1, 8), begin + j->count);
    memset(r.zeros, 0, (size_t)widest(k) * sizeof(float));
    if (begin >= end)
        memset(r.more, 0, (size_t)(points * k->sum_pitch) * sizeof(float));
    for (int64_t t = begin; t < end; t += k->block) {
        const int64_t t1 = tsri_fast_least(t + k->block, end);
        image_points(k, j->in[0], t, t1, j->rows, &r);
        slope_points(k, j->in[1], t, t1, j->rows, &r);
        add_products(k, points, t1 - t, t > begin, &r);
    }
}

/* taps[n][9][kp], for some outputs; the last pass writes dw[n][k][9]. */
static void fold_part(void *arg, int part)
{
    const job *j = arg;
    const winograd *k = j->k;
    const int64_t end = tsri_fast_cut(k->n, k->base.threads, part + 1, 1);
    const float *sums = room_of(k, j->scratch, 0).more;
    for (int64_t o = tsri_fast_cut(k->n, k->base.threads, part, 1); o < end; o++) {
        float *taps = (float *)(void *)j->scratch + o * 9 * k->kp;
        k->base.isa->wino_fold(sums + o * k->kp, k->base.threads,
                               (int64_t)(k->part_bytes / sizeof(float)), k->sum_pitch, k->kp,
                               j->rows, j->add, taps, k->kp);
        if (j->last)
            k->base.isa->f32.transpose(taps, k->kp, (float *)j->out[0] + o * 9 * k->k, 9, k->k, 9);
    }
}

static tsr_status dw_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                         void *scratch)
{
    const winograd *k = (const winograd *)kernel;
    const int64_t most = whole((k->ntiles + k->base.threads - 1) / k->base.threads, 8);
    job j = {.k = k, .in = in, .out = out, .scratch = scratch, .count = LONG_TILES};
    const int first = k->pairs ? TSRI_WINO_ENDS : TSRI_WINO_ALL;
    const int end = k->pairs ? TSRI_WINO_ALL : TSRI_WINO_ALL + 1;
    for (; j.first < most; j.first += LONG_TILES)
        for (int rows = first; rows < end; rows++) {
            j.rows = (tsri_wino_rows)rows;
            j.last = j.first + LONG_TILES >= most && rows + 1 == end;
            tsri_team(k->base.threads, sums_part, &j);
            tsri_team(k->base.threads, fold_part, &j);
            j.add = true;
        }
    return TSR_OK;
}

/* --- the choice ------------------------------------------------------------------------------- */
enum {
    CHANNEL_COST = 600, /* multiplications that a tile's transforms take as long as, by channel */
    WEIGHT_COST = 800,  /* the same of the nine weights of two channels */
};

static int64_t tiles_of(const tsri_fast_conv *c, const int64_t out[2])
{
    return c->n * ((out[0] + TILE - 1) / TILE) * ((out[1] + TILE - 1) / TILE);
}

bool tsri_fast_winograd_suits(const tsri_kernel_desc *desc, const tsri_fast_conv *c)
{
    const char *said = getenv("TESSERA_CPU_WINOGRAD");
    for (int i = 0; i < 2; i++)
        if (c->kernel[i] != 3 || c->stride[i] != 1 || c->dilation[i] != 1)
            return false;
    if (c->groups != 1 || c->bf16)
        return false;
    if (said && (!strcmp(said, "0") || !strcmp(said, "1")))
        return *said == '1';
    const int64_t w = tsri_fast_isa_best()->width;
    const double tiles = (double)tiles_of(c, desc->op == TSRI_OP_CONV2D_DX ? c->in : c->out);
    const double pairs = (double)(c->ci * c->co);
    const double channels = (double)(whole(c->ci, w) + whole(c->co, w));
    return tiles * (POINTS * pairs + CHANNEL_COST * channels) + WEIGHT_COST * pairs <
           9.0 * (double)(c->n * c->out[0] * c->out[1]) * pairs;
}

/* Columns of the result for which weights are transformed at a time: as even as can be. */
static int64_t group_columns(const winograd *k)
{
    const int64_t w = k->base.isa->width, unit = 3 * w;
    const int64_t fit = GROUP_BYTES / (POINTS * k->k * (int64_t)sizeof(float)) / unit * unit;
    const int64_t most = fit ? fit : unit, groups = (k->n + most - 1) / most;
    return groups == 1 ? k->n : whole((k->n + groups - 1) / groups, w);
}

static void plan_block(winograd *k, bool dw)
{
    const int64_t points = k->pairs ? PAIR_POINTS : POINTS;
    const int64_t bytes = points * (k->kp + k->np) * (int64_t)sizeof(float);
    const int64_t few = dw ? FEW_TERMS : FEW_TILES, fit = BLOCK_BYTES / bytes / 8 * 8;
    const int64_t share = whole((k->ntiles + k->base.threads - 1) / k->base.threads, 8);
    k->block = tsri_fast_least(fit < few ? few : tsri_fast_least(fit, MANY_TILES), share);
    k->v_pitch = point_pitch(k->block, k->kp);
    k->m_pitch = point_pitch(k->block, k->np);
    k->sum_pitch = dw ? point_pitch(k->n, k->kp) : 0;
}

tsr_status tsri_fast_winograd(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                              tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_CONV2D_DX, dw = desc->op == TSRI_OP_CONV2D_DW;
    winograd *k =
        tsri_fast_make(mem, desc, NULL, sizeof *k, 9 * c->n * c->out[0] * c->out[1] * c->ci, 0);
    TSRI_NEED(k);
    const int64_t w = k->base.isa->width;
    k->base.base.run = dw ? dw_run : winograd_run;
    k->bias = c->bias;
    k->dx = dx;
    k->k = dx ? c->co : c->ci;
    k->n = dx ? c->ci : c->co;
    for (int i = 0; i < 2; i++) {
        k->in[i] = dx ? c->out[i] : c->in[i];
        k->out[i] = dx ? c->in[i] : c->out[i];
        k->pad[i] = dx ? 2 - c->pad[i] : c->pad[i];
        k->tiles[i] = (k->out[i] + TILE - 1) / TILE;
    }
    k->ntiles = tiles_of(c, k->out);
    k->group = dw ? k->n : group_columns(k);
    k->kp = whole(k->k, w);
    k->np = whole(k->group, w);
    k->pairs = dw && POINTS * k->n * k->kp * (int64_t)sizeof(float) > SUM_BYTES;
    plan_block(k, dw);
    k->keeps = !dw && desc->fixed >> 1 & 1;
    k->shared_bytes = dw         ? floats(k->n * 9 * k->kp)
                      : k->keeps ? 0
                                 : (size_t)group_floats(k) * sizeof(float);
    if (k->keeps) {
        const int64_t groups = (k->n + k->group - 1) / k->group;
        k->base.base.keep = keep_weights;
        k->base.base.kept_bytes = (size_t)(groups * group_floats(k)) * sizeof(float);
    }
    const int64_t points = k->pairs ? PAIR_POINTS : POINTS;
    k->part_bytes = floats(widest(k)) + floats(points * k->v_pitch) + floats(points * k->m_pitch) +
                    floats(dw ? points * k->sum_pitch : 9 * k->np);
    k->base.base.scratch_bytes = k->shared_bytes + (size_t)k->base.threads * k->part_bytes;
    if (desc->op == TSRI_OP_CONV2D)
        tsri_fast_takes_end(&k->base, desc, k->n);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
