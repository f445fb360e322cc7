#include "dist/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace lockstep::dist {

namespace {
std::string dtype_of(const at::Tensor& tensor) { return dtype_name(static_cast<uint8_t>(tensor.scalar_type())); }

std::string shape_of(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

bool gloo_knows(at::ScalarType type) {
  switch (type) {
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
    case at::kBool:
    case at::kBFloat16:
      return true;
    default:
      return false;
  }
}

bool bitwise(const ReduceOp& op) {
  return op.op_ == ReduceOp::BAND || op.op_ == ReduceOp::BOR || op.op_ == ReduceOp::BXOR;
}
}  // namespace

GroupEntry require_member(const char* function, const Group& group) {
  const auto context = require_context(function);
  GroupEntry entry = context->find(group);
  if (!entry.group->member())
    throw ArgumentError(fmt::format(
        "dist::{}: rank {} is not in group {} (ranks {}). Call it on those ranks only: "
        "if (dist::get_rank(group) >= 0)",
        function, context->rank(), entry.group->identity().name, RankSet(entry.group->identity().ranks).str()));
  return entry;
}

int require_rank(const char* function, const char* name, int rank, const GroupEntry& entry) {
  const auto& identity = entry.group->identity();
  const auto found = std::find(identity.ranks.begin(), identity.ranks.end(), rank);
  if (found != identity.ranks.end()) return static_cast<int>(found - identity.ranks.begin());
  throw ArgumentError(fmt::format("dist::{}: {} = {}, but group {} has ranks {} ({} counts in the default group)",
                                  function, name, rank, identity.name, RankSet(identity.ranks).str(), name));
}

void check_tensor(const char* function, const std::string& name, const at::Tensor& tensor, const GroupEntry& entry) {
  const auto complain = [&](const std::string& what) {
    throw ArgumentError(fmt::format("dist::{}: {} {}", function, name, what));
  };
  if (!tensor.defined())
    complain(
        "is undefined (the gradient of a parameter that took no part in backward, perhaps). Every rank has to give a "
        "tensor of the same shape: torch::zeros_like where there is none");
  if (tensor.is_meta())
    complain("is a meta tensor, which has no data. Materialise it first: torch::empty_like(t, device)");
  if (tensor.is_sparse() || tensor.layout() != at::kStrided)
    complain(
        "is sparse, which this operation does not take. Use t.to_dense(), or dist::all_reduce, which takes sparse "
        "tensors");
  if (tensor.device().type() != find_backend(entry.group->identity().backend).device)
    complain(fmt::format("is on {}, but backend {} of group {} takes {} tensors. Move it: t.{}", tensor.device().str(),
                         entry.group->identity().backend, entry.group->identity().name,
                         c10::DeviceTypeName(find_backend(entry.group->identity().backend).device, true),
                         tensor.device().is_cpu() ? "to(device)" : "cpu(), or choose the backend nccl"));
  if (!tensor.is_contiguous())
    complain(
        fmt::format("is not contiguous (shape {}, strides [{}]). Make a copy and put the result back: auto c = "
                    "t.contiguous(); dist::{}(c, …); t.copy_(c)",
                    shape_of(tensor), fmt::join(tensor.strides(), ", "), function));
}

void check_like(const char* function, const std::string& name, const at::Tensor& tensor, const std::string& like_name,
                const at::Tensor& like) {
  if (tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel()) return;
  throw ArgumentError(fmt::format("dist::{}: {} is {} {}, but {} is {} {}; they must have the same dtype and shape",
                                  function, name, dtype_of(tensor), shape_of(tensor), like_name, dtype_of(like),
                                  shape_of(like)));
}

void check_list_size(const char* function, const char* name, size_t size, size_t expected, const char* meaning) {
  if (size == expected) return;
  throw ArgumentError(
      fmt::format("dist::{}: {} has {} elements; it needs {}{}", function, name, size, expected, meaning));
}

at::Tensor reducible(const char* function, const at::Tensor& tensor, const ReduceOp& op, const GroupEntry& entry) {
  const auto complain = [&](const std::string& what) {
    throw ArgumentError(fmt::format("dist::{}: {}", function, what));
  };
  const char* op_text = reduce_op_name(static_cast<uint8_t>(op.op_));
  if (tensor.is_complex()) {
    if (op.op_ != ReduceOp::SUM && op.op_ != ReduceOp::AVG)
      complain(fmt::format("{} of complex numbers is not defined element by element; SUM and AVG are", op_text));
    return at::view_as_real(tensor);
  }
  if (entry.group->identity().backend != "gloo") return tensor;
  if (op.op_ == ReduceOp::PREMUL_SUM) complain("PREMUL_SUM needs the backend nccl; multiply before and use SUM");
  if (!gloo_knows(tensor.scalar_type()))
    complain(fmt::format(
        "the backend gloo can't reduce {}. Convert first: t.to(torch::kFloat32), or torch::kInt64 for integers",
        dtype_of(tensor)));
  if (op.op_ == ReduceOp::AVG && tensor.scalar_type() == at::kBool)
    complain("AVG of bool is not defined; convert first");
  if (bitwise(op) && at::isFloatingType(tensor.scalar_type()))
    complain(fmt::format("{} works on integers and bool, not on {}", op_text, dtype_of(tensor)));
  return tensor;
}

at::Tensor movable(const at::Tensor& tensor) {
  if (gloo_knows(tensor.scalar_type())) return tensor;
  if (tensor.is_complex()) return at::view_as_real(tensor);
  return (tensor.dim() == 0 ? tensor.reshape({1}) : tensor).view(at::kByte);
}

}  // namespace lockstep::dist
