/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for Nsight Systems: NVTX loads it by NVTX_INJECTION64_PATH, and it notes the ranges. */
#include "tests/cuda/nvtx_tool.h"
#include "kernels/cuda/nvtx.h"

#include <stdio.h>
#include <string.h>

static struct nvtx_log seen;

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

static int push(const char *name)
{
    if (seen.pushed < NVTX_LOG_MOST)
        snprintf(seen.name[seen.pushed], sizeof seen.name[0], "%s", name);
    seen.pushed++;
    return seen.depth++;
}

static int pop(void)
{
    return --seen.depth;
}

const struct nvtx_log *nvtx_tool_log(void)
{
    return &seen;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks =
        (const NvtxExportTableCallbacks *)get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
        size <= NVTX_CBID_CORE_RangePop)
        return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
