#include "compiler/objects/unwind_table.h"

#include <algorithm>
#include <cstring>

namespace lockstep::compiler {

namespace {

// Encodings of pointers (DW_EH_PE_…).
constexpr uint8_t kUnsigned4 = 0x03, kRelativeSigned4 = 0x1b, kTableRelativeSigned4 = 0x3b, kIndirectSigned4 = 0x9b;

template <typename T>
T read(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.substr(at, sizeof(T)).data(), sizeof(T));
  return value;
}

/// Says whether a common description (CIE; `entry` begins behind its length) has the form that clang gives it.
bool is_common_form(std::string_view entry) {
  constexpr size_t kAugmentation = 5;  // behind the id and the version
  if (entry.size() <= kAugmentation || entry[4] != 1) return false;
  const size_t end = entry.find('\0', kAugmentation);
  if (end == std::string_view::npos) return false;
  const std::string_view augmentation = entry.substr(kAugmentation, end - kAugmentation);
  // Two factors, the return register and the size of the augmentation's data follow, each in one byte (LEB128).
  constexpr size_t kNumbers = 4;
  if (entry.size() < end + 1 + kNumbers + 1) return false;
  for (const char number : entry.substr(end + 1, kNumbers))
    if ((number & 0x80) != 0) return false;
  const std::string_view data = entry.substr(end + 1 + kNumbers);
  const auto encoding = [&data](size_t at) { return static_cast<uint8_t>(data[at]); };
  if (augmentation == "zR") return encoding(0) == kRelativeSigned4;
  return augmentation == "zPLR" && data.size() > 6 && encoding(0) == kIndirectSigned4 &&
         encoding(5) == kRelativeSigned4 && encoding(6) == kRelativeSigned4;
}

}  // namespace

std::optional<std::vector<size_t>> function_descriptions(std::string_view eh_frame) {
  std::vector<size_t> functions;
  for (size_t at = 0; at + 8 <= eh_frame.size();) {
    const auto length = read<uint32_t>(eh_frame, at);
    if (length == 0) break;
    if (length < 8 || length > eh_frame.size() - at - 4) return {};  // also the form with 64 bits
    if (read<uint32_t>(eh_frame, at + 4) != 0) {
      functions.push_back(at);
    } else if (!is_common_form(eh_frame.substr(at + 4, length))) {
      return {};
    }
    at += 4 + size_t{length};
  }
  return functions;
}

std::string unwind_table(std::string_view eh_frame, const std::vector<size_t>& functions, uint64_t eh_frame_address,
                         uint64_t table_address) {
  struct Row {
    int32_t function, description;  // relative to the table
  };
  std::vector<Row> rows;
  for (const size_t at : functions) {
    constexpr size_t kAddress = 8;  // behind the length and the distance to the common description
    const uint64_t begin =
        eh_frame_address + at + kAddress + static_cast<uint64_t>(read<int32_t>(eh_frame, at + kAddress));
    rows.push_back(
        {static_cast<int32_t>(begin - table_address), static_cast<int32_t>(eh_frame_address + at - table_address)});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.function < b.function; });
  const uint8_t encodings[] = {1, kRelativeSigned4, kUnsigned4, kTableRelativeSigned4};  // the version comes first
  const auto distance = static_cast<int32_t>(eh_frame_address - (table_address + sizeof encodings));
  const auto count = static_cast<uint32_t>(rows.size());
  std::string table(reinterpret_cast<const char*>(encodings), sizeof encodings);
  table.append(reinterpret_cast<const char*>(&distance), sizeof distance);
  table.append(reinterpret_cast<const char*>(&count), sizeof count);
  table.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row));
  return table;
}

}  // namespace lockstep::compiler
