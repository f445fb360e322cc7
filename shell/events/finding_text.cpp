#include "shell/events/finding_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "shell/events/shown_event.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

std::string list(const std::vector<int64_t>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

/// Says what differs in a tensor: "3 of 16384 elements, first at [12, 4]" and "max |Δ| 1.2e-03".
std::vector<std::string> facts(const FindingTensor& tensor, const Screen& screen) {
  std::vector<std::string> result;
  if (tensor.count) {
    const int64_t all = std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies());
    std::string text = fmt::format("{} of {} element{}", *tensor.count, all, all == 1 ? "" : "s");
    if (!tensor.first.empty()) text += ", first at " + list(tensor.first);
    result.push_back(std::move(text));
  }
  if (tensor.max_abs_diff)
    result.push_back(
        fmt::format("max {} {:.1e}{}", signs(screen).difference, *tensor.max_abs_diff,
                    tensor.max_ulp && *tensor.max_ulp < 1000 ? fmt::format(" ({:.0f} ULP)", *tensor.max_ulp) : ""));
  return result;
}

}  // namespace

std::string finding_text(const Finding& found, const Screen& screen, size_t most_tensors) {
  const Finding finding = shown(found);
  const bool is_fault = finding.severity == Severity::fault;
  const bool is_ok = finding.verdict == Verdict::ok;
  const Style style = is_fault ? Style::fault : is_ok ? Style::good : Style::note;
  const char* sign = is_fault ? signs(screen).fault : is_ok ? signs(screen).good : signs(screen).note;
  const std::string subject = finding.object.value_or(finding.inspector);

  std::string head = subject + ": " + finding.message;
  if (finding.message.empty())
    head = fmt::format("{}: {}", subject, to_string(finding.verdict));
  else if (finding.message.starts_with(subject + ":") || finding.message.starts_with(subject + " ") ||
           finding.verdict == Verdict::dead)  // an exception or a signal is no hang
    head = finding.message;
  std::string text;
  const std::string indent(text_width(sign) + 1, ' ');
  bool first = true;
  for (const std::string& line :
       wrapped(head, screen.width > 0 ? std::max(20, screen.width - 1 - static_cast<int>(indent.size())) : 0)) {
    text +=
        first ? paint(screen, style, sign) + " " + (is_fault ? paint(screen, Style::bold, line) : line) : indent + line;
    text += '\n';
    first = false;
  }

  const size_t shown = std::min(finding.tensors.size(), most_tensors);
  std::vector<std::string> names, kinds;
  int name_width = 0, kind_width = 0;
  for (size_t i = 0; i < shown; ++i) {
    const FindingTensor& tensor = finding.tensors[i];
    names.push_back(tensor.name);
    kinds.push_back(tensor.dtype.empty() ? "" : list(tensor.shape) + " " + tensor.dtype);
    name_width = std::max(name_width, text_width(names.back()));
    kind_width = std::max(kind_width, text_width(kinds.back()));
  }
  for (size_t i = 0; i < shown; ++i) {
    const std::vector<std::string> rest = facts(finding.tensors[i], screen);
    // The message has named the first tensor, and there is nothing more to show of it.
    if (i == 0 && kinds[i].empty() && rest.empty() && finding.message.find(names[i]) != std::string::npos) continue;
    const std::string row =
        kinds[i].empty() && rest.empty()
            ? "    " + names[i]
            : "    " + padded(names[i], name_width) + "  " + (rest.empty() ? kinds[i] : padded(kinds[i], kind_width));
    const std::string wide = row + (rest.empty() ? "" : fmt::format("   {}", fmt::join(rest, "   ")));
    if (screen.width == 0 || text_width(wide) < screen.width) {
      text += wide + "\n";
      continue;
    }
    text += "    " + names[i] + "\n";
    if (!kinds[i].empty()) text += "      " + kinds[i] + "\n";
    for (const std::string& fact : rest) text += "      " + fact + "\n";
  }
  if (finding.tensors.size() > shown)
    text += fmt::format("    {} and {} more\n", signs(screen).dots, finding.tensors.size() - shown);

  std::vector<std::string> places;
  if (finding.op) {
    std::string op = fmt::format("{} #{}", finding.op->name, finding.op->seq);
    if (!finding.op->dtype.empty()) op += " " + list(finding.op->shape) + " " + finding.op->dtype;
    if (!finding.op->group.empty() && finding.op->group != "default") op += " in group " + finding.op->group;
    places.push_back(std::move(op));
  }
  if (finding.where) places.push_back("at " + *finding.where);
  if (finding.step) places.push_back(fmt::format("step {}", *finding.step));
  if (!places.empty() && !(is_ok && !finding.op))
    text += paint(screen, Style::dim, fmt::format("    {}", fmt::join(places, ", "))) + "\n";
  return text;
}

}  // namespace lockstep::shell
