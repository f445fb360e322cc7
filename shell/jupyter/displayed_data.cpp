#include "shell/jupyter/displayed_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "shell/charts/chart_axis.h"
#include "shell/charts/chart_display.h"
#include "shell/charts/chart_text.h"
#include "shell/events/finding_text.h"
#include "shell/terminal/rank_output.h"
#include "shell/text/text.h"
#include "shell/text/xml_text.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

constexpr size_t kMostTensors = 200;  // in a table; the JSON form has all

/// Returns a colour with a contrast above 4.1 on white and on JupyterLab's dark page; frontends keep style attributes.
const char* colour_of(const Finding& finding) {
  if (finding.severity == Severity::fault) return "#d83b3b";
  return finding.verdict == Verdict::ok ? "#308644" : "#a06c00";
}

std::string cell_of(std::string_view text, bool is_number = false) {
  return fmt::format("<td style=\"text-align:{}\">{}</td>", is_number ? "right" : "left", xml_text(text));
}

std::string numbers(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

std::string norms_of(const FindingTensor& tensor) {
  std::string text;
  for (const auto& [rank, norm] : tensor.norms)
    text += fmt::format("{}{}: {:.6g}", text.empty() ? "" : ", ", rank, norm);
  return text;
}

std::string finding_html(const Finding& finding) {
  const bool is_fault = finding.severity == Severity::fault;
  const std::string verdict(to_string(finding.verdict));
  const char* sign = is_fault ? "✗" : finding.verdict == Verdict::ok ? "✓" : "•";
  std::string html = fmt::format(
      "<div class=\"lockstep-finding\"><p><span style=\"color:{};font-weight:bold\">{} {}</span> <b>{}</b>: {}</p>",
      colour_of(finding), sign, xml_text(finding.inspector), xml_text(finding.object.value_or(verdict)),
      xml_text(finding.message.empty() ? verdict : finding.message));
  if (!finding.tensors.empty()) {
    const auto any = [&](auto has) { return std::any_of(finding.tensors.begin(), finding.tensors.end(), has); };
    const bool counts = any([](const FindingTensor& t) { return t.count.has_value(); });
    const bool firsts = any([](const FindingTensor& t) { return !t.first.empty(); });
    const bool differences = any([](const FindingTensor& t) { return t.max_abs_diff.has_value(); });
    const bool distances = any([](const FindingTensor& t) { return t.max_ulp.has_value(); });
    const bool norms = any([](const FindingTensor& t) { return !t.norms.empty(); });
    html += "<table><thead><tr><th style=\"text-align:left\">tensor</th><th>shape</th><th>dtype</th>";
    if (counts) html += "<th>elements that differ</th>";
    if (firsts) html += "<th>first at</th>";
    if (differences) html += "<th>max |Δ|</th>";
    if (distances) html += "<th>max ULP</th>";
    if (norms) html += "<th>norm by rank</th>";
    html += "</tr></thead><tbody>";
    for (size_t i = 0; i < std::min(kMostTensors, finding.tensors.size()); ++i) {
      const FindingTensor& t = finding.tensors[i];
      html += "<tr>" + cell_of(t.name) + cell_of(t.dtype.empty() ? "" : numbers(t.shape)) + cell_of(t.dtype);
      if (counts) html += cell_of(t.count ? std::to_string(*t.count) : "", true);
      if (firsts) html += cell_of(t.first.empty() ? "" : numbers(t.first));
      if (differences) html += cell_of(t.max_abs_diff ? fmt::format("{:.3g}", *t.max_abs_diff) : "", true);
      if (distances) html += cell_of(t.max_ulp ? fmt::format("{:.0f}", *t.max_ulp) : "", true);
      if (norms) html += cell_of(norms_of(t));
      html += "</tr>";
    }
    html += "</tbody></table>";
    if (finding.tensors.size() > kMostTensors)
      html += fmt::format("<p>… and {} more</p>", finding.tensors.size() - kMostTensors);
  }
  std::vector<std::string> places;
  places.push_back((finding.ranks.size() == 1 ? "rank " : "ranks ") + finding.ranks.str());
  if (!finding.reference_ranks.empty()) places.push_back("against " + finding.reference_ranks.words());
  if (finding.op) places.push_back(fmt::format("{} #{}", finding.op->name, finding.op->seq));
  if (finding.where) places.push_back("at " + *finding.where);
  if (finding.step) places.push_back(fmt::format("step {}", *finding.step));
  if (finding.ranks.empty()) places.erase(places.begin());
  if (!places.empty())
    html += fmt::format("<p style=\"opacity:0.7\"><small>{}</small></p>",
                        xml_text(fmt::format("{}", fmt::join(places, ", "))));
  return html + "</div>";
}

/// Returns the event's fields, without what says that it is one.
json finding_json(const Finding& finding) {
  json fields = to_event_json(FindingEvent{finding});
  fields.erase("event");
  return fields;
}

}  // namespace

json finding_data(const Finding& finding) {
  const Screen screen{.terminal = false, .colour = false, .unicode = true, .width = kPageColumns};
  std::string text = finding_text(finding, screen);
  while (text.ends_with('\n')) text.pop_back();
  return {{"text/plain", std::move(text)}, {"text/html", finding_html(finding)}, {kFindingMime, finding_json(finding)}};
}

json value_data(const std::vector<ValueEvent>& values, const RankSet& all) {
  json forms = json::array();
  for (const ValueEvent& value : values) {
    json form = to_event_json(value);
    forms.push_back(
        {{"ranks", form["ranks"]}, {"text", form["text"]}, {"data", form["data"]}, {"label", form["label"]}});
  }
  const bool are_plots = std::all_of(values.begin(), values.end(), [](const auto& each) { return is_plot(each.data); });
  json data = are_plots ? chart_data(values, all) : json();
  if (data.is_null()) {
    std::string text;
    if (values.size() == 1 && values[0].ranks == all) {
      text = values[0].text;
    } else {
      RankOutput output({.terminal = false, .colour = false, .unicode = true, .width = 0});
      output.set_ranks(all);
      for (const ValueEvent& value : values)
        for (const std::string_view line : lines_of(value.text.empty() ? std::string_view("\n") : value.text))
          text += output.value_gutter(value.ranks) + std::string(line) + "\n";
      while (text.ends_with('\n')) text.pop_back();
    }
    data = {{"text/plain", std::move(text)}};
  }
  data[kValueMime] = {{"values", std::move(forms)}};
  return data;
}

json rich_data(const ValueEvent& value) {
  if (!value.data.is_object() || value.data.size() != 1 || !value.data.contains("mime")) return nullptr;
  json data = value.data["mime"];
  if (!data.is_object()) return nullptr;
  data["text/plain"] = value.text;
  return data;
}

json chart_data(const std::vector<ValueEvent>& values, const RankSet& all) {
  std::vector<RankChart> charts;
  for (const ValueEvent& value : values)
    if (auto chart = chart_in(value.data)) charts.push_back({value.ranks, std::move(*chart)});
  const std::optional<Chart> chart = charts.size() == values.size() ? joined(charts, all) : std::nullopt;
  if (!chart) return nullptr;
  std::string text = chart_text(*chart, {.terminal = false, .colour = false, .unicode = true, .width = 0});
  while (text.ends_with('\n')) text.pop_back();
  return {{"text/plain", std::move(text)},
          {kChartMime, *chart},
          {kVegaLiteMime, chart_vega_lite(*chart)},
          {"image/svg+xml", chart_svg(*chart)}};
}

}  // namespace lockstep::shell::jupyter
