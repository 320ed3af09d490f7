/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiments: a file, and behind NUL bytes, which no YAML has, overrides as of `--set`. What
 * parses dumps to a text that parses and dumps to itself; and its program, in a virtual world of
 * its ranks, can be built or tells why not. No run reads data or weights, but `file` may name any
 * file there is: .npy files among them are asked for their headers.
 */
#include <tessera/world.h>

#include "src/config/experiment.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_RANKS = 16, MOST_SETS = 4 };

static char *dump(const tsri_experiment *e, size_t *out_size)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, out_size);
    if (!f)
        abort();
    FUZZ_MUST(tsri_experiment_dump(e, f) == TSR_OK, "dump");
    fclose(f);
    return text;
}

static void check_dump(const tsri_experiment *e)
{
    size_t n = 0, nagain = 0;
    tsri_experiment *again = NULL;
    char *text = dump(e, &n);
    FUZZ_MUST(tsri_experiment_parse("f.yaml", text, n, 0, NULL, &again) == TSR_OK,
              "the dump doesn't parse:\n%s", text);
    char *twice = dump(again, &nagain);
    FUZZ_MUST(n == nagain && !memcmp(text, twice, n), "another dump:\n%s\n---\n%s", text, twice);
    FUZZ_MUST(tsri_experiment_nranks(e) == tsri_experiment_nranks(again), "other ranks");
    tsri_experiment_destroy(again);
    free(text);
    free(twice);
}

static void build(const tsri_experiment *e, int rank)
{
    tsr_world *world = NULL;
    tsri_program *p = NULL;
    FUZZ_MUST(tsr_world_create_virtual(tsri_experiment_nranks(e), rank, &world) == TSR_OK, "world");
    tsr_status status = tsri_program_build(e, world, NULL, &p);
    FUZZ_MUST_TELL(status);
    FUZZ_MUST((status == TSR_OK) == (p != NULL), "status %d", (int)status);
    if (p)
        FUZZ_MUST(p->graph && tsr_graph_status(p->graph) == TSR_OK && p->nfetches > 0, "program");
    tsri_program_destroy(p);
    tsr_world_destroy(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *sets[MOST_SETS];
    int nsets = 0;
    tsri_experiment *e = NULL;
    char *text = malloc(size + 1);
    if (!text)
        abort();
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    size_t n = strlen(text);
    for (size_t at = n + 1; at <= size && nsets < MOST_SETS; at += strlen(text + at) + 1)
        sets[nsets++] = text + at;
    tsr_status status = tsri_experiment_parse("f.yaml", text, n, nsets, sets, &e);
    FUZZ_MUST_TELL(status);
    FUZZ_MUST((status == TSR_OK) == (e != NULL), "status %d", (int)status);
    int nranks = tsri_experiment_nranks(e);
    if (e) {
        check_dump(e);
        FUZZ_MUST(nranks > 0, "%d ranks", nranks);
        if (nranks <= MOST_RANKS)
            build(e, (int)(size % (size_t)nranks));
    }
    tsri_experiment_destroy(e);
    free(text); /* behind the experiment, which keeps the overrides */
    return 0;
}
