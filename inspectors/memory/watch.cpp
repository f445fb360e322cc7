// Counts allocations, and the growth from step to step.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "collectives/watch/spelling.h"
#include "inspectors/findings/median.h"
#include "inspectors/memory/memory.h"
#include "inspectors/trace/steps.h"
#include "protocol/error.h"

namespace lockstep::inspect {

// LibTorch reports each allocation to this entry of the thread's debug information, which the threads of a backward
// inherit.
struct MemoryWatch::Counter : c10::MemoryReportingInfoBase {
  std::shared_ptr<dist::CollectiveLog> log;  // has the current cell
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
  if (Counter::here()) throw Error(inspect_name("watch_memory") + ": the memory of this thread is already watched");
  if (const auto context = dist::current_context()) counter_->log = context->log();
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, counter_);
  Counter::here() = counter_.get();
}

MemoryWatch::~MemoryWatch() {
  if (!counter_) return;  // moved from
  Counter::here() = nullptr;
  // If a profiler was started since, it is on top of this entry, which then stays without effect.
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

std::optional<WatchedMemory> watched_memory() {
  const MemoryWatch::Counter* counter = MemoryWatch::Counter::here();
  return counter ? std::optional(counter->counted()) : std::nullopt;
}

}  // namespace lockstep::inspect
