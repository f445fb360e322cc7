// A sketch stands for a tensor of any size in 512 bytes: each element is added, with a sign, to one of 64 sums. Sign and
// sum follow from the element's index in the whole tensor, so the sketches of shards add up to the sketch of the whole,
// and the norm of a difference of two sketches estimates the norm of the difference of the tensors
// (docs/compare.md#sketches).
//
// A sketch takes one read of the memory. It has the same bits on every machine, whatever instructions that has.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::inspect::compare {

constexpr size_t kSums = 64;
using Sketch = std::array<double, kSums>;

/// The dtypes of pieces. The numbers are those of files.
enum class Element : uint8_t { float32, float64, bfloat16, float16, int8, uint8, int16, int32, int64 };
constexpr uint8_t kElements = 9;

size_t size_of(Element element);
/// Returns "float32".
const char* name_of(Element element);
/// Returns the least relative difference that rounding is taken to make: half a unit in the last place of 1 for float32
/// and float64, a quarter of one for the dtypes of 16 bits, 0 for integers.
double rounding_of(Element element);

/// Says which part of a whole tensor a piece is: `size` elements of each dimension, from `offset` on, of `shape`.
struct Box {
  std::vector<int64_t> shape, offset, size;
  bool operator==(const Box&) const = default;
};

/// Returns the number of elements of `size`.
int64_t count_of(const std::vector<int64_t>& size);

struct Summary {
  Sketch sums{};
  uint64_t not_finite = 0;  // elements that are NaN or Inf, which count as 0 in the sums
};

/// Sketches the elements at `data`, which are those of `box` in row-major order, without gaps.
Summary sketch_of(Element element, const void* data, const Box& box);

/// Converts `count` elements at `data` to float64.
std::vector<double> as_doubles(Element element, const void* data, size_t count);

double norm(const Sketch& sketch);
double dot(const Sketch& a, const Sketch& b);
/// Returns a · scale - b.
Sketch difference(const Sketch& a, double scale, const Sketch& b);
void add(Sketch& to, const Sketch& sketch, double scale = 1);

}  // namespace lockstep::inspect::compare
