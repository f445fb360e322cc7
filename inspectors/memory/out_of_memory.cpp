#include "inspectors/memory/memory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "inspectors/findings/text.h"
#include "inspectors/memory/device.h"
#include "inspectors/memory/findings.h"

namespace lockstep::inspect {
namespace {

constexpr size_t kShown = 12;  // holders

std::vector<MemoryHolder> holders_of(const std::vector<NamedMemory>& named, c10::Device device) {
  std::vector<MemoryHolder> holders;
  std::set<const void*> seen;
  for (const NamedMemory& variable : named) {
    std::map<std::string, size_t> row_of;
    for (const NamedTensor& each : variable.tensors) {
      if (!each.tensor.has_storage() || each.tensor.device() != device) continue;
      if (!seen.insert(each.tensor.storage().unsafeGetStorageImpl()).second) continue;
      const auto [found, is_new] = row_of.try_emplace(each.kind, holders.size());
      if (is_new) holders.push_back({.name = variable.name, .kind = each.kind});
      MemoryHolder& holder = holders[found->second];
      const auto bytes = static_cast<int64_t>(each.tensor.storage().nbytes());
      ++holder.tensors;
      holder.bytes += bytes;
      if (bytes <= holder.largest_bytes) continue;
      holder.largest_bytes = bytes;
      holder.largest =
          fmt::format("{}{}[{}]", each.name, each.name.empty() ? "" : " ", fmt::join(each.tensor.sizes().vec(), ", "));
    }
  }
  std::ranges::stable_sort(holders, std::ranges::greater(), &MemoryHolder::bytes);
  return holders;
}

}  // namespace

OutOfMemoryReport out_of_memory(const std::vector<NamedMemory>& named, c10::Device device) {
  return {
      .device = device.str(), .holders = holders_of(named, device), .memory = device_memory(device), .pid = ::getpid()};
}

OutOfMemoryReport out_of_memory(const std::vector<NamedMemory>& named) {
  std::optional<DeviceMemory> memory = device_memory();
  const c10::Device device = memory ? c10::Device(memory->device) : c10::Device(c10::kCPU);
  return {.device = device.str(), .holders = holders_of(named, device), .memory = std::move(memory), .pid = ::getpid()};
}

std::ostream& operator<<(std::ostream& out, const OutOfMemoryReport& report) {
  out << fmt::format("variables that hold memory on {}{}\n", report.device, report.holders.empty() ? ": none" : "");
  std::vector<std::vector<std::string>> rows = {{"  variable", "memory", "tensors", "largest"}};
  int64_t named = 0, more = 0;
  for (size_t i = 0; i < report.holders.size(); ++i) {
    const MemoryHolder& each = report.holders[i];
    named += each.bytes;
    if (i >= kShown)
      more += each.bytes;
    else
      rows.push_back({fmt::format("  {}: {}s", each.name, each.kind), memory_text(each.bytes),
                      std::to_string(each.tensors),
                      fmt::format("{}, {}", each.largest, memory_text(each.largest_bytes))});
  }
  if (more > 0) rows.push_back({fmt::format("  {} others", report.holders.size() - kShown), memory_text(more), "", ""});
  if (rows.size() > 1) out << table_text(rows);
  if (!report.memory) return out;
  const DeviceMemory& memory = *report.memory;
  if (memory.allocated > named)
    out << fmt::format("in no variable: {} of the {} that LibTorch has allocated\n",
                       memory_text(memory.allocated - named), memory_text(memory.allocated));
  if (memory.peak > memory.allocated)
    out << fmt::format("freed since, such as activations: {} (the peak was {})\n",
                       memory_text(memory.peak - memory.allocated), memory_text(memory.peak));
  if (memory.reserved > memory.allocated) {
    out << fmt::format("reserved by LibTorch and free: {}", memory_text(memory.reserved - memory.allocated));
    if (memory.split) out << fmt::format(", of which {} in split blocks", memory_text(*memory.split));
    if (memory.largest_free) out << fmt::format("; the largest free block has {}", memory_text(*memory.largest_free));
    out << '\n';
  }
  if (memory.used && memory.total)
    out << fmt::format("the device: {} of {} in use by all processes\n", memory_text(*memory.used),
                       memory_text(*memory.total));
  // Other ranks on the same GPU are among them here: no rank is asked.
  std::string others;
  if (std::ranges::any_of(memory.processes, [&](const auto& each) { return each.pid == report.pid; }))
    for (const gpus::GpuProcess& each : memory.processes)
      if (each.pid != report.pid) others += (others.empty() ? "" : ", ") + program_text(each);
  if (!others.empty()) out << "other processes on it: " << others << '\n';
  return out;
}

}  // namespace lockstep::inspect
