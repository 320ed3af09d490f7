/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints with true sums whose index has pieces that do not make up a tensor: every command and
 * the library refuse them, before they read one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <tessera/tessera.h>

#include "src/cli/ckpt/ckpt.h"

#define ID "0123456789abcdef0123456789abcdef"
enum { MOST = 4, ELEMENTS = 200000 };

typedef struct piece_case {
    bool own, fits;
    tsr_dims dims;
    int n;
    tsri_ckpt_piece pieces[MOST];
} piece_case;

#define PIECE(f, d, ...)             \
    {                                \
        f, {__VA_ARGS__}, TSR_DIMS d \
    }

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tessera_pieces_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Writes a checkpoint of one tensor "m/v" and its shards, which hold what the index says. */
static void write_case(const piece_case *c, const char *step)
{
    static float data[ELEMENTS];
    tsri_ckpt_piece pieces[MOST];
    tsri_ckpt_tensor t = {
        "m/v",  TSR_F32, c->dims, c->dims, c->own ? "" : "cpu", c->own ? "" : "S(0)",
        c->own, c->n,    pieces};
    tsri_ckpt_index index = {.id = ID,
                             .time = "t",
                             .step = 1,
                             .metric = 0,
                             .nfiles = MOST,
                             .nranks = MOST,
                             .ntensors = 1,
                             .tensors = &t};
    memcpy(pieces, c->pieces, sizeof pieces);
    for (int64_t i = 0; i < ELEMENTS; i++)
        data[i] = (float)i;
    assert_int_equal(mkdir(step, 0755), 0);
    for (int f = 0; f < MOST; f++) {
        char name[TSRI_CKPT_FILE_NAME], path[256], own[64];
        tsri_ckpt_source sources[1];
        int n = 0;
        for (int i = 0; i < c->n && !n; i++)
            if (pieces[i].file == f) {
                tsri_ckpt_own_name("m/v", i, own, sizeof own);
                sources[n++] = (tsri_ckpt_source){c->own && c->n > 1 ? own : "m/v", TSR_F32,
                                                  pieces[i].dims, data};
            }
        tsri_ckpt_file_name(name, f, MOST);
        snprintf(path, sizeof path, "%s/%s", step, name);
        assert_int_equal(tsri_ckpt_shard_write(NULL, path, ID, n, sources), TSR_OK);
    }
    assert_int_equal(tsri_ckpt_index_write(&index, step), TSR_OK);
}

typedef struct loading {
    const char *step;
    const piece_case *c;
} loading;

static tsr_status load(tsr_world *w, void *arg)
{
    const loading *l = arg;
    tsr_checkpoint *c;
    const tsr_nn_opts nn = {.placement = tsr_local_placement(w), .sbp = TSR_B};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_module_param(m, "v", l->c->dims, TSR_B, (tsr_init){0});
    if (l->c->own)
        TSR_TRY(tsr_module_set_local(m));
    TSR_TRY(tsr_checkpoint_create(w, "unused", NULL, &c));
    TSR_TRY(tsr_checkpoint_add_module(c, "m", m));
    return tsr_checkpoint_load(c, TSR_CHECKPOINT_LOAD_OPTS(.path = l->step), NULL);
}

/* All ways that read a checkpoint. */
static void try_case(const piece_case *c, int number)
{
    char step[128], out[160], *paths[] = {step};
    snprintf(step, sizeof step, "%s/case%d", folder, number);
    snprintf(out, sizeof out, "%s.out", step);
    write_case(c, step);
    loading l = {step, c};
    const tsr_status want = c->fits ? TSR_OK : TSR_ERR_FORMAT;
    const int code = c->fits ? CLI_OK : CLI_FAILED;
    const bool one = c->n == 1 || !c->own; /* else as many ranks would have to load it */
    if (!c->fits || one)
        assert_int_equal(tsr_spawn(1, load, &l), want);
    if (!c->fits)
        assert_non_null(strstr(tsr_last_error(), "index.json: tensor 'm/v': "));
    assert_int_equal(ckpt_verify(1, paths), code);
    assert_int_equal(ckpt_convert(step, out, NULL, TSR_DTYPE_NONE), code);
    assert_int_equal(ckpt_convert(step, out, NULL, TSR_F16), code);
    assert_int_equal(ckpt_compare(step, step, NULL, 0), code);
}

static void test_pieces(void **state)
{
    (void)state;
    const piece_case cases[] = {
        {.own = true, .dims = TSR_DIMS(4), .n = 1, .pieces = {PIECE(0, (ELEMENTS), 0)}},
        {.own = true, .dims = TSR_DIMS(4), .n = 1, .pieces = {PIECE(0, (2), 0)}},
        {.own = true, .dims = TSR_DIMS(4), .n = 1, .pieces = {PIECE(0, (4), 1)}},
        {.own = true,
         .dims = TSR_DIMS(4),
         .n = 4,
         .pieces = {PIECE(0, (4), 0), PIECE(1, (4), 0), PIECE(2, (9), 0), PIECE(3, (4), 0)}},
        {.own = true, .dims = TSR_DIMS(2, 2), .n = 1, .pieces = {PIECE(0, (1, 4), 0)}},
        {.dims = TSR_DIMS(8), .n = 2, .pieces = {PIECE(0, (4), 0), PIECE(1, (4), 0)}},
        {.dims = TSR_DIMS(8), .n = 2, .pieces = {PIECE(0, (4), 0), PIECE(0, (4), 4)}},
        {.dims = TSR_DIMS(8), .n = 2, .pieces = {PIECE(0, (3), 0), PIECE(1, (5), 2)}},
        {.dims = TSR_DIMS(8), .n = 2, .pieces = {PIECE(0, (4), 0), PIECE(1, (4), 5)}},
        {.dims = TSR_DIMS(8), .n = 1, .pieces = {PIECE(0, (4), 0)}},
        {.dims = TSR_DIMS(4, 4),
         .n = 4,
         .pieces = {PIECE(0, (2, 2), 0, 0), PIECE(1, (2, 2), 0, 2), PIECE(2, (2, 2), 2, 0),
                    PIECE(3, (2, 2), 2, 1)}},
        {.dims = TSR_DIMS(4),
         .n = 3,
         .pieces = {PIECE(0, (2), 0), PIECE(1, (0), 2), PIECE(2, (2), 2)}},
        {.fits = true, .own = true, .dims = TSR_DIMS(4), .n = 1, .pieces = {PIECE(2, (4), 0)}},
        {.fits = true,
         .own = true,
         .dims = TSR_DIMS(4),
         .n = 4,
         .pieces = {PIECE(0, (4), 0), PIECE(1, (4), 0), PIECE(2, (4), 0), PIECE(3, (4), 0)}},
        {.fits = true, .dims = TSR_DIMS(8), .n = 2, .pieces = {PIECE(1, (3), 5), PIECE(0, (5), 0)}},
        {.fits = true,
         .dims = TSR_DIMS(4, 3),
         .n = 4,
         .pieces = {PIECE(0, (3, 2), 0, 0), PIECE(1, (1, 2), 3, 0), PIECE(2, (3, 1), 0, 2),
                    PIECE(3, (1, 1), 3, 2)}},
        {.fits = true, .dims = {0}, .n = 1, .pieces = {{.file = 3}}},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        try_case(&cases[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pieces, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
