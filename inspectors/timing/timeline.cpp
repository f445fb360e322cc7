#include "inspectors/timing/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "collectives/log/process_identity.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "inspectors/exchange/clock_offset.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/text.h"
#include "inspectors/timing/operator_events.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

// Rows of a rank in the picture. Operators are below, a row for each thread.
constexpr int kCellRow = 1, kCollectiveRow = 2, kFirstThreadRow = 10;

/// What one rank tells the others first.
struct TimelineFacts {
  std::string machine;  // the same for ranks that share a clock
};
void to_json(json& json, const TimelineFacts& facts) { json = {{"machine", facts.machine}}; }
void from_json(const json& json, TimelineFacts& facts) { facts.machine = json.at("machine"); }

/// One rank's events, as the lines of the file. The format: "Trace Event Format" of Chrome, times in microseconds.
class Events {
 public:
  Events(int rank, int64_t offset_ns) : rank_(rank), offset_ns_(offset_ns) {
    name("process_name", 0, fmt::format("rank {}", rank));
    name("thread_name", kCellRow, "cells");
    name("thread_name", kCollectiveRow, "collectives");
  }

  void cells() {
    std::set<int64_t> cells;
    for (const dist::CellSpan& each : dist::cell_spans()) {
      if (each.end_ns == 0) continue;  // it is this one that asks
      // A cell with magics in it runs in pieces.
      const int64_t number = dist::cell_number(each.cell);
      span(kCellRow, fmt::format("cell {}", number), "cell", each.begin_ns, each.end_ns, nullptr);
      cells.insert(number);
    }
    counts["cells"] = static_cast<int64_t>(cells.size());
  }

  void collectives() {
    const auto context = dist::current_context();
    if (!context) return;
    constexpr size_t kAll = dist::log_layout::kEntryCapacity;
    for (const dist::CollectiveRecord& each : dist::CollectiveLogReader(context->log()->mapping()).last(kAll)) {
      if (each.done_ns == 0) continue;
      // c10d makes them itself, for a Reducer.
      const bool bucket = each.op == "all_reduce" && each.through_c10d;
      ++counts[bucket ? "buckets" : "collectives"];
      // They overlap, so they are no spans that lie in one another, but begin and end under a number of their own.
      json event = {{"cat", bucket ? "bucket" : "collective"},
                    {"name", fmt::format("{}{} #{}", bucket ? "bucket: " : "", each.op, each.seq)},
                    {"id", fmt::format("{}-{}", rank_, number_++)},
                    {"pid", rank_},
                    {"tid", kCollectiveRow}};
      event["ph"] = "b";
      event["ts"] = microseconds(each.entered_ns);
      event["args"] = {{"group", each.group}, {"seq", each.seq},     {"shape", each.shape},
                       {"dtype", each.dtype}, {"bytes", each.bytes}, {"cell", dist::cell_number(each.cell)},
                       {"step", each.step}};
      add(event);
      event["ph"] = "e";
      event["ts"] = microseconds(each.done_ns);
      event.erase("args");
      add(event);
    }
  }

  void operators() {
    const auto recorded = recorded_operators();
    if (!recorded) return;
    const std::lock_guard lock(recorded->mutex);
    std::map<uint32_t, int> rows;
    for (const OperatorEvent& each : recorded->events) {
      const auto [row, is_new] = rows.try_emplace(each.thread, kFirstThreadRow + static_cast<int>(rows.size()));
      if (is_new) name("thread_name", row->second, fmt::format("operators, thread {}", each.thread));
      span(row->second, recorded->names[each.name], each.backward ? "backward" : "operator", each.begin_ns, each.end_ns,
           nullptr);
    }
    counts["operators"] = static_cast<int64_t>(recorded->events.size());
    counts["left_out"] = recorded->left_out;
  }

  std::map<std::string, int64_t> counts;
  std::string text;  // lines with a comma between them

 private:
  double microseconds(int64_t ns) const { return static_cast<double>(ns - offset_ns_) * 1e-3; }
  void add(const json& event) {
    text += (text.empty() ? "" : ",\n") + event.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  void name(const char* what, int row, const std::string& value) {
    add({{"ph", "M"}, {"name", what}, {"pid", rank_}, {"tid", row}, {"args", {{"name", value}}}});
  }
  void span(int row, const std::string& title, const char* category, int64_t begin, int64_t end,
            const json& arguments) {
    json event = {{"ph", "X"},
                  {"name", title},
                  {"cat", category},
                  {"pid", rank_},
                  {"tid", row},
                  {"ts", microseconds(begin)},
                  {"dur", static_cast<double>(end - begin) * 1e-3}};
    if (!arguments.is_null()) event["args"] = arguments;
    add(event);
  }

  const int rank_;
  const int64_t offset_ns_;
  int64_t number_ = 0;
};

/// This rank's clock against the lowest's, and the error. Processes of one machine share a clock. Collective.
ClockOffset own_offset(Exchange& exchange, const std::vector<TimelineFacts>& facts) {
  if (std::ranges::all_of(facts, [&](const TimelineFacts& each) { return each.machine == facts[0].machine; }))
    return {};
  constexpr int kBarriers = 30;
  BarrierTimes mine;
  for (int i = 0; i < kBarriers; ++i) {
    mine.entered_ns.push_back(dist::monotonic_ns());
    exchange.barrier();
    mine.left_ns.push_back(dist::monotonic_ns());
  }
  const auto entered = exchange.gather_integers(mine.entered_ns), left = exchange.gather_integers(mine.left_ns);
  return clock_offset({entered[0], left[0]}, mine);
}

void write(const std::string& path, const std::vector<std::string>& events, double error_s) {
  std::ofstream file(path, std::ios::trunc);
  file << "{\"displayTimeUnit\": \"ms\",\n\"otherData\": "
       << json({{"clock", "CLOCK_MONOTONIC of the lowest rank"}, {"clock_error_s", error_s}})
       << ",\n\"traceEvents\": [\n";
  for (size_t i = 0; i < events.size(); ++i) file << (i == 0 ? "" : ",\n") << events[i];
  file << "\n]}\n";
  file.close();
  if (!file) throw dist::Error(fmt::format("inspect::timeline: {} can't be written: {}", path, std::strerror(errno)));
}

/// The events of all ranks on one clock, written by the lowest rank. Collective.
void draw(const std::string& path, Inspection& inspection, const ClockOffset& offset, TimelineReport& report) {
  Exchange& exchange = inspection.exchange();
  Events events(inspection.rank(), offset.ns);
  events.cells();
  events.collectives();
  events.operators();
  for (const json& each : exchange.gather_json({{"counts", events.counts}, {"error", offset.error_ns}})) {
    const auto count = [&](const char* what) { return each.at("counts").value(what, int64_t{0}); };
    report.cells += count("cells");
    report.operators += count("operators");
    report.collectives += count("collectives");
    report.buckets += count("buckets");
    report.left_out += count("left_out");
    report.clock_error = std::max(report.clock_error, each.at("error").get<double>() * 1e-9);
  }
  const std::vector<std::string> all = exchange.gather_text(events.text);
  std::string problem;
  if (inspection.rank_index() == 0) {
    try {
      write(path, all, report.clock_error);
    } catch (const std::exception& error) {  // thrown on all ranks below
      problem = error.what();
    }
  }
  problem = exchange.gather_json(problem)[0];
  if (!problem.empty()) throw dist::Error(problem);
}

}  // namespace

TimelineReport timeline(const std::string& path, const TimelineOptions& options) {
  TimelineReport report;
  report.path = path;
  Inspection inspection({.inspector = "timeline", .object = options.name().empty() ? path : options.name()}, options);
  if (!inspection.takes_part()) return report;
  const TimelineFacts mine{.machine = dist::machine_identity()};
  if (const auto facts = inspection.exchange_facts(mine))
    draw(path, inspection, own_offset(inspection.exchange(), *facts), report);
  inspection.conclude(report);
  return report;
}

std::ostream& operator<<(std::ostream& out, const TimelineReport& report) {
  if (!report.findings.empty()) return session_shows_findings() ? out : out << static_cast<const Report&>(report);
  out << report.path << ": " << counted(report.cells, "cell") << ", " << counted(report.operators, "operator") << ", "
      << counted(report.collectives, "collective") << ", " << counted(report.buckets, "bucket");
  if (report.operators == 0) out << " (operators are recorded from %timeline on, or inspect::record_operators())";
  if (report.left_out > 0)
    out << "; " << counted(report.left_out, "operator") << " beyond the recording's limit left out";
  if (report.clock_error > 0) out << fmt::format("; clocks agree within {}", time_text(report.clock_error));
  return out << "; open it at ui.perfetto.dev";
}

}  // namespace lockstep::inspect
