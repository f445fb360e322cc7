#include "collectives/watch/arguments.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/transport/libtorch_version.h"
#include "collectives/transport/transport_tensors.h"
#include "collectives/watch/spelling.h"

namespace lockstep::dist {

namespace {
std::string dtype_of(const at::Tensor& tensor) { return dtype_name(static_cast<uint8_t>(tensor.scalar_type())); }

std::string shape_of(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

/// Returns the dtype nearest to a tensor's that every transport reduces, as the user writes it.
const char* like_dtype(const at::Tensor& tensor) {
  if (tensor.is_complex()) return spelling::kComplex.text();
  return (at::isFloatingType(tensor.scalar_type()) ? spelling::kFloat : spelling::kInteger).text();
}

bool bitwise(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR || op.op_ == c10d::ReduceOp::BXOR;
}

[[noreturn]] void complain(const char* function, const std::string& what) {
  throw ArgumentError(fmt::format("{}: {}", dist_name(function), what));
}

constexpr std::string_view kNccl = "nccl";

/// Throws for what ProcessGroupNCCL refuses, or would reduce as bytes.
void check_nccl_reduction(const char* function, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const char* op_text = reduce_op_name(static_cast<uint8_t>(op.op_));
  const at::ScalarType type = c10::toRealValueType(tensor.scalar_type());
  if (!nccl_knows(type) || tensor.scalar_type() == at::kComplexHalf)
    complain(function, fmt::format("the backend nccl can't reduce {}. Convert first: t.to({})", dtype_of(tensor),
                                   like_dtype(tensor)));
  if (bitwise(op))
    complain(function,
             fmt::format("the backend nccl has no {}; reduce a copy on the CPU in a group of gloo, or use MIN "
                         "or MAX of each bit",
                         op_text));
  if (op.op_ == c10d::ReduceOp::AVG && type == at::kBool)
    complain(function, fmt::format("AVG of bool is not defined; convert first: t.to({})", spelling::kFloat.text()));
}

void check_device(const char* function, const std::string& name, const at::Tensor& tensor, const std::string& like_name,
                  const at::Tensor& like) {
  if (tensor.device() == like.device()) return;
  complain(function, fmt::format("{} is on {}, but {} is on {}; all must be on one device", name, tensor.device().str(),
                                 like_name, like.device().str()));
}

/// A tensor can outlive its memory: storage().resize_(0), as sharded training does it.
bool has_memory(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return false;
  if (tensor.numel() == 0) return true;
  const size_t needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                                         static_cast<size_t>(tensor.storage_offset()));
  return tensor.storage().nbytes() >= needed && tensor.storage().data() != nullptr;
}
}  // namespace

void check_tensor(const char* function, const std::string& name, const at::Tensor& tensor,
                  const WatchedGroup::Identity& group, Use use) {
  const auto complain = [&](const std::string& what) {
    throw ArgumentError(fmt::format("{}: {} {}", dist_name(function), name, what));
  };
  if (!tensor.defined())
    complain(
        fmt::format("is undefined (the gradient of a parameter that took no part in backward, perhaps). Every rank has "
                    "to give a tensor of the same shape: {} where there is none",
                    torch_name("zeros_like")));
  if (tensor.is_meta())
    complain(fmt::format("is a meta tensor, which has no data. Materialise it first: {}(t, {})",
                         torch_name("empty_like"), spelling::kDevice.text()));
  if (tensor.is_sparse())
    complain(fmt::format(
        "is sparse, which this operation does not take. Use t.to_dense(), or {}, which takes sparse tensors",
        dist_name("all_reduce")));
  if (tensor.layout() != at::kStrided || tensor.is_nested())
    complain(fmt::format("has the layout {}, which no collective takes. Use {}",
                         tensor.is_nested() ? "nested" : c10::str(tensor.layout()),
                         tensor.is_nested() ? "t.values() and the offsets" : "t.to_dense()"));
#if LOCKSTEP_ATEN_HAS_NAMED_DIMENSIONS
  if (tensor.has_names())
    complain(fmt::format("has named dimensions, which no collective takes. Use {}", spelling::kUnnamed.text()));
#endif
  if (tensor.is_quantized())
    complain("is quantized, which no collective takes. Send t.int_repr(), the scale and the zero point");
  if (!group.backend.part_for(tensor.device().type()))
    complain(fmt::format("is on {}, but backend {} of group {} takes {} tensors. Move it: t.{}", tensor.device().str(),
                         group.backend.str(), group.name,
                         c10::DeviceTypeName(group.backend.parts().front().device, true),
                         tensor.device().is_cpu() ? "to(device)" : "cpu(), or choose the backend nccl"));
  if (tensor._is_zerotensor() || !has_memory(tensor))
    complain(
        fmt::format("has a shape but no memory behind it (its storage was released, or never there). Give it memory: "
                    "t.clone() where that works, or {}(t)",
                    torch_name("empty_like")));
  // c10's dispatcher gives the operations of c10d a copy, so that the result would be lost.
  if (use != Use::read && (tensor.is_conj() || tensor.is_neg()))
    complain(
        fmt::format("is a {} view, which is only computed when it is read, and is written to. Give a tensor of its "
                    "own: t.{}()",
                    tensor.is_conj() ? "conjugate" : "negative", tensor.is_conj() ? "resolve_conj" : "resolve_neg"));
  if (use != Use::read && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    complain(
        fmt::format("has one element in several places (shape {}, strides [{}]: expand() makes such), and is written "
                    "to. Give a tensor of its own: t.clone()",
                    shape_of(tensor), fmt::join(tensor.strides(), ", ")));
}

void check_sparse(const char* function, const std::string& name, const at::Tensor& tensor, const c10d::ReduceOp& op,
                  const WatchedGroup::Identity& group) {
  const auto complain = [&](const std::string& what) {
    throw ArgumentError(fmt::format("{}: {} {}", dist_name(function), name, what));
  };
  if (op.op_ != c10d::ReduceOp::SUM)
    throw ArgumentError(fmt::format("{}: sparse tensors can be summed only; {} of {} needs t.to_dense()",
                                    dist_name(function), reduce_op_name(static_cast<uint8_t>(op.op_)), name));
  const BackendConfig::Part* const part = group.backend.part_for(tensor.device().type());
  if (!part || part->device != tensor.device().type())
    complain(
        fmt::format("is sparse and on {}; backend {} of group {} takes sparse tensors of the CPU. Use t.cpu(), or "
                    "t.to_dense()",
                    tensor.device().str(), group.backend.str(), group.name));
  if (part->backend == kNccl || (part->works_as_gloo() && part->device != c10::DeviceType::CPU))
    complain(fmt::format("is sparse, which the backend {} can't sum. Use t.to_dense()", part->backend));
  if (!part->works_as_gloo()) return;
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kInt:
    case at::kLong:
      break;
    default:
      complain(
          fmt::format("is sparse and {}, which the backend gloo can't sum: it sums sparse float32, float64, int32 "
                      "and int64. Convert first: t.to({}), or use t.to_dense()",
                      dtype_of(tensor), spelling::kFloat.text()));
  }
  if (tensor.sparse_dim() < 1 || tensor.sparse_dim() > 4 || tensor.dense_dim() > 4)
    complain(
        fmt::format("has {} sparse and {} dense dimensions; the backend gloo takes 1 to 4 sparse and up to 4 dense "
                    "ones. Use t.to_dense()",
                    tensor.sparse_dim(), tensor.dense_dim()));
  if (tensor.numel() == 0)
    complain(fmt::format("is sparse with the shape {}, which has no elements. Leave the call out on every rank",
                         shape_of(tensor)));
}

void check_like(const char* function, const std::string& name, const at::Tensor& tensor, const std::string& like_name,
                const at::Tensor& like) {
  check_device(function, name, tensor, like_name, like);
  if (tensor.scalar_type() == like.scalar_type() && tensor.sizes() == like.sizes()) return;
  throw ArgumentError(fmt::format("{}: {} is {} {}, but {} is {} {}; they must have the same dtype and shape",
                                  dist_name(function), name, dtype_of(tensor), shape_of(tensor), like_name,
                                  dtype_of(like), shape_of(like)));
}

void check_dtype(const char* function, const std::string& name, const at::Tensor& tensor, const std::string& like_name,
                 const at::Tensor& like) {
  check_device(function, name, tensor, like_name, like);
  if (tensor.scalar_type() == like.scalar_type()) return;
  throw ArgumentError(fmt::format("{}: {} is {}, but {} is {}; all must have one dtype", dist_name(function), name,
                                  dtype_of(tensor), like_name, dtype_of(like)));
}

void check_stacked(const char* function, const std::string& name, const at::Tensor& stacked,
                   const std::string& part_name, const at::Tensor& part, const WatchedGroup::Identity& group) {
  check_device(function, name, stacked, part_name, part);
  const int64_t size = static_cast<int64_t>(group.ranks.size());
  if (stacked.numel() == part.numel() * size && stacked.scalar_type() == part.scalar_type()) return;
  throw ArgumentError(fmt::format("{}: {} has {} elements of {}; it needs {} of {} (group size × those of {})",
                                  dist_name(function), name, stacked.numel(), dtype_of(stacked), part.numel() * size,
                                  dtype_of(part), part_name));
}

void check_list_size(const char* function, const std::string& name, size_t size, size_t expected, const char* meaning) {
  if (size == expected) return;
  throw ArgumentError(
      fmt::format("{}: {} has {} elements; it needs {}{}", dist_name(function), name, size, expected, meaning));
}

void check_distinct(const char* function, const std::string& name, const std::vector<at::Tensor>& list) {
  struct Span {
    const char *begin, *end;
    size_t index;
  };
  std::vector<Span> spans;
  for (size_t i = 0; i < list.size(); ++i) {
    // Tensors with gaps may lie between one another.
    if (!list[i].is_contiguous() || list[i].numel() == 0) continue;
    const char* begin = static_cast<const char*>(list[i].const_data_ptr());
    spans.push_back({begin, begin + list[i].nbytes(), i});
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].begin >= spans[i - 1].end) continue;
    const auto [first, second] = std::minmax(spans[i - 1].index, spans[i].index);
    throw ArgumentError(
        fmt::format("{}: {} and {} share memory, so that one result would overwrite the other. Each needs a "
                    "tensor of its own: {} holds one tensor n times",
                    dist_name(function), element(name, first), element(name, second), spelling::kSameTensors.text()));
  }
}

void check_reduction(const char* function, const at::Tensor& tensor, const c10d::ReduceOp& op,
                     const WatchedGroup::Identity& group) {
  const char* op_text = reduce_op_name(static_cast<uint8_t>(op.op_));
  if (op.op_ == c10d::ReduceOp::UNUSED) complain(function, "the reduce operation is UNUSED, which is none");
  if (tensor.is_complex() && op.op_ != c10d::ReduceOp::SUM && op.op_ != c10d::ReduceOp::AVG)
    complain(function,
             fmt::format("{} of complex numbers is not defined element by element; SUM and AVG are", op_text));
  const BackendConfig::Part* const part = group.backend.part_for(tensor.device().type());
  if (part && part->backend == kNccl) return check_nccl_reduction(function, tensor, op);
  if (!part || !part->works_as_gloo()) return;
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM)
    complain(function, "PREMUL_SUM needs the backend nccl; multiply before (t.mul_(factor)) and use SUM");
  const at::ScalarType type = c10::toRealValueType(tensor.scalar_type());
  if (!transport_knows(type) || tensor.scalar_type() == at::kComplexHalf)
    complain(function, fmt::format("the backend gloo can't reduce {}. Convert first: t.to({})", dtype_of(tensor),
                                   like_dtype(tensor)));
  if (op.op_ == c10d::ReduceOp::AVG && type == at::kBool)
    complain(function, fmt::format("AVG of bool is not defined; convert first: t.to({})", spelling::kFloat.text()));
  if (bitwise(op) && at::isFloatingType(type))
    complain(function, fmt::format("{} works on integers and bool, not on {}", op_text, dtype_of(tensor)));
}

void check_splits(const char* function, const std::string& name, const at::Tensor& tensor,
                  const std::vector<int64_t>& splits, size_t size) {
  if (tensor.dim() == 0)
    complain(function, fmt::format("{} has no dimension that could be split; reshape it: t.view({{1}})", name));
  const int64_t rows = tensor.size(0);
  if (splits.empty()) {
    if (rows % static_cast<int64_t>(size) == 0) return;
    complain(function,
             fmt::format("{} has {} rows, which {} ranks can't share evenly; give the split sizes", name, rows, size));
  }
  check_list_size(function, fmt::format("the split sizes of {}", name), splits.size(), size,
                  ", one for each rank of the group");
  int64_t sum = 0;
  for (const int64_t split : splits) {
    if (split < 0 || split > rows)
      complain(function, fmt::format("the split sizes of {} hold {}, but it has {} rows", name, split, rows));
    sum += split;
  }
  if (sum != rows)
    complain(function, fmt::format("the split sizes of {} add up to {}, but it has {} rows", name, sum, rows));
}

void check_tag(const char* function, int tag) {
  if (tag < 0) complain(function, fmt::format("tag = {}; tags go from 0", tag));
}

void check_limit(const char* function, const char* name, std::chrono::milliseconds limit) {
  if (limit.count() <= 0)
    complain(function, fmt::format("{} = {} ms; a time limit is more than nothing", name, limit.count()));
}

std::string element(const std::string& list, size_t index) { return fmt::format("{}[{}]", list, index); }

}  // namespace lockstep::dist
