#include "inspectors/evidence/file_bytes.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "inspectors/evidence/evidence.h"

namespace lockstep::inspect {

std::string file_bytes(const std::string& path, size_t most) {
  std::error_code error;
  // A pipe or a device could keep its reader waiting.
  if (!std::filesystem::is_regular_file(std::filesystem::status(path, error)))
    throw UnreadableEvidence(path + " is not a file that can be read");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UnreadableEvidence(path + " can't be opened");
  if (const auto size = std::filesystem::file_size(path, error); !error && size > most)
    throw UnreadableEvidence(fmt::format("{} has {} bytes; up to {} are read", path, size, most));
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw UnreadableEvidence(path + " can't be read");
  return bytes;
}

std::optional<int> rank_in_file_name(const std::string& path) {
  constexpr int kMostRanks = 1 << 20;
  std::string name = std::filesystem::path(path).filename().string();
  for (const std::string_view ending : {".json", ".pickle", ".pkl"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  const size_t begin = name.find_last_not_of("0123456789") + 1;  // 0 if there are only digits
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data() + begin, name.data() + name.size(), rank);
  if (error != std::errc() || rank >= kMostRanks) return std::nullopt;
  return rank;
}

}  // namespace lockstep::inspect
