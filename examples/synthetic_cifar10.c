/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a synthetic set of drawn shapes and textures in CIFAR-10's binary format. */
#include <stdio.h>
#include <stdlib.h>

#include <tessera/tessera.h>

int main(int argc, char **argv)
{
    long records = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
    unsigned long seed = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (argc < 2 || argc > 4 || argv[1][0] == '-') {
        fprintf(stderr, "usage: synthetic_cifar10 DIR [RECORDS_PER_FILE [SEED]]\n");
        return 2;
    }
    if (tsr_synthetic_write_cifar10(argv[1], records, seed) != TSR_OK) {
        fprintf(stderr, "synthetic_cifar10: %s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
