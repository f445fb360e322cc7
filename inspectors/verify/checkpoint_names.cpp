#include "inspectors/verify/checkpoint_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

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

/// The first element of a shard, from torch.Size((4, 0)): "[4, 0]". Empty for the first element of the tensor, and for
/// values that are no tensors.
std::string shard_text(const Pickled& offset) {
  if (!offset || !offset->is_call_of("torch.Size") || offset->items.at(1)->items.empty()) return "";
  std::vector<int64_t> index;
  for (const Pickled& each : offset->items[1]->items[0]->items) index.push_back(integer_of(each));
  if (std::ranges::all_of(index, [](int64_t each) { return each == 0; })) return "";
  return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace

std::map<uint64_t, std::string> checkpoint_names(const std::string& path) {
  std::map<uint64_t, std::string> names;
  const std::filesystem::path file(path), beside = file.parent_path() / ".metadata";
  std::ifstream stream(beside, std::ios::binary);
  if (!stream) return names;
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  try {
    const Pickle metadata(bytes);
    const Pickled stored = entry_of(metadata.value(), "storage_data");
    if (!stored) throw std::runtime_error("it has no storage_data");
    for (const auto& [index, info] : stored->entries) {
      const Pickled name = entry_of(index, "fqn"), in = entry_of(info, "relative_path"), at = entry_of(info, "offset");
      if (!name || !in || !at) throw std::runtime_error("an entry of its storage_data is incomplete");
      if (in->text == file.filename())
        names.emplace(static_cast<uint64_t>(integer_of(at)), name->text + shard_text(entry_of(index, "offset")));
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("the names of its contents can't be read from {}: {}", beside.string(), error.what()));
  }
  return names;
}

}  // namespace lockstep::inspect
