// Recording and replaying a rank of a Python job (collectives/replay/). `lockstep run --record K` names the number of steps
// to the ranks in LOCKSTEP_RECORD, and `lockstep replay` the recording and the rank in LOCKSTEP_REPLAY and
// LOCKSTEP_REPLAY_RANK. What a step is, and what its state, says the program (python/lockstep/record/).
#pragma once
#include <memory>
#include <string>

#include "collectives/backend/backend.h"
#include "collectives/log/collective_log.h"
#include "collectives/replay/player.h"
#include "python/operators/call.h"

namespace lockstep::python {

/// Returns a transport that records what goes through `transport`, or `transport` where nothing is to be recorded or it
/// is one for a device: then the recording says so.
c10::intrusive_ptr<c10d::Backend> recorded(c10::intrusive_ptr<c10d::Backend> transport, const std::string& group,
                                           const std::shared_ptr<dist::CollectiveLog>& log, int rank, int world_size);

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
nlohmann::json replay_summary(const Call& call);

}  // namespace lockstep::python
