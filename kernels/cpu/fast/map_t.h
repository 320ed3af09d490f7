/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise loops over flat f32 buffers. Included once per instruction set;
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
