#include "shell/cells/call_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "collectives/log/call_mismatch.h"
#include "inspectors/findings/about.h"
#include "inspectors/hang/mismatch.h"
#include "inspectors/hang/words.h"

namespace lockstep::shell {
namespace {

constexpr const char* kInspector = "collectives";  // as in the findings of ranks of one machine
constexpr size_t kRecords = 256;  // of each rank, among which a call is looked for
constexpr std::chrono::milliseconds kLinesLimit{1000}, kAgain{10};
// How long the other ranks get to come to the same number, so that the message names all calls: as on one machine.
constexpr std::chrono::milliseconds kPatience{250};

bool overlap(const dist::DifferingCalls& one, const dist::DifferingCalls& other) {
  return one.key == other.key && one.first <= other.last && other.first <= one.last;
}

Finding finding_about(const RankSet& ranks) {
  return inspect::About{.inspector = kInspector, .object = {}, .step = {}, .ranks = ranks}.finding(
      Severity::fault, Verdict::op_mismatch);
}

/// Returns the line of an entry of the log of `rank`; empty: it is not known.
std::string line_of(const inspect::HangPicture& picture, int rank, uint64_t entry) {
  const inspect::RankPicture* const of = picture.rank(rank);
  if (!of) return "";
  const auto line = of->lines.find(entry);
  return line == of->lines.end() ? "" : line->second;
}

}  // namespace

void CallComparison::take(const std::vector<dist::NewCall>& calls) {
  for (const dist::NewCall& each : calls) {
    if (table_.add(each) != CallTable::Seen::differs || difference_ || !host_.runs()) continue;
    difference_ = {.incarnation = each.incarnation, .seq = each.seq, .found_at = EventLoop::Clock::now()};
    look_.set_after({}, [this] { look(); });
  }
}

/// Has the ranks of the group raise it. Not after the cell, in which they would have raised it: find() reports it then.
void CallComparison::look() {
  const Difference about = *difference_;
  inspect::HangPicture picture;
  picture.ranks = hangs_.pictures().logs_of(services_.workers.live(), {.recent = kRecords});
  std::string group;
  RankSet members;
  std::map<int, dist::CalledHere> called;
  for (const inspect::RankPicture& rank : picture.ranks)
    for (const dist::LoggedGroup& each : rank.groups) {
      if (each.incarnation != about.incarnation) continue;
      group = each.name;
      members = members | RankSet(each.ranks);
      members.insert(rank.rank);  // the log may not name it
      for (const dist::CollectiveRecord& record : rank.recent)
        if (record.group == group && record.seq == about.seq && !record.point_to_point)
          called[rank.rank] = {.record = record, .recent = rank.recent};
    }
  RankSet missing = members & services_.workers.live();
  for (const auto& [rank, call] : called) missing.erase(rank);
  const bool may_come = EventLoop::Clock::now() < about.found_at + kPatience;
  if (may_come && host_.runs() && (called.size() < 2 || !missing.empty()))
    return look_.set_after(kAgain, [this] { look(); });
  // Ranks of one machine that differ have found it themselves, and the others hear that they have left.
  std::map<std::string, std::set<std::string>> calls_of;  // a machine's
  for (const auto& [rank, call] : called)
    calls_of[services_.workers.rank(rank).hello.machine].insert(describe(call.record));
  const bool have_found = std::ranges::any_of(calls_of, [](const auto& each) { return each.second.size() > 1; });
  const bool is_known = std::ranges::any_of(calls_, [&](const dist::DifferingCalls& each) {  // of an earlier cell
    return each.group == group && each.first <= about.seq && about.seq <= each.last;
  });
  if (called.size() > 1 && host_.runs() && !is_known && !have_found) {
    name_lines(picture, [&](const dist::CollectiveRecord& each) {
      return each.group == group && each.seq == about.seq && !each.point_to_point;
    });
    std::map<const dist::CollectiveRecord*, std::string> lines;
    for (const auto& [rank, call] : called) lines[&call.record] = line_of(picture, rank, call.record.entry);
    const dist::CollectiveMismatch mismatch = dist::make_mismatch(
        group, about.seq, called, missing, [&](const dist::CollectiveRecord& call) { return lines[&call]; });
    if (host_.runs()) {  // it may be over while ranks were asked for lines
      services_.workers.hub().send(
          members & services_.workers.live(),
          protocol::Mismatch{
              .incarnation = about.incarnation, .message = mismatch.what(), .finding = mismatch.finding});
      host_.told();
    }
  }
  difference_.reset();
}

std::optional<Finding> CallComparison::find(const CellRun& run) {
  difference_.reset();
  look_.cancel();
  if (!services_.options.check_collectives || services_.workers.share_machine()) return std::nullopt;
  Digests digests;
  std::map<std::string, RankSet> members;
  for (inspect::RankPicture& each :
       hangs_.pictures().logs_of(services_.workers.live(), {.recent = 0, .digests = true})) {
    for (const dist::LoggedGroup& group : each.groups) members.try_emplace(group.name, RankSet(group.ranks));
    digests[each.rank] = std::move(each.digests);
  }
  auto found = differing_call(run, digests, members);
  return found ? std::move(found) : differing_transfer(run, digests);
}

std::optional<Finding> CallComparison::differing_call(const CellRun& run, const Digests& digests,
                                                      const std::map<std::string, RankSet>& members) {
  std::vector<dist::DifferingCalls> calls = dist::differing_calls(digests);
  std::erase_if(calls, [&](const dist::DifferingCalls& each) {
    return std::ranges::any_of(calls_, [&](const auto& known) { return overlap(known, each); });
  });
  if (calls.empty()) return std::nullopt;
  calls_.insert(calls_.end(), calls.begin(), calls.end());
  const dist::DifferingCalls& first = calls.front();
  // Ranks of one machine have found it themselves, and the cell has ended with it; or it was a hang.
  for (const auto& [rank, error] : run.errors())
    if (error.type.ends_with("CollectiveMismatch")) return std::nullopt;
  if (hangs_.has_reported(first.group, first.first)) return std::nullopt;
  if (first.first == first.last) {
    inspect::HangPicture picture = hangs_.pictures().picture(&run, {}, kRecords);
    name_lines(picture, [&](const dist::CollectiveRecord& each) {
      return each.group == first.group && each.seq == first.first && !each.point_to_point;
    });
    if (auto finding = inspect::mismatch_of_call(picture, first.group, first.first, kInspector)) return finding;
  }
  Finding finding = finding_about(members.contains(first.group) ? members.at(first.group) : run.ranks());
  finding.message = first.str();
  return finding;
}

std::optional<Finding> CallComparison::differing_transfer(const CellRun& run, const Digests& digests) {
  std::optional<dist::DifferingTransfer> first;
  for (const dist::DifferingTransfer& each : dist::differing_transfers(digests)) {
    const dist::Transfer& sent = each.sent;
    const bool is_new = transfers_.insert({each.key, sent.kind, sent.from, sent.to, sent.tag, sent.number}).second;
    if (is_new && !first) first = each;
  }
  if (!first) return std::nullopt;
  inspect::HangPicture picture = hangs_.pictures().picture(&run, {}, kRecords);
  name_lines(picture, [&](const dist::CollectiveRecord& each) {
    return each.entry == first->sent.entry || each.entry == first->expected.entry;
  });
  Finding finding = finding_about({first->sent.from, first->sent.to});
  finding.message = first->str(line_of(picture, first->sent.from, first->sent.entry),
                               line_of(picture, first->sent.to, first->expected.entry));
  return finding;
}

template <typename IsMeant>
void CallComparison::name_lines(inspect::HangPicture& picture, const IsMeant& is_meant) {
  using Place = std::pair<int64_t, uint64_t>;  // in the code of a cell
  std::map<Place, std::vector<std::string*>> unnamed;
  protocol::question::Hang question;
  RankSet asked;  // ranks that have the code
  for (inspect::RankPicture& rank : picture.ranks)
    for (const dist::CollectiveRecord& each : rank.recent) {
      if (!is_meant(each)) continue;
      std::string& line = rank.lines[each.entry];
      if (!each.place.file.empty()) {
        line = each.place.line_str();
      } else if (each.site_cell) {
        auto& callers = unnamed[{*each.site_cell, each.site_offset}];
        if (callers.empty()) asked.insert(rank.rank);
        callers.push_back(&line);
      }
    }
  if (unnamed.empty()) return;
  for (const auto& [place, lines] : unnamed) question.sites.push_back({.cell = place.first, .offset = place.second});
  const auto answers = protocol::answers_to<protocol::question::Hang>(queries_.ask(asked, question, kLinesLimit));
  for (const auto& [rank, answer] : answers) {
    size_t at = 0;
    for (const auto& [place, lines] : unnamed) {
      if (at < answer.sites.size() && !answer.sites[at].empty())
        for (std::string* each : lines) *each = answer.sites[at];
      ++at;
    }
  }
}

}  // namespace lockstep::shell
