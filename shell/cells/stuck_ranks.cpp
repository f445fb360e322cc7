#include "shell/cells/stuck_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kStacksLimit{1000};
constexpr size_t kInnermost = 12;  // functions that are shown

/// Returns the number of the innermost function that is code of a cell; 0 where none is known.
size_t innermost_of_cell(const nlohmann::json& body) {
  const auto frames = body.find("frames");
  if (frames == body.end()) return 0;
  const auto found = std::ranges::find_if(
      *frames, [](const auto& frame) { return frame.contains("cell") && !frame["cell"].is_null(); });
  return found == frames->end() ? 0 : static_cast<size_t>(found - frames->begin());
}

std::string stack_lines(const nlohmann::json& body) {
  if (const auto error = body.find("error"); error != body.end()) return "\n    " + error->get<std::string>();
  const auto stack = body.value("stack", std::vector<std::string>());
  std::string text;
  size_t shown = std::min(stack.size(), kInnermost);
  for (size_t i = 0; i < shown; ++i) text += "\n    " + stack[i];
  // What the cell has called may be deep.
  const size_t of_cell = innermost_of_cell(body);
  if (of_cell >= shown && of_cell < stack.size()) {
    if (of_cell > shown) text += fmt::format("\n    … ({} more)", of_cell - shown);
    text += "\n    " + stack[of_cell];
    shown = of_cell + 1;
  }
  if (stack.size() > shown) text += fmt::format("\n    … ({} more, %stack shows them)", stack.size() - shown);
  return text;
}

}  // namespace

void StuckRanks::ask(const RankSet& ranks, std::function<void()> then) {
  asked_ = ranks;
  stacks_.clear();
  then_ = std::move(then);
  limit_.set_after(kStacksLimit, [this] { answered(); });
  services_.workers.hub().send(ranks, protocol::Query{++last_id_, protocol::question::Stack()});
}

void StuckRanks::cancel() {
  limit_.cancel();
  then_ = nullptr;
}

bool StuckRanks::reply(int rank, const protocol::Reply& reply) {
  if (reply.id <= int64_t{1} << 62) return false;
  if (reply.id != last_id_) return true;  // too late
  stacks_[rank] = stack_lines(reply.body);
  if (stacks_.size() >= (asked_ & services_.workers.live()).size()) answered();
  return true;
}

void StuckRanks::answered() {
  limit_.cancel();
  if (const auto then = std::exchange(then_, nullptr)) then();
}

std::string StuckRanks::words(const RankSet& ranks) const {
  std::map<std::string, RankSet> by_stack;
  for (const auto& [rank, lines] : stacks_)
    if (ranks.contains(rank) && !lines.empty()) by_stack[lines].insert(rank);
  std::string text;
  for (const auto& [lines, those] : by_stack)
    text += (ranks.size() == 1 ? std::string() : "\n  " + those.words()) + lines;
  return text;
}

}  // namespace lockstep::shell
