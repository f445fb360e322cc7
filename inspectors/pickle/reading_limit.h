// Limits what reading a file may take. A small file can stand for large values: it is compressed, or its values contain
// one another many times.
#pragma once
#include <cstdint>
#include <stdexcept>

namespace lockstep::inspect {

struct ReadingLimitError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Counts bytes that are left for values, and for the work with them. A copy counts by itself.
class ReadingLimit {
 public:
  static constexpr uint64_t kMost = uint64_t{1} << 30;  // values that any laptop holds

  explicit ReadingLimit(uint64_t bytes = kMost) : left_(bytes) {}
  /// Throws ReadingLimitError where less is left.
  void take(uint64_t bytes) {
    if (bytes > left_)
      throw ReadingLimitError(
          "its values take more memory than is given to files (1 GiB): it is damaged, or made to do so, or too much is "
          "saved in it");
    left_ -= bytes;
  }
  void add(uint64_t bytes) { left_ += bytes; }
  uint64_t left() const { return left_; }

 private:
  uint64_t left_;
};

}  // namespace lockstep::inspect
