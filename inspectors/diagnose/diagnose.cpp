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

/// Whether some rank did not call, or called something else: the next check would wait for it, too.
bool ranks_are_missing(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [](const Finding& each) { return each.severity == Severity::fault && each.kind == "call"; });
}

/// How many collectives the default group has entered: ranks that went through the same program have equal counts.
/// Only a note: calls of send and recv count, and not every rank makes them.
Report collectives(const DiagnoseOptions& options) {
  Subject subject;
  subject.name = "collectives";
  for (const auto& [group, entered] : dist::progress())
    if (group == "default") describe_value(subject, "entered in the default group", nlohmann::json(entered));
  Report report = verify_subject(subject, VerifyOptions().same_ranks_as(options).name("collectives").publish(false));
  for (Finding& each : report.findings)
    if (each.kind != "call") each.severity = Severity::note;
  return report;
}

Report identities(const DiagnoseOptions& options) {
  return ranks(RanksOptions().same_ranks_as(options).publish(false));
}

Report generators(const DiagnoseOptions& options) {
  return verify(rng(), VerifyOptions().same_ranks_as(options).name("rng").publish(false));
}

/// Causes before what follows from them.
enum class Cause { call, setup, structure, gradients, optimizer, replicas, data, collectives, generators };

bool is_any_of(const std::string& text, std::initializer_list<const char*> values) {
  return std::any_of(values.begin(), values.end(), [&](const char* each) { return text == each; });
}

Cause cause_of(const Finding& finding) {
  if (finding.kind == "call") return Cause::call;
  if (finding.inspector == "ranks") return Cause::setup;
  if (finding.inspector == "grads") return Cause::gradients;
  if (finding.inspector == "data") return Cause::data;
  if (finding.object == "rng") return Cause::generators;
  if (finding.object == "collectives") return Cause::collectives;
  if (is_any_of(finding.verdict, {"missing", "shape_mismatch", "dtype_mismatch", "order_mismatch"}))
    return Cause::structure;
  if (finding.kind == "mode") return Cause::structure;
  if (finding.kind && is_any_of(*finding.kind, {"hyperparameter", "state", "optimizer"})) return Cause::optimizer;
  return Cause::replicas;
}

std::string next_question(const Finding& finding) {
  const std::string object = finding.object.value_or("");
  const std::string named = object.empty() ? "net" : object;
  const bool fault = finding.severity == Severity::fault;
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
      return finding.verdict == "ok" ? "" : "%grads " + named + " --local";
    case Cause::optimizer:
      return fault ? "%verify " + named : "";
    case Cause::data:
      return finding.verdict == "ok" ? "" : "%data " + named + " --size N --batch-size B";
    case Cause::collectives:
      return finding.verdict == "ok" ? "" : "%collectives";
    case Cause::generators:
      return fault ? "%verify rng" : "";
  }
  return "";
}

/// How long a check took differs between ranks, and the table is to be the same on all.
std::string without_time(const std::string& message) {
  static const std::regex time(",? [0-9.e+-]+ (us|ms|s)\\b");
  return std::regex_replace(message, time, "");
}

}  // namespace

void order_by_cause(Diagnosis& diagnosis) {
  const auto weight = [](const Finding& each) {
    return std::tuple(each.severity != Severity::fault, each.verdict == "ok", cause_of(each));
  };
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [&](const Finding& a, const Finding& b) { return weight(a) < weight(b); });
  diagnosis.advice.clear();
  for (const Finding& each : diagnosis.findings) diagnosis.advice.push_back(next_question(each));
}

Diagnosis Examination::run(const DiagnoseOptions& options) const {
  Diagnosis diagnosis;
  Inspection inspection({.inspector = "diagnose", .object = options.name()}, options);
  if (!inspection.takes_part()) return diagnosis;
  std::vector<Entry> entries = {{"ranks", identities}};
  entries.insert(entries.end(), checks_.begin(), checks_.end());
  entries.push_back({"rng", generators});
  entries.push_back({"collectives", collectives});
  for (const Entry& entry : entries) {
    Report report;
    try {
      report = entry.run(options);
    } catch (const std::exception& error) {
      // An object that this check can't look into. The same on every rank, or else a finding of the others names this
      // one as missing.
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
  // The table has what is well; only what is not goes to the session besides.
  inspection.conclude(diagnosis, is_not_ok);
  return diagnosis;
}

std::ostream& operator<<(std::ostream& out, const Diagnosis& diagnosis) {
  constexpr size_t kLongest = 100;
  std::vector<std::vector<std::string>> rows = {{"", "looked at", "found", "ask next"}};
  size_t faults = 0;
  for (size_t i = 0; i < diagnosis.findings.size(); ++i) {
    const Finding& each = diagnosis.findings[i];
    const bool fault = each.severity == Severity::fault;
    faults += fault;
    std::string message = each.message.substr(0, each.message.find('\n'));
    if (each.verdict == "ok") message = without_time(message);
    if (message.size() > kLongest) message = message.substr(0, kLongest - 3) + "...";
    std::string looked_at = each.inspector;
    if (each.object && !each.object->empty()) looked_at += " " + *each.object;
    rows.push_back({fault ? "✗" : each.verdict == "ok" ? "✓" : "•", looked_at, message, diagnosis.advice.at(i)});
  }
  for (const std::string& each : diagnosis.failed) rows.push_back({"•", "not checked", each, ""});
  out << table_text(rows);
  if (faults > 1)
    out << fmt::format("{} faults, the most probable cause first: repair it and ask again\n", faults);
  else if (faults == 0)
    out << "no fault found. What a step does: %%lockstep and %%lockstep --self; what it costs: %time_sync STEP\n";
  return out;
}

}  // namespace lockstep::inspect
