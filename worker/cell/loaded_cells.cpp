#include "worker/cell/loaded_cells.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/log/meetings.h"
#include "collectives/session_group.h"
#include "protocol/files.h"
#include "worker/cell/cell_error.h"
#include "worker/process/host.h"
#include "worker/process/interrupt.h"
#include "worker/process/run_state.h"

namespace lockstep::worker {
namespace {

constexpr int64_t kWarnBelow = 500;  // objects left
constexpr std::chrono::milliseconds kPeersInterrupt{200};

/// A child that a cell has forked and that came out of the cell is no rank: it ends here, silently.
void end_forked_child(pid_t rank_process, int code) {
  if (::getpid() != rank_process) ::_exit(code);
}

}  // namespace

LoadedCells::LoadedCells(std::function<void(const Finding&)> take_finding)
    : take_finding_(std::move(take_finding)), limit_(cells_left()) {}

protocol::Loaded LoadedCells::load(const protocol::Load& load, const std::string& directory, std::string_view bytes) {
  protocol::Loaded loaded;
  loaded.cell = load.cell;
  std::optional<std::string> of_file;
  if (!load.file.empty()) {
    of_file = protocol::read_file(load.file);
    if (!of_file) {
      loaded.message = fmt::format("{} can't be read: {}", load.file, std::strerror(errno));
      return loaded;
    }
    bytes = *of_file;
  }
  const auto result = load_cell(load.cell, directory, load.name, load.entry, bytes);
  loaded.ok = result.object != nullptr;
  loaded.message = result.problem;
  if (result.object) {
    cells_[load.cell] = {result.object, load.steps, false};
    dist::register_code_range(load.cell, reinterpret_cast<const void*>(result.object->begin),
                              result.object->end - result.object->begin);
    loaded.warning = near_limit();
  }
  return loaded;
}

void LoadedCells::drop(int64_t cell) {
  const auto found = cells_.find(cell);
  if (found == cells_.end()) return;
  if (!found->second.has_run) unload_cell(*found->second.object);
  cells_.erase(found);
}

std::optional<std::string> LoadedCells::near_limit() {
  const auto count = static_cast<int64_t>(cell_object_count());
  if (limit_ - count > kWarnBelow) return std::nullopt;
  limit_ = count + cells_left();  // most cells take fewer mappings than they may
  const int64_t left = limit_ - count;
  if (left > kWarnBelow) return std::nullopt;
  return fmt::format(
      "this rank can load about {} more cells: the system allows a process {} mappings and each cell takes up to {}. "
      "Start a new session, or raise the limit (sysctl vm.max_map_count)",
      std::max<int64_t>(left, 0), mapping_limit().value_or(0), kMappingsPerCell);
}

void LoadedCells::run(const protocol::Run& run, protocol::Done& done) {
  const auto found = cells_.find(run.object == 0 ? run.cell : run.object);
  if (found == cells_.end()) {
    done.status = CellStatus::error;
    done.error = protocol::CellError{};
    done.error->type = "lockstep::ProtocolError";
    done.error->message = "the session asked to run a cell that this rank has not loaded";
    return;
  }
  const auto& [object, steps, has_run] = found->second;
  found->second.has_run = true;
  if (run.object != 0) {
    object->shown_as = run.number;
    object->number = run.object_number;
  }
  for (uint32_t i = 0; i < object->entry->step_count; ++i) {
    if (std::ranges::find(run.skip, int64_t{i}) != run.skip.end()) {
      ++done.steps_done;
      continue;
    }
    const int line = i < steps.size() ? steps[i].line : 0;
    const int64_t meetings = dist::meetings();
    // Groups have the numbers that they had, also behind a step that made one and does not run again.
    if (i < run.groups.size()) dist::set_next_group_number(static_cast<int>(run.groups[i]));
    done.groups.resize(i);
    done.groups.push_back(dist::next_group_number());
    const auto step = reinterpret_cast<uintptr_t>(object->entry->steps[i]);
    run_state().set_code(step);
    const bool ok = run_step([step = object->entry->steps[i]] { call_step(step); }, i, line, done);
    look_at_gradients(step, line);
    if (dist::meetings() != meetings) done.meetings.push_back(i);
    if (!ok) break;
    ++done.steps_done;
  }
}

/// Notes the step that has left them off. A guard outside of { } is a variable of the session, which does not end.
void LoadedCells::look_at_gradients(uintptr_t step, int line) {
  if (*how_to_record_gradients() == '\0') {
    no_gradients_since_.clear();
  } else if (no_gradients_since_.empty()) {
    for (const Frame& frame : symbols_.resolve({&step, 1}))
      if (frame.cell > 0) no_gradients_since_ = where(frame.cell, line > 0 ? line : frame.line);
  }
}

std::string LoadedCells::hint_at_gradients(const std::string& error) const {
  const bool lacks_gradients =
      error.find("not require grad") != std::string::npos || error.find("nference tensor") != std::string::npos;
  const std::string on = how_to_record_gradients();
  if (!lacks_gradients || on.empty() || no_gradients_since_.empty()) return "";
  return fmt::format(
      "\nNo operator has recorded gradients on this rank since {}: a guard outside of {{ }} is a variable of the "
      "session, which %reset does not end. `{}` turns them on again",
      no_gradients_since_, on);
}

bool LoadedCells::run_step(const std::function<void()>& step, int64_t index, int line, protocol::Done& done) {
  run_state().begin_step(line);
  dist::set_thread_context(done.cell, index);
  try {
    lockstep_poll();
    step();
    end_forked_child(process_, 0);
    dist::check_device_works();
    return true;
  } catch (abi::__forced_unwind&) {
    end_without_run_thread();
  } catch (...) {  // an exception of any type ends the cell, not the rank
    const auto caught = describe_current_exception(symbols_);
    end_forked_child(process_, 1);
    // A peer that left may have been interrupted a moment before this rank will be: then both were.
    const bool consequence = !caught.error.root_cause && !caught.aborted;
    const auto reason = consequence ? stop_requests().pending_within(kPeersInterrupt) : stop_requests().pending();
    done.error = caught.error;
    done.error->message += hint_at_gradients(caught.error.message);
    if (caught.interrupted || reason == StopReason::interrupt)
      done.status = CellStatus::interrupted;
    else if (caught.aborted || reason == StopReason::abort)
      done.status = CellStatus::aborted;
    else
      done.status = CellStatus::error;
    if (done.status != CellStatus::error) done.error->root_cause = false;
    if (caught.finding) {
      auto finding = *caught.finding;
      finding.cell = done.cell;
      // All ranks name one line, that of the call at fault.
      if (!finding.where && !caught.error.where.empty()) finding.where = caught.error.where;
      take_finding_(finding);
    }
    return false;
  }
}

}  // namespace lockstep::worker
