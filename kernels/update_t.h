/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update of one element by each optimizer: the formulas of torch.optim (SGD, Adam, AdamW,
 * RMSprop, Adagrad) and of Lion (Chen et al. 2023), over the numbers of src/core/update_list.h. For
 * one type of number; a file that includes this one defines first:
 *
 *   REAL           the type: float, double, a vector of floats, or a parameter of a template
 *   REAL_FN        what stands before a function's type: static, inline, template
 *   SCALAR         the type of the numbers, hyper's rounded once
 *   num(c)         a SCALAR as a REAL
 *   mad(a, b, c)   a b + c; on GPUs it is said to be one operation, so that no compiler has a
 *                  choice and every kernel that makes an update makes the same bits
 *   root(x)        the square root
 *   sign(x)        -1, 0 or 1, and NaN of NaN
 *   UPDATE(name)   the name of a function
 *
 * p is the parameter, g its gradient, s[] the states; bit i of `has` says that there is an s[i].
 */
/* Returns the gradient, scaled and with its weight decay; p shrinks by the decay that is apart.
 * Without decay an infinite parameter adds nothing. */
REAL_FN REAL UPDATE(begin)(const SCALAR *c, REAL *p, REAL g)
{
    if (c[TSRI_HYPER_SCALE] != 1)
        g = num(c[TSRI_HYPER_SCALE]) * g;
    if (c[TSRI_HYPER_DECAY] != 0)
        g = mad(num(c[TSRI_HYPER_DECAY]), *p, g);
    if (c[TSRI_HYPER_SHRINK] == 0) /* whatever it was */
        *p = num(0);
    else if (c[TSRI_HYPER_SHRINK] != 1)
        *p = *p * num(c[TSRI_HYPER_SHRINK]);
    return g;
}

REAL_FN void UPDATE(sgd)(const SCALAR *c, REAL *p, REAL *s, int has, REAL g)
{
    if (has & 1) {
        s[0] = mad(num(c[TSRI_HYPER_KEEP1]), s[0], num(c[TSRI_HYPER_TAKE1]) * g);
        g = c[TSRI_HYPER_LOOK] != 0 ? mad(num(c[TSRI_HYPER_LOOK]), s[0], g) : s[0];
    }
    *p = mad(num(-c[TSRI_HYPER_LR]), g, *p);
}

REAL_FN void UPDATE(adam)(const SCALAR *c, REAL *p, REAL *s, int has, REAL g)
{
    (void)has;
    s[0] = mad(num(c[TSRI_HYPER_TAKE1]), g - s[0], s[0]);
    s[1] = mad(num(c[TSRI_HYPER_TAKE2]) * g, g, s[1] * num(c[TSRI_HYPER_KEEP2]));
    REAL size = mad(root(s[1]), num(c[TSRI_HYPER_ROOT]), num(c[TSRI_HYPER_EPS]));
    *p = mad(num(-c[TSRI_HYPER_LR]), s[0] / size, *p);
}

/* s[2] is kept where RMSprop is centered: the average of g, whose square is taken off. */
REAL_FN void UPDATE(rmsprop)(const SCALAR *c, REAL *p, REAL *s, int has, REAL g)
{
    s[0] = mad(num(c[TSRI_HYPER_TAKE2]) * g, g, s[0] * num(c[TSRI_HYPER_KEEP2]));
    REAL square = s[0];
    if (has & 4) {
        s[2] = mad(num(c[TSRI_HYPER_TAKE2]), g - s[2], s[2]);
        square = mad(-s[2], s[2], square);
    }
    g = g / (root(square) + num(c[TSRI_HYPER_EPS]));
    if (has & 2) {
        s[1] = mad(num(c[TSRI_HYPER_KEEP1]), s[1], g);
        g = s[1];
    }
    *p = mad(num(-c[TSRI_HYPER_LR]), g, *p);
}

REAL_FN void UPDATE(adagrad)(const SCALAR *c, REAL *p, REAL *s, int has, REAL g)
{
    (void)has;
    s[0] = mad(g, g, s[0]);
    *p = mad(num(-c[TSRI_HYPER_LR]), g / (root(s[0]) + num(c[TSRI_HYPER_EPS])), *p);
}

REAL_FN void UPDATE(lion)(const SCALAR *c, REAL *p, REAL *s, int has, REAL g)
{
    (void)has;
    REAL move = mad(num(c[TSRI_HYPER_KEEP1]), s[0], num(c[TSRI_HYPER_TAKE1]) * g);
    *p = mad(num(-c[TSRI_HYPER_LR]), sign(move), *p);
    s[0] = mad(num(c[TSRI_HYPER_TAKE2]), g - s[0], s[0]);
}
