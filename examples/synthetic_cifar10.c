/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a synthetic set of drawn shapes and textures in CIFAR-10's binary format. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <tessera/tessera.h>

/* A whole number of low .. high, and nothing behind it. */
static bool parse(const char *name, const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool is_number = *text >= '0' && *text <= '9' && !*end; /* strtoull takes "-1" and " 1" too */
    if (!is_number || errno || value < low || value > high) {
        fprintf(stderr,
                "synthetic_cifar10: %s is \"%s\"; legal are whole numbers of %" PRIu64
                " .. %" PRIu64 "\n",
                name, text, low, high);
        return false;
    }
    *out = value;
    return true;
}

int main(int argc, char **argv)
{
    uint64_t records = 1000, seed = 0;
    bool good = argc >= 2 && argc <= 4 && argv[1][0] != '-';
    if (good && argc > 2)
        good = parse("RECORDS_PER_FILE", argv[2], 1, 100000000, &records);
    if (good && argc > 3)
        good = parse("SEED", argv[3], 0, UINT64_MAX, &seed);
    if (!good) {
        fprintf(stderr, "usage: synthetic_cifar10 DIR [RECORDS_PER_FILE [SEED]]\n");
        return 2;
    }
    if (tsr_synthetic_write_cifar10(argv[1], (int64_t)records, seed) != TSR_OK) {
        fprintf(stderr, "synthetic_cifar10: %s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
