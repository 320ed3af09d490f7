/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kinds of device with one row more. Programs that this file is linked into find its
 * functions before those of the static library, so that no user of the library can name the kind.
 */
#include "tests/mirror/mirror.h"

#include <stdlib.h>
#include <string.h>

/* The library's table, by other names. */
extern const char *const library_target_names[TSRI_DEVICES];
const tsri_target *library_target_of(tsr_device kind);
bool library_target_can(tsr_device kind, tsri_ability ability);
#define tsri_target_names library_target_names
#define tsri_target_of library_target_of
#define tsri_target_can library_target_can
#include "src/target/target.c"
#undef tsri_target_names
#undef tsri_target_of
#undef tsri_target_can

#define NAME "mirror"

const char *const tsri_target_names[TSRI_DEVICES] = {CPU, CUDA, NAME, NULL};

/* Figures: any. */
static tsri_target mirror = {
    .kind = MIRROR,
    .name = NAME,
    .can = TSRI_CAN_QUEUE,
    .figures = {.latency_s = 5e-6,
                .bytes_per_s = 10e9,
                .local_bytes_per_s = 20e9,
                .flops_per_s = 100e9,
                .kernel_s = 1e-6,
                .link_name = "the mirror's link"},
    .module = "libtessera_mirror.so",
    .module_variable = "TESSERA_MIRROR_MODULE",
    .module_entry = "mirror_module",
    .module_needs = "tests",
};

__attribute__((constructor)) static void set_fault(void)
{
    const char *fault = getenv("MIRROR_FAULT");
    if (fault && !strcmp(fault, "row"))
        mirror.can |= TSRI_CAN_HOST_MEMORY;
}

const tsri_target *tsri_target_of(tsr_device kind)
{
    return kind == MIRROR ? &mirror : library_target_of(kind);
}

bool tsri_target_can(tsr_device kind, tsri_ability ability)
{
    return kind == MIRROR ? mirror.can & ability : library_target_can(kind, ability);
}
