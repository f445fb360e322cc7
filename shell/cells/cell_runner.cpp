#include "shell/cells/cell_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "shell/cells/rank_activity.h"

namespace lockstep::shell {
namespace {

using Clock = EventLoop::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kAbortLimit{5000};
constexpr milliseconds kLogsLimit{1000};

}  // namespace

CellRunner::CellRunner(EventLoop& loop, ObjectSource& compiler, RankGroup& workers, SessionDirectory& directory,
                       const SessionOptions& options, std::function<void(Event)> emit)
    : services_{.loop = loop,
                .compiler = compiler,
                .workers = workers,
                .directory = directory,
                .options = options,
                .emit = std::move(emit),
                .message =
                    [this](const std::string& text) { services_.emit(MessageEvent{number_at_hand(), text, nullptr}); }},
      progress_(loop, services_.emit,
                [this](int rank, int64_t number, std::string mark) { output_.mark(rank, number, std::move(mark)); }),
      output_(services_, [this](const RankSet& ranks, const std::string& mark) { progress_.marked(ranks, mark); }),
      findings_(loop, services_.emit),
      stopper_(services_, cells_),
      connections_(services_, cells_),
      preparation_(services_, cells_, output_, stopper_, past_),
      deaths_(services_, cells_),
      queries_(services_),
      hangs_(services_, cells_,
             {.add_finding = [this](Finding finding, int64_t number) { add_finding(std::move(finding), number, -1); },
              .interrupt = [this](const RankSet& ranks) { stopper_.interrupt(ranks); },
              .end_what_stays = [this] { stopper_.end_what_stays(); }}),
      comparison_(services_, hangs_, queries_,
                  {.runs = [this] { return !cells_.busy().empty(); }, .told = [this] { connections_.lose_step(); }}) {
  output_.expect(workers.live());
}

CellRunner::~CellRunner() = default;

void CellRunner::end_open_loops() {
  output_.flush();
  for (const OpenCell& cell : cells_.all()) progress_.cell_is_over(cell.run.id());
}

bool CellRunner::is_idle() const { return !cells_.served() && preparation_.phase() == CellPreparation::Phase::idle; }

/// Returns that of the cell that is prepared or served; 0: none.
int64_t CellRunner::number_at_hand() const {
  if (const OpenCell* cell = cells_.served()) return cell->run.number();
  return is_idle() ? 0 : preparation_.number();
}

// ---- The way of a cell ----------------------------------------------------------------------------------------------

CodeResult CellRunner::run(const CellRequest& request, const OverAfter& over) {
  CodeResult result;
  result.ranks = request.ranks;
  stopper_.begin();
  const CellPreparation::Scope preparing = preparation_.begin(request.ranks, request.number);
  connect_ranks();
  if (preparation_.is_stopped(result)) return result;

  const PreparedCell prepared = preparation_.prepare(request, result);
  if (!prepared.cell) return result;
  OpenCell& cell = *prepared.cell;
  if (!prepared.is_loaded) {
    stopper_.stop();
    cells_.stop_serving();
    CodeResult ended = close(cell);
    ended.compiler_messages = std::move(result.compiler_messages);
    return ended;
  }
  const int64_t id = cell.run.id();
  protocol::Run run{.cell = id, .number = request.number};
  if (default_ranks() != RankSet::all(services_.workers.world_size())) run.members = default_ranks();
  if (prepared.object.id != id) run.object = prepared.object.id, run.object_number = prepared.object.number;
  for (;;) {
    cell.run.started();
    if (!prepared.object.empty) {
      if (services_.keeps_past_cells()) past_.begins(request.ranks, run);
      services_.workers.hub().send(request.ranks, run);
    } else
      for (int rank : request.ranks) cell.run.done(rank, protocol::Done{.cell = id, .status = CellStatus::ok});
    serve(cell);
    const bool is_ok = cell.run.over() && cell.run.status() == CellStatus::ok;
    if (!over || !is_ok || over(cell.run.run_ms())) break;
    cell.run = CellRun(id, request.number, request.ranks, false);
  }
  return end_serving(cell, std::move(result.compiler_messages));
}

CodeResult CellRunner::run_builtin(const protocol::Function& function, const RankSet& ranks, int64_t number) {
  CodeResult stopped;
  stopped.ranks = ranks;
  stopper_.begin();
  const CellPreparation::Scope preparing = preparation_.begin(ranks, number);
  connect_ranks();
  if (preparation_.is_stopped(stopped)) return stopped;
  CellRequest request;
  request.ranks = ranks;
  request.number = number;
  OpenCell& cell = preparation_.open(request);
  cell.run.started();
  const protocol::Builtin builtin{cell.run.id(), function};
  const auto* python = std::get_if<protocol::function::Python>(&function);
  if (python && !python->own_names && services_.keeps_past_cells()) past_.begins(ranks, builtin);
  services_.workers.hub().send(ranks, builtin);
  serve(cell);
  return end_serving(cell, {});
}

std::optional<RestartedRank> CellRunner::restart(int rank, const RankSet& together,
                                                 const protocol::Configure& configuration) {
  stopper_.begin();
  std::exception_ptr failure;
  try {
    if (auto restarted = start_again(rank, together, configuration)) return restarted;
  } catch (...) {
    failure = std::current_exception();
  }
  const auto is_dead = [&] { return services_.workers.rank(rank).state == RankInfo::State::dead; };
  if (!is_dead()) {  // half of a rank is none
    end_of_replay_ = !services_.workers.has_store() ? "the session ended it: without the store it can't come back"
                     : failure                      ? "the session ended it, since it could not start"
                                                    : "the session ended it: it was not back at the interrupt";
    services_.workers.kill(rank);
  }
  services_.loop.run_until(is_dead, Clock::now() + kAbortLimit);
  end_of_replay_.clear();
  replay_.reset();
  if (failure) std::rethrow_exception(failure);
  return std::nullopt;
}

void CellRunner::session_grows(int size) {
  past_.session_grows(size);
  new_ranks_ = new_ranks_ | (RankSet::all(services_.workers.world_size()) - RankSet::all(size));
}

/// Returns nothing where the process has died, the store is gone or the user has interrupted it, half done.
std::optional<RestartedRank> CellRunner::start_again(int rank, const RankSet& together,
                                                     const protocol::Configure& configuration) {
  RankGroup& workers = services_.workers;
  const auto interrupted = [&] { return stopper_.is_interrupted() || !workers.has_store(); };
  const bool is_new = new_ranks_.contains(rank);
  const RankSet others = workers.live();
  if (!workers.restart(rank, connections_.next_generation(), interrupted)) return std::nullopt;
  if (is_new) past_.join(rank, others, default_ranks() | together);
  replay_ = std::make_unique<RankReplay>(services_, rank);
  workers.hub().send(rank, configuration);
  if (!replay_->run(past_, interrupted)) return std::nullopt;
  const Replay& plan = replay_->plan();
  RestartedRank result{.is_new = is_new,
                       .cells = replay_->cells(),
                       .failures = replay_->failures(),
                       .left_out = plan.left_out,
                       .cells_without_it = plan.cells_without_it,
                       .output_bytes = replay_->output_bytes()};
  result.left_out.insert(result.left_out.end(), replay_->left_out().begin(), replay_->left_out().end());
  std::ranges::stable_sort(result.left_out, {}, &LeftOutStep::number);
  const RankSet like = is_new && !services_.options.has_python_ranks() ? others : RankSet();  // else it loads no object
  if (!plan.lost.empty() || !like.empty())
    services_.compiler.ask(protocol::Forget{.names = {}, .undo = 0, .rank = rank, .lost = plan.lost, .like = like});
  if (!workers.live().contains(rank)) return std::nullopt;
  replay_.reset();
  past_.came_back(rank);
  new_ranks_.erase(rank);
  connections_.set_default_ranks(default_ranks() | RankSet{rank});
  connections_.lose_step();
  return result;
}

bool CellRunner::connect() {
  stopper_.begin();
  connect_ranks();
  return connections_.phase() == GroupConnections::Phase::in_step;
}

bool CellRunner::continue_without_the_dead() {
  connections_.set_default_ranks(services_.workers.live());
  return connect();
}

void CellRunner::connect_ranks() {
  if (stopper_.is_interrupted()) return;
  if (connections_.connect_if_needed([this] { return stopper_.is_interrupted(); }))
    hangs_.regrouped(services_.workers.live());
}

/// Serves until the cell is over, or stuck in a session that leaves hangs to the user. An interrupt ends what is stuck.
void CellRunner::serve(OpenCell& cell) {
  stopper_.start();
  served_since_ = Clock::now();
  hangs_.cell_is_served();
  if (on_serve_) on_serve_();
  services_.loop.run_until([&] {
    const bool is_left_open = !services_.options.abort_hangs && !stopper_.has_limit() && !stopper_.is_interrupted() &&
                              cell.run.stuck() && !hangs_.is_busy();
    return cell.run.over() || is_left_open || stopper_.gives_up();
  });
  hangs_.cell_is_left();
  stopper_.stop();
  findings_.flush();
}

/// Closes a cell that is over. Others stay open: the prompt comes back, and the ranks that wait may still be joined.
CodeResult CellRunner::end_serving(OpenCell& cell, std::string compiler_messages) {
  cells_.stop_serving();
  CodeResult result;
  if (cell.run.over()) {
    if (auto finding = cell.has_met ? comparison_.find(cell.run) : std::nullopt)
      add_finding(std::move(*finding), cell.run.number(), -1);
    result = close(cell);
  } else {
    preparation_.settle(cell, true);
    output_.expect(services_.workers.live() - busy());
    result = result_of(cell);
    result.status = CellStatus::waiting;
  }
  result.compiler_messages = std::move(compiler_messages);
  return result;
}

CodeResult CellRunner::result_of(const OpenCell& cell) {
  CodeResult result;
  result.status = cell.not_loaded.value_or(cell.run.status());
  result.ranks = cell.run.ranks();
  result.compile_ms = cell.event.compile_ms;
  result.run_ms = cell.run.run_ms();
  result.rank_status = cell.run.rank_status();
  for (const auto& [rank, error] : cell.run.errors())
    if (error.type == "c10::OutOfMemoryError") result.out_of_memory.insert(rank);
  return result;
}

CodeResult CellRunner::close(OpenCell& cell) {
  output_.flush();
  progress_.cell_is_over(cell.run.id());
  output_.expect(services_.workers.live() - busy());
  emit_errors(cell);
  compare_progress(cell.run);
  const CodeResult result = result_of(cell);
  preparation_.settle(cell, true);
  hangs_.cell_is_over(cell.run.id());
  cells_.close(cell);
  return result;
}

void CellRunner::emit_errors(const OpenCell& cell) {
  const CellRun& run = cell.run;
  auto errors = run.errors();
  std::erase_if(errors, [&](const auto& error) { return cell.reported_dead.contains(error.first); });
  for (auto& event : merge_errors(run.number(), errors)) services_.emit(std::move(event));
  RankSet late;
  for (const auto& [rank, status] : run.rank_status())
    if (status == CellStatus::timeout) late.insert(rank);
  if (!late.empty())
    services_.emit(
        ErrorEvent{.cell = run.number(),
                   .ranks = late,
                   .type = "timeout",
                   .message = fmt::format("the cell ran longer than {} s and was interrupted (--cell-timeout)",
                                          services_.options.cell_timeout_s)});
}

/// Compares whether the collectives of the ranks are still in step after the cell.
void CellRunner::compare_progress(const CellRun& run) {
  for (const auto& [rank, status] : run.rank_status())
    if (status == CellStatus::interrupted || status == CellStatus::aborted || status == CellStatus::timeout)
      connections_.lose_step();
  std::map<std::string, int64_t> entered;
  for (int rank : services_.workers.live() - busy())
    for (const auto& [group, count] : hangs_.entered_by(rank))
      if (const auto [known, fresh] = entered.emplace(group, count); !fresh && known->second != count)
        connections_.lose_step();
}

// ---- Interrupts and questions ---------------------------------------------------------------------------------------

void CellRunner::abort(const RankSet& ranks, const std::string& reason) {
  const RankSet meant = busy() & ranks;
  const RankSet outside = hangs_.pictures().outside_collectives(meant);
  services_.workers.hub().send(meant, protocol::Abort{reason});
  services_.loop.run_until([&] { return (busy() & (meant - outside)).empty(); }, Clock::now() + kAbortLimit);
}

/// Remembers what had gone wrong before the interrupt: what comes after it is a consequence.
void CellRunner::note_interrupt() {
  if (before_interrupt_) return;
  before_interrupt_ =
      BeforeInterrupt{.status = CellStatus::ok, .findings = findings_.all(), .live = services_.workers.live()};
  if (preparation_.has_lost_ranks()) before_interrupt_->status = CellStatus::dead;
  if (const OpenCell* cell = cells_.served())
    if (const auto cause = cell->run.first_cause()) before_interrupt_->status = *cause;
}

void CellRunner::user_interrupt() {
  note_interrupt();
  stopper_.user_interrupt();
}

void CellRunner::leave() {
  note_interrupt();
  stopper_.leave();
}

void CellRunner::begin_cell() {
  findings_.clear();
  before_interrupt_.reset();
}

std::vector<inspect::HangPicture> CellRunner::hang_pictures() {
  const auto answers = protocol::answers_to<protocol::question::Hang>(
      query(services_.workers.live(), hangs_.pictures().question(), kLogsLimit));
  std::vector<inspect::HangPicture> pictures;
  for (const OpenCell& cell : cells_.all()) pictures.push_back(hangs_.pictures().picture(&cell.run, answers));
  if (pictures.empty()) pictures.push_back(hangs_.pictures().picture(nullptr, answers));
  return pictures;
}

std::optional<ActivityEvent> CellRunner::activity() const {
  using Phase = ActivityEvent::Phase;
  const auto now = Clock::now();
  ActivityEvent event{.cell = number_at_hand()};
  const OpenCell* served = cells_.served();
  Clock::time_point since = preparation_.phase_since();
  switch (preparation_.phase()) {
    case CellPreparation::Phase::connecting:
      event.phase = Phase::connecting;
      break;
    case CellPreparation::Phase::compiling:
      event.phase = Phase::compiling;
      break;
    case CellPreparation::Phase::loading:
      event.phase = Phase::loading;
      if (served) event.parts = {{.ranks = served->run.in(CellRun::Phase::loading), .state = "loading"}};
      break;
    case CellPreparation::Phase::idle:
      if (!served) return std::nullopt;
      event.phase = Phase::running;
      since = served_since_;
      event.parts = rank_activity(served->run, hangs_.pictures());
      break;
  }
  event.elapsed_s = std::chrono::duration<double>(now - since).count();
  return event;
}

// ---- Messages of the ranks ------------------------------------------------------------------------------------------

void CellRunner::message(FromWorker& from) {
  if (replay_ && from.rank == replay_->rank() && replay_->take(from)) return;
  std::visit([&](auto& message) { handle(from.rank, from, message); }, from.message);
}

void CellRunner::handle(int rank, FromWorker& from, protocol::Output& message) {
  output_.output(rank, cells_.number_of(message.cell), message.stream,
                 from.frames.empty() ? std::string() : from.frames[0].to_string());
  hangs_.output_came();
}

void CellRunner::handle(int rank, FromWorker&, protocol::Value& message) {
  const int64_t number = cells_.number_of(message.cell);
  output_.value(rank, number, std::move(message));
}

void CellRunner::handle(int rank, FromWorker&, protocol::Progress& message) {
  if (cells_.with(rank, message.cell)) progress_.report(rank, cells_.number_of(message.cell), message);
  hangs_.output_came();
}

void CellRunner::handle(int rank, FromWorker&, protocol::FindingMessage& message) {
  const int64_t number = cells_.number_of(message.finding.cell.value_or(0));
  add_finding(std::move(message.finding), number, rank);
}

void CellRunner::handle(int rank, FromWorker&, protocol::Loaded& message) {
  OpenCell* cell = cells_.with(rank, message.cell);
  if (!cell) return;
  cell->run.loaded(rank, message);
  if (message.warning && rank == cell->run.ranks().ranks().front()) services_.message(*message.warning);
}

void CellRunner::handle(int rank, FromWorker&, protocol::Done& message) {
  hangs_.entered(rank, message.collectives);
  past_.done(rank, message);
  OpenCell* cell = cells_.with(rank, message.cell);
  cells_.left(rank, message.cell);
  if (!cell) return;
  if (message.regroup) connections_.lose_step();
  const bool was_waiting = cell->run.is_in(CellRun::Phase::waiting, rank) || hangs_.has_reported(cell->run.id(), rank);
  cell->run.done(rank, message);
  cell->has_met = cell->has_met || !message.meetings.empty();
  connections_.left(rank);
  if (was_waiting) services_.emit(RankEvent{rank, RankState::idle, ""});
  left(rank, message.status);
  close_if_over(*cell);
}

void CellRunner::handle(int rank, FromWorker&, protocol::Waiting& message) {
  if (OpenCell* cell = cells_.with(rank, message.cell)) hangs_.waiting(cell->run, rank, message);
}

void CellRunner::handle(int rank, FromWorker&, protocol::LongWait& message) {
  const OpenCell* cell = cells_.with(rank, message.cell);
  if (!cell) return;
  hangs_.long_wait(cell->run);
  if (message.op.name == "new_group") connections_.waits_in_new_group(rank);
}

void CellRunner::handle(int rank, FromWorker&, protocol::Regrouped& message) { connections_.answered(rank, message); }

void CellRunner::handle(int rank, FromWorker&, protocol::Reply& message) {
  if (!stopper_.reply(rank, message) && !hangs_.reply(rank, message)) queries_.answered(rank, std::move(message));
}

/// It belongs to the rank's cell, or to the last one that ran on it: messages of the cells before it have come.
void CellRunner::last_output(int rank, Stream stream, std::string bytes) {
  output_.output(rank, cells_.number_of(cells_.id_of_output(rank)), stream, std::move(bytes));
}

// ---- Ends -----------------------------------------------------------------------------------------------------------

void CellRunner::left(int rank, CellStatus how) {
  progress_.left(rank);
  output_.left(rank);
  findings_.left(rank);
  hangs_.left(rank, how);
}

/// A cell that is not served any more is closed when its last rank comes back.
void CellRunner::close_if_over(OpenCell& cell) {
  if (!cell.run.over() || cells_.served() == &cell) return;
  CellEvent event = cell.event;
  const CodeResult result = close(cell);
  event.status = result.status;
  event.rank_status = result.rank_status;
  event.run_ms = result.run_ms;
  services_.emit(std::move(event));
  if (is_idle()) deaths_.advise();
}

/// Notes which step the rank was at, as its log says. Returns what its last collective was, in words.
std::string CellRunner::note_last_step(int rank) {
  inspect::RankPicture picture;
  picture.rank = rank;
  services_.workers.read_logs({&picture}, {.recent = 1});
  if (services_.workers.can_restart(rank)) past_.died(rank, picture.cell, picture.step);
  if (picture.recent.empty()) return "";
  const dist::CollectiveRecord& last = picture.recent.back();
  return fmt::format("\nits last collective was {} #{} of group {}, in cell {}{}", last.op, last.seq, last.group,
                     cells_.number_of(last.cell), last.done_ns > 0 ? "" : ", which had not ended");
}

/// Called between cells, after dismiss().
void CellRunner::has_left(int rank) {
  past_.died(rank, 0, 0);
  hangs_.died(rank);
  connections_.lose_step();
  preparation_.forget_objects();
  output_.left(rank);
  services_.emit(RankEvent{rank, RankState::ending, ""});
}

void CellRunner::died(int rank, const protocol::CellError& last_words) {
  protocol::CellError error = last_words;
  if (!end_of_replay_.empty() && error.type == "SIGKILL") {
    error.type = "session_error";
    error.message = end_of_replay_;
  }
  if (const std::string& host = services_.workers.rank(rank).host; !host.empty() && !services_.workers.share_machine())
    error.message += "\nit was on host " + host;
  error.message += note_last_step(rank);
  hangs_.died(rank);
  connections_.lose_step();
  preparation_.forget_objects();
  OpenCell* cell = cells_.with(rank);
  if (!cell) cell = cells_.that_begins(rank);
  if (!cell) {
    const bool was_prepared = preparation_.rank_died(rank);
    const int64_t again = replay_ && replay_->rank() == rank ? replay_->number() : 0;
    const bool is_new = new_ranks_.contains(rank);  // what has started before goes on as before
    const std::string where = again > 0      ? fmt::format(" as cell {} ran again", again)
                              : is_new       ? std::string(" while it started")
                              : was_prepared ? fmt::format(" before cell {} was loaded", preparation_.number())
                                             : std::string();
    deaths_.died(rank, error, where, /*matters=*/!is_new);
    output_.flush();
    deaths_.explain(rank, error, where.empty() ? " while no cell ran on it" : where);
    output_.left(rank);
    if (is_idle()) deaths_.advise();
    return;
  }
  deaths_.died(rank, error, fmt::format(" in cell {}", cell->run.number()));
  protocol::CellError end = error;
  if (end.where.empty()) {  // killed from outside: what is known is where it waited, or else the cell
    const auto wait = cell->run.waits().find(rank);
    const bool line_known = wait != cell->run.waits().end() && !wait->second.where.empty();
    end.where = line_known ? wait->second.where : fmt::format("cell {}", cell->run.number());
  }
  cell->run.dead(rank, end);
  left(rank, CellStatus::dead);
  if (!cell->run.over()) deaths_.explain_later();
  close_if_over(*cell);
}

/// `from` is the rank that found it; -1 for the session itself.
void CellRunner::add_finding(Finding finding, int64_t number, int from) {
  finding.cell = number > 0 ? std::optional(number) : std::nullopt;
  const OpenCell* cell = cells_.with(from);
  findings_.add(std::move(finding), from, cell ? cell->run.active() : RankSet());
}

}  // namespace lockstep::shell
