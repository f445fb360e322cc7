#include "shell/cells/open_cells.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::shell {

int64_t OpenCells::new_id(int64_t number) {
  if (++last_id_ != number) numbers_[last_id_] = number;
  return last_id_;
}

OpenCell& OpenCells::open(int64_t id, const CellRequest& request, bool has_objects) {
  CellEvent event;
  event.cell = request.number;
  event.title = request.title;
  event.ranks = request.ranks;
  cells_.push_back({.run = CellRun(id, request.number, request.ranks, has_objects), .event = std::move(event)});
  served_ = &cells_.back();
  return *served_;
}

void OpenCells::close(const OpenCell& cell) {
  if (served_ == &cell) served_ = nullptr;
  cells_.remove_if([&](const OpenCell& each) { return &each == &cell; });
}

std::vector<CellRun*> OpenCells::runs() {
  std::vector<CellRun*> runs;
  for (OpenCell& cell : cells_) runs.push_back(&cell.run);
  return runs;
}

OpenCell* OpenCells::with(int rank) {
  const auto found =
      std::find_if(cells_.begin(), cells_.end(), [&](const OpenCell& cell) { return cell.run.is_active(rank); });
  return found == cells_.end() ? nullptr : &*found;
}

OpenCell* OpenCells::with(int rank, int64_t id) {
  OpenCell* cell = with(rank);
  return cell && cell->run.id() == id ? cell : nullptr;
}

OpenCell* OpenCells::that_begins(int rank) {
  const auto found =
      std::ranges::find_if(cells_, [&](const OpenCell& cell) { return cell.run.is_in(CellRun::Phase::loaded, rank); });
  return found == cells_.end() ? nullptr : &*found;
}

int64_t OpenCells::id_of_output(int rank) {
  const OpenCell* cell = with(rank);
  return cell ? cell->run.id() : last_[rank];
}

RankSet OpenCells::busy() const {
  RankSet result;
  for (const OpenCell& cell : cells_) result = result | cell.run.active();
  return result;
}

bool OpenCells::is_any_busy() const {
  return std::ranges::any_of(cells_, [](const OpenCell& cell) { return !cell.run.over(); });
}

int64_t OpenCells::cell_of(int rank) const {
  for (const OpenCell& cell : cells_)
    if (cell.run.is_active(rank)) return cell.run.number();
  return 0;
}

std::string OpenCells::wait_of(int rank) const {
  for (const OpenCell& cell : cells_)
    if (const auto wait = cell.run.waits().find(rank); wait != cell.run.waits().end())
      return fmt::format("{} #{}{}", wait->second.op.name, wait->second.op.seq,
                         wait->second.where.empty() ? "" : " of " + wait->second.where);
  return {};
}

int64_t OpenCells::number_of(int64_t id) const {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? id : found->second;
}

}  // namespace lockstep::shell
