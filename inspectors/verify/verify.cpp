#include "inspectors/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "ddp/inspection.h"
#include "inspectors/exchange/side_channel.h"
#include "inspectors/findings/text.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/differences.h"
#include "inspectors/subject/structure.h"
#include "inspectors/verify/findings.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// Of every item, in order.
std::vector<Hash> hashes_of(const Subject& subject) {
  std::vector<at::Tensor> tensors;
  for (const Item& item : subject.items)
    if (item.tensor.defined()) tensors.push_back(item.tensor);
  const std::vector<Fingerprint> marks = fingerprint(tensors);
  std::vector<Hash> hashes;
  size_t next = 0;
  for (const Item& item : subject.items)
    hashes.push_back(item.tensor.defined() ? marks[next++].hash : hash_of(item.value));
  return hashes;
}

int64_t bytes_of(const Subject& subject) {
  int64_t bytes = 0;
  for (const Item& item : subject.items) {
    const at::Tensor& tensor = item.tensor;
    if (!tensor.defined()) continue;
    TORCH_CHECK(tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_meta(),
                "verify: ", item.name.empty() ? "the tensor" : item.name, " has no bytes to compare (", tensor.layout(),
                " on ", tensor.device(), "); of a sparse one compare values() and indices()");
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

/// The items of those names, in that order: the same list on every rank.
Subject only(const Subject& subject, const std::vector<std::string>& names) {
  std::map<std::string, const Item*> by_name;
  for (const Item& item : subject.items) by_name.emplace(item.name, &item);
  Subject result = subject;
  result.items.clear();
  for (const std::string& name : names) result.items.push_back(*by_name.at(name));
  return result;
}

/// By broadcast or all_gather: which items differ, by moving every one of them.
std::vector<ItemDifference> by_moving(Talk& talk, const Subject& subject, const VerifyOptions& options) {
  const bool exact = options.method() == Method::kBroadcast;
  const int first = talk.ranks().ranks().front();
  const auto& ranks = talk.ranks().ranks();
  const size_t own = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), talk.rank()) - ranks.begin());
  std::vector<bool> same;
  for (const Item& item : subject.items) {
    if (!item.tensor.defined()) {
      same.push_back(true);
      continue;
    }
    const at::Tensor mine = item.tensor.cpu().contiguous().resolve_conj().resolve_neg();
    if (mine.numel() == 0) {
      same.push_back(true);
      continue;
    }
    // As bytes: a transport need not know the dtype.
    const at::Tensor bytes = mine.reshape({-1}).view(at::kByte);
    if (exact) {
      const at::Tensor theirs = talk.rank() == first ? bytes : at::empty_like(bytes);
      talk.broadcast(theirs, first);
      same.push_back(std::memcmp(bytes.const_data_ptr(), theirs.const_data_ptr(), bytes.nbytes()) == 0);
    } else {
      const at::Tensor theirs = talk.all_gather(bytes)[0];
      if (own == 0) {
        same.push_back(true);
        continue;
      }
      const at::Tensor reference = theirs.view(mine.scalar_type()).reshape(mine.sizes());
      same.push_back(c10::isFloatingType(mine.scalar_type()) && mine.element_size() > 1
                         ? at::allclose(mine, reference, options.rtol(), options.atol(), /*equal_nan=*/true)
                         : std::memcmp(bytes.const_data_ptr(), theirs.const_data_ptr(), bytes.nbytes()) == 0);
    }
  }
  json mine = json::array();
  for (size_t i = 0; i < subject.items.size(); ++i)
    mine.push_back(subject.items[i].tensor.defined() ? Hash{same[i], 0} : hash_of(subject.items[i].value));
  const std::vector<json> all = talk.exchange_json(mine);
  std::vector<ItemDifference> differences;
  for (size_t i = 0; i < subject.items.size(); ++i) {
    std::vector<Hash> votes;
    for (size_t r = 0; r < all.size(); ++r) {
      Hash each = all[r].at(i);
      // Ranks that are unlike the first need not be like one another.
      if (subject.items[i].tensor.defined() && each[0] == 0) each[1] = r;
      votes.push_back(each);
    }
    if (std::all_of(votes.begin(), votes.end(), [&](const Hash& each) { return each == votes[0]; })) continue;
    ItemDifference difference;
    difference.item = i;
    vote(talk.ranks(), votes, difference);
    differences.push_back(std::move(difference));
  }
  if (differences.empty()) return differences;
  Comparison comparison{.tolerance = {}, .detail_bytes = options.detail_bytes()};
  if (!exact) comparison.tolerance = {.rtol = options.rtol(), .atol = options.atol()};
  std::vector<Hash> hashes(subject.items.size());
  for (const ItemDifference& each : differences) {
    const Item& item = subject.items[each.item];
    hashes[each.item] = item.tensor.defined() ? fingerprint(item.tensor).hash : hash_of(item.value);
  }
  look_closer(talk, subject, hashes, comparison, differences);
  return differences;
}

/// `behind`: becomes the ranks that join() has left behind, where they are some and not all; then nothing else has been done.
Report verify_over(Talk& talk, const Subject& subject, const VerifyOptions& options, RankSet* behind = nullptr) {
  const auto start = Clock::now();
  Report report;
  report.tensors = std::ranges::count_if(
      subject.items, [](const Item& each) { return each.kind != "mode" && each.kind != "unsupported"; });
  report.bytes = bytes_of(subject);
  const bool by_hash = options.method() == Method::kFingerprint;
  const std::vector<Hash> hashes = by_hash ? hashes_of(subject) : std::vector<Hash>{};
  Hash content{};
  for (const Hash& each : hashes) content = combine(content, each);
  const Hash structure = structure_hash(subject);

  // A few numbers, of one size whatever is compared, go first; where they are equal nothing else goes.
  const json signature = {{"name", subject.name},
                          {"type", subject.type},
                          {"method", static_cast<int>(options.method())},
                          {"structure", structure},
                          {"content", content},
                          {"written", subject.buffers_are_written},
                          {"behind", subject.wrapper && ddp::Inspection(*subject.wrapper).has_stale_parameters()}};
  const Meeting meeting = talk.meet(json::to_cbor(signature));
  VerifyFindings findings(subject, talk.ranks(), options);
  const auto finish = [&] {
    report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    report.findings = findings.take(report);
    return report;
  };
  if (!meeting.missing.empty()) {
    findings.absent(meeting);
    return finish();
  }
  std::vector<json> signatures;
  for (const Bytes& each : meeting.values) signatures.push_back(json::from_cbor(each));
  const auto all_agree = [&](const char* field) {
    return std::all_of(signatures.begin(), signatures.end(),
                       [&](const json& each) { return each.at(field) == signatures[0].at(field); });
  };
  if (!all_agree("name") || !all_agree("type") || !all_agree("method")) {
    findings.different_objects(signatures);
    return finish();
  }
  if (behind && !all_agree("behind")) {
    for (size_t i = 0; i < signatures.size(); ++i)
      if (signatures[i].at("behind")) behind->insert(talk.ranks().ranks()[i]);
    return report;
  }
  // On any rank: it is one fact for all of them.
  findings.set_buffers_written(std::any_of(signatures.begin(), signatures.end(),
                                           [](const json& each) { return each.at("written").get<bool>(); }));
  if (all_agree("structure")) {
    if (by_hash && all_agree("content")) return finish();
    const Comparison comparison{.tolerance = {}, .detail_bytes = options.detail_bytes()};
    findings.differences(
        subject, by_hash ? find_differences(talk, subject, hashes, comparison) : by_moving(talk, subject, options));
    return finish();
  }
  const StructureDifference difference = structure_difference(talk, subject);
  findings.structure(difference.findings);
  const Subject common = only(subject, difference.comparable);
  const Comparison comparison{.tolerance = {}, .detail_bytes = options.detail_bytes()};
  findings.differences(common, by_hash ? find_differences(talk, common, hashes_of(common), comparison)
                                       : by_moving(talk, common, options));
  return finish();
}

/// What is said of ranks that have no more data, while others go on.
Finding left_behind(const Subject& subject, const VerifyOptions& options, const RankSet& ranks) {
  Finding found;
  found.inspector = "verify";
  found.verdict = "uneven_data";
  found.ranks = ranks;
  found.object = subject.name.empty() ? subject.type : subject.name;
  found.step = subject.step ? subject.step : options.step();
  found.message = fmt::format("{} {} out of data (join): not compared until all take the last model", ranks.words(),
                              ranks.size() == 1 ? "is" : "are");
  return found;
}

}  // namespace

Report verify_subject(const Subject& subject, const VerifyOptions& options) {
  const auto context = dist::current_context();
  const RankSet alive = context ? context->live_ranks() : RankSet{0};
  const RankSet ranks = options.ranks().value_or(alive);
  const int rank = context ? context->rank() : 0;
  if (!(ranks - alive).empty())
    throw dist::ArgumentError(
        fmt::format("inspect::verify: there is no rank {}; ranks are {}", (ranks - alive).str(), alive.str()));
  if (!ranks.contains(rank)) return {};  // others compare
  const auto compare = [&](const RankSet& among, RankSet* behind) {
    if (among.size() == 1) {
      LocalRound alone(among);
      return verify_over(*alone.talk(rank), subject, options, behind);
    }
    ChannelTalk talk(Channel::of(*context), rank, among, options.deadline());
    return verify_over(talk, subject, options, behind);
  };
  RankSet behind;
  Report report = compare(ranks, &behind);
  if (!behind.empty()) {
    if (!behind.contains(rank)) report = compare(ranks - behind, nullptr);
    report.findings.push_back(left_behind(subject, options, behind));
  }
  if (options.publish()) publish_as_reporting_rank(options, report);
  return report;
}

void publish_as_reporting_rank(const VerifyOptions& options, const Report& report) {
  const auto context = dist::current_context();
  const RankSet ranks = options.ranks().value_or(context ? context->live_ranks() : RankSet{0});
  if ((context ? context->rank() : 0) != reporting_rank(ranks, report)) return;
  Report told = report;
  if (!options.publish_ok()) std::erase_if(told.findings, [](const Finding& each) { return each.verdict == "ok"; });
  publish(told);
}

Report verify_here(const std::vector<Subject>& subjects, const RankSet& ranks, const VerifyOptions& options) {
  if (subjects.size() != ranks.size() || subjects.empty())
    throw dist::ArgumentError(
        fmt::format("inspect::verify_here: {} subjects for {} ranks", subjects.size(), ranks.size()));
  LocalRound round(ranks);
  std::vector<Report> reports(subjects.size());
  std::vector<std::exception_ptr> errors(subjects.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < subjects.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        reports[i] = verify_over(*round.talk(ranks.ranks()[i]), subjects[i], options);
      } catch (...) {  // thrown on below
        errors[i] = std::current_exception();
        round.give_up();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  if (options.publish()) publish(reports.front());
  return reports.front();
}

}  // namespace lockstep::inspect
