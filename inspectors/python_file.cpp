#include "inspectors/python_file.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <stdexcept>

#include "inspectors/python_pickle.h"

namespace lockstep::inspect {
namespace {

using Kind = PickledValue::Kind;

// Dictionaries within dictionaries, and what they hold in all.
constexpr int kDeepest = 100;
constexpr int64_t kMostValues = 10'000'000;

/// A file's bytes, for as long as a tensor shows them.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (file >= 0 && ::fstat(file, &status) == 0 && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      // Private: a tensor of it may be written to like any other.
      void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
      if (mapped != MAP_FAILED) data_ = static_cast<char*>(mapped);
    }
    const int reason = errno;
    if (file >= 0) ::close(file);
    if (!data_) throw std::runtime_error(fmt::format("it can't be mapped ({})", std::strerror(reason)));
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { ::munmap(data_, size_); }

  char* at(uint64_t offset, uint64_t count) const {
    if (offset > size_ || count > size_ - offset) throw std::runtime_error("it ends early");
    return data_ + offset;
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

/// By Python's name, without what stands before the last dot; Undefined for others.
at::ScalarType dtype_of(std::string_view name) {
  static const std::map<std::string_view, at::ScalarType> dtypes = {{"FloatStorage", at::kFloat},
                                                                    {"DoubleStorage", at::kDouble},
                                                                    {"HalfStorage", at::kHalf},
                                                                    {"BFloat16Storage", at::kBFloat16},
                                                                    {"LongStorage", at::kLong},
                                                                    {"IntStorage", at::kInt},
                                                                    {"ShortStorage", at::kShort},
                                                                    {"CharStorage", at::kChar},
                                                                    {"ByteStorage", at::kByte},
                                                                    {"BoolStorage", at::kBool},
                                                                    {"ComplexFloatStorage", at::kComplexFloat},
                                                                    {"ComplexDoubleStorage", at::kComplexDouble},
                                                                    {"float32", at::kFloat},
                                                                    {"float64", at::kDouble},
                                                                    {"float16", at::kHalf},
                                                                    {"bfloat16", at::kBFloat16},
                                                                    {"int64", at::kLong},
                                                                    {"int32", at::kInt},
                                                                    {"int16", at::kShort},
                                                                    {"int8", at::kChar},
                                                                    {"uint8", at::kByte},
                                                                    {"uint16", at::kUInt16},
                                                                    {"uint32", at::kUInt32},
                                                                    {"uint64", at::kUInt64},
                                                                    {"bool", at::kBool},
                                                                    {"complex32", at::kComplexHalf},
                                                                    {"complex64", at::kComplexFloat},
                                                                    {"complex128", at::kComplexDouble},
                                                                    {"float8_e5m2", at::kFloat8_e5m2},
                                                                    {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                                                    {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
                                                                    {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
                                                                    {"float8_e8m0fnu", at::kFloat8_e8m0fnu}};
  const auto found = dtypes.find(name.substr(name.rfind('.') + 1));
  return found == dtypes.end() ? at::ScalarType::Undefined : found->second;
}

std::vector<int64_t> integers_of(const Pickled& list) {
  std::vector<int64_t> result;
  for (const Pickled& item : list->items) result.push_back(integer_of(item));
  return result;
}

class PythonFile {
 public:
  explicit PythonFile(const std::string& path) : records_(path), file_(std::make_shared<MappedFile>(path)) {
    if (records_.hasRecord("byteorder") && record("byteorder") != "little")
      throw std::runtime_error("it was written on a machine with another order of bytes");
  }

  void add_to(Subject& subject) {
    const std::string pickle = record("data.pkl");
    add(subject, "", "tensor", Pickle(pickle).value(), 0);
  }

 private:
  std::string record(const std::string& name) {
    const auto [data, size] = records_.getRecord(name);
    return {static_cast<const char*>(data.get()), size};
  }

  /// A record of the zip file as bytes of a tensor: in the file where it lies there as it is.
  at::Tensor bytes_of(const std::string& name) {
    const auto size = static_cast<int64_t>(records_.getRecordSize(name));
    if (size == 0) return at::empty({0}, at::kByte);
    // Of a local header (APPNOTE of PKWARE, 4.3.7): the method of compression. torch.save writes 0, other tools need not.
    uint16_t method;
    std::memcpy(&method, file_->at(records_.getRecordHeaderOffset(name) + 8, sizeof method), sizeof method);
    if (method == 0) {
      char* data = file_->at(records_.getRecordOffset(name), static_cast<uint64_t>(size));
      const at::Tensor bytes = at::from_blob(data, {size}, [kept = file_](void*) {}, at::kByte);
      return reinterpret_cast<uintptr_t>(data) % alignof(std::max_align_t) == 0 ? bytes : bytes.clone();
    }
    const at::Tensor bytes = at::empty({size}, at::kByte);
    records_.getRecord(name, bytes.mutable_data_ptr(), static_cast<size_t>(size));
    return bytes;
  }

  /// From ('storage', type, key, location, size).
  const at::Tensor& storage(const Pickled& persistent) {
    if (persistent->kind != Kind::kPersistent || persistent->items.at(0)->items.size() < 5)
      throw std::runtime_error("a tensor in it has no storage");
    const std::string& key = persistent->items[0]->items[2]->text;
    const auto known = storages_.find(key);
    return known != storages_.end() ? known->second : storages_.emplace(key, bytes_of("data/" + key)).first->second;
  }

  /// Arguments of _rebuild_tensor_v2: storage, offset, sizes, strides, requires_grad, hooks, what else is known; those of v3:
  /// the dtype before the last.
  at::Tensor tensor(const std::vector<Pickled>& arguments, bool names_dtype) {
    const size_t known = names_dtype ? 7 : 6;
    if (arguments.size() < known) throw std::runtime_error("a tensor in it is incomplete");
    const at::Tensor& bytes = storage(arguments[0]);
    const std::string& type = names_dtype ? arguments[6]->text : arguments[0]->items[0]->items[1]->text;
    const at::ScalarType dtype = dtype_of(type);
    if (dtype == at::ScalarType::Undefined) throw std::runtime_error("tensors of " + type + " are not read");
    const auto itemsize = static_cast<int64_t>(c10::elementSize(dtype));
    at::Tensor result = bytes.narrow(0, 0, bytes.numel() / itemsize * itemsize)
                            .view(dtype)
                            .as_strided(integers_of(arguments[2]), integers_of(arguments[3]), integer_of(arguments[1]));
    if (arguments.size() > known) {
      for (const auto& [key, value] : arguments[known]->entries) {
        if (value->text != "True") continue;
        if (key->text == "conj") result = at::_conj(result);
        if (key->text == "neg") result = at::_neg_view(result);
      }
    }
    return result;
  }

  /// Whether `value` is a tensor, and then adds it.
  bool add_tensor(Subject& subject, const std::string& name, const char* kind, const Pickled& value, int depth) {
    if (value->kind != Kind::kCall || value->items[0]->kind != Kind::kName) return false;
    const std::string& function = value->items[0]->text;
    const std::vector<Pickled>& arguments = value->items.at(1)->items;
    const bool names_dtype = function == "torch._utils._rebuild_tensor_v3";
    if (names_dtype || function == "torch._utils._rebuild_tensor_v2") {
      subject.items.push_back({.name = name, .kind = kind, .tensor = tensor(arguments, names_dtype), .value = {}});
      subject.items.back().trainable = arguments.at(4)->text == "True";
      return true;
    }
    if (function.starts_with("torch._utils._rebuild_parameter") && arguments.size() >= 2) {
      if (!add_tensor(subject, name, "parameter", arguments[0], depth + 1))
        throw std::runtime_error(fmt::format("'{}' in it is a parameter without a tensor", name));
      subject.items.back().trainable = arguments[1]->text == "True";
      return true;
    }
    // Of a subclass of Tensor: what to call, the class, arguments, state.
    if (function == "torch._tensor._rebuild_from_type_v2" && arguments.size() >= 3) {
      auto inner = std::make_shared<PickledValue>();
      inner->kind = Kind::kCall;
      inner->items = {arguments[0], arguments[2]};
      add(subject, name, kind, inner, depth + 1);
      return true;
    }
    if (function.find("._rebuild_") != std::string::npos)
      throw std::runtime_error(fmt::format("'{}' in it is of a kind that is not read ({})", name, function));
    return false;
  }

  void add_entries(Subject& subject, const std::string& name, const char* kind, const PickledValue& dictionary,
                   int depth) {
    for (const auto& [key, value] : dictionary.entries)
      add(subject, detail::joined(name, key->kind == Kind::kText ? key->text : text_of(key)), kind, value, depth + 1);
  }

  /// A module of torch.nn, as torch.save(model) writes it.
  bool add_module(Subject& subject, const std::string& name, const Pickled& value, int depth) {
    if (!value->state || value->state->kind != Kind::kDictionary) return false;
    std::map<std::string_view, Pickled> parts;
    for (const auto& [key, part] : value->state->entries) parts[key->text] = part;
    if (!parts.count("_parameters") || !parts.count("_buffers") || !parts.count("_modules")) return false;
    add_entries(subject, name, "parameter", *parts["_parameters"], depth);
    add_entries(subject, name, "buffer", *parts["_buffers"], depth);
    add_entries(subject, name, "tensor", *parts["_modules"], depth);
    return true;
  }

  void add(Subject& subject, const std::string& name, const char* kind, const Pickled& value, int depth) {
    if (depth > kDeepest) throw std::runtime_error(fmt::format("'{}…' in it is nested too deeply", name.substr(0, 40)));
    if (++values_ > kMostValues) throw std::runtime_error("it holds too many values");
    if (value->kind == Kind::kDictionary || value->is_call_of("collections.OrderedDict") ||
        value->is_call_of("collections.defaultdict"))
      return add_entries(subject, name, kind, *value, depth);
    if (value->kind == Kind::kList) {
      for (size_t i = 0; i < value->items.size(); ++i)
        add(subject, fmt::format("{}[{}]", name, i), kind, value->items[i], depth + 1);
      return;
    }
    if (add_tensor(subject, name, kind, value, depth) || add_module(subject, name, value, depth)) return;
    subject.items.push_back({.name = name, .kind = "value", .tensor = {}, .value = text_of(value)});
  }

  caffe2::serialize::PyTorchStreamReader records_;
  std::shared_ptr<MappedFile> file_;
  std::map<std::string, at::Tensor> storages_;
  int64_t values_ = 0;
};

}  // namespace

void add_python_file(Subject& subject, const std::string& path) { PythonFile(path).add_to(subject); }

}  // namespace lockstep::inspect
