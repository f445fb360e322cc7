#include "inspectors/memory/memory.h"

#include <ATen/ATen.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>

#include "ddp/readable_reducer.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/exchange/participants.h"
#include "inspectors/memory/device.h"
#include "inspectors/memory/findings.h"
#include "protocol/environment.h"

namespace lockstep::inspect {

namespace detail {

void add_gradient(NamedMemory& memory, std::string name, const at::Tensor& parameter) {
  if (parameter.defined() && parameter.is_leaf() && parameter.grad().defined())
    memory.tensors.push_back({std::string(to_string(FindingKind::gradient)), parameter.grad(), std::move(name)});
}

void add_gradients(NamedMemory& memory, const torch::OrderedDict<std::string, at::Tensor>& parameters) {
  for (const auto& each : parameters) add_gradient(memory, each.key(), each.value());
}

void add_buckets(NamedMemory& memory, const ddp::DistributedModule& wrapper) {
  // Every wrapper makes this kind (ddp/reducer_factory.h).
  const auto reducer = std::static_pointer_cast<ddp::detail::ReadableReducer>(wrapper.reducer());
  if (!reducer) return;
  for (const c10d::GradBucket& bucket : reducer->read_buckets())
    if (const at::Tensor& buffer = bucket.getBuffer(); buffer.defined() && buffer.has_storage())
      memory.tensors.push_back({"bucket", buffer, std::to_string(bucket.getIndex())});
}

}  // namespace detail

namespace {

/// Returns a field of /proc/self/status, in bytes; 0 without it.
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
    for (const auto& [kind, tensor, name] : each.tensors) {
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

RankMemory look(const std::vector<NamedMemory>& named, int rank) {
  const struct mallinfo2 heap = mallinfo2();
  RankMemory memory{.rank = rank,
                    .pid = ::getpid(),
                    .host = protocol::host_name(),
                    .resident = status_bytes("VmRSS"),
                    .peak_resident = status_bytes("VmHWM"),
                    .heap_used = static_cast<int64_t>(heap.uordblks + heap.hblkhd),
                    .heap_free = static_cast<int64_t>(heap.fordblks),
                    .device = device_memory(),
                    .tensors = tensors_of(named),
                    .watched = watched_memory()};
  return memory;
}

}  // namespace

MemoryReport memory(const std::vector<NamedMemory>& named, const MemoryOptions& options) {
  MemoryReport report;
  Inspection inspection({.inspector = "memory", .object = options.name()}, options);
  if (!inspection.takes_part()) return report;
  RankMemory mine = look(named, inspection.rank());
  // Ranks that do not take part would count as other programs.
  if (mine.device && inspection.ranks() != live_ranks()) mine.device->processes.clear();
  if (auto facts = inspection.exchange_facts(mine)) {
    report.ranks = *std::move(facts);
    inspection.add(memory_findings(inspection.about(), report.ranks));
  }
  inspection.conclude(report);
  return report;
}

}  // namespace lockstep::inspect
