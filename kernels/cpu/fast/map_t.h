/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise loops over flat f32 buffers. Included once per instruction set;
 * see vec.h. Elements [i, end). */

/* Whole vectors lie within lines of memory: what they leave out at both ends is stored before. */
static void map_fill(const tsri_fast_map *p, int64_t i, int64_t end)
{
    const vf a = vset1(p->a);
    float *const out = p->out;
    if (end - i < W) {
        vstoren(out + i, a, end - i);
        return;
    }
    vstore(out + i, a);
    vstore(out + end - W, a);
    i += W - (int64_t)((uintptr_t)(out + i) / sizeof(float) % W);
    for (; i + W <= end; i += W)
        vstore(out + i, a);
}

static void map_scale(const tsri_fast_map *p, int64_t i, int64_t end)
{
    const vf a = vset1(p->a);
    MAP_LOOP(vload(x + i) * a, vloadn(x + i, part) * a)
}
