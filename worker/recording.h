// Records what this rank receives, or plays a recording in place of the other ranks (docs/replay.md). No LibTorch in this
// header.
#pragma once
#include <cstdint>
#include <memory>

#include "protocol/questions.h"
#include "worker/process/configuration.h"

namespace lockstep::dist {
class Player;
}

namespace lockstep::worker {

/// Records from now on, as protocol::function::Record asks. On the run thread, between cells. Throws dist::Error.
void record(const Configuration& configuration, int64_t steps);

/// Returns the player of Configuration::replay; null: this rank is none of a replay. Throws dist::Error.
std::shared_ptr<dist::Player> make_player(const Configuration& configuration);

/// Answers protocol::question::Replay. From any thread.
protocol::question::Replay::Answer replay_answer();

}  // namespace lockstep::worker
