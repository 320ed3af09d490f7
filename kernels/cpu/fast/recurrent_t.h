/* SPDX-License-Identifier: Apache-2.0 */
/* A sample's step of a recurrent layer, behind its products, and the step's gradient; see
 * kernels/recurrent.h. Included once per instruction set; see vec.h and math_t.h. */

VEC_FN vf cell_sigmoid(vf x)
{
    return vset1(1.0f) / (vset1(1.0f) + vexp(-x));
}

/* slope s of a sigmoid y, and of a tanh. */
VEC_FN vf sigmoid_back(vf y, vf s)
{
    return s * y * (vset1(1.0f) - y);
}

VEC_FN vf tanh_back(vf y, vf s)
{
    return s * (vset1(1.0f) - y * y);
}

/* Loops over vectors of units; j is the first unit, left are how many there are from it on. */
#define CELL_UNITS(p) for (int64_t j = 0, left = (p)->n; left > 0; j += W, left -= W)
#define CELL_LOAD(from) vload_upto((from) + j, left)
#define CELL_GATE(from, i) vload_upto((from) + (i)*p->pitch + j, left)
#define CELL_STORE(to, v) vstore_upto((to) + j, v, left)
#define CELL_STORE_GATE(to, i, v) vstore_upto((to) + (i)*p->pitch + j, v, left)

static void cell_tanh(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    CELL_STORE(p->y, vtanh(CELL_LOAD(p->x) + CELL_LOAD(p->sums)));
}

static void cell_relu(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    {
        vf v = CELL_LOAD(p->x) + CELL_LOAD(p->sums);
        CELL_STORE(p->y, vchoose((vint)(v <= vset1(0.0f)), vset1(0.0f), v));
    }
}

static void cell_lstm(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    {
        vf i = cell_sigmoid(CELL_LOAD(p->x) + CELL_LOAD(p->sums));
        vf f = cell_sigmoid(CELL_GATE(p->x, 1) + CELL_GATE(p->sums, 1));
        vf g = vtanh(CELL_GATE(p->x, 2) + CELL_GATE(p->sums, 2));
        vf o = cell_sigmoid(CELL_GATE(p->x, 3) + CELL_GATE(p->sums, 3));
        vf c = vfma(f, CELL_LOAD(p->before), i * g);
        CELL_STORE(p->gates, i);
        CELL_STORE_GATE(p->gates, 1, f);
        CELL_STORE_GATE(p->gates, 2, g);
        CELL_STORE_GATE(p->gates, 3, o);
        CELL_STORE(p->cells, c);
        CELL_STORE(p->y, o * vtanh(c));
    }
}

static void cell_gru(const tsri_fast_cell *p)
{
    CELL_UNITS(p)
    {
        vf r = cell_sigmoid(CELL_LOAD(p->x) + CELL_LOAD(p->sums));
        vf z = cell_sigmoid(CELL_GATE(p->x, 1) + CELL_GATE(p->sums, 1));
        vf s = CELL_GATE(p->sums, 2), n = vtanh(vfma(r, s, CELL_GATE(p->x, 2)));
        CELL_STORE(p->gates, r);
        CELL_STORE_GATE(p->gates, 1, z);
        CELL_STORE_GATE(p->gates, 2, n);
        CELL_STORE_GATE(p->gates, 3, s);
        CELL_STORE(p->y, vfma(z, CELL_LOAD(p->before) - n, n));
    }
}

static void cell_tanh_back(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    CELL_STORE(p->dx, tanh_back(CELL_LOAD(p->state), CELL_LOAD(p->dh) + CELL_LOAD(p->dy)));
}

static void cell_relu_back(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    {
        vf dh = CELL_LOAD(p->dh) + CELL_LOAD(p->dy);
        vint on = (vint)(CELL_LOAD(p->state) > vset1(0.0f));
        CELL_STORE(p->dx, vchoose(on, dh, vset1(0.0f)));
    }
}

static void cell_lstm_back(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    {
        vf i = CELL_LOAD(p->gates), f = CELL_GATE(p->gates, 1);
        vf g = CELL_GATE(p->gates, 2), o = CELL_GATE(p->gates, 3);
        vf dh = CELL_LOAD(p->dh) + CELL_LOAD(p->dy), e = vtanh(CELL_LOAD(p->state));
        vf dc = CELL_LOAD(p->dc) + tanh_back(e, dh * o);
        if (p->dcells)
            dc += CELL_LOAD(p->dcells);
        CELL_STORE(p->dx, sigmoid_back(i, dc * g));
        CELL_STORE_GATE(p->dx, 1, sigmoid_back(f, dc * CELL_LOAD(p->before)));
        CELL_STORE_GATE(p->dx, 2, tanh_back(g, dc * i));
        CELL_STORE_GATE(p->dx, 3, sigmoid_back(o, dh * e));
        CELL_STORE(p->dc, dc * f);
    }
}

static void cell_gru_back(const tsri_fast_cell_back *p)
{
    CELL_UNITS(p)
    {
        vf r = CELL_LOAD(p->gates), z = CELL_GATE(p->gates, 1);
        vf n = CELL_GATE(p->gates, 2), s = CELL_GATE(p->gates, 3);
        vf dh = CELL_LOAD(p->dh) + CELL_LOAD(p->dy);
        vf dn = tanh_back(n, dh * (vset1(1.0f) - z));
        vf dr = sigmoid_back(r, dn * s), dz = sigmoid_back(z, dh * (CELL_LOAD(p->before) - n));
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
