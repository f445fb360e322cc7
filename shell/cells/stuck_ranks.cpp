#include "shell/cells/stuck_ranks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kStacksLimit{1000};
constexpr size_t kInnermost = 12;  // functions that are shown

std::string stack_lines(const nlohmann::json& body) {
  if (const auto error = body.find("error"); error != body.end()) return "\n    " + error->get<std::string>();
  const auto stack = body.value("stack", std::vector<std::string>());
  std::string text;
  for (size_t i = 0; i < stack.size() && i < kInnermost; ++i) text += "\n    " + stack[i];
  if (stack.size() > kInnermost) text += fmt::format("\n    … ({} more, %stack shows them)", stack.size() - kInnermost);
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
