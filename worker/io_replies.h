// The bodies of what the I/O thread answers and reports: what the rank does, its stack, its collectives. The fields
// are described at protocol::question.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "protocol/worker_messages.h"
#include "worker/cell/symbols.h"
#include "worker/device.h"
#include "worker/process/configuration.h"
#include "worker/process/outbox.h"

namespace lockstep::worker {

/// Returns {"state","cell","line","since_s","collective","device","rss_bytes","threads"}; `device` may be null.
nlohmann::json status_reply(const Device* device, const Configuration& configuration, Symbols& symbols);
/// Returns {"stack":["train() at cell 7, line 4",...],"frames":[{"function","cell","line","object"},...]}.
nlohmann::json stack_reply(std::vector<Frame> frames);
/// Returns the facts by which a hang is judged, without the stack:
/// {"state","cell","since_s","held","asleep","waits":{},"last","sites","evidence"}. `rank` is this one. `held`: the
/// kernel says that the run thread does not run.
nlohmann::json hang_reply(const protocol::question::Hang& question, int rank, bool held, Symbols& symbols);
/// Whether the run thread waits in the kernel at this moment.
bool run_thread_held();
/// Returns {"collectives":[{"group","seq","op","dtype","shape",...},...]}, oldest first.
nlohmann::json collectives_reply(size_t last, Symbols& symbols);

protocol::Waiting waiting_message(const WaitsInVain& waits, Symbols& symbols);

}  // namespace lockstep::worker
