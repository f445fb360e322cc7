#include "inspectors/remains/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "inspectors/findings/about.h"

namespace lockstep::inspect {
namespace {

constexpr const char* kByRecorder = "; by the Flight Recorder, whose dumps are of different moments";

constexpr const char* kComparison = "collectives";  // what ranks have found themselves, as in sessions

const About& about() {
  static const About about{.inspector = "hang", .object = {}, .step = {}, .ranks = {}, .names = {}};
  return about;
}

/// "train.py:88 in step"; empty without frames.
std::string place(const std::vector<EvidenceFrame>& frames) {
  const EvidenceFrame* frame = program_frame(frames);
  if (!frame) return {};
  const std::string in = frame->function.empty() || frame->function == "<module>" ? "" : " in " + frame->function;
  return fmt::format("{}:{}{}", frame->file, frame->line, in);
}

std::string in_brackets(const std::string& text) { return text.empty() ? "" : " (" + text + ")"; }

/// "float32 [8, 16]"; of several tensors the first.
std::string input_words(const EvidenceCall& call) {
  if (call.input_shapes.empty()) return {};
  std::string text;
  if (!call.input_dtypes.empty()) text += " " + call.input_dtypes.front();
  text += fmt::format(" [{}]", fmt::join(call.input_shapes.front(), ", "));
  if (call.input_shapes.size() > 1) text += fmt::format(" and {} more", call.input_shapes.size() - 1);
  return text;
}

std::string group_words(const EvidenceCall& call) {
  return call.group_description.empty() || call.group_description == "undefined" ? "group " + call.group
                                                                                 : call.group_description;
}

/// "all_reduce #17 of default_pg".
std::string call_words(const EvidenceCall& call) {
  if (!call.point_to_point) return fmt::format("{} #{} of {}", call.op, call.seq, group_words(call));
  const bool sends = call.op.starts_with("send");
  return fmt::format("{} #{} {} rank {} of {}", call.op, call.seq, sends ? "to" : "from", call.peer, group_words(call));
}

FindingOp op_of(const EvidenceCall& call) {
  return {.name = call.op,
          .seq = call.seq,
          .shape = call.input_shapes.empty() ? std::vector<int64_t>() : call.input_shapes.front(),
          .dtype = call.input_dtypes.empty() ? std::string() : call.input_dtypes.front(),
          .group = group_words(call)};
}

/// What a rank raises that has compared its call with those of the other ranks (dist::CollectiveMismatch).
bool is_mismatch(const RankError& error) {
  return error.message.find("All ranks of a group must make the same calls in the same order") != std::string::npos;
}

/// Operations whose inputs have one shape and dtype on all ranks.
bool has_equal_inputs(const std::string& op) {
  constexpr std::array kEqual = {"all_reduce", "broadcast", "reduce", "all_gather_into_tensor",
                                 "reduce_scatter_tensor"};
  return std::ranges::find(kEqual, op) != kEqual.end();
}

/// Errors that ranks have because another one left, or did not come.
bool is_consequence(const RankError& error) {
  constexpr std::array kTypes = {"DistBackendError", "DistNetworkError", "DistStoreError",      "ChildFailedError",
                                 "SignalException",  "BrokenPipeError",  "ConnectionResetError"};
  constexpr std::array kWords = {"Connection closed by peer",
                                 "Connection reset by peer",
                                 "Broken pipe",
                                 "Watchdog caught collective operation timeout",
                                 "Timed out waiting",
                                 "connectFullMesh",
                                 "remote process has terminated",
                                 "ncclRemoteError",
                                 "failed to pass monitoredBarrier",
                                 "Application timeout caused pair closure",
                                 " left the collective ",
                                 "a rank left ",
                                 " was shut down because ",
                                 " did not end within its time limit of "};
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  return std::ranges::any_of(kTypes, [&](const char* each) { return has(error.type, each); }) ||
         std::ranges::any_of(kWords, [&](const char* each) { return has(error.message, each); });
}

class Judge {
 public:
  explicit Judge(const Remains& remains) : remains_(remains) {
    for (const Evidence& each : remains.evidence) {
      const bool is_log = each.source == EvidenceSource::collective_log;
      if (each.source != EvidenceSource::flight_recorder && !is_log) continue;
      dumps_.push_back(&each);
      if (each.rank) dumped_.insert(*each.rank);
      if (each.rank && is_log)
        for (const EvidenceGroup& group : each.groups) logged_[group.name].insert(*each.rank);
      for (const EvidenceGroup& group : each.groups)
        for (const int rank : group.ranks) world_.insert(rank);
    }
    for (const int rank : dumped_) world_.insert(rank);
    for (const RankError& each : remains.errors)
      if (each.rank >= 0) failed_.insert(each.rank);
    for (const RankDoing& each : remains.doing) {
      world_.insert(each.rank);
      if (each.ended) ended_.insert(each.rank);
      if (each.ended && each.kind == FindingKind::died) killed_.insert(each.rank);
      if (each.at_fault) failed_.insert(each.rank);
    }
  }

  std::vector<Finding> run() {
    say_what_is_missing();
    look_at_errors();
    look_at_collectives();
    look_at_mismatch_errors();
    look_at_departures();
    look_at_deaths();
    look_at_communicators();
    return ordered();
  }

 private:
  // The greatest comes last. `behind`: what the ranks wait for waits itself.
  enum class Weight { remark, consequence, behind, stuck, mismatch, exception };
  struct Weighed {
    Weight weight;
    int64_t time_s;  // of equal weight the earliest comes last; 0: unknown
    Finding finding;
  };

  void add(Weight weight, Finding finding, int64_t time_s = 0) {
    found_.push_back({weight, time_s, std::move(finding)});
  }

  void say_what_is_missing() {
    for (const std::string& each : remains_.unread) {
      Finding note = about().finding(Severity::note, Verdict::unsupported);
      note.message = "not used: " + each;
      add(Weight::remark, std::move(note));
    }
    size_t nameless = 0;
    for (const Evidence* dump : dumps_) nameless += !dump->rank;
    if (nameless > 0) {
      Finding note = about().finding(Severity::note, Verdict::unsupported);
      note.message = fmt::format(
          "{} not compared, because neither the file's name nor its folder names the rank; name files as c10d does: "
          "trace_rank_3",
          nameless == 1 ? "1 dump was" : fmt::format("{} dumps were", nameless));
      add(Weight::remark, std::move(note));
    }
    const RankSet silent = world_ - dumped_ - ended_;
    if (dumped_.empty() || silent.empty()) return;
    Finding note = about().finding(Severity::note, Verdict::missing);
    note.ranks = silent;
    note.message = fmt::format("there is no dump of {}: what {} called last is not known", silent.words(),
                               silent.size() == 1 ? "it" : "they");
    add(Weight::remark, std::move(note));
  }

  // ---- exceptions and signals

  void look_at_errors() {
    // Equal ones of several ranks are one finding.
    using Key = std::tuple<bool, std::string, std::string>;
    std::map<Key, std::vector<const RankError*>> alike;
    for (const RankError& each : remains_.errors) {
      if (is_mismatch(each)) continue;
      const Key key{is_consequence(each), each.type, each.message};
      std::vector<const RankError*>& same = alike[key];
      // An error file and a log have the same exception.
      const bool known =
          each.rank >= 0 && std::ranges::any_of(same, [&](const RankError* other) { return other->rank == each.rank; });
      if (!known) same.push_back(&each);
    }
    for (const auto& [key, errors] : alike) add_error(std::get<bool>(key), errors);
  }

  void add_error(bool is_consequence, const std::vector<const RankError*>& errors) {
    RankSet ranks;
    int64_t first = 0;
    const RankError* shown = errors.front();
    for (const RankError* each : errors) {
      if (each->rank >= 0) ranks.insert(each->rank);
      if (each->time_s > 0 && (first == 0 || each->time_s < first)) first = each->time_s;
      if (shown->frames.empty() && !each->frames.empty()) shown = each;
    }
    Finding finding =
        about().finding(is_consequence ? Severity::note : Severity::fault, Verdict::dead, FindingKind::threw);
    finding.ranks = ranks;
    finding.where = shown->frames.empty() ? std::nullopt : std::optional(place(shown->frames));
    const std::string who = ranks.empty() ? shown->origin + ": a rank" : ranks.words();
    finding.message =
        fmt::format("{} {} {}{}{}", who, shown->type == "Fatal Python error" ? "died of" : "raised", shown->type,
                    shown->message.empty() ? "" : ": " + shown->message, in_brackets(place(shown->frames)));
    if (is_consequence) finding.message += "; that follows from another rank's end or absence";
    add(is_consequence ? Weight::consequence : Weight::exception, std::move(finding), first);
  }

  /// Ranks that have compared their calls and raised what differs, without a dump that says the same.
  void look_at_mismatch_errors() {
    if (std::ranges::any_of(found_, [](const Weighed& each) { return each.weight == Weight::mismatch; })) return;
    std::map<std::string, std::vector<const RankError*>> alike;
    for (const RankError& each : remains_.errors)
      if (is_mismatch(each)) alike[each.message].push_back(&each);
    for (const auto& [message, errors] : alike) {
      Finding finding = about().finding(Severity::fault, Verdict::op_mismatch);
      finding.inspector = kComparison;
      for (const RankError* each : errors)
        if (each->rank >= 0) finding.ranks.insert(each->rank);
      if (!errors.front()->frames.empty()) finding.where = place(errors.front()->frames);
      finding.message = message;
      add(Weight::mismatch, std::move(finding), errors.front()->time_s);
    }
  }

  /// Processes that were killed, or left without an exception.
  void look_at_deaths() {
    std::map<std::string, std::vector<const RankDoing*>> alike;
    for (const RankDoing& each : remains_.doing)
      if (each.at_fault && !departed_.contains(each.rank)) alike[each.words].push_back(&each);
    for (const auto& [words, deaths] : alike) {
      Finding finding = about().finding(Severity::fault, Verdict::dead, FindingKind::died);
      int64_t first = 0;
      for (const RankDoing* each : deaths) {
        finding.ranks.insert(each->rank);
        if (each->time_s > 0 && (first == 0 || each->time_s < first)) first = each->time_s;
      }
      const std::string last = last_call(finding.ranks.ranks().front());
      finding.message = finding.ranks.words() + " " + (deaths.size() == 1 ? words : plural_of(words)) + last;
      // Transports abort the process that gets more bytes than it expects.
      const bool follows =
          words.find("SIGABRT") != std::string::npos &&
          std::ranges::any_of(found_, [](const Weighed& each) { return each.weight == Weight::mismatch; });
      if (follows) finding.severity = Severity::note;
      add(follows ? Weight::consequence : Weight::exception, std::move(finding), first);
    }
  }

  /// Ranks that have finished, while others were in a collective with them: transports raise an error there.
  void look_at_departures() {
    RankSet finished, broken;
    int64_t first = 0;
    const RankError* shown = nullptr;
    for (const RankDoing& each : remains_.doing)
      if (each.ended && each.kind == FindingKind::finished) {
        finished.insert(each.rank);
        if (each.time_s > 0 && (first == 0 || each.time_s < first)) first = each.time_s;
      }
    for (const RankError& each : remains_.errors) {
      if (!is_consequence(each)) return;  // that one explains them
      if (each.rank < 0) continue;
      broken.insert(each.rank);
      if (!shown || shown->frames.empty()) shown = &each;
    }
    const bool died = std::ranges::any_of(
        remains_.doing, [](const RankDoing& each) { return each.at_fault && each.kind != FindingKind::finished; });
    const bool known = std::ranges::any_of(found_, [](const Weighed& each) {
      return is_fault(each.finding) && has_kind(each.finding, FindingKind::finished);
    });
    if (finished.empty() || broken.empty() || died || known) return;
    departed_ = finished;
    Finding finding = about().finding(Severity::fault, Verdict::hang, FindingKind::finished);
    finding.ranks = finished;
    finding.reference_ranks = broken;
    if (!shown->frames.empty()) finding.where = place(shown->frames);
    finding.message =
        fmt::format("{} {} finished, and {} {} still in a collective with {}{}", finished.words(),
                    finished.size() == 1 ? "has" : "have", broken.words(), broken.size() == 1 ? "was" : "were",
                    finished.size() == 1 ? "it" : "them", in_brackets(place(shown->frames)));
    add(Weight::stuck, std::move(finding), first);
  }

  static std::string plural_of(const std::string& words) {
    return words.starts_with("was ") ? "were " + words.substr(4) : words;
  }

  /// "; its last call is all_reduce #3 of default_pg (train.py:12)"; empty if it is not known.
  std::string last_call(int rank) const {
    for (const Evidence* dump : dumps_)
      if (dump->rank == rank && !dump->calls.empty())
        return fmt::format("; its last collective is {}{}", call_words(dump->calls.back()),
                           in_brackets(place(dump->calls.back().frames)));
    return {};
  }

  // ---- collectives

  void look_at_collectives() {
    std::vector<Evidence> dumps;
    dumps.reserve(dumps_.size());
    for (const Evidence* each : dumps_) dumps.push_back(*each);
    std::set<std::string> judged;  // groups: what comes after the first unfinished collective follows from it
    for (const EvidenceRow& row : side_by_side(dumps)) {
      if (judged.contains(row.group)) continue;
      const RankSet waiting = (row.in_state(EvidenceState::scheduled) | row.in_state(EvidenceState::started)) - killed_;
      if (find_mismatch(row, waiting) || (!waiting.empty() && find_stuck(row, waiting))) judged.insert(row.group);
    }
    for (const Evidence& dump : dumps) find_messages(dump, judged);
  }

  /// Ranks that have called different things under one number.
  bool find_mismatch(const EvidenceRow& row, const RankSet& waiting) {
    using Shape = std::tuple<std::string, std::string, std::string>;  // operation, dtype, sizes
    std::map<Shape, RankSet> called;
    for (const auto& [rank, call] : row.calls) {
      const FindingOp op = op_of(*call);
      const bool compared = has_equal_inputs(call->op);
      called[{op.name, compared ? op.dtype : "", compared ? fmt::format("{}", fmt::join(op.shape, ", ")) : ""}].insert(
          rank);
    }
    if (called.size() < 2) return false;
    const auto same = [&](auto get) {
      return std::ranges::all_of(called,
                                 [&](const auto& each) { return get(each.first) == get(called.begin()->first); });
    };
    const bool one_op = same([](const Shape& each) { return std::get<0>(each); });
    const bool one_dtype = same([](const Shape& each) { return std::get<1>(each); });
    // A collective that every rank has finished was one to its transport, although the recorder's inputs differ.
    if (one_op && waiting.empty()) return false;
    const auto most = std::ranges::max_element(called, {}, [](const auto& each) { return each.second.size(); });
    const bool majority =
        std::ranges::count_if(called, [&](const auto& each) { return each.second.size() == most->second.size(); }) == 1;
    Finding finding = about().finding(Severity::fault, !one_op      ? Verdict::op_mismatch
                                                       : !one_dtype ? Verdict::dtype_mismatch
                                                                    : Verdict::shape_mismatch);
    std::string calls;
    for (const auto& [shape, ranks] : called) {
      const EvidenceCall& call = *row.calls.at(ranks.ranks().front());
      calls += fmt::format("{}{} called {}{}{}", calls.empty() ? "" : ", ", ranks.words(), call.op, input_words(call),
                           in_brackets(place(call.frames)));
      if (!majority || ranks != most->second) finding.ranks = finding.ranks | ranks;
    }
    if (majority) finding.reference_ranks = most->second;
    const EvidenceCall& first = *row.calls.at(finding.ranks.ranks().front());
    finding.op = op_of(first);
    if (const std::string where = place(first.frames); !where.empty()) finding.where = where;
    finding.message =
        fmt::format("#{} of {} is not the same collective on all ranks: {}", row.seq, group_words(first), calls);
    // The ranks have said it themselves, with what they know of the order of the calls.
    const std::string number = fmt::format("as #{} of group {}", row.seq, row.group);
    for (const RankError& each : remains_.errors) {
      if (!is_mismatch(each) || each.message.find(number) == std::string::npos) continue;
      finding.message = each.message;
      finding.inspector = kComparison;
    }
    waiting_ = waiting_ | waiting;
    add(Weight::mismatch, std::move(finding));
    return true;
  }

  /// A collective that some rank has not finished. False where nothing can be said.
  bool find_stuck(const EvidenceRow& row, const RankSet& waiting) {
    const EvidenceCall& call = *row.calls.at(waiting.ranks().front());
    // A rank whose dump begins later has called it.
    const RankSet silent = row.unknown - dumped_ - ended_after(row);
    if (row.missing.empty() && silent.empty()) return find_unfinished(row, waiting, call);
    const RankSet absent = row.missing.empty() ? silent : row.missing;
    const bool proven = absent - ended_ == RankSet();  // who has ended will not come
    const bool known = !row.missing.empty() || proven;
    Finding finding = about().finding(Severity::fault, Verdict::hang);
    finding.ranks = absent;
    finding.reference_ranks = waiting;
    finding.op = op_of(call);
    if (const std::string where = place(call.frames); !where.empty()) finding.where = where;
    finding.message = fmt::format("{} {} in {}{}{}, which ", waiting.words(), waiting.size() == 1 ? "waits" : "wait",
                                  call_words(call), input_words(call), in_brackets(place(call.frames)));
    const char* const have = absent.size() == 1 ? "has" : "have";
    if (known && absent - ended_without_a_word() == RankSet())
      finding.message += fmt::format("{} {} ended and may not have called", absent.words(), have);
    else if (known)
      finding.message += fmt::format("{} {} not called", absent.words(), have);
    else
      finding.message += fmt::format("{}, of which there is no dump, may not have called", absent.words());
    FindingKind kind = FindingKind::unknown;
    bool explained = true;  // by an exception of each
    std::set<std::string> seen;
    for (const int rank : absent) {
      const auto [does, of_kind] = what_it_does(rank, row.group);
      if (seen.empty()) kind = of_kind;
      explained = explained && failed_.contains(rank);
      if (!does.empty() && seen.size() < 8 && seen.insert(does).second)
        finding.message += fmt::format("; rank {} {}", rank, does);
    }
    finding.kind = to_string(kind);
    if (known && !proven && !is_logged(row.group, absent | waiting)) finding.message += kByRecorder;
    if (explained) finding.severity = Severity::note;
    waiting_ = waiting_ | waiting;
    add(explained                               ? Weight::consequence
        : kind == FindingKind::other_collective ? Weight::behind
                                                : Weight::stuck,
        std::move(finding));
    return true;
  }

  /// Whether the ranks' own logs say what they have called in a group, so that it is proven.
  bool is_logged(const std::string& group, const RankSet& ranks) const {
    const auto found = logged_.find(group);
    return found != logged_.end() && ranks - found->second == RankSet();
  }

  /// Ranks that had called it before they ended.
  RankSet ended_after(const EvidenceRow& row) const {
    RankSet ranks;
    for (const RankDoing& each : remains_.doing) {
      const auto last = each.calls.find(row.group);
      if (each.ended && last != each.calls.end() && last->second >= row.seq) ranks.insert(each.rank);
    }
    return ranks;
  }

  /// Ranks of which nothing says what they had called: they may have ended inside of a collective.
  RankSet ended_without_a_word() const {
    RankSet ranks;
    for (const RankDoing& each : remains_.doing)
      if (each.ended && each.kind == FindingKind::died && each.calls.empty()) ranks.insert(each.rank);
    return ranks;
  }

  /// Whether a dump says which ranks are in the group. Of Gloo's groups they name the default one alone.
  bool has_members(const std::string& name) const {
    return std::ranges::any_of(dumps_, [&](const Evidence* dump) {
      const EvidenceGroup* group = dump->group(name);
      return group && !group->ranks.empty();
    });
  }

  /// Of a group whose ranks are not known: ranks that have not called it and are in a collective of another group.
  bool find_elsewhere(const EvidenceRow& row, const RankSet& waiting, const EvidenceCall& call) {
    RankSet called, elsewhere;
    for (const auto& [rank, each] : row.calls) called.insert(rank);
    std::string words;
    for (const int rank : dumped_ - called) {
      const auto [does, kind] = what_it_does(rank, row.group);
      if (kind != FindingKind::other_collective) continue;
      elsewhere.insert(rank);
      words += fmt::format("; rank {} {}", rank, does);
    }
    if (elsewhere.empty()) return false;
    Finding finding = about().finding(Severity::fault, Verdict::hang, FindingKind::other_collective);
    finding.ranks = elsewhere;
    finding.reference_ranks = waiting;
    finding.op = op_of(call);
    if (const std::string where = place(call.frames); !where.empty()) finding.where = where;
    finding.message = fmt::format("{} {} in {}{}{}, which {} {} not called, if in that group{}{}", waiting.words(),
                                  waiting.size() == 1 ? "waits" : "wait", call_words(call), input_words(call),
                                  in_brackets(place(call.frames)), elsewhere.words(),
                                  elsewhere.size() == 1 ? "has" : "have", words, kByRecorder);
    waiting_ = waiting_ | waiting;
    add(Weight::behind, std::move(finding));
    return true;
  }

  bool find_unfinished(const EvidenceRow& row, const RankSet& waiting, const EvidenceCall& call) {
    const RankSet started = row.in_state(EvidenceState::started), scheduled = row.in_state(EvidenceState::scheduled);
    const RankSet done = row.in_state(EvidenceState::completed);
    // Where starts are recorded, a rank that has not started it is behind on its device.
    const bool behind = !started.empty() && !scheduled.empty();
    const RankSet late = behind ? scheduled : waiting;
    RankSet left = done & failed_;
    if (!has_members(row.group) && find_elsewhere(row, waiting, call)) return true;
    Finding finding = about().finding(left.empty() ? Severity::fault : Severity::note, Verdict::hang,
                                      behind ? FindingKind::stream : FindingKind::communicator);
    finding.ranks = late;
    finding.reference_ranks = behind ? started : done;
    finding.op = op_of(call);
    if (const std::string where = place(call.frames); !where.empty()) finding.where = where;
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
    if (!is_logged(row.group, waiting | done)) finding.message += kByRecorder;
    waiting_ = waiting_ | waiting;
    add(left.empty() ? Weight::stuck : Weight::consequence, std::move(finding));
    return true;
  }

  /// Sends and receives that have not ended, of ranks that are in no collective which has not: messages may be queued
  /// after that.
  void find_messages(const Evidence& dump, const std::set<std::string>& judged) {
    if (!dump.rank || waiting_.contains(*dump.rank)) return;
    for (const EvidenceCall& call : dump.calls) {
      if (!call.point_to_point || call.state == EvidenceState::completed || judged.contains(call.group)) continue;
      const EvidenceGroup* group = dump.group(call.group);
      const bool named = group && call.peer >= 0 && static_cast<size_t>(call.peer) < group->ranks.size();
      const int peer = named ? group->ranks[static_cast<size_t>(call.peer)] : call.peer;
      Finding finding = about().finding(Severity::fault, Verdict::hang);
      if (peer >= 0) finding.ranks = RankSet{peer};
      finding.reference_ranks = RankSet{*dump.rank};
      finding.op = op_of(call);
      if (const std::string where = place(call.frames); !where.empty()) finding.where = where;
      const auto [does, kind] = peer >= 0 ? what_it_does(peer, {}) : std::pair(std::string(), FindingKind::unknown);
      finding.kind = to_string(kind);
      finding.message =
          fmt::format("rank {} waits in {}{}{}{}{}", *dump.rank, call_words(call), input_words(call),
                      in_brackets(place(call.frames)), does.empty() ? "" : fmt::format("; rank {} {}", peer, does),
                      is_logged(call.group, RankSet{*dump.rank}) ? "" : kByRecorder);
      const bool explained = peer >= 0 && (failed_ | waiting_).contains(peer);
      if (explained) finding.severity = Severity::note;
      add(explained ? Weight::consequence : Weight::stuck, std::move(finding));
      return;  // the first one holds up the others
    }
  }

  /// What a rank does that others wait for: "raised ValueError (train.py:12)". `group`: in which they wait.
  std::pair<std::string, FindingKind> what_it_does(int rank, const std::string& group) const {
    for (const RankError& each : remains_.errors)
      if (each.rank == rank)
        return {fmt::format("raised {}{}", each.type, in_brackets(place(each.frames))), FindingKind::threw};
    const auto doing = std::ranges::find(remains_.doing, rank, &RankDoing::rank);
    const bool watched = doing != remains_.doing.end();
    if (watched && doing->ended) return {doing->words, doing->kind};
    std::string words;
    FindingKind kind = FindingKind::unknown;
    const EvidenceCall* last = nullptr;
    for (const Evidence* dump : dumps_) {
      if (dump->rank != rank) continue;
      for (const EvidenceCall& call : dump->calls) {
        last = &call;
        if (call.state == EvidenceState::completed || (!group.empty() && call.group == group)) continue;
        words = fmt::format("is in {}{}", call_words(call), in_brackets(place(call.frames)));
        kind = FindingKind::other_collective;
        break;
      }
    }
    for (const RankStack& each : remains_.stacks) {
      if (each.rank != rank || !each.is_main || each.frames.empty()) continue;
      if (watched && kind == FindingKind::unknown) {
        words = fmt::format("{}{}", doing->words, in_brackets(place(each.frames)));
        kind = doing->kind;
      } else {
        words += fmt::format("{}its main thread is at {}", words.empty() ? "" : ", and ", place(each.frames));
      }
      break;
    }
    if (words.empty() && watched) words = doing->words, kind = doing->kind;
    if (words.empty() && last)
      words = fmt::format("called {} last{}{}", call_words(*last), in_brackets(place(last->frames)),
                          last->state == EvidenceState::completed ? ", which has ended" : "");
    return {words, kind};
  }

  // ---- NCCL

  void look_at_communicators() {
    for (const Evidence& each : remains_.evidence) {
      for (const EvidenceGroup& group : each.groups) {
        if (each.source != EvidenceSource::ras) continue;
        for (const EvidenceMember& member : group.members) {
          if (!member.dead && !member.unresponsive && member.error.empty()) continue;
          Finding finding =
              about().finding(member.dead ? Severity::fault : Severity::note, Verdict::dead, FindingKind::communicator);
          if (member.rank >= 0) finding.ranks = RankSet{member.rank};
          finding.message =
              fmt::format("{}{} of communicator {}{}: {}; by NCCL's RAS", member.rank >= 0 ? "rank " : "member ",
                          member.rank >= 0 ? member.rank : member.group_rank, group.name,
                          member.host.empty() ? "" : fmt::format(" (process {} on {})", member.pid, member.host),
                          member.dead           ? "its process does not answer and was given up"
                          : member.unresponsive ? "its process does not answer"
                                                : member.error);
          add(member.dead ? Weight::stuck : Weight::consequence, std::move(finding));
        }
      }
      const auto first = std::ranges::find_if(
          each.errors, [](const EvidenceError& error) { return !error.remote && !error.error.empty(); });
      if (first == each.errors.end()) continue;
      Finding finding = about().finding(Severity::fault, Verdict::dead, FindingKind::communicator);
      if (first->rank >= 0) finding.ranks = RankSet{first->rank};
      finding.message = fmt::format("rank {} had the first error in a communicator that is its own: {}; by {}",
                                    first->rank, first->error, source_words(each.source));
      add(Weight::stuck, std::move(finding), first->time_ns / 1'000'000'000);
    }
  }

  std::vector<Finding> ordered() {
    const auto later = [](const Weighed& a, const Weighed& b) {
      if (a.weight != b.weight) return a.weight < b.weight;
      const auto unknown_first = [](int64_t time) { return time == 0 ? INT64_MAX : time; };
      return unknown_first(a.time_s) > unknown_first(b.time_s);
    };
    std::ranges::stable_sort(found_, later);
    std::vector<Finding> findings;
    for (Weighed& each : found_) findings.push_back(std::move(each.finding));
    if (std::ranges::any_of(findings, is_fault)) return findings;
    const bool consequences =
        std::ranges::any_of(found_, [](const Weighed& each) { return each.weight == Weight::consequence; });
    Finding last =
        about().finding(Severity::note, consequences || remains_.files == 0 ? Verdict::unsupported : Verdict::ok);
    last.ranks = world_ | failed_;
    if (remains_.files == 0)
      last.message = "nothing of a job was found: no dump of the Flight Recorder, error file, traceback or stack";
    else if (consequences)
      last.message =
          "each error follows from the end or absence of another rank, of which these files have no error: "
          "look for a rank that was killed (out of memory, signals) or whose files are missing";
    else
      last.message = fmt::format("no rank has raised an exception, and no collective is unfinished{}",
                                 dumped_.empty() ? "" : ", by the dumps of " + dumped_.words());
    findings.push_back(std::move(last));
    return findings;
  }

  const Remains& remains_;
  std::vector<const Evidence*> dumps_;
  RankSet world_, dumped_, failed_, ended_;
  RankSet killed_;  // by a signal, or left without an exception: they are not in what they had called
  std::map<std::string, RankSet> logged_;  // group → ranks whose collective log says what they have called
  RankSet departed_;  // finished while others were in a collective with them; how their processes ended follows
  RankSet waiting_;  // in a collective that a finding is about
  std::vector<Weighed> found_;
};

}  // namespace

std::vector<Finding> judge(const Remains& remains) { return Judge(remains).run(); }

}  // namespace lockstep::inspect
