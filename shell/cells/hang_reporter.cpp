#include "shell/cells/hang_reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "inspectors/hang/hang_analysis.h"
#include "inspectors/hang/hang_needs.h"
#include "inspectors/hang/hang_state.h"
#include "inspectors/hang/hang_words.h"
#include "inspectors/hang/straggler.h"
#include "protocol/dist_error.h"

namespace lockstep::shell {

using inspect::HangPicture;
using inspect::RankPicture;
using std::chrono::milliseconds;

namespace {

// Ranks of a cell mostly leave it together; only where they do not is there anything to tell those that are still in it.
constexpr milliseconds kPeersLater{20};
// Ranks that wait for the same one come to it at different times: one finding for all of them.
constexpr milliseconds kGather{200};
// Ranks that wait for long mostly do so together, for one that is late.
constexpr milliseconds kLogsLater{100};
constexpr milliseconds kAnswerLimit{300};
// Where nothing moves for seconds, there is time for what a rank is at: on a loaded machine its answer takes longer.
constexpr milliseconds kPatientLimit{2000};
// A wait of that length is shown.
constexpr milliseconds kReportWait{2000};
constexpr milliseconds kFirstAgain{100}, kLastAgain{400};
constexpr size_t kFewRecords = 8;
// Long waits, until a straggler is looked for; then twice as many each time, and once more when the cell ends.
constexpr int kFirstStraggler = 20;

std::vector<inspect::StackFrame> frames_of(const nlohmann::json& answer) {
  std::vector<inspect::StackFrame> frames;
  for (const auto& each : answer.value("frames", nlohmann::json::array())) {
    inspect::StackFrame frame;
    frame.function = each.value("function", "");
    frame.object = each.value("object", "");
    if (const auto cell = each.find("cell"); cell != each.end() && cell->is_number()) frame.cell = cell->get<long>();
    if (const auto line = each.find("line"); line != each.end() && line->is_number()) frame.line = line->get<int>();
    frames.push_back(std::move(frame));
  }
  return frames;
}

void take_answer(RankPicture& rank, int64_t cell, const nlohmann::json& answer) {
  for (const auto& each : answer.value("throws", nlohmann::json::array()))
    if (each.value("cell", int64_t{0}) == cell)
      rank.caught.push_back({.type = each.value("type", ""),
                             .where = each.value("where", ""),
                             .time_ns = each.value("time_ns", int64_t{0})});
  for (inspect::RankWait& wait : rank.waits)
    if (const auto waits = answer.find("waits"); waits != answer.end() && wait.where.empty())
      wait.where = waits->value(std::to_string(wait.call.entry), "");
  if (const auto last = answer.value("last", ""); !last.empty()) rank.last_where = last;
  if (!answer.contains("frames") || rank.place != RankPicture::Place::in_cell) return;
  rank.stack = frames_of(answer);
  rank.activity = inspect::activity_of(rank.stack, answer.value("asleep", false), answer.value("held", false));
  rank.where = inspect::code_line(rank.stack);
  // Calls that c10d makes itself (a backward pass) have no line of their own: that of the cell that waits for them.
  for (inspect::RankWait& wait : rank.waits)
    if (wait.where.empty() && rank.activity == inspect::Activity::collective) wait.where = rank.where;
}

/// What a rank has said itself (Waiting) stands, whatever else it has under way.
void take_waiting(RankPicture& rank, const protocol::Waiting& message) {
  const auto is_meant = [&](const inspect::RankWait& wait) {
    return wait.call.group == message.op.group && wait.call.seq == message.op.seq && !wait.call.point_to_point;
  };
  if (rank.has_log) {
    std::erase_if(rank.waits, [&](const auto& wait) { return !is_meant(wait); });
    if (!rank.waits.empty()) rank.activity = inspect::Activity::collective;
  } else {
    rank.waits.assign(1, {});
    auto& call = rank.waits[0].call;
    call.group = message.op.group;
    call.seq = message.op.seq;
    call.op = message.op.name;
    call.shape = message.op.shape;
    call.dtype = message.op.dtype;
  }
  for (inspect::RankWait& wait : rank.waits) {
    wait.missing = message.missing;
    if (wait.where.empty()) wait.where = message.where;
  }
}

}  // namespace

HangReporter::HangReporter(EventLoop& loop, WorkerGroup& workers, const SessionDirectory& directory,
                           const SessionOptions& options, Host host)
    : loop_(loop), workers_(workers), directory_(directory), options_(options), host_(std::move(host)) {}

HangReporter::~HangReporter() {
  for (auto* timer : {&peers_, &gather_, &logs_, &waits_timer_, &limit_, &recheck_}) cancel(*timer);
  if (round_) loop_.cancel(round_->limit);
}

void HangReporter::cancel(std::optional<EventLoop::Timer>& timer) {
  if (timer) loop_.cancel(*timer);
  timer.reset();
}

// ---- What happens ---------------------------------------------------------------------------------------------------------

void HangReporter::cell_is_served() {
  output_came_ = false;
  places_.clear();
  arm_time_limit();
  if (const CellRun* run = host_.current(); run && workers_.live() != run->ranks()) report_peers_soon();
}

void HangReporter::cell_is_left() {
  cancel(limit_);
  cancel(gather_);
}

void HangReporter::left(int rank, CellStatus how) {
  ++leavings_[rank];
  how_left_[rank] = how;
  const auto cells = host_.cells();
  for (CellRun* run : cells)
    if (run->over() && run->ranks().contains(rank)) look_back(*run);
  if (std::any_of(cells.begin(), cells.end(), [](const CellRun* run) { return !run->over(); })) report_peers_soon();
}

void HangReporter::regrouped(const RankSet& ranks) {
  dead_ = {};
  reported_.clear();
  for (int rank : ranks) entered_[rank].clear();
}

void HangReporter::report_peers_soon() {
  if (peers_) return;
  peers_ = loop_.at(Clock::now() + kPeersLater, [this] { peers_.reset(), report_peers(); });
}

/// Tells the ranks that are in a cell of those that are not: what they have entered is all that they will enter.
void HangReporter::report_peers() {
  RankSet busy;
  for (const CellRun* run : host_.cells()) busy = busy | run->active();
  const RankSet others = (workers_.live() | dead_) - busy;
  for (const CellRun* run : host_.cells())
    for (int rank : run->active())
      for (int peer : others) {
        const int64_t leaving = leavings_[peer] + 1;
        if (std::exchange(reported_peers_[{run->id(), rank, peer}], leaving) == leaving) continue;
        const auto how = how_left_.find(peer);
        workers_.hub().send(
            rank,
            protocol::PeerDone{run->id(), peer, how == how_left_.end() ? CellStatus::ok : how->second, entered_[peer]});
      }
  // Waits that no rank can see to be in vain by itself: messages between two ranks, circles that a leaving has closed.
  if (!others.empty() && !logs_) logs_ = loop_.at(Clock::now() + kLogsLater, [this] { logs_.reset(), look_at_logs(); });
}

void HangReporter::waiting(CellRun& run, int rank, const protocol::Waiting& message) {
  run.waiting(rank, message);
  host_.emit(RankEvent{rank, RankState::waiting,
                       fmt::format("in {} #{}{} for {}, which {} not come", message.op.name, message.op.seq,
                                   message.where.empty() ? "" : " at " + message.where, message.missing.words(),
                                   message.missing.size() == 1 ? "does" : "do")});
  report_soon(run.stuck());
}

void HangReporter::report_soon(bool at_once) {
  if (at_once) {
    cancel(gather_);
    look(kReport);
  } else if (!gather_) {
    gather_ = loop_.at(Clock::now() + kGather, [this] { gather_.reset(), look(kReport); });
  }
}

void HangReporter::long_wait(const CellRun& run, int, const protocol::LongWait&) {
  const int count = ++long_waits_[run.id()];
  if (count % kFirstStraggler == 0 && std::has_single_bit(static_cast<unsigned>(count / kFirstStraggler)))
    look_at_straggler(run);
  if (!logs_) logs_ = loop_.at(Clock::now() + kLogsLater, [this] { logs_.reset(), look_at_logs(); });
  report_waits_later();
}

void HangReporter::report_waits_later() {
  if (waits_timer_) return;
  waits_timer_ = loop_.at(Clock::now() + kReportWait, [this] {
    waits_timer_.reset();
    const int64_t old = dist::monotonic_ns() - std::chrono::nanoseconds(kReportWait).count();
    bool unreported = false, young = false;
    for (const CellRun* run : host_.cells()) {
      for (const RankPicture& rank : picture(run, {}, 0).ranks)
        for (const auto& wait : rank.waits) {
          if (rank.gone() || run->in(CellRun::Phase::waiting).contains(rank.rank) || wait.call.cell != run->id())
            continue;
          if (reported_waits_.contains({run->id(), rank.rank, static_cast<int64_t>(wait.call.entry)})) continue;
          (wait.call.entered_ns <= old ? unreported : young) = true;
        }
    }
    if (unreported) look(kReportWaits);
    if (young) report_waits_later();
  });
}

/// The logs alone: is a hang possible at all?
void HangReporter::look_at_logs() {
  for (const CellRun* run : host_.cells()) {
    const auto analysis = inspect::analyse_hang(picture(run, {}, kFewRecords));
    if (analysis.suspicious || !analysis.proven.empty()) {
      look(kReport);
      return;
    }
  }
}

/// A cell is over. Where a rank died, or closed a group, the others may have left the cell before anybody could see them wait.
void HangReporter::look_back(const CellRun& run) {
  if (long_waits_.contains(run.id())) look_at_straggler(run);
  const auto errors = run.errors();
  if (std::all_of(errors.begin(), errors.end(), [](const auto& each) { return each.second.root_cause; })) return;
  for (auto& hang : inspect::analyse_hang(picture(&run, {})).proven)
    if ((hang.finding.kind == "died" || hang.finding.kind == "left_group") && reported_.insert(hang.key).second)
      host_.add_finding(std::move(hang.finding), run.number());
}

void HangReporter::look_at_straggler(const CellRun& run) {
  if (reported_stragglers_.contains(run.id())) return;
  if (auto finding = inspect::find_straggler(picture(&run, {}))) {
    reported_stragglers_.insert(run.id());
    host_.add_finding(std::move(*finding), run.number());
  }
}

// ---- A question to all ranks ------------------------------------------------------------------------------------------------

std::string HangReporter::log_path(int rank) const {
  return directory_.path() + "/rank-" + std::to_string(rank) + "/log";
}

/// Dead ranks can't name the lines of their calls; those that are alive have the same code.
nlohmann::json HangReporter::question() const {
  nlohmann::json sites = nlohmann::json::array();
  for (int rank : RankSet::all(workers_.world_size()) - workers_.live()) {
    RankPicture dead;
    if (!inspect::read_log(dead, log_path(rank), 1) || dead.recent.empty() || !dead.recent.back().site_cell) continue;
    sites.push_back({*dead.recent.back().site_cell, dead.recent.back().site_offset, rank});
  }
  return {{"sites", std::move(sites)}};
}

std::map<int, std::set<uint64_t>> HangReporter::entries_in_flight() const {
  std::map<int, std::set<uint64_t>> result;
  for (int rank : workers_.live()) {
    RankPicture picture;
    if (!inspect::read_log(picture, log_path(rank), 0)) continue;
    for (const auto& wait : picture.waits) result[rank].insert(wait.call.entry);
  }
  return result;
}

RankSet HangReporter::outside_collectives(const RankSet& ranks) const {
  RankSet result;
  for (int rank : ranks) {
    RankPicture picture;
    if (inspect::read_log(picture, log_path(rank), 0) && picture.waits.empty()) result.insert(rank);
  }
  return result;
}

void HangReporter::look(unsigned reasons) {
  if (round_) {
    next_reasons_ |= reasons;
    return;
  }
  reasons_ = reasons;
  cancel(recheck_);
  round_ = Round{
      .id = --last_id_,
      .asked = workers_.live(),
      .answers = {},
      .in_flight = entries_in_flight(),
      .limit = loop_.at(Clock::now() + (reasons & kTimeLimit ? kPatientLimit : kAnswerLimit), [this] { conclude(); })};
  workers_.hub().send(round_->asked, protocol::Query{round_->id, "hang", question()});
}

void HangReporter::cell_is_over(int64_t cell) {
  std::erase_if(reported_peers_, [&](const auto& each) { return std::get<0>(each.first) == cell; });
  std::erase_if(reported_waits_, [&](const auto& each) { return std::get<0>(each) == cell; });
  long_waits_.erase(cell);
  reported_stragglers_.erase(cell);
  freed_.erase(cell);
}

bool HangReporter::reply(int rank, const protocol::Reply& reply) {
  if (reply.id >= 0) return false;
  if (!round_ || round_->id != reply.id) return true;  // too late
  round_->answers[rank] = reply.body;
  if (round_->answers.size() >= (round_->asked & workers_.live()).size()) {
    loop_.cancel(round_->limit);
    conclude();
  }
  return true;
}

HangPicture HangReporter::picture(const CellRun* run, const std::map<int, nlohmann::json>& answers,
                                  size_t recent) const {
  HangPicture picture;
  picture.cell = run ? run->id() : 0;
  picture.number = run ? run->number() : 0;
  picture.calls_compared = options_.check_collectives;
  const auto errors = run ? run->errors() : std::map<int, protocol::CellError>{};
  const auto statuses = run ? run->rank_status() : std::map<int, CellStatus>{};
  std::map<int, std::string> lines_of_dead;
  if (!answers.empty()) {
    const nlohmann::json sites = question().at("sites");
    for (const auto& [rank, answer] : answers) {
      const auto lines = answer.value("sites", nlohmann::json::array());
      for (size_t i = 0; i < std::min(lines.size(), sites.size()); ++i)
        if (lines[i].is_string()) lines_of_dead[sites[i].at(2)] = lines[i];
    }
  }
  for (int number = 0; number < workers_.world_size(); ++number) {
    RankPicture rank;
    rank.rank = number;
    const bool active = [&] {
      for (const CellRun* each : host_.cells())
        if (each->active().contains(number)) return true;
      return false;
    }();
    if (!workers_.live().contains(number))
      rank.place = RankPicture::Place::dead;
    else if (active)
      rank.place = RankPicture::Place::in_cell;
    else
      rank.place = run && run->ranks().contains(number) ? RankPicture::Place::left : RankPicture::Place::elsewhere;
    if (rank.gone()) rank.activity = inspect::Activity::idle;
    if (const auto status = statuses.find(number); status != statuses.end()) rank.how = to_string(status->second);
    if (const auto error = errors.find(number); error != errors.end()) {
      rank.error_type = error->second.type;
      rank.error_text = error->second.message;
      rank.consequence = !error->second.root_cause;
      rank.where = error->second.where;
    }
    inspect::read_log(rank, log_path(number), recent);
    if (const auto answer = answers.find(number); answer != answers.end())
      take_answer(rank, picture.cell, answer->second);
    if (const auto line = lines_of_dead.find(number); line != lines_of_dead.end() && rank.gone())
      rank.last_where = line->second;
    if (rank.recent.empty() || rank.recent.back().cell != picture.cell) rank.last_where.clear();
    if (run && run->in(CellRun::Phase::waiting).contains(number)) take_waiting(rank, run->waits().at(number));
    picture.ranks.push_back(std::move(rank));
  }
  picture.now_ns = dist::monotonic_ns();
  return picture;
}

void HangReporter::conclude() {
  const Round round = std::move(*round_);
  const unsigned reasons = reasons_;
  round_.reset();
  bool suspicious = false;
  const auto before = round.in_flight;
  for (CellRun* run : host_.cells()) {
    HangPicture seen = picture(run, round.answers);
    for (RankPicture& rank : seen.ranks) {
      std::set<uint64_t> now;
      for (const auto& wait : rank.waits) now.insert(wait.call.entry);
      const auto then = before.find(rank.rank);
      const bool reported = run->in(CellRun::Phase::waiting).contains(rank.rank);
      if (!reported && rank.has_log && now != (then == before.end() ? std::set<uint64_t>() : then->second))
        rank.activity = inspect::Activity::computing;  // it has moved since its stack was taken
    }
    if (reasons & kTimeLimit && host_.current() == run) report_stall(seen);
    if (reasons & kReportWaits) report_waits(*run, seen);
    report(*run, seen);
    suspicious = suspicious || inspect::analyse_hang(seen).suspicious;
  }
  if (suspicious) {
    again_ = again_.count() == 0 ? kFirstAgain : std::min(2 * again_, kLastAgain);
    recheck_ = loop_.at(Clock::now() + again_, [this] { recheck_.reset(), look_at_logs(); });
  } else {
    again_ = milliseconds(0);
  }
  if (const unsigned next = std::exchange(next_reasons_, 0)) look(next);
}

void HangReporter::report(CellRun& run, const HangPicture& picture) {
  for (auto& hang : inspect::analyse_hang(picture).proven) {
    if ((hang.waiting & run.ranks()).empty()) continue;  // another open cell's
    for (int rank : hang.waiting & run.in(CellRun::Phase::running)) {
      const RankPicture& waits = *picture.rank(rank);
      const auto& wait = waits.waits.front();
      const RankSet missing = inspect::waited_for(picture, rank);
      run.waiting(rank, {run.id(), dist::to_finding_op(wait.call), missing, wait.where});
      reported_waits_.insert({run.id(), rank, static_cast<int64_t>(wait.call.entry)});
      host_.emit(RankEvent{rank, RankState::waiting, inspect::rank_sentence(picture, waits) + ", in vain"});
    }
    // Whoever waits for a rank that sits in a hang that has been told, or was freed from it, is a part of that.
    RankSet& hung = freed_[run.id()];
    if (hang.consequence || !(hang.missing & hung).empty()) continue;
    hung = hung | hang.waiting;
    if (reported_.insert(hang.key).second) host_.add_finding(std::move(hang.finding), run.number());
  }
  const RankSet waiting = run.in(CellRun::Phase::waiting);
  if (!options_.abort_hangs || waiting.empty()) return;
  workers_.hub().send(waiting, protocol::Abort{"a collective that others will not enter was aborted"});
  freed_[run.id()] = freed_[run.id()] | (waiting & run.active());
}

void HangReporter::report_waits(const CellRun& run, const HangPicture& picture) {
  const int64_t old = picture.now_ns - std::chrono::nanoseconds(kReportWait).count();
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone() || rank.waits.empty() || run.in(CellRun::Phase::waiting).contains(rank.rank)) continue;
    const auto& wait = rank.waits.front();
    if (wait.call.entered_ns > old || wait.call.cell != run.id()) continue;
    if (!reported_waits_.insert({run.id(), rank.rank, static_cast<int64_t>(wait.call.entry)}).second) continue;
    if (rank.activity != inspect::Activity::collective) continue;  // it has it under way, and does something else
    std::string text = inspect::rank_sentence(picture, rank);
    const RankSet missing = inspect::waited_for(picture, rank.rank);
    if (missing.size() == 1) {
      text += ", which " + inspect::rank_sentence(picture, *picture.rank(missing.ranks().front()));
    } else {
      for (int each : missing)
        text += fmt::format("; rank {} {}", each, inspect::rank_sentence(picture, *picture.rank(each)));
    }
    host_.emit(RankEvent{rank.rank, RankState::waiting, std::move(text)});
  }
}

// ---- --hang-timeout ---------------------------------------------------------------------------------------------------------

void HangReporter::arm_time_limit() {
  cancel(limit_);
  if (options_.hang_timeout_s <= 0) return;
  limit_ = loop_.at(Clock::now() + milliseconds(static_cast<int64_t>(options_.hang_timeout_s * 1000)),
                    [this] { limit_.reset(), time_limit(); });
}

/// No output, and no rank further in its collectives than at the last look: after that many seconds it is a hang.
void HangReporter::time_limit() {
  const CellRun* run = host_.current();
  if (!run) return;
  std::map<int, std::pair<uint64_t, std::set<uint64_t>>> places;
  for (int rank : run->active()) {
    RankPicture picture;
    inspect::read_log(picture, log_path(rank), 1);
    auto& [entries, in_flight] = places[rank];
    entries = picture.recent.empty() ? 0 : picture.recent.back().entry;
    for (const auto& wait : picture.waits) in_flight.insert(wait.call.entry);
  }
  const bool moved = std::exchange(output_came_, false) || places != std::exchange(places_, places);
  if (!moved) look(kTimeLimit);
  arm_time_limit();
}

void HangReporter::report_stall(const HangPicture& picture) {
  auto finding = inspect::stalled(picture, options_.hang_timeout_s);
  if (!finding) return;
  CellRun& run = *host_.current();
  if (!reported_.insert(fmt::format("stalled in {}", run.id())).second) return;
  const RankSet sitting = finding->reference_ranks.empty() ? finding->ranks : finding->reference_ranks;
  host_.add_finding(std::move(*finding), run.number());
  cancel(limit_);
  if (!options_.abort_hangs) return;
  run.stalled();
  freed_[run.id()] = freed_[run.id()] | run.active();
  workers_.hub().send(run.active() & sitting, protocol::Abort{"no progress within --hang-timeout"});
  host_.interrupt(run.active() - sitting);
  host_.end_what_stays();  // a rank that waits for a lock, or reads what never comes, hears of neither
}

}  // namespace lockstep::shell
