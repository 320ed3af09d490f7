/* SPDX-License-Identifier: Apache-2.0 */
/* Writes man/tessera-yaml.5 to standard output. */
#include "src/config/experiment.h"

int main(void)
{
    if (tsri_config_man(stdout) == TSR_OK && !fflush(stdout))
        return 0;
    fprintf(stderr, "config_man: %s\n", tsr_last_error());
    return 1;
}
