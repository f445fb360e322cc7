#include "inspectors/trace/step_reductions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "collectives/log/collective_record.h"
#include "collectives/rank_context.h"
#include "collectives/watch/call_context.h"
#include "inspectors/trace/program_log.h"
#include "inspectors/trace/time_mark.h"

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
  const auto log = program_log();
  return log ? log->mapping().header().next_entry.load() : 0;
}

uint64_t collectives_begun() {
  const auto others = other_collectives.load();
  return collectives_so_far() + (others ? others() : 0);
}

void set_other_collectives(uint64_t (*count)()) { other_collectives = count; }

StepGroup group_of_dist(const dist::Group& group) {
  if (!dist::is_initialized()) return {};
  const dist::Group handle = group ? group : dist::default_group();
  return {.handle = handle, .name = dist::get_group_name(handle), .ranks = dist::session_ranks(handle)};
}

std::vector<StepReduction> reductions_since(uint64_t count, const StepGroup& group) {
  std::vector<StepReduction> result;
  const auto log = program_log();
  if (!log) return result;
  const dist::CollectiveLogReader reader(log->mapping());
  for (uint64_t entry = count; entry < collectives_so_far(); ++entry) {
    const auto record = reader.record(entry);
    if (!record || record->group != group.name) continue;
    if (record->op != "all_reduce" && record->op != "broadcast") continue;
    result.push_back({record->op, record->dtype, record->shape, record->root, record->bytes, record->on_device});
  }
  return result;
}

std::vector<StepReduction> beyond(std::vector<StepReduction> all, const std::vector<StepReduction>& without) {
  for (const StepReduction& each : without)
    if (const auto found = std::find(all.begin(), all.end(), each); found != all.end()) all.erase(found);
  return all;
}

ReductionsAlone::ReductionsAlone(const std::vector<StepReduction>& reductions, const StepGroup& group)
    : reductions_(reductions), group_(group) {
  for (const StepReduction& each : reductions_) {
    const auto device = each.on_device ? current_accelerator() : std::nullopt;
    buffers_.push_back(at::zeros(
        each.shape, at::TensorOptions().dtype(type_named(each.dtype)).device(device.value_or(at::Device(at::kCPU)))));
  }
}

void ReductionsAlone::run() const {
  const dist::CallContext call(nullptr);  // logged as a call of the inspector, not as one that a Reducer makes
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (size_t i = 0; i < reductions_.size(); ++i) {
    std::vector<at::Tensor> tensors{buffers_[i]};
    if (reductions_[i].op == "broadcast") {
      c10d::BroadcastOptions options;
      options.rootRank = std::ranges::find(group_.ranks, reductions_[i].root) - group_.ranks.begin();
      options.asyncOp = true;
      works.push_back(group_.handle->broadcast(tensors, options));
    } else {
      c10d::AllreduceOptions options;
      options.asyncOp = true;
      works.push_back(group_.handle->allreduce(tensors, options));
    }
  }
  for (const auto& work : works) work->wait();
}

}  // namespace lockstep::inspect
