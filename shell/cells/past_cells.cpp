#include "shell/cells/past_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "shell/cells/past_items.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Names that a rank lacks, each with the cell that defines it, or that gave it a value which the rank lacks.
class MissingNames {
 public:
  void add(const DefinedName& name, int64_t number) { missing_.push_back({name, number}); }
  void add_value(const std::string& name, int64_t number) { missing_.push_back({{name, {}}, number, true}); }
  /// Notes that a definition takes the place of those of its name. One function does not take that of another one.
  void define(const DefinedName& name) {
    std::erase_if(missing_, [&](const Missing& each) { return replaces(name, each.name); });
    std::erase_if(readers_, [&](const PastItem& each) {
      return std::ranges::any_of(each.names, [&](const DefinedName& other) { return replaces(name, other); });
    });
  }
  /// Notes a definition without steps: what uses it later uses the values that it mentions.
  void add_reader(const PastItem& item) { readers_.push_back(item); }
  /// Notes that the cell `number` defines something that what follows may use without naming it.
  void add_unnamed(int64_t number) {
    if (unnamed_.empty()) unnamed_ = fmt::format("it may use what cell {} defines without a name", number);
  }
  /// Says which of them an item needs; empty: none.
  std::string needed_by(const PastItem& item) const {
    for (const auto& [name, number, is_value] : missing_) {
      if (is_value && item.steps.empty()) continue;  // a function may be called when it has one again
      if (is_value && uses_reader_of(item, name.name)) return needs(name, number);
      const bool is_assigned = is_value && item.assigned == name.name && item.words.count(name.name) == 1;
      const bool is_defined_anew =
          !item.adds && std::ranges::any_of(item.names, [&](const DefinedName& each) { return replaces(each, name); });
      if (!is_assigned && !is_defined_anew && uses(item, last_part(name.name))) return needs(name, number);
    }
    return unnamed_;
  }

 private:
  struct Missing {
    DefinedName name;
    int64_t number;
    bool is_value = false;
  };

  static std::string needs(const DefinedName& name, int64_t number) {
    return fmt::format("it needs {} of cell {}", name.name, number);
  }
  /// Whether the item uses a function that mentions the value, or one that uses such a function.
  bool uses_reader_of(const PastItem& item, const std::string& value) const {
    std::set<std::string> found{last_part(value)};
    for (bool grows = true; grows;) {
      grows = false;
      for (const PastItem& reader : readers_)
        if (std::ranges::any_of(found, [&](const std::string& name) { return reader.words.contains(name); }))
          for (const DefinedName& name : reader.names) grows |= found.insert(last_part(name.name)).second;
    }
    found.erase(last_part(value));
    return std::ranges::any_of(found, [&](const std::string& name) { return uses(item, name); });
  }
  static bool replaces(const DefinedName& name, const DefinedName& other) {
    return name.name == other.name && (!name.parameters || !other.parameters || *name.parameters == *other.parameters);
  }
  static bool uses(const PastItem& item, const std::string& name) {
    constexpr std::string_view kOperator = "operator", kLiteral = "\"\"";
    if (!name.starts_with(kOperator)) return item.words.count(name) > (has_name(item, name) && !item.adds ? 1U : 0U);
    std::string_view sign = std::string_view(name).substr(kOperator.size());
    if (sign.starts_with(kLiteral)) sign.remove_prefix(kLiteral.size());
    return item.code.find(sign) != std::string::npos;
  }

  std::vector<Missing> missing_;
  std::vector<PastItem> readers_;
  std::string unnamed_;
};

void lose(const std::string& name, std::vector<std::string>& lost) {
  if (std::ranges::find(lost, name) == lost.end()) lost.push_back(name);
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
  const auto run = runs_.find(cell);
  if (run == runs_.end() || !run->second->contains(rank)) return;
  if (Part& part = run->second->at(rank); !part.has_ended) part.steps_done = step;
}

/// A run without members was one of all ranks. They are named now, since there will be more.
void PastCells::session_grows(int size) {
  for (const auto& entry : entries_)
    if (auto* run = std::get_if<Run>(entry.get()); run && run->message.members.empty())
      run->message.members = RankSet::all(size);
}

/// A new rank does not run a step that has met other ranks, or has not ended, on one of `like`.
void PastCells::join(int rank, const RankSet& like, const RankSet& members) {
  joined_[rank] = members;
  died_after_[rank] = 0;  // cells that it does not run have run without it
  for (size_t index = 0; index < entries_.size(); ++index) {
    if (auto* object = std::get_if<PastObject>(entries_[index].get())) {
      object->ranks.join(rank, like);
      continue;
    }
    Parts& parts = parts_of(index);
    if (parts.contains(rank) || !std::ranges::all_of(like, [&](int each) { return parts.contains(each); })) continue;
    Part joint = parts.at(like.ranks().front());
    for (const int each : like) {
      const Part& theirs = parts.at(each);
      joint.steps_done = std::min(joint.steps_done, theirs.steps_done);
      joint.meetings.insert(joint.meetings.end(), theirs.meetings.begin(), theirs.meetings.end());
      joint.unknown.insert(joint.unknown.end(), theirs.unknown.begin(), theirs.unknown.end());
    }
    joint.has_ended = true;
    parts[rank] = std::move(joint);
  }
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
      is_known |= theirs.steps_done > step && !contains(theirs.unknown, static_cast<size_t>(step));
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

/// Says why a step does not run again; empty: it does. `need`: why its item can't.
std::string PastCells::why_not_again(const Part& part, size_t step, const std::string& need) {
  if (static_cast<int64_t>(step) >= part.steps_done)
    return part.failed_again ? "the cell failed as it ran again" : "it had not ended there";
  if (contains(part.meetings, step)) return "it met other ranks";
  if (contains(part.unknown, step)) return "no rank that lives has reported whether it met others";
  return need;
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
    Replay::Cell cell{.run = index, .message = run.message, .python = {}, .number = run.message.number};
    cell.message.again = true;
    if (const auto own = joined_.find(rank); own != joined_.end() && !cell.message.members.contains(rank))
      cell.message.members = own->second;
    cell.message.groups = part.groups;
    // In source order: an item needs what is missing by then, and defines its names for what follows.
    for (const PastItem& item : past_items(*object->text, steps)) {
      const std::string need = missing.needed_by(item);
      bool lacks = !need.empty(), lacks_value = false;
      for (const size_t step : item.steps) {
        const std::string why = why_not_again(part, step, is_python ? "it is C++ beside Python cells" : need);
        if (why.empty()) {
          cell.runs = true;
          continue;
        }
        lacks = true;
        lacks_value |= static_cast<int64_t>(step) < part.steps_done || part.failed_again;
        cell.message.skip.push_back(static_cast<int64_t>(step));
        replay.left_out.push_back({.number = run.message.number, .line = steps[step].line, .why = why});
      }
      if (lacks_value && !item.assigned.empty())
        missing.add_value(item.assigned, run.object_number());
      else if (!lacks && !item.assigned.empty())
        missing.define({item.assigned, {}});
      if (lacks && item.is_unnamed) missing.add_unnamed(run.object_number());
      for (const DefinedName& name : item.names) {
        if (!item.adds) missing.define(name);
        if (!lacks) continue;
        missing.add(name, run.object_number());
        for (size_t each = 0; each < index; ++each)  // cells before it may define what it adds to
          if (const auto* other = std::get_if<PastObject>(entries_[each].get()))
            if (other == object || item.adds) lose(name.name, replay.lost[other->load.cell]);
      }
      if (!lacks && item.steps.empty()) missing.add_reader(item);
    }
    replay.actions.emplace_back(std::move(cell));
  }
  return replay;
}

bool PastCells::ran_again(int rank, size_t index, const protocol::Done& message) {
  Part& part = parts_of(index).at(rank);
  if (message.status == CellStatus::ok) return true;
  // Where one rank was alone, wrappers and inspectors have met nobody; on a new one the same step meets the others.
  const bool meets = joined_.contains(rank) && contains(message.meetings, static_cast<size_t>(message.steps_done));
  if (meets) part.meetings.push_back(message.steps_done);
  part.steps_done = std::min(part.steps_done, message.steps_done + (meets ? 1 : 0));
  part.failed_again = true;
  return meets;
}

}  // namespace lockstep::shell
