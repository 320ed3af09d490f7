/* SPDX-License-Identifier: Apache-2.0 */
/* A sample's step of a recurrent layer, behind its products, and the step's gradient; see
 * kernels/recurrent.h. Included once per instruction set and dtype; see vec.h, math_t.h and
 * of_f32.h. */

VEC_FN VT BY(cell_sigmoid)(VT x)
{
    return VEC(set1)(1) / (VEC(set1)(1) + VEC(exp)(-x));
}

/* slope s of a sigmoid y, and of a tanh. */
VEC_FN VT BY(sigmoid_back)(VT y, VT s)
{
    return s * y * (VEC(set1)(1) - y);
}

VEC_FN VT BY(tanh_back)(VT y, VT s)
{
    return s * (VEC(set1)(1) - y * y);
}

/* Loops over vectors of units; j is the first unit, left are how many there are from it on. */
#define CELL_UNITS(p) for (int64_t j = 0, left = (p)->n; left > 0; j += LANES, left -= LANES)
#define CELL_LOAD(from) VEC(load_upto)((const T *)(from) + j, left)
#define CELL_GATE(from, i) VEC(load_upto)((const T *)(from) + (i)*p->pitch + j, left)
#define CELL_STORE(to, v) VEC(store_upto)((T *)(to) + j, v, left)
#define CELL_STORE_GATE(to, i, v) VEC(store_upto)((T *)(to) + (i)*p->pitch + j, v, left)

static void BY(cell_tanh)(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    CELL_STORE(p->y, VEC(tanh)(CELL_LOAD(p->x) + CELL_LOAD(p->sums)));
}

static void BY(cell_relu)(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    {
        VT v = CELL_LOAD(p->x) + CELL_LOAD(p->sums);
        CELL_STORE(p->y, VEC(choose)((VMASK)(v <= VEC(set1)(0)), VEC(set1)(0), v));
    }
}

static void BY(cell_lstm)(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    {
        VT i = BY(cell_sigmoid)(CELL_LOAD(p->x) + CELL_LOAD(p->sums));
        VT f = BY(cell_sigmoid)(CELL_GATE(p->x, 1) + CELL_GATE(p->sums, 1));
        VT g = VEC(tanh)(CELL_GATE(p->x, 2) + CELL_GATE(p->sums, 2));
        VT o = BY(cell_sigmoid)(CELL_GATE(p->x, 3) + CELL_GATE(p->sums, 3));
        VT c = VEC(fma)(f, CELL_LOAD(p->before), i * g);
        CELL_STORE(p->gates, i);
        CELL_STORE_GATE(p->gates, 1, f);
        CELL_STORE_GATE(p->gates, 2, g);
        CELL_STORE_GATE(p->gates, 3, o);
        CELL_STORE(p->cells, c);
        CELL_STORE(p->y, o * VEC(tanh)(c));
    }
}

static void BY(cell_gru)(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    {
        VT r = BY(cell_sigmoid)(CELL_LOAD(p->x) + CELL_LOAD(p->sums));
        VT z = BY(cell_sigmoid)(CELL_GATE(p->x, 1) + CELL_GATE(p->sums, 1));
        VT s = CELL_GATE(p->sums, 2), n = VEC(tanh)(VEC(fma)(r, s, CELL_GATE(p->x, 2)));
        CELL_STORE(p->gates, r);
        CELL_STORE_GATE(p->gates, 1, z);
        CELL_STORE_GATE(p->gates, 2, n);
        CELL_STORE_GATE(p->gates, 3, s);
        CELL_STORE(p->y, VEC(fma)(z, CELL_LOAD(p->before) - n, n));
    }
}

static void BY(cell_tanh_back)(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    CELL_STORE(p->dx, BY(tanh_back)(CELL_LOAD(p->state), CELL_LOAD(p->dh) + CELL_LOAD(p->dy)));
}

static void BY(cell_relu_back)(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    {
        VT dh = CELL_LOAD(p->dh) + CELL_LOAD(p->dy);
        VMASK on = (VMASK)(CELL_LOAD(p->state) > VEC(set1)(0));
        CELL_STORE(p->dx, VEC(choose)(on, dh, VEC(set1)(0)));
    }
}

static void BY(cell_lstm_back)(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    {
        VT i = CELL_LOAD(p->gates), f = CELL_GATE(p->gates, 1);
        VT g = CELL_GATE(p->gates, 2), o = CELL_GATE(p->gates, 3);
        VT dh = CELL_LOAD(p->dh) + CELL_LOAD(p->dy), e = VEC(tanh)(CELL_LOAD(p->state));
        VT dc = CELL_LOAD(p->dc) + BY(tanh_back)(e, dh * o);
        if (p->dcells)
            dc += CELL_LOAD(p->dcells);
        CELL_STORE(p->dx, BY(sigmoid_back)(i, dc * g));
        CELL_STORE_GATE(p->dx, 1, BY(sigmoid_back)(f, dc * CELL_LOAD(p->before)));
        CELL_STORE_GATE(p->dx, 2, BY(tanh_back)(g, dc * i));
        CELL_STORE_GATE(p->dx, 3, BY(sigmoid_back)(o, dh * e));
        CELL_STORE(p->dc, dc * f);
    }
}

static void BY(cell_gru_back)(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    {
        VT r = CELL_LOAD(p->gates), z = CELL_GATE(p->gates, 1);
        VT n = CELL_GATE(p->gates, 2), s = CELL_GATE(p->gates, 3);
        VT dh = CELL_LOAD(p->dh) + CELL_LOAD(p->dy);
        VT dn = BY(tanh_back)(n, dh * (VEC(set1)(1) - z));
        VT dr = BY(sigmoid_back)(r, dn * s),
           dz = BY(sigmoid_back)(z, dh * (CELL_LOAD(p->before) - n));
        CELL_STORE(p->dx, dr);
        CELL_STORE_GATE(p->dx, 1, dz);
        CELL_STORE_GATE(p->dx, 2, dn);
        CELL_STORE(p->ds, dr);
        CELL_STORE_GATE(p->ds, 1, dz);
        CELL_STORE_GATE(p->ds, 2, dn * r);
        CELL_STORE(p->dh, dh * z);
    }
}

#undef CELL_UNITS
#undef CELL_LOAD
#undef CELL_GATE
#undef CELL_STORE
#undef CELL_STORE_GATE
