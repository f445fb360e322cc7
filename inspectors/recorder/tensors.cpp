#include "inspectors/recorder/tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "protocol/checksum.h"

namespace lockstep::inspect::compare {
namespace {

/// Where an element has several dtypes, the first is the one that it is read as.
constexpr std::pair<at::ScalarType, Element> kTypes[] = {
    {at::kFloat, Element::float32}, {at::kDouble, Element::float64}, {at::kBFloat16, Element::bfloat16},
    {at::kHalf, Element::float16},  {at::kChar, Element::int8},      {at::kByte, Element::uint8},
    {at::kBool, Element::uint8},    {at::kShort, Element::int16},    {at::kInt, Element::int32},
    {at::kLong, Element::int64},
};

std::optional<Element> element_of(at::ScalarType type) {
  const auto* found = std::ranges::find(kTypes, type, [](const auto& each) { return each.first; });
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->second);
}

at::ScalarType type_of(Element element) {
  return std::ranges::find(kTypes, element, [](const auto& each) { return each.second; })->first;
}

std::pair<at::Tensor, Element> recordable(at::Tensor tensor) {
  const auto element = element_of(tensor.scalar_type());
  if (tensor.layout() != at::kStrided) tensor = tensor.to_dense();
  if (!element) {
    TORCH_CHECK(!tensor.is_complex(), "lockstep compare does not record ", tensor.scalar_type());
    tensor = tensor.to(at::kFloat);  // float8 and others that convert exactly
  }
  return {tensor.to(at::kCPU).contiguous(), element.value_or(Element::float32)};
}

}  // namespace

RecordedTensor recorded(Piece piece, const at::Tensor& tensor, at::IntArrayRef shape, at::IntArrayRef offset) {
  const c10::NoGradGuard no_grad;
  RecordedTensor result{.piece = std::move(piece), .readable = {}};
  std::tie(result.readable, result.piece.element) = recordable(tensor);
  TORCH_CHECK(static_cast<size_t>(result.readable.dim()) == shape.size() && shape.size() == offset.size(),
              "a piece has the dimensions of its whole");
  result.piece.box = {shape.vec(), offset.vec(), result.readable.sizes().vec()};
  result.piece.summary = sketch_of(result.piece.element, result.readable.const_data_ptr(), result.piece.box);
  return result;
}

bool replace_values(const at::Tensor& tensor, const Replacements& replacements, const std::string& name,
                    const Piece& recorded) {
  const Piece* found = replacements.find(name, recorded);
  if (!found) return true;
  if (tensor.layout() != at::kStrided || at::has_internal_overlap(tensor) == at::MemOverlap::Yes) return false;
  std::vector<std::byte> values = replacements.recording().values(*found);
  const c10::NoGradGuard no_grad;
  tensor.variable_data().copy_(at::from_blob(values.data(), tensor.sizes(), type_of(found->element)));
  return true;
}

std::vector<uint64_t> sample_hashes(const std::vector<at::Tensor>& inputs) {
  const c10::NoGradGuard no_grad;
  std::vector<uint64_t> hashes;
  bool has_first = false;
  for (const at::Tensor& input : inputs) {
    if (input.dim() == 0) continue;
    const auto rows = static_cast<size_t>(input.size(0));
    if (has_first && rows != hashes.size()) continue;
    if (!has_first) hashes.assign(rows, 0);
    has_first = true;
    const auto [readable, element] = recordable(input);
    const size_t size = rows > 0 ? readable.nbytes() / rows : 0;
    const auto* data = static_cast<const char*>(readable.const_data_ptr());
    for (size_t i = 0; i < rows; ++i)
      hashes[i] = (hashes[i] ^ protocol::checksum({data + i * size, size})) * 0x9e3779b97f4a7c15u +
                  static_cast<uint64_t>(element);
  }
  return hashes;
}

}  // namespace lockstep::inspect::compare
