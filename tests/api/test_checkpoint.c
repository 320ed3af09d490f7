/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of checkpoints beside modules and optimizers, and what does not fit; runs that go on are
 * tests/models/checkpoints.py's. */
#include <unistd.h>

#include "rank.h"

enum { SAMPLES = 48, BATCH = 12 };

static char folder[64];

/* Whether a call gives this status, with these words in its text. */
static bool fails(tsr_status got, tsr_status want, const char *words)
{
    if (got == want && strstr(tsr_last_error(), words))
        return true;
    fprintf(stderr, "%s, '%s'; expected %s, '%s'\n", tsr_status_name(got), tsr_last_error(),
            tsr_status_name(want), words);
    return false;
}

static void run_on(int ranks, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn(ranks, fn, arg);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", ranks, tsr_status_name(status), tsr_last_error());
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tessera_checkpoint_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* --- where data stands ------------------------------------------------------------------------ */
static int64_t count(void *arg)
{
    (void)arg;
    return SAMPLES;
}

static tsr_status get(void *arg, int64_t index, void *const *out_fields, const tsr_worker *worker)
{
    (void)arg, (void)worker;
    memcpy(out_fields[0], &index, sizeof index);
    return TSR_OK;
}

typedef struct stand {
    tsr_generator *generator;
    tsr_sampler *drawn, *shared;
    tsr_batch_sampler *batches;
    tsr_loader *loader;
    tsr_checkpoint *c;
} stand;

static tsr_status make_stand(tsr_world *w, stand *s)
{
    tsr_sampler *below;
    const int n = tsr_world_size(w);
    TRY(tsr_generator_create(w, 3 + (uint64_t)tsr_world_rank(w), &s->generator));
    TRY(tsr_random_sampler(w, SAMPLES, TSR_RANDOM_SAMPLER_OPTS(.generator = s->generator),
                           &s->drawn));
    TRY(tsr_random_sampler(w, SAMPLES, TSR_RANDOM_SAMPLER_OPTS(.seed = 5), &below));
    TRY(tsr_batch_sampler_create(w, below, 7, false, &s->batches));
    TRY(tsr_distributed_sampler(w, SAMPLES, TSR_DISTRIBUTED_SAMPLER_OPTS(.seed = 6), &s->shared));
    TRY(tsr_map_loader_create(w, TSR_MAP_DATASET(.len = count, .get = get),
                              TSR_MAP_LOADER_OPTS(.sample_bytes = 8, .batch_size = BATCH / n,
                                                  .sampler = s->shared, .num_workers = 1),
                              &s->loader));
    TRY(tsr_checkpoint_create(w, folder, NULL, &s->c));
    return tsr_checkpoint_add_loader(s->c, "loader", s->loader);
}

static tsr_status add_all(stand *s)
{
    TRY(tsr_checkpoint_add_generator(s->c, "generator", s->generator));
    TRY(tsr_checkpoint_add_sampler(s->c, "drawn", s->drawn));
    return tsr_checkpoint_add_batch_sampler(s->c, "batches", s->batches);
}

/* What comes next from each: one number of each, by what is drawn. */
static tsr_status next_of(stand *s, int64_t out[4])
{
    const tsr_batch *batch;
    const int64_t *indices;
    int64_t rows;
    TRY(tsr_sampler_next(s->drawn, &out[0]));
    TRY(tsr_batch_sampler_next(s->batches, &indices, &rows));
    out[1] = indices[0];
    TRY(tsr_loader_next(s->loader, &batch));
    out[2] = *(const int64_t *)batch->data[0];
    out[3] = tsr_generator_random(s->generator);
    return TSR_OK;
}

static tsr_status stands(tsr_world *w, void *arg)
{
    (void)arg;
    stand s = {0}, other = {0};
    int64_t want[3][4], got[4], step;
    const tsr_batch *batch;
    TRY(make_stand(w, &s));
    TRY(add_all(&s));
    for (int i = 0; i < 3; i++)
        TRY(next_of(&s, got));
    TRY(tsr_checkpoint_save(s.c, 3, NAN));
    for (int i = 0; i < 3; i++) /* into the next epoch */
        if (i < 1)
            TRY(next_of(&s, want[i]));
    tsr_checkpoint_destroy(s.c);
    TRY(make_stand(w, &other));
    TRY(add_all(&other));
    TRY(tsr_loader_next(other.loader, &batch));
    TRY(tsr_checkpoint_load(other.c, NULL, &step));
    CHECK(step == 3);
    TRY(next_of(&other, got));
    for (int k = 0; k < 4; k++)
        CHECK(got[k] == want[0][k]);
    CHECK(tsr_loader_next(other.loader, &batch) == TSR_END); /* four batches an epoch */
    tsr_checkpoint_destroy(other.c);
    return TSR_OK;
}

static void test_stands(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        run_on(n, stands, NULL);
}

/* The indices of a global batch, as a mask. */
typedef struct seen {
    uint64_t mask[3];
    int batches;
    bool loads;
} seen;

static tsr_status moves(tsr_world *w, void *arg)
{
    seen *all = arg;
    stand s = {0};
    int64_t step;
    const tsr_batch *batch;
    TRY(make_stand(w, &s));
    if (all->loads)
        TRY(tsr_checkpoint_load(s.c, NULL, &step));
    for (int i = 0; i < all->batches; i++)
        TRY(tsr_loader_next(s.loader, &batch));
    if (!all->loads)
        TRY(tsr_checkpoint_save(s.c, 1, NAN));
    TRY(tsr_loader_next(s.loader, &batch));
    for (int64_t i = 0; i < batch->rows; i++)
        all->mask[tsr_world_rank(w)] |= UINT64_C(1) << batch->indices[i];
    return TSR_OK;
}

static uint64_t joined(const seen *s)
{
    return s->mask[0] | s->mask[1] | s->mask[2];
}

/* On another number of ranks a global batch is of the same samples. */
static void test_moves(void **state)
{
    (void)state;
    for (int batches = 0; batches < 4; batches++) {
        seen before = {.batches = batches}, same = {.loads = true}, more = {.loads = true},
             one = {.loads = true};
        run_on(2, moves, &before);
        run_on(2, moves, &same);
        run_on(3, moves, &more);
        run_on(1, moves, &one);
        assert_int_equal(__builtin_popcountll(joined(&before)), BATCH);
        assert_true(joined(&same) == joined(&before) && joined(&more) == joined(&before));
        assert_true(joined(&one) == joined(&before));
    }
}

static tsr_status draws(tsr_world *w, void *arg)
{
    const bool *loads = arg;
    stand s = {0};
    int64_t step;
    TRY(make_stand(w, &s));
    TRY(add_all(&s));
    if (!*loads)
        return tsr_checkpoint_save(s.c, 1, NAN);
    CHECK(fails(tsr_checkpoint_load(s.c, NULL, &step), TSR_ERR_INVALID,
                "differs between the 2 ranks that saved it"));
    return TSR_OK;
}

static void test_own(void **state)
{
    (void)state;
    bool loads = false;
    run_on(2, draws, &loads);
    loads = true;
    run_on(3, draws, &loads);
}

/* --- another shape in files ------------------------------------------------------------------- */
/* A parameter (2,3,4) that is (2,12) in files, and (24) where `wrong`. */
typedef struct packed {
    bool saves, one_file, wrong;
    tsr_sbp sbp;
} packed;

static tsr_status save_packed(tsr_world *w, void *arg)
{
    const packed *p = arg;
    char file[128];
    tsr_checkpoint *c;
    int64_t step;
    float x[24], got[24];
    const tsr_placement *place = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = place, .sbp = p->sbp};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_variable *v = tsr_module_param(m, "v", TSR_DIMS(2, 3, 4), p->sbp, (tsr_init){0});
    CHECK(fails(tsr_variable_save_as(v, TSR_DIMS(5, 5)), TSR_ERR_SHAPE,
                "v has shape (2,3,4); it cannot be saved as (5,5)"));
    TRY(tsr_variable_save_as(v, p->wrong ? TSR_DIMS(24) : TSR_DIMS(2, 12)));
    tsr_optimizer *o = tsr_sgd(m, TSR_SGD_OPTS(.lr = 1, .momentum = 0.9));
    tsr_variable *state = tsr_optimizer_state(o, v, "momentum_buffer");
    TRY(tsr_checkpoint_create(w, folder, TSR_CHECKPOINT_OPTS(.one_file = p->one_file), &c));
    TRY(tsr_checkpoint_add_module(c, "m", m));
    TRY(tsr_checkpoint_add_optimizer(c, "o", o));
    for (int i = 0; i < 24; i++)
        x[i] = (float)i + 1;
    snprintf(file, sizeof file, "%s/w.safetensors", folder);
    if (p->saves) {
        TRY(tsr_variable_set(v, x, sizeof x));
        TRY(tsr_variable_set(state, x, sizeof x));
        TRY(tsr_save(m, file));
        return tsr_checkpoint_save(c, 1, NAN);
    }
    if (p->wrong) {
        CHECK(fails(tsr_load(m, file, NULL), TSR_ERR_SHAPE,
                    "'v' has shape (2,12) in the file, (24) in the module"));
        return TSR_OK;
    }
    TRY(tsr_load(m, file, NULL));
    TRY(tsr_variable_get(v, got, sizeof got));
    CHECK(!memcmp(got, x, sizeof x));
    memset(got, 0, sizeof got);
    TRY(tsr_variable_set(v, got, sizeof got));
    TRY(tsr_checkpoint_load(c, NULL, &step));
    TRY(tsr_variable_get(v, got, sizeof got));
    CHECK(!memcmp(got, x, sizeof x));
    memset(got, 0, sizeof got);
    TRY(tsr_variable_get(state, got, sizeof got));
    CHECK(!memcmp(got, x, sizeof x));
    return TSR_OK;
}

static tsr_module *net(tsr_world *w, int64_t hidden, tsr_dtype dtype)
{
    return tsr_mlp(w, tsr_placement_parse(w, "cpu"), TSR_S(0),
                   TSR_MLP_OPTS(.inputs = 3, .hidden = hidden, .outputs = 2, .dtype = dtype));
}

/* A program that trains saves; one that compiles nothing loads that, and saves it again. */
static tsr_status save_again(tsr_world *w, void *arg)
{
    const bool *trains = arg;
    tsr_checkpoint *c;
    tsr_module *m = net(w, 4, TSR_F32);
    tsr_optimizer *o = tsr_sgd(m, NULL);
    TRY(tsr_checkpoint_create(w, folder, TSR_CHECKPOINT_OPTS(.one_file = true), &c));
    TRY(tsr_checkpoint_add_module(c, "m", m));
    TRY(tsr_checkpoint_add_optimizer(c, "o", o));
    if (*trains) {
        const tsr_placement *p = tsr_placement_parse(w, "cpu");
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(6, 3), p, TSR_S(0), 1);
        tsr_tensor *loss = tsr_mean(tsr_apply(m, x), TSR_ALL_AXES, false);
        tsr_minimize_with(o, 1, &loss, TSR_MINIMIZE_OPTS(.accumulate = 3));
        tsr_plan *plan;
        TRY(tsr_compile(g, &plan));
    } else {
        TRY(tsr_checkpoint_load(c, NULL, NULL));
    }
    return tsr_checkpoint_save(c, *trains ? 1 : 2, NAN);
}

/* Whether a file of the folder, or of its checkpoint, has a text. */
static bool file_says(const char *name, const char *text)
{
    char command[300];
    snprintf(command, sizeof command, "cat %s/%s | grep -qaF '%s'", folder, name, text);
    return system(command) == 0;
}

static void test_saved_again(void **state)
{
    (void)state;
    for (int trains = 1; trains >= 0; trains--)
        run_on(2, save_again, &(bool){trains});
    assert_true(file_says("step-00000001/shard*", "accumulate 3"));
    assert_true(file_says("step-00000002/shard*", "accumulate 3"));
}

/* In files of whole values the shape is the one that is said, in all signatures. */
static void test_saved_as(void **state)
{
    (void)state;
    const tsr_sbp ways[] = {TSR_B, TSR_S(0), TSR_S(1), TSR_S(2)};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4 * 2; j++) {
            packed p = {.saves = true, .one_file = j & 1, .sbp = ways[i]};
            const bool whole = i == 0 || p.one_file;
            run_on(2, save_packed, &p);
            assert_true(file_says("w.safetensors", "\"shape\":[2,12]"));
            assert_true(file_says("*/index.json", "\"m/v\":{\"dtype\":\"F32\",\"shape\":[2,12]") ==
                        whole);
            assert_true(file_says("*/index.json", "\"saved\":[2,12]") == !whole);
            p.saves = false;
            p.sbp = ways[j / 2];
            run_on(1 + (i + j) % 3, save_packed, &p);
            p.wrong = true;
            run_on(1, save_packed, &p);
        }
}

/* --- modules of a rank's own ------------------------------------------------------------------ */
typedef struct local {
    bool loads, differs, one_file;
} local;

static tsr_status own_module(tsr_world *w, void *arg)
{
    const local *l = arg;
    tsr_checkpoint *c;
    int64_t step;
    float x[4] = {1, 2, 3, 4}, got[4];
    const tsr_nn_opts nn = {.placement = tsr_local_placement(w), .sbp = TSR_B};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_variable *v = tsr_module_param(m, "v", TSR_DIMS(2, 2), TSR_B, (tsr_init){0});
    TRY(tsr_module_set_local(m));
    TRY(tsr_checkpoint_create(w, folder, TSR_CHECKPOINT_OPTS(.one_file = l->one_file), &c));
    TRY(tsr_checkpoint_add_module(c, "m", m));
    x[0] += (float)tsr_world_rank(w) * (float)l->differs;
    if (!l->loads) {
        TRY(tsr_variable_set(v, x, sizeof x));
        if (l->one_file && l->differs) {
            CHECK(
                fails(tsr_checkpoint_save(c, 1, NAN), TSR_ERR_STATE, "differs from rank to rank"));
            return TSR_OK;
        }
        return tsr_checkpoint_save(c, 1, NAN);
    }
    const bool fits = !l->differs || tsr_world_size(w) == 2;
    tsr_status status = tsr_checkpoint_load(c, NULL, &step);
    if (!fits) {
        CHECK(fails(status, TSR_ERR_INVALID, "differs between the 2 ranks"));
        return TSR_OK;
    }
    TRY(status);
    TRY(tsr_variable_get(v, got, sizeof got));
    CHECK(!memcmp(got, x, sizeof x));
    return TSR_OK;
}

static void test_own_modules(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        local l = {.differs = i & 1, .one_file = i & 2};
        run_on(2, own_module, &l);
        if (l.differs && l.one_file)
            continue;
        l.loads = true;
        for (int n = 1; n <= 3; n++)
            run_on(n, own_module, &l);
    }
}

/* --- what does not fit ------------------------------------------------------------------------ */
static tsr_status save_net(tsr_world *w)
{
    tsr_checkpoint *c;
    tsr_module *m = net(w, 4, TSR_F32);
    static int64_t number = 5;
    TRY(tsr_checkpoint_create(w, folder, NULL, &c));
    TRY(tsr_checkpoint_add_module(c, "model", m));
    TRY(tsr_checkpoint_add_optimizer(c, "optimizer", tsr_adam(m, NULL)));
    TRY(tsr_checkpoint_add_bytes(c, "number", &number, sizeof number));
    TRY(tsr_checkpoint_save(c, 1, NAN));
    tsr_checkpoint_destroy(c);
    return TSR_OK;
}

/* Loads into these parts; NULL: none of that kind. */
static tsr_status load_into(tsr_world *w, tsr_module *m, tsr_optimizer *o, bool partial)
{
    tsr_checkpoint *c;
    int64_t step;
    TRY(tsr_checkpoint_create(w, folder, NULL, &c));
    if (m)
        TRY(tsr_checkpoint_add_module(c, "model", m));
    if (o)
        TRY(tsr_checkpoint_add_optimizer(c, "optimizer", o));
    tsr_status status = tsr_checkpoint_load(c, TSR_CHECKPOINT_LOAD_OPTS(.partial = partial), &step);
    tsr_checkpoint_destroy(c);
    return status;
}

static tsr_status does_not_fit(tsr_world *w, void *arg)
{
    (void)arg;
    float before[12], after[12];
    TRY(save_net(w));
    tsr_module *wide = net(w, 5, TSR_F32), *same = net(w, 4, TSR_F32),
               *double_net = net(w, 4, TSR_F64);
    CHECK(fails(load_into(w, wide, NULL, false), TSR_ERR_SHAPE, "(4,3) in the checkpoint"));
    TRY(tsr_variable_get(tsr_module_find(same, "0.weight"), before, sizeof before));
    CHECK(fails(load_into(w, same, tsr_adamw(same, NULL), false), TSR_ERR_INVALID,
                "it is of tsr_adam, this optimizer of tsr_adamw"));
    TRY(tsr_variable_get(tsr_module_find(same, "0.weight"), after, sizeof after));
    CHECK(!memcmp(before, after, sizeof before));
    CHECK(fails(load_into(w, same, tsr_sgd(same, TSR_SGD_OPTS(.momentum = 0.9)), false),
                TSR_ERR_INVALID, "it has no 'optimizer/0.weight.momentum_buffer'"));
    tsr_optimizer *grouped = tsr_adam(same, NULL);
    TRY(tsr_optimizer_param_group(grouped, "*.bias", TSR_PARAM_GROUP_OPTS(.lr = 1)));
    CHECK(fails(load_into(w, same, grouped, false), TSR_ERR_STATE, "0 groups of parameters"));
    TRY(load_into(w, double_net, NULL, false)); /* floating point converts */
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B};
    tsr_module *few = tsr_nn_sequential(w, &nn);
    tsr_module_add(few, "0", tsr_nn_linear(w, &nn, 3, 4, true));
    CHECK(fails(load_into(w, few, NULL, false), TSR_ERR_INVALID, "'model/2.bias', which 'model'"));
    TRY(load_into(w, few, NULL, true));
    TRY(tsr_variable_get(tsr_module_find(few, "0.weight"), after, sizeof after));
    TRY(load_into(w, same, tsr_adam(same, NULL), false));
    TRY(tsr_variable_get(tsr_module_find(same, "0.weight"), before, sizeof before));
    CHECK(!memcmp(before, after, sizeof before));
    return TSR_OK;
}

static void test_does_not_fit(void **state)
{
    (void)state;
    on_ranks(does_not_fit, NULL);
}

/* As a PyTorch program does, rank 0 alone saves. */
static tsr_status saves_alone(tsr_world *w, void *arg)
{
    static int64_t number = 5;
    tsr_checkpoint *c;
    (void)arg;
    TRY(tsr_checkpoint_create(w, folder, NULL, &c));
    TRY(tsr_checkpoint_add_bytes(c, "number", &number, sizeof number));
    CHECK(tsr_world_rank(w) == 1 ||
          fails(tsr_checkpoint_save(c, 7, NAN), TSR_ERR_DEAD,
                "tsr_checkpoint_save, which all ranks call: rank 1 has left"));
    return TSR_OK;
}

static void test_saves_alone(void **state)
{
    (void)state;
    run_on(2, saves_alone, NULL);
}

static tsr_status refuses(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_checkpoint *c;
    int64_t step = 9;
    char data[4] = "abc", empty[1] = "";
    CHECK(fails(tsr_checkpoint_create(w, "", NULL, &c), TSR_ERR_INVALID, "the folder is empty"));
    TRY(tsr_checkpoint_create(w, folder, NULL, &c));
    TRY(tsr_checkpoint_load(c, NULL, &step));
    CHECK(step == -1); /* there is none */
    CHECK(fails(tsr_checkpoint_load(c, TSR_CHECKPOINT_LOAD_OPTS(.path = "/nowhere"), &step),
                TSR_ERR_IO, "/nowhere/index.json: can't open"));
    CHECK(fails(tsr_checkpoint_add_bytes(c, "a/b", data, 4), TSR_ERR_INVALID, "without '/'"));
    CHECK(fails(tsr_checkpoint_add_bytes(c, "\xff\xfe", data, 4), TSR_ERR_INVALID, "of UTF-8"));
    TRY(tsr_checkpoint_add_bytes(c, "a", data, 4));
    TRY(tsr_checkpoint_add_bytes(c, "b", empty, 0));
    CHECK(fails(tsr_checkpoint_add_bytes(c, "a", data, 4), TSR_ERR_INVALID, "'a' already"));
    CHECK(fails(tsr_checkpoint_save(c, -1, NAN), TSR_ERR_INVALID, "step -1"));
    TRY(tsr_checkpoint_save(c, 0, NAN));
    memset(data, 0, sizeof data);
    TRY(tsr_checkpoint_load(c, NULL, &step));
    CHECK(step == 0 && !strcmp(data, "abc"));
    TRY(tsr_checkpoint_remove(c, "a"));
    TRY(tsr_checkpoint_remove(c, "b"));
    TRY(tsr_checkpoint_save(c, 1, NAN)); /* of nothing */
    TRY(tsr_checkpoint_load(c, NULL, &step));
    CHECK(step == 1);
    if (tsr_world_size(w) > 1) {
        if (tsr_world_rank(w) == 1)
            TRY(tsr_checkpoint_add_bytes(c, "mine", data, 4));
        CHECK(fails(tsr_checkpoint_save(c, 2, NAN), TSR_ERR_MISMATCH, "rank 1 saves other parts"));
        CHECK(fails(tsr_checkpoint_save(c, 2 + tsr_world_rank(w), NAN), TSR_ERR_MISMATCH,
                    "rank 1 saves step 3, rank 0 step 2"));
    }
    tsr_checkpoint_destroy(c);
    return TSR_OK;
}

static void test_refuses(void **state)
{
    for (int n = 1; n <= 3; n++) {
        run_on(n, refuses, NULL);
        assert_int_equal(remove_folder(state), 0);
        assert_int_equal(make_folder(state), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stands, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_moves, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_own, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_saved_again, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_saved_as, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_own_modules, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_does_not_fit, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_saves_alone, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refuses, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
