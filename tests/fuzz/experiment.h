/* SPDX-License-Identifier: Apache-2.0 */
/* Experiments as inputs of fuzz targets: a file, and behind NUL bytes, which no YAML has, overrides
 * as of `--set`. */
#ifndef TESSERA_TESTS_FUZZ_EXPERIMENT_H
#define TESSERA_TESTS_FUZZ_EXPERIMENT_H

#include "src/config/inside.h"
#include "tests/fuzz/fuzz.h"

enum { FUZZ_MOST_SETS = 4 };

typedef struct fuzz_experiment {
    char *text; /* ends with a zero; free it behind the experiment, which keeps the overrides */
    size_t size;
    const char *sets[FUZZ_MOST_SETS];
    int nsets;
    tsri_experiment *e; /* NULL: refused */
} fuzz_experiment;

/* Splits an input and parses it. */
static inline fuzz_experiment fuzz_experiment_parse(const uint8_t *data, size_t size)
{
    fuzz_experiment x = {.text = malloc(size + 1)};
    if (!x.text)
        abort();
    if (size)
        memcpy(x.text, data, size);
    x.text[size] = 0;
    x.size = strlen(x.text);
    for (size_t at = x.size + 1; at <= size && x.nsets < FUZZ_MOST_SETS;
         at += strlen(x.text + at) + 1)
        x.sets[x.nsets++] = x.text + at;
    tsr_status status = tsri_experiment_parse("f.yaml", x.text, x.size, x.nsets, x.sets, &x.e);
    FUZZ_MUST_TELL(status);
    FUZZ_MUST((status == TSR_OK) == (x.e != NULL), "status %d", (int)status);
    return x;
}

/* Whether the program has a recurrent layer over so many positions, of which each takes ops of its
 * own, that declaring it would take longer than an input may. */
static inline bool fuzz_experiment_unrolls(const fuzz_experiment *x, int64_t most)
{
    static const char *const recurrent[] = {"lstm", "gru", "rnn"};
    const tsri_config_data *d = &x->e->data;
    bool unrolls = false;
    for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++)
        unrolls |= strstr(x->text, recurrent[i]) != NULL;
    for (int i = 0; i < x->nsets; i++) /* an override may say it */
        unrolls |= x->e->trains;
    for (int a = 0; a < d->shape.ndim; a++)
        most /= d->shape.d[a] > 0 ? d->shape.d[a] : 1;
    return unrolls && (most < 1 || d->context > most || d->batch_size > most);
}

static inline void fuzz_experiment_drop(fuzz_experiment *x)
{
    tsri_experiment_destroy(x->e);
    free(x->text);
}

/* Dumps an experiment as YAML. */
static inline char *fuzz_experiment_dump(const tsri_experiment *e, size_t *out_size)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, out_size);
    if (!f)
        abort();
    FUZZ_MUST(tsri_experiment_dump(e, f) == TSR_OK, "dump");
    fclose(f);
    return text;
}

#endif
