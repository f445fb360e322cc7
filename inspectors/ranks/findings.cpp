#include "inspectors/ranks/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

/// Maps each value to the ranks that have it.
using Camps = std::map<std::string, RankSet>;

std::string shortened(const std::string& value) {
  constexpr size_t kLongest = 60;
  return value.size() <= kLongest ? value : value.substr(0, kLongest - 3) + "...";
}

/// Returns "4 on ranks 0,2, not set on rank 1".
std::string describe(const Camps& camps) {
  std::string text;
  for (const auto& [value, ranks] : camps)
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value.empty() ? "not set" : shortened(value),
                        ranks.words());
  return text;
}

/// Collects the values that differ between ranks: one finding has all values in which the same ranks differ.
class Disagreements {
 public:
  explicit Disagreements(const std::vector<RankIdentity>& identities) : identities_(identities) {
    for (const RankIdentity& each : identities) all_.insert(each.rank);
  }

  using Value = std::function<std::string(const RankIdentity&)>;
  void compare(Severity severity, FindingKind kind, const std::string& name, const Value& value) {
    Camps camps;
    for (const RankIdentity& each : identities_) camps[value(each)].insert(each.rank);
    if (camps.size() < 2) return;
    RankSet reference;
    for (const auto& [text, ranks] : camps)
      if (2 * ranks.size() > all_.size()) reference = ranks;
    const RankSet faulty = reference.empty() ? all_ : all_ - reference;
    parties_[{severity, kind, faulty}].push_back({name, name + ": " + describe(camps)});
    references_[faulty] = reference;
  }

  /// Moves the line `effect` to that of its cause: one of `variables` in which the same ranks differ.
  void explain(const std::string& effect, const std::vector<std::string>& variables) {
    for (auto& [party, lines] : parties_) {
      const auto line = std::ranges::find(lines, effect, &Line::name);
      if (line == lines.end()) continue;
      Line* cause = nullptr;
      for (auto& [other, others] : parties_)
        if (std::get<1>(other) == FindingKind::environment && std::get<2>(other) == std::get<2>(party))
          for (Line& each : others)
            if (!cause && std::ranges::find(variables, each.name) != variables.end()) cause = &each;
      if (!cause) continue;
      cause->text += "; because of that " + line->text;
      lines.erase(line);
      return;
    }
  }

  /// Whether the cell has been reported, because ranks have different versions of a function of it.
  bool has_reported(const std::string& cell) const { return reported_cells_.contains(cell); }
  /// Compares the functions in the code of a cell, and those that it calls. False if no difference is found.
  bool compare_cell(const std::string& cell) {
    const auto code = [&](const RankIdentity& each) {
      const auto found = each.cells.find(cell);
      return found == each.cells.end() ? CellCode() : found->second;
    };
    std::map<std::string, std::set<std::string>> sizes, marks;
    std::set<std::string> used;
    for (const RankIdentity& each : identities_) {
      for (const auto& [name, from] : code(each).uses) used.insert(name);
      for (const auto& [name, mark] : code(each).functions) {
        sizes[name].insert(mark.substr(0, mark.find(' ')));
        marks[name].insert(mark);
      }
    }
    bool reported = false;
    for (const std::string& name : used) {
      const auto from = [&](const RankIdentity& each) { return text_of(code(each).uses, name); };
      std::set<std::string> cells;
      for (const RankIdentity& each : identities_)
        if (!text_of(each.code, cell).empty()) cells.insert(from(each));
      if (cells.size() < 2) continue;
      compare(Severity::fault, FindingKind::code, fmt::format("{} as called by {}", name, cell), from);
      reported_cells_.insert(cells.begin(), cells.end());
      reported = true;
    }
    if (reported) return true;
    // A function of another size moves the functions after it, whose code then differs in addresses. So sizes come
    // first.
    for (const auto& values : {sizes, marks}) {
      std::vector<std::string> names;
      for (const auto& [name, all] : values)
        if (all.size() > 1) names.push_back(name);
      if (names.empty()) continue;
      compare(Severity::fault, FindingKind::code, fmt::format("{} ({})", cell, fmt::join(names, ", ")),
              [&](const RankIdentity& each) { return text_of(each.code, cell); });
      return true;
    }
    return false;
  }

  void compare(Severity severity, FindingKind kind, Texts RankIdentity::* texts) {
    for (const std::string& name : names(texts))
      compare(severity, kind, name, [&](const RankIdentity& each) { return text_of(each.*texts, name); });
  }

  std::set<std::string> names(Texts RankIdentity::* texts) const {
    std::set<std::string> result;
    for (const RankIdentity& each : identities_)
      for (const auto& [name, value] : each.*texts) result.insert(name);
    return result;
  }

  void take(std::vector<Finding>& findings) const {
    for (const auto& [party, lines] : parties_) {
      if (lines.empty()) continue;
      const auto& [severity, kind, faulty] = party;
      const About about{.inspector = "ranks", .object = {}, .step = {}, .ranks = faulty};
      Finding found = about.finding(severity, Verdict::mismatch, kind);
      found.reference_ranks = references_.at(faulty);
      const std::string who = found.reference_ranks.empty()
                                  ? faulty.words() + " differ"
                                  : fmt::format("{} differ{} from {}", faulty.words(), faulty.size() == 1 ? "s" : "",
                                                found.reference_ranks.words());
      std::vector<std::string> texts;
      for (const Line& line : lines) texts.push_back(line.text);
      found.message = fmt::format("{} in {}", who, fmt::join(texts, "; "));
      findings.push_back(std::move(found));
    }
  }

 private:
  struct Line {
    std::string name, text;
  };

  const std::vector<RankIdentity>& identities_;
  RankSet all_;
  std::set<std::string> reported_cells_;
  std::map<std::tuple<Severity, FindingKind, RankSet>, std::vector<Line>> parties_;
  std::map<RankSet, RankSet> references_;
};

Finding fault(Verdict verdict, FindingKind kind, RankSet ranks, std::string message) {
  const About about{.inspector = "ranks", .object = {}, .step = {}, .ranks = std::move(ranks)};
  Finding found = about.finding(Severity::fault, verdict, kind);
  found.message = std::move(message);
  return found;
}

/// Returns "process 12 on hostA and process 13 on hostB".
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
      findings.push_back(fault(Verdict::mismatch, FindingKind::rank, RankSet{rank},
                               fmt::format("{} processes have rank {}: {}", who.size(), rank, processes(who))));
  }
  if (const RankSet outside = present - expected; !outside.empty())
    findings.push_back(fault(Verdict::mismatch, FindingKind::rank, outside,
                             fmt::format("there is no {}: ranks are {}", outside.words(), expected.str())));
  if (const RankSet missing = expected - present; !missing.empty())
    findings.push_back(
        fault(Verdict::missing, FindingKind::rank, missing,
              fmt::format("{} of {} did not call; {} did", missing.words(), expected.str(), present.words())));
}

void shared_devices(const std::vector<RankIdentity>& identities, std::vector<Finding>& findings) {
  std::map<std::pair<std::string, int>, std::vector<const RankIdentity*>> by_local_rank;
  std::map<std::pair<std::string, std::string>, std::vector<const RankIdentity*>> by_device;
  for (const RankIdentity& each : identities) {
    if (each.local_rank) by_local_rank[{each.machine, *each.local_rank}].push_back(&each);
    if (!each.device_id.empty()) by_device[{each.host, each.device_id}].push_back(&each);
  }
  const auto processes_differ = [](const std::vector<const RankIdentity*>& who) {
    return std::any_of(who.begin(), who.end(), [&](const RankIdentity* each) { return each->pid != who[0]->pid; });
  };
  for (const auto& [key, who] : by_local_rank)
    if (who.size() > 1 && processes_differ(who))
      findings.push_back(fault(Verdict::mismatch, FindingKind::local_rank, ranks_of(who),
                               fmt::format("{} have the same local rank {} on {}: they use the same device",
                                           ranks_of(who).words(), key.second, who[0]->host)));
  for (const auto& [key, who] : by_device) {
    if (who.size() < 2) continue;
    Finding found = fault(Verdict::mismatch, FindingKind::device, ranks_of(who),
                          fmt::format("{} use the same device, {} ({}) on {}", ranks_of(who).words(), who[0]->device,
                                      key.second, key.first));
    if (who[0]->backend.find("nccl") != std::string::npos)
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
  shared_devices(identities, findings);

  Disagreements all(identities);
  all.compare(Severity::fault, FindingKind::rank, "world size",
              [](const RankIdentity& each) { return std::to_string(each.world_size); });
  all.compare(Severity::fault, FindingKind::rank, "backend", [](const RankIdentity& each) { return each.backend; });
  all.compare(Severity::fault, FindingKind::device, "type of device",
              [](const RankIdentity& each) { return each.device.substr(0, each.device.find(':')); });
  for (const std::string& name : all.names(&RankIdentity::environment))
    all.compare(weight_of_variable(name) == Weight::kFault ? Severity::fault : Severity::note, FindingKind::environment,
                name, [&](const RankIdentity& each) { return text_of(each.environment, name); });
  all.compare(Severity::fault, FindingKind::version, &RankIdentity::versions);
  std::vector<std::string> not_on_all_ranks;  // or the same on all
  for (const std::string& name : all.names(&RankIdentity::code)) {
    std::set<std::string> codes;
    for (const RankIdentity& each : identities)
      if (const std::string code = text_of(each.code, name); !code.empty()) codes.insert(code);
    const auto value = [&](const RankIdentity& each) { return text_of(each.code, name); };
    if (codes.size() < 2)
      not_on_all_ranks.push_back(name);
    else if (!all.compare_cell(name))
      all.compare(Severity::fault, FindingKind::code, name, value);
  }
  // A cell that only some ranks have run is a note, since %%rank does that.
  for (const std::string& name : not_on_all_ranks)
    if (!all.has_reported(name))
      all.compare(Severity::note, FindingKind::code, name,
                  [&](const RankIdentity& each) { return text_of(each.code, name); });
  all.compare(Severity::fault, FindingKind::setting, &RankIdentity::settings);
  all.compare(Severity::note, FindingKind::setting, "threads of an operator",
              [](const RankIdentity& each) { return std::to_string(each.threads); });
  // Kernels for other instruction sets round differently, so parameters that are updated on a CPU diverge.
  const bool on_cpu =
      std::all_of(identities.begin(), identities.end(), [](const RankIdentity& each) { return each.device == "cpu"; });
  all.compare(on_cpu ? Severity::fault : Severity::note, FindingKind::setting, "instruction set of LibTorch's kernels",
              [](const RankIdentity& each) { return each.cpu; });
  all.explain("world size", {"WORLD_SIZE", "LOCKSTEP_WORLD_SIZE"});
  all.explain("backend", {"LOCKSTEP_BACKEND"});
  all.explain("threads of an operator", {"OMP_NUM_THREADS", "MKL_NUM_THREADS"});
  all.explain("instruction set of LibTorch's kernels", {"ATEN_CPU_CAPABILITY"});
  all.take(findings);
  return findings;
}

std::vector<std::string> cells_that_differ(const std::vector<RankIdentity>& identities) {
  std::map<std::string, std::set<std::string>> codes;
  for (const RankIdentity& each : identities)
    for (const auto& [name, code] : each.code)
      if (name.starts_with("cell ")) codes[name].insert(code);
  std::vector<std::string> result;
  for (const auto& [name, all] : codes)
    if (all.size() > 1) result.push_back(name);
  return result;
}

std::vector<Finding> ranks_findings(const About& about, const std::vector<RankIdentity>& identities) {
  std::vector<Finding> findings = compare_identities(identities, about.ranks);
  for (Finding& each : findings) each.step = about.step;
  if (std::ranges::any_of(findings, is_fault)) return findings;
  std::set<std::string> hosts;
  for (const RankIdentity& each : identities) hosts.insert(each.host);
  const RankIdentity& first = identities.front();
  Finding found = about.finding(Severity::note, Verdict::ok);
  found.message =
      fmt::format("{} on {} agree: LibTorch {}, {}, and {} of environment, versions, code and settings",
                  about.ranks.words(), counted(static_cast<int64_t>(hosts.size()), "host"),
                  text_of(first.versions, "LibTorch"), first.backend.empty() ? "no group yet" : first.backend,
                  counted(static_cast<int64_t>(first.environment.size() + first.versions.size() + first.code.size() +
                                               first.settings.size()),
                          "value"));
  findings.push_back(std::move(found));
  return findings;
}

}  // namespace lockstep::inspect
