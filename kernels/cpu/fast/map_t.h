/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise loops over flat f32 buffers, and the optimizers'. Included once per instruction set;
 * see vec.h. Elements [i, end). */

static void map_fill(const tsri_fast_map *p, int64_t i, int64_t end)
{
    for (; i < end; i += W)
        vstore_upto(p->out + i, vset1(p->a), end - i);
}

static void map_scale(const tsri_fast_map *p, int64_t i, int64_t end)
{
    const vf a = vset1(p->a);
    for (; i < end; i += W)
        vstore_upto(p->out + i, vload_upto(p->x + i, end - i) * a, end - i);
}

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
