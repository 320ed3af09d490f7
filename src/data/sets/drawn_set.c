/* SPDX-License-Identifier: Apache-2.0 */
/* Drawn rows of any shape and any number of classes: nothing is kept, a row is drawn when it is
 * asked for. */
#include <string.h>

#include "src/core/rng.h"
#include "src/data/row_set.h"
#include "src/data/sets/synthetic.h"

enum { AT_ONCE = 1024 };

typedef struct drawn_set {
    tsri_row_set base;
    int64_t classes;
    tsri_synthetic_keys keys;
    double mean, std;
} drawn_set;

static void close_drawn(tsri_row_set *set)
{
    tsri_mem_free((drawn_set *)set);
}

static tsr_status get_drawn(const tsri_row_set *set, int64_t row, void *x, int64_t *y)
{
    const drawn_set *d = (const drawn_set *)set;
    uint8_t noise[AT_ONCE], pattern[AT_ONCE];
    const int64_t n = tsr_dims_count(set->x);
    *y = tsri_synthetic_label(&d->keys, row, d->classes);
    for (int64_t done = 0; done < n; done += AT_ONCE) {
        const int64_t more = n - done < AT_ONCE ? n - done : AT_ONCE;
        tsri_synthetic_bytes(d->keys.noise, (uint64_t)row, done, more, noise);
        tsri_synthetic_bytes(d->keys.patterns, (uint64_t)*y, done, more, pattern);
        for (int64_t i = 0; i < more; i++) {
            const double v = ((double)((noise[i] + pattern[i]) / 2) / 255 - d->mean) / d->std;
            if (set->dtype == TSR_F64)
                ((double *)x)[done + i] = v;
            else
                ((float *)x)[done + i] = (float)v;
        }
    }
    return TSR_OK;
}

tsr_status tsri_drawn_set_open(tsri_mem *mem, tsr_dtype dtype, tsr_dims shape, int64_t classes,
                               int64_t count, uint64_t seed, bool normalize, tsri_row_set **out_set)
{
    drawn_set *d = tsri_mem_alloc(mem, sizeof *d);
    TSRI_NEED(d);
    /* The mean of two bytes, each as likely as any: 127.25, as it is rounded down. */
    *d = (drawn_set){.classes = classes,
                     .keys = tsri_synthetic_keys_of(seed),
                     .mean = normalize ? 127.25 / 255 : 0,
                     .std = normalize ? 52.256 / 255 : 1};
    d->base = (tsri_row_set){
        .dtype = dtype, .x = shape, .count = count, .get = get_drawn, .close = close_drawn};
    *out_set = &d->base;
    return TSR_OK;
}
