#include "shell/terminal/cell_history.h"

namespace lockstep::shell {
namespace {
constexpr size_t kMostCells = 5000;
}

CellHistory::CellHistory(HistoryFile file) : file_(std::move(file)), cells_(file_.load(kMostCells)) {}

std::string CellHistory::add(const std::string& text) {
  if (text.empty() || (!cells_.empty() && text == cells_.back())) return "";
  cells_.push_back(text);
  if (cells_.size() > kMostCells) cells_.erase(cells_.begin());
  if (!file_works_) return "";
  std::string problem = file_.add(text);
  file_works_ = problem.empty();
  return problem;
}

void CellHistory::begin() {
  index_ = cells_.size();
  drafts_.clear();
  prefix_.reset();
}

void CellHistory::walk(EditBuffer& buffer, int direction) {
  if (!prefix_) {
    const bool is_typed = index_ == cells_.size();
    prefix_ = is_typed && buffer.cursor() == buffer.text().size() ? buffer.text() : "";
  }
  for (size_t index = index_;;) {
    if (direction < 0 ? index == 0 : index >= cells_.size()) return;
    index = direction < 0 ? index - 1 : index + 1;
    if (index < cells_.size() && !cells_[index].starts_with(*prefix_)) continue;
    show(buffer, index);
    // The lines of a longer cell come before the next cell.
    if (buffer.text().find('\n') != std::string::npos) prefix_.reset();
    return;
  }
}

void CellHistory::show(EditBuffer& buffer, size_t index) {
  if (index_ == cells_.size() || buffer.text() != cells_[index_]) drafts_[index_] = buffer.text();
  index_ = index;
  const auto draft = drafts_.find(index);
  buffer.reset(draft != drafts_.end() ? draft->second : index < cells_.size() ? cells_[index] : "");
}

void CellHistory::found(size_t index, const std::string& typed) {
  drafts_[cells_.size()] = typed;
  index_ = index;
}

}  // namespace lockstep::shell
