/* SPDX-License-Identifier: Apache-2.0 */
/* Placements from text, in a virtual world: what is accepted is a grid of different ranks, whose
 * text form is the same object, as are the numbers that it is made of. */
#include <tessera/placement.h>

#include "tests/fuzz/fuzz.h"

enum { NRANKS = 64, WORLD_RUNS = 256 };

static void check(tsr_world *world, const tsr_placement *p)
{
    int dim[TSR_MAX_HIERARCHY], ranks[NRANKS], product = 1;
    int ndim = tsr_placement_ndim(p), n = tsr_placement_nranks(p);
    uint64_t seen = 0;
    FUZZ_MUST(ndim >= 1 && ndim <= TSR_MAX_HIERARCHY, "%d dimensions", ndim);
    FUZZ_MUST(n >= 1 && n <= NRANKS, "%d ranks", n);
    for (int d = 0; d < ndim; d++)
        product *= dim[d] = tsr_placement_dim(p, d);
    FUZZ_MUST(product == n, "a grid of %d has %d ranks", product, n);
    for (int i = 0; i < n; i++) {
        int rank = ranks[i] = tsr_placement_rank(p, i);
        FUZZ_MUST(rank >= 0 && rank < NRANKS, "rank %d", rank);
        FUZZ_MUST(!(seen >> rank & 1), "rank %d twice", rank);
        FUZZ_MUST(tsr_placement_find(p, rank) == i, "rank %d is at another place", rank);
        seen |= UINT64_C(1) << rank;
    }
    FUZZ_MUST(tsr_placement_find(p, -1) < 0 && tsr_placement_find(p, NRANKS) < 0, "outside");
    const char *text = tsr_placement_text(p);
    FUZZ_MUST(tsr_placement_parse(world, text) == p, "%s", text);
    FUZZ_MUST(tsr_placement_create(world, tsr_placement_device(p), ndim, dim, ranks) == p, "%s",
              text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Placements stay in their world, so it is renewed from time to time. */
    static tsr_world *world;
    static int runs;
    if (world && ++runs % WORLD_RUNS == 0) {
        tsr_world_destroy(world);
        world = NULL;
    }
    char *text = malloc(size + 1);
    if (!text || (!world && tsr_world_create_virtual(NRANKS, 3, &world) != TSR_OK))
        abort();
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    const tsr_placement *p = tsr_placement_parse(world, text);
    if (p)
        check(world, p);
    else
        FUZZ_MUST(tsr_last_error() && tsr_last_error()[0], "no text of the error");
    free(text);
    return 0;
}
