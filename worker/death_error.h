// Describes the signal, or the call of exit, that ended the rank, as data.
#pragma once
#include "protocol/worker_messages.h"
#include "worker/cell/symbols.h"
#include "worker/interpose/crash.h"

namespace lockstep::worker {

protocol::CellError describe_death(const DeathReport& report, Symbols& symbols);

}  // namespace lockstep::worker
