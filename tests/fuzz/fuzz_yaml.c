/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiments: what parses dumps to a text that parses and dumps to itself; and its program, in a
 * virtual world of its ranks, can be built or tells why not. No run reads data or weights, but
 * `file` may name any file there is: .npy files among them are asked for their headers.
 */
#include <tessera/world.h>

#include "tests/fuzz/experiment.h"

enum { MOST_RANKS = 16, MOST_POSITIONS = 4096 };

static void check_dump(const tsri_experiment *e)
{
    size_t n = 0, nagain = 0;
    tsri_experiment *again = NULL;
    char *text = fuzz_experiment_dump(e, &n);
    FUZZ_MUST(tsri_experiment_parse("f.yaml", text, n, 0, NULL, &again) == TSR_OK,
              "the dump doesn't parse:\n%s", text);
    char *twice = fuzz_experiment_dump(again, &nagain);
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
    fuzz_experiment x = fuzz_experiment_parse(data, size);
    int nranks = tsri_experiment_nranks(x.e);
    if (x.e) {
        check_dump(x.e);
        FUZZ_MUST(nranks > 0, "%d ranks", nranks);
        if (nranks <= MOST_RANKS && !fuzz_experiment_unrolls(&x, MOST_POSITIONS))
            build(x.e, (int)(size % (size_t)nranks));
    }
    fuzz_experiment_drop(&x);
    return 0;
}
