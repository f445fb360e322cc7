#include "inspectors/verify/python_file.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

#include "inspectors/pickle/python_pickle.h"

namespace lockstep::inspect {
namespace {

using Kind = PickledValue::Kind;

constexpr int kDeepestEntry = 100;  // of nested dictionaries
constexpr size_t kMostDimensions = 64;
constexpr uint64_t kSavedItemCost = 256;  // what is counted for a value beside its name and text, in bytes

/// Takes Python's name, of which only the part after the last dot counts; Undefined for unknown names.
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
  if (list->items.size() > kMostDimensions) throw std::runtime_error("a tensor in it has too many dimensions");
  std::vector<int64_t> result;
  for (const Pickled& item : list->items) result.push_back(integer_of(item));
  return result;
}

// These records are about the format of the archive, not about the saved objects.
constexpr std::string_view kFormatRecords[] = {"data.pkl",           "version",   ".format_version",
                                               ".storage_alignment", "byteorder", ".data/serialization_id"};

class PythonFile {
 public:
  PythonFile(const std::shared_ptr<MappedFile>& file, const ZipArchive& archive, ReadingLimit& limit)
      : limit_(limit),
        records_(std::make_shared<ZipArchiveReader>(file, archive, limit)),
        file_(file),
        begin_(archive.begin) {
    if (records_.hasRecord("byteorder") && record("byteorder") != "little")
      throw std::runtime_error("it was written on a machine with another byte order");
  }

  void add_to(Subject& subject, const std::string& name) {
    const std::string pickle = record("data.pkl");
    add(subject, name, FindingKind::tensor, Pickle(pickle, limit_).value(), 0);
    add_storages(subject);
    add_records(subject, name);
  }

 private:
  /// Describes a storage, and the part of it that tensors have.
  struct Storage {
    at::Tensor bytes;
    std::string name;  // of its first tensor
    std::vector<std::pair<int64_t, int64_t>> covered;  // begin and end of dense tensors, in bytes

    bool is_covered() {
      std::sort(covered.begin(), covered.end());
      int64_t end = 0;
      for (const auto& [from, to] : covered)
        if (from <= end) end = std::max(end, to);
      return end >= bytes.numel();
    }
  };

  std::string record(const std::string& name) {
    const auto [data, size] = records_.getRecord(name);
    return {static_cast<const char*>(data.get()), size};
  }

  /// Adds bytes of storages that belong to no tensor: they are no saved values, but are part of the file.
  void add_storages(Subject& subject) {
    for (auto& [key, storage] : storages_)
      if (!storage.is_covered())
        subject.unseen.push_back({.name = detail::joined(storage.name, "storage()"),
                                  .kind = FindingKind::storage,
                                  .tensor = storage.bytes,
                                  .value = {}});
  }

  /// Adds records that have not been read: storages of objects that are compared as text, and records of other tools.
  void add_records(Subject& subject, const std::string& name) {
    for (const std::string& each : records_.getAllRecords()) {
      const bool read = each.starts_with("data/") && storages_.contains(each.substr(5));
      if (!read && std::ranges::find(kFormatRecords, each) == std::end(kFormatRecords))
        subject.items.push_back({.name = detail::joined(name, "record " + each),
                                 .kind = FindingKind::record,
                                 .tensor = bytes_of(each),
                                 .value = {}});
    }
  }

  /// Returns a record of the zip file as a tensor of bytes: a view of the file if the record is not compressed.
  at::Tensor bytes_of(const std::string& name) {
    const auto size = static_cast<int64_t>(records_.getRecordSize(name));
    if (size == 0) return at::empty({0}, at::kByte);
    // The local header has the method of compression (APPNOTE of PKWARE, 4.3.7). torch.save writes 0; other tools may
    // write another.
    uint16_t method;
    const uint64_t header = begin_ + records_.getRecordHeaderOffset(name);
    std::memcpy(&method, file_->at(header + 8, sizeof method), sizeof method);
    if (method == 0) {
      char* data = file_->at(begin_ + records_.getRecordOffset(name), static_cast<uint64_t>(size));
      const at::Tensor bytes = at::from_blob(data, {size}, [kept = file_](void*) {}, at::kByte);
      return reinterpret_cast<uintptr_t>(data) % alignof(std::max_align_t) == 0 ? bytes : bytes.clone();
    }
    const at::Tensor bytes = at::empty({size}, at::kByte);
    records_.getRecord(name, bytes.mutable_data_ptr(), static_cast<size_t>(size));
    return bytes;
  }

  /// Takes ('storage', type, key, location, size).
  Storage& storage(const Pickled& persistent, const std::string& name) {
    if (persistent->kind != Kind::kPersistent || persistent->items.at(0)->items.size() < 5)
      throw std::runtime_error("a tensor in it has no storage");
    const std::string& key = persistent->items[0]->items[2]->text;
    const auto known = storages_.find(key);
    if (known != storages_.end()) return known->second;
    return storages_.emplace(key, Storage{.bytes = bytes_of("data/" + key), .name = name, .covered = {}}).first->second;
  }

  /// Takes the arguments of _rebuild_tensor_v2: storage, offset, sizes, strides, requires_grad, hooks, metadata. v3 has
  /// the dtype before the last.
  at::Tensor tensor(Subject& subject, const std::string& name, const std::vector<Pickled>& arguments,
                    bool names_dtype) {
    const size_t required = names_dtype ? 7 : 6;
    if (arguments.size() < required) throw std::runtime_error("a tensor in it is incomplete");
    Storage& whole_storage = storage(arguments[0], name);
    const at::Tensor& bytes = whole_storage.bytes;
    const std::string& type = names_dtype ? arguments[6]->text : arguments[0]->items[0]->items[1]->text;
    const at::ScalarType dtype = dtype_of(type);
    if (dtype == at::ScalarType::Undefined) throw std::runtime_error("tensors of " + type + " are not supported");
    const auto itemsize = static_cast<int64_t>(c10::elementSize(dtype));
    at::Tensor result = bytes.narrow(0, 0, bytes.numel() / itemsize * itemsize)
                            .view(dtype)
                            .as_strided(integers_of(arguments[2]), integers_of(arguments[3]), integer_of(arguments[1]));
    // Many tensors can have the same elements, and many elements the same bytes.
    limit_.take(static_cast<uint64_t>(result.nbytes()));
    if (result.is_non_overlapping_and_dense()) {
      const int64_t from = integer_of(arguments[1]) * itemsize;
      whole_storage.covered.emplace_back(from, from + result.numel() * itemsize);
    }
    if (arguments.size() > required) {
      for (const auto& [key, value] : arguments[required]->entries) {
        if (key->text == "conj" && value->text == "True")
          result = at::_conj(result);
        else if (key->text == "neg" && value->text == "True")
          result = at::_neg_view(result);
        else
          add_unseen(subject, detail::joined(name, key->text), value);
      }
    }
    return result;
  }

  /// Serves properties of values: attributes of a dictionary, the class of a tensor.
  void add_unseen(Subject& subject, std::string name, const Pickled& value) {
    if (is_empty(value)) return;
    limit_.take(kSavedItemCost + 2 * name.size());
    subject.unseen.push_back(
        {.name = std::move(name), .kind = FindingKind::attribute, .tensor = {}, .value = text_of(value, limit_)});
  }

  /// Adds `value` if it is a tensor. Returns whether it is.
  bool add_tensor(Subject& subject, const std::string& name, FindingKind kind, const Pickled& value, int depth) {
    if (value->kind != Kind::kCall || value->items[0]->kind != Kind::kName) return false;
    const std::string& function = value->items[0]->text;
    const std::vector<Pickled>& arguments = value->items.at(1)->items;
    const bool names_dtype = function == "torch._utils._rebuild_tensor_v3";
    if (names_dtype || function == "torch._utils._rebuild_tensor_v2") {
      const at::Tensor added = tensor(subject, name, arguments, names_dtype);
      subject.items.push_back({.name = name, .kind = kind, .tensor = added, .value = {}});
      subject.items.back().trainable = arguments.at(4)->text == "True";
      return true;
    }
    if (function.starts_with("torch._utils._rebuild_parameter") && arguments.size() >= 2) {
      if (!add_tensor(subject, name, FindingKind::parameter, arguments[0], depth + 1))
        throw std::runtime_error(fmt::format("the parameter '{}' has no tensor", name));
      subject.items.back().trainable = arguments[1]->text == "True";
      if (arguments.size() > 3) add_unseen(subject, detail::joined(name, "__dict__"), arguments[3]);
      return true;
    }
    // A subclass of Tensor has function, class, arguments, state.
    if (function == "torch._tensor._rebuild_from_type_v2" && arguments.size() >= 3) {
      auto inner = std::make_shared<PickledValue>();
      inner->kind = Kind::kCall;
      inner->items = {arguments[0], arguments[2]};
      add(subject, name, kind, inner, depth + 1);
      add_unseen(subject, detail::joined(name, "__class__"), arguments[1]);
      if (arguments.size() > 3) add_unseen(subject, detail::joined(name, "__dict__"), arguments[3]);
      return true;
    }
    if (function.find("._rebuild_") != std::string::npos)
      throw std::runtime_error(fmt::format("'{}' is of a kind that is not supported ({})", name, function));
    return false;
  }

  void add_entries(Subject& subject, const std::string& name, FindingKind kind, const Pickled& dictionary, int depth) {
    for (const auto& [key, value] : dictionary->entries)
      add(subject, detail::joined(name, key->kind == Kind::kText ? key->text : text_of(key, limit_)), kind, value,
          depth + 1);
  }

  /// Adds a module of torch.nn (torch.save(model)), whose behaviour also depends on its class and attributes. Returns
  /// whether `value` is a module.
  bool add_module(Subject& subject, const std::string& name, const Pickled& value, int depth) {
    if (!value->state || value->state->kind != Kind::kDictionary) return false;
    limit_.take(kSavedItemCost * value->state->entries.size());
    std::map<std::string_view, Pickled> parts;
    for (const auto& [key, part] : value->state->entries) parts[key->text] = part;
    if (!parts.count("_parameters") || !parts.count("_buffers") || !parts.count("_modules")) return false;
    add_entries(subject, name, FindingKind::parameter, parts["_parameters"], depth);
    add_entries(subject, name, FindingKind::buffer, parts["_buffers"], depth);
    add_entries(subject, name, FindingKind::tensor, parts["_modules"], depth);
    subject.items.push_back({.name = detail::joined(name, "__class__"),
                             .kind = FindingKind::value,
                             .tensor = {},
                             .value = text_of(value->items[0], limit_)});
    for (const auto& [key, part] : value->state->entries) {
      const bool known = key->text == "_parameters" || key->text == "_buffers" || key->text == "_modules";
      if (!known) add_attribute(subject, detail::joined(name, key->text), part, depth);
    }
    return true;
  }

  void add_attribute(Subject& subject, const std::string& name, const Pickled& value, int depth) {
    try {
      if (!is_empty(value)) add(subject, name, FindingKind::attribute, value, depth + 1);
    } catch (const ReadingLimitError&) {
      throw;
    } catch (const std::runtime_error&) {  // for example a cycle back to the module; the other attributes are compared
      subject.items.push_back({.name = name, .kind = FindingKind::unsupported, .tensor = {}, .value = "not compared"});
    }
  }

  void add(Subject& subject, const std::string& name, FindingKind kind, const Pickled& value, int depth) {
    if (depth > kDeepestEntry) throw std::runtime_error(fmt::format("'{}…' is nested too deeply", name.substr(0, 40)));
    limit_.take(kSavedItemCost + 2 * name.size());
    const bool has_class = value->is_call_of("collections.OrderedDict") || value->is_call_of("collections.defaultdict");
    if ((value->kind == Kind::kDictionary || has_class) && !value->entries.empty()) {
      add_entries(subject, name, kind, value, depth);
      if (has_class) add_unseen(subject, detail::joined(name, "__init__"), value->items[1]);
      if (value->state) add_unseen(subject, detail::joined(name, "__dict__"), value->state);
      return;
    }
    if (value->kind == Kind::kList && !value->items.empty()) {
      for (size_t i = 0; i < value->items.size(); ++i)
        add(subject, fmt::format("{}[{}]", name, i), kind, value->items[i], depth + 1);
      return;
    }
    if (add_tensor(subject, name, kind, value, depth) || add_module(subject, name, value, depth)) return;
    // Empty containers count, too: a key that only one file has is a difference.
    subject.items.push_back({.name = name, .kind = FindingKind::value, .tensor = {}, .value = text_of(value, limit_)});
  }

  ReadingLimit& limit_;
  caffe2::serialize::PyTorchStreamReader records_;
  std::shared_ptr<MappedFile> file_;
  const uint64_t begin_;  // of the archive in the file
  std::map<std::string, Storage> storages_;
};

}  // namespace

void add_python_archive(Subject& subject, const std::string& name, const std::shared_ptr<MappedFile>& file,
                        const ZipArchive& archive, ReadingLimit& limit) {
  PythonFile(file, archive, limit).add_to(subject, name);
}

}  // namespace lockstep::inspect
