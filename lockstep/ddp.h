// Data-parallel training is lockstep::ddp: DistributedDataParallel, its options and communication hooks, join, no_sync,
// DistributedSampler and SyncBatchNorm. docs/ddp.md describes it.
#pragma once
#include "ddp/ddp.h"
