/* SPDX-License-Identifier: Apache-2.0 */
/* Files that reading them, or building their program, refuses. */
#ifndef TESSERA_TESTS_CONFIG_REFUSED_H
#define TESSERA_TESTS_CONFIG_REFUSED_H

#include <string.h>

#include "src/config/experiment.h"

typedef struct refused {
    const char *text, *error;
} refused;

/* Asserts that each of n files is refused, in a world of so many ranks, by its whole text. */
static inline void assert_refused(const refused *files, size_t n, int nranks)
{
    tsr_world *world;
    int nfaults = 0;
    assert_int_equal(tsr_world_create_virtual(nranks, 0, &world), TSR_OK);
    for (size_t i = 0; i < n; i++) {
        tsri_experiment *e = NULL;
        tsri_program *p = NULL;
        const char *text = files[i].text;
        tsr_status status = tsri_experiment_parse("f.yaml", text, strlen(text), 0, NULL, &e);
        if (status == TSR_OK)
            status = tsri_program_build(e, world, NULL, &p);
        if (status == TSR_OK || strcmp(tsr_last_error(), files[i].error) != 0) {
            print_error("\n%s\nis told as   %s\ninstead of %s\n", text,
                        status == TSR_OK ? "(accepted)" : tsr_last_error(), files[i].error);
            nfaults++;
        }
        tsri_program_destroy(p);
        tsri_experiment_destroy(e);
    }
    tsr_world_destroy(world);
    assert_int_equal(nfaults, 0);
}

#endif
