/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise loops over flat f32 buffers, and the optimizers'. Included once per instruction set;
 * see vec.h. Elements [i, end). */

VEC_FN vf map_one(const int fn, vf x, vf y, vf a)
{
    switch (fn) {
    case TSRI_MAP_MUL_A:
        return x * a;
    case TSRI_MAP_ADD:
        return x + y;
    case TSRI_MAP_SUB:
        return x - y;
    case TSRI_MAP_MUL:
        return x * y;
    case TSRI_MAP_DIV:
        return x / y;
    default:
        return a;
    }
}

VEC_FN void map_any(const int fn, const tsri_fast_map *p, int64_t i, int64_t end)
{
    const bool two = fn >= TSRI_MAP_ADD && fn <= TSRI_MAP_DIV;
    const bool none = fn == TSRI_MAP_FILL;
    const float *x = p->x, *y = p->y;
    vf a = vset1(p->a);
    for (; i + W <= end; i += W) {
        vf v = none ? a : vload(x + i);
        vstore(p->out + i, map_one(fn, v, two ? vload(y + i) : v, a));
    }
    if (i < end) {
        vf v = none ? a : vloadn(x + i, end - i);
        vstoren(p->out + i, map_one(fn, v, two ? vloadn(y + i, end - i) : v, a), end - i);
    }
}

#define MAP_FN(name, FN)                                                   \
    static void map_##name(const tsri_fast_map *p, int64_t i, int64_t end) \
    {                                                                      \
        map_any(FN, p, i, end);                                            \
    }
MAP_FN(mul_a, TSRI_MAP_MUL_A)
MAP_FN(add, TSRI_MAP_ADD)
MAP_FN(sub, TSRI_MAP_SUB)
MAP_FN(mul, TSRI_MAP_MUL)
MAP_FN(div, TSRI_MAP_DIV)
MAP_FN(fill, TSRI_MAP_FILL)
#undef MAP_FN

/* The gradient with decay times the parameter; without decay an infinite parameter adds nothing. */
VEC_FN vf with_decay(float decay, vf w, vf g)
{
    return decay != 0 ? vfma(vset1(decay), w, g) : g;
}

/* SGD as PyTorch's: g += wd p; v = momentum v + (1 - dampening) g, or g in the first step;
 * g = v, or with nesterov g + momentum v; p -= lr g. */
VEC_FN void sgd_one(const tsri_fast_sgd *p, int64_t i, int64_t n, const bool momentum)
{
    vf w = vload_upto(p->p + i, n);
    vf g = with_decay(p->weight_decay, w, vload_upto(p->g + i, n));
    if (momentum) {
        vf v = p->first ? g : vfma(vset1(p->momentum), vload_upto(p->v + i, n), vset1(p->gain) * g);
        vstore_upto(p->v + i, v, n);
        g = p->nesterov ? vfma(vset1(p->momentum), v, g) : v;
    }
    vstore_upto(p->p + i, vfma(vset1(-p->lr), g, w), n);
}

static void sgd(const tsri_fast_sgd *p, int64_t i, int64_t end)
{
    if (p->v)
        for (; i < end; i += W)
            sgd_one(p, i, end - i, true);
    else
        for (; i < end; i += W)
            sgd_one(p, i, end - i, false);
}

/* Adam and AdamW as PyTorch's, its bias corrections folded into step and root. */
static void adam(const tsri_fast_adam *p, int64_t i, int64_t end)
{
    vf beta1 = vset1(p->beta1), beta2 = vset1(p->beta2);
    vf gain1 = vset1(p->gain1), gain2 = vset1(p->gain2);
    vf root = vset1(p->root), eps = vset1(p->eps), step = vset1(-p->step);
    vf keep = vset1(p->keep);
    for (; i < end; i += W) {
        int64_t n = end - i;
        vf w = vload_upto(p->p + i, n);
        vf g = with_decay(p->weight_decay, w, vload_upto(p->g + i, n));
        vf m = vfma(beta1, vload_upto(p->m + i, n), gain1 * g);
        vf v = vfma(beta2, vload_upto(p->v + i, n), gain2 * g * g);
        vstore_upto(p->m + i, m, n);
        vstore_upto(p->v + i, v, n);
        vstore_upto(p->p + i, vfma(step, m / vfma(vsqrt(v), root, eps), w * keep), n);
    }
}
