// How a session records its ranks, and how it runs one of a recording again (docs/replay.md).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "protocol/dist_error.h"
#include "protocol/error.h"
#include "shell/jobs/job_recording.h"
#include "shell/session/session_core.h"
#include "shell/session/session_journal.h"
#include "shell/session/session_state.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kAnswerLimit{5};

bool ended_badly(CellStatus status) {
  return status == CellStatus::error || status == CellStatus::aborted || status == CellStatus::timeout ||
         status == CellStatus::waiting || status == CellStatus::dead;
}

}  // namespace

void SessionCore::check_record_options(const RecordOptions& record) const {
  if (record.steps == 0) return;
  if (options_.has_python_ranks())
    throw UsageError(
        "--record is for sessions in C++, and for Python jobs: lockstep run --record K -- torchrun … train.py");
  if (!options_.is_here()) throw UsageError("--record is for sessions whose ranks are all on this machine");
  if (options_.objects)
    throw UsageError("--record needs the cells themselves, which a file of lockstep build does not have");
  check_recording(record);
}

CellStatus SessionCore::record(int64_t steps) {
  RecordOptions wanted = options_.record;
  wanted.steps = steps;
  check_record_options(wanted);
  if (steps > 0 && started() && state_->is_recorded && state_->record_steps == 0)
    throw UsageError("the ranks were recorded already, until %record off or %restart: %dist_reset and %record on");
  const bool is_as_started = !started() || (!state_->workers->grown() && default_ranks() == RankSet::all(world_size()));
  if (steps > 0 && !is_as_started && state_->record_steps == 0)
    throw UsageError(
        "a replay has the ranks of the start, and the ranks are others since %dist_init -n M or %dist_continue: "
        "%dist_reset and %record on");
  const RecordOptions before = std::exchange(options_.record, wanted);
  start();  // which records by itself where it starts ranks now
  if (state_->record_steps == steps) return CellStatus::ok;
  const CellStatus status = run_builtin(protocol::function::Record{steps}, live_ranks()).status;
  if (status == CellStatus::ok)
    state_->record_steps = steps;
  else
    options_.record = before;
  // What some ranks keep is of no use without the others' shares.
  if (status != CellStatus::ok && steps > 0 && state_->record_steps == 0)
    run_builtin(protocol::function::Record{0}, live_ranks());
  state_->is_recorded = state_->is_recorded || state_->record_steps > 0;
  return status;
}

nlohmann::json SessionCore::recorded_session() const {
  nlohmann::json cells = nlohmann::json::array();
  for (size_t i = 0; i < history_.entries().size(); ++i) {
    const HistoryEntry& entry = history_.entries()[i];
    // Of cells before the start of the ranks there is what magics have set.
    if (i < state_->history_at_start && entry.number > 0) continue;
    if (entry.number == 0 && only_looks(entry.text) && !entry.text.starts_with("%undo")) continue;
    cells.push_back({{"number", entry.number},
                     {"title", entry.title},
                     {"text", entry.text},
                     {"status", to_string(entry.status)},
                     {"faults", entry.faults},
                     {"ranks", entry.ranks.ranks()}});
  }
  return {{"description", description_for_journal(options_, directory_)}, {"cells", std::move(cells)}};
}

std::string SessionCore::save_recording(const std::string& path) {
  if (std::filesystem::exists(path) && !is_recording(path))
    throw UsageError(path + " exists, and is no recording: give another name");
  try {
    const std::string saved =
        !started() || !state_->is_recorded
            ? ""
            : shell::save_recording(path, state_->directory->path(), world_size(), recorded_session());
    if (saved.empty()) throw UsageError("nothing is recorded: %record on, or lockstep --record K");
    return saved;
  } catch (const dist::Error& error) {
    throw UsageError(error.what());
  }
}

/// Ends the recording of a session: what its ranks have recorded becomes a file where that was asked for, or a cell has failed.
void SessionCore::keep_recording() {
  if (!started() || !state_->is_recorded) return;
  const auto& entries = history_.entries();
  const bool has_failed =
      std::any_of(entries.begin() + static_cast<std::ptrdiff_t>(state_->history_at_start), entries.end(),
                  [](const HistoryEntry& entry) { return ended_badly(entry.status); });
  if (options_.record.path.empty() && !has_failed) return;
  std::string path = options_.record.path.empty() ? "session-" + id_ + ".recording" : options_.record.path;
  if (++state_->recordings > 1) path += fmt::format("-{}", state_->recordings);  // %dist_reset has written one
  try {
    message(save_recording(path));
  } catch (const UsageError& error) {
    message(error.what());
  }
}

std::optional<protocol::question::Replay::Answer> SessionCore::replay_state() {
  for (auto& [rank, answer] : query(live_ranks(), protocol::question::Replay(), kAnswerLimit)) return std::move(answer);
  return std::nullopt;
}

void SessionCore::conclude_replay() {
  if (!started() || !options_.replay) return;
  const auto state = replay_state();
  message(state ? state->error + state->text
                : fmt::format("rank {} has ended, and can't say how far its replay was the recorded run",
                              options_.replay->rank));
}

}  // namespace lockstep::shell
