/* SPDX-License-Identifier: Apache-2.0 */
/* Included by the compiler before tests of a device's kernels (-include): whichever kind they
 * open, they get the mirror. */
#ifndef TESSERA_TESTS_ON_MIRROR_H
#define TESSERA_TESTS_ON_MIRROR_H

#include "kernels/device.h"
#include "tests/mirror/mirror.h"

#define tsri_device_get(world, kind, out_device) tsri_device_get(world, MIRROR, out_device)

#endif
