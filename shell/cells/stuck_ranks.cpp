#include "shell/cells/stuck_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kStacksLimit{1000};
constexpr size_t kInnermost = 12;  // functions that are shown

std::string stack_lines(const protocol::question::Stack::Answer& answer) {
  if (!answer.error.empty()) return "\n    " + answer.error;
  const auto& stack = answer.stack;
  const auto innermost =
      std::ranges::find_if(answer.frames, [](const auto& frame) { return frame.cell.value_or(0) > 0; });
  std::string text;
  size_t shown = std::min(stack.size(), kInnermost);
  for (size_t i = 0; i < shown; ++i) text += "\n    " + stack[i];
  // What the cell has called may be deep.
  const size_t of_cell = innermost == answer.frames.end() ? 0 : static_cast<size_t>(innermost - answer.frames.begin());
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
  stacks_[rank] = stack_lines(protocol::decode_answer<protocol::question::Stack>(reply.body));
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
