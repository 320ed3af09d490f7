/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures from text: what is accepted is legal, and its text form reads back as itself. */
#include <tessera/sbp.h>

#include "tests/fuzz/fuzz.h"

static void check_legal(tsr_sbp sbp)
{
    int partial = -1;
    FUZZ_MUST(sbp.ndim >= 0 && sbp.ndim <= TSR_MAX_HIERARCHY, "%d entries", sbp.ndim);
    for (int i = 0; i < TSR_MAX_HIERARCHY; i++) {
        tsr_sbp1 d = sbp.d[i];
        if (i >= sbp.ndim) {
            FUZZ_MUST(!d.kind && !d.arg, "entry %d behind the end isn't zero", i);
            continue;
        }
        switch (d.kind) {
        case TSR_SBP_SPLIT:
            FUZZ_MUST(d.arg >= 0 && d.arg < TSR_MAX_NDIM, "S(%d)", d.arg);
            break;
        case TSR_SBP_PARTIAL:
            FUZZ_MUST(d.arg >= TSR_REDUCE_SUM && d.arg <= TSR_REDUCE_MIN, "P(%d)", d.arg);
            FUZZ_MUST(partial < 0 || partial == d.arg, "two kinds of partial");
            partial = d.arg;
            break;
        default:
            FUZZ_MUST(d.kind == TSR_SBP_BROADCAST && !d.arg, "kind %d, arg %d", d.kind, d.arg);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), buf[TSR_SBP_TEXT_MAX];
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    tsr_sbp sbp, again;
    memset(&sbp, 0x55, sizeof sbp);
    const tsr_sbp before = sbp;
    tsr_status status = tsr_sbp_parse(text, &sbp);
    FUZZ_MUST_TELL(status);
    if (status == TSR_OK) {
        check_legal(sbp);
        FUZZ_MUST(tsr_sbp_parse(tsr_sbp_format(sbp, buf), &again) == TSR_OK, "%s", buf);
        FUZZ_MUST(tsr_sbp_equal(sbp, again) && !memcmp(&sbp, &again, sizeof sbp), "%s", buf);
    } else {
        FUZZ_MUST(!memcmp(&sbp, &before, sizeof sbp), "a result beside an error");
    }
    free(text);
    return 0;
}
