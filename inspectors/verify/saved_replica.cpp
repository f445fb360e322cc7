#include "inspectors/verify/saved_replica.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/serialize.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <ranges>
#include <regex>
#include <stdexcept>
#include <string_view>

#include "inspectors/findings/about.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/pickle/python_pickle.h"
#include "inspectors/verify/checkpoint_names.h"
#include "inspectors/verify/mapped_file.h"
#include "inspectors/verify/python_file.h"
#include "inspectors/verify/zip_archives.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace {

void add(Subject& subject, const std::string& name, FindingKind kind, const at::Tensor& tensor) {
  subject.items.push_back({.name = name, .kind = kind, .tensor = tensor, .value = {}});
}

// Limit for nested lists and objects.
constexpr int kDeepestObject = 100;

/// Adds a value of LibTorch's archive. Containers are divided into their elements, so that tensors in them are compared
/// by their bytes.
void add(Subject& subject, const std::string& name, const c10::IValue& value, int depth = 0) {
  if (depth > kDeepestObject) throw std::runtime_error(fmt::format("'{}…' is nested too deeply", name.substr(0, 40)));
  const auto add_text = [&](std::string text) {
    subject.items.push_back({.name = name, .kind = FindingKind::value, .tensor = {}, .value = std::move(text)});
  };
  const auto add_all = [&](const auto& elements) {
    size_t index = 0;
    for (const auto& each : elements) add(subject, fmt::format("{}[{}]", name, index++), each, depth + 1);
    if (index == 0) add_text("[]");
  };
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor tensor = value.toTensor().detach();
    add(subject, name, FindingKind::parameter, tensor);
    // A view is saved with its complete storage.
    if (tensor.has_storage() && tensor.storage().nbytes() != tensor.nbytes())
      subject.unseen.push_back({.name = detail::joined(name, "storage()"),
                                .kind = FindingKind::storage,
                                .tensor = at::empty({0}, at::kByte).set_(tensor.storage()),
                                .value = {}});
    return;
  }
  if (value.isString()) return add_text(value.toStringRef());
  if (value.isDouble()) return add_text(text_of(value.toDouble()));
  if (value.isList()) return add_all(value.toListRef());
  if (value.isTuple()) return add_all(value.toTupleRef().elements());
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict())
      add(subject, detail::joined(name, entry.key().isString() ? entry.key().toStringRef() : c10::str(entry.key())),
          entry.value(), depth + 1);
    if (value.toGenericDict().empty()) add_text("{}");
    return;
  }
  if (value.isObject()) {
    const auto object = value.toObject();
    for (size_t i = 0; i < object->type()->numAttributes(); ++i)
      add(subject, detail::joined(name, object->type()->getAttributeName(i)), object->getSlot(i), depth + 1);
    if (object->type()->numAttributes() == 0) add_text("()");
    return;
  }
  add_text(c10::str(value));
}

/// LibTorch's archives: a tree of keys.
void add(Subject& subject, const std::string& prefix, torch::serialize::InputArchive& archive) {
  for (const std::string& key : archive.keys()) {
    const std::string name = detail::joined(prefix, key);
    torch::serialize::InputArchive inner;
    c10::IValue value;
    if (archive.try_read(key, inner))
      add(subject, name, inner);
    else if (archive.try_read(key, value))
      add(subject, name, value);
    else
      throw std::runtime_error(fmt::format("'{}' is of a kind that is not supported", name));
  }
}

/// Adds code and constants of TorchScript's models, which have the format of LibTorch's archives. The code of
/// LibTorch's own archives has only lists of attributes, which are the keys.
void add_records(Subject& subject, const std::string& prefix, caffe2::serialize::PyTorchStreamReader& records) {
  static const std::regex kMangled(R"(\.?___torch_mangle_\d+)");  // the numbers depend on the process that saved them
  for (const std::string& name : records.getAllRecords()) {
    const bool code = name.starts_with("code/") && name.ends_with(".py");
    if (!code && !name.starts_with("constants/") && !name.starts_with("extra/") && name != "constants.pkl") continue;
    const auto [data, size] = records.getRecord(name);
    Item item{.name = detail::joined(prefix, "record " + name), .kind = FindingKind::record, .tensor = {}, .value = {}};
    if (code) {
      const std::string text(static_cast<const char*>(data.get()), size);
      if (text.find("def ") == std::string::npos) continue;
      item.value = std::regex_replace(text, kMangled, "");
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
  // Name of the state in the file → its number and new name.
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

/// Throws, with a description, for files that are no zip files as torch.save writes them.
void check_beginning(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw std::runtime_error("it is a folder");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("it does not exist, or may not be read");
  char beginning[4] = {};
  stream.read(beginning, sizeof beginning);
  if (stream.gcount() == 0) throw std::runtime_error("it is empty");
  const std::string_view seen(beginning, static_cast<size_t>(stream.gcount()));
  if (seen == "PK\3\4") return;
  if (seen.starts_with("\x80\x02"))
    throw std::runtime_error(
        "it is in the format of PyTorch before 1.6: load it in Python, and save it with "
        "_use_new_zipfile_serialization=True");
  throw std::runtime_error("it is no file of torch.save: it is no zip archive");
}

}  // namespace

Subject saved_replica(const std::string& path) {
  Subject subject;
  subject.type = "file";
  try {
    check_beginning(path);
    const auto file = std::make_shared<MappedFile>(path);
    const std::vector<ZipArchive> archives = zip_archives(file->bytes());
    const std::map<uint64_t, std::string> names =
        archives.size() > 1 ? checkpoint_names(path) : std::map<uint64_t, std::string>();
    for (size_t i = 0; i < archives.size(); ++i) {
      const auto named = names.find(archives[i].begin);
      const std::string name = named != names.end() ? named->second : archives.size() > 1 ? fmt::format("[{}]", i) : "";
      const auto reader = std::make_shared<ZipArchiveReader>(file, archives[i]);
      caffe2::serialize::PyTorchStreamReader records(reader);
      // LibTorch's archives have the format of TorchScript.
      if (records.hasRecord("constants.pkl")) {
        torch::serialize::InputArchive input;
        input.load_from([&](uint64_t offset, void* into, size_t count) { return reader->read(offset, into, count); },
                        [&] { return reader->size(); });
        add(subject, name, input);
        add_records(subject, name, records);
      } else {
        add_python_archive(subject, name, file, archives[i]);
      }
    }
    name_by_parameter(subject);
    number_equal_names(subject.items);
    number_equal_names(subject.unseen);
  } catch (const std::exception& error) {
    std::string text = error.what();
    if (text.find("central directory") != std::string::npos)  // the end of a zip file
      text = "its end is missing, as when the job that wrote it, or a copy of it, was cut off";
    throw dist::ArgumentError(fmt::format(
        "'{}' can't be read as a saved replica: {}. Supported are files of torch::save and of Python's torch.save",
        path, text.substr(0, text.find('\n'))));
  }
  if (subject.items.empty()) throw dist::ArgumentError(fmt::format("'{}' has no tensors", path));
  return subject;
}

namespace {

/// Adds a note if files differ in bytes that belong to no tensor or value. It replaces an ok, since the files differ.
void compare_unseen(const std::vector<Subject>& subjects, Report& report) {
  constexpr size_t kNamed = 3;
  std::map<std::string, std::vector<std::optional<Hash>>> seen;
  for (size_t i = 0; i < subjects.size(); ++i)
    for (const Item& each : subjects[i].unseen) {
      auto& hashes = seen[each.name];
      hashes.resize(subjects.size());
      hashes[i] = each.tensor.defined() ? fingerprint(each.tensor).hash : hash_of(each.value);
    }
  std::erase_if(seen, [](const auto& each) {
    return std::ranges::all_of(each.second, [&](const auto& hash) { return hash == each.second[0]; });
  });
  if (seen.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, hashes] : seen) names.push_back(name);
  const size_t more = names.size() - std::min(kNamed, names.size());
  names.resize(names.size() - more);
  const auto ok = std::ranges::find_if(report.findings, [](const Finding& each) { return !is_not_ok(each); });
  const About about{.inspector = "verify",
                    .object = report.findings.front().object.value_or(""),
                    .step = report.findings.front().step,
                    .ranks = RankSet::all(static_cast<int>(subjects.size()))};
  Finding found = about.finding(Severity::note, Verdict::mismatch, FindingKind::storage);
  found.message = fmt::format("{} differ in bytes that belong to no tensor or value: {}{}{}", found.ranks.words(),
                              fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "",
                              ok != report.findings.end() ? "; tensors and values are equal" : "");
  if (ok != report.findings.end())
    *ok = std::move(found);
  else
    report.findings.push_back(std::move(found));
}

}  // namespace

Report verify_files(const std::vector<std::string>& paths, const VerifyOptions& options) {
  if (paths.size() < 2) throw dist::ArgumentError("inspect::verify_files: needs two files or more");
  std::vector<Subject> subjects;
  for (const std::string& path : paths) {
    subjects.push_back(saved_replica(path));
    subjects.back().name = options.name().empty() ? paths.front() + ", …" : options.name();
  }
  Report report =
      verify_here(subjects, RankSet::all(static_cast<int>(paths.size())), VerifyOptions(options).publish(false));
  compare_unseen(subjects, report);
  if (options.publish()) publish(report);
  return report;
}

}  // namespace lockstep::inspect
