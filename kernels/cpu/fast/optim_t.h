/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers' updates of flat f32 buffers. Included once per instruction set; see vec.h. */

/* -1, 0 or 1, and NaN of NaN. */
VEC_FN vf vsign(vf x)
{
    const vf zero = vset1(0.0f), one = vset1(1.0f);
    return vchoose((vint)(x > zero), one, vchoose((vint)(x < zero), -one, x));
}

#define REAL vf
#define REAL_FN VEC_FN
#define SCALAR float
#define num(c) vset1(c)
#define mad(a, b, c) vfma(a, b, c)
#define root(x) vsqrt(x)
#define sign(x) vsign(x)
#define UPDATE(name) update_##name
#include "kernels/update_t.h"

/* Elements [i, i + n) of a vector, and elements [i, end). The numbers are copied, so that no store
 * can change them. */
#define UPDATE_LOOP(KIND, name, flops, states, ...)                                               \
    VEC_FN void update_vector_##name(const tsri_fast_update *u, const float *c, int64_t i,        \
                                     int64_t n)                                                   \
    {                                                                                             \
        vf p = vload_upto(u->p + i, n), s[states] = {0};                                          \
        VEC_LOOP for (int k = 0; k < states; k++) if (u->s[k]) s[k] = vload_upto(u->s[k] + i, n); \
        vf g = update_begin(c, &p, vload_upto(u->g + i, n));                                      \
        update_##name(c, &p, s, u->has, g);                                                       \
        vstore_upto(u->p + i, p, n);                                                              \
        VEC_LOOP for (int k = 0; k < states; k++) if (u->s[k]) vstore_upto(u->s[k] + i, s[k], n); \
    }                                                                                             \
    static void update_loop_##name(const tsri_fast_update *args, int64_t i, int64_t end)          \
    {                                                                                             \
        const tsri_fast_update u = *args;                                                         \
        float c[TSRI_HYPER_COUNT];                                                                \
        memcpy(c, u.c, sizeof c);                                                                 \
        for (; i + W <= end; i += W)                                                              \
            update_vector_##name(&u, c, i, W);                                                    \
        if (i < end)                                                                              \
            update_vector_##name(&u, c, i, end - i);                                              \
    }
TSRI_UPDATE_LIST(UPDATE_LOOP)
#undef UPDATE_LOOP
#undef REAL
#undef REAL_FN
#undef SCALAR
#undef num
#undef mad
#undef root
#undef sign
#undef UPDATE
