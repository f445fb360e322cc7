// Data-parallel training: DistributedDataParallel, its options and communication hooks, join, no_sync,
// DistributedSampler and SyncBatchNorm: lockstep::ddp. docs/ddp.md.
#pragma once
#include "ddp/ddp.h"
