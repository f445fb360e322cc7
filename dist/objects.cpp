// Values that are no tensors: their sizes first, then their bytes, padded to the longest.
#include <fmt/format.h>

#include <algorithm>

#include "dist/arguments.h"
#include "dist/call_context.h"
#include "dist/dist.h"

namespace lockstep::dist::detail {

namespace {
using Bytes = std::vector<uint8_t>;

at::Tensor padded(const Bytes& bytes, int64_t size) {
  at::Tensor tensor = at::zeros({size}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<uint8_t>());
  return tensor;
}

at::Tensor length_of(const Bytes& bytes) { return at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong); }

Bytes first(const at::Tensor& tensor, int64_t size) {
  const uint8_t* data = tensor.const_data_ptr<uint8_t>();
  return {data, data + size};
}

std::vector<int64_t> values(const std::vector<at::Tensor>& scalars) {
  std::vector<int64_t> result;
  for (const at::Tensor& each : scalars) result.push_back(each.item<int64_t>());
  return result;
}
}  // namespace

std::vector<Bytes> all_gather_bytes(const Bytes& bytes, const Group& group) {
  const CallContext call(__builtin_return_address(0));
  const std::vector<int64_t> sizes = values(all_gather(length_of(bytes), group));
  const auto tensors = all_gather(padded(bytes, *std::max_element(sizes.begin(), sizes.end())), group);
  std::vector<Bytes> result;
  for (size_t i = 0; i < tensors.size(); ++i) result.push_back(first(tensors[i], sizes[i]));
  return result;
}

std::vector<Bytes> gather_bytes(const Bytes& bytes, int dst, const Group& group) {
  const CallContext call(__builtin_return_address(0));
  const std::vector<int64_t> sizes = values(all_gather(length_of(bytes), group));
  const auto tensors = gather(padded(bytes, *std::max_element(sizes.begin(), sizes.end())), dst, group);
  std::vector<Bytes> result;
  for (size_t i = 0; i < tensors.size(); ++i) result.push_back(first(tensors[i], sizes[i]));
  return result;
}

Bytes broadcast_bytes(const Bytes& bytes, int src, const Group& group) {
  const CallContext call(__builtin_return_address(0));
  const at::Tensor size = length_of(bytes);
  broadcast(size, src, group);
  const bool source = require_context("broadcast_object_list")->rank() == src;
  const at::Tensor tensor = source ? padded(bytes, size.item<int64_t>()) : at::zeros({size.item<int64_t>()}, at::kByte);
  broadcast(tensor, src, group);
  return first(tensor, tensor.numel());
}

void check_object_list(const char* function, size_t size, size_t expected) {
  check_list_size(function, "object_list", size, expected, ", as many as there are to receive");
}

}  // namespace lockstep::dist::detail
