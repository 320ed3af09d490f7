/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_norm.c for each element type T. Where channels are innermost in all operands
 * the loop over channels is inside; elsewhere it is outside, and the pixels of a row are inside. */

/* s0, s1: sums of x - about and of its square; about, a result too: the first sample, or 0 where
 * that is not finite, so that an infinity stays one in the sum. */
static void FN(stats)(const norm *v, int64_t begin, int64_t end, const T *x, double *about,
                      double *s0, double *s1)
{
    const view *a = &v->x;
    for (int64_t c = 0; c < a->c; c++) {
        const double first = (double)x[begin * a->sn + c * a->sc];
        about[c] = isfinite(first) ? first : 0;
    }
    if (a->sc == 1) {
        for (int64_t n = begin; n < end; n++)
            for (int64_t p = 0; p < a->h * a->w; p++) {
                const T *q = x + n * a->sn + p / a->w * a->sh + p % a->w * a->sw;
                for (int64_t c = 0; c < a->c; c++) {
                    double t = (double)q[c] - about[c];
                    s0[c] += t;
                    s1[c] += t * t;
                }
            }
        return;
    }
    TSRI_REF_EACH(c, 0, a->c, (end - begin) * a->c * a->h * a->w > 1 << 15, {
        for (int64_t n = begin; n < end; n++)
            for (int64_t h = 0; h < a->h; h++) {
                const T *q = x + n * a->sn + c * a->sc + h * a->sh;
                double t0 = 0, t1 = 0;
                for (int64_t w = 0; w < a->w; w++) {
                    double t = (double)q[w * a->sw] - about[c];
                    t0 += t;
                    t1 += t * t;
                }
                s0[c] += t0;
                s1[c] += t1;
            }
    });
}

static void FN(apply)(const norm *v, int64_t begin, int64_t end, const T *x, const coefs *k, T *y)
{
    const view *a = &v->x, *o = &v->y;
    const bool inside = a->sc == 1 && o->sc == 1;
    const int act = v->act;
    const int64_t per = inside ? a->h : a->c; /* rows are (n, h), or planes (n, c) */
    TSRI_REF_EACH(r, begin * per, end * per, (end - begin) * a->c * a->h * a->w > 1 << 15, {
        const T *q = x + r / per * a->sn + r % per * (inside ? a->sh : a->sc);
        T *z = y + r / per * o->sn + r % per * (inside ? o->sh : o->sc);
        for (int64_t w = 0; inside && w < a->w; w++, q += a->sw, z += o->sw) {
            for (int64_t c = 0; c < a->c; c++)
                z[c] = (T)(((double)q[c] - k->mean[c]) * k->a[c] + k->b[c]);
            if (act != TSRI_ACT_NONE)
                for (int64_t c = 0; c < a->c; c++)
                    z[c] = (T)act_value(act, (double)z[c]);
        }
        if (inside)
            continue;
        const double m = k->mean[r % per], g = k->a[r % per], b = k->b[r % per];
        for (int64_t h = 0; h < a->h; h++, q += a->sh, z += o->sh)
            for (int64_t w = 0; w < a->w; w++) {
                T t = (T)(((double)q[w * a->sw] - m) * g + b);
                z[w * o->sw] = (T)act_value(act, (double)t);
            }
    });
}

/* dy, or what comes through the activation: judged by the value that it was given, rounded. */
static inline double FN(through)(int act, double x, double dy, const coefs *k, int64_t c)
{
    if (act == TSRI_ACT_NONE)
        return dy;
    return dy * act_slope(act, (double)(T)((x - k->mean[c]) * k->a[c] + k->b[c]));
}

static void FN(bwd_stats)(const norm *v, int64_t begin, int64_t end, const T *x, const T *dy,
                          const coefs *k)
{
    const view *a = &v->x, *g = &v->dy;
    const int act = v->act;
    double *restrict s0 = k->k0, *restrict s1 = k->k1;
    if (a->sc == 1 && g->sc == 1) {
        for (int64_t n = begin; n < end; n++)
            for (int64_t p = 0; p < a->h * a->w; p++) {
                const T *q = x + n * a->sn + p / a->w * a->sh + p % a->w * a->sw;
                const T *u = dy + n * g->sn + p / a->w * g->sh + p % a->w * g->sw;
                for (int64_t c = 0; c < a->c; c++) {
                    double t = FN(through)(act, (double)q[c], (double)u[c], k, c);
                    s0[c] += t;
                    s1[c] += t * (((double)q[c] - k->mean[c]) * k->rstd[c]);
                }
            }
        return;
    }
    TSRI_REF_EACH(c, 0, a->c, (end - begin) * a->c * a->h * a->w > 1 << 15, {
        for (int64_t n = begin; n < end; n++)
            for (int64_t h = 0; h < a->h; h++) {
                const T *q = x + n * a->sn + c * a->sc + h * a->sh;
                const T *u = dy + n * g->sn + c * g->sc + h * g->sh;
                double t0 = 0, t1 = 0;
                for (int64_t w = 0; w < a->w; w++) {
                    double p = (double)q[w * a->sw];
                    double t = FN(through)(act, p, (double)u[w * g->sw], k, c);
                    t0 += t;
                    t1 += t * ((p - k->mean[c]) * k->rstd[c]);
                }
                s0[c] += t0;
                s1[c] += t1;
            }
    });
}

static void FN(bwd_apply)(const norm *v, int64_t begin, int64_t end, const T *x, const T *dy,
                          const coefs *k, T *dx)
{
    const view *a = &v->x, *g = &v->dy, *o = &v->y;
    const bool inside = a->sc == 1 && g->sc == 1 && o->sc == 1;
    const int act = v->act;
    const int64_t per = inside ? a->h : a->c; /* rows are (n, h), or planes (n, c) */
    TSRI_REF_EACH(r, begin * per, end * per, (end - begin) * a->c * a->h * a->w > 1 << 15, {
        const T *q = x + r / per * a->sn + r % per * (inside ? a->sh : a->sc);
        const T *u = dy + r / per * g->sn + r % per * (inside ? g->sh : g->sc);
        T *z = dx + r / per * o->sn + r % per * (inside ? o->sh : o->sc);
        for (int64_t w = 0; inside && w < a->w; w++, q += a->sw, u += g->sw, z += o->sw)
            for (int64_t c = 0; c < a->c; c++) {
                double t = FN(through)(act, (double)q[c], (double)u[c], k, c);
                z[c] = (T)(k->a[c] * (t - k->k0[c] - ((double)q[c] - k->mean[c]) * k->k1[c]));
            }
        const int64_t c = r % per;
        for (int64_t h = 0; !inside && h < a->h; h++, q += a->sh, u += g->sh, z += o->sh)
            for (int64_t w = 0; w < a->w; w++) {
                double p = (double)q[w * a->sw];
                double t = FN(through)(act, p, (double)u[w * g->sw], k, c);
                z[w * o->sw] = (T)(k->a[c] * (t - k->k0[c] - (p - k->mean[c]) * k->k1[c]));
            }
    });
}

static void FN(norm)(const norm *v, int64_t begin, int64_t end, void *const *in, void *out,
                     const coefs *k)
{
    switch (v->ref.desc.op) {
    case TSRI_OP_BN_STATS:
        FN(stats)(v, begin, end, in[0], k->mean, k->k0, k->k1);
        break;
    case TSRI_OP_BN_BWD_STATS:
    case TSRI_OP_BN_ACT_BWD_STATS:
        FN(bwd_stats)(v, begin, end, in[0], in[v->role.dy], k);
        break;
    case TSRI_OP_BN_BWD_APPLY:
    case TSRI_OP_BN_ACT_BWD_APPLY:
        FN(bwd_apply)(v, begin, end, in[0], in[v->role.dy], k, out);
        break;
    default:
        FN(apply)(v, begin, end, in[0], k, out);
    }
}
