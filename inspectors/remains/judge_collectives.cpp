#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "inspectors/findings/majority.h"
#include "inspectors/findings/text.h"
#include "inspectors/hang/circles.h"
#include "inspectors/hang/words.h"
#include "inspectors/remains/call_words.h"
#include "inspectors/remains/judges.h"
#include "inspectors/remains/rank_errors.h"

namespace lockstep::inspect::judging {
namespace {

constexpr const char* kByRecorder = "; by the Flight Recorder, whose dumps are of different moments";

/// Whether the inputs have one shape and dtype on all ranks.
bool has_equal_inputs(const std::string& op) {
  constexpr std::array kEqual = {"all_reduce", "broadcast", "reduce", "all_gather_into_tensor",
                                 "reduce_scatter_tensor"};
  return std::ranges::find(kEqual, op) != kEqual.end();
}

/// Whether `message` has "as #2 of group 1", and not "as #2 of group 12".
bool names_call(const std::string& message, const std::string& call) {
  const size_t at = message.find(call);
  if (at == std::string::npos) return false;
  const size_t end = at + call.size();
  return end == message.size() || std::isalnum(static_cast<unsigned char>(message[end])) == 0;
}

class Collectives {
 public:
  Collectives(const Case& job, Verdicts& verdicts) : job_(job), verdicts_(verdicts) {}

  void judge() {
    std::set<std::string> judged;  // groups: what comes after the first unfinished collective follows from it
    for (const EvidenceRow& row : side_by_side(job_.dumps)) {
      if (judged.contains(row.group)) continue;
      const RankSet unfinished =
          (row.in_state(EvidenceState::scheduled) | row.in_state(EvidenceState::started)) - job_.killed;
      // Gloo's groups tell the recorder a moment after the call has returned.
      const RankSet waiting = unfinished - job_.outside;
      if (find_mismatch(row, unfinished) || (!waiting.empty() && find_stuck(row, waiting))) judged.insert(row.group);
    }
    add_crossed();
    for (const Evidence* dump : job_.dumps) find_messages(*dump, judged);
  }

 private:
  /// Has ranks that wait in a collective for ranks that are in another one.
  struct Behind {
    RankSet waiting, absent;
    const EvidenceCall* call;
    Finding finding;
  };

  /// Makes one fault of ranks that wait for one another, each in a collective that the others have not called. What
  /// only leads there follows from it.
  void add_crossed() {
    std::vector<CallWait> waits;
    RankSet explained = waiting_;  // by another finding
    for (const Behind& each : behind_) {
      waits.push_back({each.waiting, each.absent});
      explained = explained - each.waiting;
    }
    std::vector<bool> added(behind_.size());
    for (const Circle& circle : circles_of(waits)) {
      add_circle(circle);
      explained = explained | circle.ranks;
      for (const size_t call : circle.calls) added[call] = true;
    }
    // A wait for ranks whose own waits are explained is explained as well.
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < behind_.size(); ++i) {
        if (added[i] || behind_[i].absent - explained != RankSet()) continue;
        explained = explained | behind_[i].waiting;
        behind_[i].finding.severity = Severity::note;
        verdicts_.add(Weight::behind, behind_[i].finding);
        changed = added[i] = true;
      }
    }
    for (size_t i = 0; i < behind_.size(); ++i)
      if (!added[i]) verdicts_.add(Weight::behind, behind_[i].finding);
  }

  void add_circle(const Circle& circle) {
    Finding finding = behind_[circle.largest].finding;
    std::string waits;
    bool logged = true, known = true;
    for (const size_t call : circle.calls) {
      const Behind& each = behind_[call];
      const std::string& group = each.call->group;
      waits += fmt::format("{}{} for {}", waits.empty() ? "" : ", and ", waits_in(*each.call, each.waiting),
                           each.absent.words());
      logged = logged && job_.is_logged(group, each.waiting | each.absent);
      known = known && job_.has_members(group);
    }
    finding.ranks = circle.majority.at_fault;
    finding.reference_ranks = circle.majority.reference;
    finding.message =
        fmt::format("{}: none of them can continue{}. {}{}", waits,
                    known ? "" : ", if the groups have these ranks in common, which the recorder does not know",
                    kOneOrder, logged ? "" : kByRecorder);
    verdicts_.add(Weight::stuck, std::move(finding));
  }

  /// Returns "ranks 0-1 wait in all_reduce #3 of default_pg float32 [4] (train.py:12)".
  static std::string waits_in(const EvidenceCall& call, const RankSet& waiting) {
    return fmt::format("{} {} in {}{}{}", waiting.words(), waiting.size() == 1 ? "waits" : "wait", call_words(call),
                       input_words(call), in_brackets(place(call.frames)));
  }

  /// Returns what is said of ranks without a dump that wait in such a call; empty without ranks.
  static std::string also_waits(const RankSet& alike) {
    if (alike.empty()) return {};
    return fmt::format("; {} there, too, by {} not tell the number of the call",
                       alike.words() + (alike.size() == 1 ? " waits" : " wait"),
                       alike.size() == 1 ? "its stack, which does" : "their stacks, which do");
  }

  /// Makes a finding: `waiting` waits in `call` for `absent`. The message is the caller's.
  static Finding hang_in(const EvidenceCall& call, const RankSet& waiting, const RankSet& absent,
                         FindingKind kind = FindingKind::unknown) {
    Finding finding = about().finding(Severity::fault, Verdict::hang, kind);
    finding.ranks = absent;
    finding.reference_ranks = waiting;
    finding.op = op_of(call);
    if (const std::string where = place(call.frames); !where.empty()) finding.where = where;
    return finding;
  }

  /// Adds what the absent ranks do instead to the message, and gives the finding the kind of the first.
  void add_activities(Finding& finding, const std::string& group) const {
    constexpr size_t kMostActivities = 8;
    std::set<std::string> seen;
    for (const int rank : finding.ranks) {
      const auto [does, kind] = job_.what_it_does(rank, group);
      if (seen.empty()) finding.kind = kind;
      if (!does.empty() && seen.size() < kMostActivities && seen.insert(does).second)
        finding.message += fmt::format("; rank {} {}", rank, does);
    }
  }

  /// `waiting` waits in `call` for `absent`, and so does `alike` by its stacks. `known`: what is known of that, which ends
  /// the sentence.
  void add_wait(const EvidenceCall& call, const RankSet& waiting, const RankSet& alike, const RankSet& absent,
                const std::string& known, bool by_recorder) {
    Finding finding = hang_in(call, waiting | alike, absent);
    finding.message = waits_in(call, waiting) + known + also_waits(alike);
    add_activities(finding, call.group);
    if (by_recorder) finding.message += kByRecorder;
    waiting_ = waiting_ | waiting;
    // The failure of a rank explains that it has not come. That the launcher has ended a rank does so where another one
    // of them had failed by itself before.
    const bool is_first_known = !(absent & job_.by_themselves).empty();
    const RankSet gone = is_first_known ? job_.failed | job_.taken_along : job_.failed;
    if (absent - gone == RankSet()) {
      finding.severity = Severity::note;
      verdicts_.add(Weight::consequence, std::move(finding));
    } else if (finding.kind == FindingKind::other_collective) {
      behind_.push_back({waiting, absent, &call, std::move(finding)});
    } else {
      verdicts_.add(Weight::stuck, std::move(finding));
    }
  }

  /// All ranks of which something is known wait in `call`: `waiting` by dumps, and `alike` by stacks.
  bool add_kept(const EvidenceCall& call, const RankSet& waiting, const RankSet& alike) {
    Finding finding = hang_in(call, {}, waiting | alike, FindingKind::communicator);
    finding.message = waits_in(call, waiting) + also_waits(alike) +
                      ": the network, or a difference that stacks do not show (shape, dtype, group), keeps them" +
                      kByRecorder;
    waiting_ = waiting_ | waiting | alike;
    verdicts_.add(Weight::stuck, std::move(finding));
    return true;
  }

  /// Finds ranks that have called different things under one number.
  bool find_mismatch(const EvidenceRow& row, const RankSet& waiting) {
    // operation, dtype, sizes, variant, signature
    using Shape = std::tuple<std::string, std::string, std::string, std::string, uint64_t>;
    const auto none = [&](auto is) {
      return std::ranges::none_of(row.calls, [&](const auto& each) { return is(*each.second); });
    };
    const bool has_variants = none([](const EvidenceCall& each) { return each.variant.empty(); });
    // Ranks of one machine compare signatures before data moves, and who judges compares those of several.
    const bool is_signed = none([](const EvidenceCall& each) { return each.signature == 0; });
    const uint64_t signature = row.calls.begin()->second->signature;
    if (is_signed && none([&](const EvidenceCall& each) { return each.signature != signature; })) return false;
    std::map<Shape, RankSet> called;
    for (const auto& [rank, call] : row.calls) {
      const FindingOp op = op_of(*call);
      const bool compared = is_signed || has_equal_inputs(call->op);
      called[{op.name, compared ? op.dtype : "", compared ? fmt::format("{}", fmt::join(op.shape, ", ")) : "",
              has_variants ? call->variant : "", is_signed ? call->signature : 0}]
          .insert(rank);
    }
    if (called.size() < 2) return false;
    const auto same = [&](auto get) {
      return std::ranges::all_of(called,
                                 [&](const auto& each) { return get(each.first) == get(called.begin()->first); });
    };
    const bool one_op = same([](const Shape& each) { return std::get<0>(each); });
    const bool one_dtype = same([](const Shape& each) { return std::get<1>(each); });
    const bool one_size = same([](const Shape& each) { return std::get<2>(each); });
    // A collective that every rank has finished was one to its transport, although the recorder's inputs differ.
    if (one_op && waiting.empty() && !is_signed) return false;
    RankSet callers;
    for (const auto& [rank, call] : row.calls) callers.insert(rank);
    const Majority majority = majority_of(callers, called);
    Finding finding = about().finding(Severity::fault, !one_op      ? Verdict::op_mismatch
                                                       : !one_dtype ? Verdict::dtype_mismatch
                                                       : !one_size  ? Verdict::shape_mismatch
                                                                    : Verdict::op_mismatch);
    std::string calls;
    for (const auto& [shape, ranks] : called) {
      const EvidenceCall& call = *row.calls.at(ranks.ranks().front());
      calls += fmt::format("{}{} called {}{}{}", calls.empty() ? "" : ", ", ranks.words(), call.op,
                           input_words(call) + (one_op && one_dtype && one_size ? " " + call.variant : ""),
                           in_brackets(place(call.frames)));
    }
    finding.ranks = majority.at_fault;
    finding.reference_ranks = majority.reference;
    const EvidenceCall& first = *row.calls.at(finding.ranks.ranks().front());
    finding.op = op_of(first);
    if (const std::string where = place(first.frames); !where.empty()) finding.where = where;
    finding.message =
        fmt::format("#{} of {} is not the same collective on all ranks: {}", row.seq, group_words(first), calls);
    // The ranks have said it themselves, with what they know of the order of the calls.
    const std::string number = fmt::format("as #{} of group {}", row.seq, row.group);
    const auto names_all = [&](const std::string& message) {  // it knows ranks of its machine only
      return std::ranges::all_of(
          called, [&](const auto& each) { return message.find(each.second.words()) != std::string::npos; });
    };
    bool compared = is_signed;
    if (is_signed) finding.inspector = kComparison;
    for (const RankError& each : job_.remains.errors) {
      if (!is_mismatch(each) || !names_call(each.message, number) || (is_signed && !names_all(each.message))) continue;
      finding.message = each.message;
      finding.inspector = kComparison;
      compared = true;
    }
    if (!compared && !job_.is_logged(row.group, callers)) finding.message += kByRecorder;
    waiting_ = waiting_ | waiting;
    verdicts_.add(Weight::mismatch, std::move(finding));
    return true;
  }

  /// Finds a collective that some rank has not finished. Returns false where nothing can be said.
  bool find_stuck(const EvidenceRow& row, const RankSet& waiting) {
    const EvidenceCall& call = *row.calls.at(waiting.ranks().front());
    // A rank whose dump begins later has called it.
    const RankSet silent = row.unknown - job_.dumped - job_.ended_after(row.group, row.seq);
    if (row.missing.empty() && silent.empty()) return find_unfinished(row, waiting, call);
    const RankSet alike = silent & job_.waits_by_stacks(call);
    const RankSet absent = row.missing.empty() ? silent - alike : row.missing;
    if (absent.empty()) return add_kept(call, waiting, alike);
    const bool proven = absent - job_.ended == RankSet();  // who has ended will not come
    const bool known = !row.missing.empty() || proven;
    const char* const words = !known ? ", which {}, of which there is no dump, may not have called"
                              : absent - job_.ended_without_a_word() == RankSet()
                                  ? ", which {} {{has}} ended and may not have called"
                                  : ", which {} {{has}} not called";
    add_wait(call, waiting, alike, absent, plural(fmt::format(fmt::runtime(words), absent.words()), absent.size()),
             known && !proven && !job_.is_logged(row.group, absent | waiting));
    return true;
  }

  /// Finds the ranks of a group whose ranks are not known that have not called it and are in a collective of another
  /// group, or else all that nothing says have called it.
  bool find_uncalled(const EvidenceRow& row, const RankSet& waiting, const EvidenceCall& call) {
    RankSet called = job_.ended_after(row.group, row.seq), elsewhere;
    for (const auto& [rank, each] : row.calls) called.insert(rank);
    for (const int rank : job_.dumped - called)
      if (job_.what_it_does(rank, row.group).second == FindingKind::other_collective) elsewhere.insert(rank);
    const RankSet alike = (job_.world - job_.dumped - called) & job_.waits_by_stacks(call);
    const RankSet absent = elsewhere.empty() ? job_.world - called - alike : elsewhere;
    if (absent.empty() && alike.empty()) return false;
    if (absent.empty()) return add_kept(call, waiting, alike);
    const char* const words =
        elsewhere.empty()
            ? "; nothing says that {} {{has}} called it, and the recorder does not know the ranks of that group"
            : ", which {} {{has}} not called (the recorder does not know the ranks of that group)";
    add_wait(call, waiting, alike, absent, plural(fmt::format(fmt::runtime(words), absent.words()), absent.size()),
             true);
    return true;
  }

  bool find_unfinished(const EvidenceRow& row, const RankSet& waiting, const EvidenceCall& call) {
    const RankSet started = row.in_state(EvidenceState::started), scheduled = row.in_state(EvidenceState::scheduled);
    const RankSet done = row.in_state(EvidenceState::completed);
    // Where starts are recorded, a rank that has not started it is behind on its device.
    const bool behind = !started.empty() && !scheduled.empty();
    const RankSet late = behind ? scheduled : waiting;
    RankSet left = done & job_.failed;
    if (!job_.has_members(row.group) && find_uncalled(row, waiting, call)) return true;
    Finding finding =
        hang_in(call, behind ? started : done, late, behind ? FindingKind::stream : FindingKind::communicator);
    if (!left.empty()) finding.severity = Severity::note;
    finding.message =
        fmt::format("all ranks have called {}{}{}, and {} {} not finished it", call_words(call), input_words(call),
                    in_brackets(place(call.frames)), waiting.words(), waiting.size() == 1 ? "has" : "have");
    if (behind)
      finding.message += fmt::format("; it has started on {}, and the device of {} has not come to it", started.words(),
                                     scheduled.words());
    else if (!done.empty())
      finding.message += fmt::format("; {} {} done with it", done.words(), done.size() == 1 ? "is" : "are");
    else
      finding.message += "; the network or a device keeps it, or the dumps were taken while it ran";
    if (!job_.is_logged(row.group, waiting | done)) finding.message += kByRecorder;
    waiting_ = waiting_ | waiting;
    verdicts_.add(left.empty() ? Weight::stuck : Weight::consequence, std::move(finding));
    return true;
  }

  /// Finds sends and receives that have not ended, of ranks that are in no collective which has not: messages may be
  /// queued after that.
  void find_messages(const Evidence& dump, const std::set<std::string>& judged) {
    if (!dump.rank || (waiting_ | job_.killed | job_.outside).contains(*dump.rank)) return;
    for (const EvidenceCall& call : dump.calls) {
      if (!call.point_to_point || call.state == EvidenceState::completed || judged.contains(call.group)) continue;
      const EvidenceGroup* group = dump.group(call.group);
      const bool named = group && call.peer >= 0 && static_cast<size_t>(call.peer) < group->ranks.size();
      const int peer = named ? group->ranks[static_cast<size_t>(call.peer)] : call.peer;
      Finding finding = hang_in(call, RankSet{*dump.rank}, peer >= 0 ? RankSet{peer} : RankSet());
      const auto [does, kind] =
          peer >= 0 ? job_.what_it_does(peer, {}) : std::pair(std::string(), FindingKind::unknown);
      finding.kind = kind;
      finding.message =
          fmt::format("rank {} waits in {}{}{}{}{}", *dump.rank, call_words(call), input_words(call),
                      in_brackets(place(call.frames)), does.empty() ? "" : fmt::format("; rank {} {}", peer, does),
                      job_.is_logged(call.group, RankSet{*dump.rank}) ? "" : kByRecorder);
      const bool explained = peer >= 0 && (job_.failed | waiting_).contains(peer);
      if (explained) finding.severity = Severity::note;
      verdicts_.add(explained ? Weight::consequence : Weight::stuck, std::move(finding));
      return;  // the first one holds up the others
    }
  }

  const Case& job_;
  Verdicts& verdicts_;
  RankSet waiting_;  // in a collective that a finding is about
  std::vector<Behind> behind_;
};

}  // namespace

void judge_collectives(const Case& job, Verdicts& verdicts) { Collectives(job, verdicts).judge(); }

}  // namespace lockstep::inspect::judging
