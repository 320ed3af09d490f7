/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps of flight recorders: several in one input, each up to its line "end". What is accepted is
 * judged, with one line of words, about ranks that there are. */
#include "src/cli/flight/read.h"
#include "tests/fuzz/fuzz.h"

enum { MOST = 8 };

/* The bytes of the first dump. */
static size_t length_of(const char *text, size_t size)
{
    const char *end = memmem(text, size, "\nend\n", 5);
    return end ? (size_t)(end - text) + 5 : size;
}

static void check_report(const tsri_flight_report *r)
{
    FUZZ_MUST(r->rank >= 0 && r->rank < r->nranks, "rank %d of %d", r->rank, r->nranks);
    for (int i = 0; i < r->ngroups; i++) {
        const tsri_flight_read_group *g = &r->groups[i];
        FUZZ_MUST(g->listed >= 1 && g->listed <= g->nranks && g->nranks <= r->nranks, "group %d",
                  g->number);
        for (int k = 0; k < g->listed; k++)
            FUZZ_MUST(g->ranks[k] >= 0 && g->ranks[k] < r->nranks, "rank %d", g->ranks[k]);
    }
    for (int i = 0; i < r->ncalls; i++) {
        const tsri_flight_read_call *c = &r->call[i];
        FUZZ_MUST(c->group >= -1 && c->group < r->ngroups, "group %d", c->group);
        FUZZ_MUST(c->waits >= -1 && c->waits < r->nranks, "waits for %d", c->waits);
        FUZZ_MUST(tsri_flight_kind_name(c->said.kind), "kind %d", c->said.kind);
        FUZZ_MUST(i == 0 || c->number > r->call[i - 1].number, "call %d", i);
    }
}

static void check_verdict(const tsri_flight_verdict *v, int nranks)
{
    FUZZ_MUST(v->text && v->text[0] && !strchr(v->text, '\n'), "%s", v->text);
    FUZZ_MUST((v->fault == TSRI_FLIGHT_NOBODY) == (v->nguilty == 0), "fault %d of %d ranks: %s",
              (int)v->fault, v->nguilty, v->text);
    for (int i = 0; i < v->nguilty; i++)
        FUZZ_MUST(v->guilty[i] >= 0 && v->guilty[i] < nranks &&
                      (i == 0 || v->guilty[i] > v->guilty[i - 1]),
                  "rank %d is guilty", v->guilty[i]);
    for (int i = 0; i < v->ngangs; i++)
        for (int k = 0; k < v->gangs[i].of->listed; k++)
            FUZZ_MUST(v->gangs[i].members[k].rank == v->gangs[i].of->ranks[k], "member %d", k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsri_flight_report report[MOST];
    tsri_flight_verdict v;
    const char *text = (const char *)data;
    int n = 0, nranks = 0;
    while (n < MOST && size > 0) {
        size_t length = length_of(text, size);
        tsr_status status = tsri_flight_parse("f", text, length, &report[n]);
        bool again = false;
        FUZZ_MUST(status == TSR_OK || status == TSR_ERR_FORMAT, "status %d", (int)status);
        FUZZ_MUST_TELL(status);
        text += length;
        size -= length;
        if (status != TSR_OK)
            continue;
        check_report(&report[n]);
        for (int i = 0; i < n; i++)
            again |= report[i].rank == report[n].rank;
        if (again) {
            tsri_flight_report_finish(&report[n]);
            continue;
        }
        nranks = report[n].nranks > nranks ? report[n].nranks : nranks;
        n++;
    }
    if (n > 0) {
        FUZZ_MUST(tsri_flight_judge(report, n, &v) == TSR_OK, "%d dumps", n);
        check_verdict(&v, nranks);
        tsri_flight_verdict_finish(&v);
    }
    for (int i = 0; i < n; i++)
        tsri_flight_report_finish(&report[i]);
    return 0;
}
