// Maps a file into memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::inspect {

/// A file adds this many times its size to the ReadingLimit: tied weights repeat its bytes, and its reading takes some.
inline constexpr uint64_t kReadingsOfAFile = 8;

class MappedFile {
 public:
  /// Throws std::runtime_error if the file can't be mapped, also for an empty file and for one that is none.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// Returns `count` bytes from `offset` on. Writing to them does not change the file. Throws std::runtime_error if the
  /// file ends before.
  char* at(uint64_t offset, uint64_t count) const;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep::inspect
