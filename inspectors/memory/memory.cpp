#include "inspectors/memory/memory.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include <fstream>
#include <map>
#include <set>

#include "inspectors/exchange/inspection.h"

namespace lockstep::inspect {

namespace detail {
void add_gradients(NamedMemory& memory, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& each : parameters)
    if (each.defined() && each.is_leaf() && each.grad().defined())
      memory.tensors.emplace_back(to_string(FindingKind::gradient), each.grad());
}
}  // namespace detail

namespace {

/// A field of /proc/self/status, in bytes; 0 without it.
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
    std::map<std::pair<std::string, std::string>, size_t> row_of;
    for (const auto& [kind, tensor] : each.tensors) {
      const std::string device = tensor.device().str();
      const auto [found, is_new] = row_of.try_emplace({kind, device}, result.size());
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

RankMemory look(const std::vector<NamedMemory>& named, int rank) {
  const struct mallinfo2 heap = mallinfo2();
  RankMemory memory{.rank = rank,
                    .resident = status_bytes("VmRSS"),
                    .peak_resident = status_bytes("VmHWM"),
                    .heap_used = static_cast<int64_t>(heap.uordblks + heap.hblkhd),
                    .heap_free = static_cast<int64_t>(heap.fordblks),
                    .tensors = tensors_of(named),
                    .watched = watched_memory()};
  add_device(memory);
  return memory;
}

}  // namespace

MemoryReport memory(const std::vector<NamedMemory>& named, const MemoryOptions& options) {
  MemoryReport report;
  Inspection inspection({.inspector = "memory", .object = options.name()}, options);
  if (!inspection.takes_part()) return report;
  const RankMemory mine = look(named, inspection.rank());
  if (auto facts = inspection.exchange_facts(mine)) report.ranks = *std::move(facts);  // nothing is judged
  inspection.conclude(report);
  return report;
}

}  // namespace lockstep::inspect
