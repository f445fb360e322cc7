#include "inspectors/fingerprint/fingerprint.h"

#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <utility>

#include "inspectors/device/functions.h"
#include "inspectors/fingerprint/definition.h"
#include "inspectors/fingerprint/kernels.h"
#include "inspectors/fingerprint/strided.h"

namespace lockstep::inspect {
namespace {

static_assert(kChunkBytes == kernels::kChunkBytes);

// Threads are worthwhile from this many chunks (1 MiB) for each.
constexpr int64_t kChunksPerThread = 16;

using kernels::Kind;
using kernels::Result;

/// Makes a pass of its own, over bytes that are in the cache.
template <Kind kind>
void float8_statistics(const uint8_t* data, int64_t count, kernels::Chunk& chunk) {
  static constexpr std::array<uint32_t, 256> kValues = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t bits = 0; bits < 256; ++bits) table[bits] = kernels::widened_float8(kind, bits);
    return table;
  }();
  constexpr auto kStripe = static_cast<int64_t>(kernels::kStripeBytes);
  for (int64_t stripe = 0; stripe < count; stripe += kStripe) {
    float squares[kernels::kSquareLanes] = {};
    for (int64_t i = 0; i < std::min(kStripe, count - stripe); ++i) {
      const auto value = std::bit_cast<float>(kValues[data[stripe + i]]);
      if (std::isfinite(value)) {
        squares[static_cast<size_t>(i) / 4 % kernels::kSquareLanes] += value * value;
        chunk.abs_max = std::max(chunk.abs_max, static_cast<double>(std::abs(value)));
      } else if (std::isnan(value)) {
        ++chunk.nan_count;
      } else {
        ++chunk.inf_count;
      }
    }
    for (size_t lane = 0; lane < kernels::kSquareLanes; ++lane)
      chunk.squares[lane] += static_cast<double>(squares[lane]);
  }
}

/// Says how a dtype is read: in one loop, or first for the hash, and then again, from the cache, for statistics.
struct Reading {
  kernels::Loop loop;
  void (*statistics)(const uint8_t* data, int64_t count, kernels::Chunk& chunk) = nullptr;
};

Reading reading_of(at::ScalarType dtype) {
  const kernels::Table& table = kernels::best();
  switch (kind_of(dtype)) {
    case Kind::bytes:
      return {table.bytes};
    case Kind::float32:
      return {table.float32};
    case Kind::float64:
      return {table.float64};
    case Kind::bfloat16:
      return {table.bfloat16};
    case Kind::float16:
      return {table.float16};
    case Kind::uint8:
      return {table.uint8};
    case Kind::int8:
      return {table.int8};
    case Kind::uint16:
      return {table.uint16};
    case Kind::int16:
      return {table.int16};
    case Kind::uint32:
      return {table.uint32};
    case Kind::int32:
      return {table.int32};
    case Kind::uint64:
      return {table.uint64};
    case Kind::int64:
      return {table.int64};
    case Kind::float8_e5m2:
      return {table.bytes, float8_statistics<Kind::float8_e5m2>};
    case Kind::float8_e4m3fn:
      return {table.bytes, float8_statistics<Kind::float8_e4m3fn>};
    case Kind::float8_e5m2fnuz:
      return {table.bytes, float8_statistics<Kind::float8_e5m2fnuz>};
    case Kind::float8_e4m3fnuz:
      return {table.bytes, float8_statistics<Kind::float8_e4m3fnuz>};
  }
  return {table.bytes};
}

Result result_of(const kernels::Chunk& chunk, int64_t bytes) {
  return {.hash = {kernels::fold_lanes(chunk.hash[0], static_cast<uint64_t>(bytes)),
                   kernels::fold_lanes(chunk.hash[1], ~static_cast<uint64_t>(bytes))},
          .squares = kernels::fold_squares(chunk.squares),
          .abs_max = chunk.abs_max,
          .nan_count = chunk.nan_count,
          .inf_count = chunk.inf_count};
}

Result read_chunk(const StridedReader& reader, const Reading& reading, int64_t chunk_index) {
  const int64_t begin = chunk_index * kChunkBytes;
  const int64_t bytes = std::min(kChunkBytes, reader.bytes() - begin);
  alignas(64) static thread_local uint8_t staging[kChunkBytes];
  const uint8_t* data = reader.read(begin, bytes, staging);
  kernels::Chunk chunk;
  const size_t whole = static_cast<size_t>(bytes) / kernels::kStripeBytes;
  reading.loop(data, whole, &chunk, 1);
  if (const size_t rest = static_cast<size_t>(bytes) % kernels::kStripeBytes; rest > 0) {
    // The last stripe is filled with zeros, which change no statistics. Their number follows from the shape.
    alignas(64) uint8_t last[kernels::kStripeBytes] = {};
    std::memcpy(last, data + whole * kernels::kStripeBytes, rest);
    reading.loop(last, 1, &chunk, 1);
  }
  if (reading.statistics) reading.statistics(data, bytes, chunk);
  return result_of(chunk, bytes);
}

/// Reads `results.size()` whole chunks of a contiguous tensor, at most kSideBySide.
void read_side_by_side(const StridedReader& reader, const Reading& reading, int64_t first, std::span<Result> results) {
  const auto bytes = static_cast<int64_t>(results.size()) * kChunkBytes;
  const uint8_t* data = reader.read(first * kChunkBytes, bytes, nullptr);
  kernels::Chunk chunks[kernels::kSideBySide];
  reading.loop(data, kChunkBytes / kernels::kStripeBytes, chunks, results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (reading.statistics) reading.statistics(data + i * kernels::kChunkBytes, kChunkBytes, chunks[i]);
    results[i] = result_of(chunks[i], kChunkBytes);
  }
}

/// Returns the tensor in a form whose bytes can be read; mostly the same one.
at::Tensor readable(const at::Tensor& tensor) {
  at::Tensor result = tensor.device().is_cpu() ? tensor : tensor.detach().cpu();
  if (result.is_conj() || result.is_neg()) result = result.detach().resolve_conj().resolve_neg();
  return result;
}

struct Plan {
  at::Tensor tensor;
  StridedReader reader;
  Reading reading;
  int64_t first_chunk;  // among the chunks of all tensors

  Plan(at::Tensor readable, int64_t first)
      : tensor(std::move(readable)), reader(tensor), reading(reading_of(tensor.scalar_type())), first_chunk(first) {}
  int64_t chunks() const { return (reader.bytes() + kChunkBytes - 1) / kChunkBytes; }
};

std::vector<Result> read_all(const std::vector<Plan>& plans) {
  const int64_t total = plans.empty() ? 0 : plans.back().first_chunk + plans.back().chunks();
  std::vector<Result> results(static_cast<size_t>(total));
  const auto read = [&](int64_t begin, int64_t end) {
    auto plan = std::upper_bound(plans.begin(), plans.end(), begin,
                                 [](int64_t chunk, const Plan& each) { return chunk < each.first_chunk; });
    --plan;
    for (int64_t i = begin; i < end;) {
      while (i >= plan->first_chunk + plan->chunks()) ++plan;
      const StridedReader& reader = plan->reader;
      const int64_t chunk = i - plan->first_chunk, whole = reader.bytes() / kChunkBytes - chunk;
      const int64_t count =
          reader.contiguous() ? std::min({whole, end - i, static_cast<int64_t>(kernels::kSideBySide)}) : 1;
      const std::span<Result> read(&results[static_cast<size_t>(i)], static_cast<size_t>(std::max<int64_t>(count, 1)));
      if (count > 1)
        read_side_by_side(reader, plan->reading, chunk, read);
      else
        read[0] = read_chunk(reader, plan->reading, chunk);
      i += std::ssize(read);
    }
  };
  if (total > kChunksPerThread)
    at::parallel_for(0, total, kChunksPerThread, read);
  else if (total > 0)
    read(0, total);
  return results;
}

Fingerprint summed_up(const Plan& plan, std::span<const Result> chunks) {
  const Hash start = start_hash(plan.tensor);
  Result result;
  result.hash[0] = start[0];
  result.hash[1] = start[1];
  for (size_t first = 0; first < chunks.size(); first += kernels::kGroupChunks) {
    Result group;
    for (const Result& chunk : chunks.subspan(first, std::min(kernels::kGroupChunks, chunks.size() - first)))
      group.add(chunk);
    result.add(group);
  }
  return fingerprint_of(result);
}

/// Takes fingerprints by the functions of a device, with one transfer to the host for all tensors.
class RowsOnDevice {
 public:
  RowsOnDevice(const DeviceFunctions& functions, at::TensorList tensors) : rows_(functions.fingerprint(tensors)) {
    static_assert(sizeof(Fingerprint) == 6 * sizeof(int64_t));
    TORCH_INTERNAL_ASSERT(rows_.nbytes() == tensors.size() * sizeof(Fingerprint));
  }

  void copy_to_host() {
    if (host_.defined()) return;
    if (rows_.is_cpu()) {
      host_ = rows_.contiguous();
      return;
    }
    host_ = at::empty(rows_.sizes(), at::TensorOptions().dtype(at::kLong).pinned_memory(true));
    host_.copy_(rows_, /*non_blocking=*/true);
    arrived_.emplace(rows_.device().type());
    arrived_->record(c10::impl::VirtualGuardImpl(rows_.device().type()).getStream(rows_.device()));
  }

  /// Returns int64 [number of tensors, 2] on the device.
  at::Tensor hashes() const { return rows_.narrow(1, 0, 2); }

  std::vector<Fingerprint> read() {
    copy_to_host();
    if (arrived_) arrived_->synchronize();
    std::vector<Fingerprint> results(static_cast<size_t>(host_.size(0)));
    std::memcpy(static_cast<void*>(results.data()), host_.const_data_ptr(), host_.nbytes());
    return results;
  }

 private:
  const at::Tensor rows_;
  at::Tensor host_;
  std::optional<c10::Event> arrived_;
};

/// The weights are odd, so that multiplication by one loses nothing.
constexpr std::array<uint64_t, 2> kWeights = {0x9E3779B97F4A7C15, 0xD1B54A32D192ED03};
uint64_t weight(size_t index, size_t word) { return (index * kWeights[word]) << 1 | 1; }

/// Has the tensors of one device, and where they stand in the caller's list.
struct OnDevice {
  const DeviceFunctions* functions = nullptr;
  std::vector<at::Tensor> tensors;
  std::vector<size_t> indices;
};

}  // namespace

Hash combine(Hash left, const Hash& right) {
  return {kernels::combine_first(left[0], right[0]), kernels::combine_second(left[1], right[1])};
}

Hash hash_of(const std::string& text) {
  Hash hash = {text.size(), ~text.size()};
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
    hash = combine(hash, {word, word});
  }
  return hash;
}

struct QueuedFingerprints::State {
  std::vector<Fingerprint> results;
  std::vector<std::pair<RowsOnDevice, std::vector<size_t>>> queued;  // with indices in the results
};

QueuedFingerprints::QueuedFingerprints(at::TensorList tensors, To to) : state_(std::make_unique<State>()) {
  const at::NoGradGuard no_grad;
  std::vector<Fingerprint>& results = state_->results;
  results.resize(tensors.size());
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, OnDevice> devices;
  std::vector<Plan> plans;
  std::vector<size_t> of_plan;
  plans.reserve(tensors.size());
  of_plan.reserve(tensors.size());
  int64_t chunks = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_fingerprintable(tensors[i], i);
    const c10::Device device = tensors[i].device();
    if (const DeviceFunctions* functions = device_functions(device.type())) {
      OnDevice& same = devices[{device.type(), device.index()}];
      same.functions = functions;
      same.tensors.push_back(tensors[i]);
      same.indices.push_back(i);
      continue;
    }
    plans.emplace_back(readable(tensors[i]), chunks);
    of_plan.push_back(i);
    chunks += plans.back().chunks();
  }
  for (const auto& [device, same] : devices) {
    state_->queued.emplace_back(RowsOnDevice(*same.functions, same.tensors), same.indices);
    if (to == To::kHost) state_->queued.back().first.copy_to_host();
  }
  const std::vector<Result> read = read_all(plans);
  for (size_t p = 0; p < plans.size(); ++p) {
    const auto first = read.data() + plans[p].first_chunk;
    results[of_plan[p]] = summed_up(plans[p], {first, static_cast<size_t>(plans[p].chunks())});
  }
}

QueuedFingerprints::QueuedFingerprints(QueuedFingerprints&&) noexcept = default;
QueuedFingerprints::~QueuedFingerprints() = default;

std::vector<Fingerprint> QueuedFingerprints::read() const {
  std::vector<Fingerprint> results = state_->results;
  for (auto& [rows, indices] : state_->queued) {
    const std::vector<Fingerprint> found = rows.read();
    for (size_t i = 0; i < found.size(); ++i) results[indices[i]] = found[i];
  }
  return results;
}

at::Tensor QueuedFingerprints::content() const {
  const at::NoGradGuard no_grad;
  const auto longs = at::TensorOptions().dtype(at::kLong);
  std::vector<bool> on_device(state_->results.size());
  at::Tensor sum;
  for (const auto& [rows, indices] : state_->queued) {
    const at::Tensor hashes = rows.hashes();
    const bool pinned = !hashes.is_cpu();
    at::Tensor weights = at::empty({hashes.size(0), 2}, longs.pinned_memory(pinned));
    auto* each = reinterpret_cast<uint64_t*>(weights.mutable_data_ptr<int64_t>());
    for (const size_t index : indices) {
      on_device[index] = true;
      for (size_t word = 0; word < 2; ++word) *each++ = weight(index, word);
    }
    weights = weights.to(hashes.device(), /*non_blocking=*/true);
    const at::Tensor part = hashes.mul(weights).sum(0);
    sum = sum.defined() ? sum.add(part.to(sum.device(), /*non_blocking=*/true)) : part;
  }
  Hash rest{};
  for (size_t i = 0; i < state_->results.size(); ++i)
    if (!on_device[i])
      for (size_t word = 0; word < 2; ++word) rest[word] += state_->results[i].hash[word] * weight(i, word);
  const bool pinned = sum.defined() && !sum.is_cpu();
  const at::Tensor host = at::empty({2}, longs.pinned_memory(pinned));
  std::memcpy(host.mutable_data_ptr(), rest.data(), sizeof rest);
  return sum.defined() ? sum.add(host.to(sum.device(), /*non_blocking=*/true)) : host;
}

std::vector<Fingerprint> fingerprint(at::TensorList tensors) { return QueuedFingerprints(tensors).read(); }

Fingerprint fingerprint(const at::Tensor& tensor) { return fingerprint(at::TensorList(tensor)).front(); }

std::vector<Hash> chunk_hashes(const at::Tensor& tensor) {
  std::vector<Plan> plans;
  check_fingerprintable(tensor, 0);
  plans.emplace_back(readable(tensor), 0);
  std::vector<Hash> hashes;
  for (const Result& chunk : read_all(plans)) hashes.push_back({chunk.hash[0], chunk.hash[1]});
  return hashes;
}

std::ostream& operator<<(std::ostream& out, const Fingerprint& fingerprint) {
  return out << fmt::format("hash {:016x}{:016x}, norm {:.6g}, largest magnitude {:.6g}, {} NaN, {} Inf",
                            fingerprint.hash[0], fingerprint.hash[1], fingerprint.norm, fingerprint.abs_max,
                            fingerprint.nan_count, fingerprint.inf_count);
}

}  // namespace lockstep::inspect
