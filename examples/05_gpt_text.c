/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small GPT on the bytes of a text, data parallel, then samples from it.
 * usage: 05_gpt_text [FILE [STEPS]] [--device cpu|cuda], as two threads or under `tessera launch`
 * FILE is this source file by default, by the path that the compiler was given.
 *
 *   step 0: loss 5.4...
 *   ...
 *   step 300: loss 1...
 *   --- sample, and 200 bytes that look like the text
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

static const char *device = "cpu"; /* of all ranks */

enum { BATCH = 16, LENGTH = 64, BYTES = 256, SAMPLED = 200 };

typedef struct text {
    unsigned char *bytes;
    long n;
    int steps;
} text;

/* All ranks draw the same numbers, and so the same batches and the same sample. */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (1 << 24);
}

static tsr_status train(tsr_world *w, const tsr_placement *p, tsr_module *gpt, const text *t)
{
    tsr_optimizer *adam = tsr_adamw(gpt, TSR_ADAM_OPTS(.lr = 3e-3));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_I64, TSR_DIMS(BATCH, LENGTH), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH, LENGTH), p, TSR_S(0));
    tsr_tensor *logits = tsr_reshape(tsr_apply(gpt, x), TSR_DIMS(BATCH * LENGTH, BYTES));
    tsr_tensor *loss = tsr_cross_entropy(logits, tsr_flatten(y, 0), TSR_MEAN);
    tsr_minimize_with(adam, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 1));
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    uint64_t seed = 1;
    static _Thread_local int64_t ids[2][BATCH * LENGTH];
    for (int step = 0; step <= t->steps; step++) {
        for (int row = 0; row < BATCH; row++) {
            const long start = (long)(draw(&seed) * (double)(t->n - LENGTH));
            for (int i = 0; i < LENGTH; i++) {
                ids[0][row * LENGTH + i] = t->bytes[start + i];
                ids[1][row * LENGTH + i] = t->bytes[start + i + 1];
            }
        }
        double value;
        TSR_TRY(tsr_feed(plan, "x", ids[0], sizeof ids[0]));
        TSR_TRY(tsr_feed(plan, "y", ids[1], sizeof ids[1]));
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch_scalar(plan, "loss", &value));
        if (step % 50 == 0 && tsr_world_rank(w) == 0)
            printf("step %d: loss %.3f\n", step, value);
    }
    return TSR_OK;
}

static tsr_status sample(tsr_world *w, const tsr_placement *p, tsr_module *gpt, const text *t)
{
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_I64, TSR_DIMS(1, LENGTH), p, TSR_B);
    tsr_output(g, "next", tsr_softmax(tsr_narrow(tsr_apply(gpt, x), 1, -1, 1), 2), p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    int64_t window[LENGTH];
    float next[BYTES];
    char out[SAMPLED + 1] = {0};
    uint64_t seed = 2;
    for (int i = 0; i < LENGTH; i++)
        window[i] = t->bytes[i];
    for (int n = 0; n < SAMPLED; n++) {
        TSR_TRY(tsr_feed(plan, "x", window, sizeof window));
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch(plan, "next", next, sizeof next));
        int byte = 0;
        double left = draw(&seed);
        while (byte < BYTES - 1 && (left -= (double)next[byte]) > 0)
            byte++;
        for (int i = 0; i + 1 < LENGTH; i++)
            window[i] = window[i + 1];
        window[LENGTH - 1] = byte;
        out[n] = (char)((byte >= ' ' && byte < 127) || byte == '\n' ? byte : '?');
    }
    if (tsr_world_rank(w) == 0)
        printf("--- sample\n%s\n---\n", out);
    return TSR_OK;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    const tsr_placement *p = tsr_placement_parse(w, device);
    tsr_module *gpt = tsr_gpt(w, p, TSR_B,
                              TSR_GPT_OPTS(.vocab = BYTES, .positions = LENGTH, .width = 64,
                                           .heads = 4, .layers = 2, .dropout = 0, .seed = 1));
    TSR_TRY(train(w, p, gpt, arg));
    return sample(w, p, gpt, arg);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (argc > 2 && !strcmp(argv[argc - 2], "--device")) { /* the last two words */
        device = argv[argc - 1];
        argv[argc -= 2] = NULL;
    }
    const char *path = argc > 1 ? argv[1] : __FILE__;
    static unsigned char bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    text t = {bytes, f ? (long)fread(bytes, 1, sizeof bytes, f) : 0,
              argc > 2 ? atoi(argv[2]) : 300};
    if (f)
        fclose(f);
    if (t.n > LENGTH + 1 && tsr_start_ranks(2, rank, &t) == TSR_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", path, t.n > LENGTH + 1 ? tsr_last_error() : "no text of 66 bytes");
    return 1;
}
