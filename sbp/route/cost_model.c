/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/cost_model.h"

#include <math.h>
#include <stdio.h>

tsri_cost_model tsri_cost_model_of(tsr_device kind)
{
    const tsri_target_figures *f = &tsri_target_of(kind)->figures;
    return (tsri_cost_model){
        .nlinks = 1,
        .link = {{.latency_s = f->latency_s, .bytes_per_s = f->bytes_per_s}},
        .local_bytes_per_s = f->local_bytes_per_s,
        .flops_per_s = f->flops_per_s,
        .kernel_s = f->kernel_s,
        .link_name = {f->link_name},
    };
}

double tsri_flops_of(const tsri_cost_model *m, tsr_dtype dtype)
{
    return m->dtype_flops_per_s[dtype] > 0 ? m->dtype_flops_per_s[dtype] : m->flops_per_s;
}

double tsri_product_share(const tsri_cost_model *m, double seconds)
{
    const double *share = m->product_share, first = 0.125e-6, step = 4;
    if (share[TSRI_PRODUCT_SIZES - 1] <= 0 || seconds <= 0)
        return 1;
    const double at = log(seconds / first) / log(step);
    const int last = TSRI_PRODUCT_SIZES - 1, i = at < 0 ? 0 : at < last ? (int)at : last;
    double part = share[i];
    if (at < 0)
        part *= seconds / first;
    else if (i < last)
        part += (at - i) * (share[i + 1] - share[i]);
    return part > 0 ? part : 1; /* a size that is not said */
}

char *tsri_link_name(const tsri_cost_model *m, int link, char buf[TSRI_LINK_NAME_MAX])
{
    if (m && m->link_name[link])
        snprintf(buf, TSRI_LINK_NAME_MAX, "%.*s", TSRI_LINK_NAME_MAX - 1, m->link_name[link]);
    else
        snprintf(buf, TSRI_LINK_NAME_MAX, "link %d", link + 1);
    return buf;
}

int tsri_link_between(const tsri_cost_model *m, int a, int b)
{
    int l = 0;
    while (l + 1 < m->nlinks && m->link[l].ranks > 0 &&
           a / m->link[l].ranks != b / m->link[l].ranks)
        l++;
    return l;
}

double tsri_least_seconds(const tsri_cost_model *m, double bytes)
{
    double start = m->link[0].latency_s, pace = m->link[0].bytes_per_s;
    for (int l = 1; l < m->nlinks; l++) {
        start = m->link[l].latency_s < start ? m->link[l].latency_s : start;
        pace = m->link[l].bytes_per_s > pace ? m->link[l].bytes_per_s : pace;
    }
    /* The margin keeps rounding from putting a lower bound above a cost. */
    return bytes > 0 ? (start + bytes / pace) * (1 - 1e-12) : 0;
}

bool tsri_two_phase(const tsri_link *link, double bytes, int k)
{
    double one = link->latency_s + bytes * (k - 1) / link->bytes_per_s;
    double two = 2 * link->latency_s + 2 * bytes * (k - 1) / k / link->bytes_per_s;
    return two < one;
}
