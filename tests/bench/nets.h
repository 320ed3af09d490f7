/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nets that bench_nets times: those of models.h, and further architectures that are declared
 * here by the public headers alone. torch_nets.py has the same nets for PyTorch, with parameters of
 * the same shapes, so that both sides can be filled with equal values (bench_fill).
 */
#ifndef TESSERA_TESTS_BENCH_NETS_H
#define TESSERA_TESTS_BENCH_NETS_H

#include <tessera/tessera.h>

typedef enum bench_loss {
    BENCH_CROSS_ENTROPY = 0, /* of the result's last axis, which counts classes */
    BENCH_SQUARES,           /* the mean square of the result */
} bench_loss;

/* The state of making a net. After an error nothing more is made, and the first error stays. */
typedef struct bench_builder {
    tsr_world *world;
    tsr_nn_opts nn;
    tsr_batch_norm_opts bn;
    int parts; /* how many modules were added so far; they are named by number */
    bool failed;
} bench_builder;

/* The longest name of a net, with the byte that ends it. */
enum { BENCH_NAME = 64 };

typedef struct bench_net {
    char name[BENCH_NAME];
    tsr_module *(*make)(bench_builder *b, const struct bench_net *net);
    tsr_dims row;  /* one sample of the input "x" */
    int64_t vocab; /* "x" holds ids below it; 0: numbers of dtype */
    /* An input "second"; without axes there is none. Ids below second_vocab have a row for each
     * sample; numbers (second_vocab 0) have no axis of samples. */
    tsr_dims second;
    int64_t second_vocab;
    tsr_dtype dtype; /* of numbers and parameters; default f32 */
    bench_loss loss;
} bench_net;

/* Sets *out_net to the net of a name. TSR_ERR_INVALID if there is none. */
tsr_status bench_net_find(const char *name, bench_net *out_net);
/* Returns the module of a net with parameters in B on p; NULL on error. Each rank's batch norm has
 * statistics of its own, as under PyTorch's DDP. */
tsr_module *bench_net_make(tsr_world *w, const tsr_placement *p, const bench_net *net);
/* Gives all parameters values that follow from their shapes, as fill in bench_data.py does. */
tsr_status bench_fill(tsr_module *net);
/* Writes a number, as dtype has it, to element i of data: f32, f64 or bf16. */
void bench_put(void *data, tsr_dtype dtype, size_t i, double value);
/* Returns element i of data, of f32, f64 or bf16. */
double bench_get(const void *data, tsr_dtype dtype, size_t i);

/* --- parts ------------------------------------------------------------------------------------ */
/* Each part is added to `parent` (NULL: it is the root) and returned; NULL after an error. */

/* Adds a module, which it takes. */
tsr_module *bench_add(bench_builder *b, tsr_module *parent, tsr_module *child);
/* Adds a module that passes its input through `forward`; NULL: through its parts in order. */
tsr_module *bench_module(bench_builder *b, tsr_module *parent, tsr_forward_fn *forward);
/* Adds a convolution whose padding keeps the size at stride 1 if the kernel is odd; a kernel that
 * equals its stride has no padding. */
tsr_module *bench_conv(bench_builder *b, tsr_module *parent, int64_t in, int64_t out, int kernel,
                       int stride, int64_t groups, bool bias);
tsr_module *bench_batch_norm(bench_builder *b, tsr_module *parent, int64_t channels);
tsr_module *bench_layer_norm(bench_builder *b, tsr_module *parent, int64_t width, double eps);
tsr_module *bench_linear(bench_builder *b, tsr_module *parent, int64_t in, int64_t out);
tsr_module *bench_table(bench_builder *b, tsr_module *parent, int64_t rows, int64_t width);
tsr_module *bench_op(bench_builder *b, tsr_module *parent, tsr_unary_op_fn *function);
/* Adds a convolution without bias, a batch norm and, unless it is NULL, an op. */
void bench_conv_norm(bench_builder *b, tsr_module *parent, int64_t in, int64_t out, int kernel,
                     int stride, int64_t groups, tsr_unary_op_fn *function);
/* Adds a parameter to m itself, whose initial value bench_fill replaces. */
void bench_param(bench_builder *b, tsr_module *m, const char *name, tsr_dims dims);

/* --- makers ----------------------------------------------------------------------------------- */
tsr_module *bench_make_resnet50(bench_builder *b, const bench_net *net);
tsr_module *bench_make_vgg16(bench_builder *b, const bench_net *net);
tsr_module *bench_make_dcgan(bench_builder *b, const bench_net *net);
tsr_module *bench_make_unet(bench_builder *b, const bench_net *net);
tsr_module *bench_make_efficientnet_b0(bench_builder *b, const bench_net *net);
tsr_module *bench_make_convnext_t(bench_builder *b, const bench_net *net);
tsr_module *bench_make_vit(bench_builder *b, const bench_net *net);
tsr_module *bench_make_bert(bench_builder *b, const bench_net *net);
tsr_module *bench_make_dlrm(bench_builder *b, const bench_net *net);
tsr_module *bench_make_lstm_f64(bench_builder *b, const bench_net *net);

#endif
