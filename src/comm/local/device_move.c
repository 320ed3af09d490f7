/* SPDX-License-Identifier: Apache-2.0 */
/* Moves on a device's stream. */
#include "src/comm/local/device.h"

enum { MOST_SOURCES = 64 }; /* of one move */

static tsr_status put(tsri_local_group *g, const tsri_coll *c, const tsri_move *m)
{
    tsri_device *device = tsri_local_device_of(g)->device;
    return device->ops->move(device, m, c->stream);
}

/*
 * More sources than a move takes: what there is so far, in dst, becomes the first source of the
 * next move. All sources are gone through alike, so that takes boxes with equal steps on both
 * sides; others are split along the first axis where they differ. (Halves are then rounded once a
 * move. Nobody puts so many ranks on a GPU for speed.)
 */
static tsr_status put_many(tsri_local_group *g, const tsri_coll *c, tsri_move m)
{
    for (int a = 0; a < m.ndim; a++) {
        if (m.length[a] == 1 || m.src_step[a] == m.dst_step[a])
            continue;
        int64_t length = m.length[a];
        m.length[a] = 1;
        for (int64_t i = 0; i < length; i++) {
            TSRI_TRY(put_many(g, c, m));
            m.src_at += m.src_step[a];
            m.dst_at += m.dst_step[a];
        }
        return TSR_OK;
    }
    const void *src[MOST_SOURCES], *const *all = m.src;
    int n = m.nsrc, size = (int)tsr_dtype_size(m.dtype);
    for (int done = 0; done < n;) {
        int first = done > 0, more = n - done;
        if (more > MOST_SOURCES - first)
            more = MOST_SOURCES - first;
        src[0] = (const char *)m.dst + (m.dst_at - m.src_at) * size;
        for (int i = 0; i < more; i++)
            src[first + i] = all[done + i];
        m.src = src;
        m.nsrc = first + more;
        TSRI_TRY(put(g, c, &m));
        done += more;
    }
    return TSR_OK;
}

tsr_status tsri_device_walk(tsri_local_group *g, const tsri_coll *c, const tsri_walk *w,
                            tsr_dtype dtype, int nsrc, const char *const *src, char *dst)
{
    tsri_move m = {.dtype = dtype,
                   .op = c->op,
                   .src_at = w->src_at,
                   .dst_at = w->dst_at,
                   .nsrc = nsrc,
                   .src = (const void *const *)src,
                   .dst = dst};
    if (w->rows * w->run == 0)
        return TSR_OK;
    m.ndim = tsri_walk_axes(w, m.length, m.src_step, m.dst_step);
    return tsri_local_device_check(g, nsrc > MOST_SOURCES ? put_many(g, c, m) : put(g, c, &m));
}

tsr_status tsri_device_fill(tsri_local_group *g, const tsri_coll *c, const tsri_segment *s)
{
    tsri_device *device = tsri_local_device_of(g)->device;
    return tsri_local_device_check(
        g, device->ops->fill(device, s->dtype, c->op, s->dst_count, s->dst, c->stream));
}
