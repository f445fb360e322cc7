#include "inspectors/verify/checkpoint_metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "inspectors/pickle/python_pickle.h"
#include "inspectors/verify/mapped_file.h"

namespace lockstep::inspect {
namespace {

constexpr uint64_t kMetadataCost = 256;  // what is counted for a tensor, shard or part beside its name, in bytes

/// Returns an attribute of an object, or an entry of a dictionary, by its name; null without one.
Pickled entry_of(const Pickled& object, std::string_view name, ReadingLimit& limit) {
  const PickledValue* dictionary = object->state ? object->state.get() : object.get();
  limit.take(dictionary->entries.size());  // one that many objects share is searched for each
  for (const auto& [key, value] : dictionary->entries)
    if (key->text == name) return value;
  return nullptr;
}

Pickled required(const Pickled& object, std::string_view name, const char* of, ReadingLimit& limit) {
  Pickled found = entry_of(object, name, limit);
  if (!found) throw std::runtime_error(fmt::format("{} in it has no {}", of, name));
  return found;
}

/// Reads torch.Size((4, 0)); None is empty.
std::vector<int64_t> numbers_of(const Pickled& size, ReadingLimit& limit) {
  std::vector<int64_t> numbers;
  if (size->is_call_of("torch.Size") && !size->items.at(1)->items.empty()) {
    const std::vector<Pickled>& items = size->items[1]->items[0]->items;
    limit.take(sizeof(int64_t) * items.size());
    for (const Pickled& each : items) numbers.push_back(integer_of(each));
  } else if (!size->is_call_of("torch.Size") && !is_none(size)) {
    throw std::runtime_error("it has " + short_text_of(size) + " where a size should be");
  }
  return numbers;
}

/// Returns the name of a file below the folder, so that a checkpoint names none outside of it.
std::string relative_file(const Pickled& value) {
  const std::filesystem::path path(value->text);
  const bool up = std::ranges::any_of(path, [](const std::filesystem::path& part) { return part == ".."; });
  if (path.empty() || path.is_absolute() || up)
    throw std::runtime_error(fmt::format("it names the file '{}', which is not in its folder", value->text));
  return path.string();
}

CheckpointEntry entry_from(const Pickled& name, const Pickled& metadata, ReadingLimit& limit) {
  limit.take(kMetadataCost + name->text.size());
  CheckpointEntry entry{.name = name->text, .is_tensor = false, .size = {}, .chunks = {}};
  const Pickled size = entry_of(metadata, "size", limit), chunks = entry_of(metadata, "chunks", limit);
  if (!size || !chunks) return entry;
  entry.is_tensor = true;
  entry.size = numbers_of(size, limit);
  limit.take(kMetadataCost * chunks->items.size());
  for (const Pickled& each : chunks->items)
    entry.chunks.push_back({.offset = numbers_of(required(each, "offsets", "a shard", limit), limit),
                            .size = numbers_of(required(each, "sizes", "a shard", limit), limit)});
  return entry;
}

CheckpointPart part_from(const Pickled& index, const Pickled& info, ReadingLimit& limit) {
  const char* const of = "an entry of the storage_data";
  const auto field = [&](const Pickled& object, const char* name) { return required(object, name, of, limit); };
  const Pickled offset = entry_of(index, "offset", limit), transforms = entry_of(info, "transform_descriptors", limit);
  const Pickled name = field(index, "fqn"), file = field(info, "relative_path");
  limit.take(kMetadataCost + name->text.size() + file->text.size());
  CheckpointPart part{.name = name->text,
                      .offset = offset ? numbers_of(offset, limit) : std::vector<int64_t>(),
                      .file = relative_file(file)};
  const int64_t begin = integer_of(field(info, "offset")), length = integer_of(field(info, "length"));
  if (begin < 0 || length < 0)
    throw std::runtime_error(fmt::format("it has a negative offset or length for {}", part.name));
  part.begin = static_cast<uint64_t>(begin);
  part.length = static_cast<uint64_t>(length);
  if (transforms && !is_none(transforms) && !transforms->items.empty())
    throw std::runtime_error(fmt::format("{} is stored with {}, which is not supported: save it without compression",
                                         part.name, short_text_of(transforms)));
  return part;
}

/// Returns the first element of a shard: "[4, 0]". Empty for the first element of the tensor, and for values.
std::string shard_text(const std::vector<int64_t>& offset) {
  const bool first = std::ranges::all_of(offset, [](int64_t each) { return each == 0; });
  return first ? "" : fmt::format("[{}]", fmt::join(offset, ", "));
}

}  // namespace

CheckpointMetadata read_checkpoint_metadata(const std::string& path, ReadingLimit& limit) {
  CheckpointMetadata result;
  try {
    const MappedFile file(path);
    const Pickle pickle(file.bytes(), limit);
    const auto entries = [&](const char* name) -> const auto& {
      return required(pickle.value(), name, "the object", limit)->entries;
    };
    for (const auto& [name, metadata] : entries("state_dict_metadata"))
      result.entries.push_back(entry_from(name, metadata, limit));
    for (const auto& [index, info] : entries("storage_data")) result.parts.push_back(part_from(index, info, limit));
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("the names of its contents can't be read from {}: {}", path, error.what()));
  }
  return result;
}

std::map<uint64_t, std::string> checkpoint_names(const std::string& path, ReadingLimit& limit) {
  std::map<uint64_t, std::string> names;
  const std::filesystem::path file(path), beside = file.parent_path() / ".metadata";
  if (!std::filesystem::exists(beside)) return names;
  for (const CheckpointPart& each : read_checkpoint_metadata(beside.string(), limit).parts)
    if (each.file == file.filename()) names.emplace(each.begin, each.name + shard_text(each.offset));
  return names;
}

}  // namespace lockstep::inspect
