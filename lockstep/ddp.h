// Data-parallel training is lockstep::ddp: DistributedDataParallel, its options and communication hooks, join, no_sync,
// DistributedSampler and SyncBatchNorm. docs/ddp.md describes it.
#pragma once
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_module.h"
#include "ddp/distributed_sampler.h"
#include "ddp/helpers.h"
#include "ddp/hooks/comm_hooks.h"
#include "ddp/hooks/post_local_sgd.h"
#include "ddp/hooks/power_sgd.h"
#include "ddp/recorded_step.h"
#include "ddp/restore.h"
#include "ddp/simple.h"
#include "ddp/sync_batch_norm.h"
