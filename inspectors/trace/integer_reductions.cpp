#include "inspectors/trace/integer_reductions.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "inspectors/trace/program_log.h"

namespace lockstep::inspect {
namespace {

bool can_be_summed(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.numel() > 0 &&
         c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) && tensor.element_size() <= 4;
}

/// Sums integers of up to 32 bits in 64 bits.
int64_t sum_of(const at::Tensor& tensor) { return tensor.detach().sum(at::kLong).item<int64_t>(); }

int64_t largest_in(const at::Tensor& tensor) {
  const auto [least, most] = tensor.detach().to(at::kLong).aminmax();
  return std::max(-least.item<int64_t>(), most.item<int64_t>());
}

bool is_running(const dist::CollectiveRecord& call) {
  const auto log = program_log();
  if (!log) return false;
  const auto now = dist::CollectiveLogReader(log->mapping()).record(call.entry);
  return now && now->state == dist::CollectiveState::entered;
}

}  // namespace

int64_t modulus_of(const std::string& dtype) {
  if (dtype == "uint8" || dtype == "int8") return int64_t{1} << 8;
  if (dtype == "uint16" || dtype == "int16") return int64_t{1} << 16;
  if (dtype == "uint32" || dtype == "int32") return int64_t{1} << 32;
  return 0;
}

int64_t largest_of(const std::string& dtype) { return modulus_of(dtype) / (dtype.starts_with("u") ? 1 : 2) - 1; }

bool may_overflow(const IntegerReduction& reduction, size_t ranks) {
  return reduction.largest > largest_of(reduction.call.dtype) / static_cast<int64_t>(ranks);
}

void IntegerReductions::begins(int32_t entry, const std::string& op, const at::Tensor& tensor, const CallSite& site) {
  if (op != "c10d::allreduce_" && op != "c10d::reduce_") return;
  if (!can_be_summed(tensor)) return;
  open_.push_back(
      {.entry = entry,
       .index = all_.size(),
       .tensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>(tensor.getIntrusivePtr())});
  all_.push_back(
      {.call = {}, .site = site, .input_sum = sum_of(tensor), .output_sum = {}, .largest = largest_in(tensor)});
}

void IntegerReductions::began(int32_t entry, const std::optional<dist::CollectiveRecord>& call) {
  if (open_.empty() || open_.back().entry != entry) return;
  if (call && call->reduce_op == "SUM" && call->tensor_count == 1) {
    all_[open_.back().index].call = *call;
    return;
  }
  all_.pop_back();
  open_.pop_back();
}

void IntegerReductions::look(int32_t entry) {
  const auto found = std::ranges::find(open_, entry, &Open::entry);
  if (found == open_.end()) return;
  IntegerReduction& reduction = all_[found->index];
  if (auto held = found->tensor.lock(); held && !is_running(reduction.call)) {
    const at::Tensor tensor(std::move(held));
    // Only the root of a reduce gets the result.
    const auto log = program_log();
    if (tensor.defined() && (reduction.call.root < 0 || (log && reduction.call.root == log->mapping().header().rank)))
      reduction.output_sum = sum_of(tensor);
  }
  open_.erase(found);
}

void IntegerReductions::end() {
  while (!open_.empty()) look(open_.back().entry);
}

}  // namespace lockstep::inspect
