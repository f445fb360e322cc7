#include "inspectors/saved_replica.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/serialize.h>

#include <fstream>
#include <iterator>

#include "dist/errors.h"

namespace lockstep::inspect {
namespace {

void add(Subject& subject, const std::string& name, const char* kind, const at::Tensor& tensor) {
  subject.items.push_back({.name = name, .kind = kind, .tensor = tensor, .value = {}});
}

/// What Python's state dicts are made of; a checkpoint's dictionaries within dictionaries, too.
void add(Subject& subject, const std::string& name, const c10::IValue& value) {
  if (value.isTensor()) {
    add(subject, name, "tensor", value.toTensor().detach());
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      const std::string key = entry.key().isString() ? entry.key().toStringRef() : c10::str(entry.key());
      add(subject, detail::joined(name, key), entry.value());
    }
  } else if (value.isList() || value.isTuple()) {
    size_t index = 0;
    const auto each = [&](const c10::IValue& element) { add(subject, fmt::format("{}[{}]", name, index++), element); };
    if (value.isTuple())
      for (const c10::IValue& element : value.toTupleRef().elements()) each(element);
    else
      for (const c10::IValue& element : value.toListRef()) each(element);
  } else {
    subject.items.push_back({.name = name, .kind = "value", .tensor = {}, .value = c10::str(value)});
  }
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
      add(subject, name, value);
  }
}

}  // namespace

Subject saved_replica(const std::string& path) {
  Subject subject;
  subject.type = "file";
  try {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw dist::ArgumentError("it does not exist, or may not be read");
    const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
    bool archive = false;
    {
      caffe2::serialize::PyTorchStreamReader reader(path);
      archive = reader.hasRecord("constants.pkl");  // as TorchScript has it, which LibTorch's archives are
    }
    if (archive) {
      torch::serialize::InputArchive input;
      input.load_from(path);
      add(subject, "", input);
    } else {
      add(subject, "", torch::jit::pickle_load(bytes));
    }
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw dist::ArgumentError(fmt::format(
        "'{}' can't be read as a saved replica: {}. Files of torch::save can, and of Python's "
        "torch.save(dict(model.state_dict()), …): LibTorch does not read the notes that a bare state_dict() "
        "bears, so load such a file in Python and save its dict()",
        path, text.substr(0, text.find('\n'))));
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
