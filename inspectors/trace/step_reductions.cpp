#include "inspectors/trace/step_reductions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "collectives/rank_context.h"
#include "collectives/transport/backend_config.h"

namespace lockstep::inspect {
namespace {

std::atomic<uint64_t (*)()> other_collectives{nullptr};

at::ScalarType type_named(const std::string& name) {
  for (uint8_t type = 0; type < static_cast<uint8_t>(at::ScalarType::NumOptions); ++type)
    if (name == dist::dtype_name(type)) return static_cast<at::ScalarType>(type);
  throw dist::ArgumentError("the collective log names a dtype that this LibTorch does not have: " + name);
}

}  // namespace

uint64_t collectives_so_far() {
  const auto context = dist::current_context();
  return context ? context->log()->mapping().header().next_entry.load() : 0;
}

uint64_t collectives_begun() {
  const auto others = other_collectives.load();
  return collectives_so_far() + (others ? others() : 0);
}

void set_other_collectives(uint64_t (*count)()) { other_collectives = count; }

std::vector<StepReduction> reductions_since(uint64_t count, const dist::Group& group) {
  std::vector<StepReduction> result;
  const auto context = dist::current_context();
  if (!context) return result;
  const std::string name = dist::get_group_name(group);
  const dist::CollectiveLogReader reader(context->log()->mapping());
  for (uint64_t entry = count; entry < collectives_so_far(); ++entry) {
    const auto record = reader.record(entry);
    if (!record || record->group != name) continue;
    if (record->op != "all_reduce" && record->op != "broadcast") continue;
    result.push_back({record->op, record->dtype, record->shape, record->root, record->bytes});
  }
  return result;
}

std::vector<StepReduction> beyond(std::vector<StepReduction> all, const std::vector<StepReduction>& without) {
  for (const StepReduction& each : without)
    if (const auto found = std::find(all.begin(), all.end(), each); found != all.end()) all.erase(found);
  return all;
}

ReductionsAlone::ReductionsAlone(const std::vector<StepReduction>& reductions, dist::Group group)
    : reductions_(reductions), group_(std::move(group)) {
  // Its current device, if the backend takes tensors of one.
  const dist::BackendConfig backend(dist::get_backend(group_));
  const dist::BackendConfig::Part* const part = backend.device_part();
  const c10::DeviceType device = part ? part->device : c10::DeviceType::CPU;
  for (const StepReduction& each : reductions_)
    buffers_.push_back(at::zeros(each.shape, at::TensorOptions().dtype(type_named(each.dtype)).device(device)));
}

void ReductionsAlone::run() const {
  std::vector<dist::Work> works;
  for (size_t i = 0; i < reductions_.size(); ++i)
    works.push_back(reductions_[i].op == "broadcast"
                        ? dist::broadcast(buffers_[i], reductions_[i].root, group_, /*async_op=*/true)
                        : dist::all_reduce(buffers_[i], dist::ReduceOp::SUM, group_, /*async_op=*/true));
  for (const dist::Work& work : works) work.wait();
}

}  // namespace lockstep::inspect
