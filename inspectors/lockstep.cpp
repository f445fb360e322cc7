#include "inspectors/lockstep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "inspectors/gathering.h"
#include "inspectors/op_compare.h"
#include "inspectors/verify_findings.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// One run, as it was recorded.
struct Recording {
  explicit Recording(const LockstepOptions& options)
      : record(std::make_shared<OpRecord>(static_cast<size_t>(std::max<int64_t>(options.max_operators(), 1)))),
        trace(std::make_unique<OpTrace>(record, OpTraceOptions{})) {}
  void end() {
    trace.reset();
    matters = record->that_matter();
    sequence = sequence_of(*record, matters);
  }
  std::shared_ptr<OpRecord> record;
  std::unique_ptr<OpTrace> trace;
  std::vector<uint32_t> matters;
  OpSequence sequence;
  const Clock::time_point start = Clock::now();
};

thread_local std::unique_ptr<Recording> recording;

std::string plain(const std::string& name) {
  const size_t start = name.find_first_not_of('_');
  return start == std::string::npos ? name : name.substr(start);
}

std::string phase_of(const json& place) {
  if (place.at("engine").get<bool>()) return "backward";
  return place.at("grad").get<bool>() ? "forward" : "without a graph";
}

/// "addmm (operator 12, backward of linear, module fc1)".
std::string op_text(const json& place) {
  std::vector<std::string> details = {fmt::format("operator {}", place.at("number").get<int64_t>())};
  const std::string node = place.at("node"), forward = place.at("forward"), module = place.at("module");
  if (!forward.empty())
    details.push_back("in the backward of " + plain(forward));
  else if (!node.empty())
    details.push_back("in " + node);
  else
    details.push_back(phase_of(place));
  if (!module.empty()) details.push_back((place.at("after").get<bool>() ? "after module " : "module ") + module);
  return fmt::format("{} ({})", plain(place.at("name").get<std::string>()), fmt::join(details, ", "));
}

/// Those that are like most others, and the rest; where no majority is, all and none.
struct Vote {
  RankSet at_fault, reference;
};

Vote vote_on(const RankSet& ranks, const std::vector<std::string>& values) {
  std::map<std::string, RankSet> parties;
  for (size_t i = 0; i < values.size(); ++i) parties[values[i]].insert(ranks.ranks()[i]);
  const auto largest = std::max_element(parties.begin(), parties.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (largest->second.size() * 2 > ranks.size()) return {ranks - largest->second, largest->second};
  return {ranks, {}};
}

/// The marks of one kind at a place, as votes: every rank's.
std::vector<std::string> hashes(const std::vector<json>& places, const char* which, std::optional<int> kind = {}) {
  std::vector<std::string> result;
  for (const json& place : places) {
    std::string text;
    for (const json& mark : place.at(which))
      if (!kind || mark.at("kind") == *kind)
        text += fmt::format("{:x}{} ", mark.at("hash").get<uint64_t>(), mark.at("shape").get<std::string>());
    result.push_back(std::move(text));
  }
  return result;
}

/// The first mark that is not the same everywhere; null where all are.
const json* differing(const std::vector<json>& places, const char* which, size_t& index) {
  for (index = 0; index < places[0].at(which).size(); ++index)
    for (const json& place : places) {
      if (index >= place.at(which).size()) return &places[0].at(which)[index];
      const json &mine = places[0].at(which)[index], &other = place.at(which)[index];
      if (mine.at("hash") != other.at("hash") || mine.at("shape") != other.at("shape")) return &mine;
    }
  return nullptr;
}

/// "norm 3.1402 on rank 0, 3.1398 on rank 1": of the mark at `index`, one rank of each kind.
std::string values_text(const std::vector<json>& places, const char* which, size_t index, const RankSet& ranks,
                        const char* who) {
  std::vector<std::string> texts;
  std::vector<uint64_t> seen;
  std::string what = "norm";
  for (size_t i = 0; i < places.size() && texts.size() < 3; ++i) {
    if (index >= places[i].at(which).size()) continue;
    const json& mark = places[i].at(which)[index];
    const auto hash = mark.at("hash").get<uint64_t>();
    if (std::find(seen.begin(), seen.end(), hash) != seen.end()) continue;
    seen.push_back(hash);
    if (mark.at("kind") == static_cast<int>(OpMark::Kind::kNumber)) what = "value";
    texts.push_back(fmt::format("{:.9g} {} {}", mark.at("norm").get<double>(), who, ranks.ranks()[i]));
  }
  return what + " " + fmt::format("{}", fmt::join(texts, ", "));
}

std::string mark_text(const json& mark) {
  if (mark.at("name").is_string()) return mark.at("name").get<std::string>();
  std::string text = fmt::format("argument {}", mark.at("argument").get<int>());
  if (mark.at("kind") != static_cast<int>(OpMark::Kind::kNumber))
    text += fmt::format(", {} {}", mark.at("dtype").get<std::string>(), mark.at("shape").get<std::string>());
  return text;
}

FindingTensor tensor_of(const json& mark, const std::string& otherwise) {
  FindingTensor tensor;
  tensor.name = mark.at("name").is_string() ? mark.at("name").get<std::string>() : otherwise;
  tensor.dtype = mark.at("dtype");
  const json shape = json::parse(mark.at("shape").get<std::string>(), nullptr, false);
  if (shape.is_array()) tensor.shape = shape.get<std::vector<int64_t>>();
  return tensor;
}

Finding finding_at(const json& place, const char* verdict, const char* kind, const LockstepOptions& options) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "lockstep";
  finding.verdict = verdict;
  finding.kind = kind;
  finding.step = options.step();
  if (place.is_null()) return finding;
  FindingOp op{.name = plain(place.at("name").get<std::string>()),
               .seq = place.at("number"),
               .shape = {},
               .dtype = "",
               .group = ""};
  for (const json& output : place.at("outputs")) {
    const FindingTensor tensor = tensor_of(output, "");
    op.shape = tensor.shape;
    op.dtype = tensor.dtype;
    break;
  }
  finding.op = std::move(op);
  if (const std::string where = place.at("where"); !where.empty()) finding.where = where;
  if (const std::string object = place.at("object"); !object.empty()) finding.object = object;
  return finding;
}

// ---- Between ranks -----------------------------------------------------------------------------------------------

class RankComparison {
 public:
  RankComparison(Talk& talk, const Recording& run, const TensorNames& names, const LockstepOptions& options)
      : talk_(talk), run_(run), names_(names), options_(options), ranks_(talk.ranks()) {}

  std::vector<Finding> findings(const std::vector<OpSequence>& sequences) {
    const Partings partings = find_partings(sequences);
    differs_ = outputs_that_differ(sequences, partings.common);
    std::vector<Finding> result;
    if (const auto place = partings.first_fault()) {
      // In the order in which they explain one another, where several are at one place.
      if (partings.order == place)
        result.push_back(other_operators(*place));
      else if (partings.parameter == place)
        result.push_back(other_parameter(*place));
      else if (partings.written == place)
        result.push_back(other_update(*place));
      else
        result.push_back(other_results(*place));
      return result;
    }
    result.push_back(in_step(partings, sequences));
    return result;
  }

 private:
  std::vector<json> places(size_t place) {
    return talk_.exchange_json(describe_place(*run_.record, run_.matters, place, names_, differs_));
  }

  Finding other_operators(size_t place) {
    const std::vector<json> all = places(place);
    std::vector<std::string> who;
    for (const json& each : all)
      who.push_back(each.is_null() ? ""
                                   : each.at("name").get<std::string>() + "|" + each.at("node").get<std::string>());
    const Vote vote = vote_on(ranks_, who);
    const size_t first = index_of(vote.at_fault.ranks().front());
    Finding finding = finding_at(all[first], "op_mismatch", "order", options_);
    if (all[first].is_null())
      for (const json& each : all)
        if (!each.is_null()) finding = finding_at(each, "op_mismatch", "order", options_);
    take(finding, vote);
    std::vector<std::string> texts;
    std::vector<std::string> told;
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::find(told.begin(), told.end(), who[i]) != told.end()) continue;
      told.push_back(who[i]);
      RankSet same;
      for (size_t k = 0; k < all.size(); ++k)
        if (who[k] == who[i]) same.insert(ranks_.ranks()[k]);
      const std::string where = all[i].is_null() ? "" : all[i].at("where").get<std::string>();
      texts.push_back(ranks_text(same) + (same.size() == 1 ? " " : " ") +
                      (all[i].is_null() ? (same.size() == 1 ? "is through" : "are through")
                                        : (same.size() == 1 ? "runs " : "run ") + op_text(all[i])) +
                      (where.empty() ? "" : " at " + where));
    }
    finding.message =
        fmt::format("ranks part at operator {} of those that count: {}", place + 1, fmt::join(texts, ", "));
    return finding;
  }

  Finding other_parameter(size_t place) {
    const std::vector<json> all = places(place);
    const int kind = static_cast<int>(OpMark::Kind::kParameter);
    const Vote vote = vote_on(ranks_, hashes(all, "inputs", kind));
    Finding finding = finding_at(all[0], "mismatch", "parameter", options_);
    take(finding, vote);
    std::string name = "a parameter", values;
    for (size_t i = 0; i < all[0].at("inputs").size(); ++i) {
      const json& mark = all[0].at("inputs")[i];
      if (mark.at("kind") != kind || !differs_between(all, "inputs", i)) continue;
      name = mark_text(mark);
      values = "; " + values_text(all, "inputs", i, ranks_, "on rank");
      finding.tensors.push_back(tensor_of(mark, "parameter"));
      break;
    }
    const bool drawn = all[0].at("source") == "random";
    finding.message =
        fmt::format("{} another {}, first read by {}: the replicas had parted before{}{}", has_or_differ(vote, "reads"),
                    name, op_text(all[0]), drawn ? " (it was drawn by generators in different states)" : "", values);
    return finding;
  }

  Finding other_update(size_t place) {
    const std::vector<json> all = places(place);
    const Vote vote = vote_on(ranks_, hashes(all, "outputs"));
    Finding finding = finding_at(all[0], "mismatch", "update", options_);
    take(finding, vote);
    size_t index = 0;
    if (const json* mark = differing(all, "outputs", index)) finding.tensors.push_back(tensor_of(*mark, "parameter"));
    const std::string name = finding.tensors.empty() ? "a parameter" : finding.tensors[0].name;
    std::string reason;
    if (const json* input = differing(all, "inputs", index)) {
      if (input->at("kind") == static_cast<int>(OpMark::Kind::kNumber))
        reason =
            fmt::format("its {} differs: {}", mark_text(*input), values_text(all, "inputs", index, ranks_, "on rank"));
      else if (all[0].at("source") == "gradient")
        reason = fmt::format("the gradient behind it differs ({}): it has not been reduced, or not on every rank",
                             values_text(all, "inputs", index, ranks_, "on rank"));
      else
        reason = fmt::format("{} differs ({}): state of the optimizer, or data", mark_text(*input),
                             values_text(all, "inputs", index, ranks_, "on rank"));
    } else {
      reason = "everything that it reads is equal";
    }
    finding.message =
        fmt::format("{} was equal, and is no longer once {} has written it: {}", name, op_text(all[0]), reason);
    return finding;
  }

  Finding other_results(size_t place) {
    const std::vector<json> all = places(place);
    const Vote vote = vote_on(ranks_, hashes(all, "outputs"));
    Finding finding = finding_at(all[0], "mismatch", "computation", options_);
    take(finding, vote);
    size_t index = 0;
    std::string values;
    if (const json* mark = differing(all, "outputs", index)) {
      finding.tensors.push_back(tensor_of(*mark, "output"));
      values = "; " + values_text(all, "outputs", index, ranks_, "on rank");
    }
    finding.message = fmt::format(
        "{} other results of {} from equal inputs: a kernel that is not deterministic, random numbers of its "
        "own, memory or hardware{}",
        has_or_differ(vote, "has"), op_text(all[0]), values);
    return finding;
  }

  Finding in_step(const Partings& partings, const std::vector<OpSequence>& sequences) {
    Finding finding;
    finding.inspector = "lockstep";
    finding.verdict = "ok";
    finding.ranks = ranks_;
    finding.step = options_.step();
    finding.message = fmt::format("{} run in step: {} operators", ranks_text(ranks_), sequences[0].ops.size());
    if (partings.input) {
      const std::vector<json> all = places(*partings.input);
      size_t index = 0;
      const json* mark = differing(all, "inputs", index);
      finding.message += fmt::format("; parameters are equal, data differs, as it may, from {} on{}", op_text(all[0]),
                                     mark ? " (" + mark_text(*mark) + ")" : "");
      const std::string where = all[0].at("where");
      if (!where.empty()) finding.message += " at " + where;
    } else if (!partings.drawn) {
      finding.message += ", all inputs and outputs equal bit by bit";
    }
    if (partings.drawn) {
      const std::vector<json> all = places(*partings.drawn);
      finding.message += fmt::format("; each rank draws its own random numbers, first in {}", op_text(all[0]));
    }
    int64_t left_out = 0;
    for (const OpSequence& each : sequences) left_out = std::max(left_out, each.left_out);
    if (left_out > 0)
      finding.message += fmt::format("; {} operators beyond the first {} were not compared (max_operators)", left_out,
                                     options_.max_operators());
    return finding;
  }

  static bool differs_between(const std::vector<json>& all, const char* which, size_t index) {
    return std::any_of(all.begin(), all.end(), [&](const json& each) {
      return index >= each.at(which).size() || each.at(which)[index].at("hash") != all[0].at(which)[index].at("hash");
    });
  }

  size_t index_of(int rank) const {
    const auto& list = ranks_.ranks();
    return static_cast<size_t>(std::find(list.begin(), list.end(), rank) - list.begin());
  }

  static void take(Finding& finding, const Vote& vote) {
    finding.ranks = vote.at_fault;
    finding.reference_ranks = vote.reference;
  }

  /// "rank 2 reads", "ranks 0-1 read": who is said to do it; all where there is no majority.
  static std::string has_or_differ(const Vote& vote, const std::string& verb) {
    const bool one = vote.at_fault.size() == 1;
    const std::string plural = verb == "has" ? "have" : verb.substr(0, verb.size() - 1);
    return ranks_text(vote.at_fault) + " " + (one ? verb : vote.reference.empty() ? "each " + plural : plural);
  }

  Talk& talk_;
  const Recording& run_;
  const TensorNames& names_;
  const LockstepOptions& options_;
  const RankSet ranks_;
  std::vector<bool> differs_;
};

/// Meets, and has `told` make the findings of what all ranks hand in.
Report conclude(const Recording& run, const LockstepOptions& options, const char* call, const Bytes& mine,
                const std::function<std::vector<Finding>(Talk&, const std::vector<Bytes>&)>& told) {
  const RankSet ranks = taking_part(options.ranks(), call);
  Report report;
  if (!ranks.contains(own_rank())) return report;
  with_talk(ranks, options.deadline(), [&](Talk& talk) {
    const Meeting meeting = talk.meet(mine);
    if (!meeting.missing.empty())
      report.findings.push_back(absent_finding("lockstep", call, ranks, meeting.missing, options.deadline()));
    else
      report.findings = told(talk, meeting.values);
  });
  report.tensors = run.record->operators();
  report.bytes = run.record->bytes_kept();
  report.seconds = std::chrono::duration<double>(Clock::now() - run.start).count();
  if (options.publish() && own_rank() == speaker(ranks, report)) publish(report);
  return report;
}

Report compare_ranks(const Recording& run, const TensorNames& names, const LockstepOptions& options, const char* call) {
  // A hash of everything goes first; the sequences themselves only where it differs.
  Hash digest{};
  for (const OpSequence::Op& op : run.sequence.ops)
    digest = combine(combine(digest, {op.name, op.inputs}), {op.outputs, op.generator});
  const json mine = {{"digest", digest}, {"operators", run.sequence.ops.size()}, {"left_out", run.sequence.left_out}};
  return conclude(run, options, call, json::to_cbor(mine), [&](Talk& talk, const std::vector<Bytes>& digests) {
    RankComparison comparison(talk, run, names, options);
    std::vector<OpSequence> sequences;
    if (std::all_of(digests.begin(), digests.end(), [&](const Bytes& each) { return each == digests[0]; }))
      sequences.assign(1, run.sequence);
    else
      for (const Bytes& each : talk.exchange(run.sequence.bytes())) sequences.push_back(OpSequence::from_bytes(each));
    return comparison.findings(sequences);
  });
}

// ---- A rank with itself ------------------------------------------------------------------------------------------

/// What this rank found of its two runs: a finding without ranks, or null.
json compare_with_itself(const Recording& first, const Recording& second, const TensorNames& names,
                         const LockstepOptions& options) {
  const std::vector<OpSequence> runs = {first.sequence, second.sequence};
  const Partings partings = find_partings(runs);
  const std::vector<bool> differs = outputs_that_differ(runs, partings.common);
  const RankSet times{1, 2};
  const auto places = [&](size_t place) {
    return std::vector<json>{describe_place(*first.record, first.matters, place, names, differs),
                             describe_place(*second.record, second.matters, place, names, differs)};
  };
  const auto earlier = [](const std::optional<size_t>& a, const std::optional<size_t>& b) {
    return a && (!b || *a < *b);
  };
  if (partings.computation) {
    const auto both = places(*partings.computation);
    Finding finding = finding_at(both[0], "mismatch", "computation", options);
    size_t index = 0;
    std::string values;
    if (const json* mark = differing(both, "outputs", index)) {
      finding.tensors.push_back(tensor_of(*mark, "output"));
      values = "; " + values_text(both, "outputs", index, times, "in run");
    }
    finding.message = op_text(both[0]) + " does not repeat itself: from equal inputs it gives other results" + values;
    return finding;
  }
  std::optional<size_t> other = partings.input;
  if (earlier(partings.drawn, other)) other = partings.drawn;
  if (earlier(partings.order, other)) other = partings.order;
  if (!other) return nullptr;
  const auto both = places(*other);
  const json& place = both[0].is_null() ? both[1] : both[0];
  Finding finding = finding_at(place, "mismatch", "input", options);
  finding.severity = Severity::note;
  size_t index = 0;
  if (partings.order == other) {
    finding.verdict = "op_mismatch";
    finding.kind = "order";
    finding.message = "the step goes another way the second time, at " + op_text(place) +
                      ": what it decides by is not in the state that was given";
  } else if (partings.input == other) {
    const json* mark = differing(both, "inputs", index);
    finding.message = fmt::format(
        "the step reads something else the second time, first in {}{}: data or state that is not in the state that was "
        "given. Operators behind that are not judged",
        op_text(place), mark ? " (" + mark_text(*mark) + ")" : "");
  } else {
    finding.message = "the step draws other random numbers the second time, first in " + op_text(place) +
                      ", from a generator that is not in the state that was given";
  }
  return finding;
}

Report compare_runs(const Recording& first, const Recording& second, const TensorNames& names,
                    const LockstepOptions& options, const char* call) {
  const json mine = {{"finding", compare_with_itself(first, second, names, options)},
                     {"operators", first.sequence.ops.size()},
                     {"left_out", first.sequence.left_out}};
  return conclude(second, options, call, json::to_cbor(mine), [&](Talk& talk, const std::vector<Bytes>& told) {
    const RankSet& ranks = talk.ranks();
    std::vector<Finding> findings;
    std::map<std::string, size_t> known;
    RankSet fine;
    int64_t left_out = 0;
    for (size_t i = 0; i < told.size(); ++i) {
      const json each = json::from_cbor(told[i]);
      left_out = std::max(left_out, each.at("left_out").get<int64_t>());
      if (each.at("finding").is_null()) {
        fine.insert(ranks.ranks()[i]);
        continue;
      }
      Finding finding = each.at("finding").get<Finding>();
      const std::string key = fmt::format("{}|{}|{}|{}", finding.verdict, finding.kind.value_or(""),
                                          finding.op ? finding.op->seq : 0, finding.where.value_or(""));
      const auto [place, is_new] = known.emplace(key, findings.size());
      if (is_new) findings.push_back(std::move(finding));
      findings[place->second].ranks.insert(ranks.ranks()[i]);
    }
    for (Finding& finding : findings) {
      finding.reference_ranks = fine;
      finding.message = "on " + ranks_text(finding.ranks) + " " + finding.message;
    }
    if (findings.empty()) {
      Finding ok;
      ok.inspector = "lockstep";
      ok.verdict = "ok";
      ok.ranks = ranks;
      ok.step = options.step();
      ok.message = fmt::format("the step repeats itself bit by bit on {}: {} operators", ranks_text(ranks),
                               json::from_cbor(told[0]).at("operators").get<int64_t>());
      if (left_out > 0)
        ok.message += fmt::format("; {} operators beyond the first {} were not compared (max_operators)", left_out,
                                  options.max_operators());
      findings.push_back(std::move(ok));
    }
    return findings;
  });
}

}  // namespace

Report detail::lockstep_once(const std::function<void()>& step, const TensorNames& names,
                             const LockstepOptions& options) {
  Recording run(options);
  step();
  run.end();
  return compare_ranks(run, names, options, "inspect::lockstep_ranks");
}

Report detail::lockstep_twice(const std::function<void()>& step, const SavedState& saved, const TensorNames& names,
                              const LockstepOptions& options) {
  const auto run_and_put_back = [&](Recording* recording) {
    const auto stop = [&] {
      if (recording) recording->trace.reset();
    };
    try {
      step();
    } catch (...) {  // thrown on: the state is to be as it was all the same
      stop();
      saved.restore();
      throw;
    }
    stop();
    saved.restore();
  };
  const auto recorded = [&] {
    Recording run(options);
    run_and_put_back(&run);
    run.end();
    return run;
  };
  // Both runs begin with the wrappers as they were: one that has not run begins with a new Reducer twice. What an older one
  // learns once can't be taken back: it does so in a run that is not looked at.
  if (saved.buckets_are_unsettled()) run_and_put_back(nullptr);
  const Recording first = recorded();
  const Recording second = recorded();
  return compare_runs(first, second, names, options, "inspect::lockstep");
}

void begin_lockstep(const LockstepOptions& options) {
  recording.reset();
  recording = std::make_unique<Recording>(options);
}

Report end_lockstep(const TensorNames& names, const LockstepOptions& options) {
  const std::unique_ptr<Recording> run = std::move(recording);
  if (!run) return {};
  run->end();
  return compare_ranks(*run, names, options, "inspect::end_lockstep");
}

Report lockstep_self(const std::function<void()>& step, const StateList& state, const LockstepOptions& options) {
  return detail::lockstep_twice(step, state.saved(), state.names(), options);
}

}  // namespace lockstep::inspect
