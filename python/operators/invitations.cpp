#include "python/operators/invitations.h"

#include <mutex>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "python/agent/agent.h"

namespace lockstep::python {
namespace {

using nlohmann::json;

struct Invitations {
  std::mutex mutex;
  json place;       // null: the rank runs
  json invitation;  // null: none
  int event = -1;
  int64_t step = 0;  // the last that was counted
  int64_t stop_at = 0;  // 0: nowhere
  bool stops = false;   // at `step`, and `place` may not be known yet
  bool detached = false;
};

Invitations& invitations() {
  static auto* one = new Invitations;  // the agent's thread may outlive the library's objects
  return *one;
}

json serve(const json& request) {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  mine.invitation = {{"hub", request.at("hub").get<std::string>()},
                     {"identity", request.at("identity").get<std::string>()}};
  set_event(mine.event);
  return {{"stopped", mine.place}};
}

json take_back(const json& request) {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  const bool is_its_own = !mine.invitation.is_null() && mine.invitation.at("hub") == request.at("hub");
  if (is_its_own) mine.invitation = nullptr;
  return {{"taken_back", is_its_own}};
}

json pass_breakpoints(const json&) {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  mine.detached = true;
  set_event(mine.event);
  return {{"stopped", mine.place}};
}

json stop_at(const json& request) {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  const json wanted = request.value("step", json());
  const bool late = !wanted.is_null() && wanted.get<int64_t>() <= mine.step;
  mine.stop_at = wanted.is_null() || late ? 0 : wanted.get<int64_t>();
  return {{"step", mine.step > 0 ? json(mine.step) : json()},
          {"late", late},
          {"stopped", mine.place.is_null() && mine.stops ? json("") : mine.place}};
}

}  // namespace

json expect_invitations() {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  if (mine.event < 0) {
    mine.event = make_event().release();
    if (mine.event < 0) throw Error("no descriptor is left for the breakpoint");
    agent::add_handler("serve", serve);
    agent::add_handler("take_back", take_back);
    agent::add_handler("detach", pass_breakpoints);
    agent::add_handler("stop_at", stop_at);
  }
  return {{"event", mine.event}};
}

void set_stopped(const json& place) {
  {
    Invitations& mine = invitations();
    const std::lock_guard lock(mine.mutex);
    mine.place = place;
    mine.stops = false;
  }
  if (place.is_null()) agent::set_stop(std::nullopt);
}

void report_stop(bool is_served, const json& limit_s) {
  protocol::RankStop stop{.is_served = is_served};
  {
    Invitations& mine = invitations();
    const std::lock_guard lock(mine.mutex);
    if (mine.place.is_null()) return;
    stop.place = mine.place;
  }
  if (!limit_s.is_null()) stop.limit_s = limit_s.get<double>();
  agent::set_stop(stop);
}

bool stops_at(int64_t step) {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  mine.step = step;
  mine.stops = mine.stop_at != 0 && step >= mine.stop_at;
  if (mine.stops) mine.stop_at = 0;
  return mine.stops;
}

int64_t last_step() {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  return mine.step;
}

json take_invitation() {
  Invitations& mine = invitations();
  const std::lock_guard lock(mine.mutex);
  take_event(mine.event);
  const json taken = std::exchange(mine.invitation, nullptr);
  return {{"invitation", taken}, {"detached", mine.detached}};
}

}  // namespace lockstep::python
