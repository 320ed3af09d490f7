/* SPDX-License-Identifier: Apache-2.0 */
/* What nvtx_tool.c has noted. */
#ifndef TESSERA_TESTS_CUDA_NVTX_TOOL_H
#define TESSERA_TESTS_CUDA_NVTX_TOOL_H

enum { NVTX_LOG_MOST = 64 };

struct nvtx_log {
    int pushed, depth; /* ranges so far; ranges that are open */
    char name[NVTX_LOG_MOST][32];
};

const struct nvtx_log *nvtx_tool_log(void);

#endif
