#include "shell/cells/cell_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostRepeats = 1000;

}  // namespace

CellRunner::CellRunner(EventLoop& loop, CompilerService& compiler, WorkerGroup& workers, SessionDirectory& directory,
                       const SessionOptions& options, std::function<void(Event)> emit)
    : loop_(loop),
      compiler_(compiler),
      workers_(workers),
      directory_(directory),
      options_(options),
      emit_(std::move(emit)),
      merger_([this](Event event) { emit_(std::move(event)); },
              [this](int rank, int64_t bytes) {
                int64_t& owed = owed_credit_[rank];
                owed += bytes;
                if (owed < protocol::kOutputWindow / 4) return;
                workers_.hub().send(rank, protocol::Credit{std::exchange(owed, 0)});
              }),
      findings_(loop, [this](Event event) { emit_(std::move(event)); }),
      hangs_(loop, workers, directory, options,
             {.cells =
                  [this] {
                    std::vector<CellRun*> runs;
                    for (Open& cell : cells_) runs.push_back(&cell.run);
                    return runs;
                  },
              .current = [this] { return current_ ? &(*current_)->run : nullptr; },
              .add_finding = [this](Finding finding, int64_t number) { add_finding(std::move(finding), number, -1); },
              .emit = [this](Event event) { emit_(std::move(event)); },
              .interrupt = [this](const RankSet& ranks) { interrupt(ranks); },
              .end_what_stays = [this] { end_what_stays(); }}) {
  merger_.expect(workers_.live());
}

CellRunner::~CellRunner() {
  cancel_timers();
  for (auto* timer : {&merger_timer_, &deaths_timer_})
    if (*timer) loop_.cancel(**timer);
  merger_.flush();
}

// ---- The way of a cell ------------------------------------------------------------------------------------------------------

CodeResult CellRunner::run(const CellRequest& request, const OverAfter& over) {
  CodeResult result;
  result.ranks = request.ranks;
  const Preparation preparation(*this, request.ranks, request.number);
  if (is_stopped(result)) return result;

  const int64_t id = ++last_id_;
  if (request.number != id) numbers_[id] = request.number;
  CellObject object;
  std::optional<OpenCell> opened = open_again(request, object);
  if (!opened) opened = open_compiled(request, id, result, object);
  if (!opened) return result;
  const OpenCell cell = *opened;
  protocol::Run run{.cell = id, .number = request.number};
  if (object.id != id) run.object = object.id, run.object_number = object.number;
  for (;;) {
    cell->run.started();
    if (!object.empty)
      workers_.hub().send(request.ranks, run);
    else
      for (int rank : request.ranks) cell->run.done(rank, protocol::Done{.cell = id, .status = CellStatus::ok});
    serve_cell(cell);
    if (!over || !cell->run.over() || cell->run.status() != CellStatus::ok || over(cell->run.run_ms())) break;
    cell->run = CellRun(id, request.number, request.ranks, false);
  }
  current_.reset();
  if (cell->run.over()) return close(cell);

  // The prompt comes back; the ranks that wait may still be joined.
  settle(*cell, true);
  result.status = CellStatus::waiting;
  result.rank_status = cell->run.rank_status();
  result.run_ms = cell->run.run_ms();
  merger_.expect(workers_.live() - busy());
  return result;
}

/// The same text again, and nothing has been defined since: its object is there already.
std::optional<CellRunner::OpenCell> CellRunner::open_again(const CellRequest& request, CellObject& object) {
  const auto known = repeatable_.find(request, compiler_.definitions());
  if (!known) return std::nullopt;
  object = *known;
  repeats_.emplace_back(request.number, object.number);
  if (repeats_.size() > kMostRepeats) repeats_.erase(repeats_.begin());
  directory_.write_cell(request.number, !request.whole_text.empty() ? request.whole_text : request.text);
  const OpenCell cell = open(request, false);
  current_ = cell;
  return cell;
}

CodeResult CellRunner::run_builtin(const std::string& name, const nlohmann::json& arguments, const RankSet& ranks,
                                   int64_t number) {
  CodeResult stopped;
  stopped.ranks = ranks;
  const Preparation preparation(*this, ranks, number);
  if (is_stopped(stopped)) return stopped;
  CellRequest request;
  request.ranks = ranks;
  request.number = number;
  ++last_id_;
  numbers_[last_id_] = number;
  const OpenCell cell = open(request, false);
  current_ = cell;
  cell->run.started();
  workers_.hub().send(ranks, protocol::Builtin{last_id_, name, arguments});
  serve_cell(cell);
  current_.reset();
  if (cell->run.over()) return close(cell);
  CodeResult result;
  result.ranks = ranks;
  result.status = CellStatus::waiting;
  return result;
}

CellRunner::OpenCell CellRunner::open(const CellRequest& request, bool has_objects) {
  CellEvent event;
  event.cell = request.number;
  event.title = request.title;
  event.ranks = request.ranks;
  preparing_ = {};
  cells_.push_back({.run = CellRun(last_id_, request.number, request.ranks, has_objects), .event = std::move(event)});
  merger_.expect(request.ranks);
  return std::prev(cells_.end());
}

/// Serves until the cell is over, or stuck in a session that leaves hangs to the user.
void CellRunner::serve_cell(OpenCell cell) {
  start_limits(cell);
  hangs_.cell_is_served();
  if (interrupted_) interrupt(cell->run.ranks());
  loop_.run_until([&] {
    return cell->run.over() || (!options_.abort_hangs && !cell_timer_ && cell->run.stuck() && !hangs_.is_busy());
  });
  hangs_.cell_is_left();
  cancel_timers();
  findings_.flush();
}

void CellRunner::settle(Open& cell, bool loaded) {
  if (!std::exchange(cell.settles, false)) return;
  if (loaded) repeats_.clear();
  compiler_.settle({.cell = cell.run.id(),
                    .loaded = loaded,
                    .steps_done = loaded ? cell.run.steps_done() : std::map<int, int64_t>{}});
}

CodeResult CellRunner::close(OpenCell cell) {
  const CellRun& run = cell->run;
  merger_.flush();
  merger_.expect(workers_.live() - busy());
  emit_errors(*cell);
  note_end(run);
  CodeResult result;
  result.ranks = run.ranks();
  result.compile_ms = cell->event.compile_ms;
  result.status = cell->not_loaded.value_or(run.status());
  result.run_ms = run.run_ms();
  result.rank_status = run.rank_status();
  settle(*cell, true);
  hangs_.cell_is_over(run.id());
  cells_.erase(cell);
  return result;
}

void CellRunner::emit_errors(const Open& cell) {
  const CellRun& run = cell.run;
  auto errors = run.errors();
  std::erase_if(errors, [&](const auto& error) { return cell.reported_dead.contains(error.first); });
  for (auto& event : merge_errors(run.number(), errors)) emit_(std::move(event));
  RankSet late;
  for (const auto& [rank, status] : run.rank_status())
    if (status == CellStatus::timeout) late.insert(rank);
  if (!late.empty())
    emit_(ErrorEvent{.cell = run.number(),
                     .ranks = late,
                     .type = "timeout",
                     .message = fmt::format("the cell ran longer than {} s and was interrupted (--cell-timeout)",
                                            options_.cell_timeout_s)});
}

/// What the next cell has to know: whether the ranks' collectives are still in step.
void CellRunner::note_end(const CellRun& run) {
  for (const auto& [rank, status] : run.rank_status())
    if (status == CellStatus::interrupted || status == CellStatus::aborted || status == CellStatus::timeout) needs_regroup_ = true;
  std::map<std::string, int64_t> entered;
  for (int rank : workers_.live() - busy())
    for (const auto& [group, count] : hangs_.entered_by(rank))
      if (const auto [known, fresh] = entered.emplace(group, count); !fresh && known->second != count)
        needs_regroup_ = true;
}

// ---- Questions ----------------------------------------------------------------------------------------------------------------

std::map<int, nlohmann::json> CellRunner::query(const RankSet& ranks, const std::string& what,
                                                const nlohmann::json& arguments, milliseconds limit) {
  const RankSet asked = ranks & workers_.live();
  const int64_t id = ++last_query_;
  auto& answers = replies_[id];
  workers_.hub().send(asked, protocol::Query{id, what, arguments});
  loop_.run_until([&] { return answers.size() >= (asked & workers_.live()).size(); }, Clock::now() + limit);
  auto result = std::move(answers);
  replies_.erase(id);
  return result;
}

std::vector<inspect::HangPicture> CellRunner::hang_pictures() {
  const auto answers = query(workers_.live(), "hang", hangs_.question(), milliseconds(1000));
  std::vector<inspect::HangPicture> pictures;
  for (const Open& cell : cells_) pictures.push_back(hangs_.picture(&cell.run, answers));
  if (pictures.empty()) pictures.push_back(hangs_.picture(nullptr, answers));
  return pictures;
}

RankSet CellRunner::busy() const {
  RankSet result;
  for (const auto& cell : cells_) result = result | cell.run.active();
  return result;
}

int64_t CellRunner::cell_of(int rank) const {
  for (const auto& cell : cells_)
    if (cell.run.active().contains(rank)) return cell.run.number();
  return 0;
}

std::string CellRunner::wait_of(int rank) const {
  for (const auto& cell : cells_)
    if (const auto wait = cell.run.waits().find(rank); wait != cell.run.waits().end())
      return fmt::format("{} #{}{}", wait->second.op.name, wait->second.op.seq,
                         wait->second.where.empty() ? "" : " of " + wait->second.where);
  return {};
}

int64_t CellRunner::number_of(int64_t id) const {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? id : found->second;
}

void CellRunner::say(const std::string& text) {
  const int64_t number = current_ ? (*current_)->run.number() : preparing_.empty() ? 0 : preparing_number_;
  emit_(MessageEvent{number, text, nullptr});
}

void CellRunner::arm_merger() {
  if (merger_timer_) return;
  const auto deadline = merger_.deadline();
  if (!deadline) return;
  merger_timer_ = loop_.at(*deadline, [this] {
    merger_timer_.reset();
    merger_.due(Clock::now());
    arm_merger();
  });
}

}  // namespace lockstep::shell
