/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the data that is trained on: its files' headers, whether the model takes its rows, and
 * whether its batches divide. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/config/layers/layers.h"
#include "src/config/program.h"
#include "src/core/dims.h"
#include "src/data/loader/decoder.h"
#include "src/data/row_set.h"

static bool has(const tsri_config_data *d, const char *key)
{
    return tsri_section_has(&tsri_data_section, d, key);
}

/* --- sizes ------------------------------------------------------------------------------------ */
bool tsri_data_is_images(const tsri_config_data *d)
{
    if (d->head.variant != TSRI_DATA_SYNTHETIC)
        return d->head.variant == TSRI_DATA_CIFAR10 || d->head.variant == TSRI_DATA_MNIST;
    return d->shape.ndim <= 3 && d->classes <= 256 &&
           (d->shape.ndim < 3 || d->shape.d[0] <= TSRI_MAX_CHANNELS);
}

/* A shape of up to three sizes is an image's. */
static tsri_data_sizes sizes_of(tsr_dims shape, int64_t classes, int64_t count)
{
    tsri_data_sizes s = {1, 1, 1, classes, count, .row = shape};
    int64_t *chw[3] = {&s.channels, &s.height, &s.width};
    for (int i = 0; i < shape.ndim && shape.ndim <= 3; i++)
        *chw[3 - shape.ndim + i] = shape.d[i];
    if (shape.ndim <= 3)
        s.row = TSR_DIMS(s.channels, s.height, s.width);
    return s;
}

tsri_data_sizes tsri_config_data_sizes(const tsri_config_data *d)
{
    switch (d->head.variant) {
    case TSRI_DATA_CIFAR10:
        return sizes_of(TSR_DIMS(3, 32, 32), 10, 50000);
    case TSRI_DATA_MNIST:
        return sizes_of(TSR_DIMS(1, 28, 28), 10, 60000);
    case TSRI_DATA_TEXT:
        return (tsri_data_sizes){1, 1, d->context, d->vocab, 0, .row = TSR_DIMS(d->context)};
    default:
        return sizes_of(d->shape, d->classes, d->samples);
    }
}

int64_t tsri_data_test_rows(const tsri_config_data *d, int64_t count)
{
    if (d->head.variant == TSRI_DATA_SYNTHETIC)
        return d->test_samples;
    const int64_t tests = (int64_t)((double)count * d->test_part);
    return d->test_part > 0 && tests < 1 ? 1 : tests;
}

static tsr_dims rows_of(int64_t rows, tsr_dims row)
{
    tsr_dims all = {.ndim = row.ndim + 1, .d = {rows}};
    memcpy(all.d + 1, row.d, (size_t)row.ndim * sizeof *row.d);
    return all;
}

/* A row as the model takes it: own layers take it as it is said, without an image's sizes. */
static tsr_dims row_of(const tsri_experiment *e)
{
    const tsri_config_data *d = &e->data;
    const int model = e->model.head.variant;
    const bool own = tsri_yaml_find(e->head.node, "model") &&
                     (model == TSRI_MODEL_LAYERS || model == TSRI_MODEL_PLUGIN);
    const bool says = d->head.variant == TSRI_DATA_SYNTHETIC || d->head.variant == TSRI_DATA_NPY;
    return own && says && d->shape.ndim ? d->shape : tsri_config_data_sizes(d).row;
}

tsri_data_input tsri_config_data_input(const tsri_experiment *e, bool is_label, int64_t rows)
{
    const bool is_text = e->data.head.variant == TSRI_DATA_TEXT;
    const tsr_dims all = rows_of(rows, row_of(e));
    return is_label ? (tsri_data_input){TSR_I64, is_text ? all : TSR_DIMS(rows)}
                    : (tsri_data_input){is_text ? TSR_I64 : e->dtype, all};
}

/* --- files ------------------------------------------------------------------------------------ */
static tsr_status fail_at(const tsri_config_data *d, const char *key, tsr_status status)
{
    return tsri_program_fail(tsri_section_node(d, key), status);
}

/* The number of classes that a file of labels or tokens has. */
static tsr_status count_classes(tsri_config_data *d, const char *path_key, const char *path,
                                const char *key, int64_t *out)
{
    int64_t largest;
    if (has(d, key))
        return TSR_OK;
    TSRI_TRY(fail_at(d, path_key, tsri_npy_largest(path, &largest)));
    if (largest < 0 || largest >= INT64_C(1) << 31)
        return tsri_yaml_fail(tsri_section_node(d, path_key),
                              "%s: the largest number is %lld; legal are 0 to 2^31 - 1", path,
                              (long long)largest);
    *out = largest + 1;
    tsri_section_give(&tsri_data_section, d, key);
    return TSR_OK;
}

/* Counts the rows of a text that is there; a run tells what is wrong with it. */
static void count_windows(tsri_config_data *d)
{
    const char *path = d->tokens ? d->tokens : d->file;
    struct stat about;
    tsri_row_set *set;
    if (stat(path, &about) || !S_ISREG(about.st_mode) ||
        tsri_text_set_open(NULL, path, d->tokens != NULL, d->context, d->vocab, &set) != TSR_OK)
        return;
    d->rows = set->count - tsri_data_test_rows(d, set->count);
    tsri_row_set_close(set);
}

static tsr_status check_text(tsri_config_data *d)
{
    if (has(d, "file") == has(d, "tokens"))
        return tsri_yaml_fail_key(d->head.node, has(d, "file")
                                                    ? "both 'file' and 'tokens' are there: give one"
                                                    : "'file' is missing: the text, or 'tokens'");
    if (has(d, "tokens"))
        return count_classes(d, "tokens", d->tokens, "vocab", &d->vocab);
    if (has(d, "vocab") && d->vocab < 256)
        return tsri_yaml_fail(tsri_section_node(d, "vocab"),
                              "%lld; of bytes there are 256, and legal is at least that",
                              (long long)d->vocab);
    if (!has(d, "vocab"))
        d->vocab = 256;
    tsri_section_give(&tsri_data_section, d, "vocab");
    return TSR_OK;
}

/* Rows of the file are of the shape that is said; else they say it. */
static tsr_status take_shape(tsri_config_data *d, const char *key, const tsri_npy *npy)
{
    tsr_dims row = {.ndim = npy->dims.ndim - 1};
    char found[TSRI_DIMS_TEXT_MAX], said[TSRI_DIMS_TEXT_MAX];
    memcpy(row.d, npy->dims.d + 1, (size_t)row.ndim * sizeof *row.d);
    if (!has(d, "shape"))
        d->shape = row;
    tsri_section_give(&tsri_data_section, d, "shape");
    if (tsr_dims_equal(row, d->shape))
        return TSR_OK;
    return tsri_yaml_fail(tsri_section_node(d, key),
                          "its rows are of shape (%s); the shape is (%s)",
                          tsri_dims_format(row, found), tsri_dims_format(d->shape, said));
}

/* Checks a set of two files; an error is at the key of the file that it begins with. */
static tsr_status check_set(const tsri_config_data *d, const char *x_key, const char *y_key,
                            tsri_npy *x, tsri_npy *y)
{
    const bool is_test = !strcmp(x_key, "test_x");
    const char *labels = is_test ? d->test_y : d->y;
    tsr_status status = tsri_npy_set_check(is_test ? d->test_x : d->x, labels, x, y);
    bool of_labels = status != TSR_OK && !strncmp(tsr_last_error(), labels, strlen(labels));
    return fail_at(d, of_labels ? y_key : x_key, status);
}

static tsr_status check_npy(tsri_config_data *d)
{
    tsri_npy x, y;
    const bool has_x = has(d, "test_x"), has_y = has(d, "test_y");
    if (has_x != has_y)
        return tsri_yaml_fail_key(d->head.node, "'%s' is missing beside '%s'",
                                  has_x ? "test_y" : "test_x", has_x ? "test_x" : "test_y");
    if (has_x && has(d, "test_part"))
        return tsri_yaml_fail_key(tsri_section_node(d, "test_part"),
                                  "not beside 'test_x': either is the part for tests");
    if (has(d, "shape") && has(d, "classes") && access(d->x, R_OK))
        return TSR_OK; /* to plan, it is enough; a run tells of the file */
    TSRI_TRY(check_set(d, "x", "y", &x, &y));
    TSRI_TRY(take_shape(d, "x", &x));
    TSRI_TRY(count_classes(d, "y", d->y, "classes", &d->classes));
    d->rows = x.dims.d[0] - tsri_data_test_rows(d, x.dims.d[0]);
    if (!has_x)
        return TSR_OK;
    TSRI_TRY(check_set(d, "test_x", "test_y", &x, &y));
    return take_shape(d, "test_x", &x);
}

/* --- models ----------------------------------------------------------------------------------- */
static tsr_status check_model(const tsri_experiment *e)
{
    const tsri_config_data *d = &e->data;
    const int model = e->model.head.variant;
    const char *name = tsri_model_section.variants[model].name;
    const bool reads_text = model == TSRI_MODEL_GPT || model == TSRI_MODEL_LSTM_LM;
    const bool reads_images = model <= TSRI_MODEL_LENET && model != TSRI_MODEL_MLP;
    const tsri_yaml *node = tsri_section_node(d, "dataset");
    if (d->head.variant == TSRI_DATA_TEXT)
        return model > TSRI_MODEL_LENET
                   ? TSR_OK
                   : tsri_yaml_fail(node, "text is for gpt and lstm_lm; the model is %s", name);
    if (reads_text && !tsri_data_is_images(d))
        return tsri_yaml_fail(node,
                              "%s learns text, or the bytes of images of up to %d channels and 256 "
                              "classes",
                              name, TSRI_MAX_CHANNELS);
    if (tsri_config_data_sizes(d).row.ndim > 3 && reads_images)
        return tsri_yaml_fail(tsri_section_node(d, "shape"),
                              "%d sizes; %s takes images, of (channels, height, width)",
                              d->shape.ndim, name);
    return TSR_OK;
}

tsr_status tsri_check_data(tsri_experiment *e)
{
    tsri_config_data *d = &e->data;
    if (d->head.variant == TSRI_DATA_TEXT) {
        TSRI_TRY(check_text(d));
        count_windows(d);
    }
    if (d->head.variant == TSRI_DATA_NPY)
        TSRI_TRY(check_npy(d));
    if (d->augment && !tsri_data_is_images(d))
        return tsri_yaml_fail(tsri_section_node(d, "augment"),
                              "crops and flips are for images of up to %d channels and 256 classes",
                              TSRI_MAX_CHANNELS);
    return tsri_section_has(&tsri_experiment_section, e, "model") ? check_model(e) : TSR_OK;
}

tsr_status tsri_check_test_part(const tsri_experiment *e)
{
    const tsri_config_data *d = &e->data;
    const bool is_npy = d->head.variant == TSRI_DATA_NPY;
    if ((!is_npy && d->head.variant != TSRI_DATA_TEXT) || has(d, "test_part") || has(d, "test_x"))
        return TSR_OK;
    return tsri_yaml_fail_key(
        tsri_section_node(&e->train, "eval"),
        "the data has no test part: say data.test_part%s, or data: train here",
        is_npy ? ", or test_x and test_y" : "");
}

/* --- micro-batches, in the file's words ------------------------------------------------------- */
static bool is_split(tsr_sbp1 s)
{
    return s.kind == TSR_SBP_SPLIT && s.arg == 0;
}

/* Returns the number of ranks that the rows of an input are split over. A signature that is left
 * to the compiler counts as one. */
static int64_t row_pieces(const tsri_config_placement *p, tsr_sbp sbp)
{
    int64_t pieces = 1;
    for (int d = 0; p && d < sbp.ndim && d < p->ranks.ndim; d++)
        pieces *= is_split(sbp.d[d]) ? p->ranks.dim[d] : 1;
    return pieces;
}

/* Finds the pieces that each micro-batch must have: the least common multiple over the inputs that
 * the loader feeds. 0: it feeds none. */
static int64_t find_pieces(const tsri_experiment *e)
{
    const tsri_config_tensors *t = &e->tensors;
    const tsri_config_op *ops = e->graph.items;
    int64_t all = 0;
    if (tsri_section_has(&tsri_experiment_section, e, "model")) {
        const int64_t x =
            row_pieces(tsri_experiment_placement(e, t->input.placement.name), t->input.sbp);
        const int64_t y =
            row_pieces(tsri_experiment_placement(e, t->label.placement.name), t->label.sbp);
        return tsri_lcm(x, y);
    }
    for (int i = 0; i < e->graph.n; i++) {
        if (tsri_op_rows[ops[i].head.variant].role != TSRI_ROLE_INPUT)
            continue;
        const int64_t pieces = row_pieces(ops[i].where, ops[i].sbp);
        all = all ? tsri_lcm(all, pieces) : pieces;
    }
    return all;
}

int64_t tsri_experiment_rank_rows(const tsri_experiment *e)
{
    const int64_t pieces = e->trains ? find_pieces(e) : 0;
    return pieces > 0 && e->data.batch_size % pieces == 0 ? e->data.batch_size / pieces : 0;
}

static const tsri_yaml *node_of(const tsri_experiment *e)
{
    return tsri_section_node(&e->schedule, "microbatches");
}

static tsr_status check_rows(const tsri_experiment *e, int64_t parts, int64_t pieces)
{
    const int64_t rows = e->data.batch_size;
    char cut[96] = "", fits[96] = "";
    if (rows % (parts * pieces) == 0)
        return TSR_OK;
    if (pieces > 1)
        snprintf(cut, sizeof cut, ", which %lld ranks share,", (long long)pieces);
    if (rows % pieces == 0)
        snprintf(fits, sizeof fits, "legal are the divisors of %lld; ", (long long)(rows / pieces));
    return tsri_yaml_fail(
        node_of(e),
        "found %lld, but a batch of %lld rows%s does not divide into as many equal "
        "parts; %sdata.batch_size could be a multiple of %lld",
        (long long)parts, (long long)rows, cut, fits, (long long)(parts * pieces));
}

/* Batch norm of a list of layers: as check_model_norm. */
static tsr_status check_layer_norms(const tsri_experiment *e, const tsri_items *layers,
                                    int64_t parts, int64_t pieces)
{
    const tsri_config_layer *l = layers->items;
    const int ranks = tsri_experiment_placement(e, e->tensors.input.placement.name)->ranks.n;
    for (int i = 0; i < layers->n; i++, l++) {
        const bool has_parts = tsri_section_has(&tsri_layer_section, l, "parts");
        const int64_t r = has_parts ? l->op.parts : ranks;
        TSRI_TRY(check_layer_norms(e, &l->layers, parts, pieces));
        TSRI_TRY(check_layer_norms(e, &l->shortcut, parts, pieces));
        if (strcmp(tsri_layer_section.variants[l->op.head.variant].name, "batch_norm") != 0 ||
            (l->op.stats == TSR_BN_LOCAL && r % (parts * pieces) == 0))
            continue;
        if (l->op.stats == TSR_BN_LOCAL)
            return tsri_yaml_fail(l->op.head.node,
                                  "its parts are %lld%s, but schedule.microbatches is %lld: each "
                                  "lies in one micro-batch on one rank; legal are multiples of "
                                  "%lld",
                                  (long long)r, has_parts ? "" : " by default", (long long)parts,
                                  (long long)(parts * pieces));
        return tsri_yaml_fail(l->op.head.node,
                              "its statistics are those of the global batch, but "
                              "schedule.microbatches is %lld, and they are known only after the "
                              "last part; legal is stats: local with parts: %lld or a multiple of "
                              "it",
                              (long long)parts, (long long)(parts * pieces));
    }
    return TSR_OK;
}

static tsr_status check_layers(const tsri_experiment *e, int64_t parts, int64_t pieces)
{
    const tsri_config_part *part = e->model.parts.items;
    for (int i = 0; i < e->model.parts.n && parts > 1; i++)
        TSRI_TRY(check_layer_norms(e, &part[i].layers, parts, pieces));
    return parts > 1 ? check_layer_norms(e, &e->model.layers, parts, pieces) : TSR_OK;
}

/* Checks that batch norm's statistics depend on one micro-batch only, as its rows need them. */
static tsr_status check_model_norm(const tsri_experiment *e, int64_t parts, int64_t pieces)
{
    const tsri_config_args *a = &e->model.args;
    const tsri_section *s = tsri_args_section(&e->model);
    const int64_t multiple = parts * pieces;
    if (!tsri_section_field(s, "bn"))
        return TSR_OK;
    const bool has_parts = tsri_section_has(s, a, "bn_parts");
    if (has_parts && a->bn != TSR_BN_LOCAL)
        return tsri_yaml_fail_key(tsri_section_node(a, "bn_parts"), "'bn: local' is missing");
    if (parts == 1)
        return TSR_OK;
    if (a->bn != TSR_BN_LOCAL)
        return tsri_yaml_fail(node_of(e),
                              "found %lld, but model.args.bn is global: statistics of the whole "
                              "batch are known only after its last part; legal is 1, or bn: local "
                              "with bn_parts: %lld or a multiple of it",
                              (long long)parts, (long long)multiple);
    const int stages = e->stages.n ? e->stages.n : 1; /* the model's ranks are those of one */
    const int64_t r =
        has_parts ? a->bn_parts
                  : tsri_experiment_placement(e, e->tensors.input.placement.name)->ranks.n / stages;
    if (r % multiple == 0)
        return TSR_OK;
    return tsri_yaml_fail(node_of(e),
                          "found %lld, but model.args.bn_parts is %lld%s: each part of the batch "
                          "with its own statistics lies in one micro-batch on one rank; legal are "
                          "multiples of %lld for bn_parts",
                          (long long)parts, (long long)r, has_parts ? "" : " by default",
                          (long long)multiple);
}

tsr_status tsri_check_schedule(const tsri_experiment *e)
{
    const int64_t parts = tsri_experiment_microbatches(e);
    const bool has_model = tsri_section_has(&tsri_experiment_section, e, "model");
    const int64_t pieces = find_pieces(e);
    if (parts > 1 && !(pieces && tsri_section_has(&tsri_experiment_section, e, "data")))
        return tsri_yaml_fail(node_of(e),
                              "found %lld, but no entry of the graph is of op input, whose rows "
                              "are cut; legal is 1",
                              (long long)parts);
    if (parts > 1)
        TSRI_TRY(check_rows(e, parts, pieces));
    if (!has_model)
        return TSR_OK;
    TSRI_TRY(check_layers(e, parts, pieces));
    return check_model_norm(e, parts, pieces);
}
