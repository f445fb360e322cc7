#include "inspectors/timing/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "collectives/log/collective_log.h"
#include "collectives/log/process_identity.h"
#include "collectives/watch/spelling.h"
#include "inspectors/exchange/clock_offset.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/text.h"
#include "inspectors/timing/timeline_facts.h"
#include "inspectors/timing/trace_events.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// Returns the offset of this rank's clock from the lowest rank's. Processes of one machine share a clock. Collective.
ClockOffset measure_offset(Exchange& exchange, const std::vector<TimelineFacts>& facts) {
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

TraceEvents look(int rank, const ClockOffset& offset) {
  TraceEvents events(rank, offset.ns);
  events.add_cells();
  events.add_collectives();
  events.add_device_collectives();
  events.add_operators();
  return events;
}

void add(const TimelineCounts& counts, TimelineReport& report) {
  report.cells += counts.cells;
  report.operators += counts.operators;
  report.collectives += counts.collectives;
  report.buckets += counts.buckets;
  report.left_out += counts.left_out;
  report.clock_error = std::max(report.clock_error, static_cast<double>(counts.clock_error_ns) * 1e-9);
}

void write(const std::string& path, const std::vector<std::string>& events, double error_s) {
  std::ofstream file(path, std::ios::trunc);
  file << "{\"displayTimeUnit\": \"ms\",\n\"otherData\": "
       << json({{"clock", "CLOCK_MONOTONIC of the lowest rank"}, {"clock_error_s", error_s}})
       << ",\n\"traceEvents\": [\n";
  for (size_t i = 0; i < events.size(); ++i) file << (i == 0 ? "" : ",\n") << events[i];
  file << "\n]}\n";
  file.close();
  if (!file)
    throw dist::Error(fmt::format("{}: {} can't be written: {}", inspect_name("timeline"), path, std::strerror(errno)));
}

/// Lets the lowest rank write the file. Throws on every rank if it can't. Collective.
void write_on_lowest_rank(Inspection& inspection, const std::vector<std::string>& events,
                          const TimelineReport& report) {
  std::string problem;
  if (inspection.rank_index() == 0) {
    try {
      write(report.path, events, report.clock_error);
    } catch (const std::exception& error) {  // thrown on every rank below
      problem = error.what();
    }
  }
  problem = inspection.exchange().gather_json(problem)[0];
  if (!problem.empty()) throw dist::Error(problem);
}

}  // namespace

TimelineReport timeline(const std::string& path, const TimelineOptions& options) {
  TimelineReport report;
  report.path = path;
  Inspection inspection({.inspector = "timeline", .object = options.name().empty() ? path : options.name()}, options);
  if (!inspection.takes_part()) return report;
  const TimelineFacts mine{.machine = dist::machine_identity()};
  if (const auto facts = inspection.exchange_facts(mine)) {
    Exchange& exchange = inspection.exchange();
    const ClockOffset offset = measure_offset(exchange, *facts);
    const TraceEvents events = look(inspection.rank(), offset);
    TimelineCounts counts = events.counts();
    counts.clock_error_ns = offset.error_ns;
    for (const json& each : exchange.gather_json(counts)) add(each.get<TimelineCounts>(), report);
    write_on_lowest_rank(inspection, exchange.gather_text(events.text()), report);
  }
  inspection.conclude(report);
  return report;
}

std::ostream& operator<<(std::ostream& out, const TimelineReport& report) {
  if (!report.findings.empty()) return session_shows_findings() ? out : out << static_cast<const Report&>(report);
  out << report.path << ": ";
  if (language() == Language::cpp) out << counted(report.cells, "cell") << ", ";
  out << counted(report.operators, "operator") << ", " << counted(report.collectives, "collective") << ", "
      << counted(report.buckets, "bucket");
  if (report.operators == 0) out << " (" << spelling::kRecordOperators.text() << ")";
  if (report.left_out > 0)
    out << "; " << counted(report.left_out, "operator") << " beyond the recording's limit left out";
  if (report.clock_error > 0) out << fmt::format("; clocks agree within {}", time_text(report.clock_error));
  return out << "; open it at ui.perfetto.dev";
}

}  // namespace lockstep::inspect
