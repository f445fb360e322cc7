#include "inspectors/compare/sketch.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace lockstep::inspect::compare {
namespace {

constexpr uint64_t kBlock = 64;  // elements that share one mixed number: it has their signs, and which sums they go to
constexpr size_t kRotations = 8;

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
[[gnu::always_inline]] inline uint64_t mixed(uint64_t block) {
  uint64_t z = (block + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Returns how far the sums of a block are rotated, so that a column of a matrix does not meet one sum alone.
[[gnu::always_inline]] inline size_t rotation(uint64_t mix) {
  return static_cast<size_t>((mix * 0xd6e8feb86659fd93u) >> 61) * (kSums / kRotations);
}

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <typename T>
[[gnu::always_inline]] inline double read(T value) {
  return static_cast<double>(value);
}
template <>
[[gnu::always_inline]] inline double read(Bfloat16 value) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16));
}
/// Moves the exponent by arithmetic, which is exact for subnormal numbers, too.
template <>
[[gnu::always_inline]] inline double read(Float16 value) {
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fff) << 13;
  const float finite = std::bit_cast<float>(magnitude) * 0x1p112f;
  const float any = magnitude >= 0x0f800000u ? std::bit_cast<float>(magnitude | 0x7f800000u) : finite;
  return static_cast<double>(value.bits & 0x8000 ? -any : any);
}

[[gnu::always_inline]] inline double with_sign(double value, uint64_t mix, uint64_t lane) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ ((mix << (63 - lane)) & 0x8000000000000000u));
}

/// Adds whole blocks. `sums` are twice kSums: those beyond are folded at the end.
template <typename T>
[[gnu::always_inline]] inline void add_blocks(double* __restrict sums, const T* __restrict data, uint64_t block,
                                              uint64_t blocks) {
  for (uint64_t b = 0; b < blocks; ++b, data += kBlock) {
    const uint64_t mix = mixed(block + b);
    double* __restrict to = sums + rotation(mix);
    for (uint64_t lane = 0; lane < kBlock; ++lane) to[lane] += with_sign(read(data[lane]), mix, lane);
  }
}

template <typename T>
using AddBlocks = void (*)(double*, const T*, uint64_t, uint64_t);

template <typename T>
void add_blocks_portable(double* sums, const T* data, uint64_t block, uint64_t blocks) {
  add_blocks(sums, data, block, blocks);
}
#if defined(__x86_64__)
template <typename T>
[[gnu::target("avx2")]] void add_blocks_avx2(double* sums, const T* data, uint64_t block, uint64_t blocks) {
  add_blocks(sums, data, block, blocks);
}
template <typename T>
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl")]] void add_blocks_avx512(double* sums, const T* data,
                                                                             uint64_t block, uint64_t blocks) {
  add_blocks(sums, data, block, blocks);
}
#endif

template <typename T>
AddBlocks<T> chosen() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return add_blocks_avx512<T>;
  if (__builtin_cpu_supports("avx2")) return add_blocks_avx2<T>;
#endif
  return add_blocks_portable<T>;
}

/// Adds `count` elements whose indices begin with `first`.
template <typename T>
void add_run(double* sums, const T* data, uint64_t first, uint64_t count) {
  static const AddBlocks<T> add_whole = chosen<T>();
  const auto add_part = [&](uint64_t part) {
    const uint64_t mix = mixed(first / kBlock), lane = first % kBlock;
    double* to = sums + rotation(mix);
    for (uint64_t i = 0; i < part; ++i) to[lane + i] += with_sign(read(data[i]), mix, lane + i);
    first += part;
    data += part;
    count -= part;
  };
  if (first % kBlock != 0) add_part(std::min(kBlock - first % kBlock, count));
  const uint64_t blocks = count / kBlock;
  add_whole(sums, data, first / kBlock, blocks);
  first += blocks * kBlock;
  data += blocks * kBlock;
  count -= blocks * kBlock;
  if (count > 0) add_part(count);
}

/// Calls `use(index in the whole, index in the piece, count)` for each run of the box that lies together in the whole.
template <typename Use>
void for_each_run(const Box& box, const Use& use) {
  const size_t dims = box.size.size();
  if (count_of(box.size) == 0) return;
  std::vector<uint64_t> stride(dims, 1);
  for (size_t d = dims; d-- > 1;) stride[d - 1] = stride[d] * static_cast<uint64_t>(box.shape[d]);
  size_t split = dims;  // the last dimension of which the piece has a part; those behind it are whole
  while (split > 0 && box.size[split - 1] == box.shape[split - 1]) --split;
  const size_t outer = split == 0 ? 0 : split - 1;
  uint64_t count = 1, start = 0;
  for (size_t d = outer; d < dims; ++d) {
    count *= static_cast<uint64_t>(box.size[d]);
    start += static_cast<uint64_t>(box.offset[d]) * stride[d];
  }
  std::vector<int64_t> at(outer, 0);
  for (uint64_t done = 0;; done += count) {
    uint64_t index = start;
    for (size_t d = 0; d < outer; ++d) index += static_cast<uint64_t>(box.offset[d] + at[d]) * stride[d];
    use(index, done, count);
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == box.size[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

template <typename T>
Summary sketched(const T* data, const Box& box) {
  std::array<double, 2 * kSums> sums{};
  for_each_run(box,
               [&](uint64_t index, uint64_t at, uint64_t count) { add_run(sums.data(), data + at, index, count); });
  Summary result;
  bool is_finite = true;
  for (size_t i = 0; i < kSums; ++i) {
    result.sums[i] = sums[i] + sums[i + kSums];
    is_finite = is_finite && std::isfinite(result.sums[i]);
  }
  if (is_finite) return result;
  result.sums = {};
  for_each_run(box, [&](uint64_t index, uint64_t at, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const double value = read(data[at + i]);
      const uint64_t mix = mixed((index + i) / kBlock), lane = (index + i) % kBlock;
      if (std::isfinite(value))
        result.sums[(rotation(mix) + lane) % kSums] += with_sign(value, mix, lane);
      else
        ++result.not_finite;
    }
  });
  return result;
}

/// Calls `use` with the data as elements of their type.
template <typename Use>
auto with_elements(Element element, const void* data, const Use& use) {
  switch (element) {
    case Element::float64:
      return use(static_cast<const double*>(data));
    case Element::bfloat16:
      return use(static_cast<const Bfloat16*>(data));
    case Element::float16:
      return use(static_cast<const Float16*>(data));
    case Element::int8:
      return use(static_cast<const int8_t*>(data));
    case Element::uint8:
      return use(static_cast<const uint8_t*>(data));
    case Element::int16:
      return use(static_cast<const int16_t*>(data));
    case Element::int32:
      return use(static_cast<const int32_t*>(data));
    case Element::int64:
      return use(static_cast<const int64_t*>(data));
    case Element::float32:
      break;
  }
  return use(static_cast<const float*>(data));
}

}  // namespace

size_t size_of(Element element) {
  switch (element) {
    case Element::float64:
    case Element::int64:
      return 8;
    case Element::float32:
    case Element::int32:
      return 4;
    case Element::bfloat16:
    case Element::float16:
    case Element::int16:
      return 2;
    case Element::int8:
    case Element::uint8:
      return 1;
  }
  return 1;
}

const char* name_of(Element element) {
  constexpr const char* kNames[] = {"float32", "float64", "bfloat16", "float16", "int8",
                                    "uint8",   "int16",   "int32",    "int64"};
  return kNames[static_cast<size_t>(element)];
}

double rounding_of(Element element) {
  switch (element) {
    case Element::float32:
      return 0x1p-24;
    case Element::float64:
      return 0x1p-53;
    case Element::bfloat16:
      return 0x1p-9;
    case Element::float16:
      return 0x1p-12;
    default:
      return 0;
  }
}

int64_t count_of(const std::vector<int64_t>& size) {
  int64_t count = 1;
  for (const int64_t each : size) count *= each;
  return count;
}

Summary sketch_of(Element element, const void* data, const Box& box) {
  return with_elements(element, data, [&](const auto* elements) { return sketched(elements, box); });
}

std::vector<double> as_doubles(Element element, const void* data, size_t count) {
  return with_elements(element, data, [&](const auto* elements) {
    std::vector<double> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = read(elements[i]);
    return values;
  });
}

double norm(const Sketch& sketch) { return std::sqrt(dot(sketch, sketch)); }

double dot(const Sketch& a, const Sketch& b) {
  double sum = 0;
  for (size_t i = 0; i < kSums; ++i) sum += a[i] * b[i];
  return sum;
}

Sketch difference(const Sketch& a, double scale, const Sketch& b) {
  Sketch result;
  for (size_t i = 0; i < kSums; ++i) result[i] = a[i] * scale - b[i];
  return result;
}

void add(Sketch& to, const Sketch& sketch, double scale) {
  for (size_t i = 0; i < kSums; ++i) to[i] += sketch[i] * scale;
}

}  // namespace lockstep::inspect::compare
