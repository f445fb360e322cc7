#include "shell/jobs/job_picture.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "inspectors/evidence/evidence_json.h"
#include "inspectors/evidence/flight_recorder.h"
#include "inspectors/hang/activity.h"
#include "inspectors/remains/stack_text.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_logs.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

/// Of a text that has a character for each byte.
std::string bytes_of_text(const std::string& text) {
  const std::wstring characters = to_wide(text);
  return {characters.begin(), characters.end()};
}

void add_dumps(int rank, int world_size, const json& answer, inspect::Remains& remains) {
  for (const json& each : answer.value("dumps", json::array())) {
    const std::string bytes = each.contains("pickle") ? bytes_of_text(each.at("pickle").get<std::string>())
                                                      : each.at("text").get<std::string>();
    inspect::Evidence dump = inspect::read_flight_recorder(bytes, fmt::format("rank {}", rank), rank);
    if (dump.calls.empty() && dump.groups.empty()) continue;  // of a backend that the rank does not use
    complete_default_group(world_size, dump);
    remains.evidence.push_back(std::move(dump));
    ++remains.files;
  }
}

bool any_frame(const std::vector<inspect::EvidenceFrame>& frames, std::initializer_list<const char*> files) {
  return std::ranges::any_of(frames, [&](const inspect::EvidenceFrame& frame) {
    return std::ranges::any_of(files, [&](const char* file) { return frame.file.find(file) != std::string::npos; });
  });
}

}  // namespace

void complete_default_group(int world_size, inspect::Evidence& dump) {
  for (inspect::EvidenceGroup& group : dump.groups) {
    if (group.description != inspect::kDefaultGroup || !group.ranks.empty()) continue;
    group.ranks.resize(static_cast<size_t>(world_size));
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
    group.size = world_size;
  }
}

std::vector<inspect::EvidenceFrame> main_frames(int rank, const json& stacks) {
  inspect::Remains read;
  inspect::read_stack_text(stacks.value("python", ""), fmt::format("rank {}", rank), rank, read);
  const auto main = std::ranges::find_if(read.stacks, &inspect::RankStack::is_main);
  if (main != read.stacks.end()) return main->frames;
  std::vector<inspect::EvidenceFrame> frames;
  for (const json& each : stacks.value("native", json::array()))
    if (each.contains("file")) frames.push_back({each.value("function", ""), each.at("file"), each.value("line", 0)});
  return frames;
}

inspect::RankDoing doing_of(int rank, const json& stacks, const std::vector<inspect::EvidenceFrame>& python) {
  std::vector<inspect::StackFrame> frames;
  for (const json& each : stacks.value("native", json::array()))
    frames.push_back({.function = each.value("function", ""), .object = each.value("object", "")});
  // At the interpreter's lock: it runs Python, and gave the lock away to be asked; or another thread keeps it.
  const std::string lock = stacks.value("at_lock", "");
  if (lock == "held")
    return {.rank = rank,
            .kind = FindingKind::lock,
            .words = "waits for the interpreter's lock, which another thread holds"};
  FindingKind activity = lock == "free" ? FindingKind::computing
                                        : inspect::activity_of(frames, /*asleep=*/false, stacks.value("held", false));
  const bool waits = activity != FindingKind::computing && activity != FindingKind::unknown;
  // Python's own locks and queues end in the same functions of the C library, for any purpose.
  const auto has = [&](const char* name) {
    return std::ranges::any_of(frames, [&](const auto& each) { return each.function.starts_with(name); });
  };
  // Where the step of an inspector is under way, frames of the program are further in.
  const bool in_inspector = !python.empty() && python.front().file.ends_with("/lockstep/core/_library.py");
  if (waits && activity != FindingKind::device && in_inspector)
    return {
        .rank = rank, .kind = FindingKind::collective, .words = "waits in an inspector of Lockstep for other ranks"};
  if (waits && any_frame(python, {"torch/utils/data/"}))
    activity = FindingKind::loading_data;
  else if (waits && activity != FindingKind::collective && has("PyThread_acquire_lock"))
    activity = FindingKind::lock;
  std::string words = inspect::activity_words(activity);
  // Another thread may connect as well: only who makes the store waits for that.
  const auto connecting = stacks.value("connecting", std::vector<std::string>());
  if (activity == FindingKind::collective && has("c10d::ProcessGroupGloo::RecvWork::wait"))
    words = "is in recv";
  else if (activity == FindingKind::collective && has("c10d::ProcessGroupGloo::SendWork::wait"))
    words = "is in send";
  else if (waits && activity != FindingKind::collective && inspect::is_at_store(frames))
    words = connecting.empty() || !has("c10d::TCPStore::TCPStore")
                ? "waits for a key of the store"
                : fmt::format("gets no answer from {}, to which it connects", connecting.front());
  return {.rank = rank, .kind = activity, .words = std::move(words)};
}

void add_left_dumps(const std::string& folder, int rank, int world_size, inspect::Remains& remains) {
  for (const bool nccl : {false, true}) {
    const std::string path = protocol::rank_trace(folder, rank, nccl);
    if (::access(path.c_str(), R_OK) != 0) continue;
    try {
      inspect::Evidence dump = inspect::read_flight_recorder_file(path, rank);
      if (dump.calls.empty() && dump.groups.empty()) continue;
      complete_default_group(world_size, dump);
      remains.evidence.push_back(std::move(dump));
    } catch (const inspect::UnreadableEvidence& error) {
      remains.unread.emplace_back(error.what());
    }
  }
}

inspect::Remains picture_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit) {
  inspect::Remains remains;
  const auto use = [&](int rank, const auto& function) {
    try {
      function();
    } catch (const std::exception& error) {  // the other ranks may say enough
      remains.unread.push_back(fmt::format("what rank {} answered: {}", rank, error.what()));
    }
  };
  const int world_size = ranks.empty() ? 0 : ranks.front().facts.world_size;
  std::vector<JobMember> without_frames;
  for (const auto& [rank, answer] : ask_ranks(ranks, {{"request", "collectives"}}, limit)) {
    if (answer.error.empty())
      use(rank, [&, number = rank, &body = answer.body] { add_dumps(number, world_size, body, remains); });
    else  // its interpreter is held: the recorder without lines of Python can be read all the same
      std::ranges::copy_if(ranks, std::back_inserter(without_frames),
                           [number = rank](const JobMember& each) { return each.facts.rank == number; });
  }
  for (const auto& [rank, answer] : ask_ranks(without_frames, {{"request", "collectives_without_stacks"}}, limit)) {
    if (answer.error.empty())
      use(rank, [&, number = rank, &body = answer.body] { add_dumps(number, world_size, body, remains); });
    else
      remains.unread.push_back(fmt::format("rank {}: {}", rank, answer.error));
  }
  std::vector<JobMember> elsewhere;
  for (const JobMember& each : ranks) {
    if (each.proxy)
      elsewhere.push_back(each);
    else if (auto log = read_rank_log(each.folder(), each.facts.rank, each.facts.pid))
      add_rank_log(std::move(*log), remains);
  }
  for (const auto& [rank, answer] : ask_ranks(elsewhere, {{"request", kLogRequest}}, limit))
    if (answer.error.empty())
      use(rank, [&, &body = answer.body] {
        for (const json& each : body.value("logs", json::array())) add_rank_log(each.get<inspect::Evidence>(), remains);
      });
  for (inspect::Evidence& each : remains.evidence)
    for (const JobMember& member : elsewhere)
      if (each.rank == member.facts.rank) member.proxy->to_local_time(each);
  for (const auto& [rank, answer] : ask_ranks(ranks, {{"request", "stacks"}}, limit)) {
    if (!answer.error.empty()) continue;
    use(rank, [&, number = rank, &body = answer.body] {
      std::vector<inspect::EvidenceFrame> frames = main_frames(number, body);
      remains.doing.push_back(doing_of(number, body, frames));
      if (!frames.empty())
        remains.stacks.push_back({.rank = number,
                                  .thread = {},
                                  .is_main = true,
                                  .frames = std::move(frames),
                                  .origin = fmt::format("rank {}", number)});
      ++remains.files;
    });
  }
  return remains;
}

}  // namespace lockstep::shell
