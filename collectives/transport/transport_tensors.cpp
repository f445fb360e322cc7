#include "collectives/transport/transport_tensors.h"

#include <ATen/ATen.h>

#include "collectives/transport/streams.h"

namespace lockstep::dist {

namespace {
/// Whether its memory is its elements, in order.
bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor plain_copy(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

template <typename Each>
std::vector<at::Tensor> for_each(const std::vector<at::Tensor>& tensors, const Each& each) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) result.push_back(each(tensor));
  return result;
}
}  // namespace

bool transport_knows(at::ScalarType type) {
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

bool nccl_knows(at::ScalarType type) {
  switch (type) {
    case at::kFloat8_e5m2:
    case at::kFloat8_e4m3fn:
      return true;
    default:
      return transport_knows(type);
  }
}

at::Tensor TransportTensors::in_known_dtype(const at::Tensor& tensor) const {
  const at::ScalarType type = tensor.scalar_type();
  if (wire_ == Wire::nccl ? nccl_knows(type) : transport_knows(type)) return tensor;
  if (tensor.is_complex() && type != at::kComplexHalf) return at::view_as_real(tensor);
  return (tensor.dim() == 0 ? tensor.view({1}) : tensor).view(at::kByte);
}

at::Tensor TransportTensors::read(const at::Tensor& tensor) {
  return in_known_dtype(is_plain(tensor) ? tensor : plain_copy(tensor));
}

at::Tensor TransportTensors::write(const at::Tensor& tensor) {
  // Some transports write with operators, which refuse tensors of inference mode outside of it.
  if (is_plain(tensor) && !tensor.is_inference()) return in_known_dtype(tensor);
  const auto options = tensor.options().memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor buffer = at::empty(tensor.sizes(), options);
  copies_.emplace_back(tensor, buffer);
  return in_known_dtype(buffer);
}

at::Tensor TransportTensors::update(const at::Tensor& tensor) {
  if (is_plain(tensor) && !tensor.is_inference()) return in_known_dtype(tensor);
  at::Tensor copy = plain_copy(tensor);
  if (copy.is_same(tensor) || copy.is_inference()) copy = copy.clone();
  copies_.emplace_back(tensor, copy);
  return in_known_dtype(copy);
}

std::vector<at::Tensor> TransportTensors::read(const std::vector<at::Tensor>& tensors) {
  return for_each(tensors, [&](const at::Tensor& each) { return read(each); });
}
std::vector<at::Tensor> TransportTensors::write(const std::vector<at::Tensor>& tensors) {
  return for_each(tensors, [&](const at::Tensor& each) { return write(each); });
}
std::vector<at::Tensor> TransportTensors::update(const std::vector<at::Tensor>& tensors) {
  return for_each(tensors, [&](const at::Tensor& each) { return update(each); });
}

void TransportTensors::unpack_all(const std::vector<at::Tensor>& to, const at::Tensor& buffer) {
  int64_t at = 0;
  for (const at::Tensor& each : to) {
    unpack(each, buffer.narrow(0, at, each.numel()));
    at += each.numel();
  }
}

std::function<void()> TransportTensors::finish() const {
  if (parts_.empty() && copies_.empty()) return {};
  return [parts = parts_, copies = copies_] {
    for (const Copies* each : {&parts, &copies})
      for (const auto& [to, from] : *each) {
        const WritableGuard writable(to);
        at::Tensor(to).copy_(from.view(to.sizes()));
        // The stream is that of whoever waits, the memory's that of the call.
        record_use_on_current_stream(to);
        record_use_on_current_stream(from);
      }
  };
}

at::Tensor flat(const at::Tensor& tensor) { return tensor.dim() == 1 ? tensor : tensor.view({tensor.numel()}); }

at::Tensor packed(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(flat(tensor));
  return parts.size() == 1 ? parts[0].clone() : at::cat(parts);
}

bool may_share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0 || !a.storage().is_alias_of(b.storage())) return false;
  const auto end = [](const at::Tensor& tensor) {
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    return static_cast<const char*>(tensor.const_data_ptr()) + (last + 1) * static_cast<int64_t>(tensor.element_size());
  };
  return static_cast<const char*>(a.const_data_ptr()) < end(b) && static_cast<const char*>(b.const_data_ptr()) < end(a);
}

}  // namespace lockstep::dist
