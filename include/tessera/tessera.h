/* SPDX-License-Identifier: Apache-2.0 */
/* All of Tessera's public API. */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include <tessera/base.h>
#include <tessera/status.h>
#include <tessera/store.h>
#include <tessera/world.h>
#include <tessera/placement.h>
#include <tessera/sbp.h>
#include <tessera/graph.h>
#include <tessera/ops.h>
#include <tessera/functional.h>
#include <tessera/own_op.h>
#include <tessera/plan.h>
#include <tessera/debug.h>
#include <tessera/layers.h>
#include <tessera/models.h>
#include <tessera/nn.h>
#include <tessera/safetensors.h>
#include <tessera/optim.h>
#include <tessera/grad_scaler.h>
#include <tessera/own_optimizer.h>
#include <tessera/collective.h>
#include <tessera/data.h>
#include <tessera/ddp.h>
#include <tessera/sampler.h>
#include <tessera/loader.h>
#include <tessera/checkpoint.h>
#include <tessera/train.h>

#ifdef __cplusplus
#include <tessera/tessera.hpp>
#endif

#endif
