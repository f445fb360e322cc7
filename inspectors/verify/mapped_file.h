// A file's bytes in memory, for as long as a tensor shows them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::inspect {

class MappedFile {
 public:
  /// Throws std::runtime_error where the file can't be mapped; an empty one can't.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// `count` bytes from `offset` on. Writing to them changes no file. Throws std::runtime_error where the file ends
  /// before.
  char* at(uint64_t offset, uint64_t count) const;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep::inspect
