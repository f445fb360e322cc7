#include "inspectors/verify/zip_archives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

namespace lockstep::inspect {
namespace {

constexpr std::string_view kEntry("PK\3\4", 4), kDirectory("PK\1\2", 4), kEnd("PK\5\6", 4), kEnd64("PK\6\6", 4),
    kLocator64("PK\6\7", 4);
constexpr uint64_t kEndSize = 22, kLocator64Size = 20, kEnd64Size = 56, kDirectoryEntrySize = 46;

template <typename Number>
uint64_t number_at(std::string_view bytes, uint64_t offset) {
  Number value;  // little-endian, as this machine
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

bool has_at(std::string_view bytes, uint64_t offset, std::string_view signature) {
  return offset <= bytes.size() && bytes.substr(offset).starts_with(signature);
}

/// Returns the bytes of all records in a directory, as they are when none is compressed.
uint64_t unpacked_size(std::string_view directory) {
  uint64_t sum = 0;
  while (directory.size() >= kDirectoryEntrySize && directory.starts_with(kDirectory)) {
    uint64_t size = number_at<uint32_t>(directory, 24);
    const uint64_t extra = kDirectoryEntrySize + number_at<uint16_t>(directory, 28),
                   extra_end = extra + number_at<uint16_t>(directory, 30),
                   end = extra_end + number_at<uint16_t>(directory, 32);
    // A size of 64 bits is the first one in the extra field 1.
    for (uint64_t at = extra; size == UINT32_MAX && at + 12 <= std::min<uint64_t>(extra_end, directory.size());
         at += 4 + number_at<uint16_t>(directory, at + 2))
      if (number_at<uint16_t>(directory, at) == 1) size = number_at<uint64_t>(directory, at + 4);
    if (__builtin_add_overflow(sum, size, &sum)) return UINT64_MAX;
    directory.remove_prefix(std::min<uint64_t>(end, directory.size()));
  }
  return sum;
}

/// Returns the archive at the begin of `bytes` if its end record is at `end`; nothing if that is another record. Bytes
/// of a tensor can look like an end record, and archives can contain archives.
std::optional<ZipArchive> archive_of(std::string_view bytes, uint64_t end) {
  if (bytes.size() - end < kEndSize) return std::nullopt;
  uint64_t directory_end = end, size = number_at<uint32_t>(bytes, end + 12),
           begin = number_at<uint32_t>(bytes, end + 16);
  if (end >= kLocator64Size && has_at(bytes, end - kLocator64Size, kLocator64)) {
    directory_end = number_at<uint64_t>(bytes, end - kLocator64Size + 8);
    // It has to be right before the locator: in a file of similar archives, another archive can have its end record
    // there.
    if (directory_end > end || end - directory_end < kEnd64Size + kLocator64Size ||
        !has_at(bytes, directory_end, kEnd64) ||
        number_at<uint64_t>(bytes, directory_end + 4) != end - kLocator64Size - directory_end - 12)
      return std::nullopt;
    size = number_at<uint64_t>(bytes, directory_end + 40);
    begin = number_at<uint64_t>(bytes, directory_end + 48);
  }
  if (begin > directory_end || directory_end - begin != size) return std::nullopt;
  if (size > 0 && !has_at(bytes, begin, kDirectory)) return std::nullopt;
  const uint64_t archive_size = end + kEndSize + number_at<uint16_t>(bytes, end + 20);
  if (archive_size > bytes.size()) return std::nullopt;
  // LibTorch's reader takes the last end record that it finds.
  if (bytes.substr(0, archive_size).rfind(kEnd) != end) return std::nullopt;
  return ZipArchive{.begin = 0, .size = archive_size, .unpacked = unpacked_size(bytes.substr(begin, size))};
}

}  // namespace

std::vector<ZipArchive> zip_archives(std::string_view file) {
  std::vector<ZipArchive> archives;
  const size_t last_end = file.rfind(kEnd);
  uint64_t begin = 0;
  while (begin < file.size()) {
    const std::string_view rest = file.substr(begin);
    std::optional<ZipArchive> archive;
    // Most files have one archive, which needs no search.
    if (rest.starts_with(kEntry) && last_end != std::string_view::npos && last_end > begin)
      if (archive = archive_of(rest, last_end - begin); archive && archive->size != rest.size()) archive.reset();
    if (rest.starts_with(kEntry) && !archive)
      for (size_t end = rest.find(kEnd); end != std::string_view::npos && !archive; end = rest.find(kEnd, end + 1))
        archive = archive_of(rest, end);
    if (!archive && archives.empty())
      throw std::runtime_error("its end is missing, as when the job that wrote it, or a copy of it, was cut off");
    if (!archive)
      throw std::runtime_error(fmt::format(
          "{} of its bytes, from byte {} on, belong to no archive: it was cut off, or something was appended to it",
          rest.size(), begin));
    archive->begin = begin;
    archives.push_back(*archive);
    begin += archive->size;
  }
  return archives;
}

size_t ZipArchiveReader::read(uint64_t position, void* into, size_t count, const char*) const {
  if (position >= archive_.size) return 0;
  const size_t available = std::min<uint64_t>(count, archive_.size - position);
  std::memcpy(into, file_->at(archive_.begin + position, available), available);
  return available;
}

}  // namespace lockstep::inspect
