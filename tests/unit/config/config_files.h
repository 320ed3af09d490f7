/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are fine, and reading them. */
#ifndef TESSERA_TESTS_CONFIG_FILES_H
#define TESSERA_TESTS_CONFIG_FILES_H

#include <stdlib.h>
#include <string.h>

#include "src/config/inside.h"

/* clang-format off */
#define KEYS \
    "tessera, include, vars, dtype, placements, mesh, device, strategy, model, data, tensors, " \
    "parameters, optimizer, graph, loss, fetch, train, cluster, memory_limit, bucket_mb, " \
    "infer_updates, reshard_after_forward, recompute, fusion, search, schedule, stages"
#define TRAIN \
    "tessera: 1\n" \
    "placements: {d: {ranks: [0, 1]}, grid: {ranks: [[0, 1], [2, 3]]}}\n" \
    "model: {name: mlp}\n" \
    "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n"
#define MESH \
    "tessera: 1\n" \
    "mesh: {dp: 4, tp: 2}\n" \
    "model: {name: mlp}\n" \
    "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n"
#define GRAPH \
    "tessera: 1\n" \
    "placements: {a: {ranks: [0, 1]}, g: {ranks: [[0, 1], [2, 3]]}}\n" \
    "graph:\n" \
    "  x: {op: constant, fill: 1, shape: [2, 2]}\n"
/* clang-format on */

static inline tsr_status parse(const char *text, tsri_experiment **out)
{
    return tsri_experiment_parse("f.yaml", text, strlen(text), 0, NULL, out);
}

static inline tsri_experiment *parse_ok(const char *text)
{
    tsri_experiment *e = NULL;
    if (parse(text, &e) != TSR_OK)
        fail_msg("%s\n%s", text, tsr_last_error());
    return e;
}

/* The experiment as text; the caller frees it. */
static inline char *dump(const tsri_experiment *e)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_int_equal(tsri_experiment_dump(e, f), TSR_OK);
    fclose(f);
    return text;
}

static inline void assert_round_trip(const char *text)
{
    tsri_experiment *e = parse_ok(text);
    char *once = dump(e);
    tsri_experiment *again = parse_ok(once);
    char *twice = dump(again);
    assert_string_equal(once, twice);
    tsri_experiment_destroy(again);
    tsri_experiment_destroy(e);
    free(once);
    free(twice);
}

#endif
