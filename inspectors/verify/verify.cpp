#include "inspectors/verify/queued_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "collectives/rank_context.h"
#include "ddp/inspection.h"
#include "inspectors/device/functions.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/exchange/local_exchange.h"
#include "inspectors/exchange/participants.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/difference_findings.h"
#include "inspectors/subject/differences.h"
#include "inspectors/subject/structure.h"
#include "inspectors/verify/agreement.h"
#include "inspectors/verify/findings.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

std::vector<at::Tensor> tensors_of(const Subject& subject) {
  std::vector<at::Tensor> tensors;
  for (const Item& item : subject.items)
    if (item.tensor.defined()) tensors.push_back(item.tensor);
  return tensors;
}

/// Returns the hash of every item, in order. `marks` are of its tensors.
std::vector<Hash> hashes_of(const Subject& subject, const std::vector<Fingerprint>& marks) {
  std::vector<Hash> hashes;
  size_t next = 0;
  for (const Item& item : subject.items)
    hashes.push_back(item.tensor.defined() ? marks[next++].hash : hash_of(item.value));
  return hashes;
}
std::vector<Hash> hashes_of(const Subject& subject) { return hashes_of(subject, fingerprint(tensors_of(subject))); }

int64_t bytes_of(const Subject& subject) {
  int64_t bytes = 0;
  for (const Item& item : subject.items) {
    const at::Tensor& tensor = item.tensor;
    if (!tensor.defined()) continue;
    if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_meta())
      throw dist::ArgumentError(c10::str("verify: ", item.name.empty() ? "the tensor" : item.name,
                                         " has no bytes to compare (", tensor.layout(), " on ", tensor.device(),
                                         "); of a sparse one compare values() and indices()"));
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

/// Returns the items with these names, in this order: the same list on every rank.
Subject only(const Subject& subject, const std::vector<std::string>& names) {
  std::map<std::string, const Item*> by_name;
  for (const Item& item : subject.items) by_name.emplace(item.name, &item);
  Subject result = subject;
  result.items.clear();
  for (const std::string& name : names) result.items.push_back(*by_name.at(name));
  return result;
}

/// Returns the items that differ, by broadcast or all_gather of all items.
std::vector<ItemDifference> compare_by_sending(Exchange& exchange, const Subject& subject,
                                               const VerifyOptions& options) {
  const bool exact = options.method() == Method::kBroadcast;
  const int first = exchange.ranks().ranks().front();
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
    // It is sent as bytes, since the transport may not support the dtype.
    const at::Tensor bytes = mine.reshape({-1}).view(at::kByte);
    if (exact) {
      const at::Tensor theirs = exchange.rank() == first ? bytes : at::empty_like(bytes);
      exchange.broadcast(theirs, first);
      same.push_back(std::memcmp(bytes.const_data_ptr(), theirs.const_data_ptr(), bytes.nbytes()) == 0);
    } else {
      const at::Tensor theirs = exchange.all_gather(bytes)[0];
      if (exchange.rank() == first) {
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
  const std::vector<json> all = exchange.gather_json(mine);
  std::vector<ItemDifference> differences;
  for (size_t i = 0; i < subject.items.size(); ++i) {
    std::vector<Hash> votes;
    for (size_t r = 0; r < all.size(); ++r) {
      Hash each = all[r].at(i);
      // Ranks that differ from the first rank may differ from one another.
      if (subject.items[i].tensor.defined() && each[0] == 0) each[1] = r;
      votes.push_back(each);
    }
    if (std::all_of(votes.begin(), votes.end(), [&](const Hash& each) { return each == votes[0]; })) continue;
    ItemDifference difference;
    difference.item = i;
    vote(exchange.ranks(), votes, difference);
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
  look_closer(exchange, subject, hashes, comparison, differences);
  return differences;
}

struct Look {
  VerifyFacts facts;
  std::vector<Hash> hashes;  // of the items, if they are compared by fingerprint
};

VerifyFacts facts_without_content(const Subject& subject) {
  VerifyFacts facts;
  facts.structure = structure_hash(subject);
  facts.buffers_written = subject.buffers_are_written;
  facts.dropout = subject.dropout;
  facts.inputs = subject.inputs;
  facts.out_of_data = subject.wrapper && ddp::Inspection(*subject.wrapper).has_stale_parameters();
  return facts;
}

Hash content_of(const std::vector<Hash>& hashes) {
  Hash content = VerifyFacts().content;
  for (const Hash& each : hashes) content = combine(content, each);
  return content;
}

Look look(const Subject& subject, const VerifyOptions& options) {
  Look result{.facts = facts_without_content(subject), .hashes = {}};
  if (options.method() != Method::kFingerprint) return result;
  result.hashes = hashes_of(subject);
  result.facts.content = content_of(result.hashes);
  return result;
}

template <typename Field>
bool all_agree(const std::vector<VerifyFacts>& facts, Field VerifyFacts::* field) {
  return std::ranges::all_of(facts, [&](const VerifyFacts& each) { return each.*field == facts[0].*field; });
}

/// Returns the findings about differences. Collective; exchanges nothing if the facts are equal.
std::vector<Finding> compare_replicas(Inspection& inspection, const Subject& subject, const VerifyOptions& options,
                                      const Look& mine, const std::vector<VerifyFacts>& facts) {
  const About& about = inspection.about();
  Exchange& exchange = inspection.exchange();
  const bool by_hash = options.method() == Method::kFingerprint;
  const Comparison comparison{.tolerance = {}, .detail_bytes = options.detail_bytes()};
  // On any rank, since buffers may then differ between all of them.
  const bool buffers_written = std::ranges::any_of(facts, &VerifyFacts::buffers_written);
  if (all_agree(facts, &VerifyFacts::structure)) {
    if (by_hash && all_agree(facts, &VerifyFacts::content)) return {};
    return difference_findings(about, subject,
                               by_hash ? find_differences(exchange, subject, mine.hashes, comparison)
                                       : compare_by_sending(exchange, subject, options),
                               buffers_written);
  }
  StructureDifference difference = structure_difference(exchange, subject, about.names);
  std::vector<Finding> findings = std::move(difference.findings);
  for (Finding& each : findings) {
    each.object = about.object;
    each.step = about.step;
  }
  const Subject common = only(subject, difference.comparable);
  for (Finding& each : difference_findings(about, common,
                                           by_hash ? find_differences(exchange, common, hashes_of(common), comparison)
                                                   : compare_by_sending(exchange, common, options),
                                           buffers_written))
    findings.push_back(std::move(each));
  return findings;
}

InspectionCall call_for(const Subject& subject, const VerifyOptions& options,
                        const std::vector<std::string>& names = {}) {
  const char* variant = options.method() == Method::kFingerprint ? "by fingerprint"
                        : options.method() == Method::kBroadcast ? "by broadcast"
                        : options.method() == Method::kAllReduce ? "by all_reduce"
                                                                 : "by all_gather";
  return {.inspector = "verify",
          .object = subject.name,
          .type = subject.type.empty() ? "container" : subject.type,
          .variant = variant,
          .step = subject.step,
          .names = names};
}

int64_t count_of(const Subject& subject) {
  return std::ranges::count_if(subject.items, [](const Item& each) {
    return each.kind != FindingKind::mode && each.kind != FindingKind::unsupported;
  });
}

/// Returns ranks whose parameters are of an older step. If all are, join has ended, and all have the last model.
RankSet out_of_data(const Inspection& inspection, const std::vector<VerifyFacts>& facts) {
  RankSet ranks;
  for (size_t i = 0; i < facts.size(); ++i)
    if (facts[i].out_of_data) ranks.insert(inspection.about().rank_at(i));
  return ranks.size() == facts.size() ? RankSet() : ranks;
}

Report verify_in(Inspection& inspection, const Subject& subject, const VerifyOptions& options) {
  Report report;
  report.tensors = count_of(subject);
  report.bytes = bytes_of(subject);
  const Look mine = look(subject, options);
  if (auto facts = inspection.exchange_facts(mine.facts)) {
    const RankSet left_out = out_of_data(inspection, *facts);
    if (!left_out.empty()) {
      std::erase_if(*facts, [](const VerifyFacts& each) { return each.out_of_data; });
      inspection.leave_out(left_out);
    }
    if (inspection.takes_part()) {
      std::vector<Finding> findings = compare_replicas(inspection, subject, options, mine, *facts);
      report.seconds = inspection.seconds();
      complete_findings(inspection.about(), subject, options, report, findings);
      if (subject.type == "gradients" &&
          !std::ranges::all_of(*facts, [](const auto& each) { return each.inputs.has_value(); }))
        for (Finding& each : findings)
          if (each.verdict == Verdict::ok) each.message += ", whether the ranks read different batches";
      inspection.add(std::move(findings));
      if (!inspection.has_fault()) inspection.add(duplicate_findings(inspection.about(), *facts));
    }
    if (!left_out.empty()) inspection.add(out_of_data_finding(inspection.about(), left_out));
  }
  if (options.publish_ok())
    inspection.conclude(report);
  else
    inspection.conclude(report, is_not_ok);
  return report;
}

/// Uses the hashes of all ranks, which differ, without a look at the values. Collective.
Finding passing_difference(Inspection& inspection, const Subject& subject, const std::vector<Hash>& hashes) {
  std::vector<std::vector<Hash>> by_rank;
  for (const json& each : inspection.exchange().gather_json(hashes)) by_rank.push_back(each);
  RankSet faulty;
  std::vector<FindingTensor> tensors;
  std::string names;
  for (size_t i = 0; i < hashes.size(); ++i) {
    std::vector<Hash> votes;
    for (const auto& each : by_rank) votes.push_back(each.at(i));
    if (std::ranges::all_of(votes, [&](const Hash& each) { return each == votes[0]; })) continue;
    ItemDifference difference;
    vote(inspection.ranks(), votes, difference);
    for (const int rank : (difference.faulty.empty() ? inspection.ranks() : difference.faulty).ranks())
      faulty.insert(rank);
    names += (names.empty() ? "" : ", ") + subject.items[i].name;
    tensors.push_back({.name = subject.items[i].name});
  }
  const About& about = inspection.about();
  Finding finding = about.finding(Severity::fault, Verdict::mismatch, FindingKind::parameter);
  finding.ranks = faulty;
  finding.tensors = std::move(tensors);
  finding.message = fmt::format("{}: {} differed on {} for a step, and {} equal again",
                                about.object.empty() ? "the object" : about.object, names, faulty.words(),
                                finding.tensors.size() == 1 ? "is" : "are");
  return finding;
}

void require_all_ranks(const VerifyOptions& options) {
  const auto context = dist::current_context();
  const RankSet all = context ? RankSet::all(context->world_size()) : live_ranks();
  if (live_ranks() == all && (!options.ranks() || *options.ranks() == all)) return;
  throw dist::ArgumentError(
      fmt::format("verify by all_reduce is a collective of the default group: all of its ranks ({}) take part. The "
                  "method fingerprint compares ranks {}",
                  all.str(), options.ranks().value_or(live_ranks()).str()));
}

/// Returns int64 [5] on the device of the fingerprints: what VerifyFacts has. Equal numbers mean equal objects.
at::Tensor agreement_words(const Subject& subject, const VerifyFacts& facts, const QueuedFingerprints& marks) {
  Hash rest = facts.structure;
  for (const Item& item : subject.items)
    if (!item.tensor.defined()) rest = combine(rest, hash_of(item.value));
  const at::Tensor content = marks.content();
  const at::Tensor host = at::empty({3}, at::TensorOptions().dtype(at::kLong).pinned_memory(!content.is_cpu()));
  auto* word = host.mutable_data_ptr<int64_t>();
  std::memcpy(word, rest.data(), sizeof rest);
  // buffers_written is left out: ranks that differ in it alone are equal.
  word[2] = facts.out_of_data;
  return at::cat({content, host.to(content.device(), /*non_blocking=*/true)});
}

Report verify_by_all_reduce(const Subject& subject, const VerifyOptions& options) {
  require_all_ranks(options);
  Inspection inspection(call_for(subject, options), options);
  Report report;
  report.tensors = count_of(subject);
  report.bytes = bytes_of(subject);
  const QueuedFingerprints marks(tensors_of(subject), QueuedFingerprints::To::kStayOnDevice);
  if (!QueuedAgreement(agreement_words(subject, facts_without_content(subject), marks)).read())
    return verify_subject(subject, VerifyOptions(options).method(Method::kFingerprint));
  std::vector<Finding> findings;
  report.seconds = inspection.seconds();
  complete_findings(inspection.about(), subject, options, report, findings);
  inspection.add(std::move(findings));
  if (options.publish_ok())
    inspection.conclude(report);
  else
    inspection.conclude(report, is_not_ok);
  return report;
}

}  // namespace

Report verify_subject(const Subject& subject, const VerifyOptions& options) {
  if (options.method() == Method::kAllReduce) return verify_by_all_reduce(subject, options);
  Inspection inspection(call_for(subject, options), options);
  if (!inspection.takes_part()) return {};
  return verify_in(inspection, subject, options);
}

struct QueuedVerify::State {
  Subject subject;
  VerifyOptions options;
  VerifyFacts facts;
  QueuedFingerprints marks;
  std::optional<QueuedAgreement> agreement;  // by all_reduce
};

bool QueuedVerify::possible(const Subject& subject, const VerifyOptions& options) {
  if (options.method() != Method::kFingerprint && options.method() != Method::kAllReduce) return false;
  const std::vector<at::Tensor> tensors = tensors_of(subject);
  return std::ranges::any_of(
      tensors, [](const at::Tensor& each) { return !each.is_cpu() && device_functions(each.device().type()); });
}

QueuedVerify::QueuedVerify(Subject subject, const VerifyOptions& options) {
  bytes_of(subject);  // which refuses tensors without bytes
  using To = QueuedFingerprints::To;
  const bool by_all_reduce = options.method() == Method::kAllReduce;
  if (by_all_reduce) require_all_ranks(options);
  QueuedFingerprints marks(tensors_of(subject), by_all_reduce ? To::kStayOnDevice : To::kHost);
  VerifyFacts facts = facts_without_content(subject);
  std::optional<QueuedAgreement> agreement;
  if (by_all_reduce) agreement.emplace(agreement_words(subject, facts, marks));
  state_ = std::make_unique<State>(State{std::move(subject), options, facts, std::move(marks), std::move(agreement)});
}
QueuedVerify::QueuedVerify(QueuedVerify&&) noexcept = default;
QueuedVerify& QueuedVerify::operator=(QueuedVerify&&) noexcept = default;
QueuedVerify::~QueuedVerify() = default;

Report QueuedVerify::finish(const std::function<Subject()>& now) {
  const auto& [subject, options, _, marks, agreement] = *state_;
  Inspection inspection(call_for(subject, options), options);
  if (!inspection.takes_part()) return {};
  Report report;
  report.tensors = count_of(subject);
  report.bytes = bytes_of(subject);
  if (agreement && agreement->read()) {
    inspection.conclude(report, is_not_ok);
    return report;
  }
  const std::vector<Hash> hashes = hashes_of(subject, marks.read());
  state_->facts.content = content_of(hashes);
  bool differ = false;
  if (auto facts = inspection.exchange_facts(state_->facts)) {
    const RankSet left_out = out_of_data(inspection, *facts);
    if (!left_out.empty()) {
      std::erase_if(*facts, [](const VerifyFacts& each) { return each.out_of_data; });
      inspection.leave_out(left_out);
      inspection.add(out_of_data_finding(inspection.about(), left_out));
    }
    if (inspection.takes_part())
      differ = !all_agree(*facts, &VerifyFacts::structure) || !all_agree(*facts, &VerifyFacts::content);
    if (differ && all_agree(*facts, &VerifyFacts::structure))
      inspection.add(passing_difference(inspection, subject, hashes));
  }
  inspection.conclude(report, is_not_ok);
  if (!differ) return report;
  // The report has the details of the values, where they still differ.
  Report present = verify_subject(now(), VerifyOptions(options).method(Method::kFingerprint));
  return present.ok() ? report : present;
}

Report verify_here(const std::vector<Subject>& subjects, const RankSet& ranks, const VerifyOptions& options,
                   const std::vector<std::string>& names) {
  if (subjects.size() != ranks.size() || subjects.empty())
    throw dist::ArgumentError(
        fmt::format("inspect::verify_here: {} subjects for {} ranks", subjects.size(), ranks.size()));
  VerifyOptions here = options;
  if (here.method() == Method::kAllReduce) here.method(Method::kFingerprint);  // one process has nothing to reduce
  const auto group = std::make_shared<LocalRanks>(ranks);
  std::vector<Report> reports(subjects.size());
  std::vector<std::exception_ptr> errors(subjects.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < subjects.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        Inspection inspection(call_for(subjects[i], here, names), VerifyOptions(here).publish(false),
                              group->exchange(ranks.ranks()[i]));
        reports[i] = verify_in(inspection, subjects[i], here);
      } catch (...) {  // rethrown below
        errors[i] = std::current_exception();
        group->give_up();
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
