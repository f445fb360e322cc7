#include "shell/cells/hang_reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "inspectors/hang/analysis.h"
#include "inspectors/hang/join.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/state.h"
#include "inspectors/hang/straggler.h"
#include "inspectors/hang/words.h"
#include "protocol/dist_error.h"

namespace lockstep::shell {

using inspect::HangPicture;
using inspect::RankPicture;
using std::chrono::milliseconds;

namespace {

// Ranks that wait for the same one begin to wait at different times; they are reported in one finding.
constexpr milliseconds kGather{200};
// Ranks that wait for long mostly wait together, for one that is late.
constexpr milliseconds kLogsLater{100};
constexpr milliseconds kAnswerLimit{300};
// Where nothing has moved for seconds there is time for slow answers, as they come on a loaded machine.
constexpr milliseconds kPatientLimit{2000};
// A wait of that length is shown.
constexpr milliseconds kReportWait{2000};
constexpr milliseconds kFirstAgain{100}, kLastAgain{400};
constexpr size_t kFewRecords = 8;
// After so many long waits a straggler is looked for; then after twice as many, and once more when the cell ends.
constexpr int kFirstStraggler = 20;

}  // namespace

HangReporter::HangReporter(const CellServices& services, OpenCells& cells, Host host)
    : services_(services),
      cells_(cells),
      host_(std::move(host)),
      pictures_(services, cells),
      // Some waits can't end, and no rank can see that alone: messages between two ranks, circles that a departure has
      // closed. A rank of C++ that waits says so after a moment (LongWait); where none has, the logs of all tell nothing.
      departures_(services, cells,
                  [this] {
                    if (services_.options.has_python_ranks() || !long_waits_.empty()) look_at_logs_soon();
                  }),
      gather_(services.loop),
      logs_(services.loop),
      waits_(services.loop),
      limit_(services.loop),
      recheck_(services.loop),
      answers_(services.loop) {}

// ---- What happens ---------------------------------------------------------------------------------------------------

void HangReporter::cell_is_served() {
  output_came_ = false;
  progress_.clear();
  arm_time_limit();
  if (const OpenCell* cell = cells_.served(); cell && services_.workers.live() != cell->run.ranks())
    departures_.report_soon();
}

void HangReporter::cell_is_left() {
  stalled_once_.reset();
  limit_.cancel();
  gather_.cancel();
}

void HangReporter::left(int rank, CellStatus how) {
  departures_.left(rank, how);
  for (const CellRun* run : cells_.runs())
    if (run->over() && run->ranks().contains(rank)) look_back(*run);
  if (cells_.is_any_busy()) departures_.report_soon();
}

bool HangReporter::has_reported(const std::string& group, int64_t seq) const {
  return reported_.contains(fmt::format("{} {}", group, seq));  // as ProvenHang::key of mismatched_calls()
}

void HangReporter::regrouped(const RankSet& ranks) {
  reported_.clear();
  departures_.regrouped(ranks);
}

void HangReporter::waiting(CellRun& run, int rank, const protocol::Waiting& message) {
  // A look at all ranks may have found the wait before the rank itself.
  const auto known = run.waits().find(rank);
  const bool is_shown = known != run.waits().end() && known->second.op.seq == message.op.seq &&
                        known->second.op.group == message.op.group;
  is_shown ? run.waiting(rank, message) : show_wait(run, rank, message);
  report_soon(run.stuck());
}

/// The rank can't come out of the wait.
void HangReporter::show_wait(CellRun& run, int rank, const protocol::Waiting& wait) {
  run.waiting(rank, wait);
  const bool has_name = !wait.op.group.empty() && wait.op.group != "default";
  const std::string reason = wait.missing.empty() ? ", which the other ranks have left"
                                                  : fmt::format(" for {}, which {} not come", wait.missing.words(),
                                                                wait.missing.size() == 1 ? "does" : "do");
  services_.emit(
      RankEvent{rank, RankState::waiting,
                fmt::format("in {} #{}{}{}{}", wait.op.name, wait.op.seq, has_name ? " of " + wait.op.group : "",
                            wait.where.empty() ? "" : " at " + wait.where, reason)});
}

void HangReporter::report_soon(bool at_once) {
  if (at_once) {
    gather_.cancel();
    look(kReport);
  } else if (!gather_.is_set()) {
    gather_.set_after(kGather, [this] { look(kReport); });
  }
}

void HangReporter::long_wait(const CellRun& run) {
  const int count = ++long_waits_[run.id()];
  if (count % kFirstStraggler == 0 && std::has_single_bit(static_cast<unsigned>(count / kFirstStraggler)))
    look_at_straggler(run);
  look_at_logs_soon();
  report_waits_later();
}

/// Whether `rank` waits in the cell for somebody, and no RankEvent has shown that wait yet.
bool HangReporter::is_unreported(const CellRun& run, const RankPicture& rank, const inspect::RankWait& wait) const {
  if (rank.gone() || run.is_in(CellRun::Phase::waiting, rank.rank) || wait.call.cell != run.id()) return false;
  return !reported_waits_.contains({run.id(), rank.rank, static_cast<int64_t>(wait.call.entry)});
}

void HangReporter::report_waits_later() {
  if (waits_.is_set()) return;
  waits_.set_after(kReportWait, [this] {
    const int64_t old = dist::monotonic_ns() - std::chrono::nanoseconds(kReportWait).count();
    bool unreported = false, young = false;
    for (const CellRun* run : cells_.runs())
      for (const RankPicture& rank : pictures_.picture(run, {}, 0).ranks)
        for (const auto& wait : rank.waits)
          if (is_unreported(*run, rank, wait)) (wait.call.entered_ns <= old ? unreported : young) = true;
    if (unreported) look(kReportWaits);
    if (young) report_waits_later();
  });
}

void HangReporter::look_at_logs_soon() {
  if (!logs_.is_set()) logs_.set_after(kLogsLater, [this] { look_at_logs(); });
}

/// Asks the logs alone whether a hang is possible at all.
void HangReporter::look_at_logs() {
  for (const CellRun* run : cells_.runs()) {
    const auto analysis = inspect::analyse_hang(pictures_.picture(run, {}, kFewRecords));
    if (analysis.suspicious || !analysis.proven.empty()) {
      look(kReport);
      return;
    }
  }
}

/// Looks at a cell that is over. If a rank died or closed a group, others may have left before a look saw them wait.
void HangReporter::look_back(const CellRun& run) {
  if (long_waits_.contains(run.id())) look_at_straggler(run);
  const auto errors = run.errors();
  if (std::all_of(errors.begin(), errors.end(), [](const auto& each) { return each.second.root_cause; })) return;
  for (auto& hang : inspect::analyse_hang(pictures_.picture(&run, {})).proven)
    if ((hang.finding.kind == FindingKind::died || hang.finding.kind == FindingKind::left_group) &&
        reported_.insert(hang.key).second)
      host_.add_finding(std::move(hang.finding), run.number());
}

void HangReporter::look_at_straggler(const CellRun& run) {
  if (reported_stragglers_.contains(run.id())) return;
  if (auto finding = inspect::find_straggler(inspect::times_of(pictures_.picture(&run, {})))) {
    reported_stragglers_.insert(run.id());
    host_.add_finding(std::move(*finding), run.number());
  }
}

// ---- A question to all ranks ----------------------------------------------------------------------------------------

void HangReporter::look(unsigned reasons) {
  if (inquiry_) {
    next_reasons_ |= reasons;
    return;
  }
  recheck_.cancel();
  RankGroup& workers = services_.workers;
  inquiry_ = Inquiry{.id = --last_id_,
                     .reasons = reasons,
                     .asked = workers.live(),
                     .answers = {},
                     .in_flight = pictures_.entries_in_flight()};
  answers_.set_after(reasons & kTimeLimit ? kPatientLimit : kAnswerLimit, [this] { conclude(); });
  workers.hub().send(inquiry_->asked, protocol::Query{inquiry_->id, pictures_.question()});
}

bool HangReporter::reply(int rank, const protocol::Reply& reply) {
  if (reply.id >= 0) return false;
  if (!inquiry_ || inquiry_->id != reply.id) return true;  // too late
  inquiry_->answers[rank] = protocol::decode_answer<protocol::question::Hang>(reply.body);
  if (inquiry_->answers.size() >= (inquiry_->asked & services_.workers.live()).size()) {
    answers_.cancel();
    conclude();
  }
  return true;
}

void HangReporter::cell_is_over(int64_t cell) {
  departures_.cell_is_over(cell);
  std::erase_if(reported_waits_, [&](const auto& each) { return std::get<0>(each) == cell; });
  long_waits_.erase(cell);
  reported_stragglers_.erase(cell);
  freed_.erase(cell);
}

void HangReporter::conclude() {
  const Inquiry inquiry = std::move(*inquiry_);
  const unsigned reasons = inquiry.reasons;
  inquiry_.reset();
  bool suspicious = false;
  for (CellRun* run : cells_.runs()) {
    HangPicture seen = pictures_.picture(run, inquiry.answers);
    for (RankPicture& rank : seen.ranks) {
      std::set<uint64_t> now;
      for (const auto& wait : rank.waits) now.insert(wait.call.entry);
      const auto then = inquiry.in_flight.find(rank.rank);
      const bool reported = run->is_in(CellRun::Phase::waiting, rank.rank);
      if (!reported && rank.has_log && now != (then == inquiry.in_flight.end() ? std::set<uint64_t>() : then->second))
        rank.activity = FindingKind::computing;  // it has moved since its stack was taken
    }
    if (reasons & kTimeLimit && cells_.served() && &cells_.served()->run == run) report_stall(seen);
    if (reasons & kReportWaits) report_waits(*run, seen);
    report(*run, seen);
    suspicious = suspicious || inspect::analyse_hang(seen).suspicious;
  }
  if (suspicious) {
    again_ = again_.count() == 0 ? kFirstAgain : std::min(2 * again_, kLastAgain);
    recheck_.set_after(again_, [this] { look_at_logs(); });
  } else {
    again_ = milliseconds(0);
  }
  if (const unsigned next = std::exchange(next_reasons_, 0)) look(next);
}

void HangReporter::report(CellRun& run, const HangPicture& picture) {
  for (auto& hang : inspect::analyse_hang(picture).proven) {
    if ((hang.waiting & run.ranks()).empty()) continue;  // another open cell's
    for (int rank : hang.waiting & run.in(CellRun::Phase::running)) {
      const auto& wait = picture.rank(rank)->waits.front();
      const RankSet missing = inspect::waited_for(picture, rank);
      reported_waits_.insert({run.id(), rank, static_cast<int64_t>(wait.call.entry)});
      show_wait(run, rank, {run.id(), dist::to_finding_op(wait.call), missing, wait.where});
    }
    // A rank that waits for one that is in a reported hang, or was freed from it, belongs to that hang.
    RankSet& hung = freed_[run.id()];
    if (hang.consequence || !(hang.missing & hung).empty()) continue;
    hung = hung | hang.waiting;
    if (reported_.insert(hang.key).second) host_.add_finding(std::move(hang.finding), run.number());
  }
  for (Finding& finding : inspect::evidence_findings(picture))
    if (finding.severity == Severity::fault && reported_.insert("evidence " + finding.ranks.str()).second)
      host_.add_finding(std::move(finding), run.number());
  const RankSet waiting = run.in(CellRun::Phase::waiting);
  if (!services_.options.abort_hangs || waiting.empty()) return;
  services_.workers.hub().send(waiting, protocol::Abort{"a collective that others will not enter was aborted"});
  freed_[run.id()] = freed_[run.id()] | (waiting & run.active());
}

void HangReporter::report_waits(const CellRun& run, const HangPicture& picture) {
  const int64_t old = picture.now_ns - std::chrono::nanoseconds(kReportWait).count();
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone() || rank.waits.empty() || run.is_in(CellRun::Phase::waiting, rank.rank)) continue;
    const auto& wait = rank.waits.front();
    if (wait.call.entered_ns > old || wait.call.cell != run.id()) continue;
    if (!reported_waits_.insert({run.id(), rank.rank, static_cast<int64_t>(wait.call.entry)}).second) continue;
    // The collective is in flight, and the rank does something else meanwhile.
    if (rank.activity != FindingKind::collective) continue;
    std::string text = inspect::rank_sentence(picture, rank);
    const RankSet missing = inspect::waited_for(picture, rank.rank);
    if (missing.size() == 1) {
      text += ", which " + inspect::rank_sentence(picture, *picture.rank(missing.ranks().front()));
    } else if (!missing.empty()) {
      text += "; " + inspect::rank_sentences(picture, missing);
    }
    services_.emit(RankEvent{rank.rank, RankState::waiting, std::move(text)});
  }
}

// ---- --hang-timeout -------------------------------------------------------------------------------------------------

void HangReporter::arm_time_limit() {
  limit_.cancel();
  if (const double limit_s = services_.options.hang_timeout_s; limit_s > 0)
    limit_.set_after(milliseconds(static_cast<int64_t>(limit_s * 1000)), [this] { time_limit(); });
}

/// It is a hang if for so many seconds there is no output, and no rank is further in its collectives.
void HangReporter::time_limit() {
  const OpenCell* cell = cells_.served();
  if (!cell) return;
  std::map<int, HangPictures::Progress> progress;
  for (int rank : cell->run.active()) progress[rank] = pictures_.progress_of(rank);
  const bool moved = std::exchange(output_came_, false) || progress != std::exchange(progress_, progress);
  moved ? stalled_once_.reset() : look(kTimeLimit);
  arm_time_limit();
}

void HangReporter::report_stall(const HangPicture& picture) {
  auto finding = inspect::stalled(picture, services_.options.hang_timeout_s);
  if (!finding) return stalled_once_.reset();
  CellRun& run = cells_.served()->run;
  const bool is_in_collective = finding->kind == FindingKind::collective || finding->kind == FindingKind::stream;
  // A rank that computes may read or take a lock at this very moment: where nobody waits for it, the limit has to pass
  // once more.
  if (finding->reference_ranks.empty() && !is_in_collective &&
      std::exchange(stalled_once_, finding->kind) != finding->kind)
    return;
  if (!reported_.insert(fmt::format("stalled in {}", run.id())).second) return;
  // Ranks in collectives are freed. An interrupt ends what others do, or wait for.
  const RankSet sitting = !finding->reference_ranks.empty() ? finding->reference_ranks
                          : is_in_collective                ? finding->ranks
                                                            : RankSet();
  host_.add_finding(std::move(*finding), run.number());
  limit_.cancel();
  if (!services_.options.abort_hangs) return;
  run.stalled();
  freed_[run.id()] = freed_[run.id()] | run.active();
  services_.workers.hub().send(run.active() & sitting, protocol::Abort{"no progress within --hang-timeout"});
  host_.interrupt(run.active() - sitting);
  host_.end_what_stays();  // what an interrupt does not end (docs/reliability.md)
}

}  // namespace lockstep::shell
