#include "shell/cells/cell_progress.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::shell {
namespace {

std::string prefix_of(int64_t cell) { return std::to_string(cell) + " "; }

}  // namespace

CellProgress::CellProgress(EventLoop& loop, std::function<void(Event)> emit,
                           std::function<void(int, int64_t, std::string)> mark)
    : emit_(std::move(emit)), mark_(std::move(mark)), due_(loop) {}

int64_t CellProgress::loop_number(const std::string& key) {
  const auto [found, is_new] = numbers_.emplace(key, last_number_ + 1);
  if (is_new) ++last_number_;
  return found->second;
}

void CellProgress::report(int rank, int64_t number, const protocol::Progress& message) {
  const std::string key = prefix_of(message.cell) + message.loop;
  Row& row = rows_[key];
  row.cell = message.cell;
  row.number = number;
  row.ranks[rank] = {.last = message};
  row.changed = true;
  if (message.state != LoopState::running) {
    mark_(rank, number, key);  // may be out at once
    return;
  }
  if (!due_.is_set()) due_.set_after(kGather, [this] { emit_changed(); });
}

void CellProgress::marked(const RankSet& ranks, const std::string& mark) {
  const auto row = rows_.find(mark);
  if (row == rows_.end()) return;
  for (const int rank : ranks)
    if (const auto found = row->second.ranks.find(rank); found != row->second.ranks.end())
      found->second.ended = found->second.last.state != LoopState::running;
  end_if_over(mark);
}

bool CellProgress::end_if_over(const std::string& key) {
  const auto row = rows_.find(key);
  const auto& ranks = row->second.ranks;
  if (!std::all_of(ranks.begin(), ranks.end(), [](const auto& each) { return each.second.ended; })) return false;
  Row over = std::move(row->second);
  rows_.erase(row);
  emit(key, over, /*is_over=*/true);
  return true;
}

void CellProgress::left(int rank) {
  for (auto& [key, row] : rows_) {
    const auto found = row.ranks.find(rank);
    if (found == row.ranks.end() || found->second.last.state != LoopState::running) continue;
    found->second.last.state = LoopState::stopped;
    found->second.ended = true;
  }
}

void CellProgress::cell_is_over(int64_t id) {
  const std::string prefix = prefix_of(id);
  std::vector<std::string> keys;
  for (const auto& [key, row] : rows_)
    if (row.cell == id) keys.push_back(key);
  // Inner loops come first: their names begin with those of the loops around them.
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    for (auto& [rank, each] : rows_.at(*key).ranks) {
      if (each.last.state == LoopState::running) each.last.state = LoopState::stopped;
      each.ended = true;
    }
    end_if_over(*key);
  }
  std::erase_if(numbers_, [&](const auto& each) { return each.first.starts_with(prefix); });
}

void CellProgress::emit_changed() {
  for (auto& [key, row] : rows_)
    if (row.changed) emit(key, row, /*is_over=*/false);
}

void CellProgress::emit(const std::string& key, Row& row, bool is_over) {
  row.changed = false;
  const protocol::Progress& first = row.ranks.begin()->second.last;
  ProgressEvent event{.cell = row.number, .loop = loop_number(key), .label = first.label, .line = first.line};
  if (!first.parent.empty()) event.parent = loop_number(prefix_of(row.cell) + first.parent);
  bool completed = true;
  for (const auto& [rank, each] : row.ranks) {
    event.ranks.insert(rank);
    event.done[rank] = each.last.done;
    if (each.last.total) event.total[rank] = *each.last.total;
    event.elapsed_s[rank] = each.last.elapsed_s;
    completed = completed && each.last.state == LoopState::completed;
  }
  if (is_over) event.state = completed ? LoopState::completed : LoopState::stopped;
  emit_(std::move(event));
}

}  // namespace lockstep::shell
