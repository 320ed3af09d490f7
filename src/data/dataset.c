/* SPDX-License-Identifier: Apache-2.0 */
#include "src/data/dataset.h"

#include "src/core/live.h"

tsr_status tsri_dataset_create(tsr_world *world, tsr_dataset **out_dataset)
{
    tsr_dataset *ds = tsri_live_alloc(&world->mem, sizeof *ds, TSRI_LIVE_DATASET);
    TSRI_NEED(ds);
    ds->refs = 1;
    *out_dataset = ds;
    return TSR_OK;
}

void tsri_dataset_ref(tsr_dataset *dataset)
{
    dataset->refs++;
}

void tsri_dataset_unref(tsr_dataset *dataset)
{
    if (--dataset->refs)
        return;
    tsri_mem_free(dataset->images);
    tsri_mem_free(dataset->labels);
    tsri_mem_free(dataset);
}

void tsr_dataset_destroy(tsr_dataset *dataset)
{
    if (!tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__))
        return;
    tsri_live_remove(dataset, TSRI_LIVE_DATASET);
    tsri_world_disown(&dataset->owned);
    tsri_dataset_unref(dataset);
}

static void destroy_owned(void *dataset)
{
    tsr_dataset_destroy(dataset);
}

void tsri_dataset_own(tsr_world *world, tsr_dataset *dataset)
{
    tsri_world_own(world, &dataset->owned, dataset, destroy_owned);
}

int64_t tsr_dataset_count(const tsr_dataset *dataset)
{
    return tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__) ? dataset->count : 0;
}

int64_t tsr_dataset_channels(const tsr_dataset *dataset)
{
    return tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__) ? dataset->channels : 0;
}

int64_t tsr_dataset_height(const tsr_dataset *dataset)
{
    return tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__) ? dataset->height : 0;
}

int64_t tsr_dataset_width(const tsr_dataset *dataset)
{
    return tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__) ? dataset->width : 0;
}

int64_t tsr_dataset_classes(const tsr_dataset *dataset)
{
    return tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__) ? dataset->classes : 0;
}

const uint8_t *tsr_dataset_images(const tsr_dataset *dataset)
{
    return tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__) ? dataset->images : NULL;
}

const uint8_t *tsr_dataset_labels(const tsr_dataset *dataset)
{
    return tsri_is_live(dataset, TSRI_LIVE_DATASET, __func__) ? dataset->labels : NULL;
}
