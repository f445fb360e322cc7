#include "inspectors/verify/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/watch/spelling.h"
#include "inspectors/findings/majority.h"
#include "inspectors/findings/text.h"
#include "protocol/text.h"

namespace lockstep::inspect {
namespace {

/// Returns the names of items of unknown types.
std::vector<std::string> not_compared(const Subject& subject) {
  std::vector<std::string> names;
  for (const Item& each : subject.items)
    if (each.kind == FindingKind::unsupported) names.push_back(each.name);
  return names;
}

/// Says what an `ok` does not cover.
std::string unchecked(const Subject& subject, const VerifyOptions& options) {
  const auto has = [&](FindingKind kind) {
    return std::ranges::any_of(subject.items, [&](const Item& each) { return each.kind == kind; });
  };
  const bool tensors = std::ranges::any_of(subject.items, [](const Item& each) { return each.tensor.defined(); });
  std::vector<std::string> parts;
  if (options.method() == Method::kAllGather && tensors)
    parts.push_back(fmt::format("differences within rtol {} and atol {}", options.rtol(), options.atol()));
  if (subject.type == "file") {
    parts.emplace_back("devices and strides");
  } else if (subject.type == "gradients") {
    parts.emplace_back("whether they are the mean over the ranks");
  } else if (has(FindingKind::mode)) {
    parts.emplace_back("gradients");
    parts.emplace_back("members that are not registered");
  } else if (has(FindingKind::state) || has(FindingKind::hyperparameter)) {
    parts.emplace_back("the parameters themselves");
  } else if (has(FindingKind::rng)) {
    if (subject.type == "rng" && subject.items.size() > 1) parts.emplace_back("other devices' generators");
    parts.emplace_back("generators of the program's own");
  } else if (tensors) {
    parts.emplace_back("strides");
  }
  return parts.empty() ? "" : fmt::format("; not checked: {}", fmt::join(parts, ", "));
}

}  // namespace

void complete_findings(const About& about, const Subject& subject, const VerifyOptions& options, const Report& report,
                       std::vector<Finding>& findings) {
  constexpr size_t kNamed = 3;
  const bool equal = findings.empty();
  const std::vector<std::string> left_out = not_compared(subject);
  std::string what;
  if (equal) {
    const bool tensors = std::ranges::any_of(subject.items, [](const Item& item) { return item.tensor.defined(); });
    what = fmt::format("{}{}, {:.1f} ms", counted(report.tensors, tensors ? "tensor" : "value"),
                       tensors ? ", " + bytes_text(report.bytes) : "", report.seconds * 1e3);
  }
  if (equal && subject.doubt) {
    Finding found = about.finding(subject.doubt->severity, subject.doubt->verdict, subject.doubt->kind);
    found.message = subject.doubt->text;
    findings.push_back(std::move(found));
    return;
  }
  if (equal && about.ranks.size() == 1 && left_out.empty()) {
    Finding found = about.finding(Severity::note, Verdict::unsupported);
    found.message = fmt::format("not compared: {} alone takes part", about.words(about.ranks));
    findings.push_back(std::move(found));
    return;
  }
  if (equal && left_out.empty()) {
    Finding found = about.finding(Severity::note, Verdict::ok);
    found.message = fmt::format("equal {}: {}", about.at(about.ranks), what);
    findings.push_back(std::move(found));
  }
  for (Finding& each : findings)
    if (each.verdict == Verdict::ok) each.message += unchecked(subject, options);
  if (!left_out.empty()) {
    Finding found = about.finding(Severity::note, Verdict::unsupported);
    found.message = "not compared, since their types are unknown: " + protocol::listed(left_out, kNamed);
    // It stands in place of an ok, which would cover all items.
    if (equal) found.message += fmt::format("; the rest is equal {}: {}", about.at(about.ranks), what);
    findings.push_back(std::move(found));
  }
}

std::vector<Finding> duplicate_findings(const About& about, const std::vector<VerifyFacts>& facts) {
  std::vector<Finding> findings;
  const auto find = [&](std::optional<Hash> VerifyFacts::* field, FindingKind kind, const auto& text_of) {
    std::vector<std::optional<Hash>> values;
    for (const VerifyFacts& each : facts) values.push_back(each.*field);
    for (const auto& [value, ranks] : ranks_by_value(about.ranks, values)) {
      if (!value || ranks.size() < 2) continue;
      Finding found = about.finding(Severity::note, Verdict::duplicate_data, kind);
      found.ranks = ranks;
      found.message = text_of(ranks.words());
      findings.push_back(std::move(found));
    }
  };
  find(&VerifyFacts::dropout, FindingKind::rng, [](const std::string& ranks) {
    return fmt::format(
        "dropout is on, and its generator is in the same state on {}: they draw the same masks. Seed each rank by its "
        "number once the module is made ({})",
        ranks, spelling::kSeed.text());
  });
  find(&VerifyFacts::inputs, FindingKind::input, [](const std::string& ranks) {
    return fmt::format("the inputs of the last forward are equal bit by bit on {}: did they read the same batch?",
                       ranks);
  });
  return findings;
}

Finding out_of_data_finding(const About& about, const RankSet& ranks) {
  Finding found = about.finding(Severity::note, Verdict::uneven_data);
  found.ranks = ranks;
  found.message = fmt::format("{} {} out of data (join): not compared until all ranks have the last model",
                              ranks.words(), ranks.size() == 1 ? "is" : "are");
  return found;
}

}  // namespace lockstep::inspect
