#include "shell/cells/death_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "shell/events/output_merger.h"

namespace lockstep::shell {
namespace {

// Ranks that die at the same line do so one after the other, each after it has written its stack. They are explained
// together.
constexpr std::chrono::milliseconds kOthersMayFollow{1000};

std::string way_back(const RankSet& dead, const RankSet& live) {
  const bool is_one = dead.size() == 1;
  const int from = live.ranks().front();
  return fmt::format("\n%restart {} --from {} starts {} again in {}, with the model of rank {}", dead.str(), from,
                     is_one ? "it" : "them", is_one ? "its place" : "their places", from);
}

std::string way_on(const RankSet& dead, const RankSet& live) {
  return fmt::format("\n%dist_continue goes on without {}: {} {} the default group", dead.size() == 1 ? "it" : "them",
                     live.words(), live.size() == 1 ? "is then" : "are then");
}

}  // namespace

void DeathReports::died(int rank, const protocol::CellError& error, const std::string& where, bool matters) {
  if (matters) unadvised_.insert(rank);
  const bool by_signal = error.type.starts_with("SIG");
  services_.emit(
      RankEvent{rank, RankState::dead,
                (by_signal ? "ended by " + error.type : error.message.substr(0, error.message.find('\n'))) + where});
}

void DeathReports::explain(int rank, const protocol::CellError& error, const std::string& where) {
  ErrorEvent event{.cell = 0, .ranks = {rank}, .type = error.type, .message = error.message + where};
  if (!error.where.empty()) event.where = error.where;
  event.stack = error.stack;
  services_.emit(std::move(event));
}

void DeathReports::explain_later() {
  if (!deadline_.is_set()) deadline_.set_after(kOthersMayFollow, [this] { explain_now(); });
}

void DeathReports::explain_now() {
  for (OpenCell& cell : cells_.all()) {
    const RankSet dead = cell.run.in(CellRun::Phase::dead)-cell.reported_dead, active = cell.run.active();
    if (dead.empty() || active.empty()) continue;
    auto errors = cell.run.errors();
    std::erase_if(errors, [&](const auto& error) { return !dead.contains(error.first); });
    cell.reported_dead = cell.reported_dead | dead;
    for (auto& event : merge_errors(cell.run.number(), errors)) {
      event.others_run = true;
      services_.emit(std::move(event));
    }
    if (!services_.options.abort_hangs)
      services_.message(fmt::format("{} run{} on; {} interrupts {}", active.words(), active.size() == 1 ? "s" : "",
                                    services_.options.interrupt_words, active.size() == 1 ? "it" : "them"));
  }
}

void DeathReports::advise() {
  const RankSet dead = std::exchange(unadvised_, {}), live = services_.workers.live();
  if (dead.empty() || services_.options.abort_hangs) return;  // nobody reads advice in `run`
  const bool is_job = !services_.workers.owns_processes();
  if (is_job && live.empty()) {
    services_.message("no rank is at the prompt any more");
  } else if (is_job) {
    services_.message(
        fmt::format("cells run on {} from now on; a collective of the job needs {}, too", live.words(), dead.words()));
    return;
  }
  const bool comes_back = services_.keeps_past_cells() && services_.workers.has_store() &&
                          std::ranges::all_of(dead, [&](int rank) { return services_.workers.can_restart(rank); });
  const bool can_go_on = services_.options.can_continue() && services_.workers.has_store();
  if (live.empty()) {
    services_.message(
        fmt::format("no rank is left: {}%dist_reset starts them afresh, %history and %save have the cells so far",
                    comes_back ? "%restart starts them again in their places, " : ""));
  } else {
    services_.message(fmt::format(
        "what {} held is lost. Cells run on {} from now on, which keep{} what {}{}\n%dist_reset starts all "
        "ranks afresh",
        dead.words(), live.words(), live.size() == 1 ? "s" : "", live.size() == 1 ? "it holds" : "they hold",
        (comes_back ? way_back(dead, live) : "") + (can_go_on ? way_on(dead, live) : "")));
  }
}

}  // namespace lockstep::shell
