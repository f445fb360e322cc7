#include "inspectors/fingerprint/fingerprint.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>

#include "inspectors/fingerprint/kernels.h"
#include "inspectors/fingerprint/strided.h"

namespace lockstep::inspect {
namespace {

static_assert(kChunkBytes == kernels::kChunkBytes);

// Threads are worthwhile from this many chunks (1 MiB) for each.
constexpr int64_t kChunksPerThread = 16;

using Statistics = void (*)(const uint8_t* data, int64_t count, kernels::Chunk& chunk);

template <typename Element>
void byte_float_statistics(const uint8_t* data, int64_t count, kernels::Chunk& chunk) {
  static const std::array<double, 256> values = [] {
    std::array<double, 256> table{};
    for (size_t bits = 0; bits < 256; ++bits)
      table[bits] = static_cast<double>(static_cast<float>(Element(static_cast<uint8_t>(bits), Element::from_bits())));
    return table;
  }();
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[data[i]];
    if (std::isfinite(value)) {
      chunk.squares[static_cast<size_t>(i) % kernels::kSquareLanes] += value * value;
      chunk.abs_max = std::max(chunk.abs_max, std::abs(value));
    } else if (std::isnan(value)) {
      ++chunk.nan_count;
    } else {
      ++chunk.inf_count;
    }
  }
}

/// How a dtype is read: in one loop, or first for the hash, and then again, from the cache, for statistics.
struct Reading {
  kernels::Loop loop;
  Statistics statistics = nullptr;
};

Reading reading_of(at::ScalarType dtype) {
  const kernels::Table& table = kernels::best();
  switch (dtype) {
    case at::kFloat:
    case at::kComplexFloat:
      return {table.float32};
    case at::kDouble:
    case at::kComplexDouble:
      return {table.float64};
    case at::kBFloat16:
      return {table.bfloat16};
    case at::kHalf:
    case at::kComplexHalf:
      return {table.float16};
    case at::kBool:
    case at::kByte:
      return {table.uint8};
    case at::kChar:
      return {table.int8};
    case at::kShort:
      return {table.int16};
    case at::kInt:
      return {table.int32};
    case at::kLong:
      return {table.int64};
    case at::kUInt16:
      return {table.uint16};
    case at::kUInt32:
      return {table.uint32};
    case at::kUInt64:
      return {table.uint64};
    case at::kFloat8_e5m2:
      return {table.bytes, byte_float_statistics<c10::Float8_e5m2>};
    case at::kFloat8_e4m3fn:
      return {table.bytes, byte_float_statistics<c10::Float8_e4m3fn>};
    case at::kFloat8_e5m2fnuz:
      return {table.bytes, byte_float_statistics<c10::Float8_e5m2fnuz>};
    case at::kFloat8_e4m3fnuz:
      return {table.bytes, byte_float_statistics<c10::Float8_e4m3fnuz>};
    default:
      return {table.bytes};
  }
}

/// The result of a chunk.
struct ChunkResult {
  Hash hash{};
  double squares = 0, abs_max = 0;
  int64_t nan_count = 0, inf_count = 0;
};

uint64_t fold(const uint64_t (&lanes)[kernels::kHashLanes], uint64_t start) {
  for (const uint64_t lane : lanes) start = kernels::mix(start ^ lane) + 0x9e3779b97f4a7c15ULL;
  return start;
}

ChunkResult read_chunk(const StridedReader& reader, const Reading& reading, int64_t chunk_index) {
  const int64_t begin = chunk_index * kChunkBytes;
  const int64_t bytes = std::min(kChunkBytes, reader.bytes() - begin);
  alignas(64) static thread_local uint8_t staging[kChunkBytes];
  const uint8_t* data = reader.read(begin, bytes, staging);
  kernels::Chunk chunk;
  const size_t whole = static_cast<size_t>(bytes) / kernels::kStripeBytes;
  reading.loop(data, whole, chunk);
  if (const size_t rest = static_cast<size_t>(bytes) % kernels::kStripeBytes; rest > 0) {
    // The last stripe is filled with zeros, which change no statistics. Their number follows from the shape.
    alignas(64) uint8_t last[kernels::kStripeBytes] = {};
    std::memcpy(last, data + whole * kernels::kStripeBytes, rest);
    reading.loop(last, 1, chunk);
  }
  if (reading.statistics) reading.statistics(data, bytes / reader.element_size(), chunk);
  ChunkResult result;
  result.hash = {fold(chunk.hash[0], static_cast<uint64_t>(bytes)), fold(chunk.hash[1], ~static_cast<uint64_t>(bytes))};
  const double* s = chunk.squares;
  for (size_t i = 0; i < 4; ++i) result.squares += (s[i] + s[i + 4]) + (s[i + 8] + s[i + 12]);
  result.abs_max = chunk.abs_max;
  result.nan_count = chunk.nan_count;
  result.inf_count = chunk.inf_count;
  return result;
}

/// The tensor in a form whose bytes can be read; mostly the same one.
at::Tensor readable(const at::Tensor& tensor, size_t index) {
  TORCH_CHECK(tensor.defined(), "fingerprint: tensor ", index, " is undefined");
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_meta(), "fingerprint: tensor ",
              index, " has no strided storage (", tensor.layout(), " on ", tensor.device(), "): pass its values()");
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

std::vector<ChunkResult> read_all(const std::vector<Plan>& plans) {
  const int64_t total = plans.empty() ? 0 : plans.back().first_chunk + plans.back().chunks();
  std::vector<ChunkResult> results(static_cast<size_t>(total));
  const auto read = [&](int64_t begin, int64_t end) {
    auto plan = std::upper_bound(plans.begin(), plans.end(), begin,
                                 [](int64_t chunk, const Plan& each) { return chunk < each.first_chunk; });
    --plan;
    for (int64_t i = begin; i < end; ++i) {
      while (i >= plan->first_chunk + plan->chunks()) ++plan;
      results[static_cast<size_t>(i)] = read_chunk(plan->reader, plan->reading, i - plan->first_chunk);
    }
  };
  if (total > kChunksPerThread)
    at::parallel_for(0, total, kChunksPerThread, read);
  else if (total > 0)
    read(0, total);
  return results;
}

Fingerprint summed_up(const Plan& plan, std::span<const ChunkResult> chunks) {
  Fingerprint result;
  Hash hash = {kernels::mix(static_cast<uint64_t>(plan.tensor.scalar_type()) + 1),
               static_cast<uint64_t>(plan.tensor.dim())};
  for (const int64_t size : plan.tensor.sizes())
    hash = combine(hash, {static_cast<uint64_t>(size), ~static_cast<uint64_t>(size)});
  double squares = 0;
  for (const ChunkResult& chunk : chunks) {
    hash = combine(hash, chunk.hash);
    squares += chunk.squares;
    result.abs_max = std::max(result.abs_max, chunk.abs_max);
    result.nan_count += chunk.nan_count;
    result.inf_count += chunk.inf_count;
  }
  result.hash = hash;
  result.norm = std::sqrt(squares);
  return result;
}

std::atomic<DeviceFingerprint> device_functions[static_cast<size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)];

DeviceFingerprint device_function(const at::Tensor& tensor) {
  return tensor.defined() ? device_functions[static_cast<size_t>(tensor.device().type())].load() : nullptr;
}

}  // namespace

Hash combine(Hash left, const Hash& right) {
  return {kernels::mix(left[0] * 0x9e3779b97f4a7c15ULL + right[0]),
          kernels::mix(left[1] * 0xd6e8feb86659fd93ULL + right[1])};
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

std::vector<Fingerprint> fingerprint(at::TensorList tensors) {
  std::vector<Fingerprint> results(tensors.size());
  std::vector<Plan> plans;
  std::vector<size_t> of_plan;
  plans.reserve(tensors.size());
  of_plan.reserve(tensors.size());
  int64_t chunks = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (const DeviceFingerprint function = device_function(tensors[i])) {
      results[i] = function(tensors[i]).at(0);
      continue;
    }
    plans.emplace_back(readable(tensors[i], i), chunks);
    of_plan.push_back(i);
    chunks += plans.back().chunks();
  }
  const std::vector<ChunkResult> read = read_all(plans);
  for (size_t p = 0; p < plans.size(); ++p) {
    const auto first = read.data() + plans[p].first_chunk;
    results[of_plan[p]] = summed_up(plans[p], {first, static_cast<size_t>(plans[p].chunks())});
  }
  return results;
}

Fingerprint fingerprint(const at::Tensor& tensor) { return fingerprint(at::TensorList(tensor)).front(); }

std::vector<Hash> chunk_hashes(const at::Tensor& tensor) {
  std::vector<Plan> plans;
  plans.emplace_back(readable(tensor, 0), 0);
  std::vector<Hash> hashes;
  for (const ChunkResult& chunk : read_all(plans)) hashes.push_back(chunk.hash);
  return hashes;
}

void set_device_fingerprint(c10::DeviceType device, DeviceFingerprint function) {
  device_functions[static_cast<size_t>(device)] = function;
}

}  // namespace lockstep::inspect
