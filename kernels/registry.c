/* SPDX-License-Identifier: Apache-2.0 */
/* Which implementations there are, which one makes a kernel, and the layouts that ops like. */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const tsri_kernels tsri_kernels_cpu_fast, tsri_kernels_cpu_onednn, tsri_kernels_cpu_ref;

const tsri_kernels *const *tsri_kernels_cpu(void)
{
    static const tsri_kernels *const list[] = {&tsri_kernels_cpu_fast, &tsri_kernels_cpu_onednn,
                                               &tsri_kernels_cpu_ref, NULL};
    return list;
}

/* Whether `name` stands in the comma list; a NULL or empty list holds every name. */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    if (!list || !*list)
        return true;
    for (const char *p = list; *p; p += *p == ',') {
        size_t m = strcspn(p, ",");
        if (m == n && !memcmp(p, name, n))
            return true;
        p += m;
    }
    return false;
}

static size_t put_arg(char *text, size_t size, size_t n, const tsri_arg *a)
{
    n += (size_t)snprintf(text + n, size - n, "%s(", tsr_dtype_name(a->dtype));
    for (int i = 0; i < a->ndim && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? "," : "", (long long)a->shape[i]);
    if (n < size)
        n += (size_t)snprintf(text + n, size - n, ") ");
    return n;
}

static tsr_status refuse(const tsri_kernel_desc *d)
{
    char text[1024] = "";
    size_t n = 0;
    for (int i = 0; i < d->nin && n < sizeof text; i++)
        n = put_arg(text, sizeof text, n, &d->in[i]);
    if (n < sizeof text)
        n += (size_t)snprintf(text + n, sizeof text - n, "-> ");
    for (int i = 0; i < d->nout && n < sizeof text; i++)
        n = put_arg(text, sizeof text, n, &d->out[i]);
    return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: no kernel of this device takes %s",
                     tsri_op_name(d->op), text);
}

tsr_status tsri_kernel_create(tsri_mem *mem, const tsri_kernels *const *list,
                              const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const char *mask = getenv("TESSERA_KERNELS");
    bool declined = false;
    for (; *list; list++) {
        tsri_kernel_create_fn *create = (*list)->slot[desc->op];
        /* The last one is the reference, without which a mask would leave ops without a kernel. */
        if (!create || (list[1] && !listed(mask, (*list)->name)))
            continue;
        tsr_status status = create(mem, desc, out_kernel);
        if (status == TSR_OK && declined)
            tsri_error_clear(); /* why others declined is nobody's error */
        if (status != TSR_ERR_UNSUPPORTED)
            return status;
        declined = true;
    }
    return refuse(desc);
}

tsri_layout_taste tsri_kernel_taste(tsri_op_kind op)
{
    switch (op) {
    case TSRI_OP_CONV2D:
    case TSRI_OP_CONV2D_DX:
    case TSRI_OP_CONV2D_DW:
    case TSRI_OP_MAX_POOL:
    case TSRI_OP_MAX_POOL_DX:
    case TSRI_OP_AVG_POOL:
    case TSRI_OP_AVG_POOL_DX:
    case TSRI_OP_ADAPTIVE_POOL:
    case TSRI_OP_ADAPTIVE_POOL_DX:
    case TSRI_OP_BN_STATS:
    case TSRI_OP_BN_CENTER:
    case TSRI_OP_BN_APPLY:
    case TSRI_OP_BN_BWD_STATS:
    case TSRI_OP_BN_BWD_APPLY:
    case TSRI_OP_SCALE_SHIFT:
    case TSRI_OP_BN_ACT:
    case TSRI_OP_BN_ACT_BWD_STATS:
    case TSRI_OP_BN_ACT_BWD_APPLY:
        return TSRI_LAYOUT_NHWC;
    case TSRI_OP_UNARY:
    case TSRI_OP_UNARY_GRAD:
    case TSRI_OP_SCALE:
    case TSRI_OP_BINARY:
    case TSRI_OP_ADD_N:
    case TSRI_OP_CAST:
    case TSRI_OP_DROPOUT:
    case TSRI_OP_WHERE:
    case TSRI_OP_MASK:
        return TSRI_LAYOUT_ANY;
    default:
        return TSRI_LAYOUT_ROW;
    }
}
