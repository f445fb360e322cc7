// What ranks tell the runner of cells, and what it does about it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shell/cells/cell_runner.h"

namespace lockstep::shell {

void CellRunner::message(FromWorker& from) {
  const int rank = from.rank;
  const auto now = Clock::now();
  std::visit(
      [&](auto& m) {
        using M = std::remove_cvref_t<decltype(m)>;
        if constexpr (std::is_same_v<M, protocol::Output>) {
          std::string bytes = from.frames.empty() ? std::string() : from.frames[0].to_string();
          merger_.output(rank, number_of(m.cell), m.stream, std::move(bytes), now);
          arm_merger();
          hangs_.output_came();
        } else if constexpr (std::is_same_v<M, protocol::Value>) {
          merger_.value(rank, number_of(m.cell), std::move(m.text), std::move(m.data), now);
          arm_merger();
        } else if constexpr (std::is_same_v<M, protocol::FindingMessage>) {
          const int64_t number = number_of(m.finding.cell.value_or(0));
          add_finding(std::move(m.finding), number, rank);
        } else if constexpr (std::is_same_v<M, protocol::Loaded>) {
          loaded(rank, m);
        } else if constexpr (std::is_same_v<M, protocol::Done>) {
          done(rank, m);
        } else if constexpr (std::is_same_v<M, protocol::Waiting>) {
          if (const auto cell = cell_with(rank); cell != cells_.end() && cell->run.id() == m.cell)
            hangs_.waiting(cell->run, rank, m);
        } else if constexpr (std::is_same_v<M, protocol::LongWait>) {
          if (const auto cell = cell_with(rank); cell != cells_.end() && cell->run.id() == m.cell) {
            hangs_.long_wait(cell->run, rank, m);
            if (m.op.name == "new_group") {
              in_new_group_.insert(rank);
              if (!workers_.has_store()) end_new_groups();
            }
          }
        } else if constexpr (std::is_same_v<M, protocol::Regrouped>) {
          if (m.generation == generation_) regrouped_[rank] = m;
        } else if constexpr (std::is_same_v<M, protocol::Reply>) {
          if (hangs_.reply(rank, m)) return;
          if (const auto query = replies_.find(m.id); query != replies_.end()) query->second[rank] = std::move(m.body);
        }
      },
      from.message);
}

/// It belongs to the rank's cell, or to the last one that ran on it: messages of the cells before it have come.
void CellRunner::last_output(int rank, Stream stream, std::string bytes) {
  const auto open = cell_with(rank);
  const int64_t cell = open != cells_.end() ? open->run.id() : last_cell_[rank];
  merger_.output(rank, number_of(cell), stream, std::move(bytes), Clock::now());
  arm_merger();
}

CellRunner::OpenCell CellRunner::cell_with(int rank) {
  return std::find_if(cells_.begin(), cells_.end(), [&](const Open& c) { return c.run.active().contains(rank); });
}

void CellRunner::loaded(int rank, const protocol::Loaded& message) {
  const auto cell = cell_with(rank);
  if (cell == cells_.end() || cell->run.id() != message.cell) return;
  cell->run.loaded(rank, message);
  if (message.warning && rank == cell->run.ranks().ranks().front()) say(*message.warning);
}

void CellRunner::done(int rank, const protocol::Done& message) {
  hangs_.entered(rank, message.collectives);
  last_cell_[rank] = message.cell;
  const auto cell = cell_with(rank);
  if (cell == cells_.end() || cell->run.id() != message.cell) return;
  if (message.regroup) needs_regroup_ = true;
  const bool was_waiting =
      cell->run.in(CellRun::Phase::waiting).contains(rank) || hangs_.has_reported(cell->run.id(), rank);
  cell->run.done(rank, message);
  in_new_group_.erase(rank);
  if (was_waiting) emit_(RankEvent{rank, RankState::idle, ""});
  left(rank, message.status);
  rank_is_back(cell);
}

void CellRunner::left(int rank, CellStatus how) {
  merger_.left(rank, Clock::now());
  findings_.left(rank);
  arm_merger();
  hangs_.left(rank, how);
}

/// A cell that nobody serves any more is closed when its last rank comes back.
void CellRunner::rank_is_back(OpenCell cell) {
  if (!cell->run.over() || current_ == cell) return;
  CellEvent event = cell->event;
  const auto result = close(cell);
  event.status = result.status;
  event.rank_status = result.rank_status;
  event.run_ms = result.run_ms;
  emit_(std::move(event));
  if (!current_ && preparing_.empty()) advise_after_deaths();
}

void CellRunner::died(int rank, const protocol::CellError& error) {
  hangs_.died(rank);
  needs_regroup_ = true;
  repeatable_.forget();
  new_deaths_.insert(rank);
  const auto cell = cell_with(rank);
  const bool mid_cell = cell != cells_.end();
  const bool prepared = !mid_cell && preparing_.contains(rank);
  std::string where;
  if (mid_cell) where = fmt::format(" in cell {}", cell->run.number());
  if (prepared) where = fmt::format(" before cell {} was loaded", preparing_number_);
  const bool by_signal = error.type.starts_with("SIG");
  emit_(RankEvent{rank, RankState::dead,
                  (by_signal ? "ended by " + error.type : error.message.substr(0, error.message.find('\n'))) + where});
  if (!mid_cell) {
    merger_.flush();
    emit_(ErrorEvent{.cell = 0,
                     .ranks = {rank},
                     .type = error.type,
                     .message = error.message + (prepared ? where : " while no cell ran on it")});
    merger_.left(rank, Clock::now());
    if (prepared) {  // what one of its ranks can't load, none runs
      lost_.insert(rank);
      if (compiling_) compiler_.cancel();
    } else if (!current_ && preparing_.empty()) {
      advise_after_deaths();
    }
    return;
  }
  protocol::CellError end = error;
  if (end.where.empty()) {  // killed from outside: what is known is where it waited, or else the cell
    const auto wait = cell->run.waits().find(rank);
    const bool line_known = wait != cell->run.waits().end() && !wait->second.where.empty();
    end.where = line_known ? wait->second.where : fmt::format("cell {}", cell->run.number());
  }
  cell->run.dead(rank, end);
  left(rank, CellStatus::dead);
  if (!cell->run.over() && !deaths_timer_)
    deaths_timer_ = loop_.at(Clock::now() + OutputMerger::kHold, [this] { deaths_timer_.reset(), report_deaths(); });
  rank_is_back(cell);
}

/// While the other ranks of a cell run on, its end may be far away. Where they end soon, the death is reported with their errors.
void CellRunner::report_deaths() {
  for (Open& cell : cells_) {
    const RankSet dead = cell.run.in(CellRun::Phase::dead)-cell.reported_dead, active = cell.run.active();
    if (dead.empty() || active.empty()) continue;
    auto errors = cell.run.errors();
    std::erase_if(errors, [&](const auto& error) { return !dead.contains(error.first); });
    cell.reported_dead = cell.reported_dead | dead;
    for (auto& event : merge_errors(cell.run.number(), errors)) {
      event.others_run = true;
      emit_(std::move(event));
    }
    if (!options_.abort_hangs)
      say(fmt::format("{} run{} on; Ctrl-C interrupts {}", active.words(), active.size() == 1 ? "s" : "",
                      active.size() == 1 ? "it" : "them"));
  }
}

void CellRunner::advise_after_deaths() {
  const RankSet dead = std::exchange(new_deaths_, {}), live = workers_.live();
  if (dead.empty() || options_.abort_hangs) return;  // nobody reads advice in `run`
  if (live.empty())
    say("no rank is left: %dist_reset starts them afresh, %history and %save have the cells so far");
  else
    say(fmt::format(
        "what {} held is lost. Cells run on {} from now on, which keep{} what {}; %dist_reset starts all "
        "ranks afresh",
        dead.words(), live.words(), live.size() == 1 ? "s" : "", live.size() == 1 ? "it holds" : "they hold"));
}

void CellRunner::store_ended(const std::string& how) {
  emit_(ErrorEvent{.cell = 0,
                   .ranks = {},
                   .type = "session_error",
                   .message = "the store's process " + how +
                              ". Ranks that are connected stay so, but new groups fail, and after an interrupt or a "
                              "death collectives do: %dist_reset starts afresh"});
  end_new_groups();
}

/// A new group connects through the store: ranks that wait there for others are sent out, with the reason.
void CellRunner::end_new_groups() {
  for (Open& cell : cells_) {
    const RankSet inside = cell.run.active() & in_new_group_;
    if (inside.empty()) continue;
    if (!std::exchange(cell.lacks_store, true))
      emit_(ErrorEvent{.cell = cell.run.number(),
                       .ranks = {},  // more may follow
                       .type = "session_error",
                       .message = "dist::new_group needs the store, which is gone: %dist_reset starts afresh"});
    cell.run.stalled();
    workers_.hub().send(inside, protocol::Interrupt{cell.run.id()});
  }
}

void CellRunner::begin_cell() {
  findings_.clear();
  before_interrupt_.reset();
}

/// `from`: the rank that found it; -1 for the session itself.
void CellRunner::add_finding(Finding finding, int64_t number, int from) {
  finding.cell = number > 0 ? std::optional(number) : std::nullopt;
  const auto cell = cell_with(from);
  findings_.add(std::move(finding), from, cell == cells_.end() ? RankSet() : cell->run.active());
}

}  // namespace lockstep::shell
