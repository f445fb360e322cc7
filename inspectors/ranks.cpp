#include "inspectors/ranks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "inspectors/round.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// The ranks that have each value.
using Camps = std::map<std::string, RankSet>;

std::string shortened(const std::string& value) {
  constexpr size_t kLongest = 60;
  return value.size() <= kLongest ? value : value.substr(0, kLongest - 3) + "...";
}

/// "4 on ranks 0,2, not set on rank 1".
std::string describe(const Camps& camps) {
  std::string text;
  for (const auto& [value, ranks] : camps)
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value.empty() ? "not set" : shortened(value),
                        ranks.words());
  return text;
}

/// What ranks do not agree on, gathered so that one finding tells all that the same ranks differ in.
class Disagreements {
 public:
  explicit Disagreements(const std::vector<RankIdentity>& identities) : identities_(identities) {
    for (const RankIdentity& each : identities) all_.insert(each.rank);
  }

  using Value = std::function<std::string(const RankIdentity&)>;
  void compare(Severity severity, const char* kind, const std::string& name, const Value& value) {
    Camps camps;
    for (const RankIdentity& each : identities_) camps[value(each)].insert(each.rank);
    if (camps.size() < 2) return;
    RankSet reference;
    for (const auto& [text, ranks] : camps)
      if (2 * ranks.size() > all_.size()) reference = ranks;
    const RankSet faulty = reference.empty() ? all_ : all_ - reference;
    parties_[{severity, kind, faulty}].push_back(name + ": " + describe(camps));
    references_[faulty] = reference;
  }

  void compare(Severity severity, const char* kind, Texts RankIdentity::* texts) {
    for (const std::string& name : names(texts))
      compare(severity, kind, name, [&](const RankIdentity& each) { return value_of(each.*texts, name); });
  }

  std::set<std::string> names(Texts RankIdentity::* texts) const {
    std::set<std::string> result;
    for (const RankIdentity& each : identities_)
      for (const auto& [name, value] : each.*texts) result.insert(name);
    return result;
  }

  static std::string value_of(const Texts& texts, const std::string& name) {
    const auto found = texts.find(name);
    return found == texts.end() ? "" : found->second;
  }

  void take(std::vector<Finding>& findings) const {
    for (const auto& [party, lines] : parties_) {
      const auto& [severity, kind, faulty] = party;
      Finding found{.severity = severity, .inspector = "ranks", .verdict = "mismatch", .ranks = faulty};
      found.kind = kind;
      found.reference_ranks = references_.at(faulty);
      const std::string who = found.reference_ranks.empty()
                                  ? faulty.words() + " disagree"
                                  : fmt::format("{} differ{} from {}", faulty.words(), faulty.size() == 1 ? "s" : "",
                                                found.reference_ranks.words());
      found.message = fmt::format("{} in {}", who, fmt::join(lines, "; "));
      findings.push_back(std::move(found));
    }
  }

 private:
  const std::vector<RankIdentity>& identities_;
  RankSet all_;
  std::map<std::tuple<Severity, std::string, RankSet>, std::vector<std::string>> parties_;
  std::map<RankSet, RankSet> references_;
};

Finding fault(const char* verdict, const char* kind, RankSet ranks, std::string message) {
  Finding found{.severity = Severity::fault, .inspector = "ranks", .verdict = verdict, .ranks = std::move(ranks)};
  found.kind = kind;
  found.message = std::move(message);
  return found;
}

/// "process 12 on hostA and process 13 on hostB".
std::string processes(const std::vector<const RankIdentity*>& who) {
  std::string text;
  for (size_t i = 0; i < who.size(); ++i)
    text += fmt::format("{}process {} on {}",
                        i == 0                ? ""
                        : i + 1 == who.size() ? " and "
                                              : ", ",
                        who[i]->pid, who[i]->host);
  return text;
}

RankSet ranks_of(const std::vector<const RankIdentity*>& who) {
  RankSet ranks;
  for (const RankIdentity* each : who) ranks.insert(each->rank);
  return ranks;
}

void doubled_and_missing(const std::vector<RankIdentity>& identities, const RankSet& expected,
                         std::vector<Finding>& findings) {
  std::map<int, std::vector<const RankIdentity*>> by_rank;
  for (const RankIdentity& each : identities) by_rank[each.rank].push_back(&each);
  RankSet present;
  for (const auto& [rank, who] : by_rank) {
    present.insert(rank);
    if (who.size() > 1)
      findings.push_back(
          fault("mismatch", "rank", RankSet{rank},
                fmt::format("{} processes say that they are rank {}: {}", who.size(), rank, processes(who))));
  }
  if (const RankSet outside = present - expected; !outside.empty())
    findings.push_back(fault("mismatch", "rank", outside,
                             fmt::format("there is no {}: ranks are {}", outside.words(), expected.str())));
  if (const RankSet missing = expected - present; !missing.empty())
    findings.push_back(
        fault("missing", "rank", missing,
              fmt::format("{} of {} did not come; {} did", missing.words(), expected.str(), present.words())));
}

void shared_places(const std::vector<RankIdentity>& identities, std::vector<Finding>& findings) {
  std::map<std::pair<std::string, int>, std::vector<const RankIdentity*>> by_local_rank;
  std::map<std::pair<std::string, std::string>, std::vector<const RankIdentity*>> by_device;
  for (const RankIdentity& each : identities) {
    if (each.local_rank) by_local_rank[{each.machine, *each.local_rank}].push_back(&each);
    if (!each.device_id.empty()) by_device[{each.host, each.device_id}].push_back(&each);
  }
  const auto processes_differ = [](const std::vector<const RankIdentity*>& who) {
    return std::any_of(who.begin(), who.end(), [&](const RankIdentity* each) { return each->pid != who[0]->pid; });
  };
  for (const auto& [place, who] : by_local_rank)
    if (who.size() > 1 && processes_differ(who))
      findings.push_back(fault("mismatch", "local_rank", ranks_of(who),
                               fmt::format("{} are on {} and all say that their local rank is {}: they take the same "
                                           "device",
                                           ranks_of(who).words(), who[0]->host, place.second)));
  for (const auto& [place, who] : by_device) {
    if (who.size() < 2) continue;
    Finding found = fault("mismatch", "device", ranks_of(who),
                          fmt::format("{} use the same device, {} ({}) on {}", ranks_of(who).words(), who[0]->device,
                                      place.second, place.first));
    if (who[0]->backend == "nccl")
      found.message += ": NCCL takes one rank per GPU";
    else
      found.severity = Severity::note;  // other backends allow it
    findings.push_back(std::move(found));
  }
}

}  // namespace

std::vector<Finding> compare_identities(const std::vector<RankIdentity>& identities, const RankSet& expected) {
  std::vector<Finding> findings;
  doubled_and_missing(identities, expected, findings);
  shared_places(identities, findings);

  Disagreements all(identities);
  all.compare(Severity::fault, "rank", "world size",
              [](const RankIdentity& each) { return std::to_string(each.world_size); });
  all.compare(Severity::fault, "rank", "backend", [](const RankIdentity& each) { return each.backend; });
  all.compare(Severity::fault, "device", "type of device",
              [](const RankIdentity& each) { return each.device.substr(0, each.device.find(':')); });
  for (const std::string& name : all.names(&RankIdentity::environment))
    all.compare(weight_of_variable(name) == Weight::kFault ? Severity::fault : Severity::note, "environment", name,
                [&](const RankIdentity& each) { return Disagreements::value_of(each.environment, name); });
  all.compare(Severity::fault, "version", &RankIdentity::versions);
  for (const std::string& name : all.names(&RankIdentity::code)) {
    // A cell that only some ranks have run is how %%rank is meant; the same cell with other code is not.
    const auto value = [&](const RankIdentity& each) { return Disagreements::value_of(each.code, name); };
    std::set<std::string> codes;
    for (const RankIdentity& each : identities)
      if (const std::string code = value(each); !code.empty()) codes.insert(code);
    all.compare(codes.size() > 1 ? Severity::fault : Severity::note, "code", name, value);
  }
  all.compare(Severity::fault, "setting", &RankIdentity::settings);
  all.compare(Severity::note, "setting", "threads of an operator",
              [](const RankIdentity& each) { return std::to_string(each.threads); });
  // Kernels for other instruction sets round differently: parameters that are updated on a CPU drift apart.
  const bool on_cpu =
      std::all_of(identities.begin(), identities.end(), [](const RankIdentity& each) { return each.device == "cpu"; });
  all.compare(on_cpu ? Severity::fault : Severity::note, "setting", "instruction set of LibTorch's kernels",
              [](const RankIdentity& each) { return each.cpu; });
  all.take(findings);
  return findings;
}

namespace {

void judge(const RanksReport& report, Round& round) {
  for (Finding& each : compare_identities(report.identities, round.ranks())) round.add(std::move(each));
  if (round.has_fault()) return;
  std::set<std::string> hosts;
  for (const RankIdentity& each : report.identities) hosts.insert(each.host);
  const RankIdentity& first = report.identities.front();
  Finding found = round.finding(Severity::note, "ok");
  found.message = fmt::format("{} on {} agree: LibTorch {}, {}, and {} of environment, versions, code and settings",
                              round.ranks().words(), counted(static_cast<int64_t>(hosts.size()), "host"),
                              Disagreements::value_of(first.versions, "LibTorch"),
                              first.backend.empty() ? "no group yet" : first.backend,
                              counted(static_cast<int64_t>(first.environment.size() + first.versions.size() +
                                                           first.code.size() + first.settings.size()),
                                      "value"));
  round.add(std::move(found));
}

}  // namespace

RanksReport ranks(const RanksOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  RanksReport report;
  Round round({.inspector = "ranks", .object = "", .ranks = options.ranks(), .deadline = options.deadline()});
  if (!round.takes_part()) return report;
  if (const auto all = round.open(own_identity())) {
    for (const json& each : *all) report.identities.push_back(each.get<RankIdentity>());
    judge(report, round);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  round.close(report, options.publish());
  return report;
}

RanksReport ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size, const RanksOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  c10d::PrefixStore place("inspect/ranks", store);
  const auto key_of = [](int64_t arrival) { return fmt::format("arrival-{}", arrival); };
  RankIdentity mine = own_identity();
  mine.rank = rank;
  mine.world_size = world_size;
  // Each process takes a number that no other has, whatever rank it says it is.
  const int64_t arrival = place.add("arrivals", 1) - 1;
  place.set(key_of(arrival), json::to_cbor(mine));
  std::vector<std::string> keys;
  for (int64_t i = 0; i < world_size; ++i) keys.push_back(key_of(i));
  try {
    place.wait(keys, options.deadline());
  } catch (const std::exception&) {
    // Some did not come: the finding names them. A store that is gone says so below.
  }
  RanksReport report;
  const int64_t arrived = place.add("arrivals", 0);
  for (int64_t i = 0; i < arrived; ++i)
    if (place.check({key_of(i)}))
      report.identities.push_back(json::from_cbor(place.get(key_of(i))).get<RankIdentity>());
  std::stable_sort(report.identities.begin(), report.identities.end(),
                   [](const RankIdentity& a, const RankIdentity& b) { return a.rank < b.rank; });
  report.findings = compare_identities(report.identities, RankSet::all(world_size));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (report.findings.empty()) {
    Finding found{.inspector = "ranks", .verdict = "ok", .ranks = RankSet::all(world_size)};
    found.message = fmt::format("all {} came and agree", counted(world_size, "rank"));
    report.findings.push_back(std::move(found));
  }
  if (options.publish() && arrival == 0) publish(report);
  return report;
}

std::ostream& operator<<(std::ostream& out, const RanksReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "local", "pid", "host", "device", "threads", "kernels", "backend", "LibTorch"}};
  for (const RankIdentity& each : report.identities)
    rows.push_back({std::to_string(each.rank), each.local_rank ? std::to_string(*each.local_rank) : "-",
                    std::to_string(each.pid), each.host,
                    each.device + (each.device_id.empty() ? "" : " (" + each.device_id + ")"),
                    std::to_string(each.threads), each.cpu, each.backend.empty() ? "-" : each.backend,
                    Disagreements::value_of(each.versions, "LibTorch")});
  out << table_text(rows);
  return session_shows_findings() ? out : out << static_cast<const Report&>(report);
}

}  // namespace lockstep::inspect
