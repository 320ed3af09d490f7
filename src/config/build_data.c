/* SPDX-License-Identifier: Apache-2.0 */
/* The data of training and of evaluation, and how many steps there are. */
#include <stdlib.h>

#include "src/config/program.h"
#include "src/data/dataset.h"

/* The part of a set that is trained on, or the one for tests. */
static tsr_status open_images(const tsri_program *p, const tsri_data_sizes *s, bool train,
                              tsr_dataset **out)
{
    const tsri_config_data *d = &p->experiment->data;
    const char *dir = d->dir ? d->dir : getenv("TESSERA_DATA");
    const int64_t sizes[3] = {s->channels, s->height, s->width};
    if (d->head.variant == TSRI_DATA_SYNTHETIC)
        return tsri_synthetic_open(p->world, sizes, s->classes, train ? 0 : d->samples,
                                   train ? d->samples : d->test_samples, (uint64_t)d->seed, out);
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

/* Opens a part of the data and what loads it: of training batches that are full, in a new order
 * each epoch; else all rows in their order, as they are. */
static tsr_status open_part(const tsri_program *p, bool trains, bool train_part, tsr_dataset **set,
                            tsr_loader **loader)
{
    const tsri_config_data *d = &p->experiment->data;
    const tsri_data_sizes s = tsri_config_data_sizes(d);
    TSRI_TRY(open_images(p, &s, train_part, set));
    TSRI_TRY(check_images(*set, &s));
    return tsr_loader_create(
        p->world, *set,
        TSR_LOADER_OPTS(.batch_size = d->batch_size, .shuffle = trains && d->shuffle,
                        .augment = trains && d->augment,
                        .normalize = d->normalize && !tsri_predicts_bytes(p->experiment),
                        .drop_last = trains, .seed = (uint64_t)d->seed,
                        .dtype = p->experiment->dtype, .workers = (int)d->workers,
                        .prefetch = (int)d->prefetch),
        loader);
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
        TSRI_TRY(tsri_program_fail(e->data.head.node,
                                   open_part(p, true, true, &p->dataset, &p->loader)));
        count = tsr_dataset_count(p->dataset);
    }
    p->rows = e->data.batch_size;
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
    const tsri_experiment *e = p->experiment;
    tsri_program_inside *in = p->inside;
    return tsri_program_fail(e->data.head.node, open_part(p, false, !e->train.eval.test_part,
                                                          &in->test_set, &in->test_loader));
}
