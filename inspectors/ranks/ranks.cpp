#include "inspectors/ranks/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/text.h"
#include "inspectors/ranks/findings.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// Adds the functions of cells whose code differs between ranks. Collective; exchanges nothing without such cells.
void exchange_cell_code(std::vector<RankIdentity>& identities, Exchange& exchange) {
  const std::vector<std::string> cells = cells_that_differ(identities);
  if (cells.empty()) return;
  json mine = json::object();
  for (const std::string& cell : cells) mine[cell] = code_of_cell(std::stoll(cell.substr(5)));
  const std::vector<std::string> all = exchange.gather_text(mine.dump(-1, ' ', false, json::error_handler_t::replace));
  for (size_t i = 0; i < all.size(); ++i)
    identities[i].cells = json::parse(all[i]).get<std::map<std::string, CellCode>>();
}

}  // namespace

RanksReport ranks(const RanksOptions& options) {
  RanksReport report;
  Inspection inspection({.inspector = "ranks", .object = options.name()}, options);
  if (!inspection.takes_part()) return report;
  const RankIdentity mine = own_identity();
  if (const auto identities = inspection.exchange_facts(mine)) {
    report.identities = *identities;
    exchange_cell_code(report.identities, inspection.exchange());
    inspection.add(ranks_findings(inspection.about(), report.identities));
  }
  inspection.conclude(report);
  return report;
}

RanksReport ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size, const RanksOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  c10d::PrefixStore arrivals("inspect/ranks", store);
  const auto key_of = [](int64_t arrival) { return fmt::format("arrival-{}", arrival); };
  RankIdentity mine = own_identity();
  mine.rank = rank;
  mine.world_size = world_size;
  // Each process takes a number of its own, which does not depend on its rank.
  const int64_t arrival = arrivals.add("arrivals", 1) - 1;
  arrivals.set(key_of(arrival), json::to_cbor(mine));
  std::vector<std::string> keys;
  for (int64_t i = 0; i < world_size; ++i) keys.push_back(key_of(i));
  try {
    arrivals.wait(keys, options.deadline());
  } catch (const std::exception&) {
    // Some processes did not call: a finding names their ranks. A store that is gone throws below.
  }
  RanksReport report;
  const int64_t arrived = arrivals.add("arrivals", 0);
  for (int64_t i = 0; i < arrived; ++i)
    if (arrivals.check({key_of(i)}))
      report.identities.push_back(json::from_cbor(arrivals.get(key_of(i))).get<RankIdentity>());
  std::stable_sort(report.identities.begin(), report.identities.end(),
                   [](const RankIdentity& a, const RankIdentity& b) { return a.rank < b.rank; });
  const About about{.inspector = "ranks", .object = {}, .step = {}, .ranks = RankSet::all(world_size)};
  report.findings = ranks_findings(about, report.identities);
  report.took_part = RankSet::all(world_size);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
                    text_of(each.versions, "LibTorch")});
  out << table_text(rows);
  return session_shows_findings() ? out : out << static_cast<const Report&>(report);
}

}  // namespace lockstep::inspect
