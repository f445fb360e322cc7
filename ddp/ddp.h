// All of lockstep::ddp.
#pragma once
#include "ddp/comm_hooks.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"
#include "ddp/helpers.h"
#include "ddp/join.h"
#include "ddp/post_local_sgd.h"
#include "ddp/power_sgd.h"
#include "ddp/simple.h"
#include "ddp/sync_batch_norm.h"
