/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several implementations makes a kernel. */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        if (!create || (list[1] && !(*list)->is_needed && !listed(mask, (*list)->name)))
            continue;
        tsr_status status = (*list)->call ? (*list)->call(create, mem, desc, out_kernel)
                                          : create(mem, desc, out_kernel);
        if (status == TSR_OK && tsri_kernel_has_end(&desc->end) && !(*out_kernel)->takes_end) {
            (*out_kernel)->destroy(*out_kernel);
            *out_kernel = NULL;
            status = TSR_ERR_UNSUPPORTED;
        }
        if (status == TSR_OK && declined)
            tsri_error_clear(); /* why others declined is nobody's error */
        if (status != TSR_ERR_UNSUPPORTED)
            return status;
        declined = true;
    }
    return refuse(desc);
}
