// What the I/O thread answers and reports: what the rank does, its stack, its collectives.
#pragma once
#include <optional>
#include <vector>

#include "protocol/worker_messages.h"
#include "worker/cell/symbols.h"
#include "worker/device.h"
#include "worker/process/configuration.h"
#include "worker/process/outbox.h"

namespace lockstep::worker {

/// `device` may be null.
protocol::question::Status::Answer status_answer(const Device* device, const Configuration& configuration,
                                                 Symbols& symbols);
protocol::question::Stack::Answer stack_answer(std::vector<Frame> frames);
/// Returns the facts by which a hang is judged. `rank` is this one. `held`: the kernel says that the run thread does not
/// run. `frames` are nothing where that has not answered.
protocol::question::Hang::Answer hang_answer(const protocol::question::Hang& question, int rank, bool held,
                                             const std::optional<std::vector<Frame>>& frames, Symbols& symbols);
/// Whether the run thread waits in the kernel at this moment.
bool run_thread_held();
protocol::question::Collectives::Answer collectives_answer(size_t last, Symbols& symbols);

protocol::Waiting waiting_message(const WaitsInVain& waits, Symbols& symbols);

}  // namespace lockstep::worker
