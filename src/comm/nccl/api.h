/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h as a system header, wherever it lies: a folder that CPATH names is searched
 * like one of ours (-isystem for it does nothing then), and our warnings would judge what is not
 * our code.
 */
#ifndef TESSERA_COMM_NCCL_API_H
#define TESSERA_COMM_NCCL_API_H

#pragma GCC system_header

#include <nccl.h>

#endif
