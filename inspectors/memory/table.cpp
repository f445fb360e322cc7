// Writes the report as a table: a row for each quantity, a column for each rank.
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "inspectors/findings/text.h"
#include "inspectors/memory/findings.h"
#include "inspectors/memory/memory.h"

namespace lockstep::inspect {
namespace {

class Sheet {
 public:
  explicit Sheet(const MemoryReport& report) : report_(report) {
    rows_.push_back({""});
    for (const RankMemory& each : report.ranks) rows_[0].push_back(fmt::format("rank {}", each.rank));
  }
  template <typename Value>
  void row(const std::string& name, const Value& value) {
    std::vector<std::string> row = {name};
    bool any = false;
    for (const RankMemory& each : report_.ranks) {
      const std::optional<std::string> text = value(each);
      any = any || text;
      row.push_back(text.value_or("-"));
    }
    if (any) rows_.push_back(std::move(row));
  }
  std::string text() const { return table_text(rows_); }

 private:
  const MemoryReport& report_;
  std::vector<std::vector<std::string>> rows_;
};

/// Adds a row of the device's memory, for ranks that use one.
template <typename Value>
auto of_device(const Value& value) {
  return [value](const RankMemory& memory) -> std::optional<std::string> {
    return memory.device ? value(*memory.device) : std::nullopt;
  };
}

std::optional<std::string> size_text(const std::optional<int64_t>& bytes) {
  if (!bytes) return std::nullopt;
  return bytes_text(static_cast<double>(*bytes));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) {
  Sheet sheet(report);
  sheet.row("process, resident", [](const RankMemory& m) { return size_text(m.resident); });
  sheet.row("process, peak", [](const RankMemory& m) { return size_text(m.peak_resident); });
  sheet.row("malloc, in use", [](const RankMemory& m) { return size_text(m.heap_used); });
  sheet.row("malloc, free", [](const RankMemory& m) { return size_text(m.heap_free); });
  sheet.row("device", of_device([](const DeviceMemory& d) { return std::optional(d.device); }));
  sheet.row("device, in use by all", of_device([](const DeviceMemory& d) -> std::optional<std::string> {
              if (!d.used || !d.total) return std::nullopt;
              return fmt::format("{} of {}", *size_text(d.used), *size_text(d.total));
            }));
  sheet.row("device, by other programs",
            [&](const RankMemory& m) { return size_text(memory_of_other_programs(m, report.ranks)); });
  sheet.row("LibTorch, allocated", of_device([](const DeviceMemory& d) { return size_text(d.allocated); }));
  sheet.row("LibTorch, peak", of_device([](const DeviceMemory& d) { return size_text(d.peak); }));
  sheet.row("LibTorch, reserved", of_device([](const DeviceMemory& d) {
              return std::optional(fmt::format("{} in {}", *size_text(d.reserved), d.segments));
            }));
  sheet.row("LibTorch, free in split blocks", of_device([](const DeviceMemory& d) { return size_text(d.split); }));
  sheet.row("LibTorch, largest free block", of_device([](const DeviceMemory& d) { return size_text(d.largest_free); }));
  const bool had_retries = std::ranges::any_of(
      report.ranks, [](const RankMemory& m) { return m.device && m.device->retries + m.device->failures > 0; });
  if (had_retries)
    sheet.row("LibTorch, retries, failures", of_device([](const DeviceMemory& d) {
                return std::optional(fmt::format("{}, {}", d.retries, d.failures));
              }));
  std::vector<std::pair<std::string, std::string>> things;
  std::vector<int64_t> cells;
  const auto add = [](auto& list, const auto& value) {
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  };
  for (const RankMemory& rank : report.ranks) {
    for (const TensorMemory& each : rank.tensors) add(things, std::pair(each.name, each.kind));
    if (rank.watched)
      for (const PeriodMemory& each : rank.watched->cells) add(cells, each.cell);
  }
  for (const auto& [name, kind] : things)
    sheet.row(fmt::format("{}: {}s", name, kind), [&](const RankMemory& m) -> std::optional<std::string> {
      int64_t bytes = 0, tensors = 0;
      for (const TensorMemory& each : m.tensors) {
        if (each.name != name || each.kind != kind) continue;
        bytes += each.bytes;
        tensors += each.tensors;
      }
      if (tensors == 0) return std::nullopt;
      return fmt::format("{} in {}", *size_text(bytes), tensors);
    });
  for (const int64_t cell : cells)
    sheet.row(cell > 0 ? fmt::format("cell {}: peak, kept", cell) : "program: peak, kept",
              [&](const RankMemory& m) -> std::optional<std::string> {
                if (!m.watched) return std::nullopt;
                int64_t peak = 0, kept = 0;
                bool ran = false;
                for (const PeriodMemory& each : m.watched->cells) {
                  if (each.cell != cell) continue;
                  ran = true;
                  peak = std::max(peak, each.peak);
                  kept += each.kept;
                }
                if (!ran) return std::nullopt;
                return fmt::format("{}, {}", *size_text(peak), *size_text(kept));
              });
  sheet.row("growth per step",
            [](const RankMemory& m) { return m.watched ? size_text(m.watched->growth_per_step) : std::nullopt; });
  return out << sheet.text();
}

}  // namespace lockstep::inspect
