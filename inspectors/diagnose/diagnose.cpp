#include "inspectors/diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <regex>

#include "collectives/session_group.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/text.h"
#include "inspectors/ranks/ranks.h"

namespace lockstep::inspect {
namespace {

/// Whether some rank did not call, or called something else. The next check would wait for it, too.
bool ranks_are_missing(const Report& report) {
  return std::ranges::any_of(report.findings,
                             [](const Finding& each) { return is_fault(each) && each.kind == FindingKind::call; });
}

/// Turns differences that the program may want into notes. A rank that did not call stays a fault.
Report as_notes(Report report) {
  for (Finding& each : report.findings)
    if (each.kind != FindingKind::call) each.severity = Severity::note;
  return report;
}

/// Compares the number of collectives of the default group: ranks that ran the same program have the same number. It is
/// only a note, since send and recv count, too, and not every rank calls them.
Report collectives(const DiagnoseOptions& options) {
  Subject subject;
  subject.name = "collectives";
  for (const auto& [group, entered] : dist::progress())
    if (group == "default") describe_value(subject, "entered in the default group", nlohmann::json(entered));
  return as_notes(verify_subject(subject, VerifyOptions().same_ranks_as(options).name("collectives").publish(false)));
}

Report identities(const DiagnoseOptions& options) {
  return ranks(RanksOptions().same_ranks_as(options).publish(false));
}

/// It is only a note: ranks that nobody has seeded differ, and ranks with dropout are meant to.
Report generators(const DiagnoseOptions& options) {
  return as_notes(verify(rng(), VerifyOptions().same_ranks_as(options).name("rng").publish(false)));
}

/// Causes come before consequences.
enum class Cause { call, setup, structure, gradients, optimizer, replicas, data, collectives, generators };

bool has_any(const Finding& finding, std::initializer_list<Verdict> verdicts) {
  return std::ranges::any_of(verdicts, [&](Verdict each) { return finding.verdict == each; });
}

bool has_any(const Finding& finding, std::initializer_list<FindingKind> kinds) {
  return std::ranges::any_of(kinds, [&](FindingKind each) { return finding.kind == each; });
}

Cause cause_of(const Finding& finding) {
  if (finding.kind == FindingKind::call) return Cause::call;
  if (finding.inspector == "ranks") return Cause::setup;
  if (finding.inspector == "grads") return Cause::gradients;
  if (finding.inspector == "data") return Cause::data;
  if (finding.object == "rng") return Cause::generators;
  if (finding.object == "collectives") return Cause::collectives;
  if (has_any(finding, {Verdict::missing, Verdict::shape_mismatch, Verdict::dtype_mismatch, Verdict::order_mismatch}) ||
      finding.kind == FindingKind::mode)
    return Cause::structure;
  if (has_any(finding, {FindingKind::hyperparameter, FindingKind::state, FindingKind::optimizer}))
    return Cause::optimizer;
  return Cause::replicas;
}

/// Returns the next magic to run; may be empty.
std::string advice_for(const Finding& finding) {
  const std::string object = finding.object.value_or("");
  const std::string named = object.empty() ? "net" : object;
  const bool fault = is_fault(finding), ok = finding.verdict == Verdict::ok;
  switch (cause_of(finding)) {
    case Cause::call:
      return "%hang";
    case Cause::setup:
      return fault ? "%ranks" : "";
    case Cause::structure:
      return fault ? named + "?" : "";
    case Cause::replicas:
      return fault ? "%verify " + named + " --every 1" : "";
    case Cause::gradients:
      if (fault) return "%grads " + named + " --watch on";
      return ok ? "" : "%grads " + named + " --local";
    case Cause::optimizer:
      return fault ? "%verify " + named : "";
    case Cause::data:
      return ok ? "" : "%data " + named + " --size N --batch-size B";
    case Cause::collectives:
      return ok ? "" : "%collectives";
    case Cause::generators:
      return ok ? "" : "%verify rng";
  }
  return "";
}

/// Leaves out the time of a check, which differs between ranks: the table is the same on all.
std::string without_time(const std::string& message) {
  static const std::regex time(",? [0-9.e+-]+ (us|ms|s)\\b");
  return std::regex_replace(message, time, "");
}

}  // namespace

void order_by_cause(Diagnosis& diagnosis) {
  const auto weight = [](const Finding& each) {
    return std::tuple(!is_fault(each), each.verdict == Verdict::ok, cause_of(each));
  };
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [&](const Finding& a, const Finding& b) { return weight(a) < weight(b); });
  diagnosis.advice.clear();
  for (const Finding& each : diagnosis.findings) diagnosis.advice.push_back(advice_for(each));
}

Report Examination::trains(const std::string& name, const torch::optim::Optimizer& optimizer,
                           const DiagnoseOptions& options) const {
  int64_t trained = 0;
  for (const auto& group : optimizer.param_groups())
    trained += std::ranges::count_if(group.params(), [&](const at::Tensor& each) { return parameters_.find(each); });
  Subject subject;
  subject.name = name;
  subject.type = "optimizer";
  describe_value(subject, "parameters of the modules", nlohmann::json(trained));
  if (trained == 0)
    subject.doubt = {.text =
                         "none of its parameters is one of the modules', so its steps train none of them: was it "
                         "built for another module, or before their parameters were replaced?"};
  Report report = verify_subject(subject, VerifyOptions().same_ranks_as(options).name(name).publish(false));
  std::erase_if(report.findings, [](const Finding& each) { return each.verdict == Verdict::ok; });
  return report;
}

Diagnosis Examination::run(const DiagnoseOptions& options) const {
  Diagnosis diagnosis;
  Inspection inspection({.inspector = "diagnose", .object = options.name()}, options);
  if (!inspection.takes_part()) return diagnosis;
  std::vector<Entry> entries = {{"ranks", identities}};
  entries.insert(entries.end(), checks_.begin(), checks_.end());
  for (const auto& [name, optimizer] : optimizers_)
    if (has_module_ && !has_others_ && optimizer)
      entries.push_back({name, [&](const DiagnoseOptions& same) { return trains(name, *optimizer, same); }});
  entries.push_back({"rng", generators});
  entries.push_back({"collectives", collectives});
  for (const Entry& entry : entries) {
    Report report;
    try {
      report = entry.run(options);
    } catch (const std::exception& error) {
      // The check does not support the object. If that is not so on every rank, the others report this rank as missing.
      const std::string what = error.what();
      diagnosis.failed.push_back(fmt::format("{}: {}", entry.object, what.substr(0, what.find('\n'))));
      continue;
    }
    diagnosis.tensors += report.tensors;
    diagnosis.bytes += report.bytes;
    const bool missing = ranks_are_missing(report);
    for (Finding& each : report.findings) diagnosis.findings.push_back(std::move(each));
    if (missing) break;
  }
  order_by_cause(diagnosis);
  inspection.add(diagnosis.findings);
  // `ok` is only in the table.
  inspection.conclude(diagnosis, is_not_ok);
  return diagnosis;
}

std::ostream& operator<<(std::ostream& out, const Diagnosis& diagnosis) {
  constexpr size_t kLongest = 100;
  std::vector<std::vector<std::string>> rows = {{"", "check", "found", "run next"}};
  size_t faults = 0;
  for (size_t i = 0; i < diagnosis.findings.size(); ++i) {
    const Finding& each = diagnosis.findings[i];
    const bool fault = is_fault(each), ok = each.verdict == Verdict::ok;
    faults += fault;
    std::string message = each.message.substr(0, each.message.find('\n'));
    if (ok) message = without_time(message);
    if (message.size() > kLongest) message = message.substr(0, kLongest - 3) + "...";
    std::string check = each.inspector;
    if (each.object && !each.object->empty()) check += " " + *each.object;
    rows.push_back({fault ? "✗" : ok ? "✓" : "•", check, message, diagnosis.advice.at(i)});
  }
  for (const std::string& each : diagnosis.failed) rows.push_back({"•", "not checked", each, ""});
  out << table_text(rows);
  if (faults > 1)
    out << fmt::format("{} faults, the most probable cause first: fix it and run this again\n", faults);
  else if (faults == 0)
    out << "no faults found. To inspect a step: %%lockstep and %%lockstep --self; its time: %time_sync STEP\n";
  return out;
}

}  // namespace lockstep::inspect
