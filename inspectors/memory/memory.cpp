#include "inspectors/memory/memory.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <stdexcept>
#include <thread>

#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/median.h"
#include "inspectors/trace/steps.h"

namespace lockstep::inspect {

// ---- the watch --------------------------------------------------------------------------------------------------------------

// LibTorch reports each allocation to whoever hangs in this place of the thread's debug information, which goes along to the
// threads that run a backward.
struct MemoryWatch::Counter : c10::MemoryReportingInfoBase {
  std::shared_ptr<dist::CollectiveLog> log;  // knows the current cell
  std::thread::id owner = std::this_thread::get_id();
  mutable std::mutex mutex;
  std::vector<PeriodMemory> periods;
  int64_t held = 0, held_at_start_of_period = 0;
  int64_t first_step = counted_steps(), last_step = first_step;
  std::vector<int64_t> held_at_step;

  static Counter*& here() {
    static thread_local Counter* counter = nullptr;
    return counter;
  }

  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    const int64_t cell = log ? log->mapping().header().cell.load(std::memory_order_relaxed) : 0;
    const int64_t step = std::this_thread::get_id() == owner ? counted_steps() : -1;
    const std::lock_guard lock(mutex);
    if (periods.empty() || periods.back().cell != cell) {
      held_at_start_of_period = held;
      periods.push_back({.cell = cell, .allocations = 0, .allocated = 0, .peak = held, .kept = 0});
    }
    if (step > last_step) {
      held_at_step.push_back(held);
      last_step = step;
    }
    PeriodMemory& period = periods.back();
    held += bytes;
    period.kept = held - held_at_start_of_period;
    period.peak = std::max(period.peak, held);
    if (bytes > 0) {
      ++period.allocations;
      period.allocated += bytes;
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  WatchedMemory counted() const {
    constexpr size_t kLast = 20;
    const std::lock_guard lock(mutex);
    WatchedMemory result{.cells = periods, .steps = last_step - first_step};
    for (PeriodMemory& each : result.cells) each.cell = dist::cell_number(each.cell);
    const auto& steps = held_at_step;
    if (steps.size() >= 3) {
      std::vector<double> growth;
      for (size_t i = steps.size() > kLast ? steps.size() - kLast : 1; i < steps.size(); ++i)
        growth.push_back(static_cast<double>(steps[i] - steps[i - 1]));
      result.growth_per_step = static_cast<int64_t>(median(growth));
    }
    return result;
  }
};

MemoryWatch::MemoryWatch() : counter_(std::make_shared<Counter>()) {
  if (Counter::here()) throw std::logic_error("inspect::watch_memory: this thread's memory is being watched already");
  if (const auto context = dist::current_context()) counter_->log = context->log();
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, counter_);
  Counter::here() = counter_.get();
}

MemoryWatch::~MemoryWatch() {
  if (!counter_) return;  // moved from
  Counter::here() = nullptr;
  // A profiler that was started since is on top: then this one stays below it, and counts for nobody.
  if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == counter_.get())
    c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
}

WatchedMemory MemoryWatch::counted() const { return counter_->counted(); }

namespace {
std::optional<MemoryWatch>& own_watch() {
  static thread_local std::optional<MemoryWatch> watch;
  return watch;
}
}  // namespace

void set_memory_watch(bool on) {
  if (on == own_watch().has_value()) return;
  if (on)
    own_watch().emplace();
  else
    own_watch().reset();
}

// ---- the report -------------------------------------------------------------------------------------------------------------

namespace detail {
void add_gradients(NamedMemory& memory, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& each : parameters)
    if (each.defined() && each.is_leaf() && each.grad().defined()) memory.tensors.emplace_back("gradient", each.grad());
}
}  // namespace detail

namespace {

using nlohmann::json;

/// A line of /proc/self/status, in bytes; 0 where there is none.
int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  return 0;
}

std::vector<TensorMemory> tensors_of(const std::vector<NamedMemory>& named) {
  std::vector<TensorMemory> result;
  std::set<const void*> seen;
  for (const NamedMemory& each : named) {
    std::map<std::pair<std::string, std::string>, size_t> place;
    for (const auto& [kind, tensor] : each.tensors) {
      const std::string device = tensor.device().str();
      const auto [found, is_new] = place.try_emplace({kind, device}, result.size());
      if (is_new) result.push_back({.name = each.name, .kind = kind, .device = device});
      TensorMemory& row = result[found->second];
      ++row.tensors;
      if (!tensor.has_storage())
        row.bytes +=
            static_cast<int64_t>(tensor.is_sparse() ? tensor._values().nbytes() + tensor._indices().nbytes() : 0);
      else if (seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
        row.bytes += static_cast<int64_t>(tensor.storage().nbytes());
    }
  }
  return result;
}

void add_device(RankMemory& memory) {
  if (!at::globalContext().hasCUDA()) return;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(at::accelerator::getDeviceIndex());
  memory.device_allocated = stats.allocated_bytes[kAll].current;
  memory.device_peak = stats.allocated_bytes[kAll].peak;
  memory.device_reserved = stats.reserved_bytes[kAll].current;
}

json optional_json(const std::optional<int64_t>& value) { return value ? json(*value) : json(); }
std::optional<int64_t> optional_number(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int64_t>());
}

json to_json(const RankMemory& memory) {
  json tensors = json::array(), watched;
  for (const TensorMemory& each : memory.tensors)
    tensors.push_back({each.name, each.kind, each.device, each.tensors, each.bytes});
  if (memory.watched) {
    json cells = json::array();
    for (const PeriodMemory& each : memory.watched->cells)
      cells.push_back({each.cell, each.allocations, each.allocated, each.peak, each.kept});
    watched = {
        {"cells", cells}, {"steps", memory.watched->steps}, {"growth", optional_json(memory.watched->growth_per_step)}};
  }
  return {{"resident", memory.resident},
          {"peak_resident", memory.peak_resident},
          {"heap_used", memory.heap_used},
          {"heap_free", memory.heap_free},
          {"device",
           {optional_json(memory.device_allocated), optional_json(memory.device_reserved),
            optional_json(memory.device_peak)}},
          {"tensors", tensors},
          {"watched", watched}};
}

RankMemory to_memory(const json& value, int rank) {
  RankMemory memory{.rank = rank};
  memory.resident = value.at("resident");
  memory.peak_resident = value.at("peak_resident");
  memory.heap_used = value.at("heap_used");
  memory.heap_free = value.at("heap_free");
  memory.device_allocated = optional_number(value.at("device").at(0));
  memory.device_reserved = optional_number(value.at("device").at(1));
  memory.device_peak = optional_number(value.at("device").at(2));
  for (const json& each : value.at("tensors"))
    memory.tensors.push_back({each.at(0), each.at(1), each.at(2), each.at(3), each.at(4)});
  if (const json& watched = value.at("watched"); !watched.is_null()) {
    memory.watched.emplace();
    memory.watched->steps = watched.at("steps");
    memory.watched->growth_per_step = optional_number(watched.at("growth"));
    for (const json& each : watched.at("cells"))
      memory.watched->cells.push_back({each.at(0), each.at(1), each.at(2), each.at(3), each.at(4)});
  }
  return memory;
}

}  // namespace

std::optional<WatchedMemory> watched_memory() {
  const MemoryWatch::Counter* counter = MemoryWatch::Counter::here();
  return counter ? std::optional(counter->counted()) : std::nullopt;
}

MemoryReport memory(const std::vector<NamedMemory>& named, const MemoryOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  MemoryReport report;
  Round round({.inspector = "memory", .object = "", .ranks = options.ranks(), .deadline = options.deadline()});
  if (!round.takes_part()) return report;
  const struct mallinfo2 heap = mallinfo2();
  RankMemory mine{.rank = round.rank(),
                  .resident = status_bytes("VmRSS"),
                  .peak_resident = status_bytes("VmHWM"),
                  .heap_used = static_cast<int64_t>(heap.uordblks + heap.hblkhd),
                  .heap_free = static_cast<int64_t>(heap.fordblks),
                  .tensors = tensors_of(named),
                  .watched = watched_memory()};
  add_device(mine);
  if (const auto all = round.open(to_json(mine)))
    for (size_t i = 0; i < all->size(); ++i) report.ranks.push_back(to_memory((*all)[i], round.ranks().ranks()[i]));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  round.close(report, options.publish());
  return report;
}

// ---- as text ----------------------------------------------------------------------------------------------------------------

namespace {

/// A row for each thing, a column for each rank.
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
  sheet.row("GPU, allocated", [](const RankMemory& m) { return size_text(m.device_allocated); });
  sheet.row("GPU, reserved", [](const RankMemory& m) { return size_text(m.device_reserved); });
  sheet.row("GPU, peak", [](const RankMemory& m) { return size_text(m.device_peak); });
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
