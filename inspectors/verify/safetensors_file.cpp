#include "inspectors/verify/safetensors_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "inspectors/pickle/json_text.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

// The format's own library has this limit.
constexpr uint64_t kLongestHeader = 100'000'000;

at::ScalarType scalar_type_of(const std::string& name) {
  static const std::map<std::string_view, at::ScalarType> types = {{"F64", at::kDouble},
                                                                   {"F32", at::kFloat},
                                                                   {"F16", at::kHalf},
                                                                   {"BF16", at::kBFloat16},
                                                                   {"I64", at::kLong},
                                                                   {"I32", at::kInt},
                                                                   {"I16", at::kShort},
                                                                   {"I8", at::kChar},
                                                                   {"U8", at::kByte},
                                                                   {"U16", at::kUInt16},
                                                                   {"U32", at::kUInt32},
                                                                   {"U64", at::kUInt64},
                                                                   {"BOOL", at::kBool},
                                                                   {"C64", at::kComplexFloat},
                                                                   {"F8_E4M3", at::kFloat8_e4m3fn},
                                                                   {"F8_E5M2", at::kFloat8_e5m2},
                                                                   {"F8_E8M0", at::kFloat8_e8m0fnu}};
  const auto found = types.find(name);
  if (found == types.end()) throw std::runtime_error("tensors of the dtype " + name + " are not supported");
  return found->second;
}

uint64_t header_length(const MappedFile& file) {
  uint64_t length;  // little-endian, as this machine
  std::memcpy(&length, file.at(0, sizeof length), sizeof length);
  return length;
}

/// Returns the header's object. A name that is there twice would hide a tensor.
json header_of(const MappedFile& file, ReadingLimit& limit) {
  const uint64_t length = header_length(file);
  if (length > kLongestHeader)
    throw std::runtime_error(fmt::format("its header has {} bytes, which is too long", length));
  const std::string_view text(file.at(8, length), length);
  const json header = read_json(text, limit, EqualKeys::are_refused);
  if (header.is_discarded()) throw std::runtime_error("its header is no JSON: it was cut off, or it is damaged");
  if (!header.is_object()) throw std::runtime_error("its header is no JSON object");
  return header;
}

struct Entry {
  std::string name;
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // after the header
};

Entry entry_of(const std::string& name, const json& description) {
  Entry entry{.name = name};
  try {
    entry.dtype = scalar_type_of(description.at("dtype").get<std::string>());
    entry.shape = description.at("shape").get<std::vector<int64_t>>();
    entry.begin = description.at("data_offsets").at(0).get<uint64_t>();
    entry.end = description.at("data_offsets").at(1).get<uint64_t>();
  } catch (const json::exception&) {
    throw std::runtime_error(fmt::format("its header describes '{}' without dtype, shape or data_offsets", name));
  }
  auto bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  for (const int64_t size : entry.shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      throw std::runtime_error(fmt::format("'{}' has a size that no tensor has", name));
  if (entry.end < entry.begin || entry.end - entry.begin != static_cast<uint64_t>(bytes))
    throw std::runtime_error(fmt::format("'{}' has {} bytes in the file, and its shape needs {}", name,
                                         static_cast<int64_t>(entry.end - entry.begin), bytes));
  return entry;
}

}  // namespace

bool is_safetensors(const MappedFile& file) {
  if (file.bytes().size() < 10) return false;
  const uint64_t length = header_length(file);
  return length >= 2 && length <= kLongestHeader && file.bytes()[8] == '{';
}

void add_safetensors(Subject& subject, const std::shared_ptr<MappedFile>& file, ReadingLimit& limit) {
  const json header = header_of(*file, limit);
  const uint64_t begin = 8 + header_length(*file);
  std::vector<Entry> entries;
  for (const auto& [name, description] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(entry_of(name, description));
      continue;
    }
    for (const auto& [key, value] : description.items()) {
      if (!value.is_string())
        throw std::runtime_error(fmt::format("'{}' of the __metadata__ in its header is no text", key));
      subject.unseen.push_back({.name = "__metadata__." + key,
                                .kind = FindingKind::attribute,
                                .tensor = {},
                                .value = value.get<std::string>()});
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end)
      throw std::runtime_error(fmt::format("bytes {} to {} after its header belong to {}", std::min(entry.begin, end),
                                           std::max(entry.begin, end),
                                           entry.begin > end ? "no tensor" : "two tensors"));
    end = entry.end;
    char* data = file->at(begin + entry.begin, entry.end - entry.begin);
    const auto bytes = static_cast<int64_t>(entry.end - entry.begin);
    at::Tensor view = at::from_blob(data, {bytes}, [file](void*) {}, at::kByte);
    if (reinterpret_cast<uintptr_t>(data) % alignof(std::max_align_t) != 0) view = view.clone();
    subject.items.push_back({.name = entry.name,
                             .kind = FindingKind::tensor,
                             .tensor = view.view(entry.dtype).view(entry.shape),
                             .value = {}});
  }
  if (begin + end != file->bytes().size())
    throw std::runtime_error(fmt::format("{} of its bytes, from byte {} on, belong to no tensor",
                                         file->bytes().size() - begin - end, begin + end));
}

}  // namespace lockstep::inspect
