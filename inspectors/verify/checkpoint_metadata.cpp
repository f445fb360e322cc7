#include "inspectors/verify/checkpoint_metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "inspectors/pickle/python_pickle.h"

namespace lockstep::inspect {
namespace {

/// An attribute of an object, or an entry of a dictionary, by its name; null without one.
Pickled entry_of(const Pickled& object, std::string_view name) {
  const PickledValue* dictionary = object->state ? object->state.get() : object.get();
  for (const auto& [key, value] : dictionary->entries)
    if (key->text == name) return value;
  return nullptr;
}

Pickled required(const Pickled& object, std::string_view name, const char* of) {
  Pickled found = entry_of(object, name);
  if (!found) throw std::runtime_error(fmt::format("{} in it has no {}", of, name));
  return found;
}

/// From torch.Size((4, 0)); None is empty.
std::vector<int64_t> numbers_of(const Pickled& size) {
  std::vector<int64_t> numbers;
  if (size->is_call_of("torch.Size") && !size->items.at(1)->items.empty()) {
    for (const Pickled& each : size->items[1]->items[0]->items) numbers.push_back(integer_of(each));
  } else if (text_of(size) != "None" && !size->is_call_of("torch.Size")) {
    throw std::runtime_error("it has " + text_of(size) + " where a size should be");
  }
  return numbers;
}

/// The name of a file below the folder, so that a checkpoint names none outside of it.
std::string relative_file(const Pickled& value) {
  const std::filesystem::path path(value->text);
  const bool up = std::ranges::any_of(path, [](const std::filesystem::path& part) { return part == ".."; });
  if (path.empty() || path.is_absolute() || up)
    throw std::runtime_error(fmt::format("it names the file '{}', which is not in its folder", value->text));
  return path.string();
}

CheckpointEntry entry_from(const Pickled& name, const Pickled& metadata) {
  CheckpointEntry entry{.name = name->text, .is_tensor = false, .size = {}, .chunks = {}};
  const Pickled size = entry_of(metadata, "size"), chunks = entry_of(metadata, "chunks");
  if (!size || !chunks) return entry;
  entry.is_tensor = true;
  entry.size = numbers_of(size);
  for (const Pickled& each : chunks->items)
    entry.chunks.push_back({.offset = numbers_of(required(each, "offsets", "a shard")),
                            .size = numbers_of(required(each, "sizes", "a shard"))});
  return entry;
}

CheckpointPart part_from(const Pickled& index, const Pickled& info) {
  const char* const of = "an entry of the storage_data";
  const Pickled offset = entry_of(index, "offset"), transforms = entry_of(info, "transform_descriptors");
  CheckpointPart part{.name = required(index, "fqn", of)->text,
                      .offset = offset ? numbers_of(offset) : std::vector<int64_t>(),
                      .file = relative_file(required(info, "relative_path", of))};
  const int64_t begin = integer_of(required(info, "offset", of)), length = integer_of(required(info, "length", of));
  if (begin < 0 || length < 0)
    throw std::runtime_error(fmt::format("it has a negative offset or length for {}", part.name));
  part.begin = static_cast<uint64_t>(begin);
  part.length = static_cast<uint64_t>(length);
  if (transforms && text_of(transforms) != "None" && !transforms->items.empty())
    throw std::runtime_error(fmt::format("{} is stored with {}, which is not supported: save it without compression",
                                         part.name, text_of(transforms)));
  return part;
}

/// The first element of a shard: "[4, 0]". Empty for the first element of the tensor, and for values.
std::string shard_text(const std::vector<int64_t>& offset) {
  const bool first = std::ranges::all_of(offset, [](int64_t each) { return each == 0; });
  return first ? "" : fmt::format("[{}]", fmt::join(offset, ", "));
}

}  // namespace

CheckpointMetadata read_checkpoint_metadata(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error(path + " does not exist, or may not be read");
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  CheckpointMetadata result;
  try {
    const Pickle pickle(bytes);
    for (const auto& [name, metadata] : required(pickle.value(), "state_dict_metadata", "the object")->entries)
      result.entries.push_back(entry_from(name, metadata));
    for (const auto& [index, info] : required(pickle.value(), "storage_data", "the object")->entries)
      result.parts.push_back(part_from(index, info));
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("the names of its contents can't be read from {}: {}", path, error.what()));
  }
  return result;
}

std::map<uint64_t, std::string> checkpoint_names(const std::string& path) {
  std::map<uint64_t, std::string> names;
  const std::filesystem::path file(path), beside = file.parent_path() / ".metadata";
  if (!std::filesystem::exists(beside)) return names;
  for (const CheckpointPart& each : read_checkpoint_metadata(beside.string()).parts)
    if (each.file == file.filename()) names.emplace(each.begin, each.name + shard_text(each.offset));
  return names;
}

}  // namespace lockstep::inspect
