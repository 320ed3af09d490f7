/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/ckpt/ckpt.h"

#include <math.h>
#include <string.h>

#include "src/core/convert.h"
#include "src/core/dims.h"

typedef struct comparing {
    ckpt_source a, b;
    const char *part;
    double tolerance;
    int64_t compared, differ;
    double worst;
} comparing;

static bool is_asked(const comparing *c, const char *name)
{
    const size_t n = c->part ? strlen(c->part) : 0;
    return !n || (!strncmp(name, c->part, n) && (!name[n] || name[n] == '/'));
}

/* The values as doubles, in memory of their own. */
static tsr_status read_doubles(ckpt_source *s, const ckpt_tensor *t, double **out)
{
    const int64_t n = tsr_dims_count(t->dims);
    char *data = tsri_mem_alloc(NULL, ckpt_bytes(t));
    *out = tsri_mem_alloc(NULL, (size_t)n * sizeof **out);
    tsr_status status = data && *out ? ckpt_read(s, t, data) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsri_convert(*out, TSR_F64, data, t->dtype, n);
    tsri_mem_free(data);
    return status;
}

/* Tells how far two tensors of floating point are apart. */
static tsr_status compare_values(comparing *c, const ckpt_tensor *a, const ckpt_tensor *b)
{
    double *x = NULL, *y = NULL, most = 0;
    const int64_t n = tsr_dims_count(a->dims);
    int64_t many = 0;
    tsr_status status = read_doubles(&c->a, a, &x);
    if (status == TSR_OK)
        status = read_doubles(&c->b, b, &y);
    for (int64_t i = 0; status == TSR_OK && i < n; i++) {
        const bool same = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
        const double by = same ? 0 : isnan(x[i] - y[i]) ? INFINITY : fabs(x[i] - y[i]);
        most = by > most ? by : most;
        many += by > c->tolerance;
    }
    if (status == TSR_OK && many)
        cli_say("%s: %lld of %lld values differ, by up to %g\n", a->name, (long long)many,
                (long long)n, most);
    c->differ += many != 0;
    c->worst = most > c->worst ? most : c->worst;
    tsri_mem_free(x);
    tsri_mem_free(y);
    return status;
}

static tsr_status compare_bytes(comparing *c, const ckpt_tensor *a, const ckpt_tensor *b)
{
    const size_t n = ckpt_bytes(a);
    char *x = tsri_mem_alloc(NULL, n), *y = tsri_mem_alloc(NULL, n);
    tsr_status status = x && y ? ckpt_read(&c->a, a, x) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = ckpt_read(&c->b, b, y);
    if (status == TSR_OK && n && memcmp(x, y, n) != 0) {
        cli_say("%s: its bytes differ\n", a->name);
        c->differ++;
    }
    tsri_mem_free(x);
    tsri_mem_free(y);
    return status;
}

static tsr_status compare_one(comparing *c, const ckpt_tensor *a)
{
    const ckpt_tensor *b = ckpt_find(&c->b, a->name);
    char in_a[TSRI_DIMS_TEXT_MAX], in_b[TSRI_DIMS_TEXT_MAX];
    if (!is_asked(c, a->name))
        return TSR_OK;
    if (!b) {
        cli_say("%s: only in %s\n", a->name, c->a.path);
        c->differ++;
        return TSR_OK;
    }
    c->compared++;
    const bool floats = tsri_is_float(a->dtype) && tsri_is_float(b->dtype);
    if (!tsr_dims_equal(a->dims, b->dims) || (!floats && a->dtype != b->dtype)) {
        cli_say("%s: %s (%s) and %s (%s)\n", a->name, tsr_dtype_name(a->dtype),
                tsri_dims_format(a->dims, in_a), tsr_dtype_name(b->dtype),
                tsri_dims_format(b->dims, in_b));
        c->differ++;
        return TSR_OK;
    }
    return floats ? compare_values(c, a, b) : compare_bytes(c, a, b);
}

static tsr_status compare(comparing *c, const char *a, const char *b)
{
    c->b = (ckpt_source){0};
    TSRI_TRY(ckpt_open(a, true, &c->a));
    TSRI_TRY(ckpt_open(b, true, &c->b));
    for (int i = 0; i < c->a.ntensors; i++)
        TSRI_TRY(compare_one(c, &c->a.tensors[i]));
    for (int i = 0; i < c->b.ntensors; i++) {
        const char *name = c->b.tensors[i].name;
        if (!is_asked(c, name) || ckpt_find(&c->a, name))
            continue;
        cli_say("%s: only in %s\n", name, c->b.path);
        c->differ++;
    }
    return TSR_OK;
}

int ckpt_compare(const char *a, const char *b, const char *part, double tolerance)
{
    comparing c = {.part = part, .tolerance = tolerance};
    int code = CLI_OK;
    if (compare(&c, a, b) != TSR_OK) {
        code = cli_fail("ckpt compare");
    } else if (!c.compared && !c.differ) {
        tsri_fshow(stderr, "tessera ckpt compare: neither has tensors of a part '%s'\n", part);
        code = CLI_FAILED;
    } else {
        cli_say("%lld tensors compared, %lld differ; the largest difference is %g\n",
                (long long)c.compared, (long long)c.differ, c.worst);
        code = c.differ ? CLI_FAILED : CLI_OK;
    }
    ckpt_close(&c.a);
    ckpt_close(&c.b);
    return code;
}
