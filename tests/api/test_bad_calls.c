/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No public call crashes or hangs on bad arguments, and errors have texts of their own. The table,
 * which bad_calls.py writes from the headers, has a row for each function, parameter and bad value,
 * and one for each function with everything good, which must succeed. Each row runs in a child,
 * which is forked when all good objects are there.
 */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/tessera.h>

typedef struct row {
    const char *function;
    void (*call)(int p, int v);
    int p, v; /* which parameter, which of its bad values; p -1: all good */
    const char *parameter, *value;
} row;

/* A child writes here why its row failed; "" if it passed. */
static struct result {
    char text[1024];
} * result;
static const row *running;

enum { ROW_SECONDS = 4 };
static const char marker[] = "an error of long ago";
static char long_text[20001];

/* --- good objects ----------------------------------------------------------------------------- */
static float numbers[4096];
static double doubles[64];
static int64_t integers[4096];
static const int places[4] = {0}, ones[4] = {1, 1, 1, 1};
static char text[4096];
static unsigned char bytes[8192];

static struct fixture {
    tsr_world *world, *virtual_world;
    const tsr_placement *placement;
    tsr_graph *graph, *local_graph;
    tsr_tensor *x, *loss, *wloss, *image, *kernel, *c4, *c6, *w, *ids, *cond, *tensor;
    tsr_tensor *signal, *signal_kernel, *volume, *volume_kernel;
    tsr_tensor *local_x, *local_loss;
    tsr_module *module, *child, *fresh_module, *linear, *local_module, *bn_module;
    tsr_variable *variable, *local_variable;
    tsr_optimizer *optimizer, *local_optimizer;
    tsr_grad_scaler *grad_scaler;
    tsr_plan *plan, *loader_plan, *ddp_plan;
    tsr_graph *trained; /* has a gradient of variable */
    tsr_store *store;
    tsr_group *group;
    tsr_dataset *dataset;
    tsr_loader *loader;
    tsr_sampler *sampler;
    tsr_batch_sampler *batch_sampler;
    tsr_generator *generator;
    tsr_safetensors *safetensors;
    tsr_checkpoint *checkpoint;
    tsr_op *op;
    tsr_program *program;
    char safetensors_path[64];
    tsr_ddp *ddp;
    tsr_work *work;
    tsr_worker *worker;
    tsr_batch_out *batch_out;
    void *memory;
    char folder[32], mnist[64], new_folder[64], weights[64], saved[64], url[160];
    size_t x_bytes, weight_bytes;
    unsigned char generator_state[TSR_GENERATOR_STATE_BYTES];
    tsr_sampler_state sampler_state, batch_sampler_state;
    tsr_loader_state loader_state;
} f;

static void free_nothing(void *arg)
{
    (void)arg;
}

static void log_nothing(void *arg, tsr_log_level level, const char *said)
{
    (void)arg, (void)level, (void)said;
}

static tsr_status rank_nothing(tsr_world *world, void *arg)
{
    (void)world, (void)arg;
    return TSR_OK;
}

static tsr_status own_same(tsr_op_args *a)
{
    memcpy(a->out[0].data, a->in[0].data,
           (size_t)tsr_dims_count(a->in[0].shape) * tsr_dtype_size(a->in[0].dtype));
    return TSR_OK;
}

static void keep_all(tsr_update *u)
{
    u->new_param = u->param;
}

static tsr_tensor *check_same(tsr_graph *g, int n, tsr_tensor *const *x, void *arg)
{
    (void)g;
    (void)n;
    (void)arg;
    return x[0];
}

static tsr_status declare_images(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    (void)training, (void)arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 1, 8, 8), f.placement, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), f.placement, TSR_B);
    tsr_output(g, "loss", tsr_mean(x, TSR_ALL_AXES, false), f.placement, TSR_B);
    tsr_output(g, "labels", y, f.placement, TSR_B);
    return TSR_OK;
}

static tsr_tensor *forward_same(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)m, (void)arg;
    return x;
}

static void forward_first(tsr_module *m, int nin, tsr_tensor *const *in, int nout, tsr_tensor **out,
                          void *arg)
{
    (void)m, (void)nin, (void)nout, (void)arg;
    out[0] = in[0];
}

static tsr_status visit_nothing(tsr_variable *v, const char *name, void *arg)
{
    (void)v, (void)name, (void)arg;
    return TSR_OK;
}

static int64_t map_len(void *arg)
{
    (void)arg;
    return 8;
}

static tsr_status map_get(void *arg, int64_t index, void *const *fields, const tsr_worker *worker)
{
    (void)arg, (void)worker;
    memset(fields[0], (int)index, 8);
    return TSR_OK;
}

static tsr_status custom_next(void *arg, int64_t *out_index)
{
    (void)arg;
    *out_index = 0;
    return TSR_END;
}

static tsr_status custom_batch_next(void *arg, int64_t *out_indices, int64_t *out_rows)
{
    (void)arg, (void)out_indices;
    *out_rows = 0;
    return TSR_END;
}

/* A copy of options, with a size that is said, and room behind for what a later library knows. */
static void *sized(size_t size, const void *opts, size_t known)
{
    static _Alignas(16) unsigned char copy[1 << 16];
    memcpy(copy, opts, known);
    memcpy(copy, &size, sizeof size);
    return copy;
}

#define MUST(expr)                                                                           \
    do {                                                                                     \
        if (!(expr)) {                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expr, tsr_last_error()); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)
#define MUST_OK(expr) MUST((expr) == TSR_OK)

static void make_tensors(void)
{
    const tsr_placement *p = f.placement;
    tsr_graph *g = f.graph;
    f.x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 6), p, TSR_B);
    f.x_bytes = 4 * 6 * sizeof(float);
    f.tensor = f.x;
    f.w = tsr_full(g, TSR_F32, TSR_DIMS(6, 4), p, TSR_B, 1);
    f.image = tsr_full(g, TSR_F32, TSR_DIMS(2, 4, 8, 8), p, TSR_B, 1);
    f.kernel = tsr_full(g, TSR_F32, TSR_DIMS(4, 4, 3, 3), p, TSR_B, 1);
    f.signal = tsr_full(g, TSR_F32, TSR_DIMS(2, 4, 64), p, TSR_B, 1);
    f.signal_kernel = tsr_full(g, TSR_F32, TSR_DIMS(4, 4, 9), p, TSR_B, 1);
    f.volume = tsr_full(g, TSR_F32, TSR_DIMS(2, 4, 4, 4, 4), p, TSR_B, 1);
    f.volume_kernel = tsr_full(g, TSR_F32, TSR_DIMS(4, 4, 1, 3, 3), p, TSR_B, 1);
    f.c4 = tsr_full(g, TSR_F32, TSR_DIMS(4), p, TSR_B, 1);
    f.c6 = tsr_full(g, TSR_F32, TSR_DIMS(6), p, TSR_B, 1);
    f.ids = tsr_full(g, TSR_I64, TSR_DIMS(4), p, TSR_B, 1);
    f.cond = tsr_less(f.x, tsr_mul_scalar(f.x, 2));
    f.loss = tsr_sum(f.x, TSR_ALL_AXES, false);
    f.wloss = tsr_sum(tsr_apply(f.module, f.x), TSR_ALL_AXES, false);
    tsr_output(g, "y", f.x, NULL, TSR_B);
    tsr_output(g, "loss", f.loss, NULL, TSR_B);
    MUST_OK(tsr_graph_status(g));
    MUST_OK(tsr_compile(g, &f.plan));
    MUST_OK(tsr_feed(f.plan, "x", numbers, f.x_bytes));
    MUST_OK(tsr_run(f.plan));
}

static void make_modules(void)
{
    const tsr_nn_opts nn = {.placement = f.placement, .sbp = TSR_B};
    f.module = tsr_mlp(f.world, f.placement, TSR_B, TSR_MLP_OPTS(.inputs = 6));
    f.child = tsr_nn_relu(f.world, &nn);
    f.fresh_module = tsr_mlp(f.world, f.placement, TSR_B, TSR_MLP_OPTS(.inputs = 6));
    f.linear = tsr_nn_linear(f.world, &nn, 6, 4, true);
    f.bn_module = tsr_nn_batch_norm(f.world, &nn, 4, NULL);
    f.variable = tsr_module_find(f.module, "0.weight");
    f.weight_bytes = (size_t)128 * 6 * sizeof(float);
    f.optimizer = tsr_sgd(f.module, TSR_SGD_OPTS(.momentum = 0.9));
    f.grad_scaler = tsr_grad_scaler_create(f.world, NULL);
    f.trained = tsr_graph_create(f.world, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_full(f.trained, TSR_F32, TSR_DIMS(4, 6), f.placement, TSR_B, 1);
    tsr_minimize(tsr_sgd(f.module, NULL), tsr_sum(tsr_apply(f.module, x), TSR_ALL_AXES, false));
    MUST(f.module && f.child && f.linear && f.bn_module && f.variable && f.optimizer);
    MUST_OK(tsr_save(f.module, f.weights));
}

static void make_ddp(void)
{
    const tsr_placement *here = tsr_local_placement(f.world);
    f.local_module = tsr_mlp(f.world, here, TSR_B, TSR_MLP_OPTS(.inputs = 6));
    f.local_variable = tsr_module_find(f.local_module, "0.weight");
    f.local_optimizer = tsr_sgd(f.local_module, NULL);
    MUST_OK(tsr_ddp_create(f.local_module, NULL, &f.ddp));
    for (int i = 0; i < 2; i++) { /* the second is for tsr_ddp_backward to differentiate */
        f.local_graph = tsr_graph_create(f.world, TSR_GRAPH_OPTS(.training = true, .local = true));
        f.local_x = tsr_full(f.local_graph, TSR_F32, TSR_DIMS(4, 6), here, TSR_B, 1);
        f.local_loss = tsr_mean(tsr_apply(f.local_module, f.local_x), TSR_ALL_AXES, false);
        if (i)
            break;
        tsr_ddp_backward(f.ddp, f.local_loss);
        MUST_OK(tsr_compile(f.local_graph, &f.ddp_plan));
        MUST_OK(tsr_ddp_run_at(f.ddp, f.ddp_plan, TSR_HERE));
    }
}

/* Opens a file of one tensor of a new name, which is written to `path`. */
static void open_safetensors(char path[64], tsr_safetensors **out_file)
{
    static const char header[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    const unsigned char prefix[8] = {sizeof header - 1};
    strcpy(path, "bad-XXXXXX"); /* in f.folder, with which it goes */
    FILE *file = fdopen(mkstemp(path), "wb");
    bool is_written = file && fwrite(prefix, 1, 8, file) == 8 &&
                      fwrite(header, 1, sizeof header - 1, file) == sizeof header - 1 &&
                      fwrite("abcd", 1, 4, file) == 4 && !fclose(file);
    MUST_OK(is_written ? tsr_safetensors_open(path, out_file) : TSR_ERR_IO);
}

static void make_data(void)
{
    tsr_world *w = f.world;
    MUST_OK(tsr_synthetic_open(w, 1, 8, 8, 4, 32, 1, &f.dataset));
    MUST_OK(
        tsr_loader_create(w, f.dataset, TSR_LOADER_OPTS(.batch_size = 4, .workers = 0), &f.loader));
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 1, 8, 8), f.placement, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(4), f.placement, TSR_B);
    tsr_output(g, "z", x, NULL, TSR_B);
    tsr_output(g, "l", y, NULL, TSR_B);
    MUST_OK(tsr_compile(g, &f.loader_plan));
    MUST_OK(tsr_generator_create(w, 1, &f.generator));
    open_safetensors(f.safetensors_path, &f.safetensors);
    MUST_OK(tsr_optimizer_define(w, TSR_OPTIMIZER_DEF(.name = "same", .update = keep_all)));
    MUST_OK(tsr_op_define(
        w, TSR_OP_DEF(.name = "same", .inputs = 1, .rule = "... -> ...", .forward = own_same),
        &f.op));
    MUST_OK(tsr_checkpoint_create(w, "checkpoints", NULL, &f.checkpoint));
    MUST_OK(tsr_checkpoint_add_bytes(f.checkpoint, "there", bytes, 8));
    MUST_OK(tsr_program_create(w, declare_images, NULL, NULL, &f.program));
    MUST_OK(tsr_generator_get_state(f.generator, f.generator_state));
    MUST_OK(tsr_random_sampler(w, 8, NULL, &f.sampler));
    tsr_sampler *below;
    MUST_OK(tsr_sequential_sampler(w, 8, &below));
    MUST_OK(tsr_batch_sampler_create(w, below, 2, false, &f.batch_sampler));
    f.sampler_state.size = f.batch_sampler_state.size = sizeof f.sampler_state;
    f.loader_state.size = sizeof f.loader_state;
    MUST_OK(tsr_sampler_get_state(f.sampler, &f.sampler_state));
    MUST_OK(tsr_batch_sampler_get_state(f.batch_sampler, &f.batch_sampler_state));
    MUST_OK(tsr_loader_get_state(f.loader, &f.loader_state));
    MUST_OK(tsr_synthetic_write_cifar10(f.folder, 2, 1));
}

static void write_idx(const char *name, uint32_t magic, int ndim, int count)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f.mnist, name);
    FILE *file = fopen(path, "wb");
    MUST(file);
    for (int i = 0; i <= ndim; i++) {
        uint32_t v = i == 0 ? magic : i == 1 ? (uint32_t)count : 4;
        unsigned char b[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
                              (unsigned char)(v >> 8), (unsigned char)v};
        fwrite(b, 1, 4, file);
    }
    fwrite(bytes, 1, ndim == 3 ? (size_t)count * 16 : (size_t)count, file);
    fclose(file);
}

static void make_folder(void)
{
    strcpy(f.folder, "/tmp/tessera_bad_XXXXXX");
    MUST(mkdtemp(f.folder) && chdir(f.folder) == 0); /* relative paths of rows end there */
    snprintf(f.mnist, sizeof f.mnist, "%s/mnist", f.folder);
    snprintf(f.new_folder, sizeof f.new_folder, "%s/new", f.folder);
    snprintf(f.weights, sizeof f.weights, "%s/w.safetensors", f.folder);
    snprintf(f.saved, sizeof f.saved, "%s/saved.safetensors", f.folder);
    snprintf(f.url, sizeof f.url, "file://%s/store2?rank=0&world_size=1", f.folder);
    MUST(mkdir(f.mnist, 0700) == 0);
    write_idx("train-images-idx3-ubyte", 0x803, 3, 2);
    write_idx("train-labels-idx1-ubyte", 0x801, 1, 2);
}

static void make_world(void)
{
    MUST_OK(tsr_world_create(
        TSR_WORLD_OPTS(.timeout_s = 2, .threads = 1, .arena_bytes = 64 << 20, .log = log_nothing),
        &f.world));
    MUST_OK(tsr_world_create_virtual(2, 0, &f.virtual_world));
    f.placement = tsr_placement_parse(f.world, "cpu");
    f.graph = tsr_graph_create(f.world, TSR_GRAPH_OPTS(.training = true));
    f.group = tsr_world_group(f.world);
    MUST_OK(tsr_alloc(f.world, 64, &f.memory));
}

/* A child's own: closing one removes its file. */
static void make_store(void)
{
    char url[160];
    snprintf(url, sizeof url, "file://%s/store%d?rank=0&world_size=1", f.folder, (int)getpid());
    MUST_OK(tsr_store_open(url, TSR_STORE_OPTS(.timeout_s = 0.2), &f.store));
    MUST_OK(tsr_store_set(f.store, "x", "1", 1));
}

#include "bad_objects.h"

/* --- a row ------------------------------------------------------------------------------------ */
static void wrong(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!result->text[0])
        vsnprintf(result->text, sizeof result->text, fmt, ap);
    va_end(ap);
}

/* The last thing before the call: an error that was dealt with long ago, and then good work. */
static void ready(void)
{
    tsr_plan *plan;
    tsr_set_error(TSR_ERR_STATE, "%s", marker);
    strcpy(result->text, "");
    if (running->p < 0)
        return;
    tsr_graph *g = tsr_graph_create(f.world, NULL);
    const tsr_placement *p = tsr_local_placement(f.world);
    tsr_output(g, "y", tsr_input(g, "x", TSR_F32, TSR_DIMS(1), p, TSR_B), p, TSR_B);
    if (tsr_compile(g, &plan) == TSR_OK)
        tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
}

/* Whether the text names what it is about: a word of the function's name, or of the parameter; or
 * what the call gives its object as a name: a path, an input's name. */
static bool names_it(const char *said)
{
    char words[256], lower[4096];
    snprintf(words, sizeof words, "%s_%s", running->function + 4, running->parameter);
    size_t n = 0;
    for (; said[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)tolower((unsigned char)said[n]);
    lower[n] = 0;
    static const char *const nouns[] = {"world",     "module", "placement", "signature",
                                        "parameter", "folder", "file",      "input"};
    for (size_t i = 0; i < sizeof nouns / sizeof *nouns; i++)
        if (strstr(lower, nouns[i]))
            return true;
    if (!strcmp(running->value, "long_text") && strstr(lower, "aaaa"))
        return true;
    if (!strcmp(running->parameter, "sbp") && strstr(lower, "new: "))
        return true;
    char *rest = words;
    for (char *word; (word = strtok_r(rest, "_", &rest));)
        if (strlen(word) > 2 && strstr(lower, word))
            return true;
    return false;
}

static void check_text(const char *what)
{
    const char *said = tsr_last_error();
    if (!said[0])
        wrong("%s without a text", what);
    else if (strstr(said, marker))
        wrong("%s with a stale text: %.200s", what, said);
    else if (!names_it(said))
        wrong("%s whose text names nothing: %.300s", what, said);
}

static bool is_gone(void)
{
    return strstr(running->value, "gone_") != NULL;
}

/* An object that was destroyed is refused as that, also by a call that returns no error. */
static void check_gone(void)
{
    const char *said = tsr_last_error();
    if (!is_gone())
        return;
    check_text("a destroyed object");
    if (!strstr(said, "has been destroyed"))
        wrong("a destroyed object, but the text is: %.300s", said);
}

/* An object that was destroyed, or belongs to another world, is of no use to any call. */
static void check_success(void)
{
    if (is_gone() || !strcmp(running->value, "foreign_placement()"))
        wrong("succeeds");
}

static void check_status(int p, tsr_status status)
{
    if (p < 0 && status < 0)
        wrong("good arguments, but %s: %.300s", tsr_status_name(status), tsr_last_error());
    else if (status < 0)
        check_text(tsr_status_name(status));
    else
        check_success();
    check_gone();
}

static void check_pointer(int p, const void *got)
{
    if (p < 0 && !got)
        wrong("good arguments, but NULL: %.300s", tsr_last_error());
    else if (!got)
        check_text("NULL");
    else
        check_success();
    check_gone();
}

/* A tensor that fails because an operand has failed leaves the text of the first error alone. */
static void check_tensor(int p, const tsr_tensor *got)
{
    if (p < 0 && !tsr_tensor_ok(got))
        wrong("good arguments, but: %.300s", tsr_last_error());
    else if (!tsr_tensor_ok(got) && !strstr(running->value, "failed_"))
        check_text("a failed tensor");
    else
        check_success();
    check_gone();
}

#include "bad_calls_table.h"

/* Good rows that one process alone, or one rank, can't have. */
static const char *const no_good_row[] = {
    "tsr_ddp_join_at", "tsr_send_at",   "tsr_recv_at",
    "tsr_work_wait",   "tsr_work_test", "tsr_batch_array",
};

static bool skipped(const row *r)
{
    for (size_t i = 0; i < sizeof no_good_row / sizeof *no_good_row && r->p < 0; i++)
        if (!strcmp(r->function, no_good_row[i]))
            return true;
    return false;
}

/* Runs one row in a child; false, with the reason in result->text, if it is not as it should be. */
static bool run_row(const row *r)
{
    strcpy(result->text, "the bad object could not be made");
    running = r;
    pid_t child = fork();
    if (child == 0) {
        alarm(ROW_SECONDS);
        if (!strncmp(r->function, "tsr_store_", 10))
            make_store();
        r->call(r->p, r->v);
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        strcpy(result->text, "no child");
        return false;
    }
    if (WIFSIGNALED(status))
        snprintf(result->text, sizeof result->text, "%s",
                 WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) && !result->text[0])
        snprintf(result->text, sizeof result->text, "ends with %d", WEXITSTATUS(status));
    return !result->text[0];
}

static void make_all(void)
{
    const struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    memset(long_text, 'a', sizeof long_text - 1);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        doubles[i] = 1;
    for (int i = 0; i < 4096; i++)
        integers[i] = i % 8;
    result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(result != MAP_FAILED);
    make_folder();
    make_world();
    make_modules();
    make_tensors();
    make_ddp();
    make_data();
}

/* argv[1]: only the functions whose names have this in them. */
static const char *only;

static int count_failures(void)
{
    int n = 0, failed = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        if (skipped(r) || (only && !strstr(r->function, only)))
            continue;
        n++;
        if (run_row(r))
            continue;
        failed++;
        fprintf(stderr, "%s(%s%s%.40s): %s\n", r->function, r->parameter, r->p < 0 ? "" : " = ",
                r->value, result->text);
    }
    printf("%d rows, %d failed\n", n, failed);
    return failed;
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f.folder);
    if (system(command))
        fprintf(stderr, "%s stays\n", f.folder);
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    make_all();
    int failed = count_failures();
    tsr_world_destroy(f.world);
    tsr_world_destroy(f.virtual_world);
    remove_folder();
    return failed > 0;
}
