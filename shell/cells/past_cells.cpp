#include "shell/cells/past_cells.h"

#include <fmt/format.h>

#include <algorithm>

#include "shell/scripts/cpp_items.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// An item of a cell: its lines, the words in them, and the names that it declares.
struct Item {
  int first_line = 1, last_line = 1;
  std::set<std::string> words, names;
  bool has(int line) const { return first_line <= line && line <= last_line; }
};

std::vector<Item> items_of(const std::string& text) {
  std::vector<CppToken> tokens;
  CppLexer lexer(text);
  while (const auto token = lexer.next())
    if (token->kind != CppToken::comment) tokens.push_back(*token);
  std::vector<Item> result;
  CppItems items(tokens, 0, tokens.size());
  int line = 1;
  size_t at = 0;
  const auto line_at = [&](size_t offset) {
    line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                        text.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    at = offset;
    return line;
  };
  while (const auto item = items.next()) {
    if (item->begin == item->end) break;
    Item& next = result.emplace_back();
    next.first_line = line_at(tokens[item->begin].begin);
    next.last_line = line_at(tokens[item->end - 1].begin);
    for (size_t token = item->begin; token < item->end; ++token)
      if (tokens[token].is_word()) next.words.insert(tokens[token].spelling());
    for (const DefinedName& each : item->names) next.names.insert(each.name);
  }
  return result;
}

/// Names that a rank lacks, with the cell that defines each.
class MissingNames {
 public:
  void add(const std::string& name, int64_t number) { cells_[name] = number; }
  void define(const std::string& name) { cells_.erase(name); }
  /// Says which of them an item needs; empty: none.
  std::string needed_by(const Item& item) const {
    for (const auto& [name, cell] : cells_)
      if (const std::string word = last_part(name); item.words.contains(word) && !item.names.contains(word))
        return fmt::format("it needs {} of cell {}", name, cell);
    return "";
  }

 private:
  std::map<std::string, int64_t> cells_;  // by whole name
};

/// Whether a name of a step is that of a variable behind it, which has its value from the start: the compiler counts
/// these to the step before them.
bool is_constant(const std::string& name, int line, const std::vector<Item>& items) {
  const auto item = std::ranges::find_if(items, [&](const Item& each) { return each.names.contains(last_part(name)); });
  return item != items.end() && !item->has(line);
}

bool contains(const std::vector<int64_t>& steps, size_t step) {
  return std::ranges::find(steps, static_cast<int64_t>(step)) != steps.end();
}

}  // namespace

void PastCells::sent(const RankSet& ranks, int64_t number, const protocol::Load& load, const std::string& bytes,
                     const std::string& text) {
  auto entry = std::make_unique<Entry>(PastObject{.number = number,
                                                  .ranks = ranks,
                                                  .load = load,
                                                  .bytes = std::make_shared<const std::string>(bytes),
                                                  .text = std::make_shared<const std::string>(text)});
  objects_.emplace(load.cell, &std::get<PastObject>(*entry));
  entries_.push_back(std::move(entry));
}

void PastCells::dropped(int64_t cell) {
  objects_.erase(cell);
  std::erase_if(entries_, [&](const auto& entry) {
    const auto* object = std::get_if<PastObject>(entry.get());
    return object && object->load.cell == cell;
  });
}

void PastCells::begins(const RankSet& ranks, const protocol::Run& run) {
  auto entry = std::make_unique<Entry>(Run{.message = run, .parts = {}});
  Run& past = std::get<Run>(*entry);
  for (const int rank : ranks) past.parts[rank];
  runs_[run.cell] = &past.parts;
  entries_.push_back(std::move(entry));
}

void PastCells::begins(const RankSet& ranks, const protocol::Builtin& python) {
  auto entry = std::make_unique<Entry>(PythonRun{.message = python, .parts = {}});
  Parts& parts = std::get<PythonRun>(*entry).parts;
  for (const int rank : ranks) parts[rank];
  runs_[python.cell] = &parts;
  entries_.push_back(std::move(entry));
}

PastCells::Parts& PastCells::parts_of(size_t entry) {
  Entry& all = *entries_.at(entry);
  return std::holds_alternative<Run>(all) ? std::get<Run>(all).parts : std::get<PythonRun>(all).parts;
}

void PastCells::done(int rank, const protocol::Done& message) {
  const auto run = runs_.find(message.cell);
  if (run == runs_.end()) return;
  (*run->second)[rank] = {.has_ended = true,
                          .steps_done = message.steps_done,
                          .meetings = message.meetings,
                          .unknown = {},
                          .groups = message.groups};
}

void PastCells::died(int rank, int64_t cell, int64_t step) {
  if (!died_after_.try_emplace(rank, entries_.size()).second) return;
  if (const auto run = runs_.find(cell); run != runs_.end() && run->second->contains(rank))
    run->second->at(rank).steps_done = step;
}

const PastObject* PastCells::object_of(int rank, int64_t cell) const {
  const auto [first, last] = objects_.equal_range(cell);
  for (auto object = first; object != last; ++object)
    if (object->second->ranks.contains(rank)) return object->second;
  return nullptr;
}

/// A rank that has died in a run has not reported where it met others: those that came further than it have.
void PastCells::settle_death(int rank, Parts& parts) {
  Part& mine = parts[rank];
  if (mine.has_ended) return;
  mine.has_ended = true;
  for (int64_t step = 0; step < mine.steps_done; ++step) {
    bool is_known = false, meets = false;
    for (const auto& [other, theirs] : parts) {
      if (other == rank || !theirs.has_ended) continue;
      is_known |= theirs.steps_done > step;
      meets |= contains(theirs.meetings, static_cast<size_t>(step));
      if (theirs.groups.size() > mine.groups.size()) mine.groups = theirs.groups;
    }
    if (meets)
      mine.meetings.push_back(step);
    else if (!is_known)
      mine.unknown.push_back(step);
  }
}

void PastCells::note_run_without(int rank, size_t entry, int64_t number, Replay& replay) const {
  const auto death = died_after_.find(rank);
  if (death != died_after_.end() && entry >= death->second && number > 0)
    replay.cells_without_it.insert(static_cast<int>(number));
}

void PastCells::add_python(int rank, size_t entry, Replay& replay) {
  PythonRun& run = std::get<PythonRun>(*entries_[entry]);
  auto& function = std::get<protocol::function::Python>(run.message.function);
  if (!run.parts.contains(rank)) return note_run_without(rank, entry, function.number, replay);
  settle_death(rank, run.parts);
  const Part& part = run.parts.at(rank);
  Replay::Cell cell{.run = entry, .message = {}, .python = run.message, .number = function.number, .runs = true};
  auto& again = std::get<protocol::function::Python>(cell.python->function);
  again.again = true;
  again.until = part.steps_done;
  again.met = part.meetings;
  again.unknown = part.unknown;
  again.groups = part.groups;
  replay.actions.emplace_back(std::move(cell));
}

Replay PastCells::replay(int rank, bool is_python) {
  Replay replay;
  MissingNames missing;
  for (size_t index = 0; index < entries_.size(); ++index) {
    if (const auto* object = std::get_if<PastObject>(entries_[index].get())) {
      if (!is_python && object->ranks.contains(rank)) replay.actions.emplace_back(object);
      continue;
    }
    if (std::holds_alternative<PythonRun>(*entries_[index])) {
      add_python(rank, index, replay);
      continue;
    }
    Run& run = std::get<Run>(*entries_[index]);
    const PastObject* const object = object_of(rank, run.object());
    if (!run.parts.contains(rank) || !object) {
      note_run_without(rank, index, run.message.number, replay);
      continue;
    }
    settle_death(rank, run.parts);
    const Part& part = run.parts.at(rank);
    const std::vector<protocol::Step>& steps = object->load.steps;
    const std::vector<Item> items = items_of(*object->text);
    Replay::Cell cell{.run = index, .message = run.message, .python = {}, .number = run.message.number};
    cell.message.again = true;
    cell.message.groups = part.groups;
    for (size_t step = 0; step < steps.size(); ++step) {
      std::string why;
      if (static_cast<int64_t>(step) >= part.steps_done)
        why = part.failed_again ? "the cell failed as it ran again" : "it had not ended there";
      else if (is_python)
        why = "it is C++ beside Python cells";
      else if (contains(part.meetings, step))
        why = "it met other ranks";
      else if (contains(part.unknown, step))
        why = "no rank that lives has reported whether it met others";
      else
        for (const Item& item : items)
          if (item.has(steps[step].line) && why.empty()) why = missing.needed_by(item);
      if (why.empty()) {
        cell.runs = true;
        for (const std::string& name : steps[step].names) missing.define(name);
        continue;
      }
      cell.message.skip.push_back(static_cast<int64_t>(step));
      replay.left_out.push_back({.number = run.message.number, .line = steps[step].line, .why = why});
      for (const std::string& name : steps[step].names) {
        if (is_constant(name, steps[step].line, items)) continue;
        missing.add(name, run.object_number());
        replay.lost[run.object()].push_back(name);
      }
    }
    // Functions and classes may use what is missing: what uses them does, too.
    for (const Item& item : items) {
      if (std::ranges::any_of(steps, [&](const protocol::Step& step) { return item.has(step.line); })) continue;
      const bool lacks = !missing.needed_by(item).empty();
      for (const std::string& name : item.names) lacks ? missing.add(name, run.object_number()) : missing.define(name);
    }
    replay.actions.emplace_back(std::move(cell));
  }
  return replay;
}

void PastCells::ran_again(int rank, size_t index, const protocol::Done& message) {
  Part& part = parts_of(index).at(rank);
  if (message.status == CellStatus::ok) return;
  part.steps_done = std::min(part.steps_done, message.steps_done);
  part.failed_again = true;
}

}  // namespace lockstep::shell
