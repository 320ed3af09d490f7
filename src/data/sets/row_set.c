/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders of sets of rows. */
#include "src/data/row_set.h"

void tsri_row_set_close(tsri_row_set *set)
{
    if (set)
        set->close(set);
}

static int64_t part_length(void *arg)
{
    return ((const tsri_row_part *)arg)->count;
}

static tsr_status part_get(void *arg, int64_t index, void *const *fields, const tsr_worker *worker)
{
    const tsri_row_part *part = arg;
    (void)worker;
    return part->set->get(part->set, part->first + index, fields[0], fields[1]);
}

tsr_status tsri_row_loader_create(tsr_world *world, tsri_row_part *part,
                                  const tsr_map_loader_opts *opts, tsr_loader **out_loader)
{
    const tsri_row_set *set = part->set;
    tsr_map_loader_opts o = *opts;
    o.nfields = 2;
    o.field_bytes[0] = (size_t)tsr_dims_count(set->x) * tsr_dtype_size(set->dtype);
    o.field_bytes[1] = (size_t)tsr_dims_count(set->y) * sizeof(int64_t);
    return tsr_map_loader_create(
        world, TSR_MAP_DATASET(.len = part_length, .get = part_get, .arg = part), &o, out_loader);
}
