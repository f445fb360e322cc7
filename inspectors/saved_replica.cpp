#include "inspectors/saved_replica.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/serialize.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string_view>

#include "dist/errors.h"
#include "inspectors/python_file.h"

namespace lockstep::inspect {
namespace {

void add(Subject& subject, const std::string& name, const char* kind, const at::Tensor& tensor) {
  subject.items.push_back({.name = name, .kind = kind, .tensor = tensor, .value = {}});
}

/// LibTorch's archives: a tree of keys.
void add(Subject& subject, const std::string& prefix, torch::serialize::InputArchive& archive) {
  for (const std::string& key : archive.keys()) {
    const std::string name = detail::joined(prefix, key);
    torch::serialize::InputArchive inner;
    at::Tensor tensor;
    c10::IValue value;
    if (archive.try_read(key, inner))
      add(subject, name, inner);
    else if (archive.try_read(key, tensor, /*is_buffer=*/false))
      add(subject, name, "parameter", tensor.detach());
    else if (archive.try_read(key, tensor, /*is_buffer=*/true))
      add(subject, name, "buffer", tensor.detach());
    else if (archive.try_read(key, value))
      subject.items.push_back({.name = name,
                               .kind = "value",
                               .tensor = {},
                               .value = value.isString() ? value.toStringRef() : c10::str(value)});
  }
}

/// LibTorch's optimizers are saved with the addresses that parameters had in the process that saved them, and state in an order
/// of chance. What files have in common are the parameters' places in their groups.
void name_by_place(Subject& subject) {
  const std::string groups = "param_groups.param_groups/", parameters = ".params/";
  // By the state's name in the file: its number, and its name from now on.
  std::map<std::string, std::pair<size_t, std::string>> places;
  for (Item& item : subject.items) {
    const size_t end = item.name.rfind(parameters), begin = item.name.rfind(groups, end);
    if (item.tensor.defined() || end == std::string::npos || begin == std::string::npos) continue;
    const std::string prefix = item.name.substr(0, begin);
    const size_t group = begin + groups.size();
    const std::string place = item.name.substr(group, end - group) + "." + item.name.substr(end + parameters.size());
    places.emplace(prefix + "state." + item.value, std::pair(places.size(), prefix + "state." + place));
    item.value = place;
  }
  std::vector<std::pair<size_t, Item>> states;
  std::vector<size_t> holes;
  for (size_t i = 0; i < subject.items.size(); ++i) {
    Item& item = subject.items[i];
    const size_t end = std::min(item.name.rfind('.'), item.name.size());
    const auto found = places.find(item.name.substr(0, end));
    if (found == places.end()) continue;
    item.name = found->second.second + item.name.substr(end);
    if (item.tensor.defined()) item.kind = "state";
    states.emplace_back(found->second.first, std::move(item));
    holes.push_back(i);
  }
  std::stable_sort(states.begin(), states.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < holes.size(); ++i) subject.items[holes[i]] = std::move(states[i].second);
}

/// Says what a file is that is no zip file, which torch.save's are. Throws.
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
  throw std::runtime_error("it is no file of torch.save: it does not begin as one");
}

}  // namespace

Subject saved_replica(const std::string& path) {
  Subject subject;
  subject.type = "file";
  try {
    check_beginning(path);
    const bool archive = [&] {
      caffe2::serialize::PyTorchStreamReader reader(path);
      return reader.hasRecord("constants.pkl");  // as TorchScript has it, which LibTorch's archives are
    }();
    if (archive) {
      torch::serialize::InputArchive input;
      input.load_from(path);
      add(subject, "", input);
      name_by_place(subject);
    } else {
      add_python_file(subject, path);
    }
  } catch (const std::exception& error) {
    std::string text = error.what();
    if (text.find("central directory") != std::string::npos)  // which stands at a zip file's end
      text = "its end is missing, as when the job that wrote it, or a copy of it, was cut off";
    throw dist::ArgumentError(fmt::format(
        "'{}' can't be read as a saved replica: {}. Files of torch::save can be, and of Python's torch.save", path,
        text.substr(0, text.find('\n'))));
  }
  if (subject.items.empty()) throw dist::ArgumentError(fmt::format("'{}' holds no tensor", path));
  return subject;
}

Report verify_files(const std::vector<std::string>& paths, const VerifyOptions& options) {
  if (paths.size() < 2) throw dist::ArgumentError("inspect::verify_files: needs two files or more");
  std::vector<Subject> subjects;
  for (const std::string& path : paths) {
    subjects.push_back(saved_replica(path));
    subjects.back().name = options.name().empty() ? paths.front() + ", …" : options.name();
  }
  return verify_here(subjects, RankSet::all(static_cast<int>(paths.size())), options);
}

}  // namespace lockstep::inspect
