/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classifies images with a model from a safetensors file, without a training graph. Where there is
 * no such file, it trains a model first and writes it.
 *
 * usage: 09_inference MODEL.safetensors [--device cpu|cuda], as two threads or under `tessera
 * launch`
 *
 *   image 0: class 2 (98 %), label 2
 */
#include <stdio.h>
#include <string.h>

#include <tessera/tessera.h>

static const char *device = "cpu"; /* of all ranks */

enum { CLASSES = 10, IMAGES = 5 };

typedef struct net {
    const tsr_placement *all;
    tsr_module *model;
    tsr_optimizer *optimizer; /* NULL: the model is not trained here */
} net;

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    const net *n = (const net *)arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 1, 16, 16), n->all, TSR_S(0));
    tsr_tensor *logits = tsr_apply(n->model, x);
    if (training) {
        tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->all, TSR_S(0));
        tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
        tsr_output(g, "loss", loss, n->all, TSR_B);
        tsr_minimize(n->optimizer, loss);
    } else {
        tsr_output(g, "classes", tsr_argmax(logits, 1), n->all, TSR_B);
        tsr_output(g, "sure", tsr_softmax(logits, 1), n->all, TSR_B);
    }
    return TSR_OK;
}

static tsr_module *new_model(tsr_world *w, const tsr_placement *p)
{
    return tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 256, .outputs = CLASSES));
}

static tsr_status write_model(tsr_world *w, tsr_dataset *set, const char *path)
{
    net n = {.all = tsr_placement_parse(w, device)};
    tsr_loader *loader;
    tsr_program *program;
    n.model = new_model(w, n.all);
    n.optimizer = tsr_adam(n.model, NULL);
    TSR_TRY(tsr_loader_create(w, set, TSR_LOADER_OPTS(.shuffle = true), &loader));
    TSR_TRY(tsr_program_create(w, declare, &n, NULL, &program));
    TSR_TRY(tsr_train(program, TSR_TRAIN_OPTS(.epochs = 20, .train = loader, .quiet = true), NULL));
    return tsr_save(n.model, path);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    const char *path = (const char *)arg;
    net n = {.all = tsr_placement_parse(w, device)};
    tsr_dataset *set;
    TSR_TRY(tsr_synthetic_open(w, 1, 16, 16, CLASSES, 1024, 1, &set));
    FILE *f = fopen(path, "rb");
    if (f)
        fclose(f);
    TSR_TRY(tsr_world_barrier(w)); /* all ranks have looked before one writes */
    if (!f)
        TSR_TRY(write_model(w, set, path));

    n.model = new_model(w, n.all);
    tsr_program *program;
    tsr_plan *plan;
    TSR_TRY(tsr_program_create(w, declare, &n, NULL, &program));
    TSR_TRY(tsr_load(n.model, path, NULL));
    TSR_TRY(tsr_program_plan(program, IMAGES, false, &plan));

    static _Thread_local float pixels[IMAGES * 256], sure[IMAGES][CLASSES];
    int64_t classes[IMAGES];
    for (int i = 0; i < IMAGES * 256; i++)
        pixels[i] = (float)tsr_dataset_images(set)[i] / 255;
    TSR_TRY(tsr_feed(plan, "x", pixels, sizeof pixels));
    TSR_TRY(tsr_run(plan));
    TSR_TRY(tsr_fetch(plan, "classes", classes, sizeof classes));
    TSR_TRY(tsr_fetch(plan, "sure", sure, sizeof sure));
    for (int i = 0; i < IMAGES && tsr_world_rank(w) == 0; i++)
        printf("image %d: class %d (%.0f %%), label %d\n", i, (int)classes[i],
               100 * (double)sure[i][classes[i]], tsr_dataset_labels(set)[i]);
    return TSR_OK;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (argc > 2 && !strcmp(argv[argc - 2], "--device")) { /* the last two words */
        device = argv[argc - 1];
        argv[argc -= 2] = NULL;
    }
    if (argc != 2) {
        fprintf(stderr, "usage: 09_inference MODEL.safetensors [--device cpu|cuda]\n");
        return 2;
    }
    if (tsr_start_ranks(2, rank, argv[1]) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
