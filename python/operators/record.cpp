#include "python/operators/record.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "collectives/transport/mixed_connector.h"
#include "inspectors/fingerprint/sent_text.h"
#include "protocol/dist_error.h"
#include "protocol/environment.h"
#include "protocol/version.h"
#include "protocol/whole_number.h"
#include "python/agent/agent.h"

namespace lockstep::python {

using nlohmann::json;

namespace {
constexpr const char* kRecordVariable = "LOCKSTEP_RECORD";
constexpr const char* kReplayVariable = "LOCKSTEP_REPLAY";
constexpr const char* kReplayRankVariable = "LOCKSTEP_REPLAY_RANK";

std::optional<int64_t> number_in(const char* variable) {
  return protocol::whole_number<int64_t>(protocol::variable(variable));
}

json about_this_process(int world_size) {
  const protocol::JobRank rank = agent::described_rank();
  return {{"world_size", world_size},        {"lockstep", kVersion},
          {"torch", TORCH_VERSION},          {"threads", at::get_num_threads()},
          {"cpu", at::get_cpu_capability()}, {"host", rank.host},
          {"local_rank", rank.local_rank},   {"local_world_size", rank.local_world_size},
          {"python", rank.python},           {"script", rank.script}};
}

struct Recording {
  std::mutex mutex;
  bool is_tried = false;
  std::shared_ptr<dist::Recorder> recorder;
};
Recording& recording() {
  static auto* one = new Recording;  // threads of Gloo may outlive it
  return *one;
}

std::shared_ptr<dist::Recorder> current_recorder() {
  const std::lock_guard lock(recording().mutex);
  return recording().recorder;
}

/// "none": no group was to be recorded until now. "stopped": the reason has been said.
const char* mode_of_recording() {
  const std::lock_guard lock(recording().mutex);
  if (!recording().is_tried) return "none";
  return recording().recorder && recording().recorder->stopped().empty() ? "record" : "stopped";
}
}  // namespace

std::shared_ptr<dist::Recorder> recorder(const std::shared_ptr<dist::CollectiveLog>& log, int rank, int world_size) {
  const auto steps = number_in(kRecordVariable);
  if (!steps) return nullptr;
  Recording& all = recording();
  const std::lock_guard lock(all.mutex);
  if (std::exchange(all.is_tried, true)) return all.recorder;
  std::string problem;
  const std::string folder = agent::job_folder();
  if (*steps < 1 || *steps > dist::kMostRecordedSteps) problem = fmt::format("{} is no number of steps", *steps);
  if (folder.empty()) problem = "this rank is not watched by lockstep run";
  if (problem.empty()) {
    try {
      all.recorder = std::make_shared<dist::Recorder>(folder, rank, *steps, about_this_process(world_size),
                                                      inspect::sent_text, log);
    } catch (const dist::Error& error) {
      problem = error.what();
    }
  }
  if (!problem.empty()) std::fprintf(stderr, "lockstep: nothing is recorded: %s\n", problem.c_str());
  return all.recorder;
}

bool is_replay() { return std::getenv(kReplayVariable) != nullptr; }

std::shared_ptr<dist::Player> player() {
  static std::mutex mutex;
  static auto* one = new std::shared_ptr<dist::Player>;
  const std::lock_guard lock(mutex);
  if (!*one) {
    const auto rank = number_in(kReplayRankVariable);
    if (!is_replay() || !rank) throw dist::Error("this process replays no rank");
    *one = std::make_shared<dist::Player>(std::getenv(kReplayVariable), static_cast<int>(*rank), inspect::sent_text);
  }
  return *one;
}

json record_mode(const Call&) {
  if (is_replay()) {
    json about = player()->about();
    about["here"] = about_this_process(about.value("world_size", 1));
    return {{"mode", "replay"}, {"about", about}};
  }
  return {{"mode", mode_of_recording()}};
}

json record_step(const Call& call) {
  const auto recorder = current_recorder();
  if (!recorder) return json::object();
  const int64_t step = call.arguments.at("step");
  const bool needs_state = recorder->wants_state(step);
  if (needs_state && !call.arguments.contains("state")) return {{"wants_state", true}};
  const auto kept = [&](const char* key) {
    const json& part = call.arguments.at(key);
    dist::Recorder::Kept result{.text = {{"values", part.at("values")}}, .tensors = {}};
    for (const json& index : part.at("tensors")) result.tensors.push_back(call.tensor(index));
    return result;
  };
  std::optional<dist::Recorder::Kept> state;
  if (needs_state) state = kept("state");
  recorder->begin_step(step, kept("begin"), state);
  return json::object();
}

json record_stop(const Call& call) {
  if (const auto recorder = current_recorder()) recorder->stop(call.arguments.at("reason"));
  return json::object();
}

namespace {
json values_of(const dist::Record* record) { return record ? record->text.at("values") : json(); }

const dist::Record& record_named(const Call& call) {
  const bool of_state = call.arguments.at("what") == "state";
  return player()->record_of(of_state ? dist::RecordKind::state : dist::RecordKind::step, call.arguments.at("step"));
}
}  // namespace

json replay_step(const Call& call) {
  const auto begun = player()->begin_step(call.arguments.at("step"));
  const char* const names[] = {"play", "set_state", "skip", "end"};
  return {{"then", names[static_cast<size_t>(begun.then)]},
          {"begin", values_of(begun.step)},
          {"state", values_of(begun.state)}};
}

json replay_fill(const Call& call) {
  player()->fill_from(record_named(call), call.tensors);
  return json::object();
}

json replay_compare(const Call& call) {
  const int index = player()->first_difference(record_named(call), call.tensors);
  if (index >= 0 && call.arguments.at("departs"))
    player()->depart(fmt::format("{} has other bits than on the recorded rank",
                                 call.arguments.at("names").at(static_cast<size_t>(index)).get<std::string>()));
  return {{"equal", index < 0}};
}

json replay_conclusion(const Call& call) {
  if (call.arguments.at("at_until")) player()->stop_here();
  return {{"text", player()->conclusion().text}};
}

}  // namespace lockstep::python
