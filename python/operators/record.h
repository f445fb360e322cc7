// Recording and replaying a rank of a Python job (collectives/replay/). `lockstep run --record K` names the number of steps
// to the ranks in LOCKSTEP_RECORD, and `lockstep replay` the recording and the rank in LOCKSTEP_REPLAY and
// LOCKSTEP_REPLAY_RANK. What a step is, and what its state, says the program (python/lockstep/record/).
#pragma once
#include <memory>
#include <string>

#include "collectives/backend/backend.h"
#include "collectives/log/collective_log.h"
#include "collectives/replay/player.h"
#include "collectives/replay/recorder.h"
#include "python/operators/call.h"

namespace lockstep::python {

/// Returns what records this rank, which the first call makes; null where nothing is to be recorded, or can't be.
std::shared_ptr<dist::Recorder> recorder(const std::shared_ptr<dist::CollectiveLog>& log, int rank, int world_size);

/// Whether this process replays a rank.
bool is_replay();
/// Returns the player, which is made by the first call. Throws dist::Error.
std::shared_ptr<dist::Player> player();

nlohmann::json record_mode(const Call& call);
nlohmann::json record_step(const Call& call);
nlohmann::json record_stop(const Call& call);
nlohmann::json replay_step(const Call& call);
nlohmann::json replay_fill(const Call& call);
nlohmann::json replay_compare(const Call& call);
nlohmann::json replay_conclusion(const Call& call);

}  // namespace lockstep::python
