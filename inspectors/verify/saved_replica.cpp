#include "inspectors/verify/verify.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "inspectors/pickle/python_pickle.h"
#include "inspectors/pickle/reading_limit.h"
#include "inspectors/verify/checkpoint_folder.h"
#include "inspectors/verify/checkpoint_metadata.h"
#include "inspectors/verify/mapped_file.h"
#include "inspectors/verify/python_file.h"
#include "inspectors/verify/safetensors_file.h"
#include "inspectors/verify/zip_archives.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace {

void add(Subject& subject, const std::string& name, FindingKind kind, const at::Tensor& tensor) {
  subject.items.push_back({.name = name, .kind = kind, .tensor = tensor, .value = {}});
}

constexpr int kDeepestObject = 100;  // of nested lists and objects
// So much is counted for a value beside its name and text, and for a byte of a pickle or code that LibTorch reads.
constexpr uint64_t kArchiveItemCost = 256, kPickledByteCost = 64;

/// Adds a value of LibTorch's archive. Containers are divided into their elements, so that tensors in them are compared
/// by their bytes.
void add(Subject& subject, const std::string& name, const c10::IValue& value, ReadingLimit& limit, int depth = 0) {
  if (depth > kDeepestObject) throw std::runtime_error(fmt::format("'{}…' is nested too deeply", name.substr(0, 40)));
  limit.take(kArchiveItemCost + 2 * name.size());
  const auto add_text = [&](std::string text) {
    subject.items.push_back({.name = name, .kind = FindingKind::value, .tensor = {}, .value = std::move(text)});
  };
  const auto add_all = [&](const auto& elements) {
    size_t index = 0;
    for (const auto& each : elements) add(subject, fmt::format("{}[{}]", name, index++), each, limit, depth + 1);
    if (index == 0) add_text("[]");
  };
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor tensor = value.toTensor().detach();
    limit.take(tensor.nbytes());  // many can have the same elements
    add(subject, name, FindingKind::parameter, tensor);
    // A view is saved with its complete storage.
    if (tensor.has_storage() && tensor.storage().nbytes() != tensor.nbytes())
      subject.unseen.push_back({.name = detail::joined(name, "storage()"),
                                .kind = FindingKind::storage,
                                .tensor = at::empty({0}, at::kByte).set_(tensor.storage()),
                                .value = {}});
    return;
  }
  if (value.isString()) {
    limit.take(value.toStringRef().size());
    return add_text(value.toStringRef());
  }
  if (value.isDouble()) return add_text(text_of(value.toDouble()));
  if (value.isList()) return add_all(value.toListRef());
  if (value.isTuple()) return add_all(value.toTupleRef().elements());
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict())
      add(subject, detail::joined(name, entry.key().isString() ? entry.key().toStringRef() : c10::str(entry.key())),
          entry.value(), limit, depth + 1);
    if (value.toGenericDict().empty()) add_text("{}");
    return;
  }
  if (value.isObject()) {
    const auto object = value.toObject();
    for (size_t i = 0; i < object->type()->numAttributes(); ++i)
      add(subject, detail::joined(name, object->type()->getAttributeName(i)), object->getSlot(i), limit, depth + 1);
    if (object->type()->numAttributes() == 0) add_text("()");
    return;
  }
  add_text(c10::str(value));
}

/// Reads LibTorch's archives: a tree of keys.
void add(Subject& subject, const std::string& prefix, torch::serialize::InputArchive& archive, ReadingLimit& limit) {
  for (const std::string& key : archive.keys()) {
    const std::string name = detail::joined(prefix, key);
    torch::serialize::InputArchive inner;
    c10::IValue value;
    if (archive.try_read(key, inner))
      add(subject, name, inner, limit);
    else if (archive.try_read(key, value))
      add(subject, name, value, limit);
    else
      throw std::runtime_error(fmt::format("'{}' is of a kind that is not supported", name));
  }
}

/// Takes ".___torch_mangle_3" out: the numbers depend on the process that saved them.
std::string without_mangling(std::string_view text) {
  constexpr std::string_view kMark = "___torch_mangle_";
  std::string kept;
  size_t at = 0;
  for (size_t mark; (mark = text.find(kMark, at)) != std::string_view::npos;) {
    const size_t number = mark + kMark.size(),
                 end = std::min(text.find_first_not_of("0123456789", number), text.size());
    const size_t begin = mark > at && text[mark - 1] == '.' ? mark - 1 : mark;
    kept += text.substr(at, (end > number ? begin : end) - at);
    at = end;
  }
  return kept.append(text.substr(at));
}

/// Adds code and constants of TorchScript's models, which have the format of LibTorch's archives. The code of
/// LibTorch's own archives has only lists of attributes, which are the keys.
void add_records(Subject& subject, const std::string& prefix, caffe2::serialize::PyTorchStreamReader& records) {
  for (const std::string& name : records.getAllRecords()) {
    const bool code = name.starts_with("code/") && name.ends_with(".py");
    if (!code && !name.starts_with("constants/") && !name.starts_with("extra/") && name != "constants.pkl") continue;
    const auto [data, size] = records.getRecord(name);
    Item item{.name = detail::joined(prefix, "record " + name), .kind = FindingKind::record, .tensor = {}, .value = {}};
    if (code) {
      const std::string text(static_cast<const char*>(data.get()), size);
      if (text.find("def ") == std::string::npos) continue;
      item.value = without_mangling(text);
    } else {
      item.tensor = at::from_blob(data.get(), {static_cast<int64_t>(size)}, at::kByte).clone();
    }
    subject.items.push_back(std::move(item));
  }
}

/// LibTorch saves optimizers with the addresses of parameters in the saving process, and state in the order of a hash
/// table. The state is renamed and sorted by the indices of the parameters in their groups, which files have in common.
void name_by_parameter(Subject& subject) {
  const std::string groups = "param_groups.param_groups/", parameters = ".params/";
  // Maps the name of the state in the file to its number and new name.
  std::map<std::string, std::pair<size_t, std::string>> new_names;
  for (Item& item : subject.items) {
    const size_t end = item.name.rfind(parameters), begin = item.name.rfind(groups, end);
    if (item.tensor.defined() || end == std::string::npos || begin == std::string::npos) continue;
    const std::string prefix = item.name.substr(0, begin);
    const size_t group = begin + groups.size();
    const std::string index = item.name.substr(group, end - group) + "." + item.name.substr(end + parameters.size());
    new_names.emplace(prefix + "state." + item.value, std::pair(new_names.size(), prefix + "state." + index));
    item.value = index;
  }
  std::vector<std::pair<size_t, Item>> states;
  std::vector<size_t> indices;  // of the states
  for (size_t i = 0; i < subject.items.size(); ++i) {
    Item& item = subject.items[i];
    const size_t end = std::min(item.name.rfind('.'), item.name.size());
    const auto found = new_names.find(item.name.substr(0, end));
    if (found == new_names.end()) continue;
    item.name = found->second.second + item.name.substr(end);
    if (item.tensor.defined()) item.kind = FindingKind::state;
    states.emplace_back(found->second.first, std::move(item));
    indices.push_back(i);
  }
  std::stable_sort(states.begin(), states.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < indices.size(); ++i) subject.items[indices[i]] = std::move(states[i].second);
}

/// Says what the beginning of a file tells about its format.
enum class Format { zip, safetensors };

/// Throws, with a description, for files that are neither.
Format format_of(const std::string& path, const MappedFile& file) {
  const std::string_view bytes = file.bytes();
  if (bytes.starts_with("PK\3\4")) return Format::zip;
  if (is_safetensors(file)) return Format::safetensors;
  if (path.ends_with(".safetensors"))
    throw std::runtime_error("it does not begin with the header of safetensors: it was cut off, or it is damaged");
  if (bytes.starts_with("\x80\x02"))
    throw std::runtime_error(
        "it is in the format of PyTorch before 1.6: load it in Python, and save it with "
        "_use_new_zipfile_serialization=True");
  throw std::runtime_error("it is no file of torch.save, which is a zip archive, and none of safetensors");
}

std::shared_ptr<MappedFile> mapped(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) throw std::runtime_error("it does not exist, or may not be read");
  std::error_code error;
  if (std::filesystem::file_size(path, error) == 0 && !error) throw std::runtime_error("it is empty");
  return std::make_shared<MappedFile>(path);
}

void add_archives(SavedReplica& replica, const std::string& path, const std::shared_ptr<MappedFile>& file,
                  ReadingLimit& limit) {
  const std::vector<ZipArchive> archives = zip_archives(file->bytes());
  const bool part = path.ends_with(".distcp") || archives.size() > 1;
  const std::map<uint64_t, std::string> names =
      part ? checkpoint_names(path, limit) : std::map<uint64_t, std::string>();
  if (part) replica.format = SavedFormat::checkpoint_part;
  for (size_t i = 0; i < archives.size(); ++i) {
    const auto named = names.find(archives[i].begin);
    const std::string name = named != names.end() ? named->second : archives.size() > 1 ? fmt::format("[{}]", i) : "";
    const auto reader = std::make_shared<ZipArchiveReader>(file, archives[i], limit);
    caffe2::serialize::PyTorchStreamReader records(reader);
    // LibTorch's archives have the format of TorchScript.
    if (records.hasRecord("constants.pkl")) {
      if (!part) replica.format = SavedFormat::libtorch;
      for (const std::string& each : records.getAllRecords())
        if (each.ends_with(".pkl") || each.ends_with(".py")) limit.take(kPickledByteCost * records.getRecordSize(each));
      torch::serialize::InputArchive input;
      input.load_from([&](uint64_t offset, void* into, size_t count) { return reader->read(offset, into, count); },
                      [&] { return reader->size(); });
      add(replica, name, input, limit);
      add_records(replica, name, records);
    } else {
      add_python_archive(replica, name, file, archives[i], limit);
    }
  }
  replica.is_module = std::ranges::any_of(replica.items, [](const Item& each) { return each.name == "__class__"; });
  name_by_parameter(replica);
}

void add_folder(SavedReplica& replica, const std::string& path, ReadingLimit& limit) {
  if (!std::filesystem::exists(std::filesystem::path(path) / ".metadata"))
    throw std::runtime_error(
        "it is a folder without the file .metadata, which a checkpoint of torch.distributed.checkpoint has; name the "
        "files in it");
  replica.format = SavedFormat::checkpoint;
  add_checkpoint_folder(replica, path, limit);
}

}  // namespace

SavedReplica saved_replica(const std::string& path, ReadingLimit& limit) {
  SavedReplica replica;
  replica.type = "file";
  try {
    if (std::filesystem::is_directory(path)) {
      add_folder(replica, path, limit);
    } else {
      const auto file = mapped(path);
      limit.add(kReadingsOfAFile * file->bytes().size());
      if (format_of(path, *file) == Format::safetensors) {
        replica.format = SavedFormat::safetensors;
        add_safetensors(replica, file, limit);
      } else {
        add_archives(replica, path, file, limit);
      }
    }
    number_equal_names(replica.items);
    number_equal_names(replica.unseen);
  } catch (const std::exception& error) {
    std::string text = error.what();
    if (text.find("central directory") != std::string::npos)  // the end of a zip file
      text = "its end is missing, as when the job that wrote it, or a copy of it, was cut off";
    throw dist::ArgumentError(fmt::format(
        "'{}' can't be read as a saved replica: {}. Supported are files of torch::save, of Python's torch.save and of "
        "safetensors, and folders of torch.distributed.checkpoint",
        path, text.substr(0, text.find('\n'))));
  }
  if (replica.items.empty()) throw dist::ArgumentError(fmt::format("'{}' has no tensors", path));
  return replica;
}

SavedReplica saved_replica(const std::string& path) {
  ReadingLimit limit;
  return saved_replica(path, limit);
}

}  // namespace lockstep::inspect
