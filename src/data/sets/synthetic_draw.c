/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every image is a mix, by a coverage between 0 and 1 at each pixel, of two random colours: a
 * background that drifts across the image, and what the class shows. Colours, contrast, place, size
 * and turn are drawn from the same distributions for all classes, so that only form tells them
 * apart; a small bar of a third colour, and noise, disturb.
 */
#include "src/data/sets/synthetic.h"

#include <math.h>
#include <stdbool.h>

#include "src/core/rng.h"

enum {
    SIDE = TSRI_SYNTHETIC_SIDE,
};

/* A stream of draws for one image. */
typedef struct draws {
    uint64_t key, sample, at;
} draws;

static double uniform(draws *d, double from, double to)
{
    return from + (to - from) * tsri_rng_uniform(d->key, d->sample, d->at++);
}

static double normal(draws *d)
{
    /* Two words at once: kept apart from the uniforms by an index far above theirs. */
    return tsri_rng_normal(d->key, d->sample, ((uint64_t)1 << 32) + d->at++);
}

/* The form that is shown: its middle, half its size, its turn (radians), the period and phase of
 * textures.
 */
typedef struct form {
    double x, y, size, turn, period, phase;
} form;

/* Pixel in the form's own coordinates: u along its turn, v across. */
typedef struct spot {
    double u, v;
} spot;

static double disc(const form *f, spot p)
{
    return hypot(p.u, p.v) < f->size;
}

static double square(const form *f, spot p)
{
    return fmax(fabs(p.u), fabs(p.v)) < 0.88 * f->size;
}

static double triangle(const form *f, spot p)
{
    /* Equilateral: inside of three lines at 0.6 of the size from the middle. */
    double a = p.v, b = -0.5 * p.v + 0.866 * p.u, c = -0.5 * p.v - 0.866 * p.u;
    return fmax(a, fmax(b, c)) < 0.6 * f->size;
}

static double ring(const form *f, spot p)
{
    double r = hypot(p.u, p.v);
    return r < f->size && r > 0.55 * f->size;
}

static double cross(const form *f, spot p)
{
    double a = fabs(p.u), b = fabs(p.v);
    return fmax(a, b) < f->size && fmin(a, b) < 0.3 * f->size;
}

/* Textures fill a square window, so that its outline tells nothing. */
static bool in_window(const form *f, spot p)
{
    return fmax(fabs(p.u), fabs(p.v)) < 1.25 * f->size;
}

static double stripes(const form *f, spot p)
{
    return in_window(f, p) ? 0.5 + 0.5 * sin(6.2831853 * p.v / f->period + f->phase) : 0;
}

static double checkerboard(const form *f, spot p)
{
    if (!in_window(f, p))
        return 0;
    double a = sin(6.2831853 * p.u / f->period + f->phase);
    double b = sin(6.2831853 * p.v / f->period + f->phase);
    return a * b > 0;
}

static double gradient(const form *f, spot p)
{
    return in_window(f, p) ? 0.5 + 0.4 * p.v / f->size : 0;
}

/* turn and spread in degrees. Stripes are told apart by direction alone. */
static const struct {
    const char *name;
    double (*coverage)(const form *, spot);
    double turn, spread;
} classes[TSRI_SYNTHETIC_CLASSES] = {
    {"disc", disc, 0, 180},
    {"square", square, 0, 45},
    {"triangle", triangle, 0, 180},
    {"ring", ring, 0, 180},
    {"cross", cross, 0, 45},
    {"horizontal stripes", stripes, 0, 12},
    {"vertical stripes", stripes, 90, 12},
    {"diagonal stripes", stripes, 45, 12},
    {"checkerboard", checkerboard, 0, 45},
    {"gradient", gradient, 0, 180},
};

const char *tsri_synthetic_class_name(int label)
{
    return classes[label].name;
}

typedef struct palette {
    double back[3], fore[3], bar[3];
    double drift[2]; /* of the background's brightness, per pixel */
} palette;

static palette draw_palette(draws *d)
{
    palette c;
    for (;;) {
        double contrast = 0;
        for (int i = 0; i < 3; i++) {
            c.back[i] = uniform(d, 20, 235);
            c.fore[i] = uniform(d, 20, 235);
            c.bar[i] = uniform(d, 0, 255);
            contrast += fabs(c.back[i] - c.fore[i]);
        }
        if (contrast > 120)
            break;
    }
    c.drift[0] = uniform(d, -1.5, 1.5);
    c.drift[1] = uniform(d, -1.5, 1.5);
    return c;
}

static form draw_form(draws *d, int label)
{
    const double degree = 0.017453292519943295;
    form f;
    f.size = uniform(d, 6, 12);
    double reach = SIDE / 2.0 - 0.8 * f.size; /* at most a little of it is cut off */
    f.x = SIDE / 2.0 + uniform(d, -reach, reach);
    f.y = SIDE / 2.0 + uniform(d, -reach, reach);
    double turn = classes[label].turn + uniform(d, -classes[label].spread, classes[label].spread);
    if (label == 7 && uniform(d, 0, 1) < 0.5)
        turn += 90; /* both diagonals */
    f.turn = turn * degree;
    f.period = uniform(d, 4, 8);
    f.phase = uniform(d, 0, 6.2831853);
    return f;
}

static double coverage_at(const form *f, int label, double x, double y)
{
    double dx = x - f->x, dy = y - f->y, c = cos(f->turn), s = sin(f->turn);
    return classes[label].coverage(f, (spot){.u = c * dx + s * dy, .v = c * dy - s * dx});
}

void tsri_synthetic_draw(uint64_t seed, uint64_t sample, int label, uint8_t *image)
{
    draws d = {.key = tsri_rng_key(seed, "synthetic"), .sample = sample};
    palette colours = draw_palette(&d);
    form f = draw_form(&d, label);
    double noise = uniform(&d, 5, 25);
    int bar_x = (int)uniform(&d, 0, SIDE - 6), bar_y = (int)uniform(&d, 0, SIDE - 6);
    int bar_w = (int)uniform(&d, 2, 7), bar_h = (int)uniform(&d, 2, 7);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            /* Four samples a pixel smooth the edges. */
            double a = 0;
            for (int i = 0; i < 4; i++)
                a += 0.25 *
                     coverage_at(&f, label, x + 0.25 + 0.5 * (i & 1), y + 0.25 + 0.5 * (i >> 1));
            double drift = colours.drift[0] * (x - SIDE / 2) + colours.drift[1] * (y - SIDE / 2);
            bool in_bar = x >= bar_x && x < bar_x + bar_w && y >= bar_y && y < bar_y + bar_h;
            for (int c = 0; c < 3; c++) {
                double v = (1 - a) * (colours.back[c] + drift) + a * colours.fore[c];
                v = (in_bar ? colours.bar[c] : v) + noise * normal(&d);
                image[(c * SIDE + y) * SIDE + x] = (uint8_t)(fmin(fmax(v, 0), 255) + 0.5);
            }
        }
}
