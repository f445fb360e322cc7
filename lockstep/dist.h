// lockstep::dist has process groups, collectives and the errors they throw, under the names of torch.distributed.
// docs/dist.md describes it.
#pragma once
#include "collectives/dist.h"
