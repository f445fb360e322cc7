#include "cuda/launch_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "inspectors/fingerprint/definition.h"
#include "inspectors/fingerprint/strided.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

constexpr uint32_t quotient_rounded_up(int64_t bytes, int64_t unit) {
  return static_cast<uint32_t>((bytes + unit - 1) / unit);
}

bool has_bad_values(kernels::Kind kind) {
  using kernels::Kind;
  switch (kind) {
    case Kind::float32:
    case Kind::float64:
    case Kind::bfloat16:
    case Kind::float16:
    case Kind::float8_e5m2:
    case Kind::float8_e4m3fn:
    case Kind::float8_e5m2fnuz:
    case Kind::float8_e4m3fnuz:
      return true;
    default:
      return false;
  }
}

/// Returns the largest power of 2 up to 16 that `data` is a multiple of.
uint8_t alignment_of(const uint8_t* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 16U;
  return static_cast<uint8_t>(address & (~address + 1));
}

}  // namespace

LaunchPlan::LaunchPlan(at::TensorList tensors, Purpose purpose) : purpose_(purpose) {
  TORCH_CHECK(tensors.size() < kNoneBad, "fingerprint: ", tensors.size(), " tensors are too many for a launch");
  kept_.reserve(tensors.size());
  records_.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) add(tensors[i], i);

  table_bytes_ = aligned(records_.size() * sizeof(TensorRecord));
  const auto section = [this](size_t bytes) {
    const size_t offset = table_bytes_;
    table_bytes_ += aligned(bytes);
    return offset;
  };
  strides_offset_ = section(strides_.size() * sizeof(Strides));
  tensor_of_chunk_ = section(chunks_ * sizeof(uint32_t));
  if (purpose_ == Purpose::fingerprint) {
    keys_ = section(sizeof(kernels::Keys));
    group_tickets_ = section(groups_ * sizeof(uint32_t));
    tensor_tickets_ = section(records_.size() * sizeof(uint32_t));
    output_ = section(records_.size() * sizeof(FingerprintRecord));
  } else {
    output_ = section(sizeof(uint32_t));
  }
}

void LaunchPlan::add(const at::Tensor& tensor, size_t index) {
  inspect::check_fingerprintable(tensor, index);
  TORCH_CHECK(index == 0 || tensor.device() == kept_.front().device(), "fingerprint: tensor ", index, " is on ",
              tensor.device(), ", and the first one on ", kept_.front().device());
  at::Tensor readable = tensor.detach();
  if (readable.is_conj() || readable.is_neg()) readable = readable.resolve_conj().resolve_neg();
  const inspect::Hash start = inspect::start_hash(readable);
  TensorRecord record{.data = nullptr,
                      .bytes = readable.numel() * static_cast<int64_t>(readable.element_size()),
                      .start_hash = {start[0], start[1]},
                      .strides = -1,
                      .kind = inspect::kind_of(readable.scalar_type()),
                      .width = 16};
  if (purpose_ == Purpose::sentinel && !has_bad_values(record.kind)) record.bytes = 0;
  if (record.bytes > 0 && !readable.is_contiguous()) {
    const std::vector<inspect::Dimension> dimensions = inspect::merged_dimensions(readable);
    if (dimensions.size() > kMostDimensions) {
      readable = readable.contiguous();
    } else {
      Strides strides{.dimensions = static_cast<uint32_t>(dimensions.size()),
                      .element_size = static_cast<uint32_t>(readable.element_size())};
      for (size_t d = 0; d < dimensions.size(); ++d) {
        strides.sizes[d] = dimensions[d].size;
        strides.strides[d] = dimensions[d].stride;
      }
      record.strides = static_cast<int32_t>(strides_.size());
      strides_.push_back(strides);
    }
  }
  if (record.bytes > 0) record.data = static_cast<const uint8_t*>(readable.const_data_ptr());
  record.width = alignment_of(record.data);
  constexpr auto kChunk = static_cast<int64_t>(kernels::kChunkBytes);
  const uint32_t chunks = quotient_rounded_up(record.bytes, kChunk);
  TORCH_CHECK(uint64_t{chunks_} + chunks <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max()),
              "fingerprint: these tensors have too many bytes for a launch");
  record.first_chunk = chunks_;
  record.chunks = chunks;
  record.first_group = groups_;
  record.groups = quotient_rounded_up(chunks, static_cast<int64_t>(kernels::kGroupChunks));
  chunks_ += record.chunks;
  groups_ += record.groups;
  records_.push_back(record);
  kept_.push_back(std::move(readable));
}

size_t LaunchPlan::scratch_bytes() const {
  if (purpose_ == Purpose::sentinel) return 0;
  return (size_t{chunks_} + groups_) * sizeof(kernels::Result);
}

void LaunchPlan::write_table(uint8_t* table) const {
  std::memset(table, 0, table_bytes_);
  if (!records_.empty()) std::memcpy(table, records_.data(), records_.size() * sizeof(TensorRecord));
  if (!strides_.empty()) std::memcpy(table + strides_offset_, strides_.data(), strides_.size() * sizeof(Strides));
  auto* tensor_of_chunk = reinterpret_cast<uint32_t*>(table + tensor_of_chunk_);
  for (size_t i = 0; i < records_.size(); ++i)
    std::fill_n(tensor_of_chunk + records_[i].first_chunk, records_[i].chunks, static_cast<uint32_t>(i));
  if (purpose_ == Purpose::sentinel) {
    std::memcpy(table + output_, &kNoneBad, sizeof kNoneBad);
    return;
  }
  static constexpr kernels::Keys kKeys = kernels::make_keys();
  std::memcpy(table + keys_, &kKeys, sizeof kKeys);
  auto* output = reinterpret_cast<FingerprintRecord*>(table + output_);
  for (size_t i = 0; i < records_.size(); ++i)
    output[i] = {.hash = {records_[i].start_hash[0], records_[i].start_hash[1]}};
}

FingerprintLaunch LaunchPlan::fingerprint_launch(uint8_t* table, uint8_t* scratch) const {
  auto* results = reinterpret_cast<kernels::Result*>(scratch);
  return {.tensors = reinterpret_cast<const TensorRecord*>(table),
          .strides = reinterpret_cast<const Strides*>(table + strides_offset_),
          .tensor_of_chunk = reinterpret_cast<const uint32_t*>(table + tensor_of_chunk_),
          .keys = reinterpret_cast<const kernels::Keys*>(table + keys_),
          .chunk_results = results,
          .group_results = results + chunks_,
          .group_tickets = reinterpret_cast<uint32_t*>(table + group_tickets_),
          .tensor_tickets = reinterpret_cast<uint32_t*>(table + tensor_tickets_),
          .output = reinterpret_cast<FingerprintRecord*>(table + output_)};
}

SentinelLaunch LaunchPlan::sentinel_launch(uint8_t* table) const {
  return {.tensors = reinterpret_cast<const TensorRecord*>(table),
          .strides = reinterpret_cast<const Strides*>(table + strides_offset_),
          .tensor_of_chunk = reinterpret_cast<const uint32_t*>(table + tensor_of_chunk_),
          .first_bad = reinterpret_cast<uint32_t*>(table + output_)};
}

}  // namespace lockstep::cuda
