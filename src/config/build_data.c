/* SPDX-License-Identifier: Apache-2.0 */
/* The data of training and of evaluation, and how many steps there are. */
#include <stdlib.h>

#include "src/config/program.h"
#include "src/data/dataset.h"

/* --- images ----------------------------------------------------------------------------------- */
/* The part of a set that is trained on, or the one for tests. */
static tsr_status open_images(const tsri_program *p, const tsri_data_sizes *s, bool train,
                              tsr_dataset **out)
{
    const tsri_config_data *d = &p->experiment->data;
    const char *dir = d->dir ? d->dir : getenv("TESSERA_DATA");
    const int64_t sizes[3] = {s->channels, s->height, s->width};
    if (d->head.variant == TSRI_DATA_SYNTHETIC)
        return tsri_synthetic_open(p->world, sizes, s->classes, train ? 0 : d->samples,
                                   train ? d->samples : d->test_samples, d->seed, out);
    if (!dir)
        return tsri_fail(TSR_ERR_IO, "'dir' is missing, and the variable TESSERA_DATA is not set");
    return d->head.variant == TSRI_DATA_CIFAR10 ? tsr_cifar10_open(p->world, dir, train, out)
                                                : tsr_mnist_open(p->world, dir, train, out);
}

static tsr_status check_images(const tsr_dataset *set, const tsri_data_sizes *s)
{
    if (tsr_dataset_channels(set) == s->channels && tsr_dataset_height(set) == s->height &&
        tsr_dataset_width(set) == s->width)
        return TSR_OK;
    return tsri_fail(TSR_ERR_SHAPE, "images of %lld x %lld x %lld; %lld x %lld x %lld are usual",
                     (long long)tsr_dataset_channels(set), (long long)tsr_dataset_height(set),
                     (long long)tsr_dataset_width(set), (long long)s->channels,
                     (long long)s->height, (long long)s->width);
}

static tsr_status load_images(const tsri_program *p, bool trains, bool train_part,
                              tsri_program_part *out)
{
    const tsri_config_data *d = &p->experiment->data;
    const tsri_data_sizes s = tsri_config_data_sizes(d);
    TSRI_TRY(open_images(p, &s, train_part, &out->images));
    TSRI_TRY(check_images(out->images, &s));
    out->rows.count = tsr_dataset_count(out->images);
    return tsr_loader_create(
        p->world, out->images,
        TSR_LOADER_OPTS(.batch_size = d->batch_size, .shuffle = trains && d->shuffle,
                        .augment = trains && d->augment,
                        .normalize = d->normalize && !tsri_reads_text(p->experiment),
                        .drop_last = trains, .seed = d->seed, .dtype = p->experiment->dtype,
                        .workers = (int)d->workers, .prefetch = (int)d->prefetch),
        &out->loader);
}

/* --- sets of rows ----------------------------------------------------------------------------- */
static tsr_status open_rows(const tsri_program *p, bool train_part, tsri_row_set **out)
{
    const tsri_config_data *d = &p->experiment->data;
    tsri_mem *mem = &p->world->mem;
    const bool other = !train_part && d->test_x;
    const tsri_npy_set_opts npy = {.x = other ? d->test_x : d->x,
                                   .y = other ? d->test_y : d->y,
                                   .classes = d->classes,
                                   .dtype = p->experiment->dtype,
                                   .mean = d->mean,
                                   .std = d->std};
    if (d->head.variant == TSRI_DATA_TEXT)
        return tsri_text_set_open(mem, d->tokens ? d->tokens : d->file, d->tokens != NULL,
                                  d->context, d->vocab, out);
    if (d->head.variant == TSRI_DATA_NPY)
        return tsri_npy_set_open(mem, &npy, out);
    return tsri_drawn_set_open(mem, p->experiment->dtype, tsri_config_data_sizes(d).row, d->classes,
                               d->samples + d->test_samples, d->seed, d->normalize, out);
}

/* The rows of a set that are trained on, or those for tests. */
static tsri_row_part part_of(const tsri_config_data *d, const tsri_row_set *set, bool train_part)
{
    const int64_t tests = tsri_data_test_rows(d, set->count);
    if (d->test_x && !train_part)
        return (tsri_row_part){set, 0, set->count};
    return train_part ? (tsri_row_part){set, 0, set->count - tests}
                      : (tsri_row_part){set, set->count - tests, tests};
}

static tsr_status load_rows(const tsri_program *p, bool trains, bool train_part,
                            tsri_program_part *out)
{
    const tsri_config_data *d = &p->experiment->data;
    const int workers = d->prefetch > 0 ? (int)d->workers : 0;
    const int64_t ahead = workers > 0 ? d->prefetch / workers : -1;
    const tsr_dtype dtype = p->experiment->dtype;
    if (d->head.variant != TSRI_DATA_TEXT && dtype != TSR_F32 && dtype != TSR_F64)
        return tsri_fail(TSR_ERR_DTYPE, "rows of %s; legal are f32 and f64", tsr_dtype_name(dtype));
    TSRI_TRY(open_rows(p, train_part, &out->set));
    out->rows = part_of(d, out->set, train_part);
    if (!tsr_dims_equal(out->set->x, tsri_config_data_sizes(d).row) &&
        tsr_dims_count(out->set->x) != tsr_dims_count(tsri_config_data_sizes(d).row))
        return tsri_fail(TSR_ERR_SHAPE, "the files have other rows than when the file was read");
    return tsri_row_loader_create(
        p->world, &out->rows,
        TSR_MAP_LOADER_OPTS(.batch_size = (int64_t)d->batch_size, .shuffle = trains && d->shuffle,
                            .drop_last = trains, .seed = d->seed, .num_workers = workers,
                            .prefetch_factor = workers && ahead < 1 ? 1 : (int)ahead),
        &out->loader);
}

/* --- parts ------------------------------------------------------------------------------------ */
/* Opens a part of the data and what loads it: of training batches that are full, in a new order
 * each epoch; else all rows in their order, as they are. */
static tsr_status open_part(const tsri_program *p, bool trains, bool train_part,
                            tsri_program_part *out)
{
    return tsri_program_fail(p->experiment->data.head.node,
                             (tsri_data_is_images(&p->experiment->data) ? load_images : load_rows)(
                                 p, trains, train_part, out));
}

void tsri_program_part_close(tsri_program_part *part)
{
    tsr_loader_destroy(part->loader);
    tsr_dataset_destroy(part->images);
    tsri_row_set_close(part->set);
}

/* Steps of training: those that the file says, over as many epochs as they take, but no more than
 * its epochs have. It says one of them, or it has the default of epochs. */
static int64_t steps_of(const tsri_config_train *t, int64_t per_epoch)
{
    bool has_steps = tsri_section_has(&tsri_train_section, t, "steps");
    bool has_epochs = tsri_section_has(&tsri_train_section, t, "epochs");
    int64_t all = t->epochs > INT64_MAX / per_epoch ? INT64_MAX : t->epochs * per_epoch;
    return has_steps && (!has_epochs || t->steps < all) ? t->steps : all;
}

tsr_status tsri_program_open_data(tsri_program *p, int64_t steps)
{
    const tsri_experiment *e = p->experiment;
    int64_t count = tsri_config_data_sizes(&e->data).count;
    if (!p->inside->no_data) {
        TSRI_TRY(open_part(p, true, true, &p->inside->train));
        p->dataset = p->inside->train.images;
        p->loader = p->inside->train.loader;
        count = p->inside->train.rows.count;
    }
    p->rows = e->data.batch_size;
    if (p->inside->no_data && count == 0) /* a step is planned, and an epoch has one */
        count = p->rows;
    p->steps_per_epoch = count / p->rows;
    if (p->steps_per_epoch < 1)
        return tsri_program_fail(tsri_section_node(&e->data, "batch_size"),
                                 tsri_fail(TSR_ERR_SHAPE, "a batch of %lld rows; the set has %lld",
                                           (long long)p->rows, (long long)count));
    p->steps = steps > 0 ? steps : steps_of(&e->train, p->steps_per_epoch);
    return TSR_OK;
}

tsr_status tsri_program_open_test(tsri_program *p)
{
    return open_part(p, false, !p->experiment->train.eval.test_part, &p->inside->test);
}
