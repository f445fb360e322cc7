#include "inspectors/evidence/file_bytes.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "inspectors/evidence/evidence.h"
#include "protocol/whole_number.h"

namespace lockstep::inspect {

std::string file_bytes(const std::string& path, size_t most, ReadingLimit& limit) {
  std::error_code error;
  // A pipe or a device could keep its reader waiting.
  if (!std::filesystem::is_regular_file(std::filesystem::status(path, error)))
    throw UnreadableEvidence(path + " is not a file that can be read");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UnreadableEvidence(path + " can't be opened");
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw UnreadableEvidence(path + " can't be read");
  if (size > most) throw UnreadableEvidence(fmt::format("{} has {} bytes; up to {} are read", path, size, most));
  try {
    limit.take(size);
  } catch (const ReadingLimitError& reason) {
    throw EvidenceTooLarge(path + ": " + reason.what());
  }
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (file.bad()) throw UnreadableEvidence(path + " can't be read");
  bytes.resize(static_cast<size_t>(file.gcount()));  // it may have been cut off meanwhile
  return bytes;
}

std::optional<int> rank_in_file_name(const std::string& path) {
  constexpr int kMostRanks = 1 << 20;
  std::string name = std::filesystem::path(path).filename().string();
  for (const std::string_view ending : {".json", ".pickle", ".pkl"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  const size_t begin = name.find_last_not_of("0123456789") + 1;  // 0 if there are only digits
  return protocol::whole_number<int>(std::string_view(name).substr(begin), 0, kMostRanks - 1);
}

}  // namespace lockstep::inspect
