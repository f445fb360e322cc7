#include "worker/recording.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "inspectors/fingerprint/sent_text.h"
#include "protocol/dist_error.h"
#include "protocol/version.h"

namespace lockstep::worker {

using nlohmann::json;

namespace {
json about_this_process(const Configuration& configuration) {
  return {{"world_size", configuration.world_size},
          {"local_rank", configuration.local_rank},
          {"local_world_size", configuration.local_world_size},
          {"lockstep", kVersion},
          {"torch", TORCH_VERSION},
          {"threads", at::get_num_threads()},
          {"cpu", at::get_cpu_capability()}};
}

/// Says on the standard error what is not as it was when the rank was recorded.
void say_differences(const json& recorded, const json& here) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kWords = {{{"lockstep", "lockstep"},
                                                                          {"torch", "torch"},
                                                                          {"cpu", "the instruction set"},
                                                                          {"threads", "the number of threads"}}};
  for (const auto& [key, what] : kWords) {
    const json& now = here.at(key);
    const json before = recorded.value(key, now);
    if (before != now)
      std::fprintf(stderr, "lockstep: %s is %s here, and was %s when this was recorded: results may differ\n", what,
                   now.dump().c_str(), before.dump().c_str());
  }
}

std::shared_ptr<dist::Player> player;  // set before there are cells
}  // namespace

void record(const Configuration& configuration, int64_t steps) {
  const auto context = dist::require_context("record");
  if (steps == 0) {
    if (context->recorder()) context->recorder()->stop("it was asked to");
    return;
  }
  dist::check_recordable();  // a recorder takes the place of what an earlier one has written
  dist::record_session(std::make_shared<dist::Recorder>(configuration.session_dir, configuration.rank, steps,
                                                        about_this_process(configuration), inspect::sent_text,
                                                        context->log()));
}

std::shared_ptr<dist::Player> make_player(const Configuration& configuration) {
  if (configuration.replay.empty()) return nullptr;
  player = std::make_shared<dist::Player>(configuration.replay, configuration.rank, inspect::sent_text);
  say_differences(player->about(), about_this_process(configuration));
  return player;
}

protocol::question::Replay::Answer replay_answer() {
  protocol::question::Replay::Answer answer;
  if (!player) {
    answer.error = "this rank replays nothing";
    return answer;
  }
  const auto conclusion = player->conclusion();
  answer.text = conclusion.text;
  answer.departed = conclusion.departed;
  answer.over = conclusion.is_over;
  answer.skipping = conclusion.is_skipping;
  return answer;
}

}  // namespace lockstep::worker
