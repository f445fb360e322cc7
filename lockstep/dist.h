// Process groups, collectives and the errors they throw, under the names of torch.distributed: lockstep::dist.
// docs/dist.md.
#pragma once
#include "collectives/dist.h"
